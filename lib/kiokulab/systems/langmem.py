"""LangMem on LangGraph's in-memory store. What was run and what it cannot do: langmem.md."""

from __future__ import annotations

import json
import os
import random
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure, Unsupported

SYSTEMS = {"langmem-store": "LangMemStore", "langmem": "LangMem", "langmem-deletes": "LangMemDeletes"}

EVERYTHING = 1_000_000  # a search of the store stops at 10 unless it is told a number


class _Ids:
    """Stands in for the module `uuid` inside LangMem: ids that are alike in every run, since they stand in its prompts,
    and a recorded call can only answer a prompt that is the same."""

    def __init__(self, seed: str):
        self.random = random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128), version=4)


class LangMemStore(System):
    """The store that LangMem writes to, without LangMem's model: each message is put as it is."""

    name = "langmem-store"
    package = "langmem"
    licence = "MIT"
    forgets = ("ids", "all")
    feeds = "session"
    dates = "clock"
    embeddings = True
    capabilities = frozenset({"search", "forget", "reset"})
    settings: dict[str, Any] = {}
    order: Any = None  # of what one call stores; None: as it was stored

    def version(self) -> str:
        from importlib.metadata import version

        return version(self.package)

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if endpoint is None:
            raise SystemFailure("LangMem needs an embedding endpoint, and this run has none", "not_ready")
        os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
        for name in ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
            os.environ.pop(name, None)
        from langgraph.store.memory import InMemoryStore

        with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
            offered = json.load(answer)["data"]
        self.embedder = next(row for row in offered if "dimensions" in row)
        self.llm = next((row["id"] for row in offered if "dimensions" not in row), None)
        # the documented index: the whole value, as JSON, is embedded
        self.store = InMemoryStore(index={"dims": self.embedder["dimensions"], "embed": self._embed, "fields": ["$"]})
        self.namespace = ("memories", space)
        self.file = os.path.join(workdir, "store.json")
        self.numbers: dict[str, int] = {}  # LangMem's id → number in the order of storing
        self.fed: list[str] = []  # dates of the calls so far
        self.calls = 0
        self._load()

    # the store lives in memory: what is in it is written beside it after each change, and read when opened
    def _load(self) -> None:
        if not os.path.exists(self.file):
            return
        with open(self.file, encoding="utf-8") as file:
            kept = json.load(file)
        self.numbers, self.fed, self.calls = kept["numbers"], kept["fed"], kept["calls"]
        for row in kept["items"]:
            self.store.put(self.namespace, row["key"], row["value"])
            item = self.store._data[self.namespace][row["key"]]  # put dates it "now", and it is older
            item.created_at = datetime.fromisoformat(row["created"])
            item.updated_at = datetime.fromisoformat(row["updated"])

    def _save(self) -> None:
        rows = [
            {
                "key": item.key,
                "value": item.value,
                "created": item.created_at.isoformat(),
                "updated": item.updated_at.isoformat(),
            }
            for item in self._items()
        ]
        new = [row for row in rows if row["key"] not in self.numbers]
        for row in sorted(new, key=self.order) if self.order else new:
            self.numbers[row["key"]] = len(self.numbers) + 1
        kept = {"items": rows, "numbers": self.numbers, "fed": self.fed, "calls": self.calls}
        with open(self.file + ".new", "w", encoding="utf-8") as file:
            json.dump(kept, file)  # ASCII: lone surrogates survive
        os.replace(self.file + ".new", self.file)

    def _items(self) -> list[Any]:
        """Everything of this unit in the order of storing; the same number must be found by the store's own listing."""
        listed = {item.key for item in self.store.search(self.namespace, limit=EVERYTHING)}
        held = self.store._data.get(self.namespace, {})
        if listed != set(held):
            raise SystemFailure(f"the store lists {len(listed)} memories and holds {len(held)}")
        return list(held.values())

    def _embed(self, texts: list[str]) -> list[list[float]]:
        body = json.dumps({"model": self.embedder["id"], "input": list(texts), "encoding_format": "float"}).encode(
            "ascii"
        )
        request = urllib.request.Request(f"{self.endpoint}/embeddings", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            rows = json.load(answer)["data"]
        return [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]

    def close(self) -> None:
        self._save()

    def reset(self) -> None:
        self.forget({"all": True})

    def ingest(self, item: Item, when: str) -> Ingested:
        messages = (
            [{"role": turn.role, "content": turn.text} for turn in item.turns]
            if isinstance(item, Session)
            else [{"role": "user", "content": item.text}]
        )
        before = {kept.key: json.dumps(kept.value) for kept in self._items()}
        self.calls += 1
        self.fed.append(when)
        self.ids = _Ids(f"{self.space} {self.calls}")
        warnings = self.take(messages)
        after = {kept.key: json.dumps(kept.value) for kept in self._items()}
        self._save()
        return Ingested(
            added=len(after.keys() - before.keys()),
            changed=sum(after[key] != before[key] for key in after.keys() & before.keys()),
            removed=len(before.keys() - after.keys()),
            warnings=warnings,
        )

    def take(self, messages: list[dict[str, str]]) -> list[str]:
        """Let the system have the messages. Gives what it has to complain of."""
        for message in messages:
            self.store.put(self.namespace, str(self.ids.uuid4()), {"content": message["content"]})
        return []

    def _memory(self, item: Any) -> dict[str, Any]:
        # two shapes: of the manager {"kind", "content": {"content"}}, of the tools and of put {"content"}
        value = item.value
        content = value.get("content")
        text = content.get("content") if isinstance(content, dict) and set(content) == {"content"} else content
        if not isinstance(text, str):
            text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        seen = item.created_at.astimezone(timezone.utc)
        # the clock ticks on from the date of the call: that date is given where the store's lies just behind it, so
        # that two runs agree
        exact = [
            date
            for date in self.fed
            if timedelta(0) <= seen - datetime.fromisoformat(date).astimezone(timezone.utc) < timedelta(minutes=20)
        ]
        return {
            "text": text,
            "created": exact[-1] if exact else seen.isoformat(),
            "id": f"m{self.numbers[item.key]:06d}",
        }

    def dump(self) -> list[Memory]:
        rows = [
            Memory(**self._memory(item), kind=item.value.get("kind"), source="store.json") for item in self._items()
        ]
        return sorted(rows, key=lambda row: row.id)

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        found = self.store.search(self.namespace, query=query, limit=k)
        return Results([Hit(**self._memory(item), score=item.score) for item in found])

    def forget(self, selector: dict[str, Any]) -> int | None:
        if "query" in selector:
            raise Unsupported("forget", "the store deletes by key, and has no call that forgets by meaning")
        keys = {f"m{self.numbers[item.key]:06d}": item.key for item in self._items()}
        chosen = list(keys) if selector.get("all") else selector["ids"]
        for id in chosen:
            self.store.delete(self.namespace, keys[id])
        self._save()
        return len(chosen)


class LangMem(LangMemStore):
    """`create_memory_store_manager` with its defaults: a model adds and changes memories, and cannot delete any."""

    name = "langmem"
    model = "required"
    keeps = "some"
    settings = {"query_limit": 5, "enable_deletes": False}

    @staticmethod
    def order(row: dict[str, Any]) -> str:
        """LangMem stores what one call made from several threads at once, so in no order: by text instead."""
        return json.dumps(row["value"], sort_keys=True)

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if self.llm is None:
            raise SystemFailure("LangMem needs a language model to extract with, and this run has none", "not_ready")
        from langchain_openai import ChatOpenAI
        from langmem import create_memory_store_manager
        from langmem.knowledge import extraction
        from trustcall import _base as trustcall

        # the model class would choose the Responses API by the model's name alone, wherever the base URL leads
        model = ChatOpenAI(
            model=self.llm, base_url=endpoint, api_key="not-a-key", temperature=0, use_responses_api=False
        )
        self._modules = (extraction, trustcall)
        self.manager = create_memory_store_manager(
            model, namespace=("memories", "{langgraph_user_id}"), store=self.store, enable_inserts=True,
            enable_deletes=self.config["enable_deletes"], query_limit=self.config["query_limit"],
        )  # fmt: skip

    def take(self, messages: list[dict[str, str]]) -> list[str]:
        for module in self._modules:
            module.uuid = self.ids
        heard = _listener()
        config = {"configurable": {"langgraph_user_id": self.space}, "callbacks": [heard]}
        self.manager.invoke({"messages": messages}, config=config)
        return heard.complaints


def _listener() -> Any:
    """A callback of LangChain's that keeps what LangMem passes over in silence: a tool call of the model that is no
    JSON is dropped, and so is what an answer that was cut off did not get to say."""
    from langchain_core.callbacks import BaseCallbackHandler

    class Listener(BaseCallbackHandler):
        def __init__(self) -> None:
            self.complaints: list[str] = []

        def on_llm_end(self, response: Any, **_: Any) -> None:
            for generation in (one for several in response.generations for one in several):
                message = getattr(generation, "message", None)
                for call in getattr(message, "invalid_tool_calls", None) or []:
                    self.complaints.append(f"a tool call of the model could not be read: {str(call.get('args'))[:200]}")
                if (getattr(message, "response_metadata", None) or {}).get("finish_reason") == "length":
                    self.complaints.append("the model's answer was cut off")

    return Listener()


class LangMemDeletes(LangMem):
    """The same with `enable_deletes=True`, which LangMem leaves off: the model may take a memory away."""

    name = "langmem-deletes"
    settings = {"query_limit": 5, "enable_deletes": True}

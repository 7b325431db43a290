"""MemOS (MemoryOS), its general text memory on a local Qdrant folder. What was run and what it cannot do: memos.md."""

from __future__ import annotations

import json
import logging
import os
import urllib.request
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure, Unsupported
from kiokulab.systems.plumbing import Complaints

SYSTEMS = {"memos-general": "MemosGeneral", "memos-verbatim": "MemosVerbatim"}

BUILT_IN = "extractive"  # the kit's built-in model


class MemosVerbatim(System):
    """Each message is added as a memory, as it is; no language model takes part."""

    name = "memos-verbatim"
    package = "memoryos"
    licence = "Apache-2.0"
    feeds = "session"
    dates = "clock"
    embeddings = True
    forgets = ("ids", "all")
    capabilities = frozenset({"search", "forget", "reset"})
    settings: dict[str, Any] = {"collection": "memories"}

    def version(self) -> str:
        from importlib.metadata import version

        return version(self.package)

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if endpoint is None:
            raise SystemFailure("MemOS needs an embedding endpoint, and this run has none", "not_ready")
        # read when memos is imported: where its folder and its log lie, and no .env of whoever started this
        os.environ.update(MEMOS_BASE_PATH=workdir, PYTHON_DOTENV_DISABLED="1")
        from memos.configs.memory import GeneralTextMemoryConfig
        from memos.memories.textual.general import GeneralTextMemory

        self.complaints = Complaints()
        logging.getLogger("memos").addHandler(self.complaints)
        with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
            offered = json.load(answer)["data"]
        embedder = next(row for row in offered if "dimensions" in row)
        self.llm = next((row["id"] for row in offered if "dimensions" not in row), None)
        store = {
            "collection_name": self.config["collection"],
            "vector_dimension": embedder["dimensions"],
            "distance_metric": "cosine",
            "path": os.path.join(workdir, "qdrant"),
        }
        self.memory = GeneralTextMemory(
            GeneralTextMemoryConfig(
                extractor_llm={"backend": "openai", "config": {"model_name_or_path": self.llm or "none", "temperature": 0.0, "api_key": "not-a-key", "api_base": endpoint}},
                embedder={"backend": "universal_api", "config": {"model_name_or_path": embedder["id"], "provider": "openai", "api_key": "not-a-key", "base_url": endpoint}},
                vector_db={"backend": "qdrant", "config": store},
            )
        )  # fmt: skip
        # MemOS's random id -> number in the order of storing: alike in every run
        self.file = os.path.join(workdir, "numbers.json")
        self.numbers: dict[str, int] = {}
        if os.path.exists(self.file):
            with open(self.file, encoding="utf-8") as file:
                self.numbers = json.load(file)
        self.complaints.take()

    def close(self) -> None:
        self.memory.vector_db.client.close()

    def reset(self) -> None:
        self.memory.delete_all()
        self.numbers = {}
        self._save()

    def _save(self) -> None:
        with open(self.file + ".new", "w", encoding="utf-8") as file:
            json.dump(self.numbers, file)
        os.replace(self.file + ".new", self.file)

    # writing
    def ingest(self, item: Item, when: str) -> Ingested:
        turns = (
            [(turn.role, turn.text) for turn in item.turns if turn.text]
            if isinstance(item, Session)
            else [("user", item.text)]
        )
        found = self.taken(turns, when)
        for one in found:
            one.metadata.updated_at = when  # the clock is set too, but ticks
        if found:
            self.memory.add(found)
        for one in found:
            self.numbers[one.id] = max(self.numbers.values(), default=0) + 1
        self._save()
        return Ingested(len(found), 0, 0, list(dict.fromkeys(self.complaints.take())))

    def taken(self, turns: list[tuple[str, str]], when: str) -> list[Any]:
        """What is to be stored of one conversation, as MemOS's own items."""
        from memos.memories.textual.item import TextualMemoryItem

        return [
            TextualMemoryItem(memory=text, metadata={"source": "conversation", "key": role}) for role, text in turns
        ]

    def forget(self, selector: dict[str, Any]) -> int:
        if "query" in selector:
            raise Unsupported("forget", "MemOS's general memory deletes by id, and has no call that forgets by meaning")
        ids = {f"m{number:06d}": id for id, number in self.numbers.items()}
        chosen = [ids[number] for number in (list(ids) if selector.get("all") else selector["ids"])]
        before = self.memory.vector_db.count()
        if chosen:
            self.memory.delete(chosen)
        self.numbers = {id: number for id, number in self.numbers.items() if id not in set(chosen)}
        self._save()
        return before - self.memory.vector_db.count()

    # reading
    def _memory(self, item: Any) -> dict[str, Any]:
        return {"text": item.memory, "id": f"m{self.numbers[item.id]:06d}", "created": item.metadata.updated_at}

    def dump(self) -> list[Memory]:
        rows = self.memory.get_all()
        held = self.memory.vector_db.count()
        if held != len(rows):
            raise SystemFailure(f"get_all gave {len(rows)} memories and the collection holds {held}")
        return sorted(
            (Memory(**self._memory(row), source="qdrant", kind="memory") for row in rows), key=lambda row: row.id
        )

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        return Results([Hit(**self._memory(row)) for row in self.memory.search(query, k)])


class MemosGeneral(MemosVerbatim):
    """`extract`, then `add`: a model makes memories of a conversation, and only they are stored."""

    name = "memos-general"
    model = "required"
    keeps = "some"

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if self.llm is None:
            self.close()
            raise SystemFailure("MemOS needs a language model to extract with, and this run has none", "not_ready")
        if self.llm == BUILT_IN:
            self.memory.extractor_llm = _StandIn(self)

    def taken(self, turns: list[tuple[str, str]], when: str) -> list[Any]:
        self.text = "\n".join(text for role, text in turns if role == "user")
        # the prompt has each message with its date in front
        return self.memory.extract(
            [{"role": role, "content": f" [{when[:10]} {when[11:16]}]: {text}"} for role, text in turns]
        )


class _StandIn:
    """Where the kit's built-in model is asked, which copies sentences and does not know MemOS's form: puts its
    sentences into that form."""

    def __init__(self, held: MemosGeneral):
        self.held = held

    def generate(self, messages: list[dict[str, str]], **_: Any) -> str:
        body = {"model": BUILT_IN, "messages": [{"role": "user", "content": self.held.text}]}
        request = urllib.request.Request(
            f"{self.held.endpoint}/chat/completions",
            json.dumps(body).encode("ascii"),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            said = json.load(answer)["choices"][0]["message"]["content"] or ""
        sentences = [] if said == "Nothing to remember." else [line for line in said.splitlines() if line.strip()]
        return json.dumps(
            {
                "memory list": [
                    {"key": one[:40], "memory_type": "UserMemory", "value": one, "tags": []} for one in sentences
                ],
                "summary": "",
            }
        )

"""Mem0 (mem0ai) as a library on local Qdrant and SQLite files. What was run and what it cannot do: mem0.md."""

from __future__ import annotations

import json
import logging
import os
import urllib.request
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure, Unsupported
from kiokulab.systems.plumbing import Complaints

SYSTEMS = {"mem0-verbatim": "Mem0Verbatim", "mem0": "Mem0"}

EVERYTHING = 1_000_000  # get_all and search stop at 20 unless they are told a number


class Mem0Verbatim(System):
    """`add(..., infer=False)`: each message is stored as it is; no language model takes part."""

    name = "mem0-verbatim"
    package = "mem0ai"
    licence = "Apache-2.0"
    forgets = ("ids", "all")
    feeds = "session"
    dates = "clock"
    embeddings = True
    capabilities = frozenset({"search", "forget", "reset"})
    # threshold: Mem0's own default, 0.1, drops results below that similarity, so that a search for k gives fewer
    settings = {"threshold": 0.0, "collection": "memories"}
    infer = False

    def version(self) -> str:
        from importlib.metadata import version

        return version(self.package)

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if endpoint is None:
            raise SystemFailure("Mem0 needs an embedding endpoint, and this run has none", "not_ready")
        # read when mem0 is imported; OPENROUTER_API_KEY would send its model calls past the base URL
        os.environ.update(MEM0_DIR=os.path.join(workdir, "mem0dir"), MEM0_TELEMETRY="False")
        for name in ("OPENROUTER_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
            os.environ.pop(name, None)
        from mem0 import Memory as Mem0

        self._complaints = Complaints()
        logging.getLogger("mem0").addHandler(self._complaints)
        with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
            offered = json.load(answer)["data"]
        model = next(row for row in offered if "dimensions" in row)
        llm = {"model": next((row["id"] for row in offered if "dimensions" not in row), None), **self.llm_config()}
        if self.infer and llm["model"] is None:
            raise SystemFailure("Mem0 needs a language model to extract with, and this run has none", "not_ready")
        access = {"openai_base_url": endpoint, "api_key": "not-a-key"}
        dims = model["dimensions"]  # both places: a store that was made for 1536 fails only at its first use
        store = {
            "path": os.path.join(workdir, "qdrant"),
            "collection_name": self.config["collection"],
            "embedding_model_dims": dims,
        }
        self.memory = Mem0.from_config(
            {
                "llm": {"provider": "openai", "config": {**llm, "model": llm["model"] or "none", **access}},
                "embedder": {"provider": "openai", "config": {"model": model["id"], "embedding_dims": dims, **access}},
                "vector_store": {"provider": "qdrant", "config": {**store, "on_disk": True}},
                "history_db_path": os.path.join(workdir, "history.db"),
            }
        )
        self._complaints.take()

    def llm_config(self) -> dict[str, Any]:
        """What Mem0's model class is given beside the model's name."""
        return {}

    def close(self) -> None:
        self.memory.close()  # the SQLite file only
        self.memory.vector_store.client.close()  # Qdrant's lock on the folder

    def reset(self) -> None:
        self.memory.reset()

    def ingest(self, item: Item, when: str) -> Ingested:
        turns = (
            [{"role": turn.role, "content": turn.text} for turn in item.turns]
            if isinstance(item, Session)
            else item.text
        )
        # the clock is set too, but ticks: the exact date keeps two runs alike
        answer = self.memory.add(turns, user_id=self.space, metadata={"created_at": when}, infer=self.infer)
        events = [row["event"] for row in answer["results"]]
        counts = {
            name: events.count(event)
            for name, event in (("added", "ADD"), ("changed", "UPDATE"), ("removed", "DELETE"))
        }
        return Ingested(**counts, warnings=self._complaints.take())

    def dump(self) -> list[Memory]:
        rows = self.memory.get_all(filters={"user_id": self.space}, top_k=EVERYTHING, show_expired=True)["results"]
        client, collection = self.memory.vector_store.client, self.config["collection"]
        held = client.count(collection, exact=True).count
        if held != len(rows):
            raise SystemFailure(f"get_all gave {len(rows)} memories and the collection holds {held}")
        number = self._numbers()
        memories = [
            Memory(number[row["id"]], row["memory"], created=row["created_at"], kind=row.get("role"), source="qdrant")
            for row in rows
        ]
        return sorted(memories, key=lambda memory: memory.id)

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        # top_k and not limit, which search() takes and ignores
        rows = self.memory.search(query, filters={"user_id": self.space}, top_k=k, threshold=self.config["threshold"])[
            "results"
        ]
        number = self._numbers()
        return Results([Hit(row["memory"], number[row["id"]], row["score"], row["created_at"]) for row in rows])

    def forget(self, selector: dict[str, Any]) -> int | None:
        if "query" in selector:
            raise Unsupported("forget", "Mem0 deletes by id or by user, and has no call that forgets by meaning")
        before = self.memory.vector_store.client.count(self.config["collection"], exact=True).count
        if selector.get("all"):
            self.memory.delete_all(user_id=self.space)
        else:
            ids = {number: id for id, number in self._numbers().items()}
            for number in selector["ids"]:
                self.memory.delete(ids[number])
        return before - self.memory.vector_store.client.count(self.config["collection"], exact=True).count

    def _numbers(self) -> dict[str, str]:
        """Mem0's random id → a number in the order of storing, from its own history: alike in every run."""
        rows = self.memory.db.connection.execute("SELECT memory_id FROM history WHERE event = 'ADD' ORDER BY rowid")
        return {id: f"m{number:06d}" for number, (id,) in enumerate(rows, 1)}


def swallowed(reply: Any) -> str | None:
    """Why Mem0 takes a model's reply for "there is nothing to remember" and says nothing; None where it says so, or the
    reply holds a list. What it cannot parse at all it logs itself."""
    if not isinstance(reply, str) or not reply.strip():
        return "the model's reply holds no words"
    try:
        said = json.loads(reply, strict=False)
    except (ValueError, RecursionError):
        return None
    return "the model's reply is JSON without `memory`" if isinstance(said, dict) and "memory" not in said else None


class Mem0(Mem0Verbatim):
    """`add(..., infer=True)`, Mem0's default: a language model takes facts out of the messages, and only they are
    stored."""

    name = "mem0"
    model = "required"
    keeps = "some"
    # threshold 0.1 is Mem0's own. Its 2000 tokens for a reply cut long sessions in the middle of their JSON, which Mem0
    # then drops
    settings = {"threshold": 0.1, "collection": "memories", "max_tokens": 16000}
    infer = True

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        generate = self.memory.llm.generate_response

        def heard(*arguments: Any, **options: Any) -> Any:
            reply = generate(*arguments, **options)
            if why := swallowed(reply):
                self._complaints.lines.append(f"SWALLOWED mem0: {why}: {str(reply)[:200]!r}")
            return reply

        self.memory.llm.generate_response = heard

    def llm_config(self) -> dict[str, Any]:
        return {"max_tokens": self.config["max_tokens"]}

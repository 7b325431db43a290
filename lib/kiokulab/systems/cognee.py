"""cognee as a library: its document pipeline without a language model, and cognify. What was run and what it cannot do:
cognee.md."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure

SYSTEMS = {"cognee-chunks": "CogneeChunks", "cognee": "Cognee"}

DATASET = "memories"


class CogneeChunks(System):
    """Each session is a document, cut into chunks that are embedded and put into cognee's graph; no model reads
    them."""

    name = "cognee-chunks"
    package = "cognee"
    licence = "Apache-2.0"
    feeds = "session"
    dates = "text"
    embeddings = True
    capabilities = frozenset({"search", "reset"})
    settings = {"chunk_size": 512}

    def version(self) -> str:
        from importlib.metadata import version

        return version(self.package)

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if endpoint is None:
            raise SystemFailure("cognee needs an embedding endpoint, and this run has none", "not_ready")
        with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
            offered = json.load(answer)["data"]
        embedder = next(row for row in offered if "dimensions" in row)
        root = Path(workdir)
        # litellm ships the tokenizer's file under its cache name; without this it would be looked for at a server
        tokenizers = Path(importlib.util.find_spec("litellm").origin).parent / "litellm_core_utils" / "tokenizers"
        for name in ("data", "system", "cache"):
            (root / name).mkdir(exist_ok=True)
        os.environ.update(
            {
                "TELEMETRY_DISABLED": "1",
                "LLM_PROVIDER": "openai", "LLM_API_KEY": "not-a-key", **self.llm(offered),
                "EMBEDDING_PROVIDER": "openai_compatible", "EMBEDDING_MODEL": embedder["id"], "EMBEDDING_ENDPOINT": endpoint,
                "EMBEDDING_API_KEY": "not-a-key", "EMBEDDING_DIMENSIONS": str(embedder["dimensions"]),
                "DATA_ROOT_DIRECTORY": str(root / "data"), "SYSTEM_ROOT_DIRECTORY": str(root / "system"),
                "CACHE_ROOT_DIRECTORY": str(root / "cache"), "COGNEE_SKIP_CONNECTION_TEST": "true",
                "ENABLE_BACKEND_ACCESS_CONTROL": "false", "CACHING": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "COGNEE_LOG_FILE": "false", "LOG_LEVEL": "ERROR", "TIKTOKEN_CACHE_DIR": str(tokenizers),
            }
        )  # fmt: skip
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        import cognee

        self.cognee = cognee
        # the order of feeding, as the names that cognee gives its copies of the texts: no text of it is kept by this
        # adapter
        self.file = root / "documents.json"
        self.names: list[str] = json.loads(self.file.read_text(encoding="ascii")) if self.file.exists() else []
        copies = [root / "data" / name for name in self.names]
        self.documents = [copy.read_bytes().decode("utf-8", "replace") if copy.exists() else "" for copy in copies]
        self.waiting = 0

    def llm(self, offered: list[dict[str, Any]]) -> dict[str, str]:
        """cognee's settings of the language model, from what the run offers. Here a dead address: a call of it would be
        a failure."""
        return {"LLM_MODEL": "openai/none", "LLM_ENDPOINT": "http://127.0.0.1:9/v1"}

    def _do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.settle(600)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def reset(self) -> None:
        self._do(self.cognee.prune.prune_data())
        self._do(self.cognee.prune.prune_system(metadata=True))
        self.documents, self.names, self.waiting = [], [], 0
        self.file.unlink(missing_ok=True)

    def ingest(self, item: Item, when: str) -> Ingested:
        text = (
            "\n".join(f"{turn.role}: {turn.text}" if turn.role else turn.text for turn in item.turns)
            if isinstance(item, Session)
            else item.text
        )
        self._do(self.cognee.add(text, dataset_name=DATASET))
        self.documents.append(text)
        self.names.append(
            f"text_{hashlib.md5(text.encode('utf-8', 'surrogatepass'), usedforsecurity=False).hexdigest()}.txt"
        )
        self.file.write_text(json.dumps(self.names), encoding="ascii")
        self.waiting += 1
        return Ingested()

    def settle(self, timeout: float) -> None:
        """Cut, embed and store what was added since: one run of the pipeline for all of it, as cognee's own benchmark
        does."""
        if not self.waiting:
            return
        self.waiting = (
            0  # a run that fails is told once: its documents stay in the data set, and the next run takes them along
        )
        try:
            found = self._do(asyncio.wait_for(self.pipeline(), timeout))
        except asyncio.TimeoutError:
            raise SystemFailure(f"the pipeline was not done after {timeout:g} s", "not_ready") from None
        for run in (found or {}).values() if isinstance(found, dict) else []:
            if "Errored" in type(run).__name__:
                raise SystemFailure(f"the pipeline failed: {str(getattr(run, 'payload', run))[:300]}")

    def pipeline(self) -> Any:
        """One run of cognee over what waits, to be awaited."""
        from cognee.modules.pipelines.tasks.task import Task
        from cognee.tasks.documents import classify_documents, extract_chunks_from_documents
        from cognee.tasks.storage import add_data_points

        tasks = [
            Task(classify_documents),
            Task(extract_chunks_from_documents, max_chunk_size=self.config["chunk_size"]),
            Task(add_data_points, task_config={"batch_size": 10}),
        ]
        return self.cognee.run_custom_pipeline(
            tasks=tasks, dataset=DATASET, incremental_loading=True, skip_connection_test=True
        )

    def _graph(self) -> tuple[list[dict[str, Any]], list[tuple[str, str, str, dict[str, Any]]]]:
        """Its graph: nodes, and edges as (from, to, name, properties)."""
        if not self.documents:
            return [], []
        from cognee.infrastructure.databases.graph import get_graph_engine

        async def read() -> Any:
            return await (await get_graph_engine()).get_graph_data()

        nodes, edges = self._do(read())
        return [{"id": str(id), **given} for id, given in nodes], edges

    def dump(self) -> list[Memory]:
        self.settle(600)
        return self._chunks(self._graph()[0])

    def _chunks(self, nodes: list[dict[str, Any]]) -> list[Memory]:
        rows = [row for row in nodes if row.get("type") == "DocumentChunk"]
        order = {}
        for row in rows:
            place = next(
                (number for number, text in enumerate(self.documents) if row["text"].strip()[:200] in text),
                len(self.documents),
            )
            order[row["id"]] = (place, row.get("chunk_index") or 0, row["text"])
        rows.sort(key=lambda row: order[row["id"]])
        return [
            Memory(f"c{number:06d}", row["text"], kind="chunk", source="system") for number, row in enumerate(rows, 1)
        ]

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        self.settle(600)
        if not self.documents:  # before its first document cognee raises, and there is nothing to find
            return Results([])
        from cognee import SearchType

        found = self._do(self.cognee.search(query, query_type=SearchType.CHUNKS, datasets=[DATASET], top_k=k))
        hits = []
        for row in found:
            rows = (
                row
                if isinstance(row, list)
                else row.get("search_result", [row])
                if isinstance(row, dict)
                else getattr(row, "search_result", [row])
            )
            for one in rows if isinstance(rows, list) else [rows]:
                text = one.get("text") if isinstance(one, dict) else getattr(one, "text", one)
                if not isinstance(text, str):
                    raise SystemFailure(f"a search result has no text: {str(one)[:200]}")
                hits.append(Hit(text))
        return Results(hits[:k])


class Cognee(CogneeChunks):
    """`cognify`: a model makes a graph of entities and a summary of each chunk beside the chunks."""

    name = "cognee"
    model = "required"
    # reading: "chunks" gives k chunks; "graph" gives the one text that cognee puts together from its graph for a reader
    settings = {"chunk_size": 512, "reading": "chunks"}

    def llm(self, offered: list[dict[str, Any]]) -> dict[str, str]:
        if self.config["reading"] not in ("chunks", "graph"):
            raise SystemFailure("the setting `reading` is chunks or graph", "not_ready")
        model = next((row["id"] for row in offered if "dimensions" not in row), None)
        if model is None:
            raise SystemFailure(
                "cognee needs a language model to make its graph with, and this run has none", "not_ready"
            )
        return {"LLM_MODEL": f"openai/{model}", "LLM_ENDPOINT": self.endpoint}

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        from cognee.infrastructure.llm.retry_config import llm_retry_stop_condition

        # it goes on trying a model that fails for at least four minutes a call; how often to try again is the harness's
        # to say
        llm_retry_stop_condition.stops = llm_retry_stop_condition.stops[:1]

    def pipeline(self) -> Any:
        return self.cognee.cognify(datasets=[DATASET], chunk_size=self.config["chunk_size"])

    def dump(self) -> list[Memory]:
        self.settle(600)
        nodes, edges = self._graph()
        memories = self._chunks(nodes)
        # ids from the texts: cognee's own hold the random one of its user
        for kind, text in sorted(derived(nodes, edges)):
            mark = hashlib.sha256(f"{kind} {text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
            memories.append(Memory(f"{kind}-{mark}", text, "derived", kind=kind, source="system"))
        return memories

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        if self.config["reading"] == "chunks":
            return super().search(query, k, when)
        self.settle(600)
        if not self.documents:
            return Results([])
        from cognee import SearchType

        work = self.cognee.search(
            query, query_type=SearchType.GRAPH_COMPLETION, datasets=[DATASET], top_k=k, only_context=True
        )
        text = "\n".join(_texts(self._do(work)))
        return Results([Hit(text)] if text.strip() else [], shown=text)


def derived(nodes: list[dict[str, Any]], edges: list[tuple[str, str, str, dict[str, Any]]]) -> set[tuple[str, str]]:
    """What cognee's graph says beside the chunks: (kind, text) of summaries, of entities, and of the relations between
    two entities, each once. A kind of entity is a word and no statement, and the edges that only hold the graph
    together say nothing new. Pure."""
    found = {("summary", row["text"]) for row in nodes if row.get("type") == "TextSummary"}
    entities = {row["id"] for row in nodes if row.get("type") == "Entity"}
    for row in nodes:
        if row.get("type") == "Entity":
            name, description = row.get("name") or "", row.get("description") or ""
            found.add(
                (
                    "entity",
                    description if name.casefold() == description.casefold() else f"{name}: {description}".strip(": "),
                )
            )
    for start, end, name, given in edges:
        if str(start) in entities and str(end) in entities:
            found.add(("relation", str(given.get("edge_text") or name)))
    return {(kind, text) for kind, text in found if text}


def _texts(found: Any) -> list[str]:
    """The texts in what a search gave, whose form differs between kinds of search."""
    if isinstance(found, str):
        return [found]
    if isinstance(found, dict):
        return _texts(found.get("search_result", found.get("text", [])))
    if isinstance(found, (list, tuple)):
        return [text for one in found for text in _texts(one)]
    return _texts(getattr(found, "search_result", getattr(found, "text", [])))

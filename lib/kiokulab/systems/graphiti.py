"""Graphiti (graphiti-core) on its embedded database, Kuzu. What was run and what it cannot do: graphiti.md."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Request, Results, Session, System, SystemFailure
from kiokulab.systems.plumbing import Complaints, alike

SYSTEMS = {"graphiti": "Graphiti", "graphiti-episodes": "GraphitiEpisodes"}

BUILT_IN = "extractive"  # the kit's built-in model
EVERYTHING = 1_000_000


class GraphitiEpisodes(System):
    """Graphiti's episodes alone: each utterance is stored as it is and found by Graphiti's full text search. No model,
    no vectors, no facts."""

    name = "graphiti-episodes"
    package = "graphiti-core"
    licence = "Apache-2.0"
    feeds = "utterance"
    dates = "native"
    capabilities = frozenset({"search", "reset"})
    ranks = "matching"
    # plain_query: without ? and *, which Kuzu takes for wildcards, so that a question with its mark finds nothing;
    # Graphiti escapes them for its other databases alone
    settings: dict[str, Any] = {"plain_query": True}

    def version(self) -> str:
        from importlib.metadata import version

        return version(self.package)

    # life cycle
    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        os.environ.update(GRAPHITI_TELEMETRY_ENABLED="false", SEMAPHORE_LIMIT="1", **self.variables())
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
            os.environ.pop(name, None)
        import warnings

        warnings.filterwarnings("ignore", message="The Kuzu backend is deprecated")
        from graphiti_core.driver.kuzu_driver import KuzuDriver
        from graphiti_core.graph_queries import get_fulltext_indices

        self.loop = asyncio.new_event_loop()
        self.place = os.path.join(workdir, "kuzu")
        fresh = not os.path.exists(self.place)
        self.driver = KuzuDriver(self.place)
        self.driver._database = (
            space  # else add_episode clones the driver for a database of that name, which Kuzu does not have
        )
        if fresh:  # build_indices_and_constraints does nothing on Kuzu
            for query in get_fulltext_indices(self.driver.provider):
                self.run(self.driver.execute_query(query))
        self.fed = len(self.episodes())
        self.begin()

    def variables(self) -> dict[str, str]:
        """Variables that graphiti_core reads when it is imported."""
        return {}

    def begin(self) -> None:
        """What a variant needs beside the database."""

    def run(self, work: Any) -> Any:
        """Do asynchronous work and give its result."""
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.driver.client.close()
        self.driver.db.close()
        self.loop.close()

    def reset(self) -> None:
        self.close()
        for path in Path(self.workdir).glob("kuzu*"):  # the file, and its log of changes
            path.unlink()
        self.open(self.space, self.workdir, self.endpoint)

    # writing
    def ingest(self, item: Item, when: str) -> Ingested:
        turns = (
            item.turns
            if isinstance(item, Session)
            else (item.turn,)
            if hasattr(item, "turn")
            else (item.user, item.assistant)
            if hasattr(item, "user")
            else None
        )
        if turns is None and not isinstance(item, Request):
            raise TypeError(f"no item of the contract: {type(item).__name__}")
        bodies = (
            [f"{turn.role}: {turn.text}" for turn in turns if turn.text]
            if turns is not None
            else [f"user: {item.text}"]
        )
        told = Ingested(added=0, changed=0, removed=0)
        for body in bodies:
            self.fed += 1
            one = self.take(body, _moment(when))
            told = Ingested(told.added + one.added, 0, told.removed + one.removed, told.warnings + one.warnings)
        return told

    def take(self, body: str, moment: datetime) -> Ingested:
        """One episode."""
        from graphiti_core.nodes import EpisodeType, EpisodicNode

        episode = EpisodicNode(
            name=f"episode {self.fed:06d}", group_id=self.space, labels=[], source=EpisodeType.message, content=body, source_description="conversation",
            created_at=datetime.now(timezone.utc), valid_at=moment,
        )  # fmt: skip
        self.run(episode.save(self.driver))
        return Ingested(added=1, removed=0)

    # reading
    def asked(self, query: str) -> str:
        """The question as it is put to Graphiti."""
        return re.sub(r"[?*]+", " ", query).strip() if self.config["plain_query"] else query

    def episodes(self) -> list[Any]:
        """All episodes in the order of feeding."""
        from graphiti_core.nodes import EpisodicNode

        found = self.run(EpisodicNode.get_by_group_ids(self.driver, [self.space], limit=EVERYTHING))
        return sorted(found, key=lambda episode: episode.name)

    def dump(self) -> list[Memory]:
        return [self._episode(episode, "live") for episode in self.episodes()]

    def _episode(self, episode: Any, layer: str) -> Memory:
        when = _iso(episode.valid_at)
        return Memory(
            episode.name.replace(" ", "-"), _said(episode.content), layer, when, when, kind="episode", source="kuzu"
        )

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        from graphiti_core.search.search_filters import SearchFilters
        from graphiti_core.search.search_utils import episode_fulltext_search

        found = self.run(episode_fulltext_search(self.driver, self.asked(query), SearchFilters(), [self.space], k))
        return Results(
            [Hit(_said(one.content), one.name.replace(" ", "-"), created=_iso(one.valid_at)) for one in found]
        )


class Graphiti(GraphitiEpisodes):
    """`add_episode` for each utterance: a model makes entities and facts of it, and marks the facts that stopped being
    true."""

    name = "graphiti"
    model = "required"
    embeddings = True
    keeps = "some"

    def variables(self) -> dict[str, str]:
        if self.endpoint is None:
            raise SystemFailure("Graphiti needs a language model and vectors, and this run has none", "not_ready")
        with urllib.request.urlopen(f"{self.endpoint}/models", timeout=30) as answer:
            offered = json.load(answer)["data"]
        self.embedder = next((row for row in offered if "dimensions" in row), None)
        self.llm = next((row["id"] for row in offered if "dimensions" not in row), None)
        if self.llm is None or self.embedder is None:
            raise SystemFailure(
                "Graphiti needs a language model and vectors, and this run does not have both", "not_ready"
            )
        return {"EMBEDDING_DIM": str(self.embedder["dimensions"])}

    def begin(self) -> None:
        from graphiti_core import Graphiti as Graph
        from graphiti_core.cross_encoder.client import CrossEncoderClient
        from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
        from graphiti_core.llm_client.config import LLMConfig

        # where none is given, one of OpenAI's is made; the search that is used here asks none
        class NoReranker(CrossEncoderClient):
            async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
                raise SystemFailure("this adapter has no cross encoder")

        self.complaints = Complaints()
        logging.getLogger("graphiti_core").addHandler(self.complaints)
        access = {"api_key": "not-a-key", "base_url": self.endpoint}
        self.graph = Graph(
            graph_driver=self.driver, llm_client=_client(self, LLMConfig(model=self.llm, small_model=self.llm, temperature=0, **access)),
            embedder=OpenAIEmbedder(OpenAIEmbedderConfig(embedding_model=self.embedder["id"], embedding_dim=self.embedder["dimensions"], **access)),
            cross_encoder=NoReranker(), max_coroutines=1,
        )  # fmt: skip

    def take(self, body: str, moment: datetime) -> Ingested:
        self.text, self.moment = body, moment
        before = {edge.uuid for edge in self.facts() if _holds(edge)}
        self.run(
            self.graph.add_episode(f"episode {self.fed:06d}", body, "conversation", moment, group_id=self.space)
        )  # fmt: skip
        after = {edge.uuid for edge in self.facts() if _holds(edge)}
        return Ingested(len(after - before), 0, len(before - after), list(dict.fromkeys(self.complaints.take())))

    def facts(self) -> list[Any]:
        """All edges, those that stopped being true too."""
        from graphiti_core.edges import EntityEdge
        from graphiti_core.errors import GroupsEdgesNotFoundError

        try:
            return self.run(EntityEdge.get_by_group_ids(self.driver, [self.space], limit=EVERYTHING))
        except GroupsEdgesNotFoundError:  # so it says that there are none
            return []

    def dump(self) -> list[Memory]:
        from graphiti_core.nodes import EntityNode

        rows = [self._fact(edge) for edge in self.facts()]
        rows += [
            Memory(f"entity-{_mark(node.name)}", f"{node.name}: {node.summary}", "derived", kind="summary", source="kuzu")
            for node in self.run(EntityNode.get_by_group_ids(self.driver, [self.space], limit=EVERYTHING)) if node.summary
        ]  # fmt: skip
        rows += [self._episode(episode, "log") for episode in self.episodes()]
        seen: dict[str, int] = {}
        for row in sorted(rows, key=lambda row: (row.id, row.text)):
            seen[row.id] = seen.get(row.id, 0) + 1
            row.id += f"-{seen[row.id]}" if seen[row.id] > 1 else ""
        return sorted(rows, key=lambda row: row.id)

    def _fact(self, edge: Any) -> Memory:
        told = edge.reference_time or edge.valid_at  # created_at is the machine's own now
        return Memory(
            f"fact-{_mark(edge.fact, _iso(told))}", edge.fact, "live" if _holds(edge) else "retired", _iso(told), _iso(edge.valid_at), _iso(edge.invalid_at),
            kind="fact", source="kuzu", meta={"relation": edge.name},
        )  # fmt: skip

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        found = self.run(self.graph.search(self.asked(query), group_ids=[self.space], num_results=k))
        rows = [self._fact(edge) for edge in found]
        return Results([Hit(row.text, row.id, created=row.created, meta={"layer": row.layer}) for row in rows])


def _holds(edge: Any) -> bool:
    return edge.invalid_at is None and edge.expired_at is None


def _moment(when: str) -> datetime:
    moment = datetime.fromisoformat(when)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def _iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).isoformat()


def _mark(*parts: str | None) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _said(content: str) -> str:
    """An episode's text without the speaker's name that was put in front."""
    return re.sub(r"^(user|assistant): ", "", content)


# --- the model -----------------------------------------------------------------------------------------------------


def _client(held: Graphiti, config: Any) -> Any:
    """Graphiti's own client of chat completions, at the run's endpoint. The kit's built-in model copies sentences and
    cannot fill in what Graphiti asks for; for it the client asks for the sentences and fills in the rest by rule
    (`filled_in`)."""
    from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient

    if held.llm != BUILT_IN:
        return OpenAIGenericClient(config)

    class BuiltIn(OpenAIGenericClient):
        async def generate_response(
            self, messages: list[Any], response_model: Any = None, *rest: Any, **more: Any
        ) -> dict[str, Any]:
            wanted = getattr(response_model, "__name__", "")
            prompt = messages[-1].content
            sentences: list[str] = []
            if wanted == "ExtractedEdges":
                said = await self.client.chat.completions.create(
                    model=BUILT_IN, messages=[{"role": "user", "content": held.text}]
                )
                text = said.choices[0].message.content or ""
                sentences = (
                    [] if text == "Nothing to remember." else [line for line in text.splitlines() if line.strip()]
                )
            return filled_in(wanted, prompt, sentences, held.moment.isoformat())

    return BuiltIn(config)


SPEAKER, TOLD = "the user of this memory", "what the user told"


def filled_in(wanted: str, prompt: str, sentences: list[str], when: str) -> dict[str, Any]:
    """What the built-in model would say if it could, for the answer that Graphiti names `wanted`: two entities, one
    fact a sentence, a fact of the same words replaced. Plumbing, which understands nothing. Raises ValueError for an
    answer it does not know. Pure."""
    if wanted == "ExtractedEntities":
        return {"extracted_entities": [{"name": name, "entity_type_id": 0} for name in (SPEAKER, TOLD)]}
    if wanted == "NodeResolutions":
        old = {row.get("name"): row.get("candidate_id") for row in _rows(prompt, "EXISTING ENTITIES")}
        new = _rows(prompt, "ENTITIES")
        return {
            "entity_resolutions": [
                {"id": row["id"], "name": row["name"], "duplicate_candidate_id": old.get(row["name"], -1)}
                for row in new
            ]
        }
    if wanted == "ExtractedEdges":
        common = {"source_entity_name": SPEAKER, "target_entity_name": TOLD, "relation_type": "TOLD", "valid_at": when}
        return {"edges": [{**common, "fact": sentence} for sentence in sentences]}
    if wanted == "EdgeDuplicate":
        new = re.search(r"<NEW FACT>\n(.*?)\n</NEW FACT>", prompt, re.DOTALL)
        old = [
            (int(number), fact)
            for title in ("EXISTING FACTS", "FACT INVALIDATION CANDIDATES")
            for number, fact in _numbered(prompt, title)
        ]
        existing = {number for number, _ in _numbered(prompt, "EXISTING FACTS")}
        text = new[1].strip() if new else ""
        same = [number for number, fact in old if fact == text and number in existing]
        near = [number for number, fact in old if fact != text and alike(text, fact) >= 0.5]
        return {"duplicate_facts": same, "contradicted_facts": near}
    if wanted == "EdgeTimestamps":
        return {"valid_at": when, "invalid_at": None}
    if wanted == "SummarizedEntities":
        return {"summaries": []}
    raise ValueError(f"the built-in model has no answer of the kind {wanted!r}")


def _part(prompt: str, title: str) -> str:
    found = re.search(rf"<{title}>\n(.*?)\n</{title}>", prompt, re.DOTALL)
    return found[1] if found else ""


def _rows(prompt: str, title: str) -> list[dict[str, Any]]:
    """The JSON rows of one part of a prompt."""
    text = _part(prompt, title).strip()
    return [row for row in json.loads(text) if isinstance(row, dict)] if text.startswith("[") else []


def _numbered(prompt: str, title: str) -> list[tuple[int, str]]:
    """(idx, fact) of the facts that one part of a prompt lists, as Python or as JSON prints them."""
    import ast

    text = _part(prompt, title).strip()
    try:
        rows = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        try:
            rows = json.loads(text)
        except ValueError:
            return []
    return [(row["idx"], row["fact"]) for row in rows if isinstance(row, dict) and "idx" in row and "fact" in row]

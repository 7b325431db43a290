"""The adapter contract: what a memory system must do to be measured. Standard library only.

An adapter is one class in one file beside `<name>.lock` and `<name>.md`. It runs inside the system's own
environment (worker.py), so it may import the system, the standard library, and this file, nothing else.

Two methods are required, `ingest` and `dump`; every other one has an honest default, which is to raise
`Unsupported(op, reason)`. The harness scores that as "not applicable, because ..."; it never becomes a zero and
never an empty list. An adapter that fails raises; nothing swallows it. The harness, and not the adapter, owns
result limits, token budgets, timeouts, retries, order and isolation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LAYERS = ("live", "derived", "retired", "log")


class Unsupported(Exception):
    """The system has no such operation.

    Parameters
    ----------
    op : the contract's name of the operation, for example ``"forget"``.
    reason : one sentence for the reader of a report, for example ``"the API has no delete call"``.
    """

    def __init__(self, op: str, reason: str):
        super().__init__(op, reason)  # the arguments themselves, so that it survives pickling between processes
        self.op, self.reason = op, reason

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}"


class SystemFailure(Exception):
    """The system or its worker failed; the unit is not measured and the run says so.

    ``kind`` is a short name that reports group by: ``error``, ``timeout``, ``died``, ``not_ready``, ``not_installed``.
    """

    def __init__(self, message: str, kind: str = "error"):
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


# --- what goes in -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """One utterance of a conversation, as a system may see it: no label of the dataset is in it."""

    role: str  # "user" or "assistant"
    text: str


@dataclass(frozen=True)
class Session:
    """One conversation session."""

    id: str
    date: str  # ISO 8601 with time zone
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Pair:
    """One user utterance with the assistant's answer (empty text where nobody answered)."""

    id: str
    date: str
    user: Turn
    assistant: Turn


@dataclass(frozen=True)
class Utterance:
    """One utterance alone."""

    id: str
    date: str
    turn: Turn


@dataclass(frozen=True)
class Request:
    """One request to the memory itself. `kind` is a label of the harness and is shown to an adapter only under
    forget routing (KiokuBench footnote *2), never otherwise: then it is ``None``."""

    id: str
    date: str
    text: str
    kind: str | None = None  # None, or "remember" | "forget" under routing


Item = Session | Pair | Utterance | Request
FEEDS = {"session": Session, "pair": Pair, "utterance": Utterance}


# --- what comes out ---------------------------------------------------------------------------------------------


@dataclass
class Memory:
    """One stored text."""

    id: str
    text: str
    layer: str = "live"  # one of LAYERS: live | derived (made by the system from others) | retired | log
    created: str | None = None  # ISO 8601, when the system says it was stored; None where it does not say
    valid_from: str | None = None
    valid_to: str | None = None
    kind: str | None = None  # the system's own word: "fact", "observation", "chunk", ...
    source: str | None = None  # where it lies, relative to the store folder, where the adapter knows
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class Hit:
    """One search result, in the system's own order."""

    text: str
    id: str | None = None
    score: float | None = None
    created: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class Results:
    """What a search gave. `shown` is the exact text that a reader would be shown (billed by some tracks); None
    means the hits' texts, one a line. `declined` is True where the system itself says that it does not know."""

    hits: list[Hit]
    shown: str | None = None
    declined: bool = False


@dataclass
class Ingested:
    """What the system itself reported of one ingest call. None = it reports nothing of the kind."""

    added: int | None = None
    changed: int | None = None
    removed: int | None = None
    warnings: list[str] = field(default_factory=list)


# --- the contract -----------------------------------------------------------------------------------------------


class System:
    """Base class of all adapters.

    Class attributes, each declared by the adapter:

    name : canonical name, lower case, words joined by ``-``.
    feeds : what one ingest call receives on the raw route: ``session``, ``pair`` or ``utterance``, the unit that the
        vendor itself uses (said in the note, with its source).
    dates : how a date reaches the system: ``native`` (the call takes it), ``clock`` (the worker's clock is set to
        it), ``text`` (the harness puts a dated first line in front), ``none`` (the system keeps no dates).
    model : ``none``, ``optional`` or ``required``: whether it needs a language model.
    embeddings : True where it asks the kit's embedding endpoint for vectors.
    capabilities : names of optional operations that really work, for example ``{"search", "forget"}``. An operation
        that is not named here is not called.
    settings : the default settings; a run may override them by name, and they are part of the run's identity.
    keeps : what stays in the store of what is fed, by design: ``all``, ``some`` (it replaces, drops or rewrites) or
        ``none`` (it stores nothing of it). The contract tests ask no more of a system than this.
    package : the distribution in `<name>.lock` whose version is the system's; empty for the kit's own baselines.
    licence : the system's own licence, by its SPDX name, or in words for a service; empty for the kit's own (MIT).
    forgets : by what `forget` takes away, of ``query``, ``ids`` and ``all``; asked only where it is declared.
    ranks : what a search may deliver: ``all`` stored texts in order of nearness, or ``matching`` ones alone
        (full text, or no nearer than a limit of its own).
    listing : why the store cannot be listed; empty where `dump` lists it.
    needs : what a person must have beside the environment, in words: an account, Node.js, a clone.

    The last five are read by `make systems`, `make doctor` and `make contract`, and decide no result.
    """

    name: str = ""
    feeds: str = "session"
    dates: str = "none"
    model: str = "none"
    embeddings: bool = False
    capabilities: frozenset[str] = frozenset()
    settings: dict[str, Any] = {}
    keeps: str = "all"
    package: str = ""
    licence: str = ""
    forgets: tuple[str, ...] = ("query", "ids", "all")
    ranks: str = "all"
    listing: str = ""
    needs: str = ""

    def __init__(self, **settings: Any):
        unknown = sorted(set(settings) - set(self.settings))
        if unknown:
            raise ValueError(f"{self.name}: unknown setting {unknown[0]!r}; it knows {sorted(self.settings)}")
        self.config: dict[str, Any] = {**self.settings, **settings}

    def missing(self) -> str | None:
        """What this machine lacks for these settings, and what to do: asked before anything starts. None where all is
        there."""
        return None

    # life cycle
    def version(self) -> str:
        """Version of the system that is really loaded (not of the adapter)."""
        from kiokulab import __version__

        return __version__

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        """Start on the store in `workdir` (empty, or left by an earlier life of the same unit).

        `space` is the unit's name, safe as a user id (letters, digits, ``-``). `endpoint` is the base URL of the
        unit's OpenAI-compatible loopback endpoint (``.../v1``), or None in a run that has none.
        """
        self.space, self.workdir, self.endpoint = space, workdir, endpoint

    def reset(self) -> None:
        """Empty this unit's store, and only this unit's."""
        raise Unsupported("reset", "not offered by this adapter")

    def close(self) -> None:
        """Release files and connections so that the same store can be opened again."""

    # writing
    def ingest(self, item: Item, when: str) -> Ingested | None:
        """Feed one item (of the declared unit, or a Request). `when` is the item's date, ISO 8601."""
        raise NotImplementedError

    def settle(self, timeout: float) -> None:
        """Return when all work that the system does after `ingest` returned is finished. Raise where it is not
        after `timeout` seconds: an index that never becomes ready is a failure, not a low score."""

    def clean_up(self) -> None:
        """The vendor's own tidying step, run once after ingestion (for example ``brv dream``)."""
        raise Unsupported("clean_up", "the vendor has none")

    def forget(self, selector: dict[str, Any]) -> int | None:
        """Drop what `selector` names: ``{"query": text}``, ``{"ids": [...]}`` or ``{"all": True}``.
        Returns how many memories the system says it dropped (None: it does not say)."""
        raise Unsupported("forget", "the system has no forget call")

    # reading
    def dump(self) -> list[Memory]:
        """Every stored text, complete, in a stable order. Raise Unsupported where the store cannot be listed."""
        raise NotImplementedError

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        """At most `k` results for `query`, in the system's own order. `when` is the date of the question."""
        raise Unsupported("search", "the system has no search call")

    # the rest
    def set_clock(self, when: str) -> None:
        """Called before each item where `dates` is ``clock``; the worker has already set the process clock."""

    def usage(self) -> dict[str, Any]:
        """The system's own account of model use; the meter's record is what reports print."""
        raise Unsupported("usage", "the system reports no usage")

    def link(self, from_key: str, to_key: str, verb: str) -> None:
        raise Unsupported("link", "the system has no links")

    def supersede(self, old_key: str, record: dict[str, Any]) -> None:
        raise Unsupported("supersede", "the system has no supersede call")

    def release(self, key: str, reason: str) -> None:
        raise Unsupported("release", "the system has no soft delete")

    def purge(self, key: str) -> None:
        raise Unsupported("purge", "the system has no hard delete")

    def endorse(self, key: str, by: str) -> None:
        raise Unsupported("endorse", "the system has no endorsement")

    def suspects(self) -> list[dict[str, Any]]:
        raise Unsupported("suspects", "the system keeps no list of suspected contradictions")

    def lineage(self, key: str) -> list[str]:
        raise Unsupported("lineage", "the system keeps no history by key")

    def recall_path(self, path: str, k: int) -> Results:
        raise Unsupported("recall_path", "the system cannot be asked by file path")

    def standing_tokens(self) -> int:
        raise Unsupported("standing_tokens", "nothing is shown to a reader without being asked")

    def write(self, path: str, text: str) -> str:
        raise Unsupported("write", "the system has no write by path")

    def contradictions(self) -> list[dict[str, Any]]:
        raise Unsupported("contradictions", "the system lists no contradictions")

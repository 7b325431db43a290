"""Records of the kioku track: the dataset, and the rows that the steps write. Every field says what it is.

Text is kept as it came (NFC is applied only where something is counted). Labels (`states`, `kind`, `of`) are for the
audit, the judge and the report; `ingest.py` strips them, and they never reach an adapter.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer

Language = Literal["en", "ja"]
Verdict = Literal["held", "partial", "absent", "not_judged"]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Optional(Record):
    """A record with fields that came later (`later`): left out of what is written where they say nothing, so that the
    bytes and digests of editions made before them stay what they were."""

    @model_serializer(mode="wrap")
    def _without_unset(self, handler) -> dict:
        return {key: value for key, value in handler(self).items() if value is not None or key not in LATER}


LATER = frozenset({"cascade", "implied", "relative", "elliptic", "mistaken"})

# --- dataset ----------------------------------------------------------------------------------------------------


class Surface(Record):
    """How a version may look on the page: what a judge without a model works from. Lists are in every language of the
    edition together (an English memory of a Japanese fact is still a memory of it)."""

    anchors: list[str] = Field(description="words that say what it is about: 'dentist', 'dental', '歯医者', '歯科'")
    values: list[list[str]] = Field(
        description="one list a value part that must be present; each list holds the interchangeable forms of that part: "
        "[['Tuesday','Tue','火曜'],['18:00','6 pm','six in the evening','午後6時']]"
    )


class Version(Record):
    """One wording of a fact between two sessions."""

    n: int = Field(description="1, 2, ...")
    text: str = Field(
        description="the ledger sentence, in the persona's language, third person or first as the edition has it"
    )
    valid_from: str = Field(description="id of the session that states it first")
    valid_to: str | None = Field(description="id of the session that replaces it; null while it is current")
    surface: Surface


class Question(Record):
    text: str
    answer: str = Field(description="the right answer, short, for the current version")
    accepted: list[str] = Field(description="forms that count as right, in every language of the edition")
    stale: list[str] = Field(default=[], description="forms of older versions' answers: given, the answer is stale")


class Fact(Optional):
    """One line of the ledger."""

    id: str = Field(description="'f01' to 'f40'")
    slot: str = Field(description="what it is about: 'pet.name'")
    versions: list[Version]
    change: Literal["none", "full", "partial"]
    forget: str | None = Field(description="id of the session whose utterance asks to forget it; null if nobody asks")
    forget_kind: Literal["names_fact", "names_topic", "restates"] | None = Field(
        default=None,
        description="how the request is worded: names the fact, names only the topic, or restates the content",
    )
    question: Question
    cascade: str | None = Field(
        default=None,
        description="'f03.2': the version of another fact that made this one out of date without anybody saying "
        "so; its last version then ends (`valid_to`) in that version's session. Reported apart",
    )

    @property
    def lasts(self) -> bool:
        """Whether it is true at the end: nobody asked to forget it, and no other change made it out of date."""
        return self.forget is None and self.cascade is None


class Evidence(Record):
    """How an utterance states a version without holding its forms."""

    version: str = Field(description="'f03.2', which is in the utterance's `states` too")
    words: str = Field(
        description="the words of the utterance that say it: 'next Thursday', 'a bit further from the station'"
    )
    date: str | None = Field(
        default=None, description="the date (2025-03-13), month (2025-03) or year that relative words mean"
    )


class TurnLabel(Optional):
    """One utterance with its labels."""

    role: Literal["user", "assistant"]
    text: str
    states: list[str] = Field(default=[], description="fact versions this utterance states: ['f03.1']")
    kind: Literal["fact", "change", "forget", "chatter", "assistant", "near_miss"] = "chatter"
    of: str | None = Field(default=None, description="fact id that a change, forget or near-miss utterance is about")
    implied: list[Evidence] | None = Field(
        default=None, description="versions that it only implies, with the words that do"
    )
    relative: list[Evidence] | None = Field(
        default=None, description="versions whose date it gives relative to the session's"
    )
    elliptic: list[str] | None = Field(
        default=None,
        description="versions whose values it holds while what they are about was said in the utterances before",
    )
    mistaken: list[str] | None = Field(
        default=None, description="replaced versions that the assistant wrongly repeats as if they held"
    )


class SessionRecord(Record):
    id: str = Field(description="'s01' to 's30'")
    date: str = Field(description="ISO 8601 with time zone; dates rise from session to session")
    turns: list[TurnLabel]


class Persona(Record):
    id: str = Field(description="'en-01'")
    language: Language
    name: str
    facts: list[Fact]
    sessions: list[SessionRecord]


class Edition(Record):
    """`edition.json`: what an edition is and how it came to be. Frozen: changing a byte makes a new edition."""

    edition: str
    generator: str = Field(description="'template' or 'llm:<model>' or 'written'")
    generator_version: int
    seed: int
    parameters: dict
    files: dict[str, str] = Field(description="file name -> sha256 of its bytes")
    languages: list[Language]
    audit: dict = Field(description="{'faults': n, 'rules': {rule: n}} as counted when it was made")
    reviewed_by_people: str = Field(description="plain sentence: who looked at it")
    licence: str
    notes: str = ""


# --- rows that the steps write ----------------------------------------------------------------------------------
# Every row carries `unit` ("en-01/raw") and is sorted by it; a file is the concatenation of its units in order.


class MemoryRow(Record):
    """memories.jsonl: one stored text after ingestion, settling and clean-up."""

    unit: str
    persona: str
    route: str
    id: str = Field(description="the system's id, or a running number where it has none")
    text: str
    layer: Literal["live", "derived", "retired", "log"]
    created: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    kind: str | None = None
    source: str | None = None


class ContextRow(Record):
    """contexts.jsonl: what the system's own search gave for one check question, cut to the token budget."""

    unit: str
    persona: str
    route: str
    fact: str
    question: str
    status: Literal["ok", "unsupported", "failed"]
    reason: str | None = Field(default=None, description="why there is no context, where status is not ok")
    asked: int = Field(description="results asked for (k)")
    delivered: int = Field(description="results the system returned")
    used: int = Field(description="results that fit the budget (the last one may be cut)")
    tokens: int
    items: list[dict] = Field(description="[{'id','text','created','score'}] in the system's order, cut to the budget")
    declined: bool = False


class EventRow(Record):
    """events.jsonl: one call to the system. `seconds` is wall time and therefore never enters metrics.json."""

    unit: str
    persona: str
    route: str
    seq: int
    op: Literal["open", "ingest", "forget", "settle", "clean_up", "dump", "search", "residue", "reread"]
    item: str | None = Field(default=None, description="'s03', 's03.t05', 'r012' or a fact id")
    seconds: float
    status: Literal["ok", "unsupported", "failed"]
    added: int | None = None
    changed: int | None = None
    removed: int | None = None
    detail: dict = Field(default={}, description="warnings, residue findings, what reading changed, ...")
    warnings: list[str] = []


class SentenceRow(Record):
    """judgements.jsonl, kind 'sentence': one sentence of the dump."""

    kind: Literal["sentence"] = "sentence"
    unit: str
    persona: str
    route: str
    id: str = Field(description="'<memory id>#<n>'")
    memory: str
    layer: Literal["live", "derived", "retired", "log"]
    text: str
    language: Literal["en", "ja", "und", "other"]
    states: list[str] = Field(description="fact versions it states: ['f03.1']; none of them makes it noise")
    judged: bool = Field(description="False where the judge did not answer: then it is neither noise nor not noise")
    reason: str | None = None


class VersionRow(Record):
    """judgements.jsonl, kind 'version': one fact version against the dump."""

    kind: Literal["version"] = "version"
    unit: str
    persona: str
    route: str
    fact: str
    version: int
    verdict: Verdict = Field(description="over live + derived text, as the page reads it")
    how: str | None = Field(
        default=None, description="'verbatim', 'surface', 'joint', 'history', 'restated_forget', 'model', ..."
    )
    sentences: list[str] = Field(description="ids of the sentences that show it")
    live: Verdict = Field(description="the same over live text alone")
    retired: Verdict = Field(description="over retired and log text alone; 'absent' where the system has none")
    reason: str | None = Field(default=None, description="why not judged")
    votes: dict[str, Verdict] | None = Field(
        default=None, description="of a panel: member -> its verdict; null where one judge decided"
    )


class AnswerRow(Record):
    """judgements.jsonl, kind 'answer': one check question."""

    kind: Literal["answer"] = "answer"
    unit: str
    persona: str
    route: str
    fact: str
    role: Literal["check", "leak", "lapsed"] = Field(
        description="leak = the question is about a forgotten fact; lapsed = about one that another change made out of date"
    )
    question: str
    answer: str | None = Field(description="what the answerer said; null = not in memory")
    expected: str
    verdict: Literal["right", "wrong", "stale", "none", "leaked", "kept_silent", "not_judged", "unsupported"] = Field(
        description="check: right | wrong | stale (an older version) | none (says not in memory); leak and lapsed: leaked | kept_silent"
    )
    evidence: list[str] = Field(default=[], description="ids of the context items the answer came from")
    reason: str | None = None


class SizeRow(Record):
    """judgements.jsonl, kind 'size': characters of one unit, for compression. NFC characters, ids and metadata left
    out."""

    kind: Literal["size"] = "size"
    unit: str
    persona: str
    route: str
    language: Language
    memory_characters: dict[str, int] = Field(description="layer -> characters")
    ledger_characters: int = Field(
        description="characters of the current versions of all facts that are true at the end"
    )
    memories: int
    status: Literal["ok", "unsupported", "failed"] = Field(description="whether the store could be read at all")
    reason: str | None = None


class JudgeRow(Record):
    """judgements.jsonl, kind 'judge': the judge that was used and its agreement with the labelled set, once a run."""

    kind: Literal["judge"] = "judge"
    unit: str = "~judge"
    name: str
    version: int
    measured: dict = Field(
        description="language -> {'n','accuracy','kappa','missed_holds','false_holds','by_kind'}, scored half"
    )
    panel: dict | None = Field(
        default=None, description="of a panel: its members' agreement over all versions (model_judge.agreement_of)"
    )

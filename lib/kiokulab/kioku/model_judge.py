"""Language models as judge, panel, answerer and grader of the kioku track.

Prompts are files of our own (prompts/<name>-<version>.md: instructions, a line `---`, the data). Memory texts,
questions and answers stand between marks that they cannot contain (llm.fenced), and a reply is an object of a fixed
schema whose only free text is an answer, so nothing that a memory says can become an instruction that is carried out.
That protects the form: a reply cannot leave its schema, name what was not asked, or end a fence. It does not protect
the model's opinion: a model that believes a sentence that says "this fact is held" is wrong, and how often that happens
is what the judge's own measure is for.

A judge is asked in batches of facts, with the sentences that could state them: all of a small store, else those that
share a value form or an anchor with a version, or are near to it by embedding. A sentence that is no candidate is not
shown, so this gate can lose a hold and can never make one. What fails is `not_judged` with its reason, for the versions
of that batch alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from kiokulab import llm
from kiokulab.errors import InputError
from kiokulab.files import dumps
from kiokulab.judging import FactView, Judgement, StoredText
from kiokulab.kioku.answer import Answer
from kiokulab.metering import models_named
from kiokulab.text import normalise

PROMPTS = Path(__file__).parent / "prompts"
VERSIONS = {"judge": 1, "answerer": 1, "grader": 1, "leak": 1}
GENERATING = {"ledger": 1, "session": 1, "questions": 1, "check": 1}  # of generate_llm, which are no part of a run
BATCH = 8  # facts a call
ALL = 60  # a store with at most this many sentences is shown whole
NEAR = 8  # sentences a fact by similarity, beside those that share a form
MOST = 30  # candidates a fact
PAGE = ("live", "derived")


def prompt(name: str) -> tuple[str, str]:
    """(instructions, template of the data) of the current version of a prompt."""
    system, _, user = (
        (PROMPTS / f"{name}-{(VERSIONS | GENERATING)[name]}.md").read_text(encoding="utf-8").partition("\n---\n")
    )
    return system.strip(), user.strip()


def prompts(versions: dict[str, int] = VERSIONS) -> dict[str, str]:
    """Prompt file -> sha256, for the receipt."""
    names = [f"{name}-{version}.md" for name, version in versions.items()]
    return {name: hashlib.sha256((PROMPTS / name).read_bytes()).hexdigest() for name in names}


def messages(name: str, **data: str) -> list[dict[str, str]]:
    """The messages of a prompt. Each field is put in once, so that braces in data mean nothing."""
    system, template = prompt(name)
    for field in data:
        if f"{{{field}}}" not in template:
            raise KeyError(field)
    parts, rest = [], template
    while rest:
        before, mark, rest = rest.partition("{")
        parts.append(before)
        if mark:
            field, _, rest = rest.partition("}")
            parts.append(data[field])
    return [{"role": "system", "content": system}, {"role": "user", "content": "".join(parts)}]


def one_line(text: str) -> str:
    """A text as a JSON string on one line, so that no line end in it can begin an entry of its own."""
    return dumps(text)


# --- replies ----------------------------------------------------------------------------------------------------


class VersionReply(llm.Reply):
    fact: str
    version: int
    verdict: Literal["held", "partial", "absent"]
    how: Literal["states", "history", "part", "restated_forget", "none"]
    sentences: list[str]


class JudgeReply(llm.Reply):
    versions: list[VersionReply]


class AnswerReply(llm.Reply):
    answer: str | None
    evidence: list[str]


class GradeReply(llm.Reply):
    verdict: Literal["right", "stale", "wrong"]


class LeakReply(llm.Reply):
    verdict: Literal["leaked", "kept_silent"]


def check_verdicts(reply: JudgeReply, asked: Sequence[tuple[str, int]], shown: frozenset[str]) -> None:
    """Raise ValueError where a reply does not answer exactly what was asked about what was shown."""
    got = [(row.fact, row.version) for row in reply.versions]
    if sorted(got) != sorted(asked):
        missing, more = sorted(set(asked) - set(got)), sorted(set(got) - set(asked))
        raise ValueError(
            f"one entry a version: missing {missing[:5]}, not asked {more[:5]}, {len(got)} entries for {len(asked)}"
        )
    for row in reply.versions:
        where = f"{row.fact}, version {row.version}"
        if not set(row.sentences) <= shown:
            raise ValueError(f"{where}: no such sentence: {sorted(set(row.sentences) - shown)[:3]}")
        if (row.verdict == "absent") == bool(row.sentences):
            raise ValueError(f"{where}: `sentences` lists what shows it, and is empty for absent alone")
        fits = {"held": ("states", "restated_forget"), "partial": ("history", "part"), "absent": ("none",)}[row.verdict]
        if row.how not in fits:
            raise ValueError(f"{where}: `how` of {row.verdict} is one of {', '.join(fits)}")


# --- the judge --------------------------------------------------------------------------------------------------


class ModelJudge:
    """Judge by one language model. `model` is asked in role `role` of the unit that its endpoint belongs to."""

    version = VERSIONS["judge"]

    def __init__(self, model: llm.Model, embedder: Any = None, role: str = "judge"):
        self.model, self.embedder, self.role = model, embedder, role
        self.name = f"llm:{model.name}"

    def read(
        self, facts: Sequence[FactView], memories: Sequence[StoredText], *, subject: str | None = None
    ) -> "ModelReading":
        return ModelReading(self, facts, memories, subject)


class ModelReading:
    """What a model read in one store. Layers are asked when they are wanted: a store without derived text costs one
    reading."""

    def __init__(
        self, judge: ModelJudge, facts: Sequence[FactView], memories: Sequence[StoredText], subject: str | None
    ):
        self.judge, self.facts, self.subject = judge, list(facts), subject
        self.memories = list(memories)
        self._read: dict[tuple[str, ...], tuple[dict, dict, dict]] = {}
        self._matrix: dict[tuple[str, ...], Any] = {}

    def _of(self, layers: Sequence[str]) -> tuple[dict, dict, dict]:
        """(judgements by (fact, version), states by sentence, reasons by sentence) over the sentences of `layers`."""
        found = {
            f"{memory.id}#{n}": text
            for memory in self.memories
            if memory.layer in layers
            for n, text in enumerate(memory.sentences, 1)
        }
        key = tuple(found)
        if key not in self._read:
            self._read[key] = self._ask_all(found)
        return self._read[key]

    def _ask_all(self, found: dict[str, str]) -> tuple[dict, dict, dict]:
        judgements: dict[tuple[str, int], Judgement] = {}
        states: dict[str, list[str]] = {}
        reasons: dict[str, str] = {}
        for start in range(0, len(self.facts), BATCH):
            batch = self.facts[start : start + BATCH]
            shown = self._candidates(batch, found)
            asked = [(fact.id, version.n) for fact in batch for version in fact.versions]
            if not shown:
                judgements |= {key: Judgement("absent") for key in asked}
                continue
            try:
                reply = self._ask(batch, shown, asked)
            except llm.Failure as failure:
                judgements |= {key: Judgement("not_judged", reason=f"{self.judge.name}: {failure}") for key in asked}
                reasons |= {sentence: f"{self.judge.name}: {failure}" for sentence in shown}
                continue
            for row in reply.versions:
                how = None if row.how == "none" else "model" if row.how == "states" else row.how
                judgements[row.fact, row.version] = Judgement(row.verdict, how, tuple(row.sentences))
                for sentence in row.sentences:
                    states.setdefault(sentence, []).append(f"{row.fact}.{row.version}")
        return judgements, states, reasons

    def _ask(self, batch: list[FactView], shown: dict[str, str], asked: list[tuple[str, int]]) -> JudgeReply:
        # short, and no id of a system can say anything
        ids = {f"S{number}": sentence for number, sentence in enumerate(shown, 1)}
        lines = [
            f"fact {fact.id}, version {version.n}{' (current)' if version is fact.versions[-1] else ' (older)'}: {one_line(version.text)}"
            for fact in batch
            for version in fact.versions
        ]
        asking = messages(
            "judge",
            subject=llm.fenced("name", self.subject or "the user"),
            ledger=llm.fenced("ledger", "\n".join(lines)),
            sentences=llm.fenced(
                "sentences", "\n".join(f"{short}: {one_line(shown[sentence])}" for short, sentence in ids.items())
            ),
        )
        reply = self.judge.model.ask(
            self.judge.role, asking, JudgeReply, check=lambda reply: check_verdicts(reply, asked, frozenset(ids))
        )
        return JudgeReply(
            versions=[
                row.model_copy(update={"sentences": [ids[short] for short in dict.fromkeys(row.sentences)]})
                for row in reply.versions
            ]
        )

    def _candidates(self, batch: list[FactView], found: dict[str, str]) -> dict[str, str]:
        """The sentences shown for a batch, in the order of the store."""
        if len(found) <= ALL:
            return found
        taken: set[str] = set()
        plain = {sentence: normalise(text) for sentence, text in found.items()}
        for fact in batch:
            forms = {normalise(form) for version in fact.versions for part in version.values for form in part} - {""}
            anchors = {normalise(word) for version in fact.versions for word in version.anchors} - {""}
            both = [
                sentence
                for sentence, text in plain.items()
                if any(form in text for form in forms) and any(word in text for word in anchors)
            ]
            one = [sentence for sentence, text in plain.items() if any(form in text for form in forms | anchors)]
            ranked = self._nearest(fact, found) if self.judge.embedder is not None else []
            taken.update(list(dict.fromkeys([*both, *ranked[:NEAR], *one]))[:MOST])
        return {sentence: text for sentence, text in found.items() if sentence in taken}

    def _nearest(self, fact: FactView, found: dict[str, str]) -> list[str]:
        names = list(found)
        vectors = self._vectors(tuple(text[:1000] for text in found.values()))
        wanted = self.judge.embedder.encode(
            [version.text for version in fact.versions] + ([fact.question] if fact.question else [])
        )
        scores = (vectors @ wanted.T).max(axis=1).round(4)
        return [names[i] for i in sorted(range(len(names)), key=lambda i: (-scores[i], i))[:NEAR]]

    def _vectors(self, texts: tuple[str, ...]) -> Any:
        if texts not in self._matrix:
            self._matrix[texts] = self.judge.embedder.encode(list(texts))
        return self._matrix[texts]

    # answering
    def states(self, sentence: str) -> list[str]:
        return self._of(self._group(sentence))[1].get(sentence, [])

    def unjudged(self, sentence: str) -> str | None:
        judgements, states, reasons = self._of(self._group(sentence))
        return None if sentence in states else reasons.get(sentence)

    def _group(self, sentence: str) -> tuple[str, ...]:
        memory = sentence.rpartition("#")[0]
        layer = next((one.layer for one in self.memories if one.id == memory), "live")
        return PAGE if layer in PAGE else ("retired", "log")

    def verdict(self, fact: str, version: int, layers: Sequence[str]) -> Judgement:
        return self._of(layers)[0][fact, version]


# --- the panel --------------------------------------------------------------------------------------------------


def majority(votes: Sequence[str]) -> str:
    """The vote of more than half of those who voted (`not_judged` is no vote): two of three, or two equal ones where
    one is missing. "undecided" where there is none, or where only one voted. Pure."""
    cast = Counter(vote for vote in votes if vote != "not_judged")
    if not cast:
        return "not_judged"
    (first, count), total = cast.most_common(1)[0], sum(cast.values())
    return first if total > 1 and count * 2 > total else "undecided"


class Panel:
    """Several judges; a version is what most of them say."""

    def __init__(self, members: Sequence[Any], name: str):
        self.members, self.name = list(members), name
        self.version = max(member.version for member in members)

    def read(
        self, facts: Sequence[FactView], memories: Sequence[StoredText], *, subject: str | None = None
    ) -> "PanelReading":
        return PanelReading(self, [member.read(facts, memories, subject=subject) for member in self.members])


class PanelReading:
    def __init__(self, panel: Panel, readings: Sequence[Any]):
        self.panel, self.readings = panel, readings

    def votes(self, fact: str, version: int, layers: Sequence[str]) -> dict[str, str]:
        """Member -> verdict."""
        return {
            member.name: reading.verdict(fact, version, layers).verdict
            for member, reading in zip(self.panel.members, self.readings, strict=True)
        }

    def verdict(self, fact: str, version: int, layers: Sequence[str]) -> Judgement:
        found = [reading.verdict(fact, version, layers) for reading in self.readings]
        decided = majority([judgement.verdict for judgement in found])
        if decided in ("undecided", "not_judged"):
            said = ", ".join(
                f"{member.name} {judgement.verdict}"
                for member, judgement in zip(self.panel.members, found, strict=True)
            )
            return Judgement("not_judged", reason=f"{decided}: {said}")
        agreeing = [judgement for judgement in found if judgement.verdict == decided]
        hows = Counter(judgement.how for judgement in agreeing)
        how = max(hows, key=lambda one: (hows[one], -[judgement.how for judgement in agreeing].index(one)))
        return Judgement(
            decided, how, tuple(dict.fromkeys(sentence for judgement in agreeing for sentence in judgement.sentences))
        )

    def states(self, sentence: str) -> list[str]:
        said = Counter(key for reading in self.readings for key in set(reading.states(sentence)))
        return sorted(key for key, count in said.items() if count * 2 > self._voting(sentence))

    def unjudged(self, sentence: str) -> str | None:
        reasons = [reason for reading in self.readings if (reason := reading.unjudged(sentence)) is not None]
        return reasons[0] if len(self.readings) - len(reasons) < 2 else None

    def _voting(self, sentence: str) -> int:
        return sum(reading.unjudged(sentence) is None for reading in self.readings)


def agreement_of(rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Agreement of a panel from its votes, one dict (member -> verdict) a version: unanimous {"k", "n"} over versions
    that all judged, Krippendorff's alpha, Cohen's kappa a pair (None where it is undefined), undecided. Pure."""
    from kiokulab import stats

    members = list(rows[0]) if rows else []
    whole = [row for row in rows if "not_judged" not in row.values()]
    cast = [[None if row[member] == "not_judged" else row[member] for member in members] for row in rows]
    judged_twice = [row for row in cast if sum(vote is not None for vote in row) > 1]
    pairs = {}
    for a, b in combinations(members, 2):
        both = [(row[a], row[b]) for row in rows if "not_judged" not in (row[a], row[b])]
        pairs[f"{a} | {b}"] = {
            "n": len(both),
            "agree": sum(x == y for x, y in both),
            "kappa": _figure(stats.kappa(*zip(*both, strict=True)).value) if both else None,
        }
    return {
        "members": members,
        "unanimous": {"k": sum(len(set(row.values())) == 1 for row in whole), "n": len(whole)},
        "alpha": _figure(stats.alpha(judged_twice).value) if judged_twice else None,
        "pairs": pairs,
        "undecided": sum(majority(list(row.values())) == "undecided" for row in rows),
    }


def _figure(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


# --- answers and grades -----------------------------------------------------------------------------------------


class ModelAnswerer:
    """Answers a check question from its context alone. `answer` raises llm.Failure where the model gave no usable
    reply."""

    def __init__(self, model: llm.Model):
        self.model, self.name = model, f"llm:{model.name}"

    def answer(self, question: str, items: Sequence[dict], subject: str | None = None) -> Answer:
        if not items:
            return Answer(None)
        ids = {f"N{number}": item for number, item in enumerate(items, 1)}
        notes = "\n".join(
            f"{short} ({one_line(item.get('created') or 'no date')}): {one_line(item['text'])}"
            for short, item in ids.items()
        )
        asking = messages(
            "answerer",
            subject=llm.fenced("name", subject or "the user"),
            notes=llm.fenced("notes", notes),
            question=llm.fenced("question", question),
        )

        def check(reply: AnswerReply) -> None:
            if not set(reply.evidence) <= set(ids):
                raise ValueError("`evidence` names a note that is not there")
            if reply.answer is not None and not reply.answer.strip():
                raise ValueError("`answer` is empty; where the notes do not hold it, it is null")

        reply = self.model.ask("answerer", asking, AnswerReply, check=check)
        if reply.answer is None:
            return Answer(None)
        return Answer(
            reply.answer.strip(), None, tuple(str(ids[short].get("id")) for short in dict.fromkeys(reply.evidence))
        )


class ModelGrader:
    """Grades answers; raises llm.Failure where the model gave no usable reply."""

    def __init__(self, model: llm.Model):
        self.model, self.name = model, f"llm:{model.name}"

    def check(self, question: str, answer: Answer, right: Sequence[str], earlier: Sequence[str]) -> str:
        """'right', 'stale', 'wrong' or 'none'."""
        if answer.text is None:
            return "none"
        asking = messages(
            "grader",
            question=llm.fenced("question", question),
            right=llm.fenced("right", "\n".join(right)),
            earlier=llm.fenced("earlier", "\n".join(earlier) or "(none)"),
            answer=llm.fenced("answer", answer.text),
        )
        return self.model.ask("grader", asking, GradeReply).verdict

    def leak(self, question: str, answer: Answer, forgotten: Sequence[str]) -> str:
        """'leaked' or 'kept_silent'."""
        if answer.text is None:
            return "kept_silent"
        asking = messages(
            "leak",
            question=llm.fenced("question", question),
            forgotten=llm.fenced("forgotten", "\n".join(forgotten)),
            answer=llm.fenced("answer", answer.text),
        )
        return self.model.ask("grader", asking, LeakReply).verdict


# --- choosing ---------------------------------------------------------------------------------------------------


def make(name: str, embedder: Any, endpoint: Callable[[str], str]) -> ModelJudge | Panel:
    """The judge "llm:<model>" or "panel:[a, b, c]". Raises InputError for a panel of fewer than three, or with a model
    twice."""
    models = check_name(name)
    if name.startswith("llm:"):
        return ModelJudge(llm.Model(models[0], endpoint), embedder)
    return Panel(
        [ModelJudge(llm.Model(model, endpoint), embedder, f"panel/{number}") for number, model in enumerate(models, 1)],
        name,
    )


def check_name(name: str) -> list[str]:
    """The models of "llm:<model>" or "panel:[...]". Raises InputError where there are none, or a panel cannot have a
    majority."""
    models = models_named(name)
    if not models or not all(models):
        raise InputError(f"{name!r} names no model", "judge", "For example llm:openai/gpt-6-luna or panel:[a, b, c]")
    if name.startswith("panel:") and (len(models) < 3 or len(set(models)) != len(models)):
        raise InputError(
            f"a panel has three or more different models, not {len(models)}", "judge", "For example panel:[a, b, c]"
        )
    return models

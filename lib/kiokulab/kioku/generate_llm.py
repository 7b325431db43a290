"""Editions written by a language model: first the ledger, then the conversations one by one, then the questions.

When what is said is drawn by the seed; what it is, is invented by the model. Every reply has a schema and is held to
the same audit as every other edition, step by step, so that a fault is named to the model while it can still be mended.
A reply that is faulty twice ends the persona: it is reported as not made, and is in no edition.

A second model then reads each conversation against the ledger (the page's second check). It decides nothing: what it
finds is listed in edition.json, for people. Where it gave no answer, the conversation is listed as not read.

A model is not reproducible by a seed. What it said is in generation-calls.sqlite beside the edition, from which a
stopped command goes on; the edition's digests are what is frozen.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kiokulab import files, llm, meter, metering
from kiokulab.errors import InputError
from kiokulab.kioku import audit as auditing
from kiokulab.kioku import generate
from kiokulab.kioku.model_judge import GENERATING, messages, one_line, prompts
from kiokulab.kioku.records import Edition, Fact, Persona, Question, SessionRecord, Surface, TurnLabel, Version

RECORD = "generation-calls.sqlite"
GENERATOR_VERSION = 1
SIZES = {**generate.LEDGER_PARAMETERS}
LEAST_TURNS = 8
DRAWN = "harbour orchard tram violin clay bakery glacier ferry beehive quarry loom lighthouse vineyard kiln signal canal".split()


class VersionSaid(llm.Reply):
    text: str
    anchors: list[str]
    values: list[list[str]]


class FactSaid(llm.Reply):
    slot: str
    versions: list[VersionSaid]
    forgotten: bool


class LedgerReply(llm.Reply):
    name: str
    facts: list[FactSaid]


class TurnSaid(llm.Reply):
    role: Literal["user", "assistant"]
    text: str
    states: list[str]
    forget: str | None
    near: str | None


class SessionReply(llm.Reply):
    turns: list[TurnSaid]


class QuestionSaid(llm.Reply):
    fact: str
    question: str
    part: int


class QuestionsReply(llm.Reply):
    questions: list[QuestionSaid]


class Finding(llm.Reply):
    turn: int
    fact: str | None
    problem: Literal["not_stated", "unlabelled", "contradicts", "unclear_whose"]
    words: str


class CheckReply(llm.Reply):
    findings: list[Finding]


@dataclass
class Made:
    """What came of a command. not_made: persona -> why. findings: rows of the second check. unread: session -> why."""

    personas: list[Persona] = field(default_factory=list)
    not_made: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


# --- one persona ------------------------------------------------------------------------------------------------


def make_persona(name: str, model: llm.Model, seed: int, sizes: dict[str, int] = SIZES) -> Persona:
    """The persona `name` ("en-01"). Raises llm.Failure where a reply was faulty twice or was none."""
    language, rng = name[:2], random.Random(f"llm/{seed}/{name}")
    dates = generate._dates(language, rng)[: sizes["sessions"]]
    draw = " ".join(rng.sample(DRAWN, 3))
    task = {
        "language": language,
        "facts": sizes["facts"],
        "changed": sizes["changes"],
        "partial": sizes["partial_changes"],
        "forgotten": sizes["forgets"],
        "draw": draw,
    }
    state: list[Persona] = []

    def ledger_fits(reply: LedgerReply) -> None:
        _right_numbers(reply, sizes)
        made = Persona(
            id=name,
            language=language,
            name=reply.name,
            facts=_scheduled(reply, sizes, random.Random(f"llm/{seed}/{name}/when")),
            sessions=[SessionRecord(id=f"s{n:02d}", date=date, turns=[]) for n, date in enumerate(dates, 1)],
        )
        _no_faults(
            made, sizes, lambda fault: fault.session is None and fault.rule not in ("question", "text", "counts")
        )
        state[:] = [made]

    model.ask("ledger", messages("ledger", task=_fenced(task)), LedgerReply, check=ledger_fits)
    persona = state[0]
    near = _near(persona, sizes, rng)
    for position, session in enumerate(persona.sessions):
        task = _session_task(persona, position, near)

        def session_fits(reply: SessionReply, persona: Persona = persona, position: int = position) -> None:
            made = _with_turns(persona, position, reply)
            asked = set(near.get(persona.sessions[position].id, []))
            if {turn.of for turn in made.sessions[position].turns if turn.kind == "near_miss"} != asked:
                raise ValueError(f"`near` is set in one turn for each of {sorted(asked)}, and in no other")
            _no_faults(made, sizes, lambda fault: fault.session == persona.sessions[position].id)
            state[:] = [made]

        model.ask("session", messages("session", task=_fenced(task)), SessionReply, check=session_fits)
        persona = state[0]

    def questions_fit(reply: QuestionsReply) -> None:
        if [row.fact for row in reply.questions] != [fact.id for fact in persona.facts]:
            raise ValueError("one question a fact, in the order given")
        made = persona.model_copy(
            update={"facts": [_asked(fact, row) for fact, row in zip(persona.facts, reply.questions, strict=True)]}
        )
        _no_faults(made, sizes, lambda fault: not fault.warning)
        state[:] = [made]

    task = {
        "language": language,
        "name": persona.name,
        "facts": [
            {
                "fact": fact.id,
                "now": fact.versions[-1].text,
                "parts": fact.versions[-1].surface.values,
                "changed_parts": [n + 1 for n in auditing.changed_parts(fact, fact.versions[-1])],
            }
            for fact in persona.facts
        ],
    }
    model.ask("questions", messages("questions", task=_fenced(task)), QuestionsReply, check=questions_fit)
    return state[0]


def _fenced(task: dict[str, Any]) -> str:
    return llm.fenced("task", files.dumps(task))


def _no_faults(persona: Persona, sizes: dict[str, int], concerns: Callable[[auditing.Fault], bool]) -> None:
    """Raise ValueError, worded for the model, with the audit's faults that a step can mend."""
    found = [
        f"{fault.rule}: {fault.message}"
        for fault in auditing.audit_persona(persona, sizes)
        if not fault.warning and concerns(fault)
    ]
    if found:
        raise ValueError("; ".join(found[:6]) + (f"; and {len(found) - 6} more" if len(found) > 6 else ""))


def _right_numbers(reply: LedgerReply, sizes: dict[str, int]) -> None:
    found = {
        "facts": len(reply.facts),
        "changes": sum(len(fact.versions) == 2 for fact in reply.facts),
        "forgets": sum(fact.forgotten for fact in reply.facts),
        "partial_changes": sum(len(fact.versions) == 2 and _change(fact) == "partial" for fact in reply.facts),
    }
    wrong = [
        f"{found[name]} {name.replace('_', ' ')}, not {sizes[name]}" for name in found if found[name] != sizes[name]
    ]
    if wrong or not reply.name.strip():
        raise ValueError("; ".join(wrong) or "`name` is empty")
    for number, fact in enumerate(reply.facts, 1):
        if not 1 <= len(fact.versions) <= 2 or len({len(version.values) for version in fact.versions}) != 1:
            raise ValueError(f"fact {number} ({fact.slot}): one version or two, with equally many parts")


def _change(fact: FactSaid) -> str:
    if len(fact.versions) == 1:
        return "none"
    return (
        "partial"
        if any(set(a) & set(b) for a, b in zip(fact.versions[0].values, fact.versions[-1].values, strict=False))
        else "full"
    )


def _scheduled(reply: LedgerReply, sizes: dict[str, int], rng: random.Random) -> list[Fact]:
    """Facts with the sessions of their statements, changes and requests, by the seed, spread over all sessions."""
    n, load = sizes["sessions"], defaultdict(int)

    def place(first: int, last: int) -> int:
        least = min(load[i] for i in range(first, last + 1))
        chosen = rng.choice([i for i in range(first, last + 1) if load[i] <= least])
        load[chosen] += 1
        return chosen

    made = []
    for number, fact in enumerate(reply.facts, 1):
        twice = len(fact.versions) == 2 or fact.forgotten
        said = place(0, max(0, n * 6 // 10 - 1) if twice else n - 1)
        later = place(min(said + max(1, n // 8), n - 1), n - 1) if twice else None
        ids = [f"s{said + 1:02d}", f"s{later + 1:02d}" if later is not None else None]
        versions = [
            Version(
                n=i,
                text=version.text,
                valid_from=ids[i - 1],
                valid_to=ids[1] if i == 1 and len(fact.versions) == 2 else None,
                surface=Surface(anchors=version.anchors, values=version.values),
            )
            for i, version in enumerate(fact.versions, 1)
        ]
        made.append(
            Fact(
                id=f"f{number:02d}",
                slot=fact.slot,
                versions=versions,
                change=_change(fact),
                forget=ids[1] if fact.forgotten else None,
                forget_kind="names_fact" if fact.forgotten else None,
                question=Question(text="?", answer="?", accepted=["?"]),
            )
        )
    return made


def _near(persona: Persona, sizes: dict[str, int], rng: random.Random) -> dict[str, list[str]]:
    """Session -> facts that somebody else has in a similar way there."""
    made: dict[str, list[str]] = defaultdict(list)
    plain = [fact.id for fact in persona.facts if fact.forget is None]
    for fact in rng.sample(plain, min(len(plain), sizes["near_misses"])):
        made[rng.choice(persona.sessions).id].append(fact)
    return made


def _session_task(persona: Persona, position: int, near: dict[str, list[str]]) -> dict[str, Any]:
    session = persona.sessions[position]

    def shown(fact: Fact, version: Version) -> dict[str, Any]:
        return {
            "version": f"{fact.id}.{version.n}",
            "text": version.text,
            "anchors": version.surface.anchors,
            "values": version.surface.values,
        }

    every = [(fact, version) for fact in persona.facts for version in fact.versions]
    return {
        "name": persona.name,
        "language": persona.language,
        "date": session.date,
        "least": LEAST_TURNS,
        "say": [shown(fact, version) for fact, version in every if version.valid_from == session.id],
        "forget": [
            {"fact": fact.id, "anchors": fact.versions[-1].surface.anchors}
            for fact in persona.facts
            if fact.forget == session.id
        ],
        "near": [
            {"fact": fact.id, "text": fact.versions[-1].text}
            for fact in persona.facts
            if fact.id in near.get(session.id, [])
        ],
        "silent": [
            {"about": version.surface.anchors[0], "values": version.surface.values}
            for _, version in every
            if version.valid_from != session.id
        ],
    }


def _with_turns(persona: Persona, position: int, reply: SessionReply) -> Persona:
    """The persona with the turns of one session. Raises ValueError where they are not in turn or too few."""
    if len(reply.turns) < LEAST_TURNS or any(
        turn.role != ("user", "assistant")[n % 2] for n, turn in enumerate(reply.turns)
    ):
        raise ValueError(f"`turns` are at least {LEAST_TURNS}, the person first and then in turn")
    turns = []
    for turn in reply.turns:
        changed = next((name for name in turn.states if not name.endswith(".1")), None)
        kind = (
            "assistant"
            if turn.role == "assistant"
            else "forget"
            if turn.forget
            else "near_miss"
            if turn.near
            else "change"
            if changed
            else "fact"
            if turn.states
            else "chatter"
        )
        of = turn.forget or turn.near or (changed.partition(".")[0] if changed else None)
        turns.append(
            TurnLabel(
                role=turn.role, text=turn.text, states=turn.states, kind=kind, of=of if turn.role == "user" else None
            )
        )
    sessions = list(persona.sessions)
    sessions[position] = sessions[position].model_copy(update={"turns": turns})
    return persona.model_copy(update={"sessions": sessions})


def _asked(fact: Fact, row: QuestionSaid) -> Fact:
    parts = fact.versions[-1].surface.values
    if not 1 <= row.part <= len(parts):
        raise ValueError(f"{fact.id}: there is no part {row.part}")
    right = parts[row.part - 1]
    old = [form for version in fact.versions[:-1] for form in version.surface.values[row.part - 1]]
    return fact.model_copy(
        update={
            "question": Question(
                text=row.question,
                answer=right[0],
                accepted=list(dict.fromkeys(right)),
                stale=[form for form in dict.fromkeys(old) if form not in right],
            )
        }
    )


# --- the second check -------------------------------------------------------------------------------------------


def check_session(persona: Persona, session: SessionRecord, model: llm.Model) -> list[dict[str, Any]]:
    """Findings of a model that reads one session against the ledger. Raises llm.Failure."""
    ledger = "\n".join(
        f"{fact.id}.{version.n} (from {version.valid_from}{f' to {version.valid_to}' if version.valid_to else ''}): {one_line(version.text)}"
        for fact in persona.facts
        for version in fact.versions
    )
    turns = "\n".join(
        f"{n} {turn.role} [{', '.join(turn.states)}]: {one_line(turn.text)}" for n, turn in enumerate(session.turns, 1)
    )

    def fits(reply: CheckReply) -> None:
        if any(not 1 <= finding.turn <= len(session.turns) for finding in reply.findings):
            raise ValueError(f"`turn` is a number from 1 to {len(session.turns)}")

    asking = messages(
        "check",
        ledger=llm.fenced("ledger", ledger),
        conversation=llm.fenced("conversation", f"session {session.id}, {session.date}\n{turns}"),
    )
    reply = model.ask("check", asking, CheckReply, check=fits)
    return [{"persona": persona.id, "session": session.id, **finding.model_dump()} for finding in reply.findings]


# --- the whole --------------------------------------------------------------------------------------------------


def run(
    folder: str | Path,
    model: str,
    *,
    seed: int,
    personas: int,
    endpoint: str,
    budget_usd: float,
    grader: str = "",
    concurrency: int = 8,
    sizes: dict[str, int] = SIZES,
) -> Made:
    """Make an edition in `folder`, which says in edition.json what was found and what was not made. `grader`: the model
    of the second check, default `model`. Nothing is written where no persona was made.

    Raises InputError for a folder with another edition, a missing budget or key; BudgetReached and UpstreamDown as a
    run does: the same command then goes on where it stopped.
    """
    folder, grader = Path(folder), grader or model
    if (folder / "edition.json").exists():
        raise InputError(
            "the folder already holds an edition", str(folder), "An edition is frozen: choose another folder with OUT="
        )
    if not budget_usd:
        raise InputError(
            "a generator that asks models needs a budget", "budget_usd", "BUDGET=5 lets it spend five dollars"
        )
    metering.check_key(endpoint)
    opening = meter.Opening(
        run="dataset",
        record=str((folder / RECORD).resolve()),
        mode="live",
        upstream=endpoint,
        models=list(dict.fromkeys([model, grader])),
        budget=format(Decimal(str(budget_usd)), "f"),
        concurrency=concurrency,
    )
    made = Made()
    with meter.session(opening) as session, ThreadPoolExecutor(concurrency) as pool:
        names = generate.persona_ids(personas)

        def ask(name: str, asked: str) -> llm.Model:
            return llm.Model(asked, partial(session.endpoint, name), temperature=None)

        def one(name: str) -> tuple[Persona | None, str, list[tuple[SessionRecord, Any]]]:
            metering.begin(session.endpoint(name))
            try:
                persona = make_persona(name, ask(name, model), seed, sizes)
            except llm.Failure as failure:
                return None, str(failure), []
            checked: list[tuple[SessionRecord, Any]] = []
            for record in persona.sessions:
                try:
                    checked.append((record, check_session(persona, record, ask(name, grader))))
                except llm.Failure as failure:
                    checked.append((record, failure))
            return persona, "", checked

        for name, (persona, why, checked) in zip(names, pool.map(one, names), strict=True):
            if persona is None:
                made.not_made[name] = why
                continue
            made.personas.append(persona)
            for record, found in checked:
                if isinstance(found, llm.Failure):
                    made.unread[f"{name} {record.id}"] = str(found)
                else:
                    made.findings += found
        metering.settle(session)
    made.personas.sort(key=lambda p: (p.language, len(p.id), p.id))
    if made.personas:
        _write(folder, made, model, grader, seed, sizes)
    return made


def _write(folder: Path, made: Made, model: str, grader: str, seed: int, sizes: dict[str, int]) -> None:
    """Persona files, then edition.json. Raises InputError where the whole fails its audit, which its parts have
    passed."""
    faults = auditing.audit(made.personas, sizes)
    if any(not fault.warning for fault in faults):
        raise InputError(
            "the edition fails its audit:\n" + "\n".join(f"  {fault}" for fault in faults[:20]), str(folder)
        )
    contents = {f"{persona.id}.json": generate.persona_json(persona) for persona in made.personas}
    check = {
        "model": grader,
        "findings": sorted(
            made.findings, key=lambda row: (row["persona"], row["session"], row["turn"], row["problem"])
        ),
        "not_read": made.unread,
        "sessions": sum(len(persona.sessions) for persona in made.personas),
    }
    edition = Edition(
        edition=folder.name,
        generator=f"llm:{model}",
        generator_version=GENERATOR_VERSION,
        seed=seed,
        parameters={**sizes, "personas": len(made.personas), "not_made": made.not_made, "prompts": prompts(GENERATING)},
        files={
            name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            for name, text in sorted(contents.items())
        },
        languages=[language for language in generate.LANGUAGES if any(p.language == language for p in made.personas)],
        audit={**auditing.summary(faults), "second_check": check},
        reviewed_by_people="Nobody has reviewed this edition item by item.",
        licence="unknown",
        notes="Written by a language model. Findings of the second check are those of a model and are not verified.",
    )
    for name, text in contents.items():
        files.write_atomic(folder / name, text)
    files.write_atomic(
        folder / "edition.json",
        json.dumps(edition.model_dump(mode="json"), ensure_ascii=False, indent=1, sort_keys=True) + "\n",
    )

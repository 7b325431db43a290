"""Step 3: what the store states, and what its search lets a plain reader answer. Reads the rows of steps 1 and 2 only.

judgements.jsonl: first the judge itself with its agreement with the labelled set, then unit by unit a `size` row, a
`version` row for every version of every fact, a `sentence` row for every stored sentence, and an `answer` row for every
check question.

A store that could not be listed has a size row that says so, and its versions are `not_judged` with the reason. Where a
run asks for forget routing and the system has no forget call, the versions of forgotten facts are `not_judged`: nobody
asked the system to forget them. A question without a context is `unsupported` or `not_judged`; none of this is a zero.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kiokulab import embed, llm, meter, metering, units
from kiokulab.errors import BudgetReached, InputError, UnitsFailed, UpstreamDown
from kiokulab.files import read_jsonl, write_jsonl
from kiokulab.judging import FactView, Judge, StoredText, VersionView, agreement, judge_row, make_judge
from kiokulab.kioku import model_judge
from kiokulab.kioku.answer import Answer, ExtractiveAnswerer, check_grader, grade_check, grade_leak, make_answerer
from kiokulab.kioku.measured import measured_once
from kiokulab.kioku.judges import scored_pairs
from kiokulab.kioku.model_judge import ModelAnswerer, ModelGrader
from kiokulab.kioku.records import (
    AnswerRow,
    ContextRow,
    Fact,
    JudgeRow,
    MemoryRow,
    Persona,
    SentenceRow,
    SizeRow,
    VersionRow,
)
from kiokulab.metering import models_named
from kiokulab.text import language_of, nfc, sentences

LAYERS = ("live", "derived", "retired", "log")
PAGE = ("live", "derived")  # what the eight metrics look at
GONE = ("retired", "log")
ROLES = ("user", "assistant")  # kinds of a memory that is a turn of a conversation
JUDGE_EMBEDDER = (
    "use-denoise"  # the judge's own, whatever the systems and the answerer use: else tables would not compare
)


def view(fact: Fact) -> FactView:
    """A fact without the labels that say where it was stated."""
    return FactView(
        fact.id, tuple(VersionView.of(version.model_dump()) for version in fact.versions), fact.question.text, fact.slot
    )


def split(memory: MemoryRow, before: MemoryRow | None = None) -> StoredText:
    """A memory as a judge reads it. It goes on with the memory before where both are turns of one conversation, kept as
    they were said: an answer then may leave out what the question was about."""
    turns = (
        before is not None
        and {memory.kind, before.kind} <= set(ROLES)
        and memory.created is not None
        and memory.created == before.created
    )
    return StoredText(
        memory.id,
        memory.layer,
        tuple(sentences(memory.text)),
        _day(memory.created),
        turns and memory.layer == before.layer,
    )


def _day(created: str | None) -> date | None:
    """The day, by the memory's own clock, on which it came about. Bias: a store that keeps UTC is a day off near
    midnight."""
    try:
        return datetime.fromisoformat(created).date() if created else None
    except ValueError:
        return None


def ledger_characters(persona: Persona) -> int:
    """NFC characters of the current versions of all facts that are true at the end."""
    return sum(len(nfc(fact.versions[-1].text)) for fact in persona.facts if fact.lasts)


def judge_unit(
    persona: Persona,
    memories: Sequence[MemoryRow],
    contexts: Sequence[ContextRow],
    *,
    judge: Judge,
    answerer: ExtractiveAnswerer | ModelAnswerer,
    grader: str | ModelGrader = "rules",
    unit: str | None = None,
    route: str | None = None,
    store: tuple[str, str | None] = ("ok", None),
    not_asked_to_forget: str | None = None,
) -> list[dict]:
    """The judged rows of one unit: size, versions, sentences, answers, in that order.

    `unit` and `route` default to those of the rows. `store`: status and reason of the dump. `not_asked_to_forget`: why
    the system was never asked to forget, where it was not.
    """
    if isinstance(grader, str):
        check_grader(grader)
    first = next(iter([*memories, *contexts]), None)
    unit, route = unit or first.unit, route or first.route
    place = {"unit": unit, "persona": persona.id, "route": route}
    status, reason = store
    stored = [split(memory, before) for before, memory in zip([None, *memories], memories, strict=False)]
    rows: list[Any] = [
        SizeRow(
            **place,
            language=persona.language,
            ledger_characters=ledger_characters(persona),
            memories=len(memories),
            status=status,
            reason=reason,
            memory_characters={layer: sum(len(nfc(m.text)) for m in memories if m.layer == layer) for layer in LAYERS},
        )
    ]
    facts = [view(fact) for fact in persona.facts]
    reading = judge.read(facts, stored, subject=persona.name) if status == "ok" else None
    for fact in persona.facts:
        why = (
            (reason or f"the store could not be read ({status})")
            if reading is None
            else not_asked_to_forget
            if fact.forget is not None
            else None
        )
        for version in fact.versions:
            where = {**place, "fact": fact.id, "version": version.n}
            if why is not None:
                rows.append(
                    VersionRow(
                        **where, verdict="not_judged", live="not_judged", retired="not_judged", sentences=[], reason=why
                    )
                )
                continue
            page, live, gone = (reading.verdict(fact.id, version.n, layers) for layers in (PAGE, ("live",), GONE))
            votes = reading.votes(fact.id, version.n, PAGE) if hasattr(reading, "votes") else None
            rows.append(
                VersionRow(
                    **where,
                    verdict=page.verdict,
                    how=page.how,
                    sentences=list(page.sentences),
                    live=live.verdict,
                    retired=gone.verdict,
                    reason=page.reason,
                    votes=votes,
                )
            )
    if reading is not None:
        for memory in stored:
            for n, sentence in enumerate(memory.sentences, 1):
                name = f"{memory.id}#{n}"
                unjudged = reading.unjudged(name)
                rows.append(
                    SentenceRow(
                        **place,
                        id=name,
                        memory=memory.id,
                        layer=memory.layer,
                        text=sentence,
                        language=language_of(sentence, ("en", "ja")),
                        states=[] if unjudged else reading.states(name),
                        judged=unjudged is None,
                        reason=unjudged,
                    )
                )
    by_fact = {context.fact: context for context in contexts}
    rows += [_answer(persona, fact, by_fact.get(fact.id), place, judge, answerer, grader) for fact in persona.facts]
    return [row.model_dump(mode="json") for row in rows]


def _answer(
    persona: Persona,
    fact: Fact,
    context: ContextRow | None,
    place: dict,
    judge: Judge,
    answerer: ExtractiveAnswerer | ModelAnswerer,
    grader: str | ModelGrader,
) -> AnswerRow:
    question = fact.question
    row = {
        **place,
        "fact": fact.id,
        "role": "check" if fact.lasts else "leak" if fact.forget is not None else "lapsed",
        "question": question.text,
        "expected": question.answer,
    }
    if context is None:
        return AnswerRow(**row, answer=None, verdict="not_judged", reason="there is no context for this question")
    if context.status != "ok":
        return AnswerRow(
            **row,
            answer=None,
            verdict="unsupported" if context.status == "unsupported" else "not_judged",
            reason=context.reason or context.status,
        )
    try:
        answer = Answer(None) if context.declined else answerer.answer(question.text, context.items, persona.name)
    except llm.Failure as failure:
        return AnswerRow(**row, answer=None, verdict="not_judged", reason=f"answerer {answerer.name}: {failure}")
    try:
        verdict = _grade(persona, fact, answer, judge, grader)
    except llm.Failure as failure:
        return AnswerRow(
            **row,
            answer=answer.text,
            verdict="not_judged",
            evidence=list(answer.evidence),
            reason=f"grader {grader.name}: {failure}",
        )
    return AnswerRow(
        **row,
        answer=answer.text,
        verdict=verdict,
        evidence=list(answer.evidence),
        reason="the system itself said that it does not know" if context.declined else None,
    )


def _grade(persona: Persona, fact: Fact, answer: Answer, judge: Judge, grader: str | ModelGrader) -> str:
    question, gone = fact.question, not fact.lasts
    if isinstance(grader, str):
        if gone:
            return grade_leak(answer, [*question.accepted, *question.stale], view(fact), judge, persona.name)
        return grade_check(answer, question.accepted, question.stale)
    if gone:
        return grader.leak(question.text, answer, [version.text for version in fact.versions])
    return grader.check(
        question.text,
        answer,
        [question.answer, fact.versions[-1].text],
        [version.text for version in fact.versions[:-1]],
    )


# --- the step ---------------------------------------------------------------------------------------------------


def judge_store(unit: dict) -> dict[str, list[dict]]:
    """One unit in a process of its own: {"judgements": rows}. `unit` is what `plan` made; "meter" in it is base URL and
    run of the meter, where a model is asked."""
    name, endpoint = unit["unit"], None
    if unit.get("meter"):
        endpoint = partial(meter.Session(*unit["meter"]).endpoint, name)
        metering.begin(endpoint("judge"))
    answering = models_named(unit["answerer"])
    grading = models_named(unit["grader"])
    return {
        "judgements": judge_unit(
            Persona.model_validate(unit["persona"]),
            [MemoryRow.model_validate(row) for row in unit["memories"]],
            [ContextRow.model_validate(row) for row in unit["contexts"]],
            judge=_judge(unit["judge"], unit["embedder"], endpoint),
            answerer=ModelAnswerer(llm.Model(answering[0], endpoint))
            if answering
            else make_answerer(unit["answerer"], embed.get(unit["embedder"])),
            grader=ModelGrader(llm.Model(grading[0], endpoint)) if grading else unit["grader"],
            unit=name,
            route=unit["route"],
            store=tuple(unit["store"]),
            not_asked_to_forget=unit["not_asked_to_forget"],
        )
    }


def _judge(name: str, embedder: str, endpoint: Callable[[str], str] | None = None) -> Judge:
    helper = None if embedder == "hash" else embed.get(JUDGE_EMBEDDER)  # "hash" is for tests, which load no model
    return model_judge.make(name, helper, endpoint) if models_named(name) else make_judge(name, helper)


def check(params: Any) -> None:
    """Raise InputError for a judge, answerer or grader that there is none of."""
    if params.judge.startswith(("llm:", "panel:")):
        model_judge.check_name(params.judge)
    else:
        make_judge(params.judge)
    if not models_named(params.answerer):
        make_answerer(params.answerer)
    check_grader(params.grader)
    if any(map(models_named, (params.judge, params.answerer, params.grader))):
        metering.check(params)


def plan(folder: Path, params: Any) -> list[dict]:
    """The units that step 2 finished, with their rows, in order. Raises InputError for a judge, answerer or grader that
    is not built."""
    check(params)
    personas = {row["id"]: row for row in read_jsonl(folder / "dataset.jsonl")}
    rows: dict[str, dict[str, list[dict]]] = defaultdict(lambda: {"memories": [], "contexts": [], "events": []})
    for key in ("memories", "contexts", "events"):
        for row in read_jsonl(folder / f"{key}.jsonl"):
            rows[row["unit"]][key].append(row)
    planned = []
    for unit, mine in rows.items():
        one = next(iter(mine["events"] or mine["memories"] or mine["contexts"]))
        if one["persona"] not in personas:
            raise InputError(
                f"unit {unit!r} is of persona {one['persona']!r}, which the dataset does not have",
                str(folder / "dataset.jsonl"),
            )
        dump = next((e for e in mine["events"] if e["op"] == "dump"), None)
        refused = [e for e in mine["events"] if e["op"] == "forget" and e["status"] == "unsupported"]
        planned.append(
            {
                "unit": unit,
                "persona": personas[one["persona"]],
                "route": one["route"],
                "memories": mine["memories"],
                "contexts": mine["contexts"],
                "store": [
                    dump["status"],
                    None if dump["status"] == "ok" else str(dump["detail"].get("reason", dump["status"])),
                ]
                if dump
                else ["ok", None],
                "not_asked_to_forget": f"forget: {refused[0]['detail'].get('reason', 'unsupported')}"
                if refused
                else None,
                "judge": params.judge,
                "answerer": params.answerer,
                "grader": params.grader,
                "embedder": params.embedder,
            }
        )
    return planned


def judge_set() -> Path:
    """Folder of the labelled set."""
    from kiokulab.params import root

    return root() / "data" / "kioku" / "judge-set"


def run(folder: str | os.PathLike, params: Any) -> list[dict]:
    """Step 3 of the run in `folder`: writes judgements.jsonl and returns a row a route. Finished units are kept. Raises
    UnitsFailed where no unit was finished; failed units are named in the summary and in units/3-judge/."""
    folder = Path(folder)
    planned = plan(folder, params)
    place = folder / "units" / "3-judge"
    preload = embed.loaded_once(params.embedder) if len(planned) > 2 else nullcontext()
    with preload, metering.step_session(folder, params, "3-judge") as session:
        if session is not None:
            planned = [{**unit, "meter": [session.base, session.run]} for unit in planned]
        outcome = units.run_units(
            "kiokulab.kioku.judge:judge_store",
            planned,
            place,
            jobs=params.jobs,
            engine=params.engine,
            scheduler=params.scheduler,
            timeout_s=params.unit_timeout_s,
            embedders=sorted({JUDGE_EMBEDDER, params.embedder}) if params.embedder != "hash" else (),
        )
        metering.settle(session, outcome, planned, place)
        if planned and not outcome.finished:
            raise UnitsFailed(outcome.failed)
        try:
            measured = _measure(params, session)
        except (BudgetReached, UpstreamDown):
            metering.settle(session, outcome, planned)  # says it with what was not run
            raise
        metering.settle(session, outcome, planned)
    rows = list(units.assemble(place, "judgements"))
    votes = [row["votes"] for row in rows if row["kind"] == "version" and row.get("votes")]
    head = JudgeRow(**measured, panel=model_judge.agreement_of(votes) if votes else None)
    write_jsonl(folder / "judgements.jsonl", [head.model_dump(mode="json"), *rows])
    return _summary(planned, outcome, rows)


def _measure(params: Any, session: meter.Session | None) -> dict[str, Any]:
    """Name, version and agreement of the judge with the labelled set. A model is asked about several pairs at once, and
    about `judge_set_pairs` of them a language where not all are wanted: `of` then says of how many."""
    if session is None or not models_named(params.judge):
        judge = _judge(params.judge, params.embedder)
        return {"name": judge.name, "version": judge.version, "measured": measured_once(judge, judge_set())}
    endpoint = partial(session.endpoint, "judge-set")
    metering.begin(endpoint("judge"))
    judge = _judge(params.judge, params.embedder, endpoint)
    measured = {}
    for language, (pairs, of) in scored_pairs(judge_set(), params.judge_set_pairs, params.seed).items():
        with ThreadPoolExecutor(params.concurrency) as pool:
            verdicts = list(pool.map(lambda pair: judge_row(judge, *pair), pairs))
        measured[language] = agreement([(row, verdict) for (row, _), verdict in zip(pairs, verdicts, strict=True)])
        if len(pairs) < of:
            measured[language]["of"] = of
    return {"name": judge.name, "version": judge.version, "measured": measured}


def _summary(planned: list[dict], outcome: units.Outcome, rows: list[dict]) -> list[dict]:
    result = []
    for route in dict.fromkeys(unit["route"] for unit in planned):
        names = {unit["unit"] for unit in planned if unit["route"] == route}
        mine = [row for row in rows if row["route"] == route]
        versions = [row["verdict"] for row in mine if row["kind"] == "version"]
        said = [row for row in mine if row["kind"] == "sentence"]
        answers = [row["verdict"] for row in mine if row["kind"] == "answer" and row["role"] == "check"]
        result.append(
            {
                "route": route,
                "units": len(names),
                "failed": ", ".join(sorted(names & set(outcome.failed))) or "none",
                "sentences": len(said),
                "state nothing": sum(not row["states"] for row in said if row["judged"]),
                **{verdict: versions.count(verdict) for verdict in ("held", "partial", "absent", "not_judged")},
                "questions": len(answers),
                "right": answers.count("right"),
                "stale": answers.count("stale"),
            }
        )
    return result

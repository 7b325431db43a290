"""Step 3: each question is answered from what came through, and the answer is graded.

With models, calls are in flight across questions; each question's result is one file, written when it is complete,
and is where a stopped run goes on. One attempt a question: an answer is never asked for again because it was wrong.

What counts as what (`verdict` of a judgement row):
- right, wrong: by the official reading of the judge's words, or by rule; a strict reading is kept beside it.
- wrong, with `missing` saying why: the memory failed or ran over its time, or the reader gave no answer.
- not_judged, with a reason: the judge gave no verdict. It is in no denominator, and the report counts it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from kiokulab import embed, units
from kiokulab.errors import InputError
from kiokulab.files import dumps, iterate_jsonl, write_atomic, write_jsonl
from kiokulab.params import root
from kiokulab.verdict import generate, grade, models, wording
from kiokulab.verdict.dataset import Question
from kiokulab.verdict.params import VerdictParams
from kiokulab.verdict.reader import ExtractiveReader

STEP = "3-judge"
ATTEMPTS = 2  # of a judge whose reply was empty; what was said is never asked for again


def resolved(question: Question, context: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a context with their texts: those of a baseline lie in the dataset."""
    if context["kind"] == "facts":
        return context["items"]
    sessions = {session.id: session for session in question.sessions}
    return [
        {"date": row["date"], "turns": [[turn.role, turn.text] for turn in sessions[row["session"]].turns]}
        for row in context["items"]
    ]


def answer(
    question: Question,
    context: dict[str, Any],
    params: VerdictParams,
    said: wording.Prompts,
    reader: ExtractiveReader | None,
    ask: models.Ask | None,
) -> dict[str, Any]:
    """The answer row of one question. `text` None where there is no answer; `missing` then says why."""
    row: dict[str, Any] = {
        "id": question.id,
        "reader": params.reader,
        "text": None,
        "missing": None,
        "empty_context": not context["items"],
        "declined": None,
    }
    if context["status"] != "ok":
        return {**row, "missing": f"{context['status']}: {context['reason']}"}
    items = resolved(question, context)
    if reader is not None:
        found = reader.answer(question.question, question.date, items)
        return {**row, "text": found["text"], "declined": found["declined"], "evidence": found["evidence"]}
    prompt = said.reader(
        question, items, context["kind"], params.stepwise if context["kind"] == "history" else params.facts_stepwise
    )
    row |= {
        "prompt_sha256": hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        "prompt_characters": len(prompt),
    }
    try:
        text = ask(question.id, "reader", prompt)
    except models.NoAnswer as error:
        return {**row, "missing": f"the reader gave no answer: {error}"}
    return {**row, "text": text} if text and text.strip() else {**row, "missing": "the reader's answer is empty"}


def verdict_of(
    question: Question, answered: dict[str, Any], params: VerdictParams, said: wording.Prompts, ask: models.Ask | None
) -> dict[str, Any]:
    """The judgement row of one answer."""
    row: dict[str, Any] = {
        "kind": "answer",
        "id": question.id,
        "type": question.type,
        "abstention": question.abstention,
        "verdict": "wrong",
        "why": None,
        "missing": answered["missing"],
        "judge": params.judge,
        "official": None,
        "strict": None,
        "reply": None,
        "panel": None,
    }
    if answered["text"] is None:
        return {**row, "why": answered["missing"]}
    if params.judge == "rules":
        found, why = grade.rule_grade(question.type, question.abstention, question.answer, answered["text"])
        row |= {"verdict": _word(found), "why": why}
    else:
        row |= _asked(question, answered["text"], said, ask, "judge")
        row |= {"verdict": _word(row["official"]), "why": row["why"]}
    if params.panel:
        votes = [
            _asked(question, answered["text"], said, ask, f"panel-{n}")
            for n in range(1, 1 + len(params.panel.split(",")))
        ]
        given = [vote["official"] for vote in votes]
        row["panel"] = {"votes": given, "replies": [vote["reply"] for vote in votes], "majority": grade.majority(given)}
    return row


def _word(found: bool | None) -> str:
    return "not_judged" if found is None else "right" if found else "wrong"


def _asked(question: Question, text: str, said: wording.Prompts, ask: models.Ask, role: str) -> dict[str, Any]:
    """A judge's reply with both readings of it; None in each where the reply is empty after all attempts."""
    prompt = said.judge(question, text)
    why = "the judge's reply is empty"
    for _ in range(ATTEMPTS):
        try:
            reply = ask(question.id, role, prompt)
        except models.NoAnswer as error:
            return {"reply": None, "official": None, "strict": None, "why": f"the judge gave no answer: {error}"}
        if reply and reply.strip():
            return {
                "reply": reply,
                "official": grade.official_parse(reply),
                "strict": grade.strict_parse(reply),
                "why": None,
            }
    return {"reply": "", "official": None, "strict": None, "why": why}


# --- the step ---------------------------------------------------------------------------------------------------


def pairs(folder: Path) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Questions with their contexts, in order, one in memory at a time. Raises InputError where the two files
    differ."""
    contexts = iterate_jsonl(folder / "contexts.jsonl")
    for question in generate.read(folder)[1]:
        number, context = next(contexts, (0, {"id": None}))
        if context["id"] != question.id:
            raise InputError(
                f"the context is of question {context['id']!r}, not of {question.id!r}",
                f"{folder / 'contexts.jsonl'}:{number}",
                "Run 2-ingest again",
            )
        yield question, context


def run(folder: str | Path, params: VerdictParams, ask: models.Ask | None = None) -> list[dict[str, Any]]:
    """Step 3: answers.jsonl, judgements.jsonl (its first row says who judged) and answer-events.jsonl. Returns a row
    a verdict.

    `ask` stands in for the models (tests, bench). Raises InputError for prompts that cannot be used, BudgetReached
    where money ran out: what was answered is kept.
    """
    folder = Path(folder)
    said = wording.load(params)
    where = folder / "units" / STEP
    where.mkdir(parents=True, exist_ok=True)
    reader = ExtractiveReader(embed.get(params.embedder)) if params.reader == "extractive" else None
    with models.connect(params, folder) if ask is None else nullcontext(ask) as asked:

        def work(question: Question, context: dict[str, Any]) -> dict[str, Any]:
            start = time.perf_counter()
            answered = answer(question, context, params, said, reader, asked)
            took = round(time.perf_counter() - start, 6)
            # an answer from a record, of this run or of the one that it judges again, took as long as it did then
            took = getattr(asked, "seconds", {}).get((question.id, "reader"), took)
            event = {"id": question.id, "op": "answer", "count": 1, "seconds": took}
            return {
                "answer": answered,
                "event": event,
                "judgement": verdict_of(question, answered, params, said, asked),
            }

        # without models the work is this processor's own, and threads would only stand in each other's way
        results = dict(_in_order(pairs(folder), work, where, params.concurrency if asked is not None else 0))
    order = [question.id for question, _ in pairs(folder)]
    write_jsonl(folder / "answers.jsonl", (results[identity]["answer"] for identity in order))
    write_jsonl(
        folder / "answer-events.jsonl", (results[identity]["event"] for identity in order)
    )  # wall times, apart from the answers
    write_jsonl(
        folder / "judgements.jsonl", [_judge_row(params, said), *(results[identity]["judgement"] for identity in order)]
    )
    rows = [results[identity]["judgement"] for identity in order]
    counts = {word: sum(row["verdict"] == word for row in rows) for word in ("right", "wrong", "not_judged")}
    table = [{"verdict": word.replace("_", " "), "answers": n} for word, n in counts.items()]
    return [
        *table,
        {"verdict": "of the wrong ones: no answer at all", "answers": sum(row["missing"] is not None for row in rows)},
    ]


def _in_order(
    work_items: Iterator[tuple[Question, dict]], work: Any, where: Path, at_a_time: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, result) of every question: kept ones from their files, new ones as they come, `at_a_time` in flight. A
    result with models is written as soon as it is there; one in which a judge gave no verdict is not kept, so that
    the next run asks again.
    """

    def keep(identity: str, result: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        place = where / f"{units.file_name(identity)}.json"
        failed = place.with_name(f"{units.file_name(identity)}.failed.json")
        if result["judgement"]["verdict"] == "not_judged" and result["judgement"]["judge"] != "rules":
            write_atomic(failed, dumps({"unit": identity, "reason": result["judgement"]["why"]}) + "\n")
        elif at_a_time:
            failed.unlink(missing_ok=True)
            # whole or not at all, but not forced to the disk: after a power cut the meter's record answers again
            part = place.with_suffix(".part")
            part.write_text(dumps(result) + "\n", encoding="utf-8")
            os.replace(part, place)
        return identity, result

    if not at_a_time:
        for question, context in work_items:
            yield keep(question.id, work(question, context))
        return
    with ThreadPoolExecutor(at_a_time) as pool:
        running: dict[Future, str] = {}
        try:
            for question, context in work_items:
                known = where / f"{units.file_name(question.id)}.json"
                if known.exists():
                    yield question.id, json.loads(known.read_bytes())
                    continue
                running[pool.submit(work, question, context)] = question.id
                if len(running) >= 2 * at_a_time:  # as many again wait, so that no history is read long before its turn
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield keep(running.pop(future), future.result())
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield keep(running.pop(future), future.result())
        except BaseException:
            for future in running:
                future.cancel()
            for future, identity in running.items():  # what was under way is paid for: it is kept
                if not future.cancelled():
                    try:
                        keep(identity, future.result())
                    except Exception:  # its own failure does not hide the first one
                        continue
            raise


def _judge_row(params: VerdictParams, said: wording.Prompts) -> dict[str, Any]:
    row = {
        "kind": "judge",
        "name": params.judge,
        "version": grade.RULES_VERSION if params.judge == "rules" else said.digest,
        "measured": None,
        "reader": params.reader,
        "panel": [name.removeprefix("llm:") for name in params.panel.split(",") if name],
        "prompts": wording.conditions(said),
        "models": models.roles(params),
        "internal_model": models.system_model(params),
    }
    if params.judge == "rules":
        row["measured"] = yaml.safe_load((root() / "data" / "verdict" / "rule-grader.yml").read_text(encoding="utf-8"))
    return row


def spread(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts by question type, for the notebook."""
    kinds = dict.fromkeys(row["type"] for row in rows)
    return [
        {
            "question type": kind,
            **{
                word: sum(row["type"] == kind and row["verdict"] == word for row in rows)
                for word in ("right", "wrong", "not_judged")
            },
        }
        for kind in kinds
    ]

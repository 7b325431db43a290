"""Step 2: each history goes into a memory of its own, and the memory is asked.

One question is one unit: an empty store is opened, every session goes in with the clock at its date, the system
settles, the clock is set to the question's date (which may lie before a session of the same day), the system is
asked, its store is listed, closed and removed. A unit has a process of its own; one that hangs is ended with its
children at its limit.

Baselines of this track keep nothing from one question to the next. They share this process; the parameters in the
receipt say so (`isolation`).

What an adapter is fed carries no label: session ids are running numbers, `has_answer` was taken away in step 1.
Dates: `native` and `clock` systems get them with each call; a `text` system gets a first line with the date, in the
file's own spelling; a `none` system gets no date but the call's own argument.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kiokulab import embed, metering, units
from kiokulab.errors import InputError
from kiokulab.feeding import feed_units, in_pairs
from kiokulab.files import iterate_jsonl, write_jsonl
from kiokulab.systems.base import Hit, Item, Pair, Session, SystemFailure, Unsupported, Utterance
from kiokulab.verdict import baselines, generate
from kiokulab.verdict.dataset import Question, show_date
from kiokulab.verdict.params import BASELINES, VerdictParams, describe_system

STEP = "2-ingest"
MEMORY_OF_A_UNIT = 0.5  # share of this machine's memory that one process of a unit may take before it is refused more


# --- what goes in -----------------------------------------------------------------------------------------------


def items(session: Session, feeds: str, dates: str) -> Iterator[Item]:
    """A session in the unit that the adapter declares. Empty turns are left out; an answer that nobody asked for
    (filler may begin with one) and a question that nobody answered have an empty other side. Raises InputError for an
    unknown unit.
    """
    turns = [turn for turn in session.turns if turn.text.strip()]
    if dates == "text" and turns:
        turns[0] = replace(turns[0], text=f"Date: {show_date(session.date)}\n{turns[0].text}")
    if feeds == "session":
        if turns:
            yield replace(session, turns=tuple(turns))
    elif feeds == "utterance":
        for n, turn in enumerate(turns, 1):
            yield Utterance(f"{session.id}.t{n:02d}", session.date, turn)
    elif feeds == "pair":
        for n, (user, assistant) in enumerate(in_pairs(turns), 1):
            yield Pair(f"{session.id}.p{n:02d}", session.date, user, assistant)
    else:
        raise InputError(f"a system cannot be fed {feeds!r}", "feeds", "It is session, pair or utterance")


# --- one question -----------------------------------------------------------------------------------------------


def ask_baseline(name: str, question: Question, params: VerdictParams, embedder: Any) -> dict[str, list[dict]]:
    """Rows of one question for a baseline: which sessions a reader is shown, best first. The texts stay in
    dataset.jsonl."""
    start = time.perf_counter()
    chosen = baselines.select(name, question, params.top_sessions, embedder)
    seconds = time.perf_counter() - start
    shown = [
        {"session": session.id, "date": session.date, "score": None if score is None else round(score, 4)}
        for session, score in chosen
    ]
    return {
        "contexts": [{"id": question.id, "status": "ok", "kind": "history", "items": shown, "declined": False}],
        "events": [_event(question.id, "retrieve", seconds)],
        "memories": [],
    }


def _event(question: str, op: str, seconds: float, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": question, "op": op, "count": count, "seconds": round(seconds, 6), **more}


def ingest_unit(unit: dict[str, Any]) -> dict[str, list[dict]]:
    """Everything of one question on one system: {"contexts", "events", "memories"} rows. Raises SystemFailure with the
    operation at which the system failed; then there are no rows, and the question counts as wrong."""
    _limit_memory()
    params = VerdictParams.checked(unit["params"])
    question = generate.from_row(unit["row"]) if "row" in unit else generate.read_at(unit["dataset"], unit["offset"])
    folder = Path(unit["store"])
    shutil.rmtree(folder, ignore_errors=True)  # what a life that was cut off has left
    try:
        with ExitStack() as stack:
            return _ask_system(stack, unit, params, question, folder)
    finally:
        if not os.environ.get("KIOKULAB_KEEP_STORES"):
            shutil.rmtree(folder, ignore_errors=True)


def _ask_system(
    stack: ExitStack, unit: dict[str, Any], params: VerdictParams, question: Question, folder: Path
) -> dict[str, list[dict]]:
    from kiokulab import meter, systems

    declared = systems.describe(unit["system"], unit["settings"])
    endpoint = unit.get("endpoint")  # of a run whose system asks a language model
    if endpoint is not None:
        metering.begin(endpoint)
    elif declared["embeddings"]:
        endpoint = stack.enter_context(meter.serve_embeddings(embed.get(params.embedder))).endpoint(question.id)
    start = time.perf_counter()
    system = stack.enter_context(
        systems.connect(
            unit["system"],
            unit["settings"],
            space=question.id,
            workdir=folder,
            endpoint=endpoint,
            when=question.sessions[0].date,
            timeouts={op: float(params.unit_timeout_s) for op in ("ingest", "search", "dump")},
        )
    )
    events, calls = [_event(question.id, "open", time.perf_counter() - start)], 0
    start = time.perf_counter()
    for session in question.sessions:
        system.set_clock(session.date)
        for item in items(session, declared["feeds"], declared["dates"]):
            system.ingest(item, session.date)
            calls += 1
    system.settle(float(params.unit_timeout_s))
    seconds = time.perf_counter() - start
    asked = {"model_calls": meter.given(unit["endpoint"])} if "endpoint" in unit else {}
    events.append(_event(question.id, "ingest", seconds, calls, sessions=len(question.sessions), **asked))
    if "search" not in declared["capabilities"]:
        raise SystemFailure("the system has no search call, so that it cannot be asked", "unsupported")
    start = time.perf_counter()
    system.set_clock(question.date)
    results = system.search(question.question, params.k, question.date)
    events.append(_event(question.id, "retrieve", time.perf_counter() - start))
    hits = list(results.hits) or ([Hit(results.shown)] if results.shown else [])
    if any(not isinstance(hit.text, str) for hit in hits):
        raise SystemFailure("search: a result has no text")
    warnings = list(system.warnings) + [f"refused to reach {address}" for address in getattr(system, "network", [])]
    if len(hits) > params.k:
        warnings.append(f"{len(hits)} results for k={params.k}; the rest was cut off")
    if warnings:
        events.append(
            {
                "id": question.id,
                "op": "warnings",
                "count": len(warnings),
                "seconds": 0.0,
                "warnings": [str(w)[:500] for w in warnings[:20]],
            }
        )
    shown = [
        {"id": hit.id, "text": hit.text, "date": hit.created, "score": _finite(hit.score)} for hit in hits[: params.k]
    ]
    try:
        memories = [
            {"id": question.id, "memory": m.id, "text": m.text, "layer": m.layer, "created": m.created}
            for m in system.dump()
        ]
    except Unsupported:
        memories = []
    return {
        "contexts": [
            {"id": question.id, "status": "ok", "kind": "facts", "items": shown, "declined": bool(results.declined)}
        ],
        "events": events,
        "memories": memories,
    }


def _finite(score: Any) -> float | None:
    return round(float(score), 6) if isinstance(score, (int, float)) and abs(score) < float("inf") else None


def _limit_memory() -> None:
    """So that a system that eats memory harms its own question alone: this process and those it starts are refused more
    than half of what the machine has, each."""
    import resource

    try:
        limit = int(MEMORY_OF_A_UNIT * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    except (ValueError, OSError):
        pass  # not every system has it; then the machine's own rules hold


# --- the step ---------------------------------------------------------------------------------------------------


def run(folder: str | os.PathLike, params: VerdictParams) -> list[dict[str, Any]]:
    """Step 2 of the run in `folder`: contexts.jsonl, memories.jsonl and events.jsonl, in the order of the questions.

    Every question has a context row: one that failed or ran over its time has `status` "failed" or "timeout" with the
    reason, and is wrong in the headline. Finished questions are kept and not asked again. Returns a row an operation.
    """
    folder = Path(folder)
    name = describe_system(params.system, params.settings)["name"]
    places = generate.offsets(folder / "dataset.jsonl")
    if name in BASELINES:
        rows = _run_baseline(folder, name, params)
    else:
        rows = _run_system(folder, name, params, places)
    for key in ("contexts", "memories", "events"):
        write_jsonl(folder / f"{key}.jsonl", (row for identity in places for row in rows[identity][key]))
    return _summary(rows)


def _run_baseline(folder: Path, name: str, params: VerdictParams) -> dict[str, dict[str, list[dict]]]:
    embedder = embed.get(params.embedder) if name == "plain-rag" else None
    return {question.id: ask_baseline(name, question, params, embedder) for question in generate.read(folder)[1]}


def plan(folder: Path, name: str, params: VerdictParams, places: dict[str, int]) -> list[dict[str, Any]]:
    """The units of a system's run, in order. Raises InputError for an id that cannot name a file, a setting or an
    embedder."""
    settings = dict(params.settings)
    declared = describe_system(name, settings)
    if "embedder" in declared["settings"]:  # the kit's own stores search with the run's embedder
        settings.setdefault("embedder", params.embedder)
    embed.check(settings.get("embedder", params.embedder))
    values = params.model_dump(mode="json")
    # on a cluster the history travels with its unit; here only the place where it lies
    rows = {q.id: {"row": generate.as_row(q)} for q in generate.read(folder)[1]} if params.engine == "dask" else {}
    return [
        {
            "unit": identity,
            "dataset": str(folder.absolute() / "dataset.jsonl"),
            "offset": offset,
            "system": name,
            "settings": settings,
            "params": values,
            "store": str(folder.absolute() / "stores" / units.file_name(identity)),
            **rows.get(identity, {}),
        }
        for identity, offset in places.items()
    ]


def _run_system(
    folder: Path, name: str, params: VerdictParams, places: dict[str, int]
) -> dict[str, dict[str, list[dict]]]:
    import json

    planned = plan(folder, name, params, places)
    declared = describe_system(name, planned[0]["settings"])
    if declared["environment"]:
        from kiokulab.systems import environments

        environments.ensure(declared["environment"])  # once, and not by each unit
    where = folder / "units" / STEP
    embedder = planned[0]["settings"].get("embedder") or (params.embedder if declared["embeddings"] else None)
    outcome = feed_units(folder, params, STEP, "kiokulab.verdict.ingest:ingest_unit", planned, embedder)
    rows: dict[str, dict[str, list[dict]]] = {}
    for identity in outcome.finished:
        rows[identity] = json.loads((where / f"{units.file_name(identity)}.json").read_bytes())
    for identity, reason in outcome.failed.items():
        status = "timeout" if re.match(r"timeout\b|.*no answer within [\d.]+ s", reason) else "failed"
        rows[identity] = {
            "contexts": [
                {
                    "id": identity,
                    "status": status,
                    "reason": reason[:1000],
                    "kind": "facts",
                    "items": [],
                    "declined": False,
                }
            ],
            "events": [],
            "memories": [],
        }
    try:
        (folder / "stores").rmdir()
    except OSError:  # not there, or kept on purpose
        pass
    return rows


def stored(folder: str | os.PathLike, shown: int = 8) -> tuple[str, list[dict[str, Any]]]:
    """(one sentence on how many texts the stores of a run hold and from which years, the first of them), one row in
    memory at a time: a memory that keeps everything holds as much as the data."""
    count, years, first = 0, set(), []
    for _, row in iterate_jsonl(Path(folder) / "memories.jsonl"):
        count, first = count + 1, [*first, row] if len(first) < shown else first
        years.add(str(row["created"])[:4])
    return f"{count:,} stored texts, dated in: {', '.join(sorted(years)) or 'nothing is stored by a baseline'}", first


def _summary(rows: dict[str, dict[str, list[dict]]]) -> list[dict[str, Any]]:
    contexts = [row for found in rows.values() for row in found["contexts"]]
    events = [row for found in rows.values() for row in found["events"] if row["op"] != "warnings"]
    statuses = {status: sum(row["status"] == status for row in contexts) for status in ("ok", "timeout", "failed")}
    table = [
        {"what": f"questions {status}", "count": n, "seconds a question": ""}
        for status, n in statuses.items()
        if n or status == "ok"
    ]
    for op in dict.fromkeys(row["op"] for row in events):
        mine = [row for row in events if row["op"] == op]
        table.append(
            {
                "what": f"{op} calls",
                "count": sum(row["count"] for row in mine),
                "seconds a question": f"{sum(row['seconds'] for row in mine) / len(mine):.3f}",
            }
        )
    table.append(
        {
            "what": "stored texts listed",
            "count": sum(len(found["memories"]) for found in rows.values()),
            "seconds a question": "",
        }
    )
    table.append(
        {
            "what": "warnings",
            "count": sum(row["count"] for found in rows.values() for row in found["events"] if row["op"] == "warnings"),
            "seconds a question": "",
        }
    )
    return table

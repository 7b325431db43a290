"""What a live run would cost, before it is made: calls, tokens, dollars, each with what the figure rests on.

Calls are counted from the dataset and the adapter, not guessed, except for systems whose number of calls an input
nobody knows: then one call an input is a lower bound, and the line says so. Tokens are those of finished runs where
there are any, else four characters a token of what will be sent. Dollars are at list price where the price table has
the model; else what a published run paid a call; else unknown.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kiokulab import calls, meter, metering, receipts, systems
from kiokulab.errors import InputError
from kiokulab.params import outputs_root, root, track_module

REPLY = {"system": 800, "judge": 500, "answerer": 40, "grader": 15, "judge-set": 60}  # tokens a reply, assumed
CALLS_AN_INPUT = {"mem0": 1}  # of systems that were watched; others: one, as a lower bound
OVERHEAD = {"mem0": 8000}  # tokens of a system's own instructions a call, measured on Mem0 2.2.1


@dataclass(frozen=True)
class Line:
    """One role of one system's run. dollars None = unknown."""

    system: str
    role: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    dollars: Decimal | None
    basis: str


def estimate(params: Any, names: Sequence[str]) -> list[Line]:
    """Lines for the runs of `names`; a track may count by itself (`kiokulab.<track>.cost`). Raises InputError for an
    edition or system that is not there."""
    if params.track != "kioku":
        try:
            return importlib.import_module(f"{track_module(params.track).__name__}.cost").estimate(params, names)
        except ModuleNotFoundError:
            raise InputError(
                f"runs of track {params.track} ask no model", "PARAMS", "Only kioku and verdict do"
            ) from None
    from kiokulab.kioku import ingest, judge
    from kiokulab.kioku.generate import load_edition
    from kiokulab.kioku.judges import scored_pairs
    from kiokulab.kioku.model_judge import BATCH

    personas = load_edition(params.edition)[1]
    by_language: dict[str, list] = {}
    for persona in personas:
        by_language.setdefault(persona.language, []).append(persona)
    ordered = [group[n] for n in range(len(personas)) for group in by_language.values() if n < len(group)]
    personas = ordered[: params.personas or len(ordered)]
    routes = ingest.ROUTES if params.route == "all" else (params.route,)
    pairs = of = 0
    if metering.models_named(params.judge):
        measured = scored_pairs(judge.judge_set(), params.judge_set_pairs, params.seed).values()
        pairs, of = sum(len(some) for some, _ in measured), sum(every for _, every in measured)
    measuring = "the judge's own measure: a call a labelled pair, in each run" + (
        f"; {pairs} of {of} pairs, by judge_set_pairs" if pairs < of else ""
    )
    made = []
    for name in names:
        one = params.model_copy(update={"system": name, "settings": {}})
        declared = systems.describe(name)
        model = metering.system_model(one)
        if model and model != metering.EXTRACTIVE:
            inputs = [
                call
                for persona in personas
                for route in routes
                for call in ingest.calls(persona, route, declared["feeds"], params.routing)
                if call.item
            ]
            number = len(inputs) * CALLS_AN_INPUT.get(name, 1)
            size = sum(len(str(call.item)) for call in inputs) // 4 + number * OVERHEAD.get(name, 2000)
            note = "one call an input" + (
                "" if name in CALLS_AN_INPUT else ", a lower bound: nobody counted this system's calls"
            )
            made.append(line("kioku", name, "system", model, number, size, number * REPLY["system"], note))
        facts = sum(len(persona.facts) for persona in personas) * len(routes)
        kept = sum(
            len(turn.text) for persona in personas for session in persona.sessions for turn in session.turns
        ) * len(routes)
        if metering.models_named(params.judge):
            for judging in metering.models_named(params.judge):
                number = sum(math.ceil(len(persona.facts) / BATCH) for persona in personas) * len(routes)
                made.append(
                    line(
                        "kioku",
                        name,
                        "judge",
                        judging,
                        number,
                        number * 2500 + min(kept, facts * 30 * 60) // 4,
                        number * REPLY["judge"],
                        f"{BATCH} facts a call, candidate sentences with them",
                    )
                )
                made.append(
                    line("kioku", name, "judge-set", judging, pairs, pairs * 700, pairs * REPLY["judge-set"], measuring)
                )
        if answering := metering.models_named(params.answerer):
            made.append(
                line(
                    "kioku",
                    name,
                    "answerer",
                    answering[0],
                    facts,
                    facts * (params.budget_tokens + 250),
                    facts * REPLY["answerer"],
                    "a call a question, with the full context budget",
                )
            )
        if grading := metering.models_named(params.grader):
            made.append(
                line(
                    "kioku", name, "grader", grading[0], facts, facts * 350, facts * REPLY["grader"], "a call an answer"
                )
            )
    return made


def line(track: str, system: str, role: str, model: str, number: int, prompt: int, completion: int, note: str) -> Line:
    """A line whose tokens are those of finished runs of this track and system where there are any, and whose dollars
    are looked up."""
    known = _measured(track, system, role)
    if known:
        prompt, completion = round(number * known["prompt"]), round(number * known["completion"])
        note += f"; tokens a call from {known['calls']} calls of finished runs"
    else:
        note += "; tokens from characters"
    dollars, basis = _dollars(model, role, number, prompt, completion, known)
    return Line(system, role, model, number, prompt, completion, dollars, f"{note}; {basis}")


def _dollars(
    model: str, role: str, number: int, prompt: int, completion: int, known: dict[str, Any] | None
) -> tuple[Decimal | None, str]:
    """Dollars of `number` calls and what they rest on: the price list, what finished runs were billed, or a published
    run."""
    listed = meter.list_cost(meter.price_of(meter.read_prices(), model), prompt, completion)
    if listed is not None:
        return listed, "list price"
    if known and known["billed"] is not None:
        return known["billed"] * number, "dollars a call as billed then"
    if published := _published(model):
        paid = published if role == "system" else published[:1]
        a_call = max(Decimal(row["usd"]) / row["calls"] for row in paid)
        return (
            a_call * number,
            f"no list price here, so {a_call:.5f} USD a call as in a published run ({paid[-1]['source']})",
        )
    return None, "no price is known for this model: add it to data/prices.yml"


def _published(model: str) -> list[dict]:
    import yaml

    table = yaml.safe_load((root() / "data" / "prices.yml").read_text(encoding="utf-8")) or {}
    return (table.get("published") or {}).get(model) or []


def _measured(track: str, system: str, role: str) -> dict[str, Any] | None:
    """Tokens and dollars a call of this role in finished live runs of this system under outputs/; None where there are
    none."""
    sums = {"calls": 0, "prompt": 0, "completion": 0, "billed": Decimal(0), "unbilled": 0}
    for path in outputs_root().glob(f"{track}/*/{system}/*/*calls.sqlite"):
        known = receipts.read_receipt(path.parent)
        if known is None or known.status != "finished" or known.cost.plumbing:
            continue
        for row in calls.rows(path):
            if row["role"] == role and row["mode"] == "live" and row["final"] and row["prompt_tokens"]:
                sums["calls"] += 1
                sums["prompt"] += row["prompt_tokens"]
                sums["completion"] += row["completion_tokens"] or 0
                sums["billed"] += calls.money(row["cost"]) or 0
                sums["unbilled"] += row["cost"] is None
    if not sums["calls"]:
        return None
    n = sums["calls"]
    return {
        "calls": n,
        "prompt": sums["prompt"] / n,
        "completion": sums["completion"] / n,
        "billed": None if sums["unbilled"] else sums["billed"] / n,
    }


def table(lines: Sequence[Line]) -> str:
    """The estimate for the terminal."""
    if not lines:
        return "no model would be asked: this run costs nothing"
    rows = [("system", "role", "model", "calls", "tokens in", "tokens out", "USD")]
    rows += [
        (
            line.system,
            line.role,
            line.model,
            f"{line.calls:,}",
            f"{line.prompt_tokens:,}",
            f"{line.completion_tokens:,}",
            "unknown" if line.dollars is None else f"{line.dollars:.3f}",
        )
        for line in lines
    ]
    known = sum((line.dollars for line in lines if line.dollars is not None), Decimal(0))
    unknown = sum(line.dollars is None for line in lines)
    rows.append(
        (
            "all",
            "",
            "",
            f"{sum(line.calls for line in lines):,}",
            f"{sum(line.prompt_tokens for line in lines):,}",
            f"{sum(line.completion_tokens for line in lines):,}",
            f"{known:.3f}",
        )
    )
    widths = [max(len(row[i]) for row in rows) for i in range(7)]
    text = [
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    said: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        said.setdefault((line.role, line.basis), []).append(line.system)
    text += ["", "basis:"] + [f"  {role} ({', '.join(some)}): {basis}" for (role, basis), some in said.items()]
    text.append(
        "An estimate and no promise: retries and repairs come on top, caching below."
        + (f" {unknown} line(s) have no known price and are not in the sum." if unknown else "")
    )
    return "\n".join(text)

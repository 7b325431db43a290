"""Which model calls a step of a run makes, and the meter opened for them.

The record of a step lies in `units/<step>/calls.sqlite` while it is worked on: that is where a stopped step goes on,
and an answer that is in it is never asked for again. When the step is done its rows are written in order to the top of
the run folder: `calls.sqlite` for 2-ingest (what memory systems asked), `judge-calls.sqlite` for 3-judge (what the kit
asked).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from kiokulab import calls, meter, units
from kiokulab.errors import BudgetReached, InputError, UpstreamDown, VerificationFailed

EXTRACTIVE = "extractive"
RECORDS = {"2-ingest": "calls.sqlite", "3-judge": "judge-calls.sqlite"}
REPLAY = "KIOKULAB_REPLAY"  # environment: folder of the run whose recorded calls answer, and nothing else


def models_named(text: str) -> list[str]:
    """The models in a judge, answerer or grader: "llm:<model>" names one, "panel:[a, b, c]" several, anything else
    none."""
    if text.startswith("llm:"):
        return [text.removeprefix("llm:").strip()]
    if text.startswith("panel:"):
        return [
            name.strip().strip("'\"")
            for name in text.removeprefix("panel:").strip().strip("[]").split(",")
            if name.strip()
        ]
    return []


def _hook(params: Any, name: str) -> Any:
    """What the parameters' track says for itself: `models_of(step, params)`, `system_model(params)`, REASONING; None
    where it does not."""
    from kiokulab.params import track_module

    return getattr(track_module(getattr(params, "track", "kioku")), name, None)


def system_model(params: Any) -> str | None:
    """The language model that the run's system calls; None where it calls none."""
    if hook := _hook(params, "system_model"):
        return hook(params)
    from kiokulab import systems

    declared = systems.describe(systems.resolve(params.system).name, dict(params.settings))
    return params.model if declared["model"] == "required" else None


def models_of(step: str, params: Any) -> list[str]:
    """Models that a step may ask, each once, in order; none for a step that asks none."""
    if step == "2-ingest":
        model = system_model(params)
        return [] if model is None else [model]
    if step != "3-judge":
        return []
    if hook := _hook(params, "judging_models"):
        return hook(params)
    return list(
        dict.fromkeys(name for text in (params.judge, params.answerer, params.grader) for name in models_named(text))
    )


def concerns(params: Any) -> bool:
    """Whether the parameters are of a track whose runs this module opens at the meter."""
    return hasattr(params, "endpoint") and hasattr(params, "budget_usd")


def needs_budget(params: Any) -> bool:
    """Whether a run would spend money and nobody said how much it may."""
    return concerns(params) and is_live(params) and not params.budget_usd and not os.environ.get(REPLAY)


def check_key(endpoint: str) -> None:
    """Raise InputError where this process's environment has no key for `endpoint`. An endpoint on this machine may need
    none."""
    host = meter.host_of(endpoint)
    names = [name for name in (meter.KEYS.get(host), meter.ANY_KEY) if name]
    if not any(os.environ.get(name) for name in names) and host.rpartition(":")[0] not in ("127.0.0.1", "localhost"):
        raise InputError(
            f"there is no key for {host}",
            "endpoint",
            f"Put it into the environment variable {' or '.join(names)}; only the meter's process gets it",
        )


def is_plumbing(params: Any) -> bool:
    """Whether the run's system was fed by the built-in model: then its figures show that the parts fit, and are no
    result."""
    return concerns(params) and system_model(params) == EXTRACTIVE


def is_live(params: Any) -> bool:
    """Whether a run asks an endpoint at all."""
    return any(model != EXTRACTIVE for step in RECORDS for model in models_of(step, params))


def check(params: Any, replay: bool | None = None) -> None:
    """Raise InputError where a run's models cannot be asked, before anything starts."""
    replay = bool(os.environ.get(REPLAY)) if replay is None else replay
    for step in RECORDS:
        for name in models_of(step, params):
            if not name or any(c.isspace() for c in name):
                raise InputError(f"{name!r} is no name of a model", step)
    if EXTRACTIVE in models_of("3-judge", params):
        raise InputError(
            "the built-in model extracts, and neither answers nor judges",
            "judge, answerer, grader, reader, panel",
            "Use rules, extractive, or llm:<model>",
        )
    if not is_live(params) or replay:
        return
    meter.host_of(params.endpoint)
    if params.engine != "local":
        raise InputError(
            "a run that asks models runs on this machine: the meter is on its loopback", "engine", "Use ENGINE=local"
        )
    if not params.budget_usd:
        raise InputError(
            "a run that asks models needs a budget",
            "budget_usd",
            "BUDGET=5 lets it spend five dollars. make cost says what to expect",
        )


def opening(folder: str | os.PathLike, params: Any, step: str) -> meter.Opening | None:
    """What the meter is opened with for a step of the run in `folder`; None where the step asks no model."""
    models = models_of(step, params)
    if not models:
        return None
    check(params)
    folder = Path(folder)
    place = folder / "units" / step / calls.NAME
    mode = "replay" if os.environ.get(REPLAY) else "embedded" if models == [EXTRACTIVE] else "live"
    if mode == "replay" and not place.exists():
        source = Path(os.environ[REPLAY]) / RECORDS[step]
        if not source.is_file():
            raise InputError(
                "the run has no record of the calls of this step", str(source), "Only a run that asked models has one"
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    spent = calls.totals([folder / "units" / other / calls.NAME for other in RECORDS if other != step])
    return meter.Opening(
        run=folder.name,
        record=str(place.resolve()),
        mode=mode,
        upstream=params.endpoint if mode == "live" else "",
        models=models,
        budget=format(Decimal(str(params.budget_usd)), "f") if params.budget_usd and mode == "live" else None,
        spent=format(spent["billed"], "f"),
        earlier=_earlier(folder, step) if mode == "live" else "",
        embedder=params.embedder if step == "2-ingest" else "",
        concurrency=params.concurrency,
        reasoning=(_hook(params, "REASONING") or {}).get(step, {}) if mode != "embedded" else {},
    )


def _earlier(folder: Path, step: str) -> str:
    """Record of the same step in the run that this one judges again: who reads the same is not asked again. "" where
    there is none."""
    from kiokulab import receipts

    proof = receipts.read_proof(folder, "2-ingest") if step == "3-judge" else None
    if proof is None or proof.parent is None:
        return ""
    place = folder.resolve().parent.parent / proof.parent / RECORDS[step]
    return str(place) if place.is_file() else ""


@contextmanager
def step_session(folder: str | os.PathLike, params: Any, step: str) -> Iterator[meter.Session | None]:
    """The meter for a step, None where it asks no model. At a good end the step's record is put in order at the top of
    the run folder; one that ends by an exception keeps its record as the point from which it goes on."""
    folder, opened = Path(folder), opening(folder, params, step)
    if opened is None:
        yield None
        return
    with meter.session(opened) as session:
        yield session
    calls.assemble(opened.record, folder / RECORDS[step])


def begin(endpoint: str) -> None:
    """A unit starts from the beginning. Raises BudgetReached or UpstreamDown where the meter would refuse its calls."""
    status = meter.begin_unit(endpoint)
    if status["stopped"]:
        raise BudgetReached("not run: budget")
    if status["down"]:
        raise UpstreamDown(f"not run: {status['down']}")


def settle(
    session: meter.Session | None,
    outcome: Any = None,
    planned: Sequence[dict] = (),
    place: str | os.PathLike | None = None,
) -> None:
    """After a fan-out: raise BudgetReached with what was not run where the budget stopped a call, UpstreamDown where
    the endpoint was gone, and VerificationFailed with the difference where a replay asked what is not recorded.
    Whatever the units made of it, such a step is not done.

    place : folder of the units' results. Those of units whose calls found nobody there are taken away: they would be
        kept as they are.
    """
    if session is None:
        return
    status = session.status()
    if status["unseen"]:
        raise VerificationFailed(status["unseen"])
    if status["down"]:
        lost = set(status["lost"])
        if place is not None:
            for unit in lost:
                (Path(place) / f"{units.file_name(unit)}.json").unlink(missing_ok=True)
        left = [unit["unit"] for unit in planned if unit["unit"] in lost or unit["unit"] not in set(outcome.finished)]
        missing = (
            f"; not run: {len(left)} of {len(planned)} units{': ' + ', '.join(left[:20]) if left else ''}"
            if planned
            else ""
        )
        raise UpstreamDown(
            f"{status['down']}{missing}. No figure is claimed. What was answered is kept: the same command goes on from there when the endpoint is back"
        )
    if status["stopped"]:
        raise BudgetReached(
            f"{status['stopped']}{f'; {without_result(outcome, planned)}' if planned else ''}. No figure is claimed. What was answered is kept: the same command with a "
            "higher BUDGET goes on from there, and nothing is paid twice"
        )


def without_result(outcome: Any, planned: Sequence[dict]) -> str:
    """Units that a stop left undone, for a message."""
    left = [unit["unit"] for unit in planned if unit["unit"] not in set(outcome.finished)]
    return f"not run: {len(left)} of {len(planned)} units: {', '.join(left)}"


def cost_of(folder: str | os.PathLike) -> dict[str, Any]:
    """Receipt fields from a run's records: calls, attempts, billed_usd, list_usd (text; None where unknown), tokens,
    models, note."""
    folder = Path(folder)
    total = calls.totals(
        [
            path if path.is_file() else folder / "units" / step / calls.NAME
            for step, name in RECORDS.items()
            for path in [folder / name]
        ]
    )
    live = total["attempts"] > 0 and total["modes"] != ["embedded"]
    if not total["attempts"]:
        note = "no model was called"
    elif not live:
        note = "the built-in model alone was called: plumbing, no result; nothing was billed"
    else:
        missing = [
            f"{total[name]} of {total['attempts']} attempts have no {words}"
            for name, words in (("unbilled", "billed cost"), ("unlisted", "list price"))
            if total[name]
        ]
        note = "; ".join(missing + ["the sums are of what is known"]) if missing else "all attempts are in the sums"
    if total["reused"]:
        note += f"; {total['reused']} answers are those of the run that this one judges again, and were paid there"
    every = total["attempts"]
    return {
        "calls": total["calls"],
        "attempts": every,
        "answered": total["answered"],
        "prompt_tokens": total["prompt_tokens"],
        "completion_tokens": total["completion_tokens"],
        "billed_usd": format(total["billed"], "f") if live and total["unbilled"] < every else None if live else "0",
        "list_usd": format(total["list"], "f") if live and total["unlisted"] < every else None if live else "0",
        "models": total["models"],
        "note": note,
    }

"""What the ingesting steps of all tracks share: utterances in pairs, and units that feed a system under one meter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kiokulab import embed, metering, units
from kiokulab.errors import InputError
from kiokulab.params import Params
from kiokulab.systems.base import Turn

BRACKETS = "[in brackets]: plumbing, no result: the system was fed by the built-in model, which copies sentences"


def in_pairs(turns: Iterable[Turn]) -> list[tuple[Turn, Turn]]:
    """Utterances as (user, assistant). An utterance that nobody answered, and an answer that nobody asked for, have an
    empty other side."""
    pairs: list[list[Turn]] = []
    for turn in turns:
        if turn.role == "user":
            pairs.append([turn, Turn("assistant", "")])
        elif pairs and not pairs[-1][1].text:
            pairs[-1][1] = turn
        else:
            pairs.append([Turn("user", ""), turn])
    return [(user, assistant) for user, assistant in pairs]


def feed_units(
    folder: Path, params: Any, step: str, function: str, planned: list[dict], embedder: str | None
) -> units.Outcome:
    """Run `function` on each planned unit, with the step's meter open where the system asks a model (each unit then
    gets its "endpoint") and the embedder loaded once where several units use it in their own processes.

    Raises what `units.run_units` and `metering.settle` raise; what was asked and paid is settled by then.
    """
    place = folder / "units" / step
    with (
        embed.loaded_once(embedder) if embedder and len(planned) > 2 else nullcontext(),
        metering.step_session(folder, params, step) as session,
    ):
        if session is not None:
            planned = [{**unit, "endpoint": session.endpoint(unit["unit"])} for unit in planned]
        outcome = units.run_units(
            function,
            planned,
            place,
            jobs=params.jobs,
            engine=params.engine,
            scheduler=params.scheduler,
            timeout_s=params.unit_timeout_s,
        )
        metering.settle(session, outcome, planned, place)
    return outcome


def was_plumbing(kind: type[Params], parameters: Mapping[str, Any]) -> bool:
    """Whether a run with these parameters (of a `kind`) had its system fed by the built-in model."""
    try:
        return metering.is_plumbing(kind().model_copy(update=dict(parameters)))
    except InputError:  # a system that this checkout does not know: read from its file, it called no model
        return False

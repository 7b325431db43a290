"""The one place where this track asks language models: `ask(unit, role, prompt) -> text`, through the meter.

Roles are "reader", "judge" and "panel-<n>"; which model stands behind a role, and with which settings, is decided here.
Everything else in the track takes such a function, so that a test can give one of its own. The meter holds the key,
retries what broke on the wire, keeps the record, and stops a run at its budget (meter.py); an answer that is in the
record is never paid twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from kiokulab.errors import BudgetReached, InputError
from kiokulab.verdict.params import BASELINES, EXTRACTIVE, VerdictParams

Ask = Callable[[str, str, str], str]


class NoAnswer(Exception):
    """A model gave no answer after all attempts, or an empty one. It is never read as a "no"."""


def roles(params: VerdictParams) -> dict[str, dict[str, Any]]:
    """Role -> {"model", "settings"}; empty for a run without models.

    Reader: the endpoint's defaults, as MemVerdict has it. Judge: the official settings (temperature 0, ten tokens)
    for the gpt-4o family they were made for. Panel and other judges: low effort, room to think, no temperature:
    reasoning models refuse the official settings, and ten tokens can be used up before a word is said. That is a
    stated deviation.
    """
    found: dict[str, dict[str, Any]] = {}
    if params.reader != "extractive":
        found["reader"] = {"model": params.reader.removeprefix("llm:"), "settings": {}}
    if params.judge != "rules":
        found["judge"] = {"model": params.judge.removeprefix("llm:")}
    for n, name in enumerate(filter(None, params.panel.split(",")), 1):
        found[f"panel-{n}"] = {"model": name.removeprefix("llm:")}
    for role, row in found.items():
        if role != "reader":
            official = row["model"].rsplit("/", 1)[-1].startswith("gpt-4o")
            row["settings"] = (
                {"temperature": 0, "max_tokens": 10, "n": 1}
                if official
                else {"max_tokens": 4000, "extra_body": {"reasoning": {"effort": "low"}}}
            )
    return found


def internal_model(params: VerdictParams) -> str | None:
    """The language model that the run's memory system calls; None where it calls none."""
    from kiokulab.verdict.params import describe_system

    known = describe_system(params.system, params.settings)
    return params.internal_model if known["name"] not in BASELINES and known["model"] == "required" else None


def models_of(step: str, params: VerdictParams) -> list[str]:
    """Models that a step may ask, each once, in order."""
    if step == "2-ingest":
        model = internal_model(params)
        return [] if model is None else [model]
    return list(dict.fromkeys(row["model"] for row in roles(params).values())) if step == "3-judge" else []


def check(params: VerdictParams) -> None:
    """Raise InputError where a run's models cannot be asked, before anything starts."""
    from kiokulab import meter, metering

    asked = [name for step in metering.RECORDS for name in models_of(step, params)]
    if EXTRACTIVE in models_of("3-judge", params):
        raise InputError(
            "the built-in model extracts, and neither reads nor judges here",
            "reader, judge, panel",
            "Use extractive, rules, or llm:<model>",
        )
    if all(name == EXTRACTIVE for name in asked) or os.environ.get(metering.REPLAY):
        return
    meter.host_of(params.endpoint)
    if params.engine != "local":
        raise InputError(
            "a run that asks models runs on this machine: the meter is on its loopback", "engine", "Use ENGINE=local"
        )
    if not params.budget_usd:
        raise InputError(
            "a run that asks models needs a budget", "budget_usd", "BUDGET_USD=5 lets it spend five dollars"
        )


@contextlib.contextmanager
def session(folder: Path, params: VerdictParams, step: str) -> Iterator[Any]:
    """The meter for a step, None where it asks no model. Its record lies in units/<step>/ while the step is worked
    on, and is put in order at the top of the run folder at a good end. In a replay ($KIOKULAB_REPLAY) the other run's
    record answers alone.
    """
    from kiokulab import calls, meter, metering

    names = models_of(step, params)
    if not names:
        yield None
        return
    check(params)
    place = Path(folder) / "units" / step / calls.NAME
    mode = "replay" if os.environ.get(metering.REPLAY) else "embedded" if names == [EXTRACTIVE] else "live"
    if mode == "replay" and not place.exists():
        source = Path(os.environ[metering.REPLAY]) / metering.RECORDS[step]
        if not source.is_file():
            raise InputError(
                "the run has no record of the calls of this step", str(source), "Only a run that asked models has one"
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    spent = calls.totals([Path(folder) / "units" / other / calls.NAME for other in metering.RECORDS if other != step])
    opening = meter.Opening(
        run=Path(folder).name,
        record=str(place.resolve()),
        mode=mode,
        upstream=params.endpoint if mode == "live" else "",
        models=names,
        budget=format(Decimal(str(params.budget_usd)), "f") if params.budget_usd and mode == "live" else None,
        spent=format(spent["billed"], "f"),
        embedder=params.embedder if step == "2-ingest" else "",
        concurrency=params.concurrency,
        reasoning={"system": "none"} if step == "2-ingest" and mode != "embedded" else {},
    )  # MemVerdict's rule for internal models
    with meter.session(opening) as opened:
        yield opened
    calls.assemble(opening.record, Path(folder) / metering.RECORDS[step])


@contextlib.contextmanager
def connect(params: VerdictParams, folder: Path) -> Iterator[Ask | None]:
    """`ask` for step 3 of a run; None where no role needs a model. Threads may share it."""
    wanted = roles(params)
    if not wanted:
        yield None
        return
    import httpx
    import openai

    with session(folder, params, "3-judge") as opened, httpx.Client(trust_env=False, timeout=3600) as wire:

        def ask(unit: str, role: str, prompt: str) -> str:
            # the meter retries and holds the key: this client does neither
            client = openai.OpenAI(
                base_url=opened.endpoint(unit, role), api_key="not-a-key", max_retries=0, http_client=wire
            )
            try:
                answer = client.chat.completions.create(
                    model=wanted[role]["model"],
                    messages=[{"role": "user", "content": prompt}],
                    **wanted[role]["settings"],
                )
            except openai.APIStatusError as error:
                raise _typed(error, wanted[role]["model"]) from None
            except openai.OpenAIError as error:
                raise NoAnswer(f"{type(error).__name__}: {error}"[:300]) from None
            return _words(answer)

        yield ask


def _words(answer: Any) -> str:
    """The words of an answer, as they are. Raises NoAnswer for a refusal or a filtered answer; an answer cut off at
    its limit is given as far as it goes, which is the official program's way with its ten tokens."""
    choice = answer.choices[0] if answer.choices else None
    if choice is None or choice.message is None:
        raise NoAnswer("the answer has no choice")
    if getattr(choice.message, "refusal", None):
        raise NoAnswer(f"refusal: {choice.message.refusal[:200]}")
    if choice.finish_reason == "content_filter":
        raise NoAnswer("the endpoint's filter took the answer")
    return choice.message.content or ""


def _typed(error: Any, model: str) -> Exception:
    """What a status other than 200 means: the run's end (budget, replay, key), or no answer to this question."""
    from kiokulab import llm

    found = llm.typed(error, model)
    return NoAnswer(str(found)) if isinstance(found, llm.Failure) else found


def stopped(opened: Any) -> None:
    """After a fan-out over a metered step: raise BudgetReached where the budget stopped a call, VerificationFailed
    where a replay asked what is not recorded."""
    from kiokulab.errors import VerificationFailed

    if opened is None:
        return
    status = opened.status()
    if status["unseen"]:
        raise VerificationFailed(status["unseen"])
    if status["stopped"]:
        raise BudgetReached(
            f"{status['stopped']}. No figure is claimed. What was answered is kept: the same command with a higher budget goes on from there"
        )


def is_live(params: VerdictParams) -> bool:
    """Whether a run asks an endpoint at all: then the command's meter holds the key, and kernels do not."""
    from kiokulab import metering

    return any(name != EXTRACTIVE for step in metering.RECORDS for name in models_of(step, params))

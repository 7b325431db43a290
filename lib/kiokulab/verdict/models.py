"""The one place where this track asks language models: `ask(unit, role, prompt) -> text`, through the meter.

Roles are "reader", "judge" and "panel-<n>"; which model stands behind a role, and with which settings, is decided here.
Everything else in the track takes such a function, so that a test can give one of its own. The meter holds the key,
retries what broke on the wire, keeps the record, and stops a run at its budget (meter.py); an answer that is in the
record is never paid twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kiokulab.errors import UpstreamDown
from kiokulab.verdict.params import BASELINES, VerdictParams

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


def system_model(params: VerdictParams) -> str | None:
    """The language model that the run's memory system calls; None where it calls none."""
    from kiokulab.verdict.params import describe_system

    known = describe_system(params.system, params.settings)
    return params.internal_model if known["name"] not in BASELINES and known["model"] == "required" else None


def judging_models(params: VerdictParams) -> list[str]:
    """Models that step 3 asks, each once, in order."""
    return list(dict.fromkeys(row["model"] for row in roles(params).values()))


@contextlib.contextmanager
def connect(params: VerdictParams, folder: Path) -> Iterator[Ask | None]:
    """`ask` for step 3 of a run; None where no role needs a model. Threads may share it."""
    wanted = roles(params)
    if not wanted:
        yield None
        return
    import httpx
    import openai

    from kiokulab import metering

    place = Path(folder) / "units" / "3-judge"
    seconds: dict[tuple[str, str], float] = {}  # what answers from a record took when they were given
    with (
        metering.step_session(folder, params, "3-judge") as opened,
        httpx.Client(trust_env=False, timeout=3600) as wire,
    ):

        def ask(unit: str, role: str, prompt: str) -> str:
            # the meter retries and holds the key: this client does neither
            client = openai.OpenAI(
                base_url=opened.endpoint(unit, role), api_key="not-a-key", max_retries=0, http_client=wire
            )
            try:
                said = client.chat.completions.with_raw_response.create(
                    model=wanted[role]["model"],
                    messages=[{"role": "user", "content": prompt}],
                    **wanted[role]["settings"],
                )
                answer = said.parse()
            except openai.APIStatusError as error:
                raise _typed(error, wanted[role]["model"]) from None
            except openai.OpenAIError as error:
                raise NoAnswer(f"{type(error).__name__}: {error}"[:300]) from None
            if "x-kiokulab-seconds" in said.headers:
                seconds[unit, role] = float(said.headers["x-kiokulab-seconds"])
            return _words(answer)

        ask.seconds = seconds
        try:
            yield ask
        except UpstreamDown:
            metering.settle(opened, place=place)  # a question that nobody answered is not kept as one without an answer
            raise
        metering.settle(opened, place=place)


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

"""The one place where this track asks a language model: `ask(unit, role, prompt) -> text`.

Roles are "reader", "judge" and "panel/<n>"; which model stands behind a role, and with which settings, is decided here.
Everything else in the track takes such a function, so that a test can give one of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError
from kiokulab.verdict.params import VerdictParams

Ask = Callable[[str, str, str], str]


class NoAnswer(Exception):
    """A model gave no answer after all attempts, or an empty one. It is never read as a "no"."""


def roles(params: VerdictParams) -> dict[str, dict[str, Any]]:
    """Role -> {"model", "settings"}; empty for a run without models.

    Reader: the endpoint's defaults, as MemVerdict has it. Judge: the official settings (temperature 0, ten tokens) for the
    gpt-4o family they were made for. Panel and other judges: low effort, room to think, no temperature: reasoning models refuse
    the official settings, and ten tokens can be used up before a word is said. That is a stated deviation.
    """
    found: dict[str, dict[str, Any]] = {}
    if params.reader != "extractive":
        found["reader"] = {"model": params.reader.removeprefix("llm:"), "settings": {}}
    if params.judge != "rules":
        found["judge"] = {"model": params.judge.removeprefix("llm:")}
    for n, name in enumerate(filter(None, params.panel.split(",")), 1):
        found[f"panel/{n}"] = {"model": name.removeprefix("llm:")}
    for role, row in found.items():
        if role != "reader":
            official = row["model"].rsplit("/", 1)[-1].startswith("gpt-4o")
            row["settings"] = {"temperature": 0, "max_tokens": 10, "n": 1} if official else {"max_tokens": 4000, "extra_body": {"reasoning": {"effort": "low"}}}
    return found


@contextlib.contextmanager
def connect(params: VerdictParams, folder: Path) -> Iterator[Ask | None]:
    """`ask` for a run; None where no role needs a model. Raises InputError where the kit cannot call models yet."""
    wanted = roles(params)
    if not wanted:
        yield None
        return
    raise InputError("this version makes no model calls", f"parameter {next(iter(wanted))} = llm:...", "Use reader=extractive and judge=rules")

"""Speed of grading and replaying: what `make bench` prints of this track. Wall and processor seconds, peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kiokulab.drift.reproduce import SHARED, MissingData, find_world

SIZES = (100, 300, 1000, 3000, 10_000)
LIMITS = {"grade_s": 1.0, "replay_s": 60.0, "peak_mb": 1000}  # of tfidf on the public 1500 world


def measure(arm: str, *, script: str = "", size: int = 0, language: str = "en") -> dict[str, Any]:
    """One arm on one world (a script file, or a generated one), in a process of its own, so that the peak is its
    own."""
    call = f"from kiokulab.drift.bench import _measure; _measure({arm!r}, {script!r}, {size}, {language!r})"
    found = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def _measure(arm: str, script: str, size: int, language: str) -> None:
    import resource

    from kiokulab.drift import arms, generate
    from kiokulab.drift.ingest import replay
    from kiokulab.drift.judge import grade
    from kiokulab.drift.script import load_script

    clock, cpu = time.perf_counter, time.process_time
    marks = [(clock(), cpu())]
    world = load_script(script) if script else generate.generate(size, 1, language)
    marks.append((clock(), cpu()))
    transcript = replay(world, arms.make(arm, world))
    marks.append((clock(), cpu()))
    receipt = grade(world, transcript).receipt
    marks.append((clock(), cpu()))
    row: dict[str, Any] = {
        "arm": arm,
        "world": world.name,
        "facts": world.spec["size"],
        "probes": len(world.probes),
        "score": round(receipt["score"], 1),
    }
    for name, (before, after) in zip(("world", "replay", "grade"), zip(marks, marks[1:], strict=False), strict=True):
        row |= {f"{name}_s": round(after[0] - before[0], 2), f"{name}_cpu_s": round(after[1] - before[1], 2)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(row | {"peak_mb": round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))}))


def public(shared: Path = SHARED, arm_names: Sequence[str] = ("tfidf", "grep", "whole")) -> list[dict[str, Any]]:
    """The public 1500 world; an empty list where it is not there."""
    try:
        path = find_world("1500-seed1", shared)
    except MissingData:
        return []
    return [measure(name, script=str(path)) for name in arm_names]


def cost(sizes: Sequence[int] = SIZES, arm: str = "tfidf") -> list[dict[str, Any]]:
    """Own worlds from 100 to 10,000 facts."""
    return [measure(arm, size=size) for size in sizes]


def lines() -> str:
    """The table for `make bench`: the public 1500 world where it is there, and cost as our own worlds grow."""
    rows = public()
    head = f"drift{'' if rows else ' (the public 1500 world is not here)'}\n{'arm':<8}{'facts':>8}{'probes':>9}{'replay':>10}{'grading':>10}{'peak':>9}"
    return "\n".join(
        [head]
        + [
            f"{row['arm']:<8}{row['facts']:>8}{row['probes']:>9}{row['replay_s']:>8.1f} s{row['grade_s']:>8.2f} s{row['peak_mb']:>6} MB"
            for row in [*rows, *cost()]
        ]
    )

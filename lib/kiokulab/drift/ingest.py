"""Replaying a script through a memory, one operation after the other, and noting what it replied and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable

from kiokulab.drift.arms import Memory
from kiokulab.drift.script import Script, Transcript


def replay(script: Script, memory: Memory, observe: Callable[[int, dict, float], None] | None = None) -> Transcript:
    """Every operation of the script, in order, on an empty memory. The memory never sees a probe.

    An operation that fails stops the replay: an error is never an empty reply. `observe(number, op, seconds)` is told
    of every operation."""
    transcript = Transcript(memory.name, script.digest, dict(memory.capabilities))
    for number, op in enumerate(script.ops):
        kind = op["op"]
        began = time.perf_counter()
        if kind == "inscribe":
            written = memory.inscribe(op["record"], op["mode"])
            if "id" in op:
                transcript.inscribes[op["id"]] = written
        elif kind == "link":
            memory.link(op["from"], op["to"], op["verb"])
        elif kind == "supersede":
            memory.supersede(op["old"], op["new"])
        elif kind == "release":
            memory.release(op["key"], op["reason"])
        elif kind == "purge":
            memory.purge(op["key"])
        elif kind == "endorse":
            memory.endorse(op["key"], op["by"])
        elif kind == "settle":
            transcript.settle_note = memory.settle() or transcript.settle_note
        elif kind == "recall":
            transcript.recalls[op["id"]] = memory.recall(op["query"], op["k"], op.get("window"))
        elif kind == "recall_path":
            transcript.recalls[op["id"]] = memory.recall_path(op["path"], op["k"])
        elif kind == "suspects":
            found = memory.suspects()
            transcript.suspects[op["id"]] = None if found is None else list(found)
        elif kind == "lineage":
            transcript.lineages[op["id"]] = memory.lineage(op["key"])
        seconds = time.perf_counter() - began
        timed = transcript.timing.setdefault(kind, {"count": 0, "total_ms": 0.0})
        timed["count"] += 1
        timed["total_ms"] += 1000.0 * seconds
        if observe is not None:
            observe(number, op, seconds)
    transcript.standing_tokens = memory.standing_tokens()
    return transcript

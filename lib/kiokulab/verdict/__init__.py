"""The verdict track: does an agent with this memory answer right, at what cost and delay? LongMemEval under
MemVerdict's rules."""

TYPES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
)

from kiokulab.verdict.params import (
    VerdictParams as PARAMS,
)  # noqa: E402, N811 - the name that params.track_module looks for
from kiokulab.verdict.params import describe_system  # noqa: E402

__all__ = ["ANCHORS", "DEFAULT_SYSTEMS", "PARAMS", "RULES_VERSION", "STEPS", "TRACK", "TYPES", "describe_system"]

TRACK = "verdict"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
ANCHORS = ("full-context", "plain-rag")  # stand beside every system: what a memory adds over doing nothing special
DEFAULT_SYSTEMS = ("full-context", "plain-rag", "bm25", "oracle-sessions")

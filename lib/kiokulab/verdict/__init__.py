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

REASONING = {"2-ingest": {"system": "none"}}  # MemVerdict's rule for models that memory systems call


def system_model(params: PARAMS) -> str | None:
    """The language model that the run's memory system calls; None where it calls none."""
    from kiokulab.verdict import models

    return models.system_model(params)


def judging_models(params: PARAMS) -> list[str]:
    """Models that step 3 asks."""
    from kiokulab.verdict import models

    return models.judging_models(params)


def prompts(params: PARAMS) -> dict[str, str]:
    """The prompts of reader and judge: file -> sha256, for receipts."""
    from kiokulab.verdict.params import prompt_files

    return prompt_files(params.official_repo)


TRACK = "verdict"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
ANCHORS = ("full-context", "plain-rag")  # stand beside every system: what a memory adds over doing nothing special
DEFAULT_SYSTEMS = ("full-context", "plain-rag", "bm25", "oracle-sessions")

"""The drift track: how does a memory behave in each scenario - revised, contradicted, forgotten, asked why?

The rules are those of KnowledgeDrift (github.com/techtheist/knowledgedrift, edition v2): a script of operations and
questions is replayed through a memory, and every reply is graded by arithmetic over keys that the script knew before
it asked. No language model takes part. Generated worlds, vocabularies and program are our own.
"""

from kiokulab.drift.params import DriftParams as PARAMS  # noqa: N811 - the name that params.track_module looks for
from kiokulab.drift.params import default_systems, describe_system, system_model

__all__ = [
    "ANCHORS",
    "DEFAULT_SYSTEMS",
    "EDITION",
    "PARAMS",
    "RULES_VERSION",
    "STEPS",
    "TRACK",
    "default_systems",
    "describe_system",
    "judging_models",
    "system_model",
]

TRACK = "drift"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
EDITION = "v0.1"
ANCHORS = ("oracle", "mute", "chance", "whole")  # stand beside every table
DEFAULT_SYSTEMS = ("oracle", "mute", "chance", "curated", "whole", "grep", "tfidf", "vector")


def judging_models(params: PARAMS) -> list[str]:
    """None: every reply is graded by arithmetic."""
    return []

"""The kioku track: does the store hold what is true, and nothing that is old, forgotten or noise?"""

TRACK = "kioku"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
ANCHORS = ("oracle", "null", "store-everything")  # stand beside every table
DEFAULT_SYSTEMS = ("oracle", "null", "store-everything", "vector", "replace-similar")


def prompts(params: object = None) -> dict[str, str]:
    """The kit's own prompts of this track: file -> sha256, for receipts."""
    from kiokulab.kioku import model_judge

    return model_judge.prompts()

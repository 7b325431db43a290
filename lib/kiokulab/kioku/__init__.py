"""The kioku track: does the store hold what is true, and nothing that is old, forgotten or noise?"""

TRACK = "kioku"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 2  # bumped whenever a number could change; 2: the rule judge reads relative dates, ellipsis and clauses (edition v1)
ANCHORS = ("oracle", "null", "store-everything")  # stand beside every table
DEFAULT_SYSTEMS = ("oracle", "null", "store-everything", "vector", "replace-similar")


def prompts(params: object = None) -> dict[str, str]:
    """The kit's own prompts of this track: file -> sha256, for receipts."""
    from kiokulab.kioku import model_judge

    return model_judge.prompts()

"""The emem track: how does a running responder do on four axes, over its real API?

Rules of emem-membench (github.com/Vortx-AI/emem, generation `/memories/membench`), read from its source. Program,
prompts, sample and reference responder are our own.
"""

from kiokulab.emem.params import EmemParams as PARAMS  # noqa: N811 - the name that params.track_module looks for
from kiokulab.emem.params import describe_system, system_model

__all__ = [
    "ANCHORS",
    "DEFAULT_SYSTEMS",
    "NAMESPACE",
    "PARAMS",
    "RULES_VERSION",
    "STEPS",
    "TRACK",
    "default_systems",
    "describe_system",
    "judging_models",
    "system_model",
]

TRACK = "emem"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
NAMESPACE = "/memories/membench"
ANCHORS = ("reference-lexical",)  # stands beside every table
DEFAULT_SYSTEMS = ("reference-lexical", "reference-search")


def default_systems(params: PARAMS) -> tuple[str, ...]:
    """What is measured where no system is named: the responder at `url`, else both modes of the reference responder."""
    return ("responder",) if params.url else DEFAULT_SYSTEMS


def judging_models(params: PARAMS) -> list[str]:
    """None: an answer is looked for in what came back."""
    return []

"""The emem track: how does a running responder do on four axes, over its real API?

Rules of emem-membench (Vortx-AI/emem, generation `/memories/membench`), read from its source at the commits that
data/published/emem.yml names.
"""

TRACK = "emem"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
NAMESPACE = "/memories/membench"

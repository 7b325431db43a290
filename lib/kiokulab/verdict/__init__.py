"""The verdict track: does an agent with this memory answer right, at what cost and delay? LongMemEval under MemVerdict's rules."""

TRACK = "verdict"
STEPS = ("1-generate", "2-ingest", "3-judge", "4-analyze")
RULES_VERSION = 1  # bumped whenever a number could change
TYPES = ("single-session-user", "single-session-assistant", "single-session-preference", "multi-session", "temporal-reasoning", "knowledge-update")

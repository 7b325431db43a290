"""From a judge's words to a verdict, and from verdicts to the official metrics. Pure functions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kiokulab.verdict import TYPES

_FIRST_WORD = re.compile(r"[\s*_`\"'(\[]*(yes|no)\b", re.IGNORECASE)


def official_parse(reply: str | None) -> bool | None:
    """The official rule: "yes" anywhere in the lowered reply ("yesterday" passes). An empty reply is no verdict (None):
    the original crashes on a missing one and calls an empty one wrong, which would make a failed judge a wrong answer."""
    if reply is None or not reply.strip():
        return None
    return "yes" in reply.strip().lower()


def strict_parse(reply: str | None) -> bool | None:
    """The first word, where it is yes or no; else None. Kept beside the official reading, and differences are counted."""
    found = _FIRST_WORD.match(reply or "")
    return None if found is None else found.group(1).lower() == "yes"


def accuracy(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Official metrics from rows {"id", "type", "correct"}: overall (micro), task_averaged (unweighted mean of the types
    that are there), by_type and abstention, each with k and n. Abstention rows count in their type and overall too.

    `correct` must be a bool: what was not judged is decided before (headline: missing answers are wrong, and listed).
    """
    groups: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if not isinstance(row["correct"], bool):
            raise ValueError(f"{row['id']} has no verdict; decide what it counts as before accuracy is computed")
        groups["overall"].append(row["correct"])
        groups[row["type"]].append(row["correct"])
        if "_abs" in row["id"]:
            groups["abstention"].append(row["correct"])
    share = {name: {"k": sum(values), "n": len(values), "rate": sum(values) / len(values)} for name, values in groups.items()}
    present = [share[name]["rate"] for name in TYPES if name in share]
    empty = {"k": 0, "n": 0, "rate": None}
    return {
        "overall": share.get("overall", empty), "task_averaged": sum(present) / len(present) if present else None,
        "types_present": len(present), "by_type": {name: share[name] for name in TYPES if name in share}, "abstention": share.get("abstention", empty)}


def majority(votes: Iterable[bool | None]) -> bool | None:
    """Verdict of a panel of three: two equal votes decide; else None, "undecided", which is reported and never guessed."""
    given = [vote for vote in votes if vote is not None]
    return True if sum(given) >= 2 else False if len(given) - sum(given) >= 2 else None

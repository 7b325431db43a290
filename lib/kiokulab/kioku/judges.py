"""Two judges of one run, item by item: which items they read differently, and how far they agree. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kiokulab import stats

Row = Mapping[str, Any]
MOST = 200  # items that are listed; their number is always said


def _items(rows: Sequence[Row], kind: str) -> dict[tuple, Row]:
    return {(row["unit"], row["fact"], row.get("version")): row for row in rows if row["kind"] == kind}


def compared(mine: Sequence[Row], theirs: Sequence[Row], name: str) -> dict[str, Any]:
    """This run's judgements against those of another judge of the same store.

    mine, theirs : rows of judgements.jsonl. name : what the other run is called.
    Gives {"run", "mine", "theirs" (names of the judges), "versions", "answers"}, the last two each with n (judged by both), agree,
    kappa (Cohen's; None where it is undefined), only_mine and only_theirs (judged by one alone), missing (rows one of them lacks),
    differ (number), items (the first MOST: unit, fact, version, mine, theirs, reason).
    """
    heads = [next((row["name"] for row in rows if row["kind"] == "judge"), None) for rows in (mine, theirs)]
    return {"run": name, "mine": heads[0], "theirs": heads[1],
            "versions": _side_by_side(_items(mine, "version"), _items(theirs, "version")),
            "answers": _side_by_side(_items(mine, "answer"), _items(theirs, "answer"))}


def _side_by_side(mine: Mapping[tuple, Row], theirs: Mapping[tuple, Row]) -> dict[str, Any]:
    shared = [key for key in mine if key in theirs]
    verdicts = [(mine[key]["verdict"], theirs[key]["verdict"]) for key in shared]
    both = [pair for pair in verdicts if "not_judged" not in pair]
    differ = [key for key, (a, b) in zip(shared, verdicts, strict=True) if a != b]
    value = stats.kappa(*zip(*both, strict=True)).value if both else None
    return {
        "n": len(both), "agree": sum(a == b for a, b in both), "kappa": None if value is None else round(value, 6),
        "only_mine": sum(b == "not_judged" != a for a, b in verdicts), "only_theirs": sum(a == "not_judged" != b for a, b in verdicts),
        "missing": len(mine.keys() ^ theirs.keys()), "differ": len(differ),
        "items": [{"unit": key[0], "fact": key[1], "version": key[2], "mine": mine[key]["verdict"], "theirs": theirs[key]["verdict"],
                   "reason": mine[key].get("reason") or theirs[key].get("reason")} for key in differ[:MOST]],
    }

"""What judges are compared by: two of them on one run, item by item, and the labelled pairs that one is measured on.
Pure, but for the reading of the set."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiokulab import stats
from kiokulab.files import iterate_jsonl
from kiokulab.judging import SETS

Row = Mapping[str, Any]
MOST = 200  # items that are listed; their number is always said


def _items(rows: Sequence[Row], kind: str) -> dict[tuple, Row]:
    return {(row["unit"], row["fact"], row.get("version")): row for row in rows if row["kind"] == kind}


def compared(mine: Sequence[Row], theirs: Sequence[Row], name: str) -> dict[str, Any]:
    """This run's judgements against those of another judge of the same store.

    mine, theirs : rows of judgements.jsonl. name : what the other run is called.
    Gives {"run", "mine", "theirs" (names of the judges), "versions", "answers"}, the last two each with n (judged by
    both), agree, kappa (Cohen's; None where it is undefined), only_mine and only_theirs (judged by one alone), missing
    (rows one of them lacks), differ (number), items (the first MOST: unit, fact, version, mine, theirs, reason).
    """
    heads = [next((row["name"] for row in rows if row["kind"] == "judge"), None) for rows in (mine, theirs)]
    return {
        "run": name,
        "mine": heads[0],
        "theirs": heads[1],
        "versions": _side_by_side(_items(mine, "version"), _items(theirs, "version")),
        "answers": _side_by_side(_items(mine, "answer"), _items(theirs, "answer")),
    }


def _side_by_side(mine: Mapping[tuple, Row], theirs: Mapping[tuple, Row]) -> dict[str, Any]:
    shared = [key for key in mine if key in theirs]
    verdicts = [(mine[key]["verdict"], theirs[key]["verdict"]) for key in shared]
    both = [pair for pair in verdicts if "not_judged" not in pair]
    differ = [key for key, (a, b) in zip(shared, verdicts, strict=True) if a != b]
    value = stats.kappa(*zip(*both, strict=True)).value if both else None
    return {
        "n": len(both),
        "agree": sum(a == b for a, b in both),
        "kappa": None if value is None else round(value, 6),
        "only_mine": sum(b == "not_judged" != a for a, b in verdicts),
        "only_theirs": sum(a == "not_judged" != b for a, b in verdicts),
        "missing": len(mine.keys() ^ theirs.keys()),
        "differ": len(differ),
        "items": [
            {
                "unit": key[0],
                "fact": key[1],
                "version": key[2],
                "mine": mine[key]["verdict"],
                "theirs": theirs[key]["verdict"],
                "reason": mine[key].get("reason") or theirs[key].get("reason"),
            }
            for key in differ[:MOST]
        ],
    }


# --- the labelled set ---------------------------------------------------------------------------------------------


def scored_pairs(
    folder: str | Path, most: int = 0, seed: int = 1, sets: Sequence[str] = SETS
) -> dict[str, tuple[list[tuple[Row, str]], int]]:
    """set -> ([(row, "file:line")], how many there are) of the scored half of the labelled sets in `folder`; one
    without a file is left out. `most`: pairs of each that are taken, 0 = all (see `drawn`)."""
    found = {}
    for name in sets:
        path = Path(folder) / f"{name}.jsonl"
        if path.exists():
            rows = [(row, f"{path}:{line}") for line, row in iterate_jsonl(path) if row.get("half") == "scored"]
            found[name] = drawn(rows, most, seed), len(rows)
    return found


def drawn(rows: Sequence[tuple[Row, str]], most: int, seed: int) -> list[tuple[Row, str]]:
    """`most` of `rows` (row, place), in their order; all of them for 0 or where there are no more. Each kind has its
    share of them by largest remainders, so that the sample is mixed as the set is; which ones of a kind, a digest of
    seed and id decides."""
    if not 0 < most < len(rows):
        return list(rows)
    kinds: dict[str, list[int]] = defaultdict(list)
    for number, (row, _) in enumerate(rows):
        kinds[row.get("kind", "")].append(number)
    exact = {kind: most * len(mine) / len(rows) for kind, mine in kinds.items()}
    share = {kind: int(value) for kind, value in exact.items()}
    for kind in sorted(kinds, key=lambda kind: (share[kind] - exact[kind], kind))[: most - sum(share.values())]:
        share[kind] += 1

    def lot(number: int) -> str:
        return hashlib.sha256(f"{seed}/{rows[number][0].get('id', number)}".encode()).hexdigest()

    return [
        rows[number]
        for number in sorted(number for kind, mine in kinds.items() for number in sorted(mine, key=lot)[: share[kind]])
    ]

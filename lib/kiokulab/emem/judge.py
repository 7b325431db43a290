"""Grade what a responder gave: pure functions from transcript rows to verdicts, and to the scorecard.

The scorecard's keys, their order and its arithmetic are the original's; what it leaves open is computed beside it in
`analyze.py` and never changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kiokulab.emem.dataset import WHITE_SPACE
from kiokulab.emem.grade import contains_answer, norm

AXES = ("retrieval_accuracy", "test_time_learning", "long_range_understanding", "conflict_resolution")


def grade_row(row: dict[str, Any]) -> dict[str, Any]:
    """One transcript row to one verdict row: {"axis", "id", "correct", "why", "method"?}."""
    if row["axis"] != "conflict_resolution":
        correct = contains_answer(row["text"], row["expected"])
        why = (
            "contains the answer"
            if correct
            else "nothing retrieved"
            if row["text"] is None
            else "the answer is not in what came back"
        )
        return {"axis": row["axis"], "id": row["id"], "correct": correct, "why": why}
    first, second = row["texts"]
    if row["contradictions"]:
        return {
            "axis": row["axis"],
            "id": row["id"],
            "correct": True,
            "why": f"{row['contradictions']} contradiction(s) listed",
            "method": "contradiction_scan",
        }
    distinct = first is not None and second is not None and first.strip(WHITE_SPACE) != second.strip(WHITE_SPACE)
    return {
        "axis": row["axis"],
        "id": row["id"],
        "correct": distinct,
        "method": "stored_distinct_fallback",
        "why": "both texts are kept apart" if distinct else "one text is missing or they are the same",
    }


def grade(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [grade_row(row) for row in rows]


def conflict_method(verdicts: list[dict[str, Any]]) -> str | None:
    """The strongest method seen; None where there was no conflict item."""
    methods = {verdict["method"] for verdict in verdicts if "method" in verdict}
    return next((method for method in ("contradiction_scan", "stored_distinct_fallback") if method in methods), None)


def axis_scores(verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    """The four axes as {"score", "items", "correct"} and the topline: sum of correct over sum of items, not a mean of
    the four scores; 0.0 where there is no item, as the original has it."""
    card: dict[str, Any] = {}
    for axis in AXES:
        graded = [verdict["correct"] for verdict in verdicts if verdict["axis"] == axis]
        card[axis] = {
            "score": sum(graded) / len(graded) if graded else 0.0,
            "items": len(graded),
            "correct": sum(graded),
        }
    items, correct = (sum(card[axis][key] for axis in AXES) for key in ("items", "correct"))
    return {**card, "longmemeval_topline": correct / items if items else 0.0}


def caveat(provenance: str, items: int, read_path: str) -> str:
    """One sentence on what the numbers are worth: sample or full, how many items, which read path."""
    extent = (
        "SAMPLE: a demonstration, not a benchmark result"
        if provenance == "sample"
        else "FULL: as the file's name claims"
    )
    reading = (
        "read through the responder's own search"
        if read_path == "memory_search"
        else "read by listing and lexical match in the client, because the responder has no search model"
    )
    return f"{extent}; {items} items; {reading}."


def scorecard(
    verdicts: list[dict[str, Any]],
    *,
    version: str,
    url: str,
    provenance: str,
    source: str,
    corpus_items: int,
    read_path: str,
    receipt: dict[str, Any] | None,
) -> dict[str, Any]:
    """The live scorecard with its exact keys in their order; keys that would be null are left out."""
    card = {
        "mode": "live",
        "version": version,
        "url": url,
        "dataset_provenance": provenance,
        "dataset_source": source,
        "corpus_items": corpus_items,
        "retrieval_path": read_path,
        "conflict_method": conflict_method(verdicts),
        "caveat": caveat(provenance, corpus_items, read_path),
        "scorecard": axis_scores(verdicts),
        "receipt": receipt,
    }
    return {key: value for key, value in card.items() if value is not None}


# --- self-test: keyed lookups on a fixture of our own, no network -------------------------------------------------


class Notes:
    """The stub memory of the self-test: the last write of a key wins, and a conflict is two values that differ."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    def write(self, key: tuple[str, str], value: str) -> None:
        self.values[key] = value

    def read(self, key: tuple[str, str]) -> str | None:
        return self.values.get(key)

    def conflicts(self, first: str, second: str) -> bool:
        return norm(first) != norm(second)


FIXTURE = {
    "base": [
        (("kitchen", "kettle"), "blue"),
        (("kitchen", "shelf"), "3"),
        (("garden", "gate"), "green"),
        (("garden", "beds"), "7"),
        (("office", "desk"), "oak"),
        (("office", "lamp"), "40.0"),
    ],
    "retrieval": [
        (("kitchen", "kettle"), "blue"),
        (("kitchen", "shelf"), "3.0"),
        (("garden", "gate"), "green"),
        (("office", "desk"), "oak"),
        (("office", "lamp"), "40"),
    ],
    "learning": [
        (("kitchen", "kettle"), ["red", "white"]),
        (("garden", "beds"), ["8", "9"]),
        (("office", "desk"), ["ash"]),
        (("garden", "gate"), ["black", "brown", "grey"]),
    ],
    "long_range": [
        (0, ("kitchen", "kettle"), "blue"),
        (1, ("kitchen", "shelf"), "3"),
        (2, ("garden", "gate"), "green"),
        (3, ("garden", "beds"), "7"),
    ],
    "conflict": [("4.0", "4.0", False), ("oak", "ash", True), ("7", "9", True)],
}


def self_test(make_memory: Callable[[], Any] = Notes, version: str = "") -> dict[str, Any]:
    """Grade a stub on the fixture: 5 retrieval, 4 learning, 4 long-range and 3 conflict cases, one of them a true
    negative. A right stub scores 1.0 on each."""
    memory, verdicts = make_memory(), []

    def say(axis: str, number: int, correct: bool) -> None:
        verdicts.append({"axis": axis, "id": f"{axis}-{number}", "correct": correct})

    for key, value in FIXTURE["base"]:
        memory.write(key, value)
    for number, (key, wanted) in enumerate(FIXTURE["retrieval"]):
        say("retrieval_accuracy", number, (got := memory.read(key)) is not None and norm(got) == norm(wanted))
    for number, (_, key, wanted) in enumerate(sorted(FIXTURE["long_range"])):
        say("long_range_understanding", number, (got := memory.read(key)) is not None and norm(got) == norm(wanted))
    for number, (key, writes) in enumerate(FIXTURE["learning"]):
        for value in writes:
            memory.write(key, value)
        say("test_time_learning", number, (got := memory.read(key)) is not None and norm(got) == norm(writes[-1]))
    for number, (first, second, conflicting) in enumerate(FIXTURE["conflict"]):
        say("conflict_resolution", number, memory.conflicts(first, second) is conflicting)
    return {
        "mode": "self-test",
        "version": version,
        "scorecard": axis_scores(verdicts),
        "caveat": "The kit's own fixture and stub: it shows that the grader works, and nothing about a memory system.",
    }


def run(folder: Any, params: Any) -> list[dict[str, Any]]:
    """Step 3: judgements.jsonl, one verdict row a question. Returns a row an axis."""
    from kiokulab.files import read_jsonl, write_jsonl

    verdicts = grade(read_jsonl(folder / "contexts.jsonl"))
    write_jsonl(folder / "judgements.jsonl", verdicts)
    card = axis_scores(verdicts)
    return [{"axis": axis, **card[axis]} for axis in AXES]

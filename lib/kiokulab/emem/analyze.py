"""From verdicts to figures: the scorecard as the original has it, and beside it what the original leaves open.

`metrics.json` of an emem run:
  scorecard   the original's four axes and topline, unrounded, with its keys
  intervals   axis -> {"k", "n", "rate", "low", "high"}: 95 % Wilson intervals of the same counts
  unique      retrieval and learning with long-range left out: each item counts once ({"k", "n", "rate", "low", "high"})
  conflicts   {"true_positives", "false_alarms", "missed", "true_negatives", "scoped", "method"}: our reading, in which a
              companion text that says the same in other words must not be called a conflict
  receipt     {"status", "problems", "not_bound"} of the first write's receipt; no time and no key is in it
  not_applicable  operation -> reason, where a memory system behind the bridge lacks one
Wall times are no part of it: they are in latency.json.
"""

from __future__ import annotations

from typing import Any

from kiokulab.emem.judge import AXES, axis_scores, conflict_method, grade
from kiokulab.stats import wilson


def rate(k: int, n: int) -> dict[str, Any]:
    found = wilson(k, n)
    return {"k": found.k, "n": found.n, "rate": found.rate, "low": found.low, "high": found.high}


def conflicts(rows: list[dict[str, Any]], verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    """Conflict items with true negatives: a companion marked `contradicts: false` must not be surfaced.

    The "stored apart" fallback cannot tell a contradiction from a paraphrase, which is what false alarms show.
    """
    pairs = [(row["contradicts"], verdict["correct"]) for row, verdict in zip(rows, verdicts) if row["axis"] == "conflict_resolution"]
    count = lambda contradicts, surfaced: sum(pair == (contradicts, surfaced) for pair in pairs)
    return {
        "true_positives": count(True, True), "missed": count(True, False), "false_alarms": count(False, True), "true_negatives": count(False, False),
        "scoped": sum(bool(row["scoped_contradictions"]) for row in rows if row["axis"] == "conflict_resolution"),
        "method": conflict_method(verdicts)}


def metrics(rows: list[dict[str, Any]], receipt_check: dict[str, Any] | None, not_applicable: dict[str, str]) -> dict[str, Any]:
    """metrics.json from transcript rows (a pure function; see the module's head for the fields)."""
    verdicts = grade(rows)
    card = axis_scores(verdicts)
    once = [v["correct"] for v in verdicts if v["axis"] in ("retrieval_accuracy", "test_time_learning")]
    return {
        "scorecard": card, "intervals": {axis: rate(card[axis]["correct"], card[axis]["items"]) for axis in AXES},
        "unique": rate(sum(once), len(once)), "conflicts": conflicts(rows, verdicts), "receipt": receipt_check, "not_applicable": dict(sorted(not_applicable.items()))}


def percentile(values: list[float], share: float) -> float:
    """Nearest-rank percentile: the smallest value with at least `share` of all values at or below it."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def latency(calls: list[tuple[str, float]]) -> dict[str, dict[str, float]]:
    """operation -> {"n", "median_ms", "p90_ms", "p99_ms"}: nearest-rank percentiles of what the client waited, one
    keep-alive connection, calls one after another, cache hits left out."""
    by_operation: dict[str, list[float]] = {}
    for operation, seconds in calls:
        by_operation.setdefault(operation, []).append(1000 * seconds)
    return {operation: {"n": len(values), "median_ms": percentile(values, 0.5), "p90_ms": percentile(values, 0.9), "p99_ms": percentile(values, 0.99)}
            for operation, values in sorted(by_operation.items())}


def printed(found: dict[str, Any]) -> str:
    """The figures as one block of text: what the notebook prints and what verification looks for."""
    def line(name: str, k: int, n: int, low: float | None, high: float | None) -> str:
        share = f"{k / n:.4f}" if n else "n/a"
        return f"{name:26} {k:>5}/{n:<5} {share:>7}" + (f"   95 %: {low:.3f} to {high:.3f}" if n else "")

    rows = [line(axis, found["intervals"][axis]["k"], found["intervals"][axis]["n"], found["intervals"][axis]["low"], found["intervals"][axis]["high"]) for axis in AXES]
    unique = found["unique"]
    topline = found["scorecard"]["longmemeval_topline"]
    rows += [f"{'longmemeval_topline':26} {topline:>19.4f}   (long-range items count twice)",
             line("each item once", unique["k"], unique["n"], unique["low"], unique["high"])]
    conflict = found["conflicts"]
    if conflict["method"]:
        rows.append(f"conflicts: {conflict['true_positives']} surfaced, {conflict['missed']} missed, {conflict['false_alarms']} false alarms, "
                    f"{conflict['true_negatives']} rightly quiet; {conflict['scoped']} scoped; method {conflict['method']}")
    rows += [f"not applicable: {operation}: {reason}" for operation, reason in found["not_applicable"].items()]
    return "\n".join(rows)

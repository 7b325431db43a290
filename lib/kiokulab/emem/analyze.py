"""From verdicts to figures: the scorecard as the original has it, and beside it what the original leaves open.

`metrics.json` of an emem run:
  scorecard   the original's four axes and topline, unrounded, with its keys
  intervals   axis -> {"k", "n", "rate", "low", "high"}: 95 % Wilson intervals of the same counts
  unique      retrieval and learning with long-range left out: each item counts once ({"k", "n", "rate", "low", "high"})
  conflicts   {"true_positives", "false_alarms", "missed", "true_negatives", "scoped", "method"}: our reading, in
              which a companion text that says the same in other words must not be called a conflict
  receipt     {"status", "problems", "not_bound"} of the first write's receipt; no time and no key is in it
  not_applicable  operation -> reason, where a memory system behind the bridge lacks one
  plumbing    true, and only there then: the system was fed by the built-in model; the table has it in [brackets]
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
    pairs = [
        (row["contradicts"], verdict["correct"])
        for row, verdict in zip(rows, verdicts)
        if row["axis"] == "conflict_resolution"
    ]
    count = lambda contradicts, surfaced: sum(pair == (contradicts, surfaced) for pair in pairs)
    return {
        "true_positives": count(True, True),
        "missed": count(True, False),
        "false_alarms": count(False, True),
        "true_negatives": count(False, False),
        "scoped": sum(bool(row["scoped_contradictions"]) for row in rows if row["axis"] == "conflict_resolution"),
        "method": conflict_method(verdicts),
    }


def metrics(
    rows: list[dict[str, Any]], receipt_check: dict[str, Any] | None, not_applicable: dict[str, str]
) -> dict[str, Any]:
    """metrics.json from transcript rows (a pure function; see the module's head for the fields)."""
    verdicts = grade(rows)
    card = axis_scores(verdicts)
    once = [v["correct"] for v in verdicts if v["axis"] in ("retrieval_accuracy", "test_time_learning")]
    return {
        "scorecard": card,
        "intervals": {axis: rate(card[axis]["correct"], card[axis]["items"]) for axis in AXES},
        "unique": rate(sum(once), len(once)),
        "conflicts": conflicts(rows, verdicts),
        "receipt": receipt_check,
        "not_applicable": dict(sorted(not_applicable.items())),
    }


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
    return {
        operation: {
            "n": len(values),
            "median_ms": percentile(values, 0.5),
            "p90_ms": percentile(values, 0.9),
            "p99_ms": percentile(values, 0.99),
        }
        for operation, values in sorted(by_operation.items())
    }


def printed(found: dict[str, Any]) -> str:
    """The figures as one block of text: what the notebook prints and what verification looks for."""

    def line(name: str, k: int, n: int, low: float | None, high: float | None) -> str:
        share = f"{k / n:.4f}" if n else "n/a"
        return f"{name:26} {k:>5}/{n:<5} {share:>7}" + (f"   95 %: {low:.3f} to {high:.3f}" if n else "")

    rows = [
        line(
            axis,
            found["intervals"][axis]["k"],
            found["intervals"][axis]["n"],
            found["intervals"][axis]["low"],
            found["intervals"][axis]["high"],
        )
        for axis in AXES
    ]
    unique = found["unique"]
    topline = found["scorecard"]["longmemeval_topline"]
    rows += [
        f"{'longmemeval_topline':26} {topline:>19.4f}   (long-range items count twice)",
        line("each item once", unique["k"], unique["n"], unique["low"], unique["high"]),
    ]
    conflict = found["conflicts"]
    if conflict["method"]:
        rows.append(
            f"conflicts: {conflict['true_positives']} surfaced, {conflict['missed']} missed, {conflict['false_alarms']} false alarms, "
            f"{conflict['true_negatives']} rightly quiet; {conflict['scoped']} scoped; method {conflict['method']}"
        )
    rows += [f"not applicable: {operation}: {reason}" for operation, reason in found["not_applicable"].items()]
    return "\n".join(rows)


# --- the step ---------------------------------------------------------------------------------------------------


def _receipt_check(transcript: dict[str, Any], items: tuple[Any, ...], pinned_key: str) -> dict[str, Any]:
    """The receipt of the first write, checked offline; without times and keys, which differ from run to run."""
    from kiokulab.emem import receipts

    if transcript["receipt"] is None:
        return {
            "status": "none",
            "problems": [transcript["receipt_warning"] or "the responder sent no receipt"],
            "not_bound": [],
            "pinned": False,
        }
    # ids may share a path: the last write wins
    first = next(item for item in reversed(items) if item.path == items[0].path)
    text = first.update if first.update is not None and first.update_answer is not None else first.content
    found = receipts.check(transcript["receipt"], pinned_key=pinned_key or None, content=text, path=first.path)
    return {
        "status": "verified" if found.ok else "refused",
        "problems": found.problems,
        "not_bound": found.not_bound,
        "pinned": found.pinned,
    }


def load(folder: Any, params: Any) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """(transcript rows, transcript head, metrics) of a run folder."""
    import json

    from kiokulab import metering
    from kiokulab.emem import generate
    from kiokulab.files import read_jsonl

    rows = read_jsonl(folder / "contexts.jsonl")
    transcript = json.loads((folder / "transcript.json").read_bytes())
    dataset, _ = generate.read(folder)
    checked = _receipt_check(transcript, dataset.items, params.pinned_key)
    found = {
        **metrics(rows, checked, transcript["not_applicable"]),
        "read_path": transcript["read_path"],
        "failures": transcript["failures"],
    }
    return rows, transcript, {**found, **({"plumbing": True} if metering.is_plumbing(params) else {})}


def run(folder: Any, params: Any) -> list[dict[str, Any]]:
    """Step 4: metrics.json, membench-live.json (the scorecard with its exact keys), latency.json, figures/axes.png and
    report.html. Returns a row an axis, for the notebook."""
    import json

    from kiokulab import __version__
    from kiokulab.emem import generate, judge, report
    from kiokulab.files import dumps, read_jsonl, write_atomic

    rows, transcript, found = load(folder, params)
    dataset, _ = generate.read(folder)
    card = judge.scorecard(
        read_jsonl(folder / "judgements.jsonl"),
        version=__version__,
        url=transcript["url"],
        provenance=dataset.provenance_by_name,
        source=dataset.source,
        corpus_items=transcript["corpus_items"],
        read_path=transcript["read_path"],
        receipt=transcript["receipt"],
    )
    write_atomic(folder / "metrics.json", dumps(found) + "\n")
    write_atomic(folder / "membench-live.json", json.dumps(card, ensure_ascii=False, indent=2) + "\n")
    calls = [(event["op"], event["seconds"]) for event in read_jsonl(folder / "events.jsonl")]
    write_atomic(folder / "latency.json", dumps(latency(calls)) + "\n")
    report.write(folder, params)
    return [
        {"axis": axis, **{k: found["intervals"][axis][k] for k in ("k", "n", "rate", "low", "high")}} for axis in AXES
    ]


def rederive(folder: Any, params: Any = None) -> dict[str, Any]:
    """metrics.json again from the rows (verification compares)."""
    from pathlib import Path

    from kiokulab.emem.params import EmemParams
    from kiokulab.receipts import read_receipt

    folder = Path(folder)
    if params is None:
        receipt = read_receipt(folder)
        params = EmemParams.checked({k: v for k, v in receipt.parameters.items() if k in EmemParams.model_fields})
    return load(folder, params)[2]


def summary(folders: Any) -> str:
    """The table that the terminal shows after a run: one line a system."""
    import json
    from pathlib import Path

    from kiokulab.feeding import BRACKETS

    head = f"{'system':24} {'read path':16} {'retrieval':>10} {'learning':>9} {'long-range':>10} {'conflict':>9} {'topline':>8} {'each once':>10}"
    lines = [head]
    for folder in map(Path, folders):
        found = json.loads((folder / "metrics.json").read_bytes())
        card, unique = found["scorecard"], found["unique"]
        cells = [
            f"{card[axis]['correct']}/{card[axis]['items']}"
            for axis in ("retrieval_accuracy", "test_time_learning", "long_range_understanding", "conflict_resolution")
        ]
        name = f"[{folder.parent.name}]" if found.get("plumbing") else folder.parent.name
        lines.append(
            f"{name:24} {found['read_path']:16} {cells[0]:>10} {cells[1]:>9} {cells[2]:>10} {cells[3]:>9} {card['longmemeval_topline']:>8.4f} {unique['k']:>5}/{unique['n']:<4}"
        )
    if any(line.startswith("[") for line in lines):
        lines.append(BRACKETS)
    return "\n".join(lines)

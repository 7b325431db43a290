"""The emem run as a page, and its parts one by one for the notebooks."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from kiokulab import page
from kiokulab.emem import generate, judge, variations
from kiokulab.emem.judge import AXES
from kiokulab.files import read_jsonl, write_atomic

TITLES = {
    "retrieval_accuracy": "Retrieval",
    "test_time_learning": "Learning at test time",
    "long_range_understanding": "Long-range",
    "conflict_resolution": "Conflict",
}
ASKS = {
    "retrieval_accuracy": "is the answer in what the query brings back?",
    "test_time_learning": "after an update, does the query bring back the new answer?",
    "long_range_understanding": "the first third again, after everything else was written",
    "conflict_resolution": "are two texts that disagree both kept, or reported?",
}


def figure(found: dict[str, Any], system: str) -> tuple[bytes, str]:
    """The four axes and the unique-item rate with their intervals, as PNG, and its alt text."""
    from kiokulab import plots

    rows = [(TITLES[axis], found["intervals"][axis]) for axis in AXES] + [("Each item once", found["unique"])]
    plt = plots._pyplot()
    drawing, axes = plt.subplots(figsize=(7.2, 2.9))
    for y, (title, r) in enumerate(reversed(rows)):
        if r["n"]:
            axes.barh(
                y,
                r["rate"],
                height=0.55,
                color="#4c78a8" if title != "Each item once" else "#9a9a9a",
                hatch="" if title != "Each item once" else "///",
                edgecolor="white",
            )
            axes.plot([r["low"], r["high"]], [y, y], color="#222222", linewidth=1.6)
            axes.plot([r["low"], r["high"]], [y, y], "|", color="#222222", markersize=9)
        axes.text(1.03, y, f"{r['k']}/{r['n']}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [title for title, _ in reversed(rows)])
    axes.set_xlim(0, 1.0)
    axes.set_xlabel("share right, with its 95 % interval (Wilson)")
    axes.set_title(f"{plots.safe(system)}: four axes", loc="left", fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    drawing.subplots_adjust(left=0.25, right=0.88, top=0.88, bottom=0.2)
    data = plots.png(drawing)
    alt = "; ".join(
        f"{title}: {r['k']} of {r['n']}" + (f", 95 % interval {r['low']:.2f} to {r['high']:.2f}" if r["n"] else "")
        for title, r in rows
    )
    return data, f"Bars for the four axes of {system}. {alt}."


def axes_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {
            "axis": TITLES[axis],
            "asks": ASKS[axis],
            "right": f"{r['k']}/{r['n']}",
            "score": f"{r['rate']:.4f}" if r["n"] else "n/a",
            "95 % interval": f"{r['low']:.3f} to {r['high']:.3f}" if r["n"] else "n/a",
        }
        for axis in AXES
        for r in [found["intervals"][axis]]
    ]
    unique, top = found["unique"], found["scorecard"]["longmemeval_topline"]
    card = found["scorecard"]
    rows.append(
        {
            "axis": "Topline",
            "asks": "all of them together, as the original adds them up: long-range items count twice",
            "right": f"{sum(card[a]['correct'] for a in AXES)}/{sum(card[a]['items'] for a in AXES)}",
            "score": f"{top:.4f}",
            "95 % interval": "not given: items repeat",
        }
    )
    rows.append(
        {
            "axis": "Each item once",
            "asks": "ours: retrieval and learning alone, so that no question is counted twice",
            "right": f"{unique['k']}/{unique['n']}",
            "score": f"{unique['rate']:.4f}" if unique["n"] else "n/a",
            "95 % interval": f"{unique['low']:.3f} to {unique['high']:.3f}" if unique["n"] else "n/a",
        }
    )
    return rows


def conflict_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    c = found["conflicts"]
    return [
        {
            "conflicts surfaced": c["true_positives"],
            "missed": c["missed"],
            "false alarms (only reworded)": c["false_alarms"],
            "rightly quiet": c["true_negatives"],
            "scan names the item": c["scoped"],
            "method": c["method"] or "no conflict item",
        }
    ]


def failures(folder: Path, most: int = 12) -> list[dict[str, Any]]:
    """Questions that went wrong, in full, in their order."""
    rows = [
        (row, verdict)
        for row, verdict in zip(read_jsonl(folder / "contexts.jsonl"), read_jsonl(folder / "judgements.jsonl"))
        if not verdict["correct"]
    ]
    return [
        {
            "axis": TITLES[row["axis"]],
            "id": row["id"],
            "asked": row.get("query"),
            "expected": row.get("expected"),
            "came back": row.get("path"),
            "its text": row.get("text"),
            "why": verdict["why"],
        }
        for row, verdict in rows[:most]
    ]


def variation_table(folder: Path) -> list[dict[str, Any]]:
    """What the lexical fallback would score under other rules, on this run's items."""
    items = generate.read(folder)[0].items
    rows = []
    for name, rules in variations.VARIATIONS.items():
        found = variations.counts(items, rules)
        rows.append(
            {
                "one rule changed": name,
                **{
                    TITLES[a]: "{}/{}".format(*found[a])
                    for a in ("retrieval_accuracy", "test_time_learning", "long_range_understanding")
                },
                "topline": f"{found['topline'][0] / found['topline'][1]:.4f}",
            }
        )
    return rows


def latency_table(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "operation": op,
            "calls": r["n"],
            **{k.removesuffix("_ms") + ", ms": f"{r[k]:.1f}" for k in ("median_ms", "p90_ms", "p99_ms")},
        }
        for op, r in json.loads((folder / "latency.json").read_bytes()).items()
    ]


def receipt_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    r = found["receipt"]
    return [
        {
            "first write's receipt": r["status"],
            "key": "pinned" if r["pinned"] else "not pinned: shows consistency, not who signed",
            "problems": "; ".join(r["problems"]) or "none",
            "not bound by the signature": ", ".join(r["not_bound"]) or "nothing",
        }
    ]


def beside(params: Any) -> list[dict[str, Any]]:
    """The same figures of the runs beside this one, where they are finished as far as their rows."""
    rows = []
    for place in params.beside:
        folder = Path(place)
        if not (folder / "judgements.jsonl").exists() or not (folder / "transcript.json").exists():
            continue
        card = judge.axis_scores(read_jsonl(folder / "judgements.jsonl"))
        kind = json.loads((folder / "transcript.json").read_bytes())["read_path"]
        rows.append(
            {
                "system": folder.parent.name,
                "read path": kind,
                **{TITLES[a]: f"{card[a]['correct']}/{card[a]['items']}" for a in AXES},
                "topline": f"{card['longmemeval_topline']:.4f}",
            }
        )
    return rows


def conditions(folder: Path, params: Any) -> list[dict[str, Any]]:
    from kiokulab import metering

    dataset, head = generate.read(folder)
    transcript = json.loads((folder / "transcript.json").read_bytes())
    said = {
        "responder": f"{params.system} at {transcript['url']}"
        + ("" if params.url else ": the kit's reference responder, which is not emem"),
        **(
            {"plumbing": "the system was fed by the built-in model, which copies sentences: no result"}
            if metering.is_plumbing(params)
            else {}
        ),
        "read path": transcript["read_path"],
        "items": f"{len(dataset.items)} from {dataset.source}, sha256 {dataset.sha256[:16]}…",
        "provenance by name": f"{dataset.provenance_by_name} (the original's rule: the file's name alone)",
        "provenance by content": dataset.provenance_by_content,
        "paths that several ids share": "; ".join(
            f"{path}: {', '.join(ids)}" for path, ids in head["collisions"].items()
        )
        or "none",
        "typed failures": ", ".join(f"{kind} {n}" for kind, n in transcript["failures"].items()) or "none",
        "not applicable": "; ".join(f"{op}: {why}" for op, why in transcript["not_applicable"].items()) or "nothing",
        "latency": "as the client waited: one keep-alive connection, calls one after another, nearest-rank percentiles, cached reads left out",
        "what a conflict score means": "the original counts any contradiction anywhere, else two texts that differ; it has no true negatives, ours are shown apart",
        "checked against": "the rules were read from the original's source; the original program itself was not run here",
    }
    return [{"condition": name, "said": text} for name, text in said.items()]


def write(folder: Path, params: Any) -> None:
    """figures/axes.png and report.html of an analysed run."""
    folder = Path(folder)
    found = json.loads((folder / "metrics.json").read_bytes())
    data, alt = figure(found, params.system)
    write_atomic(folder / "figures" / "axes.png", data)
    tables = [
        ("Four axes", axes_table(found)),
        ("Beside it", beside(params)),
        ("Conflicts, with true negatives", conflict_table(found)),
        ("Failures in full", failures(folder)),
        ("What each rule of the lexical fallback is worth", variation_table(folder)),
        ("Latency", latency_table(folder)),
        ("The receipt", receipt_table(found)),
        ("Conditions", conditions(folder, params)),
    ]
    said = f"{params.system} was fed by the kit's built-in model, which copies sentences and understands nothing."
    note = (
        f'<div class="box" role="note"><strong>Plumbing, and no result.</strong> {escape(page.plain(said, 400))}</div>'
        if found.get("plumbing")
        else ""
    )
    sections = [("", note + page.image(data, alt))] + [(title, page.table(rows, 600)) for title, rows in tables if rows]
    write_atomic(folder / "report.html", page.document(f"emem: {params.system} on four axes", sections))

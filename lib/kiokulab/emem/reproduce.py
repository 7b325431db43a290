"""The proof that client, grader and ranking are the public benchmark's: its own sample must give its published figures.

The sample is not ours and is not part of this repository; it lies in a folder beside it (`shared`, in it `emem/`).
"""

from __future__ import annotations

import json
from pathlib import Path

from kiokulab.emem import dataset, ingest, judge, receipts, responder, variations
from kiokulab.emem.client import Responder
from kiokulab.errors import InputError
from kiokulab.serving import serve

# one rule changed -> retrieval, learning, long-range (right), topline: measured once outside this kit, specs of the
# track
VARIATIONS = {
    "none": (11, 1, 3, 0.68),
    "load order instead of path order": (10, 1, 3, 0.64),
    "last wins ties": (11, 2, 3, 0.72),
    "last wins ties, load order": (11, 2, 3, 0.72),
    "min token length 1": (9, 1, 2, 0.56),
    "min token length 2": (9, 1, 2, 0.56),
    "min token length 4": (10, 1, 3, 0.64),
    "ceil(n/3)": (11, 1, 4, 0.6923),
    "Jaccard instead of count": (10, 1, 3, 0.64),
    "count repeats in the document": (6, 1, 1, 0.40),
    "whitespace tokens, no length limit": (6, 1, 1, 0.40),
    "substring instead of token match": (14, 1, 5, 0.88),
}
RANKED = ("retrieval_accuracy", "test_time_learning", "long_range_understanding")


def part(shared: str | Path) -> tuple[str, list[str]]:
    """(table, differences). Raises InputError where the public sample is not there: then nothing is claimed."""
    folder = Path(shared) / "emem"
    if not (folder / "sample-longmemeval.jsonl").is_file():
        raise InputError(
            "the public sample is not there",
            str(folder / "sample-longmemeval.jsonl"),
            "It is not part of this repository",
        )
    data = dataset.load(folder / "sample-longmemeval.jsonl")
    lines, wrong = [], []

    def compare(name: str, published: object, ours: object) -> None:
        lines.append(
            f"  {name:58} published {published!s:>8}   here {ours!s:>8}" + ("" if published == ours else "   DIFFERS")
        )
        if published != ours:
            wrong.append(f"emem {name}: published {published}, here {ours}")

    with (
        serve(
            responder.build(responder.FileStore(), key_seed=ingest.REFERENCE_SEED, clock=lambda: ingest.FIXED_TIME)
        ) as url,
        Responder(url) as client,
    ):
        found = ingest.drive(client, data)
    card = judge.axis_scores(judge.grade(found["rows"]))
    public = json.loads((folder / "published-scorecard-sample.json").read_text(encoding="utf-8"))
    lines.append(
        f"the public sample over HTTP against the reference responder, lexical mode ({client.calls} calls; the original makes 415)"
    )
    for axis in judge.AXES:
        known = public["scorecard"][axis]
        compare(axis, f"{known['correct']}/{known['items']}", f"{card[axis]['correct']}/{card[axis]['items']}")
    compare("longmemeval_topline", public["scorecard"]["longmemeval_topline"], card["longmemeval_topline"])
    compare("retrieval_path", public["retrieval_path"], found["read_path"])
    compare("conflict_method", public["conflict_method"], judge.conflict_method(judge.grade(found["rows"])))
    lines.append("one rule of the ranking changed at a time (retrieval, learning, long-range, topline)")
    for name, (*right, topline) in VARIATIONS.items():
        counts = variations.counts(data.items, variations.VARIATIONS[name])
        k, n = counts["topline"]
        compare(
            name,
            " ".join(map(str, [*right, topline])),
            " ".join(map(str, [*(counts[axis][0] for axis in RANKED), round(k / n, 4)])),
        )
    vectors = json.loads((folder / "receipt-vectors.json").read_text(encoding="utf-8"))["receipt_v2_real"]
    lines.append("a real receipt, checked offline")
    checked = receipts.check(vectors["receipt"])
    compare("signature", "fits", "fits" if checked.ok else "; ".join(checked.problems))
    compare("digest", vectors["expected"]["preimage_blake3_hex"][:8], (checked.digest_hex or "")[:8])
    return "\n".join(lines), wrong

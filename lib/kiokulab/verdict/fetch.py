"""`make data-longmemeval`: how to get the official file, and whether the one you have is it. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

from kiokulab.verdict import dataset
from kiokulab.verdict.params import KNOWN

HOW = """LongMemEval is not part of this kit (MIT, Copyright (c) 2024 Di Wu). The cleaned release of September 2025 is the data set
xiaowu0162/longmemeval-cleaned; the README of github.com/xiaowu0162/LongMemEval links to where it lies.
  longmemeval_s_cleaned.json    277 MB, what MemVerdict uses
  longmemeval_m_cleaned.json    2.7 GB
  longmemeval_oracle.json       evidence alone; its digest is published nowhere that we found, so it needs LABEL=
Then: make verdict DATA=path/to/longmemeval_s_cleaned.json
The official prompts: LONGMEMEVAL_REPO=path/to/a/checkout of github.com/xiaowu0162/LongMemEval
Known by their sha256:"""


def help_and_check(path: str = "") -> str:
    """What to do, or, with the path of a file, what that file is: its digest, name and counts, every record checked.
    Raises InputError for a file that is torn or holds a broken record."""
    if not path:
        return "\n".join([HOW, *(f"  {sha256}  {name}" for sha256, name in KNOWN.items())])
    sha256, name, official = dataset.identify(path, "an unknown file: not a release that is known here")
    rows = dataset.manifest(path)
    counts = {kind: sum(row["type"] == kind for row in rows) for kind in dict.fromkeys(row["type"] for row in rows)}
    return "\n".join(
        [
            f"{Path(path).name}: {name}",
            f"sha256 {sha256}",
            f"{len(rows)} questions ({', '.join(f'{kind} {n}' for kind, n in counts.items())}), "
            f"{sum(row['abstention'] for row in rows)} to be declined, {sum(row['sessions'] for row in rows):,} sessions",
            (
                "official"
                if official
                else "not an official file: runs on it need LABEL=..., and no score on it is a LongMemEval score"
            ),
        ]
    )

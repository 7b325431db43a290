"""The proof that the grader and the arms are the public benchmark's: its frozen worlds must give its published figures.

The worlds and the figures are not ours and are not part of this repository; they lie in a folder beside it
(`shared`, in it `knowledgedrift/`). Without the folder nothing is claimed: `MissingData` says what is not there.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiokulab.drift import arms
from kiokulab.drift.ingest import replay
from kiokulab.drift.judge import grade
from kiokulab.drift.script import Script, load_script
from kiokulab.errors import InputError

SHARED = Path("../shared")  # relative to the repository's root, where commands are run
REPRODUCED_ARMS = ("grep", "curated", "whole", "chance", "tfidf")
WORLDS = ("100-seed1", "500-seed1", "1500-seed1")
WHOLE_NUMBERS = {"family_points", "signal", "tokens", "score", "tokens_billed"}  # printed without decimals
OUR_NAMES = {"signal": "signal_score", "tokens": "token_score"}


class MissingData(InputError):
    """The public data is not there; nothing can be reproduced, and nothing is claimed."""


@dataclass(frozen=True)
class Figure:
    """One published figure and ours, both as they would be printed."""

    world: str
    arm: str
    figure: str
    published: str
    ours: str
    source: str  # "published log" or "re-implementation"

    @property
    def equal(self) -> bool:
        return self.published == self.ours


def find_world(world: str, shared: Path = SHARED) -> Path:
    """The script file of a frozen public world ("500-seed1"), plain or gzipped. Raises MissingData."""
    folder = Path(shared) / "knowledgedrift" / "worlds"
    for suffix in (".json", ".json.gz"):
        path = folder / f"knowledgedrift-{world}-v2{suffix}"
        if path.is_file():
            return path
    raise MissingData(
        f"no file of the public world {world}",
        str(folder),
        "The public worlds are not part of this repository; put the benchmark's worlds/v2 there",
    )


def _print(name: str, value: Any) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name in ("pass_pct", *WHOLE_NUMBERS):
        return f"{value:.0f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _published(world: str, arm: str, expected: dict, receipt: dict) -> list[Figure]:
    """Every printed column of the published log against the receipt."""
    rows = []

    def compare(figure: str, name: str, published: Any, ours: Any) -> None:
        decimals = name not in WHOLE_NUMBERS and name != "pass_pct" and isinstance(ours, float)
        rows.append(
            Figure(
                world,
                arm,
                figure,
                _print(name, float(published) if decimals and published is not None else published),
                _print(name, ours),
                "published log",
            )
        )

    for name, value in expected.items():
        if name == "families":
            continue
        ours = receipt["cost"]["standing_tokens"] if name == "standing_tokens" else receipt[OUR_NAMES.get(name, name)]
        compare(name, name, value, ours)
    families = {family["family"]: family for family in receipt["families"]}
    for name, columns in expected["families"].items():
        rate = families[name]["pass_rate"]
        if columns is None:
            compare(name, "pass_pct", None, rate)
            continue
        for column, value in columns.items():
            ours = (
                (None if rate is None else 100 * rate)
                if column == "pass_pct"
                else families[name]["columns"].get(column)
            )
            compare(f"{name}.{column}", column, value, ours)
    return rows


def _scratch(world: str, arm: str, expected: dict, receipt: dict) -> list[Figure]:
    """Every field of a full receipt of the independent re-implementation, at ten digits, and the failed ids."""
    rows = []

    def compare(figure: str, theirs: Any, ours: Any) -> None:
        def show(value: Any) -> str:
            return f"{value:.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)

        rows.append(Figure(world, arm, figure, show(theirs), show(ours), "re-implementation"))

    families = {family["family"]: family for family in receipt["families"]}
    for name, value in expected.items():
        if name == "families":
            for family in value:
                ours = families[family["family"]]
                for field, theirs in family.items():
                    if field == "columns":
                        for column in sorted(set(theirs) | set(ours["columns"])):
                            compare(f"{family['family']}.{column}", theirs.get(column), ours["columns"].get(column))
                    elif field != "na":
                        compare(f"{family['family']}.{field}", theirs, ours.get(field))
        elif name == "failed":
            odd = sorted(set(value) ^ set(receipt["failed"]))
            compare(
                "failed ids", f"{len(value)} ids", f"{len(receipt['failed'])} ids" if not odd else f"differ: {odd[:5]}"
            )
        elif name == "capabilities":
            compare(
                name,
                sorted(key for key, flag in value.items() if flag),
                sorted(key for key, flag in receipt[name].items() if flag),
            )
        elif name == "standing_tokens":
            compare(name, value, receipt["cost"]["standing_tokens"])
        elif name in receipt:
            compare(name, value, receipt[name])
    return rows


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def reproduce(
    shared: Path | str = SHARED, worlds: tuple[str, ...] = WORLDS, arm_names: tuple[str, ...] = REPRODUCED_ARMS
) -> tuple[list[Figure], list[dict]]:
    """(figures, runs): all published figures of these worlds and arms against ours; a run is a world and an arm with
    its seconds. Raises MissingData where the folder is not there."""
    expected_folder = Path(shared) / "knowledgedrift" / "expected"
    published = _json(expected_folder / "published-columns.json")
    if published is None:
        raise MissingData("the published figures are not there", str(expected_folder / "published-columns.json"))
    figures: list[Figure] = []
    runs: list[dict] = []
    for world in worlds:
        script = load_script(find_world(world, shared))
        scratch = _json(expected_folder / f"scratch-graded-{world}.json") or {"arms": []}
        full = {entry["arm"]: entry for entry in scratch["arms"]}
        for name in arm_names:
            receipt, seconds = _run(script, name)
            columns = published["worlds"].get(world, {}).get(name)
            if columns is not None:
                figures += _published(world, name, columns, receipt)
            if name in full:
                figures += _scratch(world, name, full[name], receipt)
            runs.append({"world": world, "arm": name, "score": round(receipt["score"], 2), **seconds})
    return figures, runs


def _run(script: Script, name: str) -> tuple[dict, dict[str, float]]:
    began = time.perf_counter()
    transcript = replay(script, arms.make(name, script))
    replayed = time.perf_counter()
    receipt = grade(script, transcript).receipt
    return receipt, {"replay_s": round(replayed - began, 2), "grade_s": round(time.perf_counter() - replayed, 2)}


def drift(shared: Path | str | None = None) -> tuple[str, list[str]]:
    """(table, differences) for `make reproduce`: a line a world and arm, and each figure that does not come out.

    The folder is `shared`, else $KIOKULAB_SHARED, else ../shared of the checkout. Without it the table says that
    nothing was reproduced, and there are no differences: nothing is claimed."""
    folder = Path(shared or os.environ.get("KIOKULAB_SHARED") or Path(__file__).resolve().parents[4] / "shared")
    try:
        figures, runs = reproduce(folder)
    except MissingData as error:
        return f"KnowledgeDrift: not reproduced, its public worlds are not here ({error})", []
    lines = [f"{'world':<12}{'arm':<10}{'score':>9}{'figures':>10}{'equal':>8}{'replay':>10}{'grading':>10}"]
    for run in runs:
        mine = [figure for figure in figures if (figure.world, figure.arm) == (run["world"], run["arm"])]
        lines.append(
            f"{run['world']:<12}{run['arm']:<10}{run['score']:>9.2f}{len(mine):>10}"
            f"{sum(figure.equal for figure in mine):>8}"
            f"{run['replay_s']:>8.1f} s{run['grade_s']:>8.2f} s"
        )
    lines.append(
        f"{sum(figure.equal for figure in figures)} of {len(figures)} figures come out: those of the published logs "
        "as printed, those of "
        "the independent re-implementation at ten digits, failed tasks by their ids"
    )
    wrong = [
        f"{f.world} {f.arm} {f.figure}: {f.source} has {f.published}, here {f.ours}" for f in figures if not f.equal
    ]
    return "\n".join(lines), wrong

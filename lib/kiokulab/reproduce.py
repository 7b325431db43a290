"""`make reproduce`: the published arithmetic, computed again from the published tables.

KiokuBench prints whole percents, an index and four pillars. Two readings of its table are tried:
- rounded: the printed percents are taken as they stand. This is how the page itself must have reckoned: a forget
  violation of 31 in 40 is 77.5 %, is printed as 78 %, and stands in the pillar as 22.0 and not as 22.5.
- counts: for each rate the whole counts that round to the printed percent, and what index and pillars these allow.
Any difference that rounding does not explain raises VerificationFailed (exit 6).
"""

from __future__ import annotations

import importlib
import itertools
import os
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import yaml

from kiokulab.errors import InputError, VerificationFailed

PUBLISHED = Path(__file__).resolve().parents[2] / "data" / "published"
SHARES = (
    "recall",
    "update_applied",
    "old_version_kept",
    "forget_violation",
    "noise",
    "language_mismatch",
    "check_questions",
)
SLACK = 1e-9


def published(name: str = "kiokubench") -> dict[str, Any]:
    """One benchmark's public tables (data/published/<name>.yml)."""
    path = PUBLISHED / f"{name}.yml"
    if not path.exists():
        raise InputError("the published tables are not there", str(path))
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rounds_to(k: int, n: int) -> int:
    """k of n in whole percents, halves upwards, as such tables are printed."""
    return int((Decimal(100 * k) / n).quantize(Decimal(1), ROUND_HALF_UP))


def fitting(percent: int, n: int) -> list[int]:
    """All k for which k of n is printed as `percent`."""
    return [k for k in range(n + 1) if rounds_to(k, n) == percent]


def denominators(dataset: dict[str, Any], language: str | None = None) -> dict[str, list[int]]:
    """The n of each metric that the page lets us know, as all that are possible: which two personas have 39 facts, and
    whether questions about forgotten facts are counted, is not said. Noise and mismatch count sentences: not known."""
    share = 1 if language is None else dataset["personas"][language] / sum(dataset["personas"].values())
    facts = (
        [dataset["facts"]]
        if language is None
        else [int(40 * dataset["personas"][language]) - less for less in (0, 1, 2)]
    )
    forgotten = round(dataset["forgotten"] * share)
    return {
        "recall": [n - forgotten for n in facts],
        "update_applied": [round(dataset["changed"] * share)],
        "old_version_kept": [round(dataset["changed"] * share)],
        "forget_violation": [forgotten],
        "check_questions": sorted({n - less for n in facts for less in (0, forgotten)}),
    }


def kioku(_shared: Path | None = None) -> tuple[str, list[str]]:
    """(table, differences) of KiokuBench: five rows, index and pillars, both readings; and English + Japanese =
    total."""
    tables = published()
    lines, wrong = [], []
    lines.append(f"{'':<18}{'page':>42}   {'from rounded rates':>42}   from whole counts (index)")
    names = ("index", "remember", "replace", "forget", "tidy")
    lines.append(f"{'System':<18}{_cells(names)}   {_cells(names)}")
    for row in tables["index"]:
        rates = next(r for r in tables["routes"] if r["system"] == row["system"] and r["route"] == row["route"])
        got = _figures(rates)
        for name in names:
            if abs(got[name] - row[name]) > 0.05 + SLACK:
                wrong.append(
                    f"kiokubench, {row['system']}, {name}: {got[name]:.2f} from the rounded rates, {row[name]} on the page"
                )
        span, faults = _from_counts(rates, row, tables["dataset"])
        wrong += faults
        lines.append(
            f"{row['system']:<18}{_cells([f'{row[n]:.1f}' for n in names])}   {_cells([f'{got[n]:.1f}' for n in names])}"
            f"   {span['index'][0]:.1f} to {span['index'][1]:.1f}"
        )
    faults, checked = _languages(tables)
    wrong += faults
    lines.append(
        f"By language: {checked} totals are the sum of an English and a Japanese count that fit their rounding"
        if not faults
        else f"By language: {len(faults)} of {checked} totals do not fit"
    )
    lines.append(
        "Where the two readings differ, the page reckoned from its rounded percents: 31 in 40 is printed as 78 %."
    )
    return "\n".join(lines), wrong


def _cells(values) -> str:
    return "".join(f"{value:>{w}}" for value, w in zip(values, (6, 10, 9, 8, 9)))


def _figures(rates: dict[str, Any]) -> dict[str, float]:
    from kiokulab.kioku.analyze import index_of

    got = index_of({**{name: rates[name] / 100 for name in SHARES}, "compression": rates["compression"]})
    return {name: float(value) * (1 if name == "index" else 100) for name, value in got.items()}


def _from_counts(rates: dict[str, Any], row: dict[str, Any], dataset: dict[str, Any]):
    """Lowest and highest index and pillars over all whole counts that fit; and what does not fit at all.

    Each pillar falls or rises with each rate, so the ends are reached at the ends of the rates. The page's figure may
    lie outside by as much as printing whole percents moves it (half a point a rate), and by no more.
    """
    wrong, ends = [], {}
    for name in SHARES:
        ns = denominators(dataset).get(name)
        if ns is None:  # sentences: their number is not published
            ends[name] = [max(rates[name] - 0.5, 0), min(rates[name] + 0.5, 100)]
            continue
        found = [100 * k / n for n in ns for k in fitting(rates[name], n)]
        if not found:
            wrong.append(
                f"kiokubench, {row['system']}, {name}: no whole count of {' or '.join(map(str, ns))} is printed as {rates[name]} %"
            )
            found = [rates[name]]
        ends[name] = [min(found), max(found)]
    ends["compression"] = [rates["compression"] - 0.005, rates["compression"] + 0.005]
    reach = {n: [min(max(rates[n] + half, 0), 100) for half in (-0.5, 0.5)] for n in SHARES} | {
        "compression": ends["compression"]
    }
    low, high = (_figures(_end(ends, side)) for side in ("worse", "better"))
    lowest, highest = (_figures(_end(reach, side)) for side in ("worse", "better"))
    for name in low:
        if not (lowest[name] - SLACK <= low[name] <= high[name] <= highest[name] + SLACK):
            wrong.append(
                f"kiokubench, {row['system']}, {name}: whole counts give {low[name]:.2f} to {high[name]:.2f}, "
                f"further from the page's {row[name]} than rounding goes"
            )
        if not lowest[name] - 0.05 - SLACK <= row[name] <= highest[name] + 0.05 + SLACK:
            wrong.append(
                f"kiokubench, {row['system']}, {name}: {row[name]} on the page; the rates allow {lowest[name]:.2f} to {highest[name]:.2f}"
            )
    return {name: (low[name], high[name]) for name in low}, wrong


def _end(ends: dict[str, list[float]], side: str) -> dict[str, float]:
    from kiokulab.kioku.analyze import HIGHER

    return {name: pair[(name in HIGHER) == (side == "better")] for name, pair in ends.items()}


def _languages(tables: dict[str, Any]) -> tuple[list[str], int]:
    """Whether each total is the sum of two counts that fit the printed percents of the two languages."""
    wrong, checked = [], 0
    known = {lang: denominators(tables["dataset"], lang) for lang in ("en", "ja")}
    for en in (r for r in tables["languages"] if r["language"] == "en"):

        def same(r, en=en):
            return (r["system"], r["route"], r.get("footnote")) == (en["system"], en["route"], en.get("footnote"))

        ja = next(r for r in tables["languages"] if r["language"] == "ja" and same(r))
        total = next(r for r in tables["routes"] if same(r))
        for name, whole in denominators(tables["dataset"]).items():
            checked += 1
            sums = (
                (a + b, n + m)
                for n, m in itertools.product(known["en"][name], known["ja"][name])
                if n + m in whole
                for a in fitting(en[name], n)
                for b in fitting(ja[name], m)
            )
            if not any(rounds_to(k, n) == total[name] for k, n in sums):
                wrong.append(
                    f"kiokubench, {en['system']} {en.get('footnote', '')} on {en['route']}, {name}: "
                    f"{en[name]} % English and {ja[name]} % Japanese do not make {total[name]} %"
                )
    return wrong, checked


# track -> "module:function"; the function takes the folder of public data and gives (table, differences). A track whose
# figures need data that is not part of this repository raises InputError where it is not there.
PARTS = {
    "kioku": "kiokulab.reproduce:kioku",
    "drift": "kiokulab.drift.reproduce:drift",
    "emem": "kiokulab.emem.reproduce:part",
    "verdict": "kiokulab.verdict.reproduce:part",
}


def shared_folder() -> Path:
    """Where public data lies that is read and never committed: $KIOKULAB_SHARED, else `shared` beside the checkout."""
    return Path(os.environ.get("KIOKULAB_SHARED") or PUBLISHED.parents[2] / "shared")


def _part(track: str) -> tuple[str, list[str]]:
    module, _, name = PARTS[track].partition(":")
    return getattr(importlib.import_module(module), name)(shared_folder())


def reproduce(track: str = "all") -> str:
    """The table of one track's published arithmetic, or of all ('all'); printed and returned.

    Raises VerificationFailed naming each figure that differs by more than rounding; InputError for an unknown track, or
    for a named track whose public data is not here (with 'all' that track says so, and nothing is claimed of it).
    """
    chosen = list(PARTS) if track == "all" else [track]
    if set(chosen) - set(PARTS):
        raise InputError(
            f"there is nothing published to reproduce for track {track!r}",
            "parameter track",
            f"Known: all, {', '.join(PARTS)}",
        )
    parts = {}
    for name in chosen:
        try:
            parts[name] = _part(name)
        except InputError as error:
            if track != "all":
                raise
            parts[name] = (f"not reproduced: {error}", [])
    text = "\n\n".join(f"{name}\n{table}" for name, (table, _) in parts.items())
    print(text)
    wrong = [difference for _, differences in parts.values() for difference in differences]
    if wrong:
        raise VerificationFailed(wrong)
    return text

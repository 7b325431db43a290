"""Several systems on the same edition: which differences are more than chance, and whether the harness itself is sound.

The result is comparison.json beside metrics.json. It is a file of its own because it depends on which other runs stood
beside this one, while metrics.json depends on this run alone and can be derived from it again at any time.

comparison.json: systems [{label, system, run, mine}]; refused [what the oracle fell short of; then no table is shown];
checked (whether an oracle was there at all); left_out [{run, reason}]; by_route {route: {systems, pairs, metrics {name:
{items, cochran, pairs [{a, b, only_a, only_b, both, neither, p, holm, verdict}]}}, index [{a, b, difference, low, high,
apart}], ranks {system: {low, high, like_leader}}}}; judges (where another judge has read the same store): see
judges.compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from kiokulab import stats
from kiokulab.kioku import analyze

ITEMISED = ("recall", "update_applied", "old_version_kept", "forget_violation", "check_questions")
ORACLE_QUESTIONS = 0.97


@dataclass
class Run:
    """One judged run: its name, the id of its folder, metrics.json as a dict, and its units."""

    system: str
    id: str
    metrics: Mapping[str, Any]
    units: Sequence[analyze.Unit]
    label: str = ""


def labelled(runs: Sequence[Run]) -> list[Run]:
    """The runs with the names that tables use: the system's, and the run's id too where a system stands there twice."""
    twice = {run.system for run in runs if sum(r.system == run.system for r in runs) > 1}
    return [replace(run, label=f"{run.system} ({run.id})" if run.system in twice else run.system) for run in runs]


def oracle_faults(metrics: Mapping[str, Any]) -> list[str]:
    """What the oracle fell short of, in words; empty where the harness is sound. Where it falls short, the harness is
    broken and not the systems, so no table may be shown."""
    faults = []
    for route, part in metrics["by_route"].items():
        figure = part["metrics"]

        def fault(name: str, wrong: bool, must: str) -> None:
            f = figure[name]
            if f["rate"] is not None and wrong:
                shown = f"{f['rate']:.2f}" if name == "compression" else f"{100 * f['rate']:.1f} % ({f['k']}/{f['n']})"
                faults.append(f"{name} is {shown} on route {route}; it must be {must}")

        fault("recall", figure["recall"]["k"] < figure["recall"]["n"], "100 %")
        fault("update_applied", figure["update_applied"]["k"] < figure["update_applied"]["n"], "100 %")
        for name in ("old_version_kept", "forget_violation", "noise"):
            fault(name, figure[name]["k"] > 0, "0 %")
        ratio = figure["compression"]["rate"]
        fault("compression", ratio is not None and f"{ratio:.2f}" != "1.00", "1.00")
        share = figure["check_questions"]["rate"]
        fault("check_questions", share is not None and share < ORACLE_QUESTIONS, f"at least {ORACLE_QUESTIONS:.0%}")
        # an oracle that was not judged at all proves nothing
        for name in ("recall", "noise", "check_questions"):
            if figure[name]["rate"] is None:
                faults.append(f"{name} was not measured on route {route} ({figure[name]['reason']})")
    if metrics["units"]["failed"]:
        faults.append(f"{len(metrics['units']['failed'])} of its units failed")
    return faults


def comparison(
    runs: Sequence[Run], *, seed: int, resamples: int, floor: float, left_out: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """comparison.json of some runs of one edition; the first is the run that it is written for."""
    runs = labelled(runs)
    refused = [
        f"oracle ({run.id}): {fault}" for run in runs if run.system == "oracle" for fault in oracle_faults(run.metrics)
    ]
    routes = dict.fromkeys(route for run in runs for route in run.metrics["by_route"])
    by_route = {}
    for route in (r for r in routes if r in runs[0].metrics["by_route"]):
        there = {run.label: [u for u in run.units if u.route == route] for run in runs}
        there = {label: units for label, units in there.items() if units}
        by_route[route] = _route(there, seed=seed, resamples=resamples, floor=floor)
    return analyze.rounded(
        {
            "systems": [
                {"label": run.label, "system": run.system, "run": run.id, "mine": i == 0} for i, run in enumerate(runs)
            ],
            "checked": any(run.system == "oracle" for run in runs),
            "refused": refused,
            "left_out": list(left_out),
            "by_route": by_route,
        }
    )


def _route(there: Mapping[str, Sequence[analyze.Unit]], *, seed: int, resamples: int, floor: float) -> dict[str, Any]:
    pairs = list(combinations(there, 2))
    result: dict[str, Any] = {"systems": list(there), "pairs": len(pairs), "metrics": {}, "index": [], "ranks": {}}
    if not pairs:
        return result
    for name in ITEMISED:
        hits = {label: _hits(units, name) for label, units in there.items()}
        result["metrics"][name] = _metric(hits, pairs)
    result["index"], result["ranks"] = _index(there, pairs, seed=seed, resamples=resamples, floor=floor)
    return result


def _hits(units: Sequence[analyze.Unit], name: str) -> dict[tuple[str, str], bool]:
    """Right or wrong of each judged item (a kept old version is wrong)."""
    return {
        (u.persona.id, fact): hit if name in analyze.HIGHER else not hit
        for u in units
        for metric, fact, hit in u.items("page")
        if metric == name and hit is not None
    }


def _metric(hits: Mapping[str, Mapping], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Cochran's Q over the items that were judged for all, and exact McNemar for each pair over what both share."""
    shared = sorted(set.intersection(*[set(h) for h in hits.values()]))
    table = [[hits[label][item] for label in hits] for item in shared]
    rows = []
    for a, b in pairs:
        items = sorted(set(hits[a]) & set(hits[b]))
        got = stats.mcnemar([hits[a][i] for i in items], [hits[b][i] for i in items])
        rows.append(
            {
                "a": a,
                "b": b,
                "only_a": got.b,
                "only_b": got.c,
                "both": got.both,
                "neither": got.neither,
                "p": got.p,
                "verdict": got.verdict if items else "nothing in common",
            }
        )
    for row, adjusted in zip(rows, stats.holm([row["p"] for row in rows])):
        row["holm"] = adjusted
    return {"items": len(shared), "cochran": stats.cochran(table) if table else None, "pairs": rows}


def _index(there: Mapping[str, Sequence[analyze.Unit]], pairs, *, seed: int, resamples: int, floor: float):
    """Differences of the index by the paired cluster bootstrap: one draw of personas serves all systems."""
    by_persona = {label: {u.persona.id: u for u in units} for label, units in there.items()}
    personas = [p for p in next(iter(by_persona.values())) if all(p in units for units in by_persona.values())]
    if not personas:
        return [], {}
    totals = {label: analyze.Totals([units[p] for p in personas], "page") for label, units in by_persona.items()}

    def index(label: str, weights: np.ndarray) -> np.ndarray:
        return analyze.index_of(totals[label].rates(weights), floor)["index"]

    strata = next(iter(totals.values())).strata
    differences = []
    for a, b in pairs:
        got = stats.bootstrap(
            lambda w: index(a, w) - index(b, w), len(personas), strata=strata, seed=seed, resamples=resamples
        )
        apart = None if got.low is None else got.low > 0 or got.high < 0
        differences.append({"a": a, "b": b, "difference": got.value, "low": got.low, "high": got.high, "apart": apart})
    ranks: dict[str, Any] = {}
    if resamples and stats.resamplable(strata):
        weights = stats.resamples_of(strata, resamples, seed)
        draws = {label: index(label, weights) for label in totals}
        ranked = [label for label in draws if not np.isnan(draws[label]).any()]
        if len(ranked) > 1:
            got = stats.ranks(np.stack([draws[label] for label in ranked], axis=1))
            ranks = {
                label: {
                    "low": int(got["low"][i]),
                    "high": int(got["high"][i]),
                    "like_leader": bool(got["like_leader"][i]),
                }
                for i, label in enumerate(ranked)
            }
    return differences, ranks

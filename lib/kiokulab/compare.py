"""All finished runs side by side: which may share a table, who leads, and which differences are more than chance.

`collect` reads every run under outputs/ and decides where it may stand; `compare` gives one plain JSON structure;
`html`, `picture` and `frame` show it. The same runs give the same bytes: nothing here looks at a clock, and times are
those that the receipts hold.

The structure
-------------
tables    [{id, track, edition, route, title, refused [why no table is shown], conditions {name: value} that all rows
          share, headline {title, scale}, rows [row], pairs {metric: [pair]}, differences [pair of the headline], ranks
          {system: {low, high, shares [chance of rank 1, 2, ...], like_leader}}, groups [[systems that cannot be told
          apart]], published}]
left_out  [{run, reason}]: every run that stands in no table
A row: label, system, version, run, folder, anchor, headline {value, low, high, note}, parts [{name, value 0..1,
shown}], figures [{name, title, better, value, low, high, k, n, not_judged, shown, counted}], judge, units, cost, time,
own (what only it has).

Two runs share a table only where everything that decides a figure is alike, the memory system and its settings
excepted. Of the sets of runs that are alike among themselves, each with two systems or more gets a table; a single run
is left out and told why.
"""

from __future__ import annotations

import importlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from kiokulab import stats
from kiokulab.errors import InputError, VerificationFailed
from kiokulab.files import dumps, read_jsonl, sha256_file, write_atomic
from kiokulab.page import plain
from kiokulab.receipts import Receipt, read_proof, read_receipt

TRACKS = ("kioku", "drift", "emem", "verdict")
QUESTIONS = {
    "kioku": "does the store hold what is true, and nothing that is old, forgotten or noise?",
    "drift": "how does a memory behave when facts are revised, contradicted, forgotten, asked why?",
    "emem": "how does a running responder do on four axes, over its real API?",
    "verdict": "does an agent with this memory answer right, at what cost and delay?",
}
# parameters that decide a run but may differ inside a table: they are the thing compared, or do not move a figure's
# value
FREE = {
    "track",
    "edition",
    "system",
    "settings",
    "seed",
    "bootstrap",
    "judge_set_pairs",
    "route",
    "model",
    "endpoint",
    "transcript",
    "url",
    "tools",
    "pinned_key",
    "timeout_s",
    "dataset",
    "data",
    "script",
    "official_repo",
    "calls_in_flight",
    "label",
    "isolation",
    "internal_model",
}
READ = ("dataset.jsonl", "metrics.json", "judgements.jsonl", "events.jsonl", "contexts.jsonl")
ROUTES = {"raw": "raw conversation", "requests": "requests", "signaled": "change signaled", "": ""}


@dataclass(frozen=True)
class Run:
    """One finished run as it lies on the disk. `place` is its folder under the root that was asked; `folder` is where
    its files are: the same, or, for a published archive, where that was taken apart."""

    folder: Path
    receipt: Receipt
    metrics: Mapping[str, Any]
    rules: int
    place: str = ""

    @property
    def name(self) -> str:
        """'kioku/v0.1/vector/0123456789ab', wherever the folder lies."""
        r = self.receipt
        return f"{r.track}/{r.edition}/{r.system}/{r.run}"

    @property
    def plumbing(self) -> bool:
        return self.receipt.cost.plumbing or bool(self.metrics.get("plumbing"))


@dataclass
class View:
    """What a track's figures are to a comparison, for one run on one route."""

    headline: dict[str, Any]  # value, low, high, note
    parts: list[dict[str, Any]]
    figures: list[dict[str, Any]]
    items: dict[str, dict[str, bool]]  # metric -> item -> right
    strata: dict[str, str]  # cluster -> stratum, in order
    statistic: Callable[[Sequence[str]], Callable[[np.ndarray], np.ndarray]]  # clusters -> (weights -> headline)
    units: str = ""
    refused: list[str] = field(default_factory=list)


# --- which runs there are -----------------------------------------------------------------------------------------


def collect(root: str | Path) -> tuple[list[Run], list[dict[str, str]]]:
    """(runs that can be compared, [{run, reason}] of the others) of everything under `root`, in order of name.

    A run that is there twice, once of them published, counts once. A run whose files are not what its receipt says is
    left out: a figure that cannot be traced is no figure.
    """
    from kiokulab.site import opened

    runs: dict[str, Run] = {}
    left_out: dict[str, str] = {}
    places = sorted(Path(root).rglob("receipt.json"), key=lambda p: ("published" in p.relative_to(root).parts, str(p)))
    for path in places:
        folder, receipt = path.parent, read_receipt(path.parent)
        shown = folder.relative_to(root).as_posix()
        if receipt is None:
            left_out[shown] = "its receipt.json cannot be read"
            continue
        name = f"{receipt.track}/{receipt.edition}/{receipt.system}/{receipt.run}"
        if name in runs:
            continue
        try:
            folder = opened(folder)
            reason = _unfit(folder, receipt)
        except VerificationFailed as error:
            reason = str(error)
        if reason is None:
            metrics = json.loads((folder / "metrics.json").read_bytes())
            proof = read_proof(folder, receipt.steps[-1].step)
            runs[name] = Run(folder, receipt, metrics, proof.rules_version if proof else 0, shown)
            left_out.pop(name, None)
        else:
            left_out[name] = reason
    return [runs[name] for name in sorted(runs)], [
        {"run": name, "reason": left_out[name]} for name in sorted(left_out) if name not in runs
    ]


def _unfit(folder: Path, receipt: Receipt) -> str | None:
    if receipt.track not in TRACKS:
        return f"the comparison knows no figures of track {receipt.track!r}"
    if receipt.status not in ("finished", "units_failed"):
        return f"it is not finished ({receipt.status}: {receipt.reason})"
    written = {path: sha for step in receipt.steps for path, sha in step.outputs.items()}
    for name in READ:
        if name in written and (not (folder / name).is_file() or sha256_file(folder / name) != written[name]):
            return f"{name} is not what its receipt says; make verify names the place"
    return None if "metrics.json" in written else "it has no metrics.json"


# --- who may stand beside whom ------------------------------------------------------------------------------------


def conditions(run: Run) -> dict[str, str]:
    """Everything that must be alike for two runs of a track to share a table, as words."""
    r = run.receipt
    judge = r.judge or {}
    written = {path: sha for step in r.steps for path, sha in step.outputs.items()}
    found = {
        "edition": f"{r.edition} {r.edition_digest[:12]}",
        "dataset": _dataset(run, written),
        "rules of the track": f"version {run.rules}",
        "judge and version": f"{judge.get('name')} {str(judge.get('version'))[:12]}"
        if judge.get("name")
        else "arithmetic",
        "prompts": _prompts(run),
        "what fed the systems": "the built-in model (plumbing)" if run.plumbing else "results",
    }
    free = FREE | ({"embedder"} if r.track in ("drift", "emem") else set())
    return found | {name: _said(value) for name, value in sorted(r.parameters.items()) if name not in free}


def _dataset(run: Run, written: Mapping[str, str]) -> str:
    """Digest of what was asked. The verdict track's dataset.jsonl also says how its system is isolated, so there it is
    the digests of the file and of the sample."""
    own = run.metrics.get("conditions")
    if isinstance(own, Mapping) and own.get("sample_digest"):
        return f"{str(own.get('data_sha256'))[:12]}, sample {str(own['sample_digest'])[:12]}"
    return written.get("dataset.jsonl", "none")[:12]


def _prompts(run: Run) -> str:
    from kiokulab.files import digest

    own = (
        run.metrics.get("conditions", {}).get("prompts") if isinstance(run.metrics.get("conditions"), Mapping) else None
    )
    if own:
        return str(own)[:12]
    return digest(run.receipt.cost.prompts)[:12] if run.receipt.cost.prompts else "none (no model is asked)"


def _said(value: Any) -> str:
    return (
        "none" if value in ("", None, [], {}) else str(value) if not isinstance(value, (dict, list)) else dumps(value)
    )


def sets(runs: Sequence[Run]) -> tuple[list[list[Run]], list[dict[str, str]]]:
    """(sets of runs that may share a table, runs left out and why). Plumbing and older rules never make a table."""
    alike: dict[tuple, list[Run]] = defaultdict(list)
    left_out = []
    newest = {t: max((r.rules for r in runs if r.receipt.track == t), default=0) for t in TRACKS}
    for run in runs:
        if run.plumbing:
            left_out.append(
                {
                    "run": run.name,
                    "reason": "plumbing: its system was fed by the built-in model, so its figures are no result",
                }
            )
        elif run.rules < newest[run.receipt.track]:
            left_out.append(
                {
                    "run": run.name,
                    "reason": f"made under version {run.rules} of the track's rules; the table is under version {newest[run.receipt.track]}",
                }
            )
        else:
            alike[run.receipt.track, tuple(sorted(conditions(run).items()))].append(run)
    # tables of several systems first: a run that stands alone is held against them
    groups = sorted(
        alike.values(),
        key=lambda g: (
            TRACKS.index(g[0].receipt.track),
            len({r.receipt.system for r in g}) == 1,
            g[0].receipt.edition,
            -len({r.receipt.system for r in g}),
            g[0].name,
        ),
    )
    result: list[list[Run]] = []
    for group in groups:
        same = [g for g in result if g[0].receipt.track == group[0].receipt.track]
        if len({r.receipt.system for r in group}) > 1 or not same:
            result.append(group)
        else:
            near = min(same, key=lambda g: len(differing(g[0], group[0])))
            left_out += [
                {
                    "run": run.name,
                    "reason": "alone under its conditions; the nearest table differs in " + _difference(near[0], run),
                }
                for run in group
            ]
    return result, left_out


def differing(first: Run, second: Run) -> list[str]:
    """Names of the conditions in which two runs differ."""
    a, b = conditions(first), conditions(second)
    return [name for name in {**a, **b} if a.get(name) != b.get(name)]


def _difference(table: Run, run: Run) -> str:
    a, b = conditions(table), conditions(run)
    return ", ".join(
        f"{name} ({b.get(name, 'not recorded')} here, {a.get(name, 'not recorded')} there)"
        for name in differing(table, run)
    )


# --- what each track's figures are --------------------------------------------------------------------------------


def _figure(name: str, title: str, better: str, f: Mapping[str, Any], shown: str, counted: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "better": better,
        "value": f.get("rate"),
        "low": f.get("low"),
        "high": f.get("high"),
        "k": f.get("k"),
        "n": f.get("n"),
        "not_judged": f.get("not_judged", 0),
        "shown": shown,
        "counted": plain(counted, 200),
    }


def _rate(name: str, title: str, f: Mapping[str, Any], better: str = "higher") -> dict[str, Any]:
    shown = "n/a" if f.get("rate") is None else f"{100 * f['rate']:.1f} %"
    if f.get("rate") is None:
        counted = f.get("reason") or "nothing to count"
    else:
        counted = f"{f['k']}/{f['n']}, {100 * f['low']:.1f} to {100 * f['high']:.1f}" + (
            f"; {f['not_judged']} not judged" if f.get("not_judged") else ""
        )
    return _figure(name, title, better, f, shown, counted)


def _kioku(run: Run, route: str) -> View:
    from kiokulab.kioku import analyze
    from kiokulab.kioku.compare import ITEMISED, oracle_faults

    rows, personas, _, _ = analyze.load(run.folder)
    units = {u.persona.id: u for u in analyze.units_of(rows, personas) if u.route == route}
    part, floor = run.metrics["by_route"][route], run.receipt.parameters["floor"]
    items: dict[str, dict[str, bool]] = {name: {} for name in ITEMISED}
    for unit in units.values():
        for name, fact, hit in unit.items("page"):
            if hit is not None:
                items[name][f"{unit.persona.id}/{fact}"] = hit if name in analyze.HIGHER else not hit

    def statistic(clusters: Sequence[str]) -> Callable[[np.ndarray], np.ndarray]:
        totals = analyze.Totals([units[c] for c in clusters], "page")
        return lambda weights: analyze.index_of(totals.rates(weights), floor)["index"]

    index = part["index"]
    note = "nothing is stored: the formula gives that about 31.6" if index["empty_store"] else index["reason"]
    better = {
        name: "higher" if name in analyze.HIGHER else "near 1" if name == "compression" else "lower"
        for name in analyze.METRICS
    }
    figures = [
        _figure(n, analyze.TITLES[n], better[n], f, analyze.shown(n, f), analyze.counted(n, f))
        for n in analyze.METRICS
        for f in [part["metrics"][n]]
    ]
    units_said = run.metrics["units"]
    return View(
        {"value": index["value"], "low": index["low"], "high": index["high"], "note": note},
        [_part(name, part["pillars"][name]) for name in analyze.PILLARS],
        figures,
        items,
        {p: u.persona.language for p, u in units.items()},
        statistic,
        f"{units_said['finished']}/{units_said['planned']}",
        oracle_faults(run.metrics) if run.receipt.system == "oracle" else [],
    )


def _part(name: str, value: float | None) -> dict[str, Any]:
    return {"name": name, "value": value, "shown": "n/a" if value is None else f"{100 * value:.1f}"}


def _drift(run: Run, route: str) -> View:
    from kiokulab.drift import analyze

    graded, m = analyze.load(run.folder), run.metrics
    counts = analyze._Subjects(graded.receipts, graded.tasks)
    names = [f"{t['unit']}/{t['id']}" for t in graded.tasks]
    subjects = sorted({(task["unit"], task["subject"]) for task in graded.tasks})
    score = m["intervals"]["score"]
    figures = [
        _rate("success", "Success", m["metrics"]["success"]),
        *[_rate(n, analyze.TITLES[n], m["metrics"][n]) for n in analyze.SHOWN if n in m["metrics"]],
    ]
    parts = [
        _part("scenarios (of 800)", m["family_points"] / 800),
        _part("signal (of 100)", m["signal_score"] / 100),
        _part("tokens (of 100)", m["token_score"] / 100),
    ]
    note = f"a memory that answers nothing scores {m['mute_score']}" + (
        "; " + "; ".join(m["flags"]) if m["flags"] else ""
    )
    return View(
        {"value": m["score"], "low": score["low"], "high": score["high"], "note": note},
        parts,
        figures,
        {"success": {n: t["passed"] is True for n, t in zip(names, graded.tasks)}},
        {f"{u}/{s}": u for u, s in subjects},
        lambda clusters: lambda weights: counts.figures(np.asarray(weights, float))["score"],
        f"{m['units']['finished']}/{m['units']['planned']}",
        analyze.refused(run.folder) if run.receipt.system == "oracle" else [],
    )


def _emem(run: Run, route: str) -> View:
    from kiokulab.emem.judge import AXES
    from kiokulab.emem.report import TITLES

    m = run.metrics
    verdicts = read_jsonl(run.folder / "judgements.jsonl")
    rights = {f"{v['axis']}/{v['id']}": bool(v["correct"]) for v in verdicts}
    once = {
        name: right
        for name, right in rights.items()
        if name.split("/")[0] in ("retrieval_accuracy", "test_time_learning")
    }
    unique, card = m["unique"], m["scorecard"]
    figures = [_rate(axis, TITLES[axis], m["intervals"][axis]) for axis in AXES]
    note = f"the original's topline, which counts long-range items twice: {card['longmemeval_topline']:.4f}; read path {m['read_path']}"
    return View(
        {
            "value": None if unique["rate"] is None else 100 * unique["rate"],
            "low": None if unique["low"] is None else 100 * unique["low"],
            "high": None if unique["high"] is None else 100 * unique["high"],
            "note": note,
        },
        [_part(f["title"], f["value"]) for f in figures],
        figures,
        {"each item once": once},
        dict.fromkeys(once, "all"),
        _share(once),
        "1/1",
    )


def _verdict(run: Run, route: str) -> View:
    m = run.metrics
    rows = [row for row in read_jsonl(run.folder / "judgements.jsonl") if row["kind"] == "answer"]
    judged = {row["id"]: row["verdict"] == "right" for row in rows if row["verdict"] != "not_judged"}
    overall, by_type = m["accuracy"]["overall"], m["accuracy"]["by_type"]
    average = m["accuracy"]["task_averaged"]
    figures = [
        _rate("overall", "Overall", overall),
        *[_rate(kind, kind, f) for kind, f in by_type.items()],
        _rate("abstention", "abstention", m["accuracy"]["abstention"]),
    ]
    note = f"{len(m['missing'])} without an answer, counted as wrong; " + (
        "no type average"
        if average["value"] is None
        else f"mean of the {average['types']} types {100 * average['value']:.1f} %"
    )
    of_type = {row["id"]: row["type"] for row in rows}
    scaled = {key: None if overall[key] is None else 100 * overall[key] for key in ("rate", "low", "high")}
    return View(
        {"value": scaled["rate"], "low": scaled["low"], "high": scaled["high"], "note": note},
        [_part(kind, f["rate"]) for kind, f in by_type.items()],
        figures,
        {"overall": judged},
        {name: of_type[name] for name in judged},
        _share(judged),
        f"{len(rows)}/{m['conditions']['n']}",
    )


def _share(right: Mapping[str, bool]) -> Callable[[Sequence[str]], Callable[[np.ndarray], np.ndarray]]:
    def statistic(clusters: Sequence[str]) -> Callable[[np.ndarray], np.ndarray]:
        values = np.array([right[c] for c in clusters], float)
        return lambda weights: 100 * (np.asarray(weights, float) @ values) / np.asarray(weights, float).sum(axis=1)

    return statistic


VIEWS: dict[str, Callable[[Run, str], View]] = {"kioku": _kioku, "drift": _drift, "emem": _emem, "verdict": _verdict}
HEADLINES = {
    "kioku": {"title": "Index", "scale": 100},
    "drift": {"title": "Score", "scale": 1000},
    "emem": {"title": "Each item once, %", "scale": 100},
    "verdict": {"title": "Accuracy, %", "scale": 100},
}
CLUSTERS = {"kioku": "personas", "drift": "subjects", "emem": "items", "verdict": "questions"}


# --- one table ----------------------------------------------------------------------------------------------------


def compare(root: str | Path, *, seed: int = 1, resamples: int = 2000) -> dict[str, Any]:
    """The comparison of all runs under `root` (fields: this module's docstring). Raises InputError where there is no
    run."""
    runs, left_out = collect(root)
    if not runs and not left_out:
        raise InputError("there is no run yet", str(root), "Make some first, for example make kioku")
    groups, more = sets(runs)
    tables = []
    for group in groups:
        routes = list(dict.fromkeys(route for run in group for route in _routes(run)))
        for route in routes:
            tables.append(
                _table([run for run in group if route in _routes(run)], route, seed=seed, resamples=resamples)
            )
    names: dict[str, int] = {}
    for table in tables:
        names[table["id"]] = names.get(table["id"], 0) + 1
        if names[table["id"]] > 1:
            table["id"] += f"-{names[table['id']]}"
    _tell_apart(tables)
    return {"tables": tables, "left_out": sorted([*left_out, *more], key=lambda row: row["run"])}


def _tell_apart(tables: Sequence[dict[str, Any]]) -> None:
    """Tables of one title get what differs between them into it: 'kioku · v0.1 · requests · personas 2'."""
    for title in {table["title"] for table in tables}:
        alike = [table for table in tables if table["title"] == title]
        names = [name for name in alike[0]["conditions"] if len({table["conditions"].get(name) for table in alike}) > 1]
        names = [
            name for name in names if name not in ("dataset", "edition")
        ] or names  # digests only where there is nothing plainer
        for table in alike if len(alike) > 1 else ():
            said = [f"{name.replace('_', ' ')} {table['conditions'].get(name, 'not recorded')}" for name in names]
            table["title"] += " · " + ", ".join("all personas" if words == "personas 0" else words for words in said)


def _routes(run: Run) -> list[str]:
    return list(run.metrics["by_route"]) if run.receipt.track == "kioku" else [""]


def labels(runs: Sequence[Run]) -> list[str]:
    """The system's name, and the run's id too where a system stands there twice."""
    names = [run.receipt.system for run in runs]
    return [
        f"{run.receipt.system} ({run.receipt.run[:6]})" if names.count(run.receipt.system) > 1 else run.receipt.system
        for run in runs
    ]


def _table(runs: Sequence[Run], route: str, *, seed: int, resamples: int) -> dict[str, Any]:
    track, first = runs[0].receipt.track, runs[0].receipt
    anchors = importlib.import_module(f"kiokulab.{track}").ANCHORS
    views = {label: VIEWS[track](run, route) for label, run in zip(labels(runs), runs)}
    rows = []
    for (label, view), run in zip(views.items(), runs):
        receipt = run.receipt
        rows.append(
            {
                "label": label,
                "system": receipt.system,
                "version": str((receipt.versions.system if receipt.versions else {}).get("version") or ""),
                "run": run.name,
                "folder": run.place,
                "anchor": receipt.system in anchors,
                "headline": view.headline,
                "parts": view.parts,
                "figures": view.figures,
                "judge": _judge(receipt),
                "units": view.units,
                "failed": receipt.reason if receipt.status != "finished" else None,
                "cost": _cost(receipt),
                "time": _time(run),
                "own": own(run),
            }
        )
    rows.sort(
        key=lambda row: (
            -(row["headline"]["value"] if row["headline"]["value"] is not None else -math.inf),
            row["label"],
        )
    )
    order = [row["label"] for row in rows]
    pairs = list(combinations(order, 2))
    differences, ranks = _headline({label: views[label] for label in order}, pairs, seed=seed, resamples=resamples)
    from kiokulab.verdict.analyze import groups

    alike = {label: {label} for label in order}
    for d in differences:
        if not d["apart"]:
            alike[d["a"]].add(d["b"])
            alike[d["b"]].add(d["a"])
    shared = dict(conditions(runs[0]))
    return rounded(
        {
            "id": "-".join(x for x in (track, _slug(first.edition), route) if x),
            "track": track,
            "edition": first.edition,
            "route": route,
            "title": f"{track} · {first.edition}" + (f" · {ROUTES.get(route, route)}" if route else ""),
            "refused": [f"{label}: {fault}" for label, view in views.items() for fault in view.refused],
            "conditions": shared,
            "headline": HEADLINES[track],
            "clusters": CLUSTERS[track],
            "rows": rows,
            "pairs": _pairs({label: views[label] for label in order}, pairs),
            "differences": differences,
            "ranks": ranks,
            "groups": groups(alike, order) if differences else [],
            "published": published(track, route, runs),
        }
    )


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "-" for c in text)[:40]


def _pairs(views: Mapping[str, View], pairs: Sequence[tuple[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Exact McNemar of each metric for each pair, on the items that both were judged on; Holm over the pairs of a
    metric."""
    result = {}
    for name in next(iter(views.values())).items:
        rows = []
        for a, b in pairs:
            first, second = views[a].items.get(name, {}), views[b].items.get(name, {})
            shared = sorted(set(first) & set(second))
            got = stats.mcnemar([first[i] for i in shared], [second[i] for i in shared])
            rows.append(
                {
                    "a": a,
                    "b": b,
                    "items": len(shared),
                    "only_a": got.b,
                    "only_b": got.c,
                    "p": got.p,
                    "verdict": got.verdict if shared else "nothing in common",
                }
            )
        for row, adjusted in zip(rows, stats.holm([row["p"] for row in rows])):
            row["holm"] = adjusted
        result[name] = rows
    return result


def _headline(
    views: Mapping[str, View], pairs: Sequence[tuple[str, str]], *, seed: int, resamples: int
) -> tuple[list[dict], dict[str, Any]]:
    """Paired bootstrap of the headline over shared clusters: one draw serves all systems. Where a run lacks clusters of
    the others (a unit failed), all are compared on what they share; a track whose figure needs whole worlds compares no
    such run."""
    every = [list(view.strata) for view in views.values()]
    shared = [c for c in every[0] if all(c in view.strata for view in views.values())] if every else []
    strata = [next(iter(views.values())).strata[c] for c in shared]
    if len(views) < 2 or not shared:
        return [], {}
    usable = {label: view for label, view in views.items() if view.headline["value"] is not None}
    whole = np.ones((1, len(shared)))
    drawn = resamples if stats.resamplable(strata) else 0
    weights = np.vstack([whole, stats.resamples_of(strata, drawn, seed)]) if drawn else whole
    draws = {}
    for label, view in usable.items():
        try:
            draws[label] = np.asarray(view.statistic(shared)(weights), float)
        except ValueError:  # its clusters are not the shared ones
            continue
    differences = []
    for a, b in pairs:
        if a not in draws or b not in draws:
            differences.append({"a": a, "b": b, "difference": None, "low": None, "high": None, "apart": None})
            continue
        gap = draws[a] - draws[b]
        low, high = (float(q) for q in np.nanquantile(gap[1:], (0.025, 0.975))) if drawn else (None, None)
        differences.append(
            {
                "a": a,
                "b": b,
                "difference": float(gap[0]),
                "low": low,
                "high": high,
                "apart": None if low is None else low > 0 or high < 0,
            }
        )
    ranks: dict[str, Any] = {}
    names = [label for label, values in draws.items() if not np.isnan(values).any()]
    if drawn and len(names) > 1:
        from scipy.stats import rankdata

        table = np.stack([draws[label][1:] for label in names], axis=1)
        got = stats.ranks(table)
        # systems that tie share the better rank; the order of their names must not decide
        places = rankdata(-table, method="min", axis=1)
        for i, label in enumerate(names):
            ranks[label] = {
                "low": int(np.quantile(places[:, i], 0.025)),
                "high": int(np.quantile(places[:, i], 0.975)),
                "shares": [float(np.mean(places[:, i] == rank)) for rank in range(1, len(names) + 1)],
                "like_leader": bool(got["like_leader"][i]),
            }
    return differences, ranks


def _judge(receipt: Receipt) -> dict[str, Any]:
    """Who judged, and how it agrees with the labelled set: {'name', 'measured': 'en 96.2 % (n 266, kappa 0.93),
    ...'}."""
    judge = receipt.judge or {}
    said = []
    for language, m in sorted((judge.get("measured") or {}).items()):
        if isinstance(m, Mapping) and m.get("accuracy") is not None:
            kappa = "n/a" if m.get("kappa") is None else f"{m['kappa']:.2f}"
            said.append(
                f"{language} {100 * m['accuracy']:.1f} % right of {m.get('n')}, kappa {kappa}, missed holds {_share_of(m.get('missed_holds'))}, false holds {_share_of(m.get('false_holds'))}"
            )
    name = f"{judge['name']} {str(judge.get('version'))[:12]}" if judge.get("name") else "arithmetic over known keys"
    return {
        "name": name,
        "measured": "; ".join(said)
        or ("not measured" if judge.get("name") else "nothing to measure: no judgement is made"),
    }


def _share_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('k')}/{value.get('n')}"
    return "n/a" if value is None else f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def _cost(receipt: Receipt) -> dict[str, Any]:
    c = receipt.cost
    billed = "nothing was called" if not c.calls else "not said" if c.billed_usd is None else f"${c.billed_usd}"
    return {
        "calls": c.calls,
        "tokens": c.prompt_tokens + c.completion_tokens,
        "billed": billed,
        "list": c.list_usd,
        "models": list(receipt.versions.models) if receipt.versions else [],
    }


def _time(run: Run) -> dict[str, Any]:
    """Wall seconds of ingesting and judging, and of one ingest call (median, 90th percentile): of the machine that ran
    it."""
    seconds = {step.step: step.seconds for step in run.receipt.steps}
    path = run.folder / "events.jsonl"
    calls = (
        [
            row["seconds"]
            for row in read_jsonl(path)
            if row.get("op") in ("ingest", "write") and row.get("seconds") is not None
        ]
        if path.is_file()
        else []
    )
    one = stats.delays(calls, resamples=200) if calls else None
    return {
        "ingest": seconds.get("2-ingest"),
        "judge": seconds.get("3-judge"),
        "calls": len(calls),
        "median": one["median"].value if one else None,
        "p90": one["p90"].value if one else None,
    }


def own(run: Run) -> dict[str, str]:
    """What may differ inside a table: the system's version, settings, model, clock and feeding."""
    p, versions = run.receipt.parameters, run.receipt.versions
    opened = {}
    if (run.folder / "events.jsonl").is_file():
        with open(run.folder / "events.jsonl", "rb") as file:
            for line in file:
                row = json.loads(line)
                if row.get("op") == "open":
                    opened = row.get("detail") or {}
                    break
    models = ", ".join(versions.models) if versions and versions.models else "no model was called"
    return {
        "version": str((versions.system if versions else {}).get("version") or "none"),
        "settings": _said(p.get("settings")),
        "model": models,
        "embedder": _said(p.get("embedder")),
        "feeds": _said(opened.get("feeds")),
        "clock": _said(opened.get("dates")),
        "seed": _said(p.get("seed")),
        **({"isolation": str(p["isolation"])} if p.get("isolation") else {}),
        "kit": f"{versions.kit} {str(versions.git_commit or '')[:8]}{' with changes' if versions.git_dirty else ''}"
        if versions
        else "none",
        "machine": versions.platform if versions else "none",
    }


def rounded(value: Any) -> Any:
    """The same structure with floats at six decimals and nan as None: what may go into a file."""
    if isinstance(value, Mapping):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else round(float(value), 6) + 0.0
    return value.item() if isinstance(value, np.generic) else value


# --- published, beside and never in -------------------------------------------------------------------------------


def published(track: str, route: str, runs: Sequence[Run]) -> dict[str, Any] | None:
    """The benchmark's own table for orientation: {'label', 'heads', 'rows' of texts}; None where there is none for
    these runs."""
    from kiokulab import reproduce

    if track == "kioku":
        from kiokulab.kioku.analyze import METRICS, TITLES

        page = reproduce.published()
        index = {row["system"]: row["index"] for row in page["index"]}
        rows = [
            [
                f"{row['system']}{row.get('footnote', '')}, {page['dates'][row['system']]}",
                f"{index[row['system']]:.1f}" if row["route"] in ("raw", "baseline") else "",
                *[f"{row[n]:.2f}" if n == "compression" else f"{row[n]} %" for n in METRICS],
            ]
            for row in page["routes"]
            if row["route"] in (route, "baseline")
        ]
        notes = [f"{mark} {note}" for mark, note in page["footnotes"].items() if any(mark in row[0] for row in rows)]
        return {
            "label": f"KiokuBench's page, {page['label']}",
            "heads": ["System", "Index", *[TITLES[n] for n in METRICS]],
            "rows": rows,
            "notes": notes,
        }
    if track == "drift":
        said = [line for run in runs for line in run.metrics.get("comparable", []) if "no published figure" not in line]
        page = reproduce.published("knowledgedrift")
        worlds = [world for world in page["worlds"] if any(f" {world}" in line for line in said)]
        if not worlds:
            return None
        rows = [
            [
                f"{name}, {world}",
                str(f["score"]),
                str(f["scenarios"]),
                str(f["signal"]),
                str(f["tokens"]),
                f"{f['passed']}/{f['attempted']}",
                str(f["billed"]),
            ]
            for world in worlds
            for name, f in page["worlds"][world].items()
        ]
        return {
            "label": f"KnowledgeDrift's ladder, edition {page['edition']}, read {page['read']}",
            "heads": ["System", "Score", "Scenarios", "Signal", "Tokens", "Passed/attempted", "Billed"],
            "rows": rows,
            "notes": [page["conditions"], *sorted(set(said))],
        }
    if track == "verdict":
        page = reproduce.published("vendor-reported")
        if page.get("reports"):
            heads = list(dict.fromkeys(key for row in page["reports"] for key in row))
            return {
                "label": f"reported by vendors on LongMemEval, read {page['read']}",
                "heads": heads,
                "rows": [[_said(row.get(h)) for h in heads] for row in page["reports"]],
                "notes": [],
            }
    return None


# --- shown --------------------------------------------------------------------------------------------------------


def frame(table: Mapping[str, Any]) -> Any:
    """The leaderboard as a pandas data frame, a row a system, figures as numbers: for those who go on from here."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "system": row["label"],
                table["headline"]["title"]: row["headline"]["value"],
                "low": row["headline"]["low"],
                "high": row["headline"]["high"],
                **{f["title"]: f["value"] for f in row["figures"]},
            }
            for row in table["rows"]
        ]
    ).set_index("system")


def picture(table: Mapping[str, Any]) -> bytes:
    """Headline bars with their intervals, parts as marks beside them; PNG bytes. For the kioku track, the index
    picture."""
    from kiokulab import plots

    if table["track"] == "kioku":
        rows = [
            {
                "label": row["label"],
                "index": {
                    **row["headline"],
                    "empty_store": (row["headline"]["note"] or "").startswith("nothing is stored"),
                },
                "pillars": {p["name"]: p["value"] for p in row["parts"]},
                "grey": row["anchor"],
            }
            for row in table["rows"]
        ]
        return plots.index_bars(rows, note=f"{table['edition']}, {ROUTES.get(table['route'], table['route'])}")
    plt, rows = plots._pyplot(), table["rows"]
    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.45 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        plots._index_bar(axes, y, {"index": row["headline"], "grey": row["anchor"]})
    axes.set_yticks(range(len(rows)), [plots.safe(row["label"]) for row in rows])
    scale = table["headline"]["scale"]
    axes.set(
        ylim=(len(rows) - 0.4, -0.6),
        xlim=(0, 1.18 * scale),
        xlabel=f"{table['headline']['title']} (0 to {scale}), 95 % interval over {table['clusters']}",
    )
    axes.grid(axis="x")
    axes.set_title(plots.safe(table["title"], 80))
    return plots.png(figure)


def rank_picture(table: Mapping[str, Any]) -> bytes | None:
    """How often each system takes each rank over the resamples, as a heat map with the share in each cell; None without
    ranks."""
    if not table["ranks"]:
        return None
    import pandas as pd
    import seaborn as sns

    from kiokulab import plots

    plt = plots._pyplot()
    shares = pd.DataFrame({plots.safe(label, 28): 100 * np.array(r["shares"]) for label, r in table["ranks"].items()}).T
    shares.columns = range(1, len(shares.columns) + 1)
    said = shares.map(lambda v: "" if v == 0 else "<1" if v < 0.5 else f"{v:.0f}")
    figure, axes = plt.subplots(figsize=(3 + 0.75 * len(shares), 1.3 + 0.42 * len(shares)), layout="constrained")
    sns.heatmap(
        shares, annot=said, fmt="", cmap="Greys", vmin=0, vmax=140, cbar=False, linewidths=1, linecolor="white", ax=axes
    )
    axes.set(xlabel=f"rank: percent of the resamples of {table['clusters']}; ties share the better rank", ylabel="")
    axes.tick_params(length=0, rotation=0)
    axes.set_title("How sure the order is")
    return plots.png(figure)


def image(table: Mapping[str, Any], which: str = "headline") -> str:
    """A picture as HTML with its alt text, for a notebook cell."""
    from kiokulab import page

    if which == "ranks":
        said = "; ".join(f"{label} rank {r['low']} to {r['high']}" for label, r in table["ranks"].items())
        return page.image(rank_picture(table), f"How often each system takes each rank, {table['title']}: {said}.")
    return page.image(picture(table), alt(table))


def alt(table: Mapping[str, Any]) -> str:
    """What the picture says, as words."""
    said = "; ".join(f"{row['label']} {headline_shown(row['headline'])}" for row in table["rows"])
    return f"{table['headline']['title']} of each system with its 95 % interval, {table['title']}: {said}."


def headline_shown(h: Mapping[str, Any]) -> str:
    """'96.1 (94.0 to 97.5)', or 'n/a'."""
    if h["value"] is None:
        return "n/a"
    return f"{h['value']:.1f}" + ("" if h["low"] is None else f" ({h['low']:.1f} to {h['high']:.1f})")


def _nothing(row: Mapping[str, Any], name: str | None = None) -> None:
    return None


def part(name: str, link: Callable[[Mapping[str, Any], str | None], str | None] = _nothing, **context: Any) -> str:
    """One part of the comparison as HTML. name: bars, leaderboard, tests, ranks, conditions, costs, published,
    left_out; `table` or `left_out` comes in `context`. `link(row, metric or None)` gives where a figure can be traced,
    or None."""
    from kiokulab.page import environment

    environment_ = environment()
    environment_.globals.setdefault("headline_shown", headline_shown)
    module = environment_.get_template("compare.html").make_module({"QUESTIONS": QUESTIONS})
    return str(getattr(module, name)(link=link, **context))


def cell(name: str, **context: Any) -> str:
    """The same for a notebook cell, with its style."""
    return f'<style>{css()}</style><div class="kiokulab cell">{part(name, **context)}</div>'


def css() -> str:
    from kiokulab import page

    return page.css() + (page.HERE / "compare.css").read_text(encoding="utf-8")


PARTS = ("bars", "leaderboard", "ranks", "tests", "costs", "conditions", "published")


def table_html(table: Mapping[str, Any], link: Callable = _nothing) -> str:
    """A whole table, all its parts in order."""
    return "\n".join(part(name, link=link, table=table) for name in PARTS)


def document(title: str, body: str, *, lead: str = "", trail: Sequence[tuple[str, str | None]] = ()) -> str:
    """A whole page that needs no other file and runs no script. `body` is HTML that is already safe; `trail` leads to
    it."""
    from kiokulab import page

    return (
        page.environment()
        .get_template("site.html")
        .render(title=plain(title, 200), body=body, lead=lead, trail=trail, css=css())
    )


LEAD = (
    "Runs share a table only where the dataset, rules, judge, prompts and every parameter but the memory system's own are alike. "
    "Point at a bar, or reach it with the tab key, to see its parts."
)


def write(root: str | Path, out: str | Path, *, seed: int = 1, resamples: int = 2000) -> dict[str, Any]:
    """comparison.json and compare.html in `out`, a folder under `root`; returns the comparison."""
    result, out, root = compare(root, seed=seed, resamples=resamples), Path(out).resolve(), Path(root).resolve()
    up = "../" * len(out.relative_to(root).parts)

    def link(row: Mapping[str, Any], name: str | None = None) -> str | None:
        return f"{up}{row['folder']}/report.html" if (root / row["folder"] / "report.html").is_file() else None

    body = "".join(
        f"<h2>{escaped(table['title'])}</h2><p>{escaped(question(table['track']))}</p>{table_html(table, link)}"
        for table in result["tables"]
    )
    body += "<h2>Left out</h2>" + part("left_out", left_out=result["left_out"])
    write_atomic(out / "comparison.json", dumps(result) + "\n")
    write_atomic(out / "compare.html", document("All runs compared", body, lead=LEAD))
    return result


def run_notebook(root: str | Path, notebook: str | Path | None = None) -> dict[str, Any]:
    """Execute notebooks/compare.ipynb over the runs under `root`; the executed copy and the files that it writes lie in
    <root>/compare. The same runs give the same bytes. Returns the comparison. InputError where there is no run."""
    from kiokulab.notebooks import execute
    from kiokulab.params import root as checkout

    if not any(Path(root).rglob("receipt.json")):
        raise InputError("there is no run yet", str(root), "Make some first, for example make kioku")
    execute(
        notebook or checkout() / "notebooks" / "compare.ipynb",
        Path(root) / "compare" / "compare.ipynb",
        {"root": str(Path(root).resolve())},
        shown=False,
    )
    return json.loads((Path(root) / "compare" / "comparison.json").read_bytes())


def question(track: str) -> str:
    """What a track asks, as a sentence."""
    said = QUESTIONS.get(track, track)
    return said[:1].upper() + said[1:]


def escaped(text: Any) -> str:
    """Somebody's text as HTML that cannot act."""
    from markupsafe import escape

    return str(escape(plain(text)))


def summary(result: Mapping[str, Any]) -> str:
    """What the terminal shows: a line a system, and who is left out."""
    lines = []
    for table in result["tables"]:
        lines += ["", table["title"]]
        if table["refused"]:
            lines += ["  REFUSED, the oracle falls short: " + fault for fault in table["refused"]]
            continue
        for row in table["rows"]:
            rank = table["ranks"].get(row["label"])
            said = (
                ""
                if not rank
                else f"rank {rank['low']}" + (f" to {rank['high']}" if rank["high"] != rank["low"] else "")
            )
            lines.append(f"  {row['label']:<28} {headline_shown(row['headline']):>24}  {said}")
    if result["left_out"]:
        lines += [
            "",
            f"left out: {len(result['left_out'])}",
            *[f"  {row['run']}: {row['reason']}" for row in result["left_out"]],
        ]
    return "\n".join(lines).strip()

"""Step 4: from the graded tasks to figures. Pure arithmetic over judgements.jsonl; the report is `report.py`.

`metrics.json` has the fields of the public graded receipt by their own names. A run of one world has exactly that
world's receipt; a run of several has sums of tasks, pooled family rates, and plain means over worlds of score, points,
tokens and columns. The receipt of each world stands under `worlds`. What the public receipt lacks is added: both rates
of each family (posed and attempted) with intervals, the score's interval, and what silence scores.

Intervals resample subjects (the note that a question is about: its four questions fall or stand together) inside each
world. They say how far the figure hangs on which notes a world happens to hold; with one world they say nothing of
other worlds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kiokulab import stats
from kiokulab.drift.judge import FREE_TOKENS, LIMIT_TOKENS
from kiokulab.drift.script import FAMILIES, PLAIN_FAMILIES
from kiokulab.errors import InputError
from kiokulab.files import dumps, iterate_jsonl, write_atomic

Row = Mapping[str, Any]
MUTE = 300  # what a memory scores that answers nothing: 100 each for abstention, deletion and tokens
MEANS = (
    "composite",
    "signal_share",
    "multiplier",
    "score",
    "family_points",
    "signal_score",
    "token_score",
    "tokens_billed",
)
TITLES = {
    "retrieval": "Retrieval",
    "abstention": "Abstention",
    "currency": "Currency",
    "contradiction": "Contradiction",
    "drift": "Drift",
    "deletion": "Deletion",
    "rationale": "Rationale",
    "temporal": "Temporal",
    "authority": "Authority",
}
SHOWN = (
    "retrieval",
    "abstention",
    "currency",
    "contradiction",
    "drift",
    "deletion",
    "rationale",
    "temporal",
    "authority",
)


@dataclass
class Graded:
    """The rows of one run: receipts by world, and tasks in the order of the scripts."""

    system: str
    run: str
    receipts: dict[str, Row]
    tasks: list[Row]
    failed: dict[str, str]
    planned: list[str]
    digests: dict[str, str]
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)  # world -> (language, tested facts)
    plumbing: bool = False  # the system was fed by the built-in model: its figures are no result

    @property
    def complete(self) -> bool:
        return not self.failed and bool(self.receipts)


def load(folder: Path | str) -> Graded:
    """The graded rows of a run folder. Raises InputError where a file is missing or torn."""
    from kiokulab import units

    folder = Path(folder)
    for name in ("judgements.jsonl", "dataset.jsonl"):
        if not (folder / name).is_file():
            raise InputError(f"{name} is not there", str(folder), "Run the steps before this one")
    receipts, tasks = {}, []
    for _, row in iterate_jsonl(folder / "judgements.jsonl"):
        if row["kind"] == "receipt":
            receipts[row["unit"]] = row
        else:
            tasks.append(row)
    planned, digests, sizes = [], {}, {}
    for _, row in iterate_jsonl(folder / "dataset.jsonl"):
        sizes[row["name"]] = row["language"], row["spec"].get("size", 0)
        planned.append(row["name"])
        digests[row["name"]] = row["digest"]
    failed = units.failed(folder / "units" / "2-ingest") if (folder / "units" / "2-ingest").is_dir() else {}
    failed |= {name: "it has no transcript" for name in planned if name not in receipts and name not in failed}
    arms = {row["receipt"]["arm"] for row in receipts.values()}
    return Graded(
        sorted(arms)[0] if arms else "none",
        folder.name,
        receipts,
        tasks,
        dict(sorted(failed.items())),
        planned,
        digests,
        sizes,
        _plumbing(folder),
    )


def _plumbing(folder: Path) -> bool:
    from kiokulab.drift.params import DriftParams
    from kiokulab.feeding import was_plumbing

    return was_plumbing(DriftParams, _parameters(folder))


# --- pooling ------------------------------------------------------------------------------------------------------


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def pooled(receipts: Mapping[str, Row]) -> dict[str, Any]:
    """One receipt of several worlds, with the public names; of one world its own receipt, unchanged."""
    if len(receipts) == 1:
        return dict(next(iter(receipts.values())))
    every = list(receipts.values())
    families = []
    for name in FAMILIES:
        cells = [next(family for family in receipt["families"] if family["family"] == name) for receipt in every]
        played = [cell for cell in cells if cell["pass_rate"] is not None]
        tasks, passed = sum(cell["tasks"] for cell in cells), sum(cell["passed"] for cell in cells)
        columns = sorted({column for cell in cells for column in cell["columns"]})
        families.append(
            {
                "family": name,
                "posed": sum(cell["posed"] for cell in cells),
                "tasks": tasks,
                "passed": passed,
                "pass_rate": passed / max(1, tasks) if played else None,
                **({} if played else {"na": cells[0]["na"]}),
                "columns": {
                    column: _mean([cell["columns"][column] for cell in cells if column in cell["columns"]])
                    for column in columns
                },
            }
        )
    tasks, attempted, passed = (sum(receipt[name] for receipt in every) for name in ("tasks", "attempted", "passed"))
    means = {name: _mean([receipt[name] for receipt in every]) for name in MEANS}
    parts = {
        part: {name: _mean([receipt[part][name] for receipt in every]) for name in every[0][part]}
        for part in ("attention", "cost")
    }
    return {
        "arm": every[0]["arm"],
        "capabilities": every[0]["capabilities"],
        "script_digest": "+".join(receipt["script_digest"] for receipt in every),
        "tasks": tasks,
        "attempted": attempted,
        "passed": passed,
        "success": passed / max(1, tasks),
        "attempted_success": passed / max(1, attempted),
        **means,
        "edition": every[0]["edition"],
        "flags": sorted({flag for receipt in every for flag in receipt["flags"]}),
        "families": families,
        **parts,
        "failed": [f"{world}:{name}" for world, receipt in receipts.items() for name in receipt["failed"]],
    }


def _rate(tasks: Sequence[Row], posed: bool) -> dict[str, Any]:
    """Passed of all tasks posed, or of those attempted, with a Wilson interval."""
    counted = tasks if posed else [task for task in tasks if task["passed"] is not None]
    rate = stats.wilson(sum(task["passed"] is True for task in counted), len(counted))
    return {"k": rate.k, "n": rate.n, "rate": rate.rate, "low": rate.low, "high": rate.high, "not_judged": 0}


# --- intervals of the score ---------------------------------------------------------------------------------------


class _Subjects:
    """Counts of a run by subject and world, so that the score of any resample of subjects is a few sums."""

    def __init__(self, receipts: Mapping[str, Row], tasks: Sequence[Row]):
        subjects = sorted({(task["unit"], task["subject"]) for task in tasks})
        place = {subject: n for n, subject in enumerate(subjects)}
        self.worlds = list(receipts)
        self.strata = [unit for unit, _ in subjects]
        shape = (len(subjects), len(PLAIN_FAMILIES))
        self.passed, self.tried = np.zeros(shape), np.zeros(shape)
        self.posed, self.right = np.zeros(len(subjects)), np.zeros(len(subjects))
        self.signal, self.tokens, self.billed = (
            np.zeros(len(subjects)),
            np.zeros(len(subjects)),
            np.zeros(len(subjects)),
        )
        self.standing = np.array([receipts[world]["standing_billed"] for world in self.worlds])
        self.of_world = np.array([[unit == world for unit in self.strata] for world in self.worlds], dtype=float)
        self.na = np.array(
            [
                [
                    next(f for f in receipts[world]["receipt"]["families"] if f["family"] == name)["pass_rate"] is None
                    for name in PLAIN_FAMILIES
                ]
                for world in self.worlds
            ]
        )
        for task in tasks:
            n = place[task["unit"], task["subject"]]
            self.posed[n] += 1
            self.right[n] += task["passed"] is True
            if task["family"] in PLAIN_FAMILIES and task["passed"] is not None:
                column = PLAIN_FAMILIES.index(task["family"])
                self.tried[n, column] += 1
                self.passed[n, column] += task["passed"]
            if task["tokens"] is not None:
                self.billed[n] += 1
                self.tokens[n] += task["tokens"]
                self.signal[n] += task["signal"]

    def figures(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """score and its parts, and success, for weights of shape (m, subjects): the mean over worlds, as `pooled` has
        it."""
        totals: dict[str, list[np.ndarray]] = {
            name: [] for name in ("family_points", "signal_score", "token_score", "score")
        }
        for n, row in enumerate(self.of_world):
            mine = weights * row
            tried = mine @ self.tried
            rates = np.divide(mine @ self.passed, tried, out=np.zeros_like(tried), where=tried > 0)
            points = 100 * np.where(self.na[n], 0.0, rates).sum(axis=1)
            billed = mine @ self.billed
            signal = 100 * np.divide(mine @ self.signal, billed, out=np.zeros_like(billed), where=billed > 0)
            bill = np.divide(mine @ self.tokens, billed, out=np.zeros_like(billed), where=billed > 0) + self.standing[n]
            token = np.clip(
                100 * np.log(LIMIT_TOKENS / np.maximum(bill, FREE_TOKENS)) / math.log(LIMIT_TOKENS / FREE_TOKENS),
                0,
                100,
            )
            for name, values in zip(totals, (points, signal, token, points + signal + token), strict=True):
                totals[name].append(values)
        posed = weights @ self.posed
        return {name: np.mean(values, axis=0) for name, values in totals.items()} | {
            "success": np.divide(weights @ self.right, posed, out=np.zeros_like(posed), where=posed > 0)
        }


def intervals(graded: Graded, seed: int, resamples: int) -> dict[str, Any]:
    """95 % percentile intervals over subjects of score, its parts and success; from two worlds on, also over worlds."""
    counts = _Subjects(graded.receipts, graded.tasks)
    value = counts.figures(np.ones((1, len(counts.strata))))
    result: dict[str, Any] = {}
    draws = None
    if resamples and len(counts.strata) > 1:
        weights = stats.resamples_of(counts.strata, resamples, seed)
        draws = counts.figures(weights.astype(float))
    for name, point in value.items():
        low, high = (
            (None, None) if draws is None else (float(found) for found in np.quantile(draws[name], (0.025, 0.975)))
        )
        result[name] = {"value": float(point[0]), "low": low, "high": high, "over": "subjects within worlds"}
    scores = [row["receipt"]["score"] for row in graded.receipts.values()]
    if len(scores) > 1:
        mean = stats.clustered_mean(scores, list(range(len(scores))))
        result["score_over_worlds"] = {name: value for name, value in asdict(mean).items()} | {"worlds": len(scores)}
    return result


def difference(first: Graded, second: Graded, seed: int, resamples: int) -> dict[str, Any]:
    """Two systems on the same scripts: exact McNemar over all tasks posed (a task not attempted is not passed), and the
    paired bootstrap over subjects of the difference in score. Raises ValueError where the scripts differ."""
    if first.digests != second.digests or list(first.receipts) != list(second.receipts):
        raise ValueError("the two runs are not on the same scripts")
    ordered = {(task["unit"], task["id"]): task for task in second.tasks}
    pairs = [(task["passed"] is True, ordered[task["unit"], task["id"]]["passed"] is True) for task in first.tasks]
    test = stats.mcnemar([a for a, _ in pairs], [b for _, b in pairs])
    one, two = _Subjects(first.receipts, first.tasks), _Subjects(second.receipts, second.tasks)
    weights = np.vstack([np.ones((1, len(one.strata))), stats.resamples_of(one.strata, resamples, seed)]).astype(float)
    draws = one.figures(weights)["score"] - two.figures(weights)["score"]
    low, high = (float(found) for found in np.quantile(draws[1:], (0.025, 0.975))) if resamples else (None, None)
    return {
        "first": first.system,
        "second": second.system,
        "only first": test.b,
        "only second": test.c,
        "both": test.both,
        "neither": test.neither,
        "p": test.p,
        "verdict": test.verdict,
        "score difference": float(draws[0]),
        "low": low,
        "high": high,
    }


def differences(first: Graded, others: Sequence[Graded], seed: int, resamples: int) -> list[dict[str, Any]]:
    """One run against each of the others, Holm-adjusted over these pairs."""
    rows = [difference(first, other, seed, resamples) for other in others]
    for row, adjusted in zip(rows, stats.holm([row["p"] for row in rows]), strict=True):
        row["p (Holm)"], row["pairs"] = adjusted, len(rows)
    return rows


# --- metrics.json -------------------------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    """Floats at twelve significant digits: the last ones differ between processors."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def metrics(graded: Graded, seed: int = 1, resamples: int = 2000) -> dict[str, Any]:
    """All figures of a run: the pooled receipt by its public names, and what it lacks."""
    receipts = {world: row["receipt"] for world, row in graded.receipts.items()}
    by_family = {name: [task for task in graded.tasks if task["family"] == name] for name in FAMILIES}
    rates = {
        name: {**_rate(tasks, True), "attempted": _rate(tasks, False)} for name, tasks in by_family.items() if tasks
    }
    rates["success"] = {**_rate(graded.tasks, True), "attempted": _rate(graded.tasks, False)}
    problems: dict[str, int] = {}
    for row in graded.receipts.values():
        for kind, count in row["problems"].items():
            problems[kind] = problems.get(kind, 0) + count
    languages = sorted({row["language"] for row in graded.receipts.values() if row["language"]})
    by_language = {
        language: {
            name: value
            for name, value in pooled(
                {world: row["receipt"] for world, row in graded.receipts.items() if row["language"] == language}
            ).items()
            if name in (*MEANS, "tasks", "attempted", "passed", "success")
        }
        for language in languages
    }
    return rounded(
        {
            **pooled(receipts),
            "metrics": rates,
            "intervals": intervals(graded, seed, resamples),
            "by_language": by_language,
            "mute_score": MUTE,
            "problems": dict(sorted(problems.items())),
            "worlds": receipts,
            "comparable": comparable(graded),
            **({"plumbing": True} if graded.plumbing else {}),
            "units": {"planned": len(graded.planned), "finished": len(graded.receipts), "failed": graded.failed},
        }
    )


PUBLIC = {
    "52b32ba42bf1a515": "100-seed1",
    "9766378f93e3a7d4": "500-seed1",
    "f19851acdf7c3043": "500-seed2",
    "cdbbbcf8710e192e": "500-seed3",
    "02eb7065e8074919": "1500-seed1",
}
ROWS = {
    "mem0-verbatim": "mem0-2.0.20",
    "langmem-store": "langmem-0.0.30",
    "vector": "rag",
    "cognee": "cognee-1.5.4",
    "memcontinuum": "memcontinuum-0.2.0rc5",
    "supermemory": "supermemory-0.0.8",
}


def comparable(graded: Graded) -> list[str]:
    """Which published row a figure may be set beside, and why not exactly; a sentence a world."""
    if graded.plumbing:
        return ["no published row: the system was fed by the built-in model, which copies sentences. It is no result"]
    result = []
    for world, digest in graded.digests.items():
        public = PUBLIC.get(digest)
        language, size = graded.sizes.get(world, ("", 0))
        near = f"{size}-seed1" if language == "en" else ""
        if public is None and graded.system in ROWS and near in PUBLIC.values():
            result.append(
                f"{world}: no published figure is of this world. The nearest is the row {ROWS[graded.system]!r} of "
                f"{near}: as many facts, but other sentences, the embedder bge-small-en-v1.5 and another adapter"
            )
        elif public is None:
            result.append(f"{world}: no published figure; the world is not one of the public benchmark's")
        elif graded.system in ("grep", "curated", "whole", "chance", "tfidf"):
            result.append(
                f"{world}: the published row {graded.system!r} of {public}, exactly; "
                "the rules and the world are the same"
            )
        elif graded.system in ROWS:
            result.append(
                f"{world}: the published row {ROWS[graded.system]!r} of {public}, but not exactly; "
                "it was made with the embedder "
                "bge-small-en-v1.5 and another adapter"
            )
        else:
            result.append(f"{world}: the published table of {public}, where this system has no row of its own")
    return result


def rederive(folder: Path | str, params: Any = None) -> dict[str, Any]:
    """metrics.json of a run folder computed again from its rows; nothing is written."""
    found = params.model_dump() if params is not None else _parameters(folder)
    return metrics(load(folder), found.get("seed", 1), found.get("bootstrap", 2000))


def _parameters(folder: Path | str) -> dict[str, Any]:
    for name in ("receipt.json", "steps/4-analyze.json", "steps/3-judge.json"):
        path = Path(folder) / name
        if path.is_file():
            return json.loads(path.read_bytes()).get("parameters", {})
    return {}


# --- step 4 -------------------------------------------------------------------------------------------------------


def beside(graded: Graded, places: Sequence[str]) -> tuple[list[Graded], list[str]]:
    """The runs in `places` that may share a table with this one, and why the others may not."""
    runs, left_out = [], []
    for place in places:
        name = "/".join(Path(place).parts[-2:])
        try:
            other = load(place)
        except InputError as error:
            left_out.append(f"{name}: it is not finished ({error.what})")
            continue
        if other.run == graded.run and other.system == graded.system:
            continue
        if other.digests != graded.digests:
            left_out.append(f"{name}: it was made on other worlds")
        elif not other.complete:
            left_out.append(f"{name}: worlds of it failed")
        else:
            runs.append(other)
    return sorted(runs, key=lambda run: (run.system, run.run)), left_out


def run(folder: Path | str, params: Any) -> list[dict[str, Any]]:
    """Step 4: metrics.json, figures and report.html; a line a system, this run's and those beside it."""
    from kiokulab.drift import report

    folder = Path(folder)
    graded = load(folder)
    mine = metrics(graded, params.seed, params.bootstrap)
    write_atomic(folder / "metrics.json", dumps(mine) + "\n")
    others, left_out = beside(graded, params.beside)
    theirs = [metrics(other, params.seed, 0) for other in others]
    report.write(folder, graded, mine, others, theirs, left_out, params)
    return [line(found) for found in (mine, *theirs)]


def refused(folder: Path | str) -> list[str]:
    """Why this run must stand in no table: it is the oracle's, and it falls short. Empty where it may."""
    found = json.loads((Path(folder) / "metrics.json").read_bytes())
    if found["arm"] == "oracle" and found["passed"] < found["tasks"]:
        return [f"the oracle passes {found['passed']} of {found['tasks']} tasks"]
    return []


def line(found: Row) -> dict[str, Any]:
    """One line of the ladder, as printed."""
    cells = {family["family"]: family["pass_rate"] for family in found["families"]}
    return {
        "system": f"[{found['arm']}]" if found.get("plumbing") else found["arm"],
        "score": f"{found['score']:.0f}",
        "scenarios": f"{found['family_points']:.0f}",
        "signal": f"{found['signal_score']:.0f}",
        "tokens": f"{found['token_score']:.0f}",
        "success": f"{100 * found['success']:.0f} %",
        "passed/attempted/posed": f"{found['passed']}/{found['attempted']}/{found['tasks']}",
        "billed": f"{found['tokens_billed']:.0f}",
        **{
            name: "n/a" if cells[name] is None else f"{100 * cells[name]:.0f} %"
            for name in SHOWN
            if name != "authority" or cells[name] is not None
        },
    }


def printed(found: Row) -> str:
    """The figures of metrics.json as text: what the last notebook prints and `verify` looks for."""
    score = found["intervals"]["score"]
    span = "" if score["low"] is None else f" ({score['low']:.1f} to {score['high']:.1f} over subjects)"
    lines = [
        f"{found['arm']}: score {found['score']:.1f}{span}; a memory that answers nothing scores {found['mute_score']}",
        f"  scenarios {found['family_points']:.1f}, signal {found['signal_score']:.1f}, "
        f"tokens {found['token_score']:.1f}; "
        f"{found['tokens_billed']:.1f} tokens billed a question",
        f"  passed {found['passed']} of {found['tasks']} posed ({100 * found['success']:.1f} %), "
        f"of {found['attempted']} attempted "
        f"({100 * found['attempted_success']:.1f} %)",
    ]
    for name in SHOWN:
        rate = found["metrics"].get(name)
        if rate is not None:
            tried = rate["attempted"]
            of_tried = (
                "not attempted"
                if not tried["n"]
                else f"attempted {tried['k']}/{tried['n']} = {100 * tried['rate']:.1f} % "
                f"({100 * tried['low']:.1f} to {100 * tried['high']:.1f})"
            )
            lines.append(f"  {TITLES[name]:<14} posed {rate['k']}/{rate['n']} = {100 * rate['rate']:.1f} %; {of_tried}")
    lines += [f"  flag: {flag}" for flag in found["flags"]]
    lines += [f"  problem: {count} {kind}" for kind, count in found["problems"].items()]
    units = found["units"]
    return "\n".join(
        [
            *lines,
            f"  worlds: {units['finished']} of {units['planned']}"
            + "".join(f"; {name} failed" for name in units["failed"]),
        ]
    )


def summary(folders: Sequence[Path | str]) -> str:
    """The ladder of several finished runs, highest score first."""
    from kiokulab.feeding import BRACKETS

    lines = [line(json.loads((Path(folder) / "metrics.json").read_bytes())) for folder in folders]
    lines.sort(key=lambda row: -float(row["score"]))
    heads = list(dict.fromkeys(name for row in lines for name in row))
    widths = [max(len(head), *(len(str(row.get(head, "-"))) for row in lines)) for head in heads]

    def text(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )

    return "\n".join(
        [
            text(heads),
            *(text([str(row.get(head, "-")) for head in heads]) for row in lines),
            f"score: of 1,000; a memory that answers nothing scores {MUTE}. success: of all tasks posed.",
            *([BRACKETS] if any(row["system"].startswith("[") for row in lines) else []),
        ]
    )

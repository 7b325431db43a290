"""Step 4: figures from judgements. Pure functions from rows to metrics.json; wall times are in latency.json, other
runs in comparison.json.

metrics.json:
  accuracy    overall, by_type, abstention: {"k","n","rate","low","high","not_judged"} with Wilson intervals;
              task_averaged:
              unweighted mean of the types that are there, interval by bootstrap over questions inside each type.
              Abstention questions count in their type and overall too. Missing answers are wrong.
  without_disputed   the same overall figure without the questions whose gold answer is disputed, and their ids
  worst       overall with everything that was not judged counted as wrong
  missing     id -> why: questions that count as wrong because there was no answer
  readings    how often the strict reading of the judge's words differs from the official one
  panel       majority, flips, unanimity and agreement of several judges; null without a panel
  retrieval   recall_any and recall_all of the labelled sessions, a diagnostic and no LongMemEval score
  cost        per 1,000 questions, in dollars, billed and list, by what it was spent on; null where no model was called
  conditions  everything that must be alike for two rows to stand in one table
  metrics     {"accuracy": …}, where the receipt looks for counts not judged
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from kiokulab import stats
from kiokulab.errors import InputError
from kiokulab.files import dumps, iterate_jsonl, read_jsonl, write_atomic
from kiokulab.verdict import TYPES, generate
from kiokulab.verdict.dataset import Question
from kiokulab.verdict.params import EXTRACTIVE, VerdictParams, isolation

ALIKE = (
    "data_sha256",
    "sample_digest",
    "n",
    "reader",
    "judge",
    "panel",
    "prompts",
    "rules_version",
)  # or two runs are not compared
# a memory system asks in one role whether it is fed or searched: `recorded_calls` says of each of its calls which
PARTS = {"ingest": ("system", "ingest"), "retrieve": ("retrieve",), "answer": ("reader",)}


# --- accuracy ---------------------------------------------------------------------------------------------------


def rate(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Judgement rows as a rate; what was not judged is counted apart."""
    judged = [row for row in rows if row["verdict"] != "not_judged"]
    found = stats.wilson(sum(row["verdict"] == "right" for row in judged), len(judged), len(rows) - len(judged))
    return {
        "k": found.k,
        "n": found.n,
        "rate": found.rate,
        "low": found.low,
        "high": found.high,
        "not_judged": found.not_judged,
    }


def task_average(rows: Sequence[Mapping[str, Any]], resamples: int, seed: int) -> dict[str, Any]:
    """Unweighted mean over the types that have judged questions, with its bootstrap interval (questions drawn inside
    types)."""
    judged = [row for row in rows if row["verdict"] != "not_judged"]
    present = [kind for kind in TYPES if any(row["type"] == kind for row in judged)]
    if not present:
        return {"value": None, "low": None, "high": None, "method": "none", "types": 0}
    right = np.array([row["verdict"] == "right" for row in judged], float)
    inside = [np.array([row["type"] == kind for row in judged], float) for kind in present]

    def statistic(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.mean([(weights * mask) @ right / (weights @ mask) for mask in inside], axis=0)

    found = stats.bootstrap(
        statistic, len(judged), strata=[row["type"] for row in judged], seed=seed, resamples=resamples
    )
    return {"value": found.value, "low": found.low, "high": found.high, "method": found.method, "types": len(present)}


def readings(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Official and strict reading of the same words: where they differ, and where the strict one has none."""
    asked = [row for row in rows if row["official"] is not None]
    return {
        "n": len(asked),
        "differ": [row["id"] for row in asked if row["strict"] is not None and row["strict"] != row["official"]],
        "strict_has_none": [row["id"] for row in asked if row["strict"] is None],
    }


def panel(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The panel beside the headline judge: majority accuracy, flips, unanimity, and chance-corrected agreement."""
    asked = [row for row in rows if row["panel"] is not None]
    if not asked:
        return None
    headline = {"right": True, "wrong": False}
    verdicts = [
        (row["id"], headline.get(row["verdict"]), row["panel"]["votes"], row["panel"]["majority"]) for row in asked
    ]
    whole = [(first, votes) for _, first, votes, _ in verdicts if first is not None and None not in votes]
    decided = [m for *_, m in verdicts if m is not None]
    found = stats.wilson(sum(decided), len(decided), len(verdicts) - len(decided))
    same = stats.wilson(
        sum(len({first, *votes}) == 1 for first, votes in whole), len(whole), len(verdicts) - len(whole)
    )
    pairs = {}
    for a, b in combinations(range(1 + len(asked[0]["panel"]["votes"])), 2):
        both = [
            (labels[a], labels[b])
            for _, first, votes, _ in verdicts
            if None not in ((labels := [first, *votes])[a], labels[b])
        ]
        if both:
            agreed = stats.kappa(*zip(*both))
            pairs[f"{_judge_name(a)} and {_judge_name(b)}"] = {
                "n": agreed.n,
                "raw": agreed.raw,
                "kappa": agreed.value,
                "note": agreed.note,
            }
    ratings = [[first, *votes] for _, first, votes, _ in verdicts]
    alpha = stats.alpha(ratings) if any(sum(x is not None for x in row) > 1 for row in ratings) else None
    return {
        "majority": _plain(found),
        "all_agree": _plain(same),
        "undecided": [name for name, *_, m in verdicts if m is None],
        "flips": [name for name, first, _, m in verdicts if first is not None and m is not None and first != m],
        "pairs": pairs,
        "alpha": None if alpha is None else {"value": alpha.value, "n": alpha.n, "note": alpha.note},
    }


def _judge_name(n: int) -> str:
    return "headline judge" if n == 0 else f"panel {n}"


def _plain(found: stats.Rate) -> dict[str, Any]:
    return {
        "k": found.k,
        "n": found.n,
        "rate": found.rate,
        "low": found.low,
        "high": found.high,
        "not_judged": found.not_judged,
    }


# --- retrieval, a diagnostic --------------------------------------------------------------------------------------


def sessions_shown(question: Question, context: Mapping[str, Any]) -> set[str] | None:
    """Opaque ids of the sessions that a context shows. For a memory's texts: those of which a whole turn is in the
    text, or which hold the text; None where no text can be traced, because the system rewords."""
    if context["kind"] == "history":
        return {row["session"] for row in context["items"]}
    turns = [
        (session.id, " ".join(turn.text.split()).casefold()) for session in question.sessions for turn in session.turns
    ]
    traced, found = 0, set()
    for item in context["items"]:
        text = " ".join(item["text"].split()).casefold()
        mine = {
            session for session, turn in turns if len(text) >= 12 and len(turn) >= 12 and (turn in text or text in turn)
        }
        traced += bool(mine)
        found |= mine
    return found if traced or not context["items"] else None


def retrieval(pairs: Iterable[tuple[Question, Mapping[str, Any]]]) -> dict[str, Any]:
    """recall_any and recall_all: of the questions that have labelled sessions and are no abstention, in how many one,
    or every, labelled session came through. `untraced`: questions where a system's texts could not be traced to
    sessions.
    """
    some = every = n = untraced = 0
    for question, context in pairs:
        if question.abstention or not question.evidence or context["status"] != "ok":
            continue
        shown = sessions_shown(question, context)
        if shown is None:
            untraced += 1
            continue
        n, wanted = n + 1, set(question.evidence)
        some, every = some + bool(wanted & shown), every + (wanted <= shown)
    return {
        "recall_any": _plain(stats.wilson(some, n)),
        "recall_all": _plain(stats.wilson(every, n)),
        "untraced": untraced,
    }


# --- cost and delay -----------------------------------------------------------------------------------------------


def cost(calls: Iterable[Mapping[str, Any]], questions: int) -> dict[str, Any] | None:
    """Dollars per 1,000 questions from the record of calls: {part: {"calls", "billed", "list", "not_billed",
    "not_listed"}}, summed by Decimal. Judges are apart and in no total. None where no model was called. What is not
    known is never a zero: a sum is None where no call has that price, and the counts say in how many it is missing."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for call in calls:
        role = call.get("part") or call["role"].split("-")[0]
        otherwise = "judge" if role in ("judge", "panel") else "other"
        groups.setdefault(next((name for name, roles in PARTS.items() if role in roles), otherwise), []).append(call)
    if not groups or not questions:
        return None

    def share(rows: Sequence[Mapping[str, Any]], kind: str) -> str | None:
        known = [Decimal(row[kind]) for row in rows if row[kind] is not None]
        return format((sum(known) * 1000 / questions).quantize(Decimal("0.0001")), "f") if known else None

    def said(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        missing = {
            name: sum(row[kind] is None for row in rows)
            for name, kind in (("not_billed", "cost"), ("not_listed", "list_cost"))
        }
        return {"calls": len(rows), "billed": share(rows, "cost"), "list": share(rows, "list_cost"), **missing}

    return {
        "per_1000_questions": {name: said(rows) for name, rows in sorted(groups.items())},
        "total_without_judges": said([row for name, rows in groups.items() if name != "judge" for row in rows]),
    }


def recorded_calls(folder: Path) -> list[dict[str, Any]]:
    """Role, billed and list cost of every recorded model call of a run; embeddings of the kit's own embedder cost
    nothing and are not in it. Attempts that failed are.

    A system's own calls have a "part" too: "ingest" up to the number of calls that its unit had made when it had
    settled (event `ingest`), "retrieve" after that. A question without that event failed while it was fed. What a
    system does in the background after it said that it has settled is counted as retrieving.
    """
    from kiokulab import calls, metering

    events = read_jsonl(folder / "events.jsonl") if (folder / "events.jsonl").is_file() else []
    fed = {event["id"]: event.get("model_calls", {}) for event in events if event["op"] == "ingest"}
    found = []
    for step, name in metering.RECORDS.items():
        for call in calls.rows(folder / name) if (folder / name).is_file() else ():
            row = {"role": call["role"], "cost": call["cost"], "list_cost": call["list_cost"]}
            if step == "2-ingest":
                settled = fed.get(call["unit"], {}).get(call["role"])
                row["part"] = "retrieve" if settled is not None and call["seq"] > settled else "ingest"
            found.append(row)
    return found


def latency(events: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Seconds: to retrieve and answer one question, and to ingest one history; median and p90 with bootstrap
    intervals."""
    ingest = [event["seconds"] for event in events if event["op"] == "ingest"]
    retrieve = {event["id"]: event["seconds"] for event in events if event["op"] == "retrieve"}
    answer = {event["id"]: event["seconds"] for event in answers}
    both = [seconds + answer[name] for name, seconds in retrieve.items() if name in answer]
    found = {"retrieve and answer": both, "retrieve": list(retrieve.values()), "ingest one history": ingest}
    return {
        name: {
            "n": len(values),
            **{
                which: {"value": one.value, "low": one.low, "high": one.high}
                for which, one in stats.delays(values).items()
            },
        }
        for name, values in found.items()
        if values
    }


# --- the whole ----------------------------------------------------------------------------------------------------


def metrics(
    rows: Sequence[Mapping[str, Any]],
    judge: Mapping[str, Any],
    head: Mapping[str, Any],
    recall: Mapping[str, Any],
    spent: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """metrics.json of a run (see the module's head). `rows`: judgement rows of kind "answer"; `judge`: the row of
    kind "judge"."""
    from kiokulab.verdict import RULES_VERSION

    overall, contested, asked = rate(rows), head["disputed"], head["run"]
    left_out = sorted(row["id"] for row in rows if row["id"] in contested)
    present = [kind for kind in TYPES if any(row["type"] == kind for row in rows)]
    return {
        "accuracy": {
            "overall": overall,
            "task_averaged": task_average(rows, asked["bootstrap"], asked["seed"]),
            "by_type": {kind: rate([row for row in rows if row["type"] == kind]) for kind in present},
            "abstention": rate([row for row in rows if row["abstention"]]),
        },
        "without_disputed": {**rate([row for row in rows if row["id"] not in contested]), "left_out": left_out},
        "worst": _plain(stats.wilson(overall["k"], overall["n"] + overall["not_judged"])),
        "missing": {row["id"]: row["missing"] for row in rows if row["missing"] is not None},
        "readings": readings(rows),
        "panel": panel(rows),
        "retrieval": dict(recall),
        "cost": spent,
        "conditions": {
            "data": head["name"],
            "data_sha256": head["sha256"],
            "official_data": head["official"],
            "records": head["records"],
            "n": len(rows),
            "sample_digest": head["sample"]["digest"],
            "sample_by": head["sample"]["by"],
            "reader": judge["reader"],
            "judge": judge["name"],
            "panel": judge["panel"],
            "internal_model": judge["internal_model"],
            "plumbing": judge["internal_model"] == EXTRACTIVE,
            "official_prompts": judge["prompts"]["official_prompts"],
            "prompts": judge["prompts"]["digest"],
            "embedder": asked["embedder"],
            "top_sessions": asked["top_sessions"],
            "k": asked["k"],
            "isolation": isolation(asked["system"]),
            "limit_s": asked["unit_timeout_s"],
            "rules_version": RULES_VERSION,
        },
        "metrics": {"accuracy": overall},
    }


def load(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(answer rows of judgements.jsonl, metrics) of a run folder, from its files alone."""
    from kiokulab.verdict.judge import pairs

    judge, *rows = read_jsonl(folder / "judgements.jsonl")
    return rows, metrics(
        rows, judge, generate.read(folder)[0], retrieval(pairs(folder)), cost(recorded_calls(folder), len(rows))
    )


def rederive(folder: str | Path) -> dict[str, Any]:
    """metrics.json again from the rows (verification compares)."""
    return load(Path(folder))[1]


def run(folder: str | Path, params: VerdictParams) -> list[dict[str, Any]]:
    """Step 4: metrics.json, latency.json, comparison.json, figures/, report.html and system.html. Returns a row a
    figure."""
    from kiokulab.verdict import report

    folder = Path(folder)
    _, found = load(folder)
    write_atomic(folder / "metrics.json", dumps(found) + "\n")
    write_atomic(
        folder / "latency.json",
        dumps(latency(read_jsonl(folder / "events.jsonl"), read_jsonl(folder / "answer-events.jsonl"))) + "\n",
    )
    write_atomic(folder / "comparison.json", dumps(compare(folder, [Path(place) for place in params.beside])) + "\n")
    report.write(folder, params)
    return table(found)


def table(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures of a run as rows for people."""
    accuracy, average = found["accuracy"], found["accuracy"]["task_averaged"]
    rows = [
        {"figure": "overall", **_cells(accuracy["overall"])},
        {
            "figure": f"task-averaged over {average['types']} types",
            "right": "",
            "share": _percent(average["value"]),
            "95 % interval": _interval(average),
            "not judged": "",
        },
    ]
    rows += [{"figure": kind, **_cells(one)} for kind in TYPES if (one := accuracy["by_type"].get(kind))]
    rows.append({"figure": "abstention (counted in its type too)", **_cells(accuracy["abstention"])})
    if found["without_disputed"]["left_out"]:
        rows.append(
            {
                "figure": f"overall without {len(found['without_disputed']['left_out'])} disputed gold answers",
                **_cells(found["without_disputed"]),
            }
        )
    if accuracy["overall"]["not_judged"]:
        rows.append({"figure": "overall, not judged counted as wrong", **_cells(found["worst"])})
    return rows


def _cells(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "right": f"{one['k']}/{one['n']}",
        "share": _percent(one["rate"]),
        "95 % interval": _interval(one),
        "not judged": one["not_judged"],
    }


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"


def _interval(one: Mapping[str, Any]) -> str:
    return "n/a" if one["low"] is None else f"{100 * one['low']:.1f} to {100 * one['high']:.1f}"


def printed(found: Mapping[str, Any]) -> str:
    """The figures as one block of text: what the notebook prints and what verification looks for."""
    lines = [
        f"{row['figure']:<44}{row['right']:>9}{row['share']:>9}   {row['95 % interval']:<14}"
        + (f" not judged: {row['not judged']}" if row["not judged"] else "")
        for row in table(found)
    ]
    lines += [f"no answer, counted as wrong: {name}: {why}" for name, why in found["missing"].items()]
    for name in ("recall_any", "recall_all"):
        lines.append(
            f"{'retrieval ' + name + ' (diagnostic)':<44}{found['retrieval'][name]['k']:>6}/{found['retrieval'][name]['n']:<3}"
        )
    if found["readings"]["n"]:
        lines.append(
            f"strict reading differs from the official one in {len(found['readings']['differ'])} of {found['readings']['n']}, has none in {len(found['readings']['strict_has_none'])}"
        )
    return "\n".join(line.rstrip() for line in lines)


def summary(folders: Iterable[str | Path]) -> str:
    """The table that the terminal shows after a run: one line a system."""
    from kiokulab.feeding import BRACKETS

    lines, said = (
        [
            f"{'system':<20}{'right':>8}{'share':>9}   {'95 %':<14}{'task-avg':>9}{'abstention':>12}{'not judged':>12}{'no answer':>11}"
        ],
        {},
    )
    for folder in map(Path, folders):
        found = json.loads((folder / "metrics.json").read_bytes())
        overall, average, abstention = (
            found["accuracy"]["overall"],
            found["accuracy"]["task_averaged"],
            found["accuracy"]["abstention"],
        )
        name = f"[{folder.parent.name}]" if found["conditions"]["plumbing"] else folder.parent.name
        lines.append(
            f"{name:<20}{overall['k']:>5}/{overall['n']:<2}{_percent(overall['rate']):>9}   {_interval(overall):<14}{_percent(average['value']):>9}"
            f"{abstention['k']:>9}/{abstention['n']:<2}{overall['not_judged']:>12}{len(found['missing']):>11}"
        )
        c = found["conditions"]
        said[
            f"{c['data']}; reader {c['reader']}, judge {c['judge']}, official_prompts: {str(c['official_prompts']).lower()}"
        ] = True
        if found["conditions"]["plumbing"]:
            said[BRACKETS] = True
    return "\n".join([*lines, *said])


# --- beside other runs ----------------------------------------------------------------------------------------------


def compare(folder: Path, beside: Sequence[Path]) -> dict[str, Any]:
    """This run and those beside it that are alike in everything that must be: rates, pairs (exact McNemar, Holm over
    all pairs), Cochran's Q, and groups that cannot be told apart. Others are listed with what differs, and in no
    table."""
    mine = json.loads((folder / "metrics.json").read_bytes())
    runs, refused = {folder.parent.name: (mine, _verdicts(folder))}, {}
    for place in beside:
        try:
            theirs = load(place)[1]
        except (OSError, KeyError, ValueError, InputError):
            refused[place.parent.name] = "not finished"
            continue
        name = place.parent.name if place.parent.name not in runs else f"{place.parent.name} {place.name[:6]}"
        differ = [key for key in ALIKE if theirs["conditions"][key] != mine["conditions"][key]]
        if theirs["conditions"]["plumbing"] or mine["conditions"]["plumbing"]:
            refused[name] = (
                "not compared: a system fed by the built-in model is plumbing, and enters no table of results"
            )
        elif differ:
            refused[name] = "differs in " + ", ".join(differ)
        else:
            runs[name] = (theirs, _verdicts(place))
    order = sorted(runs, key=lambda name: (-(runs[name][0]["accuracy"]["overall"]["rate"] or 0), name))
    systems = {
        name: {
            **runs[name][0]["accuracy"]["overall"],
            "task_averaged": runs[name][0]["accuracy"]["task_averaged"]["value"],
            "by_type": runs[name][0]["accuracy"]["by_type"],
            "abstention": runs[name][0]["accuracy"]["abstention"],
            "missing": len(runs[name][0]["missing"]),
            "recall_all": runs[name][0]["retrieval"]["recall_all"],
            "cost": runs[name][0]["cost"],
        }
        for name in order
    }
    return {"order": order, "systems": systems, **tests({name: runs[name][1] for name in order}), "refused": refused}


def _verdicts(folder: Path) -> dict[str, str]:
    return {
        row["id"]: row["verdict"] for _, row in iterate_jsonl(folder / "judgements.jsonl") if row["kind"] == "answer"
    }


def tests(verdicts: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Paired tests on the questions that all systems were judged on. `verdicts`: system -> id -> verdict, best system
    first."""
    names = list(verdicts)
    shared = sorted(
        id
        for id in set.intersection(*(set(v) for v in verdicts.values()))
        if all(v[id] != "not_judged" for v in verdicts.values())
    )
    right = {name: [verdicts[name][id] == "right" for id in shared] for name in names}
    pairs = [(a, b, stats.mcnemar(right[a], right[b])) for a, b in combinations(names, 2)]
    adjusted = stats.holm([found.p for *_, found in pairs])
    rows = [
        {
            "a": a,
            "b": b,
            "only_a": f.b,
            "only_b": f.c,
            "p": f.p,
            "holm": p,
            "verdict": f.verdict if p is None else "different" if p < 0.05 else "not distinguishable",
        }
        for (a, b, f), p in zip(pairs, adjusted)
    ]
    alike = {name: {name} for name in names}
    for row in rows:
        if row["verdict"] != "different":
            alike[row["a"]].add(row["b"])
            alike[row["b"]].add(row["a"])
    q = stats.cochran(list(zip(*right.values()))) if len(names) > 1 and shared else None
    return {"questions": len(shared), "pairs": rows, "cochran": q, "groups": groups(alike, names)}


def groups(alike: Mapping[str, set[str]], order: Sequence[str]) -> list[list[str]]:
    """Largest sets of systems of which no two can be told apart (maximal cliques), best first. A system may stand in
    several:
    not being distinguishable does not carry over."""
    found: list[set[str]] = []

    def grow(members: set[str], left: set[str], done: set[str]) -> None:
        if not left and not done:
            found.append(members)
        for name in sorted(left, key=order.index):
            near = alike[name] - {name}
            grow(members | {name}, left & near, done & near)
            left, done = left - {name}, done | {name}

    grow(set(), set(order), set())
    return sorted(
        (sorted(group, key=order.index) for group in found), key=lambda group: [order.index(name) for name in group]
    )

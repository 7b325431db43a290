"""The verdict run as pages: report.html (this command's systems side by side) and system.html (this system alone),
and their parts one by one for the notebooks. What a model, a memory or a data file wrote is escaped by `page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kiokulab import page
from kiokulab.files import read_jsonl, write_atomic
from kiokulab.params import root
from kiokulab.verdict import TYPES, analyze, generate
from kiokulab.verdict.dataset import show_date
from kiokulab.verdict.params import BASELINES, HERE, VerdictParams, describe_system

WRONG_SHOWN = 12
OFFLINE = "Offline: sentences were picked and graded by rule, without a language model. This shows the plumbing and what came through; it is no score of an agent."


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def ordered(compared: dict[str, Any]) -> dict[str, Any]:
    """Systems of a comparison, best first (JSON objects are kept in the order of their names)."""
    return {name: compared["systems"][name] for name in compared["order"]}


# --- figures ------------------------------------------------------------------------------------------------------


def accuracy_figure(compared: dict[str, Any], mine: str, note: str) -> tuple[bytes, str]:
    """Accuracy of each comparable system with its Wilson interval, as PNG, and its alt text."""
    from kiokulab import plots

    plt = plots._pyplot()
    systems = ordered(compared)
    drawing, axes = plt.subplots(figsize=(8.2, 1.5 + 0.5 * len(systems)), layout="constrained")
    for y, (name, one) in enumerate(systems.items()):
        if not one["n"]:
            axes.text(1, y, "n/a", va="center", color=plots.GREY)
            continue
        grey = name in BASELINES and name != mine
        axes.barh(
            y,
            100 * one["rate"],
            height=0.58,
            color=plots.SKY if name == mine else "#C9C9C9" if grey else "#D7E8F2",
            edgecolor=plots.BLUE if name == mine else plots.GREY,
            lw=1.2 if name == mine else 0.7,
        )
        axes.errorbar(
            100 * one["rate"],
            y,
            xerr=[[100 * (one["rate"] - one["low"])], [100 * (one["high"] - one["rate"])]],
            color=plots.INK,
            capsize=3.5,
            lw=1.3,
        )
        axes.text(
            103,
            y,
            f"{one['k']}/{one['n']}" + (f", {one['not_judged']} not judged" if one["not_judged"] else ""),
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(systems)), [plots.safe(name) for name in systems])
    axes.set_ylim(len(systems) - 0.4, -0.6)
    axes.set(xlim=(0, 102), xticks=range(0, 101, 20), xlabel="right answers in percent, with the 95 % Wilson interval")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_title(plots.safe(note, 90), fontsize=11)
    alt = "; ".join(f"{name}: {one['k']} of {one['n']}" for name, one in systems.items())
    return plots.png(drawing), f"Accuracy of {len(systems)} systems on the same questions. {alt}."


def types_figure(compared: dict[str, Any]) -> tuple[bytes, str]:
    """Right answers by question type and system: shares as shades, with k/n in each cell."""
    from kiokulab import plots

    plt = plots._pyplot()
    systems = ordered(compared)
    kinds = [*[kind for kind in TYPES if any(kind in one["by_type"] for one in systems.values())], "abstention"]
    drawing, axes = plt.subplots(figsize=(8.2, 2.1 + 0.42 * len(systems)), layout="constrained")
    grid = [
        [
            (one["abstention"] if kind == "abstention" else one["by_type"].get(kind, {"n": 0, "k": 0, "rate": None}))
            for kind in kinds
        ]
        for one in systems.values()
    ]
    axes.imshow(
        [[cell["rate"] if cell["n"] else float("nan") for cell in row] for row in grid],
        cmap="Blues",
        vmin=0,
        vmax=1.25,
        aspect="auto",
    )
    for y, row in enumerate(grid):
        for x, cell in enumerate(row):
            axes.text(
                x,
                y,
                f"{cell['k']}/{cell['n']}" if cell["n"] else "not judged" if cell.get("not_judged") else "none",
                ha="center",
                va="center",
                fontsize=9,
                color="white" if cell["n"] and cell["rate"] > 0.8 else plots.INK,
            )
    axes.axvline(len(kinds) - 1.5, color=plots.INK, lw=1)
    axes.set_xticks(
        range(len(kinds)),
        [
            (
                kind.replace("single-session-", "single:\n").replace("-", "-\n", 1)
                if "single" not in kind
                else kind.replace("single-session-", "single:\n")
            )
            for kind in kinds
        ],
        fontsize=9,
    )
    axes.set_yticks(range(len(systems)), [plots.safe(name) for name in systems])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title("By question type (a handful each: orientation, not measurement)", fontsize=11)
    alt = "; ".join(
        f"{name}: " + ", ".join(f"{kind} {cell['k']}/{cell['n']}" for kind, cell in zip(kinds, row))
        for name, row in zip(systems, grid)
    )
    return plots.png(drawing), f"Right answers by question type. {alt}."


# --- tables -------------------------------------------------------------------------------------------------------


def systems_table(compared: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a comparable system, best first; systems with a letter in common cannot be told apart."""
    letters = dict.fromkeys(compared["order"], "")
    for letter, group in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", compared["groups"]):
        for name in group:
            letters[name] += letter
    return [
        {
            "system": name,
            "right": f"{one['k']}/{one['n']}",
            "accuracy": analyze._percent(one["rate"]),
            "95 % interval": analyze._interval(one),
            "not told apart": letters[name],
            "task-averaged": analyze._percent(one["task_averaged"]),
            "abstention": f"{one['abstention']['k']}/{one['abstention']['n']}",
            "not judged": one["not_judged"],
            "no answer": one["missing"],
            "cost per 1,000, billed": _billed(one["cost"]),
        }
        for name, one in ordered(compared).items()
    ]


def _billed(spent: dict[str, Any] | None) -> str:
    if spent is None:
        return "no model called"
    total = spent["total_without_judges"]
    return _dollars(total["billed"], total["not_billed"]) + " USD" if total["billed"] else "not known"


def pairs_table(compared: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "pair": f"{row['a']} : {row['b']}",
            "only the first right": row["only_a"],
            "only the second": row["only_b"],
            "p (exact McNemar)": "" if row["p"] is None else f"{row['p']:.4f}",
            f"p (Holm, {len(compared['pairs'])} pair{'' if len(compared['pairs']) == 1 else 's'})": (
                "" if row["holm"] is None else f"{row['holm']:.4f}"
            ),
            "read as": row["verdict"],
        }
        for row in compared["pairs"]
    ]


def refused_table(compared: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"not in the tables": name, "because it": why} for name, why in compared["refused"].items()]


def missing_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"question": name, "counts as wrong, because": why} for name, why in found["missing"].items()]


def readings_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    r = found["readings"]
    return (
        [
            {
                "judged by a model": r["n"],
                "strict reading differs": len(r["differ"]),
                "strict reading has none": len(r["strict_has_none"]),
                "ids": ", ".join([*r["differ"], *r["strict_has_none"]][:20]) or "none",
            }
        ]
        if r["n"]
        else []
    )


def panel_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    p = found["panel"]
    if not p:
        return []
    rows = [
        {"figure": "majority of the panel", **analyze._cells(p["majority"])},
        {"figure": "all judges alike", **analyze._cells(p["all_agree"])},
    ]
    blank = {"right": "", "95 % interval": "", "not judged": ""}
    members = {f"panel {n}": name for n, name in enumerate(found.get("conditions", {}).get("panel", []), 1)}
    rows += [
        {
            "figure": " and ".join(members.get(one_of, one_of) for one_of in name.split(" and ")),
            **blank,
            "right": f"n = {one['n']}",
            "share": f"{analyze._percent(one['raw'])} alike; kappa {one['note'] or format(one['kappa'], '.3f')}",
        }
        for name, one in p["pairs"].items()
    ]
    if p["alpha"]:
        rows.append(
            {
                "figure": "Krippendorff's alpha",
                **blank,
                "right": f"n = {p['alpha']['n']}",
                "share": p["alpha"]["note"] or f"{p['alpha']['value']:.3f}",
            }
        )
    rows.append({"figure": "headline against majority", **blank, "share": ", ".join(p["flips"]) or "no flip"})
    rows.append({"figure": "undecided", **blank, "share": ", ".join(p["undecided"]) or "none"})
    return rows


def retrieval_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    r = found["retrieval"]
    said = {
        "recall_any": "at least one labelled session came through",
        "recall_all": "every labelled session came through",
    }
    return [
        {
            "diagnostic, not a LongMemEval score": text,
            "questions": f"{r[name]['k']}/{r[name]['n']}",
            "share": analyze._percent(r[name]["rate"]),
            "95 % interval": analyze._interval(r[name]),
            "not traceable": r["untraced"],
        }
        for name, text in said.items()
    ]


def cost_table(found: dict[str, Any]) -> list[dict[str, Any]]:
    c = found["cost"]
    if not c:
        return [{"cost": "no language model was called: 0 calls, nothing billed"}]
    parts = {**c["per_1000_questions"], "all but the judges": c["total_without_judges"]}
    return [
        {
            "part": name,
            "calls": one["calls"],
            "USD per 1,000 questions, billed": _dollars(one["billed"], one["not_billed"]),
            "list price": _dollars(one["list"], one["not_listed"]),
        }
        for name, one in parts.items()
    ]


def _dollars(amount: str | None, missing: int) -> str:
    return "not known" if amount is None else amount + (f" and what {missing} calls cost" if missing else "")


def latency_table(folder: Path) -> list[dict[str, Any]]:
    say = lambda one: (
        f"{one['value']:.3g}" + ("" if one["low"] is None else f" ({one['low']:.3g} to {one['high']:.3g})")
    )
    return [
        {
            "seconds": name,
            "questions": one["n"],
            "median (95 %)": say(one["median"]),
            "90th percentile (95 %)": say(one["p90"]),
        }
        for name, one in _json(folder / "latency.json").items()
    ]


def failures(folder: Path, most: int = WRONG_SHOWN) -> list[dict[str, Any]]:
    """Wrong answers in full, in the order of the questions: what was asked, expected, answered, and why it is wrong."""
    answers = {row["id"]: row for row in read_jsonl(folder / "answers.jsonl")}
    verdicts = {row["id"]: row for row in read_jsonl(folder / "judgements.jsonl") if row["kind"] == "answer"}
    wrong = [
        (question, verdicts[question.id])
        for question in generate.read(folder)[1]
        if verdicts[question.id]["verdict"] == "wrong"
    ]
    return [
        {
            "id": question.id,
            "type": question.type,
            "asked": f"{show_date(question.date)}\n{question.question}",
            "expected": question.answer,
            "answered": answers[question.id]["text"] or "no answer",
            "why": verdict["why"],
        }
        for question, verdict in wrong[:most]
    ]


def conditions(folder: Path, found: dict[str, Any]) -> list[dict[str, Any]]:
    c, head = found["conditions"], generate.read(folder)[0]
    judge = next(row for row in read_jsonl(folder / "judgements.jsonl") if row["kind"] == "judge")
    measured = judge["measured"]
    said = {
        "data": f"{c['data']}, sha256 {c['data_sha256'][:16]}…, {'official release' if c['official_data'] else 'no official release: no score on it is a LongMemEval score'}",
        "questions": f"{c['n']} of {c['records']}, by {c['sample_by']}; {head['sample']['abstention']} to be declined; digest of the ids {c['sample_digest'][:16]}…",
        "by type": ", ".join(f"{kind} {n}" for kind, n in head["sample"]["types"].items()),
        "reader": c["reader"]
        + (" (no model: picks sentences, cannot add, compare or advise)" if c["reader"] == "extractive" else ""),
        "judge": c["judge"]
        + (
            f"; agrees with {measured['against'].split(',')[0]} on "
            + " and ".join(f"{one['agree']}/{one['n']} (kappa {one['kappa']:.2f})" for one in measured["runs"].values())
            + " public answers; preference rubrics are not judged by rule"
            if measured
            else ""
        ),
        "panel": ", ".join(c["panel"]) or "none",
        "model of the memory system": (
            "it calls none"
            if c["internal_model"] is None
            else c["internal_model"]
            + (" (built in: plumbing, no result)" if c["plumbing"] else ", reasoning effort none")
        ),
        "prompts": f"official_prompts: {str(c['official_prompts']).lower()}; {c['prompts']}"
        + "".join(f"\n{text}" for text in judge["prompts"]["warnings"]),
        "isolation": f"{c['isolation']}; limit {c['limit_s']} s a question, over it is wrong",
        "clock": "UTC, because the file names no zone; set to each session's date, then to the question's, which may lie before a session of the same day",
        "settings of reader and judge": json.dumps(judge["models"], sort_keys=True) if judge["models"] else "no model",
        "retrieval": f"top {c['top_sessions']} sessions for plain-rag and bm25, {c['k']} results of a memory system; embedder {c['embedder']}",
    }
    return [{"condition": name, "said": text} for name, text in said.items()]


# --- page of a system ---------------------------------------------------------------------------------------------


def note_of(system: str) -> str:
    """The note beside an adapter: what was run, how its vendor feeds it and where that is said, what cannot be
    reached."""
    if system in BASELINES:
        return (HERE / "baselines.md").read_text(encoding="utf-8")
    from kiokulab import systems

    path = systems.adapter(system).file.with_suffix(".md")
    return path.read_text(encoding="utf-8") if path.is_file() else "There is no note beside this adapter."


def configuration(params: VerdictParams) -> list[dict[str, Any]]:
    known = describe_system(params.system, params.settings)
    names = (
        "name",
        "version",
        "package",
        "feeds",
        "dates",
        "model",
        "embeddings",
        "settings",
        "lock_digest",
        "source_digest",
    )
    return [
        {"configuration": name.replace("_", " "), "said": str(known[name])}
        for name in names
        if known.get(name) not in (None, "")
    ]


def vendor_reported(system: str) -> list[dict[str, Any]]:
    """What others report for this system, with source, reader and judge. Never averaged with, or ranked among, ours."""
    rows = yaml.safe_load((root() / "data" / "published" / "vendor-reported.yml").read_text(encoding="utf-8"))[
        "reports"
    ]
    return [
        {
            "reported by": row["by"],
            "figure": row["figure"],
            "metric": row["metric"],
            "reader": row["reader"],
            "judge": row["judge"],
            "data": row["data"],
            "date": row["date"],
            "source": row["source"],
            "remark": row.get("remark", ""),
        }
        for row in rows
        if system in row["systems"]
    ]


# --- pages --------------------------------------------------------------------------------------------------------


def write(folder: Path, params: VerdictParams) -> None:
    """figures/*.png, report.html and system.html of an analysed run."""
    folder = Path(folder)
    found, compared, name = _json(folder / "metrics.json"), _json(folder / "comparison.json"), folder.parent.name
    c = found["conditions"]
    picture, alt = accuracy_figure(compared, name, f"{c['n']} questions; reader {c['reader']}, judge {c['judge']}")
    kinds, kinds_alt = types_figure(compared)
    write_atomic(folder / "figures" / "accuracy.png", picture)
    write_atomic(folder / "figures" / "types.png", kinds)
    lead = page.environment().from_string("<p>{{ text }}</p>").render(text=_lead(found, compared, name))
    sections = [
        ("", lead + page.image(picture, alt)),
        ("Systems side by side", _text(_groups_said(compared)) + page.table(systems_table(compared))),
        ("By question type", page.image(kinds, kinds_alt)),
        ("This system's figures", page.table(analyze.table(found))),
    ]
    sections += [
        (title, page.table(rows, longest))
        for title, rows, longest in (
            ("Pairs on the same questions", pairs_table(compared), 160),
            ("Left out of the tables", refused_table(compared), 300),
            ("No answer: counted as wrong", missing_table(found), 400),
            ("Two readings of the judge's words", readings_table(found), 400),
            ("Panel of judges", panel_table(found), 400),
            ("What came through", retrieval_table(found), 160),
            ("Cost", cost_table(found), 160),
            ("Delay on this machine", latency_table(folder), 160),
            ("Wrong answers in full", failures(folder), 600),
            ("Conditions", conditions(folder, found), 900),
        )
        if rows
    ]
    write_atomic(folder / "report.html", page.document(f"verdict: {name} on {c['n']} questions", sections))
    note = (
        page.environment()
        .from_string('<div style="white-space:pre-wrap">{{ text | text(20000) }}</div>')
        .render(text=note_of(params.system))
    )
    vendor = vendor_reported(name)
    write_atomic(
        folder / "system.html",
        page.document(
            f"{name}: how it was run, and what it gave",
            [
                ("Configuration", page.table(configuration(params), 400)),
                ("How it is fed, and where that is said", note),
                ("Results of this run", _text(_lead(found, compared, name)) + page.table(analyze.table(found))),
                ("Conditions", page.table(conditions(folder, found), 900)),
                (
                    "Reported by others",
                    (
                        _text(
                            "Other readers, judges, prompts and data: these figures stand here to be read beside ours, and are in no table with them."
                        )
                        + page.table(vendor, 400)
                        if vendor
                        else _text("No figure of its vendor is on record here.")
                    ),
                ),
            ],
        ),
    )


def _lead(found: dict[str, Any], compared: dict[str, Any], name: str) -> str:
    overall = found["accuracy"]["overall"]
    text = f"{name} is right on {overall['k']} of {overall['n']} judged questions (95 % interval {analyze._interval(overall)})"
    text += f"; {overall['not_judged']} were not judged" if overall["not_judged"] else ""
    text += f"; {len(found['missing'])} had no answer and count as wrong" if found["missing"] else ""
    text += (
        ". PLUMBING: the system was fed by the built-in model, so these figures are no result"
        if found["conditions"]["plumbing"]
        else ""
    )
    return (
        text
        + "."
        + (
            f" {OFFLINE}"
            if found["conditions"]["reader"] == "extractive" or found["conditions"]["judge"] == "rules"
            else ""
        )
    )


def _groups_said(compared: dict[str, Any]) -> str:
    if len(compared["systems"]) < 2:
        return "No comparable run stands beside this one."
    said = "; ".join(", ".join(group) for group in compared["groups"])
    return f"On the {compared['questions']} questions on which all were judged, these cannot be told apart (exact McNemar, Holm, 5 %): {said}."


def _text(text: str) -> str:
    return page.environment().from_string("<p>{{ text }}</p>").render(text=page.plain(text, 2000))

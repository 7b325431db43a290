"""report.html, figures and small tables of a drift run. Whatever a memory or a script said is data: escaped, cut, its
control characters made visible."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiokulab.drift import analyze
from kiokulab.files import write_atomic
from kiokulab.page import css, environment, plain, with_font

HERE = Path(__file__).parent
CASES = 24  # failures shown in full
GOOD = "#0072b2"  # blue to white: also told apart without colours, since the figure stands in each cell

LIMITATIONS = (
    "The score adds eight pass rates, and silence earns three hundred of its thousand points: "
    "abstention, deletion and tokens are "
    "full marks for a memory that returns nothing. Read success and the flags beside every score.",
    "Deletion is nearly free: a store without traces is not asked whether it warns when a deleted note comes back.",
    "Success counts every task posed, a family's points only the tasks attempted; both stand in the table of families.",
    "A task is about a key: a memory that rewords a note cannot be credited with it.",
    "Tokens are a quarter of the characters, a rule for English; Japanese is billed too little, "
    "so the two languages are not compared by tokens.",
    "The worlds are invented notes of one register; our worlds are no worlds of the public benchmark, "
    "and no published figure holds for them.",
    "Nobody but its author has read the sentences of our worlds yet.",
    "Intervals are over the subjects of the worlds at hand; one seed says little about another.",
)


def _environment():
    return environment(str(HERE))


def table(rows: Sequence[Mapping[str, Any]], longest: int = 160) -> str:
    """Rows as an HTML table; every cell is escaped and cut. A column that a row lacks is shown as a dash."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    return (
        _environment()
        .from_string('{% import "macros.html" as m %}{{ m.table(heads, rows, longest) }}')
        .render(heads=heads, rows=rows, longest=longest)
    )


# --- figures ------------------------------------------------------------------------------------------------------


def heat_map(lines: Sequence[tuple[str, Mapping[str, float | None]]]) -> bytes:
    """Pass rate of each system (row) in each scenario (column), with the figure in the cell; n/a is hatched."""
    from kiokulab import plots

    plt = plots._pyplot()
    families = [name for name in analyze.SHOWN if any(cells.get(name) is not None for _, cells in lines)]
    figure, axes = plt.subplots(figsize=(1.6 + 1.05 * len(families), 1.1 + 0.38 * len(lines)))
    colours = plt.get_cmap("Blues")
    for y, (_, cells) in enumerate(lines):
        for x, name in enumerate(families):
            rate = cells.get(name)
            axes.add_patch(
                plt.Rectangle(
                    (x, y),
                    1,
                    1,
                    facecolor="white" if rate is None else colours(0.08 + 0.72 * rate),
                    edgecolor="#cccccc",
                    hatch="///" if rate is None else None,
                    linewidth=0.6,
                )
            )
            axes.text(
                x + 0.5,
                y + 0.5,
                "n/a" if rate is None else f"{100 * rate:.0f}",
                ha="center",
                va="center",
                color="white" if rate is not None and rate > 0.6 else "#1c1e21",
                fontsize=9,
            )
    axes.set(xlim=(0, len(families)), ylim=(len(lines), 0))
    axes.set_xticks([x + 0.5 for x in range(len(families))], [analyze.TITLES[name] for name in families], fontsize=9)
    axes.set_yticks([y + 0.5 for y in range(len(lines))], [plots.safe(name, 28) for name, _ in lines])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.tight_layout()
    return plots.png(figure)


def tokens_success(points: Sequence[tuple[str, float, float]]) -> bytes:
    """Tokens billed a question (logarithmic) against success over all tasks posed, one mark a system."""
    from kiokulab import plots

    plt = plots._pyplot()
    figure, axes = plt.subplots(figsize=(7.5, 4.6))
    axes.axvspan(0.5, 200, color="#f5f6f8")
    axes.axvline(3000, color="#999999", linewidth=0.8, linestyle=":")
    places = [(max(1.0, tokens), 100 * success, name) for name, tokens, success in points]
    for x, y, name in sorted(places):
        axes.plot([x], [y], "o", color=GOOD, markersize=6)
        # a label goes to the left where another mark stands close on the right of this one
        crowded = any(
            (other, beside) != (x, name) and x <= other < 4 * x and abs(y - height) < 5
            for other, height, beside in places
        )
        axes.annotate(
            plots.safe(name, 28),
            (x, y),
            xytext=(-6 if crowded else 6, -3),
            textcoords="offset points",
            fontsize=9,
            ha="right" if crowded else "left",
        )
    axes.set_xscale("log")
    axes.set(
        xlim=(0.7, max(1e4, 3 * max((tokens for _, tokens, _ in points), default=1))),
        ylim=(0, 105),
        xlabel="tokens billed a question (shaded: full token score; dotted: none from here on)",
        ylabel="success, % of all tasks posed",
    )
    axes.grid(True, axis="y")
    figure.tight_layout()
    return plots.png(figure)


# --- what the report shows ----------------------------------------------------------------------------------------


def families(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A line a scenario: both rates with their intervals, and the columns."""

    def span(rate: Mapping[str, Any]) -> str:
        return (
            "none"
            if not rate["n"]
            else f"{rate['k']}/{rate['n']} = {100 * rate['rate']:.1f} % "
            f"({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
        )

    rows = []
    by_name = {family["family"]: family for family in found["families"]}
    for name in analyze.SHOWN:
        rate = found["metrics"].get(name)
        if rate is None:
            continue
        family = by_name[name]
        rows.append(
            {
                "scenario": analyze.TITLES[name],
                "passed of posed": span(rate),
                "passed of attempted": span(rate["attempted"]),
                "not attempted because": family.get(
                    "na", "" if rate["attempted"]["n"] == rate["n"] else "for some, what they need is not offered"
                ),
                "columns": ", ".join(
                    f"{column} {value:.2f}"
                    for column, value in family["columns"].items()
                    if not column.startswith("s_")
                ),
            }
        )
    return rows


def failures(graded: analyze.Graded, most: int = CASES) -> list[dict[str, Any]]:
    """Failed tasks in full, the same number from each scenario in order: question, expected, what came back, why it
    failed."""
    by_family: dict[str, list[Mapping[str, Any]]] = {}
    for task in graded.tasks:
        if task["passed"] is False:
            by_family.setdefault(task["family"], []).append(task)
    chosen: list[Mapping[str, Any]] = []
    for turn in range(most):
        for name in analyze.SHOWN:
            reasons = by_family.get(name, [])
            # one of each reason first, so that a frequent one does not hide the rest
            firsts = list({task["why"].rstrip("0123456789"): task for task in reversed(reasons)}.values())[::-1]
            order = firsts + [task for task in reasons if task not in firsts]
            if turn < min(len(order), 4):
                chosen.append(order[turn])
    return [
        {
            "world": task["unit"],
            "task": task["id"],
            "scenario": analyze.TITLES[task["family"]],
            "kind": task.get("phrasing") or task.get("shape") or task["expect"],
            "asked": task["asked"] or f"(no question: {task['expect']} {task['subject']})",
            "expected": task["answer"] or "",
            "subject": task["subject"],
            "why": task["why"],
            "delivered": task.get("delivered", []),
            "hits": task.get("hits", 0),
            "dump": task.get("dump", False),
        }
        for task in chosen[:most]
    ]


def refused(runs: Sequence[analyze.Graded]) -> str:
    """Why no table may be shown: the oracle fell short, so the harness and not the systems is at fault. Empty where it
    may."""
    for run in runs:
        if run.system == "oracle":
            short = sum(task["passed"] is not True for task in run.tasks)
            if short:
                passed = len(run.tasks) - short
                return (
                    f"The oracle passes {passed} of {len(run.tasks)} tasks. It knows every answer, so the harness is "
                    "at fault, and no figure is shown."
                )
    return ""


def published_rows(graded: analyze.Graded) -> list[dict[str, Any]]:
    """The published ladder of the worlds at hand; empty where they are not public ones."""
    import yaml

    path = Path(__file__).resolve().parents[3] / "data" / "published" / "knowledgedrift.yml"
    worlds = sorted({analyze.PUBLIC[digest] for digest in graded.digests.values() if digest in analyze.PUBLIC})
    if not worlds or not path.is_file():
        return []
    tables = yaml.safe_load(path.read_text(encoding="utf-8"))["worlds"]
    return [
        {
            "world": world,
            "published system": name,
            **{key: row[key] for key in ("score", "scenarios", "signal", "tokens")},
            "passed/attempted": f"{row['passed']}/{row['attempted']}",
            "billed": row["billed"],
            **{
                family: "n/a" if row["families"].get(family) is None else f"{row['families'][family]} %"
                for family in analyze.SHOWN
                if family != "authority"
            },
        }
        for world in worlds
        for name, row in tables.get(world, {}).items()
    ]


def write(
    folder: Path,
    graded: analyze.Graded,
    mine: Mapping[str, Any],
    others: Sequence[analyze.Graded],
    theirs: Sequence[Mapping[str, Any]],
    left_out: Sequence[str],
    params: Any,
) -> Path:
    """Write figures/*.png and report.html of an analysed run (`theirs`: metrics of the `others`); returns the report's
    path."""
    stop = refused([graded, *others])
    ladder = sorted([mine, *theirs], key=lambda entry: -entry["score"])
    figures: dict[str, dict[str, str]] = {}
    if not stop:
        cells = [
            (entry["arm"], {family["family"]: family["pass_rate"] for family in entry["families"]}) for entry in ladder
        ]
        points = [(entry["arm"], entry["tokens_billed"], entry["success"]) for entry in ladder]
        for name, data, alt in (
            (
                "scenarios",
                heat_map(cells),
                "Pass rate in per cent of each system in each scenario: "
                + "; ".join(
                    f"{arm}: "
                    + ", ".join(
                        f"{family} {'n/a' if rate is None else format(100 * rate, '.0f')}"
                        for family, rate in row.items()
                    )
                    for arm, row in cells
                ),
            ),
            (
                "tokens-success",
                tokens_success(points),
                "Tokens billed a question against success: "
                + "; ".join(f"{arm} {tokens:.0f} tokens, {100 * success:.0f} %" for arm, tokens, success in points),
            ),
        ):
            write_atomic(folder / "figures" / f"{name}.png", data)
            figures[name] = {"uri": "data:image/png;base64," + base64.b64encode(data).decode(), "alt": plain(alt, 4000)}
    context = {
        "m": mine,
        "run": folder.name,
        "stop": stop,
        "ladder": [] if stop else [analyze.line(entry) for entry in ladder],
        "figures": figures,
        "families": families(mine),
        "differences": [] if stop else _differences(graded, others, params),
        "left_out": list(left_out),
        "cases": failures(graded),
        "failed": len(mine["failed"]),
        "published": published_rows(graded),
        "limitations": LIMITATIONS,
        "worlds": [
            {
                "world": world,
                "script digest": receipt["script_digest"],
                "posed": receipt["tasks"],
                "attempted": receipt["attempted"],
                "passed": receipt["passed"],
                "score": f"{receipt['score']:.1f}",
                "tokens billed": f"{receipt['tokens_billed']:.1f}",
            }
            for world, receipt in mine["worlds"].items()
        ],
        "heads": lambda rows: list(dict.fromkeys(name for row in rows for name in row)),
        "css": css(),
    }
    path = folder / "report.html"
    write_atomic(path, with_font(_environment().get_template("report.html").render(context)))
    return path


def _p(value: float) -> str:
    """A p-value; one that is too small for a number of the machine is not printed as zero."""
    return "under 1e-300" if value < 1e-300 else f"{value:.2g}"


def _differences(graded: analyze.Graded, others: Sequence[analyze.Graded], params: Any) -> list[dict[str, Any]]:
    """This run against each other one; printed with how many pairs the adjustment is over."""
    rows = analyze.differences(graded, others, params.seed, min(params.bootstrap, 1000))
    return [
        {
            "this": row["first"],
            "against": row["second"],
            "only this passes": row["only first"],
            "only the other passes": row["only second"],
            "p, exact McNemar, Holm": row["verdict"] if row["p (Holm)"] is None else _p(row["p (Holm)"]),
            "score difference": f"{row['score difference']:.1f}"
            + ("" if row["low"] is None else f" ({row['low']:.1f} to {row['high']:.1f})"),
            "pairs": row["pairs"],
        }
        for row in rows
    ]

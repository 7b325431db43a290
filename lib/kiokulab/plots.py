"""Figures: rows or plain figures in, PNG bytes out, the same bytes for the same input.

Colours are Okabe and Ito's (2008), which colour-blind readers tell apart; every category also has a sign or a hatch, so
that a black-and-white print says the same. Japanese is set in IPAexGothic, which comes with matplotlib-fontja.
"""

from __future__ import annotations

import functools
import io
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

INK, GREY, PALE = "#222222", "#767676", "#e3e3e3"
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
PILLARS = {"remember": ("o", BLUE), "replace": ("s", ORANGE), "forget": ("^", GREEN), "tidy": ("D", PURPLE)}
# fate of a fact -> (fill, sign, colour of the sign): the good ones are pale, so that what went wrong stands out
FATES = {
    "held": ("#D7E8F2", "", INK),
    "forgotten": ("#EFEFEF", "–", GREY),
    "missed": ("#FFFFFF", "×", INK),
    "stale": (ORANGE, "o", INK),
    "leaked": (RED, "!", "#FFFFFF"),
    "not judged": ("#FFFFFF", "?", GREY),
}
MOST_ROWS = 60  # of the heat map; a thousand personas make no picture
FATES_SAID = {
    "held": "held: the current version is stored",
    "forgotten": "forgotten, as asked",
    "missed": "missed: the current version is not stored",
    "stale": "stale: an older version is still stored",
    "leaked": "leaked: asked to be forgotten, still stored",
    "not judged": "not judged",
}


def _pyplot():
    """matplotlib with our settings. Imported here, because it costs a second and unit processes never draw."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt
    import matplotlib_fontja  # registers IPAexGothic

    matplotlib_fontja.japanize()
    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": GREY,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "text.color": INK,
            "axes.titlesize": 12,
            "axes.titleweight": "normal",
            "axes.titlelocation": "left",
            "figure.dpi": 100,
            "axes.unicode_minus": False,
            "svg.hashsalt": "kiokulab",
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "axes.axisbelow": True,
            "grid.color": PALE,
            "legend.frameon": False,
        }
    )
    return plt


def png(figure: Any, dpi: int = 150) -> bytes:
    """The figure as PNG bytes without a date or a version in them, and closed."""
    plt = _pyplot()
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None, "Creation Time": None})
    plt.close(figure)
    return out.getvalue()


def safe(text: str, longest: int = 40) -> str:
    """A label that cannot break a figure: no control characters or direction marks, no TeX, cut with a mark."""
    clean = "".join(c for c in str(text) if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    clean = "".join(c if ord(c) in _glyphs() else "□" for c in clean)  # a character that the font lacks is shown as one
    return (clean if len(clean) <= longest else clean[: longest - 1] + "…").replace("$", r"\$")


@functools.cache
def _glyphs() -> frozenset[int]:
    """Code points that the figures' font can draw."""
    _pyplot()
    from matplotlib import font_manager

    path = font_manager.findfont("IPAexGothic", fallback_to_default=False)
    return frozenset(font_manager.get_font(path).get_charmap())


def index_bars(systems: Sequence[Mapping[str, Any]], *, floor: float = 0.01, note: str = "") -> bytes:
    """Index of each system with its 95 % interval, and its four pillars beside it.

    systems : {'label', 'index': {'value','low','high','empty_store'}, 'pillars': {...}} in the order to draw (top
        first);
    a value of None is drawn as 'n/a'. 'grey': True draws a reference (an anchor) in grey.
    """
    plt = _pyplot()
    n = max(len(systems), 1)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 1.5 + 0.52 * n), width_ratios=(1.25, 1), layout="constrained", sharey=True
    )
    for y, system in enumerate(systems):
        _index_bar(left, y, system)
        _pillar_marks(right, y, system["pillars"])
    left.set_yticks(range(len(systems)), [safe(s["label"]) for s in systems])
    left.set_ylim(n - 0.4, -0.6)
    left.set(
        xlim=(0, 118),
        xticks=range(0, 101, 20),
        xlabel="Index (0 to 100, higher is better), 95 % interval over personas",
    )
    right.set(xlim=(-4, 104), xticks=range(0, 101, 20), xlabel="Pillar, in percent")
    for axes in (left, right):
        axes.grid(axis="x")
        axes.tick_params(length=0)
    left.set_title("KiokuBench Index" + (f" · {safe(note, 60)}" if note else ""))
    handles = [
        plt.Line2D([], [], ls="", marker=m, color=c, ms=7, mec="white", label=name.capitalize())
        for name, (m, c) in PILLARS.items()
    ]
    right.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, columnspacing=1.0, handletextpad=0.2
    )
    return png(figure)


def _index_bar(axes: Any, y: int, system: Mapping[str, Any]) -> None:
    index, grey = system["index"], system.get("grey", False)
    if index["value"] is None:
        axes.text(1.5, y, "n/a", va="center", color=GREY)
        return
    axes.barh(
        y,
        index["value"],
        height=0.6,
        color="#BDBDBD" if grey else SKY,
        edgecolor=GREY if grey else BLUE,
        lw=0.8,
        hatch="///" if index.get("empty_store") else None,
    )
    end = index["value"]
    if index["low"] is not None:
        axes.errorbar(
            index["value"],
            y,
            xerr=[[max(index["value"] - index["low"], 0)], [max(index["high"] - index["value"], 0)]],
            color=INK,
            capsize=3.5,
            lw=1.3,
        )
        end = max(end, index["high"])
    said = f"{index['value']:.1f}" + ("  (nothing is stored)" if index.get("empty_store") else "")
    axes.text(end + 1.8, y, said, va="center", color=INK)


def _pillar_marks(axes: Any, y: int, pillars: Mapping[str, float | None]) -> None:
    axes.axhspan(y - 0.36, y + 0.36, color="#F5F5F5", lw=0, zorder=0)
    for lane, (name, (mark, colour)) in enumerate(PILLARS.items()):  # a lane for each, so that none covers another
        if pillars.get(name) is not None:
            axes.plot(
                100 * pillars[name],
                y + 0.2 * lane - 0.3,
                ls="",
                marker=mark,
                color=colour,
                ms=7,
                mec="white",
                mew=0.6,
                clip_on=False,
                zorder=3,
            )
        else:
            axes.text(50, y + 0.2 * lane - 0.3, f"{name}: n/a", ha="center", va="center", fontsize=7, color=GREY)


def fate_map(
    fates: Mapping[str, Mapping[str, str]], *, title: str = "", columns: Mapping[str, str] | None = None
) -> bytes:
    """Heat map persona x fact: what became of each fact at the end.

    fates : {persona: {fact id: one of FATES}}; a fact that a persona does not have is left blank.  columns : {fact id:
    label}.  Drawn with a sign in each square that is not simply held.
    """
    plt = _pyplot()
    from matplotlib.patches import Patch, Rectangle

    facts = sorted({f for row in fates.values() for f in row})
    everyone, fates = fates, dict(list(fates.items())[:MOST_ROWS])
    if len(everyone) > len(fates):
        title += f" (the first {len(fates)} of {len(everyone)} personas)"
    width = max(1.6 + 0.27 * len(facts), 8)
    height = 1.8 + min((width - 1.0) / max(len(facts), 1), 0.5) * max(len(fates), 1)
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    for y, (persona, row) in enumerate(fates.items()):
        for x, fact in enumerate(facts):
            if fact in row:
                fill, sign, ink = FATES[row[fact]]
                axes.add_patch(
                    Rectangle(
                        (x - 0.5, y - 0.5),
                        1,
                        1,
                        facecolor=fill,
                        edgecolor="white" if fill != "#FFFFFF" else PALE,
                        lw=1.2,
                    )
                )
                if sign:
                    axes.text(x, y, sign, ha="center", va="center_baseline", color=ink, fontsize=10)
    axes.set_xlim(-0.5, max(len(facts), 1) - 0.5)
    axes.set_ylim(max(len(fates), 1) - 0.5, -0.5)
    axes.set_aspect("equal")
    step = 1 if len(facts) <= 45 else 5
    axes.set_xticks(
        range(0, len(facts), step),
        [safe((columns or {}).get(f, f), 14) for f in facts[::step]],
        rotation=90,
        fontsize=8,
    )
    axes.set_yticks(range(len(fates)), [safe(p, 24) for p in fates])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(safe(title, 90))
    counts = {fate: sum(value == fate for row in everyone.values() for value in row.values()) for fate in FATES}
    handles = [
        Patch(
            facecolor=FATES[f][0], edgecolor=GREY, lw=0.6, label=f"{FATES[f][1] or ' '}  {FATES_SAID[f]} ({counts[f]})"
        )
        for f in FATES
        if counts[f] or f != "not judged"
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=3 if width > 10 else 2, fontsize=9, columnspacing=1.5
    )
    return png(figure)


def floor_curves(
    systems: Sequence[Mapping[str, Any]], *, floors: Sequence[float] = (0.001, 0.01, 0.05), chosen: float = 0.01
) -> bytes:
    """The index against the floor that a pillar is raised to: how much of an index is the floor's doing.

    systems : {'label', 'pillars': {four shares or None}}; a system with a pillar that is not applicable is left out.
    """
    plt = _pyplot()
    import numpy as np

    grid = np.geomspace(0.0005, 0.1, 120)
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    ends, whole = [], [s for s in systems if all(v is not None for v in s["pillars"].values())]
    styles = ["-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1))]
    colours = [BLUE, RED, GREEN, PURPLE, ORANGE, SKY, INK]
    for i, system in enumerate(whole):
        values = np.array(list(system["pillars"].values()), float)
        curve = 100 * np.prod(np.maximum(values[None, :], grid[:, None]), axis=1) ** 0.25
        colour = colours[i % len(colours)]
        axes.plot(grid, curve, color=colour, ls=styles[i % len(styles)], lw=1.9)
        marks = 100 * np.prod(np.maximum(values[None, :], np.array(floors)[:, None]), axis=1) ** 0.25
        axes.plot(floors, marks, ls="", marker="o", ms=4.5, color=colour)
        ends.append((float(curve[-1]), safe(system["label"], 28), colour))
    axes.set_xscale("log")
    axes.axvline(chosen, color=GREY, lw=1, ls=":")
    axes.text(chosen, 103, f"this run: {chosen:g}", ha="center", va="bottom", color=GREY, fontsize=9)
    axes.set(xlim=(0.0005, 0.1), ylim=(0, 102), xlabel="Floor: the least value of a pillar (log scale)", ylabel="Index")
    axes.set_xticks([0.001, 0.01, 0.05, 0.1], ["0.001", "0.01", "0.05", "0.1"])
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.set_title("How much the floor decides", pad=18)
    for (value, label, colour), y in zip(sorted(ends), _apart([e[0] for e in sorted(ends)], 5.2)):
        axes.annotate(
            label,
            (0.1, value),
            (0.107, y),
            annotation_clip=False,
            va="center",
            color=colour,
            fontsize=9.5,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6} if abs(value - y) > 1 else None,
        )
    return png(figure)


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Rising places moved up, and then back from the top, so that labels do not touch."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    over = (moved[-1] - 100) if moved and moved[-1] > 100 else 0
    for i in reversed(range(len(moved))):
        moved[i] = min(
            moved[i] - over if i == len(moved) - 1 else moved[i],
            moved[i + 1] - gap if i + 1 < len(moved) else moved[i] - over,
        )
    return moved


def cost_curve(points: Sequence[Mapping[str, float]]) -> bytes:
    """Time and peak memory against the number of personas. points : {'personas', 'seconds', 'megabytes'}."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    x = [p["personas"] for p in points]
    for ax, key, label, colour in (
        (axes[0], "seconds", "Seconds", BLUE),
        (axes[1], "megabytes", "Peak memory, MB", RED),
    ):
        y = [p[key] for p in points]
        ax.plot(x, y, marker="o", color=colour, lw=1.8)
        for a, b in zip(x, y):
            ax.annotate(
                f"{b:,.0f}" if b >= 10 else f"{b:.1f}",
                (a, b),
                (0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set(xlabel="Personas", ylabel=label)
        ax.set_xticks(x, [f"{v:,.0f}" for v in x])
        ax.minorticks_off()
        ax.margins(0.15, 0.25)
        ax.grid(axis="y")
    axes[0].set_title("Cost as personas grow (store-everything)")
    return png(figure)

"""`make bench`: what the kit itself costs. Wall times of this machine, printed and never part of a result.

1. One system through the four notebooks, against the same steps called from one Python process (with the same unit
   processes), and against one process alone that does one unit after another. Each starts with an empty cache.
2. The rule judge on 20,000 sentences against 500 fact versions.
3. The other tracks' and the meter's own tables.
4. The store-everything run as personas grow: time, and peak memory of all its processes together.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SYSTEM = "store-everything"
SIZES = (10, 100, 1000)
SENTENCES, VERSIONS = 20_000, 500
TABLES = {
    "notebooks": "kiokulab.bench:notebooks_against_one_process",
    "judge": "kiokulab.bench:rule_judge",
    "meter": "kiokulab.bench_meter:lines",
    "drift": "kiokulab.drift.bench:lines",
    "emem": "kiokulab.emem.bench:lines",
    "verdict": "kiokulab.verdict.bench:lines",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the three tables; returns the exit code. Options are for the bench's own sub-processes and for people in a
    hurry."""
    parser = argparse.ArgumentParser(prog="kiokulab bench", description="measure the kit's own speed")
    parser.add_argument("--only", choices=(*TABLES, "personas"), help="one table alone")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="most personas of the third table")
    parser.add_argument(
        "--minutes", type=float, default=90, help="a size that is expected to take longer is not run, and that is said"
    )
    parser.add_argument("--steps", nargs=2, metavar=("HOW", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args([] if arguments is None else list(arguments))
    if options.steps:
        return _steps(*options.steps)
    tables = {name: _table(where) for name, where in TABLES.items()}
    # the longest, so the last
    tables["personas"] = lambda: personas_grow([s for s in SIZES if s <= options.largest], options.minutes)
    for name, table in tables.items():
        if options.only in (None, name):
            print(table(), flush=True)
            print()
    return 0


def _table(where: str) -> Callable[[], str]:
    """The function "module:name", imported when its table is wanted."""
    module, _, name = where.partition(":")

    def call() -> str:
        found = getattr(importlib.import_module(module), name)()
        return found if isinstance(found, str) else "\n".join(found)

    return call


# --- 1: notebooks -------------------------------------------------------------------------------------------------


def notebooks_against_one_process() -> str:
    """Table of wall times of the default run of one system, three ways."""
    with tempfile.TemporaryDirectory(prefix="kiokulab-bench-") as place:
        ways = {
            "four notebooks (make kioku)": ["-m", "kiokulab", "run", "kioku", "--system", SYSTEM],
            "steps from one process": ["-m", "kiokulab.bench", "--steps", "fan-out", f"{place}/b/run"],
            "one process, unit by unit": ["-m", "kiokulab.bench", "--steps", "alone", f"{place}/c/run"],
        }
        seconds = {}
        for letter, (name, command) in zip("abc", ways.items()):
            seconds[name] = _measured(command, Path(place) / letter)["seconds"]
    lines = [f"{SYSTEM}, all personas of v0.1, empty cache", f"{'':<30}{'seconds':>9}{'notebooks are':>16}"]
    base = next(iter(seconds.values()))
    lines += [f"{name:<30}{s:>9.1f}" + ("" if s == base else f"{base / s:>13.2f} x") for name, s in seconds.items()]
    return "\n".join(lines)


def _steps(how: str, folder: str) -> int:
    """The four steps called one after another, as the notebooks call them. how: 'fan-out' or 'alone'."""
    from kiokulab.kioku import analyze, generate, ingest, judge
    from kiokulab.params import KiokuParams

    place, params = Path(folder), KiokuParams(system=SYSTEM)
    place.mkdir(parents=True)
    generate.run(place, params)
    if how == "alone":
        _in_this_process()
    ingest.run(place, params)
    judge.run(place, params)
    analyze.run(place, params)
    return 0


def _in_this_process() -> None:
    """Put a fan-out without processes in the place of the kit's: one unit after another, here."""
    from kiokulab import units
    from kiokulab.files import dumps, write_atomic

    def run_units(function: str, planned: list[dict], folder: Path, **_: Any) -> Any:
        module, name = function.split(":")
        call = getattr(importlib.import_module(module), name)
        for unit in planned:
            write_atomic(Path(folder) / f"{units.file_name(unit['unit'])}.json", dumps(call(unit)) + "\n")
        return units.Outcome([unit["unit"] for unit in planned], {})

    units.run_units = run_units


# --- 2: the judge -------------------------------------------------------------------------------------------------


def rule_judge() -> str:
    """Time of the rule judge on a store of 20,000 sentences against 500 versions, and at half of it (it must grow
    linearly)."""
    rows = []
    for sentences in (SENTENCES // 4, SENTENCES // 2, SENTENCES):
        rows.append((sentences, *judged(sentences, VERSIONS)))
    lines = [f"{'sentences':>10}{'versions':>10}{'seconds':>10}{'per 1,000 sentences':>22}"]
    lines += [f"{n:>10,}{v:>10,}{s:>10.1f}{1000 * s / n:>22.2f}" for n, v, s in rows]
    return "\n".join(
        [
            "Rule judge, generated utterances against the facts of other personas; embeddings from the cache where it has them",
            *lines,
        ]
    )


def judged(sentences: int, versions: int) -> tuple[int, float]:
    """(versions, seconds) of reading a store of `sentences` utterances and judging `versions` versions against it."""
    from kiokulab import embed, judging
    from kiokulab import text as texts
    from kiokulab.kioku import generate

    facts, count = [], 0
    for person in generate.generate(1, 10):
        for fact in person.facts:
            if count < versions:
                views = tuple(judging.VersionView.of(v.model_dump()) for v in fact.versions)
                facts.append(judging.FactView(f"{person.id}.{fact.id}", views, fact.question.text, fact.slot))
                count += len(views)
    memories, stored = [], 0
    for person in generate.generate(2, 10 + sentences // 250):
        for session in person.sessions:
            for n, turn in enumerate(session.turns):
                found = tuple(texts.sentences(turn.text))[: sentences - stored]
                if found:
                    memories.append(judging.StoredText(f"{person.id}.{session.id}.{n}", "live", found))
                    stored += len(found)
    if stored < sentences:
        raise SystemExit(f"bench: only {stored} sentences could be made")
    judge = judging.make_judge("rules", embed.get("use"))
    start = time.perf_counter()
    reading = judge.read(facts, memories)
    for fact in facts:
        for view in fact.versions:
            reading.verdict(fact.id, view.n, ("live",))
    return count, time.perf_counter() - start


# --- 3: growth ----------------------------------------------------------------------------------------------------


def personas_grow(sizes: Sequence[int], minutes: float) -> str:
    """Table of time and peak memory as personas grow; the plot goes to outputs/bench-personas.png."""
    from kiokulab import plots
    from kiokulab.files import write_atomic
    from kiokulab.kioku import generate
    from kiokulab.params import outputs_root

    points: list[dict[str, float]] = []
    lines = [f"{'personas':>10}{'seconds':>10}{'per persona':>13}{'peak MB':>10}"]
    with tempfile.TemporaryDirectory(prefix="kiokulab-bench-") as place:
        for size in sizes:
            expected = size * points[-1]["seconds"] / points[-1]["personas"] if points else 0
            if expected > 60 * minutes:
                lines.append(
                    f"{size:>10,}  not run: about {expected / 60:.0f} minutes are expected, --minutes allows {minutes:g}"
                )
                continue
            edition = Path(place) / f"edition-{size}"
            generate.write_edition(edition, 1, size)
            command = ["-m", "kiokulab", "run", "kioku", "--system", SYSTEM, "--edition", str(edition)]
            points.append({"personas": size, **_measured(command, Path(place) / f"run-{size}")})
            lines.append(
                f"{size:>10,}{points[-1]['seconds']:>10.1f}{points[-1]['seconds'] / size:>13.2f}{points[-1]['megabytes']:>10,.0f}"
            )
    if len(points) > 1:
        target = outputs_root() / "bench-personas.png"
        write_atomic(target, plots.cost_curve(points))
        lines.append(f"plot: {target.name} in {target.parent.name}/")
    return "\n".join(
        [f"{SYSTEM}, raw conversation, from a frozen edition to the report; {os.cpu_count()} cores", *lines]
    )


def _measured(command: Sequence[str], place: Path) -> dict[str, float]:
    """Wall seconds and peak megabytes (proportional share, all processes together) of one command with caches of its
    own.

    Raises SystemExit with the command's last lines where it fails."""
    import psutil

    place.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "KIOKULAB_OUTPUTS": str(place / "outputs"), "KIOKULAB_CACHE": str(place / "cache")}
    start, peak = time.perf_counter(), 0
    with open(place / "output.log", "wb") as log:
        process = subprocess.Popen([sys.executable, *command], env=environment, stdout=log, stderr=subprocess.STDOUT)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, _memory(watched))
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                pass
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(
            f"bench: {' '.join(command)} ended with {process.returncode}:\n"
            + (place / "output.log").read_text(errors="replace")[-2000:]
        )
    return {"seconds": seconds, "megabytes": peak / 1e6}


def _memory(root: Any) -> int:
    """Bytes of a process and all under it; shared pages are counted once where the system tells (PSS)."""
    import psutil

    total = 0
    try:
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in family:
        try:
            info = process.memory_full_info()
            total += getattr(info, "pss", info.rss)
        except psutil.Error:
            continue
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command line. `make <goal>` calls it; `python -m kiokulab --help` lists the commands.

Heavy packages are imported by the commands that need them, so that a command with nothing to do ends at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from kiokulab import __version__
from kiokulab.errors import InputError, KiokuLabError

# variables of `make` that are parameters of a run, by their name in capitals, and those that steer make itself. A test
# holds the list to the parameters of all tracks; it is written out here so that a command with nothing to do imports no
# track.
OPTIONS = (
    "system",
    "route",
    "routing",
    "personas",
    "edition",
    "jobs",
    "engine",
    "scheduler",
    "judge",
    "answerer",
    "grader",
    "judge_set_pairs",
    "embedder",
    "k",
    "budget_tokens",
    "floor",
    "seed",
    "bootstrap",
    "unit_timeout_s",
    "settings",
    "language",
    "size",
    "world_seed",
    "shape",
    "authority",
    "script",
    "transcript",  # drift
    "dataset",
    "url",
    "tools",
    "timeout_s",
    "pinned_key",  # emem
    "data",
    "label",
    "questions",
    "ids",
    "top_sessions",
    "reader",
    "panel",
    "official_repo",
    "stepwise",
    "facts_stepwise",
    "disputed",
    "internal_model",  # verdict
    "model",
    "endpoint",
    "budget_usd",
    "concurrency",  # runs that ask language models
)
# names that an environment holds for other reasons: they count only on make's own command line
AMBIENT = {
    "LANGUAGE",
    "MODEL",
    "ENDPOINT",
    "GENERATOR",
}
# of make judge
JUDGING = (
    "judge",
    "answerer",
    "grader",
    "judge_set_pairs",
    "reader",
    "panel",
    "endpoint",
    "budget_usd",
    "concurrency",
    "jobs",
)
COSTED = (
    "system",
    "personas",
    "route",
    "model",
    "judge",
    "answerer",
    "grader",
    "judge_set_pairs",
    "edition",
    "data",
    "label",
    "questions",
    "reader",
    "panel",
    "internal_model",
)
MAKE_ONLY = {
    "PROFILE",
    "RUN",
    "TRACK",
    "PYTHON",
    "EXTRAS",
    "USE_ACTIVE_ENV",
    "ALL",
    "OUT",
    "TESTS",
    "PORT",
    "GOAL",
    "BUDGET",
    "PARAMS",
    "GENERATOR",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code (see kiokulab.errors)."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # a lone surrogate or a narrow terminal must not end a run
    try:
        options = _parser().parse_args(arguments)
        if getattr(options, "from_make", False):
            _take_make_variables(options)
        return options.call(options) or 0
    except KiokuLabError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kiokulab", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"kiokulab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, call: Any, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.add_argument("--from-make", action="store_true", help=argparse.SUPPRESS)
        one.set_defaults(call=call, command=name)
        return one

    run = command("run", run_command, "run the notebooks of a track for one or more systems")
    run.add_argument("track", nargs="?", default="kioku")
    run.add_argument("--profile", default="default", help="default, live, or a YAML file of parameters")
    for name in OPTIONS:
        run.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="VALUE")
    verify = command("verify", verify_command, "check a finished run again, from its files alone")
    verify.add_argument("run", nargs="*", help="run folders")
    replay = command(
        "replay",
        replay_command,
        "run a finished run again from its recorded model calls, without network and key, and compare the figures",
    )
    replay.add_argument("run", nargs="*", help="run folders")
    replay.add_argument("--data", help="the file that the run read, where its receipt holds its sha256 alone (verdict)")
    again = command(
        "judge", judge_command, "judge a finished run again by another judge: a sibling run that names its parent"
    )
    again.add_argument("run", nargs="*", help="run folders")
    again.add_argument("--data", help="the file that the run read, where its receipt holds its sha256 alone (verdict)")
    for name in JUDGING:
        again.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="VALUE")
    cost = command("cost", cost_command, "estimate a live run in calls, tokens and dollars before it is made")
    cost.add_argument("--params", help="YAML file of parameters (default: params/live/kioku.yml)")
    cost.add_argument("--track", help="default: as the file in PARAMS is named, params/live/verdict.yml")
    for name in COSTED:
        cost.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="VALUE")
    dataset = command("dataset", dataset_command, "make a dataset of any size")
    dataset.add_argument("track", nargs="?", default="kioku")
    dataset.add_argument("--seed")
    dataset.add_argument("--personas")
    dataset.add_argument("--generator", default="template", help="template (offline, default) or llm:<model>")
    dataset.add_argument("--grader", help="of llm: model of the second check (default: the generator's)")
    for name in ("endpoint", "budget_usd", "concurrency"):
        dataset.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="VALUE")
    dataset.add_argument("--out", help="folder; default outputs/editions/<track>/seed<seed>-n<personas>")
    longmemeval = command(
        "data-longmemeval", longmemeval_command, "how to get the official LongMemEval file, and whether yours is it"
    )
    longmemeval.add_argument("--data", help="path of a file to check")
    contract = command("contract", contract_command, "test an adapter against the contract")
    contract.add_argument("--system")
    contract.add_argument("--settings", help="settings of the system, as JSON")
    listing = command("systems", systems_command, "list the memory systems, or say everything about one")
    listing.add_argument("--system")
    system = command("system", system_command, "make a memory system's own environment")
    system.add_argument("name")
    reproduce = command("reproduce", reproduce_command, "compute the published figures again")
    reproduce.add_argument("--track")
    command("compare", compare_command, "compare all runs of outputs/: tables, tests, ranks, and who is left out")
    command("report", report_command, "make the static site of all published runs")
    publish = command("publish", publish_command, "copy finished, verified runs to outputs/published/")
    publish.add_argument("run", nargs="*", help="run folders")
    command(
        "explore",
        explore_command,
        "open the explorer in JupyterLab: from a figure to the utterance and the ledger, and back",
    )
    command("teach", teach_command, "run the six lessons and check that their exercises can fail and be solved")
    command("bench", bench_command, "measure the kit's own speed")
    clean = command(
        "clean", clean_command, "take away caches and runs that did not finish (ALL=1: every run, .venv and .envs too)"
    )
    clean.add_argument("--all", action="store_true")
    doctor = command(
        "doctor", doctor_command, "say what this machine has, what is missing, and the command that mends it"
    )
    doctor.add_argument(
        "--dependencies", action="store_true", help="only whether this Python has the packages of pyproject.toml"
    )
    return parser


def _take_make_variables(options: argparse.Namespace) -> None:
    """Values of make variables, taken from the environment and not from a shell line: a name with quotes in it stays a
    name."""
    known = {name.upper() for name in OPTIONS} | MAKE_ONLY
    flags = os.environ.get("MAKEFLAGS", "")
    given = re.findall(r"(?:\\.|[^\\\s])+", flags.partition("-- ")[2]) if "-- " in flags else []  # make escapes spaces
    for word in given:
        name = word.partition("=")[0].rstrip(":+?")
        if name not in known:
            raise InputError(f"unknown variable {name}", "make", f"Known: {', '.join(sorted(known))}")
    if os.environ.get("BUDGET"):
        os.environ.setdefault("BUDGET_USD", os.environ["BUDGET"])
    on_line = {word.partition("=")[0].rstrip(":+?") for word in given}
    ambient = AMBIENT | (
        {name.upper() for name in OPTIONS} - _fields(options.track) if hasattr(options, "track") else set()
    )
    for name, value in vars(options).items():
        text = os.environ.get(name.upper(), "") if name.upper() not in ambient - on_line else ""
        if text and (
            value is None
            or value == []
            or (name, value) in (("profile", "default"), ("generator", "template"), ("all", False))
        ):
            setattr(options, name, [text] if name == "run" else text)


def _fields(track: str | None) -> set[str]:
    """Parameters of a track, as names of make variables: what another track's are called, an environment may hold for
    reasons of its own (DATA, URL), and that must not end a command that never asked for it."""
    from kiokulab.params import params_class

    return {name.upper() for name in params_class(track).model_fields} if track and track != "all" else set()


# --- run --------------------------------------------------------------------------------------------------------


def run_command(options: argparse.Namespace) -> int:
    """All steps that are not done, for all systems; then the table and where the reports are."""
    from kiokulab import params as p
    from kiokulab import run

    track = p.track_module(options.track)
    cls = p.params_class(options.track)
    values, places = p.read_profile(_profile(options.track, options.profile))
    # a profile is also what plain papermill reads, so it names one system; it counts only where no option does
    named = values.pop("system", None)
    for name in OPTIONS:
        text = getattr(options, name)
        if name != "system" and text is not None:
            if name not in cls.model_fields:
                raise InputError(f"track {options.track} has no parameter {name!r}", f"option --{name}")
            values[name], places[name] = p.typed(cls, name, text), f"option --{name.replace('_', '-')}"
    values.setdefault("track", options.track)
    base = cls.checked(values if named is None else {**values, "system": named}, places)
    p.edition_folder(base.track, base.edition)
    systems, asked = _systems(track, options.system, base), options.system is not None
    if asked:
        systems = run.with_anchors(base, systems)
    base = _with_budget(base, systems)
    runs = run.run_track(base, systems)
    folders = [str(one.folder) for one in runs]
    if not any(one.todo for one in runs):
        print(f"nothing to do: {len(runs)} run(s) are finished with exactly these parameters")
    # a run whose units failed has figures of the others, and says so; one that has none is not in the table
    shown = [
        str(one.folder)
        for one in runs
        if (one.error is None or one.error.exit_code == 3) and (one.folder / "metrics.json").is_file()
    ]
    _print_summary(track, shown, folders)
    return _report_errors(runs) or (3 if any(_refused(track, folder) for folder in shown) else 0)


def _refused(track: Any, folder: str) -> list[str]:
    """Why the run's table is not shown (its oracle fell short), where the track looks for that."""
    analyze = importlib.import_module(f"{track.__name__}.analyze")
    return analyze.refused(folder) if hasattr(analyze, "refused") else []


def _profile(track: str, name: str) -> Path:
    from kiokulab.params import root

    if name in ("default", "live"):
        path = root() / "params" / ("live" if name == "live" else "") / f"{track}.yml"
        if name == "live" and not path.is_file():
            raise InputError(
                f"the live profile of track {track} is not there yet", "PROFILE=live", "Use PROFILE=default"
            )
        if name == "default" and not path.is_file():
            path = Path(os.devnull)  # a track of one's own has its defaults in its parameter class
        return path
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(
            f"there is no parameter file {name!r}", f"PROFILE={name}", "Give default, live, or the path of a YAML file"
        )
    return path


def _systems(track: Any, text: str | None, base: Any) -> list[str]:
    """Canonical names, in the order given, each once. Near misses are said. Where none is given, the track's own
    default, which may depend on the other parameters (`default_systems(params)`: a URL or a transcript names what is
    measured)."""
    if text is None:
        return list(track.default_systems(base) if hasattr(track, "default_systems") else track.DEFAULT_SYSTEMS)
    names: list[str] = []
    for typed in (part.strip() for part in text.split(",")):
        if not typed:
            continue
        if hasattr(track, "describe_system"):
            name = track.describe_system(typed)["name"]
        else:
            found = importlib.import_module("kiokulab.systems").resolve(typed)
            name = found.name
            if found.note:
                print(found.note)
        if name not in names:
            names.append(name)
    if not names:
        raise InputError("no system is named", "SYSTEM", "For example SYSTEM=vector,store-everything, or leave it out")
    return names


def _with_budget(base: Any, systems: list[str]) -> Any:
    """`base` with a budget, asked for at the terminal where a live run has none. Without a terminal the run itself
    refuses (exit 2)."""
    from kiokulab import metering

    if not sys.stdin.isatty() or not any(
        metering.needs_budget(base.model_copy(update={"system": name})) for name in systems
    ):
        return base
    text = input(
        "This run asks models that cost money (make cost PARAMS=... says about how much).\nHow many dollars may it spend? "
    )
    return type(base).checked({**base.model_dump(), "budget_usd": _dollars(text)})


def _dollars(text: str) -> float:
    try:
        value = float(text.strip().lstrip("$"))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"{text.strip()!r} is no amount of dollars", "BUDGET", "For example BUDGET=5")
    return value


def _print_summary(track: Any, shown: list[str], folders: list[str]) -> None:
    if shown:
        analyze = importlib.import_module(f"{track.__name__}.analyze")
        print()
        print(analyze.summary(shown))
    print()
    for folder in folders:
        report = Path(folder) / "report.html"
        print(f"report: {_short(report)}" if report.is_file() else f"run: {_short(Path(folder))} (not finished)")


def _report_errors(runs: list[Any]) -> int:
    failed = [one for one in runs if one.error is not None]
    if failed:
        print(f"\n{len(failed)} of {len(runs)} runs did not end well:", file=sys.stderr)
    for one in failed:
        print(f"{one.name}: {one.error}", file=sys.stderr)
    codes = {one.error.exit_code for one in failed}
    return next((code for code in (5, 6, 4, 2, 1, 3) if code in codes), max(codes, default=0))


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# --- the other commands -----------------------------------------------------------------------------------------


def verify_command(options: argparse.Namespace) -> int:
    """Check each run; the first one that fails ends the command with 6."""
    from kiokulab import receipts, site

    if not options.run:
        raise InputError("which run?", "RUN", "For example make verify RUN=outputs/kioku/v0.1/vector/<run-id>")
    for folder in options.run:
        receipt = receipts.verify(site.opened(folder))  # a published run is an archive, checked whole
        note = "" if receipt.status == "finished" else f" ({receipt.status}: {receipt.reason})"
        files = sum(len(step.outputs) for step in receipt.steps)
        print(f"verified: {folder}: {len(receipt.steps)} steps, {files} files, figures derived again{note}")
    return 0


def replay_command(options: argparse.Namespace) -> int:
    """Each run again from its own record; exit 6 where a figure or a request differs."""
    from kiokulab import again

    if not options.run:
        raise InputError("which run?", "RUN", "For example make replay RUN=outputs/kioku/v0.1/mem0/<run-id>")
    for folder in options.run:
        print(again.replay(Path(folder), data=options.data or ""))
    return 0


def judge_command(options: argparse.Namespace) -> int:
    """A sibling of each run under another judge, answerer or grader."""
    from kiokulab import again
    from kiokulab.params import typed

    if not options.run:
        raise InputError(
            "which run?",
            "RUN",
            "For example make judge RUN=outputs/kioku/v0.1/vector/<run-id> JUDGE=llm:openai/gpt-6-luna BUDGET=2",
        )
    codes = []
    for folder in options.run:
        base = again.params_of(Path(folder), options.data or "")
        given = {name: value for name in JUDGING if (value := getattr(options, name)) is not None}
        for name in given:
            if name not in type(base).model_fields:
                raise InputError(f"track {base.track} has no parameter {name!r}", f"option --{name.replace('_', '-')}")
        changes = {name: typed(type(base), name, value) for name, value in given.items()}
        made = again.judge(Path(folder), changes, options.data or "")
        print(f"judged again: {_short(made.folder)} (parent {_short(Path(folder))})")
        codes.append(_report_errors([made]))
    return next((code for code in (5, 6, 4, 2, 1, 3) if code in codes), 0)


def cost_command(options: argparse.Namespace) -> int:
    """The estimate, with its basis."""
    from kiokulab import cost
    from kiokulab import params as p

    path = _profile(options.track or "kioku", options.params or "live")
    values, places = p.read_profile(path)
    stem = path.stem if (p.root() / "notebooks" / path.stem).is_dir() else "kioku"
    track = options.track or values.get("track") or stem
    cls = p.params_class(track)
    for name in COSTED:
        if getattr(options, name) is not None and name != "system":
            if name not in cls.model_fields:
                raise InputError(f"track {track} has no parameter {name!r}", f"option --{name}")
            values[name], places[name] = (
                p.typed(cls, name, getattr(options, name)),
                f"option --{name.replace('_', '-')}",
            )
    named = values.pop("system", None)
    base = cls.checked({**values, "track": track}, places)
    systems = _systems(p.track_module(track), options.system or named, base)
    if options.system:
        from kiokulab import run

        systems = run.with_anchors(base, systems)  # as the run itself does
    print(cost.table(cost.estimate(base, systems)))
    return 0


def dataset_command(options: argparse.Namespace) -> int:
    """Make an edition and audit it."""
    from kiokulab.params import outputs_root, track_module

    track = track_module(options.track)
    seed, personas = _whole(options.seed, "SEED", 1), _whole(options.personas, "PERSONAS", 10)
    out = Path(options.out) if options.out else outputs_root() / "editions" / options.track / f"seed{seed}-n{personas}"
    if options.generator != "template":
        return _generate_by_model(options, track, seed, personas)
    generate = importlib.import_module(f"{track.__name__}.generate")
    audit = importlib.import_module(f"{track.__name__}.audit")
    made = generate.generate(seed, personas)
    faults = audit.audit(made)
    if faults:
        for fault in faults[:20]:
            print(f"  {fault}", file=sys.stderr)
        raise InputError(
            f"the audit finds {len(faults)} fault(s) in what was generated", f"SEED={seed} PERSONAS={personas}"
        )
    generate.write_edition(out, personas=made, seed=seed)
    print(f"{len(made)} personas, no fault: {_short(out)}\nuse it: make {options.track} EDITION={_short(out)}")
    return 0


def _generate_by_model(options: argparse.Namespace, track: Any, seed: int, personas: int) -> int:
    """An edition by a language model; exit 3 where a persona could not be made."""
    from kiokulab import metering
    from kiokulab import params as p

    named = metering.models_named(options.generator)
    if len(named) != 1 or track.__name__ != "kiokulab.kioku":
        raise InputError(
            f"there is no generator {options.generator!r} of track {options.track}",
            "GENERATOR",
            "template, or for kioku llm:<model>",
        )
    values = {
        name: p.typed(p.KiokuParams, name, text)
        for name in ("endpoint", "budget_usd", "concurrency")
        if (text := getattr(options, name)) is not None
    }
    base = p.KiokuParams.checked(values)
    grader = (options.grader or "").removeprefix("llm:")
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", named[0])
    out = (
        Path(options.out)
        if options.out
        else p.outputs_root() / "editions" / options.track / f"{slug}-seed{seed}-n{personas}"
    )
    found = importlib.import_module("kiokulab.kioku.generate_llm").run(
        out,
        named[0],
        seed=seed,
        personas=personas,
        endpoint=base.endpoint,
        budget_usd=base.budget_usd,
        grader=grader,
        concurrency=base.concurrency,
    )
    for name, why in found.not_made.items():
        print(f"not made: {name}: {why}", file=sys.stderr)
    if found.personas:
        print(
            f"{len(found.personas)} of {personas} personas, no fault, {len(found.findings)} findings of the second check, {len(found.unread)} sessions not read: {_short(out)}"
            f"\nuse it: make {options.track} EDITION={_short(out)}"
        )
    return 3 if found.not_made else 0


def _whole(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    if not text.strip().isascii() or not text.strip().isdigit():
        raise InputError(f"{text!r} is not a whole number", name)
    return int(text)


def longmemeval_command(options: argparse.Namespace) -> int:
    """Nothing is downloaded: what to do, or what the file in DATA is."""
    print(importlib.import_module("kiokulab.verdict.fetch").help_and_check(options.data or ""))
    return 0


def contract_command(options: argparse.Namespace) -> int:
    """The contract tests of one adapter."""
    if not options.system:
        raise InputError("which system?", "SYSTEM", "For example make contract SYSTEM=vector")
    systems = importlib.import_module("kiokulab.systems")
    found = systems.resolve(options.system)
    if found.note:
        print(found.note)
    contract = importlib.import_module("kiokulab.systems.contract")
    from kiokulab import params as p

    settings = p.typed(p.KiokuParams, "settings", options.settings) if options.settings else None
    checks = contract.run_contract(found.name, settings, say=lambda line: print(line, flush=True))
    failed = [check.name for check in checks if check.outcome == contract.FAIL]
    print(f"{found.name}: {'FAILED: ' + ', '.join(failed) if failed else 'keeps the contract'}")
    return 1 if failed else 0


def systems_command(options: argparse.Namespace) -> int:
    """The table of all systems, in the width of the terminal, or all about the one in SYSTEM."""
    systems = importlib.import_module("kiokulab.systems")
    catalogue = importlib.import_module("kiokulab.systems.catalogue")
    width = shutil.get_terminal_size((120, 24)).columns
    if options.system:
        print(catalogue.detail(options.system, width))
        return 0
    print(catalogue.table([catalogue.row_of(name) for name in systems.names()], width))
    rest = catalogue.not_built(width)
    print(
        f"{chr(10) + rest if rest else ''}\n\nmake systems SYSTEM=<name> says everything about one; make system-<name> makes its environment now"
    )
    return 0


def system_command(options: argparse.Namespace) -> int:
    """Make the environment of one system now and not on its first use."""
    systems = importlib.import_module("kiokulab.systems")
    found = systems.resolve(options.name)
    environment = systems.adapter(found.name).environment
    if environment is None:
        print(f"{found.name} runs in the kit's own environment: nothing to do")
        return 0
    print(importlib.import_module("kiokulab.systems.environments").ensure(environment))
    return 0


def reproduce_command(options: argparse.Namespace) -> int:
    """The published arithmetic again, of one track or all; exit 6 where a figure differs."""
    importlib.import_module("kiokulab.reproduce").reproduce(options.track or "all")
    return 0


def compare_command(options: argparse.Namespace) -> int:
    """All runs compared; exit 3 where a table is refused because its oracle falls short."""
    from kiokulab import compare
    from kiokulab.params import outputs_root

    found = compare.run_notebook(outputs_root())
    print(compare.summary(found))
    print(f"\npage: {_short(outputs_root() / 'compare' / 'compare.html')}")
    return 3 if any(table["refused"] for table in found["tables"]) else 0


def report_command(options: argparse.Namespace) -> int:
    """The static site of all published runs, in outputs/site/."""
    from kiokulab import site
    from kiokulab.params import outputs_root

    pages = site.build(outputs_root() / "published", outputs_root() / "site")
    print(f"{len(pages)} pages: {_short(outputs_root() / 'site' / 'index.html')}")
    return 0


def publish_command(options: argparse.Namespace) -> int:
    """Each run, verified, copied and verified again where it then lies; then the README's table is written anew."""
    from kiokulab import site
    from kiokulab.files import write_atomic
    from kiokulab.params import outputs_root, root

    if not options.run:
        raise InputError("which run?", "RUN", "For example make publish RUN=outputs/kioku/v0.1/vector/<run-id>")
    for folder in [part for text in options.run for part in text.split()]:
        print(f"published: {_short(site.publish(folder, outputs_root() / 'published'))}")
    if outputs_root() == root() / "outputs":
        readme = root() / "README.md"
        write_atomic(
            readme, site.with_table(readme.read_text(encoding="utf-8"), site.readme_table(outputs_root() / "published"))
        )
        print("the table in README.md is that of the published runs")
    return 0


def explore_command(options: argparse.Namespace) -> int:
    """JupyterLab with the explorer open."""
    from kiokulab.params import root

    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(root() / "notebooks" / "explore.ipynb")])


def teach_command(options: argparse.Namespace) -> int:
    """Every lesson, its exercises unfilled (their checks must fail) and its solutions (they must pass)."""
    from kiokulab import teach

    return teach.main()


def bench_command(options: argparse.Namespace) -> int:
    """The kit's own speed."""
    return importlib.import_module("kiokulab.bench").main() or 0


def clean_command(options: argparse.Namespace) -> int:
    """Caches and unfinished runs; with `all`, every run and environment. Published runs and data stay."""
    from kiokulab import receipts
    from kiokulab.params import outputs_root, root

    everything = options.all not in (False, "", "0")
    gone = [root() / ".cache", root() / ".pytest_cache", root() / ".hypothesis", root() / "build"]
    for receipt in outputs_root().rglob(receipts.RECEIPT):
        folder = receipt.parent
        if "published" in folder.relative_to(outputs_root()).parts:
            continue
        known = receipts.read_receipt(folder)
        if everything or known is None or known.status not in ("finished", "units_failed"):
            gone.append(folder)
    if everything:
        gone += [root() / ".envs", root() / ".venv"]
    for path in gone:
        if path.exists():
            print(f"removing {_short(path)}")
            shutil.rmtree(path)
    return 0


def doctor_command(options: argparse.Namespace) -> int:
    """What the kit needs, and whether it is here."""
    if options.dependencies:
        return _check_dependencies()
    from kiokulab import doctor

    here = Path.cwd()  # make starts it in the checkout that is meant, which the installed kit may not be
    root = (
        here
        if (here / "pyproject.toml").is_file() and (here / "lib" / "kiokulab").is_dir()
        else Path(__file__).resolve().parents[2]
    )
    findings = doctor.checks(root)
    print(doctor.shown(findings, shutil.get_terminal_size((120, 24)).columns))
    return 2 if any(one.state == doctor.BAD for one in findings) else 0


def _check_dependencies() -> int:
    """For USE_ACTIVE_ENV=1: standard library alone, since nothing else may be here yet."""
    import tomllib
    from importlib.metadata import PackageNotFoundError, version

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    missing = []
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
        try:
            version(requirement.partition("=")[0])
        except PackageNotFoundError:
            missing.append(requirement)
    if sys.version_info < (3, 11):
        raise InputError(
            f"the active environment has Python {sys.version.split()[0]}", sys.prefix, "Python 3.11 or newer is needed"
        )
    if missing:
        raise InputError(
            f"the active environment lacks {', '.join(missing)}",
            sys.prefix,
            "conda env update -f environment.yml, or leave USE_ACTIVE_ENV out: then make uses .venv",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the notebooks of a track and gives the verdict that papermill does not.

papermill says "completed" of a notebook whose kernel was killed, and of one that called sys.exit(0). Here a step is
done when its last cell wrote the step's proof, the proof fits the files, and no cell was left out.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kiokulab import errors, receipts
from kiokulab.errors import BudgetReached, Died, InputError, KiokuLabError
from kiokulab.files import write_atomic
from kiokulab.params import Params, edition_folder, notebooks_of, track_module
from kiokulab.units import cores

GRACE_S = 30  # after a kernel is gone, for papermill to notice; then the runner stops waiting for it
SYSTEMS_AT_A_TIME = 2


class StepFailed(KiokuLabError):
    """A cell raised. The exit code is that of the kit's own error where it was one, else 1."""

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class Run:
    """One system's run in a command."""

    params: Params
    identity: dict[str, Any]
    folder: Path
    todo: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: KiokuLabError | None = None

    @property
    def name(self) -> str:
        return self.identity["system"]["name"]


# --- notebooks before they run ----------------------------------------------------------------------------------


def declared_parameters(notebook: Path) -> dict[str, int]:
    """Parameter names that a notebook declares -> line in its parameters cell.

    Raises InputError where the notebook is missing or torn, or has not exactly one cell tagged `parameters`, as its
    first code cell: papermill would then inject nothing that counts, and say so to nobody.
    """
    try:
        cells = json.loads(notebook.read_bytes())["cells"]
    except OSError:
        raise InputError("the notebook is missing", str(notebook)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"not a notebook ({type(error).__name__}: {error})", str(notebook)) from None
    code = [(number, cell) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
    tagged = [number for number, cell in code if "parameters" in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        what = "no cell" if not tagged else f"{len(tagged)} cells ({', '.join(map(str, tagged))})"
        raise InputError(
            f"{what} tagged 'parameters'",
            str(notebook),
            "Exactly one cell, the first with code, must carry that tag (JupyterLab: property inspector)",
        )
    if code[0][0] != tagged[0]:
        raise InputError("the cell tagged 'parameters' is not the first code cell", f"{notebook} cell {tagged[0]}")
    try:
        tree = ast.parse("".join(code[0][1]["source"]))
    except SyntaxError as error:
        raise InputError(
            f"the parameters cell is not Python: {error.msg}", f"{notebook} cell {tagged[0]} line {error.lineno}"
        ) from None
    names = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id: target.lineno for target in targets if isinstance(target, ast.Name)}
    return names


def check_notebooks(folder: Path, steps: tuple[str, ...], cls: type[Params]) -> dict[str, dict[str, int]]:
    """Declared parameters of each step's notebook. Raises InputError where one declares what the track does not
    know."""
    found = {}
    for step in steps:
        notebook = folder / f"{step}.ipynb"
        found[step] = declared_parameters(notebook)
        for name, line in found[step].items():
            if name not in cls.model_fields:
                raise InputError(
                    f"the notebook declares a parameter {name!r} that the track does not know",
                    f"{notebook} parameters cell line {line}",
                )
    return found


# --- which steps are to be done ---------------------------------------------------------------------------------


def plan(params: Params, steps: tuple[str, ...], beside: list[str] | None = None) -> Run:
    """What is left to do of a run: all steps from the first one that is not done."""
    identity = receipts.identity(params)
    run = Run(params, identity, receipts._run_folder(params, identity))
    receipt = receipts.read_receipt(run.folder)
    records = {summary.step: summary for summary in receipt.steps} if receipt else {}
    for index, step in enumerate(steps):
        why = _not_done(run, step, records.get(step), beside if step == steps[-1] else None)
        if why is not None:
            run.todo = list(steps[index:])
            if why:
                run.notes.append(f"{run.name}: {step} is done again: {why}")
            break
    return run


def _not_done(run: Run, step: str, record: Any, beside: list[str] | None) -> str | None:
    """None where a step is done; else why not ('' where it just was not run)."""
    proof = receipts.read_proof(run.folder, step)
    if proof is None or proof.run != receipts._run_id(run.identity):
        return ""
    if proof.failed_units:
        return f"{len(proof.failed_units)} unit(s) failed last time"
    if (
        record is None
        or record.digest != proof.digest
        or record.notebook is None
        or not (run.folder / f"{step}.ipynb").is_file()
    ):
        return "its executed notebook is not there"
    for path, sha in proof.outputs.items():
        if not (run.folder / path).is_file():
            return f"{path} is missing"
        if "/" not in path and receipts._digest_of(run.folder / path) != sha:
            return f"{path} is not what was written"
    new = set(map(receipts._beside_name, beside or ())) - set(proof.beside)
    return f"{', '.join(sorted(new))} came beside it" if new else None


# --- one command ------------------------------------------------------------------------------------------------


def run_track(
    base: Params,
    systems: list[str],
    *,
    jobs: int = 0,
    step_timeout_s: float = 86_400,
    out: Callable[[str], None] | None = None,
    notebooks: Path | None = None,
) -> list[Run]:
    """Run every step that is not done, for all `systems`, two systems at a time; the last step of each follows when all
    have the others, so that it can show them side by side.

    Returns the runs. Nothing is started when input is bad (InputError). Errors of single runs are in `run.error`.
    """
    say = out or _Terminal().say
    track = track_module(base.track)
    notebooks = notebooks or notebooks_of(base.track)
    declared = check_notebooks(notebooks, track.STEPS, type(base))
    total = jobs or base.jobs or cores()
    width = max(1, min(SYSTEMS_AT_A_TIME, len(systems), total))
    of_each = [
        base.model_copy(
            update={
                "system": name,
                "settings": _settings(track, base, name, systems),
                "jobs": max(1, total // width),
                "run_dir": "",
            }
        )
        for name in systems
    ]
    runs = [plan(params, track.STEPS) for params in of_each]
    folders = [str(run.folder) for run in runs]
    for index, run in enumerate(runs):
        others = [*(f for f in folders if f != folders[index]), *_finished_anchors(track, of_each[index], folders)]
        again = plan(of_each[index].model_copy(update={"beside": others}), track.STEPS, others)
        runs[index] = again
    if not any(run.todo for run in runs):
        return runs
    asking = [run.params for run in runs if run.todo and _asks_models(run.params)]
    with ExitStack() as stack:
        stack.enter_context(_terminated_like_interrupted())
        for run in runs:
            stack.enter_context(locked(run.folder))
        # another command may have done the work while this one waited for its turn
        runs = [plan(run.params, track.STEPS, run.params.beside) for run in runs]
        _check_edition(track, base)
        _make_environments(track, runs, say)
        for note in (note for run in runs for note in run.notes):
            say(note)
        if asking:  # the one process that holds the key; kernels, units and workers get its address alone
            from kiokulab import meter

            stack.enter_context(
                _in_environment(
                    meter.METER,
                    stack.enter_context(meter.process(sorted({meter.host_of(params.endpoint) for params in asking}))),
                )
            )
        return _run_all(runs, track, declared, notebooks, width, step_timeout_s, say)


def _asks_models(params: Params) -> bool:
    """Whether a run asks an endpoint. Raises InputError where its models cannot be asked: nothing is started then."""
    from kiokulab import metering

    if not metering.concerns(params):
        return False
    metering.check(params)
    if os.environ.get(metering.REPLAY) or not metering.is_live(params):
        return False
    metering.check_key(params.endpoint)
    return True


@contextmanager
def _in_environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _run_all(
    runs: list[Run],
    track: ModuleType,
    declared: dict[str, dict[str, int]],
    notebooks: Path,
    width: int,
    step_timeout_s: float,
    say: Callable[[str], None],
) -> list[Run]:
    from kiokulab.kernels import HEAVY, LIGHT, Kernels

    last = track.STEPS[-1]
    early = [LIGHT for run in runs for step in run.todo if step != last]
    kernels = Kernels(early + [HEAVY for run in runs if last in run.todo], width, notebooks)
    for run in runs:
        _own_lock(run.folder, kernels.token)

    def work(run: Run, steps: list[str]) -> None:
        for step in steps:
            if run.error is not None or kernels.closed:
                return
            try:
                _run_step(
                    run, step, declared[step], notebooks, kernels, HEAVY if step == last else LIGHT, step_timeout_s, say
                )
            except KiokuLabError as error:
                run.error = error
                say(f"{run.name} {step}: {error}")

    try:
        with ThreadPoolExecutor(width) as pool:
            try:
                for part in (lambda step: step != last, lambda step: step == last):
                    futures = [pool.submit(work, run, [step for step in run.todo if part(step)]) for run in runs]
                    for future in futures:
                        future.result()
            except BaseException:
                kernels.close()  # Ctrl-C: the threads wait for kernels; without them they end
                for run in runs:
                    if run.todo and run.folder.exists():
                        receipts.write_receipt(
                            run.folder, run.params, run.identity, status="stopped", reason="the command was interrupted"
                        )
                raise
    finally:
        kernels.close()
    for run in runs:
        receipt = receipts.read_receipt(run.folder)
        if run.error is None and receipt is not None and receipt.status == "units_failed":
            failed = {unit: why for step in receipt.steps for unit, why in step.failed_units.items()}
            run.error = errors.UnitsFailed({f"{run.name} {unit}": why for unit, why in failed.items()})
    return runs


def _run_step(
    run: Run,
    step: str,
    declared: dict[str, int],
    notebooks: Path,
    kernels: Any,
    modules: tuple[str, ...],
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    """One notebook, from kernel to stamped copy. Raises Died, StepFailed or the kit's own error that a cell raised."""
    started = time.monotonic()
    kernel = kernels.take(modules)
    params = run.params.model_copy(update={"run_dir": str(run.folder)})
    plain = type(params)()
    injected = {
        name: value
        for name, value in params.model_dump(mode="json").items()
        if name in declared or value != getattr(plain, name)
    }
    target = kernel.folder / f"{step}.ipynb"
    (run.folder / "steps" / f"{step}.json").unlink(missing_ok=True)
    ended, reason = _execute(
        notebooks / f"{step}.ipynb", target, injected, kernel, timeout_s, lambda line: say(f"{run.name} {line}")
    )
    notebook = json.loads(target.read_bytes()) if target.exists() else None
    error = _verdict(run, step, notebook, ended, reason)
    records = {}
    if notebook is not None:
        _settle_metadata(notebook, step, notebooks)
        text, record = receipts.stamp(notebook, run.folder, step)
        write_atomic(run.folder / f"{step}.ipynb", text)
        records[step] = record
    if error is not None:
        (run.folder / "steps" / f"{step}.json").unlink(missing_ok=True)
        status = (
            "kernel_died"
            if isinstance(error, Died)
            else "stopped"
            if error.exit_code == BudgetReached.exit_code
            else "failed"
        )
        receipts.write_receipt(
            run.folder, run.params, run.identity, status=status, reason=f"{step}: {str(error)[:1000]}"
        )
        raise error
    last = step == track_module(run.params.track).STEPS[-1]
    receipts.write_receipt(
        run.folder,
        run.params,
        run.identity,
        exits={step: 0},
        notebooks=records,
        status=None if last else "running",
        reason=None if last else f"step {step} has ended",
    )
    if last and os.environ.get("KIOKULAB_SIGNING_KEY"):
        receipts.sign(run.folder, os.environ["KIOKULAB_SIGNING_KEY"])
    say(f"{run.name} {step} done ({time.monotonic() - started:.1f} s)")


def _execute(
    source: Path,
    target: Path,
    parameters: dict[str, Any],
    kernel: Any,
    timeout_s: float,
    progress: Callable[[str], None],
) -> tuple[BaseException | None, str | None]:
    """papermill in a thread of its own, watched. Gives (what it raised, why the kernel had to be given up), both None
    when papermill is content, which alone says nothing."""
    import papermill

    from kiokulab.kernels import ENGINE

    box: list[BaseException | None] = []

    def work() -> None:
        try:
            papermill.execute_notebook(
                str(source),
                str(target),
                parameters=parameters,
                engine_name=ENGINE,
                kernel_name="python3",
                progress_bar=False,
                kernel=kernel,
            )
            box.append(None)
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=work, daemon=True, name=f"papermill {source.stem}")
    end, gone_since, reason = time.monotonic() + timeout_s, None, None
    thread.start()
    lines = _lines(kernel.progress)
    while thread.is_alive():
        thread.join(0.1)
        for line in next(lines):
            progress(line)
        now = time.monotonic()
        if gone_since is None and not _alive(kernel.pid):
            gone_since = now
        if gone_since is None and now > end:
            reason = f"not done after {timeout_s:g} s"
            kernel.kill()
        if gone_since is not None and thread.is_alive() and now - gone_since > GRACE_S:
            return None, reason or "the kernel died"
    for line in next(lines):
        progress(line)
    kernel.kill()  # what cells started and left running goes with its kernel
    return box[0], reason


def _verdict(
    run: Run, step: str, notebook: dict | None, raised: BaseException | None, reason: str | None
) -> KiokuLabError | None:
    """The kit's own verdict on an executed notebook; None where the step is done."""
    where = f"{run.folder / step}.ipynb"
    ename = getattr(raised, "ename", None)
    if ename is not None and reason is None:
        kind = getattr(errors, ename, None)
        code = kind.exit_code if isinstance(kind, type) and issubclass(kind, KiokuLabError) else 1
        cell = getattr(raised, "cell_index", 0) + 1
        return StepFailed(f"{where} cell {cell}: {'' if code != 1 else ename + ': '}{raised.evalue}", code)
    if reason is not None:
        return Died(f"{where}: {reason}. Run the same command again: finished steps and units are kept")
    if raised is not None:
        kind = type(raised).__name__
        if kind == "DeadKernelError" or "kernel" in str(raised).lower():
            return Died(
                f"{where}: the kernel died{_at_cell(notebook)}. Run the same command again: finished steps and units are kept"
            )
        return StepFailed(f"{where}: {kind}: {raised}")
    if notebook is None:
        return Died(f"{where}: the kernel gave no notebook")
    left_out = receipts.not_run(notebook)
    if left_out:
        return Died(f"{where}: cell {left_out[0]} was not run: the kernel ended or a cell called exit")
    proof = receipts.read_proof(run.folder, step)
    if proof is None:
        return StepFailed(
            f"{where}: all cells ran, but the step left no proof: its last cell must call receipts.finish(step)"
        )
    for path, sha in proof.outputs.items():
        if receipts._digest_of(run.folder / path) != sha:
            return StepFailed(f"{run.folder / path}: changed after step {step} had ended")
    return None


def _at_cell(notebook: dict | None) -> str:
    left_out = receipts.not_run(notebook) if notebook else []
    return f" in or before cell {left_out[0]}" if left_out else ""


def _settle_metadata(notebook: dict, step: str, notebooks: Path) -> None:
    """What papermill leaves that says where, not what: paths of this machine, and a random id of the injected cell."""
    paper = notebook["metadata"].get("papermill", {})
    paper.update(input_path=f"{notebooks.name}/{step}.ipynb", output_path=f"{step}.ipynb")
    paper.get("parameters", {}).pop("run_dir", None)
    for cell in notebook["cells"]:
        if "injected-parameters" in cell["metadata"].get("tags", []):
            cell["id"] = "injected-parameters"


# --- small things -----------------------------------------------------------------------------------------------


def _alive(pid: int | None) -> bool:
    import psutil

    try:
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _lines(path: Path) -> Iterator[list[str]]:
    """Whole lines that came to a file since the last look."""
    at = 0
    while True:
        try:
            with open(path, "rb") as file:
                file.seek(at)
                data = file.read()
        except OSError:
            data = b""
        whole = data[: data.rfind(b"\n") + 1]
        at += len(whole)
        yield whole.decode("utf-8", "replace").splitlines()


def _finished_anchors(track: ModuleType, params: Params, folders: list[str]) -> list[str]:
    """Finished anchor runs of the same parameters that are not in the command: they stand beside it."""
    found = []
    for name in track.ANCHORS:
        run = plan(params.model_copy(update={"system": name, "settings": {}}), track.STEPS)
        if not run.todo and str(run.folder) not in folders:
            found.append(str(run.folder))
    return found


def _settings(track: ModuleType, base: Params, name: str, systems: list[str]) -> dict[str, Any]:
    """Settings are the asked systems' own: an anchor that only stands beside them has none."""
    return base.settings if len(systems) == 1 or name not in track.ANCHORS else {}


def with_anchors(base: Params, systems: list[str]) -> list[str]:
    """`systems`, and the anchors too where a system that is no anchor is asked for and they are not all finished."""
    track = track_module(base.track)
    if all(name in track.ANCHORS for name in systems):
        return systems
    missing = [name for name in track.ANCHORS if name not in systems]
    if all(not plan(base.model_copy(update={"system": name, "settings": {}}), track.STEPS).todo for name in missing):
        return systems
    return [*missing, *systems]


def _check_edition(track: ModuleType, params: Params) -> None:
    try:
        generate = importlib.import_module(f"{track.__name__}.generate")
    except ModuleNotFoundError as error:
        if error.name != f"{track.__name__}.generate":
            raise
        return
    if hasattr(generate, "load_edition"):
        generate.load_edition(str(edition_folder(params.track, params.edition)))


def _make_environments(track: ModuleType, runs: list[Run], say: Callable[[str], None]) -> None:
    """Environments of systems that have one, before anything is started."""
    if hasattr(track, "describe_system"):
        return
    systems = importlib.import_module("kiokulab.systems")
    for name in {run.name for run in runs if run.todo}:
        where = systems.adapter(name)
        if where.environment:
            importlib.import_module("kiokulab.systems.environments").ensure(where.environment, say=say)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One command at a time in a run folder. The lock dies with its process, so a killed command leaves none behind;
    what it left running is ended first. Raises InputError with the other command's process id."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / receipts.LOCK
    while True:
        file = open(path, "a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().split()[:1]
            file.close()
            raise InputError(
                f"another command (process {owner[0] if owner else '?'}) works in this run",
                str(folder),
                "Wait for it, or end it",
            ) from None
        try:
            if os.fstat(file.fileno()).st_ino == os.stat(path).st_ino:
                break
        except FileNotFoundError:
            pass
        file.close()  # the other command took its lock file away between open and lock: once more
    try:
        file.seek(0)
        before = file.read().split()
        if len(before) == 2:  # a killed command's kernels may not have noticed yet
            from kiokulab.kernels import end_left_over

            end_left_over(before[1])
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _own_lock(folder: Path, token: str) -> None:
    """Note who holds the lock: this process, and the token its kernels carry."""
    with open(folder / receipts.LOCK, "r+", encoding="utf-8") as file:
        file.truncate()
        file.write(f"{os.getpid()} {token}\n")


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: kernels ended, receipt written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Terminal:
    """Lines to the terminal: time, what. Unit lines are thinned when nobody watches, so that a log stays readable."""

    def __init__(self, units: int = 12):
        self.start, self.lock, self.units = time.monotonic(), threading.Lock(), units
        self.live = sys.stdout.isatty()

    def say(self, line: str) -> None:
        unit = re.match(r"(\S+ \S+) (\d+)/(\d+) ", line)
        with self.lock:
            if unit and self.live:
                print(f"\r\x1b[K{line[:100]}", end="", flush=True)
                return
            if unit and "FAILED" not in line and int(unit[2]) % -(-int(unit[3]) // self.units) and unit[2] != unit[3]:
                return
            clear = "\r\x1b[K" if self.live else ""
            print(f"{clear}[{time.monotonic() - self.start:6.1f} s] {line}", flush=True)

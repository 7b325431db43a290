"""Fan-out: one unit (one persona, question or world on one system) in a process of its own.

Each unit gets a fresh process, forked from a server that has imported the step's module once (multiprocessing's
`forkserver`). A pool that is shared by units, joblib's included, was not taken: there a worker that is killed takes its
neighbours' work with it, a unit that hangs cannot be stopped alone, and what one unit leaves in a process (HOME,
working folder, module state) is seen by the next. With `engine="dask"` the same call runs each unit in a child process
of a Dask worker; rows come back over the network and are written here, once.

A finished unit is one file, written whole or not at all, and is the point at which a stopped run goes on.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import Any

from kiokulab.errors import InputError
from kiokulab.files import dumps, write_atomic

SECRET_NAME = re.compile(r"(API_?KEY|ACCESS_?KEY|SIGNING_?KEY|PRIVATE_?KEY|_KEY$|TOKEN|SECRET|PASSW|CREDENTIAL)", re.I)
CONNECT_S = 15  # for a Dask scheduler to answer
KILL_S = 10.0  # how long killed children are waited for
WARM = "KIOKULAB_WARM"  # what a fork server that starts is told to load, see kiokulab.warm
MANY = 20  # units for which it pays to load embedders beforehand; fewer may find all their vectors in the cache
ATTEMPTS = 2  # a unit whose process was killed is tried once more; one that raised is not: it would raise again


@dataclass
class Outcome:
    """What a fan-out gave. `finished` is sorted; `failed` maps a unit's id to its reason; `kept` of the finished ones
    were there before."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    kept: int = 0

    @property
    def planned(self) -> int:
        return len(self.finished) + len(self.failed)


def file_name(unit: str) -> str:
    """A unit's id as a file name: 'en-01/raw' -> 'en-01@raw'. Raises InputError for other characters."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*", unit):
        raise InputError(f"a unit's id may hold letters, digits, '.', '_', '+', '-' and '/', not {unit!r}")
    return unit.replace("/", "@")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def clean_environment(environment: dict[str, str] | None = None) -> dict[str, str]:
    """A copy of the environment for child processes: nothing whose name says key, token, secret or password, and
    compiled bytecode is cached (where PYTHONDONTWRITEBYTECODE is set, every process would compile its imports
    again)."""
    source = os.environ if environment is None else environment
    clean = {name: value for name, value in source.items() if not SECRET_NAME.search(name)}
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    return clean


def run_units(
    function: str,
    units: list[dict[str, Any]],
    folder: str | os.PathLike,
    jobs: int = 0,
    engine: str = "local",
    scheduler: str = "",
    timeout_s: float = 3600,
    embedders: Sequence[str] = (),
) -> Outcome:
    """Run `function` ("module:function", unit dict in, dict of JSON out) once for each unit that has no result yet.

    Parameters
    ----------
    units : dicts of plain JSON, each with its id in "unit"; ids are distinct.
    folder : where results go: `<unit>.json`, or `<unit>.failed.json` with the reason. Logs of the units themselves go
        to `logs/<step>/<unit>.log` of the run.
    jobs : units at a time, 0 = the number of cores. On Dask the cluster decides.
    engine, scheduler : "local", or "dask" with the scheduler's address.
    timeout_s : seconds after which a unit is killed with its children and counted as failed.
    embedders : names of embedders of the kit that the units will use: where many units wait on this machine, they are
        loaded once, before the first unit, and every unit's process has them from its birth.

    A unit that raises, dies twice or runs too long is in `failed`; the others are not touched by it. Raises InputError
    for bad units or an engine that cannot be reached.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = [unit["unit"] for unit in units]
    names = {unit: file_name(unit) for unit in ids}
    if len(set(ids)) != len(ids):
        raise InputError(f"a unit's id is given twice: {next(i for i in ids if ids.count(i) > 1)!r}")
    waiting = [unit for unit in units if not (folder / f"{names[unit['unit']]}.json").exists()]
    outcome = Outcome(finished=[i for i in ids if (folder / f"{names[i]}.json").exists()])
    outcome.kept = len(outcome.finished)
    report = _Progress(folder.name, len(ids), outcome.kept)

    def done(unit: str, result: dict | None, reason: str | None) -> None:
        failed = folder / f"{names[unit]}.failed.json"
        if reason is None:
            if result is not None:
                write_atomic(folder / f"{names[unit]}.json", dumps(result) + "\n")
            failed.unlink(missing_ok=True)
            outcome.finished.append(unit)
        else:
            write_atomic(failed, dumps({"unit": unit, "reason": reason}) + "\n")
            outcome.failed[unit] = reason
        report.line(unit, reason)

    if waiting and engine == "dask":
        _run_on_dask(function, waiting, scheduler, timeout_s, done)
    elif waiting and engine == "local":
        _run_here(
            function, waiting, folder, jobs or cores(), timeout_s, done, embedders if len(waiting) >= MANY else ()
        )
    elif waiting:
        raise InputError(f"there is no engine {engine!r}", "parameter engine", "It is local or dask")
    outcome.finished.sort()
    outcome.failed = dict(sorted(outcome.failed.items()))
    report.close(outcome)
    return outcome


def assemble(folder: str | os.PathLike, key: str) -> Iterator[dict]:
    """The rows under `key` of all finished units, in the order of the units' ids. A unit without that key raises."""
    for path in finished(folder):
        yield from json.loads(path.read_bytes())[key]


def finished(folder: str | os.PathLike) -> list[Path]:
    """Result files of finished units, in the order of the units' ids."""
    files = (
        p for p in Path(folder).glob("*.json") if not p.name.endswith(".failed.json") and not p.name.startswith(".")
    )
    return sorted(files, key=lambda path: path.stem.replace("@", "/"))


def failed(folder: str | os.PathLike) -> dict[str, str]:
    """Unit id -> reason of the units that failed last time."""
    rows = (json.loads(path.read_bytes()) for path in Path(folder).glob("*.failed.json"))
    return dict(sorted((row["unit"], row["reason"]) for row in rows))


# --- in the unit's process --------------------------------------------------------------------------------------


def _call(function: str, unit: dict) -> dict:
    module, _, name = function.partition(":")
    result = getattr(importlib.import_module(module), name)(unit)
    if not isinstance(result, dict):
        raise TypeError(f"{function} gave {type(result).__name__}, not a dict of rows")
    return result


def _reason(error: BaseException) -> str:
    kind = getattr(error, "kind", None)
    name = kind if isinstance(kind, str) else type(error).__name__
    text = " ".join(str(error).split())
    return f"{name}: {text[:500]}" if text else name


def _watch_parent(parent: int) -> None:
    """End this process and its group when whoever called `run_units` is gone, so that a killed run leaves nothing
    behind. (The operating system's parent-death signal is bound to the thread that forked, which may end before the
    process does.)"""
    # the caller, and not the fork server, which lives as long as its children
    caller = multiprocessing.parent_process()

    def look() -> None:
        while os.getppid() == parent:
            if caller is None:
                time.sleep(0.5)
            elif connection.wait([caller.sentinel], timeout=0.5):
                break
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()


def _in_own_process(function: str, unit: dict, result: str, log: str, parent: int) -> None:
    """Body of a unit's process. Leaves the result file, or the result file's name + '.error' with the reason."""
    os.setsid()
    if os.getppid() != parent:
        os._exit(1)
    _watch_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; Ctrl-C reaches it first
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    # errors="backslashreplace": a lone surrogate in a log line must not fail the unit
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    try:
        write_atomic(result, dumps(_call(function, unit)) + "\n")
    except BaseException as error:
        traceback.print_exc()
        write_atomic(result + ".error", dumps({"reason": _reason(error)}) + "\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # threads and exit handlers that a memory system left behind must not hold the run


def _signal(send: Callable[[int, int], None], pid: int, number: int) -> None:
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _kill(pid: int) -> None:
    """Kill a unit's process, its group and its children that left the group, and wait until none of them runs.

    They are stopped before they are listed: a child that is born while the list is made would be on no list."""
    import psutil

    known: dict[int, psutil.Process] = {}
    _signal(os.killpg, pid, signal.SIGSTOP)
    _signal(os.kill, pid, signal.SIGSTOP)  # a process that has not made its own group yet
    while True:
        try:
            new = [child for child in psutil.Process(pid).children(recursive=True) if child.pid not in known]
        except psutil.Error:  # it has ended: what it left behind is nobody's child
            new = []
        for child in new:
            _signal(os.kill, child.pid, signal.SIGSTOP)
            known[child.pid] = child
        if not new:
            break
    _signal(os.killpg, pid, signal.SIGKILL)
    for target in [pid, *known]:
        _signal(os.kill, target, signal.SIGKILL)
    limit = time.monotonic() + KILL_S  # a killed process may be seen for a moment, in a long write to disk for longer
    while any(_runs(child) for child in known.values()) and time.monotonic() < limit:
        time.sleep(0.01)


def _runs(process: Any) -> bool:
    """Whether a process (psutil.Process) runs still. One that only waits for its parent to take note of its end does
    not."""
    import psutil

    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


# --- on this machine --------------------------------------------------------------------------------------------


@contextmanager
def _environment_for_children(embedders: Sequence[str]) -> Iterator[None]:
    """While the fork server starts: no secrets, and one thread a process, since the units themselves fill the cores."""
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    wanted = one_thread | clean_environment() | {WARM: ",".join(embedders)}
    hidden = {name: value for name, value in os.environ.items() if name not in wanted}
    added = [name for name in wanted if name not in os.environ]
    for name in hidden:
        del os.environ[name]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        os.environ.update(hidden)


@contextmanager
def _no_main() -> Iterator[None]:
    """While a process starts: multiprocessing would otherwise run the caller's script again in every unit."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _fork_server(function: str, embedders: Sequence[str] = ()) -> multiprocessing.context.BaseContext:
    importlib.import_module(function.partition(":")[0])  # an import error is shown here, in full, and once
    context = multiprocessing.get_context("forkserver")
    # a server that runs already keeps what it has loaded: the units load the rest themselves
    context.set_forkserver_preload(["kiokulab.units", function.partition(":")[0], "kiokulab.warm"])
    with _no_main(), _environment_for_children(embedders):
        multiprocessing.forkserver.ensure_running()
    return context


def _run_here(
    function: str,
    units: list[dict],
    folder: Path,
    jobs: int,
    timeout_s: float,
    done: Callable[[str, dict | None, str | None], None],
    embedders: Sequence[str],
) -> None:
    context = _fork_server(function, embedders)
    server = multiprocessing.forkserver._forkserver._forkserver_pid  # the parent that the unit's process will see
    run = folder.parent.parent if folder.parent.name == "units" else folder
    queue = [(unit, 1) for unit in reversed(units)]
    running: dict[Any, tuple[Any, dict, int, float]] = {}
    try:
        while queue or running:
            while queue and len(running) < jobs:
                unit, attempt = queue.pop()
                name = file_name(unit["unit"])
                result = folder / f"{name}.json"
                Path(f"{result}.error").unlink(missing_ok=True)
                log = run / "logs" / folder.name / f"{name}.log"
                process = context.Process(
                    target=_in_own_process, args=(function, unit, str(result), str(log), server), name=name
                )
                with _no_main():
                    process.start()
                running[process.sentinel] = (process, unit, attempt, time.monotonic() + timeout_s)
            soonest = min(limit for _, _, _, limit in running.values())
            ready = connection.wait(list(running), timeout=max(0.0, soonest - time.monotonic()))
            late = [s for s, (_, _, _, limit) in running.items() if s not in ready and limit <= time.monotonic()]
            for sentinel in [*ready, *late]:
                process, unit, attempt, _ = running.pop(sentinel)
                _kill(process.pid)
                process.join()
                result = folder / f"{file_name(unit['unit'])}.json"
                error = Path(f"{result}.error")
                if result.exists():
                    done(unit["unit"], None, None)
                elif error.exists():
                    done(unit["unit"], None, json.loads(error.read_bytes())["reason"])
                elif sentinel in late:
                    done(unit["unit"], None, f"timeout: not done after {timeout_s:g} s")
                elif attempt < ATTEMPTS:
                    queue.append((unit, attempt + 1))
                else:
                    done(unit["unit"], None, f"died: its process was killed {attempt} times (exit {process.exitcode})")
                error.unlink(missing_ok=True)
    finally:
        for process, _, _, _ in running.values():
            _kill(process.pid)


# --- on a Dask cluster ------------------------------------------------------------------------------------------


def _on_worker(function: str, unit: dict, timeout_s: float) -> dict:
    """Runs in a Dask worker: the unit in a child process, as on one machine. Gives {"result"} or {"reason"}."""
    job = {"function": function, "unit": unit}
    with tempfile.TemporaryDirectory(prefix="kiokulab-") as scratch:
        for attempt in range(1, ATTEMPTS + 1):
            job |= {"result": f"{scratch}/result.json", "log": f"{scratch}/unit.log", "parent": os.getpid()}
            child = subprocess.Popen(
                [sys.executable, "-m", "kiokulab.units"], stdin=subprocess.PIPE, env=clean_environment()
            )
            try:
                child.communicate(dumps(job).encode("utf-8"), timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return {"reason": f"timeout: not done after {timeout_s:g} s"}
            finally:
                _kill(child.pid)
                child.wait()
            if Path(job["result"]).exists():
                return {"result": json.loads(Path(job["result"]).read_bytes())}
            if Path(job["result"] + ".error").exists():
                return json.loads(Path(job["result"] + ".error").read_bytes())
        return {"reason": f"died: its process was killed {attempt} times (exit {child.returncode})"}


def _run_on_dask(
    function: str,
    units: list[dict],
    scheduler: str,
    timeout_s: float,
    done: Callable[[str, dict | None, str | None], None],
) -> None:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError(
            "engine dask needs the extra 'dask'", "parameter engine", "Install it: pip install -e '.[dask]'"
        ) from None
    if not scheduler:
        raise InputError(
            "engine dask needs a scheduler", "parameter scheduler", "For example SCHEDULER=tcp://127.0.0.1:8786"
        )
    try:
        client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler} ({error})", "parameter scheduler") from None
    with client:
        futures = {client.submit(_on_worker, function, unit, timeout_s, pure=False): unit["unit"] for unit in units}
        for future in as_completed(futures, loop=client.loop):
            if future.status == "finished":
                answer = future.result()
                done(futures[future], answer.get("result"), answer.get("reason"))
            else:
                done(futures[future], None, f"died: {_reason(future.exception())}")


# --- what the person sees ---------------------------------------------------------------------------------------


class _Progress:
    """A bar on a terminal; otherwise one line a unit. Under the runner ($KIOKULAB_PROGRESS) the lines go to its file,
    and the notebook keeps only the last line: its bytes must not depend on which unit was faster."""

    def __init__(self, step: str, planned: int, kept: int):
        self.step, self.planned, self.n = step, planned, kept
        self.file = os.environ.get("KIOKULAB_PROGRESS")
        self.bar = None
        if not self.file and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=planned, initial=kept, desc=step, unit="unit")

    def line(self, unit: str, reason: str | None) -> None:
        self.n += 1
        text = f"{self.step} {self.n}/{self.planned} {unit}" + (f" FAILED {reason}" if reason else "")
        if self.file:
            with open(self.file, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text + "\n")
        elif self.bar is not None:
            self.bar.update()
        elif self.planned <= 40 or reason or self.n % (self.planned // 40 + 1) == 0:
            print(text)

    def close(self, outcome: Outcome) -> None:
        if self.bar is not None:
            self.bar.close()
        print(f"{self.step}: {outcome.planned} units, {len(outcome.finished)} finished, {len(outcome.failed)} failed")
        for unit, reason in outcome.failed.items():
            print(f"  {unit}: {reason}")


if __name__ == "__main__":  # a unit's process on a Dask worker
    _job = json.loads(sys.stdin.buffer.read())
    _in_own_process(_job["function"], _job["unit"], _job["result"], _job["log"], _job["parent"])

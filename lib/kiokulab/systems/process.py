"""The two ways in which a system is held: `Isolated` (a worker process of its own) and `Local` (in this process).

Both have the methods of `base.System`, both raise `SystemFailure` for anything that goes wrong and `Unsupported` for
what the adapter does not declare, and both collect `warnings`. Standard library only at import.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kiokulab import worker
from kiokulab.systems.base import SystemFailure, Unsupported

# seconds that one call may take; generous, since imports and first starts of memory systems take minutes
TIMEOUTS = {"load": 600.0, "open": 900.0, "ingest": 600.0, "search": 300.0, "dump": 600.0, "close": 60.0, "exit": 10.0}
OTHERWISE = 600.0

# what a worker inherits; everything else, keys and proxies above all, stays outside
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "KIOKULAB_CACHE")
INHERITED_PREFIXES = ("OPENBLAS_", "OMP_", "MKL_")
TELEMETRY_OFF = {
    "DO_NOT_TRACK": "1",
    "TELEMETRY_DISABLED": "1",
    "ANONYMIZED_TELEMETRY": "False",
    "POSTHOG_DISABLED": "1",
    "MEM0_TELEMETRY": "False",
    "GRAPHITI_TELEMETRY_ENABLED": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def clean_environment(workdir: Path) -> dict[str, str]:
    """The environment of a worker whose folders lie in `workdir`: an allow-list of this process's, telemetry off, a
    dummy key, HOME and TMPDIR of its own."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    return {
        **kept,
        **TELEMETRY_OFF,
        "HOME": str(workdir / "home"),
        "TMPDIR": str(workdir / "tmp"),
        "XDG_CACHE_HOME": str(workdir / "home" / ".cache"),
        "XDG_CONFIG_HOME": str(workdir / "home" / ".config"),
        "XDG_DATA_HOME": str(workdir / "home" / ".local" / "share"),
        "NO_PROXY": "*",
        "OPENAI_API_KEY": "not-a-key",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "KIOKULAB_PARENT": str(os.getpid()),
    }


class _Held:
    """What both ways have in common; `_call(op, args, timeout)` is theirs."""

    facts: dict[str, Any]
    warnings: list[str]  # what the system or its adapter reported, in order
    network: list[str]  # attempts to reach beyond this machine, in order

    def __init__(self) -> None:
        self.warnings, self.network = [], []

    def _call(self, op: str, args: dict[str, Any], timeout: float | None = None) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts") or {}
        if name == "capabilities" and facts:
            return frozenset(facts["capabilities"])
        if name == "config" and facts:
            return facts["settings"]
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def version(self) -> str:
        return self._call("version", {})

    def reset(self) -> None:
        self._call("reset", {})

    def ingest(self, item: Any, when: str) -> Any:
        result = self._call("ingest", {"item": item, "when": when})
        self.warnings.extend(getattr(result, "warnings", None) or [])
        return result

    def settle(self, timeout: float) -> None:
        # half a minute more, so that an adapter's own "not ready after ..." is heard before it is cut off
        self._call("settle", {"timeout": timeout}, timeout + 30)

    def clean_up(self) -> None:
        self._call("clean_up", {})

    def forget(self, selector: dict[str, Any]) -> int | None:
        return self._call("forget", {"selector": selector})

    def dump(self) -> list:
        return self._call("dump", {})

    def search(self, query: str, k: int, when: str | None = None) -> Any:
        return self._call("search", {"query": query, "k": k, "when": when})

    def usage(self) -> dict[str, Any]:
        return self._call("usage", {})

    def link(self, from_key: str, to_key: str, verb: str) -> None:
        self._call("link", {"from_key": from_key, "to_key": to_key, "verb": verb})

    def supersede(self, old_key: str, record: dict[str, Any]) -> None:
        self._call("supersede", {"old_key": old_key, "record": record})

    def release(self, key: str, reason: str) -> None:
        self._call("release", {"key": key, "reason": reason})

    def purge(self, key: str) -> None:
        self._call("purge", {"key": key})

    def endorse(self, key: str, by: str) -> None:
        self._call("endorse", {"key": key, "by": by})

    def suspects(self) -> list[dict[str, Any]]:
        return self._call("suspects", {})

    def lineage(self, key: str) -> list[str]:
        return self._call("lineage", {"key": key})

    def recall_path(self, path: str, k: int) -> Any:
        return self._call("recall_path", {"path": path, "k": k})

    def standing_tokens(self) -> int:
        return self._call("standing_tokens", {})

    def write(self, path: str, text: str) -> str:
        return self._call("write", {"path": path, "text": text})

    def contradictions(self) -> list[dict[str, Any]]:
        return self._call("contradictions", {})


class Local(_Held):
    """An adapter in this process: the kit's baselines, and a class given by its file."""

    def __init__(self, make: Callable[[], Any]):
        super().__init__()
        try:
            self.system = make()
        except Exception as error:
            raise SystemFailure(f"cannot be loaded: {type(error).__name__}: {error}") from error
        self.facts = worker.facts(self.system)

    def _call(self, op: str, args: dict[str, Any], timeout: float | None = None) -> Any:
        try:
            return worker.perform(self.system, op, args)
        except (Unsupported, SystemFailure):
            raise
        except Exception as error:
            raise SystemFailure(f"{op}: {type(error).__name__}: {error}") from error

    def open(self, space: str, workdir: str, endpoint: str | None = None, when: str | None = None) -> None:
        self._call("open", {"space": space, "workdir": workdir, "endpoint": endpoint})

    def set_clock(self, when: str) -> None:
        self.system.set_clock(when)

    def close(self) -> None:
        self._call("close", {})


class Isolated(_Held):
    """An adapter in a worker process of its own.

    Parameters
    ----------
    python : the interpreter of the system's environment.
    source : ``{"module": dotted name}`` or ``{"path": file}``, and ``"class"`` and ``"settings"``.
    workdir : the unit's folder; home/, tmp/ and worker.log are made in it.
    timeouts : seconds by operation, over `TIMEOUTS`.
    """

    def __init__(
        self, python: str, source: dict[str, Any], workdir: str | os.PathLike, timeouts: dict[str, float] | None = None
    ):
        super().__init__()
        self.timeouts = {**TIMEOUTS, **(timeouts or {})}
        workdir = Path(workdir).absolute()
        for folder in ("home", "tmp"):
            (workdir / folder).mkdir(parents=True, exist_ok=True)
        self.log = workdir / "worker.log"
        self._ended: SystemFailure | None = None
        self._number = 0
        self._lock = threading.Lock()  # one question at a time, whoever asks
        self.t_ms: float | None = None  # what the last call took inside the worker
        self.clock: str | None = None  # the date that the worker proved last
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [python, "-s", "-P", "-X", "utf8", worker.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=workdir / "home",
                env=clean_environment(workdir),
                start_new_session=True,
            )
        try:
            self.facts = self._call("load", source)
        except BaseException:
            self.kill()
            raise

    # the line
    def _call(self, op: str, args: dict[str, Any], timeout: float | None = None) -> Any:
        with self._lock:
            if self._ended is not None:
                raise SystemFailure(f"{op}: not asked, the worker has ended before ({self._ended})", self._ended.kind)
            limit = timeout if timeout is not None else self.timeouts.get(op, OTHERWISE)
            self._number += 1
            line = json.dumps({"id": self._number, "op": op, "args": worker.encode(args)}).encode("ascii") + b"\n"
            late = threading.Event()

            def stop() -> None:
                late.set()
                self._kill_group()

            timer = threading.Timer(limit, stop)
            timer.daemon = True
            timer.start()
            try:
                self.process.stdin.write(line)
                self.process.stdin.flush()
                answer = self.process.stdout.readline()
            except (BrokenPipeError, OSError, ValueError):
                answer = b""
            except BaseException:  # the caller was interrupted in the middle of an answer: the line is out of step
                self.kill()
                raise
            finally:
                timer.cancel()
            if not answer.endswith(b"\n"):
                raise self._end(op, limit if late.is_set() else None)
            try:
                reply = json.loads(answer)
                if reply["id"] != self._number:
                    raise ValueError(f"answer to {reply['id']} and not to {self._number}")
            except (ValueError, KeyError, TypeError) as error:
                self.kill()
                self._ended = SystemFailure(f"{op}: the worker's answer cannot be read ({error})", "died")
                raise self._ended from None
        self.t_ms = reply["t_ms"]
        self.clock = reply.get("clock") or self.clock
        self.network.extend(reply["network"])
        if reply["ok"]:
            return worker.decode(reply["result"])
        error = reply["error"]
        if error["kind"] == "unsupported":
            raise Unsupported(error["op"], error["message"])
        raise SystemFailure(f"{op}: {error['type']}: {error['message'][:2000]} (log: {self.log})", error["kind"])

    def _end(self, op: str, limit: float | None) -> SystemFailure:
        """The failure of a worker that gave no answer: `limit` seconds over, or dead by itself (None)."""
        self.kill()
        code = self.process.returncode
        if limit is not None:
            what, kind = f"{op}: no answer within {limit:g} s, the worker was ended", "timeout"
        else:
            how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
            what, kind = f"{op}: the worker died ({how})", "died"
        self._ended = SystemFailure(f"{what}; log {self.log}:\n{self.last_lines()}", kind)
        return self._ended

    def last_lines(self, count: int = 15) -> str:
        """The end of the worker's log, indented."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(f"    {line}" for line in deque(log, count)).rstrip()

    # the process
    def _kill_group(self) -> None:
        children = []
        try:
            import psutil  # finds children that left the process group; without it only the group is ended

            children = psutil.Process(self.process.pid).children(recursive=True)
        except Exception:  # not installed, or the process is gone: nothing more to find
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        for child in children:
            try:
                child.kill()
            except Exception:  # already gone with the group
                pass

    def kill(self) -> None:
        """End the worker and its children at once."""
        if self.process.returncode is None:  # not yet waited for, so the number is still this process's
            self._kill_group()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except OSError:  # unsent bytes of a dead worker
                pass
        if self._ended is None:
            self._ended = SystemFailure("the worker was ended", "died")

    # life
    def open(self, space: str, workdir: str, endpoint: str | None = None, when: str | None = None) -> None:
        self._call("open", {"space": space, "workdir": workdir, "endpoint": endpoint, "when": when})

    def set_clock(self, when: str) -> None:
        """Nothing to do: the worker sets its clock with each call that carries a date."""

    def noise(self) -> None:
        """Let the worker write to its standard output (contract test)."""
        self._call("noise", {})

    def close(self) -> None:
        """Close the store, then end the worker and whatever it started. A failure of the close is raised after that."""
        if self._ended is not None:
            return
        try:
            self._call("close", {})
            self._call("exit", {})
        finally:
            self.kill()
            self._ended = SystemFailure("it was closed", "died")


def python_of_the_kit() -> str:
    """The interpreter that runs now: for adapters without an environment of their own that still get a worker."""
    return sys.executable

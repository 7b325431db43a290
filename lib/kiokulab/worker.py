"""Serves one adapter over JSON lines inside that system's own environment. Standard library only.

Started by systems/process.py as ``<python of the system> -s -P -X utf8 worker.py``. One request a line on standard
input, one reply a line on what was standard output::

    {"id": 7, "op": "search", "args": {"query": "...", "k": 30, "when": "2025-03-02T09:00:00+09:00"}}
    {"id": 7, "ok": true, "result": {...}, "t_ms": 12.3, "warnings": [], "network": []}
    {"id": 8, "ok": false, "error": {"type": "ValueError", "message": "...", "kind": "error"}, ...}

Lines are plain ASCII JSON, so that control characters and lone surrogates survive. Before the adapter is imported the
channel is moved to descriptors of its own, standard output is pointed at standard error and standard input at nothing:
whatever a system prints lands in the log. Sockets beyond loopback are refused by an audit hook and reported. The hook
sees what goes through Python's socket module in this process; a child process or a C library with its own sockets
(gRPC) is not seen by it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

PACKAGE = Path(__file__).resolve().parent
# operations that an adapter offers only by naming them in `capabilities`
OPTIONAL = frozenset(
    "reset search forget clean_up usage link supersede release purge endorse suspects lineage recall_path "
    "standing_tokens write contradictions".split()
)
TAG = "\x00class"  # the key under which an encoded dataclass carries its class's name
OPERATIONS = OPTIONAL | {"open", "close", "ingest", "settle", "dump", "version"}

_seconds = time.perf_counter  # taken before any clock is moved
_network: list[str] = []


# --- the work itself, shared with systems that run in-process ----------------------------------------------------


def facts(system: Any) -> dict[str, Any]:
    """What the adapter declares about itself, as JSON."""
    return {
        "name": system.name,
        "feeds": system.feeds,
        "dates": system.dates,
        "model": system.model,
        "embeddings": bool(system.embeddings),
        "capabilities": sorted(system.capabilities),
        "settings": dict(system.config),
        "keeps": system.keeps,
        "package": system.package,
    }


def perform(system: Any, op: str, args: dict[str, Any]) -> Any:
    """Call one operation. An optional one that the adapter did not declare raises Unsupported and is not run, with
    the reason that the base class gives for it where the adapter does not implement it at all."""
    from kiokulab.systems.base import System, Unsupported

    if op not in OPERATIONS:
        raise ValueError(f"no such operation: {op!r}")
    if op in OPTIONAL and op not in system.capabilities and getattr(type(system), op) is not getattr(System, op):
        raise Unsupported(op, "the adapter does not declare it")
    return getattr(system, op)(**args)


def encode(value: Any) -> Any:
    """An item or a result as JSON: a dataclass becomes an object with its class name under `TAG`."""
    import dataclasses

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {TAG: type(value).__name__, **fields}
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(value: Any) -> Any:
    """The reverse of `encode`; only classes of the contract are made."""
    from kiokulab.systems import base

    classes = ("Turn", "Session", "Pair", "Utterance", "Request", "Memory", "Hit", "Results", "Ingested")
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        fields = {key: decode(item) for key, item in value.items() if key != TAG}
        if TAG not in value:
            return fields
        if value[TAG] not in classes:
            raise ValueError(f"not a class of the contract: {value[TAG]!r}")
        if value[TAG] == "Session":
            fields["turns"] = tuple(fields["turns"])
        return getattr(base, value[TAG])(**fields)
    return value


# --- refusing the network ----------------------------------------------------------------------------------------


def is_loopback(host: Any) -> bool:
    """True for a host that never leaves this machine. `host` is what a socket call was given: text, bytes or None."""
    if isinstance(host, (bytes, bytearray)):
        host = bytes(host).decode("latin-1")
    if host in (None, "", "localhost", "::1", "0.0.0.0", "::"):
        return True
    return isinstance(host, str) and (
        host.startswith("127.") and host.replace(".", "").isdigit() or host.startswith("::ffff:127.")
    )


def refuse_network() -> None:
    """From now on raise PermissionError on any look-up, connection or datagram beyond loopback, and record it.
    An audit hook cannot be taken away again: for worker processes only."""

    def hook(event: str, args: tuple) -> None:
        if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            host, port = args[0], args[1] if len(args) > 1 else ""
        elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = args[1]
            if not isinstance(address, tuple):  # a path (Unix socket), or a connected socket's sendmsg
                return
            host, port = address[0], address[1]
        else:
            return
        if not is_loopback(host):
            if isinstance(host, (bytes, bytearray)):
                host = bytes(host).decode("latin-1")
            _network.append(f"{event.removeprefix('socket.')} {host}:{port}")
            raise PermissionError(f"the kit refuses connections beyond this machine: {host}:{port}")

    sys.addaudithook(hook)


# --- the process ---------------------------------------------------------------------------------------------------


def _end_with_parent(parent: int) -> None:
    """Linux: ask for SIGTERM when the parent dies, and then take the whole process group along. Elsewhere, and for
    what this misses, the end of standard input does the same (see `_read`). By "parent" Linux means the thread that
    started the worker: it must live as long as the worker is used."""

    def end(*_: Any) -> None:
        os.killpg(os.getpgrp(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGTERM), 0, 0, 0)  # 1 = PR_SET_PDEATHSIG
        if parent and os.getppid() != parent:
            end()


def _read(channel: Any, lines: SimpleQueue) -> None:
    """Thread: pass on each request line; when the parent is gone, end this process and its children at once."""
    for line in channel:
        lines.put(line)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _load(args: dict[str, Any]) -> Any:
    """Import the adapter and make it. args: ``module`` (dotted) or ``path`` (a file), ``class``, ``settings``."""
    if args.get("path"):
        spec = importlib.util.spec_from_file_location("kiokulab_adapter", args["path"])
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(args["module"])
    return getattr(module, args["class"])(**args["settings"])


def _noise() -> None:
    """Write to standard output in the ways that systems do; for the contract test."""
    import subprocess

    print('{"id": 0, "ok": true, "result": "noise from print"}', flush=True)
    os.write(1, b"noise from a descriptor, without a line end")
    subprocess.run([sys.executable, "-c", "print('noise from a child')"], check=True)


def _answer(state: dict[str, Any], op: str, args: dict[str, Any]) -> Any:
    if op == "load":
        state["system"] = _load(args)
        return facts(state["system"])
    if op == "noise":
        return _noise()
    system = state["system"]
    when = args.get("when")
    if op == "open":
        args = {key: value for key, value in args.items() if key != "when"}
    if when and system.dates == "clock":
        from kiokulab import clock

        state["clock"] = clock.travel(when)
        if op == "ingest":
            system.set_clock(when)
    return encode(perform(system, op, decode(args)))


def main() -> None:
    """Serve until the parent says ``exit`` or goes away."""
    _end_with_parent(int(os.environ.get("KIOKULAB_PARENT", "0")))
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    # this package alone, not the folder it lies in: the kit's other packages must not reach the system
    if "kiokulab" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "kiokulab", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules["kiokulab"] = package
        spec.loader.exec_module(package)
    from kiokulab.systems.base import SystemFailure, Unsupported

    refuse_network()
    lines: SimpleQueue = SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    state: dict[str, Any] = {}
    while True:
        request = json.loads(lines.get())
        started = _seconds()
        reply: dict[str, Any] = {"id": request["id"], "ok": True, "result": None}
        leave = request["op"] == "exit"
        try:
            if not leave:
                reply["result"] = _answer(state, request["op"], request["args"])
                json.dumps(reply["result"], allow_nan=False)
        except Unsupported as error:
            reply |= {
                "ok": False,
                "error": {"type": "Unsupported", "op": error.op, "message": error.reason, "kind": "unsupported"},
            }
        except BaseException as error:  # whatever it is, the parent is told; a system's sys.exit() is a failure too
            import traceback

            traceback.print_exc()
            kind = error.kind if isinstance(error, SystemFailure) else "error"
            message = str(error) or repr(error)
            reply |= {
                "ok": False,
                "result": None,
                "error": {"type": type(error).__name__, "message": message, "kind": kind},
            }
        reply["t_ms"] = round((_seconds() - started) * 1000, 3)
        reply["network"], _network[:] = list(_network), []
        reply["clock"] = state.pop("clock", None)
        result = reply["result"]
        reply["warnings"] = (
            result.get("warnings", []) if isinstance(result, dict) and result.get(TAG) == "Ingested" else []
        )
        sys.stdout.flush()
        sys.stderr.flush()
        replies.write(json.dumps(reply).encode("ascii") + b"\n")
        replies.flush()
        if leave:
            os._exit(0)  # no exit handlers: some libraries' wait for a network that is refused


if __name__ == "__main__":
    main()

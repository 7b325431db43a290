"""Ten kills each of the runner, of a kernel, of a unit's process and, for a system that has one, of its worker, at
random moments of the real kioku track; after each the same command, and the metrics of an undisturbed run. Not part of
`make test`: it takes about 40 minutes on two cores.

    .venv/bin/python tests/soak_kill.py [kills of each kind, default 10] [system, default vector] [kinds, default all]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from kiokulab import systems as registry

KINDS = ("runner", "kernel", "unit", "worker")  # the last of a system that runs in an environment of its own
COMMAND = [sys.executable, "-m", "kiokulab", "run", "kioku", "--personas", "4", "--bootstrap", "200"]


def children(pid: int, kind: str) -> list[psutil.Process]:
    """Processes below the runner: its kernels, the units' processes (children of a kernel's fork server), systems'
    workers."""
    try:
        below = psutil.Process(pid).children(recursive=True)
        if kind == "worker":
            return [
                p
                for p in below
                if any(part.endswith(("kiokulab/worker.py", "kiokulab.worker")) for part in p.cmdline())
            ]
        kernels = [p for p in below if p.ppid() == pid and "kernelapp" in " ".join(p.cmdline())]
        if kind == "kernel":
            return kernels
        servers = [p for k in kernels for p in k.children() if "forkserver" in " ".join(p.cmdline())]
        return [p for server in servers for p in server.children()]
    except psutil.Error:
        return []


def left(mark: str) -> list[psutil.Process]:
    """Processes of a run that are still there 30 s after its end: what outlives a killed parent notices within some
    seconds."""
    until = time.monotonic() + 30
    while (found := there(mark)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def there(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get("SOAK") == mark
            ):
                found.append(process)
        except psutil.Error:
            pass
    return found


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    system = sys.argv[2] if len(sys.argv) > 2 else "vector"
    command = [*COMMAND, "--system", system]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:

        def run(name: str) -> subprocess.Popen:
            environment = {**os.environ, "KIOKULAB_OUTPUTS": f"{scratch}/{name}", "SOAK": f"{scratch}/{name}"}
            return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def metrics(name: str) -> dict[str, bytes]:
            files = Path(scratch, name).rglob("metrics.json")
            return {str(path.relative_to(Path(scratch, name))): path.read_bytes() for path in files}

        started = time.monotonic()
        undisturbed = run("undisturbed")
        assert undisturbed.wait() == 0, "the undisturbed run failed"
        length, wanted = time.monotonic() - started, metrics("undisturbed")
        print(f"undisturbed: {length:.0f} s, {len(wanted)} runs")
        kinds = sys.argv[3:] or [kind for kind in KINDS if kind != "worker" or registry.describe(system)["lock_digest"]]
        for kind in kinds:
            for turn in range(kills):
                name = f"{kind}-{turn}"
                moment = random.Random(f"{kind} {turn}").uniform(0.05, 0.95) * length
                process = run(name)
                time.sleep(moment)
                victims = [psutil.Process(process.pid)] if kind == "runner" else []
                while not victims and process.poll() is None:
                    victims = children(process.pid, kind)
                    time.sleep(0.02)
                if victims:
                    try:
                        os.kill(random.Random(turn).choice(victims).pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                first = process.wait()
                kept = {
                    path: path.stat().st_mtime_ns
                    for path in Path(scratch, name).rglob("units/*/*.json")
                    if path.name.count(".") == 1
                }
                after_kill = left(f"{scratch}/{name}")
                second = run(name).wait()
                again = [path.name for path, when in kept.items() if path.stat().st_mtime_ns != when]
                after_kill += left(f"{scratch}/{name}")
                got = metrics(name)
                good = second == 0 and got == wanted and not again and not after_kill
                wrong += not good
                print(
                    f"{'ok ' if good else 'BAD'} {name} at {moment:5.1f} s: first exit {first}, then {second}; {len(kept)} units kept"
                    f"{'' if got == wanted else ', other metrics'}{', done again: ' + ', '.join(again) if again else ''}{', left: ' + str(after_kill) if after_kill else ''}",
                    flush=True,
                )
    print(f"{wrong} of {len(kinds) * kills} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

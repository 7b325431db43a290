"""Kernels for the runner: started before they are needed, in this Python, and gone when the runner is gone.

A fresh kernel costs about 0.6 s and pandas with statsmodels and seaborn about 2 s more; four notebooks would pay that
four times in a row. So the next kernels start, with their imports, while a step is running. Every step still gets a
kernel of its own that has run nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from kiokulab.units import _kill, clean_environment

LIGHT = ("kiokulab.receipts", "kiokulab.units", "IPython.display")
HEAVY = (*LIGHT, "matplotlib.pyplot", "statsmodels.api")
START = """
import importlib, sys
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # the notebook that needs it will say so
from ipykernel.kernelapp import IPKernelApp

class KernelApp(IPKernelApp):
    def init_iopub(self, context):
        context.sndhwm = 0  # by default output beyond 1,000 waiting messages is dropped, and the cell's end with it
        super().init_iopub(context)
        context.sndhwm = 1000

sys.exit(KernelApp.launch_instance())
"""


class Kernel(AsyncKernelManager):
    """A kernel of the running interpreter, whatever kernels are installed, over Unix sockets where there are any: no
    port can be taken by another run."""

    def __init__(self, folder: Path, modules: tuple[str, ...]):
        place = {"transport": "ipc", "ip": str(folder / "s")} if os.name == "posix" else {}
        super().__init__(connection_file=str(folder / "connection.json"), **place)
        self.folder, self.modules = folder, modules
        self.progress = folder / "progress.log"

    def client(self, **options: Any) -> Any:
        """As in AsyncKernelManager; nothing that the kernel printed is dropped at this end either while the runner is
        busy."""
        client = super().client(**options)
        client.context.rcvhwm = 0
        return client

    @property
    def kernel_spec(self) -> KernelSpec:
        start = START.format(modules=self.modules)
        return KernelSpec(
            argv=[sys.executable, "-P", "-c", start, "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
        )

    @property
    def pid(self) -> int | None:
        return getattr(self.provisioner, "pid", None)

    def kill(self) -> None:
        """End the kernel and everything it started, now."""
        if self.pid:
            _kill(self.pid)


class Kernels:
    """Kernels that start ahead of their use. `plan` names, in order, what each coming step needs.

    token : set as $KIOKULAB_RUNNER in every kernel and all that it starts; what a killed runner left is found by it.
    """

    def __init__(self, plan: list[tuple[str, ...]], ahead: int, cwd: Path):
        self.token = uuid.uuid4().hex
        self.plan, self.ahead, self.cwd = list(plan), ahead, cwd
        # the sockets' paths lie in it, and may have about 100 bytes: macOS's own folder for scratch is half of that
        self.scratch = Path(tempfile.mkdtemp(prefix="kiokulab-", dir="/tmp" if sys.platform == "darwin" else None))
        self.lock = threading.Lock()
        self.waiting: list[tuple[tuple[str, ...], Future]] = []
        self.started: list[Kernel] = []
        self.closed = False
        self._start_ahead()

    def take(self, modules: tuple[str, ...]) -> Kernel:
        """A started kernel with `modules` imported; the next ones are started meanwhile."""
        with self.lock:
            found = next((entry for entry in self.waiting if entry[0] == modules), None)
            if found:
                self.waiting.remove(found)
            else:
                if modules in self.plan:
                    self.plan.remove(modules)
                found = (modules, self._start(modules))
        self._start_ahead()
        return found[1].result()

    def close(self) -> None:
        """End all kernels that are still there."""
        with self.lock:
            self.closed = True
            waiting = [future for _, future in self.waiting]
        for future in waiting:
            try:
                future.result(timeout=30)
            except Exception:  # one that did not start needs no end; whoever took it was told
                pass
        for kernel in self.started:
            kernel.kill()
        end_left_over(self.token)  # children of a kernel that was killed
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _start_ahead(self) -> None:
        with self.lock:
            while self.plan and len(self.waiting) < self.ahead and not self.closed:
                modules = self.plan.pop(0)
                self.waiting.append((modules, self._start(modules)))

    def _start(self, modules: tuple[str, ...]) -> Future:
        future: Future = Future()

        def start() -> None:
            try:
                folder = Path(tempfile.mkdtemp(prefix="k", dir=self.scratch))
                kernel = Kernel(folder, modules)
                environment = clean_environment() | {
                    "KIOKULAB_RUNNER": self.token,
                    "KIOKULAB_PROGRESS": str(kernel.progress),
                    "TMPDIR": str(folder),  # a kernel is ended by a kill: nothing in it clears its temporary folders
                    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                }
                self.started.append(kernel)
                asyncio.run(kernel.start_kernel(env=environment, cwd=str(self.cwd)))
                future.set_result(kernel)
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=start, daemon=True).start()
        return future


def end_left_over(token: str) -> None:
    """End every process that carries a runner's token."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("KIOKULAB_RUNNER") == token:
                process.kill()
                process.wait(10)
        except psutil.Error:
            pass  # gone by itself, or not ours


class _RunnerEngine(Engine):
    """papermill's own way of running cells, on a kernel that is already started."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> None:
        client = PapermillNotebookClient(
            nb_man,
            km=options["kernel"],
            kernel_name=kernel_name,
            startup_timeout=120,
            timeout=None,
            iopub_timeout=600,  # after a cell's end, for its output to be read: a busy machine took over 60 s for 10,000 lines
            shutdown_kernel="immediate",
            log_output=False,
        )
        client.reset_execution_trackers()
        with client.setup_kernel(cleanup_kc=True):
            client.papermill_execute_cells()
            client.nb.metadata["language_info"] = client.wait_for_reply(client.kc.kernel_info())["content"][
                "language_info"
            ]
            client.set_widgets_metadata()
            options["kernel"].kill()  # with its children, while they can still be found as its children


papermill_engines.register("kiokulab", _RunnerEngine)
# it warns of every parameter that a notebook leaves at its default
logging.getLogger("papermill").setLevel(logging.ERROR)
ENGINE = "kiokulab"

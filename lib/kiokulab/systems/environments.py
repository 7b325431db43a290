"""Environments of the systems that have dependencies of their own: `.envs/<name>` from `<name>.lock`, on first use.

Standard library only. An environment counts as there when its stamp holds the lock's digest; the stamp is written
last, so a build that was cut off is begun again. A file lock keeps two runs from building at once.

Lines of a lock: ``name==version`` (Python package), ``npm:name==version`` (npm package, into the environment's own
node_modules), ``# say: text`` (told before anything is installed: a licence, a size), other comments.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kiokulab.errors import InputError
from kiokulab.files import sha256_file, write_atomic
from kiokulab.systems.base import SystemFailure

FOLDER = Path(__file__).resolve().parent


def root() -> Path:
    """Folder of the environments: $KIOKULAB_ENVS, else `.envs` beside pyproject.toml, else in the current folder."""
    if os.environ.get("KIOKULAB_ENVS"):
        return Path(os.environ["KIOKULAB_ENVS"]).expanduser().absolute()
    checkout = FOLDER.parents[2]
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / ".envs"


def lock_of(name: str) -> Path:
    """The lock file of an environment. Raises InputError where there is none."""
    lock = FOLDER / f"{name}.lock"
    if not lock.exists():
        raise InputError(f"there is no {name}.lock", "systems", "Only systems with a lock have an environment")
    return lock


def python_of(name: str) -> Path:
    """The environment's interpreter (whether it is there or not)."""
    return root() / name / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _wanted(lock: Path) -> str:
    return f"{sha256_file(lock)} python{sys.version_info.major}.{sys.version_info.minor}\n"


def installed(name: str) -> bool:
    """Whether the environment is there, whole, and made from the lock as it is now."""
    stamp = root() / name / "kiokulab.stamp"
    try:
        return stamp.read_text(encoding="utf-8") == _wanted(lock_of(name)) and python_of(name).exists()
    except OSError:
        return False


@contextlib.contextmanager
def only_one(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold an advisory lock on the file `path`; the system lets go of it when this process ends, however it ends.
    Without `wait`, SystemFailure says at once that another process (or another part of this one) holds `what`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        try:
            import fcntl
        except ImportError:  # Windows: no such call; two runs at once are then the user's own care
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemFailure(f"{what} is in use by another unit", "error") from None
        yield


def secret(name: str, file_name: str) -> str | None:
    """A secret of the user's: the environment variable `name`, else the text of the file that the variable `file_name`
    names; None where neither is there. Units of a run see no variable whose name says key, token, secret or password,
    but they see `file_name`."""
    if os.environ.get(name):
        return os.environ[name]
    path = os.environ.get(file_name)
    if not path:
        return None
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise SystemFailure(f"the file that {file_name} names cannot be read: {error}", "not_installed") from None


def find_uv() -> str | None:
    """Path of uv: beside this interpreter, or on the search path; None where there is none."""
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


def _run(command: list[str], log: Path, say) -> bool:
    """Run one step of a build; its output goes to the log, its headline lines to `say`. True when it ended well."""
    from kiokulab.units import clean_environment  # an installer runs other people's build scripts: no key reaches it

    environment = {**clean_environment(), "UV_PYTHON_DOWNLOADS": "never"}
    if os.environ.get("PIP_INDEX_URL") and not os.environ.get("UV_DEFAULT_INDEX"):
        environment["UV_DEFAULT_INDEX"] = os.environ["PIP_INDEX_URL"]
    with open(log, "a", encoding="utf-8") as file:
        file.write("$ " + " ".join(command) + "\n")
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                encoding="utf-8", errors="replace", env=environment,
            )  # fmt: skip
        except OSError as error:
            file.write(f"{error}\n")
            return False
        for line in process.stdout:
            file.write(line)
            if line.startswith(
                ("Resolved", "Prepared", "Installed", "Bytecode", "Downloading", "Successfully", "added")
            ):
                say("  " + line.strip()[:160])
        return process.wait() == 0


def npm_packages(lock: Path) -> list[str]:
    """What npm is to install, as ``name@version``."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return [line.strip().removeprefix("npm:").replace("==", "@") for line in lines if line.startswith("npm:")]


def _npm(folder: Path, packages: list[str], log: Path, say) -> bool:
    """Install npm packages into `folder`/node_modules."""
    write_atomic(folder / "package.json", '{"name": "kiokulab-environment", "private": true}\n')
    quiet = ["--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
    return _run([shutil.which("npm") or "npm", "install", "--prefix", str(folder), *quiet, *packages], log, say)


def ensure(name: str, say=None) -> Path:
    """Make the environment if it is not there, and return its interpreter.

    `say(line)` shows progress (default: standard error). Uses uv where it is found, pip otherwise or where uv fails,
    and npm for the lock's npm packages.
    Raises InputError (nothing of the run was started) with the end of the log where it cannot be made.
    """
    if installed(name):
        return python_of(name)
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    lock, folder = lock_of(name), root() / name
    with only_one(root() / f"{name}.building", f"the environment {folder}", wait=True):
        if installed(name):  # another run made it while this one waited
            return python_of(name)
        lines, packages = lock.read_text(encoding="utf-8").splitlines(), npm_packages(lock)
        for line in lines:
            if line.startswith("# say: "):
                say(line.removeprefix("# say: "))
        if packages and shutil.which("npm") is None:
            raise InputError(
                "npm was not found", "PATH", "Install Node.js 20 or newer, which brings it; then run this again"
            )
        wanted = root() / f"{name}.txt"  # the lock without what is not for pip
        write_atomic(wanted, "".join(f"{line}\n" for line in lines if line and not line.startswith(("npm:", "#"))))
        count = sum("==" in line for line in lines)
        say(f"Making the environment of {name}: {count} packages from {lock.name} into {folder}, once.")
        log, started, made = root() / f"{name}.log", time.monotonic(), False
        write_atomic(log, "")
        uv, python = find_uv(), str(python_of(name))
        if uv:
            shutil.rmtree(folder, ignore_errors=True)
            made = _run([uv, "venv", "--python", sys.executable, str(folder)], log, say) and _run(
                [uv, "pip", "sync", "--python", python, "--compile-bytecode", str(wanted)], log, say
            )
            if not made:
                say(f"  uv could not make it (see {log}); trying pip, which takes longer")
        if not made:
            shutil.rmtree(folder, ignore_errors=True)
            made = _run([sys.executable, "-m", "venv", str(folder)], log, say) and _run(
                [python, "-m", "pip", "install", "--no-deps", "--progress-bar", "off", "-r", str(wanted)], log, say
            )
        if made and packages:
            made = _npm(folder, packages, log, say)
        if not made:
            shutil.rmtree(folder, ignore_errors=True)
            tail = "\n".join(f"    {line}" for line in log.read_text(encoding="utf-8").splitlines()[-12:])
            raise InputError(
                f"the environment of {name} could not be made; the log ends so:\n{tail}",
                str(log),
                "Nothing was started",
            )
        write_atomic(folder / "kiokulab.stamp", _wanted(lock))
        say(f"  done in {time.monotonic() - started:.0f} s")
    return python_of(name)

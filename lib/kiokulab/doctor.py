"""`make doctor`: what the kit needs, whether it is here, and the command that mends what is not. Standard library only.

Each check is a function that looks and gives `Finding`s; none changes anything, installs anything or asks the network.
A finding is `ok`, `BAD` (the kit, or something that was set up, does not work as it stands) or `--` (not there, and not
needed unless its use is wanted). Each finding that is not ok names the command that mends it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

OK, BAD, OPTIONAL = "ok", "BAD", "--"
OLDEST_PYTHON, OLDEST_NODE = (3, 11), 20
SPACE_GB = 3.0
OLD_SCRATCH_S = 6 * 3600.0  # a temporary folder that nobody has written to for so long belongs to no run


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `mend` is a command, or in words what to do; empty where nothing is to be done."""

    state: str
    name: str
    text: str
    mend: str = ""


def checks(root: Path) -> list[Finding]:
    """All findings on the checkout at `root`, in the order in which they are to be mended. A check that itself fails is
    a finding."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found.extend(check(root))
        except Exception as error:  # a broken machine must not silence the other checks
            found.append(Finding(BAD, check.__name__, f"this could not be looked at: {type(error).__name__}: {error}"))
    return found


def shown(findings: Sequence[Finding], width: int = 120) -> str:
    """The findings as text, one a line, what mends them below; and a last line that counts."""
    indent = 5 + max((len(one.name) for one in findings), default=0) + 2
    lines = []
    for one in findings:
        head = f"{one.state:<4} {one.name}".ljust(indent)
        lines.append(
            textwrap.fill(
                one.text,
                max(width, indent + 30),
                initial_indent=head,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        if one.mend:
            lines.append(" " * indent + f"mend: {one.mend}")
    bad, missing = (sum(one.state == state for one in findings) for state in (BAD, OPTIONAL))
    lines.append(
        f"\n{'nothing is broken' if not bad else f'{bad} to mend'}; {missing} not there and not needed for the default runs"
    )
    return "\n".join(lines)


# --- the kit's own Python ---------------------------------------------------------------------------------------------


def python(root: Path) -> Iterator[Finding]:
    said = f"{sys.version.split()[0]} at {sys.executable}"
    yield (
        Finding(OK, "Python", said)
        if sys.version_info >= OLDEST_PYTHON
        else Finding(
            BAD, "Python", f"{said}; 3.11 or newer is needed", "rm -rf .venv && make env PYTHON=/path/to/python3.11"
        )
    )


def checkout(root: Path) -> Iterator[Finding]:
    """Whether this checkout is the one that its environment was made in, and the code that runs is its own."""
    code = Path(__file__).resolve().parents[2]
    told = _editable()
    venv = root / ".venv"
    made = _key(venv / "pyvenv.cfg", "command").rpartition(" ")[2]
    if code != root.resolve():
        yield Finding(
            BAD,
            "checkout",
            f"the kit that runs lies in {code}, and this checkout is {root}",
            "rm -rf .venv && make env",
        )
    elif told is not None and told.resolve() != root.resolve():
        yield Finding(
            BAD,
            "checkout",
            f"it was moved or copied: its Python was told that the kit lies in {told}",
            "rm -rf .venv && make env",
        )
    elif (
        made
        and venv.is_dir()
        and Path(made).is_absolute()
        and Path(made).resolve() != venv.resolve()
        and Path(sys.prefix).resolve() == venv.resolve()
    ):
        yield Finding(
            BAD,
            "checkout",
            f"it was moved or copied: .venv was made as {made}, and its commands still point there",
            "rm -rf .venv && make env",
        )
    else:
        yield Finding(OK, "checkout", str(root))


def _editable() -> Path | None:
    """The folder that this Python's installation of the kit points at; None where it is none, or no editable one."""
    try:
        text = metadata.distribution("kiokulab").read_text("direct_url.json")
        found = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    if not found.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(found["url"]).path))


def _key(file: Path, key: str) -> str:
    """The value of `key` in a file of ``key = value`` lines; empty where it is not there."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next(
        (value.strip() for name, _, value in (line.partition("=") for line in lines) if name.strip() == key), ""
    )


def packages(root: Path) -> Iterator[Finding]:
    """Whether this Python holds what requirements.lock says, version by version."""
    lock = root / "requirements.lock"
    wanted = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    missing, other = [], []
    for name, version in wanted.items():
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if there != version:
            other.append(f"{name} {there} and not {version}")
    mend = "rm -f .venv/kiokulab-* && make env" if (root / ".venv").is_dir() else "make env"
    if missing:
        yield Finding(
            BAD,
            "packages",
            f"{len(missing)} of {len(wanted)} are missing: {', '.join(missing[:6])}{', ...' if len(missing) > 6 else ''}",
            mend,
        )
    if other:
        yield Finding(
            BAD,
            "packages",
            f"{len(other)} have another version: {', '.join(other[:4])}{', ...' if len(other) > 4 else ''}",
            mend,
        )
    if not missing and not other:
        yield Finding(OK, "packages", f"{len(wanted)}, as in requirements.lock")


def embeddings(root: Path) -> Iterator[Finding]:
    """The extra with sentence-transformers: not needed, but broken where it was asked for and is not whole."""
    asked = any((root / ".venv").glob("embeddings-*"))
    lacking = [name for name in ("torch", "sentence_transformers") if importlib.util.find_spec(name) is None]
    if not lacking:
        yield Finding(OK, "embeddings extra", "sentence-transformers with torch")
    elif asked or len(lacking) == 1:
        yield Finding(
            BAD,
            "embeddings extra",
            f"it was set up and {' and '.join(lacking)} cannot be imported",
            "rm -f .venv/embeddings-* && make env EXTRAS=embeddings",
        )
    else:
        yield Finding(
            OPTIONAL,
            "embeddings extra",
            "sentence-transformers and torch (EMBEDDER=st:...) are not there",
            "make env EXTRAS=embeddings",
        )


def fonts(root: Path) -> Iterator[Finding]:
    """The font of the figures, which comes with a package, and draws Japanese."""
    found = importlib.util.find_spec("matplotlib_fontja")
    font = next(Path(found.origin).parent.rglob("*.ttf"), None) if found and found.origin else None
    yield (
        Finding(OK, "font", f"{font.name}, for figures")
        if font
        else Finding(
            BAD,
            "font",
            "matplotlib-fontja has no font: Japanese would be boxes in the figures",
            "rm -f .venv/kiokulab-* && make env",
        )
    )


# --- the machine ------------------------------------------------------------------------------------------------------


def machine(root: Path) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = shutil.disk_usage(root).free / 1e9
    yield Finding(OK, "cores", str(cores))
    yield (
        Finding(OK, "disk", f"{free:.0f} GB free")
        if free >= SPACE_GB
        else Finding(BAD, "disk", f"{free:.1f} GB free; the environments of all systems take about 4", "make clean")
    )


def tools(root: Path) -> Iterator[Finding]:
    """Programs that the kit calls."""
    for name in ("git", "make"):
        found = shutil.which(name)
        yield Finding(OK, name, found) if found else Finding(BAD, name, "not on the search path", f"apt install {name}")
    if shutil.which("git") and (root / ".git").exists():
        asked = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=30
        )
        if asked.returncode:
            why = (asked.stderr.strip().splitlines() or ["it gave no reason"])[0]
            owner = "dubious ownership" in asked.stderr
            yield Finding(BAD, "git", f"it does not read this checkout, so receipts would name no commit: {why[:200]}",
                          f"git config --global --add safe.directory {root}" if owner else "git -C . status   says more")  # fmt: skip
    from kiokulab.systems import environments

    uv = environments.find_uv()
    yield (
        Finding(OK, "uv", uv)
        if uv
        else Finding(
            OPTIONAL, "uv", "not there: environments of systems are made by pip, which takes longer", "make env"
        )
    )


def node(root: Path) -> Iterator[Finding]:
    """Node.js with npm, for the systems whose lock has npm packages."""
    from kiokulab import systems
    from kiokulab.systems import environments

    users = sorted(
        {name for name in systems.names() if (lock := systems.adapter(name).lock) and environments.npm_packages(lock)}
    )
    if not users:
        return
    for_whom = f"for {', '.join(users)}"
    set_up = any(environments.installed(systems.adapter(name).environment) for name in users)
    state = BAD if set_up else OPTIONAL
    for program in ("node", "npm"):
        found = shutil.which(program)
        if not found:
            yield Finding(
                state,
                program,
                f"not on the search path ({for_whom}{', which is installed' if set_up else ''})",
                "apt install nodejs npm   (Node.js 20 or newer)",
            )
            continue
        try:
            said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        number = re.match(r"v?(\d+)", said)
        if program == "node" and (not number or int(number[1]) < OLDEST_NODE):
            yield Finding(
                state,
                "node",
                f"{said or 'no version'} at {found}; 20 or newer is needed ({for_whom})",
                "install Node.js 20 or newer, and see that it comes first in PATH",
            )
        else:
            yield Finding(OK, program, f"{said} ({for_whom})")


FAKETIME = (
    "/usr/lib/*/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
)


def faketime(root: Path) -> Iterator[Finding]:
    """libfaketime. The adapters that are here take dates natively, as text, or through time-machine in the worker."""
    found = shutil.which("faketime") or next(
        (str(path) for pattern in FAKETIME for path in Path("/").glob(pattern.lstrip("/"))), None
    )
    yield (
        Finding(OK, "libfaketime", found)
        if found
        else Finding(
            OPTIONAL,
            "libfaketime",
            "not there; no system that is built here needs it (make systems, column clock)",
            "apt install faketime",
        )
    )


# --- what was set up ----------------------------------------------------------------------------------------------------


def environments_of_systems(root: Path) -> Iterator[Finding]:
    """Each environment under .envs: whole, made from the lock as it is, its interpreter alive."""
    from kiokulab import systems
    from kiokulab.systems import environments

    by_environment: dict[str, list[str]] = {}
    for name in systems.names():
        if environment := systems.adapter(name).environment:
            by_environment.setdefault(environment, []).append(name)
    for environment, names in sorted(by_environment.items()):
        folder, title, mend = environments.root() / environment, f"env {environment}", f"make system-{names[0]}"
        if not folder.exists():
            yield Finding(OPTIONAL, title, f"not made yet; on the first use of {', '.join(names)}", mend)
        elif not environments.python_of(environment).exists():
            yield Finding(
                BAD,
                title,
                "its Python is gone (it was made by one that is no longer there)",
                f"rm -rf {_short(folder)} && {mend}",
            )
        elif not (folder / "kiokulab.stamp").exists():
            yield Finding(BAD, title, "it was cut off while it was made", mend)
        elif not environments.installed(environment):
            yield Finding(BAD, title, f"out of date: made from another {environment}.lock, or by another Python", mend)
        else:
            yield Finding(OK, title, ", ".join(names))
    known = set(by_environment)
    strays = (
        sorted(path.name for path in environments.root().iterdir() if path.is_dir() and path.name not in known)
        if environments.root().is_dir()
        else []
    )
    if strays:
        yield Finding(
            OPTIONAL,
            "envs",
            f"folders that no system uses: {', '.join(strays[:6])}",
            "rm -rf " + " ".join(_short(environments.root() / name) for name in strays[:6]),
        )


def writable(root: Path) -> Iterator[Finding]:
    """Folders that runs write to. A folder that is not there yet counts by the nearest one above it that is."""
    from kiokulab.params import outputs_root
    from kiokulab.systems import environments

    places = {
        "outputs": outputs_root(),
        "cache": Path(os.environ.get("KIOKULAB_CACHE") or root / ".cache"),
        "envs folder": environments.root(),
        "tmp": Path(tempfile.gettempdir()),
    }
    for name, place in places.items():
        near = next(path for path in (place, *place.absolute().parents) if path.exists())
        try:
            if not near.is_dir():
                raise NotADirectoryError(20, f"{near} is no folder")
            with tempfile.TemporaryFile(dir=near):
                pass
        except OSError as error:
            yield Finding(
                BAD,
                name,
                f"{place} cannot be written to: {error.strerror or error}",
                f"chown -R $(id -u) {_short(near)}   or see what lies there" if near.is_dir() else f"rm {_short(near)}",
            )
        else:
            yield Finding(OK, name, str(place))


def locks(root: Path) -> Iterator[Finding]:
    """Locks that are held now, and by whom. A lock file that nobody holds is harmless: the system lets go of it when
    its process ends."""
    from kiokulab.params import outputs_root
    from kiokulab.systems import environments

    held = []
    places = [
        *environments.root().glob("*.building"),
        *outputs_root().glob("*/*/*/*/.lock"),
        *(root / ".venv").glob(".lock"),
    ]
    for path in sorted(places):
        if _is_held(path):
            who = _holders(path)
            held.append(f"{_short(path)}{f' (process {who})' if who else ''}")
    if held:
        yield Finding(
            OPTIONAL,
            "locks",
            f"held: {', '.join(held[:5])}. A run or a build is under way there, or one of its processes did not end",
            "wait, or end that process: kill <number>",
        )
    else:
        yield Finding(OK, "locks", "none is held")
    index = root / ".git" / "index.lock"
    if index.exists() and _age(index) > 600:
        yield Finding(
            BAD,
            "git lock",
            "an index.lock that is over ten minutes old stops every commit",
            f"rm {_short(index)}   (when no git command runs)",
        )


def scratch(root: Path) -> Iterator[Finding]:
    """Temporary folders of runs that were killed."""
    old = [
        path
        for path in Path(tempfile.gettempdir()).glob("kiokulab-*")
        if path.is_dir() and not path.is_symlink() and _age(path) > OLD_SCRATCH_S
    ]
    if old:
        some = " ".join(str(path) for path in sorted(old)[:5])
        yield Finding(
            OPTIONAL,
            "temporary",
            f"{len(old)} folders of runs that were cut off",
            f"rm -rf {some}{'   and so on' if len(old) > 5 else ''}",
        )


def _age(path: Path) -> float:
    import time

    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _is_held(path: Path) -> bool:
    try:
        import fcntl

        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ImportError):  # gone, or not ours to open: nothing can be said
        return False
    return False


def _holders(path: Path) -> str:
    """Numbers of the processes that hold a lock on the file, where the system tells (Linux)."""
    try:
        info = path.stat()
        mark = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    return ", ".join(sorted({line.split()[4] for line in lines if mark in line.split() and "->" not in line.split()}))


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


CHECKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    python, checkout, packages, embeddings, fonts, machine, tools, node, faketime, environments_of_systems, writable, locks, scratch,
)  # fmt: skip

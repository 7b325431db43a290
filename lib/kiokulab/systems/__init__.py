"""The registry: which systems there are, what each declares, and how to get hold of one. Standard library only.

Systems are found, not listed: every file in this folder that has a literal ``SYSTEMS = {"name": "Class", ...}`` adds
its names. The files are read, not imported. A file beside which a `<stem>.lock` lies runs in an environment of its own
(environments.py) in a worker process; one without runs in this process.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError
from kiokulab.files import digest, sha256_file

FOLDER = Path(__file__).resolve().parent
BY_SETTINGS = ("mcp:", "agent:")  # a system that is described by a file of settings
# names that later work adds: known, so that a typing error in one of them is told from an unknown system
NOT_BUILT = {
    "letta": "its package is now a terminal agent: SYSTEM=agent:<file.yml> runs it, with the settings in its note; the server of old is in no package",
    "everos": "the local framework, 1.5.1, needs Python 3.12, and systems' environments are made with the kit's Python; for 3.11 there is 0.4.0, a client of the hosted service",
    "memos": "its tree memory needs a Neo4j server; memos-general and memos-verbatim run its general text memory",
}


@dataclass(frozen=True)
class Resolution:
    """What a name that a person typed stands for. `note` says so where it is not what was typed, else None."""

    name: str
    note: str | None = None


@dataclass(frozen=True)
class Adapter:
    """Where the adapter of one system lies. `lock` is None for a system that runs in the kit's own process."""

    name: str
    file: Path
    class_name: str
    lock: Path | None
    preset: dict[str, Any] | None = None  # settings from the file in the name; a run's own go over them

    @property
    def environment(self) -> str | None:
        """Name of the environment under .envs/, or None."""
        return self.lock.stem if self.lock else None


def _declared(file: Path) -> dict[str, str]:
    """The ``SYSTEMS`` literal of an adapter file; empty where it has none. Raises InputError where it is no literal."""
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "SYSTEMS" for target in targets):
            try:
                found = ast.literal_eval(node.value)
            except ValueError:
                found = None
            if not isinstance(found, dict) or not all(isinstance(text, str) for pair in found.items() for text in pair):
                raise InputError(
                    "SYSTEMS must be a literal {'name': 'Class'}",
                    f"{file}:{node.lineno}",
                    "The registry reads it without importing",
                )
            return found
    return {}


@cache
def adapters() -> dict[str, Adapter]:
    """Every built system by name, in order of name."""
    found: dict[str, Adapter] = {}
    for file in sorted(FOLDER.glob("*.py")):
        if file.name == "__init__.py":
            continue
        for name, class_name in _declared(file).items():
            if name in found:
                raise InputError(
                    f"the system {name!r} is declared twice", str(file), f"The other is in {found[name].file}"
                )
            lock = file.with_suffix(".lock")
            found[name] = Adapter(name, file, class_name, lock if lock.exists() else None)
    return dict(sorted(found.items()))


def names() -> list[str]:
    """Names of all built systems."""
    return list(adapters())


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-.]+", "", name.strip().casefold())


def _file(path: str) -> Path:
    """A file by its path, relative to the working folder or to the checkout: a notebook runs in another folder than
    `make`."""
    here = Path(path).expanduser()
    return here if here.exists() else Path(__file__).resolve().parents[3] / here


def _adapter_by_path(text: str) -> Adapter:
    """The adapter that ``path/to/file.py:Class`` names. Raises InputError where there is none."""
    path, _, class_name = text.rpartition(":")
    file = _file(path)
    if not file.is_file():
        raise InputError(f"there is no file {path}", f"SYSTEM={text}")
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    except SyntaxError as error:
        raise InputError(f"not Python: {error.msg}", f"{file}:{error.lineno}") from None
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if class_name not in classes:
        raise InputError(
            f"{file} has no class {class_name!r}", f"SYSTEM={text}", f"It has {', '.join(classes) or 'none'}"
        )
    return Adapter(text, file.resolve(), class_name, None)


def _adapter_by_settings(text: str) -> Adapter:
    """The adapter that ``mcp:<file>`` or ``agent:<file>`` names, with the file's keys (YAML) as its settings."""
    import yaml

    kind, _, path = text.partition(":")
    file = _file(path)
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", f"SYSTEM={text}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"not YAML: {' '.join(str(error).split())[:200]}", str(file)) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InputError(
            "the file must hold names with values", str(file), f"Its names are the settings of the system {kind!r}"
        )
    return replace(adapters()[kind], name=text, preset=found)


def resolve(text: str) -> Resolution:
    """What system a typed name means.

    Case, ``_`` and ``-`` do not matter; a near miss with one clear match is taken, and `note` says so. A text
    ``path/to/file.py:Class`` stands for itself, and so do ``mcp:<file>`` and ``agent:<file>``. Raises InputError for a
    system that is not built yet, and for an unknown one with the list of names. Nothing is imported or installed.
    """
    if ".py:" in text:
        _adapter_by_path(text)
        return Resolution(text)
    if text.startswith(BY_SETTINGS):
        _adapter_by_settings(text)
        return Resolution(text)
    known = {_plain(name): name for name in [*NOT_BUILT, *adapters()]}
    typed = _plain(text)
    name, note = known.get(typed), None
    if name is None and len(typed) > 3:  # three letters are near too much
        near = sorted(((difflib.SequenceMatcher(None, typed, other).ratio(), other) for other in known), reverse=True)
        # one clear match: close to the best, and nothing else nearly as close
        if near and near[0][0] >= 0.8 and (len(near) == 1 or near[0][0] - near[1][0] >= 0.06):
            name = known[near[0][1]]
            note = f"{text[:60]!r} was taken as {name!r}"
    if name is None:
        raise InputError(
            f"unknown system {text[:60]!r}",
            "SYSTEM",
            f"Built: {', '.join(adapters())}. Not built yet: {', '.join(NOT_BUILT)}. Or give path/to/file.py:Class",
        )
    if name in NOT_BUILT and name not in adapters():
        why = f" ({NOT_BUILT[name]})" if NOT_BUILT[name] else ""
        raise InputError(
            f"the system {name!r} is not built yet{why}" + (f"; {note}" if note else ""),
            "SYSTEM",
            f"Built: {', '.join(adapters())}",
        )
    return Resolution(name, note)


def not_built_name(text: str) -> str | None:
    """The known system without an adapter that a typed text names exactly; None where it names none."""
    found = {_plain(name): name for name in NOT_BUILT if name not in adapters()}
    return found.get(_plain(text))


def adapter(name: str) -> Adapter:
    """Where the system of a resolved name lies."""
    if name.startswith(BY_SETTINGS):
        return _adapter_by_settings(name)
    return _adapter_by_path(name) if ".py:" in name else adapters()[resolve(name).name]


def load_class(where: Adapter) -> type:
    """The adapter's class, imported into this process. Adapters import their system inside ``open``, so that this
    works without it."""
    if where.file.parent == FOLDER:
        module = importlib.import_module(f"kiokulab.systems.{where.file.stem}")
    else:
        spec = importlib.util.spec_from_file_location(f"kiokulab_adapter_{where.file.stem}", where.file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return getattr(module, where.class_name)


def locked_version(lock: Path, package: str) -> str:
    """The version of `package` in a lock of ``name==version`` lines. Raises InputError where it is not in it."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if _plain(name) == _plain(package) and version:
            return version.split()[0]
    raise InputError(
        f"{package!r} is not in the lock", str(lock), "The adapter's `package` names the system's distribution"
    )


def describe(name: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything about a system that decides a result, and whether it is installed; nothing is installed for it.

    Keys: name, version, package, lock_digest (None without a lock), source_digest (of the adapter's file, and of the
    settings' file where the name gives one), feeds, dates, model, embeddings, capabilities (sorted), keeps, settings
    (defaults with `settings` over them), environment (its name under .envs/, or None), installed. Raises InputError for
    a setting that the system does not know and, where `settings` are given (a run's, even if there are none in them),
    where this machine lacks what the adapter says it needs.
    """
    from kiokulab.systems import environments

    where = adapter(name)
    one = made(where, settings)
    if settings is not None and (lack := one.missing()):
        raise InputError(lack, f"SYSTEM={where.name}", "Nothing was started")
    from kiokulab.worker import facts

    return {
        **facts(one),
        "name": where.name,
        "version": locked_version(where.lock, one.package) if where.lock else one.version(),
        "lock_digest": sha256_file(where.lock) if where.lock else None,
        "source_digest": sha256_file(where.file)
        if where.preset is None
        else digest([sha256_file(where.file), where.preset]),
        "environment": where.environment,
        "installed": environments.installed(where.environment) if where.environment else True,
    }


def made(where: Adapter, settings: dict[str, Any] | None = None) -> Any:
    """The adapter, made and not opened. Raises InputError for a setting that it does not know."""
    try:
        return load_class(where)(**{**(where.preset or {}), **(settings or {})})
    except ValueError as error:
        raise InputError(str(error), "settings") from None


@contextlib.contextmanager
def connect(
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    space: str,
    workdir: str | os.PathLike,
    endpoint: str | None = None,
    when: str | None = None,
    timeouts: dict[str, float] | None = None,
    worker: bool | None = None,
) -> Iterator[Any]:
    """Hold one system open for one unit: yields an object with the methods of `base.System`, already opened.

    Parameters
    ----------
    space : the unit's name; anything but letters, digits and ``-`` in it becomes ``-``.
    workdir : the unit's folder. The store is ``workdir/store``; a worker also has home/, tmp/ and worker.log there.
        An existing store is opened again; one folder is held by one unit at a time.
    endpoint : base URL of the unit's OpenAI-compatible loopback endpoint (meter.py), or None.
    when : date that a system with ``dates="clock"`` is opened at.
    timeouts : seconds by operation (worker only), over ``process.TIMEOUTS``.
    worker : True gives a system without a lock a worker too, on the kit's own Python; None decides by the lock.

    The object also has the adapter's declarations (`feeds`, `dates`, `capabilities`, ...), `warnings` and, with a
    worker, `network` (refused attempts to leave this machine), `t_ms` and `log`. Raises SystemFailure where the system
    cannot be opened or closed. When the block is left by an exception, the system is closed and that exception goes on.
    """
    from kiokulab.systems import environments, process

    where = adapter(name)
    settings = {**(where.preset or {}), **(settings or {})}
    workdir = Path(workdir).absolute()
    store = workdir / "store"
    store.mkdir(parents=True, exist_ok=True)
    space = re.sub(r"[^0-9A-Za-z-]+", "-", space).strip("-") or "unit"
    with environments.only_one(workdir / "store.lock", f"the store {store}"):
        if where.lock or worker:
            python = environments.ensure(where.environment) if where.lock else process.python_of_the_kit()
            builtin = where.file.parent == FOLDER
            source = {"module": f"kiokulab.systems.{where.file.stem}"} if builtin else {"path": str(where.file)}
            source |= {"class": where.class_name, "settings": settings or {}}
            held: Any = process.Isolated(str(python), source, workdir, timeouts)
        else:
            held = process.Local(lambda: load_class(where)(**(settings or {})))
        try:
            held.open(space, str(store), endpoint, when)
            yield held
        except BaseException:
            with contextlib.suppress(
                Exception
            ):  # the first failure is the one to tell; the worker is ended all the same
                held.close()
            raise
        held.close()

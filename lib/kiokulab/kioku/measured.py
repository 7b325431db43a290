"""The rule judge's agreement with the labelled set, worked out once and kept: the same sources, embedder and set give
the same figures, and each run's step 3 asks for them (3 to 7 s).

What is kept is addressed by everything that decides it: the bytes of every module beside the judge and of the labelled
set, Python, the packages that read text, the embedder's own identity (None: nothing is kept). A process that cannot be
sure that what it loaded is what lies on the disk, because a source changed since, or in the minute before, neither
reads nor writes. A file that cannot be read is worked out again; one that cannot be written is not needed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kiokulab import embed, files
from kiokulab.judging import Judge, RuleJudge, measure

_KIT = Path(__file__).resolve().parents[1]
_PACKAGES = ("jaconv", "langdetect", "numpy")
_MINUTE = 60.0


def _sources() -> str | None:
    """Digest of all modules of the kit's top folder (the judge imports from there only); None where they cannot be
    read, or one was written less than a minute ago."""
    digest = hashlib.sha256()
    try:
        for path in sorted(_KIT.glob("*.py")):
            if time.time() - path.stat().st_mtime < _MINUTE:
                return None
            digest.update(f"{path.name}\0{files.sha256_file(path)}\0".encode())
    except OSError:
        return None
    return digest.hexdigest()


_LOADED = _sources()  # as they were when this process loaded them


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def key(judge: Judge, folder: Path, half: str) -> str | None:
    """What the figures of a judge on a set go by; None where that cannot be told."""
    embedder = getattr(judge, "embedder", None)
    identity = "no embedder" if embedder is None else getattr(embedder, "identity", None)
    if type(judge) is not RuleJudge or _LOADED is None or identity is None or _sources() != _LOADED:
        return None
    parts = [_LOADED, judge.name, judge.version, identity, half, platform.python_version(), *map(_version, _PACKAGES)]
    parts += [f"{path.name} {files.sha256_file(path)}" for path in sorted(folder.glob("*.jsonl"))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def measured_once(judge: Judge, folder: str | Path, half: str = "scored") -> dict[str, dict]:
    """`kiokulab.judging.measure` of a judge that asks no model, from the cache where it is there."""
    folder = Path(folder)
    name = key(judge, folder, half)
    if name is None:
        return measure(judge, folder, half)
    path = embed.cache_folder().parent / "judge" / f"{name}.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["key"] == name:
            return kept["measured"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or damaged: worked out again
    result = measure(judge, folder, half)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, json.dumps({"key": name, "measured": result}, ensure_ascii=False))
    except OSError:
        pass  # a cache that cannot be written only costs time
    return result

"""Reading and writing so that a cut never leaves half a file, and the same rows are the same bytes. Standard library
only."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError


def dumps(value: Any) -> str:
    """Canonical one-line JSON: sorted keys, compact, UTF-8 text as it is; lone surrogates as escapes, so that every
    string a model or a store can hold survives a round trip. NaN and infinity are refused (ValueError)."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)
    # U+2028, U+2029 and U+0085 are line ends for some readers, and a row must stay one line for all of them
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")


def digest(value: Any) -> str:
    """sha256 (64 hex digits) of the canonical JSON of `value`."""
    return hashlib.sha256(dumps(value).encode("utf-8")).hexdigest()


def sha256_file(path: str | os.PathLike) -> str:
    """sha256 (64 hex digits) of a file's bytes, read in blocks."""
    result = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def write_atomic(path: str | os.PathLike, data: str | bytes) -> None:
    """Write `path` whole or not at all: a temporary file in the same folder, flushed, then renamed over it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_jsonl(path: str | os.PathLike, rows: Iterable[dict]) -> None:
    """Replace `path` atomically by one canonical JSON line a row."""
    write_atomic(path, "".join(dumps(row) + "\n" for row in rows))


def iterate_jsonl(path: str | os.PathLike) -> Iterator[tuple[int, dict]]:
    """(line number from 1, row) of each line. Raises InputError with file:line for a torn, empty or non-object line."""
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}:{number}"
            if not raw.endswith(b"\n"):
                raise InputError("the line is torn: it has no line end", where, "The file was cut off; make it again")
            try:
                row = json.loads(raw)
            except (UnicodeDecodeError, json.JSONDecodeError) as error:
                raise InputError(f"not JSON ({error})", where) from None
            if not isinstance(row, dict):
                raise InputError(f"a row must be a JSON object, not {type(row).__name__}", where)
            yield number, row


def read_jsonl(path: str | os.PathLike) -> list[dict]:
    """All rows of a JSON-lines file; raises as `iterate_jsonl`."""
    return [row for _, row in iterate_jsonl(path)]

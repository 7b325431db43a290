"""Deleted from the API is not deleted from the disk: what the store folder still holds of forgotten and replaced facts.

`contents` says what to look for, `scan` looks for it in every file under a folder. A fact is *found* where one of its
texts lies there in full:

- as bytes in UTF-8, UTF-16LE or UTF-16BE (which also finds it in free pages of a database, in a log, in a WAL file),
- or in the normal form of the text (JSON escapes undone, NFKC, case and white space left out),
- in the file itself, and in every gzip, zstd and zip member in it, also in members inside members; in a loose object of
  git,
- and in the rows of an SQLite database with its WAL, since a row that spills over pages is not in one piece there.

What it cannot find, so that "not found" is not "gone": a text that the system has worded anew, split inside a sentence,
encrypted, or packed in another way (snappy, lz4, brotli, deflate without a header, a pack of git); vectors, from which
a text can be guessed; and copies outside the unit's folder. Links are not followed. Time grows linearly with bytes.

A unit's store is not all that a system writes to: its worker has a HOME and a TMPDIR of its own beside the store, and a
log of what the system printed. They are searched with it (`beside`), and what is found there is named so. What the kit
itself prints into that log on the system's behalf, a traceback for example, counts too: it lies on the disk all the
same.
"""

from __future__ import annotations

import io
import mmap
import os
import re
import shutil
import sqlite3
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from kiokulab.kioku.records import Fact, Persona

SHORTEST = 8  # characters of a normal form: shorter ones would be found by chance
BLOCK = 1 << 20  # bytes looked at together
DEEPEST = 3  # members inside members
LARGEST_MEMBER = 1 << 30  # bytes taken out of one packed member; what lies behind is not looked at, and that is said

GZIP, ZSTD, ZIP, SQLITE, WAL = (
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"SQLite format 3\0",
    (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
)
_ESCAPE = re.compile(r'\\u([0-9a-fA-F]{4})|\\(["\\/bfnrt])')
_BLANK = re.compile(r"\s+")


# --- what to look for -------------------------------------------------------------------------------------------


def normal(text: str) -> str:
    """Normal form in which texts are compared here: JSON escapes undone, NFKC, case folded, no white space."""
    text = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else {'"': '"', "\\": "\\", "/": "/"}.get(m[2], " "), text)
    if "\ud800" <= max(text, default=""):  # escapes of characters beyond U+FFFF come as two halves
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _BLANK.sub("", unicodedata.normalize("NFKC", text).casefold())


def _stating_sentences(text: str, fact: Fact, version: int) -> list[str]:
    """The sentences of an utterance that carry every value of the version: what a store of sentences keeps."""
    from kiokulab.text import sentences

    parts = [[normal(form) for form in forms] for forms in fact.versions[version - 1].surface.values]
    return [
        one for one in sentences(text) if parts and all(any(form in normal(one) for form in forms) for forms in parts)
    ]


def _texts(persona: Persona, fact: Fact, versions: Iterable[int]) -> list[str]:
    """Ledger sentences of the versions, and the utterances (whole, and their stating sentences) that state them."""
    found = []
    for version in versions:
        found.append(fact.versions[version - 1].text)
        for turn in (
            turn for session in persona.sessions for turn in session.turns if f"{fact.id}.{version}" in turn.states
        ):
            found += [turn.text, *_stating_sentences(turn.text, fact, version)]
    return found


def contents(persona: Persona) -> dict[str, dict[str, list[str]]]:
    """``{"forgotten": {fact: texts}, "replaced": {fact: texts}}``.

    Forgotten: every version of a fact that somebody asked to forget, and the request itself where it restates the
    content. Replaced: the older versions of a changed fact. The texts of remember and forget requests (routes
    `requests` and `signaled`) hold the ledger sentence and are found by it. A text that lies inside one that may be
    kept (a current ledger sentence or an utterance that states one) is left out; a fact without any text left stays in
    the list with none, and is counted as not searchable.
    """
    last = {fact.id: fact.versions[-1].n for fact in persona.facts}
    kept = [fact for fact in persona.facts if fact.forget is None]
    allowed = "\n".join(normal(text) for fact in kept for text in _texts(persona, fact, [last[fact.id]]))
    forgotten, replaced = {}, {}
    for fact in persona.facts:
        if fact.forget is not None:
            texts = _texts(persona, fact, [version.n for version in fact.versions])
            if fact.forget_kind == "restates":
                turns = (turn for session in persona.sessions for turn in session.turns)
                texts += [turn.text for turn in turns if turn.kind == "forget" and turn.of == fact.id]
            forgotten[fact.id] = texts
        elif len(fact.versions) > 1:
            replaced[fact.id] = _texts(persona, fact, [version.n for version in fact.versions[:-1]])

    def searchable(texts: list[str]) -> list[str]:
        return sorted({text for text in texts if len(normal(text)) >= SHORTEST and normal(text) not in allowed})

    return {
        "forgotten": {fact: searchable(texts) for fact, texts in forgotten.items()},
        "replaced": {fact: searchable(texts) for fact, texts in replaced.items()},
    }


# --- looking ----------------------------------------------------------------------------------------------------


@dataclass
class _Needles:
    """Byte strings and normal forms by fact key."""

    raw: list[tuple[str, bytes]] = field(default_factory=list)
    normal: list[tuple[str, str]] = field(default_factory=list)
    overlap: int = 0  # bytes that two neighbouring blocks share, so that no text is cut by a border

    @classmethod
    def of(cls, texts: dict[str, list[str]]) -> "_Needles":
        made = cls()
        for key, variants in texts.items():
            for text in variants:
                made.raw += [
                    (key, text.encode(coding, "surrogatepass")) for coding in ("utf-8", "utf-16-le", "utf-16-be")
                ]
                made.normal.append((key, normal(text)))
        # a JSON-escaped character takes 6 bytes (12 beyond U+FFFF); white space may have been added
        longest = max((len(text) for variants in texts.values() for text in variants), default=0)
        made.overlap = 12 * longest + 1024
        return made

    def look(self, block: bytes, open_keys: set[str]) -> set[str]:
        """Keys of `open_keys` of which a text lies in `block`."""
        found = {key for key, needle in self.raw if key in open_keys and needle in block}
        rest = open_keys - found
        if rest:
            text = normal(block.decode("utf-8", "ignore"))
            found |= {key for key, needle in self.normal if key in rest and needle in text}
        return found


# places that say more than a file's first bytes: what a report calls files whose path fits, first that fits. What
# SQLite or PostgreSQL keeps for crashes (WAL) and what systems keep for people to look back at is where deleted texts
# live longest
_GIT = re.compile(r"(^|/)objects/[0-9a-f]{2}/[0-9a-f]{38}$")  # an object that is not packed yet: one zlib stream
_PLACES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (_GIT.pattern, "git object"),
        (r"(^|/)review-backups/", "review backup"),
        (r"(^|/)(curate-log|task-history|query-log|dream-log)/", "task log"),
        (r"(^|/)pg_wal/", "postgres wal"),
        (r"(^|/)pgdata?/|(^|/)base/\d+/", "postgres table"),
        (r"(^|/)history\.db$", "sqlite history"),
        (r"(^|/)history\.db-wal$", "sqlite history wal"),
        (r"(^|/)qdrant/.*\.sqlite$", "qdrant segment"),
        (r"(^|/)[^/]*\.wal$", "wal"),
        (r"(^|/)lancedb/|\.lance(/|$)", "lance table"),
        (r"\.log(\.\d+)?$", "log"),
    )
)


def _kind(path: Path, start: bytes) -> str:
    """What a report calls the file: by its place where that is known, else by its first bytes, else by the end of its
    name."""
    for pattern, name in _PLACES:
        if pattern.search(path.as_posix()):
            return name
    if start.startswith(SQLITE):
        return "sqlite"
    if start[:4] in WAL:
        return "sqlite-wal"
    for magic, name in ((GZIP, "gzip"), (ZSTD, "zstd"), (ZIP, "zip")):
        if start.startswith(magic):
            return name
    return path.suffix[1:].lower() or "no suffix"


def _is_sqlite(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(SQLITE)) == SQLITE


class _Scan:
    def __init__(self, needles: _Needles, keys: set[str], warn: Callable[[str], None]):
        self.needles, self.keys, self.warn = needles, keys, warn

    def stream(self, pieces: Iterable[bytes], depth: int, name: str) -> set[str]:
        """Keys found in a stream of bytes, and in the packed members in it."""
        found: set[str] = set()
        rest = b""
        with tempfile.TemporaryFile() as copy:  # a member may itself hold members, and these need random access
            for piece in pieces:
                copy.write(piece)
                block = rest + piece
                found |= self.needles.look(block, self.keys - found)
                rest = block[-self.needles.overlap :]
            copy.flush()
            if depth < DEEPEST and copy.tell() and self.keys - found:
                with mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    found |= self.members(data, depth + 1, name)
        return found

    def plain(self, data: mmap.mmap) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(data), BLOCK):
            found |= self.needles.look(data[start : start + BLOCK + self.needles.overlap], self.keys - found)
        return found

    def members(self, data: mmap.mmap, depth: int, name: str) -> set[str]:
        """Keys found in the gzip, zstd and zip members that begin anywhere in `data`."""
        found: set[str] = set()
        for magic, unpack in ((GZIP, _gunzip), (ZSTD, _unzstd)):
            at = data.find(magic)
            while at >= 0 and self.keys - found:
                found |= self.stream(_limited(unpack(data, at), f"{name} at byte {at}", self.warn), depth, name)
                at = data.find(magic, at + 1)
        if data.find(ZIP) >= 0 and self.keys - found:
            try:
                if len(data) > LARGEST_MEMBER:
                    raise OSError(f"larger than {LARGEST_MEMBER} bytes")
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    for item in sorted(archive.namelist()):
                        with archive.open(item) as member:
                            pieces = iter(lambda: member.read(BLOCK), b"")
                            found |= self.stream(_limited(pieces, f"{name}: {item}", self.warn), depth, name)
            except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, zlib.error, EOFError) as error:
                self.warn(f"{name}: a zip archive in it could not be read ({error})")
        return found

    def rows(self, path: Path) -> set[str]:
        """Keys found in the live rows of an SQLite file, read from a copy with its WAL."""
        found: set[str] = set()
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.sqlite"
            shutil.copyfile(path, copy)
            if Path(f"{path}-wal").is_file():
                shutil.copyfile(f"{path}-wal", f"{copy}-wal")
            try:
                with closing(sqlite3.connect(copy)) as connection:
                    connection.text_factory = bytes
                    tables = [
                        row[0].decode("utf-8", "replace")
                        for row in connection.execute("select name from sqlite_master where type = 'table'")
                    ]
                    for table in tables:
                        found |= self.table(connection, table, found, path.name)
            except sqlite3.Error as error:
                self.warn(f"{path.name}: its rows could not be read as SQLite ({error}); its bytes were searched")
        return found

    def table(self, connection: sqlite3.Connection, table: str, found: set[str], name: str) -> set[str]:
        seen = set(found)
        quoted = table.replace('"', '""')
        try:
            for row in connection.execute(f'select * from "{quoted}"'):
                for cell in row:
                    if isinstance(cell, bytes) and len(cell) >= SHORTEST and self.keys - seen:
                        seen |= self.cell(cell, seen, name)
        except (
            sqlite3.OperationalError
        ) as error:  # a virtual table whose module is not here: its shadow tables are read
            if "no such module" not in str(error):
                raise
        return seen

    def cell(self, cell: bytes, found: set[str], name: str) -> set[str]:
        if any(magic in cell for magic in (GZIP, ZSTD)) or len(cell) > BLOCK:
            return self.stream((cell[start : start + BLOCK] for start in range(0, len(cell), BLOCK)), 1, name)
        return self.needles.look(cell, self.keys - found)


def _gunzip(data: mmap.mmap, at: int) -> Iterator[bytes]:
    """What the gzip member at `at` holds; nothing more where it is damaged or is none after all."""
    engine, position = zlib.decompressobj(31), at
    try:
        while not engine.eof and position < len(data):
            piece = data[position : position + BLOCK]
            position += len(piece)
            while piece and not engine.eof:
                yield engine.decompress(piece, BLOCK)  # bounded: a small member may hold gigabytes
                piece = engine.unconsumed_tail
        if not engine.eof:
            yield engine.flush()
    except zlib.error:
        return


def _inflated(path: Path) -> Iterator[bytes]:
    """What a file that is one zlib stream holds; nothing more where it is damaged."""
    engine = zlib.decompressobj()
    try:
        with open(path, "rb") as file:
            while (piece := file.read(BLOCK)) and not engine.eof:
                while piece and not engine.eof:
                    yield engine.decompress(piece, BLOCK)
                    piece = engine.unconsumed_tail
    except zlib.error:
        return


class _From:
    """`data` from a place on, as a file that can only be read."""

    def __init__(self, data: mmap.mmap, at: int):
        self.data, self.at = data, at

    def read(self, size: int = -1) -> bytes:
        piece = self.data[self.at : self.at + size] if size >= 0 else self.data[self.at :]
        self.at += len(piece)
        return piece


def _unzstd(data: mmap.mmap, at: int) -> Iterator[bytes]:
    """What the zstd frame at `at` holds; nothing more where it is damaged or is none after all."""
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(_From(data, at)) as reader:
            while out := reader.read(BLOCK):
                yield out
    except zstandard.ZstdError:
        return


def _limited(pieces: Iterable[bytes], name: str, warn: Callable[[str], None]) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > LARGEST_MEMBER:
            warn(f"{name}: a packed member holds more than {LARGEST_MEMBER} bytes; the rest was not searched")
            return
        yield piece


def beside(store: str | os.PathLike) -> list[tuple[Path, str]]:
    """(file or folder, what a report calls it) of what else a unit leaves where `store` is the folder ``store`` of its
    own folder: the worker's home and temporary folder and its log. Empty for any other folder."""
    store = Path(store)
    if store.name != "store":
        return []
    found = [(store.parent / "home", "home"), (store.parent / "tmp", "tmp"), (store.parent / "worker.log", "worker")]
    return [(place, name) for place, name in found if place.exists() and not place.is_symlink()]


def _files(place: Path) -> list[Path]:
    paths = [place] if place.is_file() else place.rglob("*")
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def scan(folder: str | os.PathLike, texts: dict[str, dict[str, list[str]]]) -> dict:
    """Search every file under `folder` for `texts` (as `contents` gives them), and what lies `beside` it where it is a
    unit's store; kinds of files found there begin with ``home:``, ``tmp:`` or ``worker:``.

    Returns ``{"forgotten": {"n", "found": {fact: [file kinds]}, "not_searchable": [facts]}, "replaced": the same,
    "files": n, "bytes": n, "warnings": [...]}``. `n` counts the facts that could be searched for. A file that cannot be
    read is a warning, never "not found".
    """
    keyed = {
        f"{group}/{fact}": variants for group, facts in texts.items() for fact, variants in facts.items() if variants
    }
    needles, warnings = _Needles.of(keyed), []
    kinds: dict[str, set[str]] = {key: set() for key in keyed}
    files = size = 0
    folder = Path(folder)
    planned = [(path, "", path.relative_to(folder)) for path in _files(folder)]
    planned += [
        (path, f"{where}: ", path.relative_to(folder.parent))
        for place, where in beside(folder)
        for path in _files(place)
    ]
    for path, where, relative in planned:
        files += 1
        name = str(relative)
        scanner = _Scan(needles, set(keyed), warnings.append)
        try:
            with open(path, "rb") as file:
                length = os.fstat(file.fileno()).st_size
                size += length
                if not length:
                    continue
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    kind = where + _kind(relative, data[:16])
                    found = scanner.plain(data)
                    scanner.keys -= found
                    found |= scanner.members(data, 1, name)
            if _GIT.search(relative.as_posix()):
                scanner.keys -= found
                found |= scanner.stream(_limited(_inflated(path), name, warnings.append), 1, name)
            if _is_sqlite(path):
                scanner.keys -= found
                found |= scanner.rows(path)
        except (OSError, ValueError) as error:  # gone meanwhile, no permission, shrunk while it was mapped
            warnings.append(f"{name}: could not be read ({error})")
            continue
        for key in found:
            kinds[key].add(kind)
    return {
        **{
            group: {
                "n": sum(bool(variants) for variants in facts.values()),
                "found": {
                    fact: sorted(kinds[f"{group}/{fact}"]) for fact in sorted(facts) if kinds.get(f"{group}/{fact}")
                },
                "not_searchable": sorted(fact for fact, variants in facts.items() if not variants),
            }
            for group, facts in texts.items()
        },
        "files": files,
        "bytes": size,
        "warnings": warnings,
    }


def merge(one: dict, other: dict) -> dict:
    """Two scans of the same store at different times: found at either time counts as found."""
    merged = {**other, "files": max(one["files"], other["files"]), "bytes": max(one["bytes"], other["bytes"])}
    for group in ("forgotten", "replaced"):
        facts = sorted({*one[group]["found"], *other[group]["found"]})
        both = {
            fact: sorted({*one[group]["found"].get(fact, []), *other[group]["found"].get(fact, [])}) for fact in facts
        }
        merged[group] = {**other[group], "found": both}
    merged["warnings"] = list(dict.fromkeys([*one["warnings"], *other["warnings"]]))
    return merged

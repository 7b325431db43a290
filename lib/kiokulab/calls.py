"""The record of model calls: calls.sqlite, one row an attempt. Written by the meter, read by receipts, replay and
reports.

Bodies are kept once by their content (sha256) and compressed (zstd). Money is text that `Decimal` reads; what the
endpoint did not say is NULL and never 0. A row is committed before the meter gives the answer away, so a process that
is killed loses no answer that anybody got. The file is written without fsync: it survives the death of every process,
and a power cut may cost it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError
from kiokulab.files import dumps

NAME = "calls.sqlite"
SCHEMA = """
create table if not exists bodies (sha text primary key, data blob not null);
create table if not exists calls (
    unit text not null, role text not null, seq integer not null, attempt integer not null,
    path text not null, key text not null, request text not null, sent text, rewrites text,
    status integer, final integer not null, retry_cause text, answer text, content_type text,
    mode text not null, model_asked text, model_answered text, provider text, generation text, finish text,
    usage text, prompt_tokens integer, completion_tokens integer, cached_tokens integer, reasoning_tokens integer,
    cost text, list_cost text, seconds real not null, first_byte real,
    primary key (unit, role, seq, attempt)
);
"""


@dataclass
class Call:
    """One attempt. `request`, `sent` and `answer` are bodies here and their sha256 in the file.

    unit, role : who asked. seq : number of the question within unit and role, from 1. attempt : from 1.
    path : "chat/completions". key : sha256 of path and request, by which an answer is found again.
    sent : what went upstream where it differs from the request; `rewrites` then says what and why.
    status : HTTP status, None where no whole answer came. final : whether this answer was given to who asked.
    retry_cause : why another attempt followed, or why none was left. seconds, first_byte : by a monotonic clock.
    cost : dollars billed as the endpoint says; list_cost : at list price. None = unknown.
    mode : "live"; "embedded", of the built-in model; "parent", taken over from the run that this one judges again, and
        paid there.
    """

    unit: str
    role: str
    seq: int
    attempt: int
    path: str
    key: str
    request: bytes
    sent: bytes | None = None
    rewrites: str | None = None
    status: int | None = None
    final: int = 0
    retry_cause: str | None = None
    answer: bytes | None = None
    content_type: str | None = None
    mode: str = "live"
    model_asked: str | None = None
    model_answered: str | None = None
    provider: str | None = None
    generation: str | None = None
    finish: str | None = None
    usage: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: str | None = None
    list_cost: str | None = None
    seconds: float = 0.0
    first_byte: float | None = None


COLUMNS = tuple(field.name for field in fields(Call))
BODIES = ("request", "sent", "answer")


def key_of(path: str, body: Any) -> str:
    """What makes two requests the same: the path and the JSON, whatever its spacing and the order of its keys."""
    return hashlib.sha256(dumps([path, body]).encode()).hexdigest()


def money(text: Any) -> Decimal | None:
    """A finite amount that is not negative, or None."""
    if isinstance(text, bool) or not isinstance(text, (int, float, str, Decimal)):
        return None
    try:
        value = Decimal(str(text))
    except InvalidOperation:
        return None
    return value if value.is_finite() and value >= 0 else None


def shown(amount: Decimal | None) -> str | None:
    """An amount as it is written in the record: plain digits, no exponent."""
    return None if amount is None else format(amount, "f")


class Record:
    """A calls.sqlite that is being written. One process has it open; threads may share it."""

    def __init__(self, path: str | os.PathLike):
        import zstandard

        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._squeeze = zstandard.ZstdCompressor(level=3)
        self._database = _open(self.path)
        self._database.executescript(
            "pragma journal_mode=delete; pragma synchronous=off; pragma locking_mode=exclusive;" + SCHEMA
        )
        self._known = {sha for (sha,) in self._database.execute("select sha from bodies")}
        self._seq: dict[tuple[str, str], int] = {
            (unit, role): seq
            for unit, role, seq in self._database.execute("select unit, role, max(seq) from calls group by unit, role")
        }
        self._answers: dict[tuple[str, str, str], list[tuple]] = defaultdict(list)
        query = "select unit, role, key, status, answer, content_type, seconds from calls where final = 1 order by unit, role, seq"
        for unit, role, key, *row in self._database.execute(query):
            self._answers[unit, role, key].append(tuple(row))
        self._given: dict[tuple[str, str, str], int] = defaultdict(int)
        self.used, self.dearest = spent(self._database)  # when it was opened

    def begin(self, unit: str) -> None:
        """`unit` starts from the beginning: what it asks is answered from the first recorded answer on."""
        with self._lock:
            for place in [place for place in self._given if place[0] == unit]:
                del self._given[place]

    def next_seq(self, unit: str, role: str) -> int:
        with self._lock:
            self._seq[unit, role] = self._seq.get((unit, role), 0) + 1
            return self._seq[unit, role]

    def again(
        self, unit: str, role: str, key: str, failures: bool = False
    ) -> tuple[int, bytes, str | None, float] | None:
        """The next recorded answer to this request of this unit and role, as (status, body, content type, seconds that
        it took then); None where there is none left. Answers with status 200 only; with `failures` others too, where no
        good one was recorded."""
        with self._lock:
            all_of_it = self._answers.get((unit, role, key), [])
            answers = [row for row in all_of_it if row[0] == 200] or (all_of_it if failures else [])
            number = self._given[unit, role, key]
            if number >= len(answers):
                return None
            self._given[unit, role, key] += 1
            status, sha, kind, seconds = answers[number]
            return status or 502, self._body(sha), kind, seconds

    def known(self, unit: str, role: str, key: str) -> int:
        """How many answers to this request of this unit and role there are."""
        with self._lock:
            return len(self._answers.get((unit, role, key), ()))

    def given(self, unit: str) -> dict[str, int]:
        """role -> how many answers the unit has been given since it began, from the record or new."""
        with self._lock:
            roles = sorted({role for of, role, _ in self._given if of == unit})
            return {
                role: sum(n for (of, other, _), n in self._given.items() if (of, other) == (unit, role))
                for role in roles
            }

    def add(self, calls: Sequence[Call]) -> None:
        """Write attempts, all or none, and return when they are in the file."""
        rows, bodies = [], {}
        for call in calls:
            row = {name: getattr(call, name) for name in COLUMNS}
            for name in BODIES:
                if row[name] is not None:
                    sha = hashlib.sha256(row[name]).hexdigest()
                    if sha not in self._known and sha not in bodies:
                        bodies[sha] = self._squeeze.compress(row[name])
                    row[name] = sha
            rows.append(row)
        with self._lock:
            with self._database:
                self._database.executemany("insert or ignore into bodies values (?, ?)", bodies.items())
                self._database.executemany(_INSERT, rows)
            self._known.update(bodies)
            for row in rows:
                if row["final"]:
                    self._answers[row["unit"], row["role"], row["key"]].append(
                        (row["status"], row["answer"], row["content_type"], row["seconds"])
                    )
                    self._given[row["unit"], row["role"], row["key"]] += 1

    def nearest(self, unit: str, role: str, path: str, request: bytes) -> bytes | None:
        """The recorded request that is most like this one: of the same unit and role where there is one."""
        from rapidfuzz import fuzz

        text = request.decode("utf-8", "replace")[:20_000]
        with self._lock:
            for query, values in (
                ("unit = ? and role = ? and path = ?", (unit, role, path)),
                ("role = ? and path = ?", (role, path)),
                ("1", ()),
            ):
                shas = [
                    sha
                    for (sha,) in self._database.execute(
                        f"select distinct request from calls where {query} limit 2000", values
                    )
                ]
                if shas:
                    return max(
                        (self._body(sha) for sha in shas),
                        key=lambda body: fuzz.ratio(text, body.decode("utf-8", "replace")[:20_000]),
                    )
        return None

    def _body(self, sha: str | None) -> bytes:
        return b"" if sha is None else body(self._database, sha)

    def close(self) -> None:
        with self._lock:
            self._database.close()


class Earlier:
    """The good answers in the record of a finished run, for a run that judges it again. Reads only."""

    def __init__(self, path: str | os.PathLike):
        self._lock = threading.Lock()
        self._database = _open(Path(path), read_only=True)
        self._places: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for rowid, unit, role, key in self._database.execute(
            "select rowid, unit, role, key from calls where final = 1 and status = 200 order by unit, role, seq"
        ):
            self._places[unit, role, key].append(rowid)

    def take(self, call: Call, number: int) -> Call | None:
        """`call` (unit, role, key, seq, request) as it was answered then; `number` of its answers are known already.
        None where there are no more."""
        with self._lock:
            places = self._places.get((call.unit, call.role, call.key), [])
            if number >= len(places):
                return None
            row = self._database.execute(
                f"select {', '.join(COLUMNS)} from calls where rowid = ?", (places[number],)
            ).fetchone()
            was = {
                **dict(zip(COLUMNS, row, strict=True)),
                "seq": call.seq,
                "attempt": 1,
                "mode": "parent",
                "request": call.request,
                "retry_cause": None,
            }
            return Call(
                **{
                    **was,
                    **{
                        name: None if was[name] is None else body(self._database, was[name])
                        for name in ("sent", "answer")
                    },
                }
            )

    def close(self) -> None:
        with self._lock:
            self._database.close()


_INSERT = f"insert into calls ({', '.join(COLUMNS)}) values ({', '.join(':' + name for name in COLUMNS)})"


def _open(path: Path, read_only: bool = False) -> sqlite3.Connection:
    try:
        if read_only:
            if not path.is_file():
                raise InputError("there is no record of model calls", str(path))
            database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        else:
            database = sqlite3.connect(path, check_same_thread=False, timeout=10)
        database.execute("select count(*) from sqlite_master")
        return database
    except sqlite3.DatabaseError as error:
        raise InputError(f"the record of model calls cannot be read ({error})", str(path)) from None


def body(database: sqlite3.Connection, sha: str) -> bytes:
    """A stored body. Raises InputError where it is missing or is not what its name says."""
    import zstandard

    row = database.execute("select data from bodies where sha = ?", (sha,)).fetchone()
    data = None if row is None else zstandard.ZstdDecompressor().decompress(row[0])
    if data is None or hashlib.sha256(data).hexdigest() != sha:
        raise InputError(
            f"the body {sha[:12]} of a model call is {'missing' if data is None else 'not what was recorded'}", NAME
        )
    return data


def spent(database: sqlite3.Connection) -> tuple[Decimal, dict[str, Decimal]]:
    """What counts against a budget, and the dearest call of each model: billed, else list price, else (for an answer of
    which neither is known) the dearest call of its model."""
    used, unknown, dearest = Decimal(0), [], {}
    for model, cost, list_cost, status in database.execute(
        "select model_asked, cost, list_cost, status from calls where mode = 'live'"
    ):
        paid = money(cost) if money(cost) is not None else money(list_cost)
        if paid is not None:
            used += paid
            dearest[model or ""] = max(dearest.get(model or "", Decimal(0)), paid)
        elif status == 200:
            unknown.append(model or "")
    return used + sum((dearest.get(model, Decimal(0)) for model in unknown), Decimal(0)), dearest


def rows(path: str | os.PathLike) -> Iterator[dict[str, Any]]:
    """All attempts in order of unit, role, question and attempt; bodies as sha256."""
    database = _open(Path(path), read_only=True)
    try:
        for row in database.execute(f"select {', '.join(COLUMNS)} from calls order by unit, role, seq, attempt"):
            yield dict(zip(COLUMNS, row, strict=True))
    finally:
        database.close()


def bodies(path: str | os.PathLike, call: dict[str, Any]) -> dict[str, bytes | None]:
    """The bodies of one row of `rows`."""
    database = _open(Path(path), read_only=True)
    try:
        return {name: None if call[name] is None else body(database, call[name]) for name in BODIES}
    finally:
        database.close()


def assemble(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Copy a record with its rows in order, so that its digest does not depend on who was answered first. Replaces
    `target`."""
    target = Path(target)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    old, new = _open(Path(source), read_only=True), sqlite3.connect(part)
    try:
        new.executescript("pragma journal_mode=off;" + SCHEMA)
        with new:
            new.executemany(
                "insert into bodies values (?, ?)", old.execute("select sha, data from bodies order by sha")
            )
            names = ", ".join(COLUMNS)
            marks = ", ".join("?" * len(COLUMNS))
            new.executemany(
                f"insert into calls ({names}) values ({marks})",
                old.execute(f"select {names} from calls order by unit, role, seq, attempt"),
            )
    finally:
        old.close()
        new.close()
    os.replace(part, target)


def totals(paths: Sequence[str | os.PathLike]) -> dict[str, Any]:
    """Sums over records that exist: attempts, questions, answered, failed, retries, tokens, billed and list dollars
    (Decimal), how many attempts have no billed cost or no list price, the models as they named themselves, and the same
    by role. Answers that were taken over from another run are `reused` and in no other sum."""
    made: dict[str, Any] = {
        "attempts": 0,
        "calls": 0,
        "answered": 0,
        "reused": 0,
        "billed": Decimal(0),
        "list": Decimal(0),
        "unbilled": 0,
        "unlisted": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "modes": set(),
        "models": set(),
        "by_role": {},
    }
    for path in paths:
        if not Path(path).is_file():
            continue
        for row in rows(path):
            if row["model_answered"]:
                made["models"].add(row["model_answered"])
            if row["mode"] == "parent":
                made["reused"] += 1
                continue
            role = made["by_role"].setdefault(
                row["role"],
                {
                    "attempts": 0,
                    "calls": 0,
                    "prompt_tokens": 0,
                    "completion_tokens": 0,
                    "billed": Decimal(0),
                    "seconds": 0.0,
                },
            )
            for sums in (made, role):
                sums["attempts"] += 1
                sums["calls"] += row["attempt"] == 1
                sums["prompt_tokens"] += row["prompt_tokens"] or 0
                sums["completion_tokens"] += row["completion_tokens"] or 0
                sums["billed"] += money(row["cost"]) or 0
            role["seconds"] += row["seconds"]
            made["answered"] += row["final"] and row["status"] == 200
            made["cached_tokens"] += row["cached_tokens"] or 0
            made["reasoning_tokens"] += row["reasoning_tokens"] or 0
            made["list"] += money(row["list_cost"]) or 0
            made["unbilled"] += row["cost"] is None and row["mode"] == "live"
            made["unlisted"] += row["list_cost"] is None and row["mode"] == "live"
            made["modes"].add(row["mode"])
    return {**made, "modes": sorted(made["modes"]), "models": sorted(made["models"])}


def difference(asked: bytes, recorded: bytes | None, lines: int = 40) -> str:
    """A readable diff between a recorded request and the one that is asked now."""
    import difflib

    if recorded is None:
        return "nothing was recorded at all"

    def pretty(data: bytes) -> list[str]:
        try:
            text = json.dumps(json.loads(data), ensure_ascii=False, indent=1, sort_keys=True)
        except ValueError:
            text = data.decode("utf-8", "replace")
        return text.replace("\\n", "\n").splitlines()

    found = [
        line[:300]
        for line in difflib.unified_diff(pretty(recorded), pretty(asked), "recorded", "asked now", n=1, lineterm="")
    ]
    return (
        "\n".join(found[:lines] + ([f"... {len(found) - lines} lines more"] if len(found) > lines else []))
        or "the same text: it was asked once more than was recorded"
    )

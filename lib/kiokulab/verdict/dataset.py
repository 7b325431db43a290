"""LongMemEval records, streamed: the file is never in memory as a whole (variant M is 2.7 GB).

What would tell a memory system where the evidence lies (session ids such as `answer_...`, `has_answer`) is taken away
here, before anything else sees a record; the labels stay beside it for the diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from kiokulab.errors import InputError
from kiokulab.systems.base import Session, Turn
from kiokulab.verdict import TYPES
from kiokulab.verdict.params import KNOWN

FIELDS = (
    "question_id",
    "question_type",
    "question",
    "answer",
    "question_date",
    "haystack_session_ids",
    "haystack_dates",
    "haystack_sessions",
    "answer_session_ids",
)
_DATE = re.compile(r"(\d{4})/(\d{2})/(\d{2}) \((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\) (\d{2}):(\d{2})")


@dataclass(frozen=True)
class Question:
    """One question with its history. `sessions` are in the order of their dates, with opaque ids ("s001").

    A question may be dated earlier than a session of the same day; such sessions are kept. `evidence` holds the opaque
    ids of the sessions that are labelled as holding the answer. `rubric`: the answer is a rubric, not an answer.
    """

    id: str
    type: str
    question: str
    answer: str
    date: str  # ISO 8601, UTC (the file names no zone; UTC is our reading)
    sessions: tuple[Session, ...]
    evidence: tuple[str, ...]
    position: int  # record number in the file, from 0

    @property
    def abstention(self) -> bool:
        """Marked by `_abs` in the id alone; the type stays an ordinary one."""
        return "_abs" in self.id

    @property
    def rubric(self) -> bool:
        return self.type == "single-session-preference" and not self.abstention


def parse_date(text: Any, where: str) -> str:
    """`2023/05/30 (Tue) 21:48` as ISO 8601 in UTC. strptime's %a would depend on the locale; nothing falls back to
    now."""
    found = _DATE.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise InputError(f"{text!r} is not a date like 2023/05/30 (Tue) 21:48", where)
    try:
        return datetime(*map(int, found.groups()), tzinfo=UTC).isoformat()
    except ValueError as error:
        raise InputError(f"{text!r}: {error}", where) from None


def show_date(iso: str) -> str:
    """ISO 8601 back to the file's own spelling, which is what a reader is shown. Weekday names are English
    everywhere."""
    when = datetime.fromisoformat(iso)
    return f"{when:%Y/%m/%d} ({('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[when.weekday()]}) {when:%H:%M}"


def parse_record(record: Any, position: int, source: str) -> Question:
    """One official record to a Question. Raises InputError naming record and field."""
    where = f"{source}[{position}]"
    if not isinstance(record, dict):
        raise InputError(f"a record is an object, not {type(record).__name__}", where)
    for name in FIELDS:
        if name not in record:
            raise InputError(f"field {name} is missing", where)
    identity = record["question_id"]
    if not isinstance(identity, str) or not identity.strip():
        raise InputError("question_id must be a text that is not blank", where)
    where = f"{where} {identity}"
    if not isinstance(record["question"], str) or not record["question"].strip():
        raise InputError("question must be a text that is not blank", where)
    if not isinstance(record["question_type"], str) or record["question_type"] not in TYPES:
        raise InputError(f"unknown question_type {record['question_type']!r}", where, f"One of {', '.join(TYPES)}")
    answer = record["answer"]
    if isinstance(answer, bool) or not isinstance(answer, (str, int)):  # 32 of the 500 answers are integers
        raise InputError(f"answer must be a text or an integer, not {type(answer).__name__}", where)
    for name in ("haystack_session_ids", "answer_session_ids"):
        if not isinstance(record[name], list) or not all(isinstance(one, str) for one in record[name]):
            raise InputError(f"{name} must be a list of texts", where)
    ids, dates, sessions = record["haystack_session_ids"], record["haystack_dates"], record["haystack_sessions"]
    if not (isinstance(dates, list) and isinstance(sessions, list)) or not len(ids) == len(dates) == len(sessions):
        raise InputError(
            "haystack_session_ids, haystack_dates and haystack_sessions must be lists of one length", where
        )
    if not sessions:
        raise InputError("the history has no session", where)
    if len(set(ids)) != len(ids):
        raise InputError("a session id stands twice in the history", where)
    parsed = []
    for number, (session_id, date, turns) in enumerate(zip(ids, dates, sessions)):
        place = f"{where} haystack_sessions[{number}]"
        if not isinstance(turns, list):
            raise InputError("a session is a list of turns", place)
        for turn in turns:
            if (
                not isinstance(turn, dict)
                or turn.get("role") not in ("user", "assistant")
                or not isinstance(turn.get("content"), str)
            ):
                raise InputError("a turn has a role (user or assistant) and a text", place)
        parsed.append(
            (parse_date(date, place), number, session_id, tuple(Turn(t["role"], t["content"]) for t in turns))
        )
    parsed.sort(key=lambda row: row[:2])  # oracle files are not sorted; equal dates keep the file's order
    opaque = {session_id: f"s{number:03d}" for number, (_, _, session_id, _) in enumerate(parsed, 1)}
    return Question(
        identity,
        record["question_type"],
        record["question"],
        str(answer),
        parse_date(record["question_date"], f"{where} question_date"),
        tuple(Session(opaque[session_id], date, turns) for date, _, session_id, turns in parsed),
        tuple(sorted(opaque[found] for found in record["answer_session_ids"] if found in opaque)),
        position,
    )


def _records(file: BinaryIO, source: str) -> Iterator[Any]:
    import ijson

    try:
        yield from ijson.items(file, "item", use_float=True)
    except (ijson.JSONError, ijson.IncompleteJSONError, UnicodeDecodeError) as error:
        raise InputError(
            f"not a whole JSON list ({str(error).splitlines()[0]})",
            source,
            "Fetch the file again and compare its sha256",
        ) from None


def identify(path: str | Path, label: str = "") -> tuple[str, str, bool]:
    """(sha256, name, official). An unknown file is allowed only with a label, so that no score is taken for
    another's."""
    from kiokulab.files import sha256_file

    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such file", str(path), "make data-longmemeval says how to get it")
    sha256 = sha256_file(path)
    if sha256 in KNOWN:
        return sha256, KNOWN[sha256], "not an official" not in KNOWN[sha256]
    if not label:
        raise InputError(
            f"unknown file (sha256 {sha256})", str(path), "Name what it is with LABEL=..., or use the cleaned release"
        )
    return sha256, label, False


def manifest(path: str | Path) -> list[dict[str, Any]]:
    """id, type, abstention and position of every record, checked, without keeping a history in memory.

    Raises InputError for a torn file, a bad record, or an id that stands twice.
    """
    rows, seen = [], {}
    for question in stream(path):
        if question.id in seen:
            raise InputError(
                f"question_id {question.id} stands twice",
                f"{Path(path).name}[{question.position}]",
                f"First at [{seen[question.id]}]",
            )
        seen[question.id] = question.position
        rows.append(
            {
                "id": question.id,
                "type": question.type,
                "abstention": question.abstention,
                "position": question.position,
                "sessions": len(question.sessions),
            }
        )
    if not rows:
        raise InputError("the file holds no record", str(path))
    return rows


def stream(path: str | Path, wanted: set[str] | None = None) -> Iterator[Question]:
    """Questions in file order, one in memory at a time; only those in `wanted` where given (the others are not
    checked)."""
    path = Path(path)
    with open(path, "rb") as file:
        for position, record in enumerate(_records(file, path.name)):
            if wanted is None or (isinstance(record, dict) and record.get("question_id") in wanted):
                yield parse_record(record, position, path.name)

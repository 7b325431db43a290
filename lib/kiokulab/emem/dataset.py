"""The items that a responder is asked about: loader, converters, provenance.

One JSON object a line; lines are physical lines, split at LF alone. No row is ever dropped: a bad line is an
InputError with its number. (Rules: emem-membench, dataset.rs.)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kiokulab.emem import NAMESPACE
from kiokulab.errors import InputError
from kiokulab.files import dumps

# field -> the names it may be given under. Two of them in one row is an error, as upstream has it.
ALIASES = {
    "id": ("id", "question_id", "qid"),
    "content": ("content", "context", "text", "memory"),
    "query": ("query", "question"),
    "expected_answer": ("expected_answer", "answer", "expected"),
    "update": ("update",),
    "update_answer": ("update_answer",),
    "conflicts_with": ("conflicts_with",),
}
REQUIRED = ("id", "content", "query", "expected_answer")
# Unicode White_Space, which is what the original trims. str.strip() also strips U+001C to U+001F.
WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

KNOWN_CONTENT = {
    "179a6b2789754db270582a41e37ed6d2b77a476d657ab112a5c91316453a967d": "emem-membench sample, 16 items",
}


@dataclass(frozen=True)
class Item:
    """One item. `line` is its physical line (from 1), 0 where it did not come from a file.

    `contradicts` is ours: False marks a companion text that differs in wording alone (a true negative for
    conflicts); the original has no such field and counts every companion as a conflict.
    """

    id: str
    content: str
    query: str
    expected_answer: str
    update: str | None = None
    update_answer: str | None = None
    conflicts_with: str | None = None
    contradicts: bool = True
    line: int = 0

    @property
    def path(self) -> str:
        """Where it is stored. Every character of the id that is not ASCII alphanumeric becomes `_`."""
        return f"{NAMESPACE}/{self.safe}.md"

    @property
    def companion_path(self) -> str:
        return f"{NAMESPACE}/{self.safe}__b.md"

    @property
    def safe(self) -> str:
        return "".join(c if c.isascii() and c.isalnum() else "_" for c in self.id)


@dataclass(frozen=True)
class Dataset:
    """Items in file order, and where they came from.

    `provenance_by_name` is the original's own rule (a path ending in `sample-longmemeval.jsonl` is a sample, every
    other one is "full"); `provenance_by_content` looks at the bytes and says "unknown" where it does not know them.
    """

    items: tuple[Item, ...]
    source: str
    sha256: str
    provenance_by_name: str
    provenance_by_content: str

    @property
    def collisions(self) -> dict[str, list[str]]:
        """path -> ids, where several ids collapse to one path: the last one wins on the responder, unseen."""
        paths: dict[str, list[str]] = {}
        for item in self.items:
            paths.setdefault(item.path, []).append(item.id)
        return {path: ids for path, ids in sorted(paths.items()) if len(ids) > 1}


def _no_duplicate_keys(where: str):
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"field `{name}` is given twice", where)
        return dict(pairs)

    return build


def parse_item(text: str, line: int, where: str) -> Item:
    """One line to one Item. Raises InputError naming `where`."""
    try:
        row = json.loads(text, object_pairs_hook=_no_duplicate_keys(where))
    except json.JSONDecodeError as error:
        raise InputError(f"dataset line {line}: {error}", where) from None
    except RecursionError:
        raise InputError(f"dataset line {line}: nested too deeply", where) from None
    if not isinstance(row, dict):
        raise InputError(f"dataset line {line}: an item is a JSON object, not {type(row).__name__}", where)
    found: dict[str, Any] = {}
    for field, names in ALIASES.items():
        given = [name for name in names if name in row]
        if len(given) > 1:
            raise InputError(f"dataset line {line}: `{field}` is given twice, as {' and '.join(given)}", where)
        value = row[given[0]] if given else None
        if field in REQUIRED and not given:
            raise InputError(f"dataset line {line}: missing field `{field}`", where, f"One of {', '.join(names)}")
        if value is not None or field in REQUIRED:
            if not isinstance(value, str):
                raise InputError(
                    f"dataset line {line}: `{given[0]}` must be a string, not {type(value).__name__}",
                    where,
                    "Write numbers as text" if isinstance(value, (int, float)) else None,
                )
        found[field] = value
    if not found["id"].strip(WHITE_SPACE):
        raise InputError(f"dataset line {line}: empty `id`", where)
    contradicts = row.get("contradicts", True)
    if not isinstance(contradicts, bool):
        raise InputError(f"dataset line {line}: `contradicts` must be true or false", where)
    return Item(**found, contradicts=contradicts, line=line)


def load(path: str | Path) -> Dataset:
    """Read a dataset. Comment lines (`#`) and blank lines are skipped but counted.

    Raises InputError: the file cannot be read, is not UTF-8, has a bad line, or holds no item.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"read dataset {path}: {error.strerror}", str(path)) from None
    items = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        where = f"{path}:{number}"
        try:
            text = raw.decode("utf-8").strip(WHITE_SPACE)
        except UnicodeDecodeError as error:
            raise InputError(f"dataset line {number}: not UTF-8 ({error.reason})", where) from None
        if text and not text.startswith("#"):
            items.append(parse_item(text, number, where))
    if not items:
        raise InputError("dataset contained no items", str(path))
    sha256 = hashlib.sha256(data).hexdigest()
    return Dataset(
        tuple(items),
        source=path.name,
        sha256=sha256,
        provenance_by_name="sample" if str(path).endswith("sample-longmemeval.jsonl") else "full",
        provenance_by_content=KNOWN_CONTENT.get(sha256, "unknown"),
    )


def to_jsonl(items: list[Item]) -> str:
    """The items as a dataset file, one canonical line each; absent fields are left out."""
    rows = []
    for item in items:
        row = {k: v for k, v in asdict(item).items() if v is not None and k != "line"}
        if row["contradicts"]:
            del row["contradicts"]
        rows.append(dumps(row) + "\n")
    return "".join(rows)


def from_longmemeval(records: list[dict[str, Any]], where: str = "records") -> list[Item]:
    """LongMemEval records (official shape) to items: the whole history is the content, one item a question.

    The session labels that tell where the evidence lies (`has_answer`, session ids) are left out; integer answers
    become text. Abstention questions (`_abs`) are refused: an answer that is not there cannot be a substring.
    """
    items = []
    for position, record in enumerate(records):
        place = f"{where}[{position}]"
        try:
            dates, sessions = record["haystack_dates"], record["haystack_sessions"]
            identity, query, answer = record["question_id"], record["question"], record["answer"]
        except (KeyError, TypeError) as error:
            raise InputError(f"not a LongMemEval record: {error} is missing", place) from None
        if len(dates) != len(sessions):
            raise InputError(f"{len(dates)} dates for {len(sessions)} sessions", place)
        if "_abs" in identity:
            raise InputError(f"{identity} is an abstention question", place, "Leave the `_abs` records out")
        parts = [
            f"[{date}]\n" + "\n".join(f"{turn['role']}: {turn['content']}" for turn in session)
            for date, session in zip(dates, sessions)
        ]
        items.append(Item(identity, "\n\n".join(parts), query, str(answer)))
    return items


def from_memoryagentbench(records: list[dict[str, Any]], where: str = "records") -> list[Item]:
    """MemoryAgentBench records (`context`, `questions`, `answers`: lists of equal length) to one item a question.
    Where several answers are accepted the first is taken, and the item's id ends in the question's number."""
    items = []
    for position, record in enumerate(records):
        place = f"{where}[{position}]"
        try:
            context, questions, answers = record["context"], record["questions"], record["answers"]
        except (KeyError, TypeError) as error:
            raise InputError(f"not a MemoryAgentBench record: {error} is missing", place) from None
        if len(questions) != len(answers):
            raise InputError(f"{len(questions)} questions for {len(answers)} answers", place)
        for number, (question, answer) in enumerate(zip(questions, answers)):
            accepted = answer if isinstance(answer, list) else [answer]
            if not accepted:
                raise InputError(f"question {number} has no answer", place)
            items.append(Item(f"{record.get('id', position)}-{number}", context, question, str(accepted[0])))
    return items

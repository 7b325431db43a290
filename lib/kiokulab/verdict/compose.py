"""Puts the kit's own sample together: `python -m kiokulab.verdict.compose` writes questions.json and edition.json of
v0.1.

Each question gets the sessions that matter to it and 11 to 15 of filler, drawn by hash (so that ten sessions are a
choice), in the official record shape with the official file's traps: integer answers, ids that tell where the
evidence lies, sessions that begin with the assistant, some histories not in the order of their dates, and one
question dated before its evidence of the same day.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from kiokulab.files import sha256_file, write_atomic
from kiokulab.params import root
from kiokulab.verdict.dataset import show_date

FOLDER = root() / "data" / "verdict" / "v0.1"
FILE = "questions.json"


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def _date(moment: datetime) -> str:
    return show_date(moment.replace(tzinfo=UTC).isoformat())


def _turns(turns: list[dict[str, str]], evidence: bool) -> list[dict[str, Any]]:
    """Turns as the official file has them; in an evidence session each says whether it holds the answer."""
    role = {"u": "user", "a": "assistant"}
    made = [{"role": role[next(iter(turn))], "content": next(iter(turn.values()))} for turn in turns]
    return [{**turn, "has_answer": n == 0} if evidence else turn for n, turn in enumerate(made)]


def record(question: dict[str, Any], filler: list[list[dict[str, str]]]) -> dict[str, Any]:
    """One record in the official shape."""
    name = question["id"]
    asked = datetime.strptime(question["asked"], "%Y/%m/%d %H:%M")
    rows = [
        (datetime.strptime(s["at"], "%Y/%m/%d %H:%M"), f"answer_{name}_{n}", _turns(s["turns"], True))
        for n, s in enumerate(question["sessions"], 1)
    ]
    chosen = sorted(range(len(filler)), key=lambda n: _number(f"{name} {n}"))[: 11 + _number(name) % 5]
    for n in chosen:
        before = timedelta(days=1 + _number(f"{name} day {n}") % 70, minutes=_number(f"{name} minute {n}") % 720)
        rows.append((asked - before, f"filler_{n:02d}", _turns(filler[n], False)))
    if _number(name) % 4:  # the rest stays as it is, like the official oracle file
        rows.sort(key=lambda row: row[0])
    return {
        "question_id": name,
        "question_type": question["type"],
        "question": question["question"],
        "answer": question["answer"],
        "question_date": _date(asked),
        "haystack_session_ids": [row[1] for row in rows],
        "haystack_dates": [_date(row[0]) for row in rows],
        "haystack_sessions": [row[2] for row in rows],
        "answer_session_ids": [row[1] for row in rows if row[1].startswith("answer_")],
    }


def compose(folder: Path = FOLDER) -> str:
    """The text of questions.json from source.yml."""
    source = yaml.safe_load((folder / "source.yml").read_text(encoding="utf-8"))
    return (
        json.dumps(
            [record(question, source["filler"]) for question in source["questions"]], ensure_ascii=False, indent=1
        )
        + "\n"
    )


if __name__ == "__main__":
    write_atomic(FOLDER / FILE, compose())
    edition = {
        "track": "verdict",
        "edition": "v0.1",
        "files": {FILE: sha256_file(FOLDER / FILE)},
        "what": "30 invented questions in the shape of LongMemEval, English; not LongMemEval, and no score on it is a LongMemEval score",
    }
    write_atomic(FOLDER / "edition.json", json.dumps(edition, indent=1) + "\n")

"""Step 1: the questions of a run, checked, drawn and written down with their histories.

The file is read twice, one record in memory at a time: once to check every record and to count types, once to take
those that were drawn. So one bad record stops the run, whether it would have been drawn or not.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kiokulab.errors import InputError
from kiokulab.files import dumps, iterate_jsonl, sha256_file
from kiokulab.params import edition_folder
from kiokulab.systems.base import Session, Turn
from kiokulab.verdict import TYPES, dataset, sample
from kiokulab.verdict.params import VerdictParams
from kiokulab.verdict.dataset import Question

FILE = "questions.json"


def source(params: VerdictParams) -> tuple[Path, dict[str, Any]]:
    """The file of a run and what it is: {"sha256", "name", "official"}. Raises InputError for a changed edition and for
    an unknown file without a label."""
    if params.data:
        path = Path(params.data)
        sha256, name, official = dataset.identify(path, params.label)
        return path, {"sha256": sha256, "name": name, "official": official}
    folder = edition_folder(params.track, params.edition)
    path, sha256 = folder / FILE, sha256_file(folder / FILE)
    if json.loads((folder / "edition.json").read_bytes())["files"].get(FILE) != sha256:
        raise InputError(
            f"{FILE} is not what edition.json says",
            str(path),
            "An edition is frozen: restore the file, or make a new edition",
        )
    return path, {
        "sha256": sha256,
        "name": f"the kit's own sample {folder.name}: invented questions, not LongMemEval",
        "official": False,
    }


def load_edition(edition: str) -> Path:
    """The folder of an edition whose file is what it should be. (The runner asks before anything starts.)"""
    source(VerdictParams(edition=edition))
    return edition_folder("verdict", edition)


def as_row(question: Question) -> dict[str, Any]:
    """A question as its row of dataset.jsonl. Labels (type, evidence) are for the harness; systems see the sessions
    alone."""
    return {
        "kind": "question",
        "id": question.id,
        "type": question.type,
        "question": question.question,
        "answer": question.answer,
        "date": question.date,
        "evidence": list(question.evidence),
        "position": question.position,
        "sessions": [
            {"id": s.id, "date": s.date, "turns": [[t.role, t.text] for t in s.turns]} for s in question.sessions
        ],
    }


def from_row(row: dict[str, Any]) -> Question:
    return Question(
        row["id"],
        row["type"],
        row["question"],
        row["answer"],
        row["date"],
        tuple(Session(s["id"], s["date"], tuple(Turn(*turn) for turn in s["turns"])) for s in row["sessions"]),
        tuple(row["evidence"]),
        row["position"],
    )


def read(folder: Path) -> tuple[dict[str, Any], Iterator[Question]]:
    """Head row and questions of a run, one question in memory at a time."""
    rows = iterate_jsonl(Path(folder) / "dataset.jsonl")
    return next(rows)[1], (from_row(row) for _, row in rows)


def overview(folder: Path, longest: int = 8) -> tuple[list[Question], list[dict[str, Any]]]:
    """(one question of each type and of each type's abstention, sizes of the longest histories), one question in
    memory at a time; the examples keep no history."""
    examples: dict[tuple[str, bool], Question] = {}
    sizes = []
    for q in read(folder)[1]:
        examples.setdefault((q.type, q.abstention), replace(q, sessions=()))
        sizes.append(
            {
                "id": q.id,
                "sessions": len(q.sessions),
                "turns": sum(len(s.turns) for s in q.sessions),
                "from": q.sessions[0].date[:10],
                "to": q.sessions[-1].date[:10],
                "asked before its last session": q.date < q.sessions[-1].date,
            }
        )
    return list(examples.values()), sorted(sizes, key=lambda row: -row["turns"])[:longest]


def read_at(path: str | Path, offset: int) -> Question:
    """The question whose row begins at byte `offset` of a dataset.jsonl."""
    with open(path, "rb") as file:
        file.seek(offset)
        return from_row(json.loads(file.readline()))


def offsets(path: str | Path) -> dict[str, int]:
    """Question id -> byte at which its row begins."""
    found, at = {}, 0
    with open(path, "rb") as file:
        for line in file:
            row = json.loads(line)
            if row["kind"] == "question":
                found[row["id"]] = at
            at += len(line)
    return found


def disputed(params: VerdictParams) -> dict[str, str]:
    """Question id -> why its gold answer is disputed. Raises InputError for a list that cannot be read."""
    if not params.disputed_file:
        return {}
    try:
        rows = yaml.safe_load(Path(params.disputed_file).read_text(encoding="utf-8"))["disputed"]
        return {str(row["id"]): f"issue {row['issue']}: {row['why']}" for row in rows}
    except (OSError, yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise InputError(
            f"not a list of disputed questions ({type(error).__name__})",
            params.disputed_file,
            "disputed: [{id, issue, why}, ...]",
        ) from None


def draw(params: VerdictParams) -> tuple[Path, dict[str, Any]]:
    """The file of a run, and the head row of its dataset.jsonl: source, counts, the drawn ids and their digest, and
    what of the parameters the figures need, so that the files of a run say all that its figures are derived from."""
    path, known = source(params)
    rows = dataset.manifest(path)
    if params.ids:
        ids, by = sample.from_file(params.ids, rows), "id file"
    elif 0 < params.questions < len(rows):
        ids, by = sample.draw(rows, params.questions, params.seed), f"hash, seed {params.seed}"
    else:  # a file with fewer questions than asked for is asked whole, and the report says how many those are
        ids, by = sample.draw(rows, 0, params.seed), "taking all"
    types = {row["id"]: row["type"] for row in rows}
    count = lambda names: {kind: found for kind in TYPES if (found := Counter(types[name] for name in names)[kind])}
    run = {
        name: getattr(params, name)
        for name in ("system", "embedder", "top_sessions", "k", "unit_timeout_s", "seed", "bootstrap")
    }
    return path, {
        "kind": "source",
        "run": run,
        "file": path.name,
        **known,
        "records": len(rows),
        "disputed": {name: why for name, why in sorted(disputed(params).items()) if name in types},
        "types": count(types),
        "abstention": sum(row["abstention"] for row in rows),
        "sample": {
            "ids": ids,
            "digest": sample.digest_of(ids),
            "by": by,
            "types": count(ids),
            "abstention": sum("_abs" in name for name in ids),
        },
    }


def run(folder: Path, params: VerdictParams) -> list[dict[str, Any]]:
    """Write dataset.jsonl: the head row and one row a drawn question, in file order. Returns a row a type."""
    path, head = draw(params)
    chosen = head["sample"]["ids"]
    target = Path(folder) / "dataset.jsonl"
    with tempfile.NamedTemporaryFile("wb", dir=folder, prefix=".dataset.", suffix=".part", delete=False) as file:
        try:
            file.write((dumps(head) + "\n").encode())
            found = 0
            for question in dataset.stream(path, set(chosen)):  # in file order, so that one is in memory at a time
                file.write((dumps(as_row(question)) + "\n").encode())
                found += 1
            if found != len(chosen):
                raise InputError(
                    f"{found} of the {len(chosen)} drawn questions were found: the file changed while it was read",
                    str(path),
                )
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(file.name)
            raise
    os.chmod(file.name, 0o644)
    os.replace(file.name, target)
    drawn = head["sample"]["types"]
    return [
        {"question type": kind, "in the file": n, "drawn": drawn.get(kind, 0)} for kind, n in head["types"].items()
    ] + [
        {"question type": "all", "in the file": head["records"], "drawn": len(chosen)},
        {
            "question type": "of these to be declined (_abs)",
            "in the file": head["abstention"],
            "drawn": head["sample"]["abstention"],
        },
    ]

"""The labelled set that a judge is measured on: its schema, its counts, and that its halves are fair."""

import json
from collections import Counter

import pytest

from kiokulab.files import dumps

KINDS = {
    "verbatim",
    "paraphrase",
    "terse_note",
    "third_person",
    "other_language",
    "change_sentence",
    "negation",
    "near_miss",
    "restated_forget",
    "joint",
    "partial",
}
VERSION = {"n", "text", "surface"}


def identity(version):
    return version["slot"], version["n"], version["text"]


@pytest.fixture(scope="module", params=["en", "ja"])
def rows(request, repository):
    path = repository / "data" / "kioku" / "judge-set" / f"{request.param}.jsonl"
    if not path.exists():
        pytest.skip(f"no {path.name} yet")
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    result = [json.loads(line) for line in lines]
    assert [dumps(row) for row in result] == lines, "lines are not canonical"
    assert {row["language"] for row in result} == {request.param}
    return result


def test_schema(rows):
    for row in rows:
        where = row["id"]
        assert {"id", "half", "language", "kind", "version", "sentence", "label"} <= set(row), where
        assert row["half"] in ("dev", "scored") and row["kind"] in KINDS and row["label"] in ("held", "partial", "absent"), where
        version = row["version"]
        assert set(version) == VERSION | {"slot", "question", "other_versions"}, where
        question = version["question"]
        assert version["slot"] and (question if isinstance(question, str) else question["text"]), where
        for one in (version, *version["other_versions"]):
            assert VERSION <= set(one) and isinstance(one["n"], int) and one["text"], where
            assert one["surface"]["anchors"] and one["surface"]["values"] and all(one["surface"]["values"]), where
        numbers = [version["n"], *(other["n"] for other in version["other_versions"])]
        assert len(set(numbers)) == len(numbers), where
        sentence = row["sentence"]
        assert isinstance(sentence, str) or len(sentence) > 1, where
        assert all(s == s.strip() and s for s in ([sentence] if isinstance(sentence, str) else sentence)), where


def test_ids_are_unique_and_sorted(rows):
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids))
    assert all(one.startswith(row["language"] + "-") for one, row in zip(ids, rows, strict=True))


def test_counts(rows):
    assert len(rows) >= 400
    kinds = Counter(row["kind"] for row in rows)
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 30
    assert {row["label"] for row in rows} == {"held", "partial", "absent"}


def test_halves_are_balanced(rows):
    halves = Counter(row["half"] for row in rows)
    assert abs(halves["dev"] - halves["scored"]) <= len(KINDS)
    for key in ("kind", "label"):
        for value in {row[key] for row in rows}:
            half = Counter(row["half"] for row in rows if row[key] == value)
            assert abs(half["dev"] - half["scored"]) <= 4, (key, value, half)


def test_no_sentence_twice_for_one_version(rows):
    seen = Counter((*identity(row["version"]), dumps(row["sentence"])) for row in rows)
    assert [key for key, count in seen.items() if count > 1] == []


def test_a_sentence_is_in_one_half_only(rows):
    """A sentence used for the old and the new version would otherwise show the scored half to whoever tunes on the other."""
    halves = {}
    for row in rows:
        if row["kind"] != "verbatim":  # the ledger sentences are no secret
            halves.setdefault(dumps(row["sentence"]), set()).add(row["half"])
    assert [sentence for sentence, found in halves.items() if len(found) > 1] == []


def test_every_row_can_be_read(rows, repository):
    """`measure` accepts each row, whatever a judge then makes of it."""
    from types import SimpleNamespace

    from kiokulab.judging import measure

    absent = SimpleNamespace(verdict=lambda *_: SimpleNamespace(verdict="absent"))
    judge = SimpleNamespace(read=lambda *_, **__: absent)
    language = rows[0]["language"]
    for half in ("dev", "scored"):
        figures = measure(judge, repository / "data" / "kioku" / "judge-set", half, [language])[language]
        assert figures["n"] == sum(row["half"] == half for row in rows)

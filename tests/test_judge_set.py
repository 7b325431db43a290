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


def read(path, language):
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    result = [json.loads(line) for line in lines]
    assert [dumps(row) for row in result] == lines, "lines are not canonical"
    assert {row["language"] for row in result} == {language}
    return result


@pytest.fixture(scope="module", params=["en", "ja"])
def rows(request, repository):
    path = repository / "data" / "kioku" / "judge-set" / f"{request.param}.jsonl"
    if not path.exists():
        pytest.skip(f"no {path.name} yet")
    return read(path, request.param)


def test_schema(rows):
    for row in rows:
        where = row["id"]
        assert {"id", "half", "language", "kind", "version", "sentence", "label"} <= set(row), where
        assert (
            row["half"] in ("dev", "scored") and row["kind"] in KINDS and row["label"] in ("held", "partial", "absent")
        ), where
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
    """A sentence used for the old and the new version would otherwise show the scored half to whoever tunes on the
    other."""
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


# --- the set of edition v1 ----------------------------------------------------------------------------------------

V1_KINDS = KINDS | {
    "utterance",
    "repeated_back",
    "other_version",
    "partial_update",
    "implied",
    "relative_date",
    "number",
    "hypothetical",
    "merged",
    "ellipsis",
    "topic_only",
    "chatter",
}
DEV = {"en-01", "en-02", "en-03", "ja-01", "ja-02", "ja-03"}
SYSTEMS = {"langmem", "mem0", "byterover"}
COUNTS = {  # held, partial, absent; stored, reworded
    "en": {"dev": (54, 10, 43, 52, 55), "scored": (51, 9, 46, 54, 52)},
    "ja": {"dev": (49, 12, 45, 55, 51), "scored": (50, 9, 47, 54, 52)},
}


@pytest.fixture(scope="module", params=["en", "ja"])
def v1(request, repository):
    return read(repository / "data" / "kioku" / "judge-set" / f"v1-{request.param}.jsonl", request.param)


@pytest.fixture(scope="module")
def personas(repository):
    files = sorted((repository / "data" / "kioku" / "v1").glob("??-0?.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def texts(row):
    return [row["sentence"]] if isinstance(row["sentence"], str) else row["sentence"]


def test_v1_schema(v1):
    test_schema([{**row, "kind": "verbatim"} for row in v1])
    test_ids_are_unique_and_sorted(v1)
    test_no_sentence_twice_for_one_version([{**row, "version": {**row["version"], "slot": row["fact"]}} for row in v1])
    for row in v1:
        assert row["kind"] in V1_KINDS and row["source"] in SYSTEMS | {"rewording"}, row["id"]
        assert isinstance(row["sentence"], str) or row["source"] == "rewording", row["id"]


def test_v1_counts(v1):
    """As the README's table has them: half and label, and what is from a store."""
    for half in ("dev", "scored"):
        rows = [row for row in v1 if row["half"] == half]
        assert len(rows) >= 100
        labels = Counter(row["label"] for row in rows)
        reworded = sum(row["source"] == "rewording" for row in rows)
        counts = (labels["held"], labels["partial"], labels["absent"], len(rows) - reworded, reworded)
        assert counts == COUNTS[rows[0]["language"]][half]
        assert 0.45 <= labels["held"] / len(rows) <= 0.55 and 0.45 <= reworded / len(rows) <= 0.55
        assert {row["source"] for row in rows} == SYSTEMS | {"rewording"}
        missing = V1_KINDS - {row["kind"] for row in rows}
        assert missing <= {"repeated_back"}, (half, missing)


def test_v1_halves_by_persona(v1):
    assert {row["persona"] for row in v1} == {f"{v1[0]['language']}-0{n}" for n in range(1, 6)}
    for row in v1:
        assert row["half"] == ("dev" if row["persona"] in DEV else "scored"), row["id"]
    halves = {}
    for row in v1:
        for text in texts(row):
            halves.setdefault(text.removeprefix("Recorded: "), set()).add(row["half"])
    assert [text for text, found in halves.items() if len(found) > 1] == []


def test_v1_versions_are_the_editions(v1, personas):
    for row in v1:
        persona = personas[row["persona"]]
        assert row["subject"] == persona["name"]
        fact = next(f for f in persona["facts"] if f"{row['persona']}/{f['id']}" == row["fact"])
        version = row["version"]
        assert (version["slot"], version["question"]["text"]) == (fact["slot"], fact["question"]["text"]), row["id"]
        there = {one["n"]: one["text"] for one in fact["versions"]}
        assert {one["n"]: one["text"] for one in (version, *version["other_versions"])} == there, row["id"]


def test_v1_stored_texts_are_from_the_sessions(v1, personas):
    """The systems ran on a model that copies: what is called stored must be in that persona's sessions, but for what
    ByteRover writes itself."""
    for row in v1:
        said = [turn["text"] for session in personas[row["persona"]]["sessions"] for turn in session["turns"]]
        found = any(text.removeprefix("Recorded: ") in utterance for text in texts(row) for utterance in said)
        own = row["source"] == "byterover" and row["kind"] == "chatter"
        if row["source"] == "rewording":
            assert not found or row["kind"] == "verbatim", row["id"]
        else:
            assert found or own, row["id"]


def test_v1_rows_can_be_read_beside_the_first_set(v1, repository):
    from types import SimpleNamespace

    from kiokulab.judging import measure

    absent = SimpleNamespace(verdict=lambda *_: SimpleNamespace(verdict="absent"))
    judge = SimpleNamespace(read=lambda *_, **__: absent)
    name = f"v1-{v1[0]['language']}"
    for half in ("dev", "scored"):
        figures = measure(judge, repository / "data" / "kioku" / "judge-set", half, [name])[name]
        rows = [row for row in v1 if row["half"] == half]
        assert figures["n"] == len(rows)
        assert figures["missed_holds"]["n"] == sum(row["label"] == "held" for row in rows)

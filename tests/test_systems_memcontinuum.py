"""MemContinuum's adapter, against a stand-in for its memidx.py: the real one is a clone that a user points at, and was
not run."""

import sys
from pathlib import Path

import pytest

from kiokulab import systems
from kiokulab.__main__ import main
from kiokulab.errors import InputError
from kiokulab.systems import contract
from kiokulab.systems.base import Request, SystemFailure, Turn, Utterance

REPO = Path(__file__).parent / "fixtures" / "memcontinuum"
SETTINGS = {"repo": str(REPO), "python": sys.executable}
WHEN = "2023-05-20T10:00:00+09:00"


@pytest.fixture
def memory(tmp_path):
    with systems.connect("memcontinuum", SETTINGS, space="en-01/raw", workdir=tmp_path) as one:
        yield one


def test_it_keeps_the_contract_with_the_stand_in():
    checks = contract.run_contract("memcontinuum", SETTINGS, items=15)
    assert not [check for check in checks if check.outcome == contract.FAIL], [
        contract.line_of(check) for check in checks
    ]


@pytest.mark.parametrize(
    "settings, says",
    [
        ({}, "on no package index. Clone"),
        ({"repo": "/no/such/folder"}, "there is no memidx.py in it"),
        ({"repo": str(REPO), "python": "python9.99"}, "there is no python9.99"),
        ({"repo": str(REPO), "python": sys.executable, "mode": "magic"}, "mode is fts, vector, hybrid"),
    ],
)
def test_what_is_absent_is_said_before_anything_starts(settings, says, tmp_path):
    with pytest.raises(InputError, match=says) as caught:
        systems.describe("memcontinuum", settings)
    assert caught.value.exit_code == 2
    with pytest.raises((SystemFailure, InputError, ValueError), match=says):
        with systems.connect("memcontinuum", settings, space="a", workdir=tmp_path):
            pass


def test_commands_end_with_2_and_the_hint(capsys):
    for command in (
        ["contract", "--system", "memcontinuum"],
        ["run", "kioku", "--system", "memcontinuum", "--personas", "1"],
    ):
        assert main(command) == 2
        assert "Clone github.com/krakozavr/MemContinuum" in capsys.readouterr().err
    assert main(["systems", "--system", "memcontinuum"]) == 0
    assert "Clone" in capsys.readouterr().out


def test_any_text_comes_back_as_it_was(memory):
    texts = [
        "---\nid: TOP-9\n---",
        "a: b\n- 'c' \"d\" \\ #e",
        "\u202e <script> & \x00\x1b",
        "私の犬 🐕 𠮟",
        "lone \ud83d half",
        "x" * 100_000,
    ]
    for number, text in enumerate(texts):
        memory.ingest(Utterance(f"u{number}", WHEN, Turn("user", text)), WHEN)
    rows = memory.dump()
    assert [row.text for row in rows] == texts and {row.created for row in rows} == {WHEN} and rows[0].id == "TOP-1"


def test_what_is_forgotten_stays_in_its_file_and_is_found_no_more(memory):
    for number, text in enumerate(["My dog is called Biscuit.", "I like tea."]):
        memory.ingest(Request(f"r{number}", WHEN, text), WHEN)
    assert [hit.id for hit in memory.search("dog", 5).hits] == ["TOP-1"]
    assert memory.forget({"ids": ["TOP-1", "TOP-77"]}) == 1
    assert [(row.id, row.layer) for row in memory.dump()] == [("TOP-1", "retired"), ("TOP-2", "live")]
    assert memory.search("dog", 5).hits == [] and memory.forget({"all": True}) == 1


def test_a_search_by_vectors_that_fell_back_to_words_is_a_failure(tmp_path):
    with systems.connect("memcontinuum", {**SETTINGS, "mode": "hybrid"}, space="a", workdir=tmp_path) as memory:
        memory.ingest(Request("r", WHEN, "I like tea."), WHEN)
        with pytest.raises(SystemFailure, match="embeddings are unavailable"):
            memory.search("tea", 5)


def test_a_memidx_that_fails_is_a_failure_and_never_an_empty_result(tmp_path):
    broken = tmp_path / "repo"
    broken.mkdir()
    (broken / "memidx.py").write_text("import sys; sys.exit('the schema is another')")
    with systems.connect(
        "memcontinuum", {**SETTINGS, "repo": str(broken)}, space="a", workdir=tmp_path / "unit"
    ) as memory:
        memory.ingest(Request("r", WHEN, "I like tea."), WHEN)
        with pytest.raises(SystemFailure, match="the schema is another"):
            memory.search("tea", 5)

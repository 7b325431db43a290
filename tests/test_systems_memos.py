"""MemOS's general text memory, where KIOKULAB_TEST_SYSTEMS names it: what is stored, dated, found and taken away."""

import pytest

from kiokulab import meter, systems
from kiokulab.systems import contract
from kiokulab.systems.base import Request, Session, SystemFailure, Turn

WHEN = "2023-05-20T10:00:00+09:00"


@pytest.fixture(scope="module", autouse=True)
def real(system_environment):
    return system_environment("memos")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    opening = meter.Opening(
        run="m",
        record=str(tmp_path_factory.mktemp("m") / "calls.sqlite"),
        mode="embedded",
        models=["extractive"],
        embedder="use",
    )
    with meter.session(opening) as one:
        yield one


def test_a_session_is_stored_with_its_date_and_taken_away_by_id(session, tmp_path):
    with systems.connect(
        "memos-general", space="en-01/raw", workdir=tmp_path, endpoint=session.endpoint("one"), when=WHEN
    ) as memory:
        turns = (
            Turn("user", "My dog is called Biscuit. What is the weather?"),
            Turn("assistant", "I see."),
            Turn("user", "私は毎朝お茶を飲みます。"),
        )
        assert memory.ingest(Session("s1", WHEN, turns), WHEN).added == 2
        rows = memory.dump()
        assert [(row.text, row.created) for row in rows] == [
            ("My dog is called Biscuit.", WHEN),
            ("私は毎朝お茶を飲みます。", WHEN),
        ]
        assert memory.search("dog", 1, WHEN).hits[0].id == rows[0].id
        memory.ingest(Request("r1", WHEN, "Please forget that my dog is called Biscuit."), WHEN)
        assert len(memory.dump()) == 3, "a request to forget is one more memory"
        assert memory.forget({"ids": [rows[0].id]}) == 1 and rows[0].text not in {row.text for row in memory.dump()}
        assert not memory.network
    with systems.connect(
        "memos-general", space="en-01/raw", workdir=tmp_path, endpoint=session.endpoint("one"), when=WHEN
    ) as memory:
        assert [row.id for row in memory.dump()] == ["m000002", "m000003"]


def test_it_reads_no_env_file_of_whoever_started_it(session, tmp_path):
    (tmp_path / ".env").write_text("MEMOS_BASE_PATH=/nowhere\nOPENAI_API_KEY=sk-a-real-one\n")
    with systems.connect(
        "memos-verbatim", space="a", workdir=tmp_path / "unit", endpoint=session.endpoint("two"), when=WHEN
    ) as memory:
        assert memory.ingest(Request("r", WHEN, "I like tea."), WHEN).added == 1
    assert not any("sk-a-real-one" in path.read_text(errors="replace") for path in (tmp_path / "unit").rglob("*.log"))


def test_without_a_model_it_says_so(tmp_path):
    from kiokulab import embed

    with (
        meter.serve_embeddings(embed.get("use"), run="e") as serving,
        pytest.raises(SystemFailure, match="needs a language model"),
    ):
        with systems.connect("memos-general", space="a", workdir=tmp_path, endpoint=serving.endpoint("x"), when=WHEN):
            pass


@pytest.mark.parametrize("name", ["memos-general", "memos-verbatim"])
def test_it_keeps_the_contract(name):
    checks = contract.run_contract(name, items=12)
    assert not [check for check in checks if check.outcome == contract.FAIL], [
        contract.line_of(check) for check in checks
    ]

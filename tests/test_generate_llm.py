"""Editions by a language model, played by toy_generator.py: audited step by step, mended once, listed where nothing
came of it."""

import json

import pytest
import toy_generator
from fault_server import COST, FAULTS, FaultServer, now_and_then

from kiokulab import calls
from kiokulab.__main__ import main
from kiokulab.errors import BudgetReached, InputError
from kiokulab.kioku import audit, generate, generate_llm
from kiokulab.kioku.model_judge import GENERATING, prompts

SIZES = {"facts": 8, "sessions": 5, "changes": 3, "forgets": 1, "partial_changes": 1, "near_misses": 2}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """make(server, **changes) -> (Made, folder)."""
    monkeypatch.setenv("KIOKULAB_API_KEY", "sk-fake-generate-0123456789abc")
    monkeypatch.delenv("KIOKULAB_METER", raising=False)

    def start(server, **changes):
        return generate_llm.run(
            tmp_path / "edition",
            "writer",
            **{
                "seed": 7,
                "personas": 2,
                "endpoint": server.url,
                "budget_usd": 1.0,
                "grader": "reader",
                "sizes": SIZES,
                **changes,
            },
        ), tmp_path / "edition"

    return start


def test_an_edition_is_written_audited_read_by_a_second_model_and_can_be_loaded(make):
    with FaultServer(now_and_then("429"), reply=toy_generator.reply()).running() as server:
        made, folder = make(server)
        assert {row["body"]["model"] for row in server.account} == {"writer", "reader"}
        delivered = sum(row["delivered"] for row in server.account)
    assert delivered == 2 * (1 + 5 + 1 + 5) and not made.not_made and not made.unread
    edition, personas = generate.load_edition(folder)
    assert (
        [persona.id for persona in personas] == ["en-01", "ja-01"]
        and edition.generator == "llm:writer"
        and edition.seed == 7
    )
    assert not audit.audit(personas, SIZES) and edition.audit["faults"] == 0
    assert edition.parameters["prompts"] == prompts(GENERATING) and len(edition.parameters["prompts"]) == 4
    check = edition.audit["second_check"]
    assert (
        check["model"] == "reader"
        and check["sessions"] == 10
        and [(row["persona"], row["session"], row["problem"]) for row in check["findings"]]
        == [("en-01", "s02", "unclear_whose"), ("ja-01", "s02", "unclear_whose")]
    )
    assert sum(turn.kind == "near_miss" for session in personas[0].sessions for turn in session.turns) == 2
    with (
        FaultServer(reply=toy_generator.reply()).running() as server,
        pytest.raises(InputError, match="holds an edition"),
    ):
        make(server)


def ledger_with_a_changed_number(kind, task, made, again):
    return made if kind != "ledger" or again else {**made, "facts": made["facts"][:-1]}


def session_that_states_nothing(kind, task, made, again):
    return made if kind != "session" or again else {"turns": [{**turn, "states": []} for turn in made["turns"]]}


def question_that_gives_it_away(kind, task, made, again):
    if kind == "questions" and not again:
        made["questions"][0]["question"] = (
            f"Is it {task['facts'][0]['parts'][0][0]}, and {task['facts'][0]['parts'][1][0]}?"
        )
    return made


def reply_in_prose(kind, task, made, again):
    return made if again else "Of course! " + json.dumps(made, ensure_ascii=False)


@pytest.mark.parametrize(
    "spoil", [ledger_with_a_changed_number, session_that_states_nothing, question_that_gives_it_away, reply_in_prose]
)
def test_a_faulty_reply_is_mended_once(make, spoil):
    with FaultServer(reply=toy_generator.reply(spoil)).running() as server:
        made, folder = make(server, personas=1)
        assert any("cannot be used" in row["body"]["messages"][-1]["content"] for row in server.account)
    assert not made.not_made and not audit.audit(generate.load_edition(folder)[1], SIZES)


@pytest.mark.parametrize(
    "spoil", [ledger_with_a_changed_number, session_that_states_nothing, question_that_gives_it_away]
)
def test_a_reply_that_stays_faulty_ends_its_persona_and_no_other(make, spoil):
    def always(kind, task, made, again):
        return spoil(kind, task, made, False) if task["language"] == "ja" else made

    with FaultServer(reply=toy_generator.reply(always)).running() as server:
        made, folder = make(server)
    assert list(made.not_made) == ["ja-01"] and "bad_json" in made.not_made["ja-01"]
    edition, personas = generate.load_edition(folder)
    assert [persona.id for persona in personas] == ["en-01"] and edition.parameters["not_made"] == made.not_made


@pytest.mark.parametrize(
    "fault",
    sorted(
        set(FAULTS)
        - {
            "ok",
            "echo_key",
            "slow_first_byte",
            "stalled",
            "duplicate",
            "code_fence",
            "usage_missing",
            "cached_tokens",
            "cost_missing",
        }
    ),
)
def test_a_second_check_that_gives_no_answer_is_a_session_not_read(make, fault, monkeypatch):
    monkeypatch.setattr(
        generate_llm.meter,
        "Opening",
        lambda *a, _of=generate_llm.meter.Opening, **k: _of(*a, backoff_s=0.01, attempts=2, **k),
    )

    def script(number, body):
        return fault if body["model"] == "reader" and "session s03," in body["messages"][1]["content"] else "ok"

    with FaultServer(script, reply=toy_generator.reply()).running() as server:
        made, folder = make(server, personas=1)
    assert (
        list(made.unread) == ["en-01 s03"]
        and generate.load_edition(folder)[0].audit["second_check"]["not_read"] == made.unread
    )


def test_a_cap_stops_without_an_edition_and_a_higher_one_goes_on_without_paying_twice(make):
    with FaultServer(reply=toy_generator.reply()).running() as server:
        with pytest.raises(BudgetReached):
            make(server, budget_usd=float(COST * 6))
        _, folder = make(server)
        bodies = [json.dumps(row["body"], sort_keys=True) for row in server.account]
        assert len(bodies) == len(set(bodies)) == 24
        assert calls.totals([folder / generate_llm.RECORD])["billed"] == server.billed()


def test_the_command_makes_a_full_persona_and_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KIOKULAB_API_KEY", "sk-fake-generate-0123456789abc")
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.delenv("KIOKULAB_METER", raising=False)

    def spoil(kind, task, made, again):
        return "no" if task["language"] == "ja" else made

    with FaultServer(reply=toy_generator.reply(spoil)).running() as server:
        line = ["dataset", "--generator", "llm:writer/one", "--seed", "3", "--personas", "2", "--endpoint", server.url]
        assert main(line) == 2 and server.account == []
        assert main([*line, "--budget-usd", "1"]) == 3
    said = capsys.readouterr()
    assert "not made: ja-01" in said.err and "1 of 2 personas, no fault" in said.out and "budget" in said.err
    edition, personas = generate.load_edition(tmp_path / "outputs" / "editions" / "kioku" / "writer-one-seed3-n2")
    assert len(personas[0].facts) == 40 and len(personas[0].sessions) == 30 and edition.audit["warnings"] == 0


@pytest.mark.parametrize("name", ["llm:", "gpt", "panel:[a, b, c]"])
def test_an_unknown_generator_is_refused(name):
    assert main(["dataset", "--generator", name, "--budget-usd", "1"]) == 2

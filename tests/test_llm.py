"""Replies are read strictly, failures are typed, one repair is asked for, and nothing is ever guessed."""

import json
import os

import pytest
from fault_server import FaultServer
from hypothesis import given
from hypothesis import strategies as st

from kiokulab import calls, llm, meter
from kiokulab.errors import BudgetReached, InputError, VerificationFailed


class Verdict(llm.Reply):
    correct: bool


GOOD = '{"correct": true}'
ASK = [{"role": "user", "content": "Is it so?"}]


@pytest.fixture(scope="module")
def server():
    with FaultServer(reply=GOOD).running() as one:
        with meter.process([one.host], {**os.environ, meter.ANY_KEY: "sk-fake-0123456789abcdefghijklmnop"}) as base:
            one.base = base
            yield one


@pytest.fixture
def model(server, tmp_path, monkeypatch):
    import contextlib

    monkeypatch.setenv(meter.METER, server.base)
    server.account.clear()
    server.reply, server.slow_s = GOOD, 2.0

    @contextlib.contextmanager
    def open_(script="ok", **changes):
        server.script = script
        options = {
            "run": "r",
            "record": str(tmp_path / "calls.sqlite"),
            "mode": "live",
            "upstream": server.url,
            "models": ["m"],
            "attempts": 2,
            "backoff_s": 0.01,
            "read_s": 0.5,
        } | changes
        with meter.session(meter.Opening(**options)) as session:
            made = llm.Model("m", lambda role: session.endpoint("en-01/raw", role))
            yield made
            made.close()

    open_.record = tmp_path / "calls.sqlite"
    return open_


@pytest.mark.parametrize("text", [GOOD, f"  {GOOD}\n", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```"])
def test_one_object_bare_or_fenced_is_read(text):
    assert llm.read_reply(text, Verdict).correct is True


@pytest.mark.parametrize(
    "text",
    [
        '{"correct": "false"}',
        '{"correct": 0}',
        '{"correct": null}',
        "{}",
        '{"correct": true, "also": 1}',
        '{"correct": true, "correct": false}',
        "INCORRECT",
        "yesterday",
        "いいえ",
        "true",
        "null",
        "[true]",
        '[{"correct": true}]',
        f"{GOOD}{GOOD}",
        f"{GOOD}\n{GOOD}",
        f"Sure: {GOOD}",
        f"{GOOD} I am sure.",
        f"Sure:\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        '{"correct": NaN}',
        '{"correct": tru',
        "{" * 100_000,
        '{"a":' * 5000,
        "",
    ],
)
def test_anything_else_is_not_a_reply(text):
    with pytest.raises(ValueError):
        llm.read_reply(text, Verdict)


@given(st.text(max_size=60))
def test_no_text_is_taken_for_a_verdict_that_does_not_say_it(text):
    try:
        found = llm.read_reply(text, Verdict)
    except ValueError:
        return
    assert json.loads(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")) == {
        "correct": found.correct
    }


def test_a_good_reply_is_one_call(model, server):
    with model() as one:
        assert one.ask("judge", ASK, Verdict) == Verdict(correct=True)
    body = server.account[0]["body"]
    assert (
        len(server.account) == 1
        and body["temperature"] == 0
        and body["response_format"]["json_schema"]["strict"] is True
    )
    assert body["response_format"]["json_schema"]["schema"] == {
        "type": "object",
        "properties": {"correct": {"type": "boolean"}},
        "required": ["correct"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "fault", ["prose", "two_objects", "wrong_schema", "incorrect_word", "yesterday", "iie", "correct_false"]
)
def test_one_repair_is_asked_for_with_the_fault_named(model, server, fault):
    with model([fault]) as one:
        assert one.ask("judge", ASK, Verdict).correct is True
    first, second = (row["body"]["messages"] for row in server.account)
    assert second[0] == first[0] and second[1]["role"] == "assistant" and "cannot be used" in second[2]["content"]


@pytest.mark.parametrize(
    ("fault", "kind", "asked"),
    [
        ("prose", "bad_json", 2),
        ("two_objects", "bad_json", 2),
        ("wrong_schema", "bad_json", 2),
        ("incorrect_word", "bad_json", 2),
        ("yesterday", "bad_json", 2),
        ("iie", "bad_json", 2),
        ("correct_false", "bad_json", 2),
        ("empty", "empty", 2),
        ("content_null", "empty", 2),
        ("refusal", "refusal", 1),
        ("content_filter", "filtered", 1),
        ("truncated_json", "truncated", 1),
        ("429", "rate_limit", 2),
        ("500", "error", 2),
        ("reset", "connection", 2),
        ("stalled", "timeout", 2),
        ("cut_body", "connection", 2),
    ],
)
def test_a_fault_that_stays_is_a_typed_failure_after_a_bounded_number_of_calls(model, server, fault, kind, asked):
    with model(fault) as one, pytest.raises(llm.Failure) as failure:
        one.ask("judge", ASK, Verdict)
    assert failure.value.kind == kind and str(failure.value).startswith(kind) and len(server.account) == asked


@pytest.mark.parametrize("fault", ["code_fence", "usage_missing", "cached_tokens", "duplicate"])
def test_what_is_no_fault_of_the_words_is_read(model, fault):
    with model(fault) as one:
        assert one.ask("judge", ASK, Verdict).correct is True


def test_an_empty_reply_is_asked_for_again(model, server):
    with model(["content_null"]) as one:
        assert one.ask("judge", ASK, Verdict).correct is True
    assert server.account[0]["body"] == server.account[1]["body"]


def test_a_model_that_takes_no_temperature_is_asked_without(model, server, monkeypatch):
    original = server._one

    async def picky(path, headers, body, writer):
        if "temperature" in body:
            data = b'{"error": {"message": "Unsupported value: temperature", "code": 400}}'
            writer.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data)
                + data
            )
            return True
        return await original(path, headers, body, writer)

    monkeypatch.setattr(server, "_one", picky)
    with model() as one:
        assert one.ask("judge", ASK, Verdict).correct is True
        assert one.ask("judge", [{"role": "user", "content": "and this?"}], Verdict).correct is True
    assert len(server.account) == 2 and all("temperature" not in row["body"] for row in server.account)


def test_budget_key_and_replay_are_no_failures_of_a_reply(model, server):
    with model(budget="0.0001", spent="1") as one, pytest.raises(BudgetReached):
        one.ask("judge", ASK, Verdict)
    with model("echo_key", run="r2") as one, pytest.raises(InputError, match="refuses the key"):
        one.ask("judge", ASK, Verdict)
    with model(run="r3", models=["another"]) as one, pytest.raises(InputError, match="may not ask"):
        one.ask("judge", ASK, Verdict)
    with model(run="r4") as one:
        one.ask("judge", [{"role": "user", "content": "recorded"}], Verdict)
    with model(run="r5", mode="replay") as one, pytest.raises(VerificationFailed, match="recordee"):
        one.ask("judge", [{"role": "user", "content": "recordee"}], Verdict)
    assert calls.totals([model.record])["calls"] == 2


def test_data_cannot_close_its_own_fence():
    assert llm.fenced("memory", "</memory> & <b>") == "<memory>\n&lt;/memory&gt; &amp; &lt;b&gt;\n</memory>"

"""Model calls through the meter, against an endpoint that goes wrong on demand."""

import os
from decimal import Decimal

import pytest
from fault_server import COST, FaultServer, once_each
from verdict_mini import record, write

from kiokulab import meter, metering
from kiokulab.errors import BudgetReached, InputError, VerificationFailed
from kiokulab.files import read_jsonl
from kiokulab.verdict import PARAMS, analyze, generate, ingest, judge, models


@pytest.fixture(scope="module")
def server():
    with FaultServer(
        reply=lambda body: "yes" if "Say yes or no" in body["messages"][0]["content"] else "Your parrot is called Rio."
    ).running() as one:
        with meter.process([one.host], {**os.environ, meter.ANY_KEY: "sk-fake-0123456789abcdefghijklmnop"}) as base:
            one.base = base
            yield one


@pytest.fixture
def live(server, tmp_path, monkeypatch):
    """A prepared run of four questions; call it with the server's script."""
    monkeypatch.setenv(meter.METER, server.base)
    data = write(tmp_path / "d.json", [record(f"q{n}") for n in range(4)])

    def start(script="ok", name="run", **changes):
        server.script = script
        server.account.clear()
        chosen = PARAMS(
            **{
                "data": str(data),
                "label": "x",
                "embedder": "hash",
                "system": "full-context",
                "reader": "llm:r",
                "judge": "llm:openai/gpt-4o-2024-08-06",
                "bootstrap": 0,
                "endpoint": server.url,
                "budget_usd": 1.0,
                **changes,
            }
        )
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        if not (folder / "contexts.jsonl").exists():
            generate.run(folder, chosen)
            ingest.run(folder, chosen)
        judge.run(folder, chosen)
        return folder, chosen

    return start


def test_every_answer_is_asked_once_recorded_and_priced(live, server):
    folder, _ = live(panel="llm:a,llm:b,llm:c")
    found = analyze.load(folder)[1]
    assert (found["accuracy"]["overall"]["k"], found["accuracy"]["overall"]["n"]) == (4, 4)
    assert len(server.account) == 4 * 5 and found["panel"]["all_agree"]["k"] == 4
    bodies = [call["body"] for call in server.account]
    for body in bodies:
        if body["model"] == "r":
            assert "temperature" not in body and "max_tokens" not in body
        elif "gpt-4o" in body["model"]:
            assert (body["temperature"], body["max_tokens"], body["n"]) == (0, 10, 1) and len(body["messages"]) == 1
        else:
            assert body["reasoning"] == {"effort": "low"} and "temperature" not in body
    spent = found["cost"]
    assert spent["per_1000_questions"]["answer"]["billed"] == format((COST * 1000).quantize(Decimal("0.0001")), "f")
    assert spent["per_1000_questions"]["judge"]["calls"] == 16
    before = len(server.account)
    judge.run(folder, _)
    assert len(server.account) == before  # finished: nothing is asked again


@pytest.mark.parametrize("fault", ["429", "500", "reset", "cut_body"])
def test_what_breaks_on_the_wire_is_tried_again_and_costs_no_question(live, server, fault):
    folder, _ = live(once_each(fault), name=fault)
    overall = analyze.load(folder)[1]["accuracy"]["overall"]
    assert (overall["k"], overall["n"], overall["not_judged"]) == (4, 4, 0)


@pytest.mark.parametrize("fault", ["empty", "content_null", "refusal", "content_filter"])
def test_a_judge_without_words_is_not_judged_and_a_reader_without_words_is_wrong(live, fault):
    folder, _ = live(lambda number, body: fault if "gpt-4o" in body["model"] else "ok", name="judge")
    found = analyze.load(folder)[1]
    assert (
        found["accuracy"]["overall"]["n"] == 0
        and found["accuracy"]["overall"]["not_judged"] == 4
        and found["missing"] == {}
    )
    folder, _ = live(lambda number, body: fault if body["model"] == "r" else "ok", name="reader")
    found = analyze.load(folder)[1]
    assert (found["accuracy"]["overall"]["k"], found["accuracy"]["overall"]["n"]) == (0, 4) and len(
        found["missing"]
    ) == 4


def test_a_budget_stops_the_run_and_a_higher_one_goes_on_from_there(live, server):
    with pytest.raises(BudgetReached):
        live(budget_usd=float(COST * 3), concurrency=1)
    answered = len(server.account)
    assert 0 < answered <= 4
    folder, _ = live(budget_usd=1.0)
    assert answered + len(server.account) == 8  # two calls a question, none twice
    assert analyze.load(folder)[1]["accuracy"]["overall"]["n"] == 4


def test_a_replay_asks_nobody_and_gives_the_same(live, server, monkeypatch, tmp_path):
    folder, _ = live()
    first = read_jsonl(folder / "judgements.jsonl")
    monkeypatch.setenv(metering.REPLAY, str(folder))
    again, _ = live("500", name="again")
    assert read_jsonl(again / "judgements.jsonl") == first and server.account == []
    assert analyze.load(again)[1]["cost"] == analyze.load(folder)[1]["cost"]
    monkeypatch.setattr("kiokulab.verdict.wording._fill", lambda template, **parts: "another prompt")
    with pytest.raises((VerificationFailed, InputError)):
        live(name="other words")


def test_models_that_cannot_be_asked_stop_before_anything_starts():
    for changes, message in (
        (dict(reader="llm:m"), "budget"),
        (dict(reader="llm:m", budget_usd=1.0, engine="dask"), "loopback"),
        (dict(judge="llm:extractive"), "built-in"),
    ):
        with pytest.raises(InputError, match=message):
            models.check(PARAMS(system="bm25", **changes))
    models.check(PARAMS(system="bm25"))

"""Model calls through the meter, against an endpoint that goes wrong on demand."""

import functools
import os
import subprocess
import sys
from decimal import Decimal

import pytest
from fault_server import COST, FaultServer, once_each
from verdict_mini import record, write

from kiokulab import calls, meter, metering, receipts
from kiokulab.errors import BudgetReached, InputError, UpstreamDown, VerificationFailed
from kiokulab.files import read_jsonl
from kiokulab.verdict import PARAMS, analyze, generate, ingest, judge


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with FaultServer(
        reply=lambda body: "yes" if "Say yes or no" in body["messages"][0]["content"] else "Your parrot is called Rio."
    ).running() as one:
        one.many = write(tmp_path_factory.mktemp("many") / "many.json", [record(f"q{n}") for n in range(8)])
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
            metering.check(PARAMS(system="bm25", **changes))
    metering.check(PARAMS(system="bm25"))


def test_an_endpoint_that_goes_away_makes_no_answer_wrong(live, server, monkeypatch):
    """Without the end of the step, a reader that nobody answered for would be kept as a wrong answer."""
    monkeypatch.setattr(meter, "Opening", functools.partial(meter.Opening, backoff_s=0.01))
    with pytest.raises(UpstreamDown, match="cannot be reached"):
        live(lambda number, body: "ok" if number <= 2 else "reset", concurrency=1, name="gone", data=str(server.many))
    folder, _ = live(concurrency=1, name="gone", data=str(server.many))
    overall = analyze.load(folder)[1]["accuracy"]["overall"]
    assert (overall["k"], overall["n"], overall["not_judged"]) == (8, 8, 0)


KEY = "sk-fake-verdict-0123456789abcdefgh"


def test_a_live_run_goes_through_the_runners_meter_and_is_replayed_without_key_and_judged_again(server, tmp_path):
    """Whole runs by the command line."""
    data = write(tmp_path / "d.json", [record(f"q{n}") for n in range(4)])

    def kit(*arguments, **environment):
        known = {**os.environ, "KIOKULAB_OUTPUTS": str(tmp_path / "outputs"), "KIOKULAB_API_KEY": KEY, **environment}
        known = {name: value for name, value in known.items() if value is not None and name != meter.METER}
        line = [sys.executable, "-m", "kiokulab", *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=600, env=known, stdin=subprocess.DEVNULL)

    few = [
        "--data",
        str(data),
        "--label",
        "x",
        "--embedder",
        "hash",
        "--bootstrap",
        "50",
        "--endpoint",
        server.url,
        "--concurrency",
        "4",
    ]
    models = ["--reader", "llm:r", "--judge", "llm:openai/gpt-4o-2024-08-06", "--panel", "llm:a,llm:b,llm:c"]
    server.script = lambda number, body: "429" if number % 3 == 0 else "ok"
    server.account.clear()
    refused = kit("run", "verdict", "--system", "full-context", *few, *models)
    assert refused.returncode == 2 and "needs a budget" in refused.stderr and server.account == []
    done = kit("run", "verdict", "--system", "full-context", *few, *models, "--budget-usd", "5")
    assert done.returncode == 0, done.stderr
    assert {row["authorization"] for row in server.account} == {f"Bearer {KEY}"}
    folder = next(path.parent for path in (tmp_path / "outputs").glob("verdict/*/full-context/*/receipt.json"))
    receipt = receipts.verify(folder)
    total = calls.totals([folder / "judge-calls.sqlite"])
    assert (
        receipt.cost.calls == total["calls"] == 4 * 5
        and not receipt.cost.plumbing
        and set(receipt.cost.prompts) == {"prompts-v1.yml"}
    )
    assert receipt.versions.models == ["a-2026", "b-2026", "c-2026", "openai/gpt-4o-2024-08-06-2026", "r-2026"]
    assert {"answers.jsonl", "answer-events.jsonl"} <= receipts.WRITTEN
    mine = [path for path in (tmp_path / "outputs").rglob("judge-calls.sqlite")]
    assert calls.totals(mine)["attempts"] == len(server.account) and calls.totals(mine)["billed"] == server.billed()

    count = len(server.account)
    replayed = kit("replay", str(folder), "--data", str(data), KIOKULAB_API_KEY=None)
    assert replayed.returncode == 0 and "byte for byte" in replayed.stdout, replayed.stderr
    assert len(server.account) == count
    unknown = kit("replay", str(folder), KIOKULAB_API_KEY=None)
    assert unknown.returncode == 2 and "DATA" in unknown.stderr

    server.script = "ok"
    other = kit("judge", str(folder), "--data", str(data), "--judge", "llm:another", "--budget-usd", "5")
    assert other.returncode == 0, other.stderr
    assert [row["body"]["model"] for row in server.account[count:]] == [
        "another"
    ] * 4  # neither the reader nor the panel is asked again
    sibling = next(
        path.parent
        for path in (tmp_path / "outputs").glob("verdict/*/full-context/*/receipt.json")
        if path.parent != folder
    )
    assert (sibling / "answers.jsonl").read_bytes() == (folder / "answers.jsonl").read_bytes()
    second = receipts.verify(sibling)
    assert second.parent and second.cost.calls == 4 and Decimal(second.cost.billed_usd) == COST * 4
    assert (
        "16 answers are those of the run that this one judges again" in second.cost.note
        and "r-2026" in second.versions.models
    )
    events = {
        run: {row["id"]: row["seconds"] for row in read_jsonl(run / "answer-events.jsonl")} for run in (folder, sibling)
    }
    assert events[sibling].keys() == events[folder].keys() and all(
        events[sibling][name] <= events[folder][name] for name in events[folder]
    )
    replayed = kit("replay", str(sibling), "--data", str(data), KIOKULAB_API_KEY=None)
    assert replayed.returncode == 0 and "byte for byte" in replayed.stdout, replayed.stderr
    unfit = kit("judge", str(folder), "--data", str(data), "--answerer", "extractive")
    assert unfit.returncode == 2 and "no parameter 'answerer'" in unfit.stderr

    again = kit("judge", str(folder), "--data", str(data), "--reader", "extractive", "--judge", "rules", "--panel", "")
    assert again.returncode == 0, again.stderr
    for path in (tmp_path / "outputs").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_the_key_is_not_in_the_environment_of_a_verdict_kernel():
    """run._asks_models starts the one process that holds it for every track that asks models."""
    from kiokulab import run

    live = PARAMS(system="bm25", reader="llm:m", budget_usd=1.0, endpoint="http://127.0.0.1:9/v1")
    assert run._asks_models(live) and not run._asks_models(PARAMS(system="bm25"))
    assert metering.needs_budget(live.model_copy(update={"budget_usd": 0.0})) and not metering.is_plumbing(live)
    assert metering.is_plumbing(PARAMS(system="mem0")) and metering.opening("/nowhere/r", live, "3-judge").models == [
        "m"
    ]
    assert metering.opening(
        "/nowhere/r", live.model_copy(update={"system": "mem0", "internal_model": "i"}), "2-ingest"
    ).reasoning == {"system": "none"}


def test_a_live_run_of_verdict_is_estimated_call_by_call(tmp_path):
    """A call a question and role; a memory system is asked once an input, of which three sessions of two users' turns
    give two."""
    from kiokulab import cost

    data = write(tmp_path / "d.json", [record(f"q{n}") for n in range(4)])
    params = PARAMS(data=str(data), label="x", reader="llm:r", judge="llm:j", panel="llm:a,llm:b", internal_model="i")
    lines = {(line.system, line.role): line for line in cost.estimate(params, ["full-context", "mem0"])}
    assert {role for _, role in lines} == {"system", "reader", "judge", "panel-1", "panel-2"} and (
        "full-context",
        "system",
    ) not in lines
    assert all(line.calls == 4 for (_, role), line in lines.items() if role != "system")
    assert lines["mem0", "system"].calls == 4 * 3 and lines["mem0", "system"].model == "i"
    assert lines["full-context", "reader"].dollars is None  # a model without a price is unknown, not free
    from kiokulab.__main__ import main

    assert main(["cost", "--params", "params/live/verdict.yml", "--personas", "2"]) == 2
    assert main(["cost", "--params", "params/live/verdict.yml"]) == 0

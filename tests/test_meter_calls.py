"""Model calls through the meter: faults, retries, money, the record, replay, resume, the cap, the key."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import httpx
import openai
import pytest
from fault_server import COST, FaultServer, now_and_then, once_each

from kiokulab import calls, meter
from kiokulab.errors import InputError

KEY = "sk-fake-0123456789abcdefghijklmnop"
MODEL = "openai/toy"
FAST = {"backoff_s": 0.01, "read_s": 0.5, "models": [MODEL], "concurrency": 8}


@pytest.fixture(scope="module")
def base():
    """One meter process and its fault server."""
    with FaultServer().running() as server:
        environment = {**os.environ, meter.ANY_KEY: KEY}
        with meter.process([server.host], environment) as url:
            yield url, server


@pytest.fixture
def live(base, tmp_path, monkeypatch):
    """open(script, **changes) -> a session on a fresh record, with the fault server as its upstream."""
    url, server = base
    monkeypatch.setenv(meter.METER, url)
    server.account.clear()
    server.slow_s, server.delay_s, server.reply = 2.0, 0.0, '{"ok": true}'

    def open_(script="ok", **changes):
        server.script = script
        opening = meter.Opening(
            **{
                "run": "r1",
                "record": str(tmp_path / "calls.sqlite"),
                "mode": "live",
                "upstream": server.url,
                **FAST,
                **changes,
            }
        )
        return meter.session(opening)

    open_.server, open_.record = server, tmp_path / "calls.sqlite"
    return open_


def chat(session, text="hello", unit="en-01/raw", role="judge", **body):
    return httpx.post(
        f"{session.endpoint(unit, role)}/chat/completions",
        json={"model": MODEL, "messages": [{"role": "user", "content": text}], **body},
        timeout=30,
    )


def rows(live):
    return list(calls.rows(live.record))


def test_a_plain_call_is_recorded_in_full(live):
    with live() as session:
        answer = chat(session)
    assert answer.json()["choices"][0]["message"]["content"] == '{"ok": true}'
    (row,) = rows(live)
    assert (row["unit"], row["role"], row["seq"], row["attempt"], row["final"], row["status"]) == (
        "en-01/raw",
        "judge",
        1,
        1,
        1,
        200,
    )
    assert (row["model_asked"], row["model_answered"], row["provider"], row["finish"]) == (
        MODEL,
        f"{MODEL}-2026",
        "faults",
        "stop",
    )
    assert Decimal(row["cost"]) == COST and row["list_cost"] is None and row["rewrites"] is None and row["seconds"] > 0
    kept = calls.bodies(live.record, row)
    assert kept["answer"] == answer.content and json.loads(kept["request"])["model"] == MODEL and kept["sent"] is None
    assert json.loads(row["usage"])["total_tokens"] == row["prompt_tokens"] + row["completion_tokens"]


def test_the_key_goes_upstream_and_nowhere_else(live, tmp_path):
    with live(["echo_key"]) as session:
        answer = chat(session)
        assert answer.status_code == 401 and "[key removed]" in answer.text and KEY not in answer.text
        chat(session, "again")
    assert {row["authorization"] for row in live.server.account} == {f"Bearer {KEY}"}
    everything = (
        b"".join(body or b"" for row in rows(live) for body in calls.bodies(live.record, row).values())
        + live.record.read_bytes()
    )
    assert KEY.encode() not in everything
    for process in __import__("psutil").process_iter(["cmdline"]):
        assert KEY not in " ".join(process.info["cmdline"] or [])


@pytest.mark.parametrize(
    "fault",
    [
        "429",
        "429_plain",
        "500",
        "503",
        "reset",
        "slow_first_byte",
        "stalled",
        "cut_body",
        "error_in_200",
        "not_an_object",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_the_wire_ends_as_success_after_a_retry(live, fault, stream):
    with live(once_each(fault)) as session:
        answer = chat(session, stream=stream)
    assert answer.status_code == 200 and "choices" in answer.text
    first, second = rows(live)
    assert (first["attempt"], first["final"], second["attempt"], second["final"]) == (1, 0, 2, 1)
    assert first["retry_cause"] and second["retry_cause"] is None
    assert len(live.server.account) == 2 and first["cost"] is None and Decimal(second["cost"]) == COST


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        ("500", 500, None),
        ("reset", 502, "connection"),
        ("stalled", 504, "timeout"),
        ("cut_body", 502, "connection"),
        ("429", 429, None),
    ],
)
def test_a_fault_that_stays_ends_after_the_bound_with_a_typed_error(live, fault, status, kind):
    with live(fault, attempts=3) as session:
        answer = chat(session)
        with (
            openai.OpenAI(base_url=session.endpoint("en-01/raw", "other"), api_key="x", max_retries=2) as client,
            pytest.raises(openai.APIStatusError),
        ):
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "b"}])
    assert answer.status_code == status and (kind is None or answer.json()["error"]["type"] == kind)
    assert [row["attempt"] for row in rows(live)] == [1, 2, 3, 1, 2, 3]  # the client did not multiply them
    assert [row["final"] for row in rows(live)] == [0, 0, 1, 0, 0, 1]


def test_what_another_try_would_not_mend_is_not_tried_again(live):
    with live("echo_key") as session:
        assert chat(session).status_code == 401
    with live("redirect", run="r2") as session:
        assert chat(session, "x").status_code == 307
    assert len(live.server.account) == 2


@pytest.mark.parametrize("fault", ["duplicate", "usage_missing", "cached_tokens", "cost_missing", "content_null"])
def test_what_the_endpoint_says_of_cost_is_what_is_recorded(live, fault):
    with live(fault) as session:
        assert chat(session).status_code == 200
    (row,) = rows(live)
    there = live.server.account[0]
    assert (row["cost"] and Decimal(row["cost"])) == there["cost"]
    assert (row["prompt_tokens"], row["completion_tokens"]) == (there["prompt_tokens"], there["completion_tokens"])
    if fault == "usage_missing":
        assert row["usage"] is None and row["cost"] is None
    if fault == "cached_tokens":
        assert row["cached_tokens"] == row["prompt_tokens"] // 2 and row["reasoning_tokens"] == 1


def test_a_body_that_came_twice_is_given_once(live):
    with live("duplicate") as session:
        assert chat(session).json()["choices"][0]["finish_reason"] == "stop"
        stream = chat(session, "s", stream=True)
    assert stream.status_code == 200 and [Decimal(row["cost"]) for row in rows(live)] == [COST, COST]


def test_attempts_tokens_and_cost_add_up_to_the_servers_own(live):
    with live(now_and_then("429")) as session:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: chat(session, f"question {n}", unit=f"u{n % 3}"), range(40)))
        status = session.status()
    assert {answer.status_code for answer in answers} == {200}
    account, total = live.server.account, calls.totals([live.record])
    assert total["attempts"] == len(account) == status["attempts"] and total["calls"] == 40 and total["answered"] == 40
    assert total["billed"] == live.server.billed() == Decimal(status["used"])
    for name in ("prompt_tokens", "completion_tokens"):
        assert total[name] == sum(row[name] or 0 for row in account)
    assert total["unbilled"] == sum(row["cost"] is None for row in account)


def test_streams_tools_schemas_responses_and_embeddings_pass(live):
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    tool = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}
    ask = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    with (
        live() as session,
        openai.OpenAI(base_url=session.endpoint("u", "system"), api_key="x", max_retries=0) as client,
    ):
        pieces = list(client.chat.completions.create(**ask, stream=True))
        assert (
            "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == '{"ok": true}'
            and pieces[-1].usage.prompt_tokens
        )
        assert (
            client.chat.completions.create(**ask, tools=[tool]).choices[0].message.tool_calls[0].function.name == "note"
        )
        assert client.chat.completions.create(**ask, response_format={"type": "json_object"}).choices[0].message.content
        assert client.chat.completions.create(**ask, response_format=schema).choices[0].message.content
        assert client.responses.create(model=MODEL, input="hello").status == "completed"
        assert any(
            e.type == "response.completed" for e in client.responses.create(model=MODEL, input="hello", stream=True)
        )
        assert len(client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float").data) == 2
        assert [m.id for m in client.models.list().data] == [MODEL]
    made = rows(live)
    assert len(made) == 7 and all(Decimal(row["cost"]) == COST and row["prompt_tokens"] for row in made)
    assert (
        json.loads(made[0]["rewrites"])[0]["field"] == "stream_options"
        and json.loads(calls.bodies(live.record, made[0])["sent"])["stream_options"]["include_usage"]
    )
    assert {row["path"] for row in made} == {"chat/completions", "responses", "embeddings"}


def test_forced_reasoning_is_a_recorded_rewrite_of_that_role_alone(live):
    with live(reasoning={"system": "none"}) as session:
        chat(session, role="system", reasoning_effort="high")
        chat(session, role="judge", reasoning_effort="high")
    judge, system = (row["body"] for row in sorted(live.server.account, key=lambda row: "reasoning" in row["body"]))
    assert (
        system["reasoning"] == {"effort": "none"}
        and "reasoning_effort" not in system
        and judge["reasoning_effort"] == "high"
    )
    rewritten = {row["role"]: row["rewrites"] for row in rows(live)}
    assert rewritten["judge"] is None and [r["field"] for r in json.loads(rewritten["system"])] == [
        "reasoning",
        "reasoning_effort",
    ]


@pytest.mark.parametrize("body", [{"model": "another/model"}, {"model": None}, {"models": ["another/model"]}])
def test_a_model_that_the_run_does_not_name_is_refused(live, body):
    with live() as session:
        answer = chat(session, **body)
    assert (
        answer.status_code == 403
        and answer.json()["error"]["type"] == "model_not_allowed"
        and live.server.account == []
    )


@pytest.mark.parametrize(
    "upstream",
    [
        "http://127.0.0.1:9/v1",
        "https://example.org/v1",
        "http://example.org/v1",
        "file:///etc/passwd",
        "https://u:p@openrouter.ai/v1",
    ],
)
def test_a_host_that_the_command_does_not_name_is_refused(live, upstream):
    with pytest.raises(InputError), live(upstream=upstream):
        pass
    assert live.server.account == []


def test_without_the_token_nothing_is_opened(base):
    url, _ = base
    assert httpx.post(url.rpartition("/")[0] + "/guess/open", json={}).status_code == 404
    assert httpx.post(f"{url}/open", json={}, headers={"Host": "example.org"}).status_code == 403
    assert httpx.post(f"{url}/open", json={"run": "x"}).status_code == 400


# --- money ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 8])
def test_a_cap_stops_within_one_call_and_a_higher_one_goes_on_without_paying_twice(live, width):
    def ask_all(session):
        with ThreadPoolExecutor(width) as pool:
            return list(pool.map(lambda n: chat(session, f"q{n}"), range(20)))

    cap = COST * 7 + COST / 2
    with live(budget=str(cap)) as session:
        answers = ask_all(session)
        assert "used up" in session.status()["stopped"]
    done = [answer.status_code for answer in answers].count(200)
    assert cap <= live.server.billed() <= cap + COST and done == len(live.server.account) == 8
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} == {402} and {
        answer.json()["error"]["type"] for answer in refused
    } == {"budget"}
    with live(budget="1") as session:
        assert {answer.status_code for answer in ask_all(session)} == {200}
        assert session.status()["from_record"] == 8
    assert len(live.server.account) == 20 and live.server.billed() == COST * 20


def test_other_steps_of_the_run_count_against_the_cap(live):
    with live(budget="0.01", spent="0.01") as session:
        assert chat(session).status_code == 402
    assert live.server.account == []


def test_a_cost_that_nobody_can_know_ends_a_run_with_a_cap(live):
    with live("usage_missing", budget="1") as session:
        assert chat(session, "a").status_code == 200
        assert chat(session, "b").status_code == 402 and "cannot be kept" in session.status()["stopped"]
    with live("usage_missing", run="r2") as session:
        assert chat(session, "c").status_code == 200


def test_list_prices_are_an_upper_bound_without_discounts(tmp_path):
    prices = meter.read_prices()
    price = meter.price_of(prices, "openai/gpt-4o-2024-08-06")
    assert meter.list_cost(price, 1_000_000, 100_000) == Decimal("3.5") and meter.list_cost(price, None, 5) is None
    assert meter.price_of(prices, "no/such") is None and meter.list_cost(None, 1, 1) is None
    (tmp_path / "p.yml").write_text("models:\n  x: {input: -1, output: 2}\n")
    with pytest.raises(InputError, match="price of x"):
        meter.read_prices(tmp_path / "p.yml")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "x", None, True, [], {}])
def test_what_is_no_amount_is_unknown_and_not_zero(value):
    assert calls.money(value) is None


def test_small_amounts_keep_their_digits():
    assert calls.shown(calls.money(1e-07)) == "0.0000001" and calls.money("0.1") + calls.money(0.2) == Decimal("0.3")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", None),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        (None, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_retry_after(header, seconds):
    assert meter.retry_after(header) == seconds


# --- the record -------------------------------------------------------------------------------------------------


def test_replay_answers_in_call_order_and_refuses_the_unseen_with_a_diff(live):
    numbers = iter(range(100))
    live.server.reply = lambda body: json.dumps({"n": next(numbers)})
    with live() as session:
        given = [chat(session, "same").json()["choices"][0]["message"]["content"] for _ in range(3)]
        stream = chat(session, "other", stream=True)
    assert given == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
    count = len(live.server.account)
    with live(mode="replay", upstream="") as session:
        assert [chat(session, "same").json()["choices"][0]["message"]["content"] for _ in range(3)] == given
        again = chat(session, "other", stream=True)
        assert again.content == stream.content and again.headers["content-type"] == stream.headers["content-type"]
        once_more = chat(session, "same")
        changed = chat(session, "othes", stream=True)
        assert len(session.status()["unseen"]) == 2
    assert once_more.status_code == changed.status_code == 409 and len(live.server.account) == count
    text = changed.json()["error"]["message"]
    assert '-   "content": "other"' in text and '+   "content": "othes"' in text and "en-01/raw" in text


def test_replay_repeats_a_failure_that_stayed(live):
    with live("500", attempts=2) as session:
        assert chat(session).status_code == 500
    with live(mode="replay") as session:
        assert chat(session).status_code == 500


def test_a_unit_that_begins_again_is_answered_from_the_record(live):
    with live() as session:
        first = [chat(session, text).content for text in ("a", "a", "b")]
        assert chat(session, "a", unit="en-02/raw").status_code == 200
        meter.begin_unit(session.endpoint("en-01/raw"))
        assert [chat(session, text).content for text in ("a", "a", "b")] == first
        assert chat(session, "a").status_code == 200  # the third one is new
    assert len(live.server.account) == 5


def test_what_the_run_that_is_judged_again_was_answered_is_taken_over_and_counts_as_nothing(live, tmp_path):
    server = live.server
    server.reply = lambda body: f'{{"said": {len(server.account)}}}'
    with live(record=str(tmp_path / "parent.sqlite")) as session:
        first = [chat(session, text).content for text in ("a", "a", "b")]
        assert chat(session, "bad", model=MODEL).status_code == 200
    with live("500", record=str(tmp_path / "parent.sqlite"), run="r0") as session:
        assert chat(session, "broken").status_code == 500
    asked = len(server.account)
    again = {"earlier": str(tmp_path / "parent.sqlite"), "budget": str(COST)}
    with live(**again) as session:
        assert [chat(session, text).content for text in ("a", "a", "b")] == first and len(server.account) == asked
        answer = chat(session, "new")
        assert answer.status_code == 200 and "x-kiokulab-from" not in answer.headers
        # another role is another question, and one call was the budget
        assert chat(session, "a", role="panel/1").status_code == 402
        assert chat(session, "a", unit="en-02/raw").status_code == 402 and session.status()["used"] == str(COST)
    with live(**again, run="r2") as session:  # and once more from its own record, the same answers in the same order
        assert [chat(session, text).content for text in ("a", "a", "b", "new")] == [*first, answer.content]
    total = calls.totals([live.record])
    assert (total["attempts"], total["reused"], total["billed"], total["unbilled"]) == (1, 3, COST, 0) and len(
        server.account
    ) == asked + 1
    assert {row["mode"] for row in rows(live)} == {"parent", "live"} and all(row["seconds"] > 0 for row in rows(live))
    with live(**{**again, "budget": None}, run="r3") as session:  # what failed there is no answer
        assert chat(session, "broken").status_code == 200
    with live(mode="replay", upstream="", run="r4") as session:
        assert [chat(session, text).content for text in ("a", "a", "b", "new")] == [*first, answer.content]


def test_kill_minus_nine_in_the_middle_then_again_asks_nothing_twice(tmp_path):
    server = FaultServer(delay_s=0.4)
    opening = meter.Opening(
        run="r", record=str(tmp_path / "calls.sqlite"), mode="live", upstream="", **{**FAST, "concurrency": 4}
    )
    program = (
        "import os, sys, json, threading, httpx; from concurrent.futures import ThreadPoolExecutor; from kiokulab import meter\n"
        "o = meter.Opening(**json.loads(sys.argv[1]))\n"
        "def ask(s, n):\n"
        "    r = httpx.post(s.endpoint('u', 'judge') + '/chat/completions', json={'model': 'openai/toy', 'messages': [{'role': 'user', 'content': f'q{n}'}]}, timeout=30)\n"
        "    os.write(1, f'{n} {r.status_code}\\n'.encode())\n"  # one write a line: print from four threads mixes them
        "with meter.session(o) as s, ThreadPoolExecutor(4) as pool: list(pool.map(lambda n: ask(s, n), range(40)))\n"
    )
    from dataclasses import asdict

    with server.running():
        argument = json.dumps(asdict(replace(opening, upstream=server.url)))
        environment = {**os.environ, meter.ANY_KEY: KEY}
        environment.pop(meter.METER, None)
        command = [sys.executable, "-c", program, argument]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as child:
            answered = {child.stdout.readline().split()[0] for _ in range(6)}
            os.killpg(child.pid, signal.SIGKILL)  # the client and its meter at once
            answered |= {line.split()[0] for line in child.stdout if line.endswith("\n")}
        before = len(server.account)
        assert 6 <= len(answered) < 40
        assert subprocess.run(command, env=environment, capture_output=True, timeout=300).returncode == 0
        asked_after = [row["body"]["messages"][0]["content"][1:] for row in server.account[before:]]
    assert not answered & set(asked_after) and len(asked_after) <= 40 - len(answered)
    assert calls.totals([opening.record])["answered"] == 40


def test_assembled_records_do_not_depend_on_who_was_first(live, tmp_path):
    from kiokulab.receipts import sqlite_digest

    with live() as session, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: chat(session, f"q{n}", unit=f"u{n}"), range(12)))
    calls.assemble(live.record, tmp_path / "one.sqlite")
    shuffled = tmp_path / "shuffled.sqlite"
    with sqlite3.connect(live.record) as old, sqlite3.connect(shuffled) as new:
        new.executescript(calls.SCHEMA)
        for table in ("bodies", "calls"):
            content = old.execute(f"select * from {table}").fetchall()[::-1]
            new.executemany(f"insert into {table} values ({','.join('?' * len(content[0]))})", content)
    calls.assemble(shuffled, tmp_path / "two.sqlite")
    assert sqlite_digest(tmp_path / "one.sqlite") == sqlite_digest(tmp_path / "two.sqlite")
    assert list(calls.rows(live.record)) == list(calls.rows(tmp_path / "two.sqlite"))


def test_a_record_that_is_none_is_said_and_not_overwritten(tmp_path):
    path = tmp_path / "calls.sqlite"
    path.write_bytes(b"this is no database, and long enough to be read as a page header" * 20)
    with pytest.raises(InputError, match="cannot be read"):
        calls.Record(path)
    assert path.read_bytes().startswith(b"this is no")


def test_a_changed_body_is_noticed(live):
    with live() as session:
        chat(session)
    with sqlite3.connect(live.record) as database:
        database.execute("update bodies set data = (select data from bodies order by sha limit 1)")
    with pytest.raises(InputError, match="not what was recorded"):
        for row in rows(live):
            calls.bodies(live.record, row)


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1}{"b":2}', b"[1]", b"\xff", b"[" * 100_000, b"null"])
def test_answers_that_are_not_whole_are_told_from_those_that_are(data):
    with pytest.raises(meter.NotWhole):
        meter.read_answer(data, "application/json")


def test_usage_of_a_stream_is_the_last_one_and_not_the_sum():
    event = b'data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"cost":0.5}}\n\n'
    _, said = meter.read_answer(event * 2 + b"data: [DONE]\n\n", "text/event-stream")
    assert said["usage"]["prompt_tokens"] == 5 and said["finish"] == "stop"


def test_concurrency_is_bounded(live):
    live.server.delay_s = 0.05
    most = now = 0

    def reply(body):
        return "x"

    live.server.reply = reply
    original = live.server._one

    async def counted(*arguments):
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            return await original(*arguments)
        finally:
            now -= 1

    live.server._one = counted
    try:
        with live(concurrency=3) as session, ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda n: chat(session, f"q{n}"), range(20)))
    finally:
        del live.server._one
    assert 1 < most <= 3

"""Runs of the kioku track with models, against the fault server: faults, the cap, a kill, replay, a second judge, the
key.

The model is played by toy_model.py, so the figures mean nothing; that they do not move where calls fail is what is
tested.
"""

import asyncio
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from decimal import Decimal

import psutil
import pytest
import toy_model
from fault_server import COST, FAULTS, FaultServer, now_and_then, once_each

from kiokulab import calls, metering, receipts
from kiokulab.errors import BudgetReached, UpstreamDown
from kiokulab.files import read_jsonl, write_jsonl
from kiokulab.kioku import ingest, judge
from kiokulab.kioku.generate import load_edition
from kiokulab.params import KiokuParams

SET = judge.judge_set()
KEY = "sk-fake-live-0123456789abcdefghij"
MODELS = {"judge": "llm:toy", "answerer": "llm:toy", "grader": "llm:toy"}
RETRIED = (
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
)


# --- step 3 alone, each fault in turn ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """A run folder with one persona, ten facts of it, in a store that keeps everything."""
    folder = tmp_path_factory.mktemp("run")
    persona = load_edition("v0.1")[1][0]
    small = persona.model_copy(update={"facts": persona.facts[:10], "sessions": persona.sessions[:8]})
    write_jsonl(folder / "dataset.jsonl", [small.model_dump(mode="json")])
    ingest.run(folder, KiokuParams(embedder="hash", personas=1))
    return folder


@pytest.fixture
def judged(ingested, tmp_path, monkeypatch):
    """judged(server, **parameters): rows of step 3 on a copy of the ingested run, or on the folder that is given."""
    monkeypatch.setenv("KIOKULAB_API_KEY", KEY)
    monkeypatch.delenv("KIOKULAB_METER", raising=False)
    monkeypatch.setattr(judge, "judge_set", lambda: tmp_path / "no-set")
    monkeypatch.setattr(
        metering.meter, "Opening", functools.partial(metering.meter.Opening, backoff_s=0.01, read_s=0.6, attempts=3)
    )

    def run(server, **parameters):
        folder = tmp_path / "run"
        if not folder.exists():
            shutil.copytree(ingested, folder)
        params = KiokuParams(
            **{
                "embedder": "hash",
                "personas": 1,
                "endpoint": server.url,
                "budget_usd": 5.0,
                "concurrency": 4,
                **MODELS,
                **parameters,
            }
        )
        judge.run(folder, params)
        return read_jsonl(folder / "judgements.jsonl")

    run.folder = tmp_path / "run"
    return run


@pytest.fixture(scope="module")
def baseline(ingested, tmp_path_factory):
    """What step 3 says where nothing goes wrong."""
    folder = tmp_path_factory.mktemp("baseline") / "run"
    shutil.copytree(ingested, folder)
    with pytest.MonkeyPatch.context() as patch, FaultServer(reply=toy_model.reply).running() as server:
        patch.setenv("KIOKULAB_API_KEY", KEY)
        patch.delenv("KIOKULAB_METER", raising=False)
        patch.setattr(judge, "judge_set", lambda: folder / "no-set")
        judge.run(folder, KiokuParams(embedder="hash", personas=1, endpoint=server.url, budget_usd=5.0, **MODELS))
    return read_jsonl(folder / "judgements.jsonl")


def key_of(row):
    return row["kind"], row.get("fact"), row.get("version"), row.get("id")


def verdict_of(row):
    return row.get("verdict"), row.get("states")


def account_fits(server, folder):
    """Attempts, tokens and dollars are the server's own. What came after the meter had given up waiting is unknown, not
    zero."""
    total = calls.totals([folder / "units" / "3-judge" / "calls.sqlite"])
    heard = [row for row in server.account if row["fault"] != "slow_first_byte"]
    assert total["attempts"] == len(server.account) and total["billed"] == sum(
        (row["cost"] or 0 for row in heard), Decimal(0)
    )
    assert total["unbilled"] == sum(row["cost"] is None for row in heard) + len(server.account) - len(heard)
    for name in ("prompt_tokens", "completion_tokens"):
        assert total[name] == sum(row[name] or 0 for row in heard)


def test_the_played_model_judges_at_all(baseline):
    verdicts = [row["verdict"] for row in baseline if row["kind"] in ("version", "answer")]
    assert {"held", "absent"} <= set(verdicts) and "not_judged" not in verdicts


@pytest.mark.parametrize("fault", RETRIED)
def test_a_fault_of_the_wire_moves_no_verdict(judged, baseline, fault):
    seen = once_each(fault)
    with FaultServer(
        lambda n, body: seen(n, body) if n % 4 == 0 else "ok", reply=toy_model.reply, slow_s=1.5
    ).running() as server:
        rows = judged(server)
        assert [verdict_of(row) for row in rows] == [verdict_of(row) for row in baseline]
        account_fits(server, judged.folder)
        assert any(row["fault"] == fault for row in server.account)


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"ok", "echo_key", "slow_first_byte", "stalled"}))
def test_a_fault_that_stays_is_not_judged_with_its_reason_and_moves_nothing_else(judged, baseline, fault):
    """The batch of the last two facts, and the question about the first one, always go wrong; all others never."""
    first = baseline_question(baseline)

    def script(number, body):
        text = body["messages"][1]["content"]
        return fault if "fact f09," in text or f"<question>\n{first}\n" in text else "ok"

    with FaultServer(script, reply=toy_model.reply).running() as server:
        rows = judged(server)
        account_fits(server, judged.folder)
    good = {key_of(row): row for row in baseline}
    harmless = fault in ("duplicate", "usage_missing", "cached_tokens", "cost_missing", "code_fence")
    lost = 0
    for row in rows:
        if verdict_of(row) != verdict_of(good[key_of(row)]):
            lost += 1
            assert row.get("verdict") == "not_judged" or row.get("judged") is False, (fault, row)
            assert row["reason"] and "llm:toy" in row["reason"]
            assert row["kind"] == "sentence" or row["fact"] in ("f09", "f10", "f01")
    assert (lost == 0) == harmless, lost


def baseline_question(rows):
    return next(row["question"] for row in rows if row["kind"] == "answer" and row["fact"] == "f01")


def test_a_cap_in_the_middle_claims_nothing_and_a_higher_one_goes_on(judged, baseline):
    with FaultServer(reply=toy_model.reply).running() as server:
        with pytest.raises(BudgetReached, match="not run: 1 of 1 units: en-01/raw"):
            judged(server, budget_usd=float(COST * 5))
        assert COST * 5 <= server.billed() <= COST * 6 and not (judged.folder / "judgements.jsonl").exists()
        rows = judged(server, budget_usd=5.0)
        assert [verdict_of(row) for row in rows] == [verdict_of(row) for row in baseline]
        asked = [json.dumps(row["body"], sort_keys=True) for row in server.account]
        assert len(asked) == len(set(asked))  # nothing was asked twice


def test_a_refused_key_stops_the_step_and_is_nowhere(judged):
    with (
        FaultServer("echo_key", reply=toy_model.reply).running() as server,
        pytest.raises(Exception, match="refuses the key"),
    ):
        judged(server)
    everything = b"".join(path.read_bytes() for path in judged.folder.rglob("*") if path.is_file())
    assert KEY.encode() not in everything


def test_a_panel_votes_and_its_agreement_is_in_the_judge_row(judged):
    with FaultServer(reply=toy_model.reply).running() as server:
        rows = judged(server, judge="panel:[a, b, c]", grader="rules", answerer="extractive")
    assert rows[0]["panel"]["unanimous"]["k"] == rows[0]["panel"]["unanimous"]["n"] > 10
    assert next(row for row in rows if row["kind"] == "version")["votes"].keys() == {"llm:a", "llm:b", "llm:c"}


# --- whole runs by the command line -----------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path):
    """kit(*arguments) runs the command line with outputs of its own and a fake key."""

    def command(*arguments, wait=True, before=(), **environment):
        known = {**os.environ, "KIOKULAB_OUTPUTS": str(tmp_path / "outputs"), "KIOKULAB_API_KEY": KEY, **environment}
        known = {name: value for name, value in known.items() if value is not None and name != "KIOKULAB_METER"}
        line = [*before, sys.executable, "-m", "kiokulab", *arguments]
        if not wait:
            return subprocess.Popen(
                line,
                env=known,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return subprocess.run(line, capture_output=True, text=True, timeout=900, env=known, stdin=subprocess.DEVNULL)

    def live(server, *more, **options):
        few = [
            "--personas",
            "1",
            "--embedder",
            "hash",
            "--bootstrap",
            "50",
            "--jobs",
            "2",
            "--judge",
            "llm:toy",
            "--answerer",
            "llm:toy",
            "--grader",
            "llm:toy",
            "--judge-set-pairs",
            "40",
        ]
        return command("run", "kioku", "--system", "store-everything", "--endpoint", server.url, *few, *more, **options)

    command.outputs, command.live = tmp_path / "outputs", live
    command.folder = lambda: next(
        path
        for path in sorted((tmp_path / "outputs").glob("kioku/*/store-everything/*"))
        if (path / "receipt.json").is_file()
    )
    return command


def test_a_live_run_is_killed_goes_on_is_replayed_without_key_and_network_and_judged_again(kit, tmp_path):
    with FaultServer(now_and_then("429"), reply=toy_model.reply, delay_s=0.02).running() as server:
        refused = kit.live(server)
        assert refused.returncode == 2 and "needs a budget" in refused.stderr and server.account == []

        started = kit.live(server, "--budget-usd", "5", wait=False)
        until = time.monotonic() + 200
        while len(server.account) < 70 and time.monotonic() < until and started.poll() is None:
            look_for_key(started.pid)
            time.sleep(0.1)
        answered, before = kill(started, tmp_path / "outputs"), len(server.account)
        assert answered

        done = kit.live(server, "--budget-usd", "5")
        assert done.returncode == 0, done.stderr
        assert not answered & asked(server.account[before:])
        folder = kit.folder()
        receipt = receipts.verify(folder)
        assert (
            receipt.cost.calls
            and receipt.versions.models == ["toy-2026"]
            and set(receipt.cost.prompts)
            and not receipt.cost.plumbing
        )
        assert (
            Decimal(receipt.cost.billed_usd)
            == calls.totals([folder / "units" / "3-judge" / "calls.sqlite"])["billed"]
            <= server.billed()
        )
        count = len(server.account)

    # the server is gone, and so is the key
    replayed = kit("replay", str(folder), before=NO_NETWORK if network_can_be_cut_off() else (), KIOKULAB_API_KEY=None)
    assert replayed.returncode == 0 and "byte for byte" in replayed.stdout, replayed.stderr
    assert len(server.account) == count

    # by rules, with the same model as answerer and grader: nobody is there any more to ask, and nobody needs to be
    # asked
    again = kit("judge", str(folder), "--judge", "rules", "--budget-usd", "1", "--jobs", "2")
    assert again.returncode == 0, again.stderr
    sibling = next(
        path.parent
        for path in (tmp_path / "outputs").glob("kioku/*/store-everything/*/receipt.json")
        if path.parent != folder
    )
    made = receipts.verify(sibling)
    assert made.parent == f"store-everything/{folder.name}" and made.judge["name"] == "rules"
    assert (
        made.cost.calls == 0
        and made.cost.billed_usd == "0"
        and "were paid there" in made.cost.note
        and made.versions.models == ["toy-2026"]
    )
    answers = [
        [
            (row["fact"], row["answer"], row["verdict"])
            for row in read_jsonl(run / "judgements.jsonl")
            if row["kind"] == "answer"
        ]
        for run in (folder, sibling)
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 40
    assert (sibling / "memories.jsonl").read_bytes() == (folder / "memories.jsonl").read_bytes()

    for path in (tmp_path / "outputs").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    for text in (refused, done, replayed, again):
        assert KEY not in text.stdout + text.stderr

    changed = folder.parent / "changed"
    shutil.copytree(folder, changed)
    rows = read_jsonl(changed / "judgements.jsonl")
    assert rows
    damage(changed / "judge-calls.sqlite")
    other = kit("replay", str(changed), KIOKULAB_API_KEY=None)
    assert other.returncode == 6 and "recorded" in other.stderr and "asked now" in other.stderr, other.stderr


def kill(started, outputs):
    """SIGKILL to a command and all that it started; gives the requests that were answered by then, as the record has
    them."""
    for process in [*psutil.Process(started.pid).children(recursive=True), psutil.Process(started.pid)]:
        process.send_signal(signal.SIGKILL)
    started.wait()
    time.sleep(1)
    record = next(outputs.glob("kioku/*/*/*/units/3-judge/calls.sqlite"))
    return {
        bytes(calls.bodies(record, row)["request"])
        for row in calls.rows(record)
        if row["final"] and row["status"] == 200
    }


def asked(account):
    """The requests of a server's account as the kit's client writes them."""
    return {json.dumps(row["body"], separators=(",", ":"), ensure_ascii=False).encode() for row in account}


# a network namespace of its own in which there is a loopback and nothing else
NO_NETWORK = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"')


def network_can_be_cut_off():
    return (
        bool(shutil.which("unshare") and shutil.which("ip"))
        and subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(
    not network_can_be_cut_off(),
    reason="this machine gives no network namespace (unshare --net): the replay is then tested with the server gone alone",
)
def test_where_the_network_is_cut_off_there_is_a_loopback_and_nothing_else():
    seen = subprocess.run(
        [*NO_NETWORK, "ip", "-o", "link"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(seen) == 1 and " lo: " in seen[0] and "UP" in seen[0]


def damage(record):
    """Change one letter of one recorded request, its key with it."""
    import hashlib
    import sqlite3

    import zstandard

    with sqlite3.connect(record) as database:
        sha, role = database.execute(
            "select request, role from calls where role = 'judge' and unit = 'en-01/raw' limit 1"
        ).fetchone()
        body = calls.body(database, sha).replace(b"You compare a ledger", b"You compare a Ledger")
        new = hashlib.sha256(body).hexdigest()
        database.execute("insert into bodies values (?, ?)", (new, zstandard.compress(body)))
        database.execute(
            "update calls set request = ?, key = ? where request = ?",
            (new, calls.key_of("chat/completions", json.loads(body)), sha),
        )


def look_for_key(parent):
    """The key is in no process's arguments, and in no environment but the command's own and the meter's."""
    own = psutil.Process(parent).cmdline()
    for process in psutil.Process(parent).children(recursive=True):
        try:
            line, environment = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if line == own:  # forked and not yet become what it is started for: for a moment it is the command itself
            continue
        assert KEY not in " ".join(line)
        if "kiokulab.meter" not in line:
            assert KEY not in environment.values(), line


def test_cost_is_estimated_with_its_basis(kit):
    said = kit("cost", "--system", "mem0,store-everything", "--personas", "2")
    assert said.returncode == 0 and "openai/gpt-6-luna" in said.stdout and "basis" in said.stdout, said.stderr


# --- the endpoint goes away -------------------------------------------------------------------------------------


def test_an_endpoint_that_goes_away_ends_the_step_scores_nothing_and_the_step_goes_on_when_it_is_back(judged, baseline):
    server = FaultServer(reply=toy_model.reply)
    gone = {}

    def script(number, body):
        gone["yes"] = gone.get("yes") or number > 3
        return "reset" if gone["yes"] else "ok"

    server.script = script
    with server.running(), pytest.raises(UpstreamDown, match=r"cannot be reached: 5 calls .*en-01/raw"):
        judged(server, concurrency=1)
    asked = len(server.account)
    assert asked <= 3 + 5 * 3  # five calls of three attempts, and then nobody was asked any more
    assert not (judged.folder / "judgements.jsonl").exists() and not list(
        (judged.folder / "units" / "3-judge").glob("*raw.json")
    )
    server.script = "ok"
    with server.running():
        rows = judged(server, concurrency=1)
    assert [verdict_of(row) for row in rows] == [verdict_of(row) for row in baseline]
    answered = [json.dumps(row["body"], sort_keys=True) for row in server.account if row["delivered"]]
    assert len(answered) == len(set(answered))  # what was answered before was not asked again


def test_the_judges_own_measure_ends_at_once_where_the_endpoint_goes_away(judged, monkeypatch, tmp_path):
    """1,200 pairs are not tried one by one against nobody."""
    folder = tmp_path / "set"
    folder.mkdir()
    shutil.copy(SET / "en.jsonl", folder)
    monkeypatch.setattr(judge, "judge_set", lambda: folder)
    server = FaultServer(reply=toy_model.reply)
    server.script = lambda number, body: "reset" if number > 60 else "ok"
    with server.running(), pytest.raises(UpstreamDown, match="cannot be reached"):
        judged(server)
    assert len(server.account) < 60 + 60


def test_a_closed_port_is_given_up_and_tried_again_after_a_while(tmp_path):
    """Nobody listens at all: at first every call has its attempts, then calls are refused at once, then one is let
    through."""
    server = FaultServer()
    with server.running():
        pass

    async def story(path):
        opening = metering.meter.Opening(
            "r", str(path), "live", upstream=server.url, models=["m"], attempts=2, backoff_s=0.0
        )
        run = metering.meter.MeteredRun(opening, None, {}, None)

        async def ask(n):
            return await run.ask(
                "chat/completions",
                f"u{n}",
                "judge",
                json.dumps({"model": "m", "messages": [{"role": "user", "content": str(n)}]}).encode(),
            )

        assert [(await ask(n))[0] for n in range(5)] == [502] * 5 and run.down
        with pytest.raises(metering.meter.Refused) as refused:
            await ask(6)
        assert (refused.value.status, refused.value.kind) == (503, "upstream_down") and run.status()["lost"] == [
            "u0",
            "u1",
            "u2",
            "u3",
            "u4",
            "u6",
        ]
        run._down_until = 0.0
        assert (await ask(7))[0] == 502  # it was let through, once, and found nobody
        with pytest.raises(metering.meter.Refused):
            await ask(8)
        with server.running():
            run._down_until = 0.0
            assert (await ask(9))[0] == (await ask(10))[0] == 200
        assert run.status()["down"] and run.numbers["attempts"] == 5 * 2 + 1 + 2
        await run.close()

    asyncio.run(story(tmp_path / "calls.sqlite"))

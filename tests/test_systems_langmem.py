"""The real LangMem in its own environment: with no model, with the built-in one, and with a scripted one that changes
and deletes."""

import json
import re

import pytest
from scripted_model import serve, tool_call

from kiokulab import meter, systems
from kiokulab.systems.base import Request, Session, SystemFailure, Turn, Unsupported
from kiokulab.systems.contract import FAIL, line_of, run_contract

WHEN = "2023-05-20T10:00:00+09:00"
SESSION = Session(
    "s1", WHEN, (Turn("user", "My dog is called Biscuit. 私の犬の名前はポチです。"), Turn("assistant", "Nice."))
)


@pytest.fixture(scope="module", autouse=True)
def environment(system_environment):
    system_environment("langmem", light=True)


def connect(name, tmp_path, endpoint, settings=None, unit="u1"):
    return systems.connect(name, settings, space=unit, workdir=tmp_path / unit, endpoint=endpoint, when=WHEN)


def test_the_store_alone_keeps_the_contract():
    from test_mem0 import Letters

    checks = run_contract("langmem-store", embedder=Letters())
    assert [line_of(check) for check in checks if check.outcome == FAIL] == []


def test_the_store_keeps_messages_as_they_are_with_their_dates_and_deletes_by_id(tmp_path):
    with serve(lambda body: 500) as (endpoint, asked):
        with connect("langmem-store", tmp_path, endpoint) as memory:
            assert memory.version() == "0.0.30"
            assert memory.ingest(SESSION, WHEN).added == 2
            memory.ingest(Request("r1", WHEN, "lone \ud800 surrogate"), WHEN)
            memory.ingest(Request("r2", WHEN, "My dog is called Biscuit. 私の犬の名前はポチです。"), WHEN)
            before = [(row.id, row.text, row.created) for row in memory.dump()]
            assert before == [
                ("m000001", SESSION.turns[0].text, WHEN), ("m000002", "Nice.", WHEN),
                ("m000003", "lone \ud800 surrogate", WHEN), ("m000004", SESSION.turns[0].text, WHEN),
            ], "the same text twice is two memories"  # fmt: skip
            assert memory.network == [] and asked == [], "no model is asked"
        with connect("langmem-store", tmp_path, endpoint) as memory:
            assert [(row.id, row.text, row.created) for row in memory.dump()] == before, "reopening changes no date"
            with pytest.raises(Unsupported, match="no call that forgets by meaning"):
                memory.forget({"query": "dog"})
            assert memory.forget({"ids": ["m000001"]}) == 1
            memory.ingest(Request("r3", WHEN, "a new one"), WHEN)
            assert [row.id for row in memory.dump()] == ["m000002", "m000003", "m000004", "m000005"], (
                "no number is used twice"
            )
            with pytest.raises(SystemFailure):
                memory.forget({"ids": ["m000001"]})


@pytest.mark.parametrize("name", ["langmem", "langmem-deletes"])
def test_with_the_built_in_model_two_runs_store_and_ask_the_same(name, tmp_path):
    seen = []
    for turn in ("one", "two"):
        record = tmp_path / turn / "calls.sqlite"
        record.parent.mkdir()
        opening = meter.Opening(
            run="t",
            record=str(record),
            mode="embedded",
            upstream="",
            models=["extractive"],
            budget=None,
            spent="0",
            embedder="hash",
            concurrency=2,
        )
        with meter.session(opening) as session:
            endpoint = session.endpoint("u1")
            meter.begin_unit(endpoint)
            with connect(name, tmp_path / turn, endpoint) as memory:
                assert memory.ingest(SESSION, WHEN).added == 2
                assert (
                    memory.ingest(Request("r", WHEN, "Please forget that my dog is called Biscuit."), WHEN).removed == 0
                )
                seen.append([(row.id, row.text, row.created, row.kind) for row in memory.dump()])
    assert seen[0] == seen[1]
    assert [row[1] for row in seen[0]] == [
        "My dog is called Biscuit.",
        "私の犬の名前はポチです。",
        "Please forget that my dog is called Biscuit.",
    ]


def removing(body):
    """Takes what the user says as a memory; asked to forget, it removes the first memory that it is shown."""
    text = json.dumps(body["messages"], ensure_ascii=False)
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", [])}
    if "Please forget" in text and "RemoveDoc" in tools:
        shown = re.findall(r'<instance id=\\?"?([0-9a-f-]{32,36})|id=\\?"?([0-9a-f-]{32,36})', text)
        return tool_call("RemoveDoc", json_doc_id=next(filter(None, shown[0])))
    return tool_call("Memory", content="The dog is called Biscuit.")


def test_only_the_arm_with_deletes_can_take_a_memory_away(tmp_path):
    for name, left in (("langmem", 2), ("langmem-deletes", 0)):
        with serve(removing) as (endpoint, _), connect(name, tmp_path, endpoint, unit=name) as memory:
            memory.ingest(SESSION, WHEN)
            assert [row.text for row in memory.dump()] == ["The dog is called Biscuit."]
            told = memory.ingest(Request("r", WHEN, "Please forget that my dog is called Biscuit."), WHEN)
            assert (len(memory.dump()), told.removed) == (left, 0 if left else 1)


def test_a_model_that_is_down_is_a_failure_and_never_an_empty_success(tmp_path):
    with serve(lambda body: 500) as (endpoint, _), connect("langmem", tmp_path, endpoint) as memory:
        with pytest.raises(SystemFailure):
            memory.ingest(SESSION, WHEN)
        assert memory.dump() == []


def test_settings_reach_the_system_and_unknown_ones_are_refused():
    assert systems.describe("langmem-deletes")["settings"] == {"query_limit": 5, "enable_deletes": True}
    assert systems.describe("langmem")["settings"]["enable_deletes"] is False
    assert systems.describe("langmem-store")["model"] == "none" and systems.describe("langmem")["model"] == "required"

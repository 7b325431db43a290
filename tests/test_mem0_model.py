"""The real Mem0 with its own extraction (infer=True): by the built-in model, and by one that goes wrong in every
way."""

import json
import os
from contextlib import contextmanager

import pytest
import toy_model
from fault_server import FaultServer, once_each

from kiokulab import calls, embed, meter, systems
from kiokulab.systems import environments
from kiokulab.systems.base import Session, SystemFailure, Turn

WHEN = "2023-05-20T10:00:00+09:00"


@pytest.fixture(scope="module", autouse=True)
def environment():
    environments.ensure("mem0")


@pytest.fixture(scope="module")
def server():
    with FaultServer(reply=toy_model.reply, slow_s=1.5).running() as one:
        yield one


@pytest.fixture(scope="module")
def held(server, tmp_path_factory):
    """One Mem0 that stays open, and the record of its calls."""
    folder = tmp_path_factory.mktemp("mem0")
    with meter.process([server.host], {**os.environ, meter.ANY_KEY: "sk-fake-0123456789abcdefghijklmnop"}) as base:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(meter.METER, base)
            opening = meter.Opening(
                "r",
                str(folder / "calls.sqlite"),
                "live",
                server.url,
                ["toy"],
                embedder="hash",
                backoff_s=0.01,
                read_s=0.6,
                attempts=3,
            )
            with meter.session(opening) as session:
                with systems.connect(
                    "mem0",
                    space="en-01/raw",
                    workdir=folder / "unit",
                    endpoint=session.endpoint("en-01/raw"),
                    when=WHEN,
                ) as memory:
                    yield memory, session


def tell(memory, name, *texts):
    turns = tuple(turn for text in texts for turn in (Turn("user", text), Turn("assistant", "I see, my friend.")))
    return memory.ingest(Session(name, WHEN, turns), WHEN)


def texts(memory):
    return {row.text for row in memory.dump()}


def test_facts_are_taken_out_and_dated(held, server):
    memory, _ = held
    server.script = "ok"
    told = tell(memory, "s01", "My dog is called Biscuit.", "What is the weather?")
    assert (
        told.added == 1
        and "My dog is called Biscuit." in texts(memory)
        and memory.dump()[0].created.startswith("2023-05-20")
    )


@pytest.mark.parametrize(
    "fault",
    [
        "429",
        "500",
        "503",
        "reset",
        "slow_first_byte",
        "stalled",
        "cut_body",
        "error_in_200",
        "code_fence",
        "duplicate",
        "usage_missing",
        "cached_tokens",
    ],
)
def test_a_fault_of_the_wire_costs_no_memory(held, server, fault):
    memory, _ = held
    server.script = once_each(fault)
    assert tell(memory, f"s-{fault}", f"My {fault} number is seven.").added == 1


@pytest.mark.parametrize("fault", ["truncated_json", "incorrect_word", "yesterday", "iie"])
def test_what_mem0_swallows_is_counted_as_a_warning(held, server, fault):
    memory, _ = held
    server.script = fault
    before = len(memory.warnings)
    told = tell(memory, f"t-{fault}", f"My {fault} number is eight.")
    assert told.added == 0 and any("arsing extraction" in line for line in told.warnings), told
    assert len(memory.warnings) > before and f"My {fault} number is eight." not in texts(memory)


@pytest.mark.parametrize(
    "fault", ["content_null", "empty", "refusal", "content_filter", "wrong_schema", "correct_false"]
)
def test_what_holds_no_memory_adds_none_is_counted_and_the_record_says_why(held, server, fault):
    """Mem0 itself is silent about these: None, an empty text and JSON of another kind are to it "nothing to
    remember"."""
    memory, _ = held
    server.script = fault
    told = tell(memory, f"u-{fault}", f"My {fault} number is nine.")
    assert told.added == 0 and [line.split(":")[0] for line in told.warnings] == ["SWALLOWED mem0"]
    assert server.account[-1]["fault"] == fault and server.account[-1]["delivered"]


def test_a_reply_that_says_there_is_nothing_is_no_complaint(held, server):
    memory, _ = held
    server.script = "ok"
    told = tell(memory, "w01", "What is the weather?")
    assert told.added == 0 and not told.warnings


def test_a_model_that_cannot_be_reached_fails_the_call(held, server):
    memory, _ = held
    server.script = "500"
    with pytest.raises(SystemFailure, match="LLM"):
        tell(memory, "v01", "My number is ten.")


def test_offline_by_the_built_in_model(tmp_path, monkeypatch):
    monkeypatch.delenv(meter.METER, raising=False)

    @contextmanager
    def unit(name):
        opening = meter.Opening(
            name, str(tmp_path / f"{name}.sqlite"), "embedded", models=["extractive"], embedder="hash"
        )
        with meter.session(opening) as session:
            with systems.connect(
                "mem0", space="ja-01/raw", workdir=tmp_path / name, endpoint=session.endpoint("ja-01/raw"), when=WHEN
            ) as memory:
                yield memory

    found = []
    for name in ("one", "two"):
        with unit(name) as memory:
            tell(memory, "s01", "温泉は黒川が一番好きです。明日は晴れますか。", "I swim on Mondays.")
            tell(memory, "s02", "温泉のことは忘れてください。")
            found.append([(row.id, row.text, row.created) for row in memory.dump()])
    assert found[0] == found[1] and [text for _, text, _ in found[0]] == [
        "温泉は黒川が一番好きです。",
        "I swim on Mondays.",
        "温泉のことは忘れてください。",
    ]
    asked = [
        json.loads(calls.bodies(tmp_path / "one.sqlite", row)["request"]) for row in calls.rows(tmp_path / "one.sqlite")
    ]
    assert (
        len(asked) == 2 and asked[0]["max_tokens"] == 16000 and asked[0]["response_format"] == {"type": "json_object"}
    )


def test_without_a_model_it_does_not_open(tmp_path):
    with (
        meter.serve_embeddings(embed.get("hash")) as running,
        pytest.raises(SystemFailure, match="needs a language model"),
    ):
        with systems.connect("mem0", space="u", workdir=tmp_path, endpoint=running.endpoint("u"), when=WHEN):
            pass

"""A command-line agent with a folder of notes, by a file of settings; a stand-in agent plays it."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml
from scripted_model import serve

from kiokulab import params, run, systems
from kiokulab.errors import InputError
from kiokulab.systems.base import Request, Session, SystemFailure, Turn, Unsupported
from kiokulab.systems.contract import FAIL, line_of, run_contract

WHEN = "2023-05-20T10:00:00+09:00"
STUB = str(Path(__file__).parent / "fixtures" / "systems" / "agent_stub.py")
SESSION = Session("s1", WHEN, (Turn("user", "My dog is called Biscuit. 犬"), Turn("assistant", "Nice.")))


@pytest.fixture
def described(tmp_path):
    def write(**changes):
        found = {
            "command": [sys.executable, STUB, "take"], "ask": [sys.executable, STUB, "ask"], "clean_up": [sys.executable, STUB, "tidy"],
            "folder": "work/notes", "version": "stub 1", **changes,
        }  # fmt: skip
        (tmp_path / "agent.yml").write_text(yaml.safe_dump(found), encoding="utf-8")
        return f"agent:{tmp_path / 'agent.yml'}"

    return write


def test_its_notes_are_listed_line_by_line_with_the_file_they_lie_in(described, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_USER", "x")
    with systems.connect(described(), space="u", workdir=tmp_path / "u") as memory:
        assert memory.version() == "stub 1" and memory.dump() == []
        assert memory.ingest(SESSION, WHEN).warnings == []
        assert [(row.id, row.text, row.source) for row in memory.dump()] == [
            ("memory.md:00001", "user: My dog is called Biscuit. 犬", "work/notes/memory.md"),
            ("memory.md:00002", "assistant: Nice.", "work/notes/memory.md"),
        ]
        assert memory.ingest(Request("r", WHEN, "nothing, agent"), WHEN).warnings == [
            "the agent ended well and changed no note"
        ]
        assert "Biscuit" in memory.search("dog?", 5).shown
        memory.clean_up()
        assert [row.text for row in memory.dump()] == ["assistant: Nice.", "user: My dog is called Biscuit. 犬"]
        with pytest.raises(SystemFailure, match="(?s)ended with 1.*it failed"):
            memory.ingest(Request("r", WHEN, "fail, agent"), WHEN)
        memory.reset()
        assert memory.dump() == []


def test_it_keeps_the_contract(described):
    checks = run_contract(described(), items=20)
    assert [line_of(check) for check in checks if check.outcome == FAIL] == []


def test_an_agent_that_is_not_there_or_late_is_a_failure(described, tmp_path):
    late = [sys.executable, "-c", "import time; time.sleep(60)"]
    for number, (changes, kind) in enumerate(
        [({"command": ["/no/such/agent"]}, "not_installed"), ({"command": late, "timeout_s": 1}, "timeout")]
    ):
        with systems.connect(described(**changes), space="u", workdir=tmp_path / str(number)) as memory:
            with pytest.raises(SystemFailure) as caught:
                memory.ingest(SESSION, WHEN)
            assert caught.value.kind == kind


def test_other_settings_are_another_run_and_the_same_ones_the_same(described):
    one = systems.describe(described())["source_digest"]
    assert (
        systems.describe(described())["source_digest"]
        == one
        != systems.describe(described(version="stub 2"))["source_digest"]
    )


def test_an_agent_that_asks_the_runs_model_is_given_its_endpoint_and_its_name(described, tmp_path):
    name = described(
        command=[
            sys.executable,
            "-c",
            "import sys; open('notes.md', 'a').write(' '.join(sys.argv[1:]))",
            "{endpoint}",
            "{model}",
        ],
        folder="work",
        model="required",
    )
    assert systems.describe(name)["model"] == "required"
    with pytest.raises(SystemFailure, match="this run has none"):
        with systems.connect(name, space="u", workdir=tmp_path / "none"):
            pass
    with serve(lambda body: 500, model="scripted") as (endpoint, _):
        with systems.connect(name, space="u", workdir=tmp_path / "u", endpoint=endpoint) as memory:
            memory.ingest(SESSION, WHEN)
            assert memory.dump()[0].text == f"{endpoint} scripted"


@pytest.mark.skipif(
    "byterover" not in os.environ.get("KIOKULAB_TEST_SYSTEMS", ""), reason="a minute: make test-systems"
)
def test_a_whole_run_of_the_kioku_track_with_a_stand_in_agent(described, tmp_path, monkeypatch):
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(tmp_path / "outputs"))
    base = params.KiokuParams.checked({"personas": 1, "bootstrap": 100})
    (made,) = run.run_track(base, [described()])  # without the anchors that the command adds: three runs more
    assert made.error is None, made.error
    receipt = made.folder / "receipt.json"
    found = json.loads((receipt.parent / "metrics.json").read_text())
    told = json.loads(receipt.read_text())
    assert told["status"] == "finished" and "stub 1" in json.dumps(told) and told["system"].startswith("agent:")
    assert found["beyond"]["residue"]["forgotten"]["kinds"], "its notes keep what it was asked to forget"
    assert (receipt.parent / "report.html").is_file()


def test_only_what_is_named_of_the_environment_reaches_it(described, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", "k")
    monkeypatch.setenv("OTHER_KEY", "o")
    show = [
        sys.executable,
        "-c",
        "import os; print(os.environ.get('AGENT_KEY'), os.environ.get('OTHER_KEY'), os.environ['HOME'])",
    ]
    with systems.connect(described(ask=show, environment=["AGENT_KEY"]), space="u", workdir=tmp_path / "u") as memory:
        said = memory.search("?", 1).shown.split()
    assert said == ["k", "None", os.path.join(str(tmp_path), "u", "store", "home")]


def test_without_a_way_to_ask_search_is_not_applicable(described, tmp_path):
    name = described(ask=[], clean_up=[])
    assert systems.describe(name)["capabilities"] == ["reset"]
    with systems.connect(name, space="u", workdir=tmp_path / "u") as memory, pytest.raises(Unsupported):
        memory.search("x", 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"folder": "../.."},
        {"folder": "/etc"},
        {"command": "rm -rf"},
        {"feeds": "week"},
        {"model": "yes"},
        {"colour": 1},
    ],
)
def test_settings_that_cannot_be_are_refused(described, changes):
    with pytest.raises(InputError):
        systems.describe(described(**changes))

"""ByteRover: its files read layer by layer, the stand-in agent, and, where its environment is there, the real daemon
offline."""

import json
import urllib.request

import pytest
from scripted_model import serve, tool_call

from kiokulab import systems
from kiokulab.systems import byterover, environments
from kiokulab.systems.base import Request, Session, SystemFailure, Turn

WHEN = "2023-05-20T10:00:00+00:00"

MEMORY = """---
title: Swim
summary: >-
  The user swims
  on Tuesdays.
tags: []
related: []
keywords:
  - swim
createdAt: '2026-11-30T03:21:29.674Z'
updatedAt: '2026-11-30T03:21:30.806Z'
---
## Reason
The user said so.

## Raw Concept
**Task:**
Keep the swimming times

**Changes:**
- Recorded swim at 6 pm
- Swim moved from 6 pm to 6:30 pm

**Timestamp:** 2026-11-30

## Narrative
### Highlights
Swims on Tuesdays at 6:30 pm.
### Rules
- Never on Sundays.

## Facts
- **swim**: I swim at 6:30 pm. [personal]
- plain fact

---

a snippet
"""


def test_a_memory_file_is_read_layer_by_layer():
    rows = byterover.parts_of("person/swim.md", MEMORY)
    assert [(kind, text) for kind, text, _ in rows] == [
        ("title", "Swim"), ("summary", "The user swims on Tuesdays."), ("reason", "The user said so."),
        ("task", "Keep the swimming times"), ("change log", "Recorded swim at 6 pm"),
        ("change log", "Swim moved from 6 pm to 6:30 pm"), ("narrative", "Swims on Tuesdays at 6:30 pm."),
        ("narrative", "Never on Sundays."), ("fact", "I swim at 6:30 pm."), ("fact", "plain fact"), ("fact", "a snippet"),
    ]  # fmt: skip
    layers = {kind: byterover.LAYER.get(kind, "live") for kind, *_ in rows}
    assert (
        layers["fact"] == "live"
        and layers["change log"] == "retired"
        and layers["narrative"] == layers["summary"] == "derived"
    )


def test_an_index_keeps_what_it_says_and_not_its_bookkeeping():
    index = "---\nchildren_hash: abc\ntype: summary\n---\n# swim.md\ntitle: Swim\nsummary: ''\ncreatedAt: '2026'\n## Facts\n- **swim**: I swim at 6 pm. [personal]\n[summary compaction; truncated from 9 tokens]\nThe user likes tea."
    assert byterover.parts_of("person/_index.md", index) == [
        ("index", "I swim at 6 pm.", ""),
        ("index", "The user likes tea.", ""),
    ]
    assert byterover.parts_of("a/b.abstract.md", "Likes tea.\n") == [("abstract", "Likes tea.", "")]
    assert byterover.parts_of("a/b.overview.md", "") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "---\n---\n",
        "no front\n\x00\u202e<script>",
        "---\nkey\n---\n## Facts\n-\n- \n",
        "## Facts\n" + "x" * 100_000,
    ],
)
def test_odd_files_are_read_without_loss_of_text(text):
    assert all(part for _, part, _ in byterover.parts_of("a/b.md", text))
    if "script" in text:
        assert "<script>" in str(byterover.parts_of("a/b.md", text))


def test_the_stand_in_agent_replaces_what_is_alike_and_adds_the_rest():
    facts = [("person/notes/note_1.md", "note 1", "I swim every Tuesday at 6 pm.")]
    made = byterover.operations(
        ["I swim every Tuesday at 6:30 pm.", "私の犬の名前はポチです。", "I swim every Tuesday at 6 pm."], facts
    )
    assert [(op["type"], op["path"], op["content"]["rawConcept"]["changes"]) for op in made] == [
        ("UPDATE", "person/notes", ["I swim every Tuesday at 6 pm. -> I swim every Tuesday at 6:30 pm."]),
        ("ADD", "person/notes", ["Recorded: 私の犬の名前はポチです。"]),
    ], "and what is stored already is left alone"
    assert made == byterover.operations(
        ["I swim every Tuesday at 6:30 pm.", "私の犬の名前はポチです。", "I swim every Tuesday at 6 pm."], facts
    )


def test_the_relay_answers_the_sign_in_service_and_passes_failures_on():
    with serve(lambda body: 503, model="extractive") as (endpoint, _):
        relay = byterover._Relay(endpoint, lambda: [])
        try:
            with urllib.request.urlopen(relay.base + byterover.DISCOVERY) as answer:
                assert json.load(answer)["issuer"] == relay.base
            relay.curating("I like tea.")
            status, _, _ = relay.chat(
                json.dumps(
                    {
                        "model": "extractive",
                        "messages": [{"role": "user", "content": "x"}],
                        "tools": [{"function": {"name": "code_exec"}}],
                    }
                ).encode()
            )
            assert status == 503
        finally:
            relay.close()


def test_the_lock_names_what_npm_installs_and_says_the_licence_first(tmp_path, monkeypatch):
    lock = environments.lock_of("byterover")
    assert environments.npm_packages(lock) == ["byterover-cli@3.14.0"]
    assert systems.describe("byterover")["version"] == "3.14.0"
    monkeypatch.setenv("KIOKULAB_ENVS", str(tmp_path))
    monkeypatch.setattr(environments.shutil, "which", lambda name, **_: None)
    said = []
    with pytest.raises(environments.InputError, match="npm was not found"):
        environments.ensure("byterover", said.append)
    assert "Elastic License 2.0" in said[0] and not (tmp_path / "byterover").exists()


def test_it_is_found_by_the_name_that_people_type():
    assert systems.resolve("bytrover").name == "byterover"


# --- the real one ---------------------------------------------------------------------------------------------------


@pytest.fixture
def real(system_environment):
    system_environment("byterover")


def connect(tmp_path, endpoint, unit="u1", **settings):
    return systems.connect("byterover", settings, space=unit, workdir=tmp_path / unit, endpoint=endpoint, when=WHEN)


told_now = {
    "text": ""
}  # ByteRover's prompt names a variable of its sandbox, in which the text is: the prompt does not hold it


def tell(memory, item):
    told_now["text"] = item.text if isinstance(item, Request) else item.turns[0].text
    return memory.ingest(item, WHEN)


def agent(body):
    """Plays the agent: what is curated decides one operation."""
    names = {tool["function"]["name"] for tool in body.get("tools") or []}
    text = told_now["text"]
    if "code_exec" not in names or any(message["role"] == "tool" for message in body["messages"]):
        return {"role": "assistant", "content": "Done."}
    if "do nothing" in text:
        return tool_call(
            "code_exec", code="await tools.curate([])"
        )  # not in a function: ByteRover reports success and does nothing
    operation = {"path": "person/sport", "title": "swim", "reason": "said", "confidence": "high", "impact": "low"}
    concept = {"task": "times"}
    if "forget my swimming" in text:
        operation |= {"type": "DELETE"}
    elif "6:30" in text:
        operation |= {
            "type": "UPDATE",
            "content": {
                "facts": [{"statement": "Swims at 6:30 pm.", "subject": "swim"}],
                "rawConcept": {**concept, "changes": ["Swim moved from 6 pm to 6:30 pm"]},
            },
        }
    else:
        operation |= {
            "type": "ADD",
            "content": {
                "facts": [{"statement": "Swims at 6 pm.", "subject": "swim"}],
                "rawConcept": {**concept, "changes": ["Recorded swim at 6 pm"]},
            },
        }
    return tool_call("code_exec", code=f"(async () => {{ return await tools.curate([{json.dumps(operation)}]); }})()")


def test_the_real_one_offline_changes_forgets_and_keeps_old_versions_in_its_change_log(real, tmp_path):
    def rows(memory, kind):
        return [row.text for row in memory.dump() if row.kind == kind]

    with serve(agent) as (endpoint, asked):
        with connect(tmp_path, endpoint) as memory:
            assert memory.version() == "3.14.0" and memory.dump() == []
            told = tell(
                memory, Session("s1", WHEN, (Turn("user", "2023-05-20. I swim at 6 pm."), Turn("assistant", "Good.")))
            )
            assert (told.added, told.warnings) == (1, []) and rows(memory, "fact") == ["Swims at 6 pm."]
            told = tell(memory, Request("r1", WHEN, "I swim at 6:30 pm now."))
            assert told.changed == 1 and rows(memory, "fact") == ["Swims at 6:30 pm."]
            assert rows(memory, "change log") == ["Recorded swim at 6 pm", "Swim moved from 6 pm to 6:30 pm"]
            told = tell(memory, Request("r2", WHEN, "do nothing"))
            assert told.warnings == ["curate reported success and did nothing"]
            memory.settle(60)
            memory.clean_up()
            before = len(asked)
            assert memory.search("When do I swim?", 5).shown.startswith("Done."), "the model's answer"
            assert "Swims at 6:30 pm." in json.dumps(asked[before:]), "which was shown what ByteRover found"
        with connect(tmp_path, endpoint, reading="search") as memory:
            found = memory.search("swim", 5).hits
            assert len(found) == 1 and "6:30" in found[0].text and found[0].score > 0
            assert rows(memory, "fact") == ["Swims at 6:30 pm."], "opened again"
            told = tell(memory, Request("r3", WHEN, "Please forget my swimming."))
            assert told.removed == 1 and rows(memory, "fact") == []
            memory.clean_up()
            assert "6" not in "".join(row.text for row in memory.dump())
            assert memory.network == [], "no Node process tried to leave this machine"
    assert asked and all(body["model"] == "scripted" for body in asked)
    assert not list((tmp_path / "u1" / "store" / "project" / ".brv").glob("review-backups/**/*.md"))


def test_a_model_that_is_down_is_a_failure_or_a_warning_and_never_a_silent_success(real, tmp_path):
    with serve(lambda body: 500) as (endpoint, _), connect(tmp_path, endpoint, curate_timeout_s=120) as memory:
        try:
            told = tell(memory, Request("r1", WHEN, "I swim at 6 pm."))
        except SystemFailure:
            return
        assert told.warnings and not told.added

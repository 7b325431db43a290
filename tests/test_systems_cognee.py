"""cognee in its own environment, without a language model and with one. Minutes, so the real one only where
KIOKULAB_TEST_SYSTEMS names it."""

import json

import pytest
from scripted_model import serve

from kiokulab import extractive, systems
from kiokulab.systems import cognee
from kiokulab.systems.base import Request, Session, SystemFailure, Turn, Unsupported

WHEN = "2023-05-20T10:00:00+09:00"
SESSION = Session(
    "s1",
    WHEN,
    (Turn("user", "2023-05-20. My dog is called Biscuit. 私の犬の名前はポチです。"), Turn("assistant", "Nice.")),
)


@pytest.fixture
def environment(system_environment):
    system_environment("cognee")


def connect(tmp_path, endpoint, unit="u1", name="cognee-chunks"):
    return systems.connect(name, space=unit, workdir=tmp_path / unit, endpoint=endpoint, when=WHEN)


def test_what_its_graph_says_is_listed_once_each_and_its_scaffold_is_not():
    nodes = [
        {"id": "d", "type": "TextDocument", "name": "text_1"}, {"id": "c", "type": "DocumentChunk", "text": "A chunk."},
        {"id": "s", "type": "TextSummary", "text": "A summary."}, {"id": "k", "type": "EntityType", "name": "person"},
        {"id": "e1", "type": "Entity", "name": "alice", "description": "Works at Acme."}, {"id": "e2", "type": "Entity", "name": "acme", "description": ""},
        {"id": "e3", "type": "Entity", "name": "my dog is miso.", "description": "My dog is Miso."},
    ]  # fmt: skip
    edges = [
        ("e1", "e2", "works_at", {"edge_text": "Alice works at Acme since 2019."}), ("e2", "e1", "employs", {}),
        ("e1", "e2", "works_at", {"edge_text": "Alice works at Acme since 2019."}), ("c", "e1", "contains", {"edge_text": "A chunk contains alice."}),
        ("e1", "k", "is_a", {"edge_text": "alice is a person."}),
    ]  # fmt: skip
    assert cognee.derived(nodes, edges) == {
        ("summary", "A summary."), ("entity", "alice: Works at Acme."), ("entity", "acme"), ("entity", "My dog is Miso."),
        ("relation", "Alice works at Acme since 2019."), ("relation", "employs"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [
        "a",
        ["a"],
        {"search_result": ["a"]},
        [{"search_result": [{"text": "a"}]}],
        type("Row", (), {"search_result": ["a"]})(),
    ],
)
def test_the_texts_of_a_search_in_whatever_form_it_gives_them(found):
    assert cognee._texts(found) == ["a"]


def test_both_say_what_they_are():
    said, chunks = systems.describe("cognee"), systems.describe("cognee-chunks")
    assert (said["model"], chunks["model"]) == ("required", "none") and said["version"] == chunks["version"] == "1.6.5"
    assert said["settings"] == {"chunk_size": 512, "reading": "chunks"} and "cognee" not in systems.NOT_BUILT


def test_with_a_model_its_graph_is_made_over_a_restart_and_apart_from_other_units(environment, tmp_path):
    built_in = lambda body: json.loads(extractive.answer(body)[0])["choices"][0]["message"]  # noqa: E731
    with serve(built_in) as (endpoint, asked):
        with connect(tmp_path, endpoint, name="cognee") as memory:
            memory.ingest(SESSION, WHEN)
            memory.settle(300)
            kept = memory.dump()
            assert [(row.layer, row.kind) for row in kept if row.layer == "live"] == [
                ("live", "chunk")
            ] and "2023-05-20" in kept[0].text
            assert {row.text for row in kept if row.kind == "relation"} == {
                "My dog is called Biscuit.",
                "私の犬の名前はポチです。",
            }
            assert {row.layer for row in kept if row.kind != "chunk"} == {"derived"} and "summary" in {
                row.kind for row in kept
            }
            assert len(asked) == 2, "its graph and its summary"
        with connect(tmp_path, endpoint, name="cognee") as memory, connect(tmp_path, endpoint, "u2", "cognee") as other:
            assert memory.dump() == kept and other.dump() == []
            assert "Biscuit" not in (tmp_path / "u1" / "store" / "documents.json").read_text(), (
                "residue at rest is cognee's, and none of the adapter's"
            )
            other.ingest(Request("r", WHEN, "My canary sings 99881 songs."), WHEN)
            other.settle(300)
            memory.reset()
            assert memory.dump() == [] and "99881" in other.dump()[0].text
            assert memory.network == [] and other.network == []


def test_faults_of_the_model_are_failures_and_never_an_empty_success(environment, tmp_path):
    fault = {}

    def model(body):
        return fault.get("is") or json.loads(extractive.answer(body)[0])["choices"][0]["message"]

    with serve(model) as (endpoint, asked), connect(tmp_path, endpoint, name="cognee") as memory:
        for broken in (500, {"role": "assistant", "content": '{"nodes": [{"id": "a'}):
            fault["is"], before = broken, len(asked)
            memory.ingest(Request("r", WHEN, f"I planted {len(asked)} tulips."), WHEN)
            with pytest.raises(SystemFailure):
                memory.settle(300)
            assert memory.dump() == [] and len(asked) > before
        fault.clear()
        memory.ingest(SESSION, WHEN)
        memory.settle(300)
        assert len([row for row in memory.dump() if row.kind == "chunk"]) == 3, (
            "what failed is taken along by the next run"
        )


def test_documents_are_kept_as_chunks_over_a_restart_and_apart_from_other_units(environment, tmp_path):
    with serve(lambda body: 500) as (endpoint, asked):
        with connect(tmp_path, endpoint) as memory:
            assert memory.version() == "1.6.5" and memory.dump() == [] and memory.search("x", 3).hits == []
            memory.ingest(SESSION, WHEN)
            memory.ingest(Request("r", WHEN, "Please forget that my dog is called Biscuit."), WHEN)
            memory.settle(300)
            texts = [row.text for row in memory.dump()]
            assert texts == [
                "user: 2023-05-20. My dog is called Biscuit. 私の犬の名前はポチです。\nassistant: Nice.",
                "Please forget that my dog is called Biscuit.",
            ]
            assert len(memory.search("dog", 1).hits) == 1 and len(memory.search("dog", 9).hits) == 2
            with pytest.raises(Unsupported):
                memory.forget({"query": "dog"})
        with connect(tmp_path, endpoint) as memory, connect(tmp_path, endpoint, "u2") as other:
            assert [row.text for row in memory.dump()] == texts and other.dump() == []
            other.ingest(Request("r", WHEN, "A canary sings."), WHEN)
            other.settle(300)
            memory.reset()
            assert memory.dump() == [] and [row.text for row in other.dump()] == ["A canary sings."]
            memory.ingest(Request("r", WHEN, "Planted tulips."), WHEN)
            assert [row.text for row in memory.dump()] == ["Planted tulips."], "it can be used again"
            assert memory.network == [] and other.network == []
    assert asked == [], "no model is asked"

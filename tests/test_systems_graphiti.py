"""Graphiti on Kuzu: how the built-in model's sentences are put into its forms, and, where KIOKULAB_TEST_SYSTEMS names
it, the real graph."""

import pytest

from kiokulab import meter, systems
from kiokulab.systems import contract, graphiti
from kiokulab.systems.base import Request, SystemFailure, Turn, Utterance

WHEN, LATER = "2023-05-20T10:00:00+09:00", "2023-06-20T10:00:00+09:00"
DEDUPLICATE = """
<EXISTING FACTS>
[{'idx': 0, 'fact': 'I swim every Tuesday at 6 pm.'}, {'idx': 1, 'fact': "My dog's name is Biscuit."}]
</EXISTING FACTS>

<FACT INVALIDATION CANDIDATES>
[{'idx': 2, 'fact': 'I swim every Tuesday at 5 pm.'}]
</FACT INVALIDATION CANDIDATES>

<NEW FACT>
I swim every Tuesday at 6 pm.
</NEW FACT>
"""


def test_the_same_words_are_a_duplicate_and_half_of_them_a_contradiction():
    assert graphiti.filled_in("EdgeDuplicate", DEDUPLICATE, [], WHEN) == {
        "duplicate_facts": [0],
        "contradicted_facts": [2],
    }


def test_a_duplicate_is_never_taken_from_the_candidates_for_invalidation():
    prompt = DEDUPLICATE.replace(
        "<NEW FACT>\nI swim every Tuesday at 6 pm.", "<NEW FACT>\nI swim every Tuesday at 5 pm."
    )
    assert graphiti.filled_in("EdgeDuplicate", prompt, [], WHEN) == {"duplicate_facts": [], "contradicted_facts": [0]}


def test_each_sentence_is_a_fact_with_the_date_and_entities_are_found_again():
    made = graphiti.filled_in("ExtractedEdges", "", ["I like tea.", "犬を飼っています。"], WHEN)["edges"]
    assert [edge["fact"] for edge in made] == ["I like tea.", "犬を飼っています。"] and {
        edge["valid_at"] for edge in made
    } == {WHEN}
    prompt = f'<ENTITIES>\n[{{"id": 0, "name": "{graphiti.SPEAKER}"}}, {{"id": 1, "name": "{graphiti.TOLD}"}}]\n</ENTITIES>\n<EXISTING ENTITIES>\n[{{"candidate_id": 7, "name": "{graphiti.TOLD}"}}]\n</EXISTING ENTITIES>'
    rows = graphiti.filled_in("NodeResolutions", prompt, [], WHEN)["entity_resolutions"]
    assert [row["duplicate_candidate_id"] for row in rows] == [-1, 7]


def test_a_form_that_is_not_known_is_a_failure_and_not_an_empty_answer():
    with pytest.raises(ValueError, match="'SomethingNew'"):
        graphiti.filled_in("SomethingNew", "", [], WHEN)


# --- with its environment -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(system_environment):
    return system_environment("graphiti")


@pytest.fixture(scope="module")
def endpoint(real, tmp_path_factory):
    opening = meter.Opening(
        run="g",
        record=str(tmp_path_factory.mktemp("g") / "calls.sqlite"),
        mode="embedded",
        models=["extractive"],
        embedder="use",
    )
    with meter.session(opening) as session:
        yield session


def tell(memory, number, text, when=WHEN, role="user"):
    return memory.ingest(Utterance(f"u{number}", when, Turn(role, text)), when)


def test_a_new_value_ends_the_old_fact_and_both_are_listed_with_their_dates(endpoint, tmp_path):
    with systems.connect(
        "graphiti", space="en-01/raw", workdir=tmp_path, endpoint=endpoint.endpoint("one"), when=WHEN
    ) as memory:
        assert tell(memory, 1, "I swim every Tuesday at 6 pm.").added == 1
        told = tell(memory, 2, "I swim every Tuesday at 6:30 pm.", LATER)
        assert (told.added, told.removed) == (1, 1)
        assert tell(memory, 3, "I see, my friend.", LATER, role="assistant").added == 0
        facts = {row.text: row for row in memory.dump() if row.kind == "fact"}
        old, new = facts["I swim every Tuesday at 6 pm."], facts["I swim every Tuesday at 6:30 pm."]
        assert (
            (old.layer, new.layer) == ("retired", "live")
            and old.created.startswith("2023-05-20T01:00")
            and old.valid_to.startswith("2023-06-20")
        )
        assert {row.layer for row in memory.dump() if row.kind == "episode"} == {"log"}
        assert any("6:30" in hit.text for hit in memory.search("When do I swim?", 5, LATER).hits), (
            "its question mark is no wildcard"
        )
        assert not memory.network
    with systems.connect(
        "graphiti", space="en-01/raw", workdir=tmp_path, endpoint=endpoint.endpoint("one"), when=WHEN
    ) as memory:
        assert {row.text for row in memory.dump() if row.kind == "fact"} == set(facts)
        tell(memory, 4, "My sister is called Emma.", LATER)
        assert max(row.id for row in memory.dump() if row.kind == "episode") == "episode-000004", (
            "numbers go on after a restart"
        )


def test_episodes_alone_keep_every_utterance_and_ask_nobody(real, tmp_path):
    with systems.connect("graphiti-episodes", space="p-1", workdir=tmp_path, when=WHEN) as memory:
        for number, text in enumerate(
            ["My dog is called Biscuit.", "<b>\u202e & 'quotes' \"too\" \\ {x}", "私の犬の名前はポチです。"]
        ):
            assert tell(memory, number, text).added == 1
        memory.ingest(Request("r", WHEN, "Please forget my dog."), WHEN)
        assert [row.text for row in memory.dump()][1] == "<b>\u202e & 'quotes' \"too\" \\ {x}" and len(
            memory.dump()
        ) == 4
        assert [hit.text for hit in memory.search("What is my dog called?", 1).hits] == ["My dog is called Biscuit."]
        assert memory.search("", 5).hits == [] and memory.search("zzz", 5).hits == []
        with pytest.raises(SystemFailure, match="no item of the contract"):
            memory.ingest(42, WHEN)


@pytest.mark.parametrize("name", ["graphiti", "graphiti-episodes"])
def test_it_keeps_the_contract(real, name, monkeypatch):
    # each broken answer is asked for four times with growing pauses: a minute a fault, tried by make contract
    monkeypatch.setattr(
        contract,
        "CHECKS",
        tuple(
            pair
            for pair in contract.CHECKS
            if pair[0]
            not in ("bad JSON of the model is told of", "a model that is down is an error", "silent no-ops are counted")
        ),
    )
    checks = contract.run_contract(name, items=12)
    assert not [check for check in checks if check.outcome == contract.FAIL]

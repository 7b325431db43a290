"""The real cognee in its own environment, without a language model. Minutes, so only where KIOKULAB_TEST_SYSTEMS names it."""

import pytest
from scripted_model import serve

from kiokulab import systems
from kiokulab.systems.base import Request, Session, Turn, Unsupported

WHEN = "2023-05-20T10:00:00+09:00"
SESSION = Session(
    "s1",
    WHEN,
    (Turn("user", "2023-05-20. My dog is called Biscuit. 私の犬の名前はポチです。"), Turn("assistant", "Nice.")),
)


@pytest.fixture(scope="module", autouse=True)
def environment(system_environment):
    system_environment("cognee")


def connect(tmp_path, endpoint, unit="u1"):
    return systems.connect("cognee-chunks", space=unit, workdir=tmp_path / unit, endpoint=endpoint, when=WHEN)


def test_documents_are_kept_as_chunks_over_a_restart_and_apart_from_other_units(tmp_path):
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

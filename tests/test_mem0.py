"""The real Mem0 in its own environment, through the worker: the traps that its users reported, one test each."""

import json
import sqlite3
import threading
from contextlib import contextmanager

import numpy
import pytest

from kiokulab import systems
from kiokulab.meter import serve_embeddings
from kiokulab.systems import environments
from kiokulab.systems.base import Request, Session, SystemFailure, Turn, Unsupported
from kiokulab.systems.contract import FAIL, line_of, run_contract
from kiokulab.systems.process import Isolated

WHEN = "2023-05-20T10:00:00+09:00"


class Letters:
    """Vectors of letter counts with an offset: enough to rank by, and never of negative similarity."""

    name, dim = "letters", 26

    def encode(self, texts):
        counts = [[0.1 + text.lower().count(chr(97 + n)) for n in range(26)] for text in texts]
        matrix = numpy.array(counts, dtype="float32")
        return matrix / numpy.linalg.norm(matrix, axis=1, keepdims=True)


@pytest.fixture(scope="module", autouse=True)
def environment():
    try:
        return environments.ensure("mem0")
    except Exception as error:
        pytest.fail(f"the environment of mem0 could not be made: {error}")


@pytest.fixture(scope="module")
def meter():
    with serve_embeddings(Letters()) as running:
        yield running


@pytest.fixture
def unit(tmp_path, meter):
    @contextmanager
    def open_unit(space="en-01/raw", **options):
        place = dict(workdir=tmp_path / space.replace("/", "@"), endpoint=meter.endpoint(space), when=WHEN)
        with systems.connect("mem0-verbatim", options.pop("settings", None), space=space, **place, **options) as memory:
            yield memory

    return open_unit


def tell(memory, *texts, when=WHEN):
    for number, text in enumerate(texts):
        memory.ingest(Request(f"r{number}", when, text), when)


def test_it_passes_the_contract(environment):
    checks = run_contract("mem0-verbatim", embedder=Letters())
    assert [line_of(check) for check in checks if check.outcome == FAIL] == []


def test_what_it_stores_how_it_is_dated_and_what_it_forgets(unit, meter, tmp_path):
    session = Session(
        "s1",
        WHEN,
        (Turn("user", "My dog is called Biscuit."), Turn("assistant", "Nice."), Turn("user", "犬の名前はポチ\x07")),
    )
    with unit() as memory:
        assert memory.version() == "2.2.1" == systems.describe("mem0-verbatim")["version"]
        asked_before = dict(meter.calls.get(("en-01@raw", "system"), {"texts": 0}))
        assert memory.ingest(session, WHEN).added == 3
        assert meter.calls["en-01@raw", "system"]["texts"] - asked_before["texts"] == 3, (
            "vectors come from the kit's endpoint"
        )
        later = "2023-06-01T09:00:00+09:00"
        tell(memory, "Please forget that my dog is called Biscuit.", when=later)
        assert memory.clock.startswith("2023-06-01T00:00"), "the worker proved its date"

        dumped = memory.dump()
        assert [(row.id, row.text, row.created) for row in dumped] == [
            ("m000001", "My dog is called Biscuit.", WHEN),
            ("m000002", "Nice.", WHEN),
            ("m000003", "犬の名前はポチ\x07", WHEN),
            ("m000004", "Please forget that my dog is called Biscuit.", later),
        ], "a request to forget is one more memory, and nothing goes"

        # the same statement twice: both are kept (a report once said that the second deletes the first)
        tell(memory, "I like tea.", "I like tea.")
        assert [row.text for row in memory.dump()].count("I like tea.") == 2

        with pytest.raises(Unsupported, match="no call that forgets by meaning"):
            memory.forget({"query": "Biscuit"})
        assert memory.forget({"ids": ["m000001", "m000004"]}) == 2
        assert "Biscuit" not in "".join(row.text for row in memory.dump())
        with pytest.raises(SystemFailure):
            memory.forget({"ids": ["m000001"]})
        assert memory.forget({"all": True}) == 4 and memory.dump() == []
        tell(memory, "My cat is called Mochi.")
        assert [row.text for row in memory.dump()] == ["My cat is called Mochi."], "the name can be used again"
        assert memory.network == []
        warned = "\n".join(memory.warnings)
        assert "spaCy" in warned and "BM25" in warned, "which variant was run is in the record"

    # deleted text stays in the history: residue at rest, said in the note
    with sqlite3.connect(tmp_path / "en-01@raw" / "store" / "history.db") as history:
        assert history.execute(
            "SELECT count(*) FROM history WHERE old_memory LIKE '%Biscuit%' OR new_memory LIKE '%Biscuit%'"
        ).fetchone()[0]
    # nothing was written beside the store, where another unit could find it
    assert not (tmp_path / "en-01@raw" / "home" / ".mem0").exists()


def test_a_search_delivers_k_and_the_threshold_is_a_setting(unit):
    with unit() as memory:
        tell(memory, *(f"note {number} about the letter {chr(97 + number % 26) * 9}" for number in range(60)))
        assert [len(memory.search("note about z", k).hits) for k in (1, 5, 40, 60)] == [1, 5, 40, 60]
        assert memory.search("zzzzzzzzz", 1).hits[0].text.endswith("z" * 9)
    with unit("en-02/raw", settings={"threshold": 0.99}) as memory:
        tell(memory, "aaaa", "zzzz")
        assert len(memory.search("aaaa", 2).hits) == 1


def test_two_runs_give_the_same_bytes(unit):
    def once(space):
        with unit(space) as memory:
            tell(memory, "one", "two", "three", "two")
            return [vars(row) for row in memory.dump()], [vars(hit) for hit in memory.search("two", 4).hits]

    assert once("en-01/raw") == once("en-02/raw")


def test_two_threads_may_add_the_same_statement(unit):
    with unit() as memory:
        threads = [threading.Thread(target=tell, args=(memory, "same", "same", "same")) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.text for row in memory.dump()] == ["same"] * 6


def test_an_endpoint_that_fails_is_a_failure_and_not_an_empty_answer(unit, meter):
    with unit() as memory:
        tell(memory, "one")
        meter.broken = True
        try:
            with pytest.raises(SystemFailure, match="the meter was told to fail"):
                tell(memory, "two")
            with pytest.raises(SystemFailure, match="the meter was told to fail"):
                memory.search("one", 1)
        finally:
            meter.broken = False
        assert [row.text for row in memory.dump()] == ["one"]


def test_without_an_endpoint_it_says_so(tmp_path):
    with pytest.raises(SystemFailure, match="embedding endpoint") as caught:
        with systems.connect("mem0-verbatim", space="a", workdir=tmp_path, when=WHEN):
            pass
    assert caught.value.kind == "not_ready"


def test_the_kits_own_packages_are_out_of_its_sight(environment, tmp_path):
    """The system's environment sees the kit's contract and nothing else of the kit or of the kit's environment."""
    file = tmp_path / "looks.py"
    file.write_text(
        "import importlib.util, json, sys\nfrom kiokulab.systems.base import Memory, System\n"
        "class Looks(System):\n"
        "    def ingest(self, item, when): pass\n"
        "    def dump(self):\n"
        "        found = [name for name in ('pandas', 'pytest', 'mem0') if importlib.util.find_spec(name)]\n"
        "        return [Memory('m', json.dumps(found))]\n"
    )
    looks = Isolated(str(environment), {"path": str(file), "class": "Looks", "settings": {}}, tmp_path / "unit")
    try:
        looks.open("a", str(tmp_path), None)
        assert json.loads(looks.dump()[0].text) == ["mem0"]
    finally:
        looks.kill()

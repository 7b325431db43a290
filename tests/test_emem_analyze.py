"""What stands beside the scorecard: unique items, intervals, true negatives, latency; any system through the bridge."""

import pytest

from kiokulab.emem import analyze, dataset, ingest, judge, responder
from kiokulab.emem.bridge import SystemStore, check_usable
from kiokulab.emem.client import Responder
from kiokulab.serving import serve
from kiokulab.systems.base import Hit, Memory, Results, System, Unsupported


def drive(store, data):
    with (
        serve(responder.build(store, key_seed=bytes(32), clock=lambda: "2026-01-01T00:00:00Z")) as url,
        Responder(url) as asked,
    ):
        return ingest.drive(asked, data), asked


def test_items_that_count_twice_in_the_topline_count_once_here(shared):
    out, asked = drive(responder.FileStore(), dataset.load(shared("emem/sample-longmemeval.jsonl")))
    found = analyze.metrics(out["rows"], None, {})
    assert found["scorecard"]["longmemeval_topline"] == 0.68
    assert (found["unique"]["k"], found["unique"]["n"]) == (12, 18)
    assert found["intervals"]["retrieval_accuracy"]["low"] < 0.6875 < found["intervals"]["retrieval_accuracy"]["high"]
    assert "0.6800" in analyze.printed(found) and "long-range items count twice" in analyze.printed(found)
    assert set(analyze.latency(asked.latencies)) == {"create", "view", "search", "contradictions"}


def test_the_fallback_cannot_tell_a_paraphrase_from_a_contradiction(repository):
    out, _ = drive(responder.FileStore(), dataset.load(repository / "data/emem/v0.1/items.jsonl"))
    found = analyze.metrics(out["rows"], None, {})["conflicts"]
    assert found["true_positives"] == 2 and found["false_alarms"] == 2 and found["true_negatives"] == 0
    assert found["method"] == "stored_distinct_fallback"


def test_percentiles_are_nearest_rank():
    values = [float(n) for n in range(1, 101)]
    assert [analyze.percentile(values, share) for share in (0.5, 0.9, 0.99)] == [50.0, 90.0, 99.0]
    assert analyze.percentile([3.0], 0.99) == 3.0


class Keeps(System):
    """A toy system that keeps every text; `replace` makes it drop the older text with the same first two words."""

    name, capabilities, replace = "keeps", frozenset({"search"}), False

    def __init__(self):
        super().__init__()
        self.memories = {}

    def ingest(self, item, when):
        if self.replace:
            self.memories = {i: t for i, t in self.memories.items() if t.split()[:2] != item.text.split()[:2]}
        self.memories[f"m{len(self.memories)}-{item.id}"] = item.text

    def dump(self):
        return [Memory(i, t) for i, t in self.memories.items()]

    def search(self, query, k, when=None):
        asked = set(query.lower().split())
        ranked = sorted(self.memories, key=lambda i: -len(asked & set(self.memories[i].lower().split())))
        return Results([Hit(self.memories[i], i, 1.0) for i in ranked[:k]])


class Replaces(Keeps):
    replace = True


@pytest.mark.parametrize(
    "system,capabilities,read_path",
    [
        (Keeps, frozenset({"search"}), "memory_search"),
        (Replaces, frozenset({"search"}), "memory_search"),
        (Keeps, frozenset(), "recall_fallback"),
    ],
)
def test_any_system_is_asked_the_four_axes_through_the_bridge(system, capabilities, read_path, repository):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    store = SystemStore(system(), capabilities)
    out, _ = drive(store, data)
    card = judge.axis_scores(judge.grade(out["rows"]))
    assert out["read_path"] == read_path and [card[axis]["items"] for axis in judge.AXES] == [24, 4, 8, 4]
    assert "contradictions" in store.reasons and ("search" in store.reasons) is (read_path == "recall_fallback")
    assert card["retrieval_accuracy"]["correct"] >= 12


def test_a_system_that_replaces_shows_the_new_text_at_the_same_path():
    store = SystemStore(Replaces(), frozenset({"search"}))
    store.create("/memories/membench/a.md", "rent is 870")
    store.create("/memories/membench/a.md", "rent is 915")
    assert store.read("/memories/membench/a.md") == "rent is 915"


def test_a_store_that_cannot_be_listed_is_not_applicable_with_its_reason():
    class Closed(Keeps):
        def dump(self):
            raise Unsupported("dump", "the service lists nothing")

    with pytest.raises(Unsupported, match="the service lists nothing"):
        check_usable(Closed())

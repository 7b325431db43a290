"""The live sequence over HTTP: the published figures, and responders that fail in each way."""

import pytest

from kiokulab.emem import client, dataset, ingest, judge, receipts, responder
from kiokulab.emem.client import Responder, ResponderError
from kiokulab.emem.grade import best_path
from kiokulab.serving import serve

CLOCK = lambda: "2026-01-01T00:00:00Z"
SEED = bytes(range(32))


def run(items, store=None, tools="bare"):
    with (
        serve(responder.build(store or responder.FileStore(), key_seed=SEED, clock=CLOCK)) as url,
        Responder(url, tools) as asked,
    ):
        return ingest.drive(asked, items), asked


def test_the_published_figures_over_http(shared):
    data = dataset.load(shared("emem/sample-longmemeval.jsonl"))
    out, asked = run(data)
    card = judge.axis_scores(judge.grade(out["rows"]))
    assert {axis: (card[axis]["correct"], card[axis]["items"]) for axis in judge.AXES} == {
        "retrieval_accuracy": (11, 16),
        "test_time_learning": (1, 2),
        "long_range_understanding": (3, 5),
        "conflict_resolution": (2, 2),
    }
    assert card["longmemeval_topline"] == 0.68 and out["read_path"] == "recall_fallback"
    wrong = [
        row["id"]
        for row, verdict in zip(out["rows"], judge.grade(out["rows"]))
        if verdict["axis"] == "retrieval_accuracy" and not verdict["correct"]
    ]
    assert wrong == ["pet-name", "car-model", "birthday", "job-title", "home-city"]
    assert asked.calls < 100  # the original asks 415 times


def test_the_receipt_of_the_first_write_checks_out(repository):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    out, _ = run(data, tools="emem")
    first = data.items[0]
    found = receipts.check(
        out["receipt"],
        content=first.content,
        path=first.path,
        pinned_key=receipts.b32(receipts.Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()),
    )
    assert found.ok and found.pinned


def test_the_scorecard_has_its_keys_in_order_and_no_nulls(repository):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    out, _ = run(data)
    card = judge.scorecard(
        judge.grade(out["rows"]),
        version="0",
        url="http://x",
        provenance=data.provenance_by_name,
        source=data.source,
        corpus_items=out["corpus_items"],
        read_path=out["read_path"],
        receipt=out["receipt"],
    )
    assert list(card) == [
        "mode",
        "version",
        "url",
        "dataset_provenance",
        "dataset_source",
        "corpus_items",
        "retrieval_path",
        "conflict_method",
        "caveat",
        "scorecard",
        "receipt",
    ]
    assert list(card["scorecard"]) == [*judge.AXES, "longmemeval_topline"]
    without = judge.scorecard(
        [], version="0", url="u", provenance="full", source="s", corpus_items=1, read_path="memory_search", receipt=None
    )
    assert "conflict_method" not in without and "receipt" not in without


def test_a_store_on_disk_is_there_again_after_a_restart(tmp_path, repository):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    run(data, responder.FileStore(tmp_path / "store.jsonl"))
    assert responder.FileStore(tmp_path / "store.jsonl").read(data.items[-1].path) == data.items[-1].content


class Embedder:
    dim = 3

    def encode(self, texts):
        import numpy as np

        return np.array([[len(text) % 3 == n for n in range(3)] for text in texts], dtype="float32")


def test_with_an_embedder_the_read_path_is_memory_search(repository):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    out, _ = run(data, responder.FileStore(embedder=Embedder()))
    assert out["read_path"] == "memory_search"
    assert all(row["path"] for row in out["rows"] if row["axis"] == "retrieval_accuracy")


def application(reply):
    from starlette.applications import Starlette
    from starlette.routing import Route

    async def answer(request):
        return await reply(request)

    return Starlette(
        routes=[
            Route(path, answer, methods=["POST"]) for path in ("/mcp", "/v1/memory/search", "/v1/memory_contradictions")
        ]
    )


def fixed(content, status=200, media_type="application/json"):
    from starlette.responses import Response

    async def reply(request):
        return Response(content, status, media_type=media_type)

    return reply


@pytest.mark.parametrize(
    "name,reply,kind",
    [
        ("event_stream", fixed(b"data: {}\n\n", media_type="text/event-stream"), "streamed"),
        ("unauthorised", fixed(b'{"code":"memory_attestation_required"}', 401), "status"),
        ("server_error", fixed(b"oops", 500), "status"),
        ("html_page", fixed(b"<html>", media_type="text/html"), "not_json"),
        ("wrong_shape", fixed(b"[]"), "shape"),
        ("no_result", fixed(b'{"jsonrpc":"2.0","id":1}'), "shape"),
        ("rpc_error", fixed(b'{"error":{"code":-32601,"message":"no"}}'), "rpc_error"),
        (
            "tool_error",
            fixed(b'{"result":{"isError":true,"content":[{"type":"text","text":"tool error (x): y"}]}}'),
            "tool_error",
        ),
        ("tool_error_without_text", fixed(b'{"result":{"isError":true,"content":[]}}'), "tool_error"),
    ],
)
def test_a_responder_that_fails_gives_an_error_with_what_was_asked_and_no_score(name, reply, kind, repository):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    with serve(application(reply)) as url, Responder(url) as asked:
        with pytest.raises(ResponderError, match="memory_create|POST /mcp") as error:
            ingest.drive(asked, data)
    assert error.value.kind == kind and asked.failures == {kind: 1} and error.value.exit_code == 3


def test_a_responder_that_stalls_ends_at_the_time_limit(repository):
    import asyncio

    async def stall(request):
        await asyncio.sleep(1.5)

    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    with serve(application(stall)) as url, Responder(url, timeout=0.3) as asked:
        with pytest.raises(ResponderError, match="no answer in 0.3 s"):
            ingest.drive(asked, data)


def test_a_responder_that_is_not_there(repository):
    with Responder("http://127.0.0.1:9") as asked, pytest.raises(ResponderError, match="connection"):
        ingest.drive(asked, dataset.load(repository / "data/emem/v0.1/items.jsonl"))


def test_missing_search_and_scan_routes_only_cost_the_answer(shared):
    """As in the original: a responder without them is scored by the fallback, and the failures are counted."""
    data = dataset.load(shared("emem/sample-longmemeval.jsonl"))
    app = responder.build(responder.FileStore(), key_seed=SEED, clock=CLOCK)
    app.router.routes = [route for route in app.router.routes if route.path == "/mcp"]
    with serve(app) as url, Responder(url) as asked:
        out = ingest.drive(asked, data)
    assert judge.axis_scores(judge.grade(out["rows"]))["longmemeval_topline"] == 0.68
    assert asked.failures["status"] == 3  # one search probe, two scans


def test_caching_reads_changes_no_row(repository, monkeypatch):
    data = dataset.load(repository / "data/emem/v0.1/items.jsonl")
    cached, few = run(data)

    def read_everything_again(self, query):  # as the original does it
        documents = {path: self.call("view", {"path": path})["content"] for path in self.paths()}
        best = best_path(query, documents)
        return best, documents.get(best)

    monkeypatch.setattr(client.Responder, "best", read_everything_again)
    monkeypatch.setattr(client.Responder, "view", lambda self, path: self.call("view", {"path": path}))
    uncached, many = run(data)
    assert cached["rows"] == uncached["rows"] and many.calls > 4 * few.calls


@pytest.mark.parametrize(
    "path", ["/etc/x.md", "/memories/../x.md", "/memories//x.md", "/memories/a\0.md", "/memories/a/", None, 3]
)
def test_bad_paths_are_tool_errors(path):
    with serve(responder.build(responder.FileStore())) as url, Responder(url) as asked:
        with pytest.raises(ResponderError, match="memory_path_invalid"):
            asked.call("create", {"path": path, "file_text": "x"})


def test_any_contradiction_passes_every_conflict_item_but_the_scoped_count_does_not(repository):
    """The original's scan is not scoped; ours stands beside it."""

    class Noisy(responder.FileStore):
        def contradictions(self):
            return [{"cell": "defi.somewhere", "band": "temperature"}]

    out, _ = run(dataset.load(repository / "data/emem/v0.1/items.jsonl"), Noisy())
    rows = [row for row in out["rows"] if row["axis"] == "conflict_resolution"]
    verdicts = judge.grade(rows)
    assert all(verdict["correct"] for verdict in verdicts) and judge.conflict_method(verdicts) == "contradiction_scan"
    assert [row["scoped_contradictions"] for row in rows] == [0] * len(rows)

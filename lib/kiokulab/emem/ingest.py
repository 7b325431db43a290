"""Drive a responder through the four axes and write down what it gave. Nothing is graded here.

Order and rules are those of emem-membench's live mode: load everything in file order, probe the read path, then
retrieval, long-range, learning (writes), conflict (writes), and last the first item's receipt.
"""

from __future__ import annotations

from typing import Any

from kiokulab.emem import NAMESPACE
from kiokulab.emem.client import Responder, ResponderError
from kiokulab.emem.dataset import Dataset, Item


def read_path(responder: Responder, first: Item) -> str:
    """`memory_search` where the responder says that its embedding model is loaded, else `recall_fallback`."""
    reply = responder.search(first.query, 1)
    return "memory_search" if reply and reply.get("model_loaded") is True else "recall_fallback"


def retrieve(responder: Responder, query: str, path_kind: str) -> dict[str, Any]:
    """What the read path gives for a query: {"path", "text"}, both None where nothing was retrieved."""
    if path_kind == "memory_search":
        reply = responder.search(query, 3, NAMESPACE)
        hits = (reply or {}).get("hits")
        if not isinstance(hits, list) or not hits or not isinstance(hits[0], dict):
            return {"path": None, "text": None}
        text = responder.content(hits[0].get("path", ""))
        snippet = hits[0].get("snippet")
        return {
            "path": hits[0].get("path"),
            "text": text if text is not None else snippet if isinstance(snippet, str) else None,
        }
    path, text = responder.best(query)
    return {"path": path, "text": text}


def long_range_items(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The first third (at least one), in load order."""
    return items[: max(1, len(items) // 3)]


def scoped(reply: dict[str, Any] | None, item: Item) -> int:
    """How many of the listed contradictions name one of this item's two paths anywhere (ours; the original counts
    any contradiction anywhere)."""
    listed = (reply or {}).get("contradictions")
    return (
        sum(item.path in str(row) or item.companion_path in str(row) for row in listed)
        if isinstance(listed, list)
        else 0
    )


def drive(responder: Responder, dataset: Dataset) -> dict[str, Any]:
    """Run the whole sequence. Returns {"rows", "read_path", "receipt", "receipt_warning", "corpus_items"}.

    Raises ResponderError where the original stops: a write or a view that fails. No partial score comes of it.
    """
    for item in dataset.items:
        responder.create(item.path, item.content)
    kind = read_path(responder, dataset.items[0])
    rows: list[dict[str, Any]] = []

    def ask(axis: str, item: Item, expected: str) -> None:
        rows.append(
            {
                "axis": axis,
                "id": item.id,
                "query": item.query,
                "expected": expected,
                **retrieve(responder, item.query, kind),
            }
        )

    for item in dataset.items:
        ask("retrieval_accuracy", item, item.expected_answer)
    for item in long_range_items(dataset.items):
        ask("long_range_understanding", item, item.expected_answer)
    for item in dataset.items:
        if item.update is not None and item.update_answer is not None:
            responder.create(item.path, item.update)
            ask("test_time_learning", item, item.update_answer)
    for item in dataset.items:
        if item.conflicts_with is not None:
            responder.create(item.companion_path, item.conflicts_with)
            scan = responder.contradictions()
            listed = scan.get("contradictions") if scan else None
            texts = [responder.content(path) for path in (item.path, item.companion_path)]
            rows.append(
                {
                    "axis": "conflict_resolution",
                    "id": item.id,
                    "contradictions": len(listed) if isinstance(listed, list) else None,
                    "scoped_contradictions": scoped(scan, item),
                    "texts": texts,
                    "contradicts": item.contradicts,
                }
            )
    receipt, warning = None, None
    try:
        view = responder.view(dataset.items[0].path)
        receipt = view.get("receipt") if isinstance(view, dict) else None
    except ResponderError as error:
        warning = str(error)
    return {
        "rows": rows,
        "read_path": kind,
        "receipt": receipt,
        "receipt_warning": warning,
        "corpus_items": len(dataset.items),
    }


# --- the step ---------------------------------------------------------------------------------------------------

FIXED_TIME = "2026-01-01T00:00:00Z"  # of the reference responder inside a run: the same run gives the same bytes
REFERENCE_SEED = bytes(range(32))  # its signing key is public: its receipts show the format, not who signed


def run(folder: Any, params: Any) -> list[dict[str, Any]]:
    """Step 2: contexts.jsonl (what each question got back), events.jsonl (one row a call, with wall time) and
    transcript.json (read path, receipt, failures). One unit: the sequence is one conversation with one responder.

    Raises UnitsFailed where the responder could not be scored; then there is no row, and no score.
    """
    import json

    from kiokulab import units
    from kiokulab.files import dumps, write_atomic, write_jsonl
    from kiokulab.errors import UnitsFailed
    from kiokulab.feeding import feed_units

    where = folder / "units" / "2-ingest"
    job = {"unit": "all", "folder": str(folder), "params": params.model_dump(mode="json")}
    outcome = feed_units(folder, params, "2-ingest", "kiokulab.emem.ingest:ingest_unit", [job], None)
    if outcome.failed:
        raise UnitsFailed(outcome.failed, "No score was made of it. Mend the responder and run the same command again.")
    (found,) = [json.loads(path.read_bytes()) for path in units.finished(where)]
    write_jsonl(folder / "contexts.jsonl", found["rows"])
    write_jsonl(folder / "events.jsonl", found["events"])
    write_atomic(
        folder / "transcript.json", dumps({k: v for k, v in found.items() if k not in ("rows", "events")}) + "\n"
    )
    counts: dict[str, int] = {}
    for event in found["events"]:
        counts[event["op"]] = counts.get(event["op"], 0) + 1
    return [{"operation": op, "calls": n} for op, n in sorted(counts.items())]


def ingest_unit(unit: dict[str, Any]) -> dict[str, Any]:
    """Start what has to be answered from, drive it, and return rows, events and the transcript's head."""
    from contextlib import ExitStack
    from pathlib import Path

    from kiokulab.emem import generate, responder
    from kiokulab.emem.params import EXTERNAL, REFERENCE, EmemParams
    from kiokulab.serving import serve

    params = EmemParams.checked(unit["params"])
    dataset, _ = generate.read(Path(unit["folder"]))
    reasons: dict[str, str] = {}
    with ExitStack() as stack:
        if params.system == EXTERNAL:
            url = params.url
        else:
            if params.system in REFERENCE:
                from kiokulab import embed

                store: Any = responder.FileStore(
                    embedder=embed.get(params.embedder) if params.system == "reference-search" else None
                )
            else:
                store = _bridge(params, unit.get("endpoint"), stack)
                reasons = store.reasons
            url = stack.enter_context(serve(responder.build(store, key_seed=REFERENCE_SEED, clock=lambda: FIXED_TIME)))
        with Responder(url, params.tools, params.timeout_s) as client:
            found = drive(client, dataset)
    events = [
        {"seq": number, "op": op, "seconds": round(seconds, 6)} for number, (op, seconds) in enumerate(client.latencies)
    ]
    return {
        **found,
        "events": events,
        "failures": dict(sorted(client.failures.items())),
        "calls": client.calls,
        "url": params.url or "loopback",
        "not_applicable": dict(sorted(reasons.items())),
    }


def _bridge(params: Any, endpoint: str | None, stack: Any) -> Any:
    """A memory system as a `responder.Store`, open until `stack` is closed. `endpoint`: the meter's, of a system that
    asks a language model."""
    import tempfile

    from kiokulab import embed, meter, metering, systems
    from kiokulab.emem.bridge import WHEN, SystemStore, check_usable

    workdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="kiokulab-"))
    if endpoint is not None:
        metering.begin(endpoint)
    else:
        endpoint = stack.enter_context(meter.serve_embeddings(embed.get(params.embedder), "emem")).endpoint("all")
    held = systems.connect(params.system, params.settings, space="emem", workdir=workdir, endpoint=endpoint, when=WHEN)
    system = stack.enter_context(held)
    check_usable(system)
    return SystemStore(system, frozenset(system.capabilities))

"""Hindsight: its adapter against a small server that speaks its REST interface, and the real one where
KIOKULAB_TEST_SYSTEMS names it."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from scripted_model import serve

from kiokulab import extractive, systems
from kiokulab.systems import hindsight
from kiokulab.systems.base import Request, Session, SystemFailure, Turn, Unsupported
from kiokulab.systems.contract import FAIL, line_of, run_contract

WHEN = "2023-05-20T10:00:00+09:00"
SESSION = Session(
    "s1", WHEN, (Turn("user", "My dog is called Biscuit. 私の犬の名前はポチです。"), Turn("assistant", "Nice."))
)


class Bank:
    """What a test lets the server say. Each memory is a row of its list; `done` is how many looks at the queue it
    takes."""

    def __init__(self):
        self.rows, self.hidden, self.asked = [], [], []
        self.status, self.error, self.done, self.failed, self.lost = "completed", None, 0, 0, 0
        self.waiting, self.log = 0, None

    def store(self, text, kind="world", **more):
        self.rows.append(
            {
                "id": f"{len(self.rows):08x}-random",
                "text": text,
                "fact_type": kind,
                "date": WHEN,
                "mentioned_at": WHEN,
                **more,
            }
        )

    def answer(self, method, path, query, body):
        """(status, JSON) of one request."""
        self.asked.append((method, path, query, body))
        path = path.removeprefix("/v1/default/banks/u1")
        if path == "/stats":
            busy, self.done = self.done > 0, max(0, self.done - 1)
            kinds = {row["fact_type"]: 0 for row in self.rows}
            for row in self.rows:
                kinds[row["fact_type"]] += 1
            return 200, {
                "nodes_by_fact_type": kinds,
                "pending_operations": int(busy),
                "operations_by_status": {},
                "pending_consolidation": self.waiting,
                "failed_consolidation": self.failed,
            }
        if path == "/memories/list":
            rows = self.hidden if query.get("state") == ["invalidated"] else self.rows
            start, count = int(query["offset"][0]), int(query["limit"][0])
            return 200, {"items": rows[start : start + min(count, 40)], "total": len(rows) + self.lost}
        if path == "/memories" and method == "POST":
            if self.log:
                with open(self.log, "a") as file:
                    file.write(
                        "WARNING Cannot make progress splitting chunk 1/1 (40 chars); dropping this sub-chunk.\n" * 2
                    )
            elif self.status == "completed":
                self.store(body["items"][0]["content"])
            return 200, {"operation_id": "op1"}
        if path == "/memories" and method == "DELETE":
            count, self.rows = len(self.rows), []
            return 200, {"deleted_count": count}
        if path.startswith("/operations/"):
            return 200, {"status": self.status, "error_message": self.error}
        if path == "/consolidate":
            self.waiting = 0
            return 200, {}
        if path == "/memories/recall":
            return 200, {
                "results": [
                    {"id": row["id"], "text": row["text"], "mentioned_at": row["mentioned_at"]} for row in self.rows
                ]
            }
        if method == "PATCH" and path.startswith("/memories/"):
            found = [row for row in self.rows if row["id"] == path.removeprefix("/memories/")]
            if not found or found[0]["fact_type"] == "observation":
                return 400, {"detail": "only facts can be curated"}
            self.rows.remove(found[0])
            self.hidden.append(found[0])
            return 200, {}
        return 404, {"detail": "no such path"}


@contextmanager
def rest(bank):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def handle_one(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            status, said = bank.answer(self.command, url.path, parse_qs(url.query), json.loads(body) if body else None)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_one

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def held(tmp_path, monkeypatch):
    """(adapter as it is after open, Bank) without the system: only the adapter's side of its interface runs."""
    monkeypatch.setattr(hindsight, "POLL", 0.0)
    bank = Bank()
    with rest(bank) as base:
        adapter = hindsight.Hindsight()
        adapter.space, adapter.workdir, adapter.base, adapter.bank = "u1", str(tmp_path), base, "/v1/default/banks/u1"
        adapter.file, adapter.refused, adapter.told = tmp_path / "kiokulab.json", tmp_path / "refused.log", 0
        adapter.log_file = tmp_path / "server.log"
        adapter.log_file.write_text("dropping this sub-chunk (of an earlier item)\n")
        adapter.numbers, adapter.fed, adapter.failed = {}, 0, 0
        yield adapter, bank


def test_a_session_is_one_item_with_its_date_and_a_document_of_its_own(held):
    adapter, bank = held
    assert adapter.ingest(SESSION, WHEN).added == 1 and adapter.ingest(SESSION, WHEN).added == 1
    items = [
        body["items"][0] for method, path, _, body in bank.asked if method == "POST" and path.endswith("/memories")
    ]
    assert [item["document_id"] for item in items] == ["d000001", "d000002"], "the same session twice replaces nothing"
    assert json.loads(items[0]["content"]) == [{"role": turn.role, "content": turn.text} for turn in SESSION.turns]
    assert items[0]["timestamp"] == WHEN and adapter.dump()[0].created == WHEN


def test_a_request_is_its_text_and_a_lone_surrogate_passes(held):
    adapter, bank = held
    adapter.ingest(Request("r", WHEN, "lone \ud800 surrogate"), WHEN)
    assert [row.text for row in adapter.dump()] == ["lone \ud800 surrogate"]


def test_a_listing_over_many_pages_is_complete_and_twice_the_same(held):
    adapter, bank = held
    for number in range(250):
        bank.store(f"fact {number}")
    first = [(row.id, row.text) for row in adapter.dump()]
    assert (
        len(first) == 250
        and len({id for id, _ in first}) == 250
        and first == [(row.id, row.text) for row in adapter.dump()]
    )


def test_a_listing_that_loses_memories_is_a_failure_and_no_short_list(held):
    adapter, bank = held
    bank.store("one")
    bank.lost = 1
    with pytest.raises(SystemFailure, match="gave 1 memories and counts 2"):
        adapter.dump()


def test_observations_are_derived_and_what_is_invalidated_is_retired(held):
    adapter, bank = held
    bank.store("seen", "observation")
    bank.store("told")
    bank.store("gone")
    ids = {row.text: row.id for row in adapter.dump()}
    assert adapter.forget({"ids": [ids["gone"]]}) == 1
    assert {row.text: (row.layer, row.kind) for row in adapter.dump()} == {
        "seen": ("derived", "observation"),
        "told": ("live", "world"),
        "gone": ("retired", "world"),
    }
    assert [row.id for row in adapter.dump() if row.text == "gone"] == [ids["gone"]], "it keeps its number"
    with pytest.raises(SystemFailure, match="only facts can be curated"):
        adapter.forget({"ids": [ids["seen"]]})
    with pytest.raises(Unsupported, match="no call that forgets by meaning"):
        adapter.forget({"query": "gone"})
    assert adapter.forget({"all": True}) == 2


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_retain_that_did_not_succeed_is_a_failure(held, status):
    adapter, bank = held
    bank.status, bank.error = status, "Fact extraction failed"
    with pytest.raises(SystemFailure, match=f"ended as {status}: Fact extraction failed"):
        adapter.ingest(SESSION, WHEN)


def test_memories_whose_consolidation_was_given_up_are_a_counted_warning_told_once(held):
    adapter, bank = held
    bank.failed = 3
    assert adapter.ingest(SESSION, WHEN).warnings == ["consolidation was given up for 3 memories"]
    assert adapter.ingest(SESSION, WHEN).warnings == []


def test_text_that_it_drops_since_an_answer_was_cut_off_is_a_counted_warning(held):
    adapter, bank = held
    bank.log = adapter.log_file
    told = adapter.ingest(SESSION, WHEN)
    assert told.added == 0 and told.warnings == [
        "2 parts of the text were dropped, since the model's answers to them were cut off"
    ]


def test_an_answer_that_it_mends_is_a_counted_warning_and_one_that_a_second_attempt_made_good_is_not(held):
    adapter, _ = held
    adapter.log_file.write_text(
        "JSON parse error from LLM response (attempt 1/4): x\nJSON parse error from LLM response (attempt 4/4): x\n"
    )
    assert adapter._complaints(0) == [
        "1 answers of the model were no JSON in the last attempt either, and were mended or given up"
    ]
    assert adapter._complaints(adapter.log_file.stat().st_size) == []


def test_settling_waits_for_the_queue_and_asks_for_consolidation_where_nothing_runs(held):
    adapter, bank = held
    bank.done, bank.waiting = 3, 2
    adapter.settle(30)
    assert [path for _, path, _, _ in bank.asked if path.endswith("/consolidate")] == [
        "/v1/default/banks/u1/consolidate"
    ]


def test_a_queue_that_is_never_empty_is_a_failure(held):
    adapter, bank = held
    bank.done = 10**9
    with pytest.raises(SystemFailure, match="1 operations run") as caught:
        adapter.settle(0.2)
    assert caught.value.kind == "not_ready"


def test_a_search_gives_k_in_its_own_order_and_tells_the_date_of_the_question(held):
    adapter, bank = held
    for number in range(9):
        bank.store(f"fact {number}")
    assert [hit.text for hit in adapter.search("fact", 4, WHEN).hits] == [f"fact {number}" for number in range(4)]
    asked = next(body for _, path, _, body in bank.asked if path.endswith("/recall"))
    assert asked["query_timestamp"] == WHEN and asked["max_tokens"] >= 1_000_000, (
        "a recall ends at 4096 tokens otherwise"
    )


def test_what_its_server_was_refused_reaches_the_workers_record(held, monkeypatch):
    adapter, bank = held
    seen = []
    monkeypatch.setattr(hindsight.sys, "audit", lambda *event: seen.append(event))
    adapter.refused.write_text("getaddrinfo example.org:443\n", encoding="utf-8")
    adapter.dump()
    assert [event for event in seen if "example.org" in event] == [
        ("socket.getaddrinfo", "example.org", "443", 0, 0, 0)
    ], "once"


def test_a_lock_of_a_dead_life_goes_only_where_another_program_has_its_number(tmp_path):
    lock = tmp_path / "postmaster.pid"
    for first, left in ((str(hindsight.os.getpid()), False), ("999999999", True), ("no number", True)):
        lock.write_text(f"{first}\n{tmp_path}\n")
        hindsight._drop_lock_of_another(tmp_path)
        assert lock.exists() is left, first
    lock.unlink()
    hindsight._drop_lock_of_another(tmp_path)


def test_root_gets_another_name_and_everybody_else_nothing(monkeypatch):
    monkeypatch.setattr(hindsight.os, "geteuid", lambda: 1000)
    assert hindsight._not_as_root() == []
    monkeypatch.setattr(hindsight.os, "geteuid", lambda: 0)
    monkeypatch.setattr(hindsight.shutil, "which", lambda _: None)
    with pytest.raises(SystemFailure, match="run the kit as an ordinary user") as caught:
        hindsight._not_as_root()
    assert caught.value.kind == "not_ready"


def test_it_says_what_it_is_and_refuses_to_run_without_a_model():
    said = systems.describe("hindsight")
    assert (
        said["version"] == "1.1.0"
        and said["dates"] == "native"
        and said["model"] == "required"
        and said["keeps"] == "some"
    )
    assert "hindsight" not in systems.NOT_BUILT
    with pytest.raises(SystemFailure, match="needs a language model"):
        hindsight.Hindsight().open("u1", "/nonexistent")
    with pytest.raises(SystemFailure, match="low, mid or high"):
        hindsight.Hindsight(budget="huge").open("u1", "/nonexistent")


# --- the real one ---------------------------------------------------------------------------------------------------


def connect(tmp_path, endpoint, unit="u1"):
    return systems.connect("hindsight", space=unit, workdir=tmp_path / unit, endpoint=endpoint, when=WHEN)


def built_in(body):
    return json.loads(extractive.answer(body)[0])["choices"][0]["message"]


@pytest.fixture
def real(system_environment):
    system_environment("hindsight")


def test_real_facts_with_their_date_over_a_restart_and_apart_from_other_units(real, tmp_path):
    with serve(built_in) as (endpoint, asked):
        with connect(tmp_path, endpoint) as memory:
            assert memory.version() == "1.1.0" and memory.dump() == [] and memory.search("x", 3).hits == []
            assert memory.ingest(SESSION, WHEN).added == 2
            kept = memory.dump()
            assert [(row.layer, row.kind) for row in kept] == [("live", "world")] * 2 + [("derived", "observation")] * 2
            assert all(row.created.startswith("2023-05-20") for row in kept), "a past session keeps its date"
            assert re.match(r"My dog is called Biscuit\.", kept[0].text) and "ポチ" in kept[1].text
            assert len(memory.search("dog", 1, WHEN).hits) == 1
        with connect(tmp_path, endpoint) as memory, connect(tmp_path, endpoint, "u2") as other:
            assert memory.dump() == kept and other.dump() == []
            other.ingest(Request("r", WHEN, "My canary sings 99881 songs."), WHEN)
            assert memory.forget({"ids": [kept[0].id]}) == 1
            assert {row.id: row.layer for row in memory.dump()}[kept[0].id] == "retired"
            memory.reset()
            assert memory.dump() == [] and "99881" in other.dump()[0].text, "another unit's store is left alone"
            assert memory.network == [] and other.network == []
    assert asked, "its model was asked here, and nowhere else"


HALF = '{"facts": [{"what": "My dog is called Bis", "when": "N/A", "where": "N/A", "who": "N/A", "why": "N/A", "fact_type": "world"}'


def test_real_faults_of_the_model_are_failures_or_counted_warnings_and_never_an_empty_success(real, tmp_path):
    fault = {}

    def model(body):
        text = json.dumps(body["messages"], ensure_ascii=False)
        consolidating = "memory consolidation system" in text
        if fault.get("status"):
            return fault["status"]
        if fault.get("bad") in ("all", "consolidation" if consolidating else "extraction"):
            return {"role": "assistant", "content": fault["answer"]}
        return built_in(body)

    with serve(model) as (endpoint, _), connect(tmp_path, endpoint) as memory:
        for broken in ({"status": 500}, {"bad": "all", "answer": "[1, "}):
            fault.clear()
            fault.update(broken)
            with pytest.raises(SystemFailure, match="retain ended as failed"):
                memory.ingest(SESSION, WHEN)
            assert memory.dump() == []
        fault.clear()
        fault.update(bad="extraction", answer=HALF)
        told = memory.ingest(SESSION, WHEN)
        assert told.added == 1 and "1 answers of the model were no JSON" in told.warnings[0], (
            "it mends half an answer and stores half a fact"
        )
        memory.forget({"all": True})
        fault.clear()
        fault.update(bad="consolidation", answer="no JSON")
        told = memory.ingest(SESSION, WHEN)
        assert told.added == 2 and told.warnings[-1] == "consolidation was given up for 2 memories"
        fault.clear()
        assert memory.ingest(Request("r", WHEN, "I planted tulips."), WHEN).warnings == []


def test_real_contract(real):
    # a search for nearly all that is stored does not give it all (see hindsight.md): 50 results need more than 52
    # memories
    checks = run_contract("hindsight", items=104)
    assert [line_of(check) for check in checks if check.outcome == FAIL] == []

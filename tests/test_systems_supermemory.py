"""Supermemory against a small server of our own that speaks what SDK 5.0.1 sends and reads. The real service was not
asked."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from kiokulab import systems
from kiokulab.systems.base import Request, Session, SystemFailure, Turn

WHEN = "2023-05-20T10:00:00+09:00"
SESSION = Session("s1", WHEN, (Turn("user", "My dog is called Biscuit."), Turn("assistant", "Nice.")))


class Service:
    """One memory a document line; a document is done at the second look, its dreaming at the third."""

    def __init__(self):
        self.spaces, self.seen, self.wrong, self.looks = {}, [], {}, {}

    def answer(self, method, path, query, body):
        parts = [unquote(part) for part in path.split("/")[1:]]
        assert parts[0] == "ns"
        space, rest = parts[1], parts[2:]
        held = self.spaces.get(space)
        if rest == ["document"] and method == "POST":
            held = self.spaces.setdefault(space, [])
            for line in body["content"].split("\n"):
                number = len(held) + 1
                held.append({"id": f"m{number}", "memory": line, "metadata": {}, "isStatic": False, "isInference": "infer" in line, "isLatest": "old" not in line,
                             "isForgotten": False, "version": 1, "system": {"createdAt": f"2026-01-01T00:00:{number:02d}Z", "updatedAt": "x"}})  # fmt: skip
            return 200, {"id": body["id"], "status": "queued"}
        if rest[:1] == ["document"] and method == "GET":
            looks = self.looks[rest[1]] = self.looks.get(rest[1], 0) + 1
            return 200, {
                "id": rest[1],
                "system": {
                    "status": "done" if looks > 1 else "queued",
                    "dreamingStatus": "done" if looks > 2 else "dreaming",
                },
            }
        if held is None:
            return 404, {"error": "no such namespace"}
        if not rest and method == "DELETE":
            del self.spaces[space]
            return 200, {}
        if rest == ["list", "memories"]:
            page, limit = int(query["page"]), int(query["limit"])
            return 200, {
                "documents": [],
                "chunks": [],
                "memories": held[(page - 1) * limit : page * limit],
                "pagination": {"currentPage": page, "totalItems": len(held), "totalPages": 9},
            }
        if rest == ["search"]:
            return 200, {
                "results": [
                    {
                        "id": row["id"],
                        "memory": row["memory"],
                        "similarity": 0.9,
                        "metadata": {},
                        "system": row["system"],
                    }
                    for row in held
                ][: body["limit"]],
                "searchTime": 1,
            }
        if rest[0] == "memories" and method == "DELETE":
            found = [
                row
                for row in held
                if row["id"] in body.get("ids", []) or "query" in body and body["query"] in row["memory"]
            ]
            for row in found:
                row["isForgotten"] = True
            errors = [
                {"id": id, "error": "not found"} for id in body.get("ids", []) if id not in [row["id"] for row in found]
            ]
            return 200, {
                "count": len(found),
                "matches": [{"id": row["id"], "memory": row["memory"]} for row in found],
                "errors": errors,
            }
        return 404, {"error": "unknown"}


@pytest.fixture
def service(monkeypatch):
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def handle_any(self):
            url = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(data) if data else None
            query = dict(parse_qsl(url.query))
            state.seen.append((self.command, url.path, query, body, self.headers.get("Authorization")))
            status, said = state.wrong.pop(len(state.seen), None) or state.answer(self.command, url.path, query, body)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("SUPERMEMORY_API_KEY", "sm_secret")
    yield state
    server.shutdown()
    server.server_close()


@contextmanager
def unit(service, tmp_path, name="u1", **settings):
    settings = {"base_url": service.url, "poll_s": 0.0, **settings}
    with systems.connect("supermemory", settings, space=name, workdir=tmp_path / name) as memory:
        yield memory


def tell(memory, text, id="r"):
    memory.ingest(Request(id, WHEN, text), WHEN)


def test_its_requests_are_those_of_the_sdk(service, tmp_path):
    with unit(service, tmp_path) as memory:
        memory.ingest(SESSION, WHEN)
        memory.dump()
        memory.search("dog", 7)
        memory.forget({"query": "Biscuit"})
        memory.forget({"ids": ["m2"]})
        memory.reset()
    space = service.seen[0][1].split("/")[2]
    assert space.startswith("kiokulab-u1-") and all(key == "Bearer sm_secret" for *_, key in service.seen)
    id = service.seen[0][3]["id"]
    document = {
        "content": "user: My dog is called Biscuit.\nassistant: Nice.",
        "id": id,
        "date": WHEN,
        "taskType": "memory",
        "dreaming": "instant",
    }
    assert [row[:4] for row in service.seen] == [
        ("POST", f"/ns/{space}/document", {}, document),
        *[("GET", f"/ns/{space}/document/{id}", {}, None)] * 3,
        ("POST", f"/ns/{space}/list/memories", {"page": "1", "limit": "100"}, {}),
        ("POST", f"/ns/{space}/search", {}, {"query": "dog", "searchMode": "hybrid", "limit": 7, "threshold": 0.3}),
        ("DELETE", f"/ns/{space}/memories/semantic", {}, {"query": "Biscuit", "dryRun": False}),
        ("DELETE", f"/ns/{space}/memories", {}, {"ids": ["m2"]}),
        ("DELETE", f"/ns/{space}", {}, None),
    ]


def test_all_pages_are_listed_and_what_is_retired_is_a_layer_of_its_own(service, tmp_path):
    with unit(service, tmp_path) as memory:
        assert memory.dump() == [] and memory.search("dog", 3).hits == [], "a fresh namespace is empty, and no error"
        tell(memory, "\n".join([*(f"line {n}" for n in range(250)), "an old one", "an inferred one"]))
        assert memory.forget({"query": "line 7"}) == 11
        rows = memory.dump()
        assert len(rows) == 252
        layers = {row.text: (row.layer, row.kind) for row in rows}
        assert layers["line 8"] == ("live", "memory") and layers["line 77"] == ("retired", "forgotten")
        assert layers["an old one"] == ("retired", "replaced") and layers["an inferred one"] == ("derived", "inference")
        assert len(memory.search("x", 5).hits) == 5


def test_two_units_share_nothing_and_a_unit_is_opened_again(service, tmp_path):
    with unit(service, tmp_path, "a") as a, unit(service, tmp_path, "b") as b:
        tell(a, "canary of a")
        tell(b, "canary of b")
        b.reset()
        assert b.dump() == [] and [row.text for row in a.dump()] == ["canary of a"]
    with unit(service, tmp_path, "a") as a:
        assert [row.text for row in a.dump()] == ["canary of a"]


def test_a_busy_service_is_asked_again_and_every_other_failure_is_raised(service, tmp_path):
    with unit(service, tmp_path) as memory:
        service.wrong = {1: (429, {}), 2: (429, {})}
        tell(memory, "kept")
        assert [row.text for row in memory.dump()] == ["kept"]
        for status, said, words in (
            (500, {}, "HTTP 500"),
            (401, {"error": "key"}, "HTTP 401"),
            (200, b"<html>", "no JSON"),
            (404, {}, "HTTP 404"),
        ):
            service.wrong = {len(service.seen) + 1: (status, said)}
            with pytest.raises(SystemFailure, match=words):
                memory.dump()
        with pytest.raises(SystemFailure, match="1 memories were not forgotten"):
            memory.forget({"ids": ["never"]})
        service.wrong = {len(service.seen) + 1: (200, {"memories": [], "pagination": {"totalItems": 3}})}
        with pytest.raises(SystemFailure, match="holds 3 memories and lists 0"):
            memory.dump()


def test_a_document_that_fails_or_is_never_ready_is_a_failure(service, tmp_path):
    with unit(service, tmp_path, document_timeout_s=0) as memory:
        with pytest.raises(SystemFailure, match="after 0 s") as caught:
            tell(memory, "slow")
        assert caught.value.kind == "not_ready"
        service.wrong = {len(service.seen) + 2: (200, {"system": {"status": "failed"}})}
        with pytest.raises(SystemFailure, match="could not take document"):
            tell(memory, "bad")


def test_without_a_key_nothing_is_asked(service, tmp_path, monkeypatch):
    monkeypatch.delenv("SUPERMEMORY_API_KEY")
    with pytest.raises(SystemFailure, match="SUPERMEMORY_API_KEY is not set"):
        with unit(service, tmp_path):
            pass
    assert service.seen == []


def test_the_key_may_lie_in_a_file_whose_name_units_can_see(service, tmp_path, monkeypatch):
    from kiokulab.units import clean_environment

    monkeypatch.delenv("SUPERMEMORY_API_KEY")
    (tmp_path / "access").write_text("sm_file\n")
    monkeypatch.setenv("SUPERMEMORY_ACCESS_FILE", str(tmp_path / "access"))
    assert "SUPERMEMORY_ACCESS_FILE" in clean_environment()
    with unit(service, tmp_path) as memory:
        tell(memory, "kept")
    assert service.seen[0][4] == "Bearer sm_file"
    monkeypatch.setenv("SUPERMEMORY_ACCESS_FILE", str(tmp_path / "none"))
    with pytest.raises(SystemFailure, match="cannot be read"):
        with unit(service, tmp_path):
            pass

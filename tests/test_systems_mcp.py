"""Any MCP memory server by a file of settings, against a stub over standard streams; sepiace against a stub over
HTTP."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from kiokulab import systems
from kiokulab.errors import InputError
from kiokulab.systems.base import Request, Session, SystemFailure, Turn, Unsupported
from kiokulab.systems.contract import FAIL, line_of, run_contract
from kiokulab.systems.mcp_server import filled, pieces, read_answer

WHEN = "2023-05-20T10:00:00+09:00"
STUB = Path(__file__).parent / "fixtures" / "systems" / "mcp_stub.py"
SESSION = Session("s1", WHEN, (Turn("user", "My dog is called {date}."), Turn("assistant", "Nice.")))
TOOLS = {
    "ingest": {"tool": "remember", "arguments": {"text": "{text}", "when": "{date}"}},
    "search": {"tool": "find", "arguments": {"most": "{k}", "query": "{query}"}, "answer": "lines"},
    "forget": {"tool": "drop", "arguments": {"about": "{query}"}},
    "dump": {"tool": "everything", "answer": "json", "field": "memory"},
}


@pytest.fixture
def described(tmp_path):
    def write(**changes):
        file = tmp_path / "stub.yml"
        found = {"command": [sys.executable, str(STUB)], "tools": TOOLS, "dates": "native", "version": "1", **changes}
        file.write_text(yaml.safe_dump(found), encoding="utf-8")
        return f"mcp:{file}"

    return write


@contextmanager
def unit(name, tmp_path, space="u1", settings=None):
    with systems.connect(name, settings, space=space, workdir=tmp_path / space) as memory:
        yield memory


def test_a_server_of_any_tool_names_is_fed_searched_listed_and_made_to_forget(described, tmp_path):
    name = described()
    assert systems.resolve(name).name == name
    about = systems.describe(name)
    assert (about["version"], about["capabilities"], about["dates"], about["installed"]) == (
        "1",
        ["forget", "search"],
        "native",
        True,
    )
    with unit(name, tmp_path) as memory:
        assert memory.dump() == []
        memory.ingest(SESSION, WHEN)
        memory.ingest(Request("r", WHEN, "I like tea 犬 \ud800."), WHEN)
        assert [(row.id, row.text, row.created) for row in memory.dump()] == [
            ("n1", "user: My dog is called {date}.\nassistant: Nice.", WHEN), ("n2", "I like tea 犬 \ud800.", WHEN),
        ], "words in braces in a conversation are only words"  # fmt: skip
        assert len(memory.search("tea", 2).hits) == 2
        assert memory.forget({"query": "tea"}) is None and len(memory.dump()) == 1
    with unit(name, tmp_path) as memory, unit(name, tmp_path, "u2") as other:
        assert len(memory.dump()) == 1 and other.dump() == []


def test_it_keeps_the_contract(described):
    checks = run_contract(described())
    assert [line_of(check) for check in checks if check.outcome == FAIL] == []


def test_what_has_no_tool_is_not_applicable(described, tmp_path):
    name = described(tools={"ingest": TOOLS["ingest"]})
    assert systems.describe(name)["capabilities"] == []
    with unit(name, tmp_path) as memory:
        for call in (memory.dump, lambda: memory.search("x", 1), lambda: memory.forget({"query": "x"})):
            with pytest.raises(Unsupported):
                call()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"tools": {"ingest": {"tool": "none"}}},
            "no tool 'none' for ingest; it has remember, find, drop, everything, break",
        ),
        ({"command": ["/no/such/program"]}, "cannot be started"),
        ({"command": [sys.executable, "-c", "raise SystemExit(4)"]}, "the server has ended"),
        ({"command": []}, "neither `command` nor `url`"),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot be used"),
        ({"url": "http://127.0.0.1:9/mcp", "token_from": "NO_SUCH_TOKEN_HERE"}, "NO_SUCH_TOKEN_HERE is not set"),
    ],
)
def test_a_server_that_is_not_there_or_not_what_was_said_is_told_at_the_start(described, tmp_path, changes, words):
    with pytest.raises(SystemFailure, match=words):
        with unit(described(**changes), tmp_path):
            pass


def test_a_tool_that_fails_and_an_answer_of_another_form_are_failures(described, tmp_path):
    with unit(
        described(
            tools={
                "ingest": {"tool": "break"},
                "dump": {"tool": "remember", "arguments": {"text": "x", "when": ""}, "answer": "json"},
            }
        ),
        tmp_path,
    ) as memory:
        with pytest.raises(SystemFailure, match="it broke"):
            memory.ingest(SESSION, WHEN)
        with pytest.raises(SystemFailure, match="dump: .*ok"):
            memory.dump()


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "",
        "a: [",
        "tools: [1]",
        "tools: {fly: {tool: x}}",
        "feeds: days",
        "unknown: 1",
        "\ufefftools: {ingest: {tool: 1}}",
    ],
)
def test_a_settings_file_that_is_none_is_refused_before_anything_starts(text, tmp_path):
    file = tmp_path / "bad.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        systems.describe(f"mcp:{file}")
    with pytest.raises(InputError, match="cannot be read"):
        systems.resolve(f"mcp:{tmp_path / 'none.yml'}")


def test_words_are_put_in_once_and_numbers_stay_numbers():
    assert filled({"a": ["{k}", "k is {k}", "{text}", "{other}"]}, {"k": 3, "text": "{k}"}) == {
        "a": [3, "k is 3", "{k}", "{other}"]
    }
    assert pieces("abc\ndefgh\ni", 4) == ["abc\n", "defg", "h\ni"] and "".join(pieces("x" * 9001, 4000)) == "x" * 9001
    assert read_answer('["a", "b"]', "json", "text") == [{"text": "a"}, {"text": "b"}]
    for bad in ("{}", '{"a": [], "b": []}', "3", '[{"x": "y"}]', "[null]", "no"):
        with pytest.raises(ValueError):
            read_answer(bad, "json", "text")


@pytest.fixture
def sepiace(monkeypatch):
    """A stand-in of sepiace: one tool, one text; it recalls the sentences that share a word with the request."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((asked, self.headers.get("Authorization"), self.headers.get("Mcp-Session-Id")))
            if "id" not in asked:
                self.send_response(202)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            said = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {}}, "tools/list": {"tools": [{"name": "memory"}]},
                    "tools/call": {"content": [{"type": "text", "text": "The dog is called Biscuit."}]}}[asked["method"]]  # fmt: skip
            data = f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': said})}\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Mcp-Session-Id", "s-1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SEPIACE_TOKEN", "secret")
    yield f"http://127.0.0.1:{server.server_address[1]}/api/v1/mcp", seen
    server.shutdown()
    server.server_close()


def test_sepiace_gets_one_text_of_at_most_4000_characters_and_cannot_be_listed(sepiace, tmp_path):
    url, seen = sepiace
    with unit("sepiace", tmp_path, settings={"url": url}) as memory:
        memory.ingest(SESSION, WHEN)
        memory.ingest(Request("r", WHEN, "x" * 9000), WHEN)
        assert memory.search("What is the dog called?", 30).shown == "The dog is called Biscuit."
        memory.forget({"query": "the dog's name"})
        with pytest.raises(Unsupported, match="no call that lists what is stored"):
            memory.dump()
    calls = [asked["params"] for asked, *_ in seen if asked["method"] == "tools/call"]
    assert all(call["name"] == "memory" and list(call["arguments"]) == ["request"] for call in calls)
    assert [len(call["arguments"]["request"]) for call in calls[1:4]] == [4000, 4000, 1000]
    assert calls[-1]["arguments"]["request"] == "Please forget this: the dog's name"
    assert {key for _, key, _ in seen} == {"Bearer secret"} and {session for *_, session in seen[1:]} == {"s-1"}


def test_sepiace_without_a_sign_in_is_not_asked(sepiace, tmp_path, monkeypatch):
    monkeypatch.delenv("SEPIACE_TOKEN")
    with pytest.raises(SystemFailure, match="SEPIACE_TOKEN is not set"):
        with unit("sepiace", tmp_path, settings={"url": sepiace[0]}):
            pass
    assert sepiace[1] == []

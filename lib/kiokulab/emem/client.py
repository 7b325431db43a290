"""The client side of the emem track: what emem-membench asks a responder over HTTP, with each call timed.

Reads are cached until the next write (a "write generation"); after a write the directory is listed again, and a file is
read again unless the listing names it under the content id that its text has. So the answers are those that the
responder gave, the scores do not change, and the original's 415 calls for its sample become a few dozen.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import httpx

from kiokulab.emem import NAMESPACE
from kiokulab.emem.grade import Ranking
from kiokulab.emem.receipts import file_cid
from kiokulab.errors import KiokuLabError

TOOL_NAMES = {
    "bare": {"create": "memory_create", "view": "memory_view"},  # the generation that the published sample ran on
    "emem": {"create": "emem_memory_create", "view": "emem_memory_view"},  # later builds
}


class ResponderError(KiokuLabError):
    """A responder that could not be scored.

    `kind`: connection | timeout | status | not_json | streamed | rpc_error | tool_error | shape. `asked` says what
    was asked, so that the reader of a failed run can repeat it.
    """

    exit_code = 3

    def __init__(self, kind: str, asked: str, message: str):
        super().__init__(f"{asked}: {message} [{kind}]")
        self.kind, self.asked = kind, asked


class Responder:
    """One responder at `url` (used as it is, as the original does: no slash is added or taken away).

    `latencies` holds (operation, seconds) of every call as the client saw it, on a monotonic clock, connection reuse
    included and caches left out. `failures` counts typed failures by kind, those that the run survives included.
    """

    def __init__(self, url: str, tools: str = "bare", timeout: float = 120.0):
        self.url, self.names = url, TOOL_NAMES[tools]
        self.http = httpx.Client(timeout=timeout, trust_env=False)
        self.latencies: list[tuple[str, float]] = []
        self.failures: Counter[str] = Counter()
        self.calls = 0
        self._id = 0
        self._reads: dict[str, Any] = {}
        self._listed: dict[str, str] = {}  # path -> content id, as the last listing has it
        self._by_id: dict[tuple[str, str], str] = {}  # (path, content id) -> text whose content id that is
        self.ranking = Ranking()

    def __enter__(self) -> Responder:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def _fail(self, kind: str, asked: str, message: str) -> ResponderError:
        self.failures[kind] += 1
        return ResponderError(kind, asked, message)

    def _post(self, route: str, body: dict[str, Any], operation: str) -> tuple[int, Any]:
        asked = f"POST {route} ({operation})"
        began = time.perf_counter()
        self.calls += 1
        try:
            reply = self.http.post(self.url + route, json=body)
        except httpx.TimeoutException:
            raise self._fail("timeout", asked, f"no answer in {self.http.timeout.read} s") from None
        except httpx.HTTPError as error:
            raise self._fail("connection", asked, f"{type(error).__name__}: {error}") from None
        self.latencies.append((operation, time.perf_counter() - began))
        if "text/event-stream" in reply.headers.get("content-type", ""):
            raise self._fail("streamed", asked, "the responder answered with an event stream; plain JSON is needed")
        try:
            return reply.status_code, reply.json()
        except ValueError:
            if reply.is_success:
                raise self._fail("not_json", asked, f"not JSON: {reply.text[:120]!r}") from None
            return reply.status_code, None

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """One `tools/call`; returns `structuredContent` (None where the reply has none). Raises ResponderError."""
        self._id += 1
        asked = f"{self.names[tool]} {arguments.get('path', '')}"
        status, reply = self._post(
            "/mcp",
            {
                "jsonrpc": "2.0",
                "id": self._id,
                "method": "tools/call",
                "params": {"name": self.names[tool], "arguments": arguments},
            },
            tool,
        )
        if not 200 <= status < 300:
            detail = (
                (reply.get("code") or reply.get("message") or reply.get("error")) if isinstance(reply, dict) else None
            )
            raise self._fail("status", asked, f"HTTP {status}" + (f" ({detail})" if detail else ""))
        if not isinstance(reply, dict):
            raise self._fail("shape", asked, f"a JSON-RPC reply is an object, not {type(reply).__name__}")
        if reply.get("error") is not None:
            error = reply["error"]
            message = f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else str(error)
            raise self._fail("rpc_error", asked, message)
        result = reply.get("result")
        if not isinstance(result, dict):
            raise self._fail("shape", asked, "the reply has no result")
        if result.get("isError"):
            content = result.get("content")
            first = content[0] if isinstance(content, list) and content else {}
            raise self._fail(
                "tool_error", asked, str(first.get("text", "unnamed")) if isinstance(first, dict) else "unnamed"
            )
        return result.get("structuredContent")

    # writes
    def create(self, path: str, text: str) -> Any:
        self._reads.clear()
        self._listed = {}
        return self.call("create", {"path": path, "file_text": text, "kind": "fact"})

    # reads
    def view(self, path: str) -> Any:
        if path not in self._reads:
            self._reads[path] = self.call("view", {"path": path})
        return self._reads[path]

    def content(self, path: str) -> str | None:
        """The text of a file; None where the reply has no text."""
        listed = self._listed.get(path)
        if listed is not None and (path, listed) in self._by_id:
            return self._by_id[path, listed]
        reply = self.view(path)
        text = reply.get("content") if isinstance(reply, dict) else None
        if not isinstance(text, str):
            return None
        if listed == file_cid(text.encode("utf-8", "surrogatepass")):
            self._by_id[path, listed] = text
        return text

    def paths(self) -> list[str]:
        """Every string anywhere in the listing that looks like a memory file, sorted by bytes, once each."""
        found: set[str] = set()
        ids: dict[str, str] = {}

        def walk(value: Any) -> None:
            if isinstance(value, str):
                if value.startswith(NAMESPACE) and value.endswith(".md"):
                    found.add(value)
            elif isinstance(value, dict):
                path, cid = value.get("path"), value.get("file_cid")
                if isinstance(path, str) and isinstance(cid, str):
                    ids[path] = cid
                for inner in value.values():
                    walk(inner)
            elif isinstance(value, list):
                for inner in value:
                    walk(inner)

        walk(self.view(NAMESPACE + "/"))
        self._listed = ids
        return sorted(found, key=lambda path: path.encode("utf-8", "surrogatepass"))

    def best(self, query: str) -> tuple[str | None, str | None]:
        """(path, text) that the lexical fallback chooses among everything that is listed; (None, None) for nothing.
        Cached like every read: a second query of the same write generation reads nothing."""
        if "documents" not in self._reads:
            self._reads["documents"] = {path: text for path in self.paths() if (text := self.content(path)) is not None}
            self.ranking.update(self._reads["documents"])
        path = self.ranking.best(query)
        return path, self._reads["documents"].get(path) if path else None

    def search(self, query: str, k: int, prefix: str | None = None) -> dict[str, Any] | None:
        """A search reply; None for anything that is not a 2xx JSON object (counted in `failures`, as it only makes
        the answer wrong in the original)."""
        body: dict[str, Any] = {"q": query, "k": k} | ({"path_prefix": prefix} if prefix else {})
        key = f"search {body}"
        if key not in self._reads:
            try:
                status, reply = self._post("/v1/memory/search", body, "search")
            except ResponderError:
                status, reply = 0, None
            good = 200 <= status < 300 and isinstance(reply, dict)
            if not good and status:
                self.failures["status" if not 200 <= status < 300 else "shape"] += 1
            self._reads[key] = reply if good else None
        return self._reads[key]

    def contradictions(self) -> dict[str, Any] | None:
        """A contradiction scan; None where the responder has none. Never cached: it follows a write each time."""
        try:
            status, reply = self._post(
                "/v1/memory_contradictions", {"limit": 100, "min_severity": 0.0}, "contradictions"
            )
        except ResponderError:
            return None
        if not 200 <= status < 300 or not isinstance(reply, dict):
            self.failures["status"] += 1
            return None
        return reply

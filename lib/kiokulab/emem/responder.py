"""A reference responder: the part of emem's wire API that the benchmark uses, on loopback, labelled as ours.

It is not emem and a score of it is never reported as emem's. Texts lie in memory, or in one JSON-lines file; search is
lexical (then `/v1/memory/search` answers 503, as a responder without a model does) or by any embedder of the kit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kiokulab.emem import receipts
from kiokulab.files import dumps, read_jsonl

LABEL = "kiokulab reference responder (not emem)"
KINDS = ("episodic", "semantic", "procedural", "resource", "vault", "core")


class Refused(Exception):
    """A tool failure: `code` and a message, answered as `isError` with HTTP 200."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class Store(Protocol):
    """What a responder answers from: files of its own (`FileStore`) or a memory system behind a bridge
    (`bridge.py`)."""

    def create(self, path: str, text: str) -> None: ...
    def read(self, path: str) -> str | None: ...
    def paths(self, prefix: str) -> list[str]: ...
    def cid(self, path: str) -> str: ...
    def search(self, query: str, k: int, prefix: str, lexical: bool) -> list[tuple[str, float, str]] | None: ...
    def contradictions(self) -> list[dict[str, Any]] | None: ...


class FileStore:
    """Last write wins. `file`: a JSON-lines log that is appended to and replayed at start; None keeps all in memory.
    `embedder`: None for a responder without a model."""

    def __init__(self, file: str | Path | None = None, embedder: Any = None):
        self.file, self.embedder = Path(file) if file else None, embedder
        self.texts: dict[str, str] = {}
        self.cids: dict[str, str] = {}
        if self.file and self.file.exists():
            for row in read_jsonl(self.file):
                self.texts[row["path"]] = row["text"]

    def create(self, path: str, text: str) -> None:
        if self.file:
            with open(self.file, "a", encoding="utf-8") as log:
                log.write(dumps({"path": path, "text": text}) + "\n")
        self.texts[path] = text
        self.cids.pop(path, None)

    def cid(self, path: str) -> str:
        if path not in self.cids:
            self.cids[path] = cid_of(self.texts[path])
        return self.cids[path]

    def read(self, path: str) -> str | None:
        return self.texts.get(path)

    def paths(self, prefix: str) -> list[str]:
        return sorted(path for path in self.texts if path.startswith(prefix))

    def search(self, query: str, k: int, prefix: str, lexical: bool) -> list[tuple[str, float, str]] | None:
        paths = self.paths(prefix)
        if lexical:
            return bm25(query, {path: self.texts[path] for path in paths}, k)
        if self.embedder is None:
            return None
        if not paths:
            return []
        vectors = self.embedder.encode([query, *(self.texts[path] for path in paths)])
        scores = [round(float(score), 4) for score in vectors[1:] @ vectors[0]]
        best = sorted(range(len(paths)), key=lambda i: (-scores[i], i))[:k]
        return [(paths[i], scores[i], self.texts[paths[i]][:200]) for i in best]

    def contradictions(self) -> list[dict[str, Any]] | None:
        return []  # the real scan looks at Earth-observation facts alone, never at memory files


def cid_of(text: str) -> str:
    """Content id of a text, lone surrogates included."""
    return receipts.file_cid(text.encode("utf-8", "surrogatepass"))


def bm25(query: str, documents: dict[str, str], k: int) -> list[tuple[str, float, str]]:
    """Okapi BM25 with k1 = 1.2 and b = 0.75, the values of the responder's lexical mode."""
    import math
    import re

    split = {path: re.findall(r"\w+", text.lower()) for path, text in documents.items()}
    average = sum(map(len, split.values())) / max(len(split), 1) or 1.0
    scores = dict.fromkeys(documents, 0.0)
    for term in re.findall(r"\w+", query.lower()):
        counts = {path: words.count(term) for path, words in split.items()}
        holding = sum(count > 0 for count in counts.values())
        weight = math.log(1 + (len(split) - holding + 0.5) / (holding + 0.5))
        for path, count in counts.items():
            scores[path] += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(split[path]) / average))
    best = sorted((path for path in scores if scores[path] > 0), key=lambda path: (-scores[path], path))[:k]
    return [(path, scores[path], documents[path][:200]) for path in best]


def check_path(path: Any, listing: bool = False) -> str:
    """The path, or Refused. Paths start with /memories/, hold no NUL, no `.`, `..` or empty part; a slash at the end
    is for listings alone."""
    if not isinstance(path, str) or not path.startswith("/memories/"):
        raise Refused("memory_path_invalid", "a path starts with /memories/")
    parts = path[1:].removesuffix("/").split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Refused("memory_path_invalid", "a path has no NUL and no empty, `.` or `..` part")
    if path.endswith("/") and not listing:
        raise Refused("memory_path_invalid", "a slash at the end is for listings alone")
    return path


def build(store: Store, *, key_seed: bytes | None = None, clock: Callable[[], str] | None = None) -> Any:
    """The Starlette application.

    key_seed : 32 bytes of an Ed25519 seed; None makes a new key at each start.
    clock : gives `served_at` and `signed_at` (ISO 8601, seconds, Z); None is the real clock. A run gives a fixed one.
    """
    import secrets
    from datetime import UTC, datetime

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    key = Ed25519PrivateKey.from_private_bytes(key_seed or secrets.token_bytes(32))
    public = receipts.b32(key.public_key().public_bytes_raw())
    now = clock or (lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    written: dict[str, dict[str, Any]] = {}  # path -> the receipt and time of its last write
    lock, counter = threading.Lock(), iter(range(1, 1 << 62))

    def receipt(path: str, cid: str, served_at: str) -> dict[str, Any]:
        return receipts.sign(
            {
                "request_id": f"01{next(counter):024d}",
                "served_at": served_at,
                "primitive": "emem.memory_file",
                "cells": [path],
                "fact_cids": [cid],
                "responder_key_epoch": 0,
                "preimage_version": 2,
                "source_versions": {},
                "cost": {
                    "credits": 0,
                    "latency_p50_ms": 0,
                    "latency_p99_ms": 0,
                    "source_freshness_s": 0,
                    "was_cached": False,
                },
            },
            key,
        )

    def create(arguments: dict[str, Any]) -> dict[str, Any]:
        path, text = check_path(arguments.get("path")), arguments.get("file_text")
        if not isinstance(text, str):
            raise Refused("memory_body_invalid", "file_text must be a string")
        store.create(path, text)
        cid, at = cid_of(text), now()
        written[path] = {"signed_at": at, "receipt": receipt(path, cid, at)}
        kind = arguments.get("kind")
        return {
            "ok": True,
            "verb": "create",
            "path": path,
            "file_cid": cid,
            "memory_kind": kind if kind in KINDS else "resource",
            "attester_pubkey_b32": None,
            "size_bytes": len(text.encode("utf-8", "surrogatepass")),
            "responder_pubkey_b32": public,
            **written[path],
        }

    def view(arguments: dict[str, Any]) -> dict[str, Any]:
        path = check_path(arguments.get("path"), listing=True)
        if path.endswith("/"):
            entries = [
                {"path": found, "file_cid": store.cid(found), "kind": "file", "memory_kind": "resource"}
                for found in store.paths(path)
            ]
            return {
                "kind": "directory",
                "path": path,
                "count": len(entries),
                "filter_kind": None,
                "order": "path",
                "entries": entries,
            }
        text = store.read(path)
        if text is None:
            raise Refused("memory_not_found", f"{path} is not there")
        size = len(text.encode("utf-8", "surrogatepass"))
        if span := arguments.get("view_range"):
            lines = text.split("\n")
            text = "\n".join(lines[max(span[0] - 1, 0) : None if span[1] < 0 else span[1]])
        return {
            "kind": "file",
            "path": path,
            "file_cid": cid_of(text),
            "memory_kind": "resource",
            "attester_pubkey_b32": None,
            "superseded_by": None,
            "size_bytes": size,
            "content": text,
            **written.get(path, {"signed_at": None, "receipt": None}),
        }

    tools = {
        prefix + name: function
        for prefix in ("", "emem_")
        for name, function in (("memory_create", create), ("memory_view", view))
    }

    def answer(value: Any, status: int = 200) -> Response:
        return Response(dumps(value), status, media_type="application/json")

    def dispatch(body: Any) -> Response:
        if not isinstance(body, dict) or body.get("jsonrpc") != "2.0" or not isinstance(body.get("method"), str):
            return answer({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "malformed request"}})
        if "id" not in body:
            return Response(status_code=202)
        if body["method"] != "tools/call":
            return answer(
                {
                    "jsonrpc": "2.0",
                    "id": body["id"],
                    "error": {"code": -32601, "message": f"no method {body['method']}"},
                }
            )
        params = body.get("params") or {}
        try:
            tool = tools.get(params.get("name"))
            if tool is None:
                raise Refused("unknown_tool", f"no tool {params.get('name')!r}")
            with lock:
                content = tool(params.get("arguments") or {})
            result = {
                "isError": False,
                "content": [{"type": "text", "text": dumps(content)}],
                "structuredContent": content,
            }
        except Refused as error:
            result = {"isError": True, "content": [{"type": "text", "text": f"tool error ({error.code}): {error}"}]}
        return answer({"jsonrpc": "2.0", "id": body["id"], "result": result})

    async def mcp(request: Request) -> Response:
        try:
            body = await request.json()
        except ValueError:
            body = None
        return await run_in_threadpool(dispatch, body)

    async def search(request: Request) -> Response:
        body = await request.json()
        query, k = body.get("q"), min(int(body.get("k", 10)), 100)
        if not isinstance(query, str) or not query.strip():
            return JSONResponse({"code": "empty_query", "message": "q is empty"}, 400)
        lexical = body.get("mode") == "lexical"
        with lock:
            hits = await run_in_threadpool(store.search, query, k, body.get("path_prefix") or "/memories/", lexical)
        if hits is None:
            return JSONResponse({"code": "model_not_loaded", "message": "this responder has no embedding model"}, 503)
        return answer(
            {
                "schema": "emem.memory_search.v1",
                "query_embedding_dim": 0 if lexical else getattr(getattr(store, "embedder", None), "dim", 0),
                "corpus_size": len(store.paths("/memories/")),
                "via": "bm25_lexical" if lexical else "scan",
                "model_loaded": not lexical,
                "responder_pubkey_b32": public,
                "hits": [
                    {"path": path, "file_cid": None, "kind": "resource", "similarity": score, "snippet": snippet}
                    for path, score, snippet in hits
                ],
            }
        )

    async def contradictions(request: Request) -> Response:
        found = await run_in_threadpool(store.contradictions)
        if found is None:
            return JSONResponse({"code": "unsupported", "message": "no contradiction scan"}, 501)
        return answer(
            {"contradictions": found, "corpus_scanned": len(store.paths("/memories/")), "scan_truncated": False}
        )

    async def verify(request: Request) -> Response:
        body = await request.json()
        found = receipts.check(body.get("receipt") or body, pinned_key=public)
        return answer({"ok": found.ok, "problems": found.problems, "digest_hex": found.digest_hex})

    async def health(request: Request) -> Response:
        return answer({"status": "ok", "label": LABEL})

    async def well_known(request: Request) -> Response:
        return answer({"label": LABEL, "responder_pubkey_b32": public})

    post = ["POST"]
    return Starlette(
        routes=[
            Route("/mcp", mcp, methods=post),
            Route("/v1/memory/search", search, methods=post),
            Route("/v1/memory_contradictions", contradictions, methods=post),
            Route("/v1/verify_receipt", verify, methods=post),
            Route("/health", health),
            Route("/.well-known/emem.json", well_known),
        ]
    )

"""The loopback endpoint through which every model call of a run goes. This first piece serves embeddings only.

OpenAI-compatible, on 127.0.0.1 and a free port, under ``/m/<token>/<run>/<unit>/<role>/v1``. The token is random for
each meter and a foreign Host header is refused, so that neither another program nor a web page can use it. The labels
in the path say who asked, so no system has to be changed to be counted.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from kiokulab.serving import serve

BODY_LIMIT = 64 * 1024 * 1024  # bytes of one request


class Meter:
    """A running meter. `calls` counts by (unit, role): requests, texts, characters, failures."""

    def __init__(self, embedder: Any, run: str):
        self.embedder, self.run = embedder, run
        self.token = secrets.token_urlsafe(24)
        self.port = 0
        self.calls: dict[tuple[str, str], dict[str, int]] = {}
        self.broken = False  # True: every embedding request is answered 500 (contract test)
        self._embedding = threading.Lock()  # embedders need not be safe to share
        self._counting = threading.Lock()

    def endpoint(self, unit: str, role: str = "system") -> str:
        """Base URL (ending in /v1) for the calls of `unit` in `role`."""
        labels = "/".join(quote(text.replace("/", "@"), safe="@") for text in (self.run, unit, role))
        return f"http://127.0.0.1:{self.port}/m/{self.token}/{labels}/v1"

    def count(self, unit: str, role: str, **numbers: int) -> None:
        with self._counting:
            row = self.calls.setdefault((unit, role), {"requests": 0, "texts": 0, "characters": 0, "failures": 0})
            for name, number in numbers.items():
                row[name] += number

    def encode(self, texts: list[str]) -> Any:
        """float32 array (n, dim) for `texts`. Raises RuntimeError where the embedder gives anything else."""
        import numpy

        with self._embedding:
            vectors = numpy.asarray(self.embedder.encode(texts), dtype="<f4")
        if vectors.shape != (len(texts), self.embedder.dim) or not numpy.isfinite(vectors).all():
            raise RuntimeError(
                f"the embedder {self.embedder.name} gave {vectors.shape} for {len(texts)} texts, or not-a-numbers"
            )
        return vectors


def _host_is_ours(header: str) -> bool:
    name, _, port = header.rpartition(":") if ":" in header else (header, "", "0")
    return name.casefold() in ("127.0.0.1", "localhost") and port.isdigit()


def _texts_of(body: Any) -> list[str]:
    """The texts of an embeddings request. Raises ValueError, worded for whoever wrote the client."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise ValueError("`input` must be a text or a list of texts that is not empty")
    if all(isinstance(text, str) for text in texts):
        return texts
    if all(
        isinstance(token, int) or (isinstance(token, list) and all(isinstance(t, int) for t in token))
        for token in texts
    ):
        raise ValueError(
            "`input` is a list of token numbers; this endpoint takes texts only, since it does not know the tokenizer. "
            "Switch the client's own token check off (langchain: check_embedding_ctx_length=False)"
        )
    raise ValueError("`input` must hold texts only")


def application(meter: Meter) -> Any:
    """The ASGI application of `meter`."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    def refuse(status: int, message: str, kind: str) -> Response:
        return JSONResponse({"error": {"message": message, "type": kind, "code": kind}}, status)

    def guarded(handler: Any) -> Any:
        async def guard(request: Request) -> Response:
            if not _host_is_ours(request.headers.get("host", "")):
                return refuse(403, "only this machine may ask", "forbidden")
            if not hmac.compare_digest(request.path_params["token"].encode(), meter.token.encode()):
                return refuse(404, "no such meter", "not_found")
            return await handler(request, request.path_params["unit"], request.path_params["role"])

        return guard

    async def embeddings(request: Request, unit: str, role: str) -> Response:
        try:
            size = int(request.headers.get("content-length", "0"))
            if size > BODY_LIMIT:
                raise ValueError(f"the request is larger than {BODY_LIMIT} bytes")
            body = json.loads(await request.body())
            texts = _texts_of(body)
            form = body.get("encoding_format", "float")
            if form not in ("float", "base64"):
                raise ValueError(f"encoding_format must be 'float' or 'base64', not {form!r}")
        except (ValueError, RecursionError) as error:
            meter.count(unit, role, requests=1, failures=1)
            return refuse(400, str(error), "invalid_request_error")
        try:
            if meter.broken:
                raise RuntimeError("the meter was told to fail")
            vectors = await run_in_threadpool(meter.encode, texts)
        except Exception as error:  # whatever the embedder raises, the system that asked is told, and fails
            meter.count(unit, role, requests=1, failures=1)
            return refuse(500, f"{type(error).__name__}: {error}", "server_error")
        characters = sum(map(len, texts))
        meter.count(unit, role, requests=1, texts=len(texts), characters=characters)
        shown = [base64.b64encode(v.tobytes()).decode() if form == "base64" else v.tolist() for v in vectors]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(shown)]
        # `dimensions` of the request is ignored on purpose: some systems send it to every model.
        # No tokenizer is known here: usage counts characters, and says so in its own field.
        usage = {"prompt_tokens": 0, "total_tokens": 0, "characters": characters}
        return JSONResponse({"object": "list", "data": data, "model": meter.embedder.name, "usage": usage})

    async def models(request: Request, unit: str, role: str) -> Response:
        row = {
            "id": meter.embedder.name,
            "object": "model",
            "created": 0,
            "owned_by": "kiokulab",
            "dimensions": meter.embedder.dim,
        }
        return JSONResponse({"object": "list", "data": [row]})

    async def chat(request: Request, unit: str, role: str) -> Response:
        meter.count(unit, role, requests=1, failures=1)
        return refuse(503, "no model in this run", "no_model")

    base = "/m/{token}/{run}/{unit}/{role}/v1"
    return Starlette(
        routes=[
            Route(f"{base}/embeddings", guarded(embeddings), methods=["POST"]),
            Route(f"{base}/models", guarded(models), methods=["GET"]),
            Route(f"{base}/chat/completions", guarded(chat), methods=["POST"]),
        ]
    )


@contextlib.contextmanager
def serve_embeddings(embedder: Any, run: str = "run") -> Iterator[Meter]:
    """Serve `embedder` (name, dim, encode(list[str]) → (n, dim)) until the block is left; yields the `Meter`.

    It runs in a thread with a loop of its own and may be asked by several units at once; texts are embedded one
    request at a time.
    """
    meter = Meter(embedder, run)
    with serve(application(meter)) as base:
        meter.port = int(base.rpartition(":")[2])
        yield meter

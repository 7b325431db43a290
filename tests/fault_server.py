"""An OpenAI-compatible endpoint that goes wrong on demand, and keeps its own account of what it delivered.

`FaultServer(script)`: `script` says what happens to each call: a name of `FAULTS` for all of them, a list (one a call,
"ok" after its end), or a function of (number from 1, request body). `account` is a list of dicts, one a call that
reached the server: number, path, fault, body, authorization, delivered (whether a whole answer left), cost (Decimal or
None), prompt_tokens, completion_tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

COST = Decimal("0.0003")
TEXTS = {  # what the model says, where the fault is in the words
    "code_fence": "```json\n{json}\n```",
    "prose": "Sure, here is the answer:\n{json}\nHope that helps!",
    "two_objects": "{json}\n{json}",
    "empty": "",
    "wrong_schema": '{"entirely": "different"}',
    "incorrect_word": "INCORRECT",
    "yesterday": "yesterday",
    "iie": "いいえ",
    "correct_false": '{"correct": "false"}',
    "truncated_json": None,
    "content_null": None,
    "refusal": None,
    "content_filter": None,
}
WIRE = (
    "429",
    "429_plain",
    "500",
    "503",
    "reset",
    "slow_first_byte",
    "stalled",
    "cut_body",
    "duplicate",
    "error_in_200",
    "echo_key",
    "redirect",
    "not_an_object",
)
USAGE = ("usage_missing", "cached_tokens", "cost_missing")
FAULTS = ("ok", *WIRE, *TEXTS, *USAGE)


def once_each(fault: str) -> Callable[[int, Any], str]:
    """The fault the first time that a request is seen, ok afterwards."""
    seen: set[str] = set()

    def script(number: int, body: Any) -> str:
        text = json.dumps(body, sort_keys=True)
        first = text not in seen
        seen.add(text)
        return fault if first else "ok"

    return script


def now_and_then(fault: str, every: int = 3) -> Callable[[int, Any], str]:
    """The fault at every third call (or another number), and never twice for the same request: the three tries of one
    of eight callers side by side may all be third calls, and what is seen then is chance."""
    seen: set[str] = set()

    def script(number: int, body: Any) -> str:
        text = json.dumps(body, sort_keys=True)
        if number % every or text in seen:
            return "ok"
        seen.add(text)
        return fault

    return script


class FaultServer:
    def __init__(
        self,
        script: Any = "ok",
        reply: Callable[[dict], str] | str = '{"ok": true}',
        delay_s: float = 0.0,
        slow_s: float = 5.0,
    ):
        self.script, self.reply, self.delay_s, self.slow_s = script, reply, delay_s, slow_s
        self.account: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def billed(self) -> Decimal:
        return sum((row["cost"] for row in self.account if row["cost"] is not None), Decimal(0))

    def _fault(self, number: int, body: Any) -> str:
        if callable(self.script):
            return self.script(number, body)
        if isinstance(self.script, str):
            return self.script
        return self.script[number - 1] if number <= len(self.script) else "ok"

    # what is said
    def _message(self, fault: str, body: dict) -> tuple[dict, str]:
        text = self.reply(body) if callable(self.reply) else self.reply
        message: dict[str, Any] = {"role": "assistant", "content": text}
        finish = "stop"
        if fault == "truncated_json":
            message["content"], finish = text[: len(text) // 2], "length"
        elif fault == "content_null":
            message["content"] = None
        elif fault == "refusal":
            message.update(content=None, refusal="I can't help with that.")
        elif fault == "content_filter":
            message["content"], finish = "", "content_filter"
        elif TEXTS.get(fault) is not None:
            message["content"] = TEXTS[fault].replace("{json}", text)
        elif body.get("tools"):
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": body["tools"][0]["function"]["name"], "arguments": text},
            }
            message.update(content=None, tool_calls=[call])
            finish = "tool_calls"
        return message, finish

    def _usage(self, fault: str, body: dict, message: dict) -> dict | None:
        if fault == "usage_missing":
            return None
        prompt, completion = len(json.dumps(body)) // 4, len(json.dumps(message)) // 4
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "cost": float(COST),
        }
        if fault == "cached_tokens":
            usage |= {
                "prompt_tokens_details": {"cached_tokens": prompt // 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            }
        if fault == "cost_missing":
            del usage["cost"]
        return usage

    def _answer(self, fault: str, path: str, body: dict, number: int) -> tuple[bytes, str, dict | None]:
        frame = {"id": f"gen-{number}", "model": f"{body.get('model')}-2026", "provider": "faults", "created": 1}
        if path.endswith("/embeddings"):
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            usage = self._usage(fault, body, {})
            answer = {
                **frame,
                "object": "list",
                "data": [{"object": "embedding", "index": i, "embedding": [1.0, 0.0]} for i, _ in enumerate(texts)],
            }
            return json.dumps({**answer, **({"usage": usage} if usage else {})}).encode(), "application/json", usage
        message, finish = self._message(fault, body)
        usage = self._usage(fault, body, message)
        if path.endswith("/responses"):
            part = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": message["content"]}],
            }
            shown = usage and {
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "cost": usage.get("cost"),
            }
            answer = {**frame, "object": "response", "status": "completed", "output": [part], "usage": shown}
            if body.get("stream"):
                return (
                    f"event: response.completed\ndata: {json.dumps({'type': 'response.completed', 'response': answer})}\n\n".encode(),
                    "text/event-stream",
                    usage,
                )
            return json.dumps(answer).encode(), "application/json", usage
        if not body.get("stream"):
            answer = {
                **frame,
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            }
            return json.dumps({**answer, **({"usage": usage} if usage else {})}).encode(), "application/json", usage
        text = message.get("content") or ""
        deltas = [{"role": "assistant"}, *({"content": text[i : i + 7]} for i in range(0, len(text), 7))]
        if message.get("tool_calls"):
            deltas.append({"tool_calls": [{"index": 0, **message["tool_calls"][0]}]})
        chunks = [
            {
                **frame,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
            }
            for delta in deltas
        ]
        chunks.append(
            {
                **frame,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {}, "finish_reason": finish}],
            }
        )
        if usage:
            chunks.append({**frame, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        return (
            b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n",
            "text/event-stream",
            usage,
        )

    # the wire
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.split("\r\n")
                headers = {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:] if line)
                }
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
                if not await self._one(lines[0].split()[1], headers, body, writer):
                    break
        writer.close()

    async def _one(self, path: str, headers: dict, body: dict, writer: asyncio.StreamWriter) -> bool:
        with self._lock:
            number = len(self.account) + 1
            fault = self._fault(number, body)
            row: dict[str, Any] = {
                "number": number,
                "path": path,
                "fault": fault,
                "body": body,
                "authorization": headers.get("authorization"),
                "delivered": False,
                "cost": None,
                "prompt_tokens": None,
                "completion_tokens": None,
            }
            self.account.append(row)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)

        def send(
            status: str, data: bytes, kind: str = "application/json", extra: str = "", length: int | None = None
        ) -> None:
            size = len(data) if length is None else length
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n{extra}\r\n".encode() + data
            )

        if fault in ("429", "429_plain", "500", "503"):
            code, words = {"4": ("429 Too Many Requests", "slow down")}.get(
                fault[0], (f"{fault} Server Error", "it broke")
            )
            wait = "retry-after: 0.05\r\n" if fault in ("429", "503") else ""
            send(code, json.dumps({"error": {"message": words, "code": int(fault[:3])}}).encode(), extra=wait)
        elif fault == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        elif fault == "error_in_200":
            send("200 OK", json.dumps({"error": {"message": "provider is overloaded", "code": 502}}).encode())
        elif fault == "echo_key":
            send(
                "401 Unauthorized",
                json.dumps({"error": {"message": f"bad key: {headers.get('authorization')}", "code": 401}}).encode(),
            )
        elif fault == "redirect":
            send("307 Temporary Redirect", b"", extra="location: http://127.0.0.1:9/elsewhere\r\n")
        elif fault == "not_an_object":
            send("200 OK", b"[1]")
        else:
            data, kind, usage = self._answer(fault, path, body, number)
            if fault == "slow_first_byte":
                await asyncio.sleep(self.slow_s)
            if fault in ("stalled", "cut_body"):
                send("200 OK", data[: len(data) // 2], kind, length=len(data))
                await writer.drain()
                if fault == "stalled":
                    await asyncio.sleep(self.slow_s)
                writer.transport.abort()
                return False
            send("200 OK", data * 2 if fault == "duplicate" else data, kind)
            row["delivered"] = True
            if usage:
                row.update(
                    prompt_tokens=usage["prompt_tokens"],
                    completion_tokens=usage["completion_tokens"],
                    cost=COST if "cost" in usage else None,
                )
        await writer.drain()
        return True

    @contextlib.contextmanager
    def running(self) -> Iterator["FaultServer"]:
        loop, ready, box = asyncio.new_event_loop(), threading.Event(), {}

        async def start() -> None:
            # named, so that Nagle's delay is off
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            box["server"] = await asyncio.start_server(self._serve, sock=listener, limit=1 << 20)
            self.port = listener.getsockname()[1]
            ready.set()

        def work() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(start())
            loop.run_forever()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        ready.wait(10)
        try:
            yield self
        finally:

            def stop() -> None:
                box["server"].close()
                for task in asyncio.all_tasks(loop):
                    task.cancel()
                loop.call_soon(loop.stop)

            loop.call_soon_threadsafe(stop)
            thread.join(10)


def main() -> None:
    """A stub in a process of its own: `python tests/fault_server.py <delay seconds> [script]` prints its URL and serves
    until its standard input ends."""
    import sys

    server = FaultServer(
        sys.argv[2] if len(sys.argv) > 2 else "ok", delay_s=float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    )
    with server.running():
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

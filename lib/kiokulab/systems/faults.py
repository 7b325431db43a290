"""A language model on loopback that goes wrong in scripted ways, for the contract tests. Standard library only.

It speaks chat completions, with tools and streams. What it says is never meant: it shows what a memory system makes of
a model that answers badly or not at all. Broken connections, 429 and the like are not here: the meter in front of a
system deals with them.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kiokulab.systems.plumbing import framed

MODEL = "scripted"
BROKEN = '{"memory": [{"id": "0", "text": "My dog is cal'  # a JSON answer that ends in the middle of a word
CALLED = '{"code": "(async () => { return await tools.cur'  # the arguments of a tool call that do

# name -> what it says, where it answers at all; whether a system must make it heard (a warning or an error) or whether
# a silent no-op is only counted: words without JSON may well mean that there is nothing to remember
FAULTS: dict[str, tuple[str | None, bool]] = {
    "bad JSON": (BROKEN, True),
    "cut off": (BROKEN, True),
    "wrong schema": ('{"entirely": "different"}', False),
    "prose": ("I am sorry, I cannot help with that.", False),
    "empty": ("", False),
    "down": (None, True),
}


class Upstream:
    """`fault` is one of `FAULTS` and may be changed at any time; `asked` counts the requests that came under it."""

    def __init__(self) -> None:
        self.fault = "bad JSON"
        self.asked = 0
        self.url = ""

    def say(self, fault: str) -> None:
        """From now on answer so."""
        self.fault, self.asked = fault, 0

    def answer(self, asked: dict[str, Any]) -> tuple[int, bytes, str]:
        """Status, body and content type of the answer to a request."""
        self.asked += 1
        text, _ = FAULTS[self.fault]
        if text is None:
            return 503, b'{"error": {"message": "the model is down (scripted)", "code": 503}}', "application/json"
        message: dict[str, Any] = {"role": "assistant", "content": text}
        finish = "length" if self.fault == "cut off" else "stop"
        tools = [
            tool["function"]["name"]
            for tool in asked.get("tools") or []
            if isinstance(tool, dict) and "function" in tool
        ]
        begun = any(message.get("role") == "tool" for message in asked.get("messages") or [])
        # an agent that has heard of its call once is not called again: it would never end
        if tools and text == BROKEN and not begun:
            wanted = asked.get("tool_choice")
            forced = wanted.get("function", {}).get("name") if isinstance(wanted, dict) else None
            name = forced or ("code_exec" if "code_exec" in tools else tools[0])
            call = {
                "id": f"call_{self.asked}",
                "type": "function",
                "function": {"name": name, "arguments": CALLED if name == "code_exec" else BROKEN},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            finish = "length" if self.fault == "cut off" else "tool_calls"
        return 200, *framed(asked, message, finish, f"scripted-{self.asked}")


@contextlib.contextmanager
def serve() -> Iterator[Upstream]:
    """An `Upstream` at its `url` (ending in /v1) on a free port of this machine, until the block is left."""
    upstream = Upstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, data, kind = upstream.answer(json.loads(body))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()

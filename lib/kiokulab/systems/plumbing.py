"""What several adapters share. Standard library only.

`framed`: one chat completion in the wire format that OpenAI's clients read. `Complaints`: what a system logs and does
not raise. `alike`: how the stand-ins for the built-in model decide that a sentence is about what another was about.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any


class Complaints(logging.Handler):
    """A handler for a system's logger that keeps warnings and errors, for example of an answer that it could not
    parse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}"[:500])

    def take(self) -> list[str]:
        """The lines so far, which are then forgotten."""
        lines, self.lines = self.lines, []
        return lines


def framed(asked: dict[str, Any], message: dict[str, Any], finish: str, name: str) -> tuple[bytes, str]:
    """`message` as the answer to the request `asked`: (body, content type); a server-sent stream where one is asked
    for. `name` is the answer's id. Usage is zero: nobody counted. Pure."""
    frame = {"id": name, "model": asked.get("model"), "created": 0}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return json.dumps({**frame, "object": "chat.completion", "choices": [choice], "usage": usage}).encode(
            "ascii"
        ), "application/json"
    delta = dict(message)
    if message.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(message["tool_calls"])]
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps({**frame, 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode("ascii"), "text/event-stream"


def alike(one: str, other: str) -> float:
    """How much two sentences share: words, and pairs of characters where there are none between spaces; 0 to 1.
    Pure."""
    sets = [
        set(re.findall(r"\w+", text.casefold())) if " " in text else {text[n : n + 2] for n in range(len(text) - 1)}
        for text in (one, other)
    ]
    return len(sets[0] & sets[1]) / max(1, len(sets[0] | sets[1]))

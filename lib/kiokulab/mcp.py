"""A client of the Model Context Protocol: a server started here that speaks over its standard streams, or one at a URL
(Streamable HTTP). Standard library only: adapters use it inside the environments of their systems.

Protocol: JSON-RPC 2.0, `initialize`, then `notifications/initialized`, then `tools/list` and `tools/call`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

PROTOCOL = "2025-06-18"
LIMIT = 64 * 1024 * 1024  # bytes of one answer over HTTP


class Refused(Exception):
    """The server answered that it cannot, or that the tool failed."""


class Lost(Exception):
    """The server is gone, late, or its answer cannot be read."""


class Client:
    """What both kinds have in common; `_exchange(message, timeout)` is theirs, and gives the answer's message."""

    def __init__(self) -> None:
        self._number = 0
        self.server: dict[str, Any] = {}

    def _exchange(self, message: dict[str, Any], timeout: float) -> dict[str, Any]:
        raise NotImplementedError

    def _tell(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def ask(self, method: str, params: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """One request; gives its result. Raises Refused for an error that the server answers, Lost for everything
        else."""
        self._number += 1
        answer = self._exchange(
            {"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)}, timeout
        )
        if "error" in answer:
            raise Refused(f"{method}: {str(answer['error'].get('message'))[:500]}")
        if not isinstance(answer.get("result"), dict):
            raise Lost(f"{method}: the answer has no result")
        return answer["result"]

    def begin(self, timeout: float = 60.0) -> None:
        """Greet the server."""
        asked = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "kiokulab", "version": "1"}}
        self.server = self.ask("initialize", asked, timeout)
        self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self, timeout: float = 60.0) -> list[str]:
        """Names of the server's tools, all pages."""
        names: list[str] = []
        cursor = None
        while True:
            page = self.ask("tools/list", {"cursor": cursor} if cursor else {}, timeout)
            names += [tool["name"] for tool in page.get("tools", [])]
            cursor = page.get("nextCursor")
            if not cursor:
                return names

    def call(self, tool: str, arguments: Mapping[str, Any], timeout: float = 300.0) -> str:
        """Call a tool; gives its text parts joined by line ends. Raises Refused where the tool says that it failed."""
        result = self.ask("tools/call", {"name": tool, "arguments": dict(arguments)}, timeout)
        parts = [part["text"] for part in result.get("content", []) if part.get("type") == "text"]
        text = "\n".join(parts)
        if result.get("isError"):
            raise Refused(f"{tool}: {text[:500]}")
        return text

    def close(self) -> None:
        """End the connection."""


class Stdio(Client):
    """A server that is started with `command` and spoken to over its standard streams; its complaints go to `log`.
    Its environment is this process's with `environment` over it, or `environment` alone where nothing is inherited."""

    def __init__(
        self,
        command: Sequence[str],
        log: str,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        inherit: bool = True,
    ):
        super().__init__()
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=cwd,
                env={**(os.environ if inherit else {}), **(environment or {})},
            )  # fmt: skip
        self._lines: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self.process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError) as error:
            raise Lost(f"the server has ended ({error})") from None

    def _exchange(self, message: dict[str, Any], timeout: float) -> dict[str, Any]:
        self._tell(message)
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                raise Lost(f"{message['method']}: no answer within {timeout:g} s") from None
            if line is None:
                raise Lost(f"{message['method']}: the server has ended (exit code {self.process.wait()})")
            answer = _read(line)
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer  # everything else: notices, late answers, requests to us, which offers nothing

    def close(self) -> None:
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _read(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # servers print on their standard output, though they must not
    return found if isinstance(found, dict) else {}


class Http(Client):
    """A server at a URL. `token` is sent as a bearer where there is one."""

    def __init__(self, url: str, token: str | None = None):
        super().__init__()
        self.url, self.token, self.session = url, token, None

    def _post(self, message: dict[str, Any], timeout: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": PROTOCOL} if self.session else {}
        request = urllib.request.Request(self.url, json.dumps(message).encode("ascii"), headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                self.session = answer.headers.get("Mcp-Session-Id") or self.session
                return answer.read(LIMIT)
        except urllib.error.HTTPError as error:
            raise Lost(
                f"{message['method']}: HTTP {error.code}: {error.read(300).decode('utf-8', 'replace')}"
            ) from None
        except OSError as error:
            raise Lost(f"{message['method']}: {error}") from None

    def _tell(self, message: dict[str, Any]) -> None:
        self._post(message, 60.0)

    def _exchange(self, message: dict[str, Any], timeout: float) -> dict[str, Any]:
        data = self._post(message, timeout)
        lines = [line[5:].strip() for line in data.splitlines() if line.startswith(b"data:")] or [data]
        for line in lines:
            answer = _read(line)
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer
        raise Lost(f"{message['method']}: the server's answer cannot be read: {data[:200]!r}")

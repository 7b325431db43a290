"""ByteRover (byterover-cli), offline: its daemon, its MCP server, its files. What was run and what it cannot do:
byterover.md."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kiokulab.mcp import Stdio
from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure
from kiokulab.systems.plumbing import alike, framed

SYSTEMS = {"byterover": "ByteRover"}

BUILT_IN = "extractive"  # the kit's built-in model
SERVICES = ("IAM", "COGIT", "LLM", "BILLING", "WEB_APP", "GIT_REMOTE")
DISCOVERY = "/api/v1/oidc/.well-known/openid-configuration"

# Node refuses what leads beyond this machine, and writes it down; loaded by every Node process that ByteRover starts
GUARD = """
const fs = require('node:fs'), net = require('node:net'), dns = require('node:dns');
const near = (host) => !host || host === 'localhost' || host === '::1' || host === '::' || host === '0.0.0.0' || /^(::ffff:)?127\\./.test(host);
const refuse = (host, port) => {
  fs.appendFileSync(process.env.KIOKULAB_REFUSED, `${host} ${port ?? ''}\\n`);
  return Object.assign(new Error(`the kit refuses connections beyond this machine: ${host}`), { code: 'EACCES' });
};
const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...args) {
  const first = Array.isArray(args[0]) ? args[0][0] : args[0];
  const host = typeof first === 'object' ? first.host : typeof args[1] === 'string' ? args[1] : undefined;
  if (!near(host)) { process.nextTick(() => this.destroy(refuse(host, typeof first === 'object' ? first.port : first))); return this; }
  return connect.apply(this, args);
};
const lookup = dns.lookup;
dns.lookup = function (host, ...rest) {
  if (near(host)) return lookup.call(this, host, ...rest);
  process.nextTick(() => rest.at(-1)(refuse(host)));
};
"""


class ByteRover(System):
    """Each session is one `brv-curate`; after the last one comes one `brv dream`; what is stored is read from its
    files."""

    name = "byterover"
    package = "npm:byterover-cli"
    licence = "Elastic-2.0"
    needs = "Node.js 20 or newer, with npm"
    feeds = "session"
    dates = "text"  # there is no argument for a date
    model = "required"
    keeps = "some"
    capabilities = frozenset({"search", "clean_up", "reset"})
    # reading: "query" asks its MCP tool and gets one text; "search" lists files by BM25 through the command line,
    # seconds each
    settings = {"reading": "query", "curate_timeout_s": 600}

    # life cycle
    def version(self) -> str:
        with open(self._place() / "byterover-cli" / "package.json", encoding="utf-8") as file:
            return json.load(file)["version"]

    @staticmethod
    def _place() -> Path:
        return Path(sys.prefix) / "node_modules"

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if self.config["reading"] not in ("query", "search"):
            raise SystemFailure("the setting `reading` is query or search", "not_ready")
        if endpoint is None:
            raise SystemFailure("ByteRover needs a language model to curate with, and this run has none", "not_ready")
        if shutil.which("node") is None:
            raise SystemFailure(
                "ByteRover needs Node.js 20 or newer, and there is no `node` on the path", "not_installed"
            )
        with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
            model = next((row["id"] for row in json.load(answer)["data"] if "dimensions" not in row), None)
        if model is None:
            raise SystemFailure("ByteRover needs a language model to curate with, and this run has none", "not_ready")
        root = Path(workdir)
        self.project, self.data = root / "project", root / "data"
        for folder in (self.project, self.data):
            folder.mkdir(parents=True, exist_ok=True)
        # what ByteRover's first command writes into a folder. Review is off: with it on, every changed file is copied
        # beside the tree
        tree, settings = self.project / ".brv" / "context-tree", self.project / ".brv" / "config.json"
        tree.mkdir(parents=True, exist_ok=True)
        if not settings.exists():
            made = {
                "createdAt": "2000-01-01T00:00:00.000Z",
                "cwd": str(self.project),
                "version": "0.0.1",
                "reviewDisabled": True,
            }
            settings.write_text(json.dumps(made), encoding="utf-8")
        guard, self.refused = root / "guard.cjs", root / "refused.log"
        guard.write_text(GUARD, encoding="utf-8")
        self.told = 0
        self.relay = _Relay(endpoint, self._facts)
        service = self.relay.base
        self.environment = {
            **os.environ,
            **{f"BRV_{name}_BASE_URL" if name != "WEB_APP" else "BRV_WEB_APP_URL": service for name in SERVICES},
            "BRV_DATA_DIR": str(self.data),
            "BRV_DISABLE_AUTOUPDATE": "1",
            "NO_UPDATE_NOTIFIER": "1",
            "CI": "1",
            "PATH": f"{self._place() / '.bin'}{os.pathsep}{os.environ.get('PATH', '')}",
            "NODE_OPTIONS": f"--require {guard}",
            "KIOKULAB_REFUSED": str(self.refused),
        }
        self.log = str(root / "brv.log")
        # a live model is asked at the meter itself; the built-in one cannot play an agent, so the relay does
        base = f"{service}/v1" if model == BUILT_IN else endpoint
        try:
            self._brv(
                "providers",
                "connect",
                "openai-compatible",
                "--base-url",
                base,
                "--api-key",
                "not-a-key",
                "--model",
                model,
            )
            self.mcp = Stdio([*self._command, "mcp"], self.log, str(self.project), self.environment)
            self.mcp.begin(180)
        except BaseException:
            self._end()
            raise

    @property
    def _command(self) -> list[str]:
        return [shutil.which("node") or "node", str(self._place() / "byterover-cli" / "bin" / "run.js")]

    def _brv(self, *arguments: str, timeout: float = 600) -> dict[str, Any]:
        """One call of the command line; gives the data of its last event. Raises SystemFailure where it did not
        succeed."""
        command = [*self._command, *arguments, "--format", "json"]
        with open(self.log, "ab") as log:
            log.write(f"$ brv {' '.join(arguments)[:300]}\n".encode())
            log.flush()
            try:
                done = subprocess.run(
                    command, cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=log, timeout=timeout,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise SystemFailure(f"brv {arguments[0]}: no answer within {timeout:g} s", "timeout") from None
            log.write(done.stdout)
        said = done.stdout.decode("utf-8", "replace")
        events = []
        for line in said.splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    events.append(event)
        if done.returncode or not events or events[-1].get("success") is not True:
            what = events[-1].get("data", {}) if events else {}
            raise SystemFailure(
                f"brv {arguments[0]} failed: {what.get('error') or said[-400:].strip() or done.returncode}"
            )
        return events[-1].get("data") or {}

    def close(self) -> None:
        self.mcp.close()
        self._end()

    def _end(self) -> None:
        """End the daemon, which outlives every command, and its agent; it needs some seconds to put its files in
        order."""
        if hasattr(self, "mcp"):
            self.mcp.close()
        self.relay.close()
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self.data / "daemon.json").read_text(encoding="utf-8"))["pid"])
            os.kill(pid, signal.SIGTERM)
            ended = time.monotonic() + 20
            while time.monotonic() < ended:
                time.sleep(0.2)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                os.kill(pid, 0)  # ProcessLookupError, an OSError, when it is gone
            os.kill(pid, signal.SIGKILL)

    # writing
    def ingest(self, item: Item, when: str) -> Ingested:
        text = (
            "\n".join(f"{turn.role}: {turn.text}" if turn.role else turn.text for turn in item.turns)
            if isinstance(item, Session)
            else item.text
        )
        self.relay.curating(text)
        try:
            answer = self.mcp.call("brv-curate", {"context": text, "cwd": str(self.project)}, 120)
            found = re.search(r"logId: ([\w-]+)", answer)
            if not found:
                raise SystemFailure(f"brv-curate gave no log id: {answer[:300]}")
            row = self._wait(found[1])
        finally:
            self.relay.curating(None)
            self._report()
        if row["status"] != "completed":
            raise SystemFailure(f"curate ended as {row['status']}: {str(row.get('error'))[:300]}")
        counts = row.get("summary") or {}
        warnings = [f"{counts['failed']} operations failed"] if counts.get("failed") else []
        if not any(counts.get(name) for name in ("added", "updated", "merged", "deleted")):
            warnings.append("curate reported success and did nothing")
        return Ingested(
            counts.get("added"), counts.get("updated", 0) + counts.get("merged", 0), counts.get("deleted"), warnings
        )

    def _wait(self, log: str) -> dict[str, Any]:
        """The record of a curate when it is finished; the tool itself answers at once."""
        ended = time.monotonic() + self.config["curate_timeout_s"]
        while time.monotonic() < ended:
            for path in self.data.glob(f"projects/*/curate-log/{log}.json"):
                with contextlib.suppress(ValueError):  # half written
                    row = json.loads(path.read_text(encoding="utf-8"))
                    if row.get("status") in ("completed", "error", "cancelled"):
                        return row
            if self.mcp.process.poll() is not None:
                raise SystemFailure("the MCP server of ByteRover has ended", "died")
            time.sleep(0.05)
        raise SystemFailure(f"curate was not done after {self.config['curate_timeout_s']} s", "timeout")

    def settle(self, timeout: float) -> None:
        """Summaries of single files are written after a curate is done; its queue says when there is nothing left."""
        ended = time.monotonic() + timeout
        while time.monotonic() < ended:
            try:
                queue = json.loads((self.project / ".brv" / "_queue_status.json").read_text(encoding="utf-8"))
            except FileNotFoundError:  # nothing was ever queued
                return
            except ValueError:  # half written
                queue = {"pending": 1}
            if not queue.get("pending") and not queue.get("processing"):
                return
            time.sleep(0.1)
        raise SystemFailure(f"ByteRover's queue of summaries was not empty after {timeout:g} s", "not_ready")

    def reset(self) -> None:
        self.close()
        for folder in (self.project, self.data):
            shutil.rmtree(folder)
        self.open(self.space, self.workdir, self.endpoint)

    def clean_up(self) -> None:
        self._brv("dream", "--force", timeout=3000)
        self._report()

    def _report(self) -> None:
        """Let the worker know what Node refused: the audit event is refused there too, and written down."""
        lines = self.refused.read_text(encoding="utf-8").splitlines() if self.refused.exists() else []
        for line in lines[self.told :]:
            host, _, port = line.partition(" ")
            with contextlib.suppress(PermissionError):
                sys.audit("socket.getaddrinfo", host, port, 0, 0, 0)
        self.told = len(lines)

    # reading
    def _facts(self) -> list[tuple[str, str, str]]:
        return [(m.meta["path"], m.meta["title"], m.text) for m in self.dump() if m.kind == "fact"]

    def dump(self) -> list[Memory]:
        tree = self.project / ".brv" / "context-tree"
        memories: list[Memory] = []
        for path in sorted(tree.rglob("*.md")) if tree.exists() else []:
            name = path.relative_to(tree).as_posix()
            for number, (kind, text, title) in enumerate(
                parts_of(name, path.read_text(encoding="utf-8", errors="replace")), 1
            ):
                memories.append(
                    Memory(
                        f"{name}#{number:03d}", text, LAYER.get(kind, "live"), kind=kind, source=f"project/.brv/context-tree/{name}",
                        meta={"path": name, "title": title},
                    )
                )  # fmt: skip
        return memories

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        try:
            if self.config["reading"] == "query":
                text = self.mcp.call("brv-query", {"query": query, "cwd": str(self.project)}, 300)
                return Results([Hit(text)] if text.strip() else [], shown=text)
            rows = self._brv("search", query, "--limit", str(min(max(k, 1), 50))).get("results") or []
            return Results([Hit(row.get("excerpt") or "", row.get("path"), row.get("score")) for row in rows[:k]])
        finally:
            self._report()


# --- its files ----------------------------------------------------------------------------------------------------

_KIND = {"Raw Concept": "task", "Reason": "reason", "Narrative": "narrative"}
LAYER = {"title": "derived", "fact": "live", "change log": "retired", "narrative": "derived", "reason": "derived", "task": "derived",
         "summary": "derived", "abstract": "derived", "overview": "derived", "index": "derived"}  # fmt: skip
_SECTION = re.compile(r"^(#{2,3}) +(.+?)\s*$|^\*\*([A-Z][\w ]*):\*\* *(.*)$")
_FACT = re.compile(r"^- +(?:\*\*.+?\*\*: +)?(.+?)(?: +\[[\w -]+\])?$")
_WHOLE = {".abstract.md": "abstract", ".overview.md": "overview", "_index.md": "index"}
# lines of an index that are no statement: its own keys and those of the files that it quotes, their headings and names
_BOOKKEEPING = re.compile(
    r"(title|tags|related|keywords|createdAt|updatedAt|children_hash|compression_ratio|condensation_order|covers|covers_token_total|"
    r"summary_level|token_count|type|summary: ['\"]*$)(:|$)|(reason|raw concept|facts|narrative|structure|dependencies|highlights|rules|examples)$|"
    r"\S+\.md$|\[summary compaction|\*\*[A-Z][\w ]*:\*\*$", re.IGNORECASE,
)  # fmt: skip


def _front(text: str) -> tuple[dict[str, str], str]:
    """Keys with a text of a file's first block (YAML; values over several lines are joined), and the rest of the
    file."""
    head = re.match(r"---\n(.*?)\n---\n?", text, re.DOTALL)
    if not head:
        return {}, text
    front: dict[str, str] = {}
    last = ""
    for line in head[1].splitlines():
        if line.startswith("  ") and last:
            front[last] += " " + line.strip()
            continue
        key, _, value = line.partition(":")
        last = key if value.strip() else ""
        if last:
            front[key] = re.sub(r"^[>|][+-]?$", "", value.strip())
    return {key: value.strip().strip("'\"") for key, value in front.items()}, text[head.end() :]


def parts_of(name: str, text: str) -> list[tuple[str, str, str]]:
    """(kind, text, title) of every stored text of one file of the context tree; left out are dates, tags, keywords,
    relations and fixed headings. Pure."""
    front, body = _front(text)
    title = front.get("title", "")
    whole = next((kind for end, kind in _WHOLE.items() if name.endswith(end)), None)
    if whole:
        lines = (line.strip().lstrip("#").strip() for line in body.splitlines())
        lines = (
            line
            for line in lines
            if line.strip("-* `>") and not _BOOKKEEPING.match(line.strip("-* ")) and not _BOOKKEEPING.match(line)
        )
        return [(whole, fact[1] if (fact := _FACT.match(line)) else line, title) for line in lines]
    found = [(kind, front[kind], title) for kind in ("title", "summary") if front.get(kind)]
    section, part = "", ""
    for line in body.splitlines():
        mark = _SECTION.match(line)
        if mark:
            if mark[2]:
                section, part = (mark[2], "") if mark[1] == "##" else (section, mark[2])
                continue
            if section == "Raw Concept":
                part, line = mark[3], mark[4]
        line = line.strip()
        if (
            not line
            or set(line) <= {"-", "`"}
            or (section == "Raw Concept" and part in ("Timestamp", "Author", "Patterns"))
        ):
            continue
        fact = _FACT.match(line) if section == "Facts" else None
        kind = (
            "fact"
            if section == "Facts"
            else "change log"
            if section == "Raw Concept" and part == "Changes"
            else _KIND.get(section, "text")
        )
        found.append((kind, fact[1] if fact else line.removeprefix("- "), title))
    return found


# --- the loopback side ----------------------------------------------------------------------------------------------


class _Relay:
    """What ByteRover meets on this machine where its own services would be, and, in runs with the built-in model, who
    plays its agent.

    Its daemon does not start where a look-up of its sign-in service fails as a network failure; here it gets an answer,
    and signs in to nothing. The built-in model only copies sentences. To have it curate, the relay asks it for the
    sentences of the text that is being curated and puts them into the call of ByteRover's tool: a sentence much like a
    stored fact of the same words replaces that fact, every other one becomes a file. That is plumbing and understands
    nothing.
    """

    def __init__(self, endpoint: str, facts: Any):
        relay = self
        self.endpoint, self.facts, self.text = endpoint, facts, None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                if self.path == DISCOVERY:
                    keys = ("issuer", "authorization_endpoint", "token_endpoint")
                    return self.answer(
                        200,
                        json.dumps(
                            {key: relay.base if key == "issuer" else f"{relay.base}/{key}" for key in keys}
                        ).encode(),
                    )
                if self.path == "/v1/models":
                    return self.answer(*relay.pass_on("GET", "/models", None))
                self.answer(404, b'{"error": "there is no such service here"}')

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/v1/chat/completions":
                    return self.answer(*relay.chat(body))
                self.answer(404, b'{"error": "there is no such service here"}')

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def curating(self, text: str | None) -> None:
        """The text that is being curated now, None for none."""
        self.text = text

    def pass_on(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, str]:
        """Ask the run's endpoint; its answer as it is."""
        request = urllib.request.Request(
            self.endpoint + path, body, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, answer.read(), answer.headers.get("Content-Type", "application/json")
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers.get("Content-Type", "application/json")

    def chat(self, body: bytes) -> tuple[int, bytes, str]:
        """A model call of ByteRover's."""
        asked = json.loads(body)
        tools = {tool.get("function", {}).get("name") for tool in asked.pop("tools", None) or []}
        asked.pop("tool_choice", None)
        if "code_exec" in tools and self.text is None:  # a question: without what it is told of tools and their JSON
            asked["messages"] = [message for message in asked["messages"] if message.get("role") == "user"]
        if "code_exec" not in tools or self.text is None:
            return self.pass_on("POST", "/chat/completions", json.dumps(asked).encode("ascii"))
        if any(message.get("role") == "tool" for message in asked["messages"]):
            return 200, *_reply(asked, {"role": "assistant", "content": "Done."}, "stop")
        plain = {"model": asked["model"], "messages": [{"role": "user", "content": self.text}]}
        status, data, kind = self.pass_on("POST", "/chat/completions", json.dumps(plain).encode("ascii"))
        if status != 200:
            return status, data, kind
        said = json.loads(data)["choices"][0]["message"]["content"] or ""
        sentences = [] if said == "Nothing to remember." else [line for line in said.splitlines() if line.strip()]
        if not sentences:
            return 200, *_reply(asked, {"role": "assistant", "content": "Nothing to remember."}, "stop")
        code = f"(async () => {{ return await tools.curate({json.dumps(operations(sentences, self.facts()))}); }})()"
        call = {"id": "call_" + hashlib.sha256(code.encode()).hexdigest()[:20], "type": "function",
                "function": {"name": "code_exec", "arguments": json.dumps({"code": code})}}  # fmt: skip
        return 200, *_reply(asked, {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")


def operations(sentences: list[str], facts: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """What the stand-in agent lets ByteRover do with `sentences`, given the stored facts (path, title, text). Pure."""
    made = []
    for sentence in dict.fromkeys(sentences):
        near = max(facts, key=lambda fact: alike(sentence, fact[2]), default=None)
        if near and near[2] == sentence:
            continue
        content: dict[str, Any] = {
            "facts": [{"statement": sentence, "subject": "user", "category": "personal"}],
            "narrative": {},
            "tags": [],
            "keywords": [],
        }
        common = {"reason": "The user said so.", "confidence": "high", "impact": "low"}
        if near and alike(sentence, near[2]) >= 0.5:
            content["rawConcept"] = {"task": "What the user said", "changes": [f"{near[2]} -> {sentence}"]}
            made.append(
                {"type": "UPDATE", "path": near[0].rpartition("/")[0], "title": near[1], "content": content, **common}
            )
        else:
            title = "note " + hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).hexdigest()[:10]
            content["rawConcept"] = {"task": "What the user said", "changes": [f"Recorded: {sentence}"]}
            made.append({"type": "ADD", "path": "person/notes", "title": title, "content": content, **common})
    return made


def _reply(asked: dict[str, Any], message: dict[str, Any], finish: str) -> tuple[bytes, str]:
    """A chat completion, as a stream where one is asked for."""
    return framed(asked, message, finish, "relay")

"""Any memory server that speaks the Model Context Protocol, by the names of its tools; and sepiace, which is one. See
mcp_server.md."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from kiokulab.mcp import Client, Http, Lost, Refused, Stdio
from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure, Unsupported

SYSTEMS = {"mcp": "McpServer", "sepiace": "Sepiace"}

VERBS = ("ingest", "search", "forget", "dump", "settle")


def filled(value: Any, words: dict[str, Any]) -> Any:
    """`value` with each ``{name}`` in its texts replaced; a text that is nothing but ``{name}`` becomes the value
    itself, so that a number stays one. Pure."""
    if isinstance(value, dict):
        return {key: filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, words) for item in value]
    if isinstance(value, str):
        if value[:1] == "{" and value[1:-1] in words and value[-1:] == "}":
            return words[value[1:-1]]
        return re.sub(
            r"\{(\w+)\}", lambda found: str(words.get(found[1], found[0])), value
        )  # once: a word's own braces stay
    return value


def read_answer(text: str, form: str, field: str) -> list[dict[str, Any]]:
    """The entries of a tool's answer, each with "text". form: "text" (the whole answer is one), "lines", or "json": a
    list, or an object that holds one, of texts or of objects whose `field` is the text. Raises ValueError for an answer
    of another form. Pure."""
    if form == "text":
        return [{"text": text}] if text.strip() else []
    if form == "lines":
        return [{"text": line} for line in text.splitlines() if line.strip()]
    found = json.loads(text)
    if isinstance(found, dict):
        lists = [value for value in found.values() if isinstance(value, list)]
        if len(lists) != 1:
            raise ValueError("the answer holds no list, or more than one")
        found = lists[0]
    if not isinstance(found, list):
        raise ValueError("the answer is no list")
    entries = []
    for row in found:
        said = row if isinstance(row, str) else row.get(field) if isinstance(row, dict) else None
        if not isinstance(said, str):
            raise ValueError(f"an entry has no text in {field!r}")
        entries.append(
            {
                "text": said,
                **(
                    {key: row[key] for key in ("id", "score", "created") if key in row} if isinstance(row, dict) else {}
                ),
            }
        )
    return entries


class McpServer(System):
    """The server that the settings describe. Usually given as ``SYSTEM=mcp:<file.yml>``, whose keys these settings
    are."""

    name = "mcp"
    licence = "its own"
    needs = "a file of settings, and the server"
    forgets = ("query",)
    keeps = "some"
    model = "optional"
    # command: list, or url: text, with `token_from` naming the environment variable that holds a bearer token, or
    # `token_file_from` one that names a file with it. tools: verb → tool,
    # arguments (words in braces: text, date, id, query, k, space), answer (text, lines, json), field. environment:
    # names passed on
    settings: dict[str, Any] = {
        "command": [], "url": "", "token_from": "", "token_file_from": "", "environment": [], "tools": {}, "feeds": "session", "dates": "text",
        "version": "", "timeout_s": 300, "longest": 0, "dump_reason": "",
    }  # fmt: skip

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        tools = self.config["tools"]
        for verb in tools if isinstance(tools, dict) else ["tools"]:
            if verb not in VERBS or not isinstance(tools[verb], dict) or not isinstance(tools[verb].get("tool"), str):
                raise ValueError(
                    f"mcp: `tools` maps {', '.join(VERBS)} to an object with `tool` and `arguments`; {verb!r} does not"
                )
        if self.config["feeds"] not in ("session", "pair", "utterance") or self.config["dates"] not in (
            "native",
            "text",
            "none",
        ):
            raise ValueError("mcp: feeds is session, pair or utterance, and dates is native, text or none")
        self.feeds, self.dates = self.config["feeds"], self.config["dates"]
        self.capabilities = frozenset(verb for verb in ("search", "forget") if verb in tools)
        self.listing = (
            ""
            if "dump" in tools
            else self.config["dump_reason"] or "the settings name no tool that lists what is stored"
        )

    def version(self) -> str:
        return self.config["version"] or "unknown"

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        self.client = self._client()
        try:
            self.client.begin(self.config["timeout_s"])
            offered = self.client.tools(self.config["timeout_s"])
            for verb, how in self.config["tools"].items():
                if how["tool"] not in offered:
                    raise SystemFailure(
                        f"the server has no tool {how['tool']!r} for {verb}; it has {', '.join(offered)}", "not_ready"
                    )
        except (Lost, Refused) as error:
            self.client.close()
            raise SystemFailure(f"the server cannot be used: {error}", "not_ready") from None
        except BaseException:
            self.client.close()
            raise

    def _client(self) -> Client:
        if self.config["url"]:
            from kiokulab.systems.environments import secret

            name, file_name = self.config["token_from"], self.config["token_file_from"]
            token = secret(name, file_name)
            if (name or file_name) and not token:
                raise SystemFailure(
                    f"the server needs a sign-in: {file_name or 'no variable'} names no file with it, and {name or 'no variable'} is not set",
                    "not_installed",
                )
            return Http(self.config["url"], token)
        if not self.config["command"]:
            raise SystemFailure("neither `command` nor `url` says where the server is", "not_ready")
        from kiokulab.systems.process import clean_environment

        place = Path(self.workdir)
        for folder in ("home", "tmp"):
            (place / folder).mkdir(exist_ok=True)
        words = {"space": self.space, "workdir": self.workdir, "endpoint": self.endpoint or ""}
        environment = clean_environment(place) | {
            name: os.environ[name] for name in self.config["environment"] if name in os.environ
        }
        try:
            return Stdio(
                filled(self.config["command"], words),
                os.path.join(self.workdir, "server.log"),
                self.workdir,
                environment,
                inherit=False,
            )
        except OSError as error:
            raise SystemFailure(f"the server cannot be started: {error}", "not_installed") from None

    def close(self) -> None:
        self.client.close()

    def _call(self, verb: str, **words: Any) -> str:
        how = self.config["tools"].get(verb)
        if how is None:
            raise Unsupported(verb, "the settings name no tool for it")
        try:
            return self.client.call(
                how["tool"], filled(how.get("arguments", {}), {"space": self.space, **words}), self.config["timeout_s"]
            )
        except (Lost, Refused) as error:
            raise SystemFailure(str(error)) from None

    def _entries(self, verb: str, **words: Any) -> list[dict[str, Any]]:
        text, how = self._call(verb, **words), self.config["tools"][verb]
        try:
            return read_answer(text, how.get("answer", "text"), how.get("field", "text"))
        except ValueError as error:
            raise SystemFailure(f"{verb}: {error}: {text[:200]}") from None

    def ingest(self, item: Item, when: str) -> Ingested:
        if isinstance(item, Session):
            turns = item.turns
        elif hasattr(item, "user"):
            turns = (item.user, item.assistant)
        else:
            turns = (item.turn,) if hasattr(item, "turn") else ()
        text = "\n".join(f"{turn.role}: {turn.text}" for turn in turns if turn.text) if turns else item.text
        for part in pieces(text, self.config["longest"]):
            self._call("ingest", text=part, date=when, id=item.id)
        return Ingested()

    def settle(self, timeout: float) -> None:
        if "settle" in self.config["tools"]:
            self._call("settle", timeout=timeout)

    def forget(self, selector: dict[str, Any]) -> int | None:
        if "query" not in selector:
            raise Unsupported("forget", "the adapter forgets by meaning only")
        self._call("forget", query=selector["query"])
        return None

    def dump(self) -> list[Memory]:
        if "dump" not in self.config["tools"]:
            raise Unsupported("dump", self.listing)
        rows = self._entries("dump")
        return [
            Memory(str(row.get("id", f"e{number:06d}")), row["text"], created=row.get("created"))
            for number, row in enumerate(rows, 1)
        ]

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        rows = self._entries("search", query=query, k=k, date=when or "")
        one = self.config["tools"]["search"].get("answer", "text") == "text"
        return Results(
            [Hit(row["text"], row.get("id"), row.get("score")) for row in rows[:k]],
            shown=rows[0]["text"] if one and rows else None,
        )


def pieces(text: str, longest: int) -> list[str]:
    """`text` in parts of at most `longest` characters (0: one part), cut at line ends where there are any. Pure."""
    if not longest or len(text) <= longest:
        return [text]
    parts, part = [], ""
    for line in text.splitlines(keepends=True):
        while len(line) > longest:
            parts, part, line = [*parts, *([part] if part else []), line[:longest]], "", line[longest:]
        if len(part) + len(line) > longest:
            parts, part = [*parts, part], ""
        part += line
    return [one for one in [*parts, part] if one.strip()]


class Sepiace(McpServer):
    """sepiace: one tool, `memory`, with one text; its server decides what the text asks of it. Its store cannot be
    listed."""

    name = "sepiace"
    licence = "hosted service"
    needs = "an account and its sign-in"
    model = "none"
    settings = {
        **McpServer.settings,
        "url": "https://hi.sepiace.io/api/v1/mcp",
        "token_from": "SEPIACE_TOKEN",
        "token_file_from": "SEPIACE_ACCESS_FILE",
        "longest": 4000,
        "version": "hosted",
        "tools": {
            "ingest": {"tool": "memory", "arguments": {"request": "{text}"}},
            "search": {"tool": "memory", "arguments": {"request": "{query}"}, "answer": "text"},
            "forget": {"tool": "memory", "arguments": {"request": "Please forget this: {query}"}},
        },
        "dump_reason": "sepiace has no call that lists what is stored; only what a question recalls can be seen",
    }

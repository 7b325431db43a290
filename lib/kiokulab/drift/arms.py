"""The in-process arms: flat stores read in different ways, the two ends of the scale, and the interface of a replay.

`grep`, `curated`, `whole`, `chance` and `tfidf` follow the public benchmark's arms (docs and src/arms of its
repository, whose stop words are rules of those arms and are kept), in our own program; the frozen worlds give their
published figures. `vector` is its `rag` with an embedder of the kit. `mute` and `oracle` are ours.

One addition that no English text reaches: a run of Japanese letters is read as its pairs of neighbouring characters,
since it has no spaces. Without it the lexical arms would find nothing in a Japanese world.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kiokulab.drift.script import CAPABILITIES, Hit, Inscribed, Recalled, Script, Suspect, fnv1a, tokens
from kiokulab.errors import InputError

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
CURATED_TOKENS = 3000  # a believable file that someone keeps by hand
CURATED_CHARACTERS = 200
SHOWN_SHARE, FLOOR = 0.7, 0.08  # tfidf: hits below this share of the best are not shown; below the floor it declines

GREP_STOPWORDS = frozenset(
    """a about an and are as at be been by did do does for from how if in into is it its no not of on or our so than
    that     the then this to up us was we were what which who with yes you""".split()
)
TFIDF_STOPWORDS = frozenset(
    """a an and are around as at be been by did do does for from how if in is it its of on once one or our so that the
    this     to up was we were what which who with""".split()
)
LOADED_WORDS = frozenset(
    "contrary never no nobody not other stopped than wrong".split()
)  # a difference that changes the claim
LOADED_PAIRS = frozenset(
    "ない なし ぬ 誤り 別の 反し 止め やめ".split()
)  # the same for Japanese, as substrings of what differs

_JAPANESE = re.compile("[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f]+")


def has(**flags: bool) -> dict[str, bool]:
    """The capabilities of an arm: those named, all others False."""
    if unknown := set(flags) - set(CAPABILITIES):
        raise ValueError(f"no such capability: {sorted(unknown)}")
    return {name: flags.get(name, False) for name in CAPABILITIES}


class Memory(Protocol):
    """What a replay talks to: the twelve operations. `record` is a dict of the script's format."""

    name: str
    capabilities: dict[str, bool]

    def inscribe(self, record: dict, mode: str) -> Inscribed: ...
    def link(self, from_key: str, to_key: str, verb: str) -> bool: ...
    def supersede(self, old: str, new: dict) -> None: ...
    def release(self, key: str, reason: str) -> None: ...
    def purge(self, key: str) -> None: ...
    def endorse(self, key: str, by: str) -> bool: ...
    def settle(self) -> str | None: ...
    def recall(self, query: str, k: int, window: dict | None) -> Recalled: ...
    def recall_path(self, path: str, k: int) -> Recalled: ...
    def suspects(self) -> list[Suspect] | None: ...
    def lineage(self, key: str) -> list[str] | None: ...
    def standing_tokens(self) -> int: ...


def words(text: str, longer_than: int, stopwords: frozenset[str]) -> list[str]:
    """Lower-cased alphanumeric runs of more than `longer_than` UTF-8 bytes, without stop words; Japanese runs as
    pairs."""
    runs: list[str] = []
    current: list[str] = []
    for character in text + " ":
        if character.isalnum():
            current.append(character)
        elif current:
            runs.append("".join(current))
            current = []
    result = []
    for run in runs:
        for piece in _pieces(run) if not run.isascii() else (run,):
            if len(piece.encode("utf-8", "surrogatepass")) > longer_than and (low := piece.lower()) not in stopwords:
                result.append(low)
    return result


def _pieces(run: str) -> Iterable[str]:
    place = 0
    for match in _JAPANESE.finditer(run):
        if match.start() > place:
            yield run[place : match.start()]
        part = match.group()
        yield from (part[n : n + 2] for n in range(len(part) - 1)) if len(part) > 1 else (part,)
        place = match.end()
    if place < len(run):
        yield run[place:]


class Draws:
    """splitmix64: the same draws for the same seed, on every machine."""

    def __init__(self, seed: int):
        self.state = (seed + GOLDEN) & MASK

    def next(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        return _finish(self.state)

    def below(self, n: int) -> int:
        return self.next() % n


def _finish(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def whole_text(record: dict) -> str:
    return f"## {record['title']}\n{record['body']}"


class Flat:
    """A flat store: no links, no history, no trace, no queue. Records lie in slots in the order of writing; a deleted
    one leaves an empty slot, so that what was computed for a slot stays right."""

    name = "flat"
    capabilities = has(temporal=True)

    def __init__(self) -> None:
        self.slots: list[dict | None] = []
        self.slot_of: dict[str, int] = {}
        self.live: list[int] = []
        self.changed()

    def changed(self) -> None:
        """Called after every write: forget what was computed for the whole store."""
        self._live_slots: np.ndarray | None = None

    def inscribe(self, record: dict, mode: str) -> Inscribed:
        self.slot_of[record["key"]] = len(self.slots)
        self.live.append(len(self.slots))
        self.slots.append(record)
        self.added(len(self.slots) - 1, record)
        self.changed()
        return Inscribed()

    def delete(self, key: str) -> None:
        slot = self.slot_of.pop(key, None)
        if slot is not None:
            record, self.slots[slot] = self.slots[slot], None
            self.live.remove(slot)
            self.removed(slot, record)
            self.changed()

    def added(self, slot: int, record: dict) -> None: ...
    def removed(self, slot: int, record: dict) -> None: ...

    def link(self, from_key: str, to_key: str, verb: str) -> bool:
        return False

    def supersede(self, old: str, new: dict) -> None:
        self.delete(old)
        self.inscribe(new, "import")

    def release(self, key: str, reason: str) -> None:
        self.delete(key)

    def purge(self, key: str) -> None:
        self.delete(key)

    def endorse(self, key: str, by: str) -> bool:
        return False

    def settle(self) -> str | None:
        return None

    def suspects(self) -> list[Suspect] | None:
        return None

    def lineage(self, key: str) -> list[str] | None:
        return None

    def standing_tokens(self) -> int:
        return 0

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        raise NotImplementedError

    def recall_path(self, path: str, k: int) -> Recalled:
        return self.recall(path, k, None)

    def pool(self, window: dict | None) -> list[int]:
        """Live slots in writing order, inside the window of capture times where one is given."""
        if window is None:
            return self.live
        return [slot for slot in self.live if _inside(window, self.slots[slot]["created_at"])]

    def hit(self, slot: int, score: float | None, text: str | None = None) -> Hit:
        record = self.slots[slot]
        return Hit(whole_text(record) if text is None else text, record["key"], score, record["created_at"])

    def best(self, scores: np.ndarray, window: dict | None, k: int) -> list[int]:
        """The k live slots with the highest scores above 0; equal ones in writing order."""
        if window is None:
            if self._live_slots is None:
                self._live_slots = np.asarray(self.live, dtype=np.int64)
            slots = self._live_slots
        else:
            slots = np.asarray(self.pool(window), dtype=np.int64)
        if not len(slots):
            return []
        found = scores[slots]
        slots, found = slots[found > 0], found[found > 0]
        return slots[np.argsort(-found, kind="stable")[:k]].tolist()


def _inside(window: dict, moment: int | None) -> bool:
    if moment is None:
        return False
    return ("after" not in window or moment >= window["after"]) and (
        "before" not in window or moment < window["before"]
    )


class Grep(Flat):
    """How many of the question's words a note contains, as substrings."""

    name = "grep"

    def __init__(self) -> None:
        self.lowered: list[str] = []
        self.contains: dict[str, bytearray] = {}  # word -> one byte a slot
        super().__init__()

    def added(self, slot: int, record: dict) -> None:
        low = whole_text(record).lower()
        self.lowered.append(low)
        for word, row in self.contains.items():
            row.append(word in low)

    def removed(self, slot: int, record: dict) -> None:
        self.lowered[slot] = ""

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        wanted = sorted(set(words(query, 2, GREP_STOPWORDS)))
        scores = np.zeros(len(self.slots), dtype=np.int64)
        for word in wanted:
            row = self.contains.get(word)
            if row is None:
                row = self.contains[word] = bytearray(word in low for low in self.lowered)
            scores += np.frombuffer(row, dtype=np.uint8)  # a copy is added: the row may still grow
        return Recalled([self.hit(slot, float(scores[slot]) / len(wanted)) for slot in self.best(scores, window, k)])

    def recall_path(self, path: str, k: int) -> Recalled:
        needle = path.strip()
        found = [slot for slot in self.live if needle and any(needle in ref for ref in self.slots[slot]["code_refs"])]
        return Recalled([self.hit(slot, 1.0) for slot in found[:k]])


class Chance(Flat):
    """Notes drawn by a hash of the question: what any real retrieval must beat."""

    name = "chance"

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        seed = 0
        for byte in query.encode("utf-8", "surrogatepass"):
            seed = ((seed * 0x100000001B3) & MASK) ^ byte
        draws, pool, picked = Draws(seed), self.pool(window), {}
        while len(picked) < min(k, len(pool)):
            picked.setdefault(pool[draws.below(len(pool))])
        return Recalled([self.hit(slot, 0.5) for slot in picked])


class Whole(Flat):
    """Every note in the context, every time."""

    name = "whole"
    capabilities = has()

    def changed(self) -> None:
        super().changed()
        self._dump: Recalled | None = None  # the same reply until something is written

    def entries(self) -> list[tuple[int, str]]:
        return [(slot, whole_text(self.slots[slot])) for slot in self.live]

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        if self._dump is None:
            self._dump = Recalled([self.hit(slot, None, text) for slot, text in self.entries()], dump=True)
        return self._dump

    def standing_tokens(self) -> int:
        return sum(tokens(text) + 1 for _, text in self.entries())


class Curated(Whole):
    """A file kept by hand: the durable kinds first, filled to a budget in an order blind to the questions."""

    name = "curated"
    ORDER = {"Principle": 0, "Decision": 1, "Caution": 2, "Insight": 3}

    def entries(self) -> list[tuple[int, str]]:
        def place(slot: int) -> tuple[int, int]:
            record = self.slots[slot]
            return self.ORDER.get(record["kind"], 4), _finish(fnv1a(record["key"].encode("utf-8", "surrogatepass")))

        used, chosen = 0, []
        for slot in sorted(self.live, key=place):
            record = self.slots[slot]
            text = f"## {record['title']}\n{record['body'][:CURATED_CHARACTERS]}"
            if used + tokens(text) + 1 <= CURATED_TOKENS:
                used += tokens(text) + 1
                chosen.append((slot, text))
        return chosen


class _Growing:
    """A row of numbers that is added to at its end."""

    def __init__(self, kind: type):
        self.room, self.size = np.zeros(1024, dtype=kind), 0

    def add(self, values: np.ndarray) -> None:
        while self.size + len(values) > len(self.room):
            self.room = np.concatenate([self.room, np.zeros_like(self.room)])
        self.room[self.size : self.size + len(values)] = values
        self.size += len(values)

    def values(self) -> np.ndarray:
        return self.room[: self.size]


class Tfidf(Flat):
    """Cosine over TF-IDF, titles only, and contradictions by the words in which two titles differ."""

    name = "tfidf"
    capabilities = has(suspects=True, temporal=True, verdict=True, write_check=True)

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self.document_counts: list[int] = []  # a term -> live notes that hold it
        self.terms_of: list[np.ndarray] = []  # a slot -> its terms
        # what every note holds, in one row each, only ever added to: term, 1 + ln(frequency), slot. A deleted note
        # stays in them and is left out by `pool`; its terms are counted down.
        self.flat = [_Growing(np.int64), _Growing(np.float64), _Growing(np.int64)]
        self.postings: list[tuple[list[int], list[float]]] = []  # a term -> slots and weights
        self.posted: dict[
            int, tuple[np.ndarray, np.ndarray]
        ] = {}  # the same as arrays, for the terms that were asked for
        self.title_words: list[frozenset[str]] = []
        self.titles_with: dict[str, set[int]] = {}
        self.queue: dict[frozenset[str], Suspect] = {}
        super().__init__()

    def changed(self) -> None:
        super().changed()
        self._weighed: tuple[np.ndarray, np.ndarray] | None = None

    def added(self, slot: int, record: dict) -> None:
        counts = Counter(words(f"{record['title']}\n{record['body']}", 1, TFIDF_STOPWORDS))
        for term in counts:
            if self.vocabulary.setdefault(term, len(self.document_counts)) == len(self.document_counts):
                self.document_counts.append(0)
                self.postings.append(([], []))
            self.document_counts[self.vocabulary[term]] += 1
        terms = np.array([self.vocabulary[term] for term in counts], dtype=np.int64)
        weights = 1.0 + np.log(np.array(list(counts.values()), dtype=np.float64))
        self.terms_of.append(terms)
        for rows, values in zip(self.flat, (terms, weights, np.full(len(terms), slot)), strict=True):
            rows.add(values)
        for term, weight in zip(terms.tolist(), weights.tolist(), strict=True):
            self.postings[term][0].append(slot)
            self.postings[term][1].append(weight)
            self.posted.pop(term, None)
        self.title_words.append(frozenset(words(record["title"], 1, TFIDF_STOPWORDS)))
        for word in self.title_words[slot]:
            self.titles_with.setdefault(word, set()).add(slot)

    def removed(self, slot: int, record: dict) -> None:
        for term in self.terms_of[slot]:
            self.document_counts[term] -= 1
        for word in self.title_words[slot]:
            self.titles_with[word].discard(slot)

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """(idf by term, norm by slot), made anew after a write: every write moves every idf."""
        if self._weighed is None:
            idf = (
                np.log((1.0 + max(1, len(self.live))) / (1.0 + np.array(self.document_counts, dtype=np.float64))) + 1.0
            )
            terms, weights, owners = (rows.values() for rows in self.flat)
            weighted = weights * idf[terms]
            self._weighed = idf, np.sqrt(np.bincount(owners, weighted * weighted, minlength=len(self.slots)))
        return self._weighed

    def _posted(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        if term not in self.posted:
            slots, weights = self.postings[term]
            self.posted[term] = np.array(slots, dtype=np.int64), np.array(weights)
        return self.posted[term]

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        idf, norms = self._weights()
        unseen_idf = math.log(1.0 + max(1, len(self.live))) + 1.0
        scores = np.zeros(len(self.slots))
        norm = 0.0
        for term, count in Counter(words(query, 1, TFIDF_STOPWORDS)).items():
            number = self.vocabulary.get(term)
            weight = (1.0 + math.log(count)) * (unseen_idf if number is None else float(idf[number]))
            norm += weight * weight
            if number is not None:
                slots, weights = self._posted(number)
                scores[slots] += weight * (weights * idf[number])
        if norm:
            scores = np.divide(scores, math.sqrt(norm) * norms, out=np.zeros(len(scores)), where=norms > 0)
        found = self.best(scores, window, k)
        best = float(scores[found[0]]) if found else 0.0
        hits = [
            self.hit(slot, float(scores[slot]), self.slots[slot]["title"])
            for slot in found
            if scores[slot] >= SHOWN_SHARE * best
        ]
        return Recalled(hits, declined=best < FLOOR or self._names_a_stranger(query))

    def _names_a_stranger(self, query: str) -> bool:
        for word in re.findall(r"[^\W_]+", query):
            if len(word.encode("utf-8", "surrogatepass")) > 2 and word[0].isupper():
                number = self.vocabulary.get(word.lower())
                if number is None or not self.document_counts[number]:
                    return True
        return False

    @staticmethod
    def _loaded(word: str) -> bool:
        return (word.isascii() and word.isdigit()) or word in LOADED_WORDS or word in LOADED_PAIRS

    def _differ(self, mine: frozenset[str], other: frozenset[str]) -> str | None:
        """Whether most of `mine` stands in `other`, and whether what is left over changes the claim."""
        shared = len(mine & other)
        if shared < 4 or shared / max(1, len(mine)) < 0.6:
            return None
        return "contradiction" if any(map(self._loaded, mine - other)) else "entailment"

    def inscribe(self, record: dict, mode: str) -> Inscribed:
        result = Inscribed()
        if mode == "write":
            mine = frozenset(words(record["title"], 1, TFIDF_STOPWORDS))
            shared = Counter(slot for word in mine for slot in self.titles_with.get(word, ()))
            near = [slot for slot, count in shared.items() if count >= 4 and count / len(mine) >= 0.6]
            if near:
                slot = min(near, key=lambda found: (-shared[found], found))
                key, hint = self.slots[slot]["key"], self._differ(mine, self.title_words[slot])
                if hint == "entailment" and mine <= self.title_words[slot]:
                    result = Inscribed(matched=key, nli_label="entailment")
                elif hint == "contradiction":
                    result = Inscribed(suspects=[Suspect(record["key"], key, "contradiction")])
        super().inscribe(record, mode)
        return result

    def settle(self) -> str | None:
        """Every pair of stored titles: nominated when either one, read against the other, changes the claim."""
        from scipy.sparse import csr_matrix

        live = self.live
        numbers = {word: n for n, word in enumerate(sorted(word for word, slots in self.titles_with.items() if slots))}
        rows = [
            (n, numbers[word], self._loaded(word)) for n, slot in enumerate(live) for word in self.title_words[slot]
        ]
        if not rows:
            return "word differences nominated 0 pairs"
        place, column, loaded = (np.array(values) for values in zip(*rows, strict=True))
        shape = (len(live), len(numbers))
        whole = csr_matrix((np.ones(len(place), dtype=np.int32), (place, column)), shape=shape)
        charged = csr_matrix((loaded.astype(np.int32), (place, column)), shape=shape)
        sizes, charges = np.asarray(whole.sum(axis=1)).ravel(), np.asarray(charged.sum(axis=1)).ravel()
        nominated = 0
        for start in range(0, len(live), 512):  # a block of rows at a time, so that 10,000 notes fit in memory
            block = slice(start, start + 512)
            shared = (whole[block] @ whole.T).toarray()
            mine_lost = (
                charges[block, None] - (charged[block] @ whole.T).toarray()
            )  # loaded words of the row's title that the other lacks
            other_lost = charges[None, :] - (whole[block] @ charged.T).toarray()
            clash = (shared >= 4) & (
                ((shared / np.maximum(1, sizes[block, None]) >= 0.6) & (mine_lost > 0))
                | ((shared / np.maximum(1, sizes[None, :]) >= 0.6) & (other_lost > 0))
            )
            for row, other in np.argwhere(clash):
                if other > start + row:
                    a, b = (self.slots[live[n]]["key"] for n in (start + row, other))
                    nominated += 1
                    self.queue.setdefault(frozenset((a, b)), Suspect(a, b, "contradiction"))
        return f"word differences nominated {nominated} pairs"

    def suspects(self) -> list[Suspect] | None:
        return list(self.queue.values())


class Vector(Flat):
    """The nearest notes by an embedding of title and body: the public arm `rag` with whatever embedder is given.

    Similarities are rounded to four decimals, and equal ones stand in writing order: an embedder gives the last digits
    differently for different batches."""

    name = "vector"

    def __init__(self, embedder: Any):
        self.embedder = embedder
        self.vectors: list[np.ndarray | None] = []
        self.known: dict[str, np.ndarray] = {}
        super().__init__()

    def prepare(self, script: Script) -> None:
        """Embed all texts of a script at once: the same vectors as one by one, many times faster."""
        texts = {
            f"{record['title']}\n{record['body']}": None
            for op in script.ops
            if (record := op.get("record") or op.get("new"))
        }
        texts |= {op[name]: None for op in script.ops for name in ("query", "path") if name in op}
        new = [text for text in texts if text not in self.known]
        if new:
            self.known.update(zip(new, np.asarray(self.embedder.encode(new), dtype=np.float32), strict=True))

    def _vector(self, text: str) -> np.ndarray:
        if text not in self.known:
            self.known[text] = np.asarray(self.embedder.encode([text]), dtype=np.float32)[0]
        return self.known[text]

    def changed(self) -> None:
        super().changed()
        self._matrix: np.ndarray | None = None

    def added(self, slot: int, record: dict) -> None:
        self.vectors.append(self._vector(f"{record['title']}\n{record['body']}"))

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        if not self.live:
            return Recalled()
        if self._matrix is None:
            self._matrix = np.stack([self.vectors[slot] for slot in self.live])
        wanted = self._vector(query)
        similarity = np.full(len(self.slots), -2.0)
        similarity[self.live] = np.round(self._matrix @ wanted, 4)
        slots = np.asarray(self.pool(window), dtype=np.int64)
        slots = slots[np.argsort(-similarity[slots], kind="stable")[:k]]
        return Recalled([self.hit(int(slot), float(min(1.0, max(0.0, similarity[slot])))) for slot in slots])


class Mute(Flat):
    """Stores nothing and answers nothing. It scores 300 of 1,000 (abstention, deletion and tokens), because silence is
    right where there is nothing to say; its success is the share of such tasks. Read every other score beside it."""

    name = "mute"
    capabilities = has(temporal=True)

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        return Recalled()


@dataclass
class _Note:
    record: dict
    live: bool = True
    released: bool = False
    endorsed: list[str] = field(default_factory=list)


class Oracle(Flat):
    """Knows the expected outcomes of its script and gives exactly those: the proof that every task can be passed.
    It is the ceiling of the task count, and no memory."""

    name = "oracle"
    capabilities = {name: True for name in CAPABILITIES}

    def __init__(self, script: Script):
        self.notes: dict[str, _Note] = {}
        self.by_question: dict[
            tuple, list[dict]
        ] = {}  # some questions are asked twice, about different notes: first asked first
        self.pairs: list[Suspect] = []
        self.versions: dict[str, list[str]] = {}
        self.returns: dict[str, str] = {}
        probes = {probe["id"]: probe for probe in script.probes}
        for op in script.ops:
            if op["op"] in ("recall", "recall_path") and op["id"] in probes:
                self.by_question.setdefault(self._question(op), []).append(probes[op["id"]])
            if op["op"] == "inscribe" and "id" in op and op["id"] in probes:
                self.returns[op["record"]["key"]] = probes[op["id"]]["victim"]
        for probe in script.probes:
            if probe["expect"] == "case" and probe["positive"]:
                self.pairs.append(Suspect(probe["witness"], probe["gold"], "contradiction"))
            elif probe["expect"] == "drifted":
                self.pairs.append(Suspect(probe["stale"], probe["gold"], "contradiction"))
        super().__init__()

    @staticmethod
    def _question(op: dict) -> tuple:
        window = op.get("window") or {}
        return op.get("query"), op.get("path"), window.get("after"), window.get("before")

    def inscribe(self, record: dict, mode: str) -> Inscribed:
        self.notes[record["key"]] = _Note(record)
        victim = self.returns.get(record["key"])
        if victim is not None and self.notes[victim].released:
            return Inscribed(warnings=[("tombstoned", victim)])
        return Inscribed()

    def link(self, from_key: str, to_key: str, verb: str) -> bool:
        return True

    def supersede(self, old: str, new: dict) -> None:
        self.inscribe(new, "import")
        self.versions[new["key"]] = [*self.versions.get(old, []), old]

    def release(self, key: str, reason: str) -> None:
        self.notes[key].live, self.notes[key].released = False, True

    def purge(self, key: str) -> None:
        self.notes[key].live = False

    def endorse(self, key: str, by: str) -> bool:
        return True

    def suspects(self) -> list[Suspect] | None:
        return self.pairs

    def lineage(self, key: str) -> list[str] | None:
        return [*self.versions.get(key, []), key]

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        return self._answer(self._question({"query": query, "window": window}), k)

    def recall_path(self, path: str, k: int) -> Recalled:
        return self._answer(self._question({"path": path}), k)

    def _answer(self, question: tuple, k: int) -> Recalled:
        waiting = self.by_question.get(question)
        probe = waiting.pop(0) if waiting else None
        if probe is None or probe["expect"] == "control":
            return Recalled(declined=True)
        if probe["expect"] == "absent":
            marker = Hit("a note was here and was released", None, None, None, True)
            return Recalled([marker] if probe["released"] else [])
        if probe["expect"] == "ranked":
            keys = [probe["winner"], *probe["losers"]]
        elif probe["expect"] == "bound":
            keys = list(dict.fromkeys(probe["gold"]))[:k]
        else:
            keys = [probe.get("gold") or probe["head"]]
        return Recalled(
            [
                Hit(whole_text(note.record), key, 1.0, note.record["created_at"])
                for key in keys
                if (note := self.notes[key]).live
            ]
        )


def make(name: str, script: Script, embedder: Callable[[], Any] | None = None) -> Memory:
    """An empty arm by its name. `embedder` is called only for `vector`. Raises InputError for an unknown name."""
    if name == "oracle":
        return Oracle(script)
    if name == "vector":
        if embedder is None:
            raise InputError("the arm 'vector' needs an embedder", "embedder")
        arm = Vector(embedder())
        arm.prepare(script)
        return arm
    if name not in PLAIN_ARMS:
        raise InputError(f"no arm {ascii(name)}", "system", f"It is one of {', '.join(ARMS)}, or a system of the kit")
    return PLAIN_ARMS[name]()


PLAIN_ARMS: dict[str, Callable[[], Memory]] = {arm.name: arm for arm in (Mute, Chance, Curated, Whole, Grep, Tfidf)}
ARMS = ("oracle", *PLAIN_ARMS, "vector")

"""Five memories of our own, without any model but the kit's embedder: two anchors, the page's baseline, and two plain
memories to compare with. They run in the kit's own process; `baselines.md` says what each is for and where it fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from kiokulab import embed
from kiokulab.files import dumps, read_jsonl, write_jsonl
from kiokulab.systems.base import (
    Hit,
    Ingested,
    Item,
    Memory,
    Pair,
    Results,
    Session,
    System,
    Turn,
    Unsupported,
    Utterance,
)

SYSTEMS = {
    "null": "Null",
    "oracle": "Oracle",
    "store-everything": "StoreEverything",
    "vector": "Vector",
    "replace-similar": "ReplaceSimilar",
}


def said(item: Item) -> list[Turn]:
    """The utterances of an item in order, without empty ones; a request is something the user says."""
    if isinstance(item, Session):
        turns = list(item.turns)
    elif isinstance(item, Pair):
        turns = [item.user, item.assistant]
    else:
        turns = [item.turn] if isinstance(item, Utterance) else [Turn("user", item.text)]
    return [turn for turn in turns if turn.text]


class Null(System):
    """Stores nothing."""

    name, dates, capabilities = "null", "native", frozenset({"search", "forget", "reset"})
    keeps = "none"

    def ingest(self, item: Item, when: str) -> Ingested:
        return Ingested(added=0, changed=0, removed=0)

    def dump(self) -> list[Memory]:
        return []

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        return Results([])

    def forget(self, selector: dict[str, Any]) -> int:
        return 0  # there is never anything to drop

    def reset(self) -> None:
        pass


class Lines(System):
    """A list of texts in one JSON-lines file of the store folder, searched by embedding. Base of the other four."""

    dates, capabilities = "native", frozenset({"search", "reset"})
    settings = {"embedder": "use"}

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        self.embedder = embed.get(self.config["embedder"])
        self.vectors: dict[str, np.ndarray] = {}
        self.file = Path(workdir) / "memories.jsonl"
        self.rows: list[dict] = read_jsonl(self.file) if self.file.exists() else []
        self.last = max((int(row["id"][1:]) for row in self.rows), default=0)

    def reset(self) -> None:
        self.keep([])

    def close(self) -> None:
        self.rows, self.vectors = [], {}

    def add(self, text: str, when: str, kind: str) -> None:
        self.last += 1
        self.rows.append({"id": f"m{self.last:06d}", "text": text, "created": when, "kind": kind})
        with open(self.file, "ab") as file:
            file.write((dumps(self.rows[-1]) + "\n").encode("utf-8"))

    def keep(self, rows: list[dict]) -> None:
        """Replace the store by `rows`."""
        self.rows = rows
        write_jsonl(self.file, rows)

    def matrix(self, texts: list[str]) -> np.ndarray:
        """Vectors of `texts`, (n, dim); each distinct text is embedded once in this life of the store."""
        new = [text for text in dict.fromkeys(texts) if text not in self.vectors]
        self.vectors.update(zip(new, self.embedder.encode(new), strict=True))
        return np.stack([self.vectors[text] for text in texts]) if texts else self.embedder.encode([])

    def settle(self, timeout: float) -> None:
        self.matrix([row["text"] for row in self.rows])

    def dump(self) -> list[Memory]:
        return [
            Memory(row["id"], row["text"], created=row["created"], kind=row["kind"], source=self.file.name)
            for row in self.rows
        ]

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        if not self.rows:
            return Results([])
        asked, stored = self.embedder.encode([query])[0], self.matrix([row["text"] for row in self.rows])
        scores = embed.similarities(asked, stored)
        best = [(self.rows[n], float(scores[n])) for n in embed.rank(asked, stored)[: max(k, 0)]]
        return Results([Hit(row["text"], row["id"], score, row["created"]) for row, score in best])


class Oracle(Lines):
    """Stores exactly the ledger's current versions: what a perfect memory would hold, and the proof that the harness
    can give full marks. It ignores what is said; the harness hands it the ledger (`ledger`), as it does to no other."""

    name, capabilities = "oracle", frozenset({"search", "forget", "reset"})
    keeps, sees_ledger = "none", True

    def ledger(self, facts: list[dict]) -> None:
        """Called once by the harness, after the last item, and only where the class says ``sees_ledger``. `facts`:
        ``{"text", "date"}`` of every fact that is true at the end and not forgotten, in ledger order."""
        self.keep([])
        for fact in facts:
            self.add(fact["text"], fact["date"], "fact")

    def ingest(self, item: Item, when: str) -> None:
        return None

    def forget(self, selector: dict[str, Any]) -> None:
        return None  # what is to be forgotten is not in the ledger that it gets


class StoreEverything(Lines):
    """Keeps every utterance of both sides as it is."""

    name, feeds = "store-everything", "session"

    def ingest(self, item: Item, when: str) -> Ingested:
        turns = said(item)
        for turn in turns:
            self.add(turn.text, when, turn.role)
        return Ingested(added=len(turns), changed=0, removed=0)


class Vector(Lines):
    """Keeps every utterance of the user as it is: a plain vector store."""

    name, feeds, keeps = "vector", "session", "some"

    def ingest(self, item: Item, when: str) -> Ingested:
        turns = [turn for turn in said(item) if turn.role == "user"]
        for turn in turns:
            self.add(turn.text, when, "user")
        return Ingested(added=len(turns), changed=0, removed=0)


# --- replace-similar: a demonstration ---------------------------------------------------------------------------

FORGET = re.compile(
    r"(?<!n't )(?<!n’t )(?<!never )(?<!not )(?<!\bI )\b(?:forget|delete|erase)\b"
    r"|忘れて(?!しま|いた|いる|いま|た|な|は|も)|忘れてほしい|消して(?!しま|いた|いる)|消去して|削除して",
    re.IGNORECASE,
)
CHANGE = re.compile(
    r"\b(?:now|instead|any ?more|no longer|changed?|moved?|switched|updated?|used to|these days|new)\b"
    r"|変わ|変え|変更|今は|今では|やめ|になった|になりました|に移|切り替え|新しい",
    re.IGNORECASE,
)
REMEMBER = re.compile(
    r"^\s*(?:please\s+)?(?:remember|note)(?:\s+(?:that|this))?\s*[:,]?\s*|(?:覚えて|記憶して)(?:おいて)?(?:ください|ほしい|ね)*[。:：]?",
    re.I,
)
FIRST_PERSON = re.compile(r"\b(?:I|I['’]\w+|my|mine|we|our|us|me)\b", re.IGNORECASE)
JAPANESE = re.compile(r"[ぁ-んァ-ヶ一-龠]")
ASKS = re.compile(r"[?？]\s*$|(?:か|かな|でしょうか|教えて|ください|お願い\w*)[。！!]?\s*$")
SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?](?=\d)[^.!?。！？\n]*)*[.!?。！？]*")


def statements(text: str) -> list[str]:
    """The sentences of an utterance that say something of the speaker: in English they have a first person, in
    Japanese, which leaves it out, every sentence of 8 characters or more; questions and requests are left out."""
    kept = []
    for sentence in (part.strip() for part in SENTENCE.findall(REMEMBER.sub("", text))):
        long_enough = len(sentence) >= 8 if JAPANESE.search(sentence) else FIRST_PERSON.search(sentence)
        if sentence and long_enough and not ASKS.search(sentence):
            kept.append(sentence)
    return kept


class ReplaceSimilar(Lines):
    """Keeps what the user states; a statement replaces the nearest older one about the same thing; a request to forget
    drops what it names. Numbers are masked before two statements are compared, so that a new value is still the same
    thing. The three limits are round figures set before any score was seen."""

    name, feeds, keeps = "replace-similar", "utterance", "some"
    capabilities = frozenset({"search", "forget", "reset"})
    settings = {
        "embedder": "use",
        "same": 0.8,  # as close as this: about the same thing
        "same_if_changed": 0.5,  # the same where the statement has a word of change
        "named": 0.45,  # a request to forget names it
    }

    def similar(self, text: str) -> np.ndarray:
        """Similarity of `text` to each stored statement, numbers masked."""
        mask = [re.sub(r"\d[\d.,:]*", "0", one) for one in [text, *(row["text"] for row in self.rows)]]
        vectors = self.matrix(mask)
        return embed.similarities(vectors[0], vectors[1:])

    def ingest(self, item: Item, when: str) -> Ingested:
        added = changed = removed = 0
        for text in (turn.text for turn in said(item) if turn.role == "user"):
            if FORGET.search(text):
                removed += self.forget({"query": text})
                continue
            for statement in statements(text):
                scores = self.similar(statement)
                limit = self.config["same_if_changed" if CHANGE.search(statement) else "same"]
                if len(scores) and scores.max() >= limit:
                    old = self.rows[int(scores.argmax())]
                    new = {**old, "text": statement, "created": when}
                    self.keep([new if row is old else row for row in self.rows])
                    changed += 1
                else:
                    self.add(statement, when, "statement")
                    added += 1
        return Ingested(added=added, changed=changed, removed=removed)

    def forget(self, selector: dict[str, Any]) -> int:
        before = len(self.rows)
        if selector.get("all"):
            self.keep([])
        elif "ids" in selector:
            self.keep([row for row in self.rows if row["id"] not in set(selector["ids"])])
        elif "query" in selector:
            scores = self.similar(FORGET.sub("", REMEMBER.sub("", selector["query"])).strip() or selector["query"])
            self.keep([row for row, score in zip(self.rows, scores, strict=True) if score < self.config["named"]])
        else:
            raise Unsupported("forget", f"no such selector: {sorted(selector)}")
        return before - len(self.rows)

"""The grader of the emem track and the lexical ranking of its fallback read path, exactly as emem-membench has them.

Both are pure functions of text. What they do oddly is kept, because a score is only comparable when it is; each
oddity is said where it lies, and a test holds it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal

from kiokulab.emem.dataset import WHITE_SPACE

_RUST_F64 = re.compile(r"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)")
_WHITE = re.compile(f"[{re.escape(WHITE_SPACE)}]+")
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_TOKEN = re.compile(r"[a-z0-9]+")


def ascii_lower(text: str) -> str:
    return text.translate(_ASCII_LOWER)


def norm(text: str) -> str:
    """Trim, lower ASCII letters; a text that is a whole number for a Rust `f64` parser becomes its canonical form.

    "50000.0" and "5e4" become "50000", "007" becomes "7", "0.710" becomes "0.71". "nan" becomes "NaN", which
    occurs in no lowered text: such an expected answer is always wrong, there as here. Python's float() also reads
    "1_000" and other digits than ASCII, which the original refuses; hence the pattern.
    """
    text = ascii_lower(text.strip(WHITE_SPACE))
    if not _RUST_F64.fullmatch(text):
        return text
    number = float(text)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if number.is_integer() and abs(number) < 1e15:
        return str(int(number))
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def normalise(text: str) -> str:
    """`norm`, then every run of white space becomes one space."""
    return _WHITE.sub(" ", norm(text)).strip(" ")


def contains_answer(retrieved: str | None, expected: str) -> bool:
    """True when the normalised expected answer is a non-empty substring of what was retrieved.

    No word boundary is asked for: "5" is found in "50", and "Tuesday" in "Tuesdays".
    """
    if retrieved is None:
        return False
    wanted = normalise(expected)
    return bool(wanted) and wanted in normalise(retrieved)


def tokens(text: str) -> list[str]:
    """Runs of ASCII letters and digits, lowered, of three characters or more."""
    return [token for token in _TOKEN.findall(ascii_lower(text)) if len(token) >= 3]


def best_path(query: str, documents: dict[str, str]) -> str | None:
    """The path whose text holds the most query tokens (each repeat in the query counts, each document token once).

    Paths are scanned in byte order and a later one wins only by a strictly greater score; None where no token
    occurs anywhere.
    """
    asked, best, best_score = tokens(query), None, 0
    for path in sorted(documents, key=lambda p: p.encode("utf-8", "surrogatepass")):
        held = set(tokens(documents[path]))
        score = sum(token in held for token in asked)
        if score > best_score:
            best, best_score = path, score
    return best


class Ranking:
    """`best_path` over documents that change now and then: the same answer, without reading every document again.

    Tokens are indexed; a query adds up the lists of its tokens. A changed document costs its own tokens alone.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.order: list[str] | None = None  # paths by bytes; None after a path came or went
        self.number: dict[str, int] = {}
        self.holding: defaultdict[str, set[str]] = defaultdict(set)  # token -> paths
        self.lists: dict[str, object] = {}  # token -> sorted positions of its paths, made when first asked for

    def update(self, documents: Mapping[str, str]) -> None:
        """Take in what is new or changed, drop what is gone."""
        for path in self.texts.keys() - documents.keys():
            self._set(path, None)
        for path, text in documents.items():
            if self.texts.get(path) != text:
                self._set(path, text)

    def _set(self, path: str, text: str | None) -> None:
        before = set(tokens(self.texts[path])) if path in self.texts else set()
        after = set(tokens(text)) if text is not None else set()
        for token in before - after:
            self.holding[token].discard(path)
        for token in after - before:
            self.holding[token].add(path)
        if text is None:
            del self.texts[path]
        if text is None or path not in self.texts:
            self.order, self.lists = None, {}
        else:
            for token in before ^ after:
                self.lists.pop(token, None)
        if text is not None:
            self.texts[path] = text

    def best(self, query: str) -> str | None:
        """The path that `best_path(query, documents)` gives."""
        import numpy as np

        if self.order is None:
            self.order = sorted(self.texts, key=lambda path: path.encode("utf-8", "surrogatepass"))
            self.number = {path: position for position, path in enumerate(self.order)}
        found = []
        for token in tokens(query):
            if token not in self.lists:
                self.lists[token] = np.array(
                    sorted(self.number[path] for path in self.holding.get(token, ())), dtype=np.int64
                )
            found.append(self.lists[token])
        if not found or not self.order:
            return None
        scores = np.bincount(np.concatenate(found), minlength=len(self.order))
        best = int(scores.argmax())  # the first of equals, and positions are in path order
        return self.order[best] if scores[best] > 0 else None

"""Baselines without any memory system: which sessions of a history a reader is shown. They keep nothing between
questions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version as package_version

import numpy as np

from kiokulab.systems.base import Session
from kiokulab.verdict.dataset import Question

WORDS = re.compile(r"\w+")
NO_WORD = {n: " " for n in range(128) if not WORDS.match(chr(n))}
K1, B = 1.5, 0.75  # of BM25, as usual; the library's defaults are the same


def session_text(session: Session) -> str:
    """A session as one text, which is what is ranked."""
    return "\n".join(f"{turn.role}: {turn.text}" for turn in session.turns)


def version(name: str) -> str | None:
    """What stands for a baseline's version: the library that ranks, where there is one."""
    if name != "bm25":
        return None
    return f"bm25s {package_version('bm25s')}"


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores, case-folded."""
    # the same words as the pattern finds, three times as fast, which is most of the time that a question takes here
    return text.casefold().translate(NO_WORD).split() if text.isascii() else WORDS.findall(text.casefold())


def bm25_scores(query: str, texts: Sequence[str]) -> np.ndarray:
    """BM25 of `query` against each text, float64 (n,), rounded to 4 decimals: Lucene's variant, with
    idf = ln(1 + (n - df + 0.5) / (df + 0.5)), by the library bm25s."""
    import bm25s

    rows, asked = [words(text) for text in texts], list(dict.fromkeys(words(query)))
    # words that are not asked for change no score but by the length of a text: one number stands for all of them
    number = {word: n for n, word in enumerate(asked, 1)}
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(([[number.get(word, 0) for word in row] for row in rows], {"": 0, **number}), show_progress=False)
    return np.round(np.asarray(index.get_scores_from_ids(list(number.values())), np.float64), 4)


def select(name: str, question: Question, top: int, embedder: object = None) -> list[tuple[Session, float | None]]:
    """The sessions that a reader is shown with their scores, best first. Raises ValueError for a name that is no
    baseline.

    oracle-sessions gives what is labelled; for an abstention question that is what comes close, and never the answer.
    """
    sessions = list(question.sessions)
    if name == "full-context":
        return [(session, None) for session in sessions]
    if name == "oracle-sessions":
        return [(session, None) for session in sessions if session.id in question.evidence]
    texts = [session_text(session) for session in sessions]
    if name == "plain-rag":
        from kiokulab import embed

        scores = embed.similarities(embedder.encode([question.question])[0], embedder.encode(texts))
    elif name == "bm25":
        scores = bm25_scores(question.question, texts)
    else:
        raise ValueError(f"{name} is no baseline of this track")
    best = np.argsort(-scores, kind="stable")[:top]
    return [(sessions[n], float(scores[n])) for n in best]

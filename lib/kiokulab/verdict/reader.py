"""Who answers: a language model by prompt, or offline the extractive reader, which only picks sentences.

The extractive reader gives at most three sentences of the context that have most of the question's words, each with its
date, and declines where none has enough of them. It can count days from a date to the question; it cannot add,
compare or advise. Its score is a measure of whether the right sentences came through, and no measure of an agent:
every table says so.
Bias: a context worded like the question does better, and a longer context is harder than a short one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kiokulab.verdict.wording import NO_DATE, shown
from kiokulab.text import normalise, sentences

DECLINED = "This is not in what I was shown."
ENOUGH = 0.4  # share of the question's words, weighted by rarity, that a sentence must have; 0.3 where it is close in meaning
CLOSE = 0.45  # cosine by which a sentence is close in meaning
GIVEN = 3  # sentences of an answer
NEAR = 0.75  # a further sentence is given where it scores at least this share of the best one
LOOKED_AT = 40  # best sentences by words that are compared by meaning too
STOP = frozenset(
    "a an and any are as at be been before by can could did do does ever for from had has have how i if in is it its many me more much my of on or our own so some than that the "
    "their them then there these they this those to too us was we were what when where which who whose why will with would you your days day weeks week months month ago passed "
    "between after total together mentioned said say told tell gave different please suggest recommend also currently current now still".split()
)
ELAPSED = re.compile(
    r"how many (day|week|month)s (?:ago|have passed since|has it been since|is it since)|how many (day|week|month)s .* since",
    re.IGNORECASE,
)


def stem(word: str) -> str:
    """A word without its commonest endings: visited, visits and visit are one."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


def terms(text: str) -> list[str]:
    """Content words, stemmed, in order."""
    return [stem(word) for word in re.findall(r"\w+", normalise(text)) if word not in STOP]


class ExtractiveReader:
    name = "extractive"

    def __init__(self, embedder: Any = None):
        self.embedder = embedder

    def answer(self, question: str, asked: str, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """{"text", "declined", "evidence": numbers of items} of a question asked at an ISO date. `items` as
        Prompts.reader takes them; ties go to the later date, then to the later place."""
        wanted = Counter(terms(question))
        found = [
            (n, item["date"] or "", sentence, set(terms(sentence)))
            for n, item in enumerate(items)
            for sentence in self._sentences(item)
        ]
        seen = Counter(term for *_, have in found for term in have)
        weight = {term: math.log(1 + len(found) / (1 + seen[term])) for term in wanted}
        whole = sum(weight.values())
        if not found or not whole:
            return {"text": DECLINED, "declined": True, "evidence": []}
        scored = []
        for place, (n, date, sentence, have) in enumerate(found):
            share = sum(weight[term] for term in wanted if term in have) / whole
            scored.append([share - (0.15 if sentence.rstrip().endswith("?") else 0.0), date, place, n, sentence, share])
        scored.sort(key=lambda row: (row[0], row[1], row[2]), reverse=True)
        best = scored[:LOOKED_AT]
        cosines = self._cosines(question, [row[4] for row in best])
        ranked = sorted(
            ([row[0] + 0.4 * cosine, *row[1:], cosine] for row, cosine in zip(best, cosines)),
            key=lambda row: (round(row[0], 4), row[1], row[2]),
            reverse=True,
        )
        first = ranked[0]
        if first[5] < (0.3 if first[6] >= CLOSE else ENOUGH):
            return {"text": DECLINED, "declined": True, "evidence": []}
        given = [row for row in ranked[:GIVEN] if row[0] >= NEAR * first[0]]
        given.sort(key=lambda row: (row[1], row[2]))
        lines = [f"[{shown(row[1]) if row[1] else NO_DATE}] {row[4]}" for row in given]
        elapsed = self._elapsed(question, asked, first[1])
        return {
            "text": "\n".join(([elapsed] if elapsed else []) + lines),
            "declined": False,
            "evidence": sorted({row[3] for row in given}),
        }

    def _sentences(self, item: dict[str, Any]) -> list[str]:
        texts = [text for _, text in item["turns"]] if "turns" in item else [item["text"]]
        return [sentence for text in texts for sentence in sentences(text)]

    def _cosines(self, question: str, texts: list[str]) -> list[float]:
        if self.embedder is None:
            return [0.0] * len(texts)
        from kiokulab import embed

        return [
            float(value)
            for value in embed.similarities(self.embedder.encode([question])[0], self.embedder.encode(texts))
        ]

    def _elapsed(self, question: str, asked: str, date: str) -> str | None:
        """How long ago the best sentence was said, where that is what the question asks."""
        unit = ELAPSED.search(question)
        if not unit or not date:
            return None
        now, then = datetime.fromisoformat(asked), datetime.fromisoformat(date)
        kind = unit.group(1) or unit.group(2)
        days = (now.date() - then.date()).days
        n = {
            "day": days,
            "week": round(days / 7),
            "month": (now.year - then.year) * 12 + now.month - then.month - (now.day < then.day),
        }[kind.lower()]
        return f"{n} {kind.lower()}{'' if n == 1 else 's'} ago."

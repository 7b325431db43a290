"""Check questions: answers read out of a context, and their grades. No language model is in here.

The extractive answerer picks one sentence of the context and reads a value out of it. It does not reason, so its score
is a measure of the *store and its search*: whether the context holds the answer where a plain reader finds it. It is no
measure of how well an agent with this memory would answer, and reports must say so.

How a sentence is picked: similarity to the question (embedder), plus the share of the question's own words that it has
(rare ones count more), plus a small bonus where it has a value of the kind that the question asks for (a time for
"what time"). Where sentences come close to the best one and differ in value, the later one by date is taken. Below a
threshold the answer is "not in memory".
Bias: a store whose sentences are worded like the questions does better here, and a long context is harder than a short
one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kiokulab import values
from kiokulab.errors import InputError
from kiokulab.judging import CHANGE_VERB, FactView, FormIndex, Judge, StoredText, people_in, somebody_owns, type_of
from kiokulab.text import CJK, normalise, sentences

SILENT = 0.15  # score under which the answer is "not in memory"
CLOSE = 0.22  # sentences within this of the best one are weighed by date where their values differ
LONGEST_CONTEXT = 400  # sentences looked at


@dataclass(frozen=True)
class Answer:
    """What the answerer says. `sentence` None = not in memory; `value` is what it read out of the sentence, as
    written."""

    sentence: str | None
    value: str | None = None
    evidence: tuple[str, ...] = ()
    score: float = 0.0

    @property
    def text(self) -> str | None:
        return None if self.sentence is None else f"{self.value} ({self.sentence})" if self.value else self.sentence


_ASKED = [  # what kind of value a question asks for; the first that fits
    ("weekday", r"\b(?:which|what) day\b(?! of the month)|on which days?|何曜日|何曜"),
    (
        "time",
        r"\bwhat time\b|\bwhen (?:does|do|is|are) .*\b(?:start|begin|open|leave|close)|\bhow late\b|\bhow early\b|何時(?!間)",
    ),
    (
        "date",
        r"\bwhat date\b|\bwhen (?:is|was|are)\b.*\b(?:birthday|anniversary|appointment|deadline|due|wedding|exam)\b|何月何日|いつですか|\bwhen\b.*\bborn|誕生日はいつ|\bwhat day\b.*\bmonth",
    ),
    ("month", r"\b(?:which|what) month\b|何月(?!何日)"),
    ("year", r"\b(?:which|what) year\b|何年(?!間|ぐらい|くらい)"),
    (
        "money",
        r"\bhow much\b(?! (?:time|water|coffee|sugar))|\bwhat (?:do|does|is|did).*\b(?:pay|cost|costs|price|rent|fee|salary|budget)\b|いくら|何円",
    ),
    ("frequency", r"\bhow (?:often|many times)\b|何回|どのくらいの頻度|週に何|月に何"),
    (
        "duration",
        r"\bhow long\b|\bhow many (?:minutes|hours|days|weeks|months|years)\b|何分|何時間|何年間|何か月|何ヶ月|どのくらいかか|どれくらいかか",
    ),
    ("age", r"\bhow old\b|\bwhat age\b|何歳|いくつですか"),
    ("percent", r"\bwhat percent|何パーセント|何割"),
    (
        "quantity",
        r"\bhow (?:far|tall|heavy|much water|many (?:kilomet|km|miles|pages|steps|kilos))|何キロ|何センチ|何ページ|何歩",
    ),
    ("ordinal", r"\b(?:which|what) floor\b|何階|何番目"),
    ("count", r"\bhow many\b|何人|何匹|何冊|何本|何個|何台|いくつ"),
]
_ASKED = [(kind, re.compile(pattern)) for kind, pattern in _ASKED]
_ASKS = re.compile(r"(?:ますか|ですか|かな|でしょうか|だろうか?|ないか)。?$")
# "Could you remember that ...?" tells
_TELLS = re.compile(r"\b(?:remember|forget|note|know that|keep in mind)\b|覚え|忘れ|メモ")
_STOP = frozenset(
    "what which who when where why how is are am was were do does did my i me the a an of to in on at for with and or it its you your have has had go goes get "
    "can could would will be been that this there many much often long called name many any kind sort user's user".split()
)
_JA_STOP = re.compile(
    r"私の?|僕の?|何です|どこです|いつです|誰です|ですか|ますか|でしょう|教えて|ください|何という|という|している|どの|どんな"
)


def asked_kind(question: str) -> str | None:
    """Kind of value that a question asks for, or None for a name or phrase."""
    text = normalise(question)
    return next((kind for kind, pattern in _ASKED if pattern.search(text)), None)


@lru_cache(maxsize=50_000)
def _terms(text: str) -> frozenset[str]:
    """Content words (English, roughly stemmed) and character pairs (Japanese) of a text."""
    text = normalise(text)
    words = {_stem(w) for w in re.findall(r"[a-z0-9à-ÿ]+", text) if w not in _STOP}
    japanese = re.findall(f"[{CJK}]+", _JA_STOP.sub(" ", text))
    pairs = {run[i : i + 2] for run in japanese for i in range(len(run) - 1)}
    return frozenset(words | {p for p in pairs if not re.fullmatch("[ぁ-ん]{2}", p)})


def _stem(word: str) -> str:
    # savings, saving, save and saved are one; swimming and swim too
    for ending in (
        "s",
        "ing",
        "ed",
        "e",
        "er",
        "y",
        "ie",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
                word = word[:-1]
    return word


class ExtractiveAnswerer:
    """`answer(question, items)` over context items {'id','text','created'} in the system's order."""

    name = "extractive"

    def __init__(self, embedder: Any = None):
        self.embedder = embedder
        self._vectors: dict[str, Any] = {}

    def _vector(self, text: str):
        if text not in self._vectors:
            self._vectors[text] = self.embedder.encode([text])[0]
        return self._vectors[text]

    def answer(self, question: str, items: Sequence[dict], subject: str | None = None) -> Answer:
        """The answer that the context gives; equal scores go to the earlier item."""
        found = [(sentence, n, item) for n, item in enumerate(items) for sentence in sentences(item["text"])][
            :LONGEST_CONTEXT
        ]
        if not found:
            return Answer(None)
        kind, wanted = asked_kind(question), _terms(question)
        asked_people = people_in(normalise(question))
        frequency: dict[str, int] = {}
        for sentence, _, _ in found:
            for term in _terms(sentence):
                frequency[term] = frequency.get(term, 0) + 1
        weight = {term: math.log(1 + len(found) / (1 + frequency.get(term, 0))) for term in wanted if term in frequency}
        total = sum(weight.values()) or 1.0
        scored = []
        for position, (sentence, n, item) in enumerate(found):
            lexical = sum(weight[t] for t in _terms(sentence) if t in weight) / total
            near = float(self._vector(question) @ self._vector(sentence[:500])) if self.embedder else lexical
            kinds = [f for f in values.find(sentence) if _answers(kind, f)] if kind else []
            score = 0.6 * near + 0.4 * lexical + (0.1 if kinds else -0.1 if kind else 0.0)
            text = normalise(sentence)
            if (sentence.rstrip().endswith(("?", "？")) or _ASKS.search(text)) and not _TELLS.search(text):
                continue  # a question is no statement
            if somebody_owns(sentence, asked_people, subject):
                score -= 0.5
            scored.append((round(score, 4), position, sentence, n, item, kinds))
        if not scored:
            return Answer(None)
        best = max(scored, key=lambda s: (s[0], -s[1]))
        if best[0] < SILENT:
            return Answer(None, score=best[0])
        rivals = [s for s in scored if s[0] >= best[0] - CLOSE and _same_matter(best, s, wanted, kind)]
        if best[4].get("created") and len({r[3] for r in rivals}) > 1:
            dated = [r for r in rivals if r[4].get("created")]
            latest = max(str(r[4]["created"]) for r in dated)
            best = max((r for r in dated if str(r[4]["created"]) == latest), key=lambda r: (r[0], r[1]))
        value = _value(normalise(best[2]), best[5])
        identity = best[4].get("id")
        return Answer(best[2], value, (str(identity if identity is not None else best[3]),), best[0])


def _answers(kind: str | None, found: values.Found) -> bool:
    return (
        found.kind == kind
        or (kind == "date" and found.kind in ("weekday", "time"))
        or (kind in ("money", "quantity", "age") and found.kind == "count")
        or (kind == "count" and found.kind in ("quantity", "frequency"))
        or (kind == "ordinal" and found.kind in ("quantity", "count"))
    )


def _same_matter(best: tuple, other: tuple, wanted: frozenset[str], kind: str | None) -> bool:
    """Whether two sentences speak of the same thing with another value: they share the question's words that the best
    one has, and each gives a value of the kind asked for (or a change is told)."""
    if best[1] == other[1]:
        return True
    ours, theirs = _terms(best[2]) & wanted, _terms(other[2]) & wanted
    if not theirs or len(ours & theirs) * 2 < len(ours):
        return False
    return bool(other[5]) if kind else True


def _value(text: str, kinds: list[values.Found]) -> str | None:
    """The value of the kind asked for, as written: where a change is told, the one that it went to."""
    if not kinds:
        return None
    if len(kinds) == 1:
        return text[kinds[0].start : kinds[0].end]
    for one in kinds:
        if re.search(
            r"(?:\bto|→|->|から|\bnow(?: at| on)?|今は|じゃなく(?:て)?|ではなく(?:て)?) ?$",
            text[max(0, one.start - 8) : one.start],
        ) and CHANGE_VERB.search(text):
            return text[one.start : one.end]
    kept = [
        one
        for one in kinds
        if not re.search(
            r"(?:\bfrom|\bnot(?: at| on)?|\binstead of|\brather than|\bno longer(?: at| on)?) $",
            text[max(0, one.start - 18) : one.start],
        )
    ]
    return text[(kept or kinds)[0].start : (kept or kinds)[0].end]


# --- grading ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _matcher(forms: tuple[str, ...]) -> tuple[FormIndex, tuple[str, str] | None]:
    index = FormIndex()
    for form in forms:
        if normalise(form):
            index.add(normalise(form), 0)
    index.close()
    return index, type_of(forms) if forms else None


def places(text: str, forms: Sequence[str]) -> list[tuple[int, int]]:
    """Where `text` (normalised here) gives a value by one of its forms or by a spelling that means the same."""
    text = normalise(text)
    index, kind = _matcher(tuple(forms))
    founds = values.find(text)
    result = {(f.start, f.end) for f in founds if kind and values.compatible(*kind, f)}
    for start, end, _ in index.scan(text):
        covering = [f for f in founds if f.start <= start and f.end >= end]
        if not (kind and covering and not any(values.compatible(*kind, f) for f in covering)):
            result.add((start, end))
    return sorted(result)


def grade_check(answer: Answer, accepted: Sequence[str], stale: Sequence[str]) -> str:
    """'right', 'stale', 'wrong' or 'none' (says not in memory), by rule."""
    if answer.sentence is None:
        return "none"
    if answer.value:
        right, old = places(answer.value, accepted), places(answer.value, stale)
        if right:
            return "right"
        if old:
            return "stale"
    text = normalise(answer.sentence)
    right, old = places(text, accepted), places(text, stale)
    old = [o for o in old if not any(s <= o[0] and o[1] <= e for s, e in right)]
    if right and not old:
        return "right"
    if right:  # both are named: the later one, unless the text says that it is the one which is over
        over = re.search(
            r"(?:\bfrom|\bnot(?: \w+)?|\binstead of|\brather than|\bno longer(?: \w+)?|\breplac\w+|\bused to be|\bwas) (?:the )?$",
            text[max(0, old[-1][0] - 24) : old[-1][0]],
        )
        return "right" if right[-1][0] > old[-1][0] or over else "stale"
    return "stale" if old else "wrong"


def grade_leak(
    answer: Answer, forgotten: Sequence[str], fact: FactView, judge: Judge, subject: str | None = None
) -> str:
    """'leaked' where the answer gives the forgotten content, else 'kept_silent'. The value alone is not enough
    ("Monday" is in many sentences): the judge must find the fact, or a part of it, in the sentence."""
    if answer.sentence is None or not places(answer.sentence, forgotten):
        return "kept_silent"
    reading = judge.read([fact], [StoredText("a", "live", (answer.sentence,))], subject=subject)
    found = [reading.verdict(fact.id, version.n, ("live",)) for version in fact.versions]
    if all(j.verdict == "not_judged" for j in found):
        return "not_judged"
    return "leaked" if any(j.verdict in ("held", "partial") for j in found) else "kept_silent"


def make_answerer(name: str, embedder: Any = None) -> ExtractiveAnswerer:
    """The answerer called `name` that needs no model: "extractive". Raises InputError for other names."""
    if name == "extractive":
        return ExtractiveAnswerer(embedder)
    raise InputError(f"unknown answerer {name!r}", "answerer", "Use answerer=extractive, or llm:<model>")


def check_grader(name: str) -> None:
    """Raises InputError where the grader is neither "rules" nor a model."""
    if name != "rules" and not re.fullmatch(r"llm:\S+", name):
        raise InputError(f"unknown grader {name!r}", "grader", "Use grader=rules, or llm:<model>")

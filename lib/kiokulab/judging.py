"""Does a store state a fact? Judgements, the interface of judges, and the rule judge.

A judge reads the sentences of a store once and then says of every version of every fact: ``held``, ``partial``,
``absent`` or ``not_judged`` (with the reason), with the sentences that show it. The rule judge decides as follows.

1. A sentence shows a *value part* of a version where it has one of the part's forms, or a typed value (values.find)
  that
   can be the part's. "6" inside "6:30", "3" inside "13 km" show nothing. "Next Thursday" is the day it means on the
   day of the memory, where the store dates it (relative.py; of two usual readings, either).
2. It is *about* the fact where it has an anchor word, or stands within three sentences after one that has (same
  memory),
   or answers the question of the turn before that has one (a store that keeps turns), or has a value form as long as a
   clause, or shows all parts and one of them is a name or phrase, or, with an embedder, is close enough to the ledger
   sentence or to the check question once the values are masked. Similarity finds candidates only: it never tells
   versions apart.
3. It is about *somebody else* where a relative, colleague, named person ... whom the fact does not know owns it
  (people.py);
   each value has its own owner. Words of the same topic and other wordings are in synonyms.py, cues of point 4 in
   cues.py.
4. A part is *asserted*, *past* ("used to be", 以前は), *replaced* ("from 6 to 6:30") or *denied* ("no longer", "not 6",
   ではない, and plans: "might move to"). Where a sentence gives the same part of an older and of a newer version, the older
   one is replaced at most, whatever words it uses.
5. held: all parts asserted, in one sentence (how: verbatim, surface, translated, restated_forget) or in several
   sentences about the fact (how: joint); so a change that names only what changed holds the new version where the rest
   is still stored. partial, how "history": the parts that tell the version from the others can be read as a past state
   (a past cue, or the old ledger sentence word for word). partial, how "replaced": they are only named as what was
   replaced. partial, how "part": some of them are asserted. Else absent: a denial holds nothing.

What counts as *kept* in the headline follows the KiokuBench page: held, or partial with how "history";
"replaced" is not: a change that names the old value to say that it is over has updated it.
A forget request that restates the content holds it: "don't remember" is not a denial.
Text is data: no rule here reads an instruction.
"""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from kiokulab import cues, relative, synonyms, values
from kiokulab.cues import CHANGE_VERB as CHANGE_VERB  # noqa: PLC0414 (the answerer takes it from here)
from kiokulab.errors import InputError
from kiokulab.people import PRONOUN_START, THEIRS_START, names_of, people_in, somebody_else
from kiokulab.people import somebody_owns as somebody_owns  # noqa: PLC0414
from kiokulab.text import language_of, normalise, sentences

VERDICTS = ("held", "partial", "absent", "not_judged")
GATE, STRICT_GATE = 0.40, 0.50  # similarity of masked texts; measured: paraphrases .52 to .62, near misses .28 to .32
WINDOW = 3  # sentences that an anchor reaches onward within its memory
_NEGATIVE = re.compile(r"allerg|dislike|can't eat|hates?\b|アレルギー|苦手|嫌い|食べられない")
_PLAN = re.compile(
    r"\b(?:next|plan(?:s|ned|ning)?|training for|saving|savings|goal|target)\b|次の|予定|目標|試験を受け|積立|貯金"
)
SHOWN = 20  # sentence ids kept with a judgement


@dataclass(frozen=True)
class Judgement:
    """Verdict on one version. `how` and `sentences` say what it rests on; `reason` is set where not judged."""

    verdict: str
    how: str | None = None
    sentences: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class VersionView:
    """One wording of a fact: the sentence, words that say what it is about, and one list of forms a value part."""

    n: int
    text: str
    anchors: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> VersionView:
        """From a version as the datasets write it. Raises KeyError, TypeError or ValueError where it is none."""
        anchors, parts = record["surface"]["anchors"], record["surface"]["values"]
        if not parts or not all(
            isinstance(part, (list, tuple)) and part and all(isinstance(form, str) for form in part) for part in parts
        ):
            raise ValueError("surface.values must be lists of strings, one or more, none of them empty")
        return cls(int(record["n"]), str(record["text"]), tuple(anchors), tuple(tuple(part) for part in parts))


@dataclass(frozen=True)
class FactView:
    """What a judge may know of a fact: no label that says where it was stated."""

    id: str
    versions: tuple[VersionView, ...]
    question: str = ""
    slot: str = ""


@dataclass(frozen=True)
class StoredText:
    """The sentences of one memory, or of one turn of a transcript. A sentence's id is '<memory id>#<n>', n from 1."""

    id: str
    layer: str
    sentences: tuple[str, ...]
    said_on: date | None = None  # the store's own date of it, which "next Thursday" goes by
    follows: bool = False  # it is the next turn of the conversation that the memory before it belongs to


class Reading(Protocol):
    """What a judge read in one store."""

    def states(self, sentence: str) -> list[str]:
        """Fact versions that a sentence (by id) states: ['f03.1']."""

    def unjudged(self, sentence: str) -> str | None:
        """Why a sentence could not be judged; None where it was."""

    def verdict(self, fact: str, version: int, layers: Sequence[str]) -> Judgement:
        """Verdict on a version over the sentences of some layers."""


class Judge(Protocol):
    name: str
    version: int

    def read(self, facts: Sequence[FactView], memories: Sequence[StoredText], *, subject: str | None = None) -> Reading:
        """Read a store. `subject` is the user's name."""


def kept(verdict: str, how: str | None) -> bool:
    """Whether a version counts as kept in the headline: held, or readable as a past state."""
    return verdict == "held" or verdict == "partial" and how == "history"


# --- index of forms ---------------------------------------------------------------------------------------------


def _is_word(char: str) -> bool:
    return char.isalnum() and (char.isascii() or "\u00c0" <= char <= "\u024f")


def _is_katakana(char: str) -> bool:
    return "\u30a1" <= char <= "\u30fe" and char != "・"


def _bounded(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] is no piece of a longer word, number or katakana run."""
    first, last = text[start], text[end - 1]
    before, after = text[start - 1] if start else " ", text[end] if end < len(text) else " "
    if _is_word(first) and _is_word(before):
        return False
    if (
        _is_katakana(first)
        and _is_katakana(before)
        and not (end - start >= 3 and start >= 3 and all(map(_is_katakana, text[start - 3 : start])))
    ):
        return False  # パン in パンダ; but バナナ in バナナアレルギー is a word of a compound
    if first.isdigit() and before in ".,:/" and start > 1 and text[start - 2].isdigit():
        return False
    if _is_katakana(last) and _is_katakana(after):
        return (
            end - start >= 3 and len(text) >= end + 3 and after != "ー" and all(map(_is_katakana, text[end : end + 3]))
        )
    if last.isdigit() and after in ".,:/" and end + 1 < len(text) and text[end + 1].isdigit():
        return False
    if _is_word(last) and _is_word(after):
        return (
            last.isalpha()
            and end - start >= 4
            and after == "s"
            and not (end + 1 < len(text) and _is_word(text[end + 1]))
        )
    return not (first == "京" and before == "東")


class FormIndex:
    """Finds many strings in a text at once, in time linear in the text: by the first two characters, then by length."""

    def __init__(self):
        self.ids: dict[str, list[int]] = defaultdict(list)
        self.lengths: dict[str, list[int]] = {}

    def add(self, form: str, number: int) -> None:
        if number not in self.ids[form]:
            self.ids[form].append(number)

    def close(self) -> None:
        lengths: dict[str, set[int]] = defaultdict(set)
        for form in self.ids:
            lengths[form[:2]].add(len(form))
        self.lengths = {head: sorted(sizes) for head, sizes in lengths.items()}

    def scan(self, text: str, bounded: bool = True) -> Iterable[tuple[int, int, list[int]]]:
        """(start, end, numbers) of every form in `text`."""
        ids, lengths = self.ids, self.lengths
        for start in range(len(text)):
            for head in (text[start : start + 2], text[start]):
                for size in lengths.get(head, ()):
                    form = text[start : start + size]
                    if form in ids and len(form) == size and (not bounded or _bounded(text, start, start + size)):
                        yield start, start + size, ids[form]
                if len(head) == 1:
                    break


class AnchorIndex:
    """Finds anchor words: Japanese ones anywhere, English ones at a word's start with any short ending (swim, swims,
    swimming)."""

    def __init__(self):
        self.words: dict[str, set[int]] = defaultdict(set)
        self.phrases: dict[str, set[int]] = defaultdict(set)
        self.inner = FormIndex()

    def add(self, anchor: str, number: int) -> None:
        if not anchor:
            return
        if re.fullmatch(r"[a-z0-9'à-ÿ-]+", anchor):
            self.words[anchor].add(number)
        else:
            self.inner.add(anchor, number)

    def close(self) -> None:
        self.inner.close()

    def scan(self, text: str) -> set[int]:
        found: set[int] = set()
        for start, end, numbers in self.inner.scan(text, bounded=False):
            if not (_is_word(text[start]) and start and _is_word(text[start - 1])):
                found.update(numbers)
        for match in re.finditer(r"[a-z0-9à-ÿ]+(?:['-][a-z0-9à-ÿ]+)*", text):
            for word in {match[0], *match[0].split("-")}:
                for size in range(len(word), max(len(word) - 6, 1), -1):
                    stem = word[:size]
                    if stem in self.words and (
                        size == len(word)
                        or re.fullmatch(r"'?s|e?s|e?d|'s|ing|ings|er|ers|ist|ists|'ll|'d", word[size:])
                        or size > 2
                        and word[size] == stem[-1]
                        and re.fullmatch(r".(?:ing|ed|er|ers)", word[size:])
                    ):
                        found.update(self.words[stem])
                if word.endswith("ing") and word[:-3] + "e" in self.words:
                    found.update(self.words[word[:-3] + "e"])
                if word.endswith("ies") and word[:-3] + "y" in self.words:
                    found.update(self.words[word[:-3] + "y"])
        return found


def type_of(part: Sequence[str]) -> tuple[str, str] | None:
    """(kind, canonical value) that most of a part's forms (its first two dozen) spell, or None for a name or phrase."""
    return _type_of(tuple(part[:24]))


@functools.lru_cache(maxsize=20_000)
def _type_of(part: tuple[str, ...]) -> tuple[str, str] | None:
    tally: dict[tuple[str, str], int] = defaultdict(int)
    for form in part:
        text = normalise(form)
        piece = " " in text or not text.isascii()  # "at 6 pm" is a time; the 143 of the code "G-143" is no count
        whole = [
            f
            for f in values.find(form)
            if (piece or (f.start, f.end) == (0, len(text)))
            and f.start <= 3
            and f.end >= len(text) - 3
            and f.end - f.start >= 0.6 * len(text)
            and not re.fullmatch(r"[a-z][- ]?|[- ]?[a-z]", text[: f.start] + text[f.end :])
        ]
        for found in whole:
            tally[(found.kind, found.value)] += 1 if found.also else 2
    if not tally:
        return None
    best, score = max(tally.items(), key=lambda item: (item[1], item[0]))
    return best if score >= len(part) * 0.5 else None


# --- the rule judge ---------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """One value part of one fact, shared by all versions that have the same forms."""

    fact: int
    column: int
    forms: tuple[str, ...]
    kind: str | None
    value: str | None
    number: int = 0


@dataclass
class _Version:
    fact: int
    record: VersionView
    parts: list[int]
    text: str = ""
    language: str = "en"
    telling: int = 0  # mask of the parts that tell it from the other versions
    full: int = 0


@dataclass
class _Fact:
    view: FactView
    versions: list[int] = field(default_factory=list)
    people: set[str] = field(default_factory=set)
    anchors: tuple[str, ...] = ()
    own_cues: set[str] = field(default_factory=set)
    negative: bool = False  # an allergy, a dislike
    plan: bool = False  # a holiday to come, an exam


@dataclass
class _Evidence:
    """What one sentence says of one version."""

    sentence: int
    asserted: int = 0
    past: int = 0
    replaced: int = 0
    how: str = "surface"


class RuleJudge:
    """The judge without a model. `embedder` (kiokulab.embed, "use-denoise") only widens what counts as being about a
    fact; without it sentences that share no word with the fact's anchors are missed more often."""

    name = "rules"
    version = 3

    def __init__(self, embedder: Any = None):
        self.embedder = embedder

    def read(
        self, facts: Sequence[FactView], memories: Sequence[StoredText], *, subject: str | None = None
    ) -> RuleReading:
        return RuleReading(self, facts, memories, subject)


class RuleReading:
    """What the rule judge read in one store: evidence per version, aggregated by `verdict`."""

    def __init__(
        self, judge: RuleJudge, facts: Sequence[FactView], memories: Sequence[StoredText], subject: str | None
    ):
        self.judge = judge
        self.subject = names_of(subject)
        self._compile(facts)
        self.ids: list[str] = []
        self.layers: list[str] = []
        self.memory: list[int] = []
        self.evidence: dict[int, list[_Evidence]] = defaultdict(list)  # version -> evidence, in order of sentences
        self.stated: dict[str, list[str]] = {}
        self._vectors: dict[str, Any] = {}
        reach: dict[int, int] = {}
        for number, memory in enumerate(memories):
            reach = self._read_memory(number, memory, reach if memory.follows else {})

    # building
    def _compile(self, facts: Sequence[FactView]) -> None:
        self.facts: list[_Fact] = []
        self.versions: list[_Version] = []
        self.parts: list[_Part] = []
        self.by_key: dict[tuple[str, int], int] = {}
        self.forms, self.anchors, self.kin = FormIndex(), AnchorIndex(), AnchorIndex()
        self.typed: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))  # kind -> value -> parts
        for f, view in enumerate(facts):
            fact = _Fact(view)
            known: dict[tuple[int, tuple[str, ...]], int] = {}
            anchors = {normalise(a) for version in view.versions for a in version.anchors}
            for anchor in sorted(anchors):
                self.anchors.add(anchor, f)
                for word in synonyms.kin(anchor):
                    self.kin.add(word, f)
            about = " ".join([*sorted(anchors), *(normalise(v.text) for v in view.versions), normalise(view.question)])
            fact.people = people_in(about)
            fact.anchors = tuple(sorted(anchors))
            fact.negative, fact.plan = bool(_NEGATIVE.search(about)), bool(_PLAN.search(about))
            for record in view.versions:
                version = _Version(
                    f,
                    record,
                    [],
                    normalise(record.text).rstrip(".。!"),
                    "ja" if re.search("[\u3041-\u30ff]", record.text) else "en",
                )
                for column, raw in enumerate(record.values):
                    forms = tuple(sorted({form for form in map(normalise, raw) if form}))
                    key = (column, forms)
                    if key not in known:
                        kind, value = type_of(raw) or (None, None)
                        part = _Part(f, column, forms, kind, value, len(self.parts))
                        known[key] = part.number
                        self.parts.append(part)
                        for form in forms:
                            self.forms.add(form, part.number)
                        if not kind:
                            for form in forms:
                                for other in synonyms.variants(form):
                                    self.forms.add(other, part.number)
                        if kind:
                            self.typed[kind][value].append(part.number)
                    version.parts.append(known[key])
                version.full = (1 << len(version.parts)) - 1
                fact.versions.append(len(self.versions))
                self.by_key[view.id, record.n] = len(self.versions)
                self.versions.append(version)
            for v in fact.versions:
                version, others = self.versions[v], [self.versions[o] for o in fact.versions if o != v]
                telling = sum(
                    1 << i for i, p in enumerate(version.parts) if any(p not in other.parts for other in others)
                )
                version.telling = telling if others and telling else version.full
            self.facts.append(fact)
        self.forms.close()
        self.anchors.close()
        self.kin.close()
        self._matching: dict[tuple, list[int]] = {}
        for fact in self.facts:
            for v in fact.versions:
                hits = self._hits(self.versions[v].text)
                if cues.DENIED_END.search(self.versions[v].text) and not fact.negative:
                    fact.own_cues.add("denied")
                parts = [p for p in self.versions[v].parts if p in hits]
                if fact.negative:
                    continue  # "not allergic" denies an allergy, though "can't eat" does not
                fact.own_cues |= set(self._roles(fact, self.versions[v].text, hits, parts, False).values()) - {
                    "asserted"
                }

    def _parts_of(self, found: values.Found) -> list[int]:
        """Parts whose typed value `found` can be."""
        key = (found.kind, found.readings)
        if key not in self._matching:
            self._matching[key] = [
                p
                for kind, by_value in self.typed.items()
                for value, parts in by_value.items()
                if values.compatible(kind, value, found)
                for p in parts
            ]
        return self._matching[key]

    def _hits(self, text: str, said_on: date | None = None) -> dict[int, list[tuple[int, int]]]:
        """part number -> spans that show it."""
        founds = values.find(text)
        hits: dict[int, set[tuple[int, int]]] = defaultdict(set)
        if said_on is not None and "date" in self.typed:
            for start, end, meant in relative.find(text, said_on):
                for part in self._parts_of(values.Found("date", meant[0], start, end, meant[1:])):
                    hits[part].add((start, end))
        for found in founds:
            for part in self._parts_of(found):
                hits[part].add((found.start, found.end))
        for start, end, numbers in self.forms.scan(text):
            covering = [f for f in founds if f.start <= start and f.end >= end]
            for number in numbers:
                part = self.parts[number]
                if part.kind and covering and not any(values.compatible(part.kind, part.value, f) for f in covering):
                    continue  # the 6 of "6:30"
                hits[number].add((start, end))
        self._founds = founds
        return {number: sorted(spans) for number, spans in hits.items()}

    # reading
    def _read_memory(self, number: int, memory: StoredText, reach: dict[int, int]) -> dict[int, int]:
        """`reach` is fact -> last sentence with its anchor (-1: the question that this turn answers). Returns it for
        the turn after."""
        reach = dict(reach)
        # "their dog", and nobody named before
        somebody = bool(memory.sentences) and bool(THEIRS_START.match(normalise(memory.sentences[0][:40])))
        texts = [normalise(s) for s in memory.sentences]
        anchored = [self.anchors.scan(text) for text in texts]
        for n, (raw, text) in enumerate(zip(memory.sentences, texts, strict=True)):
            index = len(self.ids)
            self.ids.append(f"{memory.id}#{n + 1}")
            self.layers.append(memory.layer)
            self.memory.append(number)
            for fact in anchored[n]:
                reach[fact] = n
            hits = self._hits(text, memory.said_on)
            somebody = self._somebody_else(text, raw, None, ()) if not PRONOUN_START.search(text) else somebody
            if hits:
                near = set(anchored[n]) | {f for f, at in reach.items() if n - at <= WINDOW}
                if n + 1 < len(texts):  # "Biscuit. That's my dog's name."
                    near |= anchored[n + 1]
                self._weigh(
                    index,
                    raw,
                    text,
                    hits,
                    anchored[n],
                    near,
                    self.kin.scan(text),
                    somebody and bool(PRONOUN_START.search(text)),
                )
        # an answer may leave out what it was asked about
        return dict.fromkeys(anchored[-1], -1) if texts and cues.ASKS.search(texts[-1]) else {}

    def _weigh(
        self,
        index: int,
        raw: str,
        text: str,
        hits: dict,
        anchored: set[int],
        near: set[int],
        kin: set[int],
        inherited_somebody: bool,
    ) -> None:
        by_fact: dict[int, list[int]] = defaultdict(list)
        for part in hits:
            by_fact[self.parts[part].fact].append(part)
        forget = bool(cues.FORGET.search(text))
        stated: list[str] = []
        language = None
        taken = {span for f in anchored if f in by_fact for p in by_fact[f] for span in hits[p]}
        for f in sorted(by_fact):
            fact, parts = self.facts[f], by_fact[f]
            if f not in near and not forget and all(self.parts[p].kind and set(hits[p]) <= taken for p in parts):
                continue  # the Wednesday of "my physio is Bernadette, I go on Wednesday" is taken
            if (
                f not in near
                and f not in kin
                and not (forget and any(self.parts[p].kind is None for p in parts))
                and not self._about(f, text, hits, parts)
            ):
                continue
            spans = [span for p in parts for span in hits[p]]
            if inherited_somebody and not fact.people:
                continue
            owners = {at: self._somebody_else(text, raw, fact, spans, at) for at in {hits[p][0][0] for p in parts}}
            # 母は5月2日、私は11月23日: each value has its own owner
            parts = [p for p in parts if not owners[hits[p][0][0]]]
            if not parts:
                continue
            roles = self._roles(fact, text, hits, parts, forget)
            shared: list[tuple[int, str]] = []
            told = False
            for v in fact.versions:
                version = self.versions[v]
                asserted = sum(1 << i for i, p in enumerate(version.parts) if roles.get(p) == "asserted")
                past = sum(1 << i for i, p in enumerate(version.parts) if roles.get(p) == "past")
                replaced = sum(1 << i for i, p in enumerate(version.parts) if roles.get(p) == "replaced")
                if replaced and version.text and version.text in text:
                    past, replaced = past | replaced, 0  # the old ledger sentence word for word, inside a change record
                if not asserted and not past and not replaced:
                    continue
                how = "surface"
                if version.text and version.text in text:
                    how = "verbatim"
                else:
                    language = language or language_of(raw[:400])
                    if language in ("en", "ja") and language != version.language:
                        how = "translated"
                if forget:
                    how = "restated_forget"
                self.evidence[v].append(_Evidence(index, asserted, past, replaced, how))
                key = f"{fact.view.id}.{version.record.n}"
                if asserted & version.telling or past and past | asserted & version.telling == version.telling | past:
                    stated.append(key)
                    told = True
                elif asserted:
                    shared.append((v, key))
            if shared and not told:
                stated.append(shared[-1][1])
        if stated:
            self.stated[self.ids[index]] = stated

    def _about(self, f: int, text: str, hits: dict, parts: list[int]) -> bool:
        """Whether a sentence without an anchor is about a fact."""
        fact = self.facts[f]
        for v in fact.versions:
            version = self.versions[v]
            shown = [p for p in version.parts if p in parts]
            if any(
                self.parts[p].kind is None and re.fullmatch(r"(?=.*[a-z])(?=(?:.*[0-9]){2})[a-z0-9-]{4,}", text[a:b])
                for p in shown
                for a, b in hits[p]
            ):
                return True  # a code such as G-143 is about what it opens
            telling = [p for i, p in enumerate(version.parts) if version.telling >> i & 1]
            if not shown:
                continue
            if not all(p in parts for p in telling):
                # enough for "partial" at most
                named = [p for p in shown if p in telling and self.parts[p].kind is None]
                if (
                    named
                    and self.judge.embedder is not None
                    and self._similarity(version, fact, text, [span for p in shown for span in hits[p]]) >= STRICT_GATE
                ):
                    return True
                continue
            if (
                len(version.parts) > 1
                and len(shown) == len(version.parts)
                and any(self.parts[p].kind is None for p in shown)
                and len({span for p in shown for span in hits[p]}) > 1
            ):
                return True
            if any(self.parts[p].kind is None and _is_clause(text[a:b]) for p in shown for a, b in hits[p]):
                return True
            if self.judge.embedder is None:
                continue
            typed_alone = len(shown) == 1 and self.parts[shown[0]].kind is not None
            if self._similarity(version, fact, text, [span for p in shown for span in hits[p]]) >= (
                STRICT_GATE if typed_alone else GATE
            ):
                return True
        return False

    def _similarity(self, version: _Version, fact: _Fact, text: str, spans: list[tuple[int, int]]) -> float:
        masked = _mask(text, spans)
        references = [
            _mask(
                version.text,
                [(s, e) for s, e, numbers in self.forms.scan(version.text) if any(n in version.parts for n in numbers)],
            )
        ]
        if fact.view.question:
            references.append(normalise(fact.view.question))
        return max(float(self._vector(masked) @ self._vector(reference)) for reference in references)

    def _vector(self, text: str):
        if text not in self._vectors:
            self._vectors[text] = self.judge.embedder.encode([text])[0]
        return self._vectors[text]

    def _roles(self, fact: _Fact, text: str, hits: dict, parts: list[int], forget: bool) -> dict[int, str]:
        """part -> 'asserted' | 'past' | 'replaced' | 'denied'; asserted wins where a value occurs more than once."""
        newest: dict[int, int] = {}  # column -> newest version order in the sentence
        oldest: dict[int, int] = {}
        order = {p: max(o for o, v in enumerate(fact.versions) if p in self.versions[v].parts) for p in parts}
        for p in parts:
            column = self.parts[p].column
            newest[column] = max(newest.get(column, -1), order[p])
            oldest[column] = min(oldest.get(column, 99), order[p])
        result: dict[int, str] = {}
        rank = {"denied": 0, "replaced": 1, "past": 2, "asserted": 3}
        for p in parts:
            older = order[p] < newest[self.parts[p].column] and not self._same_span(text, p, parts, hits, order)
            # a value said a hundred times is judged by its first and last mentions
            for span in hits[p][:3] + hits[p][3:][-3:]:
                role = (
                    "asserted"
                    if forget and not older
                    else self._role(
                        text,
                        span,
                        self.parts[p],
                        older,
                        order[p] < len(fact.versions) - 1,
                        order[p] > oldest[self.parts[p].column],
                    )
                )
                if role != "asserted" and role in fact.own_cues and not older:
                    role = "asserted"  # the ledger sentence itself says "was" or "never"
                if p not in result or rank[role] > rank[result[p]]:
                    result[p] = role
        several = len({order[p] for p in parts if self._telling(fact, p)}) > 1
        if not several and "denied" in result.values() and not cues.says_now(text):
            return dict.fromkeys(result, "denied")  # a denial of the car is one of its number plate
        if several and any(role == "asserted" and self._telling(fact, p) for p, role in result.items()):
            # what both versions share goes on
            result = {p: role if self._telling(fact, p) else "asserted" for p, role in result.items()}
        return result

    def _telling(self, fact: _Fact, part: int) -> bool:
        """Whether a part tells some version of its fact from another."""
        return not all(part in self.versions[v].parts for v in fact.versions) or len(fact.versions) == 1

    def _same_span(self, text: str, p: int, parts: list[int], hits: dict, order: dict) -> bool:
        """Whether the newer version's value is the very same characters (then nothing was replaced). The words of a
        clause that stands for the newer one are not: "the lad who has my Fiesta now"."""
        newer = [q for q in parts if self.parts[q].column == self.parts[p].column and order[q] > order[p]]
        return all(
            any(s < e2 and s2 < e and not _is_clause(text[s2:e2]) for s2, e2 in hits[q])
            for q in newer
            for s, e in hits[p]
        )

    def _role(self, text: str, span: tuple[int, int], part: _Part, older: bool, old: bool, newer: bool) -> str:
        """Role of one value hit. `older`: the sentence also has the part's newer value; `old`: the version is not the
        last; `newer`: the sentence also has an older value, which is then what a past cue is about."""
        start, end = span
        before, after = text[max(0, start - 90) : start], text[end : end + 80]
        clause = re.split(r"[;()。]| but |,? so (?=i\b|it\b|we\b|they\b|now\b|my\b|the\b)|、(?=今|いま|現在)", before)[
            -1
        ]
        past = list(cues.PAST.finditer(clause))
        if not newer and (past and not cues.says_now(clause[past[-1].end() :]) or self._past_after(clause, after)):
            return "past"
        narrow = re.split(r", |、|;|:|：", clause)[-1]
        rest = self._predicate(text, end)
        if cues.REPLACED_BEFORE.search(narrow) or cues.REPLACED_AFTER.search(after):
            return "replaced" if older or cues.MOVED_BEFORE.search(narrow) else "denied"
        match = cues.NOT_BEFORE.search(narrow)
        if (
            match
            and not (self._negative(part) and cues.CANNOT_HAVE.search(narrow))
            and (match.groupdict().get("already") is None or cues.ALREADY_NOT.search(after))
        ):
            return "denied"
        if cues.NOT_AFTER.search(after) and not (
            self._negative(part) and cues.CANNOT_HAVE.match(after.lstrip(" はがをもだけ"))
        ):
            return "denied"
        if (
            cues.PARTED_BEFORE.search(narrow)
            and cues.PARTED_AFTER.search(after)
            or self._ended(narrow, after, part)
            or cues.ENDED_JA.search(cues.NO_END_JA.sub("", rest))
        ):
            return "replaced" if older else "denied"
        if not older and (
            self._unreal(text, end, part)
            or cues.MAYBE_AFTER.search(cues.ANOTHER_TOPIC_JA.split(re.split("[、。]", after)[0])[0])
        ):
            return "denied"
        if not older and not newer:
            if any(
                not (m[0].startswith("never") and m.start() >= end and cues.OWN_OBJECT.match(text[m.end() :]))
                for m in cues.DENIED.finditer(text)
            ) and not cues.says_now(text):
                return "denied"
            if (
                cues.DENIED_END.search(rest)
                and "しか" not in rest
                and not (self._negative(part) and cues.CANNOT_HAVE.search(rest))
                or self._negative(part)
                and cues.OVERCOME.search(text)
            ):
                return "denied"
            if self._topic_ended(text, part):
                return "denied"
        if older and re.search(r"\bfrom\b[^,;]{0,20}$", clause):
            return "replaced"
        if (
            older
            and cues.WAS.search(clause)
            and not cues.says_now(clause)
            or old
            and (cues.WAS_AFTER.search(after) and not cues.EVENT_JA.search(clause) or cues.WAS_NEXT.search(clause))
        ):
            return "past"  # "was" alone says that it is over only where a newer version is known
        if older:
            return "replaced"
        if part.kind is None and cues.JAPANESE_MOVE.search(after):
            return "replaced"
        if part.kind is not None:
            follow = next(
                (f for f in self._founds if f.start >= end and f.start - end <= 24 and f.kind == part.kind), None
            )
            if follow:
                between = text[end : follow.start]
                if re.fullmatch(r"[^、。]{0,3}から[^、。]{0,8}", between) and cues.CHANGE_VERB.search(
                    text[follow.end : follow.end + 16]
                ):
                    return "replaced"
                if re.fullmatch(r" ?(?:→|->|=>|⇒) ?", between):
                    return "replaced"
                if (
                    re.search(r"\bfrom (?:the |about )?$", before)
                    and re.fullmatch(r"[^.;]{0,14}\bto\b[^.;]{0,12}|[^.;]{0,6}-", between)
                    and cues.CHANGE_VERB.search(before)
                ):
                    return "replaced"
        if re.search(r"\bto [^.;]{1,40}\bfrom (?:the |about |my )?$", before) and cues.CHANGE_VERB.search(before):
            return "replaced"
        return "asserted"

    def _past_after(self, before: str, after: str) -> bool:
        present = (
            cues.PRESENT_CLAUSE.match(after) or cues.PRESENT_VERB.search(before) and re.match("[^,.;]{0,20},", after)
        )
        if present and not cues.PAST_VERB.search(before) and not cues.PAST_VERB.search(present[0]):
            after = present[0]
        return bool(cues.PAST_AFTER.search(after))

    def _predicate(self, text: str, end: int) -> str:
        """What a Japanese sentence says of a value that ends at `end`: up to the end of its clause."""
        return re.split(
            r"。|が、|で、|けど|けれど|のに(?![はも])|から、|(?<=[だす])から(?!は)|でさ、|でね、|ので、|し、|て、",
            text[end : end + 200],
        )[0]

    def _topic_ended(self, text: str, part: _Part) -> bool:
        """Whether another clause says that what the fact is about is over: ジムはやめました."""
        match = cues.ENDED_JA.search(text)
        clause = re.split("[、。]", text[: match.start()])[-1] if match else ""
        return bool(re.search(r"(?:は|も|を)$", clause)) and any(
            clause[:-1].endswith(anchor) for anchor in self.facts[part.fact].anchors
        )

    def _negative(self, part: _Part) -> bool:
        """Whether the fact is of what the user cannot have: "can't eat" does not deny it."""
        return self.facts[part.fact].negative

    def _ended(self, before: str, after: str, part: _Part) -> bool:
        """Whether an English clause says that what has the value is over."""
        match = cues.ENDED_BEFORE.search(before)
        if (
            match
            and not (match[0].startswith("left") and cues.LEFT_FOR.search(after))
            and not (self._negative(part) and cues.CANNOT_HAVE.search(before))
        ):
            return True
        match = cues.ENDED_AFTER.search(after)
        return bool(match) and not cues.OTHER_SUBJECT.search(match[0])

    def _unreal(self, text: str, end: int, part: _Part) -> bool:
        """Whether a value that ends at `end` is only planned, asked or imagined."""
        premise = cues.PREMISE_JA.search(text, end)
        if premise and any(anchor in text[: premise.start()] for anchor in self.facts[part.fact].anchors):
            text = text[: premise.start()]  # 電車で50分かかるから、早く出る気力があるかどうか
        return bool(cues.UNREAL.search(cues.HOPES.sub(" ", text) if self.facts[part.fact].plan else text))

    def _somebody_else(
        self, text: str, raw: str, fact: _Fact | None, spans: Sequence[tuple[int, int]], at: int | None = None
    ) -> bool:
        known, anchors = (fact.people, fact.anchors) if fact else (set(), ())
        if at is not None and cues.MINE_AFTER_ALL_JA.search(text, at):
            return False
        return somebody_else(text, raw, known, anchors, spans, self.subject, at)

    # answering
    def states(self, sentence: str) -> list[str]:
        return self.stated.get(sentence, [])

    def unjudged(self, sentence: str) -> str | None:
        return None

    def verdict(self, fact: str, version: int, layers: Sequence[str]) -> Judgement:
        v = self.by_key[fact, version]
        full, telling = self.versions[v].full, self.versions[v].telling
        evidence = [e for e in self.evidence.get(v, ()) if self.layers[e.sentence] in layers]
        whole = [e for e in evidence if e.asserted == full]
        if whole:
            hows = {e.how for e in whole}
            how = next(h for h in ("verbatim", "surface", "translated", "restated_forget") if h in hows)
            return Judgement("held", how, self._named(whole))
        union = 0
        for e in evidence:
            union |= e.asserted
        if union == full:
            used = [e for e in evidence if e.asserted]
            return Judgement(
                "held",
                "restated_forget" if all(e.how == "restated_forget" for e in used) else "joint",
                self._named(used),
            )
        past = replaced = 0
        for e in evidence:
            past |= e.past
            replaced |= e.replaced
        if past & telling and (past | union) & telling == telling:
            return Judgement("partial", "history", self._named([e for e in evidence if e.past]))
        if replaced & telling and (replaced | past | union) & telling == telling:
            return Judgement("partial", "replaced", self._named([e for e in evidence if e.replaced]))
        if union & telling:
            return Judgement("partial", "part", self._named([e for e in evidence if e.asserted & telling]))
        if union and not any(
            e.asserted & self.versions[o].telling
            for o in self.facts[self.versions[v].fact].versions
            if o != v
            for e in self.evidence.get(o, ())
            if self.layers[e.sentence] in layers
        ):
            # what all versions share, and no other version
            return Judgement("partial", "part", self._named([e for e in evidence if e.asserted]))
        return Judgement("absent")

    def _named(self, evidence: Sequence[_Evidence]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.ids[e.sentence] for e in evidence))[:SHOWN]


def _is_clause(form: str) -> bool:
    """Whether a form is so long that it says what it is about: five words, or nine Japanese characters with some
    grammar in them."""
    return form.count(" ") >= 4 or len(form) >= 9 and len(re.findall("[\u3041-\u309f]", form)) >= 3


def _mask(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in sorted(set(spans), reverse=True):
        text = text[:start] + "X" + text[end:]
    return text[:1000]


# --- choosing a judge -------------------------------------------------------------------------------------------


def make_judge(name: str, embedder: Any = None) -> Judge:
    """The judge called `name` that needs no model: "rules". Raises InputError for other names; judges that ask models
    belong to their track, which has the prompts."""
    if name == "rules":
        return RuleJudge(embedder)
    raise InputError(
        f"unknown judge {name!r}", "judge", "Use judge=rules, llm:<model> or panel:[<model>, <model>, <model>]"
    )


# --- the judge's own measure ------------------------------------------------------------------------------------


# files of the labelled set: sentences that writers made up, and texts that real systems stored from edition v1, with
# rewordings
SETS = ("en", "ja", "v1-en", "v1-ja")


def measure(judge: Judge, folder: str | Path, half: str = "scored", sets: Sequence[str] = SETS) -> dict[str, dict]:
    """Agreement of `judge` with the labelled set in `folder` (`<set>.jsonl`), over one half ("dev" or "scored").

    Returns set -> {'n', 'not_judged', 'accuracy', 'kappa' (Cohen, over the three verdicts), 'missed_holds' and
    'false_holds' {'k', 'n', 'rate'}, 'by_kind' {kind: {'n', 'right', 'missed_holds', 'false_holds'}}}. A missed hold is
    a pair labelled held that the judge does not find held; a false hold is the opposite. Sets without a file are left
    out; none is mixed into another. InputError for a bad row.
    """
    from kiokulab.files import iterate_jsonl

    result = {}
    for name in sets:
        path = Path(folder) / f"{name}.jsonl"
        if path.exists():
            rows = []
            for line, row in iterate_jsonl(path):
                if row.get("half") == half:
                    rows.append((row, judge_row(judge, row, f"{path}:{line}")))
            result[name] = agreement(rows)
    return result


def judge_row(judge: Judge, row: Mapping[str, Any], where: str | None = None) -> str:
    """The judge's verdict on one row of the labelled set."""
    try:
        record = dict(row["version"])
        slot, question, others = record.pop("slot", ""), record.pop("question", ""), record.pop("other_versions", [])
        if isinstance(question, dict):
            question = question.get("text", "")
        this = VersionView.of(record)
        versions = [this, *map(VersionView.of, others)]
        if row["label"] not in VERDICTS[:3]:
            raise ValueError(f"label {row['label']!r}")
        text = row["sentence"]
        pieces = tuple(sentences(text)) if isinstance(text, str) else tuple(s for t in text for s in sentences(t))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"not a row of the judge set: {type(error).__name__}: {str(error).splitlines()[0]}", where
        ) from None
    versions = sorted({v.n: v for v in reversed(versions)}.values(), key=lambda v: v.n)
    reading = judge.read(
        [FactView("f", tuple(versions), question, slot)], [StoredText("m", "live", pieces)], subject=row.get("subject")
    )
    return reading.verdict("f", this.n, ("live",)).verdict


def agreement(rows: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, Any]:
    """Figures of `measure` from (row, verdict) pairs. Cohen's kappa: (observed - chance) / (1 - chance)."""
    judged = [(row["label"], verdict, row.get("kind", "")) for row, verdict in rows if verdict != "not_judged"]
    n = len(judged)
    right = sum(label == verdict for label, verdict, _ in judged)
    chance = (
        sum(
            sum(label == v for label, _, _ in judged) * sum(verdict == v for _, verdict, _ in judged)
            for v in VERDICTS[:3]
        )
        / n**2
        if n
        else 0.0
    )

    def share(pairs: list[bool]) -> dict[str, Any]:
        return {"k": sum(pairs), "n": len(pairs), "rate": round(sum(pairs) / len(pairs), 6) if pairs else None}

    by_kind: dict[str, dict[str, int]] = {}
    for label, verdict, kind in judged:
        tally = by_kind.setdefault(kind, {"n": 0, "right": 0, "missed_holds": 0, "false_holds": 0})
        tally["n"] += 1
        tally["right"] += label == verdict
        tally["missed_holds"] += label == "held" != verdict
        tally["false_holds"] += verdict == "held" != label
    return {
        "n": n,
        "not_judged": len(rows) - n,
        "accuracy": round(right / n, 6) if n else None,
        "kappa": round((right / n - chance) / (1 - chance), 6) if n and chance < 1 else None,
        "missed_holds": share([verdict != "held" for label, verdict, _ in judged if label == "held"]),
        "false_holds": share([verdict == "held" for label, verdict, _ in judged if label != "held"]),
        "by_kind": dict(sorted(by_kind.items())),
    }


def dump_pairs(rows: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    """Rows where judge and label differ, one JSON line each: for looking at the dev half."""
    return "\n".join(
        json.dumps(
            {
                "kind": r.get("kind"),
                "label": r["label"],
                "verdict": v,
                "sentence": r["sentence"],
                "version": r["version"]["text"],
            },
            ensure_ascii=False,
        )
        for r, v in rows
        if r["label"] != v
    )

"""The vocabulary of the template generator: reading and checking it, and turning templates into text.

Everything here is offline and seeded: a function that chooses takes the random generator from its caller. The schema of
the YAML files and the rules for writing them are in vocabulary/README.md; `load_vocabulary` holds each line to them.
"""

from __future__ import annotations

import functools
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kiokulab import text as texts
from kiokulab import values
from kiokulab.errors import InputError

FOLDER = Path(__file__).parent / "vocabulary"
LANGUAGES = ("en", "ja")
TYPED = ("time", "date", "month", "weekday", "money", "quantity", "duration", "frequency", "age", "percent", "code")
FORGET_KINDS = ("names_fact", "names_topic", "restates")
_CHOICE = re.compile(r"<([^<>]*)>")
_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Value:
    """One value of one part: `forms` are its spellings in every language, `shown` those fit for running text."""

    kind: str
    forms: tuple[str, ...]
    shown: tuple[str, ...]

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """Comparable forms: two values that share one cannot be told apart where only that form is written."""
        return frozenset(texts.normalise(form) for form in self.forms)


# --- typed values in running text -------------------------------------------------------------------------------


def _shown_english(kind: str, value: Any) -> list[str]:
    if kind == "time":
        hour, minute = (int(x) for x in value.split(":"))
        half, twelve = "am" if hour < 12 else "pm", hour % 12 or 12
        clock = f"{twelve} {half}" if minute == 0 else f"{twelve}:{minute:02d} {half}"
        part = (
            "in the morning"
            if hour < 12
            else "in the afternoon"
            if hour < 17
            else "in the evening"
            if hour < 21
            else "at night"
        )
        spoken = {
            30: f"half past {values.english(twelve)} {part}",
            15: f"quarter past {values.english(twelve)} {part}",
            45: f"quarter to {values.english(twelve % 12 + 1)} {part}",
        }.get(minute)
        return [clock, clock, f"{hour:02d}:{minute:02d}"] + ([spoken] if spoken else [])
    if kind == "date":
        month, day = (int(x) for x in value[-5:].split("-"))
        name = values.MONTHS[month - 1].capitalize()
        return [
            f"{name} {day}",
            f"{day} {name}",
            f"{name} {values.ordinal_digits(day)}",
            f"the {values.ordinal_digits(day)} of {name}",
        ]
    if kind == "month":
        return [values.MONTHS[int(value) - 1].capitalize()]
    if kind == "weekday":
        return [values.WEEKDAYS[value][0].capitalize()]
    if kind == "money":
        sign, word = {"USD": ("$", "dollars"), "GBP": ("£", "pounds"), "EUR": ("€", "euros"), "JPY": ("¥", "yen")}[
            value[1]
        ]
        return [f"{sign}{value[0]:,}", f"{sign}{value[0]:,}", f"{value[0]:,} {word}"]
    if kind == "quantity":
        n, unit = value
        word = {
            "km": "kilometres",
            "kg": "kilos",
            "g": "grams",
            "l": "litres",
            "m": "metres",
            "cm": "centimetres",
            "mile": "miles",
        }[unit]
        return [f"{n} {word}"] if unit == "mile" else [f"{n} {unit}", f"{n} {word}"]
    if kind == "duration":
        n, unit = value
        return [f"{n} {unit}{'' if n == 1 else 's'}"]
    if kind == "frequency":
        n = {1: "once", 2: "twice"}.get(value["n"], f"{values.english(value['n'])} times")
        return [f"{n} a {value['per']}"]
    return [{"age": f"{value}", "percent": f"{value}%"}.get(kind, str(value))]


def _shown_japanese(kind: str, value: Any) -> list[str]:
    if kind == "time":
        hour, minute = (int(x) for x in value.split(":"))
        tail = "" if minute == 0 else "半" if minute == 30 else f"{minute}分"
        half = "午前" if hour < 12 else "午後"
        name = "朝" if 4 <= hour < 10 else "夕方" if 16 <= hour < 18 else "夜" if 19 <= hour < 24 else half
        twelve = hour if hour <= 12 else hour - 12
        return [f"{half}{twelve}時{tail}", f"{hour}時{tail}", f"{name}{twelve}時{tail}" if hour else f"0時{tail}"]
    if kind == "date":
        month, day = (int(x) for x in value[-5:].split("-"))
        return [f"{month}月{day}日"]
    if kind == "month":
        return [f"{int(value)}月"]
    if kind == "weekday":
        return [f"{values.WEEKDAYS[value][1]}曜日", f"{values.WEEKDAYS[value][1]}曜"]
    if kind == "money":
        n, word = value[0], {"USD": "ドル", "GBP": "ポンド", "EUR": "ユーロ", "JPY": "円"}[value[1]]
        if value[1] == "JPY" and n >= 10_000 and n % 1000 == 0:
            high, low = divmod(n, 10_000)
            spoken = f"{high}万{f'{low // 1000}千' if low else ''}円"
            return [spoken, spoken, f"{n:,}円"]
        return [f"{n:,}{word}"]
    if kind == "quantity":
        n, unit = value
        return [
            f"{n}{ {'km': 'キロ', 'kg': 'キロ', 'g': 'グラム', 'l': 'リットル', 'm': 'メートル', 'cm': 'センチ', 'mile': 'マイル'}[unit] }"
        ]
    if kind == "duration":
        n, unit = value
        return [
            f"{n}{ {'minute': '分', 'hour': '時間', 'day': '日間', 'week': '週間', 'month': 'か月', 'year': '年'}[unit] }"
        ]
    if kind == "frequency":
        per = {"day": "1日", "week": "週", "month": "月", "year": "年"}[value["per"]]
        return [f"{per}{value['n']}回", f"{per}に{value['n']}回"]
    return [{"age": f"{value}歳", "percent": f"{value}%"}.get(kind, str(value))]


def make_value(kind: str, raw: Any, language: str) -> Value:
    """A Value from the YAML of one value of kind `phrase` or a typed kind. ValueError where it cannot be read."""
    if kind == "phrase":
        forms = [form.strip() for form in str(raw).split("|") if form.strip()]
        if not forms:
            raise ValueError("a phrase needs at least one form")
        return Value(kind, tuple(dict.fromkeys(forms)), (forms[0],))
    if kind not in TYPED:
        raise ValueError(f"unknown kind {kind!r}; known: phrase, {', '.join(TYPED)}")
    forms = values.forms(kind, raw)
    shown = (_shown_english if language == "en" else _shown_japanese)(kind, raw)
    known = {texts.normalise(form) for form in forms}
    # an age is written "{age} years old" in English: the bare number is a piece of its forms, not one of them
    extra = [] if kind == "age" else [s for s in dict.fromkeys(shown) if texts.normalise(s) not in known]
    return Value(kind, tuple(extra + forms), tuple(shown))


# --- vocabulary -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """One thing a persona can have a fact about. Templates as in the YAML; `parts` maps part name -> values."""

    id: str
    anchors: dict[str, list[str]]
    parts: dict[str, tuple[Value, ...]]
    ledger: str
    say: list[str]
    change: list[str]
    partial: dict[str, list[str]]
    forget: dict[str, list[str]]
    question: dict[str, list[str]]
    near_miss: list[str]
    ack: list[str]


@dataclass(frozen=True)
class Vocabulary:
    language: str
    others: list[str]
    names: dict[str, list[str]]
    leads: list[str]
    prefixes: list[str]
    acks: dict[str, list[str]]
    slots: list[Slot]
    topics: list[dict]
    in_order: bool  # a talk begins with the first exchange of its topic; else with any


def options(template: str) -> list[str]:
    """Every text that the choices of a template allow, placeholders left in place."""
    match = _CHOICE.search(template)
    if not match:
        return [template]
    return [
        result
        for choice in match[1].split("|")
        for result in options(template[: match.start()] + choice + template[match.end() :])
    ]


_NUMERALS = frozenset("0123456789〇一二三四五六七八九十百千万億")


def holds(form: str, normalised_text: str) -> bool:
    """Whether `form` (normalised) stands in `normalised_text` as a word of its own. Latin letters and digits must not
    go on past its ends, numbers neither ("6" is not in "6:30", 6時 not in 6時半, 五日 not in 十五日); other Japanese has no
    word ends that one could look at."""
    start = normalised_text.find(form)
    while start >= 0:
        end = start + len(form)
        if not (
            _goes_on(normalised_text[max(0, start - 2) : start], form[0])
            or _goes_past(form[-1], normalised_text[end : end + 2])
        ):
            return True
        start = normalised_text.find(form, start + 1)
    return False


def _goes_on(before: str, first: str) -> bool:
    """Whether a word or number that ends in `before` (up to two characters) goes on into `first`."""
    if not before:
        return False
    left = before[-1]
    if first in _NUMERALS and (left in _NUMERALS or left in ":.," and before[0].isdigit() and len(before) == 2):
        return True
    return left.isascii() and first.isascii() and left.isalnum() and first.isalnum()


def _goes_past(last: str, after: str) -> bool:
    """Whether the word or number that ends in `last` goes on in `after` (up to two characters)."""
    if not after:
        return False
    right = after[0]
    if last in _NUMERALS and (right in _NUMERALS or right in ":.," and after[1:].isdigit()):
        return True
    if last == "時" and (right == "半" or right in _NUMERALS):
        return True
    return last.isascii() and right.isascii() and last.isalnum() and right.isalnum()


def _check_slot(raw: dict, slot: Slot, language: str) -> list[str]:
    """What is wrong with one slot, by the writing rules; an empty list when nothing is."""
    faults: list[str] = []
    parts = set(slot.parts)
    anchors = [texts.normalise(a) for a in slot.anchors.get(language, [])]

    def check(
        where: str, templates: list[str], needs: set[str], may: set[str], anchored: bool, fewest: int = 1
    ) -> None:
        if len(templates) < fewest:
            faults.append(f"{where}: {len(templates)} templates, at least {fewest} are needed")
        for template in templates:
            if template.count("<") != template.count(">") or template.count("{") != template.count("}"):
                faults.append(f"{where}: unbalanced brackets in {template!r}")
            for text in options(template):
                used = set(_PLACE.findall(text))
                if needs - used:
                    faults.append(f"{where}: {{{sorted(needs - used)[0]}}} is missing in {template!r}")
                    break
                if used - needs - may:
                    faults.append(f"{where}: {{{sorted(used - needs - may)[0]}}} has no place in {template!r}")
                    break
                plain = texts.normalise(_PLACE.sub("\uffff", text))
                if anchored and not any(holds(a, plain) for a in anchors):
                    faults.append(f"{where}: no anchor in {template!r}")
                    break

    old, other = {f"old_{p}" for p in parts}, {f"other_{p}" for p in parts}
    check("ledger", [slot.ledger], parts, set(), True)
    check("say", slot.say, parts, set(), True, 5)
    check("change", slot.change, parts, old, True, 3)
    for part, templates in slot.partial.items():
        if part not in parts or len(parts) == 1:
            faults.append(f"partial.{part}: not a part of a slot with several parts")
        check(f"partial.{part}", templates, {part}, {f"old_{part}"}, True, 3)
        if part not in slot.question:
            faults.append(f"question: {part} can change alone and has no question")
    if set(slot.forget) != set(FORGET_KINDS):
        faults.append(f"forget: needs exactly {', '.join(FORGET_KINDS)}")
    for kind, templates in slot.forget.items():
        check(f"forget.{kind}", templates, parts if kind == "restates" else set(), set(), kind != "names_topic")
    if not slot.question or set(slot.question) - parts:
        faults.append("question: one or more, each of a part of the slot")
    for part, templates in slot.question.items():
        check(f"question.{part}", templates, set(), set(), True)
    check("near_miss", slot.near_miss, set(), parts | other, True, 2)
    check("ack", slot.ack, set(), set(), False, 0)
    if any(len(v) < (10 if len(parts) == 1 else 4) for v in slot.parts.values()):
        faults.append("parts: too few values (one part: 10; more parts: 4 each)")
    unknown = set(raw) - set(Slot.__dataclass_fields__)
    if unknown:
        faults.append(f"unknown field {sorted(unknown)[0]}")
    return faults


def read_vocabulary(path: str | Path) -> Vocabulary:
    """The vocabulary in `path`. InputError names the slot, the field and the template that break a writing rule."""
    path = Path(path)
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError(
            f"not YAML: {getattr(error, 'problem', error)}", f"{path}:{mark.line + 1}" if mark else str(path)
        ) from None
    language, slots, faults = raw["language"], [], []
    for entry in raw["slots"]:
        try:
            parts = {}
            for part, kinds in entry["parts"].items():
                ((kind, items),) = kinds.items()
                parts[part] = tuple(make_value(kind, item, language) for item in items)
            slot = Slot(
                entry["id"],
                entry["anchors"],
                parts,
                entry["ledger"],
                entry["say"],
                entry["change"],
                entry.get("partial", {}),
                entry["forget"],
                entry["question"],
                entry["near_miss"],
                entry.get("ack", []),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise InputError(f"slot {entry.get('id')}: {type(error).__name__} {error}", str(path)) from None
        faults += [f"slot {slot.id}: {fault}" for fault in _check_slot(entry, slot, language)]
        slots.append(slot)
    ids = [slot.id for slot in slots]
    faults += [f"slot {i}: the id is there twice" for i in sorted({i for i in ids if ids.count(i) > 1})]
    for topic in raw["topics"]:
        fill = set(topic.get("fill", {}))
        for exchange in topic["exchanges"]:
            if len(exchange["user"]) != len(exchange["assistant"]):
                faults.append(
                    f"topic {topic['id']}: {len(exchange['user'])} lines and {len(exchange['assistant'])} replies: each line has its own reply"
                )
            for line in exchange["user"] + exchange["assistant"]:
                unknown = set(_PLACE.findall(line)) - fill
                if unknown or line.count("<") != line.count(">"):
                    faults.append(f"topic {topic['id']}: bad placeholder or bracket in {line!r}")
    if faults:
        raise InputError("the vocabulary breaks its writing rules:\n  " + "\n  ".join(faults), str(path))
    return Vocabulary(
        language,
        raw["others"],
        raw["names"],
        raw["leads"],
        raw["prefixes"],
        raw["acks"],
        slots,
        raw["topics"],
        bool(raw.get("in_order", False)),
    )


@functools.cache
def load_vocabulary(language: str) -> Vocabulary:
    """The kit's own vocabulary of a language ('en' or 'ja')."""
    return read_vocabulary(FOLDER / f"{language}.yml")


# --- templates into text ----------------------------------------------------------------------------------------


def expand(template: str, rng: random.Random, fill: dict[str, str] | None = None, language: str = "en") -> str:
    """One text from a template: a choice for each `<a|b>`, `fill` for the placeholders, capitals where sentences
    start."""
    result = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    if language == "en":  # "a {feel} day" with "odd"
        result = re.sub(
            r"\b([Aa]) \{(\w+)\}",
            lambda m: f"{m[1]}{'n' if (fill or {})[m[2]][:1].lower() in 'aeiou' else ''} {{{m[2]}}}",
            result,
        )
    result = _PLACE.sub(lambda match: (fill or {})[match[1]], result)
    return capitalise(result) if language == "en" else _DOUBLED.sub(r"毎\1", result)


_DOUBLED = re.compile("毎([朝晩夜])の?[朝夜](?=[0-9])")  # 毎朝 in the template and 朝7時 as the value


def capitalise(text: str) -> str:
    """Sentences start with a capital, also where a value such as "the Lido" came to stand first."""
    text = re.sub(r"(?<=[a-z0-9\"'][.!?] )[a-z]", lambda match: match[0].upper(), text)
    return text[:1].upper() + text[1:]


_LOWERED = {
    "My",
    "The",
    "A",
    "An",
    "Our",
    "On",
    "At",
    "In",
    "If",
    "When",
    "For",
    "There's",
    "There",
    "We",
    "We've",
    "Every",
    "You",
    "You'll",
    "Please",
    "To",
    "It",
    "It's",
    "They",
    "They've",
    "New",
    "From",
    "Since",
    "With",
    "Could",
    "Forget",
    "Same",
    "Whenever",
    "Another",
    "People",
    "All",
    "Put",
    "Keep",
    "One",
    "Guitar",
    "Tennis",
    "Physio",
    "Choir",
    "Pottery",
    "Couriers",
    "Visitors",
    "Tastes",
    "Time",
    "Tonight",
    "As",
    "Long",
    "No",
}


def prefixed(prefix: str, text: str, language: str) -> str:
    """`prefix` in front of a sentence, with the capital taken back where it is not a name's."""
    if language == "en" and text.split(" ", 1)[0] in _LOWERED:
        text = text[0].lower() + text[1:]
    return prefix + text


_POLITE = re.compile(
    r"(です|ます|ました|ません|ましょう|ください|でしょう|ございます|ますか|ですか|下さい)[^。]{0,3}(。|、|$)"
)


def in_register(templates: list[str], polite: bool, language: str, fragments: bool = False) -> list[str]:
    """Japanese: the templates in the persona's register (polite or plain), so that one person does not speak both;
    all of them where the register has none. English has no such split. `fragments` are openings such as ちなみに、 that
    belong to either register unless they show one."""
    if language != "ja":
        return templates
    chosen = [
        t
        for t in templates
        if bool(_POLITE.search(t)) == polite or fragments and not _POLITE.search(t) and "けど" not in t
    ]
    return chosen or templates

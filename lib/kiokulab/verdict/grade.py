"""From a judge's words to a verdict, and from verdicts to the official metrics. Pure functions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kiokulab.verdict import TYPES

_FIRST_WORD = re.compile(r"[\s*_`\"'(\[]*(yes|no)\b", re.IGNORECASE)


def official_parse(reply: str | None) -> bool | None:
    """The official rule: "yes" anywhere in the lowered reply ("yesterday" passes). An empty reply is no verdict (None):
    the original crashes on a missing one and calls an empty one wrong, which would make a failed judge a wrong answer.
    """
    if reply is None or not reply.strip():
        return None
    return "yes" in reply.strip().lower()


def strict_parse(reply: str | None) -> bool | None:
    """The first word, where it is yes or no; else None. Kept beside the official reading, and differences are
    counted."""
    found = _FIRST_WORD.match(reply or "")
    return None if found is None else found.group(1).lower() == "yes"


def accuracy(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Official metrics from rows {"id", "type", "correct"}: overall (micro), task_averaged (unweighted mean of the
    types that are there), by_type and abstention, each with k and n. Abstention rows count in their type and overall
    too.

    `correct` must be a bool: what was not judged is decided before (headline: missing answers are wrong, and listed).
    """
    groups: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if not isinstance(row["correct"], bool):
            raise ValueError(f"{row['id']} has no verdict; decide what it counts as before accuracy is computed")
        groups["overall"].append(row["correct"])
        groups[row["type"]].append(row["correct"])
        if "_abs" in row["id"]:
            groups["abstention"].append(row["correct"])
    share = {
        name: {"k": sum(values), "n": len(values), "rate": sum(values) / len(values)} for name, values in groups.items()
    }
    present = [share[name]["rate"] for name in TYPES if name in share]
    empty = {"k": 0, "n": 0, "rate": None}
    return {
        "overall": share.get("overall", empty),
        "task_averaged": sum(present) / len(present) if present else None,
        "types_present": len(present),
        "by_type": {name: share[name] for name in TYPES if name in share},
        "abstention": share.get("abstention", empty),
    }


def majority(votes: Iterable[bool | None]) -> bool | None:
    """Verdict of a panel of three: two equal votes decide; else None, "undecided", which is reported and never
    guessed."""
    given = [vote for vote in votes if vote is not None]
    return True if sum(given) >= 2 else False if len(given) - sum(given) >= 2 else None


# --- without a model: grading by rule -----------------------------------------------------------------------------

RULES_VERSION = 1
_SMALL = {
    word: str(n)
    for n, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
    )
}
_IDLE = frozenset(
    "a an the of to in on at for with and or is was were be are i my me you your user it its that this these those their his her he she they by from as also did do does".split()
)
_ACCEPTABLE = re.compile(r"\balso (?:be )?(?:acceptable|accepted|correct)\b|\bacceptable\b", re.IGNORECASE)
_DECLINES = re.compile(
    r"\bnot in (?:what|the|my|our|your)\b|\b(?:no|not enough|insufficient|lacks?|any) (?:\w+ ){0,2}(?:information|mention|record|detail|evidence)|\b(?:do|does|did|is|was|were|are|have|has)(?:n't| not) (?:\w+ ){0,3}(?:mention|provid|specif|say|said|stat|tell|told|know|inform|record|give|contain|enough)"
    r"|\b(?:can(?:no|')t|cannot|can not|unable to|not possible to|impossible to|could(?:n't| not)) (?:\w+ ){0,2}(?:be )?(?:answer|determin|find|found|tell|say|know|calculat|conclud|establish)|\bunknown\b|\bnever (?:says?|said|mention\w*|told|tells?)\b",
    re.IGNORECASE,
)


def _tokens(text: str) -> list[str]:
    from kiokulab.text import normalise
    from kiokulab.verdict.reader import stem

    words = re.findall(r"\d+(?:[.,:]\d+)*|\w+", normalise(text))
    return [
        _SMALL.get(word, word.replace(",", "") if word[0].isdigit() else stem(word))
        for word in words
        if word not in _IDLE
    ]


def declines(text: str) -> bool:
    """Whether an answer says that it cannot be given."""
    return bool(_DECLINES.search(text.replace("’", "'")))


def rule_grade(question_type: str, abstention: bool, gold: str, response: str) -> tuple[bool | None, str]:
    """(verdict, why) without a model. Abstention: whether the answer declines. Preference rubrics: None, a rule
    cannot read them. Else every number of the gold answer must be in the answer and, of its other words, all where
    there are up to four, four in five where there are more; "… is also acceptable" gives further gold answers. Order
    and meaning are not read:
    a rule says yes to an answer that names the right thing among others. How far it agrees with a model that judged
    the same answers is measured (data/verdict/rule-grader.yml)."""
    if abstention:
        return declines(response), "declines" if declines(response) else "does not decline"
    if question_type == "single-session-preference":
        return None, "a rule cannot read a rubric of preferences"
    have = set(_tokens(response))
    for wanted in _golds(gold):
        numbers = {token for token in wanted if token[0].isdigit()}
        words = [token for token in wanted if token not in numbers]
        held = sum(word in have for word in words)
        if (numbers or words) and numbers <= have and held >= (len(words) if len(words) <= 4 else 0.8 * len(words)):
            return True, "holds the expected answer"
    return False, "declines" if declines(response) else "does not hold the expected answer"


def _golds(gold: str) -> list[list[str]]:
    parts = re.split(r"(?<=[.;])\s+|\n", gold.strip())
    further = [part for part in parts[1:] if _ACCEPTABLE.search(part)]
    first = " ".join(part for part in parts if part not in further)
    return [
        _tokens(first),
        *(_tokens(re.sub(r"\(.*?\)", " ", _ACCEPTABLE.sub(" ", part)).replace("is", " ", 1)) for part in further),
    ]

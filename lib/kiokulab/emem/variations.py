"""What the fallback read path would score if one of its rules were another: shows which rules the sample pins.

Works on the items alone, without a responder: a store where the last write of a path wins.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from kiokulab.emem.dataset import Item
from kiokulab.emem.grade import ascii_lower, contains_answer


@dataclass(frozen=True)
class Rules:
    """The rules of ranking and counting; the defaults are the benchmark's own."""

    load_order: bool = False
    last_wins: bool = False
    shortest_token: int = 3
    third: str = "floor"
    measure: str = "count"  # count | jaccard | repeats (repeats in the document count)
    whitespace: bool = False
    substring: bool = False


BENCHMARK = Rules()
VARIATIONS = {
    "none": BENCHMARK,
    "load order instead of path order": replace(BENCHMARK, load_order=True),
    "last wins ties": replace(BENCHMARK, last_wins=True),
    "last wins ties, load order": replace(BENCHMARK, last_wins=True, load_order=True),
    "min token length 1": replace(BENCHMARK, shortest_token=1),
    "min token length 2": replace(BENCHMARK, shortest_token=2),
    "min token length 4": replace(BENCHMARK, shortest_token=4),
    "ceil(n/3)": replace(BENCHMARK, third="ceil"),
    "Jaccard instead of count": replace(BENCHMARK, measure="jaccard"),
    "count repeats in the document": replace(BENCHMARK, measure="repeats"),
    "whitespace tokens, no length limit": replace(BENCHMARK, whitespace=True, shortest_token=1),
    "substring instead of token match": replace(BENCHMARK, substring=True),
}


def _tokens(text: str, rules: Rules) -> list[str]:
    text = ascii_lower(text)
    found = text.split() if rules.whitespace else re.findall(r"[a-z0-9]+", text)
    return [token for token in found if len(token) >= rules.shortest_token]


def _score(query: list[str], text: str, rules: Rules) -> float:
    document = _tokens(text, rules)
    if rules.substring:
        return sum(token in ascii_lower(text) for token in query)
    if rules.measure == "repeats":
        return sum(document.count(token) for token in query)
    held, asked = set(document), set(query)
    if rules.measure == "jaccard":
        return len(held & asked) / len(held | asked) if held | asked else 0.0
    return sum(token in held for token in query)


def retrieve(query: str, store: dict[str, str], rules: Rules) -> str | None:
    """The text that the rules choose from {path: text} (in load order); None where nothing scores."""
    asked, best, best_score = _tokens(query, rules), None, 0.0
    for path in list(store) if rules.load_order else sorted(store):
        score = _score(asked, store[path], rules)
        if score > best_score or (rules.last_wins and score == best_score > 0):
            best, best_score = path, score
    return store[best] if best else None


def counts(items: tuple[Item, ...], rules: Rules = BENCHMARK) -> dict[str, tuple[int, int]]:
    """(correct, items) of retrieval, learning and long-range, and of the topline with conflicts kept apart."""
    store = {item.path: item.content for item in items}
    right = [contains_answer(retrieve(item.query, store, rules), item.expected_answer) for item in items]
    share = max(1, math.ceil(len(items) / 3) if rules.third == "ceil" else len(items) // 3)
    learning = []
    for item in items:
        if item.update is not None and item.update_answer is not None:
            store[item.path] = item.update
            learning.append(contains_answer(retrieve(item.query, store, rules), item.update_answer))
    conflicts = [
        item.content.strip() != item.conflicts_with.strip() for item in items if item.conflicts_with is not None
    ]
    groups = {
        "retrieval_accuracy": right,
        "test_time_learning": learning,
        "long_range_understanding": right[:share],
        "conflict_resolution": conflicts,
    }
    result = {name: (sum(values), len(values)) for name, values in groups.items()}
    return result | {"topline": (sum(k for k, _ in result.values()), sum(n for _, n in result.values()))}

"""Worlds of our own: invented project knowledge, seeded, in English and Japanese, in the public benchmark's families,
counts and shapes.

Vocabulary and sentence frames (`vocabulary/*.yml`) and the program are ours. Where a world of the public generator has
a flaw that anyone can measure, ours differs on purpose: links really prefer their component; a stale copy is as long
as the truth and has a tail clause of its own, so that length gives nothing away; a seed also moves times, lengths,
code references and links; reworded contradictions are grammatical; a link question has one answer; no note lists a
file twice.

A world of one seed has the same structure in both languages (entry n of a vocabulary means the same), so the two can be
set side by side task by task; their token counts cannot (see `script.tokens`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kiokulab.drift.arms import Draws
from kiokulab.drift.script import KINDS, Script, fnv1a, load_script, make_script
from kiokulab.errors import InputError
from kiokulab.files import dumps, read_jsonl, sha256_file, write_atomic, write_jsonl

GENERATOR_VERSION = 1  # bumped whenever a world could change
LANGUAGES = ("en", "ja")
SHAPES = ("stale", "twin", "late")
DATA = Path(__file__).resolve().parents[3] / "data" / "drift"
SMALLEST, LARGEST = 20, 20_000  # below, families stay empty; above, the 64 x 64 x 16 subjects run out
BASE = 1_788_220_800  # 2026-09-01T00:00Z, the moment at which everything is asked
DAY, HOUR = 86_400, 3_600
SPREAD_DAYS, WINDOW_DAYS, K = 60, 5, 10
BODY_QUARTILES = {"en": (133, 461, 748, 1209, 2250), "ja": (60, 205, 335, 540, 1000)}  # characters
NEAR = 70  # per cent of links that stay within one component
RULES = (
    ("Decision", "because", "Principle"),
    ("Caution", "about", "Decision"),
    ("Problem", "about", "Decision"),
    ("Insight", "builds-on", "Decision"),
    ("Insight", "answers", "Problem"),
    ("Decision", "needs", "Decision"),
)
OTHER_KIND = {
    "Decision": "Problem",
    "Caution": "Decision",
    "Principle": "Insight",
    "Problem": "Principle",
    "Insight": "Caution",
}
CASES = (
    ("value", 1, True),
    ("reworded", 1, True),
    ("negation", 2, True),
    ("paraphrase", 2, False),
    ("synonym", 2, False),
    ("unit", 2, True),
    ("clause", 2, True),
    ("coreference", 2, False),
    ("transitive", 3, True),
    ("quantifier", 2, True),
    ("collider", 2, False),
    ("compound", 3, True),
    ("unit_agree", 2, False),
    ("historical", 3, False),
)
PHRASINGS = ("lexical", "paraphrase", "oblique", "crossed")

# Whose word counts, strongest first: a supervisor's pin, a user's approval, an assistant's confirmation, mere exposure.
# (layer, name, endorsements in order as (twin, by, times), confound of twin b, twins, whether the whole order is asked)
AUTHORITY = (
    (1, "confirm_vs_none", (("a", "assistant", 1),), "", "ab", False),
    (1, "confirm_vs_fresh", (("a", "assistant", 1),), "fresh", "ab", False),
    (1, "confirm_vs_kind", (("a", "assistant", 1),), "kind", "ab", False),
    (1, "latest_confirm", (("b", "assistant", 1), ("a", "assistant", 1)), "", "ab", False),
    (2, "approve_vs_confirm", (("a", "user", 1), ("b", "assistant", 1)), "", "ab", False),
    (2, "approve_vs_confirms", (("a", "user", 1), ("b", "assistant", 3)), "", "ab", False),
    (2, "approve_vs_kind", (("a", "user", 1),), "kind", "ab", False),
    (2, "approve_vs_claims", (("a", "user", 1),), "claims", "ab", False),
    (2, "approve_vs_fresh_confirm", (("a", "user", 1), ("b", "assistant", 1)), "fresh", "ab", False),
    (2, "ladder2", (("b", "assistant", 1), ("a", "user", 1)), "", "abc", True),
    (2, "latest_approve", (("b", "user", 1), ("a", "user", 1)), "", "ab", False),
    (3, "exposure_vs_none", (("a", "retrieval", 10),), "", "ab", False),
    (3, "confirm_vs_exposure", (("a", "assistant", 1), ("b", "retrieval", 10)), "", "ab", False),
    (
        3,
        "approve_vs_exposure_confirm",
        (("a", "user", 1), ("b", "retrieval", 10), ("b", "assistant", 1)),
        "",
        "ab",
        False,
    ),
    (3, "exposure_vs_fresh", (("a", "retrieval", 10),), "fresh", "ab", False),
    (3, "ladder3", (("c", "retrieval", 10), ("b", "assistant", 1), ("a", "user", 1)), "", "abc", True),
    (4, "pin_vs_approve", (("a", "supervisor", 1), ("b", "user", 1)), "", "ab", False),
    (
        4,
        "pin_vs_everything",
        (("a", "supervisor", 1), ("b", "retrieval", 10), ("b", "assistant", 3), ("b", "user", 1)),
        "",
        "ab",
        False,
    ),
    (4, "latest_pin", (("b", "supervisor", 1), ("a", "supervisor", 1)), "", "ab", False),
    (4, "pin_then_supersede", (("x", "supervisor", 1), ("b", "user", 1)), "", "xb", False),
    (
        4,
        "ladder4",
        (("d", "retrieval", 10), ("c", "assistant", 1), ("b", "user", 1), ("a", "supervisor", 1)),
        "",
        "abcd",
        True,
    ),
)


# --- words --------------------------------------------------------------------------------------------------------


class _Word(str):
    """A word that can put its English article in front: "{a:article}"."""

    def __format__(self, how: str) -> str:
        return f"{'an' if self[:1] in 'aeiou' else 'a'} {self}" if how == "article" else str(self)


@cache
def vocabulary(language: str) -> dict[str, Any]:
    """The words and frames of a language, checked for the shape that the generator relies on."""
    if language not in LANGUAGES:
        raise InputError(
            f"no worlds in the language {ascii(language)}", "language", f"It is one of {', '.join(LANGUAGES)}"
        )
    words = yaml.safe_load((Path(__file__).parent / "vocabulary" / f"{language}.yml").read_text(encoding="utf-8"))
    for name in ("first", "second"):
        words[name] = words[name].split()
    words["components"] = [tuple(part.strip() for part in line.split("|")) for line in words["components"]]
    words.setdefault("slugs", [name.replace(" ", "_") for name, _ in words["components"]])
    for slots in words["slots"].values():
        for place in ("a", "b"):
            slots[place] = [tuple(part.strip() for part in line.split("|")) for line in slots[place]]
    return words


def _shuffled(draws: Draws, items: Iterable) -> list:
    items = list(items)
    for n in range(len(items) - 1, 0, -1):
        other = draws.below(n + 1)
        items[n], items[other] = items[other], items[n]
    return items


@dataclass
class _Fact:
    """One true note before it is worded. Numbers are places in the vocabulary."""

    kind: str
    first: int
    second: int
    component: int
    a: int
    b: int
    number: int
    other: int
    tail: int = 0
    stale_tail: int = 0
    filler: int = 0
    length: int = 0
    refs: tuple[int, ...] = ()
    created: int = BASE
    key: str = ""
    extra: dict = field(default_factory=dict)


class _World:
    def __init__(self, size: int, seed: int, language: str, shape: str, authority: bool, pollution: float):
        self.size, self.seed, self.language, self.shape = size, seed, language, shape
        self.authority, self.pollution = authority, pollution
        self.words = vocabulary(language)
        self.ops: list[dict] = []
        self.probes: list[dict] = []
        self.counters = {"R": 0, "P": 0, "W": 0, "L": 0}
        self.used_subjects: set[tuple[int, int, int]] = set()
        self.names = _shuffled(self.draws("names"), range(64 * 64))
        self.next_name = 0
        self.slot_orders = {kind: _shuffled(self.draws(f"slots {kind}"), range(16 * 25 * 25)) for kind in KINDS}
        self.decisions_used = -(-size // len(KINDS))
        self.notes = 0
        self.edges: list[tuple[int, int, str]] = []

    def draws(self, purpose: str) -> Draws:
        """A stream of draws of its own for each purpose: nothing in one part of a world moves another part. The same
        for every language, shape and size."""
        return Draws(fnv1a(f"kiokulab drift {self.seed} {purpose}".encode()))

    # facts and their words
    def subject(self, component: int, near: tuple[int, int] | None = None, step: int = 0) -> tuple[int, int]:
        """The next free pair of words for a component; near: the same first word and another second one."""
        if near is not None:
            for turn in range(64):
                pair = (near[0], (near[1] + step + turn) % 64)
                if pair[1] != near[1] and (*pair, component) not in self.used_subjects:
                    self.used_subjects.add((*pair, component))
                    return pair
        while True:
            pair = divmod(self.names[self.next_name % len(self.names)], 64)
            self.next_name += 1
            if (*pair, component) not in self.used_subjects:
                self.used_subjects.add((*pair, component))
                return pair

    def slots(self, kind: str, ordinal: int) -> tuple[int, int, int]:
        """(component, first slot, second slot) of the ordinal of a kind; no two ordinals of a kind have the same
        three."""
        place = self.slot_orders[kind][ordinal]
        return place % 16, place // 16 % 25, place // 400

    def make_facts(self) -> None:
        numbers, bodies, refs, times = (self.draws(name) for name in ("numbers", "bodies", "refs", "times"))
        dirt, near = self.draws("pollution"), self.draws("near names")
        quartiles = BODY_QUARTILES[self.language]
        self.facts: list[_Fact] = []
        for i in range(self.size):
            kind = KINDS[i % len(KINDS)]
            component, a, b = self.slots(kind, i // len(KINDS))
            # every seventh fact is called nearly like the seventh before it; after 16 such names the row begins anew
            twin = self.facts[i - 7] if i % 7 == 0 and i // 7 % 16 else None
            first, second = self.subject(component, (twin.first, twin.second) if twin else None, 1 + near.below(62))
            number = 3 + numbers.below(977)
            fact = _Fact(kind, first, second, component, a, b, number, number + 1 + numbers.below(40), key=f"f{i:04d}")
            self.dress(fact, bodies, refs, quartiles)
            fact.created = BASE - times.below(SPREAD_DAYS) * DAY - (1 + times.below(20)) * HOUR
            if dirt.below(10_000) < round(self.pollution * 10_000):
                fact.extra["stale"] = f"s-{fact.key}"
                fact.extra |= {
                    "shift": (20 + times.below(20)) * DAY,
                    "start": bodies.below(12),
                    "below": bodies.below(2) == 0,
                }
            self.facts.append(fact)

    def dress(self, fact: _Fact, bodies: Draws, refs: Draws, quartiles: tuple[int, ...]) -> None:
        """Tail, body length and code references: what a fact looks like, and not what it says."""
        tails = len(self.words["tails"])
        fact.tail = bodies.below(tails)
        fact.stale_tail = (fact.tail + 1 + bodies.below(tails - 1)) % tails
        fact.filler = bodies.below(len(self.words["fillers"]))
        quarter, share = bodies.below(4), bodies.below(1000)
        fact.length = quartiles[quarter] + (quartiles[quarter + 1] - quartiles[quarter]) * share // 1000
        count = (0, 0, 0, 0, 1, 1, 2, 3)[refs.below(8)]
        fact.refs = tuple(_shuffled(refs, range(len(self.words["files"])))[:count])

    def subject_text(self, fact: _Fact) -> str:
        names = (
            self.words["first"][fact.first],
            self.words["second"][fact.second],
            self.words["components"][fact.component][0],
        )
        return f"{names[0]}{names[1]}の{names[2]}" if self.language == "ja" else " ".join(names)

    def value(self, number: int, unit: str) -> str:
        return self.words["value"].format(number=number, unit=unit)

    def parts(self, fact: _Fact, kind: str | None = None, number: int | None = None) -> dict[str, Any]:
        """Everything that a frame may name. `kind` words the fact's places by another kind's vocabulary."""
        kind = kind or fact.kind
        slots = self.words["slots"][kind]
        (a, pa), (b, pb) = slots["a"][fact.a], slots["b"][fact.b]
        component, description = self.words["components"][fact.component]
        result = {
            "subject": self.subject_text(fact),
            "component": component,
            "description": description,
            "b": b,
            "pa": pa,
            "pb": pb,
        }
        if kind == "Decision":
            a, _, code = a.rstrip(")").rpartition(" (")
            unit = self.words["units"].get(code, [code])[0]
            result |= {
                "value": self.value(fact.number if number is None else number, unit),
                "other": self.value(fact.other, unit),
            }
        elif "/" in a:
            head, _, rest = a.partition(" ")
            base, _, third = head.partition("/")
            result |= {"a0": f"{base} {rest}", "a3": f"{third} {rest}"}
        else:
            result |= {"a0": a, "a3": a}
        return result | {"a": _Word(a)}

    def frame(self, fact: _Fact, name: str, kind: str | None = None) -> str:
        kind = kind or fact.kind
        return self.words["kinds"][kind][name].format(**self.parts(fact, kind))

    def answer(self, fact: _Fact) -> str:
        """What must be readable in a delivered note: the value, the failure, the forbidden act, the symptom, the
        cause."""
        return str(self.parts(fact)[{"Decision": "value", "Insight": "b", "Principle": "a"}.get(fact.kind, "a3")])

    def body(self, fact: _Fact, core: str, length: int, start: int, below: bool = False) -> str:
        """The core sentence, then sentences without facts: until `length`, or the last one `below` it."""
        parts, gap = self.parts(fact), " " if self.language == "en" else ""
        text = core
        for n in itertools.count(start):
            more = text + gap + self.words["fillers"][n % len(self.words["fillers"])].format(**parts)
            if len(text) >= length or (below and len(more) > length):
                return text
            text = more

    def record(
        self, key: str, kind: str, title: str, body: str, refs: Iterable[str], created: int, is_open: bool = False
    ) -> dict:
        return {
            "key": key,
            "kind": kind,
            "title": title,
            "body": body,
            "code_refs": list(refs),
            "created_at": created,
            "open": is_open,
        }

    def paths(self, fact: _Fact) -> list[str]:
        return [f"app/{self.words['slugs'][fact.component]}/{self.words['files'][n]}.py" for n in fact.refs]

    def truth(self, fact: _Fact) -> dict:
        title = self.frame(fact, "claim") + self.words["tails"][fact.tail]
        body = self.body(fact, self.frame(fact, "core"), fact.length, fact.filler)
        return self.record(fact.key, fact.kind, title, body, self.paths(fact), fact.created, fact.kind == "Problem")

    def stale(self, fact: _Fact, truth: dict) -> dict:
        """The flipped copy that nobody marked. Title and body together are as long as the truth, but for less than a
        sentence, and longer as often as shorter: a drawn coin decides."""
        title = self.frame(fact, "flip") + self.words["tails"][fact.stale_tail]
        if self.shape == "twin":
            body = truth["body"]
        else:
            wanted = len(truth["title"]) + len(truth["body"]) - len(title)
            body = self.body(
                fact, self.frame(fact, "stale_core"), wanted, fact.extra["start"], below=fact.extra["below"]
            )
        created = (
            min(fact.created + fact.extra["shift"], BASE - 1800)
            if self.shape == "late"
            else fact.created - fact.extra["shift"]
        )
        return self.record(fact.extra["stale"], fact.kind, title, body, truth["code_refs"], created)

    # operations and probes
    def number(self, letter: str) -> str:
        self.counters[letter] += 1
        return f"{letter}{self.counters[letter]}"

    def inscribe(self, record: dict, write: bool = False) -> str | None:
        name = self.number("W") if write else None
        self.ops.append(
            {
                "op": "inscribe",
                **({"id": name} if name else {}),
                "record": record,
                "mode": "write" if write else "import",
            }
        )
        return name

    def ask(self, query: str, family: str, expect: str, window: dict | None = None, **fields: Any) -> None:
        name = self.number("R")
        self.ops.append({"op": "recall", "id": name, "query": query, "k": K, **({"window": window} if window else {})})
        self.probes.append({"id": name, "family": family, "expect": expect, **fields})

    def build(self) -> Script:
        self.make_facts()
        self.records = {fact.key: self.truth(fact) for fact in self.facts}
        for fact in self.facts:
            if "stale" in fact.extra:
                self.inscribe(self.stale(fact, self.records[fact.key]))
            self.inscribe(self.records[fact.key])
        self.make_links()
        for source, target, verb in self.edges:
            self.ops.append({"op": "link", "from": self.facts[source].key, "to": self.facts[target].key, "verb": verb})
        chains = self.make_chains()
        self.notes = sum(op["op"] in ("inscribe", "supersede") for op in self.ops)
        self.ops.append({"op": "settle"})
        self.ask_facts()
        self.ask_paths([heads[-1] for heads in chains])
        targets = [fact for i, fact in enumerate(self.facts) if i % 3 == 0][: max(6, self.size // 3)]
        phantoms = max(1, self.size // 4)
        cases = self.plan_cases(targets)
        ghosts = min(sum(case[0] == "transitive" for case in cases), phantoms - 1)
        self.ask_phantoms(phantoms - ghosts)
        for fact in [fact for i, fact in enumerate(self.facts) if i % 4 == 3][: max(4, self.size // 4)]:
            self.ask(self.frame(fact, "paraphrase", OTHER_KIND[fact.kind]), "abstention", "control", natural=True)
        self.ask_chains(chains)
        self.ask_why()
        for fact in [fact for i, fact in enumerate(self.facts) if i % 3 == 2][: max(4, self.size // 4)]:
            window = {"after": fact.created - WINDOW_DAYS * DAY, "before": fact.created + WINDOW_DAYS * DAY}
            query = self.frame(fact, "paraphrase")
            self.ask(query, "temporal", "windowed", window, gold=fact.key, window_=window, answer=self.answer(fact))
        self.plant(targets, cases)
        self.ops += [{"op": "settle"}, {"op": "suspects", "id": "S"}]
        for i, fact in enumerate(self.facts):
            if "stale" in fact.extra:
                self.probes.append(
                    {
                        "id": f"D{i}",
                        "family": "drift",
                        "expect": "drifted",
                        "gold": fact.key,
                        "stale": fact.extra["stale"],
                    }
                )
        self.delete()
        if self.authority:
            self.rank()
        spec = {
            "size": self.size,
            "seed": self.seed,
            "k": K,
            "chains": len(chains),
            "chain_len": 3,
            "pollution": self.pollution,
            **({"pollution_shape": self.shape} if self.shape != "stale" else {}),
            "spread_days": SPREAD_DAYS,
            "window_days": WINDOW_DAYS,
            "base_ts": BASE,
            **({"authority": True} if self.authority else {}),
            "edition": 2,
            "notes": self.notes,
            "edges": len(self.edges),
        }
        for probe in self.probes:
            if "window_" in probe:
                probe["window"] = probe.pop("window_")
        return make_script(
            spec,
            self.ops,
            self.probes,
            name=name_of(self.size, self.seed, self.language, self.shape, self.authority),
            language=self.language,
            where="generated world",
        )

    def make_links(self) -> None:
        """1.06 links a fact; the first 4 % of facts stay alone. 70 % stay within one component where one offers
        itself."""
        draws, first = self.draws("links"), self.size * 4 // 100
        by_kind = {kind: [i for i, fact in enumerate(self.facts) if fact.kind == kind and i >= first] for kind in KINDS}
        homes: dict[tuple[str, int], list[int]] = {}
        for kind, members in by_kind.items():
            for i in members:
                homes.setdefault((kind, self.facts[i].component), []).append(i)
        joined: set[frozenset[int]] = set()
        answered: set[tuple[str, int]] = (
            set()
        )  # a why has one reason, an open problem one answer: else a question has two golds
        wanted, tries = int(1.06 * self.size), 0

        def free(source: int, target: int, verb: str) -> bool:
            asked = (verb, target) if verb == "answers" else (verb, source)
            return source != target and asked not in answered and frozenset((source, target)) not in joined

        while len(self.edges) < wanted and tries < 400 * wanted:
            tries += 1
            kind, verb, to_kind = RULES[draws.below(len(RULES))]
            near = draws.below(100) < NEAR
            for _ in range(
                40
            ):  # a near link looks for a source whose component offers a target; a far one takes any two
                source = by_kind[kind][draws.below(len(by_kind[kind]))]
                pool = homes.get((to_kind, self.facts[source].component), []) if near else by_kind[to_kind]
                pool = [target for target in pool if free(source, target, verb)] if near else pool
                target = pool[draws.below(len(pool))] if pool else source
                if free(source, target, verb):
                    if verb in ("because", "answers"):
                        answered.add((verb, target if verb == "answers" else source))
                    joined.add(frozenset((source, target)))
                    self.edges.append((source, target, verb))
                    break

    def make_chains(self) -> list[list[_Fact]]:
        draws, bodies, refs = (self.draws(f"chains {name}") for name in ("numbers", "bodies", "refs"))
        chains = []
        for c in range(max(4, self.size // 20)):
            component, a, b = self.slots("Decision", self.decisions_used)
            self.decisions_used += 1
            first, second = self.subject(component)
            number, generations = 3 + draws.below(977), []
            for g in range(3):
                fact = _Fact(
                    "Decision",
                    first,
                    second,
                    component,
                    a,
                    b,
                    number,
                    number + 1,
                    key=f"c{c:03d}g{g}",
                    created=BASE - (3 - g) * 30 * DAY,
                )
                number = 3 + (number - 3 + 1 + draws.below(400)) % 977  # three values, no two alike
                self.dress(fact, bodies, refs, BODY_QUARTILES[self.language])
                generations.append(fact)
            records = [self.truth(fact) for fact in generations]
            self.inscribe(records[0])
            for old, new in itertools.pairwise(records):
                self.ops.append({"op": "supersede", "old": old["key"], "new": new})
            chains.append(generations)
        return chains

    def ask_facts(self) -> None:
        for fact in self.facts:
            stale = {"stale": fact.extra["stale"]} if "stale" in fact.extra else {}
            for phrasing in PHRASINGS:
                self.ask(
                    self.frame(fact, phrasing),
                    "retrieval",
                    "gold",
                    gold=fact.key,
                    phrasing=phrasing,
                    **stale,
                    answer=self.answer(fact),
                )

    def ask_paths(self, heads: list[_Fact]) -> None:
        bound: dict[str, list[_Fact]] = {}
        for fact in [*self.facts, *heads]:
            for path in self.paths(fact):
                bound.setdefault(path, []).append(fact)
        for path, facts in bound.items():
            name = self.number("P")
            self.ops.append({"op": "recall_path", "id": name, "path": path, "k": K})
            self.probes.append(
                {
                    "id": name,
                    "family": "retrieval",
                    "expect": "bound",
                    "path": path,
                    "gold": [fact.key for fact in facts],
                    "answers": [self.answer(fact) for fact in facts],
                }
            )

    def phantom(self, draws: Draws, kind: str) -> _Fact:
        """A subject that is never written, with slots of its own."""
        component = draws.below(16)
        return _Fact(
            kind, *self.subject(component), component, draws.below(25), draws.below(25), 3 + draws.below(977), 0
        )

    def ask_phantoms(self, count: int) -> None:
        draws = self.draws("phantoms")
        for n in range(count):
            kind = KINDS[n % len(KINDS)]
            self.ask(
                self.frame(self.phantom(draws, kind), ("lexical", "paraphrase")[n // len(KINDS) % 2]),
                "abstention",
                "control",
            )

    def ask_chains(self, chains: list[list[_Fact]]) -> None:
        for generations in chains:
            head, retired = generations[-1], [fact.key for fact in generations[:-1]]
            for phrasing in PHRASINGS[:3]:
                self.ask(
                    self.frame(head, phrasing),
                    "currency",
                    "current",
                    head=head.key,
                    retired=retired,
                    answer=self.answer(head),
                )
            name = self.number("L")
            self.ops.append({"op": "lineage", "id": name, "key": head.key})
            self.probes.append(
                {"id": name, "family": "currency", "expect": "lineage", "head": head.key, "retired": retired}
            )

    def ask_why(self) -> None:
        left = {"because": max(4, self.size // 4), "answers": max(4, self.size // 4)}
        for source, target, verb in self.edges:
            if left.get(verb, 0):
                left[verb] -= 1
                asked, gold = (source, target) if verb == "because" else (target, source)
                query = self.frame(self.facts[asked], "why" if verb == "because" else "resolve")
                self.ask(
                    query,
                    "rationale",
                    "linked",
                    gold=self.facts[gold].key,
                    anchor=self.facts[asked].key,
                    verb=verb,
                    answer=self.answer(self.facts[gold]),
                )

    # contradictions
    def unit(self, fact: _Fact) -> tuple[str, int] | None:
        """(finer unit, factor) of a Decision whose unit converts."""
        if fact.kind != "Decision":
            return None
        code = self.words["slots"]["Decision"]["a"][fact.a][0].rstrip(")").rpartition(" (")[2]
        found = self.words["units"].get(code)
        return (found[1], found[2]) if found else None

    def plan_cases(self, targets: list[_Fact]) -> list[tuple[str, int, bool]]:
        plan = []
        for n, fact in enumerate(targets):
            turn = n % len(CASES)
            while CASES[turn][0] in ("unit", "unit_agree") and self.unit(fact) is None:
                turn = (turn + 1) % len(CASES)
            plan.append(CASES[turn])
        return plan

    def plant(self, targets: list[_Fact], cases: list[tuple[str, int, bool]]) -> None:
        draws = self.draws("plants")
        bodies = self.words["plant_bodies"]
        for n, (fact, (shape, tier, positive)) in enumerate(zip(targets, cases, strict=True)):
            fact = _Fact(
                **{**fact.__dict__, "other": fact.number + 1 + (draws.below(40) + 41)}
            )  # never the stale copy's value
            titles = [(f"c{n}a", self.planted_title(fact, shape, draws), bodies[draws.below(len(bodies))])]
            if shape == "transitive":
                ghost = self.phantom(draws, fact.kind)
                twin = _Fact(
                    **{**fact.__dict__, "first": ghost.first, "second": ghost.second, "component": ghost.component}
                )
                claim = self.frame(twin, "claim")
                mirror = self.words["plants"]["mirror"]["all"].format(
                    subject=self.subject_text(fact), ghost=self.subject_text(ghost)
                )
                titles = [
                    (f"c{n}a", self.words["plants"]["transitive"]["all"].format(claim=claim), titles[0][2]),
                    (f"c{n}b", mirror, self.words["mirror_body"]),
                ]
            for key, title, body in titles:
                self.inscribe(self.record(key, fact.kind, title, body, [], BASE - (n + 1) * HOUR), write=True)
            self.probes.append(
                {
                    "id": f"C{n}",
                    "family": "contradiction",
                    "expect": "case",
                    "gold": fact.key,
                    "planted": [key for key, _, _ in titles],
                    "witness": f"c{n}a",
                    "tier": tier,
                    "shape": shape,
                    "positive": positive,
                }
            )

    def planted_title(self, fact: _Fact, shape: str, draws: Draws) -> str:
        plants = self.words["plants"]
        if shape in ("unit", "unit_agree"):
            unit, factor = self.unit(fact)
            number = (fact.other if shape == "unit" else fact.number) * factor
            return self.words["kinds"]["Decision"]["claim"].format(
                **self.parts(fact) | {"value": self.value(number, unit)}
            )
        if shape == "value":
            return self.frame(fact, "flip")
        if shape == "coreference":  # the flip, about somebody else of the same component
            others = [other for other in self.facts if other.key != fact.key and other.component == fact.component]
            others = others or [other for other in self.facts if other.key != fact.key]
            other = others[draws.below(len(others))]
            return self.frame(
                _Fact(**{**fact.__dict__, "first": other.first, "second": other.second, "component": other.component}),
                "flip",
            )
        if shape == "collider":  # another kind of statement about the same subject
            kind = KINDS[(KINDS.index(fact.kind) + 1) % len(KINDS)]
            return self.frame(
                _Fact(**{**fact.__dict__, "kind": kind, "a": draws.below(25), "b": draws.below(25)}), "claim"
            )
        frames = plants.get(shape, {})
        parts = self.parts(fact)
        if "all" in frames:
            return frames["all"].format(claim=self.frame(fact, "claim"), flip=self.frame(fact, "flip"), **parts)
        return frames[fact.kind].format(**parts) if frames else ""

    # deletion and authority
    def delete(self) -> None:
        victims = [fact for i, fact in enumerate(self.facts) if i % 3 == 1 and "stale" not in fact.extra][
            : max(4, self.size // 6)
        ]
        for n, fact in enumerate(victims):
            released = n % 2 == 0
            if released:
                reason = self.words["release_reason"].format(**self.parts(fact))
                self.ops.append({"op": "release", "key": fact.key, "reason": reason})
            else:
                self.ops.append({"op": "purge", "key": fact.key})
            self.ask(
                self.frame(fact, "lexical"),
                "deletion",
                "absent",
                victim=fact.key,
                released=released,
                answer=self.answer(fact),
            )
            name = self.inscribe(self.records[fact.key] | {"key": f"z-{fact.key}", "created_at": BASE - 60}, write=True)
            self.probes.append(
                {"id": name, "family": "deletion", "expect": "resurrect", "victim": fact.key, "released": released}
            )

    def rank(self) -> None:
        """Near-identical notes, endorsed by different hands; questions after one settling."""
        draws, words = self.draws("authority"), self.words["authority"]
        questions = []
        for n, target in enumerate(
            [fact for i, fact in enumerate(self.facts) if i % 3 == 2][: max(21, self.size // 3)]
        ):
            layer, scenario, endorsements, confound, twins, order = AUTHORITY[n % len(AUTHORITY)]
            first, second = self.subject(target.component)
            subject = _Fact(
                "Decision", first, second, target.component, target.a, target.b, 0, 0, created=target.created
            )
            start, step = 3 + draws.below(900), 1 + draws.below(19)
            numbers = dict(zip("abcdx", (start + step * m for m in _shuffled(draws, range(5))), strict=True))

            def note(
                letter: str, confound: str = confound, subject: _Fact = subject, numbers: dict = numbers, n: int = n
            ) -> dict:
                parts = self.parts(subject, number=numbers[letter])
                odd = confound if letter == "b" else ""
                created = min(subject.created + 10 * DAY, BASE - 1800) if odd == "fresh" else subject.created
                return self.record(
                    f"a{n}{letter}",
                    "Principle" if odd == "kind" else "Decision",
                    words["claim"].format(**parts),
                    words["verified" if odd == "claims" else "body"].format(**parts),
                    [],
                    created,
                )

            for letter in _shuffled(draws, twins):
                self.inscribe(note(letter))
            for letter, by, times in endorsements:
                self.ops += [{"op": "endorse", "key": f"a{n}{letter}", "by": by}] * times
            retired = {}
            if scenario == "pin_then_supersede":
                self.ops.append({"op": "supersede", "old": f"a{n}x", "new": note("a")})
                retired = {"retired": [f"a{n}x"]}
            needs = sorted({f"endorse_{by}" for _, by, _ in endorsements})
            losers = [f"a{n}{letter}" for letter in twins if letter not in "ax"]
            questions.append(
                (
                    words["question"].format(**self.parts(subject, number=0)),
                    {
                        "winner": f"a{n}a",
                        "losers": losers,
                        **retired,
                        "order": order,
                        "layer": layer,
                        "scenario": scenario,
                        "needs": needs,
                    },
                )
            )
        self.ops.append({"op": "settle"})
        for query, fields in questions:
            self.ask(query, "authority", "ranked", **fields)


def name_of(size: int, seed: int, language: str, shape: str = "stale", authority: bool = False) -> str:
    return f"{language}-{size}-seed{seed}{'' if shape == 'stale' else '-' + shape}{'-authority' if authority else ''}"


def generate(
    size: int = 100,
    seed: int = 1,
    language: str = "en",
    shape: str = "stale",
    authority: bool = False,
    pollution: float = 0.1,
) -> Script:
    """One world: `size` tested facts. The same arguments give the same bytes on every machine.

    shape : how a stale copy looks: `stale` (older, a body of its own), `twin` (older, the truth's body), `late` (dated
        later than the truth). authority : also the opt-in family. pollution : share of facts with a stale copy.
    Raises InputError for arguments out of range.
    """
    if not SMALLEST <= size <= LARGEST:
        raise InputError(f"a world of {size} facts", "size", f"From {SMALLEST} to {LARGEST}")
    if authority and size < 63:
        raise InputError(
            f"an authority world of {size} facts", "size", "At least 63, so that each of the 21 scenarios is posed"
        )
    if shape not in SHAPES:
        raise InputError(f"no pollution shape {ascii(shape)}", "shape", f"It is one of {', '.join(SHAPES)}")
    if not 0 <= pollution <= 1:
        raise InputError(f"a pollution of {pollution}", "pollution", "From 0 to 1")
    if seed < 0:
        raise InputError(f"a seed of {seed}", "seed", "A whole number from 0 on")
    return _World(size, seed, language, shape, authority, pollution).build()


# --- editions -----------------------------------------------------------------------------------------------------


def write_edition(
    folder: Path | str, edition: str, size: int = 100, seed: int = 1, languages: Iterable[str] = LANGUAGES
) -> list[Script]:
    """Write a frozen edition: a script file a language and `edition.json` with digests."""
    folder, scripts = Path(folder), []
    for language in languages:
        script = generate(size, seed, language)
        write_atomic(folder / f"{script.name}.json", script.text())
        scripts.append(script)
    files = {
        f"{script.name}.json": {
            "sha256": sha256_file(folder / f"{script.name}.json"),
            "digest": script.digest,
            "language": script.language,
            "tasks": len(script.probes),
        }
        for script in scripts
    }
    about = {
        "edition": edition,
        "generator": "template",
        "generator_version": GENERATOR_VERSION,
        "seed": seed,
        "size": size,
        "files": files,
        "languages": list(languages),
        "licence": "MIT",
        "reviewed_by_people": "Nobody has looked at it yet.",
        "notes": "Worlds of our own in the families, counts and shapes of KnowledgeDrift v2; "
        "no public figure holds for them.",
    }
    write_atomic(folder / "edition.json", json.dumps(about, ensure_ascii=False, indent=1, sort_keys=True) + "\n")
    return scripts


def load_edition(edition: str | Path = "v0.1") -> list[Script]:
    """The frozen worlds of an edition, by name under data/drift or by folder, checked against their digests.
    Raises InputError with the file where one is missing or was changed."""
    folder = DATA / str(edition) if (DATA / str(edition) / "edition.json").is_file() else Path(edition)
    try:
        about = json.loads((folder / "edition.json").read_text(encoding="utf-8"))
        files = about["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"no usable edition ({type(error).__name__})", str(folder / "edition.json")) from None
    scripts = []
    for name, entry in sorted(files.items()):
        path = folder / name
        if not path.is_file() or sha256_file(path) != entry["sha256"]:
            raise InputError(
                "missing, or not the file that was frozen",
                str(path),
                "Get the edition again; a changed file is a new edition",
            )
        scripts.append(load_script(path, entry["language"]))
    return scripts


def same(first: Script, second: Script) -> bool:
    """Whether two scripts are the same to the byte."""
    return dumps([first.spec, first.ops, first.probes]) == dumps([second.spec, second.ops, second.probes])


# --- step 1 -------------------------------------------------------------------------------------------------------


def worlds(params: Any) -> list[Script]:
    """The scripts that a run's parameters name: one file, generated worlds, or the frozen edition."""
    languages = LANGUAGES if params.language == "all" else (params.language,)
    if params.script:
        return [load_script(Path(params.script).expanduser())]
    if params.size:
        return [
            generate(params.size, params.world_seed, language, params.shape, params.authority) for language in languages
        ]
    if params.authority or params.shape != "stale":
        raise InputError(
            "the frozen worlds have no other shapes and no authority family", "parameter size", "Give a size: SIZE=100"
        )
    return [script for script in load_edition(params.edition) if script.language in languages]


def script_row(script: Script) -> dict:
    """A row of dataset.jsonl. Its fields stand in the order of the alphabet; `script_of` brings back the digest's
    order."""
    return {
        "name": script.name,
        "language": script.language,
        "digest": script.digest,
        "spec": script.spec,
        "ops": script.ops,
        "probes": script.probes,
    }


def script_of(row: dict, where: str = "dataset.jsonl") -> Script:
    """The script of a row, checked again with its digest."""
    return make_script(
        row["spec"],
        row["ops"],
        row["probes"],
        name=row["name"],
        language=row["language"],
        digest=row["digest"],
        where=f"{where}: {row['name']}",
    )


def read_scripts(folder: Path | str) -> list[Script]:
    """The scripts of a run folder."""
    return [script_of(row) for row in read_jsonl(Path(folder) / "dataset.jsonl")]


def run(folder: Path | str, params: Any) -> list[dict[str, Any]]:
    """Step 1: the worlds of the run, into dataset.jsonl. A row of counts for each."""
    scripts = worlds(params)
    if not scripts:
        raise InputError("the edition has no world in this language", "parameter language")
    write_jsonl(Path(folder) / "dataset.jsonl", [script_row(script) for script in scripts])
    return [
        {
            "world": script.name,
            "language": script.language or "not said",
            "digest": script.digest,
            "notes": script.spec["notes"],
            "links": script.spec["edges"],
            "operations": len(script.ops),
            "probes": len(script.probes),
        }
        for script in scripts
    ]

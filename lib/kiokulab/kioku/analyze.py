"""From judged rows to metrics.json: pure functions, no wall clock, the same rows give the same bytes.

What metrics.json holds
-----------------------
schema              version of this layout
system, route       whose run it is, and the route that `metrics` and `pillars` below are about (raw where it was run)
metrics             {name: figure} for the eight names in METRICS, over live + derived text, as the KiokuBench page
                    counts
  k, n              how many of how many judged items; for `compression` the characters of memory and of the ledger
  rate              k / n; null where it is not applicable
  low, high         95 %: Wilson for shares, bootstrap over personas for compression; null where there is none
  not_judged        items the judge did not answer; in neither k nor n
  worst             the share with all of those counted as the worse case
  reason            why the rate is null; null where it is not
pillars             {remember, replace, forget, tidy}: 0..1 or null (a part of it is not applicable)
index               value 0..100 or null, low, high (bootstrap over personas inside their language), method, floor,
                    worst (everything not judged counted as the worse case), reason (why null), empty_store (True:
                    nothing is stored at all; noise and mismatch are then 0 and compression counts as 1, which gives
                    about 31.6)
live                {metrics, pillars, index} over the live layer alone
by_language         {language: {metrics, pillars, index, live, beyond}} of the headline route
by_route            {route: {the same, and by_language}} for every route that was run
beyond              not in the index; see `beyond`
judge               name, version, measured (its agreement with people's labels), answerer, grader; of a panel: its
                    agreement
cost                of a system that asks models: what its ingestion cost (ingestion_cost); no such field where it asked
                    none
units               planned, finished, failed [{unit, reason}], unreadable [{unit, reason}] (the store cannot be listed)

A system without a part, a failed unit and an unanswered judge are three different things, and none of them is a zero.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from kiokulab import stats
from kiokulab.errors import InputError
from kiokulab.files import dumps, read_jsonl, write_atomic
from kiokulab.kioku.records import Fact, Persona, Version

SCHEMA = 1
METRICS = (
    "recall",
    "update_applied",
    "old_version_kept",
    "forget_violation",
    "noise",
    "language_mismatch",
    "check_questions",
    "compression",
)
PILLARS = ("remember", "replace", "forget", "tidy")
HIGHER = frozenset({"recall", "update_applied", "check_questions"})  # the other five are better when lower
FLOORS = (0.001, 0.01, 0.05)
SCOPES = {"page": ("live", "derived"), "live": ("live",)}
ROUTES = ("raw", "requests", "signaled")
WARNING_KINDS = 8  # kinds of warnings that are listed
DIGITS = 6  # figures are rounded here, so that a last bit of some processor's arithmetic changes no file

Row = Mapping[str, Any]


# --- the index: pure arithmetic -----------------------------------------------------------------------------------


def index_of(rates: Mapping[str, Any], floor: float = 0.01) -> dict[str, Any]:
    """Pillars and index of the eight rates, as the page defines them.

    rates : METRICS name -> share 0..1 (compression: a ratio), or numpy arrays of them; None or nan = not applicable.
    Returns {'remember', 'replace', 'forget', 'tidy': 0..1, 'index': 0..100}, nan where a part is not applicable.
    """
    part = {name: np.asarray(math.nan if rates[name] is None else rates[name], dtype=float) for name in METRICS}
    pillars = {
        "remember": (part["recall"] + part["update_applied"] + part["check_questions"]) / 3,
        "replace": 1 - part["old_version_kept"],
        "forget": 1 - part["forget_violation"],
        "tidy": (1 - part["noise"] + 1 - part["language_mismatch"] + 1 / np.maximum(part["compression"], 1)) / 3,
    }
    product = np.prod([np.maximum(pillars[name], floor) for name in PILLARS], axis=0)
    return {**pillars, "index": 100 * product**0.25}


# --- counting: one unit -------------------------------------------------------------------------------------------


class Counts:
    """k, n and not judged of each metric in one unit. `reasons` says why a metric has no items at all."""

    def __init__(self) -> None:
        self.k, self.n, self.not_judged = Counter(), Counter(), Counter()
        self.reasons: dict[str, str] = {}

    def add(self, name: str, hit: bool | None) -> None:
        """One item: True is in k and n, False in n alone, None was not judged."""
        if hit is None:
            self.not_judged[name] += 1
        else:
            self.k[name] += hit
            self.n[name] += 1


def kept(row: Row | None, scope: str = "page") -> bool | None:
    """Whether a version can still be read from the store: held, or told as a past state ('history').

    The page counts a change log as keeping the old version, and so does the headline; the split is in `beyond`."""
    verdict = _verdict(row, scope)
    if verdict == "not_judged":
        return None
    return verdict == "held" or (verdict == "partial" and row["how"] == "history")


def _verdict(row: Row | None, scope: str) -> str:
    # a version without a row was never judged: no verdict is not the verdict "absent"
    return "not_judged" if row is None else row["verdict" if scope == "page" else "live"]


def any_of(answers: Sequence[bool | None]) -> bool | None:
    """True if any is, else None if any was not judged, else False."""
    return True if True in answers else None if None in answers else False


def older_kept(fact: Fact, versions: Mapping, scope: str = "page") -> bool | None:
    return any_of([kept(versions.get((fact.id, v.n)), scope) for v in fact.versions[:-1]])


def content_kept(fact: Fact, versions: Mapping, scope: str = "page") -> bool | None:
    return any_of([kept(versions.get((fact.id, v.n)), scope) for v in fact.versions])


def current_held(fact: Fact, versions: Mapping, scope: str = "page") -> bool | None:
    verdict = _verdict(versions.get((fact.id, fact.versions[-1].n)), scope)
    return None if verdict == "not_judged" else verdict == "held"


def answered(row: Row | None) -> bool | None:
    return None if row is None or row["verdict"] == "not_judged" else row["verdict"] == "right"


class Unit:
    """The judged rows of one persona on one route, sorted by what they are."""

    def __init__(self, name: str, persona: Persona, route: str, rows: Sequence[Row]):
        self.name, self.persona, self.route = name, persona, route
        self.versions = {(r["fact"], r["version"]): r for r in rows if r["kind"] == "version"}
        self.answers = {r["fact"]: r for r in rows if r["kind"] == "answer"}
        self.sentences = [r for r in rows if r["kind"] == "sentence"]
        self.size = next((r for r in rows if r["kind"] == "size"), None)

    @property
    def unreadable(self) -> str | None:
        """Why the store could not be read, or None."""
        if self.size is None:
            return "the judge left no size row for it"
        return None if self.size["status"] == "ok" else self.size["reason"] or self.size["status"]

    @property
    def not_asked(self) -> str | None:
        """Why the system was never asked to forget (forget routing, and no forget call), or None. Then its forget
        metric is not applicable, which is something else than not judged."""
        rows = [self.versions.get((f.id, v.n)) for f in self.persona.facts if f.forget is not None for v in f.versions]
        if rows and all(
            r and r["verdict"] == "not_judged" and (r["reason"] or "").startswith("forget: ") for r in rows
        ):
            return rows[0]["reason"]
        return None

    def items(self, scope: str) -> list[tuple[str, str, bool | None]]:
        """(metric, fact id, hit) of the five metrics that are counted fact by fact; hit is None where not judged.
        Tests between systems pair these by fact."""
        result, not_asked = [], self.not_asked
        for fact in self.persona.facts:
            row = self.answers.get(fact.id)
            if fact.lasts and not (row and row["verdict"] == "unsupported"):
                result.append(("check_questions", fact.id, answered(row)))
            if self.unreadable:
                continue
            if fact.forget is not None and not_asked:
                continue
            if fact.forget is not None:
                result.append(("forget_violation", fact.id, content_kept(fact, self.versions, scope)))
                continue
            if not fact.lasts:  # out of date by another change: reported apart (`beyond`)
                continue
            held = current_held(fact, self.versions, scope)
            result.append(("recall", fact.id, held))
            if fact.change != "none":
                result.append(("update_applied", fact.id, held))
                result.append(("old_version_kept", fact.id, older_kept(fact, self.versions, scope)))
        return result

    def count(self, scope: str) -> Counts:
        """The eight metrics of this unit."""
        counts = Counts()
        for name, _, hit in self.items(scope):
            counts.add(name, hit)
        declined = sorted(
            {r["reason"] or "the system has no search" for r in self.answers.values() if r["verdict"] == "unsupported"}
        )
        if declined:
            counts.reasons["check_questions"] = "; ".join(declined)
        if self.not_asked:
            counts.reasons["forget_violation"] = self.not_asked
        if self.unreadable:
            counts.reasons |= dict.fromkeys(
                set(METRICS) - {"check_questions"}, f"store not readable: {self.unreadable}"
            )
            return counts
        for row in self.sentences:
            if row["layer"] in SCOPES[scope]:
                counts.add("noise", not row["states"] if row["judged"] else None)
                if row["language"] != "und":
                    counts.add("language_mismatch", row["language"] != self.persona.language)
        counts.k["compression"] = sum(self.size["memory_characters"].get(layer, 0) for layer in SCOPES[scope])
        counts.n["compression"] = self.size["ledger_characters"]
        return counts


# --- adding up ----------------------------------------------------------------------------------------------------


class Totals:
    """Counts of some units, to be added up under any weights: once as they are, or 2,000 times resampled."""

    def __init__(self, units: Sequence[Unit], scope: str):
        self.units = list(units)
        counts = [unit.count(scope) for unit in units]
        self.k = {name: np.array([c.k[name] for c in counts], float) for name in METRICS}
        self.n = {name: np.array([c.n[name] for c in counts], float) for name in METRICS}
        self.not_judged = {name: sum(c.not_judged[name] for c in counts) for name in METRICS}
        self.reasons = {
            name: "; ".join(sorted({c.reasons[name] for c in counts if name in c.reasons})) or None for name in METRICS
        }
        self.stored = self.n["noise"] + np.array([c.not_judged["noise"] for c in counts], float)
        self.readable = np.array([0.0 if u.unreadable else 1.0 for u in units])
        self.strata = [u.persona.language for u in units]
        self.empty = bool(self.readable.all() and len(self.units)) and not self.stored.any()

    def rates(self, weights: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The eight rates, shape (m,), under weights of shape (m, units); nan where a rate has no items."""
        weights = np.ones((1, len(self.units))) if weights is None else weights
        # nothing stored has no noise and no foreign sentence: that is how the page's formula gives an empty store 31.6
        nothing = (weights @ self.stored == 0) & (weights @ self.readable > 0)
        result = {}
        for name in METRICS:
            bottom = weights @ self.n[name]
            share = np.where(bottom > 0, weights @ self.k[name] / np.where(bottom > 0, bottom, 1), math.nan)
            result[name] = np.where(nothing, 0.0, share) if name in ("noise", "language_mismatch") else share
        return result

    def figure(self, name: str, seed: int, resamples: int) -> dict[str, Any]:
        """One metric as it stands in metrics.json."""
        k, n, lost = int(self.k[name].sum()), int(self.n[name].sum()), self.not_judged[name]
        if name == "compression":  # not a share: it has no Wilson interval
            got = stats.bootstrap(
                lambda w: self.rates(w)[name], len(self.units), strata=self.strata, seed=seed, resamples=resamples
            )
            rate, low, high, worst = got.value, got.low, got.high, got.value
        else:
            share = stats.wilson(k, n, lost)
            rate, low, high, worst = (
                share.rate,
                share.low,
                share.high,
                share.worst("higher" if name in HIGHER else "lower"),
            )
        reason = None if rate is not None else self.reasons[name] or _no_items(name, lost, self.empty)
        return {
            "k": k,
            "n": n,
            "rate": rate,
            "low": low,
            "high": high,
            "not_judged": lost,
            "worst": worst,
            "reason": reason,
        }


def section(units: Sequence[Unit], scope: str, *, floor: float, seed: int, resamples: int) -> dict[str, Any]:
    """{'metrics', 'pillars', 'index'} of some units together (rates are of summed counts, as the page's totals)."""
    totals = Totals(units, scope)
    figures = {name: totals.figure(name, seed, resamples) for name in METRICS}
    rates = {name: float(value[0]) for name, value in totals.rates().items()}
    # an empty store's noise is 0 in the index although there is no rate of it
    worst = {name: rates[name] if figures[name]["worst"] is None else figures[name]["worst"] for name in METRICS}
    whole = index_of(rates, floor)
    interval = stats.bootstrap(
        lambda w: index_of(totals.rates(w), floor)["index"],
        len(totals.units),
        strata=totals.strata,
        seed=seed,
        resamples=resamples,
    )
    missing = [name for name in METRICS if math.isnan(rates[name])]
    index = {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "method": interval.method,
        "floor": floor,
        "worst": float(index_of(worst, floor)["index"]),
        "empty_store": totals.empty,
        "reason": "; ".join(f"{name} is not applicable ({figures[name]['reason']})" for name in missing) or None,
        "floors": {str(f): float(index_of(rates, f)["index"]) for f in FLOORS},
    }
    return rounded({"metrics": figures, "pillars": {name: float(whole[name]) for name in PILLARS}, "index": index})


def _no_items(name: str, lost: int, empty: bool) -> str:
    if lost:
        return f"none of {lost} was judged"
    if empty:
        return "nothing is stored (the index counts it as 0)"
    return {
        "update_applied": "the edition changes no fact",
        "old_version_kept": "the edition changes no fact",
        "forget_violation": "the edition has no forget request",
        "language_mismatch": "no stored sentence has a language that can be told",
    }.get(name, "there is nothing to count")


def rounded(value: Any) -> Any:
    """The same structure with floats rounded and nan as None: what may go into a file."""
    if isinstance(value, Mapping):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else round(float(value), DIGITS) + 0.0
    return value


# --- beyond the page ----------------------------------------------------------------------------------------------


def beyond(units: Sequence[Unit], events: Sequence[Row]) -> dict[str, Any]:
    """What the page does not report; never part of the index. Rates as in `metrics`, without `worst`.

    changes               {'full', 'partial'}: the five change metrics of facts that change whole or in one part only:
                          update_applied, old_version_kept, old_version_in_history, check_questions, stale_answers
    old_version_split     held: stated as if it were true; history: readable as a past state (a change log)
    forgotten_split       the same for forgotten content
    leak_questions        questions about forgotten content that were answered with it
    cascade               facts that another change made out of date without anybody saying so: still_stored, and
                          still_answered with. They are in none of the eight metrics
    stale_answers         check questions answered with an older version; no_answer: with "not in memory"
    collateral            facts never touched by a change or a forget request, held before it and gone after it
    residue               forgotten and replaced content that still lies in the system's own files, by kind of file
    yield                 what the ingest calls did, as told and as seen; no_op: calls that succeed and change nothing
    reading               whether asking questions changed the store
    layers                stored texts' characters by layer
    not_judged            {kind: {reason: how many}}
    """
    readable = [u for u in units if not u.unreadable]
    names = {u.name for u in units}
    events = [e for e in events if e["unit"] in names]
    return rounded(
        {
            "changes": {kind: _changes(units, readable, kind) for kind in ("full", "partial")},
            "old_version_split": _split(readable, lambda f: f.versions[:-1] if f.change != "none" and f.lasts else []),
            "forgotten_split": _split(readable, lambda f: f.versions if f.forget is not None else []),
            "leak_questions": _tally(units, "leak", "leaked"),
            "cascade": {
                "still_stored": _figure(
                    [content_kept(f, u.versions) for u in readable for f in u.persona.facts if f.cascade],
                    "no such fact in the edition",
                ),
                "still_answered": _tally(units, "lapsed", "leaked"),
            },
            "stale_answers": _tally(units, "check", "stale"),
            "no_answer": _tally(units, "check", "none"),
            "collateral": _collateral(readable, events),
            "residue": _residue(events),
            "yield": yields(events),
            "reading": _reading(events),
            "layers": dict(sum((Counter(u.size["memory_characters"]) for u in readable), Counter())),
            "not_judged": _not_judged(units),
        }
    )


def _figure(answers: Iterable[bool | None], reason: str = "there is nothing to count") -> dict[str, Any]:
    answers = list(answers)
    judged = [a for a in answers if a is not None]
    rate = stats.wilson(sum(judged), len(judged), len(answers) - len(judged))
    return {
        "k": rate.k,
        "n": rate.n,
        "rate": rate.rate,
        "low": rate.low,
        "high": rate.high,
        "not_judged": rate.not_judged,
        "reason": None if rate.n else f"none of {len(answers)} was judged" if answers else reason,
    }


def _changes(units: Sequence[Unit], readable: Sequence[Unit], kind: str) -> dict[str, Any]:
    def facts(some: Sequence[Unit]):
        return [(u, f) for u in some for f in u.persona.facts if f.change == kind and f.lasts]

    none = f"no {kind} change in the edition"
    questions = [u.answers.get(f.id) for u, f in facts(units)]
    questions = [q for q in questions if q is None or q["verdict"] != "unsupported"]
    return {
        "update_applied": _figure([current_held(f, u.versions) for u, f in facts(readable)], none),
        "old_version_kept": _figure([older_kept(f, u.versions) for u, f in facts(readable)], none),
        "old_version_in_history": _figure([_only_history(u, f, f.versions[:-1]) for u, f in facts(readable)], none),
        "check_questions": _figure([answered(q) for q in questions], none),
        "stale_answers": _figure([None if answered(q) is None else q["verdict"] == "stale" for q in questions], none),
    }


def _only_history(unit: Unit, fact: Fact, versions: Sequence[Version]) -> bool | None:
    """True where some of `versions` can be read as a past state and none is stated as true."""
    rows = [unit.versions.get((fact.id, v.n)) for v in versions]
    return False if any(_verdict(r, "page") == "held" for r in rows) else any_of([kept(r) for r in rows])


def _split(units: Sequence[Unit], versions_of: Callable[[Fact], Sequence[Version]]) -> dict[str, Any]:
    """'held' and 'history' of the facts for which `versions_of` gives versions that should be gone."""
    held, history = [], []
    for unit in units:
        for fact in unit.persona.facts:
            if versions := versions_of(fact):
                whole = any_of([kept(unit.versions.get((fact.id, v.n))) for v in versions])
                told = _only_history(unit, fact, versions)
                history.append(told)
                held.append(None if None in (whole, told) else whole and not told)
    return {"held": _figure(held), "history": _figure(history)}


def _tally(units: Sequence[Unit], role: str, verdict: str) -> dict[str, Any]:
    rows = [r for u in units for r in u.answers.values() if r["role"] == role and r["verdict"] != "unsupported"]
    return _figure([None if r["verdict"] == "not_judged" else r["verdict"] == verdict for r in rows])


def _collateral(units: Sequence[Unit], events: Sequence[Row]) -> dict[str, Any]:
    """Facts that nobody touched, whose text was seen going away while the system was fed, and that are absent at the
    end.

    A text that went away (`gone` of an event) is recognised by holding an utterance or ledger sentence of the fact word
    for word. A store that words things anew is not recognised so, so this is the least there was; the untouched facts
    that are absent at the end, lost or never stored, are the most.
    """
    untouched = [(u, f) for u in units for f in u.persona.facts if f.change == "none" and f.lasts]
    absent = [None if (h := current_held(f, u.versions)) is None else not h for u, f in untouched]
    watched = {e["unit"] for e in events if "observed" in e["detail"]}
    went: dict[str, list[str]] = defaultdict(list)
    for event in events:
        went[event["unit"]] += [squeezed(memory["text"]) for memory in event["detail"].get("gone", [])]
    seen = [
        missing and any(text in gone for text in _stated(u.persona, f) for gone in went[u.name])
        for (u, f), missing in zip(untouched, absent)
        if u.name in watched
    ]
    return {
        "lost": _figure(seen, "the store was not listed while the system was fed"),
        "untouched_absent_at_end": _figure(absent),
    }


def _stated(persona: Persona, fact: Fact) -> set[str]:
    """How the fact was told: its ledger sentence, and each utterance that states it and nothing else."""
    name = f"{fact.id}.{fact.versions[-1].n}"
    told = [t.text for s in persona.sessions for t in s.turns if t.states == [name]]
    return {squeezed(text) for text in (*told, fact.versions[-1].text)} - {""}


def squeezed(text: str) -> str:
    """NFC text with its white space as single blanks: what two copies of one sentence share."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _residue(events: Sequence[Row]) -> dict[str, Any]:
    """Facts whose forgotten or replaced content still lies in the store folder, and in what kinds of file."""
    rows = [e for e in events if e["op"] == "residue"]
    done = [e["detail"] for e in rows if e["status"] == "ok"]
    if not done:
        reasons = sorted({str(e["detail"].get("reason", e["status"])) for e in rows})
        return {"units": 0, "reason": "; ".join(reasons) or "no store folder was searched"}
    result: dict[str, Any] = {
        "units": len(done),
        "reason": None,
        "files": sum(d.get("files", 0) for d in done),
        "bytes": sum(d.get("bytes", 0) for d in done),
    }
    for what in ("forgotten", "replaced"):
        groups = [d[what] for d in done if what in d]
        found = sum(len(g["found"]) for g in groups)
        kinds = Counter(kind for g in groups for places in g["found"].values() for kind in places)
        rate = stats.wilson(found, sum(g["n"] for g in groups))
        result[what] = {
            "k": rate.k,
            "n": rate.n,
            "rate": rate.rate,
            "low": rate.low,
            "high": rate.high,
            "not_judged": 0,
            "reason": None if rate.n else "there was nothing to search for",
            "kinds": dict(sorted(kinds.items())),
            "not_searchable": sum(len(g.get("not_searchable", [])) for g in groups),
        }
    return result


def yields(events: Sequence[Row]) -> dict[str, Any]:
    """told: what the calls reported; seen: what the store's listing shows (None: it reports, or lists, nothing). Where
    there were warnings, warning_kinds: the commonest, by how they begin."""
    calls = [e for e in events if e["op"] in ("ingest", "forget")]
    kinds = Counter(": ".join(str(warning).split(": ")[:2])[:160] for e in calls for warning in e["warnings"])
    looked = [e["detail"] for e in events if "observed" in e["detail"]]
    names = ("added", "changed", "removed")
    told = {n: [e[n] for e in calls if e[n] is not None] for n in names}
    no_op = [d["no_op"] for d in looked if "no_op" in d]
    return {
        "calls": len(calls),
        "failed": sum(e["status"] == "failed" for e in calls),
        "unsupported": sum(e["status"] == "unsupported" for e in calls),
        "warnings": sum(len(e["warnings"]) for e in calls),
        **(
            {"warning_kinds": dict(sorted(kinds.items(), key=lambda one: (-one[1], one[0]))[:WARNING_KINDS])}
            if kinds
            else {}
        ),
        "told": {n: sum(told[n]) if told[n] else None for n in names},
        "seen": {n: sum(d["observed"][n] for d in looked) if looked else None for n in names},
        "no_op": sum(no_op) if no_op else None,
    }


def _reading(events: Sequence[Row]) -> dict[str, Any]:
    rows = [e for e in events if e["op"] == "reread"]
    done = [e for e in rows if e["status"] == "ok"]
    return {
        "units": len(done),
        "changed_units": sum(any(e[w] for w in ("added", "changed", "removed")) for e in done),
        **{w: sum(e[w] or 0 for e in done) for w in ("added", "changed", "removed")},
        "reason": None if done else "the store was not read a second time",
    }


def _not_judged(units: Sequence[Unit]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter] = defaultdict(Counter)
    for unit in units:
        for row in unit.versions.values():
            if "not_judged" in (row["verdict"], row["live"]):
                found["version"][row["reason"] or "no reason given"] += 1
        for row in unit.answers.values():
            if row["verdict"] == "not_judged":
                found["answer"][row["reason"] or "no reason given"] += 1
        for row in unit.sentences:
            if not row["judged"]:
                found["sentence"][row["reason"] or "no reason given"] += 1
        if not unit.unreadable:
            missing = sum((f.id, v.n) not in unit.versions for f in unit.persona.facts for v in f.versions)
            if missing:
                found["version"]["no row of the judge"] += missing
        missing = sum(f.id not in unit.answers for f in unit.persona.facts if f.lasts)
        if missing:
            found["answer"]["no row of the judge"] += missing
    return {kind: dict(sorted(counts.items())) for kind, counts in sorted(found.items())}


# --- one run ------------------------------------------------------------------------------------------------------


def units_of(rows: Sequence[Row], personas: Sequence[Persona]) -> list[Unit]:
    """The units that have rows, in the personas' order and then the routes'. InputError for a row of no known
    persona."""
    by_unit: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] != "judge":
            by_unit[row["persona"], row["route"]].append(row)
    known = {p.id: p for p in personas}
    strangers = sorted({p for p, _ in by_unit} - set(known))
    if strangers:
        raise InputError(
            f"rows of persona {strangers[0]!r}, which is not in the dataset",
            "judgements.jsonl",
            "Judge the run again: make it with the same dataset",
        )
    order = {p.id: i for i, p in enumerate(personas)}
    routes = {r: i for i, r in enumerate(ROUTES)}
    keys = sorted(by_unit, key=lambda key: (order[key[0]], routes.get(key[1], 9), key[1]))
    return [Unit(by_unit[key][0]["unit"], known[key[0]], key[1], by_unit[key]) for key in keys]


def metrics(
    rows: Sequence[Row],
    personas: Sequence[Persona],
    params: Any,
    *,
    events: Sequence[Row] = (),
    failed: Mapping[str, str] | None = None,
    calls: Sequence[Row] = (),
) -> dict[str, Any]:
    """metrics.json of one run (its fields: this module's docstring).

    rows : judgements.jsonl.  personas : the run's dataset.  params : KiokuParams (system, route, floor, seed,
        bootstrap,
    answerer, grader).  events : events.jsonl.  failed : unit -> reason of units that did not finish.
    calls : rows of calls.sqlite, what the system asked of models.
    """
    options = {"floor": params.floor, "seed": params.seed, "resamples": params.bootstrap}
    units = units_of(rows, personas)
    planned = [f"{p.id}/{route}" for p in personas for route in (ROUTES if params.route == "all" else (params.route,))]
    by_route = {}
    for route in dict.fromkeys(
        u.route for u in sorted(units, key=lambda u: ROUTES.index(u.route) if u.route in ROUTES else 9)
    ):
        some = [u for u in units if u.route == route]
        by_route[route] = _part(some, events, options)
        by_route[route]["by_language"] = {
            language: _part([u for u in some if u.persona.language == language], events, options)
            for language in sorted({u.persona.language for u in some})
        }
    if not by_route:
        by_route[planned[0].split("/")[1] if planned else "raw"] = {**_part([], events, options), "by_language": {}}
    headline = next(iter(by_route))
    judge = next((r for r in rows if r["kind"] == "judge"), None)
    return {
        "schema": SCHEMA,
        "system": params.system,
        "route": headline,
        **(
            {"plumbing": True}
            if _plumbing({"system": params.system, "model": getattr(params, "model", "extractive")})
            else {}
        ),
        **{key: by_route[headline][key] for key in ("metrics", "pillars", "index", "live", "by_language", "beyond")},
        "by_route": by_route,
        "judge": {
            "name": judge["name"] if judge else None,
            "version": judge["version"] if judge else None,
            "measured": rounded(judge["measured"]) if judge else {},
            "answerer": params.answerer,
            "grader": params.grader,
            **({"panel": judge["panel"]} if judge and judge.get("panel") else {}),
        },
        **({"cost": ingestion_cost(calls, events)} if calls else {}),
        "units": {
            "planned": len(planned),
            "finished": len(units),
            "failed": [
                {"unit": u, "reason": (failed or {}).get(u, "it left no rows")}
                for u in planned
                if u not in {x.name for x in units}
            ],
            "unreadable": [{"unit": u.name, "reason": u.unreadable} for u in units if u.unreadable],
        },
    }


def ingestion_cost(calls: Sequence[Row], events: Sequence[Row]) -> dict[str, Any]:
    """What the memory system itself cost: calls and attempts, calls an input that it was fed, tokens, dollars billed
    and at list price as text. What nobody told is not in a sum and is counted (unbilled, unlisted); a sum of nothing
    but that is None."""
    from kiokulab.calls import money

    inputs = sum(row["op"] in ("ingest", "forget") for row in events)
    number = sum(row["attempt"] == 1 for row in calls)
    # the built-in model costs nothing: that is known
    billed, listed = (
        [Decimal(0) if row["mode"] == "embedded" else money(row[name]) for row in calls]
        for name in ("cost", "list_cost")
    )

    def dollars(amounts: Sequence[Any]) -> str | None:
        known = [amount for amount in amounts if amount is not None]
        return format(sum(known), "f") if known else None

    return {
        "calls": number,
        "attempts": len(calls),
        "inputs": inputs,
        "calls_per_input": round(number / inputs, 4) if inputs else None,
        "prompt_tokens": sum(row["prompt_tokens"] or 0 for row in calls),
        "completion_tokens": sum(row["completion_tokens"] or 0 for row in calls),
        "billed_usd": dollars(billed),
        "list_usd": dollars(listed),
        "unbilled": billed.count(None),
        "unlisted": listed.count(None),
        "models": sorted({row["model_answered"] for row in calls if row["model_answered"]}),
    }


def recorded(folder: str | Path) -> list[dict[str, Any]]:
    """What the run's system asked of models: rows of calls.sqlite; empty where it asked none."""
    from kiokulab import calls

    path = Path(folder) / calls.NAME
    return list(calls.rows(path)) if path.is_file() else []


def _part(units: Sequence[Unit], events: Sequence[Row], options: dict) -> dict[str, Any]:
    return {
        **section(units, "page", **options),
        "live": section(units, "live", **options),
        "beyond": beyond(units, events),
    }


# --- the step -----------------------------------------------------------------------------------------------------


def load(folder: str | Path, params: Any = None) -> tuple[list[dict], list[Persona], list[dict], dict[str, str]]:
    """(judgements, personas, events, failed units) of a run folder. InputError where a file is missing or torn."""
    folder = Path(folder)
    for name in ("dataset.jsonl", "judgements.jsonl"):
        if not (folder / name).exists():
            raise InputError("the file is not there", str(folder / name), "Run the steps before 4-analyze first")
    personas = [Persona.model_validate(row) for row in read_jsonl(folder / "dataset.jsonl")]
    events = read_jsonl(folder / "events.jsonl") if (folder / "events.jsonl").exists() else []
    return read_jsonl(folder / "judgements.jsonl"), personas, events, failures(folder)


def failures(folder: str | Path) -> dict[str, str]:
    """Unit -> reason of the units that failed and have not finished since."""
    result = {}
    for path in sorted(Path(folder).glob("units/*/*.failed.json")):
        if not path.with_name(path.name.removesuffix(".failed.json") + ".json").exists():
            note = json.loads(path.read_bytes())
            result[note.get("unit") or path.name.removesuffix(".failed.json").replace("@", "/")] = str(
                note.get("reason")
            )
    return result


def run(folder: str | Path, params: Any) -> list[dict[str, Any]]:
    """Step 4: metrics.json, comparison.json, figures/*.png and report.html from the rows of the steps before.

    params.beside names the folders of other runs of the same edition. Returns one line a system for the notebook.
    A table whose oracle falls short is not shown; `refused(folder)` then says why.
    """
    from kiokulab.kioku import compare, report

    folder = Path(folder)
    rows, personas, events, failed = load(folder)
    mine = metrics(rows, personas, params, events=events, failed=failed, calls=recorded(folder))
    write_atomic(folder / "metrics.json", dumps(mine) + "\n")
    runs, left_out = [compare.Run(params.system, folder.name, mine, units_of(rows, personas))], []
    for place in params.beside:
        got = _beside(Path(place), folder, rows, params)
        if isinstance(got, str):
            left_out.append({"run": "/".join(Path(place).parts[-2:]), "reason": got})
        elif got is not None:
            runs.append(got)
    runs = compare.labelled([runs[0], *sorted(runs[1:], key=lambda r: (r.system, r.id))])
    result = compare.comparison(
        runs, seed=params.seed, resamples=params.bootstrap, floor=params.floor, left_out=left_out
    )
    result["metrics"] = {
        r.label: {key: r.metrics[key] for key in ("by_route", "units", "cost") if key in r.metrics} for r in runs
    }
    if others := _other_judges(folder, rows, params.beside):
        result["judges"] = others
    write_atomic(folder / "comparison.json", dumps(result) + "\n")
    report.write(folder, params)
    return [line(r.system, r.metrics) for r in runs]


def _other_judges(folder: Path, rows: Sequence[Row], beside: Sequence[str]) -> list[dict[str, Any]]:
    """Comparisons with other judges of the same store: with the run that this one is a sibling of, and with those
    beside it that share its ingestion."""
    from kiokulab.kioku import judges

    note = folder / "steps" / "2-ingest.json"
    parent = json.loads(note.read_bytes()).get("parent") if note.exists() else None
    places = ([folder.parent.parent / parent] if parent else []) + [Path(place) for place in beside]
    found = {}
    for place in places:
        same = all(
            (place / name).is_file()
            and (folder / name).is_file()
            and (place / name).read_bytes() == (folder / name).read_bytes()
            for name in ("dataset.jsonl", "memories.jsonl", "contexts.jsonl", "events.jsonl")
        )
        if same and place.resolve() != folder.resolve() and (place / "judgements.jsonl").is_file():
            name = "/".join(place.parts[-2:])
            found[name] = judges.compared(rows, read_jsonl(place / "judgements.jsonl"), name)
    return list(found.values())


def _beside(place: Path, folder: Path, mine: Sequence[Row], params: Any):
    """The run in `place` as a compare.Run; a reason where it must not share a table; None where it is this run."""
    from kiokulab.kioku import compare

    if place.resolve() == folder.resolve():
        return None
    try:
        rows, personas, events, failed = load(place)
    except InputError as error:
        return f"it is not finished ({error.what})"
    if (place / "dataset.jsonl").read_bytes() != (folder / "dataset.jsonl").read_bytes():
        return "it was made on another edition or other personas"
    judges = [
        next(({k: r[k] for k in ("name", "version")} for r in some if r["kind"] == "judge"), None)
        for some in (mine, rows)
    ]
    if judges[0] != judges[1]:
        return f"it was judged by {judges[1]}, this run by {judges[0]}"
    theirs = parameters(place)
    if _plumbing(theirs) != _plumbing({"system": params.system, "model": params.model}):
        return "one of the two was fed by the built-in model: plumbing, which never shares a table with results"
    for name in ("answerer", "grader", "routing", "k", "budget_tokens", "embedder"):
        if name in theirs and theirs[name] != getattr(params, name):
            return f"{name} is {theirs[name]!r} there and {getattr(params, name)!r} here"
    system = theirs.get("system") or place.parent.name
    route = theirs.get("route") or params.route
    counted = metrics(
        rows,
        personas,
        params.model_copy(update={"system": system, "route": route}),
        events=events,
        failed=failed,
        calls=recorded(place),
    )
    return compare.Run(system, place.name, counted, units_of(rows, personas))


def _plumbing(parameters: Mapping[str, Any]) -> bool:
    """Whether a run with these parameters had its system fed by the built-in model."""
    from kiokulab.feeding import was_plumbing
    from kiokulab.params import KiokuParams

    return was_plumbing(KiokuParams, parameters)


def parameters(folder: str | Path) -> dict[str, Any]:
    """The parameters that a run was made with, from its receipt or its steps' notes; {} where it has neither."""
    for name in (
        "receipt.json",
        "steps/4-analyze.json",
        "steps/3-judge.json",
        "steps/2-ingest.json",
        "steps/1-generate.json",
    ):
        path = Path(folder) / name
        if path.exists():
            found = json.loads(path.read_bytes())
            if isinstance(found, dict) and isinstance(found.get("parameters"), dict):
                return found["parameters"]
    return {}


def rederive(folder: str | Path, params: Any = None) -> dict[str, Any]:
    """metrics.json of a run folder computed again from its rows (for `verify`); nothing is written."""
    from kiokulab.params import KiokuParams

    rows, personas, events, failed = load(folder)
    return metrics(
        rows,
        personas,
        params or KiokuParams.checked(parameters(folder)),
        events=events,
        failed=failed,
        calls=recorded(folder),
    )


def refused(folder: str | Path) -> list[str]:
    """Why the table of this run's comparison must not be shown (the oracle fell short); empty where it may be."""
    path = Path(folder) / "comparison.json"
    return json.loads(path.read_bytes())["refused"] if path.exists() else []


# --- as text ------------------------------------------------------------------------------------------------------

TITLES = {
    "recall": "Recall",
    "update_applied": "Update applied",
    "old_version_kept": "Old version kept",
    "forget_violation": "Forget violation",
    "noise": "Noise",
    "language_mismatch": "Language mismatch",
    "check_questions": "Check questions",
    "compression": "Compression",
}


def shown(name: str, figure: Row) -> str:
    """'99 %', '1.30' or 'n/a': one figure as the page prints it; its k, n and interval must stand beside it."""
    if figure["rate"] is None:
        return "n/a"
    return f"{figure['rate']:.2f}" if name == "compression" else f"{100 * figure['rate']:.1f} %"


def counted(name: str, figure: Row) -> str:
    """'355/358, 97.6 to 99.7' with what was not judged: what stands beside every figure."""
    if figure["rate"] is None:
        return str(figure["reason"])
    scale, digits = (1, 2) if name == "compression" else (100, 1)
    text = f"{figure['k']}/{figure['n']}"
    if figure["low"] is not None:
        text += f", {scale * figure['low']:.{digits}f} to {scale * figure['high']:.{digits}f}"
    return text + (f"; {figure['not_judged']} not judged" if figure["not_judged"] else "")


def index_shown(index: Row) -> str:
    """'96.1 (94.0 to 97.5)', or 'n/a'."""
    if index["value"] is None:
        return "n/a"
    return f"{index['value']:.1f}" + (
        f" ({index['low']:.1f} to {index['high']:.1f})" if index["low"] is not None else ""
    )


def printed(metrics: Row) -> str:
    """The canonical text block of a run: the last notebook prints it, and `verify` looks for it there, digit by
    digit."""
    lines = []
    for route, part in metrics["by_route"].items():
        lines.append(f"{metrics['system']}, route {route}: index {index_shown(part['index'])}")
        for name in METRICS:
            lines.append(
                f"  {TITLES[name]:<18} {shown(name, part['metrics'][name]):>8}  ({counted(name, part['metrics'][name])})"
            )
        pillars = [
            f"{name} {'n/a' if part['pillars'][name] is None else format(100 * part['pillars'][name], '.1f')}"
            for name in PILLARS
        ]
        lines.append(f"  Pillars            {', '.join(pillars)}")
        if part["index"]["empty_store"]:
            lines.append("  Nothing is stored: the formula gives an empty store noise 0, mismatch 0 and compression 1.")
        if part["index"]["reason"]:
            lines.append(f"  No index: {part['index']['reason']}")
    units = metrics["units"]
    lines.append(f"Units: {units['finished']} of {units['planned']} finished")
    lines += [f"  failed {u['unit']}: {u['reason']}" for u in units["failed"]]
    lines += [f"  store not readable {u['unit']}: {u['reason']}" for u in units["unreadable"]]
    return "\n".join(lines)


def line(system: str, metrics: Row) -> dict[str, Any]:
    """One system as one line of a table: the headline route's figures as text."""
    return {
        "system": system,
        "route": metrics["route"],
        "index": index_shown(metrics["index"]),
        **{name: f"{shown(name, f)} ({counted(name, f)})" for name, f in metrics["metrics"].items()},
    }


def summary(folders: Sequence[str | Path]) -> str:
    """The table for the terminal: three lines a system and route (figure; k/n; 95 % interval)."""
    heads = [
        "System",
        "Index",
        "Recall",
        "Update",
        "Old kept",
        "Forget viol.",
        "Noise",
        "Lang. mism.",
        "Questions",
        "Compression",
    ]
    table, plumbing, notes, faults = [heads], [], [], []
    for folder in folders:
        path = Path(folder) / "metrics.json"
        if not path.exists():
            notes.append(f"{Path(folder).parent.name}: not analysed, no metrics.json in {folder}")
            continue
        found = json.loads(path.read_bytes())
        if found["system"] == "oracle":
            from kiokulab.kioku.compare import oracle_faults

            faults += oracle_faults(found)
        for route, part in found["by_route"].items():
            if found.get("plumbing"):
                plumbing += _three_lines(f"[{found['system']}]", route, part)
            else:
                table += _three_lines(found["system"], route, part)
            if part["index"]["empty_store"]:
                notes.append(f"{found['system']}, {route}: nothing is stored; the index still gives that about 31.6")
            notes += [
                f"{found['system']}, {route}, {name}: n/a, {f['reason']}"
                for name, f in part["metrics"].items()
                if f["rate"] is None and not part["index"]["empty_store"]
            ]
            lost = sum(f["not_judged"] for f in part["metrics"].values())
            if lost:
                notes.append(
                    f"{found['system']}, {route}: {lost} not judged (in no rate; worst case index {part['index']['worst']:.1f})"
                )
        notes += [f"{found['system']}: unit {u['unit']} failed: {u['reason']}" for u in found["units"]["failed"]]
    if faults:
        return "REFUSED: the oracle falls short, so the harness is broken and not the systems:\n" + "\n".join(
            f"  {fault}" for fault in faults
        )
    if plumbing:
        table += plumbing
        from kiokulab.feeding import BRACKETS

        notes.insert(0, BRACKETS)
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    text = [
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip()
        for row in table
    ]
    text.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(text + notes)


def _three_lines(system: str, route: str, part: Row) -> list[list[str]]:
    def span(f: Row, scale: float, digits: int) -> str:
        return "" if f["low"] is None else f"{scale * f['low']:.{digits}f}-{scale * f['high']:.{digits}f}"

    index, rates = part["index"], part["metrics"]
    first = [
        system,
        "n/a" if index["value"] is None else f"{index['value']:.1f}",
        *[shown(n, rates[n]) for n in METRICS],
    ]
    second = [
        f"  {route}",
        "",
        *[f"{rates[n]['k']}/{rates[n]['n']}" if rates[n]["rate"] is not None else "" for n in METRICS],
    ]
    third = ["", span(index, 1, 1), *[span(rates[n], *((1, 2) if n == "compression" else (100, 0))) for n in METRICS]]
    return [first, second, third]

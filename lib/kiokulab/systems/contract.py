"""The contract tests of one system: does its adapter do what it declares? `run_contract(name)` → a list of checks.

Every system is tried through a worker process, the kit's own baselines too, so that a hang, a death or a print is met
the same way everywhere. A check passes, fails with a reason, or is not applicable with a reason. What a system
declares decides what is asked of it: see `keeps`, `dates` and `capabilities` in base.py.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kiokulab import systems
from kiokulab.systems import faults
from kiokulab.systems.base import (
    FEEDS,
    Memory,
    Pair,
    Request,
    Session,
    System,
    SystemFailure,
    Turn,
    Unsupported,
    Utterance,
)
from kiokulab.worker import OPTIONAL

ITEMS = 130  # more than the 20, 50 and 100 at which stores are known to stop listing
RESULTS = (1, 5, 50)
DAY = "2023-05-20"  # a past day, so that a store that stamps "now" is found out
PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"

# 13 x 10 statements about different things, so that a store that merges near statements has no reason to
_THINGS = (
    "bicycle, piano lesson, dentist, greenhouse, passport, sourdough, telescope, ferry, violin, marathon, kennel, "
    "invoice, lighthouse"
).split(", ")
_SAYINGS = (
    "My {thing} code is {code}.",
    "On Friday the {thing} cost me {code} yen.",
    "Grandmother wrote {code} letters about a {thing}.",
    "The {thing} in Lisbon has number {code}.",
    "Please remember {code} for the {thing} club.",
    "I dreamt of a {thing} and of the figure {code}.",
    "Our neighbour sold a {thing} to platform {code}.",
    "A broken {thing} delayed train {code}.",
    "The museum shows a {thing} under label {code}.",
    "I owe my brother {code} coins for a {thing}.",
)


@dataclass(frozen=True)
class Check:
    """One check of one system. `reason` of a pass is empty, or says what was counted."""

    name: str
    outcome: str
    reason: str
    seconds: float


class Failed(Exception):
    """What a check found; its text is the reason."""


class NotApplicable(Exception):
    """Why a check says nothing about this system."""


def statement(number: int) -> tuple[str, str]:
    """(code, text) of the contract's statement `number`, counted from 0; the code is in no other statement."""
    code = f"{47000 + 37 * number}"
    return code, _SAYINGS[number // len(_THINGS) % len(_SAYINGS)].format(
        thing=_THINGS[number % len(_THINGS)], code=code
    )


def _date(number: int) -> str:
    return f"{DAY}T{9 + number // 60:02d}:{number % 60:02d}:00+00:00"


def item_of(feeds: str, number: int, text: str) -> Any:
    """`text` as an item of the unit that the system is fed with."""
    user, assistant, date = Turn("user", text), Turn("assistant", "I see."), _date(number)
    if FEEDS[feeds] is Session:
        return Session(f"s{number}", date, (user, assistant))
    if FEEDS[feeds] is Pair:
        return Pair(f"p{number}", date, user, assistant)
    return Utterance(f"u{number}", date, user)


class Bench:
    """The units A and B of one system in one temporary folder, opened when first asked for."""

    def __init__(
        self,
        name: str,
        settings: dict[str, Any] | None,
        folder: Path,
        meter: Any,
        items: int,
        timeouts: dict[str, float] | None,
    ):
        self.name, self.settings, self.folder, self.meter = name, settings, folder, meter
        self.items, self.timeouts = items, timeouts
        self.declared = systems.describe(name, settings)
        self.network: list[str] = []
        self.upstream: Any = None  # the model that goes wrong (faults.py), and the run at the meter that asks it
        self.faulty: Any = None
        self.tries: list[Try] = []
        self.reported: int | None = 0  # memories added less removed, as the system says; None where it does not say
        self._open: dict[str, tuple[contextlib.ExitStack, Any]] = {}
        self._filled: Exception | bool = False

    def unit(self, unit: str, meter: Any = None) -> Any:
        """The unit's system, open; a unit that is not open yet is opened at `meter` where one is given."""
        if unit not in self._open:
            stack = contextlib.ExitStack()
            meter = meter or self.meter
            endpoint = meter.endpoint(unit) if meter else None
            held = stack.enter_context(
                systems.connect(
                    self.name, self.settings, space=f"contract-{unit}", workdir=self.folder / unit, endpoint=endpoint,
                    when=_date(0), timeouts=self.timeouts, worker=True,
                )
            )  # fmt: skip
            self._open[unit] = stack, held
        return self._open[unit][1]

    def close(self, unit: str) -> None:
        """Close a unit, if it is open."""
        if unit in self._open:
            stack, held = self._open.pop(unit)
            try:
                stack.close()
            finally:
                self.network.extend(held.network)

    def close_all(self) -> None:
        """Close what is open at the end; what a close has to say was a check of its own."""
        for unit in list(self._open):
            with contextlib.suppress(SystemFailure):
                self.close(unit)

    def filled(self) -> Any:
        """Unit A with all statements in it. The first is fed as a conversation item, the others as requests."""
        if isinstance(self._filled, Exception):
            raise Failed(f"not reached: filling the store failed before ({_short(self._filled)})")
        unit = self.unit("a")
        if not self._filled:
            try:
                for number in range(self.items):
                    _, text = statement(number)
                    first = item_of(self.declared["feeds"], 0, text)
                    told = unit.ingest(Request(f"r{number}", _date(number), text) if number else first, _date(number))
                    if told is None or told.added is None or self.reported is None:
                        self.reported = None
                    else:
                        self.reported += told.added - (told.removed or 0)
                unit.settle(300.0)
                self._filled = True
            except SystemFailure as error:
                self._filled = error
                raise
        return unit

    def need_keeping(self) -> None:
        """NotApplicable where the system keeps nothing of what it is fed, or nothing that could be foretold."""
        if self.declared["keeps"] == "none":
            raise NotApplicable("it keeps nothing of what it is fed, by design")


@dataclass(frozen=True)
class Try:
    """What became of one item that was fed while the model went wrong. outcome: "error", "warning", "silent no-op"
    (success, nothing said, the listing as before), or "stored" (success, and the listing differs)."""

    fault: str
    outcome: str
    reason: str
    asked: int  # requests that reached the model


def _short(error: BaseException) -> str:
    return str(error).split("\n")[0][:300]


def _texts(memories: list[Memory]) -> str:
    return "\n".join(memory.text for memory in memories)


def _codes_in(memories: list[Memory], items: int) -> list[str]:
    text = _texts(memories)
    return [code for code, _ in map(statement, range(items)) if code in text]


# --- the checks, in the order in which they are done ----------------------------------------------------------------


def check_empty(bench: Bench) -> None:
    """A fresh store lists nothing."""
    if bench.declared["keeps"] == "none":
        raise NotApplicable("what it lists does not come from what it is fed, by design")
    found = bench.unit("a").dump()
    if found:
        raise Failed(f"a fresh store lists {len(found)} memories, first: {found[0].text[:80]!r}")


def check_dump(bench: Bench) -> None:
    """Everything that was stored is listed, twice in the same order."""
    bench.need_keeping()
    unit = bench.filled()
    memories = unit.dump()
    if [memory.id for memory in unit.dump()] != [memory.id for memory in memories]:
        raise Failed("two listings of the same store differ in order")
    if len({memory.id for memory in memories}) != len(memories):
        raise Failed("two memories have the same id")
    held = _codes_in(memories, bench.items)
    if bench.declared["keeps"] == "all" and len(held) < bench.items:
        raise Failed(f"{bench.items} statements were stored and {len(held)} are listed ({len(memories)} memories)")
    live = sum(memory.layer == "live" for memory in memories)
    if bench.declared["keeps"] == "some" and bench.reported is None:
        raise NotApplicable("it keeps only some of what it is fed, by design, and does not say how much")
    if bench.reported is not None and bench.reported != live:
        raise Failed(f"by its own count it stored {bench.reported} memories, and it lists {live}")


def check_search(bench: Bench) -> str:
    """A search for k of a larger store delivers k, or everything where the store holds less."""
    if "search" not in bench.declared["capabilities"]:
        raise NotApplicable("search is not declared")
    bench.need_keeping()
    unit, last = bench.filled(), _date(bench.items - 1)
    kind = systems.load_class(systems.adapter(bench.name))
    live = [memory for memory in unit.dump() if memory.layer == "live"]
    # the assistant's "I see." may be kept too
    stored = max(bench.items, len(live)) if bench.declared["keeps"] == "all" else len(live)
    if not stored:
        raise Failed("nothing is stored after all statements were fed")
    for k in RESULTS:
        results = unit.search("the number of the thing", k, last)
        found = results.hits
        if results.shown is not None and len(found) == 1 < min(k, stored):
            raise NotApplicable("a search gives one text that the system itself puts together, whatever k is")
        if kind.ranks == "matching" and len(found) <= min(k, stored):
            continue  # how many share a word with the question is not for the contract to say
        threshold = bench.declared["settings"].get("threshold")
        if threshold and len(found) < min(k, stored):
            raise NotApplicable(
                f"the system's own threshold of {threshold} drops results: {len(found)} of {min(k, stored)} came"
            )
        if len(found) != min(k, stored):
            raise Failed(f"asked for {k} of {stored} stored, {len(found)} were delivered")
    code, text = statement(7)
    if bench.declared["keeps"] == "all" and not any(code in hit.text for hit in unit.search(text, 50, last).hits):
        raise Failed(f"the stored statement {text!r} is not among 50 results for itself")
    if kind.ranks == "matching":
        if not any(live[0].text in hit.text for hit in unit.search(live[0].text, 50, last).hits):
            raise Failed(f"the stored text {live[0].text[:80]!r} is not among 50 results for itself")
        return "a search gives only what matches, however many are asked for"
    return ""


def check_capabilities(bench: Bench) -> None:
    """What is declared is there, and what is not declared raises Unsupported and does not answer."""
    declared = set(bench.declared["capabilities"])
    if unknown := sorted(declared - OPTIONAL):
        raise Failed(f"the contract has no operation {unknown[0]!r}; it has {', '.join(sorted(OPTIONAL))}")
    kind = systems.load_class(systems.adapter(bench.name))
    for op in sorted(declared):
        if getattr(kind, op) is getattr(System, op):
            raise Failed(f"{op} is declared and the adapter has no such method")
    unit = bench.unit("a")
    for op, call in {
        "search": lambda: unit.search("anything", 1),
        "forget": lambda: unit.forget({"query": "anything"}),
    }.items():
        if op not in declared:
            try:
                call()
            except Unsupported:
                continue
            raise Failed(f"{op} is not declared and answers all the same")


def check_dates(bench: Bench) -> None:
    """What was fed on a past day is dated on that day."""
    if bench.declared["dates"] not in ("native", "clock"):
        raise NotApplicable(f"dates reach it as {bench.declared['dates']!r}: its own dates say nothing")
    bench.need_keeping()
    code, text = statement(0)
    found = [memory for memory in bench.filled().dump() if code in memory.text]
    if not found:
        raise Failed(f"the statement {text!r} is not listed")
    # what is made of others may have dates of its own
    first = next((memory for memory in found if memory.layer == "live"), found[0])
    if not str(first.created).startswith(DAY):
        raise Failed(f"fed on {DAY}, dated {first.created}")


def check_noise(bench: Bench) -> None:
    """Whatever is printed on standard output does not reach the channel."""
    unit = bench.unit("a")
    unit.noise()
    with contextlib.suppress(Unsupported):
        unit.dump()
    if "noise from a child" not in unit.log.read_text(encoding="utf-8", errors="replace"):
        raise Failed("what was printed is not in the log")


def check_restart(bench: Bench) -> None:
    """A store that is closed and opened again holds the same."""
    bench.need_keeping()
    before = sorted(memory.text for memory in bench.filled().dump())
    if not before:
        raise Failed("nothing is stored after all statements were fed")
    bench.close("a")
    after = sorted(memory.text for memory in bench.unit("a").dump())
    if before != after:
        raise Failed(
            f"{len(before)} memories before the restart, {len(after)} after it, "
            f"{len(set(before) & set(after))} of them alike"
        )


def check_isolation(bench: Bench) -> None:
    """What one unit is fed is not in another."""
    bench.need_keeping()
    a, b = bench.filled(), bench.unit("b")
    canary = "My canary in unit B sings 99881 songs."
    b.ingest(Request("canary", _date(0), canary), _date(0))
    b.settle(300.0)
    in_a, in_b = a.dump(), b.dump()
    if "99881" in _texts(in_a):
        raise Failed("what unit B was fed is listed in unit A")
    if leaked := _codes_in(in_b, bench.items):
        raise Failed(f"{len(leaked)} statements that unit A was fed are listed in unit B")
    if "99881" not in _texts(in_b):
        raise Failed("unit B does not list what it was fed")
    if "search" in bench.declared["capabilities"]:
        code, text = statement(0)
        # the number itself is not asked for: there are systems that repeat the question in their answer
        if any("99881" in hit.text for hit in a.search(canary.replace("99881", "many"), 50, _date(1)).hits):
            raise Failed("a search in unit A finds what unit B was fed")
        if any(code in hit.text for hit in b.search(text.replace(code, "what"), 50, _date(1)).hits):
            raise Failed("a search in unit B finds what unit A was fed")


def check_reset(bench: Bench) -> None:
    """Emptying unit B empties B, and leaves A as it was."""
    bench.need_keeping()
    a, b = bench.filled(), bench.unit("b")
    before = sorted(memory.text for memory in a.dump())
    b.ingest(Request("again", _date(0), "I bought 77345 tickets for my sister."), _date(0))
    b.settle(300.0)
    try:
        b.reset()
    except Unsupported as error:
        raise NotApplicable(error.reason) from None
    left = b.dump()
    if left:
        raise Failed(f"{len(left)} memories are left after the reset, first: {left[0].text[:80]!r}")
    if sorted(memory.text for memory in a.dump()) != before:
        raise Failed("resetting unit B changed unit A")
    b.ingest(Request("after", _date(1), "I planted 11223 tulips behind my house."), _date(1))
    b.settle(300.0)
    if "11223" not in _texts(b.dump()):
        raise Failed("what is fed after a reset is not stored")


def check_failure(bench: Bench) -> None:
    """What cannot work raises: a failure is never an empty answer."""
    if bench.declared["keeps"] == "none":
        raise NotApplicable("it does nothing with what it is fed, by design")
    unit = bench.unit("b")
    tries: list[tuple[str, Callable[[], Any]]] = [
        ("ingest of something that is no item", lambda: unit.ingest(42, _date(0)))
    ]
    breakable = bench.declared["embeddings"] and hasattr(bench.meter, "broken")  # not the meter of a run with a model
    if breakable:
        request = Request("no-vector", _date(0), "This text gets no vector 55667.")
        # with settle: a system may store only there
        told = lambda: (unit.ingest(request, _date(0)), unit.settle(300.0))  # noqa: E731
        tries.append(("ingest without an embedding endpoint", told))
        if "search" in bench.declared["capabilities"]:
            tries.append(
                ("search without an embedding endpoint", lambda: unit.search("no vector for this", 5, _date(0)))
            )
    try:
        if breakable:
            bench.meter.broken = True
        for what, call in tries:
            try:
                answer = call()
            except SystemFailure as error:
                if error.kind in ("timeout", "died"):
                    raise Failed(f"{what}: {_short(error)}") from None
                continue
            raise Failed(f"{what}: no failure was raised, the answer was {str(answer)[:120]}")
    finally:
        if breakable:
            bench.meter.broken = False


def _try(bench: Bench, unit: Any, fault: str, number: int) -> Try:
    """Feed one statement while the model goes wrong, and look at the listing before and after."""
    before = sorted((memory.layer, memory.text) for memory in unit.dump())
    heard = len(unit.warnings)
    bench.upstream.say(fault)
    _, text = statement(number)
    try:
        unit.ingest(item_of(bench.declared["feeds"], number, text), _date(number))
        unit.settle(300.0)
    except SystemFailure as error:
        if error.kind in ("timeout", "died"):
            raise Failed(f"{fault}: {_short(error)}") from None
        return Try(fault, "error", _short(error), bench.upstream.asked)
    warnings = unit.warnings[heard:]
    if warnings:
        return Try(fault, "warning", warnings[0][:200], bench.upstream.asked)
    same = before == sorted((memory.layer, memory.text) for memory in unit.dump())
    return Try(fault, "silent no-op" if same else "stored", "", bench.upstream.asked)


def _tries(bench: Bench) -> list[Try]:
    """One try of each fault, in one unit; made once."""
    if bench.faulty is None:
        raise NotApplicable("it asks no language model, or need not")
    if not bench.tries:
        unit = bench.unit("c", bench.faulty)
        # once before: what a system warns of at its first call, whatever that is, is no answer to a fault
        _try(bench, unit, "empty", 11)
        for number, fault in enumerate(faults.FAULTS):
            bench.tries.append(_try(bench, unit, fault, number))
    return bench.tries


def check_bad_answers(bench: Bench) -> str:
    """Broken JSON, whole or cut off, is a warning or an error, and never an empty success."""
    loud = [one for one in _tries(bench) if faults.FAULTS[one.fault][1] and one.fault != "down"]
    for one in loud:
        if not one.asked:
            raise Failed(f"{one.fault}: the system did not ask its model at all, so nothing was tried")
        if one.outcome == "silent no-op":
            raise Failed(f"{one.fault}: success was reported, nothing was said, and the listing is as before")
        if one.outcome == "stored":
            raise Failed(f"{one.fault}: something was stored of an answer that cannot be read, and nothing was said")
    return "; ".join(f"{one.fault}: {one.outcome}" for one in loud)


def check_down(bench: Bench) -> None:
    """A model that is down is an error; and with a model again, the same store goes on."""
    (down,) = [one for one in _tries(bench) if one.fault == "down"]
    if down.outcome != "error":
        raise Failed(
            f"the model was down and ingest ended as {down.outcome}{f' ({down.reason})' if down.reason else ''}: it must raise"
        )
    bench.close("c")
    unit = bench.unit("c")  # the same store, now with the built-in model
    before = sorted(memory.text for memory in unit.dump())
    _, text = statement(12)  # of the first kind, which the built-in model takes for something told
    unit.ingest(item_of(bench.declared["feeds"], 12, text), _date(12))
    unit.settle(300.0)
    if sorted(memory.text for memory in unit.dump()) == before:
        raise Failed("with a model again, the store takes nothing in")


def check_no_ops(bench: Bench) -> str:
    """Success that changed nothing is counted, by comparing listings; no system is blamed where the answer held no
    memory."""
    made = _tries(bench)
    silent = [one.fault for one in made if one.outcome == "silent no-op"]
    others = [f"{one.fault}: {one.outcome}" for one in made if not faults.FAULTS[one.fault][1]]
    return f"{len(silent)} of {len(made)} ({'; '.join(others)})"


def check_network(bench: Bench) -> None:
    """In all that was done so far nothing tried to leave this machine."""
    for unit in ("a", "b", "c"):
        bench.close(unit)
    if bench.network:
        raise Failed(
            f"{len(bench.network)} attempts to leave this machine (refused): "
            f"{', '.join(sorted(set(bench.network))[:5])}"
        )


CHECKS: tuple[tuple[str, Callable[[Bench], str | None]], ...] = (
    ("empty dump on a fresh store", check_empty),
    (f"dump of {ITEMS} is complete", check_dump),
    ("k results when k are asked for", check_search),
    ("capabilities are what is there", check_capabilities),
    ("dates round-trip", check_dates),
    ("noise on stdout is harmless", check_noise),
    ("restart keeps data", check_restart),
    ("units are isolated", check_isolation),
    ("reset empties only its own unit", check_reset),
    ("failure raises", check_failure),
    ("bad JSON of the model is told of", check_bad_answers),
    ("a model that is down is an error", check_down),
    ("silent no-ops are counted", check_no_ops),
    ("no socket beyond loopback", check_network),
)


def run_contract(
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    embedder: Any = None,
    items: int = ITEMS,
    timeouts: dict[str, float] | None = None,
    folder: str | Path | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Check]:
    """Do all checks on the system `name` (as resolved) in a temporary folder, or in `folder`, which is then kept.

    `embedder` serves the embedding endpoint of systems that ask for one (default: embed.get("use")). `say(line)` gets
    each check's line as it is done. Raises InputError for an unknown system or setting; everything else is a check's
    outcome. The system passes when no check has the outcome ``fail``.
    """
    checks: list[Check] = []
    with contextlib.ExitStack() as stack:
        where = (
            Path(folder)
            if folder
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kiokulab-contract-")))
        )
        declared = systems.describe(name, settings or {})
        meter = faulty = upstream = None
        # the built-in model: what is stored is plumbing, and that is what is tried here
        if declared["model"] == "required":
            from kiokulab import meter as metering

            record = where / "calls.sqlite"
            record.parent.mkdir(parents=True, exist_ok=True)
            opening = metering.Opening(
                run="contract", record=str(record), mode="embedded", upstream="", models=["extractive"], budget=None, spent="0",
                embedder=getattr(embedder, "name", "use") if declared["embeddings"] else "",
            )  # fmt: skip
            meter = stack.enter_context(metering.session(opening))
            upstream = stack.enter_context(faults.serve())
            faulty = stack.enter_context(
                metering.session(
                    replace(
                        opening, run="faults", record=str(where / "faults.sqlite"), mode="live", upstream=upstream.url, models=[faults.MODEL], attempts=2, backoff_s=0.01,
                    )
                )
            )  # fmt: skip
        elif declared["embeddings"]:
            from kiokulab import embed
            from kiokulab.meter import serve_embeddings

            meter = stack.enter_context(serve_embeddings(embedder or embed.get("use"), run="contract"))
        bench = Bench(name, settings, where, meter, items, timeouts)
        bench.upstream, bench.faulty = upstream, faulty
        stack.callback(bench.close_all)
        for title, function in CHECKS:
            started = time.monotonic()
            try:
                outcome, reason = PASS, function(bench) or ""
            except NotApplicable as error:
                outcome, reason = NOT_APPLICABLE, str(error)
            except Unsupported as error:
                outcome, reason = NOT_APPLICABLE, str(error)
            except (Failed, SystemFailure) as error:
                outcome, reason = FAIL, str(error)
            checks.append(Check(title, outcome, reason, time.monotonic() - started))
            if say:
                say(line_of(checks[-1]))
    return checks


def line_of(check: Check) -> str:
    """One check as a line for the terminal."""
    mark = {PASS: "pass", FAIL: "FAIL", NOT_APPLICABLE: "n/a "}[check.outcome]
    return f"{mark}  {check.name:<42} {check.seconds:6.1f} s" + (f"  {check.reason}" if check.reason else "")

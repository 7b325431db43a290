"""Step 2: feed each persona to the system, then read out what it stored and what it finds.

One unit is one persona on one route. What a unit does, in order: an empty store is opened; every item goes in; the
system settles and tidies; its store is listed; every check question is asked; the store is listed again; it is closed;
the store folder is searched for what should be gone, and removed (KIOKULAB_KEEP_STORES=1 keeps it).

**What goes in.** Labels of the dataset never reach an adapter.
- `raw`: the conversation, in the adapter's own unit (session, pair or utterance).
- `requests`: for each session, in ledger order, "remember" for a fact that the session states first, "remember" with
  only the new text for one that it changes, "forget" with the ledger sentence for one that it asks to forget. They
  carry the session's date.
- `signaled`: the same, but a change says from what to what.
The wording of the requests is `REQUESTS`, one a language and kind, so that two systems get the same bytes.

**Routing** (`routing="forget"`): what asks to forget goes to the system's own forget call as a query: on `raw` the
utterance, on the other routes the ledger sentence. It is taken out of its session and sent after the rest of it. A
system without such a call is not asked in another way: the event says `unsupported`, and the forget metrics of the
unit are not applicable.

**Dates.** `native` and `clock` systems get `when`; a `text` system gets a first line with the date in front of the
item's first text, which a system that keeps texts as they are will store; a `none` system gets no date at all but the
call's own argument.

**Yield.** What a call reported (added, changed, removed) stands in its event. What it did is measured as well, from the
store listed before and after: after each call where a unit has at most `EACH_CALL` of them, else after the last call
of each session (`over` calls together). A call that raises nothing and changes nothing is counted in `no_op`. A system
that works on after its call returned shows its work later, at the latest in the event of `settle`. Texts that went away
are kept in `gone`, so that collateral loss can be judged.

**Reading.** Questions are asked in ledger order, dated a day after the last session. The harness cuts the results to
`k` and to the token budget (counted by `text.TOKENIZER`); more than `k` is a warning.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kiokulab import embed, metering, systems, text, units
from kiokulab.errors import InputError, UnitsFailed
from kiokulab.feeding import feed_units, in_pairs
from kiokulab.files import iterate_jsonl, write_jsonl
from kiokulab.kioku import residue
from kiokulab.kioku.records import ContextRow, EventRow, MemoryRow, Persona, SessionRecord
from kiokulab.systems.base import (
    LAYERS,
    Hit,
    Item,
    Memory,
    Pair,
    Request,
    Session,
    SystemFailure,
    Turn,
    Unsupported,
    Utterance,
)

ROUTES = ("raw", "requests", "signaled")
EACH_CALL = 100  # a unit with more calls than this is compared once a session
GONE_CHARACTERS = 100_000  # of texts that went away, kept in one event

REQUESTS = {
    "en": {
        "remember": "Please remember this: {new}",
        "change": "Something you remember has changed. Before: {old} From now on: {new}",
        "forget": "Please forget this: {old}",
    },
    "ja": {
        "remember": "次のことを覚えておいてください。{new}",
        "change": "覚えてもらったことが変わりました。変更前：{old}変更後：{new}",
        "forget": "次のことは忘れてください。{old}",
    },
}
MONTHS = "January February March April May June July August September October November December".split()


# --- what goes in -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call to the system. `forget`: the query for its forget call; then `item` is not sent."""

    id: str
    when: str
    item: Item | None
    forget: str | None = None


def dated_line(language: str, when: str) -> str:
    """The date as the first line of an item, for systems that take dates from the text alone."""
    day = datetime.fromisoformat(when)
    if language == "ja":
        return f"日付：{day.year}年{day.month}月{day.day}日"
    return f"Date: {MONTHS[day.month - 1]} {day.day}, {day.year}"


def with_date(item: Item, line: str) -> Item:
    """`item` with `line` in front of its first text."""
    if isinstance(item, Session):
        first, *rest = item.turns
        return replace(item, turns=(replace(first, text=f"{line}\n{first.text}"), *rest))
    if isinstance(item, Pair):
        side = "user" if item.user.text else "assistant"
        turn = getattr(item, side)
        return replace(item, **{side: replace(turn, text=f"{line}\n{turn.text}")})
    if isinstance(item, Utterance):
        return replace(item, turn=replace(item.turn, text=f"{line}\n{item.turn.text}"))
    return replace(item, text=f"{line}\n{item.text}")


def _raw(session: SessionRecord, feeds: str, routed: bool) -> Iterator[Call]:
    turns = [(n, turn) for n, turn in enumerate(session.turns, 1)]
    asking = [(n, turn) for n, turn in turns if routed and turn.kind == "forget" and turn.role == "user"]
    plain = [(n, Turn(turn.role, turn.text)) for n, turn in turns if (n, turn) not in asking]
    if feeds == "session" and plain:
        yield Call(session.id, session.date, Session(session.id, session.date, tuple(turn for _, turn in plain)))
    elif feeds == "utterance":
        for n, turn in plain:
            yield Call(f"{session.id}.t{n:02d}", session.date, Utterance(f"{session.id}.t{n:02d}", session.date, turn))
    elif feeds == "pair":
        for n, (user, assistant) in enumerate(in_pairs(turn for _, turn in plain), 1):
            yield Call(
                f"{session.id}.p{n:02d}", session.date, Pair(f"{session.id}.p{n:02d}", session.date, user, assistant)
            )
    for n, turn in asking:
        yield Call(f"{session.id}.t{n:02d}", session.date, None, turn.text)


def _requests(persona: Persona, signaled: bool, routed: bool) -> Iterator[Call]:
    wording, number = REQUESTS[persona.language], 0
    for session in persona.sessions:
        for fact in persona.facts:
            for version in (version for version in fact.versions if version.valid_from == session.id):
                number += 1
                kind, old = "remember", ""
                if signaled and version.n > 1:
                    kind, old = "change", fact.versions[version.n - 2].text
                request = Request(
                    f"r{number:03d}",
                    session.date,
                    wording[kind].format(old=old, new=version.text),
                    "remember" if routed else None,
                )
                yield Call(request.id, session.date, request)
            if fact.forget == session.id:
                number += 1
                id, content = f"r{number:03d}", fact.versions[-1].text
                if routed:
                    yield Call(id, session.date, None, content)
                else:
                    yield Call(id, session.date, Request(id, session.date, wording["forget"].format(old=content)))


def calls(
    persona: Persona, route: str, feeds: str = "session", routing: str = "none", dates: str = "native"
) -> list[Call]:
    """What the system is fed, in order. Raises InputError for a route or unit that does not exist."""
    if route not in ROUTES:
        raise InputError(f"there is no route {route!r}", "route", f"Routes: {', '.join(ROUTES)}, all")
    if feeds not in ("session", "pair", "utterance"):
        raise InputError(f"a system cannot be fed {feeds!r}", "feeds", "It is session, pair or utterance")
    routed = routing == "forget"
    if route == "raw":
        made = [call for session in persona.sessions for call in _raw(session, feeds, routed)]
    else:
        made = list(_requests(persona, route == "signaled", routed))
    if dates == "text":
        made = [
            replace(call, item=with_date(call.item, dated_line(persona.language, call.when))) if call.item else call
            for call in made
        ]
    return made


def current(persona: Persona) -> list[dict]:
    """The ledger at the end: ``{"text", "date"}`` of each fact that is true at the end, in its last version."""
    dates = {session.id: session.date for session in persona.sessions}
    return [
        {"text": fact.versions[-1].text, "date": dates[fact.versions[-1].valid_from]}
        for fact in persona.facts
        if fact.lasts
    ]


# --- what comes out ---------------------------------------------------------------------------------------------


def compare(before: list[Memory], after: list[Memory]) -> dict[str, list[Memory]]:
    """``{"added": new, "changed": new state, "removed": old state, "before": old state of the changed}``, by id; where
    an id stands twice, its occurrences are told apart by their order."""

    def keyed(memories: list[Memory]) -> dict[tuple, Memory]:
        seen: dict[str, int] = {}
        made = {}
        for memory in memories:
            seen[memory.id] = seen.get(memory.id, 0) + 1
            made[memory.id, seen[memory.id]] = memory
        return made

    old, new = keyed(before), keyed(after)
    differ = [key for key in new if key in old and (new[key].text, new[key].layer) != (old[key].text, old[key].layer)]
    return {
        "added": [new[key] for key in new if key not in old],
        "changed": [new[key] for key in differ],
        "removed": [old[key] for key in old if key not in new],
        "before": [old[key] for key in differ],
    }


def fit(
    hits: list[Hit], k: int, budget: int, count: Callable[[str], int], cut: Callable[[str, int], str]
) -> tuple[list[dict], int]:
    """The results that fit: at most `k`, in the system's order, until `budget` tokens are used; the last one may be
    cut. A line end between two results counts one token. Returns (items, tokens)."""
    items: list[dict] = []
    used = 0
    for hit in hits[:k]:
        room = budget - used - (1 if items else 0)
        if room <= 0:
            break
        shown, tokens = hit.text, count(hit.text)
        whole = tokens <= room
        if not whole:
            shown = cut(hit.text, room)
            tokens = count(shown)
            if not shown:
                break
        used += tokens + (1 if items else 0)
        score = hit.score if isinstance(hit.score, (int, float)) and abs(hit.score) < float("inf") else None
        items.append(
            {
                "id": hit.id,
                "text": shown,
                "created": hit.created,
                "score": None if score is None else round(float(score), 6),
            }
        )
        if not whole:
            break
    return items, used


# --- one unit ---------------------------------------------------------------------------------------------------


def _checked(memories: Any) -> list[Memory]:
    """A dump that holds what the contract says; SystemFailure where it does not."""
    if not isinstance(memories, list):
        raise SystemFailure(f"dump gave {type(memories).__name__}, not a list of Memory")
    for n, memory in enumerate(memories):
        if not isinstance(memory, Memory) or not isinstance(memory.text, str) or memory.layer not in LAYERS:
            raise SystemFailure(
                f"dump gave an entry that is no Memory with a text and a layer of {LAYERS}, at {n}: {str(memory)[:200]}"
            )
        for name in ("created", "valid_from", "valid_to", "kind", "source"):
            if not isinstance(getattr(memory, name), str | None):
                raise SystemFailure(f"dump gave a memory whose {name} is no text: {getattr(memory, name)!r:.200}")
    return [
        memory if isinstance(memory.id, str) and memory.id else replace(memory, id=f"#{n:05d}")
        for n, memory in enumerate(memories)
    ]


@dataclass
class _Recorder:
    """Collects the rows of one unit; every operation goes through `do`, which times it and names it when it fails."""

    place: dict[str, str]
    events: list[dict] = field(default_factory=list)

    def do(self, op: str, item: str | None, action: Callable[[], Any]) -> tuple[Any, dict]:
        """(result, event); result is None and the event `unsupported` where the system has no such operation."""
        event = {
            **self.place,
            "seq": len(self.events) + 1,
            "op": op,
            "item": item,
            "status": "ok",
            "detail": {},
            "warnings": [],
        }
        start = time.perf_counter()
        result = None
        try:
            result = action()
        except Unsupported as reason:
            event.update(status="unsupported", detail={"reason": reason.reason})
        except SystemFailure as error:
            raise SystemFailure(f"{op}{f' of {item}' if item else ''}: {error}", error.kind) from error
        except Exception as error:
            raise SystemFailure(f"{op}{f' of {item}' if item else ''}: {type(error).__name__}: {error}") from error
        event["seconds"] = round(time.perf_counter() - start, 6)
        self.events.append(event)
        return result, event


class _Store:
    """The system's store as it was listed last."""

    def __init__(self, system: Any):
        self.system, self.last, self.reason = system, [], None

    def look(self) -> dict[str, list[Memory]] | None:
        """What changed since the last look; None where the store cannot be listed."""
        if self.reason is None:
            try:
                now = _checked(self.system.dump())
            except Unsupported as reason:
                self.reason = reason.reason
            else:
                found, self.last = compare(self.last, now), now
                return found
        return None

    def observe(self, event: dict, over: int) -> None:
        """Write into `event` what `over` calls did to the store."""
        found = self.look()
        if found is None:
            return
        numbers = {name: len(found[name]) for name in ("added", "changed", "removed")}
        event["detail"].update(observed=numbers, memories=len(self.last), over=over)
        if over:
            event["detail"]["no_op"] = 0 if any(numbers.values()) else over
        gone, left = [], GONE_CHARACTERS
        for memory in [*found["removed"], *found["before"]]:
            if len(memory.text) <= left:
                gone.append({"id": memory.id, "layer": memory.layer, "text": memory.text})
                left -= len(memory.text)
        if found["removed"] or found["before"]:
            event["detail"]["gone"] = gone
            if len(gone) < len(found["removed"]) + len(found["before"]):
                event["warnings"].append(f"only {len(gone)} of the texts that went away are kept here")


def _feed(system: Any, record: _Recorder, store: _Store, planned: list[Call]) -> None:
    capable = "forget" in system.capabilities
    each = len(planned) <= EACH_CALL
    waiting = 0
    for n, call in enumerate(planned):
        if call.forget is not None:

            def action(call: Call = call) -> Any:
                if not capable:
                    raise Unsupported("forget", "the system has no forget call")
                system.set_clock(call.when)
                return system.forget({"query": call.forget})

            dropped, event = record.do("forget", call.id, action)
            event["removed"] = dropped if isinstance(dropped, int) else None
            sent = event["status"] == "ok"
        else:

            def action(call: Call = call) -> Any:
                system.set_clock(call.when)
                return system.ingest(call.item, call.when)

            told, event = record.do("ingest", call.id, action)
            if event["status"] != "ok":
                raise SystemFailure(f"ingest of {call.id}: the adapter does not take it: {event['detail']['reason']}")
            sent = True
            if told is not None:
                event.update(added=told.added, changed=told.changed, removed=told.removed)
                event["warnings"] += [str(warning) for warning in told.warnings]
        waiting += sent
        ends = n + 1 == len(planned) or planned[n + 1].when != call.when
        if waiting and (each or ends):
            store.observe(event, waiting)
            waiting = 0


def _ask(system: Any, record: _Recorder, persona: Persona, unit: dict) -> list[dict]:
    when = (datetime.fromisoformat(persona.sessions[-1].date) + timedelta(days=1)).isoformat()
    counted: dict[str, int] = {}

    def count(one: str) -> int:
        if one not in counted:
            counted[one] = text.count_tokens(one)
        return counted[one]

    rows = []
    for fact in persona.facts:

        def action(question: str = fact.question.text) -> Any:
            if "search" not in system.capabilities:
                raise Unsupported("search", "the system has no search call")
            return system.search(question, unit["k"], when)

        results, event = record.do("search", fact.id, action)
        row = {
            **record.place,
            "fact": fact.id,
            "question": fact.question.text,
            "status": event["status"],
            "asked": unit["k"],
        }
        if results is None:
            row.update(reason=event["detail"]["reason"], delivered=0, used=0, tokens=0, items=[])
        else:
            hits = list(results.hits) or ([Hit(results.shown)] if results.shown else [])
            if any(not isinstance(hit.text, str) for hit in hits):
                raise SystemFailure(f"search of {fact.id}: a result has no text")
            if len(hits) > unit["k"]:
                event["warnings"].append(f"{len(hits)} results for k={unit['k']}; the rest was cut off")
            items, tokens = fit(hits, unit["k"], unit["budget_tokens"], count, text.cut_tokens)
            row.update(
                delivered=len(hits), used=len(items), tokens=tokens, items=items, declined=bool(results.declined)
            )
        rows.append(ContextRow(**row).model_dump(mode="json"))
    return rows


def ingest_unit(unit: dict) -> dict[str, list[dict]]:
    """Everything of one unit; ``{"memories": MemoryRow dicts, "contexts": ContextRow, "events": EventRow}``.

    `unit`: unit, persona (a Persona as a dict), route, routing, system, settings, embedder, k, budget_tokens,
    settle_s (seconds a system may take to settle), store (folder of the unit). Raises SystemFailure with the operation
    and item at which the system failed; then there are no rows.
    """
    persona = Persona.model_validate(unit["persona"])
    place = {"unit": unit["unit"], "persona": persona.id, "route": unit["route"]}
    record, folder = _Recorder(place), Path(unit["store"])
    shutil.rmtree(folder, ignore_errors=True)  # what a life that was cut off has left
    try:
        with ExitStack() as stack:
            declared = systems.describe(unit["system"], unit["settings"])
            planned = calls(persona, unit["route"], declared["feeds"], unit["routing"], declared["dates"])
            endpoint = unit.get("endpoint")  # of a run that asks a language model
            if endpoint is not None:
                metering.begin(endpoint)
            elif declared["embeddings"]:
                from kiokulab import meter

                serving = stack.enter_context(meter.serve_embeddings(embed.get(unit["embedder"])))
                endpoint = serving.endpoint(unit["unit"])
            opening = systems.connect(
                unit["system"],
                unit["settings"],
                space=unit["unit"].replace("/", "-"),
                workdir=folder,
                endpoint=endpoint,
                when=planned[0].when if planned else None,
            )
            system, event = record.do("open", None, lambda: stack.enter_context(opening))
            if system is None:
                raise SystemFailure(f"open: {event['detail']['reason']}")
            event["detail"].update(tokenizer=text.TOKENIZER, feeds=declared["feeds"], dates=declared["dates"])
            store = _Store(system)
            if store.look() and store.last:
                raise SystemFailure(f"the store of a new unit is not empty: {len(store.last)} memories")
            _feed(system, record, store, planned)
            inner = getattr(system, "system", None)  # the adapter itself, where it runs in this process
            if getattr(inner, "sees_ledger", False):
                inner.ledger(current(persona))
            _, event = record.do("settle", None, lambda: system.settle(unit["settle_s"]))
            store.observe(event, 0)
            if "clean_up" in system.capabilities:
                _, event = record.do("clean_up", None, system.clean_up)
                store.observe(event, 0)
            memories, event = record.do("dump", None, lambda: _checked(system.dump()))
            event["detail"]["memories"] = None if memories is None else len(memories)
            contexts = _ask(system, record, persona, unit)
            again, event = record.do("reread", None, lambda: _checked(system.dump()))
            if memories is not None and again is not None:
                found = compare(memories, again)
                event.update({name: len(found[name]) for name in ("added", "changed", "removed")})
                event["detail"].update(
                    {name: [memory.id for memory in found[name]] for name in ("added", "changed", "removed")}
                )
            texts = residue.contents(persona)
            rest, event = record.do("residue", None, lambda: residue.scan(folder / "store", texts))
            if getattr(system, "network", None):
                event["warnings"] += [f"refused to reach {address}" for address in system.network]
        # once more when all is closed: logs are flushed then, and a WAL file may be gone
        closed = residue.scan(folder / "store", texts)
        event["detail"] = residue.merge(rest, closed)
        event["warnings"] += event["detail"].pop("warnings")
    finally:
        if not os.environ.get("KIOKULAB_KEEP_STORES"):
            shutil.rmtree(folder, ignore_errors=True)
    return {
        "memories": _memory_rows(memories or [], place, record.events),
        "contexts": contexts,
        "events": [EventRow(**row).model_dump(mode="json") for row in record.events],
    }


def _memory_rows(memories: list[Memory], place: dict[str, str], events: list[dict]) -> list[dict]:
    """Rows in the order of the dump; a repeated id gets a running number behind it, and that is a warning."""
    rows, seen = [], {}
    for memory in memories:
        seen[memory.id] = seen.get(memory.id, 0) + 1
        id = memory.id if seen[memory.id] == 1 else f"{memory.id}~{seen[memory.id]}"
        fields = {
            name: getattr(memory, name)
            for name in ("text", "layer", "created", "valid_from", "valid_to", "kind", "source")
        }
        rows.append(MemoryRow(**place, id=id, **fields).model_dump(mode="json"))
    repeated = sum(n - 1 for n in seen.values())
    if repeated:
        next(event for event in events if event["op"] == "dump")["warnings"].append(f"{repeated} memories repeat an id")
    return rows


# --- the step ---------------------------------------------------------------------------------------------------


def read_personas(path: Path) -> list[Persona]:
    """The personas of a dataset.jsonl. Raises InputError with file:line for a line that is none, or a repeated id."""
    personas: dict[str, Persona] = {}
    for number, row in iterate_jsonl(path):
        try:
            persona = Persona.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(
                f"not a persona: {'.'.join(map(str, first['loc']))}: {first['msg']}", f"{path}:{number}"
            ) from None
        if persona.id in personas:
            raise InputError(f"the persona {persona.id!r} is there twice", f"{path}:{number}")
        personas[persona.id] = persona
    if not personas:
        raise InputError("the dataset is empty", str(path))
    return list(personas.values())


def plan(folder: Path, params: Any) -> list[dict]:
    """The units of a run, in order. Raises InputError for a system, setting or embedder that cannot be used."""
    personas = read_personas(folder / "dataset.jsonl")
    name = systems.resolve(params.system).name
    settings = dict(params.settings)
    declared = systems.describe(name, settings)
    if "embedder" in declared["settings"]:  # the baselines search with the run's embedder
        settings.setdefault("embedder", params.embedder)
    embed.check(settings.get("embedder", params.embedder))
    shared = {
        "system": name,
        "settings": settings,
        "routing": params.routing,
        "embedder": params.embedder,
        "k": params.k,
        "budget_tokens": params.budget_tokens,
        "settle_s": params.unit_timeout_s / 2,
    }
    routes = ROUTES if params.route == "all" else (params.route,)
    made = []
    for persona in personas:
        for route in routes:
            unit = f"{persona.id}/{route}"
            # what cannot be fed is found before anything starts
            calls(persona, route, declared["feeds"], params.routing)
            store = folder.absolute() / "stores" / units.file_name(unit)
            made.append(
                {
                    "unit": unit,
                    "persona": persona.model_dump(mode="json"),
                    "route": route,
                    "store": str(store),
                    **shared,
                }
            )
    return made


def run(folder: str | os.PathLike, params: Any) -> list[dict]:
    """Step 2 of the run in `folder`: writes memories.jsonl, contexts.jsonl and events.jsonl, and returns a row a route.

    Finished units are kept and not done again. A unit that fails is named in the summary and in units/2-ingest/; its
    rows are in no file. Raises UnitsFailed where no unit at all was finished.
    """
    folder = Path(folder)
    planned = plan(folder, params)
    name = planned[0]["system"]
    environment = systems.describe(name, planned[0]["settings"])["environment"]
    if environment:
        from kiokulab.systems import environments

        environments.ensure(environment)  # once, and not by each unit
    place = folder / "units" / "2-ingest"
    embedder = planned[0]["settings"].get("embedder")  # of a system that embeds in the unit's own process
    outcome = feed_units(folder, params, "2-ingest", "kiokulab.kioku.ingest:ingest_unit", planned, embedder)
    if not outcome.finished:
        raise UnitsFailed(outcome.failed)
    rows = {key: list(units.assemble(place, key)) for key in ("memories", "contexts", "events")}
    for key, value in rows.items():
        write_jsonl(folder / f"{key}.jsonl", value)
    try:
        (folder / "stores").rmdir()
    except OSError:  # not there, or kept on purpose
        pass
    return [
        _summary(route, planned, outcome, rows) for route in ROUTES if any(unit["route"] == route for unit in planned)
    ]


def _summary(route: str, planned: list[dict], outcome: units.Outcome, rows: dict[str, list[dict]]) -> dict:
    mine = {unit["unit"] for unit in planned if unit["route"] == route}
    events = [row for row in rows["events"] if row["route"] == route]
    return {
        "route": route,
        "units": len(mine),
        "failed": ", ".join(sorted(mine & set(outcome.failed))) or "none",
        "calls": sum(row["op"] in ("ingest", "forget") for row in events),
        "memories": sum(row["route"] == route for row in rows["memories"]),
        "contexts": sum(row["route"] == route for row in rows["contexts"]),
        "calls that changed nothing": sum(row["detail"].get("no_op", 0) for row in events),
        "warnings": sum(len(row["warnings"]) for row in events),
    }


if os.environ.get(embed.PRELOAD):  # in the server that the units are forked from: what each of them would load again
    text.count_tokens("")

"""Step 2: a script is replayed through a memory, one operation after the other; what it replied and how long it took
is noted.

**Arms** of this track have the twelve operations themselves. **A system of the kit** is reached through `Bridge`, which
maps the operations on the adapter contract (systems/base.py) by the public benchmark's defaults for a store that lacks
them:

- inscribe: one item of the system's own unit, the text "title\\nbody", dated with the note's time. The system never
  sees a note's key. A hit is given its key by its text: the whole text, or a first line that is the title of exactly
  one note. What a system has reworded has no key, and cannot be credited; that is the rule of the benchmark for what
  a system makes.
- supersede: its own call, else delete and add. release and purge: its own calls, else its `forget` of the memories
  whose text is the note's. A system without any way to delete keeps the note, and the deletion family says so.
- link, endorse: its own calls, else nothing. suspects, lineage: its own calls, else no such concept (not applicable).
- recall with a window: only where the system has `search_window(query, k, after, before)` and names the capability
  `temporal`; the harness does not filter for it, and the temporal family is else not applicable.
- recall_path: its own call, else the path is searched for like a question. standing_tokens: its own call, else 0.
- settle: `settle`, before anything is asked and wherever the script says so.

An adapter that raises stops its unit: an error is never an empty reply.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kiokulab import units
from kiokulab.drift.arms import Memory, has, make
from kiokulab.drift.params import ARM_NAMES, TRANSCRIPT
from kiokulab.drift.script import (
    CAPABILITIES,
    Hit,
    Inscribed,
    Recalled,
    Script,
    Suspect,
    Transcript,
    load_transcript,
    parse_transcript,
    transcript_value,
)
from kiokulab.errors import InputError, UnitsFailed
from kiokulab.files import iterate_jsonl, read_jsonl, write_atomic, write_jsonl
from kiokulab.systems.base import Pair, Session, Turn, Utterance

ENDORSERS = ("retrieval", "assistant", "user", "supervisor")


# --- replay -------------------------------------------------------------------------------------------------------


def replay(script: Script, memory: Memory, observe: Callable[[int, dict, float], None] | None = None) -> Transcript:
    """Every operation of the script, in order, on an empty memory. The memory never sees a probe.

    An operation that fails stops the replay: an error is never an empty reply. `observe(number, op, seconds)` is told
    of every operation."""
    transcript = Transcript(memory.name, script.digest, dict(memory.capabilities))
    for number, op in enumerate(script.ops):
        kind = op["op"]
        began = time.perf_counter()
        if kind == "inscribe":
            written = memory.inscribe(op["record"], op["mode"])
            if "id" in op:
                transcript.inscribes[op["id"]] = written
        elif kind == "link":
            memory.link(op["from"], op["to"], op["verb"])
        elif kind == "supersede":
            memory.supersede(op["old"], op["new"])
        elif kind == "release":
            memory.release(op["key"], op["reason"])
        elif kind == "purge":
            memory.purge(op["key"])
        elif kind == "endorse":
            memory.endorse(op["key"], op["by"])
        elif kind == "settle":
            transcript.settle_note = memory.settle() or transcript.settle_note
        elif kind == "recall":
            transcript.recalls[op["id"]] = memory.recall(op["query"], op["k"], op.get("window"))
        elif kind == "recall_path":
            transcript.recalls[op["id"]] = memory.recall_path(op["path"], op["k"])
        elif kind == "suspects":
            found = memory.suspects()
            transcript.suspects[op["id"]] = None if found is None else list(found)
        elif kind == "lineage":
            transcript.lineages[op["id"]] = memory.lineage(op["key"])
        seconds = time.perf_counter() - began
        timed = transcript.timing.setdefault(kind, {"count": 0, "total_ms": 0.0})
        timed["count"] += 1
        timed["total_ms"] += 1000.0 * seconds
        if observe is not None:
            observe(number, op, seconds)
    transcript.standing_tokens = memory.standing_tokens()
    return transcript


# --- a system of the kit as a memory ------------------------------------------------------------------------------


def note_text(record: dict) -> str:
    """What a system is given of a note."""
    return f"{record['title']}\n{record['body']}"


def _iso(seconds: int | None) -> str:
    return datetime.fromtimestamp(0 if seconds is None else seconds, timezone.utc).isoformat()


def _seconds(moment: str | None) -> int | None:
    try:
        return None if moment is None else int(datetime.fromisoformat(moment).timestamp())
    except ValueError:
        return None


class Bridge:
    """A connected system (base.System or a worker's proxy) behind the twelve operations. `asked_at` is the date of all
    questions; `settle_s` the time a system may take to settle."""

    def __init__(self, system: Any, name: str, asked_at: int, settle_s: float = 600.0):
        self.system, self.name, self.asked_at, self.settle_s = system, name, _iso(asked_at), settle_s
        self.offers = frozenset(system.capabilities)
        self.capabilities = has(
            link="link" in self.offers,
            history="lineage" in self.offers,
            trace="trace" in self.offers,
            suspects="suspects" in self.offers,
            temporal="temporal" in self.offers and hasattr(system, "search_window"),
            verdict="verdict" in self.offers,
            write_check="write_check" in self.offers,
            **{f"endorse_{by}": f"endorse_{by}" in self.offers for by in ENDORSERS},
        )
        self.notes: dict[str, dict] = {}  # key -> record of what is live
        self.by_text: dict[str, str] = {}
        self.titles: Counter[str] = Counter()
        self.by_title: dict[str, str] = {}
        self.unkeyed = self.reworded = self.undeletable = 0

    # writing
    def inscribe(self, record: dict, mode: str) -> Inscribed:
        text, when = note_text(record), _iso(record["created_at"])
        if self.system.dates == "text":
            text = f"Date: {when[:10]}\n{text}"
        turn, number = Turn("user", text), f"n{len(self.by_text):06d}"
        item = {
            "session": lambda: Session(number, when, (turn,)),
            "pair": lambda: Pair(number, when, turn, Turn("assistant", "")),
            "utterance": lambda: Utterance(number, when, turn),
        }[self.system.feeds]()
        if self.system.dates == "clock":
            self.system.set_clock(when)
        reported = self.system.ingest(item, when)
        self.remember(record)
        # a system reports warnings in its own words; one that names no note cannot be credited with a pair
        warned = (
            [(warning, None) for warning in (reported.warnings if reported else [])]
            if self.capabilities["write_check"]
            else []
        )
        return Inscribed(warnings=warned)

    def remember(self, record: dict) -> None:
        self.notes[record["key"]] = record
        self.by_text[note_text(record)] = record["key"]
        self.by_title[record["title"]] = record["key"]
        self.titles[record["title"]] += 1

    def forget_note(self, key: str) -> dict:
        record = self.notes.pop(key)
        if self.by_text.get(note_text(record)) == key:
            del self.by_text[note_text(record)]
        self.titles[record["title"]] -= 1
        return record

    def link(self, from_key: str, to_key: str, verb: str) -> bool:
        if "link" not in self.offers:
            return False
        self.system.link(from_key, to_key, verb)
        return True

    def supersede(self, old: str, new: dict) -> None:
        if "supersede" in self.offers:
            self.system.supersede(old, new)
            self.forget_note(old)
            self.remember(new)
            return
        self.delete(old)
        self.inscribe(new, "import")

    def release(self, key: str, reason: str) -> None:
        if "release" in self.offers:
            self.system.release(key, reason)
            self.forget_note(key)
        else:
            self.delete(key)

    def purge(self, key: str) -> None:
        if "purge" in self.offers:
            self.system.purge(key)
            self.forget_note(key)
        else:
            self.delete(key)

    def delete(self, key: str) -> None:
        """The system's own forget, of every stored text that is this note's."""
        record = self.notes[key]
        if "forget" not in self.offers:
            self.undeletable += 1
            return  # it still stands in the store, and keeps its key
        ids = [
            memory.id
            for memory in self.system.dump()
            if memory.layer in ("live", "derived") and self.key_of(memory.text) == key
        ]
        if ids:
            self.system.forget({"ids": ids})
        else:
            self.undeletable += 1
        if ids:
            self.forget_note(record["key"])

    def endorse(self, key: str, by: str) -> bool:
        if f"endorse_{by}" not in self.offers:
            return False
        self.system.endorse(key, by)
        return True

    def settle(self) -> str | None:
        self.system.settle(self.settle_s)
        return None

    # reading
    def key_of(self, text: str) -> str | None:
        """The note that a stored or shown text is: by its whole text, with or without a dated first line, else by a
        line that is the title of exactly one live note."""
        for found in (text, text.partition("\n")[2]):
            if found in self.by_text:
                return self.by_text[found]
        for line in text.split("\n")[:2]:
            if self.titles.get(line) == 1 and self.by_title.get(line) in self.notes:
                return self.by_title[line]
        return None

    def shown(self, results: Any) -> Recalled:
        hits = []
        for hit in results.hits:
            key = hit.meta.get("key") if isinstance(hit.meta.get("key"), str) else self.key_of(hit.text)
            self.unkeyed += key is None
            created = _seconds(hit.created)
            score = (
                hit.score
                if isinstance(hit.score, int | float) and hit.score == hit.score and abs(hit.score) != float("inf")
                else None
            )
            hits.append(
                Hit(hit.text, key, score, created, bool(hit.meta.get("tombstone")), list(hit.meta.get("neighbors", [])))
            )
        return Recalled(hits, bool(results.declined))

    def recall(self, query: str, k: int, window: dict | None) -> Recalled:
        if window and self.capabilities["temporal"]:
            results = self.system.search_window(
                query,
                k,
                _iso(window["after"]) if "after" in window else None,
                _iso(window["before"]) if "before" in window else None,
            )
        else:
            results = self.system.search(query, k, self.asked_at)
        results.hits = results.hits[:k]  # the harness owns result limits
        return self.shown(results)

    def recall_path(self, path: str, k: int) -> Recalled:
        if "recall_path" not in self.offers:
            return self.recall(path, k, None)
        results = self.system.recall_path(path, k)
        results.hits = results.hits[:k]
        return self.shown(results)

    def suspects(self) -> list[Suspect] | None:
        if not self.capabilities["suspects"]:
            return None
        pairs = []
        for found in self.system.suspects():
            a, b = (found[name] if found[name] in self.notes else self.key_of(str(found[name])) for name in ("a", "b"))
            if a is not None and b is not None:
                pairs.append(Suspect(a, b, found.get("hint")))
        return pairs

    def lineage(self, key: str) -> list[str] | None:
        return list(self.system.lineage(key)) if self.capabilities["history"] else None

    def standing_tokens(self) -> int:
        return int(self.system.standing_tokens()) if "standing_tokens" in self.offers else 0


# --- rows ---------------------------------------------------------------------------------------------------------
# contexts.jsonl holds the transcripts: a "head" row a world, one "note" row for each text that dumps show (a dump of a
# whole store is the same few texts a thousand times), and one "reply" row a reply in the public format, in which a
# dump's hits are numbers of note rows.


def transcript_rows(unit: str, transcript: Transcript) -> list[dict]:
    """The rows of a transcript, without its wall times."""
    value = transcript_value(transcript)
    numbers: dict[tuple, int] = {}
    notes, replies = [], []
    packed: dict[int, list[int]] = {}
    for reply in value["replies"]:
        result = reply.get("result", {})
        if result.get("dump"):
            recalled = transcript.recalls[reply["id"]]
            if id(recalled) not in packed:
                packed[id(recalled)] = []
                for hit in result["hits"]:
                    place = (
                        hit["text"],
                        hit.get("key"),
                        hit.get("score"),
                        hit.get("created_at"),
                        hit.get("tombstone"),
                        tuple(hit.get("neighbors", ())),
                    )
                    if place not in numbers:
                        numbers[place] = len(numbers)
                        notes.append({"unit": unit, "kind": "note", "n": numbers[place], "hit": hit})
                    packed[id(recalled)].append(numbers[place])
            reply = {**reply, "result": {**result, "hits": packed[id(recalled)]}}
        replies.append({"unit": unit, "kind": "reply", **reply})
    head = {
        name: value[name]
        for name in ("arm", "capabilities", "standing_tokens", "script_digest", "settle_note")
        if name in value
    }
    return [{"unit": unit, "kind": "head", **head, "problems": transcript.problems}, *notes, *replies]


def read_transcripts(folder: Path | str) -> dict[str, Transcript]:
    """The transcripts of a run by world, checked like foreign ones; with timing from events.jsonl where it is there."""
    values: dict[str, dict] = {}
    notes: dict[str, list[dict]] = {}
    problems: dict[str, dict[str, int]] = {}
    for _, row in iterate_jsonl(Path(folder) / "contexts.jsonl"):
        unit, kind = row.pop("unit"), row.pop("kind")
        if kind == "head":
            problems[unit] = row.pop("problems")
            values[unit], notes[unit] = {**row, "replies": []}, []
        elif kind == "note":
            notes[unit].append(row["hit"])
        else:
            values[unit]["replies"].append(row)
    result = {}
    for unit, value in values.items():
        shared: dict[tuple, Recalled] = {}
        dumps = {
            reply["id"]: tuple(reply["result"]["hits"])
            for reply in value["replies"]
            if reply.get("result", {}).get("dump")
        }
        value["replies"] = [
            reply for reply in value["replies"] if reply["id"] not in dumps or reply["reply"] != "recall"
        ]
        transcript = parse_transcript(value, f"contexts.jsonl: {unit}")
        table = (
            parse_transcript({**value, "replies": [{"reply": "recall", "id": "R0", "result": {"hits": notes[unit]}}]})
            .recalls["R0"]
            .hits
        )
        for name, places in dumps.items():
            if places not in shared:
                shared[places] = Recalled([table[n] for n in places], dump=True)
            transcript.recalls[name] = shared[places]
        transcript.problems = problems[unit]
        result[unit] = transcript
    return result


def read_timing(folder: Path | str) -> dict[str, dict[str, dict[str, float]]]:
    """world -> kind of operation -> {count, total_ms}, from events.jsonl."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for row in read_jsonl(Path(folder) / "events.jsonl"):
        if row["status"] == "ok" and row["op"] != "open":
            timed = result.setdefault(row["unit"], {}).setdefault(row["op"], {"count": 0, "total_ms": 0.0})
            timed["count"] += row.get("calls", 1)
            timed["total_ms"] += 1000.0 * row["seconds"]
    return result


def export(folder: Path | str, world: str, path: Path | str) -> None:
    """Write one world's transcript as a file in the public format, timing included."""
    import json

    transcript = read_transcripts(folder)[world]
    transcript.timing = read_timing(folder).get(world, {})
    write_atomic(path, json.dumps(transcript_value(transcript), ensure_ascii=False, indent=2))


# --- step 2 -------------------------------------------------------------------------------------------------------


def run_unit(unit: dict) -> dict:
    """One world on one system: {"contexts": rows, "events": rows}. Runs in a process of its own."""
    from kiokulab.drift.generate import script_of

    row = next(row for _, row in iterate_jsonl(Path(unit["folder"]) / "dataset.jsonl") if row["name"] == unit["unit"])
    script, name = script_of(row), unit["system"]
    events: list[dict] = []

    def observe(number: int, op: dict, seconds: float) -> None:
        events.append(
            {
                "unit": unit["unit"],
                "seq": number,
                "op": op["op"],
                "item": op.get("id") or op.get("key"),
                "seconds": round(seconds, 6),
                "status": "ok",
            }
        )

    with ExitStack() as stack:
        if name == TRANSCRIPT:
            transcript = load_transcript(Path(unit["transcript"]).expanduser())
            if transcript.script_digest != script.digest:
                raise InputError(
                    f"the transcript answers the script {ascii(transcript.script_digest)[:40]}, not {script.digest}",
                    unit["transcript"],
                )
            for kind, timed in sorted(transcript.timing.items()):  # foreign wall times: the file has sums alone
                events.append(
                    {
                        "unit": unit["unit"],
                        "seq": len(events),
                        "op": kind,
                        "item": None,
                        "status": "ok",
                        "seconds": round(timed["total_ms"] / 1000, 6),
                        "calls": timed["count"],
                    }
                )
        elif name in ARM_NAMES:
            from kiokulab import embed

            transcript = replay(script, make(name, script, lambda: embed.get(unit["embedder"])), observe)
        else:
            transcript = replay(script, _connected(unit, script, stack), observe)
    return {"contexts": transcript_rows(unit["unit"], transcript), "events": events}


def _connected(unit: dict, script: Script, stack: ExitStack) -> Bridge:
    from kiokulab import embed, meter, metering, systems

    workdir = Path(unit["folder"]) / "stores" / units.file_name(unit["unit"])
    shutil.rmtree(workdir, ignore_errors=True)
    if not os.environ.get("KIOKULAB_KEEP_STORES"):
        stack.callback(shutil.rmtree, workdir, ignore_errors=True)
    described, endpoint = systems.describe(unit["system"], unit["settings"]), unit.get("endpoint")
    if endpoint is not None:  # of a system that asks a language model
        metering.begin(endpoint)
    elif described["embeddings"]:
        endpoint = stack.enter_context(meter.serve_embeddings(embed.get(unit["embedder"]))).endpoint(unit["unit"])
    settings = dict(unit["settings"])
    if "embedder" in described["settings"]:
        settings.setdefault("embedder", unit["embedder"])
    held = stack.enter_context(
        systems.connect(
            unit["system"],
            settings,
            space=unit["unit"],
            workdir=workdir,
            endpoint=endpoint,
            when=_iso(script.spec["base_ts"]),
        )
    )
    return Bridge(held, unit["system"], script.spec["base_ts"])


def run(folder: Path | str, params: Any) -> list[dict[str, Any]]:
    """Step 2: every world of the run through the system; contexts.jsonl and events.jsonl. A row for each world.

    Raises UnitsFailed after writing what there is, where a world failed."""
    from kiokulab.feeding import feed_units

    folder = Path(folder)
    if params.system != TRANSCRIPT and params.system not in ARM_NAMES:
        from kiokulab import systems

        where = systems.adapter(params.system)
        if where.environment:  # made here once, before the units need it
            from kiokulab.systems import environments

            environments.ensure(where.environment)
    if params.system == TRANSCRIPT and not params.transcript:
        raise InputError(
            "no transcript is given", "parameter transcript", "Give the transcript file, and the script it answers"
        )
    if params.settings and params.system in (*ARM_NAMES, TRANSCRIPT):
        raise InputError(f"{params.system!r} has no settings", "parameter settings", "Leave them out")
    worlds = [row["name"] for _, row in iterate_jsonl(folder / "dataset.jsonl")]
    planned = [
        {
            "unit": name,
            "folder": str(folder),
            "system": params.system,
            "settings": params.settings,
            "embedder": params.embedder,
            "transcript": params.transcript,
        }
        for name in worlds
    ]
    outcome = feed_units(
        folder, params, "2-ingest", "kiokulab.drift.ingest:run_unit", planned, params.settings.get("embedder")
    )
    for key in ("contexts", "events"):
        write_jsonl(folder / f"{key}.jsonl", units.assemble(folder / "units" / "2-ingest", key))
    heads = {row["unit"]: row for _, row in iterate_jsonl(folder / "contexts.jsonl") if row["kind"] == "head"}
    rows = []
    for name in worlds:
        head = heads.get(name)
        can = [capability for capability in CAPABILITIES if head and head["capabilities"][capability]]
        rows.append(
            {
                "world": name,
                "status": "ok" if head else "failed",
                "says it can": ", ".join(can) or ("nothing optional" if head else ""),
                "standing tokens": head["standing_tokens"] if head else None,
                "problems": sum(head["problems"].values()) if head else None,
            }
        )
    if outcome.failed and not outcome.finished:
        raise UnitsFailed(outcome.failed)
    return rows

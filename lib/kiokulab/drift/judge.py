"""Grading of a transcript: one pass or fail a task by a fixed rule, the families' columns, the score and the receipt.

The rules are those of KnowledgeDrift, edition v2 (docs/families.md and docs/scoring.md of its repository), in our own
program. The receipt has the public field names. Next to the public score stand what it hides: success over all tasks
posed, the flags, and the problems of the transcript. A memory that answers nothing scores 300 of 1,000 by these rules
(see `arms.Mute`); that is a property of the score, not a mistake of this grader.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kiokulab.drift.script import CAPABILITIES, FAMILIES, Inscribed, Recalled, Script, Suspect, Transcript, tokens
from kiokulab.errors import InputError, UnitsFailed
from kiokulab.files import write_jsonl

TOP = 5  # a note counts as found among the first five
QUESTIONS_A_SESSION = 20  # standing text is paid once a session
FREE_TOKENS, LIMIT_TOKENS = 200.0, 3000.0
LAYER_COLUMNS = {1: "l1_autonomous", 2: "l2_governed", 3: "l3_three_hands", 4: "l4_supervised"}


@dataclass(slots=True)
class Task:
    """One probe after grading. `passed` is None where it was not attempted; `why` is a short reason where it is not
    True."""

    id: str
    family: str
    expect: str
    passed: bool | None
    why: str = ""
    subject: str = ""  # the note the question is about: clusters the intervals
    tokens: int | None = None  # what was delivered, for the questions that are billed (retrieval)
    signal: float = 0.0  # the share of it that was the answer, 0 where that was not credited


@dataclass
class Graded:
    """`receipt` has the public fields; `tasks` every task posed; `problems` what was odd in the transcript, with
    counts."""

    receipt: dict[str, Any]
    tasks: list[Task]
    problems: dict[str, int] = field(default_factory=dict)


class _Reply:
    """One recall reply, indexed once (many questions to a dump get the same reply), and only as far as it is asked."""

    def __init__(self, reply: Recalled):
        self.source = reply  # kept alive, so that its id() stays its own
        self.hits, self.declined, self.dump = reply.hits, reply.declined, reply.dump

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Key -> place among the hits that are no tombstones, from 1; in a dump every place is the first."""
        keys = [hit.key for hit in self.hits if not hit.tombstone]
        places = (
            dict(zip(reversed(keys), range(len(keys), 0, -1), strict=True)) if not self.dump else dict.fromkeys(keys, 1)
        )
        places.pop(None, None)
        return places

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """Key -> the texts shown under it, in order, tombstones included."""
        found: dict[str, list[str]] = {}
        for hit in self.hits:
            if hit.key is not None:
                found.setdefault(hit.key, []).append(hit.text)
        return found

    @cached_property
    def total(self) -> int:
        return sum(tokens(hit.text) for hit in self.hits)

    @cached_property
    def top_score(self) -> float:
        return max((hit.score for hit in self.hits if hit.score is not None), default=0.0)

    def readable(self, key: str, answer: str) -> bool:
        """Whether some hit with this key shows the answer (an empty answer is always readable)."""
        return not answer or any(answer.lower() in text.lower() for text in self.texts.get(key, ()))

    def first_tokens(self, key: str) -> int:
        return tokens(self.texts[key][0])


class _Columns:
    """Means by family and column."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, list[float]]] = {name: {} for name in FAMILIES}

    def add(self, family: str, column: str, value: float) -> None:
        cell = self.sums[family].setdefault(column, [0.0, 0])
        cell[0] += value
        cell[1] += 1

    def means(self, family: str) -> dict[str, float]:
        return {name: total / count for name, (total, count) in sorted(self.sums[family].items())}


class _Suspicion:
    """Which pairs of notes the memory raised: its queue, what its writes nominated, and near-duplicate matches."""

    def __init__(self, script: Script, transcript: Transcript, writes: dict[str, Inscribed]):
        self.pairs: dict[frozenset[str], list[str | None]] = {}
        queue: list[Suspect] = []
        asked = {op["id"] for op in script.ops if op["op"] == "suspects"}
        for name, found in transcript.suspects.items():
            if name in asked:
                queue.extend(found or [])
        for written in writes.values():
            queue.extend(written.suspects)
        self.empty = not queue
        for suspect in queue:
            self.pairs.setdefault(frozenset((suspect.a, suspect.b)), []).append(suspect.hint)
        write_ids = {op["record"]["key"]: op["id"] for op in script.ops if op["op"] == "inscribe" and "id" in op}
        self.write_of = {key: writes[name] for key, name in write_ids.items() if name in writes}

    def raised(self, new: str, old: str) -> tuple[bool, str | None, bool]:
        """(raised, hint, absorbed): `contradiction` wins over other hints, else the first that is not None."""
        hints = self.pairs.get(frozenset((new, old)), [])
        raised, absorbed = bool(hints), False
        hint = (
            "contradiction" if "contradiction" in hints else next((found for found in hints if found is not None), None)
        )
        write = self.write_of.get(new)
        if write is not None and write.matched == old:
            raised = True
            if write.nli_label == "contradiction":
                hint = "contradiction"
            else:
                absorbed = True
                hint = write.nli_label if hint is None else hint
        return raised, hint, absorbed


def not_applicable(capabilities: dict[str, bool]) -> dict[str, str]:
    """Families that a memory with these capabilities cannot attempt, with the reason."""
    result = {}
    if not capabilities["suspects"]:
        result["contradiction"] = result["drift"] = "no suspect nomination"
    if not capabilities["temporal"]:
        result["temporal"] = "no capture-time scoping"
    if not any(capabilities[name] for name in CAPABILITIES if name.startswith("endorse_")):
        result["authority"] = "no endorsement rung"
    return result


def is_task(probe: dict) -> bool:
    """Writing a purged note again is a column and never a task: nobody can be expected to warn of it."""
    return not (probe["expect"] == "resurrect" and not probe["released"])


def token_score(billed: float) -> float:
    """100 up to 200 tokens a query, 0 from 3,000 on, logarithmic between."""
    if billed <= FREE_TOKENS:
        return 100.0
    return min(100.0, max(0.0, 100.0 * math.log(LIMIT_TOKENS / billed) / math.log(LIMIT_TOKENS / FREE_TOKENS)))


def separation(answerable: Iterable[float], controls: Iterable[float]) -> float:
    """Best balanced accuracy of one threshold on the top score: answerable questions at or above it, controls below.
    Thresholds are the observed scores only; no answerable question or no control counts as a share of 0."""
    rising, falling = sorted(answerable), sorted(controls)
    best = 0.0
    for threshold in sorted(set(rising) | set(falling)):
        found = (len(rising) - bisect_left(rising, threshold)) / len(rising) if rising else 0.0
        held_back = bisect_left(falling, threshold) / len(falling) if falling else 0.0
        best = max(best, (found + held_back) / 2)
    return best


def _within(window: dict, moment: int) -> bool:
    return ("after" not in window or moment >= window["after"]) and (
        "before" not in window or moment < window["before"]
    )


def grade(script: Script, transcript: Transcript) -> Graded:
    """Grade one transcript.

    Raises InputError where the transcript answers another script, or has no recall reply to a question that its
    capabilities attempt. Replies to ids that the script never asked are left out and counted in `problems`.
    """
    if transcript.script_digest != script.digest:
        raise InputError(
            f"the transcript answers the script {ascii(transcript.script_digest)[:40]}, but this is {script.digest}",
            "script_digest",
            "Give the script that the transcript was made with",
        )
    return _Grading(script, transcript).run()


class _Grading:
    def __init__(self, script: Script, transcript: Transcript):
        self.script, self.transcript = script, transcript
        self.columns = _Columns()
        self.tasks: list[Task] = []
        self.problems = dict(transcript.problems)
        self.indexed: dict[int, _Reply] = {}
        self.answerable: list[float] = []
        self.controls: list[float] = []
        self.focus_when_delivered: list[float] = []
        self.signal, self.signal_of = 0.0, 0
        self.dump = self.declined = False
        self.phrasings: dict[str, list[int]] = {}
        asked: dict[str, set[str]] = {}
        for op in script.ops:
            if "id" in op:
                asked.setdefault("recall" if op["op"] == "recall_path" else op["op"], set()).add(op["id"])
        self.writes = {name: value for name, value in transcript.inscribes.items() if name in asked.get("inscribe", ())}
        for kind, held in (
            ("recall", transcript.recalls),
            ("inscribe", transcript.inscribes),
            ("suspects", transcript.suspects),
            ("lineage", transcript.lineages),
        ):
            if strays := sum(name not in asked.get(kind, ()) for name in held):
                self.problems["replies to what the script never asked (left out)"] = (
                    self.problems.get("replies to what the script never asked (left out)", 0) + strays
                )
        self.suspicion = _Suspicion(script, transcript, self.writes)
        self.na = not_applicable(transcript.capabilities)

    def run(self) -> Graded:
        for probe in self.script.probes:
            if probe["family"] in self.na:
                if is_task(probe):
                    self._task(probe, None, self.na[probe["family"]])
            else:
                getattr(self, f"_{probe['expect']}")(probe)
        return Graded(self._receipt(), self.tasks, dict(sorted(self.problems.items())))

    # one rule an expectation
    def _task(self, probe: dict, passed: bool | None, why: str = "") -> Task:
        subject = next(
            (probe[name] for name in ("gold", "head", "victim", "winner", "path") if isinstance(probe.get(name), str)),
            probe.get("path", probe["id"]),
        )
        self.tasks.append(Task(probe["id"], probe["family"], probe["expect"], passed, "" if passed else why, subject))
        return self.tasks[-1]

    def _reply(self, probe: dict) -> _Reply:
        found = self.transcript.recalls.get(probe["id"])
        if found is None:
            raise InputError(
                "there is no recall reply to this question",
                f"probe {probe['id']}",
                "A failed question must stop the replay; it is never an empty reply. Replay the script again",
            )
        indexed = self.indexed.get(id(found))
        if indexed is None:
            indexed = self.indexed[id(found)] = _Reply(found)
        return indexed

    def _gold(self, probe: dict) -> None:
        reply, gold, family = self._reply(probe), probe["gold"], "retrieval"
        add = self.columns.add
        self.dump |= reply.dump
        self.declined |= reply.declined
        legible = reply.readable(gold, probe.get("answer", ""))
        rank = reply.ranks.get(gold) if legible else None
        stale_rank = reply.ranks.get(probe["stale"]) if "stale" in probe else None
        found = rank is not None and rank <= TOP
        stale_above = stale_rank is not None and (rank is None or reply.dump or stale_rank < rank)
        task = self._task(
            probe,
            found and not stale_above,
            "the stale copy stands above it"
            if stale_above
            else "not delivered"
            if gold not in reply.texts
            else "delivered, but the answer is not in the text"
            if not legible
            else "delivered only as a tombstone"
            if rank is None
            else f"delivered at rank {rank}",
        )
        add(family, "r@1", rank == 1)
        add(family, "r@5", found)
        add(family, "mrr", 0.0 if rank is None else 1.0 / rank)
        add(family, "noise", (len(reply.hits) - (rank is not None)) / len(reply.hits) if reply.hits else 0.0)
        add(family, "tokens", reply.total)
        task.tokens = reply.total
        self.signal_of += 1
        if gold in reply.texts:
            focus = reply.first_tokens(gold) / max(1, reply.total)
            self.focus_when_delivered.append(focus)
            add(family, "hedge", reply.declined)
            if legible and not reply.declined:
                self.signal += focus
                task.signal = focus
        if "stale" in probe:
            add(family, "stale_above", stale_above)
        counts = self.phrasings.setdefault(probe["phrasing"], [0, 0])
        counts[0] += found
        counts[1] += 1
        self.answerable.append(reply.top_score)

    def _bound(self, probe: dict) -> None:
        reply, bound, family = self._reply(probe), probe["gold"], "retrieval"
        add, k = self.columns.add, self.script.spec["k"]
        self.dump |= reply.dump
        self.declined |= reply.declined
        answers = dict(zip(reversed(bound), reversed(probe.get("answers") or [""] * len(bound)), strict=True))
        ranks = [reply.ranks[key] for key in bound if key in reply.ranks and reply.readable(key, answers[key])]
        passed = bool(ranks) and min(ranks) <= TOP
        task = self._task(
            probe,
            passed,
            f"the first readable note of the file stands at rank {min(ranks)}"
            if ranks
            else "no readable note of the file was delivered",
        )
        live = [hit.key for hit in reply.hits if not hit.tombstone]
        shown = set(live if reply.dump else live[:k])
        add(family, "path_r@5", passed)
        add(family, "path_cover", min(sum(key in shown for key in bound), k) / max(1, min(len(bound), k)))
        wanted = set(bound)
        hits = [hit for hit in reply.hits if hit.key in wanted]
        add(family, "noise", (len(reply.hits) - len(hits)) / len(reply.hits) if reply.hits else 0.0)
        add(family, "tokens", reply.total)
        task.tokens = reply.total
        self.signal_of += 1
        if hits:
            focus = sum(tokens(hit.text) for hit in hits) / max(1, reply.total)
            self.focus_when_delivered.append(focus)
            add(family, "hedge", reply.declined)
            if passed and not reply.declined:
                self.signal += focus
                task.signal = focus
        self.answerable.append(reply.top_score)

    def _control(self, probe: dict) -> None:
        reply, add = self._reply(probe), self.columns.add
        self.declined |= reply.declined
        answered = bool(reply.hits)
        passed = not answered or reply.declined
        self._task(probe, passed, f"{len(reply.hits)} notes delivered to a question that has no answer")
        add("abstention", "answered", answered)
        add("abstention", "fp", not passed)
        add("abstention", "declined", answered and reply.declined)
        add("abstention", "natural_fp" if probe.get("natural") else "phantom_fp", not passed)
        self.controls.append(reply.top_score)

    def _current(self, probe: dict) -> None:
        reply, add = self._reply(probe), self.columns.add
        rank = reply.ranks.get(probe["head"]) if reply.readable(probe["head"], probe.get("answer", "")) else None
        found = rank is not None and rank <= TOP
        polluted = any(key in reply.ranks for key in probe["retired"])
        self._task(
            probe,
            found and not polluted,
            "a retired version was delivered" if polluted else "the current version was not found",
        )
        add("currency", "head_r@1", rank == 1)
        add("currency", "head_r@5", found)
        add("currency", "pollution", polluted)

    def _lineage(self, probe: dict) -> None:
        keys = self.transcript.lineages.get(probe["id"])
        if keys is None:
            self._task(probe, None, "no history")
            self.columns.add("currency", "lineage_na", 1.0)
            return
        passed = set(probe["retired"]) <= set(keys)
        self._task(probe, passed, "the history does not reach every retired version")
        self.columns.add("currency", "lineage", passed)

    def _linked(self, probe: dict) -> None:
        reply, gold, add = self._reply(probe), probe["gold"], self.columns.add
        direct = reply.ranks.get(gold, TOP + 1) <= TOP and reply.readable(gold, probe.get("answer", ""))
        live = [hit for hit in reply.hits if not hit.tombstone]
        by_link = any(gold in hit.neighbors for hit in live[:TOP])
        self._task(probe, direct or by_link, "the reason was not delivered, nor linked to a hit")
        add("rationale", "direct_r@5", direct)
        add("rationale", "assisted_r@5", direct or by_link)
        add("rationale", "structure_only", by_link and not direct)

    def _windowed(self, probe: dict) -> None:
        reply, gold, add = self._reply(probe), probe["gold"], self.columns.add
        found = reply.ranks.get(gold, TOP + 1) <= TOP and reply.readable(gold, probe.get("answer", ""))
        leak = any(hit.created_at is not None and not _within(probe["window"], hit.created_at) for hit in reply.hits)
        self._task(
            probe,
            found and not leak,
            "a note from outside the window was delivered" if leak else "not found in the window",
        )
        add("temporal", "in_window_r@5", found)
        add("temporal", "leak", leak)

    def _case(self, probe: dict) -> None:
        add, positive = self.columns.add, probe["positive"]
        raised, hint, absorbed = self.suspicion.raised(probe["witness"], probe["gold"])
        flagged = hint == "contradiction"
        if positive:
            passed = raised and not absorbed and hint != "entailment"
            why = (
                "never raised" if not raised else "merged as a duplicate" if absorbed else "raised, but hinted to agree"
            )
        else:
            passed = not raised or hint in ("entailment", "neutral") or (absorbed and not flagged)
            why = "a false alarm"
        self._task(probe, passed, why)
        add(
            "contradiction",
            f"t{probe['tier']}_recall" if positive else f"t{probe['tier']}_false_alarm",
            passed == positive,
        )
        if positive:
            add("contradiction", "queued", raised)
            add("contradiction", "flagged", flagged)
            add("contradiction", "absorbed", absorbed)

    def _drifted(self, probe: dict) -> None:
        raised, hint, _ = self.suspicion.raised(probe["stale"], probe["gold"])
        passed = raised and hint != "entailment"
        self._task(probe, passed, "raised, but hinted to agree" if raised else "the stale copy was never raised")
        self.columns.add("drift", "noticed", passed)
        self.columns.add("drift", "flagged", hint == "contradiction")

    def _absent(self, probe: dict) -> None:
        reply, add = self._reply(probe), self.columns.add
        gone = probe["victim"] not in reply.ranks
        self._task(probe, gone, "the deleted note was delivered")
        add("deletion", "released_gone" if probe["released"] else "purged_gone", gone)
        if probe["released"] and self.transcript.capabilities["trace"]:
            traces = [hit.text.lower() for hit in reply.hits if hit.tombstone]
            add("deletion", "trace", bool(traces))
            add("deletion", "marker_leak", any(probe.get("answer", "").lower() in text for text in traces))

    def _resurrect(self, probe: dict) -> None:
        write = self.writes.get(probe["id"])
        warned = write is not None and any(reason == "tombstoned" for reason, _ in write.warnings)
        if not probe["released"]:
            self.columns.add("deletion", "purged_rewrite_warned", warned)
            return
        if self.transcript.capabilities["trace"]:
            self._task(probe, warned, "no warning when the released note came back")
        else:
            self._task(probe, None, "no trace of what was released")
        self.columns.add("deletion", "resurrection_warned", warned)

    def _ranked(self, probe: dict) -> None:
        add, losers = self.columns.add, probe["losers"]
        if any(not self.transcript.capabilities.get(name, False) for name in probe.get("needs", [])):
            self._task(probe, None, "the endorsement this needs is not offered")
            add("authority", "na_share", 1.0)
            return
        add("authority", "na_share", 0.0)
        reply = self._reply(probe)
        rank, retired = reply.ranks.get(probe["winner"]), probe.get("retired", [])
        loser_ranks = [reply.ranks[key] for key in losers if key in reply.ranks]
        top = rank is not None and rank <= TOP
        above = not losers or (rank is not None and all(not reply.dump and rank < other for other in loser_ranks))
        resurrected = any(key in reply.ranks for key in retired)
        ordered = True
        if probe.get("order"):
            line = [rank, *loser_ranks]
            ordered = rank is not None and not reply.dump and all(a < b for a, b in zip(line, line[1:], strict=False))
        passed = top and above and not resurrected and ordered
        self._task(
            probe,
            passed,
            "a superseded note was delivered"
            if resurrected
            else "the strongest note is not in the top five"
            if not top
            else "a weaker note stands above it"
            if not above
            else "the weaker notes are out of order",
        )
        add("authority", "winner_top", top and above)
        add("authority", "winner_r@5", top)
        add("authority", LAYER_COLUMNS[probe["layer"]], passed)
        add("authority", f"s_{probe['scenario']}", passed)
        if probe.get("order"):
            add("authority", "order_exact", ordered)
        if retired:
            add("authority", "resurrected", resurrected)

    # the roll-up
    def _family(self, name: str) -> dict[str, Any]:
        posed = [task for task in self.tasks if task.family == name]
        tried = [task for task in posed if task.passed is not None]
        columns = self.columns.means(name)
        if name == "retrieval":
            share = {
                key: self.phrasings[key][0] / self.phrasings[key][1] if key in self.phrasings else 0.0
                for key in ("lexical", "paraphrase", "oblique", "crossed")
            }
            columns |= {f"{key}_r@5": value for key, value in share.items()}
            columns["weighted_r@5"] = sum(share.values()) / 4
        if name == "abstention":
            columns["separation"] = separation(self.answerable, self.controls)
        na = self.na.get(name) or (None if posed else "no tasks in this world")
        passed = sum(task.passed for task in tried)
        return {
            "family": name,
            "posed": len(posed),
            "tasks": len(tried),
            "passed": passed,
            "pass_rate": None if na else passed / max(1, len(tried)),
            **({"na": na} if na else {}),
            "columns": dict(sorted(columns.items())),
        }

    def _receipt(self) -> dict[str, Any]:
        transcript, capabilities = self.transcript, self.transcript.capabilities
        families = [self._family(name) for name in FAMILIES]
        by_name = {family["family"]: family for family in families}
        posed, tried = len(self.tasks), [task for task in self.tasks if task.passed is not None]
        passed = sum(task.passed for task in tried)
        played = [family for family in families if family["posed"]]
        points = sum(100.0 * (family["pass_rate"] or 0.0) for family in played if family["family"] != "authority")
        signal_score = 100.0 * self.signal / self.signal_of if self.signal_of else 0.0
        focus = sum(self.focus_when_delivered) / len(self.focus_when_delivered) if self.focus_when_delivered else 0.0
        a_query = by_name["retrieval"]["columns"].get("tokens", 0.0)
        billed = a_query + (0.0 if self.dump else transcript.standing_tokens / QUESTIONS_A_SESSION)
        bill_score = token_score(billed)
        costs = {
            f"{op}_ms": timed["total_ms"] / max(1, timed["count"]) for op, timed in sorted(transcript.timing.items())
        }
        return {
            "arm": transcript.arm,
            "capabilities": capabilities,
            "script_digest": transcript.script_digest,
            **({"settle_note": transcript.settle_note} if transcript.settle_note else {}),
            "tasks": posed,
            "attempted": len(tried),
            "passed": passed,
            "success": passed / max(1, posed),
            "attempted_success": passed / max(1, len(tried)),
            "composite": sum(family["pass_rate"] or 0.0 for family in played) / max(1, len(played)),
            "signal_share": focus,
            "multiplier": min(10.0, max(0.1, 10.0 * focus)),
            "score": points + signal_score + bill_score,
            "edition": self.script.spec["edition"],
            "family_points": points,
            "signal_score": signal_score,
            "token_score": bill_score,
            "tokens_billed": billed,
            "flags": self._flags(by_name),
            "families": families,
            "attention": {
                "focus": focus,
                "noise": by_name["retrieval"]["columns"].get("noise", 0.0),
                "tokens_per_query": a_query,
            },
            "cost": {"standing_tokens": transcript.standing_tokens, "tokens_per_query": a_query, **costs},
            "timing": transcript.timing,
            "failed": [task.id for task in self.tasks if task.passed is False],
        }

    def _flags(self, by_name: dict[str, dict]) -> list[str]:
        """Declared capabilities that never showed. They change no number; they are read before the numbers."""
        can, flags = self.transcript.capabilities, []
        if can["trace"] and by_name["deletion"]["columns"].get("trace") == 0.0:
            flags.append("trace is declared, but no release left a marker")
        if can["verdict"] and not self.declined:
            flags.append("verdict is declared, but no question was declined")
        if can["suspects"] and self.suspicion.empty and by_name["contradiction"]["posed"]:
            flags.append("suspects is declared, but the queue stayed empty")
        if can["history"] and by_name["currency"]["columns"].get("lineage") == 0.0:
            flags.append("history is declared, but no lineage reached a retired version")
        if can["write_check"] and not any(
            w.matched is not None or w.warnings or w.suspects for w in self.writes.values()
        ):
            flags.append("write_check is declared, but no write came back with a verdict")
        return flags


# --- step 3 -------------------------------------------------------------------------------------------------------

SHOWN_HITS, SHOWN_CHARACTERS = 5, 300  # of what came back, kept beside a task that failed


def without_times(receipt: dict[str, Any]) -> dict[str, Any]:
    """A receipt without wall times, which are not the same in two runs; `public_receipt` puts them back."""
    costs = {name: value for name, value in receipt["cost"].items() if not name.endswith("_ms")}
    return {name: value for name, value in receipt.items() if name != "timing"} | {"cost": costs}


def task_rows(unit: str, script: Script, transcript: Transcript, graded: Graded) -> list[dict[str, Any]]:
    """A row a task: what was asked, what was expected, and for a failed one what came back and why it failed."""
    asked = {op["id"]: op.get("query") or op.get("path") for op in script.ops if op["op"] in ("recall", "recall_path")}
    probes = {probe["id"]: probe for probe in script.probes}
    rows = []
    for task in graded.tasks:
        probe, row = probes[task.id], {"kind": "task", "unit": unit, **asdict(task)}
        row |= {"asked": asked.get(task.id), "answer": probe.get("answer")}
        if probe["expect"] in ("case", "ranked"):
            row["shape"] = probe.get("shape") or probe.get("scenario")
        if "phrasing" in probe:
            row["phrasing"] = probe["phrasing"]
        reply = transcript.recalls.get(task.id)
        if task.passed is False and reply is not None:
            row["declined"], row["dump"], row["hits"] = reply.declined, reply.dump, len(reply.hits)
            row["delivered"] = [
                {"key": hit.key, "text": hit.text[:SHOWN_CHARACTERS], "tombstone": hit.tombstone}
                for hit in reply.hits[:SHOWN_HITS]
            ]
        rows.append(row)
    return rows


def run(folder: Path | str, params: Any) -> list[dict[str, Any]]:
    """Step 3: every transcript of the run graded, into judgements.jsonl: a receipt a world, then its tasks.

    A world without a transcript failed in step 2 and has no rows here. Raises UnitsFailed where none has one."""
    from kiokulab.drift.generate import read_scripts
    from kiokulab.drift.ingest import read_transcripts

    folder, rows, table = Path(folder), [], []
    transcripts = read_transcripts(folder)
    for script in read_scripts(folder):
        if script.name not in transcripts:
            continue
        graded = grade(script, transcripts[script.name])
        receipt = without_times(graded.receipt)
        rows.append(
            {
                "kind": "receipt",
                "unit": script.name,
                "language": script.language,
                "receipt": receipt,
                "problems": graded.problems,
                "standing_billed": 0.0
                if receipt["tokens_billed"] == receipt["attention"]["tokens_per_query"]
                else receipt["cost"]["standing_tokens"] / QUESTIONS_A_SESSION,
            }
        )
        rows += task_rows(script.name, script, transcripts[script.name], graded)
        table.append(
            {
                "world": script.name,
                "tasks posed": receipt["tasks"],
                "attempted": receipt["attempted"],
                "passed": receipt["passed"],
                "score": round(receipt["score"], 1),
                "flags": "; ".join(receipt["flags"]) or "none",
                "problems": "; ".join(f"{count} {kind}" for kind, count in graded.problems.items()) or "none",
            }
        )
    write_jsonl(folder / "judgements.jsonl", rows)
    if not table:
        raise UnitsFailed({"all": "no world has a transcript"})
    return table


def public_receipt(folder: Path | str, world: str) -> dict[str, Any]:
    """The full graded receipt of one world in the public format, wall times included."""
    from kiokulab.drift.generate import read_scripts
    from kiokulab.drift.ingest import read_timing, read_transcripts

    transcript = read_transcripts(folder)[world]
    transcript.timing = read_timing(folder).get(world, {})
    return grade(next(script for script in read_scripts(folder) if script.name == world), transcript).receipt

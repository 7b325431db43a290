"""From a figure to the item, its verdict, the stored memory, the utterance and the ledger fact, and back.

`Explorer` reads one finished run once and answers from indexes: `items` lists what a metric counted, `case` follows one
of them forward, `of_utterance`, `of_memory` and `of_fact` lead back, and `at` shows the same run on another of its
routes. All of it is plain data; `panel` draws widgets around it, and `fallback` the same without any. The second
question is answered from memory (1,000 personas: milliseconds); what the answerer read stays on the disk and is read
one row at a time.

The kioku track has the whole way. For the other tracks an item leads to its question, its verdict and why, and to the
rows of the run about it.

`python -m kiokulab.explore` (make explore) opens the notebook in JupyterLab; VOILA=1 serves it as a page, without code.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError
from kiokulab.files import iterate_jsonl, read_jsonl
from kiokulab.page import plain
from kiokulab.receipts import read_receipt

# metric -> what its failures are called, in the words of the list of kinds
KINDS = {
    "recall": {"missed": "the current version is not stored"},
    "update_applied": {"not updated": "the new version is not stored"},
    "old_version_kept": {
        "old version kept": "an older version is stored as if it were true",
        "old version told as past": "an older version can still be read, as a past state",
    },
    "forget_violation": {"forgotten content kept": "asked to be forgotten, still stored"},
    "check_questions": {
        "wrong answer": "the question is answered wrong",
        "stale answer": "the question is answered with an older version",
        "no answer": "the question is not answered, although it is about a true fact",
    },
    "noise": {"noise": "a stored sentence that states no fact"},
    "language_mismatch": {"other language": "a stored sentence in another language than the conversation's"},
}
RIGHT, UNJUDGED = "as it should be", "not judged"
# how a judge says that a version stands there, in words; a way that is not here is shown as the judge named it
HOWS = {
    "verbatim": "word for word",
    "surface": "its words and values stand there",
    "translated": "it stands there in the other language",
    "restated_forget": "the request to forget restates it",
    "joint": "several sentences say it together",
    "history": "told as a past state",
    "replaced": "named only as what was replaced",
    "part": "only a part of it stands there",
}
BY_SENTENCE = ("noise", "language_mismatch")  # long lists, made when they are first asked for


@functools.lru_cache(maxsize=8)
def open_run(folder: str) -> "Explorer":
    """The explorer of a run folder, kept: the second look costs nothing."""
    return Explorer(folder)


def runs(root: str | Path) -> list[dict[str, str]]:
    """Finished runs under `root`: [{'track', 'edition', 'system', 'run', 'folder', 'label'}], published copies once."""
    from kiokulab.site import opened

    found: dict[str, dict[str, str]] = {}
    for path in sorted(
        Path(root).rglob("receipt.json"), key=lambda p: ("published" in p.relative_to(root).parts, str(p))
    ):
        receipt = read_receipt(path.parent)
        if receipt is None or receipt.status not in ("finished", "units_failed"):
            continue
        name = f"{receipt.track} {receipt.edition} {receipt.system} {receipt.run[:6]}"
        if name not in found:
            folder = path.parent if (path.parent / "judgements.jsonl").is_file() else opened(path.parent)
            found[name] = {
                "track": receipt.track,
                "edition": receipt.edition,
                "system": receipt.system,
                "run": receipt.run,
                "folder": str(folder),
                "label": name,
            }
    return [found[name] for name in sorted(found)]


class Kept:
    """Rows of a JSON-lines file that stay on the disk, found by key: `file.get(key)` reads one line. The file is held
    open, so that it may be moved meanwhile. InputError where a line is torn; a file that is not there has no rows."""

    def __init__(self, path: Path, key: Any):
        self.places: dict[Any, tuple[int, int]] = {}
        self.file, at = None, 0
        if path.is_file():
            self.file = open(path, "rb")  # noqa: SIM115 (as long as this object)
            with open(path, "rb") as lines:
                for (_, row), line in zip(iterate_jsonl(path), lines):
                    self.places[key(row)] = (at, len(line))
                    at += len(line)

    def get(self, key: Any) -> dict[str, Any] | None:
        place = self.places.get(key)
        return None if place is None else json.loads(os.pread(self.file.fileno(), place[1], place[0]))


class Explorer:
    """One run, indexed, seen on one of its routes (the headline's, unless `at` is asked for another). Raises InputError
    where the folder holds no finished run or a file is torn."""

    def __init__(self, folder: str | Path):
        self.folder, receipt = Path(folder), read_receipt(folder)
        if receipt is None:
            raise InputError(
                "there is no run here", str(folder), "Give a folder outputs/<track>/<edition>/<system>/<run-id>"
            )
        self.track, self.system, self.run = receipt.track, receipt.system, receipt.run
        self.name = f"{receipt.system} · {receipt.edition} · {receipt.run[:6]}"
        self.metrics_file = json.loads((self.folder / "metrics.json").read_bytes())
        self.route, self.routes = "", [""]
        self._on: dict[str, Explorer] = {}
        if self.track == "kioku":
            self._load_kioku()
        self._index()

    def at(self, route: str) -> "Explorer":
        """The same run on another of its `routes`; its files are not read again. InputError for a route that it has
        not."""
        if route == self.route:
            return self
        if route not in self.routes:
            raise InputError(f"this run has no route {route!r}", str(self.folder), f"It has {', '.join(self.routes)}")
        if route not in self._on:
            other = copy.copy(self)
            other.route = route
            other._index()
            self._on[route] = other
        return self._on[route]

    # --- lists ---------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        self._on[self.route] = self
        self._figures: dict[str, dict[str, int]] = {}
        self._by_id: dict[str, dict[str, Any]] = {}
        self._groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        self._late: set[str] = set()
        if self.track == "kioku":
            for name, unit in self._here():
                self._add(self._facts_of(name, unit))
            self._late = {
                metric
                for metric in BY_SENTENCE
                if any(True for name, unit in self._here() for _ in self._sentences_of(name, unit, metric))
            }
        else:
            self._add(self._plain_items())
        self.metrics = [
            *dict.fromkeys(metric for metric, *_ in self._groups),
            *(m for m in BY_SENTENCE if m in self._late),
        ]
        self.languages = sorted({language for *_, language in self._groups} - {""})

    def _add(self, items: Iterable[dict[str, Any]]) -> None:
        for item in items:
            self._by_id[item["id"]] = item
            for kind in (item["kind"], "every failure" if item["good"] is False else None, "everything"):
                if kind is not None:
                    for language in {item["language"], ""}:
                        self._groups[item["metric"], kind, language].append(item)

    def _fill(self, metric: str) -> None:
        if metric in self._late:
            self._late.discard(metric)
            for name, unit in self._here():
                self._add(self._sentences_of(name, unit, metric))

    def item(self, item_id: str) -> dict[str, Any] | None:
        """The item of an id, or None."""
        self._fill(item_id.partition(":")[0])
        return self._by_id.get(item_id)

    def kinds(self, metric: str) -> dict[str, int]:
        """Kind -> how many items of the metric: every failure first, then each kind of it, what is as it should be,
        all."""
        self._fill(metric)
        counts = {
            kind: len(rows) for (m, kind, language), rows in self._groups.items() if m == metric and language == ""
        }
        return {
            kind: counts[kind]
            for kind in sorted(
                counts, key=lambda k: (k != "every failure", k in (RIGHT, UNJUDGED), k == "everything", k)
            )
        }

    def items(self, metric: str, kind: str = "every failure", language: str = "") -> Sequence[dict[str, Any]]:
        """Items of a metric: [{'id', 'metric', 'kind', 'good', 'unit', 'persona', 'language', 'fact', 'about',
        'text'}]; `good` is None where the judge did not answer. An unknown name gives no item."""
        self._fill(metric)
        return self._groups.get((metric, kind, language), [])

    def figure(self, metric: str) -> dict[str, Any]:
        """k, n and not judged of a metric, counted from the items: what metrics.json must say as well (k counts hits:
        of `recall` the right ones, of `noise` the noisy ones)."""
        if metric in self._figures:
            return self._figures[metric]
        rows = self.items(metric, "everything")
        judged = [r for r in rows if r["good"] is not None]
        lower = self.track == "kioku" and metric not in ("recall", "update_applied", "check_questions")
        self._figures[metric] = {
            "k": sum(r["good"] is not lower for r in judged),
            "n": len(judged),
            "not_judged": len(rows) - len(judged),
        }
        return self._figures[metric]

    # --- kioku ---------------------------------------------------------------------------------------------------

    def _load_kioku(self) -> None:
        from kiokulab.kioku import analyze

        self.analyze = analyze
        rows, personas, events, _ = analyze.load(self.folder)
        self.personas = {p.id: p for p in personas}
        self.units = {u.name: u for u in analyze.units_of(rows, personas)}
        self.route, self.routes = self.metrics_file["route"], list(self.metrics_file["by_route"])
        self.memories: dict[str, dict[str, dict]] = defaultdict(dict)
        for _, memory in iterate_jsonl(self.folder / "memories.jsonl"):
            self.memories[memory["unit"]][memory["id"]] = memory
        self.contexts = Kept(self.folder / "contexts.jsonl", lambda row: (row["unit"], row["fact"]))
        self.calls: dict[str, list[dict]] = defaultdict(list)
        for event in events:
            if event["op"] in ("ingest", "forget"):
                self.calls[event["unit"]].append(event)
        self.sentences = {name: {r["id"]: r for r in unit.sentences} for name, unit in self.units.items()}
        self.facts = {p.id: {f.id: f for f in p.facts} for p in personas}

    def _here(self) -> Iterable[tuple[str, Any]]:
        return ((name, unit) for name, unit in self.units.items() if unit.route == self.route)

    def _facts_of(self, name: str, unit: Any) -> Iterable[dict[str, Any]]:
        person, facts = unit.persona, self.facts[unit.persona.id]
        for metric, fact_id, hit in unit.items("page"):
            fact = facts[fact_id]
            good = None if hit is None else hit if metric in self.analyze.HIGHER else not hit
            yield self._item(
                metric,
                person,
                name,
                fact_id,
                good,
                self._kind(metric, unit, fact, good),
                fact.slot,
                fact.versions[-1].text,
            )

    def _sentences_of(self, name: str, unit: Any, metric: str) -> Iterable[dict[str, Any]]:
        for row in () if unit.unreadable else unit.sentences:
            if row["layer"] not in self.analyze.SCOPES["page"]:
                continue
            if metric == "noise":
                good = bool(row["states"]) if row["judged"] else None
                yield self._item(
                    metric,
                    unit.persona,
                    name,
                    row["id"],
                    good,
                    RIGHT if good else UNJUDGED if good is None else "noise",
                    row["memory"],
                    row["text"],
                )
            elif row["language"] != "und":
                good = row["language"] == unit.persona.language
                yield self._item(
                    metric,
                    unit.persona,
                    name,
                    row["id"],
                    good,
                    RIGHT if good else "other language",
                    row["memory"],
                    row["text"],
                )

    @staticmethod
    def _item(
        metric: str, person: Any, unit: str, what: str, good: bool | None, kind: str, about: str, text: str
    ) -> dict[str, Any]:
        return {
            "id": f"{metric}:{unit}:{what}",
            "metric": metric,
            "kind": kind,
            "good": good,
            "unit": unit,
            "persona": person.id,
            "language": person.language,
            "fact": what,
            "about": about,
            "text": text,
        }

    def _kind(self, metric: str, unit: Any, fact: Any, good: bool | None) -> str:
        if good is None:
            return UNJUDGED
        if good:
            return RIGHT
        if metric == "check_questions":
            verdict = unit.answers[fact.id]["verdict"]
            return {"stale": "stale answer", "none": "no answer"}.get(verdict, "wrong answer")
        if metric == "old_version_kept":
            held = any(
                self.analyze._verdict(unit.versions.get((fact.id, v.n)), "page") == "held" for v in fact.versions[:-1]
            )
            return "old version kept" if held else "old version told as past"
        return next(iter(KINDS[metric]))

    def case(self, item_id: str) -> dict[str, Any]:
        """One item followed all the way. InputError for an id that this run does not have.

        number      {'metric', 'k', 'n', 'not_judged'}: the figure that it is part of
        item        as in `items`
        verdicts    [{'what', 'verdict', 'why', 'live', 'sentences'}]: of each version, and of the answer
        memories    [{'id', 'layer', 'source', 'created', 'text', 'shows': which version}]
        utterances  [{'id', 'session', 'date', 'role', 'kind', 'text', 'states'}]
        ledger      [{'fact', 'version', 'text', 'from', 'until'}], and `forget` where it is to be forgotten
        context     texts that the answerer read
        """
        item = self.item(item_id)
        if item is None:
            raise InputError(f"this run has no item {item_id!r}", str(self.folder))
        number = {"metric": item["metric"], **self.figure(item["metric"])}
        if self.track != "kioku":
            return {"number": number, "item": item, "rows": self._rows(item)}
        if item["metric"] in ("noise", "language_mismatch"):
            return {"number": number, "item": item, **self._sentence(item)}
        return {"number": number, "item": item, **self._fact(item["unit"], item["fact"])}

    def _fact(self, unit_name: str, fact_id: str) -> dict[str, Any]:
        unit = self.units[unit_name]
        fact = self.facts[unit.persona.id][fact_id]
        verdicts, memories = [], {}
        for version in fact.versions:
            row = unit.versions.get((fact.id, version.n))
            verdicts.append(
                {
                    "what": f"version {version.n}",
                    "verdict": row["verdict"] if row else "no row",
                    "why": (row["reason"] or HOWS.get(row["how"], row["how"])) if row else "the judge left none",
                    "live": row["live"] if row else None,
                    "sentences": list(row["sentences"]) if row else [],
                }
            )
            for name in row["sentences"] if row else []:
                memory = self._memory(unit_name, name)
                memories.setdefault(memory["id"], {**memory, "shows": []})["shows"].append(f"version {version.n}")
        answer = unit.answers.get(fact.id)
        if answer:
            said = answer["reason"] or (
                "not in memory"
                if answer["answer"] is None
                else f"said “{answer['answer']}”, expected “{answer['expected']}”"
            )
            verdicts.append(
                {
                    "what": "answer",
                    "verdict": answer["verdict"],
                    "live": None,
                    "sentences": [],
                    "why": f"asked “{answer['question']}”, {said}",
                }
            )
        context = self.contexts.get((unit_name, fact.id))
        return {
            "verdicts": verdicts,
            "memories": [{**m, "shows": ", ".join(m["shows"])} for m in memories.values()],
            "utterances": self._utterances(unit.persona, fact),
            "ledger": [
                {
                    "fact": fact.id,
                    "slot": fact.slot,
                    "version": v.n,
                    "text": v.text,
                    "from": v.valid_from,
                    "until": v.valid_to,
                }
                for v in fact.versions
            ],
            "forget": fact.forget,
            "question": fact.question.text,
            "expected": fact.question.answer,
            "context": [i["text"] for i in context["items"]] if context else [],
        }

    def _sentence(self, item: Mapping[str, Any]) -> dict[str, Any]:
        row = self.sentences[item["unit"]][item["fact"]]
        person = self.units[item["unit"]].persona
        facts = dict.fromkeys(name.split(".")[0] for name in row["states"])
        said = [
            u
            for u in self._turns(person)
            if row["text"].strip() and (row["text"].strip() in u["text"] or u["text"] in row["text"])
        ]
        why = row["reason"] or (
            f"states {', '.join(row['states'])}" if row["states"] else "it states no fact of the ledger"
        )
        return {
            "verdicts": [
                {
                    "what": "sentence",
                    "verdict": item["kind"],
                    "why": f"{why}; language {row['language']}",
                    "live": row["layer"],
                    "sentences": [row["id"]],
                }
            ],
            "memories": [{**self._memory(item["unit"], row["id"]), "shows": "this sentence"}],
            "utterances": said[:6],
            "ledger": [line for fact in facts for line in self._fact(item["unit"], fact)["ledger"]],
            "forget": None,
            "question": None,
            "expected": None,
            "context": [],
        }

    def _memory(self, unit: str, sentence: str) -> dict[str, Any]:
        row = self.sentences[unit].get(sentence)
        memory = self.memories[unit].get(row["memory"] if row else sentence.rpartition("#")[0], {})
        return {
            "id": memory.get("id", row["memory"] if row else sentence),
            "layer": memory.get("layer", row["layer"] if row else "?"),
            "source": memory.get("source"),
            "created": memory.get("created"),
            "text": memory.get("text", row["text"] if row else ""),
        }

    @functools.lru_cache(maxsize=4096)
    def _turns_of(self, persona: str) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "id": f"{s.id}.t{n:02d}",
                "session": s.id,
                "date": s.date[:10],
                "role": t.role,
                "kind": t.kind,
                "text": t.text,
                "states": tuple(t.states),
                "of": t.of,
            }
            for s in self.personas[persona].sessions
            for n, t in enumerate(s.turns, 1)
        )

    def _turns(self, person: Any) -> tuple[dict[str, Any], ...]:
        return self._turns_of(person.id)

    def _utterances(self, person: Any, fact: Any) -> list[dict[str, Any]]:
        names = {f"{fact.id}.{v.n}" for v in fact.versions}
        return [
            u
            for u in self._turns(person)
            if set(u["states"]) & names or (u["of"] == fact.id and u["kind"] in ("change", "forget", "near_miss"))
        ]

    # and back

    def of_fact(self, unit: str, fact: str) -> list[dict[str, Any]]:
        """Items of every metric about one fact."""
        return [item for m in self.metrics if (item := self._by_id.get(f"{m}:{unit}:{fact}")) is not None]

    def of_utterance(self, unit: str, turn: str) -> dict[str, Any]:
        """{'utterance', 'facts': ids of what it states or is about, 'items', 'memories' that show them, 'change' of the
        store}."""
        person = self.units[unit].persona
        said = next((u for u in self._turns(person) if u["id"] == turn), None)
        if said is None:
            raise InputError(f"{person.id} has no utterance {turn!r}", str(self.folder))
        facts = list(dict.fromkeys([*(s.split(".")[0] for s in said["states"]), *([said["of"]] if said["of"] else [])]))
        facts = [f for f in facts if f in self.facts[person.id]]
        memories = {m["id"]: m for f in facts for m in self._fact(unit, f)["memories"]}
        return {
            "utterance": said,
            "facts": facts,
            "items": [i for f in facts for i in self.of_fact(unit, f)],
            "memories": list(memories.values()),
            "change": self.change(unit, turn),
        }

    def of_memory(self, unit: str, memory: str) -> dict[str, Any]:
        """{'memory', 'sentences', 'facts', 'items'} of one stored text."""
        rows = [r for r in self.sentences[unit].values() if r["memory"] == memory]
        facts = list(dict.fromkeys(s.split(".")[0] for r in rows for s in r["states"]))
        return {
            "memory": self.memories[unit].get(memory),
            "sentences": rows,
            "facts": facts,
            "items": [i for f in facts for i in self.of_fact(unit, f)],
        }

    def change(self, unit: str, turn: str) -> dict[str, Any]:
        """What the call that held an utterance did to the store: {'call', 'added', 'changed', 'removed' as told,
        'seen', 'gone' texts, 'came' texts}. `came` are the memories that carry the call's own date or id; a system that
        keeps neither shows none."""
        session = turn.split(".")[0]
        # the call is the utterance itself, its pair, or its whole session, as the system is fed
        calls = [c for c in self.calls[unit] if c["item"] in (turn, session)] or [
            c for c in self.calls[unit] if (c["item"] or "").startswith(session + ".") and c["item"] <= turn
        ][-1:]
        if not calls:
            return {
                "call": None,
                "reason": "no call of this run held the utterance alone (another route, or it was not recorded)",
            }
        call = calls[0]
        person = self.units[unit].persona
        said = next(u for u in self._turns(person) if u["id"] == turn)
        came = [
            m
            for m in self.memories[unit].values()
            if said["text"] and (said["text"] in m["text"] or (m["text"] and m["text"] in said["text"]))
        ]
        looked = next((c for c in self.calls[unit] if c["seq"] >= call["seq"] and "observed" in c["detail"]), None)
        return {
            "call": call["item"],
            "status": call["status"],
            "added": call["added"],
            "changed": call["changed"],
            "removed": call["removed"],
            "warnings": call["warnings"],
            "seen": looked["detail"]["observed"] if looked else None,
            "over": looked["detail"].get("over") if looked else None,
            "gone": [g["text"] for g in (looked["detail"].get("gone") or [])] if looked else [],
            "came": [m["text"] for m in came],
        }

    # --- the other tracks ----------------------------------------------------------------------------------------

    def _plain_items(self) -> Iterable[dict[str, Any]]:
        rows = read_jsonl(self.folder / "judgements.jsonl")
        if self.track == "drift":
            for n, r in enumerate(r for r in rows if r["kind"] == "task"):
                good = r["passed"] is True
                kind = (
                    RIGHT
                    if good
                    else "not attempted"
                    if r["passed"] is None
                    else re.sub(r"\d+", "n", plain(r["why"], 80)) or "failed"
                )
                yield self._plain(
                    r["family"],
                    f"{r['unit']}/{r['id']}/{n}",
                    r,
                    good,
                    kind,
                    r["unit"].split("-")[0],
                    r["family"],
                    r["asked"],
                )
        elif self.track == "emem":
            for n, r in enumerate(rows):
                yield self._plain(
                    r["axis"],
                    f"{r['id']}/{n}",
                    r,
                    bool(r["correct"]),
                    RIGHT if r["correct"] else plain(r["why"], 60),
                    "",
                    r["id"],
                    r.get("why") or "",
                )
        else:
            for n, r in enumerate(r for r in rows if r.get("kind") == "answer"):
                good = None if r["verdict"] == "not_judged" else r["verdict"] == "right"
                yield self._plain(
                    r["type"],
                    f"{r['id']}/{n}",
                    r,
                    good,
                    UNJUDGED if good is None else RIGHT if good else "no answer" if r.get("missing") else "wrong",
                    "",
                    r["type"],
                    str(r.get("answer") or ""),
                )

    def _plain(
        self, metric: str, what: str, row: dict, good: bool | None, kind: str, language: str, about: str, text: Any
    ) -> dict[str, Any]:
        return {
            "id": f"{metric}:{what}",
            "metric": metric,
            "kind": kind,
            "good": good,
            "unit": row.get("unit", ""),
            "persona": "",
            "language": language if language in ("en", "ja") else "",
            "fact": str(row.get("id")),
            "about": about,
            "text": str(text),
            "row": row,
        }

    def _rows(self, item: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Rows of the run's files that name the item's id (and unit), by file."""
        found: dict[str, list[dict]] = {"judgements.jsonl": [item["row"]]}
        for name in ("contexts.jsonl", "dataset.jsonl"):
            for row in self._by_name(name).get(item["fact"], []):
                if row.get("unit", item["unit"]) == item["unit"] or not item["unit"]:
                    found.setdefault(name, []).append(row)
        return found

    @functools.lru_cache(maxsize=8)
    def _by_name(self, name: str) -> dict[str, list[dict]]:
        result: dict[str, list[dict]] = defaultdict(list)
        if (self.folder / name).is_file():
            for _, row in iterate_jsonl(self.folder / name):
                key = row.get("id") or row.get("question_id")
                if key is not None:
                    result[str(key)].append(row)
        return result


# --- shown --------------------------------------------------------------------------------------------------------


def case_html(explorer: Explorer, item_id: str, link: Any = None) -> str:
    """One case as HTML: number, item, verdict and why, memory, utterance, ledger, each part with an anchor of its own.
    `link(kind, key)` gives where a session or fact is found in whole, or None."""
    from kiokulab.page import environment

    case = explorer.case(item_id)
    return (
        environment()
        .get_template("case.html")
        .render(
            c=case,
            x=explorer,
            link=link or (lambda kind, key: None),
            KINDS=KINDS,
            rows=_short_rows(case.get("rows", {})),
        )
    )


def _short_rows(rows: Mapping[str, Sequence[Mapping]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (
            name,
            [
                (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
                for key, value in row.items()
            ],
        )
        for name, some in rows.items()
        for row in some[:3]
    ]


def look_html(explorer: Explorer, unit: str, kind: str, key: str) -> str:
    """What a case leads to, seen from its own side: an `utterance` inside its session, a stored `memory` with its
    sentences, a `fact` inside the ledger; each with what it states and what became of that. InputError for a name that
    the run has not."""
    from kiokulab.page import environment

    person = explorer.units[unit].persona
    steps = environment().get_template("steps.html").module
    if kind == "fact":
        return str(steps.of_fact(person, key))
    back = explorer.of_utterance(unit, key) if kind == "utterance" else explorer.of_memory(unit, key)
    lines = [line for fact in back["facts"] for line in explorer._fact(unit, fact)["ledger"]]
    if kind == "utterance":
        return str(
            steps.of_utterance(
                {**back, "ledger": lines},
                [u for u in explorer._turns(person) if u["session"] == back["utterance"]["session"]],
            )
        )
    return str(
        steps.of_memory({**back, "ledger": lines, "memory": back["memory"] and explorer._memory(unit, f"{key}#")}, key)
    )


def leads(explorer: Explorer, item_id: str) -> list[tuple[str, str, str]]:
    """What a case leads to: [(kind, key, words)], its utterances, stored memories and facts; none on other tracks than
    kioku."""
    case = explorer.case(item_id)
    found = [
        ("utterance", u["id"], f"{u['date']} {u['kind'].replace('_', ' ')}: {u['text']}")
        for u in case.get("utterances", [])
    ]
    found += [("memory", m["id"], m["text"]) for m in case.get("memories", [])]
    return found + [
        ("fact", fact, text) for fact, text in {line["fact"]: line["text"] for line in case.get("ledger", [])}.items()
    ]


def items_about(explorer: Explorer, unit: str, kind: str, key: str) -> list[dict[str, Any]]:
    """The way back: items of every metric that an utterance, a stored memory or a fact has a part in."""
    return (
        explorer.of_fact(unit, key)
        if kind == "fact"
        else (explorer.of_utterance(unit, key) if kind == "utterance" else explorer.of_memory(unit, key))["items"]
    )


def side_by_side(first: Explorer, second: Explorer | None, item_id: str, missing: str = "") -> str:
    """The same case of two systems, beside one another; a system that has no such item says so, and so does `missing`
    where there is no second one."""
    from markupsafe import escape

    def part(explorer: Explorer) -> str:
        body = (
            case_html(explorer, item_id)
            if explorer.item(item_id) is not None
            else "<p>This run counts no such item.</p>"
        )
        return f"<section><h3>{escape(plain(explorer.name, 80))}</h3>{body}</section>"

    return f'<div class="sides">{part(first)}{part(second) if second else f"<section><p>{escape(missing)}</p></section>"}</div>'


def same_cases(first: Explorer, second: Explorer, metric: str) -> list[dict[str, Any]]:
    """Items of a metric that one of two runs has right and the other has not: [{'id', 'about', 'text', 'first',
    'second'}]."""
    return [
        {"id": i["id"], "about": i["about"], "text": i["text"], "first": i["kind"], "second": other["kind"]}
        for i in first.items(metric, "everything")
        if (other := second.item(i["id"])) is not None and other["good"] != i["good"]
    ]


def save_note(path: str | Path, explorer: Explorer, item_id: str, note: str) -> Path:
    """Append a case and what a person says of it to a notes file (markdown, one section a case); returns its path."""
    path, case = Path(path), explorer.case(item_id)
    item = case["item"]
    lines = [
        f"## {explorer.track} {explorer.name}: {item['id']}",
        "",
        f"- run: {explorer.folder.name}",
        f"- kind: {item['kind']}",
        f"- about: {item['about']}: {_line(item['text'])}",
    ]
    lines += [f"- {v['what']}: {v['verdict']} ({_line(v['why'])})" for v in case.get("verdicts", [])]
    lines += [f"- stored ({m['layer']}, {m['shows']}): {_line(m['text'])}" for m in case.get("memories", [])[:5]]
    lines += [
        f"- said {u['id']}, {u['date']} ({u['kind']}): {_line(u['text'])}" for u in case.get("utterances", [])[:5]
    ]
    text = "\n".join([*lines, "", "\n".join("> " + plain(part, 2000) for part in note.splitlines() or [""]), "", ""])
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path


def _line(text: Any) -> str:
    return plain(" ".join(str(text).split()), 300)


def fallback(explorer: Explorer, metric: str, kind: str = "every failure", most: int = 12) -> str:
    """The list and its first case as HTML, for an executed copy in which nobody can click."""
    from kiokulab.page import table

    rows = explorer.items(metric, kind)
    shown = [{"item": r["id"], "kind": r["kind"], "about": r["about"], "text": r["text"]} for r in rows[:most]]
    head = f"<p>{len(rows)} items of kind “{kind}”" + (f"; the first {most}:" if len(rows) > most else ":") + "</p>"
    return head + (table(shown) + wrapped(case_html(explorer, rows[0]["id"])) if rows else "<p>none</p>")


def wrapped(html: str) -> str:
    """HTML of this module with its style, for a notebook cell."""
    return f'<style>{css()}</style><div class="kiokulab cell">{html}</div>'


def css() -> str:
    from kiokulab import page

    return page.css() + (page.HERE / "case.css").read_text(encoding="utf-8")


# --- widgets ------------------------------------------------------------------------------------------------------


def short(text: Any, longest: int = 110) -> str:
    """One line of a list of choices."""
    return plain(" ".join(str(text).split()), longest)


class Panel:
    """The explorer as ipywidgets. Every choice fills the ones after it; `box` is what a notebook shows."""

    def __init__(self, found: Sequence[Mapping[str, str]], notes: str | Path, run: str, metric: str, most: int):
        import ipywidgets as w

        self.notes, self.start, self.most, self.busy = notes, metric, most, False
        options = [(r["label"], r["folder"]) for r in found]
        wide, style = w.Layout(width="auto"), {"description_width": "6.5em"}

        def choice(name: str, options: Sequence = (), **more: Any) -> Any:
            return w.Dropdown(options=list(options), description=name, layout=wide, style=style, **more)

        self.run = choice(
            "Run", options, value=next((folder for label, folder in options if run and run in label), options[0][1])
        )
        self.beside = choice("Beside it", [("none", ""), *options], value="")
        self.route, self.metric, self.kind = choice("Route"), choice("Metric"), choice("Kind")
        self.language = w.ToggleButtons(
            options=[("all", "")], description="Language", style={"button_width": "4.5em", "description_width": "6.5em"}
        )
        self.items = w.Select(options=[], rows=12, description="Items", layout=wide, style=style)
        self.look, self.about = choice("Look at"), choice("Back to")
        self.said, self.shown, self.saved = w.HTML(), w.HTML(), w.HTML()
        self.note = w.Textarea(
            placeholder="what you see in this case", rows=2, layout=wide, description="Note", style=style
        )
        self.save = w.Button(description="Save case", icon="pencil", tooltip=f"append to {notes}")
        for widget, then in (
            (self.run, self.fill_routes),
            (self.route, self.fill_metrics),
            (self.metric, self.fill_kinds),
            (self.kind, self.fill_items),
            (self.language, self.fill_items),
            (self.items, self.fill_leads),
            (self.beside, self.show),
            (self.look, self.fill_back),
            (self.about, self.go),
        ):
            widget.observe(lambda change, then=then: self.busy or then(), "value")
        self.save.on_click(lambda _: self.keep())
        self.fill_routes()
        left = w.VBox(
            [
                self.run,
                self.beside,
                self.route,
                self.metric,
                self.kind,
                self.language,
                self.said,
                self.items,
                self.look,
                self.about,
                self.note,
                w.HBox([self.save, self.saved]),
            ],
            layout=w.Layout(flex="1 1 22em", min_width="0", margin="0 1.5em 0 0"),
        )
        right = w.VBox([self.shown], layout=w.Layout(flex="2.2 1 34em", min_width="0"))
        self.box = w.HBox([left, right], layout=w.Layout(width="100%", flex_flow="row wrap", align_items="flex-start"))

    @property
    def explorer(self) -> Explorer:
        return open_run(self.run.value).at(self.route.value or open_run(self.run.value).route)

    def put(self, widget: Any, options: Sequence, value: Any) -> None:
        """New options and a choice among them, without asking what follows: the caller goes on."""
        self.busy = True
        widget.options = list(options)
        widget.value = value  # a list that was empty before chooses nothing by itself
        self.busy = False

    def fill_routes(self) -> None:
        """Routes of the run; the one that was chosen stays where the run has it."""
        x, before = open_run(self.run.value), self.route.value
        self.put(
            self.route,
            [(route or "there is one alone", route) for route in x.routes],
            before if before in x.routes else x.route,
        )
        self.fill_metrics()

    def fill_metrics(self) -> None:
        x, before, language = self.explorer, self.metric.value or self.start, self.language.value or ""
        self.put(
            self.metric,
            [(name.replace("_", " "), name) for name in x.metrics],
            before if before in x.metrics else next(iter(x.metrics), None),
        )
        self.put(
            self.language,
            [("all", ""), *[(name, name) for name in x.languages]],
            language if language in x.languages else "",
        )
        self.fill_kinds()

    def fill_kinds(self, kind: str | None = None) -> None:
        kinds = self.explorer.kinds(self.metric.value) if self.metric.value else {}
        self.put(
            self.kind,
            [(f"{name} ({n})", name) for name, n in kinds.items()],
            kind if kind in kinds else next(iter(kinds), None),
        )
        self.fill_items()

    def fill_items(self, item_id: str | None = None) -> None:
        rows = self.explorer.items(self.metric.value or "", self.kind.value or "", self.language.value or "")
        f = self.explorer.figure(self.metric.value) if self.metric.value else {"k": 0, "n": 0}
        more = f", the first {self.most} are listed" if len(rows) > self.most else ""
        self.said.value = f"<small>The figure: {f['k']} of {f['n']}. Listed: {len(rows)} item{'' if len(rows) == 1 else 's'}{more}.</small>"
        listed = list(rows[: self.most])
        if item_id is not None and all(r["id"] != item_id for r in listed):
            listed.insert(0, self.explorer.item(item_id))
        self.put(
            self.items,
            [(short(f"{r['unit']} {r['fact']}  {r['about']}: {r['text']}"), r["id"]) for r in listed],
            item_id or (listed[0]["id"] if listed else None),
        )
        self.fill_leads()

    def fill_leads(self) -> None:
        found = leads(self.explorer, self.items.value) if self.items.value else []
        names = {"utterance": "utterance", "memory": "stored", "fact": "ledger"}
        self.put(
            self.look,
            [
                ("the case", ("case", "")),
                *[(short(f"{names[kind]} {key}: {words}"), (kind, key)) for kind, key, words in found],
            ],
            ("case", ""),
        )
        self.fill_back()

    def fill_back(self) -> None:
        """Where the view leads back to: the items that the utterance, memory or fact has a part in."""
        x, (kind, key) = self.explorer, self.look.value
        item = x.item(self.items.value) if self.items.value else None
        back = (
            []
            if item is None or x.track != "kioku"
            else x.of_fact(item["unit"], item["fact"])
            if kind == "case"
            else items_about(x, item["unit"], kind, key)
        )
        self.put(
            self.about,
            [
                (f"{len(back)} item{'' if len(back) == 1 else 's'} about it", ""),
                *[(short(f"{i['fact']} {i['metric'].replace('_', ' ')}: {i['kind']}"), i["id"]) for i in back],
            ],
            "",
        )
        self.show()

    def show(self) -> None:
        x, (kind, key) = self.explorer, self.look.value
        if not self.items.value:
            self.shown.value = wrapped("<p>No item of this kind.</p>")
        elif kind != "case":
            self.shown.value = wrapped(look_html(x, x.item(self.items.value)["unit"], kind, key))
        elif self.beside.value:
            other = open_run(self.beside.value)
            beside = other.at(x.route) if x.route in other.routes else None
            self.shown.value = wrapped(
                side_by_side(
                    x, beside, self.items.value, f"{other.name} was not run on route {x.route or 'of this track'}."
                )
            )
        else:
            self.shown.value = wrapped(case_html(x, self.items.value))

    def go(self) -> None:
        """Back to another item: its metric is chosen, everything is listed, and the item in it."""
        target = self.explorer.item(self.about.value) if self.about.value else None
        if target is None:
            return
        self.put(self.metric, self.metric.options, target["metric"])
        self.put(self.language, self.language.options, "")
        kinds = self.explorer.kinds(target["metric"])
        self.put(self.kind, [(f"{name} ({n})", name) for name, n in kinds.items()], target["kind"])
        self.fill_items(target["id"])

    def keep(self) -> None:
        from markupsafe import escape

        if self.items.value:
            path = save_note(self.notes, self.explorer, self.items.value, self.note.value)
            self.saved.value, self.note.value = f"<small>saved to {escape(str(path))}</small>", ""


def panel(
    root: str | Path, notes: str | Path, *, run: str = "", metric: str = "old_version_kept", most: int = 200
) -> Any:
    """The explorer as ipywidgets: run, second run, route, metric, kind, language, list, case, what it leads to, the way
    back, note. InputError where there is no run."""
    found = runs(root)
    if not found:
        raise InputError("there is no finished run to explore", str(root), "Make some first: make kioku")
    made = Panel(found, notes, run, metric, most)
    made.box.panel = made  # lives as long as its box
    return made.box


# --- opened -------------------------------------------------------------------------------------------------------


def command(notebook: str | Path, *, voila: bool) -> list[str]:
    """The command that opens a notebook: in JupyterLab, or by Voila as a page of its own, without code. Both listen on
    127.0.0.1 alone and ask for a token."""
    if not voila:
        return [sys.executable, "-m", "jupyterlab", str(notebook)]
    # a first look at many personas takes longer than Voila waits by default; no extension of a notebook server is
    # needed
    return [
        sys.executable,
        "-m",
        "voila",
        str(notebook),
        "--Voila.auto_token=True",
        "--Voila.ip=127.0.0.1",
        "--strip_sources=True",
        "--theme=light",
        "--template=kiokulab",
        "--show_tracebacks=True",
        "--VoilaExecutor.timeout=600",
    ]


def surroundings() -> dict[str, str]:
    """The environment of `command`: this process's, and where Voila finds the template that asks nothing of other
    machines."""
    from kiokulab.page import HERE

    return {
        **os.environ,
        "JUPYTER_PATH": os.pathsep.join(filter(None, [str(HERE / "jupyter"), os.environ.get("JUPYTER_PATH")])),
    }


def main(name: str = "explore.ipynb") -> None:
    """Open a notebook of the checkout; VOILA=1 in the environment serves it as a page."""
    from kiokulab.params import root

    chosen = os.environ.get("VOILA", "")
    if chosen not in ("", "0", "1"):
        raise InputError(f"VOILA is 1 or nothing, not {chosen!r}", "VOILA", "make explore VOILA=1")
    os.execve(sys.executable, command(root() / "notebooks" / name, voila=chosen == "1"), surroundings())


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

"""From a figure to the item, its verdict, the stored memory, the utterance and the ledger fact, and back.

`Explorer` reads one finished run once and answers from indexes: `items` lists what a metric counted, `case` follows one of them
forward, `of_utterance`, `of_memory` and `of_fact` lead back. All of it is plain data; `panel` draws widgets around it, and
`html` the same without any. The second question is answered from memory (1,000 personas: milliseconds).

The kioku track has the whole way. For the other tracks an item leads to its question, its verdict and why, and to the rows of
the run about it.
"""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    "old_version_kept": {"old version kept": "an older version is stored as if it were true", "old version told as past": "an older version can still be read, as a past state"},
    "forget_violation": {"forgotten content kept": "asked to be forgotten, still stored"},
    "check_questions": {"wrong answer": "the question is answered wrong", "stale answer": "the question is answered with an older version",
                        "no answer": "the question is not answered, although it is about a true fact"},
    "noise": {"noise": "a stored sentence that states no fact"},
    "language_mismatch": {"other language": "a stored sentence in another language than the conversation's"},
}
RIGHT, UNJUDGED = "as it should be", "not judged"


@functools.lru_cache(maxsize=8)
def open_run(folder: str) -> "Explorer":
    """The explorer of a run folder, kept: the second look costs nothing."""
    return Explorer(folder)


def runs(root: str | Path) -> list[dict[str, str]]:
    """Finished runs under `root`: [{'track', 'edition', 'system', 'run', 'folder', 'label'}], published copies once."""
    from kiokulab.site import opened

    found: dict[str, dict[str, str]] = {}
    for path in sorted(Path(root).rglob("receipt.json"), key=lambda p: ("published" in p.relative_to(root).parts, str(p))):
        receipt = read_receipt(path.parent)
        if receipt is None or receipt.status not in ("finished", "units_failed"):
            continue
        name = f"{receipt.track} {receipt.edition} {receipt.system} {receipt.run[:6]}"
        if name not in found:
            folder = path.parent if (path.parent / "judgements.jsonl").is_file() else opened(path.parent)
            found[name] = {"track": receipt.track, "edition": receipt.edition, "system": receipt.system, "run": receipt.run, "folder": str(folder), "label": name}
    return [found[name] for name in sorted(found)]


class Explorer:
    """One run, indexed. Raises InputError where the folder holds no finished run or a file is torn."""

    def __init__(self, folder: str | Path):
        self.folder, receipt = Path(folder), read_receipt(folder)
        if receipt is None:
            raise InputError("there is no run here", str(folder), "Give a folder outputs/<track>/<edition>/<system>/<run-id>")
        self.track, self.system, self.run = receipt.track, receipt.system, receipt.run
        self.name = f"{receipt.system} · {receipt.edition} · {receipt.run[:6]}"
        self.metrics_file = json.loads((self.folder / "metrics.json").read_bytes())
        self.list: list[dict[str, Any]] = []
        self._figures: dict[str, dict[str, int]] = {}
        (self._index_kioku if self.track == "kioku" else self._index_plain)()
        self.by_id = {item["id"]: item for item in self.list}
        self._groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        for item in self.list:
            for kind in (item["kind"], "every failure" if item["good"] is False else None, "everything"):
                if kind is not None:
                    for language in {item["language"], ""}:
                        self._groups[item["metric"], kind, language].append(item)

    # --- lists ---------------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> list[str]:
        """Metrics that have items, in order of first appearance."""
        return list(dict.fromkeys(item["metric"] for item in self.list))

    @property
    def languages(self) -> list[str]:
        return sorted({item["language"] for item in self.list} - {""})

    def kinds(self, metric: str) -> dict[str, int]:
        """Kind -> how many items of the metric: every failure first, then each kind of it, what is as it should be, all."""
        counts = {kind: len(rows) for (m, kind, language), rows in self._groups.items() if m == metric and language == ""}
        return {kind: counts[kind] for kind in sorted(counts, key=lambda k: (k != "every failure", k in (RIGHT, UNJUDGED), k == "everything", k))}

    def items(self, metric: str, kind: str = "every failure", language: str = "") -> Sequence[dict[str, Any]]:
        """Items of a metric: [{'id', 'metric', 'kind', 'good', 'unit', 'persona', 'language', 'fact', 'about', 'text'}]; `good` is
        None where the judge did not answer. An unknown name gives no item."""
        return self._groups.get((metric, kind, language), [])

    def figure(self, metric: str) -> dict[str, Any]:
        """k, n and not judged of a metric, counted from the items: what metrics.json must say as well (k counts hits: of
        `recall` the right ones, of `noise` the noisy ones)."""
        if metric in self._figures:
            return self._figures[metric]
        rows = self.items(metric, "everything")
        judged = [r for r in rows if r["good"] is not None]
        lower = self.track == "kioku" and metric not in ("recall", "update_applied", "check_questions")
        self._figures[metric] = {"k": sum(r["good"] is not lower for r in judged), "n": len(judged), "not_judged": len(rows) - len(judged)}
        return self._figures[metric]

    # --- kioku ---------------------------------------------------------------------------------------------------

    def _index_kioku(self) -> None:
        from kiokulab.kioku import analyze

        self.analyze = analyze
        rows, personas, events, _ = analyze.load(self.folder)
        self.personas = {p.id: p for p in personas}
        self.units = {u.name: u for u in analyze.units_of(rows, personas)}
        self.route = self.metrics_file["route"]
        self.memories: dict[str, dict[str, dict]] = defaultdict(dict)
        for _, memory in iterate_jsonl(self.folder / "memories.jsonl"):
            self.memories[memory["unit"]][memory["id"]] = memory
        self.contexts = {(c["unit"], c["fact"]): c for _, c in iterate_jsonl(self.folder / "contexts.jsonl")} if (self.folder / "contexts.jsonl").exists() else {}
        self.calls: dict[str, list[dict]] = defaultdict(list)
        for event in events:
            if event["op"] in ("ingest", "forget"):
                self.calls[event["unit"]].append(event)
        self.sentences = {name: {r["id"]: r for r in unit.sentences} for name, unit in self.units.items()}
        self.facts = {p.id: {f.id: f for f in p.facts} for p in personas}
        for name, unit in self.units.items():
            if unit.route == self.route:
                self._items_of(name, unit)

    def _items_of(self, name: str, unit: Any) -> None:
        person, facts = unit.persona, self.facts[unit.persona.id]
        for metric, fact_id, hit in unit.items("page"):
            fact = facts[fact_id]
            good = None if hit is None else hit if metric in self.analyze.HIGHER else not hit
            self.list.append(self._item(metric, person, name, fact_id, good, self._kind(metric, unit, fact, good), fact.slot, fact.versions[-1].text))
        for row in unit.sentences:
            if row["layer"] in self.analyze.SCOPES["page"] and not unit.unreadable:
                good = bool(row["states"]) if row["judged"] else None
                self.list.append(self._item("noise", person, name, row["id"], good, RIGHT if good else UNJUDGED if good is None else "noise", row["memory"], row["text"]))
                if row["language"] != "und":
                    good = row["language"] == person.language
                    self.list.append(self._item("language_mismatch", person, name, row["id"], good, RIGHT if good else "other language", row["memory"], row["text"]))

    @staticmethod
    def _item(metric: str, person: Any, unit: str, what: str, good: bool | None, kind: str, about: str, text: str) -> dict[str, Any]:
        return {"id": f"{metric}:{unit}:{what}", "metric": metric, "kind": kind, "good": good, "unit": unit, "persona": person.id, "language": person.language,
                "fact": what, "about": about, "text": text}

    def _kind(self, metric: str, unit: Any, fact: Any, good: bool | None) -> str:
        if good is None:
            return UNJUDGED
        if good:
            return RIGHT
        if metric == "check_questions":
            verdict = unit.answers[fact.id]["verdict"]
            return {"stale": "stale answer", "none": "no answer"}.get(verdict, "wrong answer")
        if metric == "old_version_kept":
            held = any(self.analyze._verdict(unit.versions.get((fact.id, v.n)), "page") == "held" for v in fact.versions[:-1])
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
        item = self.by_id.get(item_id)
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
            verdicts.append({"what": f"version {version.n}", "verdict": row["verdict"] if row else "no row", "why": (row["reason"] or row["how"]) if row else "the judge left none",
                             "live": row["live"] if row else None, "sentences": list(row["sentences"]) if row else []})
            for name in row["sentences"] if row else []:
                memory = self._memory(unit_name, name)
                memories.setdefault(memory["id"], {**memory, "shows": []})["shows"].append(f"version {version.n}")
        answer = unit.answers.get(fact.id)
        if answer:
            said = answer["reason"] or ("not in memory" if answer["answer"] is None else f"said “{answer['answer']}”, expected “{answer['expected']}”")
            verdicts.append({"what": "answer", "verdict": answer["verdict"], "live": None, "sentences": [], "why": f"asked “{answer['question']}”, {said}"})
        context = self.contexts.get((unit_name, fact.id))
        return {"verdicts": verdicts, "memories": [{**m, "shows": ", ".join(m["shows"])} for m in memories.values()], "utterances": self._utterances(unit.persona, fact),
                "ledger": [{"fact": fact.id, "slot": fact.slot, "version": v.n, "text": v.text, "from": v.valid_from, "until": v.valid_to} for v in fact.versions],
                "forget": fact.forget, "question": fact.question.text, "expected": fact.question.answer, "context": [i["text"] for i in context["items"]] if context else []}

    def _sentence(self, item: Mapping[str, Any]) -> dict[str, Any]:
        row = self.sentences[item["unit"]][item["fact"]]
        person = self.units[item["unit"]].persona
        facts = dict.fromkeys(name.split(".")[0] for name in row["states"])
        said = [u for u in self._turns(person) if row["text"].strip() and (row["text"].strip() in u["text"] or u["text"] in row["text"])]
        why = row["reason"] or (f"states {', '.join(row['states'])}" if row["states"] else "it states no fact of the ledger")
        return {"verdicts": [{"what": "sentence", "verdict": item["kind"], "why": f"{why}; language {row['language']}", "live": row["layer"], "sentences": [row["id"]]}],
                "memories": [{**self._memory(item["unit"], row["id"]), "shows": "this sentence"}], "utterances": said[:6],
                "ledger": [line for fact in facts for line in self._fact(item["unit"], fact)["ledger"]], "forget": None, "question": None, "expected": None, "context": []}

    def _memory(self, unit: str, sentence: str) -> dict[str, Any]:
        row = self.sentences[unit].get(sentence)
        memory = self.memories[unit].get(row["memory"] if row else sentence.rpartition("#")[0], {})
        return {"id": memory.get("id", row["memory"] if row else sentence), "layer": memory.get("layer", row["layer"] if row else "?"), "source": memory.get("source"),
                "created": memory.get("created"), "text": memory.get("text", row["text"] if row else "")}

    @functools.lru_cache(maxsize=4096)
    def _turns_of(self, persona: str) -> tuple[dict[str, Any], ...]:
        return tuple({"id": f"{s.id}.t{n:02d}", "session": s.id, "date": s.date[:10], "role": t.role, "kind": t.kind, "text": t.text, "states": tuple(t.states), "of": t.of}
                     for s in self.personas[persona].sessions for n, t in enumerate(s.turns, 1))

    def _turns(self, person: Any) -> tuple[dict[str, Any], ...]:
        return self._turns_of(person.id)

    def _utterances(self, person: Any, fact: Any) -> list[dict[str, Any]]:
        names = {f"{fact.id}.{v.n}" for v in fact.versions}
        return [u for u in self._turns(person) if set(u["states"]) & names or (u["of"] == fact.id and u["kind"] in ("change", "forget", "near_miss"))]

    # and back

    def of_fact(self, unit: str, fact: str) -> list[dict[str, Any]]:
        """Items of every metric about one fact."""
        return [self.by_id[f"{m}:{unit}:{fact}"] for m in self.metrics if f"{m}:{unit}:{fact}" in self.by_id]

    def of_utterance(self, unit: str, turn: str) -> dict[str, Any]:
        """{'utterance', 'facts': ids of what it states or is about, 'items', 'memories' that show them, 'change' of the store}."""
        person = self.units[unit].persona
        said = next((u for u in self._turns(person) if u["id"] == turn), None)
        if said is None:
            raise InputError(f"{person.id} has no utterance {turn!r}", str(self.folder))
        facts = list(dict.fromkeys([*(s.split(".")[0] for s in said["states"]), *([said["of"]] if said["of"] else [])]))
        facts = [f for f in facts if f in self.facts[person.id]]
        memories = {m["id"]: m for f in facts for m in self._fact(unit, f)["memories"]}
        return {"utterance": said, "facts": facts, "items": [i for f in facts for i in self.of_fact(unit, f)], "memories": list(memories.values()), "change": self.change(unit, turn)}

    def of_memory(self, unit: str, memory: str) -> dict[str, Any]:
        """{'memory', 'sentences', 'facts', 'items'} of one stored text."""
        rows = [r for r in self.sentences[unit].values() if r["memory"] == memory]
        facts = list(dict.fromkeys(s.split(".")[0] for r in rows for s in r["states"]))
        return {"memory": self.memories[unit].get(memory), "sentences": rows, "facts": facts, "items": [i for f in facts for i in self.of_fact(unit, f)]}

    def change(self, unit: str, turn: str) -> dict[str, Any]:
        """What the call that held an utterance did to the store: {'call', 'added', 'changed', 'removed' as told, 'seen', 'gone'
        texts, 'came' texts}. `came` are the memories that carry the call's own date or id; a system that keeps neither shows none."""
        session = turn.split(".")[0]
        # the call is the utterance itself, its pair, or its whole session, as the system is fed
        calls = [c for c in self.calls[unit] if c["item"] in (turn, session)] or [c for c in self.calls[unit] if (c["item"] or "").startswith(session + ".") and c["item"] <= turn][-1:]
        if not calls:
            return {"call": None, "reason": "no call of this run held the utterance alone (another route, or it was not recorded)"}
        call = calls[0]
        person = self.units[unit].persona
        said = next(u for u in self._turns(person) if u["id"] == turn)
        came = [m for m in self.memories[unit].values() if said["text"] and (said["text"] in m["text"] or (m["text"] and m["text"] in said["text"]))]
        looked = next((c for c in self.calls[unit] if c["seq"] >= call["seq"] and "observed" in c["detail"]), None)
        return {"call": call["item"], "status": call["status"], "added": call["added"], "changed": call["changed"], "removed": call["removed"], "warnings": call["warnings"],
                "seen": looked["detail"]["observed"] if looked else None, "over": looked["detail"].get("over") if looked else None,
                "gone": [g["text"] for g in (looked["detail"].get("gone") or [])] if looked else [], "came": [m["text"] for m in came]}

    # --- the other tracks ----------------------------------------------------------------------------------------

    def _index_plain(self) -> None:
        rows = read_jsonl(self.folder / "judgements.jsonl")
        if self.track == "drift":
            for n, r in enumerate(r for r in rows if r["kind"] == "task"):
                good = r["passed"] is True
                kind = RIGHT if good else "not attempted" if r["passed"] is None else re.sub(r"\d+", "n", plain(r["why"], 80)) or "failed"
                self._plain(r["family"], f"{r['unit']}/{r['id']}/{n}", r, good, kind, r["unit"].split("-")[0], r["family"], r["asked"])
        elif self.track == "emem":
            for n, r in enumerate(rows):
                self._plain(r["axis"], f"{r['id']}/{n}", r, bool(r["correct"]), RIGHT if r["correct"] else plain(r["why"], 60), "", r["id"], r.get("why") or "")
        else:
            for n, r in enumerate(r for r in rows if r.get("kind") == "answer"):
                good = None if r["verdict"] == "not_judged" else r["verdict"] == "right"
                self._plain(r["type"], f"{r['id']}/{n}", r, good, UNJUDGED if good is None else RIGHT if good else "no answer" if r.get("missing") else "wrong", "", r["type"], str(r.get("answer") or ""))

    def _plain(self, metric: str, what: str, row: dict, good: bool | None, kind: str, language: str, about: str, text: Any) -> None:
        self.list.append({"id": f"{metric}:{what}", "metric": metric, "kind": kind, "good": good, "unit": row.get("unit", ""), "persona": "", "language": language if language in ("en", "ja") else "",
                          "fact": str(row.get("id")), "about": about, "text": str(text), "row": row})

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
    return environment().get_template("case.html").render(c=case, x=explorer, link=link or (lambda kind, key: None), KINDS=KINDS, rows=_short_rows(case.get("rows", {})))


def _short_rows(rows: Mapping[str, Sequence[Mapping]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(name, [(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for key, value in row.items()]) for name, some in rows.items() for row in some[:3]]


def side_by_side(first: Explorer, second: Explorer, item_id: str) -> str:
    """The same case of two systems, beside one another; a system that has no such item says so."""
    parts = []
    for explorer in (first, second):
        body = case_html(explorer, item_id) if item_id in explorer.by_id else "<p>This run counts no such item.</p>"
        from markupsafe import escape

        parts.append(f'<section><h3>{escape(plain(explorer.name, 80))}</h3>{body}</section>')
    return f'<div class="sides">{"".join(parts)}</div>'


def same_cases(first: Explorer, second: Explorer, metric: str) -> list[dict[str, Any]]:
    """Items of a metric that one of two runs has right and the other has not: [{'id', 'about', 'text', 'first', 'second'}]."""
    return [{"id": i["id"], "about": i["about"], "text": i["text"], "first": i["kind"], "second": other["kind"]}
            for i in first.items(metric, "everything") if (other := second.by_id.get(i["id"])) is not None and other["good"] != i["good"]]


def save_note(path: str | Path, explorer: Explorer, item_id: str, note: str) -> Path:
    """Append a case and what a person says of it to a notes file (markdown, one section a case); returns its path."""
    path, case = Path(path), explorer.case(item_id)
    item = case["item"]
    lines = [f"## {explorer.track} {explorer.name}: {item['id']}", "", f"- run: {explorer.folder.name}", f"- kind: {item['kind']}", f"- about: {item['about']}: {_line(item['text'])}"]
    lines += [f"- {v['what']}: {v['verdict']} ({_line(v['why'])})" for v in case.get("verdicts", [])]
    lines += [f"- stored ({m['layer']}, {m['shows']}): {_line(m['text'])}" for m in case.get("memories", [])[:5]]
    lines += [f"- said {u['id']}, {u['date']} ({u['kind']}): {_line(u['text'])}" for u in case.get("utterances", [])[:5]]
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


def panel(root: str | Path, notes: str | Path, *, run: str = "", metric: str = "old_version_kept", most: int = 200) -> Any:
    """The explorer as ipywidgets: run, second run, metric, kind, language, list, case, note. InputError where there is no run."""
    import ipywidgets as w

    found = runs(root)
    if not found:
        raise InputError("there is no finished run to explore", str(root), "Make some first: make kioku")
    options = [(r["label"], r["folder"]) for r in found]
    start = next((folder for label, folder in options if run and run in label), options[0][1])
    wide, style = w.Layout(width="100%"), {"description_width": "7em"}
    first = w.Dropdown(options=options, value=start, description="Run", layout=wide, style=style)
    second = w.Dropdown(options=[("none", ""), *options], value="", description="Beside it", layout=wide, style=style)
    metric_box = w.Dropdown(options=[], description="Metric", layout=wide, style=style)
    kind_box = w.Dropdown(options=[], description="Kind", layout=wide, style=style)
    language = w.ToggleButtons(options=[("all", "")], description="Language", style={"button_width": "5em", "description_width": "7em"})
    listed = w.Select(options=[], rows=10, description="Items", layout=wide, style=style)
    said, shown = w.HTML(), w.HTML()
    note = w.Textarea(placeholder="what you see in this case", rows=2, layout=wide, description="Note", style=style)
    save = w.Button(description="Save case", icon="pencil", tooltip=f"append to {notes}")
    saved = w.HTML()
    busy = {"on": False}

    def fill_metrics(*_: Any) -> None:
        busy["on"] = True
        explorer = open_run(first.value)
        metric_box.options = explorer.metrics
        metric_box.value = metric if metric in explorer.metrics else next(iter(explorer.metrics), None)
        language.options = [("all", ""), *[(x, x) for x in explorer.languages]]
        busy["on"] = False
        fill_kinds()

    def fill_kinds(*_: Any) -> None:
        if busy["on"]:
            return
        busy["on"] = True
        kinds = open_run(first.value).kinds(metric_box.value)
        kind_box.options = [(f"{kind} ({n})", kind) for kind, n in kinds.items()]
        kind_box.value = next(iter(kinds), None)  # a list that was empty before chooses nothing by itself
        busy["on"] = False
        fill_items()

    def fill_items(*_: Any) -> None:
        if busy["on"]:
            return
        busy["on"] = True
        rows = open_run(first.value).items(metric_box.value, kind_box.value or "", language.value or "")
        said.value = f"<small>{len(rows)} items{f', the first {most} are listed' if len(rows) > most else ''}</small>"
        listed.options = [(plain(f"{r['unit']} {r['fact']}  {r['about']}: {r['text']}", 110).replace("\n", " "), r["id"]) for r in rows[:most]]
        listed.value = rows[0]["id"] if rows else None
        busy["on"] = False
        show()

    def show(*_: Any) -> None:
        if busy["on"]:
            return
        explorer = open_run(first.value)
        if not listed.value:
            shown.value = wrapped("<p>No item of this kind.</p>")
        elif second.value:
            shown.value = wrapped(side_by_side(explorer, open_run(second.value), listed.value))
        else:
            shown.value = wrapped(case_html(explorer, listed.value))

    def keep(*_: Any) -> None:
        from markupsafe import escape

        if listed.value:
            path = save_note(notes, open_run(first.value), listed.value, note.value)
            saved.value, note.value = f"<small>saved to {escape(str(path))}</small>", ""

    first.observe(fill_metrics, "value")
    metric_box.observe(fill_kinds, "value")
    kind_box.observe(fill_items, "value")
    language.observe(fill_items, "value")
    listed.observe(show, "value")
    second.observe(show, "value")
    save.on_click(keep)
    fill_metrics()
    left = w.VBox([first, second, metric_box, kind_box, language, said, listed, note, w.HBox([save, saved])], layout=w.Layout(width="34%", min_width="22em"))
    return w.HBox([left, w.VBox([shown], layout=w.Layout(width="64%"))], layout=w.Layout(width="100%", justify_content="space-between"))

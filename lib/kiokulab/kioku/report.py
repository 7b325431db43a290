"""The run as a page: report.html, self-contained, and the same parts one by one for the notebooks.

Everything a memory system, a model or a dataset wrote is hostile here: it is escaped by the template, its control
characters, direction marks and lone surrogates are shown as signs, and a long text is cut with a note of its length.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiokulab.files import read_jsonl, write_atomic
from kiokulab.kioku import ANCHORS, RULES_VERSION, analyze
from kiokulab.kioku.records import Persona
from kiokulab.page import css, data_uri, image, plain, table, with_font  # noqa: F401 - the notebooks call table

HERE = Path(__file__).resolve().parent
ROUTE_NAMES = {"raw": "Raw conversation", "requests": "Requests", "signaled": "Change signaled", "baseline": "Baseline"}
LANGUAGES = {"en": "English", "ja": "Japanese"}
SETS = {
    **LANGUAGES,
    "v1-en": "English, stored by systems from v1, and rewordings",
    "v1-ja": "Japanese, stored by systems from v1, and rewordings",
}
HINTS = {  # what a metric counts, in the words of this kit
    "recall": "facts true at the end whose current version is stored",
    "update_applied": "changed facts whose new version is stored",
    "old_version_kept": "changed facts whose older version is still stored",
    "forget_violation": "facts asked to be forgotten, still stored",
    "noise": "stored sentences that state no fact",
    "language_mismatch": "stored sentences in another language than the conversation's",
    "check_questions": "check questions answered right from 1,000 tokens of memory",
    "compression": "characters of memory / of the ledger",
}
KINDS = {
    "stale": "an older version is still stored",
    "leaked": "asked to be forgotten, still stored",
    "missed": "the current version is not stored",
    "answer_stale": "the question is answered with an older version",
    "answer_leaked": "the question brings back forgotten content",
    "answer_wrong": "the question is answered wrong",
    "answer_none": "the question is not answered, although asked about a true fact",
    "cascade": "another change made it out of date, though nobody said so, and it is still stored (in no metric, counted apart)",
}


# --- what a report tells about ------------------------------------------------------------------------------------


@dataclass
class Story:
    """All that a report is made of."""

    folder: Path
    params: Any
    metrics: Mapping[str, Any]
    comparison: Mapping[str, Any]
    personas: Sequence[Persona]
    units: Sequence[analyze.Unit]
    memories: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (unit, memory id) -> text
    contexts: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)  # (unit, fact) -> row

    @property
    def systems(self) -> list[dict[str, Any]]:
        """One entry a system and route of this run's table: {'label', 'system', 'route', 'part', 'mine', 'anchor'}."""
        result = []
        for entry in self.comparison["systems"]:
            for route, part in self.comparison["metrics"][entry["label"]]["by_route"].items():
                if route in self.metrics["by_route"]:
                    result.append({**entry, "route": route, "part": part, "anchor": entry["system"] in ANCHORS})
        return result


def open_run(folder: str | Path, params: Any) -> Story:
    """Everything of an analysed run folder. InputError where one of its files is missing or torn."""
    folder = Path(folder)
    rows, personas, _, _ = analyze.load(folder)
    memories = read_jsonl(folder / "memories.jsonl") if (folder / "memories.jsonl").exists() else []
    contexts = read_jsonl(folder / "contexts.jsonl") if (folder / "contexts.jsonl").exists() else []
    return Story(
        folder,
        params,
        json.loads((folder / "metrics.json").read_bytes()),
        json.loads((folder / "comparison.json").read_bytes()),
        personas,
        analyze.units_of(rows, personas),
        {(m["unit"], m["id"]): m["text"] for m in memories},
        {(c["unit"], c["fact"]): c for c in contexts},
    )


def fates(units: Sequence[analyze.Unit], route: str) -> dict[str, dict[str, str]]:
    """{persona: {fact: what became of it}}, the words of plots.FATES."""
    some = sorted((u for u in units if u.route == route and not u.unreadable), key=lambda u: u.persona.id)
    return {u.persona.id: {f.id: fate(u, f) for f in u.persona.facts} for u in some}


def fate(unit: analyze.Unit, fact: Any) -> str:
    """held, missed, stale (an older version is kept, whether or not the new one is), leaked, forgotten or not
    judged."""
    if fact.forget is not None:
        kept = analyze.content_kept(fact, unit.versions)
        return "not judged" if kept is None else "leaked" if kept else "forgotten"
    if not fact.lasts:  # out of date by another change: right is that it is gone
        kept = analyze.content_kept(fact, unit.versions)
        return "not judged" if kept is None else "stale" if kept else "forgotten"
    held, older = analyze.current_held(fact, unit.versions), analyze.older_kept(fact, unit.versions)
    if older:
        return "stale"
    if held is None or older is None:
        return "not judged"
    return "held" if held else "missed"


def failure_cases(story: Story, limit: int = 10) -> list[dict[str, Any]]:
    """Up to `limit` failures of this run in full, taken in turn from every kind and language, and from personas evenly,
    so that ten cases show what there is and not ten times the commonest. The same run gives the same cases."""
    found: dict[tuple[str, str], list[tuple]] = {}
    for unit in story.units:
        for fact in unit.persona.facts:
            for kind in _failures(unit, fact):
                found.setdefault((kind, unit.persona.language), []).append((unit, fact))
    queues = [(key, found[key]) for key in sorted(found, key=lambda key: (list(KINDS).index(key[0]), key[1]))]
    cases, seen, used = [], set(), Counter()
    while len(cases) < limit and any(queue for _, queue in queues):
        for (kind, _), queue in queues:
            queue[:] = [(u, f) for u, f in queue if (u.name, f.id) not in seen]
            if queue and len(cases) < limit:
                unit, fact = queue.pop(min(range(len(queue)), key=lambda i: (used[queue[i][0].persona.id], i)))
                seen.add((unit.name, fact.id))
                used[unit.persona.id] += 1
                cases.append(_case(story, unit, fact, kind))
    return cases


def _failures(unit: analyze.Unit, fact: Any) -> list[str]:
    kinds = []
    what = fate(unit, fact) if not unit.unreadable else "held"
    if fact.cascade is not None:  # what a memory may do with such a fact is reported apart, and so are its cases
        return ["cascade"] if what == "stale" else []
    if what in ("stale", "leaked", "missed"):
        kinds.append(what)
    row = unit.answers.get(fact.id)
    verdict = row["verdict"] if row else None
    if verdict in ("stale", "leaked", "wrong", "none") and not (what == "missed" and verdict == "none"):
        kinds.append(f"answer_{verdict}")
    return kinds


def _case(story: Story, unit: analyze.Unit, fact: Any, kind: str) -> dict[str, Any]:
    """fact -> utterance -> what is stored -> question -> answer, as plain texts."""
    dates = {s.id: s.date[:10] for s in unit.persona.sessions}
    names = {f"{fact.id}.{v.n}" for v in fact.versions}
    said = [
        {"session": s.id, "date": dates[s.id], "kind": t.kind, "text": t.text}
        for s in unit.persona.sessions
        for t in s.turns
        if set(t.states) & names or (t.of == fact.id and t.kind in ("change", "forget"))
    ]
    texts = {r["id"]: r for r in unit.sentences}
    stored = []
    for version in fact.versions:
        row = unit.versions.get((fact.id, version.n))
        for name in (row["sentences"] if row else [])[:4]:
            sentence = texts.get(name)
            if sentence is not None:
                stored.append(
                    {
                        "version": version.n,
                        "layer": sentence["layer"],
                        "sentence": sentence["text"],
                        "memory": story.memories.get((unit.name, sentence["memory"]), sentence["text"]),
                    }
                )
    answer = unit.answers.get(fact.id)
    context = story.contexts.get((unit.name, fact.id))
    return {
        "kind": kind,
        "why": KINDS[kind],
        "unit": unit.name,
        "route": unit.route,
        "persona": unit.persona.id,
        "language": unit.persona.language,
        "fact": fact.id,
        "slot": fact.slot,
        "change": fact.change,
        "versions": [
            {
                "n": v.n,
                "text": v.text,
                "from": dates.get(v.valid_from, v.valid_from),
                "verdict": (unit.versions.get((fact.id, v.n)) or {}).get("verdict", "no row"),
                "how": (unit.versions.get((fact.id, v.n)) or {}).get("how"),
            }
            for v in fact.versions
        ],
        "forget": dates.get(fact.forget, fact.forget) if fact.forget else None,
        "said": said,
        "stored": stored,
        "question": fact.question.text,
        "expected": fact.question.answer,
        "answer": answer["answer"] if answer else None,
        "verdict": answer["verdict"] if answer else "no row",
        "context": [item["text"] for item in (context["items"] if context else [])[:2]],
        "context_note": None if context is None or context["status"] == "ok" else context["reason"],
    }


# --- tables -------------------------------------------------------------------------------------------------------


def best(entries: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Metric -> labels with the best value of a route's systems. Oracle and null do not compete: one knows the answers,
    the other stores nothing; fewer than two others give no best."""
    others = [e for e in entries if e["system"] not in ("oracle", "null")]
    result: dict[str, set[str]] = {}
    if len(others) < 2:
        return result
    for name in (*analyze.METRICS, "index"):
        values = {
            e["label"]: e["part"]["index"]["value"] if name == "index" else e["part"]["metrics"][name]["rate"]
            for e in others
        }
        values = {label: value for label, value in values.items() if value is not None}
        if values:
            if name == "compression":  # closer to 1 is better, and below 1 counts as 1
                values = {label: max(value, 1) for label, value in values.items()}
            top = (max if name in analyze.HIGHER or name == "index" else min)(values.values())
            if len(set(values.values())) > 1:  # where all are alike, nobody is best
                result[name] = {label for label, value in values.items() if value == top}
    return result


def by_route(story: Story) -> list[dict[str, Any]]:
    """[{'route', 'title', 'rows': [entry with 'best': names of its best metrics]}], as the page's table is grouped."""
    result = []
    for route in story.metrics["by_route"]:
        entries = sorted((e for e in story.systems if e["route"] == route), key=_order)
        tops = best(entries)
        rows = [{**e, "best": {name for name, labels in tops.items() if e["label"] in labels}} for e in entries]
        result.append({"route": route, "title": ROUTE_NAMES.get(route, route), "rows": rows})
    return result


def _order(entry: Mapping[str, Any]) -> tuple:
    value = entry["part"]["index"]["value"]
    return (entry["system"] in ANCHORS, -(value if value is not None else -1), entry["label"])


def conditions(story: Story) -> list[tuple[str, str]]:
    """How this run was made, as the page states its conditions."""
    p, m = story.params, story.metrics
    receipt = _json(story.folder / "receipt.json")
    system = (receipt.get("versions") or {}).get("system") or {}
    given = ", ".join(f"{k} = {v}" for k, v in sorted((p.settings or {}).items())) or "the adapter's own defaults"
    opened = next((e for e in _events(story.folder) if e["op"] == "open"), {"detail": {}})["detail"]
    people = Counter(x.language for x in story.personas)
    facts = sum(len(x.facts) for x in story.personas)
    rows = [
        ("System", f"{m['system']} {system.get('version') or ''}".strip() + f"; settings: {given}"),
        (
            "What one call receives",
            f"{opened.get('feeds', 'not recorded')}; dates reach it as: {opened.get('dates', 'not recorded')}",
        ),
        (
            "Edition",
            f"{p.edition}: {len(story.personas)} personas ({', '.join(f'{n} {LANGUAGES.get(k, k)}' for k, n in sorted(people.items()))}), "
            f"{facts} facts, {sum(f.change != 'none' for x in story.personas for f in x.facts)} that change, "
            f"{sum(f.forget is not None for x in story.personas for f in x.facts)} that are to be forgotten",
        ),
        *_edition(p.edition),
        ("Routes", f"{', '.join(m['by_route'])}; routing of forget requests: {p.routing}"),
        (
            "Judge",
            f"{m['judge']['name']}, version {m['judge']['version']}; rules of the track: version {RULES_VERSION}",
        ),
        (
            "Answers",
            f"answerer {p.answerer}, graded by {p.grader}; {p.k} results asked for, cut to {p.budget_tokens:,} tokens "
            f"({opened.get('tokenizer', 'counter not recorded')})",
        ),
        ("Embedder", p.embedder),
        ("Index", f"floor {p.floor:g}; intervals by {p.bootstrap:,} bootstrap samples over personas, seed {p.seed}"),
        ("Models", ", ".join((receipt.get("versions") or {}).get("models") or []) or "no model was called"),
        ("Run", f"{story.folder.name}; who ran it is not recorded"),
    ]
    return rows


def _edition(name: str) -> list[tuple[str, str]]:
    try:
        from kiokulab.params import edition_folder

        folder = edition_folder("kioku", name)
        found = _json(folder / "edition.json")
        reviews = len(read_jsonl(folder / "reviews.jsonl")) if (folder / "reviews.jsonl").exists() else 0
    except Exception as error:  # a report of a run whose edition has been moved away is still a report
        return [("Dataset", f"edition.json could not be read ({type(error).__name__})")]
    return [
        (
            "Dataset",
            f"made by {found.get('generator')}, seed {found.get('seed')}; audit: {found.get('audit', {}).get('faults')} faults; "
            f"reviewed by people: {reviews} items ({found.get('reviewed_by_people')}); licence {found.get('licence')}",
        )
    ]


def limitations(story: Story) -> list[str]:
    """What a reader must know before quoting a figure, as the page states its limitations."""
    m, p = story.metrics, story.params
    missing = [r for r in analyze.ROUTES if r not in m["by_route"]]
    result = []
    if missing:
        result.append(f"Not run: route {', '.join(missing)}.")
    if p.routing == "none":
        result.append("Not run: routing of forget requests to the system's own forget call.")
    if p.personas:
        result.append(f"Only the first {p.personas} personas of the edition were run.")
    if m["units"]["failed"]:
        result.append(
            f"{len(m['units']['failed'])} of {m['units']['planned']} units failed and are in no figure: "
            + "; ".join(f"{u['unit']} ({u['reason']})" for u in m["units"]["failed"])
            + "."
        )
    lost = sum(f["not_judged"] for f in m["metrics"].values())
    if lost:
        result.append(
            f"{lost} judgements are missing; they are in no rate. With all of them as the worse case the index is {m['index']['worst']:.1f}."
        )
    if m["judge"]["name"] == "rules":
        result.append(
            "The judge works by rules on surface forms that came with the dataset. On wordings it has not seen it errs as its own "
            "measure says; it favours systems that keep wordings as they were."
        )
    if p.answerer == "extractive":
        result.append(
            "The answerer picks a sentence and writes none: check questions measure whether the context holds the answer."
        )
    result += [
        "One run on a few personas. Intervals over personas are wide, and with so few clusters they still come out too narrow.",
        "The dataset is synthetic, made from templates; no person has reviewed it unless the conditions above say so.",
        "An index is not comparable across editions or judges; published figures stand beside for orientation only.",
        "The index rewards forgetting on request and one language throughout; a system built for something else may do that better than this says.",
    ]
    if not story.comparison["checked"]:
        result.append("No oracle stood beside this run, so nothing here shows that the harness itself is sound.")
    return result


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}


def _events(folder: Path) -> list[dict[str, Any]]:
    return read_jsonl(folder / "events.jsonl") if (folder / "events.jsonl").exists() else []


# --- figures ------------------------------------------------------------------------------------------------------


def pictures(story: Story) -> dict[str, tuple[Callable[[], bytes], str]]:
    """Name -> (what draws it as PNG bytes, alt text) of the run's figures. Index and floors need a table that may be
    shown."""
    from kiokulab import plots

    route = story.metrics["route"]
    entries = sorted(
        (e for e in story.systems if e["route"] == route), key=lambda e: -(e["part"]["index"]["value"] or -1)
    )
    bars = [
        {"label": e["label"], "index": e["part"]["index"], "pillars": e["part"]["pillars"], "grey": e["anchor"]}
        for e in entries
    ]
    where = f"{Path(story.params.edition).name}, {ROUTE_NAMES.get(route, route).lower()}"
    made: dict[str, tuple[Callable[[], bytes], str]] = {}
    if not story.comparison["refused"]:
        said = "; ".join(f"{e['label']} {analyze.index_shown(e['part']['index'])}" for e in entries)
        made["index"] = (lambda: plots.index_bars(bars, note=where), f"Bars of the index with 95 % intervals: {said}.")
        said = "; ".join(
            f"{e['label']} "
            + ", ".join(f"{v:.1f} at {k}" for k, v in e["part"]["index"]["floors"].items() if v is not None)
            for e in entries
        )
        made["floors"] = (
            lambda: plots.floor_curves(bars, chosen=story.params.floor),
            f"Lines of the index against the floor: {said}.",
        )
    became = fates(story.units, route)
    counts = Counter(v for row in became.values() for v in row.values())
    said = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    title = f"What became of every fact · {story.metrics['system']}, {where}"
    made["fates"] = (
        lambda: plots.fate_map(became, title=title),
        f"Grid of {len(became)} personas by fact; {said or 'no store could be read'}.",
    )
    return made


# --- HTML ---------------------------------------------------------------------------------------------------------


@functools.cache
def _environment():
    from kiokulab.page import environment

    made = environment(str(HERE))
    made.filters.update(
        shown=lambda f, name: analyze.shown(name, f),
        counted=lambda f, name: plain(analyze.counted(name, f)),
        percent=lambda v: "n/a" if v is None else f"{100 * v:.1f}",
        index=analyze.index_shown,
    )
    made.globals.update(
        METRICS=analyze.METRICS,
        PILLARS=analyze.PILLARS,
        TITLES=analyze.TITLES,
        HINTS=HINTS,
        LANGUAGES=LANGUAGES,
        SETS=SETS,
        ROUTES=ROUTE_NAMES,
        HIGHER=analyze.HIGHER,
    )
    return made


def _context(story: Story, needed: set[str]) -> dict[str, Any]:
    from kiokulab.reproduce import published

    context: dict[str, Any] = {
        "m": story.metrics,
        "c": story.comparison,
        "p": story.params,
        "run": story.folder.name,
        "routes": by_route(story),
        "conditions": [],
        "limitations": [],
        "cases": [],
        "figures": {},
        "published": published(),
        "personas": story.personas,
        "css": css(),
    }
    if needed & {"conditions", "all"}:
        context |= {"conditions": conditions(story), "limitations": limitations(story)}
    if needed & {"cases", "all"}:
        context["cases"] = failure_cases(story)
    return context


def part(story: Story, name: str) -> str:
    """One part of the report as HTML for a notebook cell: routes, published, languages, cases, differences, beyond,
    judge, conditions. Raises KeyError for an unknown part."""
    template = _environment().get_template("report.html")
    context = template.new_context(_context(story, {name}))
    body = "".join(template.blocks[name](context))
    return f'<style>{css()}</style><div class="kiokulab cell">{body}</div>'


def write(folder: str | Path, params: Any) -> Path:
    """Write figures/*.png and report.html of an analysed run; returns the report's path."""
    story = open_run(folder, params)
    made = pictures(story)
    for old in sorted((story.folder / "figures").glob("*.png")):
        if old.stem not in made:
            old.unlink()
    context = _context(story, {"all"})
    for name, (draw, alt) in made.items():
        data = draw()
        write_atomic(story.folder / "figures" / f"{name}.png", data)
        context["figures"][name] = {"uri": data_uri(data), "alt": alt}
    path = story.folder / "report.html"
    write_atomic(path, with_font(_environment().get_template("report.html").render(context)))
    return path


# --- small tables for the notebooks -------------------------------------------------------------------------------


def figure(story: Story, name: str) -> str:
    """A figure of the run as HTML with its alt text, or a sentence where it was not drawn."""
    path = story.folder / "figures" / f"{name}.png"
    if not path.exists():
        return "<p>Not drawn: the oracle falls short, so no system may be compared.</p>"
    return image(path.read_bytes(), pictures(story)[name][1])


def ledger(persona: Persona) -> list[dict[str, Any]]:
    """A persona's ledger, a line a version."""
    return [
        {
            "fact": f.id,
            "about": f.slot,
            "version": v.n,
            "true": v.text,
            "from": v.valid_from,
            "until": v.valid_to,
            "change": f.change if f.change != "none" else "",
            "to be forgotten from": f.forget,
        }
        for f in persona.facts
        for v in f.versions
    ]


def conversation(
    persona: Persona, kinds: Sequence[str] = ("change", "forget", "near_miss", "fact")
) -> tuple[str, list[dict[str, Any]]]:
    """(title, a line a turn with its labels) of the session that has most of `kinds` in it; the first of equals."""
    most = max(persona.sessions, key=lambda s: len({t.kind for t in s.turns} & set(kinds)))
    return f"{most.id}, {most.date[:10]}", [
        {"who": t.role, "text": t.text, "kind": t.kind, "states": ", ".join(t.states)} for t in most.turns
    ]


def first_calls(persona: Persona, params: Any) -> list[dict[str, Any]]:
    """What the system's first call receives on each route, and how many calls there are."""
    from kiokulab import systems
    from kiokulab.kioku import ingest

    declared = systems.describe(systems.resolve(params.system).name, params.settings)
    rows = []
    for route in analyze.ROUTES:
        calls = ingest.calls(persona, route, declared["feeds"], params.routing, declared["dates"])
        item = calls[0].item if calls else None
        turns = getattr(item, "turns", None) or [
            t for t in (getattr(item, n, None) for n in ("user", "assistant", "turn")) if t is not None
        ]
        text = "\n".join(f"{t.role}: {t.text}" for t in turns) or getattr(item, "text", "")
        rows.append(
            {
                "route": route,
                "calls": len(calls),
                "one call receives": type(item).__name__.lower(),
                "on": calls[0].when[:10] if calls else "",
                "the first one": text,
            }
        )
    return rows


def yields(folder: str | Path) -> list[dict[str, Any]]:
    """A line a unit: what its calls did, by the system's own word and as seen in the store."""
    by_unit: dict[str, list] = {}
    for event in _events(Path(folder)):
        by_unit.setdefault(event["unit"], []).append(event)
    rows = []
    for unit, events in by_unit.items():
        got = analyze.yields(events)
        rows.append(
            {
                "unit": unit,
                "calls": got["calls"],
                **{f"{n} (told)": "not said" if got["told"][n] is None else got["told"][n] for n in got["told"]},
                **{f"{n} (seen)": "not listed" if got["seen"][n] is None else got["seen"][n] for n in got["seen"]},
                "changed nothing": got["no_op"],
                "warnings": got["warnings"],
                "seconds": round(sum(e["seconds"] for e in events), 2),
            }
        )
    return rows


def stored(folder: str | Path, unit: str, most: int = 8) -> list[dict[str, Any]]:
    """The first memories of a unit, as the system gave them."""
    rows = [m for m in read_jsonl(Path(folder) / "memories.jsonl") if m["unit"] == unit]
    return [{"id": m["id"], "layer": m["layer"], "created": m["created"], "text": m["text"]} for m in rows[:most]]


def examples(folder: str | Path, kind: str) -> list[dict[str, Any]]:
    """One judged row of each sort and language, the first of each. kind: 'version' (verdict and how it came about),
    'sentence' (states something, noise, not judged) or 'answer' (its verdict)."""
    rows, personas, _, _ = analyze.load(folder)
    known = {p.id: p for p in personas}
    texts = {(r["unit"], r["id"]): r["text"] for r in rows if r["kind"] == "sentence"}
    seen: dict[tuple, dict] = {}
    for row in (r for r in rows if r["kind"] == kind):
        person = known[row["persona"]]
        if kind == "version":
            sort = (row["verdict"], row["how"] or "")
            fact = next(f for f in person.facts if f.id == row["fact"])
            show = {
                "ledger": fact.versions[row["version"] - 1].text,
                "stored": " / ".join(texts.get((row["unit"], s), "") for s in row["sentences"][:2]),
            }
        elif kind == "sentence":
            sort = (
                "not judged" if not row["judged"] else "states a fact" if row["states"] else "noise",
                row["language"],
            )
            show = {"sentence": row["text"], "states": ", ".join(row["states"])}
        else:
            sort = (row["role"], row["verdict"])
            show = {
                "question": row["question"],
                "expected": row["expected"],
                "answer": "not in memory" if row["answer"] is None else row["answer"],
            }
        seen.setdefault(
            (person.language, *sort),
            {"language": person.language, "sort": ", ".join(s for s in sort if s), **show, "unit": row["unit"]},
        )
    return [seen[key] for key in sorted(seen)]


def measured(folder: str | Path) -> list[dict[str, Any]]:
    """The judge's agreement with the labelled sets, a line a set."""
    row = next((r for r in read_jsonl(Path(folder) / "judgements.jsonl") if r["kind"] == "judge"), None)
    return [
        {
            "judge": row["name"],
            "pairs": SETS.get(name, name),
            **{k: v for k, v in found.items() if not isinstance(v, (dict, list))},
        }
        for name, found in (row["measured"] if row else {}).items()
        if isinstance(found, dict)
    ]

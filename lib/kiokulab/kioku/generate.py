"""Step 1 of the kioku track: editions. Reading one (with its digests), making one by template, and handing it to a run.

The template generator is seeded and offline: the same seed gives the same bytes on every machine, and a persona does
not depend on how many others are made with it. Only `random.Random` seeded with strings is used; its sequences are part
of Python's promise for `random()`, and `choice`, `sample` and `shuffle` build on it in a fixed way in the supported
versions.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kiokulab import files
from kiokulab import text as texts
from kiokulab.errors import InputError
from kiokulab.kioku import audit as auditing
from kiokulab.kioku.records import Edition, Fact, Persona, Question, SessionRecord, Surface, TurnLabel, Version
from kiokulab.kioku.template import (
    FORGET_KINDS,
    LANGUAGES,
    Slot,
    Value,
    Vocabulary,
    expand,
    in_register,
    load_vocabulary,
    prefixed,
)

GENERATOR_VERSION = 1  # bumped whenever a byte of a generated edition could change
audit = auditing.audit  # also known by this name
FACTS, SESSIONS, CHANGES, FORGETS, NEAR_MISSES = 40, 30, 10, 4, 7
LEDGER_PARAMETERS = {
    "facts": FACTS,
    "sessions": SESSIONS,
    "changes": CHANGES,
    "forgets": FORGETS,
    "partial_changes": 4,
    "near_misses": 6,
}
REPOSITORY = Path(__file__).resolve().parents[3]

# --- reading ----------------------------------------------------------------------------------------------------


def edition_folder(edition: str | Path) -> Path:
    """The folder of an edition: a path that holds `edition.json`, or a name under data/kioku/ of the working folder or
    of the kit. InputError where there is none."""
    candidates = [
        Path(edition),
        Path("data/kioku") / edition,
        REPOSITORY / "data/kioku" / edition,
        REPOSITORY / edition,
    ]
    for folder in candidates:
        if (folder / "edition.json").is_file():
            return folder
    names = sorted(p.parent.name for p in (REPOSITORY / "data/kioku").glob("*/edition.json"))
    raise InputError(
        f"there is no edition {str(edition)!r}",
        "edition",
        f"Known: {', '.join(names) or 'none'}; or give a folder with edition.json",
    )


def load_edition(edition: str | Path) -> tuple[Edition, list[Persona]]:
    """The edition by name or path, with its personas in the order of its file names.

    Every file's sha256 is compared with edition.json before anything is read from it. Raises InputError with file:line:
    wrong digest, missing or torn file, unknown field, bad date, duplicate id, a fact stated before its time.
    """
    folder = edition_folder(edition)
    described = _validated(Edition, folder / "edition.json", _json(folder / "edition.json"))
    personas: list[Persona] = []
    for name, expected in sorted(described.files.items()):
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise InputError("edition.json names this file, and it is not there", str(path))
        if path.suffix == ".jsonl":
            rows = [(number, row) for number, row in files.iterate_jsonl(path)]
        else:
            rows = [(None, _json(path))]
        found = files.sha256_file(path)
        if found != expected:
            raise InputError(
                f"the file is not the one that edition.json describes (sha256 {found[:12]}, expected {expected[:12]})",
                f"{path}:1",
                "An edition is frozen: restore the file, or make a new edition of it (data/kioku/README.md)",
            )
        for number, row in rows:
            persona = _validated(Persona, path, row, number)
            _check_times(persona, path, number)
            if any(p.id == persona.id for p in personas):
                raise InputError(f"duplicate id: persona {persona.id} is there twice", _place(path, ("id",), number))
            personas.append(persona)
    if not personas:
        raise InputError("the edition has no personas", str(folder / "edition.json"))
    return described, personas


def _json(path: Path) -> Any:
    """The JSON of a file; InputError with file:line where it is torn or not JSON."""
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON, or torn: {error.msg}", f"{path}:{error.lineno}", "Make the edition again, or restore the file"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason})", f"{path}:1") from None


def _validated(model, path: Path, row: Any, number: int | None = None):
    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = "unknown field" if first["type"] == "extra_forbidden" else first["msg"].lower()
        raise InputError(f"{where}: {what}", _place(path, first["loc"], number)) from None


def _place(path: Path, loc: tuple, number: int | None) -> str:
    """'file:line' of the record at `loc` in a JSON file (`number` is the line where the file has a record a line)."""
    return f"{path}:{number or line_of(path.read_text(encoding='utf-8'), loc)}"


def line_of(text: str, loc: tuple) -> int:
    """Line (from 1) at which the value at `loc` (keys and positions) begins; that of the deepest one found where `loc`
    goes on to something that is missing. `text` is valid JSON."""
    decoder, at = json.JSONDecoder(), 0

    def skip(i: int) -> int:
        while i < len(text) and text[i] in " \t\r\n,:":
            i += 1
        return i

    at = skip(0)
    for part in loc:
        if text[at] not in "{[":
            break
        is_object, i, position, found = text[at] == "{", skip(at + 1), 0, None
        while text[i] not in "}]":
            key: Any = position
            if is_object:
                key, i = decoder.raw_decode(text, i)
                i = skip(i)
            if key == part:
                found = i
                break
            _, i = decoder.raw_decode(text, i)
            i, position = skip(i), position + 1
        if found is None:
            break
        at = found
    return text.count("\n", 0, at) + 1


def _check_times(persona: Persona, path: Path, number: int | None) -> None:
    """What makes an edition unusable, found while reading: dates, ids, references, statements before their time."""
    order: dict[str, int] = {}
    last = None
    for i, session in enumerate(persona.sessions):
        where = ("sessions", i)
        if session.id in order:
            raise InputError(f"duplicate id: session {session.id} is there twice", _place(path, (*where, "id"), number))
        order[session.id] = i
        try:
            date = datetime.fromisoformat(session.date)
        except ValueError:
            raise InputError(
                f"bad date {session.date!r} in session {session.id}: not ISO 8601",
                _place(path, (*where, "date"), number),
            ) from None
        if date.tzinfo is None:
            raise InputError(
                f"bad date {session.date!r} in session {session.id}: no time zone",
                _place(path, (*where, "date"), number),
            )
        if last is not None and date <= last:
            raise InputError(
                f"bad date {session.date!r} in session {session.id}: not after the session before it",
                _place(path, (*where, "date"), number),
            )
        last = date
    begins: dict[str, int] = {}
    for i, fact in enumerate(persona.facts):
        if any(name.rsplit(".", 1)[0] == fact.id for name in begins):
            raise InputError(f"duplicate id: fact {fact.id} is there twice", _place(path, ("facts", i, "id"), number))
        if not fact.versions:
            raise InputError(f"fact {fact.id} has no version", _place(path, ("facts", i), number))
        for j, version in enumerate(fact.versions):
            for session in (version.valid_from, version.valid_to):
                if session is not None and session not in order:
                    raise InputError(
                        f"fact {fact.id}: there is no session {session}",
                        _place(path, ("facts", i, "versions", j), number),
                    )
            begins[f"{fact.id}.{version.n}"] = order[version.valid_from]
        if fact.forget is not None and fact.forget not in order:
            raise InputError(
                f"fact {fact.id}: there is no session {fact.forget}", _place(path, ("facts", i, "forget"), number)
            )
    for i, session in enumerate(persona.sessions):
        for j, turn in enumerate(session.turns):
            for name in turn.states:
                where = (
                    _place(path, ("sessions", i, "turns", j), number) if name not in begins or begins[name] > i else ""
                )
                if name not in begins:
                    raise InputError(f"the utterance states {name}, which is not in the ledger", where)
                if begins[name] > i:
                    raise InputError(f"fact stated before its time: {name} in session {session.id}", where)


# --- writing ----------------------------------------------------------------------------------------------------


def persona_json(persona: Persona) -> str:
    """A persona as JSON with one fact and one session a line, so that a difference and an error have a place to point
    to."""
    row = persona.model_dump(mode="json")
    head = ",".join(f"{files.dumps(key)}:{files.dumps(row[key])}" for key in ("id", "language", "name"))
    facts, sessions = (",\n".join(files.dumps(item) for item in row[key]) for key in ("facts", "sessions"))
    return f'{{{head},"facts":[\n{facts}\n],"sessions":[\n{sessions}\n]}}\n'


def write_edition(
    folder: str | Path, seed: int, personas: int | list[Persona], *, name: str | None = None, notes: str = ""
) -> Edition:
    """Write a generated edition: a JSON file a persona and edition.json, last, so that a cut leaves no edition.

    `personas` is their number, or the personas themselves. InputError when the folder already holds another edition, or
    the audit finds a fault. Writing the same edition again changes nothing.
    """
    folder = Path(folder)
    made = generate(seed, personas) if isinstance(personas, int) else personas
    faults = auditing.audit(made, LEDGER_PARAMETERS)
    if any(not fault.warning for fault in faults):
        raise InputError(
            "the generated edition fails its audit:\n" + "\n".join(f"  {fault}" for fault in faults[:20]), str(folder)
        )
    contents = {f"{persona.id}.json": persona_json(persona) for persona in made}
    edition = Edition(
        edition=name or folder.name,
        generator="template",
        generator_version=GENERATOR_VERSION,
        seed=seed,
        parameters={**LEDGER_PARAMETERS, "personas": len(made)},
        files={file: hashlib.sha256(text.encode("utf-8")).hexdigest() for file, text in sorted(contents.items())},
        languages=[language for language in LANGUAGES if any(p.language == language for p in made)],
        audit=auditing.summary(faults),
        reviewed_by_people="Nobody has reviewed this edition item by item.",
        licence="MIT",
        notes=notes,
    )
    text = json.dumps(edition.model_dump(mode="json"), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    there = folder / "edition.json"
    if there.is_file() and there.read_text(encoding="utf-8") != text:
        raise InputError(
            "the folder already holds another edition", str(there), "An edition is frozen: choose another folder"
        )
    if not there.is_file() and folder.is_dir() and any(p.name not in contents for p in folder.iterdir()):
        raise InputError("the folder is not empty and holds no edition", str(folder), "Choose another folder")
    for file, content in contents.items():
        files.write_atomic(folder / file, content)
    files.write_atomic(there, text)
    return edition


def seal(folder: str | Path, *, name: str | None = None, notes: str = "", licence: str = "unknown") -> Edition:
    """Make an edition of persona files (*.json, *.jsonl) that somebody wrote: digests and audit counts into
    edition.json. InputError with file:line for a file that cannot be read, or with the faults that the audit finds."""
    folder = Path(folder)
    if (folder / "edition.json").exists():
        raise InputError(
            "the folder already holds an edition",
            str(folder / "edition.json"),
            "Copy the persona files into a new folder",
        )
    names = sorted(p.name for p in folder.iterdir() if p.suffix in (".json", ".jsonl") and p.name != "reviews.jsonl")
    personas = []
    for file in names:
        rows = list(files.iterate_jsonl(folder / file)) if file.endswith(".jsonl") else [(None, _json(folder / file))]
        for number, row in rows:
            persona = _validated(Persona, folder / file, row, number)
            _check_times(persona, folder / file, number)
            personas.append(persona)
    if not personas:
        raise InputError("there are no persona files (*.json or *.jsonl)", str(folder))
    faults = auditing.audit(personas)
    if any(not fault.warning for fault in faults):
        raise InputError(
            "the edition fails its audit:\n" + "\n".join(f"  {fault}" for fault in faults if not fault.warning),
            str(folder),
        )
    edition = Edition(
        edition=name or folder.name,
        generator="written",
        generator_version=0,
        seed=0,
        parameters={"personas": len(personas)},
        files={file: files.sha256_file(folder / file) for file in names},
        languages=sorted({p.language for p in personas}),
        audit=auditing.summary(faults),
        reviewed_by_people="Not said.",
        licence=licence,
        notes=notes,
    )
    files.write_atomic(
        folder / "edition.json",
        json.dumps(edition.model_dump(mode="json"), ensure_ascii=False, indent=1, sort_keys=True) + "\n",
    )
    return edition


def make_dataset(seed: int, personas: int, out: str | Path | None = None) -> Path:
    """`make dataset SEED=… PERSONAS=…`: the folder of the edition made (outputs/editions/kioku/seed<seed>-n<personas>
    by default)."""
    if personas < 1:
        raise InputError(f"{personas} personas cannot be made", "PERSONAS", "Give 1 or more")
    folder = Path(out) if out else Path("outputs/editions/kioku") / f"seed{seed}-n{personas}"
    write_edition(folder, seed, personas)
    return folder


def bench_personas(personas: int = 1000, seed: int = 1) -> list[Persona]:
    """Personas for benches: always the same ones for a number and a seed, in memory only."""
    return generate(seed, personas)


# --- the step ---------------------------------------------------------------------------------------------------


def run(folder: str | Path, params) -> list[dict]:
    """Step 1: load the edition, audit it, and write the run's dataset.jsonl (a persona a line).

    With `params.personas` = n only the first n are taken, alternately from the languages (en-01, ja-01, en-02, ...); 0
    takes all. Returns a summary row a persona. InputError for an edition that cannot be used or more personas than it
    has.
    """
    edition, personas = load_edition(params.edition)
    # ours were audited before they were written, and their digests were just compared
    if edition.generator != "template":
        faults = [fault for fault in auditing.audit(personas, edition.parameters) if not fault.warning]
        if faults:
            raise InputError(
                "the edition fails its audit:\n" + "\n".join(f"  {fault}" for fault in faults[:50]), str(params.edition)
            )
    chosen = alternate(personas, params.personas)
    files.write_jsonl(Path(folder) / "dataset.jsonl", (persona.model_dump(mode="json") for persona in chosen))
    return [describe(persona) for persona in chosen]


def alternate(personas: list[Persona], n: int = 0) -> list[Persona]:
    """The first `n` personas (0: all) taken in turn from the languages, each language in order of id."""
    if n < 0 or n > len(personas):
        raise InputError(f"{n} personas were asked for, the edition has {len(personas)}", "personas", "0 takes all")
    by_language = defaultdict(list)
    for persona in sorted(personas, key=lambda p: p.id):
        by_language[persona.language].append(persona)
    rows = [by_language[language] for language in sorted(by_language)]
    turns = [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]
    return turns[: n or len(turns)]


def describe(persona: Persona) -> dict:
    """Counts of one persona, with what keeping every utterance would cost: noise (share of sentences in turns that
    state nothing, sentence by sentence where a turn states something) and compression (characters of all utterances /
    of the current ledger versions of facts not forgotten). Both are estimates by label; the judge's own figures are in
    step 3."""
    forms = auditing.Forms(persona.facts)
    turns = [turn for session in persona.sessions for turn in session.turns]
    sentences = noise = 0
    for turn in turns:
        pieces = texts.sentences(turn.text) or [turn.text]
        sentences += len(pieces)
        noise += (
            len(pieces) if not turn.states else sum(not (forms.stated(piece) & set(turn.states)) for piece in pieces)
        )
    ledger = sum(len(texts.nfc(fact.versions[-1].text)) for fact in persona.facts if fact.lasts)
    characters = sum(len(texts.nfc(turn.text)) for turn in turns)
    return {
        "persona": persona.id,
        "language": persona.language,
        "facts": len(persona.facts),
        "sessions": len(persona.sessions),
        "turns": len(turns),
        "changes": sum(f.change != "none" for f in persona.facts),
        "partial": sum(f.change == "partial" for f in persona.facts),
        "forgets": sum(f.forget is not None for f in persona.facts),
        "near_misses": sum(t.kind == "near_miss" for t in turns),
        "keep_all_noise": round(noise / max(sentences, 1), 3),
        "keep_all_compression": round(characters / max(ledger, 1), 2),
    }


# --- generating -------------------------------------------------------------------------------------------------


def persona_ids(personas: int) -> list[str]:
    """Ids of the first n personas: languages in turn, each counted from 01 (an odd one out is English)."""
    return [f"{LANGUAGES[i % len(LANGUAGES)]}-{i // len(LANGUAGES) + 1:02d}" for i in range(personas)]


def generate(seed: int, personas: int) -> list[Persona]:
    """`personas` personas from `seed`, English and Japanese in turn, in order of id. Deterministic."""
    return sorted(
        (make_persona(seed, name) for name in persona_ids(personas)), key=lambda p: (p.language, len(p.id), p.id)
    )


class _Draft:
    """A fact while it is being made: its slot, the values of each version, and the sessions (from 0) of its events."""

    def __init__(self, slot: Slot, values: list[dict[str, Value]], change: str, changed_part: str | None):
        self.slot, self.values, self.change, self.changed_part = slot, values, change, changed_part
        self.said = 0
        self.changed: int | None = None
        self.forgotten: int | None = None
        self.forget_kind: str | None = None
        self.id = ""

    def latest(self, session: int) -> dict[str, Value]:
        return self.values[-1] if self.changed is not None and session >= self.changed else self.values[0]


def make_persona(seed: int, name: str) -> Persona:
    """One persona: ledger first, then when each thing is said, then the conversations."""
    language = name[:2]
    vocabulary = load_vocabulary(language)
    rng = random.Random(f"kioku/{GENERATOR_VERSION}/{seed}/{name}")
    number = int(name.split("-")[1])
    drafts = _ledger(vocabulary, rng, FACTS - (number % 5 == 0))  # two of ten personas have one fact less, as published
    _schedule(drafts, rng)
    drafts.sort(key=lambda d: d.said)
    for i, draft in enumerate(drafts, 1):
        draft.id = f"f{i:02d}"
    polite = rng.random() < 0.6
    facts = tuple(_fact(draft, language, polite, rng) for draft in drafts)
    sessions = _Talk(vocabulary, rng, drafts, facts, polite).sessions(_dates(language, rng))
    given, family = rng.choice(vocabulary.names["given"]), rng.choice(vocabulary.names["family"])
    return Persona(
        id=name,
        language=language,
        name=f"{given} {family}" if language == "en" else f"{family} {given}",
        facts=list(facts),
        sessions=sessions,
    )


def _ledger(vocabulary: Vocabulary, rng: random.Random, n: int) -> list[_Draft]:
    """Slots, values, changes and forget requests; no two facts with values that could be taken for one another."""
    slots = rng.sample(vocabulary.slots, n)
    several = [slot for slot in slots if slot.partial]
    partial = rng.sample(several, min(len(several), rng.choice([4, 5, 5, 6])))
    rest = [slot for slot in slots if slot not in partial]
    rng.shuffle(rest)
    full, forget = rest[: CHANGES - len(partial)], rest[CHANGES - len(partial) : CHANGES - len(partial) + FORGETS]
    kinds = [*FORGET_KINDS, rng.choice(FORGET_KINDS)]
    rng.shuffle(kinds)
    taken: list[list[frozenset[str]]] = []
    drafts = []
    for slot in slots:
        change = "partial" if slot in partial else "full" if slot in full else "none"
        for _ in range(200):
            values, part = _values(slot, change, rng)
            keys = [[value.keys for value in version.values()] for version in values]
            if not any(
                auditing.within(mine, other) or auditing.within(other, mine) for mine in keys for other in taken
            ):
                break
        else:
            raise RuntimeError(
                f"slot {slot.id}: no value is left that no other fact of the persona has; give it more values"
            )
        taken += keys
        draft = _Draft(slot, values, change, part)
        if slot in forget:
            draft.forget_kind = kinds.pop()
        drafts.append(draft)
    return drafts


def _values(slot: Slot, change: str, rng: random.Random) -> tuple[list[dict[str, Value]], str | None]:
    """Values of the versions of a fact, and the part that a partial change changes."""
    first = {part: rng.choice(values) for part, values in slot.parts.items()}
    if change == "none":
        return [first], None
    if change == "partial":
        part = rng.choice(sorted(slot.partial))
        return [first, {**first, part: _other(slot, part, [first[part]], rng)}], part
    return [first, {part: _other(slot, part, [first[part]], rng) for part in slot.parts}], None


def _other(slot: Slot, part: str, not_these: list[Value], rng: random.Random) -> Value:
    """Another value of a part, sharing no form with `not_these` (6:30 in the morning and in the evening share one)."""
    left = [value for value in slot.parts[part] if all(value.keys.isdisjoint(other.keys) for other in not_these)]
    if not left:
        raise RuntimeError(f"slot {slot.id}: part {part} has no second value that shares no form with the first")
    return rng.choice(left)


def _schedule(drafts: list[_Draft], rng: random.Random) -> None:
    """Sessions for statements, changes and forget requests, spread so that no session is a questionnaire."""
    load = [0] * SESSIONS

    def place(first: int, last: int) -> int:
        least = min(load[first : last + 1])
        session = rng.choice([i for i in range(first, last + 1) if load[i] <= least])
        load[session] += 1
        return session

    load[0] = -2  # the first session introduces the person: two facts more than the others
    for draft in sorted(drafts, key=lambda d: d.change == "none" and d.forget_kind is None):
        if draft.change != "none":
            draft.said = place(0, 17)
            draft.changed = place(min(draft.said + 4, SESSIONS - 1), SESSIONS - 1)
        elif draft.forget_kind is not None:
            draft.said = place(0, 19)
            draft.forgotten = place(draft.said + 3, SESSIONS - 1)
        else:
            draft.said = place(0, SESSIONS - 1)


def _dates(language: str, rng: random.Random) -> list[str]:
    """Dates of the sessions over about a year, rising, in the persona's time zone (a fixed offset)."""
    hours = 9 if language == "ja" else rng.choice([0, 0, 1, -5, -8, 10])
    zone = timezone(timedelta(hours=hours))
    day = datetime(rng.choice([2023, 2024]), rng.randint(1, 12), rng.randint(1, 28), tzinfo=zone)
    result = []
    for _ in range(SESSIONS):
        day += timedelta(days=rng.randint(6, 19))
        result.append(day.replace(hour=rng.randint(7, 22), minute=rng.randint(0, 59)).isoformat())
    return result


def _session_id(session: int) -> str:
    return f"s{session + 1:02d}"


def _shown(values: dict[str, Value], prefix: str = "") -> dict[str, str]:
    return {prefix + part: value.shown[0] for part, value in values.items()}


def _spoken(values: dict[str, Value], rng: random.Random, prefix: str = "") -> dict[str, str]:
    return {prefix + part: rng.choice(value.shown) for part, value in values.items()}


def _fact(draft: _Draft, language: str, polite: bool, rng: random.Random) -> Fact:
    slot = draft.slot
    anchors = [anchor for name in LANGUAGES for anchor in slot.anchors.get(name, [])]
    versions = []
    for n, values in enumerate(draft.values, 1):
        begins, ends = (draft.said, draft.changed) if n == 1 else (draft.changed, None)
        versions.append(
            Version(
                n=n,
                text=expand(slot.ledger, rng, _shown(values), language),
                valid_from=_session_id(begins),
                valid_to=None if ends is None else _session_id(ends),
                surface=Surface(anchors=anchors, values=[list(value.forms) for value in values.values()]),
            )
        )
    part = draft.changed_part or rng.choice(sorted(slot.question))
    current = draft.values[-1][part]
    question = Question(
        text=expand(rng.choice(slot.question[part]), rng, {}, language),
        answer=current.shown[0],
        accepted=list(dict.fromkeys([*current.shown, *current.forms])),
        stale=list(dict.fromkeys(form for values in draft.values[:-1] for form in values[part].forms)),
    )
    return Fact(
        id=draft.id,
        slot=slot.id,
        versions=versions,
        change=draft.change,
        forget=None if draft.forgotten is None else _session_id(draft.forgotten),
        forget_kind=draft.forget_kind,
        question=question,
    )


class _Talk:
    """The conversations of one persona."""

    def __init__(
        self, vocabulary: Vocabulary, rng: random.Random, drafts: list[_Draft], facts: tuple[Fact, ...], polite: bool
    ):
        self.vocabulary, self.rng, self.drafts, self.polite = vocabulary, rng, drafts, polite
        self.language, self.forms = vocabulary.language, auditing.Forms(facts)
        self.used: set[str] = set()
        self.topics: list[dict] = []
        self.recent: list[str] = []
        self.said_before: dict[str, set[str]] = defaultdict(set)

    # small choices

    def pick(self, name: str, templates: list[str]) -> str:
        """One of `templates`, each once before any comes again."""
        left = [t for t in templates if t not in self.said_before[name]]
        if not left:
            self.said_before[name].clear()
            left = templates
        choice = self.rng.choice(left)
        self.said_before[name].add(choice)
        return choice

    def say(self, make, states: set[str], allowed: str | None = None) -> str:
        """A text from `make()` that holds no version beyond `states` (and those of the fact `allowed`). Drawn again
        until it does; a vocabulary that never gives one is a defect, and is said."""
        for _ in range(60):
            text = make()
            if all(name in states or name.split(".")[0] == allowed for name in self.forms.stated(text)):
                return text
        raise RuntimeError(f"no text can be drawn that does not also state another fact; the last was {text!r}")

    def joined(self, *sentences: str) -> str:
        return (" " if self.language == "en" else "").join(s for s in sentences if s)

    # utterances

    def special(self, draft: _Draft, kind: str, session: int, before: str) -> tuple[TurnLabel, str]:
        """The user's turn for one event, after the words `before` (or none), and the assistant's answer to it."""
        rng, slot, language = self.rng, draft.slot, self.language
        values = draft.latest(session)
        states: list[str] = []
        if kind == "fact":
            templates, fill, states = slot.say, lambda: _spoken(values, rng), [f"{draft.id}.1"]
        elif kind == "change":
            templates = slot.partial[draft.changed_part] if draft.change == "partial" else slot.change
            fill, states = (lambda: _spoken(values, rng) | _spoken(draft.values[0], rng, "old_")), [f"{draft.id}.2"]
        elif kind == "forget":
            templates, fill = slot.forget[draft.forget_kind], lambda: _spoken(values, rng)
            states = [f"{draft.id}.1"] if draft.forget_kind == "restates" else []
        else:
            templates = slot.near_miss
            others = {f"other_{part}": _other(slot, part, [v[part] for v in draft.values], rng) for part in slot.parts}
            fill = lambda: _spoken(values, rng) | _spoken(others, rng)  # noqa: E731
        templates = in_register(templates, self.polite, language)
        prefixes = in_register(self.vocabulary.prefixes, self.polite, language, fragments=True)

        def make() -> str:
            text = expand(self.pick(f"{slot.id}/{kind}", templates), rng, fill(), language)
            if before:
                return self.joined(before, prefixed(rng.choice(prefixes), text, language))
            style = rng.random()
            if kind == "forget" or style < 0.45:
                return text
            if style < 0.7:
                return prefixed(rng.choice(prefixes), text, language)
            if kind != "fact":  # the leads announce something that was never told before
                return text
            return self.joined(
                expand(
                    self.pick("leads", in_register(self.vocabulary.leads, self.polite, language)), rng, {}, language
                ),
                text,
            )

        allowed = draft.id if kind in ("near_miss", "change") else None
        text = self.say(make, set(states), allowed)
        acks = self.vocabulary.acks[kind]
        specific = [*slot.ack, *slot.ack] if kind == "fact" else []
        answer = self.say(
            lambda: expand(
                self.pick("acks/" + kind, acks) if rng.random() < 0.6 or not specific else rng.choice(specific),
                rng,
                {},
                language,
            ),
            set(),
        )
        return TurnLabel(
            role="user", text=text, states=states, kind=kind, of=draft.id if kind != "fact" else None
        ), answer

    def chatter(self) -> list[tuple[str, str]]:
        """One to three neighbouring exchanges of a topic, drawn so that no line of it was said before where that can
        be."""
        if not self.topics:
            self.topics = list(self.vocabulary.topics)
            self.rng.shuffle(self.topics)
        topic = self.topics.pop()
        fill = {name: self.rng.choice(choices) for name, choices in topic.get("fill", {}).items()}
        length = min(len(topic["exchanges"]), self.rng.choice([1, 2, 2, 2, 3]))
        start = 0 if self.vocabulary.in_order else self.rng.randrange(len(topic["exchanges"]) - length + 1)
        result = []
        for exchange in topic["exchanges"][start : start + length]:
            lines = in_register(exchange["user"], self.polite, self.language)
            user, chosen = self.fresh(lines, fill)
            reply = exchange["assistant"][exchange["user"].index(chosen)]
            result.append((user, self.fresh([reply], fill)[0]))
        return result

    def fresh(self, templates: list[str], fill: dict[str, str]) -> tuple[str, str]:
        """A line not said before by this persona, if the topic still has one, and the template it is from."""
        chosen = ""

        def make() -> str:
            nonlocal chosen
            chosen = self.rng.choice(templates)
            return expand(chosen, self.rng, fill, self.language)

        for _ in range(12):
            text = self.say(make, set())
            if text not in self.used:
                break
        self.used.add(text)
        return text, chosen

    # sessions

    def sessions(self, dates: list[str]) -> list[SessionRecord]:
        events: list[list[tuple[_Draft, str]]] = [[] for _ in range(SESSIONS)]
        for draft in self.drafts:
            events[draft.said].append((draft, "fact"))
            if draft.changed is not None:
                events[draft.changed].append((draft, "change"))
            if draft.forgotten is not None:
                events[draft.forgotten].append((draft, "forget"))
        for draft in self.rng.sample(self.drafts, NEAR_MISSES):
            quiet = sorted(range(SESSIONS), key=lambda i: (len(events[i]), i))[:12]
            events[self.rng.choice(quiet)].append((draft, "near_miss"))
        return [self.session(i, date, events[i]) for i, date in enumerate(dates)]

    def session(self, number: int, date: str, events: list[tuple[_Draft, str]]) -> SessionRecord:
        """One conversation: talk, with the events in between, some of them in the same breath as the talk."""
        rng = self.rng
        rng.shuffle(events)
        exchanges = self.chatter()
        if len(exchanges) + len(events) < 3 or rng.random() < (0.2 if self.language == "ja" else 0.3):
            exchanges += self.chatter()
        places = sorted(rng.sample(range(len(exchanges) + 1), min(len(events), len(exchanges) + 1)))
        places += sorted(rng.randrange(len(exchanges) + 1) for _ in range(len(events) - len(places)))
        waiting = sorted(zip(places, range(len(events)), strict=True))
        turns: list[TurnLabel] = []
        for i in range(len(exchanges) + 1):
            mine = [events[k] for place, k in waiting if place == i]
            rest = exchanges[i] if i < len(exchanges) else None
            for draft, kind in mine:
                together = rest is not None and kind in ("fact", "change") and rng.random() < 0.4
                turn, answer = self.special(
                    draft, kind, number, rest[0] if together and not rest[0].endswith(("?", "？")) else ""
                )
                if turn.text.startswith(rest[0]) if together else False:
                    answer, rest = self.joined(answer, rest[1]), None
                turns += [turn, TurnLabel(role="assistant", text=answer, kind="assistant")]
            if rest is not None:
                turns += [
                    TurnLabel(role="user", text=rest[0], kind="chatter"),
                    TurnLabel(role="assistant", text=rest[1], kind="assistant"),
                ]
        return SessionRecord(id=_session_id(number), date=date, turns=turns)

"""Editions written by hand: one compact text file a persona, compiled into the records of an edition.

The format is described in data/kioku/v1/source/FORMAT.md. A source holds the ledger with its value forms and then the
conversations, a line an utterance, with its labels in brackets:

    persona en-01 | en | Maureen Tully | +00:00
    f01 dog.name
      a dog | terrier | 犬
      1 s01 My dog is called Pickle.
        Pickle | ピックル
      ? What is my dog called?
      = Pickle | $1
    == s01 2025-03-04 19:40
    u [f01.1] Pickle rolled in something awful.
    a Oh no. Is the dog in the bath yet?

`compile_text` gives a Persona or raises InputError with the line that cannot be read; what the audit asks for is left
to it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from kiokulab import files, values
from kiokulab.errors import InputError
from kiokulab.kioku import audit as auditing
from kiokulab.kioku.generate import LEDGER_PARAMETERS, describe, persona_json
from kiokulab.kioku.records import (
    Edition,
    Evidence,
    Fact,
    Persona,
    Question,
    SessionRecord,
    Surface,
    TurnLabel,
    Version,
)
from kiokulab.text import HIRAGANA, KANJI, KATAKANA, normalise

FORGET_KINDS = ("names_fact", "names_topic", "restates")
_NAME = re.compile(r"f\d+\.\d+")


class _Source:
    """Lines of a source with their numbers, and errors that name them."""

    def __init__(self, text: str, place: str):
        self.place = place
        self.lines = [
            (n, line.rstrip())
            for n, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]

    def error(self, number: int, message: str) -> InputError:
        return InputError(message, f"{self.place}:{number}")


def compile_text(text: str, place: str = "source") -> Persona:
    """The persona that a source describes. InputError with `place`:line for a line that is not understood."""
    source = _Source(text, place)
    head: list[str] | None = None
    facts: list[dict] = []
    sessions: list[dict] = []
    for number, line in source.lines:
        plain = line.strip()
        if head is None:
            head = _cells(plain.removeprefix("persona "))
            if not plain.startswith("persona ") or len(head) != 4 or not re.fullmatch(r"[+-]\d\d:\d\d", head[3]):
                raise source.error(
                    number, "the first line is: persona <id> | en or ja | <name> | <offset from UTC, +09:00>"
                )
        elif match := re.fullmatch(r"==\s*(s\d+)\s+(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)", plain):
            sessions.append({"id": match[1], "date": f"{match[2]}T{match[3]}:00{head[3]}", "turns": []})
        elif sessions:
            sessions[-1]["turns"].append(_turn(source, number, plain))
        elif match := re.fullmatch(r"(f\d+)\s+([\w.-]+)(?:\s*\|\s*(.*))?", plain):
            facts.append(_new_fact(source, number, match[1], match[2], match[3] or ""))
        elif facts:
            _fact_line(source, number, plain, facts[-1])
        else:
            raise source.error(number, f"a fact or a session was expected, not {plain[:60]!r}")
    if head is None:
        raise source.error(1, "the source is empty")
    _give_forms(facts, sessions)
    return Persona(
        id=head[0],
        language=head[1],
        name=head[2],
        facts=[_fact(source, fact, head[1]) for fact in facts],
        sessions=[SessionRecord(**session) for session in sessions],
    )


def _give_forms(facts: list[dict], sessions: list[dict]) -> None:
    """The words that imply a version become forms of its value parts that the version before did not have: whoever
    keeps the utterance that says a version keeps one of its forms (the audit holds the edition to that)."""
    versions = {f"{fact['id']}.{v['n']}": (fact, i) for fact in facts for i, v in enumerate(fact["versions"])}
    for evidence in [e for session in sessions for turn in session["turns"] for e in turn.implied or []]:
        if evidence.version not in versions:
            continue  # the audit names it
        fact, i = versions[evidence.version]
        parts, before = fact["versions"][i]["values"], fact["versions"][i - 1]["values"] if i else []
        fact["versions"][i]["values"] = [
            part if part in before else list(dict.fromkeys([*part, evidence.words])) for part in parts
        ]


def _cells(text: str) -> list[str]:
    """Cells between bars. A bar inside a form has no use, so there is no escape for it."""
    return [cell.strip() for cell in text.split("|") if cell.strip()]


def _new_fact(source: _Source, number: int, name: str, slot: str, options: str) -> dict:
    fact = {
        "line": number,
        "id": name,
        "slot": slot,
        "anchors": [],
        "versions": [],
        "question": None,
        "answers": None,
        "stale": [],
        "partial": False,
        "forget": None,
        "forget_kind": None,
        "cascade": None,
    }
    for option in options.split():
        key, _, value = option.partition("=")
        if key == "partial" and not value:
            fact["partial"] = True
        elif key == "cascade" and _NAME.fullmatch(value):
            fact["cascade"] = value
        elif key == "forget" and value.partition(":")[2] in FORGET_KINDS:
            fact["forget"], _, fact["forget_kind"] = value.partition(":")
        else:
            raise source.error(
                number, f"unknown option {option!r}: partial, cascade=f03.2, forget=s12:{'/'.join(FORGET_KINDS)}"
            )
    return fact


def _fact_line(source: _Source, number: int, plain: str, fact: dict) -> None:
    mark, _, rest = plain.partition(" ")
    if match := re.fullmatch(r"(\d)\s+(s\d+)(?:-(s\d+))?\s+(.+)", plain):
        fact["versions"].append(
            {"n": int(match[1]), "valid_from": match[2], "ends": match[3], "text": match[4], "values": []}
        )
    elif mark == "a" and not fact["versions"]:
        fact["anchors"] = _cells(rest)
    elif mark == "?":
        fact["question"] = rest.strip()
    elif mark == "=":
        fact["answers"] = (number, _cells(rest))
    elif mark == "x" and fact["answers"]:
        fact["stale"] += _cells(rest)
    elif not fact["versions"]:
        raise source.error(number, f"{fact['id']}: a version or its anchors were expected, not {plain[:60]!r}")
    else:
        fact["versions"][-1]["values"].append(_part(source, number, plain, fact))


def _part(source: _Source, number: int, plain: str, fact: dict) -> list[str]:
    """Forms of one value part: '^' (as in the version before), or forms, typed ones ('@time 18:30') and ones to leave
    out ('-6')."""
    if plain == "^":
        position = len(fact["versions"][-1]["values"])
        if len(fact["versions"]) < 2 or position >= len(fact["versions"][-2]["values"]):
            raise source.error(number, f"{fact['id']}: '^' and no part {position + 1} in the version before")
        return fact["versions"][-2]["values"][position]
    forms: list[str] = []
    for cell in _cells(plain):
        if cell.startswith("@"):
            kind, _, value = cell[1:].partition(" ")
            try:
                forms += values.forms(kind, _typed(kind, value.strip()))
            except (ValueError, KeyError, IndexError) as error:
                raise source.error(number, f"{fact['id']}: {cell!r} is no typed value: {error}") from None
        elif cell.startswith("-"):
            forms = [form for form in forms if form.casefold() != cell[1:].casefold()]
        else:
            forms.append(cell)
    return list(dict.fromkeys(forms))


def _typed(kind: str, value: str):
    """The value as `values.forms` takes it: '850 USD' -> [850, 'USD']; '3 week' or '1 2 weeks' -> {'n', 'per'}; else
    text or a number."""

    def number(text: str) -> float:
        return float(text) if "." in text else int(text)

    if kind in ("money", "quantity", "duration"):
        n, _, unit = value.partition(" ")
        return [number(n), unit.strip()]
    if kind == "frequency":
        n, _, per = value.partition(" ")
        return {"n": int(n), "per": per.strip()}
    if kind in ("count", "ordinal", "age", "percent", "year"):
        return number(value)
    return value


def _turn(source: _Source, number: int, plain: str) -> TurnLabel:
    match = re.fullmatch(r"([ua])(?:\s*\[([^\]]*)\])?:?\s+(.+)", plain)
    if not match:
        raise source.error(number, "an utterance is: u [labels] text, or a [labels] text")
    role = "user" if match[1] == "u" else "assistant"
    kind, of = ("chatter" if role == "user" else "assistant"), None
    states: list[str] = []
    implied: list[Evidence] = []
    relative: list[Evidence] = []
    elliptic: list[str] = []
    mistaken: list[str] = []
    for item in (x.strip() for x in (match[2] or "").split(";") if x.strip()):
        if named := re.fullmatch(r"(near|change|forget)\s+(f\d+)", item):
            kind, of = ("near_miss" if named[1] == "near" else named[1]), named[2]
        elif _NAME.fullmatch(item):
            states.append(item)
        elif said := re.fullmatch(r"~(f\d+\.\d+)\s+(.+)", item):
            states.append(said[1])
            implied.append(Evidence(version=said[1], words=said[2]))
        elif said := re.fullmatch(r"@(f\d+\.\d+)\s+(.+?)\s*=\s*([\d-]+)", item):
            states.append(said[1])
            relative.append(Evidence(version=said[1], words=said[2], date=said[3]))
        elif said := re.fullmatch(r"\^(f\d+\.\d+)", item):
            states.append(said[1])
            elliptic.append(said[1])
        elif said := re.fullmatch(r"old (f\d+\.\d+)", item):
            states.append(said[1])
            mistaken.append(said[1])
        else:
            raise source.error(
                number,
                f"label {item!r} is not understood: f01.1, ^f01.1, ~f01.2 words, @f01.1 words = 2025-03-13, old f01.1, near f01, change f01, forget f01",
            )
    states = list(dict.fromkeys(states))
    if kind == "chatter" and states:
        kind = "fact"
    return TurnLabel(
        role=role,
        text=match[3].strip(),
        states=states,
        kind=kind,
        of=of,
        implied=implied or None,
        relative=relative or None,
        elliptic=elliptic or None,
        mistaken=mistaken or None,
    )


def _fact(source: _Source, fact: dict, language: str) -> Fact:
    number, name = fact["line"], fact["id"]
    if not fact["versions"] or fact["question"] is None or fact["answers"] is None:
        raise source.error(number, f"{name}: a fact has a version (1 s01 ...), a question (?) and its answer (=)")
    versions = fact["versions"]
    for version in versions:
        if not version["values"]:
            raise source.error(number, f"{name}: version {version['n']} has no value forms")
    made = []
    for i, version in enumerate(versions):
        ends = versions[i + 1]["valid_from"] if i + 1 < len(versions) else version["ends"]
        made.append(
            Version(
                n=version["n"],
                text=version["text"],
                valid_from=version["valid_from"],
                valid_to=ends,
                surface=Surface(anchors=fact["anchors"], values=version["values"]),
            )
        )
    where, cells = fact["answers"]
    accepted: list[str] = []
    stale = list(fact["stale"])
    for cell in cells:
        if match := re.fullmatch(r"\$(\d)", cell):
            position = int(match[1]) - 1
            if position >= len(versions[-1]["values"]):
                raise source.error(where, f"{name}: there is no part {cell}")
            accepted += versions[-1]["values"][position]
            stale += [
                form
                for version in versions[:-1]
                if position < len(version["values"])
                for form in version["values"][position]
            ]
        else:
            accepted.append(cell)
    right = {form.casefold() for form in accepted}
    question = Question(
        text=fact["question"],
        answer=accepted[0],
        accepted=list(dict.fromkeys(accepted)),
        stale=[form for form in dict.fromkeys(stale) if form.casefold() not in right],
    )
    change = "none" if len(versions) == 1 else "partial" if fact["partial"] else "full"
    return Fact(
        id=name,
        slot=fact["slot"],
        versions=made,
        change=change,
        forget=fact["forget"],
        forget_kind=fact["forget_kind"],
        cascade=fact["cascade"],
        question=question,
    )


def compile_file(path: str | Path) -> Persona:
    """The persona of a source file."""
    path = Path(path)
    return compile_text(path.read_text(encoding="utf-8"), str(path))


# --- the edition ------------------------------------------------------------------------------------------------


_WORDS = {"en": re.compile(r"[a-z0-9à-ɏ']+"), "ja": re.compile(f"[{KANJI}]+|[{KATAKANA}]+|[{HIRAGANA}]+|[a-z0-9']+")}


def shared_ngrams(personas: list[Persona], n: int = 5) -> list[tuple[str, str, float]]:
    """For each two personas of a language the share of n-grams of words in common, of the smaller set: (a, b, share),
    largest first.

    An n-gram lies within one utterance; punctuation does not count. An English word is letters, digits and apostrophes.
    A Japanese one is the longest run of one script: kanji, katakana, hiragana, or letters and digits (来週の木曜 is 来週, の,
    木曜). No dictionary is asked, so that anybody counts the same; endings and particles that touch are one word (しましたが),
    so words are somewhat longer than a dictionary's (2.3 characters on the average in v1)."""
    sets = {}
    for persona in personas:
        grams: set = set()
        for turn in (turn for session in persona.sessions for turn in session.turns):
            words = _WORDS[persona.language].findall(normalise(turn.text))
            grams |= {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}
        sets[persona.id] = (persona.language, grams)
    names = sorted(sets)
    result = [
        (a, b, len(sets[a][1] & sets[b][1]) / max(1, min(len(sets[a][1]), len(sets[b][1]))))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if sets[a][0] == sets[b][0]
    ]
    return sorted(result, key=lambda row: (-row[2], row[0], row[1]))


def build(folder: str | Path) -> Edition:
    """Compile the sources of an edition's folder, audit them all, and write the persona files and edition.json.

    `source/about.json` says what the texts cannot: {"edition", "personas": [ids, the sources that belong to it],
    "reviewed_by_people", "licence", "notes"}. InputError, and nothing is written, where a source is missing or cannot
    be read or the audit finds a fault."""
    folder = Path(folder)
    about = json.loads((folder / "source" / "about.json").read_text(encoding="utf-8"))
    missing = [name for name in about["personas"] if not (folder / "source" / f"{name}.txt").is_file()]
    if missing or not about["personas"]:
        raise InputError(f"there is no source of {', '.join(missing) or 'any persona'}", str(folder / "source"))
    personas = [compile_file(folder / "source" / f"{name}.txt") for name in sorted(about["personas"])]
    faults = auditing.audit(personas, LEDGER_PARAMETERS)
    if any(not fault.warning for fault in faults):
        raise InputError(
            "the edition fails its audit:\n" + "\n".join(f"  {fault}" for fault in faults if not fault.warning),
            str(folder),
        )
    for persona in personas:
        files.write_atomic(folder / f"{persona.id}.json", persona_json(persona))
    edition = Edition(
        edition=about["edition"],
        generator="written",
        generator_version=1,
        seed=0,
        parameters={**LEDGER_PARAMETERS, "personas": len(personas)},
        files={f"{p.id}.json": files.sha256_file(folder / f"{p.id}.json") for p in personas},
        languages=sorted({p.language for p in personas}),
        audit=auditing.summary(faults, written=True),
        reviewed_by_people=about["reviewed_by_people"],
        licence=about["licence"],
        notes=about["notes"],
    )
    files.write_atomic(
        folder / "edition.json",
        json.dumps(edition.model_dump(mode="json"), ensure_ascii=False, indent=1, sort_keys=True) + "\n",
    )
    return edition


def check(paths: list[str]) -> int:
    """Compile and audit sources, print counts, faults and the n-grams that two personas share. Returns the number of
    faults."""
    personas = [compile_file(path) for path in paths]
    faults = auditing.audit(personas, LEDGER_PARAMETERS)
    for persona in personas:
        turns = [len(session.turns) for session in persona.sessions]
        print(
            files.dumps(
                {
                    **describe(persona),
                    "turns_least": min(turns, default=0),
                    "turns_most": max(turns, default=0),
                    "cascade": sum(f.cascade is not None for f in persona.facts),
                    "implied": len({e.version for s in persona.sessions for t in s.turns for e in t.implied or []}),
                }
            )
        )
    for fault in faults:
        print(("warning: " if fault.warning else "") + str(fault))
    for a, b, share in shared_ngrams(personas)[:5]:
        print(f"5-grams shared by {a} and {b}: {share:.2%}")
    print(f"{sum(not f.warning for f in faults)} faults, {sum(f.warning for f in faults)} warnings")
    return sum(not f.warning for f in faults)


# python -m kiokulab.kioku.written FILE.txt ... checks; python -m kiokulab.kioku.written FOLDER builds
if __name__ == "__main__":
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_dir():
        print(files.dumps(build(sys.argv[1]).audit))
    else:
        sys.exit(1 if check(sys.argv[1:]) else 0)

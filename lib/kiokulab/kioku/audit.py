"""The audit of an edition: are the labels true, and can each question be answered from what was said, when it was said?

It reads surface forms only (anchors and values of a version, standing in one utterance) and shares no code with the
rule judge beyond text normalisation, so that a fault of the judge cannot hide one of the data. What it cannot see is a
paraphrase that uses none of the forms; that is what human review is for.
"""

from __future__ import annotations

import collections
import functools
from dataclasses import dataclass
from datetime import datetime

from kiokulab import text as texts
from kiokulab import values
from kiokulab.kioku.records import Evidence, Fact, Persona, SessionRecord, TurnLabel, Version
from kiokulab.relative import resolve
from kiokulab.kioku.template import holds

RULES = {
    "unique_ids": "ids of personas, of a persona's facts and of its sessions are there once",
    "references": "labels, versions and forget requests name facts, versions and sessions that exist",
    "dates": "dates have a time zone and rise from session to session",
    "stated": "every version is stated in the session it is valid from, by a labelled utterance that holds its forms",
    "too_early": "no utterance states a version before the session it is valid from",
    "replaced": "no utterance states a version after it was replaced",
    "forgotten": "no utterance states a forgotten fact after the request to forget it",
    "forget_request": "a forgotten fact is asked to be forgotten in its session, and its request is labelled",
    "unlabelled": "no utterance holds the forms of a version that its `states` label does not name",
    "near_miss": "a near miss names somebody else, states nothing, and says whose fact it is near to",
    "question": "the answer stands in the current version, in no older one, and not in the question",
    "distinguishable": "no two facts of a persona share the forms that tell what they are about and all their values",
    "versions": "versions are numbered from 1, follow one another, and differ in what they say",
    "text": "no utterance, question or ledger sentence is empty",
    "counts": "numbers of facts, sessions, changes and requests are those of the edition's parameters (a warning)",
}
# For editions written by hand, whose utterances may state a version without holding its forms (labels that templates
# have not).
WRITTEN_RULES = {
    "relative": "a date relative to the session's stands in the utterance, can mean the date that its label says, and is the version's",
    "implied": "the words that imply a version stand in the utterance and among its forms; no other form says it outright",
    "elliptic": "the values of an elliptic statement stand in it, what they are about in one of the three utterances before",
    "cascade": "a fact that another's change made out of date names that change, ends with it, and nobody says that it ended",
    "mistaken": "a replaced version that is repeated after its time is the assistant's mistake, and the user corrects it",
}
REACH = 3  # utterances back in which an elliptic statement may have its anchor
# Whose sentence it is: a near miss has to name one of these. Deliberately wider than the generator's own lists.
OTHERS = {
    "en": "mother father mum mom dad sister brother neighbour neighbor colleague coworker boss cousin aunt uncle friend flatmate roommate niece "
    "nephew grandmother grandfather grandma grandpa he she they his her their everyone somebody".split(),
    "ja": "両親 部長 課長 お向かい 母 父 姉 兄 妹 弟 祖母 祖父 叔母 伯母 叔父 伯父 おば おじ いとこ 従兄弟 従姉妹 同僚 上司 部下 先輩 後輩 友人 友達 友だち 隣 隣人 ご近所 近所 知人 知り合い 姪 甥 義母 義父 "
    "ママ友 同期 店長 彼 彼女 さん 親戚 大家 同級生 幼なじみ 仲間 おばあちゃん おじいちゃん".split(),
}


@dataclass(frozen=True)
class Fault:
    """One fault. `session` and `turn` (from 0) are None where it lies in the ledger; a warning does not fail the
    audit."""

    rule: str
    persona: str
    session: str | None
    turn: int | None
    message: str
    warning: bool = False

    def __str__(self) -> str:
        place = (
            self.persona
            + (f" {self.session}" if self.session else "")
            + (f" turn {self.turn}" if self.turn is not None else "")
        )
        return f"{place}: {self.rule}: {self.message}"


@functools.lru_cache(maxsize=200_000)
def _key(form: str) -> str:
    return texts.normalise(form)


def any_form(forms: tuple[str, ...], normalised_text: str) -> bool:
    """Whether one of `forms` (normalised) stands in the text."""
    return any(form and form in normalised_text and holds(form, normalised_text) for form in forms)


class Forms:
    """The comparable forms of all versions of a persona, made once: `stated(text)` gives the versions a text holds."""

    def __init__(self, facts: list[Fact] | tuple[Fact, ...]):
        self.entries = []
        for fact in facts:
            for version in fact.versions:
                parts = [tuple(dict.fromkeys(_key(form) for form in part)) for part in version.surface.values]
                needed = [parts[i] for i in changed_parts(fact, version)] or parts
                anchors = tuple(dict.fromkeys(_key(anchor) for anchor in version.surface.anchors))
                self.entries.append((f"{fact.id}.{version.n}", anchors, needed))

    def stated(self, text: str) -> set[str]:
        """Ids ('f03.1') of the versions of which an anchor and every needed value stand in `text`."""
        plain = texts.normalise(text)
        return {
            name
            for name, anchors, parts in self.entries
            if any_form(anchors, plain) and parts and all(any_form(part, plain) for part in parts)
        }


def changed_parts(fact: Fact, version: Version) -> list[int]:
    """Positions of the value parts in which a later version of a partial change differs from the one before it (an
    utterance of the change names only these); empty for every other version: all parts are needed."""
    if fact.change != "partial" or version.n == 1 or version.n > len(fact.versions):
        return []
    before = fact.versions[version.n - 2].surface.values
    if len(before) != len(version.surface.values):
        return []
    return [i for i, part in enumerate(version.surface.values) if set(part) != set(before[i])]


def audit(personas: list[Persona], parameters: dict | None = None) -> list[Fault]:
    """All faults of an edition, in order of persona. `parameters` (of edition.json) turns the counts into warnings
    where they differ from it; without it the counts of the published benchmark are expected."""
    faults: list[Fault] = []
    seen = collections.Counter(persona.id for persona in personas)
    for name, times in seen.items():
        if times > 1:
            faults.append(Fault("unique_ids", name, None, None, f"the persona is there {times} times"))
    for persona in personas:
        faults += audit_persona(persona, parameters or {})
    return faults


def audit_persona(persona: Persona, parameters: dict) -> list[Fault]:
    """The faults of one persona."""
    faults: list[Fault] = []

    def fault(
        rule: str, message: str, session: str | None = None, turn: int | None = None, warning: bool = False
    ) -> None:
        faults.append(Fault(rule, persona.id, session, turn, message, warning))

    for kind, ids in (("fact", [f.id for f in persona.facts]), ("session", [s.id for s in persona.sessions])):
        for name, times in collections.Counter(ids).items():
            if times > 1:
                fault("unique_ids", f"the {kind} id {name} is there {times} times", name if kind == "session" else None)
    order = {session.id: i for i, session in reversed(list(enumerate(persona.sessions)))}
    facts = {fact.id: fact for fact in persona.facts}
    versions = {f"{fact.id}.{v.n}": (fact, v) for fact in persona.facts for v in fact.versions}
    _dates(persona, fault)
    _ledger(persona, order, fault)
    _utterances(persona, order, facts, versions, fault)
    _stated(persona, order, fault)
    _evidence(persona, order, versions, fault)
    _cascades(persona, order, versions, fault)
    _questions(persona, fault)
    _distinguishable(persona, fault)
    _counts(persona, parameters, fault)
    return faults


def _dates(persona: Persona, fault) -> None:
    last = None
    for session in persona.sessions:
        try:
            date = datetime.fromisoformat(session.date)
        except ValueError:
            fault("dates", f"{session.date!r} is no ISO 8601 date", session.id)
            continue
        if date.tzinfo is None:
            fault("dates", f"{session.date!r} has no time zone", session.id)
            continue
        if last is not None and date <= last:
            fault("dates", f"{session.date} is not after the session before it", session.id)
        last = date


def _ledger(persona: Persona, order: dict[str, int], fault) -> None:
    for fact in persona.facts:
        if [v.n for v in fact.versions] != list(range(1, len(fact.versions) + 1)):
            fault("versions", f"{fact.id}: versions are not numbered 1, 2, ...")
        if (fact.change == "none") != (len(fact.versions) == 1):
            fault("versions", f"{fact.id}: change is {fact.change!r} with {len(fact.versions)} version(s)")
        for version in fact.versions:
            name = f"{fact.id}.{version.n}"
            if not version.text.strip():
                fault("text", f"{name}: the ledger sentence is empty")
            for session in (version.valid_from, version.valid_to):
                if session is not None and session not in order:
                    fault("references", f"{name}: there is no session {session}")
            if not version.surface.anchors or not version.surface.values or not all(version.surface.values):
                fault("versions", f"{name}: surface forms are missing")
        for old, new in zip(fact.versions, fact.versions[1:], strict=False):
            if old.valid_to != new.valid_from:
                fault(
                    "versions",
                    f"{fact.id}: version {old.n} ends at {old.valid_to}, version {new.n} begins at {new.valid_from}",
                )
            if order.get(new.valid_from, 0) <= order.get(old.valid_from, 0):
                fault("versions", f"{fact.id}: version {new.n} does not begin after version {old.n}")
            if not any(
                {_key(x) for x in a}.isdisjoint(_key(x) for x in b)
                for a, b in zip(old.surface.values, new.surface.values, strict=False)
            ):
                fault("versions", f"{fact.id}: versions {old.n} and {new.n} cannot be told apart by any value")
        if fact.versions and fact.versions[-1].valid_to is not None and fact.cascade is None:
            fault("versions", f"{fact.id}: the last version has an end")
        if fact.forget is not None and fact.forget not in order:
            fault("references", f"{fact.id}: there is no session {fact.forget} to forget it in")
        if fact.forget is not None and fact.change != "none":
            fault("versions", f"{fact.id}: is both changed and forgotten")
        if (fact.forget is None) != (fact.forget_kind is None):
            fault("versions", f"{fact.id}: forget and forget_kind do not go together")


def _utterances(persona: Persona, order, facts, versions, fault) -> None:
    forms = Forms(persona.facts)
    forgotten_at: dict[str, tuple[int, int]] = {}
    for fact in persona.facts:
        if fact.forget in order:
            session = persona.sessions[order[fact.forget]]
            turns = [i for i, turn in enumerate(session.turns) if turn.kind == "forget" and turn.of == fact.id]
            if not turns:
                fault("forget_request", f"{fact.id}: no utterance of {session.id} asks to forget it", session.id)
            forgotten_at[fact.id] = (order[session.id], turns[0] if turns else len(session.turns))
    ends = {
        name: _end(persona, order, name, *versions[name]) for name in versions if versions[name][1].valid_to in order
    }
    for position, session in enumerate(persona.sessions):
        for index, turn in enumerate(session.turns):
            where = (session.id, index)
            if not turn.text.strip():
                fault("text", "the utterance is empty", *where)
            if turn.of is not None and turn.of not in facts:
                fault("references", f"there is no fact {turn.of}", *where)
            if turn.kind == "forget" and (turn.of not in facts or facts[turn.of].forget != session.id):
                fault("forget_request", f"asks to forget {turn.of}, which the ledger does not say", *where)
            shown = forms.stated(turn.text)
            for name in turn.states:
                if name not in versions:
                    fault("references", f"there is no version {name}", *where)
            for name in sorted(shown | set(turn.states)):
                if name not in versions:
                    continue
                fact, version = versions[name]
                labelled = name in turn.states
                if not labelled and _may_show(turn, fact, version):
                    continue
                if position < order.get(version.valid_from, -1):
                    fault("too_early", f"states {name}, which is valid from {version.valid_from} only", *where)
                elif (position, index) > ends.get(name, (len(order), 0)) and name not in (turn.mistaken or []):
                    fault("replaced", f"states {name}, which {version.valid_to} replaced", *where)
                elif fact.id in forgotten_at and (position, index) > forgotten_at[fact.id]:
                    fault("forgotten", f"states {name} after the request to forget it", *where)
                elif labelled and name not in shown and not _by_evidence(turn, name):
                    fault("stated", f"{name} is labelled, but its forms are not in the utterance", *where)
                elif not labelled:
                    fault("unlabelled", f"holds the forms of {name} without a label", *where)
            if turn.kind == "near_miss":
                if turn.of is None:
                    fault("near_miss", "does not say which fact it is near to", *where)
                if turn.states:
                    fault("near_miss", f"is labelled to state {', '.join(turn.states)}", *where)
                if not _names_somebody_else(turn.text, persona.language):
                    fault("near_miss", "names nobody else, so it reads as a fact about the user", *where)


def _end(persona: Persona, order: dict[str, int], name: str, fact: Fact, version: Version) -> tuple[int, int]:
    """Position (session, utterance) of the last word before `version` is replaced: what replaces it is said in the
    utterance after."""
    successor = f"{fact.id}.{version.n + 1}" if version.n < len(fact.versions) else fact.cascade
    session = persona.sessions[order[version.valid_to]]
    first = next((i for i, turn in enumerate(session.turns) if successor in turn.states), 0)
    return order[session.id], first - 1


def _may_show(turn: TurnLabel, fact: Fact, version: Version) -> bool:
    """What an utterance may show without stating it: a change its older version, a near miss the fact it is near to."""
    if turn.of != fact.id:
        return False
    return turn.kind == "near_miss" or (turn.kind == "change" and version.n < len(fact.versions))


def _names_somebody_else(text: str, language: str) -> bool:
    plain = texts.normalise(text)
    return any(holds(word, plain) for word in OTHERS[language])


def _stated(persona: Persona, order, fault) -> None:
    """Each version is stated, in its forms or by labelled evidence, by a user utterance of its session."""
    for fact in persona.facts:
        forms = Forms([fact])
        for version in fact.versions:
            if version.text.strip() and f"{fact.id}.{version.n}" not in forms.stated(version.text):
                fault("versions", f"{fact.id}.{version.n}: its own sentence {version.text!r} does not hold its forms")
            if version.valid_from not in order:
                continue
            name, session = f"{fact.id}.{version.n}", persona.sessions[order[version.valid_from]]
            turns = [i for i, turn in enumerate(session.turns) if name in turn.states and turn.role == "user"]
            if not turns:
                fault("stated", f"{name} is not stated in the session it is valid from", session.id)
            elif not any(
                name in forms.stated(session.turns[i].text) or _by_evidence(session.turns[i], name) for i in turns
            ):
                fault("stated", f"{name} is labelled, but its forms are not in the utterance", session.id, turns[0])


def _by_evidence(turn: TurnLabel, name: str) -> bool:
    """Whether the utterance is labelled to state a version otherwise than by its forms (`_evidence` holds that to
    account)."""
    return name in (turn.elliptic or []) or any(
        e.version == name for e in [*(turn.implied or []), *(turn.relative or [])]
    )


def _evidence(persona: Persona, order, versions, fault) -> None:
    """Implied, relative, elliptic and mistaken statements: do the labels say what the words say?"""
    hints: dict[str, set[str]] = collections.defaultdict(set)
    for evidence in [e for session in persona.sessions for turn in session.turns for e in turn.implied or []]:
        hints[evidence.version].add(_key(evidence.words))
    for position, session in enumerate(persona.sessions):
        for index, turn in enumerate(session.turns):
            where = (session.id, index)
            plain = texts.normalise(turn.text)
            labels = [("implied", e) for e in turn.implied or []] + [("relative", e) for e in turn.relative or []]
            labels += [("elliptic", Evidence(version=name, words="")) for name in turn.elliptic or []]
            labels += [("mistaken", Evidence(version=name, words="")) for name in turn.mistaken or []]
            for rule, evidence in labels:
                name = evidence.version
                if name not in versions or name not in turn.states:
                    fault(rule, f"{name} is no version that the utterance is labelled to state", *where)
                elif rule in ("implied", "relative") and _key(evidence.words) not in plain:
                    fault(rule, f"{evidence.words!r} does not stand in the utterance", *where)
                elif rule == "implied" and not any(_key(evidence.words) in part for part in _needed(*versions[name])):
                    fault(rule, f"{evidence.words!r} is no form of {name}", *where)
                elif rule == "implied" and _outright(*versions[name], hints[name], plain):
                    fault(rule, f"the utterance says {name} outright", *where)
                elif rule == "relative":
                    problem = _relative_problem(
                        session, index, evidence, *versions[name], name in (turn.elliptic or [])
                    )
                    if problem:
                        fault(rule, f"{name}: {problem}", *where)
                elif rule == "elliptic" and not any(e.version == name for e in turn.relative or []):
                    fact, version = versions[name]
                    if not all(any_form(part, plain) for part in _needed(fact, version)):
                        fault(rule, f"{name}: its values do not stand in the utterance", *where)
                    elif not _anchor_before(session, index, version):
                        fault(rule, f"{name}: none of the {REACH} utterances before says what it is about", *where)
                elif rule == "mistaken":
                    replaced = versions[name][1].valid_to
                    after = session.turns[index + 1] if index + 1 < len(session.turns) else None
                    current = {
                        f"{versions[name][0].id}.{v.n}" for v in versions[name][0].versions if v.n > versions[name][1].n
                    }
                    if turn.role != "assistant" or replaced is None or position < order.get(replaced, len(order)):
                        fault(rule, f"{name} was not replaced, or it is not the assistant who repeats it", *where)
                    elif after is None or not current & set(after.states):
                        fault(rule, f"the utterance after does not correct {name}", *where)


def _outright(fact: Fact, version: Version, hints: set[str], plain: str) -> bool:
    """Whether a normalised text states a version by other forms than those that only imply it."""
    anchors = tuple(_key(anchor) for anchor in version.surface.anchors)
    return any_form(anchors, plain) and all(
        any_form(tuple(form for form in part if form not in hints), plain) for part in _needed(fact, version)
    )


def _needed(fact: Fact, version: Version) -> list[tuple[str, ...]]:
    """The value parts that an utterance of the version has to hold, normalised."""
    parts = [tuple(_key(form) for form in part) for part in version.surface.values]
    return [parts[i] for i in changed_parts(fact, version)] or parts


def _anchor_before(session: SessionRecord, index: int, version: Version) -> bool:
    anchors = tuple(_key(anchor) for anchor in version.surface.anchors)
    return any(
        any_form(anchors, texts.normalise(turn.text)) for turn in session.turns[max(0, index - REACH) : index + 1]
    )


def _relative_problem(
    session: SessionRecord, index: int, evidence: Evidence, fact: Fact, version: Version, elliptic: bool
) -> str | None:
    """What is wrong with a relative date; None where nothing is."""
    meant, plain = evidence.date or "", texts.normalise(session.turns[index].text)
    try:
        possible = resolve(evidence.words, datetime.fromisoformat(session.date).date())
    except ValueError:
        return f"the session's date {session.date!r} cannot be read"
    if meant not in possible:
        return f"{evidence.words!r} said on {session.date[:10]} means {' or '.join(sorted(possible)) or 'nothing known'}, not {meant or 'no date'}"
    kind, value = {10: ("date", meant), 7: ("month", meant[5:]), 4: ("year", int(meant) if len(meant) == 4 else 0)}[
        len(meant)
    ]
    spelled = {_key(form) for form in values.forms(kind, value)}
    if kind == "date":
        spelled |= {_key(form) for form in values.forms("date", meant[5:])}
    parts = _needed(fact, version)
    dated = [part for part in parts if not spelled.isdisjoint(part)]
    if not dated:
        return f"no value of the version is {meant}"
    if not all(any_form(part, plain) for part in parts if part not in dated):
        return "its other values do not stand in the utterance"
    anchors = tuple(_key(anchor) for anchor in version.surface.anchors)
    if not (any_form(anchors, plain) or elliptic and _anchor_before(session, index, version)):
        return "nothing in the utterance says what it is about"
    return None


def _cascades(persona: Persona, order, versions, fault) -> None:
    """A fact that a change of another made out of date without anybody saying so."""
    for fact in persona.facts:
        if fact.cascade is None or not fact.versions:
            continue
        cause, causing = versions.get(fact.cascade, (None, None))
        last = fact.versions[-1]
        if cause is None or cause.id == fact.id or causing.n < 2:
            fault("cascade", f"{fact.id}: {fact.cascade} is no change of another fact")
        elif last.valid_to != causing.valid_from:
            fault("cascade", f"{fact.id}: ends at {last.valid_to}, while {fact.cascade} begins at {causing.valid_from}")
        elif order.get(last.valid_from, 0) >= order.get(causing.valid_from, 0):
            fault("cascade", f"{fact.id}: is first stated when {fact.cascade} has made it out of date already")
        if fact.forget is not None:
            fault("cascade", f"{fact.id}: is both out of date and forgotten")
        for session in persona.sessions:
            for index, turn in enumerate(session.turns):
                if (
                    turn.of == fact.id
                    and turn.kind in ("change", "forget")
                    and order[session.id] >= order.get(last.valid_to, 0)
                ):
                    fault(
                        "cascade",
                        f"somebody says that {fact.id} changed, so it is not left to be inferred",
                        session.id,
                        index,
                    )


def _questions(persona: Persona, fault) -> None:
    for fact in persona.facts:
        if not fact.versions:
            continue
        question, current = fact.question, fact.versions[-1]
        if not question.text.strip() or not question.answer.strip():
            fault("text", f"{fact.id}: the question or its answer is empty")
            continue
        accepted = tuple(dict.fromkeys(_key(form) for form in [question.answer, *question.accepted]))
        if not any_form(accepted, _key(current.text)):
            fault(
                "question", f"{fact.id}: the answer {question.answer!r} is not in the current version {current.text!r}"
            )
        if any_form(tuple(a for a in accepted if len(a) > 1), _key(question.text)):
            fault("question", f"{fact.id}: the question gives the answer away: {question.text!r}")
        for version in fact.versions[:-1]:
            if any_form(accepted, _key(version.text)):
                fault(
                    "question",
                    f"{fact.id}: the answer {question.answer!r} also stands in the older version {version.text!r}",
                )
        stale = {_key(form) for form in question.stale}
        if stale & set(accepted):
            fault("question", f"{fact.id}: {sorted(stale & set(accepted))[0]!r} counts as right and as stale")


def _distinguishable(persona: Persona, fault) -> None:
    """Two facts are one to a reader when they share an anchor and each part of one has a form in common with the
    other."""
    prepared = [
        (fact, {_key(a) for a in version.surface.anchors}, [{_key(x) for x in part} for part in version.surface.values])
        for fact in persona.facts
        for version in fact.versions
    ]
    slots = collections.Counter(fact.slot for fact in persona.facts)
    for slot, times in slots.items():
        if times > 1:
            fault("distinguishable", f"{times} facts share the slot {slot}")
    for i, (fact, anchors, parts) in enumerate(prepared):
        for other, other_anchors, other_parts in prepared[i + 1 :]:
            if other.id == fact.id or anchors.isdisjoint(other_anchors):
                continue
            if within(parts, other_parts) or within(other_parts, parts):
                fault(
                    "distinguishable",
                    f"{fact.id} ({fact.slot}) and {other.id} ({other.slot}) share anchors and all values",
                )


def within(parts: list, others: list) -> bool:
    """Whether each of `parts` (sets of forms) shares a form with some of `others`."""
    return all(any(not part.isdisjoint(other) for other in others) for part in parts)


def _counts(persona: Persona, parameters: dict, fault) -> None:
    expected = {
        "facts": parameters.get("facts", 40),
        "sessions": parameters.get("sessions", 30),
        "changes": parameters.get("changes", 10),
        "forgets": parameters.get("forgets", 4),
    }
    found = {
        "facts": len(persona.facts),
        "sessions": len(persona.sessions),
        "changes": sum(f.change != "none" for f in persona.facts),
        "forgets": sum(f.forget is not None for f in persona.facts),
    }
    for name, n in expected.items():
        if found[name] != n and not (name == "facts" and found[name] == n - 1):
            fault("counts", f"{found[name]} {name} where the edition has {n}", warning=True)
    least = {
        "partial changes": (sum(f.change == "partial" for f in persona.facts), parameters.get("partial_changes", 4)),
        "near misses": (
            sum(t.kind == "near_miss" for s in persona.sessions for t in s.turns),
            parameters.get("near_misses", 6),
        ),
    }
    for name, (n, fewest) in least.items():
        if n < fewest:
            fault("counts", f"{n} {name}, at least {fewest} belong to the edition", warning=True)


def summary(faults: list[Fault], written: bool = False) -> dict:
    """What `edition.json` says of the audit: {'faults': n, 'warnings': n, 'rules': {rule: n}}; with the rules for
    written editions among them where it is one."""
    rules = collections.Counter(f.rule for f in faults)
    return {
        "faults": sum(not f.warning for f in faults),
        "warnings": sum(f.warning for f in faults),
        "rules": {rule: rules.get(rule, 0) for rule in sorted(RULES | WRITTEN_RULES if written else RULES)},
    }

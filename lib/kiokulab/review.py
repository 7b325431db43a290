"""Human review of an edition: a person reads a session with the ledger beside it and says whether it is natural and
right.

Reviews lie in `data/kioku/<edition>/reviews.jsonl`, a line a verdict, appended and never changed: who, when, what
(`item`: a session "en-01/s03", an utterance "en-01/s03.t05" or a fact "en-01/f07"), `natural` and `right` (true, false,
or null where that was not judged), a note, and the digest of the edition that was read. They are no part of the
edition: its digest leaves them out, so that a review changes no run-id, no metrics.json and no receipt. A later line of
the same person about the same item replaces the earlier.

`python -m kiokulab.review` (make review) opens notebooks/review.ipynb; VOILA=1 serves it as a page.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError
from kiokulab.files import dumps, iterate_jsonl

FILE = "reviews.jsonl"
KINDS = ("session", "utterance", "fact")


class Reviews:
    """An edition with what people said of it. InputError where there is no such edition or its reviews cannot be
    read."""

    def __init__(self, edition: str | Path):
        from kiokulab.kioku.generate import edition_folder, load_edition
        from kiokulab.params import edition_digest

        self.folder = Path(edition_folder(edition))
        self.described, people = load_edition(self.folder)
        self.people = {person.id: person for person in people}
        self.digest = edition_digest("kioku", str(self.folder))
        self.rows = read(self.folder)

    @property
    def sessions(self) -> list[str]:
        """Items of all sessions in order: 'en-01/s01', ..."""
        return [f"{person.id}/{session.id}" for person in self.people.values() for session in person.sessions]

    def kind(self, item: str) -> str:
        """session, utterance or fact; InputError for an item that the edition has not."""
        name, _, rest = item.partition("/")
        person = self.people.get(name)
        if person is not None:
            session, dot, turn = rest.partition(".t")
            found = next((s for s in person.sessions if s.id == session), None)
            if found is not None and not dot:
                return "session"
            if found is not None and turn.isdecimal() and 1 <= int(turn) <= len(found.turns):
                return "utterance"
            if any(fact.id == rest for fact in person.facts):
                return "fact"
        raise InputError(f"the edition {self.described.edition} has no session, utterance or fact {item!r}", "item")

    def standing(self) -> dict[tuple[str, str], dict[str, Any]]:
        """(who, item) -> the review that stands: of each person the last about each item, of the edition as it is
        now."""
        return {(row["who"], row["item"]): row for row in self.rows if row["digest"] == self.digest}

    def reviewed(self) -> set[str]:
        """Sessions that somebody has judged as a whole."""
        return {
            item
            for (_, item), row in self.standing().items()
            if row["kind"] == "session" and not (row["natural"] is None and row["right"] is None)
        }

    def say(
        self,
        who: str,
        item: str,
        *,
        natural: bool | None = None,
        right: bool | None = None,
        note: str = "",
        when: datetime | None = None,
    ) -> dict[str, Any]:
        """Append a verdict and return its row. InputError where nobody says it, nothing is said, or the edition has no
        such item."""
        if not who.strip():
            raise InputError("a review needs a name", "who", "Any name by which you can be asked about it")
        if natural is None and right is None and not note.strip():
            raise InputError(
                "nothing is said of it yet",
                "natural, right, note",
                "Choose natural or unnatural, right or wrong, or write a note",
            )
        row = {
            "who": who.strip(),
            "when": (when or datetime.now(UTC)).isoformat(timespec="seconds"),
            "item": item,
            "kind": self.kind(item),
            "natural": natural,
            "right": right,
            "note": note.strip(),
            "edition": self.described.edition,
            "digest": self.digest,
        }
        append(self.folder / FILE, row)
        self.rows.append(row)
        return row


def read(folder: str | Path) -> list[dict[str, Any]]:
    """Rows of an edition's reviews.jsonl, in order; none where there is no such file. InputError with file:line for a
    row that is none."""
    path = Path(folder) / FILE
    rows = []
    for number, row in iterate_jsonl(path) if path.is_file() else ():
        wrong = [name for name in ("who", "when", "item", "note", "digest") if not isinstance(row.get(name), str)]
        wrong += [name for name in ("natural", "right") if row.get(name, "missing") not in (True, False, None)]
        if wrong or row.get("kind") not in KINDS:
            raise InputError(
                f"not a review ({', '.join(wrong) or 'kind'})",
                f"{path}:{number}",
                "Mend or take out the line; lib/kiokulab/review.py says what a row holds",
            )
        rows.append(row)
    return rows


def append(path: Path, row: Mapping[str, Any]) -> None:
    """One more line, whole or not at all, also while others append. InputError where the file's last line is torn."""
    data = (dumps(dict(row)) + "\n").encode("utf-8")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            raise InputError(
                "its last line is torn, so nothing is added", str(path), "Mend or take out that line first"
            )
        written = 0
        try:
            while written < len(data):
                written += os.write(handle, data[written:])
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)  # a full disk leaves the file as it was
            raise
    finally:
        os.close(handle)


def summary(edition: str | Path) -> dict[str, Any]:
    """{'sessions', 'reviewed', 'people', 'items', 'unnatural', 'wrong', 'older'} of an edition by name or folder;
    `older` are reviews of the edition as it was before a byte of it changed, which count for nothing now. InputError
    where there is no such edition."""
    reviews = Reviews(edition)
    rows = list(reviews.standing().values())
    return {
        "sessions": len(reviews.sessions),
        "reviewed": len(reviews.reviewed()),
        "people": len({r["who"] for r in rows}),
        "items": len({r["item"] for r in rows}),
        "unnatural": len({r["item"] for r in rows if r["natural"] is False}),
        "wrong": len({r["item"] for r in rows if r["right"] is False}),
        "older": sum(r["digest"] != reviews.digest for r in reviews.rows),
    }


def said(edition: str | Path) -> str:
    """The same as a sentence: 'No person has reviewed a session of v0.1 yet (0 of 300).'"""
    s, name = summary(edition), Path(edition).name
    if not s["items"]:
        return f"No person has reviewed a session of {name} yet (0 of {s['sessions']})."
    people = "1 person" if s["people"] == 1 else f"{s['people']} people"
    return (
        f"{s['reviewed']} of {s['sessions']} sessions of {name} are reviewed, by {people}: {s['items']} items judged in all, {s['unnatural']} of them called unnatural, "
        f"{s['wrong']} wrong by somebody."
    )


# --- shown --------------------------------------------------------------------------------------------------------


def page(reviews: Reviews, item: str) -> str:
    """A session beside the ledger as HTML: its utterances, and every fact with whether it is true by then. Facts of the
    session first."""
    from kiokulab.explore import wrapped
    from kiokulab.page import environment

    person, session = _session(reviews, item)
    order = {s.id: n for n, s in enumerate(person.sessions)}
    now = order[session.id]
    stated = {name for turn in session.turns for name in turn.states} | {turn.of for turn in session.turns if turn.of}
    lines = []
    for fact in person.facts:
        for version in fact.versions:
            ended = (
                version.valid_to is not None
                and order[version.valid_to] <= now
                or fact.forget is not None
                and order[fact.forget] <= now
            )
            state = "not yet said" if order[version.valid_from] > now else "no longer true" if ended else "true"
            lines.append(
                {
                    "fact": fact,
                    "version": version,
                    "state": state,
                    "here": f"{fact.id}.{version.n}" in stated or fact.id in stated,
                }
            )
    lines.sort(key=lambda line: not line["here"])  # otherwise in the ledger's order
    turns = [
        {
            "id": f"{session.id}.t{n:02d}",
            "date": session.date[:10],
            "role": t.role,
            "kind": t.kind,
            "states": t.states,
            "text": t.text,
        }
        for n, t in enumerate(session.turns, 1)
    ]
    verdicts = [
        row for (_, about), row in sorted(reviews.standing().items()) if about == item or about.startswith(f"{item}.")
    ]
    return wrapped(
        environment()
        .get_template("review.html")
        .render(person=person, session=session, turns=turns, lines=lines, verdicts=verdicts)
    )


def _session(reviews: Reviews, item: str) -> tuple[Any, Any]:
    reviews.kind(item)
    person = reviews.people[item.partition("/")[0]]
    return person, next(s for s in person.sessions if s.id == item.partition("/")[2].partition(".")[0])


def about(reviews: Reviews, item: str) -> list[tuple[str, str]]:
    """What of a session can be judged: [(words, item)], the session itself, each utterance, and each fact it states."""
    from kiokulab.explore import short

    person, session = _session(reviews, item)
    facts = {name.split(".")[0] for turn in session.turns for name in turn.states} | {
        turn.of for turn in session.turns if turn.of
    }
    return [
        ("the whole session", item),
        *[
            (short(f"{session.id}.t{n:02d} {t.role}: {t.text}", 80), f"{item}.t{n:02d}")
            for n, t in enumerate(session.turns, 1)
        ],
        *[
            (short(f"{f.id} {f.slot}: {f.versions[-1].text}", 80), f"{person.id}/{f.id}")
            for f in person.facts
            if f.id in facts
        ],
    ]


# --- widgets ------------------------------------------------------------------------------------------------------

MARKS: dict[str, Sequence[tuple[str, bool | None]]] = {
    "natural": [("not said", None), ("natural", True), ("unnatural", False)],
    "right": [("not said", None), ("right", True), ("wrong", False)],
}


class Panel:
    """The review as ipywidgets: where one is, the session beside its ledger, two marks, a note. `box` is what a
    notebook shows."""

    def __init__(self, reviews: Reviews, who: str):
        import ipywidgets as w

        self.reviews, self.busy = reviews, False
        wide, style = w.Layout(width="auto"), {"description_width": "6.5em"}
        self.progress, self.shown, self.answer = w.HTML(), w.HTML(), w.HTML()
        self.who = w.Text(value=who, description="Your name", layout=wide, style=style)
        self.person = w.Dropdown(options=list(reviews.people), description="Persona", layout=wide, style=style)
        self.session = w.Dropdown(options=[], description="Session", layout=wide, style=style)
        self.target = w.Dropdown(options=[], description="About", layout=wide, style=style)
        marks = {
            name: w.ToggleButtons(
                options=list(options),
                value=None,
                description={"natural": "Wording", "right": "Content"}[name],
                tooltips=["", f"it is {options[1][0]}", f"it is {options[2][0]}"],
                style={"button_width": "6.5em", "description_width": "6.5em"},
            )
            for name, options in MARKS.items()
        }
        self.natural, self.right = marks["natural"], marks["right"]
        self.note = w.Textarea(
            placeholder="what is unnatural or wrong, and why", rows=3, description="Note", layout=wide, style=style
        )
        self.save = w.Button(description="Save", icon="check", button_style="primary")
        self.back, self.next, self.open = (
            w.Button(description=text, layout=w.Layout(width="auto"))
            for text in ("← Session before", "Next session →", "Next not reviewed")
        )
        self.person.observe(lambda _: self.busy or self.fill(), "value")
        self.session.observe(lambda _: self.busy or self.show(), "value")
        self.target.observe(lambda _: self.busy or self.recall(), "value")
        self.back.on_click(lambda _: self.step(-1))
        self.next.on_click(lambda _: self.step(1))
        self.open.on_click(lambda _: self.unreviewed())
        self.save.on_click(lambda _: self.keep())
        self.fill()
        left = w.VBox(
            [
                self.progress,
                self.who,
                self.person,
                self.session,
                w.HBox([self.back, self.next, self.open], layout=w.Layout(flex_flow="row wrap")),
                self.target,
                self.natural,
                self.right,
                self.note,
                w.HBox([self.save, self.answer]),
            ],
            layout=w.Layout(flex="1 1 22em", min_width="0", margin="0 1.5em 0 0"),
        )
        self.box = w.HBox(
            [left, w.VBox([self.shown], layout=w.Layout(flex="2.4 1 36em", min_width="0"))],
            layout=w.Layout(width="100%", flex_flow="row wrap", align_items="flex-start"),
        )

    @property
    def item(self) -> str:
        return f"{self.person.value}/{self.session.value}"

    def put(self, widget: Any, value: Any, options: Sequence | None = None) -> None:
        self.busy = True
        if options is not None:
            widget.options = list(options)
        widget.value = value
        self.busy = False

    def fill(self, session: str | None = None) -> None:
        done, person = self.reviews.reviewed(), self.reviews.people[self.person.value]
        options = [
            (f"{s.id}, {s.date[:10]}" + (", reviewed" if f"{person.id}/{s.id}" in done else ""), s.id)
            for s in person.sessions
        ]
        self.put(self.session, session or person.sessions[0].id, options)
        self.show()

    def show(self) -> None:
        from markupsafe import escape

        self.put(self.target, self.item, about(self.reviews, self.item))
        self.shown.value = page(self.reviews, self.item)
        done, every = self.reviews.reviewed(), self.reviews.sessions
        self.progress.value = f"<p>{len(done)} of {len(every)} sessions of {escape(self.reviews.described.edition)} are reviewed by a person.</p>"
        self.recall()

    def recall(self) -> None:
        """The marks of whoever is named, where they have judged this before."""
        row = self.reviews.standing().get((self.who.value.strip(), self.target.value), {})
        self.put(self.natural, row.get("natural"))
        self.put(self.right, row.get("right"))
        self.note.value, self.answer.value = row.get("note", ""), ""

    def step(self, by: int) -> None:
        every = self.reviews.sessions
        self.go(every[(every.index(self.item) + by) % len(every)])

    def unreviewed(self) -> None:
        done, every = self.reviews.reviewed(), self.reviews.sessions
        at = every.index(self.item)
        self.go(next((item for item in every[at + 1 :] + every[:at] if item not in done), self.item))

    def go(self, item: str) -> None:
        person, _, session = item.partition("/")
        self.put(self.person, person)
        self.fill(session)

    def keep(self) -> None:
        from markupsafe import escape

        try:
            row = self.reviews.say(
                self.who.value,
                self.target.value,
                natural=self.natural.value,
                right=self.right.value,
                note=self.note.value,
            )
        except InputError as error:
            self.answer.value = f'<p role="alert">{escape(str(error))}</p>'
            return
        target = self.target.value
        self.fill(self.session.value)
        if target != self.item:
            self.put(self.target, target)
            self.recall()
        self.answer.value = f"<p>saved: {escape(row['item'])}</p>"


def panel(edition: str | Path, who: str = "") -> Any:
    """The review of an edition as ipywidgets. InputError where there is no such edition."""
    made = Panel(Reviews(edition), who)
    made.box.panel = made  # lives as long as its box
    return made.box


if __name__ == "__main__":
    from kiokulab import explore

    try:
        Reviews(os.environ.get("EDITION") or "v0.1")  # a wrong name is said here and not in a page
        explore.main("review.ipynb")
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

"""A small ledger in two languages and the rows that a judge would leave about four kinds of store. For tests only.

`personas()` gives facts of all kinds: 4 plain, 1 changed whole, 1 changed in part, 1 forgotten.
`rows(kind)` gives judgements of a store that is 'perfect', 'everything', 'nothing' or 'tidy' (replaces, keeps one old
part).
"""

from __future__ import annotations

from types import SimpleNamespace

from kiokulab.kioku.records import (
    AnswerRow,
    Fact,
    JudgeRow,
    Persona,
    Question,
    SentenceRow,
    SessionRecord,
    SizeRow,
    Surface,
    TurnLabel,
    Version,
    VersionRow,
)

PARAMS = dict(
    system="vector", route="raw", floor=0.01, seed=1, bootstrap=200, answerer="extractive", grader="rules", beside=[]
)


def params(**changes):
    return SimpleNamespace(**{**PARAMS, **changes})


def version(n, text, start, end=None):
    return Version(
        n=n, text=text, valid_from=start, valid_to=end, surface=Surface(anchors=[text.split()[0]], values=[[text[-3:]]])
    )


def persona(name, language, facts=7):
    words = {"en": "The swim is at {}", "ja": "水泳は{}時です"}[language]
    made = []
    for i in range(1, facts + 1):
        change = {5: "full", 6: "partial"}.get(i, "none")
        versions = [version(1, words.format(i), "s01", "s03" if change != "none" else None)]
        if change != "none":
            versions.append(version(2, words.format(i + 20), "s03"))
        made.append(
            Fact(
                id=f"f{i:02d}",
                slot=f"slot.{i}",
                versions=versions,
                change=change,
                forget="s04" if i == 7 else None,
                question=Question(text=f"When {i}?", answer=versions[-1].text, accepted=[versions[-1].text]),
            )
        )
    turns = [TurnLabel(role="user", text=f.versions[0].text, states=[f"{f.id}.1"], kind="fact", of=f.id) for f in made]
    changes = [
        TurnLabel(role="user", text=f.versions[1].text, states=[f"{f.id}.2"], kind="change", of=f.id)
        for f in made
        if f.change != "none"
    ]
    forget = [TurnLabel(role="user", text="Forget slot 7", kind="forget", of="f07")]
    sessions = [
        SessionRecord(id=f"s{n:02d}", date=f"2025-01-0{n}T10:00:00+00:00", turns=t)
        for n, t in ((1, turns), (3, changes), (4, forget))
    ]
    return Persona(id=name, language=language, name=name.title(), facts=made, sessions=sessions)


def personas(each=3):
    return [persona(f"{language}-{i:02d}", language) for language in ("en", "ja") for i in range(1, each + 1)]


def rows(kind, people=None, route="raw"):
    people = people or personas()
    result = [row for p in people for row in unit_rows(kind, p, route)]
    return result + [JudgeRow(name="rules", version=1, measured={}).model_dump()]


def unit_rows(kind, p, route="raw"):
    common = {"unit": f"{p.id}/{route}", "persona": p.id, "route": route}
    result, held, ledger = [], [], 0
    for fact in p.facts:
        for v in fact.versions:
            last = v is fact.versions[-1]
            is_held = {
                "perfect": last and not fact.forget,
                "everything": True,
                "nothing": False,
                "tidy": last or fact.change == "partial",
            }[kind]
            if is_held:
                held.append((f"{fact.id}.{v.n}", v.text))
            result.append(
                VersionRow(
                    **common,
                    fact=fact.id,
                    version=v.n,
                    verdict="held" if is_held else "absent",
                    how=None,
                    sentences=[f"m-{fact.id}.{v.n}#0"] if is_held else [],
                    live="held" if is_held else "absent",
                    retired="absent",
                ).model_dump()
            )
            ledger += len(v.text) if last and not fact.forget else 0
        role = "leak" if fact.forget else "check"
        verdict = {
            "perfect": ("right", "kept_silent"),
            "everything": ("right", "leaked"),
            "nothing": ("none", "kept_silent"),
            "tidy": ("stale" if fact.change == "partial" else "right", "leaked"),
        }[kind][role == "leak"]
        result.append(
            AnswerRow(
                **common,
                fact=fact.id,
                role=role,
                question=fact.question.text,
                answer=None if verdict in ("none", "kept_silent") else fact.versions[-1].text,
                expected=fact.question.answer,
                verdict=verdict,
            ).model_dump()
        )
    texts = [(f"m-{i}", t, [i]) for i, t in held]
    if kind == "everything":
        texts += [(f"m-noise{i}", f"chatter {i}", []) for i in range(30)]
    for name, text, states in texts:
        language = "en" if name.startswith("m-noise") else p.language
        result.append(
            SentenceRow(
                **common,
                id=f"{name}#0",
                memory=name,
                layer="live",
                text=text,
                language=language,
                states=states,
                judged=True,
            ).model_dump()
        )
    result.append(
        SizeRow(
            **common,
            language=p.language,
            memory_characters={"live": sum(len(t) for _, t, _ in texts)},
            ledger_characters=ledger,
            memories=len(texts),
            status="ok",
        ).model_dump()
    )
    return result

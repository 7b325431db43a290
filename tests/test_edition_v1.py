"""Edition v1 of kioku, written by hand: it is what its sources say, it passes its audit, and planted faults are
found."""

import copy
import json
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from kiokulab import relative
from kiokulab.errors import InputError
from kiokulab.kioku import audit as auditing
from kiokulab.kioku.generate import describe, load_edition, persona_json
from kiokulab.kioku.records import Fact, Persona, TurnLabel
from kiokulab.kioku.written import build, compile_file, compile_text, shared_ngrams
from kiokulab.relative import resolve
from kiokulab.text import normalise

FOLDER = Path(__file__).resolve().parents[1] / "data" / "kioku" / "v1"
EDITION, PERSONAS = load_edition(FOLDER)
ROWS = {persona.id: persona.model_dump(mode="json") for persona in PERSONAS}


def faults_of(row: dict) -> list[auditing.Fault]:
    return [fault for fault in auditing.audit([Persona.model_validate(row)]) if not fault.warning]


# --- the edition ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda p: p.id)
def test_a_persona_is_what_its_source_says(persona):
    assert persona_json(compile_file(FOLDER / "source" / f"{persona.id}.txt")) == (
        FOLDER / f"{persona.id}.json"
    ).read_text(encoding="utf-8")


def test_the_edition_passes_its_audit_without_a_fault_or_a_warning():
    assert auditing.audit(PERSONAS, EDITION.parameters) == []
    assert EDITION.audit == auditing.summary([], written=True)


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda p: p.id)
def test_a_persona_has_what_the_edition_promises(persona):
    turns = [turn for session in persona.sessions for turn in session.turns]
    assert len(persona.facts) == 40 and len(persona.sessions) == 30
    assert all(8 <= len(session.turns) <= 16 for session in persona.sessions)
    assert (
        sum(fact.change != "none" for fact in persona.facts) == 10
        and sum(fact.change == "partial" for fact in persona.facts) >= 4
    )
    assert len({e.version for turn in turns for e in turn.implied or []}) >= 2
    assert {fact.forget_kind for fact in persona.facts if fact.forget} == {"names_fact", "names_topic", "restates"}
    assert sum(turn.kind == "near_miss" for turn in turns) >= 6
    assert any(turn.relative for turn in turns)
    assert any(turn.role == "assistant" and turn.states for turn in turns)
    days = [datetime.fromisoformat(session.date) for session in persona.sessions]
    assert 300 <= (days[-1] - days[0]).days <= 420
    assert 8 <= describe(persona)["keep_all_compression"] <= 16


def test_in_each_language_the_assistant_once_repeats_what_was_replaced():
    mistaken = {
        persona.language
        for persona in PERSONAS
        for session in persona.sessions
        for turn in session.turns
        if turn.mistaken
    }
    assert mistaken == set(EDITION.languages)


def test_three_personas_or_more_have_a_cascade():
    assert sum(any(fact.cascade for fact in persona.facts) for persona in PERSONAS) >= 3


def test_no_two_personas_share_more_than_two_percent_of_their_5_grams():
    shares = shared_ngrams(PERSONAS)
    assert len(shares) == 20 and all(share <= 0.02 for _, _, share in shares)  # all pairs of a language


def test_shared_ngrams_counts_words_of_one_utterance():
    def persona(name, language, *texts):
        turns = [TurnLabel(role="user", text=text) for text in texts]
        return Persona(
            id=name,
            language=language,
            name="A",
            facts=[],
            sessions=[{"id": "s01", "date": "2025-03-04T10:00:00+00:00", "turns": turns}],
        )

    english = [
        persona("en-1", "en", "I walk to the old shop.", "Don't stop."),
        persona("en-2", "en", "We walk to the old shop; don't stop!"),
    ]
    # "walk to the old shop" of two: none reaches into the next utterance
    assert shared_ngrams(english) == [("en-1", "en-2", 0.5)]
    japanese = [
        persona("ja-1", "ja", "来週の木曜、プールに行く"),
        persona("ja-2", "ja", "来週の木曜はプールに行く"),
        persona("ja-3", "ja", "再来週の木曜プールに走る"),
    ]
    assert [
        share for _, _, share in shared_ngrams([*japanese[:1], persona("ja-9", "ja", "ああ、来週の木曜プールに")])
    ] == [0.5]
    assert all(share == 0 for _, _, share in shared_ngrams(japanese)) and shared_ngrams([english[0], japanese[0]]) == []


def test_provenance_says_who_wrote_it_and_that_no_person_has_reviewed_it():
    assert EDITION.generator == "written" and EDITION.licence == "CC BY 4.0"
    assert "language model" in EDITION.notes and "No person has reviewed" in EDITION.reviewed_by_people


# --- planted faults ---------------------------------------------------------------------------------------------


def turns_of(row: dict):
    return ((session, index, turn) for session in row["sessions"] for index, turn in enumerate(session["turns"]))


def find(row: dict, test):
    return next((session, index, turn) for session, index, turn in turns_of(row) if test(turn))


def fact_of(row: dict, test) -> dict:
    return next(fact for fact in row["facts"] if test(fact))


def labelled(row: dict, field: str):
    return find(row, lambda turn: turn.get(field))


def a_relative_date_a_day_off(row):
    session, _, turn = labelled(row, "relative")
    evidence = turn["relative"][0]
    evidence["date"] = (
        "1999" if len(evidence["date"]) < 10 else (date.fromisoformat(evidence["date"]) + timedelta(days=1)).isoformat()
    )
    return "relative", session["id"]


def sessions_ten_weeks_later_than_the_words_were_said(row):
    session = find(row, lambda turn: any(len(e["date"]) == 10 for e in turn.get("relative") or []))[0]
    for each in row["sessions"]:
        each["date"] = (datetime.fromisoformat(each["date"]) + timedelta(weeks=10)).isoformat()
    return "relative", session["id"]


def relative_words_that_nobody_says(row):
    session, _, turn = labelled(row, "relative")
    turn["text"] = turn["text"].casefold().replace(turn["relative"][0]["words"].casefold(), "...")
    return "relative", session["id"]


def a_relative_date_that_the_version_does_not_have(row):
    session, _, turn = labelled(row, "relative")
    fact = fact_of(row, lambda f: f["id"] == turn["relative"][0]["version"].split(".")[0])
    for part in fact["versions"][int(turn["relative"][0]["version"].split(".")[1]) - 1]["surface"]["values"]:
        part[:] = ["never"]
    return "relative", session["id"]


def implying_words_that_are_not_there(row):
    session, _, turn = labelled(row, "implied")
    turn["text"] = "Hm."
    return "implied", session["id"]


def implying_words_that_are_no_form(row):
    """Whoever keeps such an utterance keeps no form of the version: nobody could judge it."""
    session, _, turn = labelled(row, "implied")
    name, n = turn["implied"][0]["version"].split(".")
    for part in fact_of(row, lambda f: f["id"] == name)["versions"][int(n) - 1]["surface"]["values"]:
        part[:] = [form for form in part if form not in {e["words"] for e in turn["implied"]}]
    return "implied", session["id"]


def an_implied_change_said_outright(row):
    session, _, turn = labelled(row, "implied")
    name, n = turn["implied"][0]["version"].split(".")
    turn["text"] += " " + fact_of(row, lambda f: f["id"] == name)["versions"][int(n) - 1]["text"]
    return "implied", session["id"]


def a_cascade_from_a_version_that_is_no_change(row):
    fact = fact_of(row, lambda f: f.get("cascade"))
    fact["cascade"] = fact["cascade"].split(".")[0] + ".1"
    return "cascade", None


def a_cascade_that_ends_another_day(row):
    fact = fact_of(row, lambda f: f.get("cascade"))
    fact["versions"][-1]["valid_to"] = "s30"
    return "cascade", None


def a_cascade_that_somebody_spells_out(row):
    fact = fact_of(row, lambda f: f.get("cascade"))
    turn = row["sessions"][-1]["turns"][0]
    turn["kind"], turn["of"] = "change", fact["id"]
    return "cascade", "s30"


def a_fact_said_again_after_its_cascade(row):
    fact = fact_of(row, lambda f: f.get("cascade"))
    row["sessions"][-1]["turns"][0] = {
        "role": "user",
        "text": fact["versions"][-1]["text"],
        "states": [f"{fact['id']}.1"],
        "kind": "fact",
        "of": None,
    }
    return "replaced", "s30"


def an_ellipsis_with_nothing_before_it(row):
    session, index, turn = labelled(row, "elliptic")
    for before in session["turns"][max(0, index - auditing.REACH) : index]:
        before["text"], before["states"] = "Hm.", []
    for version in fact_of(row, lambda f: f["id"] == turn["elliptic"][0].split(".")[0])["versions"]:
        version["surface"]["anchors"] = ["a word that nobody says"]
    return "elliptic", session["id"]


def a_mistake_that_nobody_corrects(row):
    session, index, _ = labelled(row, "mistaken")
    session["turns"][index + 1] = {"role": "user", "text": "Hm.", "states": [], "kind": "chatter", "of": None}
    return "mistaken", session["id"]


def a_mistake_of_the_user(row):
    session, _, turn = labelled(row, "mistaken")
    turn["role"] = "user"
    return "mistaken", session["id"]


def an_old_version_said_after_its_change(row):
    fact = fact_of(row, lambda f: f["change"] == "full" and f["versions"][1]["valid_from"] < "s28")
    row["sessions"][-1]["turns"][0] = {
        "role": "user",
        "text": fact["versions"][0]["text"],
        "states": [],
        "kind": "chatter",
        "of": None,
    }
    return "replaced", "s30"


def a_forgotten_fact_said_again(row):
    fact = fact_of(row, lambda f: f["forget"])
    row["sessions"][-1]["turns"][0] = {
        "role": "user",
        "text": fact["versions"][0]["text"],
        "states": [],
        "kind": "chatter",
        "of": None,
    }
    return "forgotten", "s30"


def a_change_said_before_its_time(row):
    fact = fact_of(row, lambda f: f["change"] == "full" and f["versions"][1]["valid_from"] > "s05")
    row["sessions"][2]["turns"][0] = {
        "role": "user",
        "text": fact["versions"][1]["text"],
        "states": [],
        "kind": "chatter",
        "of": None,
    }
    return "too_early", "s03"


def a_near_miss_about_nobody_else(row):
    session, _, turn = find(row, lambda t: t["kind"] == "near_miss")
    turn["text"] = "Hm."
    return "near_miss", session["id"]


def a_statement_without_its_label(row):
    session, _, turn = find(
        row, lambda t: t["kind"] == "fact" and not any(t.get(x) for x in ("implied", "relative", "elliptic"))
    )
    turn["states"], turn["kind"] = [], "chatter"
    return "stated", session["id"]


def a_label_on_an_utterance_that_says_something_else(row):
    """The correction a turn later: the first, wrong value must not carry the label of the right one."""
    fact = fact_of(
        row,
        lambda f: (
            f["change"] == "none"
            and not f["forget"]
            and not f.get("cascade")
            and f["versions"][0]["valid_from"] < "s25"
        ),
    )
    row["sessions"][-1]["turns"][0] = {
        "role": "user",
        "text": "Hm.",
        "states": [f"{fact['id']}.1"],
        "kind": "fact",
        "of": None,
    }
    return "stated", "s30"


def a_request_that_is_not_labelled(row):
    session, _, turn = find(row, lambda t: t["kind"] == "forget")
    turn["kind"], turn["of"] = "chatter", None
    return "forget_request", session["id"]


def an_answer_that_the_old_version_gives_too(row):
    fact = fact_of(row, lambda f: f["change"] == "full")
    fact["question"]["accepted"].append(fact["versions"][0]["text"])
    return "question", None


PLANTS = [
    a_relative_date_a_day_off,
    sessions_ten_weeks_later_than_the_words_were_said,
    relative_words_that_nobody_says,
    a_relative_date_that_the_version_does_not_have,
    implying_words_that_are_not_there,
    implying_words_that_are_no_form,
    an_implied_change_said_outright,
    a_cascade_from_a_version_that_is_no_change,
    a_cascade_that_ends_another_day,
    a_cascade_that_somebody_spells_out,
    a_fact_said_again_after_its_cascade,
    an_ellipsis_with_nothing_before_it,
    a_mistake_that_nobody_corrects,
    a_mistake_of_the_user,
    an_old_version_said_after_its_change,
    a_forgotten_fact_said_again,
    a_change_said_before_its_time,
    a_near_miss_about_nobody_else,
    a_statement_without_its_label,
    a_label_on_an_utterance_that_says_something_else,
    a_request_that_is_not_labelled,
    an_answer_that_the_old_version_gives_too,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda f: f.__name__)
def test_a_planted_fault_is_found(plant):
    found = 0
    for row in ROWS.values():
        planted = copy.deepcopy(row)
        try:
            rule, session = plant(planted)
        except StopIteration:  # this persona has no place for it (no ellipsis, say)
            continue
        found += 1
        assert any(fault.rule == rule and fault.session == session for fault in faults_of(planted)), (
            planted["id"],
            rule,
            session,
        )
    assert found


def test_there_are_fifteen_plants_and_each_rule_for_written_editions_is_provoked():
    assert len(PLANTS) >= 15
    provoked = set()
    for plant in PLANTS:
        for row in ROWS.values():
            try:
                provoked.add(plant(copy.deepcopy(row))[0])
                break
            except StopIteration:
                continue
    assert set(auditing.WRITTEN_RULES) <= provoked


# --- records, relative dates, sources ---------------------------------------------------------------------------


def test_fields_that_came_later_are_not_written_where_they_say_nothing():
    assert "mistaken" not in TurnLabel(role="user", text="x").model_dump(mode="json")
    assert not {"cascade"} & set(
        Fact.model_validate({**ROWS["en-01"]["facts"][0], "cascade": None}).model_dump(mode="json")
    )


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("next Thursday", {"2025-03-06", "2025-03-13"}),
        ("on Friday", {"2025-03-07"}),
        ("tomorrow", {"2025-03-05"}),
        ("in three weeks", {"2025-03-25"}),
        ("a fortnight tomorrow", {"2025-03-19"}),
        ("a week on Tuesday", {"2025-03-18"}),
        ("the 2nd", {"2025-04-02"}),
        ("next March", {"2026-03"}),
        ("来週の木曜", {"2025-03-13"}),
        ("三日後", {"2025-03-07"}),
        ("来月の5日", {"2025-04-05"}),
        ("今度の土曜日", {"2025-03-08"}),
        ("明後日", {"2025-03-06"}),
        ("some day", set()),
        ("the 31st of next month", set()),
    ],
)
def test_what_relative_words_mean_on_tuesday_4_march_2025(words, meant):
    assert resolve(words, date(2025, 3, 4)) == meant


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It's next Thursday at ten", [("next thursday", "2025-03-06", "2025-03-13")]),
        ("by Friday, or a fortnight tomorrow", [("by friday", "2025-03-07"), ("a fortnight tomorrow", "2025-03-19")]),
        ("the 14th, half nine", [("the 14th", "2025-03-14")]),
        ("来週の木曜の18時半", [("来週の木曜", "2025-03-13")]),
        ("12日、19時から", [("12日", "2025-03-12")]),
        ("来月の5日に", [("来月の5日", "2025-04-05")]),
        ("on Fridays I swim on the 14th floor, the last Friday of the month", []),
        ("金曜は20日間、1日に2回", []),
        ("five days a week, seven weeks", []),
        ("31日に", [("31日", "2025-03-31")]),
        ("来月の31日", []),
    ],
)
def test_relative_words_are_found_in_a_text_and_habits_and_spans_are_not(text, found):
    said = date(2025, 3, 4)
    assert [(normalise(text)[start:end], *meant) for start, end, meant in relative.find(normalise(text), said)] == found


def test_last_and_next_month_cross_the_year():
    assert resolve("last month", date(2025, 1, 31)) == {"2024-12"}
    assert resolve("in two months", date(2024, 12, 31)) == {"2025-02"}  # there is no 31 February


SOURCE = """persona en-99 | en | A B | +00:00
f01 dog.name
  a dog
  1 s01 My dog is called Pickle.
    Pickle | ピックル
  ? What is my dog called?
  = Pickle | $1
f02 swim | partial
  a swim
  1 s01 I swim at 6 pm.
    @time 18:00 | -at 6
  2 s02 I swim at 7 pm.
    @time 19:00
  ? When do I swim?
  = 7 pm | $1
== s01 2025-03-04 19:40
u [f01.1; f02.1] The dog is Pickle, and I swim at six in the evening.
a Ok
== s02 2025-03-14 19:40
u [change f02; f02.2; @f02.2 tomorrow = 2025-03-15] I swim at 7 pm tomorrow.
a [old f02.1] At six?
"""


def test_a_source_compiles_with_forms_labels_and_dates():
    persona = compile_text(SOURCE)
    swim = persona.facts[1]
    assert (
        "six in the evening" in swim.versions[0].surface.values[0] and "at 6" not in swim.versions[0].surface.values[0]
    )
    assert (
        swim.change == "partial"
        and swim.versions[0].valid_to == "s02"
        and "6 pm" in swim.question.stale
        and "7 pm" not in swim.question.stale
    )
    turn = persona.sessions[1].turns[0]
    assert (turn.kind, turn.of, turn.states) == ("change", "f02", ["f02.2"]) and turn.relative[0].date == "2025-03-15"
    assert (
        persona.sessions[1].turns[1].mistaken == ["f02.1"] and persona.sessions[0].date == "2025-03-04T19:40:00+00:00"
    )


@pytest.mark.parametrize(
    ("good", "bad", "line"),
    [
        ("u [f01.1; f02.1]", "u [fact one]", 17),
        ("@time 18:00", "@hour 18", 11),
        ("| +00:00", "| UTC", 1),
        ("f02 swim | partial", "f02 swim | half", 8),
        ("a Ok", "Ok", 18),
        ("  = Pickle | $1", "  = Pickle | $3", 7),
    ],
)
def test_a_line_that_is_not_understood_is_named(good, bad, line):
    assert good in SOURCE
    with pytest.raises(InputError) as error:
        compile_text(SOURCE.replace(good, bad, 1), "x.txt")
    assert f"x.txt:{line}" in str(error.value)


def test_an_edition_with_a_fault_is_not_built(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "en-99.txt").write_text(SOURCE, encoding="utf-8")
    about = {"edition": "x", "personas": ["en-99"], "reviewed_by_people": "", "licence": "", "notes": ""}
    (tmp_path / "source" / "about.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(InputError, match="mistaken"):
        build(tmp_path)
    assert not (tmp_path / "edition.json").exists() and not (tmp_path / "en-99.json").exists()


def test_a_fact_that_another_change_ended_counts_in_no_metric_and_is_reported_apart():
    """A commute that a move ended is not true at the end: it is no part of recall, and storing it is told beside the
    index."""
    from kiokulab.judging import make_judge
    from kiokulab.kioku import analyze, answer, ingest, judge
    from kiokulab.kioku.records import MemoryRow

    persona = next(p for p in PERSONAS if any(f.cascade for f in p.facts))
    ended = [f for f in persona.facts if f.cascade]
    place = {"unit": f"{persona.id}/raw", "persona": persona.id, "route": "raw", "layer": "live"}
    texts = [row["text"] for row in ingest.current(persona)]
    for extra, stored in (([], 0), ([ended[0].versions[-1].text], 1)):
        memories = [MemoryRow(**place, id=f"m{n}", text=text) for n, text in enumerate([*texts, *extra])]
        rows = judge.judge_unit(
            persona, memories, [], judge=make_judge("rules"), answerer=answer.ExtractiveAnswerer(None), grader="rules"
        )
        unit = analyze.Unit(place["unit"], persona, "raw", rows)
        assert sum(name == "recall" for name, _, _ in unit.items("page")) == sum(f.lasts for f in persona.facts)
        cascade = analyze.beyond([unit], [])["cascade"]
        assert (cascade["still_stored"]["k"], cascade["still_stored"]["n"]) == (stored, len(ended))
        assert {unit.answers[f.id]["role"] for f in ended} == {"lapsed"}

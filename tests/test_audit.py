"""The audit finds each fault that is planted in a copy of a good persona, and names its place."""

import copy

import pytest

from kiokulab.kioku import audit as auditing
from kiokulab.kioku.generate import make_persona
from kiokulab.kioku.records import Persona

GOOD = {name: make_persona(11, name).model_dump(mode="json") for name in ("en-01", "ja-01")}


def faults_of(row: dict) -> list[auditing.Fault]:
    return [fault for fault in auditing.audit([Persona.model_validate(row)]) if not fault.warning]


def fact_where(row: dict, test) -> dict:
    return next(fact for fact in row["facts"] if test(fact))


def session_of(row: dict, name: str) -> dict:
    return next(session for session in row["sessions"] if session["id"] == name)


def statement(row: dict, version: str) -> tuple[dict, int]:
    for session in row["sessions"]:
        for index, turn in enumerate(session["turns"]):
            if version in turn["states"] and turn["kind"] in ("fact", "change"):
                return session, index
    raise AssertionError(version)


def later(row: dict, fact: dict) -> dict:
    """A late session, after everything that happens to the fact."""
    return row["sessions"][-1]


def unlabelled_chatter(row):
    fact = fact_where(
        row, lambda f: f["change"] == "none" and not f["forget"] and f["versions"][0]["valid_from"] < "s25"
    )
    session = later(row, fact)
    session["turns"].insert(
        1, {"role": "user", "text": fact["versions"][0]["text"], "states": [], "kind": "chatter", "of": None}
    )
    return "unlabelled", session["id"], 1


def assistant_repeats_the_value(row):
    fact = fact_where(
        row, lambda f: f["change"] == "none" and not f["forget"] and f["versions"][0]["valid_from"] < "s25"
    )
    session, index = statement(row, f"{fact['id']}.1")
    session["turns"][index + 1]["text"] += " " + fact["versions"][0]["text"]
    return "unlabelled", session["id"], index + 1


def stated_before_its_time(row):
    fact = fact_where(row, lambda f: f["versions"][0]["valid_from"] > "s05")
    row["sessions"][0]["turns"].append(
        {"role": "user", "text": fact["versions"][0]["text"], "states": [], "kind": "chatter", "of": None}
    )
    return "too_early", "s01", len(row["sessions"][0]["turns"]) - 1


def labelled_before_its_time(row):
    fact = fact_where(row, lambda f: f["versions"][0]["valid_from"] > "s05")
    row["sessions"][1]["turns"][0]["states"].append(f"{fact['id']}.1")
    return "too_early", "s02", 0


def version_never_stated(row):
    fact = fact_where(row, lambda f: f["change"] == "none")
    session, index = statement(row, f"{fact['id']}.1")
    session["turns"][index].update(text="Hm.", states=[])
    return "stated", session["id"], None


def change_label_without_its_forms(row):
    fact = fact_where(row, lambda f: f["change"] == "partial")
    session, index = statement(row, f"{fact['id']}.2")
    session["turns"][index]["text"] = "Hm."
    return "stated", session["id"], index


def old_version_after_the_change(row):
    fact = fact_where(row, lambda f: f["change"] == "full" and f["versions"][1]["valid_from"] < "s30")
    session = later(row, fact)
    session["turns"].append(
        {"role": "user", "text": fact["versions"][0]["text"], "states": [f"{fact['id']}.1"], "kind": "fact", "of": None}
    )
    return "replaced", session["id"], len(session["turns"]) - 1


def forgotten_fact_comes_back(row):
    fact = fact_where(row, lambda f: f["forget"] and f["forget"] < "s30")
    session = later(row, fact)
    session["turns"].append(
        {"role": "assistant", "text": fact["versions"][0]["text"], "states": [], "kind": "assistant", "of": None}
    )
    return "forgotten", session["id"], len(session["turns"]) - 1


def forgotten_in_the_same_session(row):
    fact = fact_where(row, lambda f: f["forget"])
    session = session_of(row, fact["forget"])
    session["turns"].append(
        {"role": "user", "text": fact["versions"][0]["text"], "states": [f"{fact['id']}.1"], "kind": "fact", "of": None}
    )
    return "forgotten", session["id"], len(session["turns"]) - 1


def request_is_missing(row):
    fact = fact_where(row, lambda f: f["forget"])
    session = session_of(row, fact["forget"])
    session["turns"] = [turn for turn in session["turns"] if turn["kind"] != "forget"]
    return "forget_request", session["id"], None


def question_gives_no_answer(row):
    row["facts"][3]["question"].update(answer="Zanzibar", accepted=["Zanzibar"])
    return "question", None, None


def question_fits_the_old_version(row):
    fact = fact_where(row, lambda f: f["change"] == "partial")
    same = next(
        a
        for a, b in zip(fact["versions"][0]["surface"]["values"], fact["versions"][1]["surface"]["values"], strict=True)
        if a == b
    )
    answer = next(form for form in same if form in fact["versions"][0]["text"])
    fact["question"].update(answer=answer, accepted=same, stale=[])
    return "question", None, None


def question_tells_the_answer(row):
    fact = row["facts"][2]
    fact["question"]["text"] = f"{fact['question']['text']} ({fact['question']['answer']})"
    return "question", None, None


def two_facts_are_one(row):
    row["facts"][5]["versions"][0]["surface"] = copy.deepcopy(row["facts"][6]["versions"][0]["surface"])
    return "distinguishable", None, None


def dates_fall(row):
    row["sessions"][9]["date"], row["sessions"][10]["date"] = row["sessions"][10]["date"], row["sessions"][9]["date"]
    return "dates", "s11", None


def date_without_zone(row):
    row["sessions"][9]["date"] = row["sessions"][9]["date"][:19]
    return "dates", "s10", None


def session_twice(row):
    row["sessions"][9]["id"] = "s09"
    return "unique_ids", "s09", None


def fact_twice(row):
    row["facts"][9]["id"] = row["facts"][8]["id"]
    return "unique_ids", None, None


def near_miss_about_the_user(row):
    for session in row["sessions"]:
        for index, turn in enumerate(session["turns"]):
            if turn["kind"] == "near_miss":
                fact = next(f for f in row["facts"] if f["id"] == turn["of"])
                turn["text"] = fact["versions"][0]["text"]
                return "near_miss", session["id"], index
    raise AssertionError


def near_miss_without_its_fact(row):
    for session in row["sessions"]:
        for index, turn in enumerate(session["turns"]):
            if turn["kind"] == "near_miss":
                turn["of"] = None
                return "near_miss", session["id"], index
    raise AssertionError


def label_of_no_version(row):
    row["sessions"][4]["turns"][0]["states"] = ["f99.1"]
    return "references", "s05", 0


def versions_do_not_follow(row):
    fact = fact_where(row, lambda f: f["change"] == "full")
    fact["versions"][0]["valid_to"] = None
    return "versions", None, None


def changed_and_forgotten(row):
    fact = fact_where(row, lambda f: f["change"] == "full")
    fact.update(forget="s30", forget_kind="names_fact")
    return "versions", None, None


def empty_utterance(row):
    row["sessions"][3]["turns"][1]["text"] = "  "
    return "text", "s04", 1


PLANTED = [
    unlabelled_chatter,
    assistant_repeats_the_value,
    stated_before_its_time,
    labelled_before_its_time,
    version_never_stated,
    change_label_without_its_forms,
    old_version_after_the_change,
    forgotten_fact_comes_back,
    forgotten_in_the_same_session,
    request_is_missing,
    question_gives_no_answer,
    question_fits_the_old_version,
    question_tells_the_answer,
    two_facts_are_one,
    dates_fall,
    date_without_zone,
    session_twice,
    fact_twice,
    near_miss_about_the_user,
    near_miss_without_its_fact,
    label_of_no_version,
    versions_do_not_follow,
    changed_and_forgotten,
    empty_utterance,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_persona_has_no_fault(name):
    assert auditing.audit([Persona.model_validate(GOOD[name])]) == []


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught_at_its_place(plant, name):
    row = copy.deepcopy(GOOD[name])
    rule, session, turn = plant(row)
    found = faults_of(row)
    assert any((f.rule, f.persona, f.session, f.turn) == (rule, name, session, turn) for f in found), [
        str(f) for f in found
    ]
    assert name in str(found[0]) and (session is None or any(session in str(f) for f in found))


def test_every_fault_rule_is_provoked_by_some_plant():
    provoked = {plant(copy.deepcopy(GOOD["en-01"]))[0] for plant in PLANTED}
    assert provoked == set(auditing.RULES) - {"counts"}


def test_a_persona_that_is_there_twice():
    persona = Persona.model_validate(GOOD["en-01"])
    assert ("unique_ids", "en-01") in {(f.rule, f.persona) for f in auditing.audit([persona, persona])}


def test_counts_are_warnings_against_the_editions_own_parameters():
    row = copy.deepcopy(GOOD["en-01"])
    row["facts"] = [fact for fact in row["facts"] if fact["change"] != "full"]
    persona = Persona.model_validate(row)
    counts = [f for f in auditing.audit([persona]) if f.rule == "counts"]
    assert counts and all(f.warning for f in counts)
    fitting = {"facts": len(row["facts"]), "changes": sum(f["change"] != "none" for f in row["facts"])}
    assert not [f for f in auditing.audit([persona], fitting) if f.rule == "counts"]


def test_a_mother_with_the_same_birthday_is_neither_statement_nor_leak():
    row = copy.deepcopy(GOOD["en-01"])
    fact = fact_where(row, lambda f: f["forget"])
    row["sessions"][-1]["turns"].append(
        {
            "role": "user",
            "text": "My mother says: " + fact["versions"][0]["text"],
            "states": [],
            "kind": "near_miss",
            "of": fact["id"],
        }
    )
    assert faults_of(row) == []


def test_summary_counts_faults_and_rules():
    row = copy.deepcopy(GOOD["en-01"])
    empty_utterance(row)
    said = auditing.summary(auditing.audit([Persona.model_validate(row)]))
    assert said["faults"] == said["rules"]["text"] == 1 and set(said["rules"]) == set(auditing.RULES)

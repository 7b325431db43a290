"""Steps 1 to 4 on small data, without a model and with one that a test plays."""

import json
import threading
import time

import pytest
from verdict_mini import record, write

from kiokulab.errors import InputError
from kiokulab.files import read_jsonl
from kiokulab.systems.base import Session, Turn
from kiokulab.verdict import PARAMS, TYPES, analyze, compose, generate, ingest, judge, models, wording
from kiokulab.verdict.reader import ExtractiveReader


@pytest.fixture
def two(tmp_path):
    """A data file with an answerable and an unanswerable question."""
    return write(
        tmp_path / "two.json",
        [
            record("q1"),
            record("q2_abs", "temporal-reasoning", question="When did my canary escape?", answer="It is never said."),
        ],
    )


def params(**changes):
    return PARAMS(**{"embedder": "hash", "system": "full-context", "bootstrap": 50, **changes})


def run(folder, chosen, ask=None):
    folder.mkdir(exist_ok=True)
    generate.run(folder, chosen)
    ingest.run(folder, chosen)
    judge.run(folder, chosen, ask)
    return analyze.load(folder)[1]


def test_the_committed_sample_is_what_its_source_composes(repository):
    folder = repository / "data/verdict/v0.1"
    assert compose.compose(folder) == (folder / "questions.json").read_text(encoding="utf-8")
    head = generate.draw(PARAMS())[1]
    assert (
        head["types"] == dict(zip(TYPES, (4, 3, 2, 8, 8, 5))) and head["abstention"] == 4 and head["official"] is False
    )
    assert all(
        len(q.sessions) > 10 for q in generate.dataset.stream(folder / "questions.json")
    )  # so that ten sessions are a choice


def test_a_changed_edition_is_refused(repository, tmp_path, monkeypatch):
    import shutil

    folder = shutil.copytree(repository / "data/verdict/v0.1", tmp_path / "v0.1")
    (folder / "questions.json").write_text((folder / "questions.json").read_text().replace("Crumb", "Crust"))
    with pytest.raises(InputError, match="frozen"):
        generate.draw(PARAMS(edition=str(folder)))


def test_one_broken_record_stops_the_run_though_it_was_not_drawn(tmp_path):
    path = write(tmp_path / "f.json", [record("a"), record("b"), record("c", haystack_dates=[])])
    with pytest.raises(InputError, match=r"f.json\[2\] c"):
        generate.run(tmp_path, params(data=str(path), label="x", questions=1))
    assert not list(tmp_path.glob("*.jsonl")) and not list(tmp_path.glob(".dataset*"))


def test_offline_run_from_file_to_figures(two, tmp_path):
    found = run(tmp_path / "run", params(data=str(two), label="two of mine"))
    assert found["accuracy"]["overall"] == {**found["accuracy"]["overall"], "k": 2, "n": 2, "not_judged": 0}
    assert found["conditions"]["data"] == "two of mine" and found["conditions"]["official_prompts"] is False
    assert found["retrieval"]["recall_all"]["n"] == 1  # an abstention question has nothing to find
    row = read_jsonl(tmp_path / "run" / "answers.jsonl")[0]
    assert "Rio" in row["text"] and row["reader"] == "extractive"
    assert json.loads(json.dumps(found)) == found


def test_labels_and_ids_that_tell_never_reach_what_a_system_is_fed(two, tmp_path):
    chosen = params(data=str(two), label="x")
    generate.run(tmp_path, chosen)
    text = json.dumps([row["sessions"] for row in read_jsonl(tmp_path / "dataset.jsonl") if row["kind"] == "question"])
    assert "has_answer" not in text and "answer_ab" not in text and "sharegpt" not in text


# --- feeding ------------------------------------------------------------------------------------------------------


def session(*turns):
    return Session("s001", "2023-05-02T08:00:00+00:00", tuple(Turn(role, text) for role, text in turns))


def test_a_session_that_begins_with_the_assistant_makes_whole_pairs():
    one = session(
        ("assistant", "A"), ("user", "u1"), ("user", "u2"), ("assistant", "B"), ("assistant", "C"), ("user", " ")
    )
    pairs = [(item.user.text, item.assistant.text) for item in ingest.items(one, "pair", "native")]
    assert pairs == [("", "A"), ("u1", ""), ("u2", "B"), ("", "C")]
    assert [item.turn.text for item in ingest.items(one, "utterance", "native")] == ["A", "u1", "u2", "B", "C"]
    (whole,) = ingest.items(one, "session", "text")
    assert whole.turns[0].text == "Date: 2023/05/02 (Tue) 08:00\nA" and len(whole.turns) == 5
    assert list(ingest.items(session(("user", "")), "session", "text")) == []
    with pytest.raises(InputError, match="page"):
        list(ingest.items(one, "page", "native"))


SYSTEM = """
from kiokulab.systems.base import Hit, Ingested, Memory, Results, System

class Store(System):
    name, feeds, dates, capabilities = "store", "utterance", "native", frozenset({"search"})
    def open(self, space, workdir, endpoint=None):
        super().open(space, workdir, endpoint); self.rows = []; self.clock = []
    def set_clock(self, when): self.clock.append(when)
    def ingest(self, item, when):
        assert not {"answer", "has_answer"} & set(item.id.split("_")), item.id
        assert self.clock[-1] == when == item.date
        self.rows.append((item.turn.text, when))
    def dump(self): return [Memory(f"m{n}", text, created=when) for n, (text, when) in enumerate(self.rows)]
    def search(self, query, k, when=None):
        assert self.clock[-1] == when
        return Results([Hit(text, f"m{n}", 1.0, when) for n, (text, when) in enumerate(self.rows)])

class Hangs(Store):
    def ingest(self, item, when):
        import subprocess, time
        if self.space == "q1":
            subprocess.Popen(["sleep", "654321"]); time.sleep(600)
        return super().ingest(item, when)

class Harms(Store):
    def ingest(self, item, when):
        import os, sys
        if self.space == "q1":
            for _ in range(3):
                if os.fork() == 0: os._exit(7)
            os.write(1, b"x" * 5_000_000)
            hog = bytearray(10**15)
        return super().ingest(item, when)

class NoSearch(Store):
    capabilities = frozenset()
"""


@pytest.fixture
def systems_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SYSTEM)
    return path


def test_a_system_is_fed_at_each_sessions_date_and_asked_at_the_questions(two, tmp_path, systems_file):
    found = run(tmp_path / "run", params(data=str(two), label="x", system=f"{systems_file}:Store", k=3))
    assert found["missing"] == {} and found["accuracy"]["overall"]["n"] == 2
    memories = read_jsonl(tmp_path / "run" / "memories.jsonl")
    assert len(memories) == 10 and {m["created"][:4] for m in memories} == {"2023"}
    contexts = read_jsonl(tmp_path / "run" / "contexts.jsonl")
    assert [len(c["items"]) for c in contexts] == [3, 3]  # five were given; the harness owns the limit
    events = read_jsonl(tmp_path / "run" / "events.jsonl")
    assert any("cut off" in text for e in events if e["op"] == "warnings" for text in e["warnings"])
    assert found["conditions"]["isolation"].startswith("one process and one store")
    assert found["retrieval"]["recall_all"] == {**found["retrieval"]["recall_all"], "k": 1, "n": 1}
    assert not (tmp_path / "run" / "stores").exists()


def test_a_worker_that_hangs_is_ended_with_its_children_and_counts_as_wrong(two, tmp_path, systems_file):
    import psutil

    found = run(tmp_path / "run", params(data=str(two), label="x", system=f"{systems_file}:Hangs", unit_timeout_s=6))
    assert set(found["missing"]) == {"q1"} and found["missing"]["q1"].startswith("timeout")
    overall = found["accuracy"]["overall"]
    assert (overall["k"], overall["n"], overall["not_judged"]) == (1, 2, 0)
    time.sleep(0.2)
    assert not [p for p in psutil.process_iter(["cmdline"]) if "654321" in (p.info["cmdline"] or [])]


def test_a_worker_that_forks_floods_and_eats_memory_harms_only_its_own_question(two, tmp_path, systems_file):
    found = run(tmp_path / "run", params(data=str(two), label="x", system=f"{systems_file}:Harms"))
    assert set(found["missing"]) == {"q1"} and "MemoryError" in found["missing"]["q1"]
    assert found["accuracy"]["overall"]["n"] == 2


def test_a_system_that_cannot_be_asked_fails_by_name_and_is_no_empty_answer(two, tmp_path, systems_file):
    found = run(tmp_path / "run", params(data=str(two), label="x", system=f"{systems_file}:NoSearch"))
    assert all("no search call" in why for why in found["missing"].values()) and found["accuracy"]["overall"]["k"] == 0
    assert (
        found["accuracy"]["overall"]["n"] == 2 and found["accuracy"]["abstention"]["k"] == 0
    )  # silence is no abstention


# --- reader and judge with a model ----------------------------------------------------------------------------------


class Model:
    """Plays reader and judge; notes what it was asked, and how many calls were under way at once."""

    def __init__(self, reader="Rio.", judge="Yes", panel=("yes", "yes", "no"), wait=0.0):
        self.said = {"reader": reader, "judge": judge, **{f"panel-{n}": text for n, text in enumerate(panel, 1)}}
        self.calls, self.lock, self.now, self.most, self.wait = [], threading.Lock(), 0, 0, wait

    def __call__(self, unit, role, prompt):
        with self.lock:
            self.calls.append((unit, role, prompt))
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.wait)
        with self.lock:
            self.now -= 1
        text = self.said[role]
        if isinstance(text, Exception):
            raise text
        return text(unit) if callable(text) else text


LIVE = dict(reader="llm:r", judge="llm:j", label="x")


def test_prompts_hold_question_date_and_history_and_the_abstention_rubric_goes_by_the_id(two, tmp_path):
    model = Model()
    run(tmp_path / "run", params(data=str(two), **LIVE), model)
    asked = {(unit, role): prompt for unit, role, prompt in model.calls}
    assert (
        "2023/05/30 (Tue) 21:48" in asked["q1", "reader"] and "What is the name of my parrot?" in asked["q1", "reader"]
    )
    assert (
        asked["q1", "reader"].index("2023/05/02")
        < asked["q1", "reader"].index("Rio")
        < asked["q1", "reader"].index("crepes")
    )
    assert (
        "cannot be answered from the chats" in asked["q2_abs", "judge"]
        and "cannot be answered from the chats" not in asked["q1", "judge"]
    )
    assert "2023/05/30" not in asked["q1", "judge"]  # the official judge is not told the date


def test_texts_with_braces_are_no_template(tmp_path):
    path = write(
        tmp_path / "f.json", [record("q1", question="What is {history} {0} {answer}?", answer="{response} {x}")]
    )
    model = Model(reader="{question} \\1 {}")
    run(tmp_path / "run", params(data=str(path), **LIVE), model)
    assert "What is {history} {0} {answer}?" in model.calls[0][2]
    assert "Reply: {question} \\1 {}" in model.calls[1][2] and "Expected answer: {response} {x}" in model.calls[1][2]


def test_the_panel_decides_by_majority_and_both_readings_are_kept(two, tmp_path):
    model = Model(judge="Yesterday's news: no", panel=("no", "No, not yes", "yes"))
    found = run(tmp_path / "run", params(data=str(two), panel="llm:a,llm:b,llm:c", **LIVE), model)
    assert found["accuracy"]["overall"]["k"] == 2  # the official reading takes "yes" anywhere
    assert found["readings"] == {"n": 2, "differ": [], "strict_has_none": ["q1", "q2_abs"]}
    votes = [row["panel"] for row in read_jsonl(tmp_path / "run" / "judgements.jsonl")[1:]]
    assert [v["votes"] for v in votes] == [[False, True, True]] * 2 and all(
        v["majority"] for v in votes
    )  # the substring again
    assert found["panel"]["all_agree"]["k"] == 0 and found["panel"]["flips"] == []


def test_an_empty_reply_of_the_judge_is_not_judged_and_never_no(two, tmp_path):
    model = Model(judge=lambda unit: "" if unit == "q1" else "no")
    found = run(tmp_path / "run", params(data=str(two), **LIVE), model)
    overall = found["accuracy"]["overall"]
    assert (overall["k"], overall["n"], overall["not_judged"]) == (0, 1, 1) and found["worst"]["n"] == 2
    assert [role for unit, role, _ in model.calls if unit == "q1"] == [
        "reader",
        "judge",
        "judge",
    ]  # asked again for words, not for a better verdict
    assert (tmp_path / "run/units/3-judge/q1.failed.json").exists()


def test_a_reader_that_gives_nothing_is_wrong_and_listed(two, tmp_path):
    for reader, why in ((models.NoAnswer("timed out"), "timed out"), ("  ", "empty")):
        found = run(tmp_path / f"run {why}", params(data=str(two), **LIVE), Model(reader=reader))
        assert set(found["missing"]) == {"q1", "q2_abs"} and all(why in text for text in found["missing"].values())
        assert (found["accuracy"]["overall"]["k"], found["accuracy"]["overall"]["n"]) == (0, 2)


def test_calls_are_in_flight_across_questions_and_a_resumed_run_repeats_none(tmp_path):
    path = write(tmp_path / "f.json", [record(f"q{n}") for n in range(12)])
    chosen = params(data=str(path), questions=0, concurrency=4, **LIVE)
    fails = Model(reader=lambda unit: (_ for _ in ()).throw(KeyboardInterrupt()) if unit == "q7" else "Rio", wait=0.02)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", chosen, fails)
    assert fails.most > 1
    kept = {p.stem for p in (tmp_path / "run/units/3-judge").glob("*.json")}
    assert "q0" in kept and "q7" not in kept
    again = Model(reader="Rio")
    judge.run(tmp_path / "run", chosen, again)
    assert {unit for unit, *_ in again.calls} == {f"q{n}" for n in range(12)} - kept
    assert [row["id"] for row in read_jsonl(tmp_path / "run/answers.jsonl")] == [f"q{n}" for n in range(12)]


def test_settings_of_the_judges_are_official_only_where_they_were_made_for_the_model():
    roles = models.roles(params(reader="llm:x/r", judge="llm:openai/gpt-4o-2024-08-06", panel="llm:openai/gpt-6-sol"))
    assert roles["reader"]["settings"] == {} and roles["judge"]["settings"] == {
        "temperature": 0,
        "max_tokens": 10,
        "n": 1,
    }
    assert "temperature" not in roles["panel-1"]["settings"] and roles["panel-1"]["settings"]["max_tokens"] > 10


# --- official prompts -------------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(repository, monkeypatch):
    monkeypatch.setenv("LONGMEMEVAL_REPO", str(repository / "tests/fixtures/verdict/stand_in"))


def test_with_a_checkout_every_prompt_is_its_own_and_every_result_says_so(two, tmp_path, stand_in):
    model = Model()
    found = run(tmp_path / "run", params(data=str(two), **LIVE), model)
    asked = {(unit, role): prompt for unit, role, prompt in model.calls}
    assert (
        asked["q1", "reader"].startswith("STAND-IN history stepwise")
        and "asked on 2023/05/30 (Tue) 21:48" in asked["q1", "reader"]
    )
    assert asked["q2_abs", "judge"].startswith("ABSTENTION") and asked["q1", "judge"].startswith("PLAIN")
    assert found["conditions"]["official_prompts"] is True and found["conditions"]["prompts"].startswith("official ")


def test_an_empty_retrieval_survives_the_official_function_and_shows_nothing(two, tmp_path, stand_in):
    said = wording.load(params(data=str(two), **LIVE))
    question = next(generate.dataset.stream(two))
    for kind in ("history", "facts"):
        text = said.reader(question, [], kind, True)
        assert question.question in text and "must not be shown" not in text
    facts = said.reader(
        question,
        [
            {"date": "2023-05-10T09:30:00+02:00", "text": "same"},
            {"date": None, "text": "same"},
            {"date": "2023-05-01T00:00:00Z", "text": "first"},
        ],
        "facts",
        False,
    )
    assert (
        facts.count('"same"') == 2
        and facts.index("first") < facts.index("2023/05/10 (Wed) 07:30")
        and "date not known" in facts
    )


def test_the_prompts_are_part_of_what_decides_a_run(two, stand_in, monkeypatch):
    with_repo = params(data=str(two), **LIVE).deciding()
    monkeypatch.delenv("LONGMEMEVAL_REPO")
    own = params(data=str(two), **LIVE).deciding()
    assert (
        with_repo["prompts"] != own["prompts"]
        and own["prompts"].startswith("own ")
        and with_repo["data"] == own["data"]
    )
    monkeypatch.setenv("LONGMEMEVAL_REPO", "/nowhere")
    with pytest.raises(InputError, match="LONGMEMEVAL_REPO"):
        params(reader="llm:r").deciding()
    # offline nobody is prompted, whatever the variable says
    assert params().deciding()["prompts"].startswith("none used")


def test_paths_are_not_what_a_run_is(two, tmp_path):
    copy = write(tmp_path / "copy.json", json.loads(two.read_text()))
    assert params(data=str(two), label="x").deciding() == params(data=str(copy), label="x").deciding()
    assert "isolation" in params().deciding() and "concurrency" not in params().deciding()
    with pytest.raises(InputError, match="LABEL"):
        params(data=str(two)).deciding()
    with pytest.raises(InputError, match="data"):
        params(data=str(tmp_path / "none.json")).deciding()


# --- reader ------------------------------------------------------------------------------------------------------------


def test_the_extractive_reader_declines_rather_than_pick_something():
    items = [
        {
            "date": "2024-01-05T10:00:00+00:00",
            "turns": [["user", "My dentist moved to Elm Street."], ["assistant", "Good to know."]],
        }
    ]
    found = ExtractiveReader().answer("Where is my dentist?", "2024-02-01T00:00:00+00:00", items)
    assert not found["declined"] and "Elm Street" in found["text"] and "[2024/01/05 (Fri) 10:00]" in found["text"]
    assert ExtractiveReader().answer("What is the colour of my kayak?", "2024-02-01T00:00:00+00:00", items)["declined"]
    assert ExtractiveReader().answer("Where is my dentist?", "2024-02-01T00:00:00+00:00", [])["declined"]


@pytest.mark.parametrize(
    "unit, date, n",
    [
        ("days", "2024-05-20", "12 days ago."),
        ("weeks", "2024-05-11", "3 weeks ago."),
        ("months", "2024-02-02", "3 months ago."),
        ("months", "2024-05-01", "1 month ago."),
    ],
)
def test_the_extractive_reader_counts_back_from_the_question(unit, date, n):
    items = [{"date": f"{date}T10:00:00+00:00", "text": "I adopted my cat today."}]
    assert (
        ExtractiveReader()
        .answer(f"How many {unit} ago did I adopt my cat?", "2024-06-01T00:00:00+00:00", items)["text"]
        .startswith(n)
    )

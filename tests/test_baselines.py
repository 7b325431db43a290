"""The five baselines, each for what it promises and for what its note says it does not do."""

import ast
from pathlib import Path

import pytest

from kiokulab.systems import baselines
from kiokulab.systems.base import Pair, Request, Session, Turn, Unsupported, Utterance

WHEN = "2025-03-14T18:30:00+09:00"
ALL = [getattr(baselines, name) for name in baselines.SYSTEMS.values()]
KEEPING = [baselines.StoreEverything, baselines.Vector, baselines.ReplaceSimilar]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("KIOKULAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def opened(cls, folder, **settings):
    system = cls(**settings)
    system.open("en-01-raw", str(folder))
    return system


def user(text, n=1):
    return Utterance(f"s01.t{n:02d}", WHEN, Turn("user", text))


SESSION = Session(
    "s01",
    WHEN,
    (
        Turn("user", "My dog is called Biscuit."),
        Turn("assistant", "What a lovely name."),
        Turn("user", "I rent a flat in Leeds."),
    ),
)


def test_registry_is_a_literal_and_names_agree():
    tree = ast.parse(Path(baselines.__file__).read_text())
    literal = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "SYSTEMS"
    )
    assert literal == baselines.SYSTEMS
    assert {name: getattr(baselines, cls).name for name, cls in literal.items()} == {name: name for name in literal}


@pytest.mark.parametrize("cls", ALL)
def test_every_kind_of_item_is_taken_and_an_empty_store_is_empty(cls, tmp_path):
    system = opened(cls, tmp_path)
    assert system.dump() == [] and system.search("anything", 5).hits == []
    for item in (
        SESSION,
        Pair("s02.p01", WHEN, Turn("user", "I like tea."), Turn("assistant", "")),
        user("I play the cello."),
        Request("r001", WHEN, "I am 34."),
    ):
        system.ingest(item, WHEN)
    system.settle(10)
    system.dump()
    with pytest.raises(ValueError, match="unknown setting"):
        cls(colour="red")


def test_store_everything_keeps_both_sides_and_vector_the_user(tmp_path):
    both, one = opened(baselines.StoreEverything, tmp_path / "a"), opened(baselines.Vector, tmp_path / "b")
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    assert both.ingest(SESSION, WHEN).added == 3 and one.ingest(SESSION, WHEN).added == 2
    assert [memory.text for memory in both.dump()] == [turn.text for turn in SESSION.turns]
    assert [memory.text for memory in one.dump()] == [turn.text for turn in SESSION.turns if turn.role == "user"]
    assert {memory.created for memory in both.dump()} == {WHEN}


@pytest.mark.parametrize("cls", KEEPING)
def test_restart_keeps_data_and_never_reuses_an_id(cls, tmp_path):
    system = opened(cls, tmp_path)
    system.ingest(SESSION, WHEN)
    before = system.dump()
    system.close()
    again = opened(cls, tmp_path)
    assert again.dump() == before and before
    again.ingest(user("I play the cello in a quartet."), WHEN)
    ids = [memory.id for memory in again.dump()]
    assert len(set(ids)) == len(ids) == len(before) + 1
    again.reset()
    assert again.dump() == []
    again.close()
    assert opened(cls, tmp_path).dump() == []


@pytest.mark.parametrize("cls", [baselines.StoreEverything, baselines.Vector])
def test_search_delivers_k_in_order_of_similarity(cls, tmp_path):
    system = opened(cls, tmp_path)
    for n in range(60):
        system.ingest(user(f"My locker at the pool has the number {n}."), WHEN)
    system.ingest(user("愛犬の名前はビスケットだ。"), WHEN)
    for k in (1, 5, 50):
        assert len(system.search("What is my dog called?", k).hits) == k
    hits = system.search("What is my dog called?", 61).hits
    assert hits[0].text == "愛犬の名前はビスケットだ。"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_equal_texts_come_in_the_order_of_storing(tmp_path):
    system = opened(baselines.Vector, tmp_path)
    for _ in range(5):
        system.ingest(user("I like tea."), WHEN)
    assert [hit.id for hit in system.search("tea", 5).hits] == [memory.id for memory in system.dump()]


def test_hostile_texts_survive_a_restart(tmp_path):
    texts = ["I \ud800 lone", "I saw \x00\x07\u2028\u0085 here", "I <script>alert(1)</script>", "I " + "x" * 1_000_000]
    system = opened(baselines.StoreEverything, tmp_path)
    system.ingest(Session("s01", WHEN, tuple(Turn("user", text) for text in texts)), WHEN)
    system.close()
    again = opened(baselines.StoreEverything, tmp_path)
    assert [memory.text for memory in again.dump()] == texts
    assert len(again.search("\udfff", 4).hits) == 4


def test_store_everything_and_vector_say_that_they_cannot_forget(tmp_path):
    for cls in (baselines.StoreEverything, baselines.Vector):
        assert "forget" not in cls.capabilities
        with pytest.raises(Unsupported):
            opened(cls, tmp_path).forget({"query": "the dog"})


def test_oracle_holds_the_ledger_and_nothing_that_was_said(tmp_path):
    system = opened(baselines.Oracle, tmp_path)
    system.ingest(SESSION, WHEN)
    assert system.dump() == []
    system.ledger([{"text": "My dog is called Biscuit.", "date": WHEN}, {"text": "I live in Leeds.", "date": WHEN}])
    system.ledger([{"text": "My dog is called Biscuit.", "date": WHEN}, {"text": "I live in Leeds.", "date": WHEN}])
    assert [memory.text for memory in system.dump()] == ["My dog is called Biscuit.", "I live in Leeds."]
    assert system.search("Which city do I live in?", 1).hits[0].text == "I live in Leeds."
    assert [cls.name for cls in ALL if getattr(cls, "sees_ledger", False)] == ["oracle"]


REPLACED = [
    ("I pay 850 dollars a month for my flat.", "I pay 920 dollars a month for my flat."),
    ("I take the number 12 bus to work.", "I take the number 31 bus to work now."),
    ("家賃は月に8万5千円払っています。", "家賃は月に9万2千円払っています。"),
    ("毎週火曜の18時に市民プールで泳いでいます。", "毎週火曜の18時30分に市民プールで泳ぐように変わりました。"),
]


@pytest.mark.parametrize("old,new", REPLACED)
def test_replace_similar_replaces_a_new_value(tmp_path, old, new):
    system = opened(baselines.ReplaceSimilar, tmp_path)
    other = "I collect old maps of Portugal." if old.isascii() else "ポルトガルの古地図を集めています。"
    assert system.ingest(user(other), WHEN).added == 1
    assert system.ingest(user(old), WHEN).added == 1
    assert system.ingest(user(new), WHEN).changed == 1
    assert [memory.text for memory in system.dump()] == [other, new]
    assert old.encode() not in (tmp_path / "memories.jsonl").read_bytes()


@pytest.mark.parametrize(
    "fact,request_",
    [
        ("My dog is called Biscuit.", "Please forget that my dog is called Biscuit."),
        ("愛犬の名前はビスケットです。", "愛犬の名前がビスケットだということは忘れてください。"),
        ("I am allergic to peanuts.", "Could you delete what I said about being allergic to peanuts?"),
        ("ピーナッツのアレルギーがあります。", "ピーナッツアレルギーの話は消しておいてね。"),
    ],
)
def test_replace_similar_drops_what_a_request_names_and_does_not_keep_the_request(tmp_path, fact, request_):
    system = opened(baselines.ReplaceSimilar, tmp_path)
    other = "I rent a flat near the harbour." if fact.isascii() else "港の近くに部屋を借りています。"
    for text in (fact, other):
        system.ingest(user(text), WHEN)
    assert system.ingest(user(request_), WHEN).removed == 1
    assert [memory.text for memory in system.dump()] == [other]


@pytest.mark.parametrize(
    "text",
    [
        "Don't forget that my dog is called Biscuit.",
        "I forget my keys every day.",
        "傘を電車に忘れてしまった。",
        "名前を忘れていた。",
    ],
)
def test_replace_similar_does_not_take_forgetfulness_for_a_request(text):
    assert not baselines.FORGET.search(text)


def test_replace_similar_leaves_questions_and_requests_out(tmp_path):
    system = opened(baselines.ReplaceSimilar, tmp_path)
    for text in (
        "What should I cook tonight?",
        "今夜は何を作ればいいですか。",
        "Tell us a joke?",
        "おすすめを教えてください。",
        "Nice weather today.",
    ):
        system.ingest(user(text), WHEN)
    assert system.dump() == []


def test_replace_similar_forgets_by_id_and_all(tmp_path):
    system = opened(baselines.ReplaceSimilar, tmp_path)
    for text in ("My dog is called Biscuit.", "I rent a flat near the harbour.", "I play the cello."):
        system.ingest(user(text), WHEN)
    assert system.forget({"ids": ["m000002", "absent"]}) == 1
    assert system.forget({"all": True}) == 2 and system.dump() == []
    with pytest.raises(Unsupported):
        system.forget({"colour": "red"})


def test_replace_similar_loses_the_rest_of_a_partial_change_as_its_note_says(tmp_path):
    system = opened(baselines.ReplaceSimilar, tmp_path)
    system.ingest(user("I swim at the city pool every Tuesday at 6 p.m."), WHEN)
    system.ingest(user("I moved my swim from 6 to 6:30."), WHEN)
    assert [memory.text for memory in system.dump()] == ["I moved my swim from 6 to 6:30."]

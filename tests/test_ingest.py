"""Step 2: what a system is fed, what is read out of it, and that a failure never looks like a result."""

import json
import textwrap
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab import embed, text, units
from kiokulab.errors import InputError, UnitsFailed
from kiokulab.files import read_jsonl, write_jsonl
from kiokulab.kioku import ingest
from kiokulab.kioku.records import (
    ContextRow,
    EventRow,
    Fact,
    MemoryRow,
    Persona,
    Question,
    SessionRecord,
    Surface,
    TurnLabel,
    Version,
)
from kiokulab.systems.base import Hit, Memory, Pair, Request, Session, SystemFailure, Turn, Utterance


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("KIOKULAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("KIOKULAB_KEEP_STORES", raising=False)
    embed._get.cache_clear()


# --- two tiny personas, written by hand -------------------------------------------------------------------------


def version(n, words, start, end, *values):
    return Version(
        n=n,
        text=words,
        valid_from=start,
        valid_to=end,
        surface=Surface(anchors=["x"], values=[[value] for value in values]),
    )


def fact(id, versions, change="none", forget=None, kind=None, question="?"):
    return Fact(
        id=id,
        slot=id,
        versions=versions,
        change=change,
        forget=forget,
        forget_kind=kind,
        question=Question(text=question, answer="!", accepted=["!"]),
    )


def user(words, *states, kind="fact", of=None):
    return TurnLabel(role="user", text=words, states=list(states), kind=kind, of=of)


def assistant(words):
    return TurnLabel(role="assistant", text=words, kind="assistant")


ANN = Persona(
    id="en-01",
    language="en",
    name="Ann",
    facts=[
        fact(
            "f01",
            [version(1, "Ann's dog is called Biscuit.", "s01", None, "Biscuit")],
            question="What is Ann's dog called?",
        ),
        fact(
            "f02",
            [
                version(1, "Ann pays 850 dollars a month.", "s01", "s02", "850"),
                version(2, "Ann pays 920 dollars a month.", "s02", None, "920"),
            ],
            "full",
            question="What does Ann pay?",
        ),
        fact(
            "f03",
            [version(1, "Ann is allergic to peanuts.", "s01", None, "peanuts")],
            forget="s03",
            kind="names_fact",
            question="What is Ann allergic to?",
        ),
    ],
    sessions=[
        SessionRecord(
            id="s01",
            date="2025-03-14T18:30:00+09:00",
            turns=[
                user("Hello, what a day!", kind="chatter"),
                assistant("Hello Ann."),
                user("My dog is called Biscuit.", "f01.1"),
                user("I pay 850 dollars a month.", "f02.1"),
                assistant("Noted."),
                user("I am allergic to peanuts.", "f03.1"),
                assistant("I see."),
            ],
        ),
        SessionRecord(
            id="s02",
            date="2025-04-02T09:00:00+09:00",
            turns=[
                assistant("Welcome back."),
                user("Now I pay 920 dollars a month.", "f02.2", kind="change", of="f02"),
            ],
        ),
        SessionRecord(
            id="s03",
            date="2025-12-31T23:00:00+09:00",
            turns=[user("Please forget my allergy.", kind="forget", of="f03"), assistant("Done.")],
        ),
    ],
)
KEN = Persona(
    id="ja-01",
    language="ja",
    name="健",
    facts=[
        fact(
            "f01", [version(1, "健の愛犬の名前はビスケットだ。", "s01", None, "ビスケット")], question="愛犬の名前は？"
        ),
        fact(
            "f02",
            [
                version(1, "健は毎週火曜に泳ぐ。", "s01", "s02", "火曜"),
                version(2, "健は毎週木曜に泳ぐ。", "s02", None, "木曜"),
            ],
            "partial",
            question="何曜日に泳ぎますか？",
        ),
    ],
    sessions=[
        SessionRecord(
            id="s01",
            date="2025-03-14T18:30:00+09:00",
            turns=[
                user("愛犬の名前はビスケットです。", "f01.1"),
                assistant("いいですね。"),
                user("毎週火曜に泳いでいます。", "f02.1"),
            ],
        ),
        SessionRecord(
            id="s02",
            date="2025-03-15T18:30:00+09:00",
            turns=[user("木曜に変わりました。", "f02.2", kind="change", of="f02")],
        ),
    ],
)
ROUTES = ("raw", "requests", "signaled")
LABELS = {
    label for persona in (ANN, KEN) for session in persona.sessions for turn in session.turns for label in turn.states
}


def unit_of(tmp_path, system="store-everything", persona=ANN, route="raw", routing="none", **settings_):
    if system in ("oracle", "store-everything", "vector", "replace-similar"):
        settings_ = {"embedder": "hash", **settings_}
    return {
        "unit": f"{persona.id}/{route}",
        "persona": persona.model_dump(mode="json"),
        "route": route,
        "routing": routing,
        "system": system,
        "settings": settings_,
        "embedder": "hash",
        "k": 30,
        "budget_tokens": 1000,
        "settle_s": 10,
        "store": str(tmp_path / "stores" / "unit"),
    }


def adapter(tmp_path, body, declared="dates = 'native'\n    capabilities = frozenset({'search'})"):
    """An adapter file; `body` may override any method of a memory that keeps texts in a list."""
    path = tmp_path / "adapter.py"
    path.write_text(
        textwrap.dedent(f"""
import json, os
from kiokulab.systems.base import *

class Mine(System):
    name = "mine"
    {declared}
    settings = {{}}

    def open(self, space, workdir, endpoint=None):
        super().open(space, workdir, endpoint)
        self.texts, self.log = [], os.environ.get("MINE_LOG")

    def note(self, *words):
        if self.log:
            with open(self.log, "a") as file:
                file.write(json.dumps(words) + "\\n")

    def ingest(self, item, when):
        self.note("ingest", type(item).__name__, repr(item), when)
        self.texts.append(getattr(item, "text", None) or str(getattr(item, "id", "")))

    def dump(self):
        return [Memory(str(n), one) for n, one in enumerate(self.texts)]

    def search(self, query, k, when=None):
        self.note("search", query, k, when)
        return Results([Hit(one) for one in self.texts[:k]])
""")
        + textwrap.indent(textwrap.dedent(body), "    ")
    )
    return f"{path}:Mine"


def by_op(rows, op):
    return [event for event in rows["events"] if event["op"] == op]


# --- what goes in -----------------------------------------------------------------------------------------------


def test_raw_session_pair_and_utterance_hold_the_same_words_in_order():
    said = [turn.text for session in ANN.sessions for turn in session.turns]
    sessions = [call.item for call in ingest.calls(ANN, "raw", "session")]
    assert [turn.text for session in sessions for turn in session.turns] == said
    assert all(isinstance(item, Session) for item in sessions) and [item.id for item in sessions] == [
        "s01",
        "s02",
        "s03",
    ]
    utterances = [call.item for call in ingest.calls(ANN, "raw", "utterance")]
    assert [item.turn.text for item in utterances] == said and utterances[2] == Utterance(
        "s01.t03", ANN.sessions[0].date, Turn("user", "My dog is called Biscuit.")
    )
    pairs = [call.item for call in ingest.calls(ANN, "raw", "pair")]
    assert [side for item in pairs for side in (item.user.text, item.assistant.text) if side] == said
    assert [(item.user.text[:8], item.assistant.text[:8]) for item in pairs] == [
        ("Hello, w", "Hello An"),
        ("My dog i", ""),
        ("I pay 85", "Noted."),
        ("I am all", "I see."),
        ("", "Welcome "),
        ("Now I pa", ""),
        ("Please f", "Done."),
    ]
    assert isinstance(pairs[0], Pair) and len({call.id for call in ingest.calls(ANN, "raw", "pair")}) == 7


@pytest.mark.parametrize("persona", [ANN, KEN])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("feeds", ["session", "pair", "utterance"])
@pytest.mark.parametrize("routing", ["none", "forget"])
def test_no_label_of_the_dataset_reaches_an_adapter(persona, route, feeds, routing):
    for call in ingest.calls(persona, route, feeds, routing):
        shown = repr(call.item)
        assert not any(label in shown for label in LABELS | {"f01", "f02", "f03", "chatter", "near_miss", "states"}), (
            shown
        )


def test_requests_are_the_ledger_in_session_order_with_the_sessions_date():
    texts = [(call.when[:10], call.item.text) for call in ingest.calls(ANN, "requests")]
    assert texts == [
        ("2025-03-14", "Please remember this: Ann's dog is called Biscuit."),
        ("2025-03-14", "Please remember this: Ann pays 850 dollars a month."),
        ("2025-03-14", "Please remember this: Ann is allergic to peanuts."),
        ("2025-04-02", "Please remember this: Ann pays 920 dollars a month."),
        ("2025-12-31", "Please forget this: Ann is allergic to peanuts."),
    ]
    assert all(isinstance(call.item, Request) and call.item.kind is None for call in ingest.calls(ANN, "requests"))


def test_signaled_says_from_what_to_what_and_differs_in_nothing_else():
    plain, signaled = ingest.calls(ANN, "requests"), ingest.calls(ANN, "signaled")
    differing = [(a.item.text, b.item.text) for a, b in zip(plain, signaled, strict=True) if a != b]
    assert (
        len(differing) == 1 and "850" in differing[0][1] and "920" in differing[0][1] and "850" not in differing[0][0]
    )
    assert (
        ingest.calls(KEN, "signaled")[2].item.text
        == "覚えてもらったことが変わりました。変更前：健は毎週火曜に泳ぐ。変更後：健は毎週木曜に泳ぐ。"
    )


def test_a_second_change_is_signaled_from_the_version_before_it():
    rent = fact(
        "f01",
        [
            version(1, "Rent is 1.", "s01", "s02", "1"),
            version(2, "Rent is 2.", "s02", "s03", "2"),
            version(3, "Rent is 3.", "s03", None, "3"),
        ],
        "full",
    )
    persona = ANN.model_copy(update={"facts": [rent]})
    assert ingest.calls(persona, "signaled")[2].item.text == ingest.REQUESTS["en"]["change"].format(
        old="Rent is 2.", new="Rent is 3."
    )


def test_routing_takes_the_request_out_and_hands_it_to_forget():
    raw = ingest.calls(ANN, "raw", "session", "forget")
    assert [(call.id, call.forget) for call in raw[2:]] == [("s03", None), ("s03.t01", "Please forget my allergy.")]
    assert "allergy" not in repr([call.item for call in raw])
    requests = ingest.calls(ANN, "requests", "session", "forget")
    assert [call.item.kind for call in requests if call.item] == ["remember"] * 4
    assert requests[-1].forget == "Ann is allergic to peanuts." and requests[-1].item is None


@pytest.mark.parametrize("persona,line", [(ANN, "Date: March 14, 2025\n"), (KEN, "日付：2025年3月14日\n")])
@pytest.mark.parametrize("feeds", ["session", "pair", "utterance"])
def test_text_systems_get_the_date_as_first_line_once_an_item(persona, line, feeds):
    for route in ROUTES:
        for plain, dated in zip(
            ingest.calls(persona, route, feeds), ingest.calls(persona, route, feeds, dates="text"), strict=True
        ):
            assert repr(dated.item).count("Date: ") + repr(dated.item).count("日付：") == 1
            assert plain.when == dated.when
    first = ingest.calls(persona, "raw", "utterance", dates="text")[0].item
    assert first.turn.text == line + persona.sessions[0].turns[0].text


def test_unknown_route_and_unit_are_refused():
    with pytest.raises(InputError, match="raw, requests, signaled"):
        ingest.calls(ANN, "rwa")
    with pytest.raises(InputError, match="utterance"):
        ingest.calls(ANN, "raw", "message")


# --- the pieces -------------------------------------------------------------------------------------------------

MEMORIES = st.lists(st.builds(Memory, st.sampled_from("abc"), st.sampled_from(["one", "two"])), max_size=6)


@given(MEMORIES, MEMORIES)
def test_compare_accounts_for_every_memory(before, after):
    found = ingest.compare(before, after)
    assert len(before) - len(found["removed"]) + len(found["added"]) == len(after)
    assert len(found["changed"]) == len(found["before"])
    same = ingest.compare(before, before)
    assert not any(same.values())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=40), max_size=12), st.integers(1, 12), st.integers(1, 40))
def test_context_never_exceeds_k_or_budget_and_keeps_the_order(texts, k, budget):
    items, tokens = ingest.fit(
        [Hit(one, str(n)) for n, one in enumerate(texts)], k, budget, text.count_tokens, text.cut_tokens
    )
    assert len(items) <= k and tokens <= budget
    assert [item["id"] for item in items] == [str(n) for n in range(len(items))]
    assert all(item["text"] == texts[n] for n, item in enumerate(items[:-1]))
    assert tokens == sum(text.count_tokens(item["text"]) for item in items) + max(len(items) - 1, 0)


def test_the_last_result_is_cut_to_what_is_left():
    hits = [Hit("one two three"), Hit("word " * 500), Hit("never shown")]
    items, tokens = ingest.fit(hits, 30, 20, text.count_tokens, text.cut_tokens)
    assert (
        len(items) == 2
        and tokens <= 20
        and items[1]["text"] == ("word " * 500)[: len(items[1]["text"])]
        and items[1]["text"]
    )


def test_scores_that_are_not_numbers_become_null():
    items, _ = ingest.fit(
        [Hit("a", score=float("nan")), Hit("b", score=float("inf")), Hit("c", score=0.123456789)],
        3,
        99,
        text.count_tokens,
        text.cut_tokens,
    )
    assert [item["score"] for item in items] == [None, None, 0.123457]


# --- one unit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persona", [ANN, KEN])
@pytest.mark.parametrize("route", ROUTES)
def test_oracle_stores_the_ledger_at_the_end_on_every_route(tmp_path, persona, route):
    rows = ingest.ingest_unit(unit_of(tmp_path, "oracle", persona, route))
    assert [row["text"] for row in rows["memories"]] == [
        fact.versions[-1].text for fact in persona.facts if not fact.forget
    ]
    assert [row["fact"] for row in rows["contexts"]] == [fact.id for fact in persona.facts]
    assert (
        by_op(rows, "residue")[0]["detail"]["forgotten"]["found"]
        == {}
        == by_op(rows, "residue")[0]["detail"]["replaced"]["found"]
    )


def test_rows_are_valid_numbered_and_complete(tmp_path):
    rows = ingest.ingest_unit(unit_of(tmp_path))
    for key, kind in (("memories", MemoryRow), ("contexts", ContextRow), ("events", EventRow)):
        assert [kind.model_validate(row).model_dump(mode="json") for row in rows[key]] == rows[key] and rows[key]
    assert [event["seq"] for event in rows["events"]] == list(range(1, len(rows["events"]) + 1))
    assert [event["op"] for event in rows["events"]] == ["open"] + ["ingest"] * 3 + ["settle", "dump"] + [
        "search"
    ] * 3 + ["reread", "residue"]
    assert len(rows["memories"]) == 11 and rows["memories"][0]["created"] == ANN.sessions[0].date
    assert by_op(rows, "open")[0]["detail"]["tokenizer"] == text.TOKENIZER
    assert not (tmp_path / "stores" / "unit").exists()


def test_the_same_unit_gives_the_same_rows_but_for_the_times(tmp_path):
    def once(place):
        rows = ingest.ingest_unit(unit_of(place, "replace-similar"))
        for event in rows["events"]:
            event["seconds"] = 0
        return json.dumps(rows)

    assert once(tmp_path / "a") == once(tmp_path / "b")


def test_residue_tells_what_store_everything_keeps_on_the_disk(tmp_path):
    detail = by_op(ingest.ingest_unit(unit_of(tmp_path)), "residue")[0]["detail"]
    assert detail["forgotten"] == {"n": 1, "found": {"f03": ["jsonl"]}, "not_searchable": []}
    assert detail["replaced"] == {"n": 1, "found": {"f02": ["jsonl"]}, "not_searchable": []}


def test_stores_are_kept_on_request_and_a_left_store_is_emptied_first(tmp_path, monkeypatch):
    monkeypatch.setenv("KIOKULAB_KEEP_STORES", "1")
    unit = unit_of(tmp_path)
    first = ingest.ingest_unit(unit)
    assert (tmp_path / "stores" / "unit" / "store" / "memories.jsonl").exists()
    assert ingest.ingest_unit(unit)["memories"] == first["memories"]


def test_yield_is_measured_and_a_call_that_changes_nothing_is_counted(tmp_path):
    system = adapter(
        tmp_path,
        """
        def ingest(self, item, when):
            if "920" in item.text:
                self.texts = [one.replace("850", "920") for one in self.texts]
                return Ingested(changed=1)
            if "forget" not in item.text:
                self.texts.append(item.text)
                return Ingested(added=1, warnings=["careful"])
            return Ingested(removed=1)   # a lie
    """,
    )
    events = by_op(ingest.ingest_unit(unit_of(tmp_path, system, route="requests")), "ingest")
    assert [event["detail"]["no_op"] for event in events] == [0, 0, 0, 0, 1]
    assert [event["removed"] for event in events] == [None] * 4 + [1]
    assert events[0]["warnings"] == ["careful"] and events[0]["detail"]["observed"] == {
        "added": 1,
        "changed": 0,
        "removed": 0,
    }
    assert events[3]["detail"]["observed"] == {"added": 0, "changed": 1, "removed": 0}
    assert events[3]["detail"]["gone"] == [
        {"id": "1", "layer": "live", "text": "Please remember this: Ann pays 850 dollars a month."}
    ]


def test_many_calls_are_compared_once_a_session(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "EACH_CALL", 5)
    events = by_op(ingest.ingest_unit(unit_of(tmp_path, "replace-similar")), "ingest")
    compared = [event for event in events if "observed" in event["detail"]]
    assert [event["item"] for event in compared] == ["s01.t07", "s02.t02", "s03.t02"]
    assert [event["detail"]["over"] for event in compared] == [7, 2, 2]


def test_forget_routing_without_a_forget_call_is_unsupported_and_not_sent_otherwise(tmp_path):
    rows = ingest.ingest_unit(unit_of(tmp_path, "store-everything", routing="forget"))
    (event,) = by_op(rows, "forget")
    assert event["status"] == "unsupported" and event["item"] == "s03.t01"
    assert list(event["detail"]) == ["reason"]  # nothing was called, so nothing is counted as a call without effect
    assert not any("forget" in row["text"] for row in rows["memories"])


def test_forget_routing_reaches_the_systems_own_call(tmp_path):
    system = adapter(
        tmp_path,
        """
        def forget(self, selector):
            self.note("forget", selector)
            self.texts = [one for one in self.texts if selector["query"] not in one]
            return 1
    """,
        "capabilities = frozenset({'search', 'forget'})",
    )
    rows = ingest.ingest_unit(unit_of(tmp_path, system, route="requests", routing="forget"))
    (event,) = by_op(rows, "forget")
    assert event["status"] == "ok" and event["removed"] == 1 and event["detail"]["observed"]["removed"] == 1
    assert not any("peanuts" in row["text"] for row in rows["memories"]) and len(rows["memories"]) == 3


def test_questions_come_in_ledger_order_a_day_later_with_k(tmp_path, monkeypatch):
    monkeypatch.setenv("MINE_LOG", str(tmp_path / "log"))
    ingest.ingest_unit(unit_of(tmp_path, adapter(tmp_path, "")))
    asked = [row for row in map(json.loads, (tmp_path / "log").read_text().splitlines()) if row[0] == "search"]
    assert asked == [["search", fact.question.text, 30, "2026-01-01T23:00:00+09:00"] for fact in ANN.facts]


def test_more_results_than_asked_are_cut_and_said(tmp_path):
    system = adapter(
        tmp_path,
        """
        def search(self, query, k, when=None):
            return Results([Hit(f"result {n}") for n in range(k + 20)])
    """,
    )
    rows = ingest.ingest_unit(unit_of(tmp_path, system) | {"k": 5})
    assert {(row["asked"], row["delivered"], row["used"]) for row in rows["contexts"]} == {(5, 25, 5)}
    assert all("cut off" in event["warnings"][0] for event in by_op(rows, "search"))


def test_reading_that_changes_the_store_is_reported(tmp_path):
    system = adapter(
        tmp_path,
        """
        def search(self, query, k, when=None):
            self.texts[0] += "!"
            self.texts.append(query)
            return Results([])
    """,
    )
    rows = ingest.ingest_unit(unit_of(tmp_path, system))
    (event,) = by_op(rows, "reread")
    assert (event["added"], event["changed"], event["removed"]) == (3, 1, 0) and event["detail"]["changed"] == ["0"]
    assert len(rows["memories"]) == 3  # the rows are what was there before the questions
    (quiet,) = by_op(ingest.ingest_unit(unit_of(tmp_path)), "reread")
    assert (quiet["added"], quiet["changed"], quiet["removed"]) == (0, 0, 0)


def test_a_store_that_cannot_be_listed_is_unsupported_and_not_empty(tmp_path):
    system = adapter(
        tmp_path,
        """
        def dump(self):
            raise Unsupported("dump", "the vendor has no list call")
    """,
        "capabilities = frozenset()",
    )
    rows = ingest.ingest_unit(unit_of(tmp_path, system))
    for op in ("dump", "reread"):
        (event,) = by_op(rows, op)
        assert event["status"] == "unsupported" and event["detail"]["reason"] == "the vendor has no list call"
    assert {(row["status"], row["reason"]) for row in rows["contexts"]} == {
        ("unsupported", "the system has no search call")
    }
    assert rows["memories"] == [] and "observed" not in by_op(rows, "ingest")[0]["detail"]


def test_clean_up_runs_once_where_it_is_declared(tmp_path, monkeypatch):
    monkeypatch.setenv("MINE_LOG", str(tmp_path / "log"))
    system = adapter(
        tmp_path,
        """
        def clean_up(self):
            self.note("clean_up")
            del self.texts[0]
    """,
        "capabilities = frozenset({'clean_up'})",
    )
    rows = ingest.ingest_unit(unit_of(tmp_path, system))
    assert (tmp_path / "log").read_text().count("clean_up") == 1
    assert by_op(rows, "clean_up")[0]["detail"]["gone"] == [
        {"id": "2", "layer": "live", "text": "s03"},
        {"id": "0", "layer": "live", "text": "s01"},
        {"id": "1", "layer": "live", "text": "s02"},
    ]


FAILURES = {
    "ingest": (
        "def ingest(self, item, when):\n    raise RuntimeError('the disk is full')",
        "ingest of s01: .*the disk is full",
    ),
    "search": (
        "def search(self, query, k, when=None):\n    raise RuntimeError('no index')",
        "search of f01: .*no index",
    ),
    "settle": (
        "def settle(self, timeout):\n    raise SystemFailure('still working', 'not_ready')",
        "settle: .*still working",
    ),
    "dump of texts": ("def dump(self):\n    return ['a'] if self.texts else []", "no Memory"),
    "dump of none": ("def dump(self):\n    return None", "not a list"),
    "layer": ("def dump(self):\n    return [Memory('1', 'a', layer='gone')] if self.texts else []", "layer"),
    "dates": (
        "def dump(self):\n    return [Memory('1', 'a', created=1741944600)] if self.texts else []",
        "created is no text",
    ),
    "open": ("def open(self, space, workdir, endpoint=None):\n    raise OSError('locked')", "open: .*locked"),
    "close": ("def close(self):\n    raise OSError('unsaved')", "unsaved"),
    "not empty": ("def dump(self):\n    return [Memory('1', 'from another life')]", "not empty"),
    "item refused": ("def ingest(self, item, when):\n    raise Unsupported('ingest', 'no sessions')", "no sessions"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_operation_and_item_and_leaves_no_rows(tmp_path, name):
    body, message = FAILURES[name]
    with pytest.raises(SystemFailure, match=message):
        ingest.ingest_unit(unit_of(tmp_path, adapter(tmp_path, body)))
    assert not (tmp_path / "stores" / "unit").exists()


def test_hostile_memories_and_results_survive_as_they_are(run_folder, tmp_path):
    system = adapter(
        tmp_path,
        r"""
        HOSTILE = ["lone \ud800 surrogate", "nul \x00 bell \x07", "line\u2028and\u0085", "<script>alert(1)</script>",
                   "", "x" * 1_000_000]

        def dump(self):
            return [Memory(f"id \udfff {n}", one) for n, one in enumerate(self.HOSTILE)] if self.texts else []

        def search(self, query, k, when=None):
            return Results([Hit(one, f"\ud800{n}") for n, one in enumerate(self.HOSTILE)])
    """,
    )
    (row,) = ingest.run(run_folder, parameters(system=system))
    assert row["failed"] == "none"
    hostile = [
        "lone \ud800 surrogate",
        "nul \x00 bell \x07",
        "line\u2028and\u0085",
        "<script>alert(1)</script>",
        "",
        "x" * 1_000_000,
    ]
    assert [row["text"] for row in read_jsonl(run_folder / "memories.jsonl") if row["unit"] == "en-01/raw"] == hostile
    (first, *_) = read_jsonl(run_folder / "contexts.jsonl")
    assert [item["text"] for item in first["items"][:5]] == hostile[:5] and first["tokens"] <= 1000
    assert first["items"][5]["text"] == "x" * len(first["items"][5]["text"]) and first["used"] == 6


def test_repeated_and_missing_ids_get_numbers(tmp_path):
    system = adapter(
        tmp_path,
        """
        def dump(self):
            return [Memory("same", one) for one in self.texts] + [Memory(None, one) for one in self.texts]
    """,
    )
    rows = ingest.ingest_unit(unit_of(tmp_path, system))
    ids = [row["id"] for row in rows["memories"]]
    assert ids == ["same", "same~2", "same~3", "#00003", "#00004", "#00005"]
    assert by_op(rows, "dump")[0]["warnings"] == ["2 memories repeat an id"]


# --- the step ---------------------------------------------------------------------------------------------------


def parameters(**changed):
    values = dict(
        system="store-everything",
        settings={},
        route="raw",
        routing="none",
        embedder="hash",
        k=30,
        budget_tokens=1000,
        unit_timeout_s=60,
        jobs=2,
        engine="local",
        scheduler="",
    )
    return SimpleNamespace(**(values | changed))


@pytest.fixture
def run_folder(tmp_path):
    write_jsonl(tmp_path / "dataset.jsonl", [ANN.model_dump(mode="json"), KEN.model_dump(mode="json")])
    return tmp_path


def test_run_writes_all_rows_in_unit_order_and_keeps_finished_units(run_folder):
    summary = ingest.run(run_folder, parameters(route="all"))
    assert [(row["route"], row["units"], row["failed"], row["contexts"]) for row in summary] == [
        (route, 2, "none", 5) for route in ROUTES
    ]
    order = [f"{persona}/{route}" for persona in ("en-01", "ja-01") for route in ROUTES]
    for name in ("memories", "contexts", "events"):
        rows = read_jsonl(run_folder / f"{name}.jsonl")
        assert list(dict.fromkeys(row["unit"] for row in rows)) == order
    assert not (run_folder / "stores").exists()
    before = (run_folder / "events.jsonl").read_bytes()
    assert ingest.run(run_folder, parameters(route="all")) == summary
    assert (run_folder / "events.jsonl").read_bytes() == before  # nothing was done again


def test_a_failed_unit_is_named_and_its_rows_are_in_no_file(run_folder, tmp_path):
    system = adapter(
        tmp_path,
        """
        def ingest(self, item, when):
            if "ビスケット" in repr(item):
                raise RuntimeError("not in my language")
            self.texts.append(item.id)
    """,
    )
    (row,) = ingest.run(run_folder, parameters(system=system))
    assert (
        row["failed"] == "ja-01/raw"
        and "not in my language" in units.failed(run_folder / "units" / "2-ingest")["ja-01/raw"]
    )
    for name in ("memories", "contexts", "events"):
        assert {row["unit"] for row in read_jsonl(run_folder / f"{name}.jsonl")} == {"en-01/raw"}
    adapter(tmp_path, "")
    (row,) = ingest.run(run_folder, parameters(system=system))
    assert row["failed"] == "none"


def test_all_units_failed_is_an_error_and_writes_no_rows(run_folder, tmp_path):
    system = adapter(tmp_path, "def ingest(self, item, when):\n    raise RuntimeError('broken')")
    with pytest.raises(UnitsFailed, match="en-01/raw"):
        ingest.run(run_folder, parameters(system=system))
    assert not (run_folder / "memories.jsonl").exists()


@pytest.mark.parametrize("system,memories", [("oracle", 4), ("null", 0), ("vector", 9), ("replace-similar", 6)])
def test_the_default_systems_run_in_processes_of_their_own(run_folder, system, memories):
    (row,) = ingest.run(run_folder, parameters(system=system))
    assert row["failed"] == "none" and row["contexts"] == 5 and row["memories"] == memories


def test_bad_input_is_refused_before_anything_starts(run_folder):
    for bad, message in (
        ({"system": "no such thing"}, "unknown system"),
        ({"settings": {"colour": 1}}, "colour"),
        ({"embedder": "word2vec"}, "word2vec"),
        ({"route": "row"}, "row"),
    ):
        with pytest.raises(InputError, match=message):
            ingest.run(run_folder, parameters(**bad))
    assert not (run_folder / "units").exists()


@pytest.mark.parametrize(
    "line,message", [("{}", ":1: not a persona"), ("", "empty"), ('{"id": "en-01"', ":1: .*(torn|JSON)")]
)
def test_a_bad_dataset_is_refused_with_its_line(tmp_path, line, message):
    (tmp_path / "dataset.jsonl").write_text(line + "\n" if line else "")
    with pytest.raises(InputError, match=message):
        ingest.run(tmp_path, parameters())


def test_a_persona_that_is_there_twice_is_refused(tmp_path):
    write_jsonl(tmp_path / "dataset.jsonl", [ANN.model_dump(mode="json")] * 2)
    with pytest.raises(InputError, match=":2: .*twice"):
        ingest.run(tmp_path, parameters())

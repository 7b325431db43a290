"""The two vocabularies of the template generator: the sizes that the issue asks for, and texts that come out whole.

`read_vocabulary` refuses a template that breaks a writing rule; its refusals are tested here on small planted faults.
The other tests look at what it does not: sizes, spellings in both languages, replies that fit, words that would confuse
slots.
"""

import random
import re

import pytest
import yaml

from kiokulab.errors import InputError
from kiokulab.kioku import template

JAPANESE = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]")
LATIN = re.compile(r"[A-Za-z]")
LANGUAGES = ("en", "ja")


@pytest.fixture(scope="module", params=LANGUAGES)
def vocabulary(request):
    return template.load_vocabulary(request.param)


def slot_templates(slot):
    """(where, template) of every template of a slot."""
    yield "ledger", slot.ledger
    for name in ("say", "change", "near_miss", "ack"):
        yield from ((name, t) for t in getattr(slot, name))
    for name in ("partial", "forget", "question"):
        yield from ((f"{name}.{key}", t) for key, ts in getattr(slot, name).items() for t in ts)


def topic_lines(topic):
    for exchange in topic["exchanges"]:
        yield from ((role, line) for role in ("user", "assistant") for line in exchange[role])


def test_sizes_are_those_of_the_spec(vocabulary):
    assert len(vocabulary.slots) >= 48
    assert sum(1 for slot in vocabulary.slots if slot.partial) >= 20
    assert len(vocabulary.topics) >= 24
    for slot in vocabulary.slots:
        combinations = 1
        for values in slot.parts.values():
            combinations *= len(values)
        assert combinations >= 10, slot.id
        assert len(set(slot.say)) >= 5, slot.id
    assert len(vocabulary.leads) >= 12 and len(vocabulary.prefixes) >= 8
    assert min(len(vocabulary.names["given"]), len(vocabulary.names["family"])) >= 24
    assert {
        kind: len(lines) >= least
        for kind, least in (("fact", 20), ("change", 10), ("forget", 8), ("near_miss", 10))
        for lines in [vocabulary.acks[kind]]
    } == dict.fromkeys(("fact", "change", "forget", "near_miss"), True)


def test_no_template_is_there_twice(vocabulary):
    for slot in vocabulary.slots:
        for group in (slot.say, slot.change, slot.near_miss, *slot.partial.values(), *slot.question.values()):
            assert len(group) == len(set(group)), slot.id
    lines = [line for topic in vocabulary.topics for _, line in topic_lines(topic)]
    assert sorted({line for line in lines if lines.count(line) > 1}) == []


def test_every_value_has_forms_in_both_languages(vocabulary):
    for slot in vocabulary.slots:
        assert all(slot.anchors.get(language) for language in LANGUAGES), slot.id
        for part, values in slot.parts.items():
            for value in values:
                assert value.forms and all(form.strip() for form in value.forms)
                if value.kind == "code":  # letters and digits, written the same everywhere
                    continue
                where = f"{slot.id}.{part} {value.forms[0]}"
                assert any(JAPANESE.search(form) for form in value.forms), where
                assert any(LATIN.search(form) for form in value.forms), where
                assert (
                    JAPANESE.search(value.shown[0]) if vocabulary.language == "ja" and value.kind == "phrase" else True
                ), where


def test_values_of_a_part_can_be_told_apart(vocabulary):
    for slot in vocabulary.slots:
        for part, values in slot.parts.items():
            for i, first in enumerate(values):
                for second in values[i + 1 :]:
                    if first.kind == "time":  # 6:30 and 18:30 share "6:30"; the generator draws them apart
                        continue
                    assert not first.keys & second.keys, (slot.id, part, first.forms[0], second.forms[0])


def test_every_template_fills_without_leftovers(vocabulary):
    rng = random.Random(0)
    for slot in vocabulary.slots:
        fill = {}
        for part, values in slot.parts.items():
            now, old, other = rng.sample(values, 3)
            fill |= {part: now.shown[0], f"old_{part}": old.shown[0], f"other_{part}": other.shown[0]}
        for where, line in slot_templates(slot):
            for choice in template.options(line):
                text = template.expand(choice, rng, fill, vocabulary.language)
                assert text.strip() and not re.search(r"[<>{}|]", text), (slot.id, where, text)
                assert not re.search(r"。。|、、|、。|  |\?\?|？？", text), (slot.id, where, text)
    for topic in vocabulary.topics:
        fill = {name: choices[0] for name, choices in topic.get("fill", {}).items()}
        assert all(len(choices) >= 4 for choices in topic.get("fill", {}).values()), topic["id"]
        for role, line in topic_lines(topic):
            text = template.expand(line, rng, fill, vocabulary.language)
            assert text.strip() and not re.search(r"[<>{}|]", text), (topic["id"], role, text)


def test_all_values_stand_in_the_ledger_and_in_every_statement(vocabulary):
    rng = random.Random(1)
    for slot in vocabulary.slots:
        fill = {part: rng.choice(values).shown[0] for part, values in slot.parts.items()}
        for line in (slot.ledger, *slot.say, *slot.forget["restates"]):
            text = template.expand(line, rng, fill, "ja")  # no capitals: the value must be found as it was given
            assert all(value in text for value in fill.values()), (slot.id, line)


def test_each_line_of_talk_has_its_reply(vocabulary):
    for topic in vocabulary.topics:
        for exchange in topic["exchanges"]:
            assert len(exchange["user"]) == len(exchange["assistant"]) >= 3, topic["id"]


def test_near_misses_begin_with_somebody_else(vocabulary):
    for slot in vocabulary.slots:
        for line in slot.near_miss:
            for text in template.options(line):
                start = text.removeprefix("My ").removeprefix("Our ").removeprefix("A ").removeprefix("The ")
                assert (
                    start.startswith(tuple(vocabulary.others))
                    or vocabulary.language == "en"
                    and any(word in " ".join(text.split()[:4]) for word in vocabulary.others)
                ), (slot.id, text)


def test_japanese_talk_holds_no_word_of_a_slot():
    """A Japanese form has no word boundary to save it: 'きなこ' stands in '好きなこと'."""
    vocabulary = template.load_vocabulary("ja")
    words = {
        form: slot.id
        for slot in vocabulary.slots
        for form in (
            *slot.anchors["ja"],
            *(f for vs in slot.parts.values() for v in vs if v.kind == "phrase" for f in v.forms),
        )
        if JAPANESE.search(form)
    }
    lines = [line for topic in vocabulary.topics for _, line in topic_lines(topic)]
    lines += [choice for topic in vocabulary.topics for choices in topic.get("fill", {}).values() for choice in choices]
    lines += [*vocabulary.leads, *vocabulary.prefixes, *(line for group in vocabulary.acks.values() for line in group)]
    found = {
        (word, words[word], line) for line in lines for word in words for text in template.options(line) if word in text
    }
    assert sorted(found) == []


def test_japanese_slots_do_not_hold_each_others_words():
    vocabulary = template.load_vocabulary("ja")
    own = {
        slot.id: [line for where, line in slot_templates(slot) if where != "ack"]
        + [f for vs in slot.parts.values() for v in vs if v.kind == "phrase" for f in v.forms]
        for slot in vocabulary.slots
    }
    clashes = {
        (anchor, slot.id, other, text)
        for slot in vocabulary.slots
        for anchor in slot.anchors["ja"]
        for other, texts in own.items()
        if other != slot.id
        for text in texts
        if anchor in text
    }
    assert sorted(clashes) == []


def test_japanese_speaks_politely_as_assistant():
    """Every reply ends in a polite form; the user's lines come in both registers wherever a persona needs one of
    them."""
    vocabulary = template.load_vocabulary("ja")
    polite = re.compile(r"(です|ます|ました|でした|ません|ましょう|でしょう|ください|ね|よ|か)(ね|よ|か|よね)?[。？]$")
    replies = [line for topic in vocabulary.topics for role, line in topic_lines(topic) if role == "assistant"]
    replies += [line for group in vocabulary.acks.values() for line in group]
    assert [r for r in replies for text in template.options(r) if not polite.search(text)] == []
    for slot in vocabulary.slots:
        registers = [len(template.in_register(slot.say, wanted, "ja")) for wanted in (True, False)]
        assert min(registers) >= 2 and sum(registers) == len(slot.say), slot.id


# --- faults that the reader must refuse -------------------------------------------------------------------------


def planted(tmp_path, change):
    """A vocabulary of one good slot, after `change` has spoiled it."""
    raw = {
        "language": "ja",
        "others": ["母"],
        "names": {"given": ["花"], "family": ["森本"]},
        "leads": [],
        "prefixes": [],
        "acks": {},
        "slots": [
            {
                "id": "tea.way",
                "anchors": {"ja": ["お茶"], "en": ["tea"]},
                "parts": {"leaf": {"phrase": [f"茶葉{i}号 | leaf no {i}" for i in range(10)]}},
                "ledger": "お茶は{leaf}。",
                "say": [f"お茶は{{leaf}}です{'。' * (i + 1)}" for i in range(5)],
                "change": ["お茶を{leaf}に変えた。", "お茶は{leaf}になった。", "お茶、{old_leaf}から{leaf}へ。"],
                "forget": {
                    "names_fact": ["お茶のことは忘れて。"],
                    "names_topic": ["忘れて。"],
                    "restates": ["お茶が{leaf}なのは忘れて。"],
                },
                "question": {"leaf": ["お茶は何？"]},
                "near_miss": ["母のお茶は{leaf}。", "母はお茶に{other_leaf}。"],
            }
        ],
        "topics": [{"id": "t", "fill": {"x": ["a"]}, "exchanges": [{"user": ["{x}？"], "assistant": ["はい。"]}]}],
    }
    change(raw)
    path = tmp_path / "ja.yml"
    path.write_text(yaml.safe_dump(raw, allow_unicode=True), encoding="utf-8")
    return path


def test_the_unspoilt_vocabulary_is_read(tmp_path):
    assert template.read_vocabulary(planted(tmp_path, lambda raw: None)).slots[0].id == "tea.way"


FAULTS = {
    "value_missing_in_a_statement": lambda raw: raw["slots"][0]["say"].append("お茶が好きです。"),
    "placeholder_nobody_fills": lambda raw: raw["slots"][0]["say"].append("お茶は{leaf}を{cup}で。"),
    "statement_without_anchor": lambda raw: raw["slots"][0]["say"].append("いつも{leaf}です。"),
    "bracket_left_open": lambda raw: raw["slots"][0]["say"].append("お茶は<いつも{leaf}です。"),
    "too_few_statements": lambda raw: raw["slots"][0].update(say=["お茶は{leaf}です。"]),
    "too_few_values": lambda raw: raw["slots"][0]["parts"]["leaf"].update(phrase=["a | b"]),
    "unknown_kind_of_value": lambda raw: raw["slots"][0].update(parts={"leaf": {"colour": ["red"] * 10}}),
    "forget_kind_missing": lambda raw: raw["slots"][0]["forget"].pop("restates"),
    "question_about_no_part": lambda raw: raw["slots"][0].update(question={"cup": ["お茶の器は？"]}),
    "partial_change_of_a_single_part": lambda raw: raw["slots"][0].update(partial={"leaf": ["お茶は{leaf}。"] * 3}),
    "slot_twice": lambda raw: raw["slots"].append(raw["slots"][0]),
    "unknown_field": lambda raw: raw["slots"][0].update(asnwer="{leaf}"),
    "topic_placeholder_nobody_fills": lambda raw: raw["topics"][0]["exchanges"][0]["user"].append("{y}は？"),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_reader_refuses(fault, tmp_path):
    with pytest.raises(InputError):
        template.read_vocabulary(planted(tmp_path, FAULTS[fault]))

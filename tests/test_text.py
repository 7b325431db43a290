"""Sentences, language, tokens and normal forms, with the texts that break them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiokulab.text import count_tokens, cut_tokens, language_of, nfc, normalise, sentences


@pytest.mark.parametrize(
    "text,want",
    [
        ("I have a dog. He is called Biscuit!", ["I have a dog.", "He is called Biscuit!"]),
        ("Dr. Smith sees me at 6 p.m. on Tue. I like it.", ["Dr. Smith sees me at 6 p.m. on Tue.", "I like it."]),
        ("Swim is at 6 p.m. I like it.", ["Swim is at 6 p.m.", "I like it."]),
        ("Rent is 850.50 dollars, see v1.2.3. e.g. this one", ["Rent is 850.50 dollars, see v1.2.3.", "e.g. this one"]),
        ("well... maybe. ok then", ["well... maybe.", "ok then"]),
        (
            "犬を飼っています。名前はビスケットです！かわいい？はい。",
            ["犬を飼っています。", "名前はビスケットです！", "かわいい？", "はい。"],
        ),
        ("母は「はい。行きます。」と言った。私も行く。", ["母は「はい。行きます。」と言った。", "私も行く。"]),
        ("「はい。行きます。」", ["「はい。", "行きます。」"]),
        ("すごい!明日行く", ["すごい!", "明日行く"]),
        ("「閉じない。次の文。", ["「閉じない。", "次の文。"]),
        (
            "# Preferences\n\n- likes tea\n* **dog**: Biscuit\n1. first\n2) second\n> quoted\n```json\n- [ ] todo\n---\n",
            ["Preferences", "likes tea", "dog: Biscuit", "first", "second", "quoted", "todo"],
        ),
        ("・お茶が好き\n・犬：ビスケット\n①東京在住", ["お茶が好き", "犬：ビスケット", "東京在住"]),
        ("name: Biscuit\r\nage: 3\u2028home: Kyoto", ["name: Biscuit", "age: 3", "home: Kyoto"]),
        ("3.5 km. 10 kg. J. Smith came.", ["3.5 km.", "10 kg.", "J. Smith came."]),
        ("", []),
        ("🎉\n!!!", []),
        ("\ud800abc. Then \x00 x", ["\ud800abc.", "Then \x00 x"]),
        ("2025-03-14\nHello", ["2025-03-14", "Hello"]),
    ],
)
def test_sentences(text, want):
    assert sentences(text) == want


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("。.!?「」 \n-#a犬"))))
def test_sentences_lose_no_letter(text):
    kept = "".join(c for s in sentences(text) for c in s if c.isalpha())
    assert kept == "".join(c for c in text if c.isalpha())


@pytest.mark.parametrize(
    "line",
    [
        "a" * 10**6,
        "a. " * 333_333,
        "「" * 10**6,
        "「あ。」" * 250_000,
        "**" * 500_000,
        "- " * 500_000,
        "…" * 10**6,
        "あ、" * 500_000,
        "__a" * 333_333,
        "(" * 10**6,
    ],
)
def test_one_megabyte_in_one_line(line):
    assert all(len(s) <= 2_000 for s in sentences(line))


@pytest.mark.parametrize(
    "text,want",
    [
        ("I moved to Kyoto last spring.", "en"),
        ("Swim at 6:30 pm on Tuesdays", "en"),
        ("likes green tea", "en"),
        ("京都に引っ越しました", "ja"),
        ("iPhone 15 Proを使っている", "ja"),
        ("I ate たこ焼き in Osaka", "en"),
        ("犬の名前はBiscuit", "ja"),
        ("18:30", "und"),
        ("2025-03-14 850", "und"),
        ("Biscuit", "und"),
        ("Mary Smith", "und"),
        ("田中太郎", "und"),
        ("ビスケット", "und"),
        ("Je voudrais un café s'il vous plaît, merci beaucoup", "other"),
        ("Ich habe einen Hund und eine Katze zu Hause", "other"),
        ("Привет, как дела", "other"),
        ("나는 개를 키운다", "other"),
        ("我们今天去公园玩你呢", "other"),
        ("東京都在住会社員", "ja"),
        ("", "und"),
        ("🎉🎉", "und"),
        ("\ud800\ud800", "und"),
        ("I run 6 km twice a week.", "en"),
        ("Let me give you some context.", "en"),
        ("Do languages get simpler over time?", "en"),
        ("Vado in piscina il martedì alle sei", "other"),
        ("Ik woon in een klein huis in de stad", "other"),
        ("https://example.org/the/page", "und"),
        ("The user's dog is called ビスケット", "en"),
        ("dentist: Tuesday 6 pm", "en"),
    ],
)
def test_language(text, want):
    assert language_of(text) == want


def test_language_prior_is_the_editions():
    assert language_of("Je voudrais un café s'il vous plaît, merci beaucoup", ("en", "fr")) == "fr"
    assert language_of("私は犬を飼っています", ("en", "fr")) == "other"


@given(st.text())
def test_language_of_any_text(text):
    assert language_of(text) in {"en", "ja", "und", "other"}
    assert language_of(text) == language_of(text)


@pytest.mark.parametrize(
    "a,b",
    [
        ("６：３０　ＰＭ", "6:30 pm"),
        ("ﾋﾞｽｹｯﾄ", "ビスケット"),
        ("Café", "Cafe\u0301"),
        ("it’s “ok”", 'it\'s "ok"'),
        ("6\u200b:30", "6:30"),
        ("週 3 回", "週3回"),
        ("a–b", "a-b"),
        ("STRASSE", "straße"),
    ],
)
def test_normalise_joins(a, b):
    assert normalise(a) == normalise(b)


@given(st.text())
def test_normalise_is_stable(text):
    once = normalise(text)
    assert "\n" not in once and normalise(once) == once


def test_nfc_counts_composed_characters():
    assert len(nfc("か\u3099")) == 1


def test_special_tokens_are_plain_text():
    assert count_tokens("<|endoftext|>") > 3
    assert count_tokens("\ud800") > 0


@given(
    st.text(alphabet=st.one_of(st.characters(exclude_categories=[]), st.sampled_from("か\u3099👩\u200d👧é"))),
    st.integers(0, 12),
)
def test_cut_is_a_beginning_that_fits(text, n):
    cut = cut_tokens(text, n)
    assert count_tokens(cut) <= n
    assert cut == text or not any(0xD800 <= ord(c) <= 0xDFFF for c in cut)
    if not any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        assert text.startswith(cut)


def test_cut_leaves_no_half_character():
    assert cut_tokens("👩\u200d👧👩\u200d👧", 4) in ("", "👩\u200d👧")
    with pytest.raises(ValueError):
        cut_tokens("a", -1)

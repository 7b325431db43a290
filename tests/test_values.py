"""Every usual spelling of a typed value is read back as that value, and spellings that no list holds are too."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab import values
from kiokulab.values import canonical, compatible, english, find, forms, kanji, parse_number

number = st.integers(1, 9999)
typed = st.one_of(
    st.tuples(
        st.just("time"),
        st.builds(
            lambda h, m: f"{h:02d}:{m:02d}", st.integers(0, 23), st.sampled_from([0, 5, 10, 15, 20, 30, 40, 45, 50, 55])
        ),
    ),
    st.tuples(st.just("date"), st.dates().map(lambda d: f"{d.month:02d}-{d.day:02d}")),
    st.tuples(
        st.just("date"),
        st.dates(
            min_value=__import__("datetime").date(1930, 1, 1), max_value=__import__("datetime").date(2040, 1, 1)
        ).map(str),
    ),
    st.tuples(st.just("month"), st.integers(1, 12).map(lambda m: f"{m:02d}")),
    st.tuples(st.just("weekday"), st.sampled_from(list(values.WEEKDAYS))),
    st.tuples(
        st.just("money"),
        st.tuples(
            st.one_of(st.integers(1, 999), st.integers(1, 900).map(lambda n: n * 1000)),
            st.sampled_from(["USD", "JPY", "EUR", "GBP", "CHF", "KRW"]),
        ),
    ),
    st.tuples(st.just("count"), st.integers(1, 2500)),
    st.tuples(
        st.just("quantity"),
        st.tuples(
            st.integers(2, 500),
            st.sampled_from(["km", "kg", "page", "ml", "m2", "cm", "kcal", "mile", "step", "lb", "celsius"]),
        ),
    ),
    st.tuples(
        st.just("frequency"),
        st.fixed_dictionaries({"n": st.integers(1, 7), "per": st.sampled_from(["day", "week", "month", "year"])}),
    ),
    st.tuples(
        st.just("frequency"),
        st.fixed_dictionaries({"n": st.just(1), "per": st.sampled_from(["2 weeks", "3 days", "2 months", "2 days"])}),
    ),
    st.tuples(
        st.just("duration"),
        st.one_of(
            st.tuples(st.integers(2, 120), st.just("minute")),
            st.tuples(st.sampled_from([1, 1.5, 2, 3, 8]), st.just("hour")),
            st.tuples(st.integers(1, 20), st.sampled_from(["day", "week", "month", "year"])),
        ),
    ),
    st.tuples(st.just("ordinal"), st.integers(1, 60)),
    st.tuples(st.just("age"), st.integers(2, 99)),
    st.tuples(st.just("percent"), st.integers(1, 100)),
    st.tuples(st.just("year"), st.integers(1960, 2040)),
)


@settings(max_examples=400, deadline=None)
@given(typed)
def test_every_form_is_found_back_as_its_value(case):
    kind, value = case
    want = canonical(kind, value)[0]
    got = forms(kind, value)
    assert 0 < len(got) <= values.LIMIT and len(set(got)) == len(got)
    for form in got:
        assert any(compatible(kind, want, f) for f in find(form)), (kind, value, form, find(form))


@given(st.integers(0, 10**8))
def test_number_words_are_read_back(n):
    assert parse_number(english(n)) == n
    assert parse_number(kanji(n)) == n


UNSEEN = [  # spellings that `forms` does not list
    ("half past six tomorrow", "time", "18:30"),
    ("Swim went from 6 to 6:30.", "time", "18:30"),
    ("Swim went from 6 to 6:30.", "time", "18:00"),
    ("the 6.30pm class", "time", "18:30"),
    ("every evening at 6", "time", "18:00"),
    ("a quarter to seven", "time", "18:45"),
    ("ten past 7 pm", "time", "19:10"),
    ("夕方の六時半から", "time", "18:30"),
    ("18時30分開始", "time", "18:30"),
    ("EUR850 a month", "money", "850 EUR"),
    ("8k yen", "money", "8000 JPY"),
    ("家賃は１２万５千円です", "money", "125000 JPY"),
    ("rent: 850", "money", "850 USD"),
    ("from 850 to 900 dollars", "money", "850 USD"),
    ("80 thousand yen", "money", "80000 JPY"),
    ("up from twice to three times a week", "frequency", "2/week"),
    ("up from twice to three times a week", "frequency", "3/week"),
    ("週３度", "frequency", "3/week"),
    ("一週間に二回", "frequency", "2/week"),
    ("週2回から3回に増やした", "frequency", "3/week"),
    ("five kilometres", "quantity", "5 km"),
    ("from 5 to 8 km", "quantity", "5 km"),
    ("14 March: birthday", "date", "03-14"),
    ("born on the fourteenth of march, 1990", "date", "03-14"),
    ("2025-03-14T10:00", "date", "2025-03-14"),
    ("三月十四日", "date", "03-14"),
    ("I'm thirty-four years old", "age", "34"),
    ("三十四才", "age", "34"),
    ("1時間半", "duration", "90 minute"),
    ("an hour and a half", "duration", "90 minute"),
    ("1 hour 30 minutes", "duration", "90 minute"),
    ("１時間３０分", "duration", "90 minute"),
    ("３０分から４５分に", "duration", "45 minute"),
    ("毎週火・木の夜", "weekday", "tue"),
    ("Tues + Thurs", "weekday", "thu"),
    ("a quarter-century", None, None),
    ("二十パーセント", "percent", "20"),
    ("2割引き", "percent", "20"),
    ("ふたりの子ども", "count", "2"),
    ("二匹", "count", "2"),
    ("22nd floor", "ordinal", "22"),
    ("twenty second street", "ordinal", "22"),
]


@pytest.mark.parametrize("text,kind,value", [c for c in UNSEEN if c[1]])
def test_unseen_spelling(text, kind, value):
    assert any(compatible(kind, value, f) for f in find(text)), find(text)


@pytest.mark.parametrize(
    "text,kind,value",
    [
        ("6:30 am", "time", "18:30"),
        ("at 16:30", "time", "18:30"),
        ("6:30 pm", "time", "18:00"),
        ("3時間", "time", "03:00"),
        ("13 cats", "count", "3"),
        ("$1,850", "money", "850 USD"),
        ("March 24", "date", "03-14"),
        ("twice a month", "frequency", "2/week"),
        ("五十キロ", "quantity", "10 km"),
        ("Pixel9", "count", "9"),
        ("2025年", "duration", "24300 month"),
        ("It may rain", "month", "05"),
        ("the sun is out", "weekday", "sun"),
        ("一緒に行く", "count", "1"),
        ("850円", "money", "850 USD"),
        ("34 minutes", "age", "34"),
        ("15分", "duration", "5 minute"),
        ("午前6時半", "time", "18:30"),
        ("morning at 6:30", "time", "18:30"),
        ("十三日", "duration", "3 day"),
    ],
)
def test_what_is_not_that_value_is_not_found(text, kind, value):
    assert not any(compatible(kind, value, f) for f in find(text)), find(text)


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    for found in find(text):
        assert found.start < found.end


@pytest.mark.parametrize(
    "line",
    [
        "1" * 1_000_000,
        "6:" * 500_000,
        "one " * 250_000,
        "二" * 1_000_000,
        "\ud800 at 6 pm",
        "1,111" * 200_000,
        "週" * 300_000,
        "$" * 500_000,
        "three hundred and " * 50_000,
    ],
)
def test_hostile_lines(line):
    find(line)


def test_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="unknown kind"):
        forms("colour", "red")


def test_weekdays_of_a_month_are_one_value():
    spellings = {
        "3 thu": ["third Thursday of the month", "3rd Thu", "第3木曜日"],
        "last fri": ["last Fri of month", "最終金曜"],
        "alt sat": ["every other Saturday", "every second Saturday", "隔週の土曜日"],
    }
    for value, texts in spellings.items():
        for text in texts:
            assert ("nthday", value) in [(f.kind, f.value) for f in find(text)], text

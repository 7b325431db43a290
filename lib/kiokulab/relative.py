"""What "next Thursday" or 来週の木曜 can mean on the day it is said. English and Japanese, standard library only.

People differ about "next Thursday" said on a Monday (this week's or the week after): both readings are given, so that a
label is refused, and a date missed, only where no reader would agree with it.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from kiokulab.text import normalise
from kiokulab.values import MONTHS, parse_number

_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_DAYS_JA = "月火水木金土日"
_EN_DAY = "(" + "|".join(f"{d}|{d[:3]}" for d in _DAYS) + ")"
_EN_MONTH = "(" + "|".join(MONTHS) + ")"
_N = r"(an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d+|a couple of|a fortnight)"
_PLAIN = {
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "this evening": 0,
    "this afternoon": 0,
    "tomorrow": 1,
    "tomorrow morning": 1,
    "tomorrow night": 1,
    "tomorrow evening": 1,
    "yesterday": -1,
    "last night": -1,
    "yesterday evening": -1,
    "the day after tomorrow": 2,
    "the day before yesterday": -2,
    "a week today": 7,
    "a week tomorrow": 8,
    "a fortnight today": 14,
    "a fortnight tomorrow": 15,
    "a week ago": -7,
    "a fortnight ago": -14,
    "in a fortnight": 14,
    "今日": 0,
    "きょう": 0,
    "今夜": 0,
    "今朝": 0,
    "明日": 1,
    "あした": 1,
    "あす": 1,
    "明後日": 2,
    "あさって": 2,
    "しあさって": 3,
    "昨日": -1,
    "きのう": -1,
    "ゆうべ": -1,
    "一昨日": -2,
    "おととい": -2,
    "先おととい": -3,
}
_MONTH_WORDS = {
    "this month": 0,
    "next month": 1,
    "last month": -1,
    "the month after next": 2,
    "今月": 0,
    "来月": 1,
    "先月": -1,
    "再来月": 2,
    "先々月": -2,
}
_YEAR_WORDS = {
    "this year": 0,
    "next year": 1,
    "last year": -1,
    "the year before last": -2,
    "今年": 0,
    "来年": 1,
    "去年": -1,
    "昨年": -1,
    "一昨年": -2,
    "おととし": -2,
    "再来年": 2,
}
_WEEK_JA = {"今週": 0, "来週": 1, "再来週": 2, "先週": -1, "先々週": -2}


def resolve(words: str, said_on: date) -> set[str]:
    """All dates ('2025-03-13'), months ('2025-03') or years ('2025') that `words` can mean when said on that day; empty
    where the words are not understood."""
    text = re.sub(r"^(?:on|by|until|from|since|for|before|at) ", "", normalise(words))
    if text in _PLAIN:
        return {_day(said_on, _PLAIN[text])}
    if text in _MONTH_WORDS:
        return {_month(said_on, _MONTH_WORDS[text])}
    if text in _YEAR_WORDS:
        return {str(said_on.year + _YEAR_WORDS[text])}
    for rule in (_weekday_english, _weekday_japanese, _span, _day_of_month, _named_month):
        found = rule(text, said_on)
        if found:
            return found
    return set()


# Words of a text that name a day by the day they are said on. A weekday alone is left out: "on Fridays" and 金曜 are
# habits far more often; so are spans ("in May"), whose months and years are no days.
_LEAD = r"(?:this coming|this|next|last|a week on|a week from|the coming|on|by|until|till|from|since)"
_WEEKS_JA = "今週|来週|再来週|先週|先々週|今度|次|この前"
_MONTHS_JA = "今月|来月|再来月|先月"
_AFTER_DAY = r"(?=[,.;:!?)]|$| (?:at|and|is|it|it's|was|for|from|to|with|so|i|i'm|we|but|then|instead|now|because|if|when|in the)\b)"
_NUMBER_JA = "[0-9]{1,2}|[一二三四五六七八九十]{1,3}"
_DAY_WORDS = re.compile(
    r"(?<![a-z])(?:"
    + "|".join(sorted((re.escape(w) for w in _PLAIN if w.isascii()), key=len, reverse=True))
    + r")(?![a-z])"
    rf"|(?<![a-z]){_LEAD} {_EN_DAY}(?: week)?(?![a-z]| of\b)|(?<![a-z])(?:in )?{_N} (?:day|week)s?(?:' time|'s time)?(?: ago| from now| from today)?(?![a-z])"
    rf"|(?<![a-z])the \d{{1,2}}(?:st|nd|rd|th)(?: of (?:this|next|last) month|{_AFTER_DAY})"
    r"|(?:"
    + "|".join(sorted((w for w in _PLAIN if not w.isascii() and len(w) > 1 and w != "あす"), key=len, reverse=True))
    + ")"
    rf"|(?:{_WEEKS_JA})の?[{_DAYS_JA}]曜日?|(?:{_NUMBER_JA})(?:日|週間)(?:後|前)|(?:{_MONTHS_JA})の?(?:{_NUMBER_JA})日"
    r"|(?<![0-9月年])[0-9]{1,2}日(?=[のは、。]|に(?![0-9一二三四五六七八九十何])|から|まで|です|だ|$)"
)


def find(text: str, said_on: date) -> list[tuple[int, int, tuple[str, ...]]]:
    """(start, end, dates) of the words of a normalised text that name a day relative to the one they are said on;
    `dates` are the days that they can mean, in order. Linear in the length of the text."""
    result = []
    for match in _DAY_WORDS.finditer(text):
        meant = tuple(sorted(day for day in resolve(match[0], said_on) if len(day) == 10))
        if meant:
            result.append((*match.span(), meant))
    return result


def _day(said_on: date, days: int) -> str:
    return (said_on + timedelta(days=days)).isoformat()


def _month(said_on: date, months: int) -> str:
    n = said_on.year * 12 + said_on.month - 1 + months
    return f"{n // 12}-{n % 12 + 1:02d}"


def _weekday_english(text: str, said_on: date) -> set[str]:
    match = re.fullmatch(
        rf"(?:(this|this coming|next|last|a week on|a week from|the coming) )?{_EN_DAY}( week)?(?: (?:morning|afternoon|evening|night))?",
        text,
    )
    if not match:
        return set()
    wanted = next(i for i, d in enumerate(_DAYS) if d.startswith(match[2][:3]))
    coming = (wanted - said_on.weekday() - 1) % 7 + 1  # 1 to 7 days on
    if match[3] or match[1] in ("a week on", "a week from"):
        return {_day(said_on, coming + 7)}
    if match[1] == "last":
        return {_day(said_on, coming - 7), _day(said_on, coming - 14)} if coming < 7 else {_day(said_on, -7)}
    if match[1] == "next":
        return {_day(said_on, coming), _day(said_on, wanted - said_on.weekday() + 7)}
    return {_day(said_on, coming)}


def _weekday_japanese(text: str, said_on: date) -> set[str]:
    match = re.fullmatch(rf"(?:(今週|来週|再来週|先週|先々週|今度|次|この前)の?)?([{_DAYS_JA}])曜日?", text)
    if not match:
        return set()
    wanted = _DAYS_JA.index(match[2])
    coming = (wanted - said_on.weekday() - 1) % 7 + 1
    if match[1] in _WEEK_JA:
        result = {_day(said_on, wanted - said_on.weekday() + 7 * _WEEK_JA[match[1]])}
        # Sunday may begin a week
        return result | (
            {_day(said_on, wanted - said_on.weekday() + 7 * _WEEK_JA[match[1]] - 7)} if wanted == 6 else set()
        )
    return {_day(said_on, coming - 7)} if match[1] == "この前" else {_day(said_on, coming)}


def _span(text: str, said_on: date) -> set[str]:
    """'in three weeks', 'two years ago', 三日後, 2週間前, 半年前."""
    english = re.fullmatch(
        rf"(?:in )?{_N} (day|week|month|year)s?(?:' time|'s time)?( ago| from now| from today)?", text
    )
    japanese = re.fullmatch(r"([0-9一二三四五六七八九十]+|半)(日|週間|か月|ヶ月|カ月|ヵ月|年)(後|前)", text)
    if english and (text.startswith("in ") or english[3]):
        number = {"a": 1, "an": 1, "a couple of": 2}.get(english[1]) or parse_number(english[1])
        n, unit = int(number or 0) * (-1 if english[3] == " ago" else 1), english[2]
    elif japanese:
        if japanese[1] == "半":
            return {_month(said_on, 6 if japanese[3] == "後" else -6)} if japanese[2] == "年" else set()
        n = int(parse_number(japanese[1]) or 0) * (-1 if japanese[3] == "前" else 1)
        unit = {"日": "day", "週間": "week", "年": "year"}.get(japanese[2], "month")
    else:
        return set()
    if unit in ("day", "week"):
        return {_day(said_on, n * (7 if unit == "week" else 1))}
    if unit == "year":
        return {str(said_on.year + n), _month(said_on, 12 * n)}
    exact = set()
    try:
        exact = {date.fromisoformat(_month(said_on, n) + f"-{said_on.day:02d}").isoformat()}
    except ValueError:
        pass  # 31 January, in a month: no such day
    return {_month(said_on, n)} | exact


def _day_of_month(text: str, said_on: date) -> set[str]:
    """'the 14th', 'the 5th of next month', 来月の5日, 20日."""
    english = re.fullmatch(r"the (\d{1,2})(?:st|nd|rd|th)(?: of (this|next|last) month)?", text)
    japanese = re.fullmatch(r"(?:(今月|来月|先月|再来月)の?)?([0-9一二三四五六七八九十]{1,3})日", text)
    if not english and not japanese:
        return set()
    number = int(english[1]) if english else int(parse_number(japanese[2]) or 0)
    month = _MONTH_WORDS.get(
        f"{english[2]} month" if english and english[2] else japanese[1] if japanese and japanese[1] else ""
    )
    months = [month] if month is not None else [0 if number >= said_on.day else 1]
    result = set()
    for n in months:
        try:
            result.add(date.fromisoformat(f"{_month(said_on, n)}-{number:02d}").isoformat())
        except ValueError:
            pass  # no such day in that month
    return result


def _named_month(text: str, said_on: date) -> set[str]:
    """'next March', 'last September', 来年の3月, 去年の秋 (not: seasons)."""
    english = re.fullmatch(rf"(next|last|this) {_EN_MONTH}", text)
    japanese = re.fullmatch(
        r"(今年|来年|去年|昨年|一昨年|おととし)の?([0-9一二三四五六七八九十]{1,2})月(?:([0-9一二三四五六七八九十]{1,3})日)?",
        text,
    )
    if english:
        wanted = MONTHS.index(english[2]) + 1
        ahead = (wanted - said_on.month - 1) % 12 + 1  # 1 to 12 months on
        if english[1] == "last":
            return {_month(said_on, ahead - 12)} if ahead < 12 else {_month(said_on, -12), _month(said_on, 0)}
        return (
            {_month(said_on, ahead), f"{said_on.year + 1}-{wanted:02d}"}
            if english[1] == "next"
            else {f"{said_on.year}-{wanted:02d}"}
        )
    if japanese:
        found = f"{said_on.year + _YEAR_WORDS[japanese[1]]}-{int(parse_number(japanese[2]) or 0):02d}"
        return {found + (f"-{int(parse_number(japanese[3]) or 0):02d}" if japanese[3] else "")}
    return set()

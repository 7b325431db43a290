"""Typed values and how people write them, in English and Japanese.

``forms(kind, value)`` lists the usual spellings of one value; ``find(text)`` reads values back out of any text, so that
a spelling that no list holds ("half past six", "8k", 週3度) still matches. Kinds and values:

    time "18:30" | date "03-14" or "2025-03-14" | month "03" | weekday "tue" | year 2019 | money [850, "USD"]
    count 3 or [3] | quantity [5, "km"] | frequency {"n": 3, "per": "week"} (per: day, week, month, year, "2 weeks",
    ...) duration [45, "minute"] | ordinal 3 | age 34 | percent 20 | phone "03-1234-5678" | code "A-113" | text "any
    words"

A value found in text may be read in several ways ("6:30" is morning or evening, "3/4" is April or March): ``also``
holds the other readings, and ``compatible`` says whether any of them can be the value that is looked for.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kiokulab.text import normalise

LIMIT = 60  # forms of one value, at most

# --- numbers ----------------------------------------------------------------------------------------------------

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORD = {w: i for i, w in enumerate(_ONES)} | {w: 10 * i for i, w in enumerate(_TENS) if w != "_"}
_KANJI = {c: i for i, c in enumerate("〇一二三四五六七八九")} | {"零": 0}
_K = "〇零一二三四五六七八九十百千万億"
_ORDINAL = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth"
).split()


def english(n: int) -> str:
    """Number words: 850 -> 'eight hundred and fifty'. Whole numbers below a billion."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    for size, word in ((1_000_000, "million"), (1000, "thousand"), (100, "hundred")):
        if n >= size:
            rest = n % size
            return f"{english(n // size)} {word}" + (f"{' and' if rest < 100 else ''} {english(rest)}" if rest else "")
    raise AssertionError


def kanji(n: int) -> str:
    """Kanji number: 80000 -> 八万, 34 -> 三十四. Whole numbers below 10**12."""
    if n == 0:
        return "〇"
    result = ""
    for size, sign in ((10**8, "億"), (10**4, "万")):
        if n >= size:
            result, n = result + kanji(n // size) + sign, n % size
    for size, sign in ((1000, "千"), (100, "百"), (10, "十")):
        if n >= size:
            result, n = result + ("" if n // size == 1 else "〇一二三四五六七八九"[n // size]) + sign, n % size
    return result + ("〇一二三四五六七八九"[n] if n else "")


def ordinal_word(n: int) -> str:
    """21 -> 'twenty-first'. 1 to 99."""
    if n < 20:
        return _ORDINAL[n]
    return f"{_TENS[n // 10][:-1]}ieth" if n % 10 == 0 else f"{_TENS[n // 10]}-{_ORDINAL[n % 10]}"


def ordinal_digits(n: int) -> str:
    return f"{n}{'th' if 10 <= n % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


_ORDINAL_VALUE = {ordinal_word(n): n for n in range(1, 100)} | {
    ordinal_word(n).replace("-", " "): n for n in range(21, 100)
}


def _plain(n: float) -> str:
    """Canonical digits of a number: '850', '1.5'."""
    return str(int(n)) if float(n).is_integer() else f"{n:.4f}".rstrip("0")


def _grouped(n: float) -> str:
    return f"{int(n):,}" if float(n).is_integer() else f"{n:,.2f}"


def parse_number(text: str) -> float | None:
    """The number that `text` (digits, English words, kanji, mixtures such as 1万2千 and 8k) spells; None if none."""
    text = text.strip().replace(",", "")
    for suffix, factor in (("k", 1000), (" thousand", 1000), (" hundred", 100), (" million", 10**6)):
        if text.endswith(suffix) and re.fullmatch(r"[0-9.]+", text[: -len(suffix)]):
            return float(text[: -len(suffix)]) * factor
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    if text and text[0] in _K or re.fullmatch(rf"[0-9.{_K}]+", text):
        return _parse_japanese(text)
    return _parse_english(text)


def _parse_japanese(text: str) -> float | None:
    total = section = 0.0
    current: str = ""

    def value(digits: str) -> float:
        return float(digits)

    for char in text:
        if char in "0123456789.":
            current += char
        elif char in _KANJI:
            current += str(_KANJI[char])
        elif char in "十百千":
            section += (value(current) if current else 1) * {"十": 10, "百": 100, "千": 1000}[char]
            current = ""
        elif char in "万億":
            total += (section + (value(current) if current else 0) or 1) * {"万": 10**4, "億": 10**8}[char]
            section, current = 0.0, ""
        else:
            return None
    try:
        return total + section + (value(current) if current else 0)
    except ValueError:
        return None


def _parse_english(text: str) -> float | None:
    half = 0.0
    for ending in (" and a half", "-and-a-half"):
        if text.endswith(ending):
            text, half = text[: -len(ending)], 0.5
    words = [w for w in re.split(r"[- ]", text) if w and w != "and"]
    total, section, last = 0, 0, 0  # last: 0 nothing, 1 ones, 2 teens/tens, 3 hundred or larger
    for word in words:
        if word in ("a", "an"):
            if section or total:
                return None
            section, last = 1, 1
        elif word in _WORD:
            n = _WORD[word]
            size = 2 if n >= 10 else 1
            if (last == 1) or (last == 2 and (size == 2 or section % 100 < 20)):
                return None  # "six thirty" and "ten four" are no numbers
            section, last = section + n, size
        elif word == "hundred" and 0 < section < 100:
            section, last = section * 100, 3
        elif word in ("thousand", "million") and section:
            total, section, last = total + section * (1000 if word == "thousand" else 10**6), 0, 3
        else:
            return None
    return total + section + half if words else None


_D = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,3}|[0-9]{1,12})(?:\.[0-9]{1,4})?(?![0-9])"
_ANYWORD = "(?:" + "|".join(sorted([*_WORD, "hundred", "thousand", "million"], key=len, reverse=True)) + ")(?![a-z])"
_W = rf"(?:an? (?=hundred|thousand|million))?{_ANYWORD}(?:(?:-| and | ){_ANYWORD}){{0,7}}"
_J = rf"(?:{_D}(?:[百千万億](?:{_D})?){{1,3}}|[{_K}]{{1,12}})"
_N = rf"(?:{_J}|{_D}(?:k(?![a-z])| thousand| hundred| million)?|{_W})"
_L = rf"(?<![a-z0-9{_K}])(?<![0-9][.,:/])"  # nothing that would make it a part of a longer number or word
_R = r"(?![a-z0-9])"

# --- tables -----------------------------------------------------------------------------------------------------

MONTHS = "january february march april may june july august september october november december".split()
_MONTH = {m: i for i, m in enumerate(MONTHS, 1)} | {m[:3]: i for i, m in enumerate(MONTHS, 1)} | {"sept": 9}
_MONTH_RE = "(?:" + "|".join(sorted(_MONTH, key=len, reverse=True)) + r")(?![a-z])\.?"
WEEKDAYS = {
    "mon": ("monday", "月"),
    "tue": ("tuesday", "火"),
    "wed": ("wednesday", "水"),
    "thu": ("thursday", "木"),
    "fri": ("friday", "金"),
    "sat": ("saturday", "土"),
    "sun": ("sunday", "日"),
}
_JAPANESE_DAY = {ja: key for key, (_, ja) in WEEKDAYS.items()}

# code: (signs before the number, English words, Japanese words)
CURRENCIES = {
    "USD": (["$", "us$"], ["dollars", "dollar", "us dollars", "bucks", "usd"], ["ドル", "米ドル"]),
    "JPY": (["¥"], ["yen", "jpy"], ["円"]),
    "EUR": (["€"], ["euros", "euro", "eur"], ["ユーロ"]),
    "GBP": (["£"], ["pounds", "pound", "quid", "gbp", "pounds sterling"], ["ポンド"]),
    "CHF": ([], ["swiss francs", "francs", "chf"], ["スイスフラン", "フラン"]),
    "CAD": (["ca$", "c$"], ["canadian dollars", "cad"], ["カナダドル"]),
    "AUD": (["a$", "au$"], ["australian dollars", "aud"], ["豪ドル", "オーストラリアドル"]),
    "KRW": (["₩"], ["won", "krw"], ["ウォン"]),
    "CNY": ([], ["yuan", "rmb", "cny"], ["元", "人民元"]),
    "INR": (["₹"], ["rupees", "inr"], ["ルピー"]),
    "SEK": ([], ["kronor", "swedish kronor", "sek"], ["クローナ"]),
}
# canonical unit: (English words, Japanese words)
UNITS = {
    "km": (["km", "kilometers", "kilometres", "kilometer", "kilometre", "kms"], ["キロ", "キロメートル"]),
    "m": (["m", "meters", "metres", "meter", "metre"], ["メートル"]),
    "cm": (["cm", "centimeters", "centimetres", "centimeter", "centimetre"], ["センチ", "センチメートル"]),
    "mm": (["mm", "millimeters", "millimetres"], ["ミリ", "ミリメートル"]),
    "mile": (["miles", "mile", "mi"], ["マイル"]),
    "inch": (["inches", "inch", "in.", '"'], ["インチ"]),
    "foot": (["feet", "foot", "ft"], ["フィート"]),
    "kg": (["kg", "kilograms", "kilogrammes", "kilos", "kilogram", "kilo", "kgs"], ["キロ", "キログラム"]),
    "g": (["g", "grams", "grammes", "gram"], ["グラム"]),
    "mg": (["mg", "milligrams", "milligram"], ["ミリグラム", "ミリ"]),
    "lb": (["lb", "lbs", "pounds", "pound"], ["ポンド"]),
    "l": (["l", "liters", "litres", "liter", "litre"], ["リットル"]),
    "ml": (["ml", "milliliters", "millilitres"], ["ミリリットル"]),
    "cup": (["cups", "cup"], ["杯", "カップ"]),
    "page": (["pages", "page"], ["ページ", "頁"]),
    "step": (["steps", "step"], ["歩"]),
    "kcal": (["kcal", "calories"], ["キロカロリー", "カロリー"]),
    "celsius": (["°c", "degrees celsius", "degrees", "℃"], ["度", "℃"]),
    "m2": (["m2", "sqm", "square meters", "square metres"], ["平米", "平方メートル"]),
    "tatami": (["tatami", "tatami mats", "jo"], ["畳", "帖"]),
    "gb": (["gb", "gigabytes", "gigs"], ["ギガ", "ギガバイト"]),
    "tb": (["tb", "terabytes"], ["テラ", "テラバイト"]),
    "floor": (["floor", "floors"], ["階"]),
    "word": (["words", "word"], ["語", "単語"]),
}
_UNIT_OF = {alias: unit for unit, (en, ja) in reversed(UNITS.items()) for alias in [*en, *ja, unit]}
_DURATIONS = {
    "minute": ("minute", ["minutes", "minute", "mins", "min"], ["分", "分間"], 1),
    "hour": ("minute", ["hours", "hour", "hrs", "hr", "h"], ["時間"], 60),
    "second": ("second", ["seconds", "second", "secs", "sec"], ["秒", "秒間"], 1),
    "day": ("day", ["days", "day"], ["日間", "日"], 1),
    "week": ("day", ["weeks", "week", "wks", "wk"], ["週間", "週"], 7),
    "month": (
        "month",
        ["months", "month", "mos"],
        ["か月", "ヶ月", "カ月", "ヵ月", "ケ月", "箇月", "か月間", "ヶ月間", "カ月間"],
        1,
    ),
    "year": ("month", ["years", "year", "yrs", "yr"], ["年", "年間", "か年"], 12),
}
_COUNTERS = "つ 個 人 名 匹 本 冊 台 枚 杯 頭 羽 軒 社 件 回 度 着 足 品 種類 部屋 か所 箇所 ヶ所 カ所 ヵ国 か国 カ国 ヶ国 校 店 曲 話 巻 号 番 階 泊 組".split()
_NATIVE = "_ 一つ 二つ 三つ 四つ 五つ 六つ 七つ 八つ 九つ".split()
_READ = {
    "ひとつ": 1,
    "ふたつ": 2,
    "みっつ": 3,
    "よっつ": 4,
    "いつつ": 5,
    "むっつ": 6,
    "ななつ": 7,
    "やっつ": 8,
    "ここのつ": 9,
    "ひとり": 1,
    "ふたり": 2,
    "はたち": 20,
    "二十歳": 20,
}
_PER = {
    "day": (["day"], ["日", "一日", "1日"], "daily", "毎日"),
    "week": (["week"], ["週", "一週間", "1週間", "毎週"], "weekly", "毎週"),
    "month": (["month"], ["月", "ひと月", "一か月", "1か月", "1ヶ月"], "monthly", "毎月"),
    "year": (["year"], ["年", "一年", "1年"], "yearly", "毎年"),
}


# --- forms ------------------------------------------------------------------------------------------------------


def forms(kind: str, value: Any) -> list[str]:
    """Usual spellings of a typed value in English and Japanese, the plainest first, without doubles, at most `LIMIT`.
    Raises ValueError for an unknown kind."""
    maker = _FORMS.get(kind)
    if maker is None:
        raise ValueError(f"unknown kind of value {kind!r}; known: {', '.join(sorted(_FORMS))}")
    seen: dict[str, str] = {}
    for form in maker(value):
        seen.setdefault(form.casefold(), form)
    return list(seen.values())[:LIMIT]


def _one(value: Any) -> float:
    return value[0] if isinstance(value, (list, tuple)) else float(value) if isinstance(value, str) else value


def _words(n: float) -> list[str]:
    """Digits and words of a number: '850', 'eight hundred and fifty'."""
    result = [_plain(n)]
    if n >= 1000:
        result.insert(0, _grouped(n))
    if float(n).is_integer() and n < 10**9:
        result.append(english(int(n)))
        if n >= 100 and " and " in result[-1]:
            result.append(result[-1].replace(" and ", " "))
        if n >= 1000 and n % 500 == 0:
            result.append(f"{_plain(n / 1000)}k")
    return result


def _japanese(n: float) -> list[str]:
    result = [_plain(n)]
    if n >= 1000:
        result.insert(0, _grouped(n))
    if float(n).is_integer() and n < 10**12:
        n = int(n)
        result.append(kanji(n))
        if n >= 10**4:
            high, low = divmod(n, 10**4)
            result.append(f"{_plain(n / 10**4)}万" if low % 1000 == 0 and low else f"{high}万{low or ''}")
            if low and low % 1000 == 0:
                result.append(f"{high}万{low // 1000}千")
        elif n >= 1000 and n % 1000 == 0:
            result.append(f"{n // 1000}千")
    return result


def _time_forms(value: str):
    hour, minute = (int(x) for x in value.split(":"))
    twelve, half = (hour % 12 or 12), "am" if hour < 12 else "pm"
    part = (
        "in the morning"
        if hour < 12
        else "in the afternoon"
        if hour < 17
        else "in the evening"
        if hour < 21
        else "at night"
    )
    dotted, word = f"{half[0]}.m.", english(twelve)
    parts_ja = (
        ["午前"] + (["朝", "朝の"] if 4 <= hour < 11 else [])
        if hour < 12
        else ["午後"] + (["夕方", "夕方の"] if 15 <= hour < 19 else ["夜", "夜の"] if hour >= 18 else ["昼の"])
    )
    if hour == 18:
        parts_ja += ["夜", "夜の"]
    noon = (
        ["noon", "midday", "正午", "12 noon"]
        if value == "12:00"
        else ["midnight", "深夜0時", "真夜中"]
        if value == "00:00"
        else []
    )
    yield f"{hour:02d}:{minute:02d}"
    yield from noon
    if minute == 0:
        for h in (str(twelve), word):
            yield from (
                f"{h} {half}",
                f"{h}{half}" if h.isdigit() else f"{h} {dotted}",
                f"{h} {part}",
                f"{h} o'clock {part}",
                f"{h} o'clock",
            )
        yield from (
            f"{twelve} {dotted}",
            f"{twelve}:00 {half}",
            f"{twelve}:00{half}",
            f"{twelve}:00 {dotted}",
            f"{twelve}:00",
            f"at {twelve}",
            f"at {word}",
        )
    else:
        yield from (
            f"{twelve}:{minute:02d} {half}",
            f"{twelve}:{minute:02d}{half}",
            f"{twelve}:{minute:02d} {dotted}",
            f"{twelve}.{minute:02d} {half}",
            f"{twelve}.{minute:02d}{half}",
            f"{twelve}:{minute:02d} {part}",
            f"{twelve}:{minute:02d}",
            f"{word} {'oh ' if minute < 10 else ''}{english(minute)}",
        )
        yield f"{word} {'oh ' if minute < 10 else ''}{english(minute)} {part}"
        following = english(twelve % 12 + 1)
        spoken = {
            30: (f"half past {word}", f"half past {twelve}"),
            15: (f"quarter past {word}", f"quarter past {twelve}"),
            45: (f"quarter to {following}", f"quarter to {twelve % 12 + 1}"),
        }.get(minute, ())
        if not spoken and minute % 5 == 0:
            spoken = (f"{english(minute)} past {word}",) if minute < 30 else (f"{english(60 - minute)} to {following}",)
        yield from spoken
        yield from (f"{s} {part}" for s in spoken)
    tails = [""] if minute == 0 else [f"{minute}分"] + (["半"] if minute == 30 else [])
    for tail in tails:
        yield f"{hour}時{tail}"
        for p in parts_ja:
            yield f"{p}{hour % 12 if p.startswith('午') and hour % 12 == 0 else twelve}時{tail}"
        yield f"{twelve}時{tail}"
    tail = "" if minute == 0 else "半" if minute == 30 else f"{kanji(minute)}分"
    yield f"{parts_ja[0]}{kanji(twelve)}時{tail}"
    yield f"{kanji(twelve)}時{tail}"
    yield f"{parts_ja[0]}{twelve}:{minute:02d}"
    yield f"{parts_ja[-1]}{twelve}:{minute:02d}"


def _date_forms(value: str):
    *year, month, day = (int(x) for x in value.split("-"))
    name, short, nth, word = (
        MONTHS[month - 1].title(),
        MONTHS[month - 1][:3].title(),
        ordinal_digits(day),
        ordinal_word(day),
    )
    if year:
        y = year[0]
        yield from (
            f"{y}-{month:02d}-{day:02d}",
            f"{name} {day}, {y}",
            f"{day} {name} {y}",
            f"{name} {nth}, {y}",
            f"{nth} {name} {y}",
            f"{nth} of {name} {y}",
            f"{short} {day}, {y}",
            f"{day} {short} {y}",
            f"{month}/{day}/{y}",
            f"{month:02d}/{day:02d}/{y}",
            f"{day}/{month}/{y}",
            f"{day:02d}/{month:02d}/{y}",
            f"{day:02d}.{month:02d}.{y}",
            f"{y}/{month:02d}/{day:02d}",
            f"{y}/{month}/{day}",
            f"{y}.{month:02d}.{day:02d}",
            f"{y}年{month}月{day}日",
            f"{y}年{month:02d}月{day:02d}日",
        )
        if y >= 2019:
            yield f"令和{'元' if y == 2019 else y - 2018}年{month}月{day}日"
        elif y >= 1989:
            yield f"平成{'元' if y == 1989 else y - 1988}年{month}月{day}日"
        elif y >= 1926:
            yield f"昭和{'元' if y == 1926 else y - 1925}年{month}月{day}日"
    yield from (
        f"{name} {day}",
        f"{day} {name}",
        f"{name} {nth}",
        f"{nth} {name}",
        f"the {nth} of {name}",
        f"{nth} of {name}",
        f"{day} of {name}",
        f"{short} {day}",
        f"{day} {short}",
        f"{short} {nth}",
        f"{nth} {short}",
        f"{short}. {day}",
        f"{name} the {nth}",
        f"{name} {word}",
        f"{name} the {word}",
        f"the {word} of {name}",
        f"{word} of {name}",
        f"{word} {name}",
        f"{month}/{day}",
        f"{day}/{month}",
        f"{month:02d}/{day:02d}",
        f"{day:02d}/{month:02d}",
        f"{month:02d}-{day:02d}",
        f"{day}.{month}.",
        f"{month}月{day}日",
        f"{kanji(month)}月{kanji(day)}日",
        f"{month:02d}月{day:02d}日",
    )


def _month_forms(value: Any):
    month = int(value)
    name = MONTHS[month - 1].title()
    yield from (
        (
            [name]
            if month != 5
            else [
                "in May",
                "since May",
                "every May",
                "of May",
                "next May",
                "last May",
                "until May",
                "by May",
                "from May",
            ]
        )
        + ([name[:3]] if month not in (3, 5) else [])
        + (["Sept"] if month == 9 else [])
    )
    yield from (f"{month}月", f"{kanji(month)}月")


def _weekday_forms(value: str):
    name, ja = WEEKDAYS[value[:3].lower()]
    name = name.title()
    yield from (name, f"{name}s", f"{ja}曜日", f"{ja}曜")
    yield from {
        "Tuesday": ["Tue", "Tues"],
        "Thursday": ["Thu", "Thur", "Thurs"],
        "Wednesday": ["Wed", "Weds"],
        "Friday": ["Fri"],
    }.get(name, [f"every {name[:3]}", f"on {name[:3]}", f"{name[:3]}."])
    yield f"({ja})"


def _money_forms(value):
    n, code = value[0], value[1].upper()
    signs, words, words_ja = CURRENCIES.get(code, ([], [code.lower()], [code.lower()]))
    digits = [w for w in _words(n) if w[0].isdigit()]
    spelled = [w for w in _words(n) if not w[0].isdigit()]
    for d in digits:
        yield from (f"{sign.upper()}{d}" for sign in signs)
        yield from (f"{d} {words[0]}", f"{code} {d}", f"{d} {code}")
    yield from (f"{s} {words[0]}" for s in spelled)
    if n == 1:
        yield f"one {words[1] if len(words) > 1 else words[0]}"
    for j in _japanese(n):
        yield from (f"{j}{w}" for w in words_ja[:2])
    d = digits[0]
    yield from (f"{d} {w}" for w in words[1:])
    if float(n).is_integer() and signs and code not in ("JPY", "KRW"):
        yield f"{signs[0]}{d}.00"
    yield from (f"{d}{sign}" for sign in signs[:1] if sign in "€£")
    if n >= 1000 and n % 1000 == 0:
        yield from (f"{_plain(n / 1000)} thousand {words[0]}", f"{signs[0] if signs else ''}{_plain(n / 1000)}k")
    if n >= 100:
        yield from digits


def _count_forms(value):
    n = _one(value)
    yield from _words(n)
    if not float(n).is_integer():
        return
    n = int(n)
    if n < 10:
        yield from (f"{n}つ", _NATIVE[n] if n else "ゼロ")
    for counter in "人 匹 個 本 冊 台 枚 杯 回 頭 羽 軒 社 か所 か国 名".split():
        yield f"{n}{counter}"
        if n < 100 and counter in "人匹個本冊台枚":
            yield f"{kanji(n)}{counter}"
    yield from {
        1: ["ひとつ", "ひとり", "a single"],
        2: ["ふたつ", "ふたり"],
        3: ["みっつ"],
        4: ["よっつ"],
        5: ["いつつ"],
    }.get(n, [])


def _quantity_forms(value):
    n, unit = value[0], str(value[1])
    unit = _UNIT_OF.get(unit.lower(), unit)
    words, words_ja = UNITS.get(unit, ([unit, f"{unit}s"], [unit]))
    for d in _words(n):
        for w in words:
            if len(w) <= 2 and not d[0].isdigit():
                continue
            yield f"{d} {w}"
            if d[0].isdigit() and not d.endswith("k") and (len(w) < 4 or w == words[0]):
                yield f"{d}{w}"
    d = _plain(n)
    yield from (f"{d}-{w}" for w in words[1:] if not w.endswith("s") and len(w) > 2)
    for j in _japanese(n):
        yield from (f"{j}{w}" for w in words_ja)


def _frequency_forms(value):
    n, per = int(value["n"]), str(value["per"])
    several = re.fullmatch(r"(\d+) (\w+?)s?", per)
    times = {1: ["once"], 2: ["twice"], 3: ["thrice"]}.get(n, []) + (
        [f"{english(n)} times", f"{n} times", f"{n}x", f"{n} x"] if n > 1 else ["one time", "1x"]
    )
    if several and int(several[1]) > 1:
        k, unit = int(several[1]), several[2]
        ja = {"day": "日", "week": "週間", "month": "か月", "year": "年"}[unit]
        if n == 1:
            yield from (f"every {english(k)} {unit}s", f"every {k} {unit}s", f"{k}{ja}ごと", f"{k}{ja}毎")
            if k == 2:
                yield from (
                    f"every other {unit}",
                    f"every second {unit}",
                    *(
                        {
                            "week": ["fortnightly", "every fortnight", "隔週", "隔週で"],
                            "day": ["一日おき", "1日おき"],
                            "month": ["隔月"],
                        }.get(unit, [])
                    ),
                )
        yield from (f"{t} every {k} {unit}s" for t in times[:2])
        yield from (
            f"{k}{ja}に{n}回",
            f"{k}{ja}に{kanji(n)}回",
            f"{k}{ja}に{n}度",
            f"{kanji(k)}{ja}に{kanji(n)}回",
            f"{kanji(k)}{ja}に{kanji(n)}度",
        )
        return
    unit = re.fullmatch(r"(?:1 )?(\w+?)s?", per)[1]
    (en,), ja, adverb, every = _PER[unit]
    if n == 1:
        yield from (
            f"once a {en}",
            f"every {en}",
            adverb,
            every,
            f"{en}ly" if en != "day" else "each day",
            f"each {en}",
        )
    for t in times:
        yield from (f"{t} a {en}", f"{t} per {en}")
    yield from (f"{t} {adverb}" for t in times[:2])
    yield from (f"{t} every {en}" for t in times[:2])
    yield from (f"{t} each {en}" for t in times[:1])
    yield f"{n}x/{en}"
    for head in ja[:2] if unit != "day" else ["1日", "一日"]:
        for d in (str(n), kanji(n)):
            yield from (f"{head}{d}回", f"{head}に{d}回", f"{head}{d}度", f"{head}に{d}度")
    if unit == "week":
        yield f"{ja[0]}{n}"


def _duration_forms(value):
    n, unit = value[0], str(value[1]).lower().rstrip("s")
    seen: list[tuple[float, str]] = [(n, unit)]
    if unit == "minute" and n >= 60 and n % 30 == 0:
        seen.append((n / 60, "hour"))
    if unit == "hour" and (n < 4):
        seen.append((n * 60, "minute"))
    if unit == "day" and n % 7 == 0:
        seen.append((n // 7, "week"))
    if unit == "week" and n <= 4:
        seen.append((n * 7, "day"))
    if unit == "month" and n % 12 == 0:
        seen.append((n // 12, "year"))
    if unit == "year" and n <= 2:
        seen.append((n * 12, "month"))
    for m, u in seen:
        _, words, words_ja, _ = _DURATIONS[u]
        whole = float(m).is_integer()
        for d in _words(m):
            if d.endswith("k"):
                continue
            yield from (f"{d} {w}" for w in (words[:1] if m != 1 else words[1:2]))
            yield f"{d}-{words[1]}"
        d = _plain(m)
        yield from (f"{d} {w}" for w in words[2:4])
        yield from (f"{d}{w}" for w in words[2:] if u in ("minute", "hour"))
        if whole:
            yield from (
                f"{j}{w}" for j in (d, kanji(int(m))) for w in words_ja if not (u == "day" and w == "日" and m > 31)
            )
        if m == 1:
            yield f"{'an' if u == 'hour' else 'a'} {u}"
        if not whole and (m * 2) == int(m * 2):
            i = int(m)
            yield from ([f"{english(i)} and a half {words[0]}", f"{i} and a half {words[0]}"] if i else [])
            if i == 1:
                yield f"{'an' if u == 'hour' else 'a'} {u} and a half"
            if u in ("hour", "year", "month"):
                yield from (f"{i}{words_ja[0]}半", f"{kanji(i)}{words_ja[0]}半") if i else ()
    total = n * _DURATIONS[unit][3]
    base = _DURATIONS[unit][0]
    yield from {
        ("minute", 30): ["half an hour", "half hour", "half-hour", "半時間"],
        ("minute", 45): ["three quarters of an hour", "three-quarters of an hour"],
        ("minute", 15): ["quarter of an hour", "a quarter hour"],
        ("day", 14): ["a fortnight"],
        ("month", 6): ["half a year", "half year", "半年"],
    }.get((base, total), [])


def _ordinal_forms(value):
    n = int(_one(value))
    yield from (ordinal_digits(n), ordinal_word(n), f"{n}番目", f"{kanji(n)}番目", f"第{n}", f"第{kanji(n)}", f"{n}番")
    if n < 10:
        yield from (f"{n}つ目", f"{_NATIVE[n]}目")
    yield from (f"{n}度目", f"{n}回目", f"{n}人目", f"no. {n}", f"number {n}")


def _age_forms(value):
    n = int(_one(value))
    w = english(n)
    yield from (
        f"{n} years old",
        f"{n}-year-old",
        f"{n} year old",
        f"{w} years old",
        f"{w}-year-old",
        f"aged {n}",
        f"age {n}",
        f"age of {n}",
        f"{n} yo",
        f"{n} y/o",
        f"{n} years of age",
        f"turned {n}",
        f"turning {n}",
        f"{n}歳",
        f"{n}才",
        f"{kanji(n)}歳",
        f"{kanji(n)}才",
        str(n),
        w,
    )
    if n == 20:
        yield from ("はたち", "二十歳")


def _percent_forms(value):
    n = _one(value)
    yield from (
        f"{_plain(n)}%",
        f"{_plain(n)} %",
        f"{_plain(n)} percent",
        f"{_plain(n)} per cent",
        f"{_plain(n)}パーセント",
    )
    if float(n).is_integer():
        yield from (f"{english(int(n))} percent", f"{english(int(n))} per cent", f"{kanji(int(n))}パーセント")
        if n % 10 == 0 and 0 < n < 100:
            yield from (f"{int(n) // 10}割", f"{kanji(int(n) // 10)}割")
        elif n % 5 == 0 and 0 < n < 100:
            yield from (f"{int(n) // 10}割5分", f"{kanji(int(n) // 10)}割五分") if n > 10 else ()
    if n == 50:
        yield "半分"


def _code_forms(value):
    value = str(value)
    pieces = re.split(r"[-\s./]+", value)
    yield value
    for joint in ("", "-", " ", "."):
        yield joint.join(pieces)
    split = re.fullmatch(r"([A-Za-z]+)(\d+)|(\d+)([A-Za-z]+)", "".join(pieces))
    if split:
        a, b = split[1] or split[3], split[2] or split[4]
        yield from (f"{a}-{b}", f"{a} {b}")
    if value.startswith("+81"):
        yield "0" + re.sub(r"^\+81[-\s]?", "", value)


def _year_forms(value):
    y = int(_one(value))
    yield from (str(y), f"{y}年")
    if y > 2018:
        yield f"令和{'元' if y == 2019 else y - 2018}年"
    elif y > 1988:
        yield f"平成{'元' if y == 1989 else y - 1988}年"


_FORMS = {
    "time": _time_forms,
    "date": _date_forms,
    "month": _month_forms,
    "weekday": _weekday_forms,
    "money": _money_forms,
    "count": _count_forms,
    "quantity": _quantity_forms,
    "frequency": _frequency_forms,
    "duration": _duration_forms,
    "ordinal": _ordinal_forms,
    "age": _age_forms,
    "percent": _percent_forms,
    "phone": _code_forms,
    "code": _code_forms,
    "year": _year_forms,
    "text": lambda value: [value] if isinstance(value, str) else list(value),
}
KINDS = tuple(_FORMS)


# --- reading ----------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """One value read from a text. `start` and `end` are positions in ``text.normalise(text)``."""

    kind: str
    value: str  # canonical: "18:30", "03-14", "850 USD", "3/week", "45 minute", ...
    start: int
    end: int
    also: tuple[str, ...] = ()  # other readings of the same characters

    @property
    def readings(self) -> tuple[str, ...]:
        return (self.value, *self.also)


_AM = r"(?:a\.m\.|am(?![a-z])|a\.m(?![a-z]))"
_PM = r"(?:p\.m\.|pm(?![a-z])|p\.m(?![a-z]))"
_PART = rf"(?P<part>{_AM}|{_PM}|(?:in the |each |every )?(?:early |late )?(?:morning|afternoon|evening)s?(?![a-z])|at night(?![a-z])|tonight(?![a-z]))"
_BEFORE = r"(?:(?P<before>morning|afternoon|evening|night|tonight)s?,?(?: (?:at|around|from|about))? )?"
_HOURWORD = "(?:" + "|".join(sorted(_ONES[1:13], key=len, reverse=True)) + ")"
_HOUR = rf"(?:1[0-2]|0?[1-9]|{_HOURWORD}(?![a-z]))"
_MINUTEWORD = r"(?:oh[- ](?:one|two|three|four|five|six|seven|eight|nine)|(?:twenty|thirty|forty|fifty)(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen)(?![a-z])"
_JPART = r"(?:(?P<jpart>午前|午後|早朝|朝方|朝|夕方|昼過ぎ|昼|夜中|深夜|今夜|今晩|夜|晩|am|pm)の?)?"
_TIMES = [
    re.compile(p)
    for p in (
        rf"{_L}{_BEFORE}(?P<h>[01]?[0-9]|2[0-4])[:](?P<m>[0-5][0-9])(?::[0-5][0-9])?(?![0-9])(?: ?{_PART})?",
        rf"{_L}(?P<h>[01]?[0-9])\.(?P<m>[0-5][0-9]) ?(?P<part>{_AM}|{_PM})",
        rf"{_L}(?P<h>[01][0-9]|2[0-3])(?P<m>[0-5][0-9]) ?(?P<mil>hrs|hours|h)(?![a-z])",
        rf"{_L}(?P<h>[01]?[0-9]|2[0-3])h(?P<m>[0-5][0-9])(?![0-9a-z])",
        rf"{_L}{_BEFORE}(?P<rel>half|(?:a )?quarter|{_N}(?: minutes?)?) (?P<dir>past|to|till|before|after|of) (?P<h>{_HOUR})(?![0-9:.]?[0-9])(?:,? ?{_PART})?",
        rf"{_L}half (?P<h>{_HOURWORD})(?![a-z])(?P<halfpast>)(?: ?{_PART})?",
        rf"{_L}{_BEFORE}(?P<h>{_HOURWORD})[- ](?P<mw>{_MINUTEWORD})(?! (?:dollars|yen|euros|pounds|minutes|hours|days|years|percent))(?:,? ?{_PART})?",
        rf"{_L}(?P<h>{_HOUR}) ?o'?clock(?:,? ?{_PART})?",
        rf"{_L}(?P<h>{_HOUR})(?: ?-? ?ish)?,? ?(?P<part>{_AM}|{_PM})",
        rf"{_L}(?P<h>{_HOUR})(?: ?-? ?ish)? (?P<part>in the (?:early |late )?(?:morning|afternoon|evening)|at night)(?![a-z])",
        rf"{_L}(?P<before>morning|afternoon|evening|night|tonight)s?,? (?:at|around|from|about) (?P<h>{_HOUR})(?![a-z0-9])(?![:.,/%][0-9])(?! ?(?:{_COUNTERS[0]}|people|km|minutes|hours|days))",
        r"(?P<noon>(?<![a-z])(?:12 )?(?:noon|midday)(?![a-z])|正午)|(?P<midnight>(?<![a-z])midnight(?![a-z])|真夜中)",
        rf"{_JPART}(?<![0-9{_K}:.])(?P<h>[01]?[0-9]|2[0-4]|[一二三四五六七八九]|十[一二]?|零|〇)時(?!間|代|期|計|々|に一)(?:(?P<half>半)|(?P<m>[0-5]?[0-9]|[{_K}]{{1,3}})分(?!の))?",
        r"(?P<jpart>午前|午後|夕方の?|朝の?|夜の?|昼の?|晩の?)(?P<h>[01]?[0-9]):(?P<m>[0-5][0-9])(?![0-9])",
    )
]
_BARE_HOUR = re.compile(
    rf"(?<![a-z])(?:at|by|from|until|till|to|around|about|before|after|@|instead of|not|than|was) ?(?P<h>{_HOUR})(?![a-z0-9%])(?![:.,/][0-9])(?! ?[{_K}]| ?(?:a\.m|p\.m))"
)


def _hour(text: str) -> int | None:
    n = parse_number(text)
    return int(n) if n is not None and 0 <= n <= 24 else None


def _shift(hour: int, part: str | None) -> tuple[int, bool]:
    """(hour of the day, is that certain) from a clock hour and the words beside it."""
    if hour == 0 and part and re.match(r"午後|pm", part):
        return 12, True  # 午後0時 is noon
    if hour >= 13 or hour == 0:
        return hour % 24, True
    if not part:
        return hour, False
    if re.search(r"a\.?m|morning|午前|朝", part):
        return hour % 12, True
    if part.startswith("昼"):
        return (hour % 12 + 12 if hour in (12, 1, 2, 3, 4, 5) else hour), True
    if re.search(r"夜|晩|night|深夜", part) and (hour == 12 or hour < 5):
        return hour % 12, True  # 夜1時 and "2 at night" are after midnight
    return hour % 12 + 12, True


def _find_times(text: str):
    for pattern in _TIMES:
        for match in pattern.finditer(text):
            g = match.groupdict()
            if g.get("noon") or g.get("midnight"):
                yield Found("time", "12:00" if g["noon"] else "00:00", *match.span())
                continue
            hour = _hour(g["h"])
            if hour is None:
                continue
            minute = 0
            if g.get("m"):
                minute = int(parse_number(g["m"]) or 0)
            elif g.get("mw"):
                minute = int(parse_number(re.sub(r"^oh[- ]", "", g["mw"])) or 0)
            elif g.get("half") or g.get("halfpast") is not None:
                minute = 30
            elif g.get("rel"):
                rel = g["rel"]
                minute = (
                    30
                    if rel == "half"
                    else 15
                    if rel.endswith("quarter")
                    else int(parse_number(re.sub(r" minutes?$", "", rel)) or 0)
                )
                if g["dir"] in ("to", "till", "before", "of"):
                    if rel == "half":
                        continue
                    if not 0 < minute < 60 or not re.search("quarter|minute", rel) and minute % 5:
                        continue  # "from 6 to 7" is a range and no time
                    if rel[0].isdigit() and "minute" not in rel and minute < 13 and g["h"][0].isdigit():
                        continue  # "from 5 to 6", "10 to 12": a range in most sentences
                    hour, minute = (hour - 1) % 12 or 12, 60 - minute
            if minute > 59:
                continue
            part = g.get("part") or g.get("jpart") or g.get("before")
            if g.get("mil") or re.match("0[0-9]", g["h"]) and not part:
                part = None
                certain_hour, certain = hour % 24, True
            else:
                certain_hour, certain = _shift(hour, part)
            value = f"{certain_hour:02d}:{minute:02d}"
            yield Found(
                "time", value, *match.span(), () if certain else (f"{(certain_hour + 12) % 24:02d}:{minute:02d}",)
            )


_ERA = {"令和": 2018, "平成": 1988, "昭和": 1925}
_YEAR = r"(?P<y>(?:18|19|20)[0-9]{2})"
_DAY = r"(?P<d>3[01]|[12][0-9]|0?[1-9])"
_DAYWORD = (
    "(?P<dw>"
    + "|".join(sorted((re.escape(ordinal_word(n)) for n in range(1, 32)), key=len, reverse=True))
    + "|"
    + "|".join(sorted((ordinal_word(n).replace("-", " ") for n in range(21, 32)), key=len, reverse=True))
    + ")"
)
_DATES = [
    re.compile(p)
    for p in (
        rf"(?<![0-9]){_YEAR}(?P<sep>[-/.])(?P<mo>1[0-2]|0?[1-9])(?P=sep){_DAY}(?![0-9])",
        rf"(?<![0-9/.-])(?P<a>[0-3]?[0-9])(?P<sep>[-/.])(?P<b>[0-3]?[0-9])(?P=sep){_YEAR}(?![0-9])",
        rf"(?<![a-z])(?P<mn>{_MONTH_RE}) (?:the )?(?:{_DAY}(?:st|nd|rd|th)?|{_DAYWORD})(?![a-z0-9:])(?:(?:,| of)? {_YEAR}(?![0-9]))?",
        rf"(?<![0-9a-z])(?:{_DAY}(?:st|nd|rd|th)?|{_DAYWORD})(?: of|-)? ?(?P<mn>{_MONTH_RE})(?:,? {_YEAR}(?![0-9]))?",
        rf"(?:{_YEAR}年|(?P<era>令和|平成|昭和)(?P<ey>元|[0-9]{{1,2}}|[{_K}]{{1,3}})年)?(?<![0-9{_K}])(?P<jm>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月(?P<jd>3[01]|[12][0-9]|0?[1-9]|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])日(?!間)",
        r"(?<![0-9a-z/.:-])(?P<a>[0-3]?[0-9])/(?P<b>[0-3]?[0-9])(?![0-9/%]|-[0-9])",
        r"(?<![0-9a-z/.:-])(?P<a>[01][0-9])-(?P<b>[0-3][0-9])(?![0-9:-]|[a-z])",
        r"(?<![0-9a-z/.:-])(?P<b>[0-3]?[0-9])\.(?P<a>[01]?[0-9])\.(?![0-9])",
    )
]


def _day_of(month: int, day: int, year: int | None) -> str | None:
    if not 1 <= month <= 12 or not 1 <= day <= (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]:
        return None
    return f"{f'{year}-' if year else ''}{month:02d}-{day:02d}"


def _find_dates(text: str):
    for pattern in _DATES:
        for match in pattern.finditer(text):
            g = match.groupdict()
            year = int(g["y"]) if g.get("y") else None
            if g.get("era"):
                year = _ERA[g["era"]] + (1 if g["ey"] == "元" else int(parse_number(g["ey"]) or 0))
            if g.get("a") is not None:
                a, b = int(g["a"]), int(g["b"])
                readings = [r for r in (_day_of(a, b, year), _day_of(b, a, year)) if r]
            elif g.get("jm"):
                readings = [_day_of(int(parse_number(g["jm"])), int(parse_number(g["jd"])), year)]
            elif g.get("mo"):
                readings = [_day_of(int(g["mo"]), int(g["d"]), year)]
            else:
                day = int(g["d"]) if g.get("d") else _ORDINAL_VALUE[g["dw"]]
                readings = [_day_of(_MONTH[g["mn"].rstrip(".")], day, year)]
            readings = [r for r in dict.fromkeys(readings) if r]
            if readings:
                yield Found("date", readings[0], *match.span(), tuple(readings[1:]))


_UNIT_RE = (
    "(?:"
    + "|".join(
        sorted(
            (re.escape(a) + (_R if a[-1].isascii() and a[-1].isalnum() else "") for a in _UNIT_OF),
            key=len,
            reverse=True,
        )
    )
    + ")"
)
_QUANTITY = re.compile(rf"{_L}(?P<n>{_N})[- ]?(?P<u>{_UNIT_RE})")
_MONEY_WORD = {w: code for code, (_, en, ja) in CURRENCIES.items() for w in [*en, *ja]}
_SIGN = {s: code for code, (signs, _, _) in CURRENCIES.items() for s in signs}
_MONEY = [
    re.compile(p)
    for p in (
        "(?P<s>"
        + "|".join(re.escape(s) for s in sorted(_SIGN, key=len, reverse=True))
        + rf") ?(?P<n>{_J}|{_D}(?:k(?![a-z])| thousand| million)?)",
        rf"(?<![a-z])(?P<s>{'|'.join(c.lower() for c in CURRENCIES)}) ?(?P<n>{_D}(?:k(?![a-z]))?)",
        rf"{_L}(?P<n>{_N})[- ]?(?P<w>"
        + "|".join(re.escape(w) + (_R if w.isascii() else "") for w in sorted(_MONEY_WORD, key=len, reverse=True))
        + ")",
        rf"{_L}(?P<n>{_D}(?:k(?![a-z]))?) ?(?P<s>[€£¥$])",
    )
]
_PERWORD = {
    "day": "day",
    "daily": "day",
    "week": "week",
    "weekly": "week",
    "month": "month",
    "monthly": "month",
    "year": "year",
    "yearly": "year",
    "annually": "year",
    "annum": "year",
    "日": "day",
    "週": "week",
    "週間": "week",
    "月": "month",
    "か月": "month",
    "ヶ月": "month",
    "カ月": "month",
    "ヵ月": "month",
    "年": "year",
}
_ALTWORD = "|".join(sorted((w for w in _PERWORD if w.isascii()), key=len, reverse=True))
_TIMES_N = rf"(?:(?P<once>once|twice|thrice)|(?P<n>{_N}) ?(?:times?|x|×))"
_FREQUENCIES = [
    re.compile(p)
    for p in (
        rf"{_L}{_TIMES_N},? ?(?:a|per|every|each|/|in a|in every)? ?(?:(?P<k>other|{_N}) )?(?P<per>(?:{_ALTWORD})s?)(?![a-z])",
        rf"(?P<jper>(?<![今来先毎隔])週|(?<![{_K}0-9])(?:毎|(?:1|一|ひと)(?=[日週月年か]))?(?:日|週間|週|月|か月|ヶ月|カ月|年)|(?P<k>{_N})(?:日|週間|か月|ヶ月|カ月|ヵ月|年))(?:間)?(?:あたり)?(?:に|/)?(?P<n>{_J}|{_D})(?P<c>回|度|ペース)",
        rf"(?P<jper>週)(?P<n>[1-7一二三四五六七])(?![0-9{_K}]|日|週|時|か月|ヶ月)",
        rf"{_L}(?P<n>{_N})(?P<c>回|度)/(?P<jper>日|週|月|年)",
        r"(?<![a-z])(?P<once>)every (?P<k>other|second|two|three|four|six|[2-9]) (?P<per>day|week|month|year)s?(?![a-z])",
        r"(?<![a-z])(?:every |once a )?(?P<fortnight>fortnight(?:ly)?)(?![a-z])(?<!a fortnight)|(?P<fortnight2>once a fortnight|隔週)|(?P<bimonth>隔月)|(?P<biday>[1一]日おき)",
        rf"{_L}(?P<k>{_N})(?P<per>日|週間|か月|ヶ月|カ月|年)(?:ごと|毎)(?P<once>)",
        r"(?<![a-z])(?P<once>)(?:every|each) (?P<per>day|week|month|year)(?![a-z])",
        r"(?<![a-z])(?P<once>)(?P<per>daily|weekly|monthly|yearly|annually)(?![a-z])",
        r"(?P<once>)毎(?P<per>日|週|月|年)(?![月火水木金土日](?:曜|[・0-9の、。]|$)|[0-9])",
    )
]
_BARE_TIMES = re.compile(
    rf"{_L}(?:(?P<once>once|twice|thrice)(?![a-z])|(?P<n>{_N}) times(?![a-z])|(?P<n2>{_J}|{_D})回(?!目))"
)


def _find_frequencies(text: str):
    for pattern in _FREQUENCIES:
        for match in pattern.finditer(text):
            g = match.groupdict()
            if g.get("fortnight") or g.get("fortnight2") or g.get("bimonth") or g.get("biday"):
                per = "2 month" if g.get("bimonth") else "2 day" if g.get("biday") else "2 week"
                yield Found("frequency", f"1/{per}", *match.span())
                continue
            n = {"once": 1, "twice": 2, "thrice": 3, "": 1}.get(g.get("once"), None)
            n = n if n is not None else parse_number(g["n"]) if g.get("n") else 1
            word = g.get("per") or g.get("jper") or ""
            per = _PERWORD.get(word) or _PERWORD.get(word.rstrip("s"))
            if per is None:
                per = next(
                    (p for key, p in (("週", "week"), ("日", "day"), ("年", "year"), ("月", "month")) if key in word),
                    None,
                )
            if n is None or per is None:
                continue
            k = {"other": 2, "second": 2}.get(g.get("k") or "", None) or (parse_number(g["k"]) if g.get("k") else 1)
            if k is None:
                continue
            yield Found("frequency", f"{_plain(n)}/{f'{_plain(k)} ' if k > 1 else ''}{per}", *match.span())
    for match in _BARE_TIMES.finditer(text):
        n = {"once": 1, "twice": 2, "thrice": 3}.get(match["once"]) or parse_number(match["n"] or match["n2"] or "")
        if n:
            yield Found("frequency", f"{_plain(n)}/?", *match.span())


_DURATION_WORD = {w: (base, factor) for base, en, ja, factor in _DURATIONS.values() for w in [*en, *ja]}
_DUR_EN = "|".join(sorted((w for w in _DURATION_WORD if w.isascii()), key=len, reverse=True))
_DUR_JA = "|".join(sorted((w for w in _DURATION_WORD if not w.isascii()), key=len, reverse=True))
_DURATIONS_RE = [
    re.compile(p)
    for p in (
        r"(?<![a-z])(?:(?P<tq>three[- ]quarters of an hour)|(?P<hh>(?:a )?half[- ](?:an? )?(?P<hu>hour|year|day|month))|(?P<qh>(?:a )?quarter (?:of an )?hour)|(?P<fn>a fortnight|fortnight)|(?P<hy>半年)|(?P<hj>半時間))(?![a-z])|(?P<hy2>半年)|(?P<hj2>半時間)",
        rf"{_L}(?P<an>an?|one) (?P<u>hour|day|week|month|year|minute)(?: and a half(?P<half>))?(?![a-z])(?! ?(?:old|ago))",
        rf"{_L}(?P<n>{_N})(?:[- ](?:and[- ]a[- ]half(?P<half>)|1/2(?P<half2>)))?[- ]?(?P<u>{_DUR_EN})(?![a-z])(?:[, ]+(?:and )?(?P<m>{_D}) ?min(?:ute)?s?(?![a-z]))?(?! old|-old| of age)",
        rf"{_L}(?P<n>{_J}|{_D})(?P<u>{_DUR_JA})(?!目)(?P<half>半)?(?:(?P<m>[0-9]{{1,2}}|[{_K}]{{1,3}})分)?",
    )
]
_AGE = [
    re.compile(p)
    for p in (
        rf"{_L}(?P<n>{_N})[- ](?:years?[- ]old|years? of age|yrs? old|yo(?![a-z])|y/o|y\.o\.)(?![a-z])",
        rf"{_L}(?P<n>{_N})(?:yo|y/o)(?![a-z])",
        rf"(?<![a-z])(?:aged?|age of|age:|turn(?:ed|s|ing)?) ?(?:of )?(?P<n>{_N})(?![a-z])(?! ?(?:years|months))",
        rf"{_L}(?P<n>{_J}|{_D})[歳才]",
        r"(?P<twenty>はたち)",
    )
]
_PERCENT = [
    re.compile(p)
    for p in (
        rf"{_L}(?P<n>{_N}) ?(?:%|percent|per cent|パーセント)",
        rf"{_L}(?P<w>[1-9一二三四五六七八九])割(?:(?P<b>[1-9一二三四五六七八九])分)?(?!引)|{_L}(?P<w2>[1-9一二三四五六七八九])割(?P<off>引)",
        r"(?P<half>半分)",
    )
]
_ORDINALS = [
    re.compile(p)
    for p in (
        rf"(?<![0-9a-z.,:/])(?P<n>[0-9]{{1,4}})(?:st|nd|rd|th)(?![a-z])",
        "(?<![a-z])(?P<w>" + "|".join(sorted(_ORDINAL_VALUE, key=len, reverse=True)) + ")(?![a-z])",
        rf"第(?P<n>{_J}|{_D})",
        rf"{_L}(?P<n>{_J}|{_D})(?:番目|番|つ目|度目|回目|人目)",
        rf"(?<![a-z])(?:no\.|number|#) ?(?P<n>{_D})",
        "(?P<native>" + "|".join(f"{w[0]}つ" for w in _NATIVE[1:]) + ")目",
    )
]
_WEEKDAY = [
    re.compile(p)
    for p in (
        r"(?<![a-z])(?P<en>(?:mon|tues|wednes|thurs|fri|satur|sun)day)s?(?:'s)?(?![a-z])",
        r"(?<![a-z])(?P<en>tues?|weds?|thu(?:rs?)?|fri)(?![a-z])",
        r"(?:(?<=every )|(?<=on )|(?<=[/,(]) ?|(?<=[-&] )|^)(?P<en>mon|sat|sun)(?![a-z])\.?|(?<![a-z])(?P<en2>mon|sat|sun)(?=\.|:| ?[/&]| [0-9])",
        r"(?P<ja>[月火水木金土日])曜日?",
        r"\((?P<ja>[月火水木金土日])\)",
        r"毎週(?P<ja>[月火水木金土日])(?![曜本])",
        r"(?P<ja>[月火水木金土日])(?=・[月火水木金土日](?:曜|・|の|に))",
    )
]
_NTH = (
    {
        "first": "1",
        "1st": "1",
        "second": "2",
        "2nd": "2",
        "third": "3",
        "3rd": "3",
        "fourth": "4",
        "4th": "4",
        "fifth": "5",
        "5th": "5",
        "last": "last",
        "final": "last",
    }
    | {c: str(n) for n, c in enumerate("一二三四五", 1)}
    | {str(n): str(n) for n in range(1, 6)}
)
_DAY_EN = r"(?P<en>mon|tues?|wed(?:nes)?s?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?(?![a-z])\.?"
_NTHDAYS = [
    re.compile(p)
    for p in (
        rf"(?<![a-z0-9])(?:every (?P<alt>other|second|2nd)|(?P<alt2>alternate|alternating)) {_DAY_EN}",
        rf"(?<![a-z])(?P<alt>every two weeks|fortnightly|biweekly|every other week),? on (?:a )?{_DAY_EN}",
        rf"(?<![a-z0-9])(?:(?:on )?(?:the |every )?)(?P<n>first|second|third|fourth|fifth|last|final|1st|2nd|3rd|4th|5th) {_DAY_EN}(?: (?:of|in) (?:the|each|every|a) month|(?: of)? month| (?:each|every|a) month| monthly)?",
        r"第?(?P<n>[1-5一二三四五])(?:週の?)?(?P<ja>[月火水木金土日])曜日?",
        r"第(?P<n>[1-5一二三四五])(?:週の?)?(?P<ja>[月火水木金土日])(?![曜本])",
        r"(?P<last>最終|最後の)(?:週の?)?(?P<ja>[月火水木金土日])曜?日?",
        r"(?P<alt>隔週の?|2週間に一度、?|二週間に一度、?)(?P<ja>[月火水木金土日])曜?日?",
    )
]
_MONTHS_RE = [
    re.compile(p)
    for p in (
        r"(?<![a-z])(?P<en>january|february|march|april|june|july|august|september|october|november|december)(?![a-z])",
        r"(?<![a-z])(?:in|since|of|every|last|next|until|by|from|to|mid|early|late|this)[- ](?P<en>may)(?![a-z])",
        r"(?<![a-z])(?P<en>may)(?= (?:19|20)[0-9]{2})",
        r"(?<![a-z])(?P<en>jan|feb|apr|jun|jul|aug|sept?|oct|nov|dec)(?![a-z])",
        rf"(?<![0-9{_K}毎])(?P<ja>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月(?![0-9{_K}曜])",
    )
]
_YEARS = [
    re.compile(p)
    for p in (
        r"(?<![0-9a-z.,:/$€£¥-])(?P<y>(?:19|20)[0-9]{2})年?(?![0-9a-z%/]|[.,:-][0-9]| ?(?:yen|dollars|円|ドル|歩|steps|km|kcal))",
        rf"(?P<era>令和|平成|昭和)(?P<ey>元|[0-9]{{1,2}}|[{_K}]{{1,3}})年",
    )
]
_PHONE = re.compile(
    r"(?<![0-9a-z])\+?[0-9]{2,4}(?:[-. ][0-9]{2,4}){2,4}(?![0-9])|(?<![0-9a-z.,])(?:0|\+)[0-9]{9,12}(?![0-9])"
)
_COUNT_JA = re.compile(
    rf"{_L}(?P<n>{_J}|{_D})(?P<c>{'|'.join(sorted(_COUNTERS, key=len, reverse=True))})|(?P<r>{'|'.join(_READ)})"
)
_COUNT = re.compile(
    rf"{_L}(?P<n>{_J}(?![{CURRENCIES['JPY'][2][0]}])|{_D}(?:k(?![a-z])| thousand| million)?(?![0-9]*[:/][0-9])|{_W})(?![a-z])|(?<![a-z])(?P<single>a single)(?![a-z])"
)
_ANYTHING = re.compile(
    rf"[0-9{_K}火水木金土日月割週毎隔半]|曜|令和|平成|昭和|正午|真夜中|はたち|ひと|ふた|みっつ|よっつ|いつつ|(?<![a-z])(?:{_ANYWORD}|once|twice|thrice|half|quarter|noon|midday|midnight|"
    rf"fortnight|daily|weekly|monthly|yearly|annually|every|each|an? (?:hour|day|week|month|year|single|minute)|{'|'.join(_ORDINAL_VALUE)}|{_MONTH_RE}|"
    r"mon|tue|wed|thu|fri|sat|sun)"
)
_CONNECT_BACK = re.compile(rf"{_L}(?P<n>{_N}) ?(?:to|-|~|→|->|から|and|or|up to|down to|,? now) ?(?:about |around )?$")
_CONNECT_ON = re.compile(
    rf"^,? ?\(?(?:instead of|rather than|not|up from|down from|from|was|previously|formerly) (?P<n>{_N})(?![a-z0-9%])(?![:.,/][0-9])"
)
_TIME_BACK = re.compile(rf"(?<![a-z0-9:.])(?P<h>{_HOUR}) ?(?:to|-|~|→|->|until|till|and|or|から) ?$")


def find(text: str) -> list[Found]:
    """Typed values in `text`, by position in its normalised form. One stretch of characters has one kind, except that
    a bare hour ("at 6", "from 6 to 6:30") is a count and a time at once. Linear in the length of the text."""
    text = normalise(text)
    if not _ANYTHING.search(text):
        return []
    result: list[Found] = []
    taken = bytearray(len(text))

    def keep(found: Found) -> bool:
        if found.start >= found.end or 1 in taken[found.start : found.end]:
            return False
        taken[found.start : found.end] = b"\1" * (found.end - found.start)
        result.append(found)
        return True

    for match in _PHONE.finditer(text):
        digits = re.sub(r"[^0-9]", "", match[0])
        if 7 <= len(digits) <= 15 and not _DATES[0].fullmatch(match[0]) and not _DATES[1].fullmatch(match[0]):
            keep(Found("phone", digits, *match.span()))
    for found in _find_dates(text):
        keep(found)
    for pattern in _AGE:
        for match in pattern.finditer(text):
            n = 20 if match.groupdict().get("twenty") else parse_number(match["n"])
            if n is not None and n < 130:
                keep(Found("age", _plain(n), *match.span()))
    for pattern in _NTHDAYS:
        for match in pattern.finditer(text):
            g = match.groupdict()
            which = "alt" if g.get("alt") or g.get("alt2") else "last" if g.get("last") else _NTH[g["n"]]
            keep(Found("nthday", f"{which} {g['en'][:3] if g.get('en') else _JAPANESE_DAY[g['ja']]}", *match.span()))
    for found in _find_times(text):
        keep(found)
    for found in _find_frequencies(text):
        keep(found)
    for found in _find_money(text):
        keep(found)
    for pattern in _PERCENT:
        for match in pattern.finditer(text):
            g = match.groupdict()
            if g.get("half"):
                n: float | None = 50
            elif g.get("w2"):
                n = 10 * parse_number(g["w2"])
            elif g.get("w"):
                n = 10 * parse_number(g["w"]) + (parse_number(g["b"]) if g.get("b") else 0)
            else:
                n = parse_number(g["n"])
            if n is not None:
                keep(Found("percent", _plain(n), *match.span()))
    for pattern in _ORDINALS:
        for match in pattern.finditer(text):
            g = match.groupdict()
            n = (
                _ORDINAL_VALUE[g["w"]]
                if g.get("w")
                else parse_number(g["native"][0])
                if g.get("native")
                else parse_number(g["n"])
            )
            if n is not None:
                keep(Found("ordinal", _plain(n), *match.span()))
    for pattern in _YEARS:
        for match in pattern.finditer(text):
            g = match.groupdict()
            n = (
                int(g["y"])
                if g.get("y")
                else _ERA[g["era"]] + (1 if g["ey"] == "元" else int(parse_number(g["ey"]) or 0))
            )
            keep(Found("year", str(n), *match.span()))
    for found in _find_durations(text):
        keep(found)
    for match in _QUANTITY.finditer(text):
        n = parse_number(match["n"])
        if n is not None:
            unit = _UNIT_OF[match["u"]]
            also = {"キロ": ("kg",), "ミリ": ("mg",), "ポンド": ("lb",)}.get(match["u"], ())
            keep(
                Found(
                    "quantity",
                    f"{_plain(n)} {unit}",
                    *match.span(),
                    tuple(f"{_plain(n)} {u}" for u in also if u != unit),
                )
            )
    for pattern in _WEEKDAY:
        for match in pattern.finditer(text):
            g = match.groupdict()
            en = g.get("en") or g.get("en2")
            keep(Found("weekday", en[:3] if en else _JAPANESE_DAY[g["ja"]], *match.span()))
    for pattern in _MONTHS_RE:
        for match in pattern.finditer(text):
            g = match.groupdict()
            n = _MONTH[g["en"]] if g.get("en") else int(parse_number(g["ja"]) or 0)
            if 1 <= n <= 12:
                keep(Found("month", f"{n:02d}", *match.span()))
    _share_units(text, result, taken)
    for match in _COUNT_JA.finditer(text):
        n = _READ[match["r"]] if match["r"] else parse_number(match["n"])
        if n is not None:
            keep(Found("count", _plain(n), *match.span()))
    for match in _COUNT.finditer(text):
        n = 1 if match["single"] else parse_number(match["n"])
        # a lone kanji digit is a part of words
        if n is not None and not (match["n"] and len(match["n"]) == 1 and match["n"] in _K):
            keep(Found("count", _plain(n), *match.span()))
    for match in _BARE_HOUR.finditer(text):
        hour = _hour(match["h"])
        span = match.span("h")
        if hour and (
            not any(taken[span[0] : span[1]]) or any(f.kind == "count" and (f.start, f.end) == span for f in result)
        ):
            result.append(Found("time", f"{hour % 24:02d}:00", *span, (f"{(hour + 12) % 24:02d}:00",)))
    return sorted(set(result), key=lambda f: (f.start, f.end, f.kind))


def _find_money(text: str):
    for pattern in _MONEY:
        for match in pattern.finditer(text):
            g = match.groupdict()
            n = parse_number(g["n"])
            if n is None:
                continue
            if g.get("s"):
                code = _SIGN.get(g["s"]) or g["s"].upper()
            else:
                code = _MONEY_WORD[g["w"]]
            also = tuple(
                f"{_plain(n)} {c}"
                for c in {"USD": ("CAD", "AUD"), "JPY": ("CNY",)}.get(code, ())
                if g.get("s") in ("$", "¥") or g.get("w") in ("dollars", "dollar", "ドル")
            )
            yield Found("money", f"{_plain(n)} {code}", *match.span(), also)


def _find_durations(text: str):
    for pattern in _DURATIONS_RE:
        for match in pattern.finditer(text):
            g = match.groupdict()
            if g.get("tq") or g.get("qh") or g.get("fn"):
                yield Found("duration", "45 minute" if g["tq"] else "15 minute" if g["qh"] else "14 day", *match.span())
                continue
            if g.get("hy") or g.get("hy2") or g.get("hj") or g.get("hj2"):
                yield Found("duration", "6 month" if g.get("hy") or g.get("hy2") else "30 minute", *match.span())
                continue
            if g.get("hu"):
                base, factor = _DURATION_WORD[g["hu"]]
                yield Found("duration", f"{_plain(factor / 2)} {base}", *match.span())
                continue
            if "u" not in g:
                continue
            n = 1 if g.get("an") else parse_number(g["n"])
            if n is None or g["u"] == "年" and n >= 200:
                continue  # 2025年 is a year
            base, factor = _DURATION_WORD[g["u"]]
            if g.get("half") is not None or g.get("half2") is not None:
                n += 0.5
            n *= factor
            if g.get("m") and base == "minute" and factor == 60:
                n += parse_number(g["m"]) or 0
            end = match.end() if not g.get("m") or factor == 60 else match.start("m")
            yield Found("duration", f"{_plain(n)} {base}", match.start(), end)


def _share_units(text: str, result: list[Found], taken: bytearray) -> None:
    """A bare number tied to a value takes its unit: the 850 of "from 850 to 900 dollars", the 6 of "6 to 6:30"."""
    for found in list(result):
        before, offset = text[max(0, found.start - 40) : found.start], max(0, found.start - 40)
        if found.kind == "time":
            match = _TIME_BACK.search(before)
            if match and not any(taken[offset + match.start("h") : offset + match.end("h")]):
                hour = _hour(match["h"])
                if hour:
                    start, end = offset + match.start("h"), offset + match.end("h")
                    result.append(Found("time", f"{hour % 24:02d}:00", start, end, (f"{(hour + 12) % 24:02d}:00",)))
        elif found.kind in ("money", "quantity", "duration", "percent", "frequency", "age"):
            for match, base in (
                (_CONNECT_BACK.search(before), offset),
                (_CONNECT_ON.search(text[found.end : found.end + 60]), found.end),
            ):
                if not match or any(taken[base + match.start("n") : base + match.end("n")]):
                    continue
                n = parse_number(match["n"])
                if n is None:
                    continue
                joint = "/" if found.kind == "frequency" else " "
                readings = [
                    f"{_plain(n)}{joint}{r.split(joint, 1)[1]}" if joint in r else _plain(n) for r in found.readings
                ]
                if found.kind == "duration":  # 30 to 45 minutes; for hours and weeks the factor is in the value already
                    word = text[found.start : found.end]
                    factor = next(
                        (f for w, (_, f) in sorted(_DURATION_WORD.items(), key=lambda i: -len(i[0])) if w in word), 1
                    )
                    readings = [f"{_plain(n * factor)} {found.value.split()[1]}"]
                start, end = base + match.start("n"), base + match.end("n")
                taken[start:end] = b"\1" * (end - start)
                result.append(Found(found.kind, readings[0], start, end, tuple(readings[1:])))


# --- comparing --------------------------------------------------------------------------------------------------


def canonical(kind: str, value: Any) -> tuple[str, ...]:
    """Canonical readings of a typed value, as `find` gives them."""
    if kind == "money":
        return (f"{_plain(value[0])} {value[1].upper()}",)
    if kind == "quantity":
        return (f"{_plain(value[0])} {_UNIT_OF.get(str(value[1]).lower(), value[1])}",)
    if kind == "frequency":
        match = re.fullmatch(r"(?:(\d+) )?(\w+?)s?", str(value["per"]))
        k = int(match[1] or 1)
        return (f"{int(value['n'])}/{f'{k} ' if k > 1 else ''}{match[2]}",)
    if kind == "duration":
        base, _, _, factor = _DURATIONS[str(value[1]).lower().rstrip("s")]
        return (f"{_plain(value[0] * factor)} {base}",)
    if kind in ("count", "ordinal", "age", "percent", "year"):
        return (_plain(_one(value)),)
    if kind == "month":
        return (f"{int(value):02d}",)
    if kind == "weekday":
        return (value[:3].lower(),)
    if kind == "phone":
        return (re.sub(r"[^0-9]", "", str(value)),)
    return (str(value),)


def compatible(kind: str, value: str, found: Found) -> bool:
    """Whether `found` can be the canonical `value` of `kind`. A date without a year fits one with a year; a bare number
    of 100 or more, or with a decimal, fits an amount (people note "rent 850", "shoes 23.5"); "three times" fits any
    three times a period."""
    if found.kind == kind:
        if kind == "date":
            return any(a == value or (min(len(a), len(value)) == 5 and a[-5:] == value[-5:]) for a in found.readings)
        if kind == "frequency":
            return any(
                a == value or (a.endswith("/?") or value.endswith("/?")) and a.split("/")[0] == value.split("/")[0]
                for a in found.readings
            )
        if kind == "phone":
            return any(a == value or len(a) >= 9 and len(value) >= 9 and a[-9:] == value[-9:] for a in found.readings)
        return value in found.readings
    if found.kind == "count" and kind in ("money", "quantity", "percent", "age", "ordinal", "year"):
        n = value.split(" ")[0]
        if value.endswith(" km") and _plain(float(n) * 1000) in found.readings:
            return True  # "running: 12k"
        return n in found.readings and (kind in ("age", "year") or float(n) >= 100 or "." in n)  # shoes: 23.5
    if found.kind == "year" and kind in ("money", "quantity"):
        return value.split(" ")[0] == found.value  # "rent 2000"
    if found.kind == "nthday" and kind == "weekday":
        return found.value.split(" ")[1] == value  # "every third Thursday" names a Thursday
    if found.kind == "nthday" and kind == "frequency":
        return value == "1/2 week" and found.value.startswith("alt")
    if kind == "quantity" and found.kind == "money" and value.endswith(" lb"):
        return f"{value[:-3]} GBP" in found.readings  # pounds of either sort
    if kind == "count":
        if found.kind == "frequency" and found.value.endswith("/?"):
            return found.value[:-2] == value
        if found.kind == "year":
            return found.value == value
        if found.kind == "quantity" and found.value.endswith((" cup", " celsius", " floor")):
            return found.value.split(" ")[0] == value  # 3杯, 3度, 3階 are counters as well
        if found.kind == "ordinal":
            return False
    if kind == "ordinal" and found.kind == "quantity" and found.value.endswith(" floor"):
        return found.value.split(" ")[0] == value
    return False

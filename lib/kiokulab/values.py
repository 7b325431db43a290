"""Typed values and how people write them, in English and Japanese.

``forms(kind, value)`` lists the usual spellings of one value; ``find(text)`` reads values back out of any text, so that
a spelling that no list holds ("half past six", "8k", 週3度) still matches. Kinds and values:

    time "18:30" | date "03-14" or "2025-03-14" | month "03" | weekday "tue" | year 2019 | money [850, "USD"]
    count 3 or [3] | quantity [5, "km"] | frequency {"n": 3, "per": "week"} (per: day, week, month, year, "2 weeks", ...)
    duration [45, "minute"] | ordinal 3 | age 34 | percent 20 | phone "03-1234-5678" | code "A-113" | text "any words"

A value found in text may be read in several ways ("6:30" is morning or evening, "3/4" is April or March): ``also`` holds
the other readings, and ``compatible`` says whether any of them can be the value that is looked for.
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
_ORDINAL = ("zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
            "fifteenth sixteenth seventeenth eighteenth nineteenth").split()


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


_ORDINAL_VALUE = {ordinal_word(n): n for n in range(1, 100)} | {ordinal_word(n).replace("-", " "): n for n in range(21, 100)}


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
WEEKDAYS = {"mon": ("monday", "月"), "tue": ("tuesday", "火"), "wed": ("wednesday", "水"), "thu": ("thursday", "木"),
            "fri": ("friday", "金"), "sat": ("saturday", "土"), "sun": ("sunday", "日")}
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
    "km": (["km", "kilometers", "kilometres", "kilometer", "kilometre", "kms", "k"], ["キロ", "キロメートル"]),
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
    "celsius": (["°c", "degrees celsius", "degrees", "℃", "c"], ["度", "℃"]),
    "m2": (["m2", "sqm", "square meters", "square metres"], ["平米", "平方メートル"]),
    "tatami": (["tatami", "tatami mats", "jo"], ["畳", "帖"]),
    "gb": (["gb", "gigabytes", "gigs"], ["ギガ", "ギガバイト"]),
    "tb": (["tb", "terabytes"], ["テラ", "テラバイト"]),
    "floor": (["floor", "floors"], ["階"]),
    "word": (["words", "word"], ["語", "単語"]),
}
_UNIT_OF = {alias: unit for unit, (en, ja) in reversed(UNITS.items()) for alias in [*en, *ja, unit]}
_DURATIONS = {"minute": ("minute", ["minutes", "minute", "mins", "min"], ["分", "分間"], 1),
              "hour": ("minute", ["hours", "hour", "hrs", "hr", "h"], ["時間"], 60),
              "second": ("second", ["seconds", "second", "secs", "sec"], ["秒", "秒間"], 1),
              "day": ("day", ["days", "day"], ["日間", "日"], 1),
              "week": ("day", ["weeks", "week", "wks", "wk"], ["週間", "週"], 7),
              "month": ("month", ["months", "month", "mos"], ["か月", "ヶ月", "カ月", "ヵ月", "ケ月", "箇月", "か月間", "ヶ月間", "カ月間"], 1),
              "year": ("month", ["years", "year", "yrs", "yr"], ["年", "年間", "か年"], 12)}
_COUNTERS = "つ 個 人 名 匹 本 冊 台 枚 杯 頭 羽 軒 社 件 回 度 着 足 品 種類 部屋 か所 箇所 ヶ所 カ所 ヵ国 か国 カ国 ヶ国 校 店 曲 話 巻 号 番 階 泊 組".split()
_NATIVE = "_ 一つ 二つ 三つ 四つ 五つ 六つ 七つ 八つ 九つ".split()
_READ = {"ひとつ": 1, "ふたつ": 2, "みっつ": 3, "よっつ": 4, "いつつ": 5, "むっつ": 6, "ななつ": 7, "やっつ": 8, "ここのつ": 9, "ひとり": 1, "ふたり": 2,
         "はたち": 20, "二十歳": 20}
_PER = {"day": (["day"], ["日", "一日", "1日"], "daily", "毎日"), "week": (["week"], ["週", "一週間", "1週間", "毎週"], "weekly", "毎週"),
        "month": (["month"], ["月", "ひと月", "一か月", "1か月", "1ヶ月"], "monthly", "毎月"),
        "year": (["year"], ["年", "一年", "1年"], "yearly", "毎年")}


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
    part = "in the morning" if hour < 12 else "in the afternoon" if hour < 17 else "in the evening" if hour < 21 else "at night"
    dotted, word = f"{half[0]}.m.", english(twelve)
    parts_ja = ["午前"] + (["朝", "朝の"] if 4 <= hour < 11 else []) if hour < 12 else ["午後"] + (
        ["夕方", "夕方の"] if 15 <= hour < 19 else ["夜", "夜の"] if hour >= 18 else ["昼の"])
    if hour == 18:
        parts_ja += ["夜", "夜の"]
    noon = ["noon", "midday", "正午", "12 noon"] if value == "12:00" else ["midnight", "深夜0時", "真夜中"] if value == "00:00" else []
    yield f"{hour:02d}:{minute:02d}"
    yield from noon
    if minute == 0:
        for h in (str(twelve), word):
            yield from (f"{h} {half}", f"{h}{half}" if h.isdigit() else f"{h} {dotted}", f"{h} {part}", f"{h} o'clock {part}", f"{h} o'clock")
        yield from (f"{twelve} {dotted}", f"{twelve}:00 {half}", f"{twelve}:00{half}", f"{twelve}:00 {dotted}", f"{twelve}:00", f"at {twelve}", f"at {word}")
    else:
        yield from (f"{twelve}:{minute:02d} {half}", f"{twelve}:{minute:02d}{half}", f"{twelve}:{minute:02d} {dotted}", f"{twelve}.{minute:02d} {half}",
                    f"{twelve}.{minute:02d}{half}", f"{twelve}:{minute:02d} {part}", f"{twelve}:{minute:02d}", f"{word} {'oh ' if minute < 10 else ''}{english(minute)}")
        yield f"{word} {'oh ' if minute < 10 else ''}{english(minute)} {part}"
        following = english(twelve % 12 + 1)
        spoken = {30: (f"half past {word}", f"half past {twelve}"), 15: (f"quarter past {word}", f"quarter past {twelve}"),
                  45: (f"quarter to {following}", f"quarter to {twelve % 12 + 1}")}.get(minute, ())
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
    name, short, nth, word = MONTHS[month - 1].title(), MONTHS[month - 1][:3].title(), ordinal_digits(day), ordinal_word(day)
    if year:
        y = year[0]
        yield from (f"{y}-{month:02d}-{day:02d}", f"{name} {day}, {y}", f"{day} {name} {y}", f"{name} {nth}, {y}", f"{nth} {name} {y}", f"{nth} of {name} {y}",
                    f"{short} {day}, {y}", f"{day} {short} {y}", f"{month}/{day}/{y}", f"{month:02d}/{day:02d}/{y}", f"{day}/{month}/{y}",
                    f"{day:02d}/{month:02d}/{y}", f"{day:02d}.{month:02d}.{y}", f"{y}/{month:02d}/{day:02d}", f"{y}/{month}/{day}",
                    f"{y}.{month:02d}.{day:02d}", f"{y}年{month}月{day}日", f"{y}年{month:02d}月{day:02d}日")
        if y >= 2019:
            yield f"令和{'元' if y == 2019 else y - 2018}年{month}月{day}日"
        elif y >= 1989:
            yield f"平成{'元' if y == 1989 else y - 1988}年{month}月{day}日"
        elif y >= 1926:
            yield f"昭和{'元' if y == 1926 else y - 1925}年{month}月{day}日"
    yield from (f"{name} {day}", f"{day} {name}", f"{name} {nth}", f"{nth} {name}", f"the {nth} of {name}", f"{nth} of {name}", f"{day} of {name}",
                f"{short} {day}", f"{day} {short}", f"{short} {nth}", f"{nth} {short}", f"{short}. {day}", f"{name} the {nth}", f"{name} {word}",
                f"{name} the {word}", f"the {word} of {name}", f"{word} of {name}", f"{word} {name}", f"{month}/{day}", f"{day}/{month}",
                f"{month:02d}/{day:02d}", f"{day:02d}/{month:02d}", f"{month:02d}-{day:02d}", f"{day}.{month}.", f"{month}月{day}日",
                f"{kanji(month)}月{kanji(day)}日", f"{month:02d}月{day:02d}日")


def _month_forms(value: Any):
    month = int(value)
    name = MONTHS[month - 1].title()
    yield from (([name] if month != 5 else ["in May", "since May", "every May", "of May", "next May", "last May", "until May", "by May", "from May"])
                + ([name[:3]] if month not in (3, 5) else []) + (["Sept"] if month == 9 else []))
    yield from (f"{month}月", f"{kanji(month)}月")


def _weekday_forms(value: str):
    name, ja = WEEKDAYS[value[:3].lower()]
    name = name.title()
    yield from (name, f"{name}s", f"{ja}曜日", f"{ja}曜")
    yield from {"Tuesday": ["Tue", "Tues"], "Thursday": ["Thu", "Thur", "Thurs"], "Wednesday": ["Wed", "Weds"], "Friday": ["Fri"]}.get(name, [f"every {name[:3]}", f"on {name[:3]}", f"{name[:3]}."])
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
    yield from {1: ["ひとつ", "ひとり", "a single"], 2: ["ふたつ", "ふたり"], 3: ["みっつ"], 4: ["よっつ"], 5: ["いつつ"]}.get(n, [])


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
    times = {1: ["once"], 2: ["twice"], 3: ["thrice"]}.get(n, []) + ([f"{english(n)} times", f"{n} times", f"{n}x", f"{n} x"] if n > 1 else ["one time", "1x"])
    if several and int(several[1]) > 1:
        k, unit = int(several[1]), several[2]
        ja = {"day": "日", "week": "週間", "month": "か月", "year": "年"}[unit]
        if n == 1:
            yield from (f"every {english(k)} {unit}s", f"every {k} {unit}s", f"{k}{ja}ごと", f"{k}{ja}毎")
            if k == 2:
                yield from (f"every other {unit}", f"every second {unit}", *({"week": ["fortnightly", "every fortnight", "隔週", "隔週で"], "day": ["一日おき", "1日おき"], "month": ["隔月"]}.get(unit, [])))
        yield from (f"{t} every {k} {unit}s" for t in times[:2])
        yield from (f"{k}{ja}に{n}回", f"{k}{ja}に{kanji(n)}回", f"{k}{ja}に{n}度", f"{kanji(k)}{ja}に{kanji(n)}回", f"{kanji(k)}{ja}に{kanji(n)}度")
        return
    unit = re.fullmatch(r"(?:1 )?(\w+?)s?", per)[1]
    (en,), ja, adverb, every = _PER[unit]
    if n == 1:
        yield from (f"once a {en}", f"every {en}", adverb, every, f"{en}ly" if en != "day" else "each day", f"each {en}")
    for t in times:
        yield from (f"{t} a {en}", f"{t} per {en}")
    yield from (f"{t} {adverb}" for t in times[:2])
    yield from (f"{t} every {en}" for t in times[:2])
    yield from (f"{t} each {en}" for t in times[:1])
    yield f"{n}x/{en}"
    for head in ja[:2] if unit != "day" else ["1日", "一日"]:
        for d in (str(n), kanji(n)):
            yield from (f"{head}{d}回", f"{head}に{d}回", f"{head}{d}度", f"{head}に{d}度")
    if unit in ("week", "month"):
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
            yield from (f"{j}{w}" for j in (d, kanji(int(m))) for w in words_ja if not (u == "day" and w == "日" and m > 31))
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
    yield from {("minute", 30): ["half an hour", "half hour", "half-hour", "半時間"], ("minute", 45): ["three quarters of an hour", "three-quarters of an hour"],
                ("minute", 15): ["quarter of an hour", "a quarter hour"], ("day", 14): ["a fortnight", "fortnight"], ("month", 6): ["half a year", "half year", "半年"]}.get((base, total), [])


def _ordinal_forms(value):
    n = int(_one(value))
    yield from (ordinal_digits(n), ordinal_word(n), f"{n}番目", f"{kanji(n)}番目", f"第{n}", f"第{kanji(n)}", f"{n}番")
    if n < 10:
        yield from (f"{n}つ目", f"{_NATIVE[n]}目")
    yield from (f"{n}度目", f"{n}回目", f"{n}人目", f"no. {n}", f"number {n}")


def _age_forms(value):
    n = int(_one(value))
    w = english(n)
    yield from (f"{n} years old", f"{n}-year-old", f"{n} year old", f"{w} years old", f"{w}-year-old", f"aged {n}", f"age {n}", f"age of {n}", f"{n} yo",
                f"{n} y/o", f"{n} years of age", f"turned {n}", f"turning {n}", f"{n}歳", f"{n}才", f"{kanji(n)}歳", f"{kanji(n)}才", str(n), w)
    if n == 20:
        yield from ("はたち", "二十歳")


def _percent_forms(value):
    n = _one(value)
    yield from (f"{_plain(n)}%", f"{_plain(n)} %", f"{_plain(n)} percent", f"{_plain(n)} per cent", f"{_plain(n)}パーセント")
    if float(n).is_integer():
        yield from (f"{english(int(n))} percent", f"{english(int(n))} per cent", f"{kanji(int(n))}パーセント")
        if n % 10 == 0 and 0 < n < 100:
            yield from (f"{int(n) // 10}割", f"{kanji(int(n) // 10)}割")
        elif n % 5 == 0 and 0 < n < 100:
            yield from (f"{int(n) // 10}割5分", f"{kanji(int(n) // 10)}割五分") if n > 10 else ()
    yield from {50: ["half", "半分"], 25: ["a quarter"]}.get(n, [])


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


_FORMS = {"time": _time_forms, "date": _date_forms, "month": _month_forms, "weekday": _weekday_forms, "money": _money_forms, "count": _count_forms,
          "quantity": _quantity_forms, "frequency": _frequency_forms, "duration": _duration_forms, "ordinal": _ordinal_forms, "age": _age_forms,
          "percent": _percent_forms, "phone": _code_forms, "code": _code_forms, "year": _year_forms,
          "text": lambda value: [value] if isinstance(value, str) else list(value)}
KINDS = tuple(_FORMS)

"""The page: hostile text stays text, nothing is fetched, a broken oracle shows no table, and the same run gives the
same bytes."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kioku_rows import personas, rows

from kiokulab.errors import InputError
from kiokulab.files import write_jsonl
from kiokulab.kioku import analyze, report
from kiokulab.params import KiokuParams

HOSTILE = (
    "</td><script>alert(1)</script><img src=x onerror=alert(2)>\x00\x1b[31m\x07 \u202eevil\u2066 \ud800 &amp; \"'> "
    "{{ 7*1111 }} <style>*{display:none}</style> javascript:alert(3)"
)


class Page(HTMLParser):
    """Tags with their attributes, and whether each that opens is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def a_run(root, system, kind, people=None, change=None):
    people = people or personas(2)
    folder = root / "kioku" / "v0.1" / system / "0123456789ab"
    folder.mkdir(parents=True)
    made = rows(kind, people)
    if change:
        change(made)
    write_jsonl(folder / "dataset.jsonl", [p.model_dump(mode="json") for p in people])
    write_jsonl(folder / "judgements.jsonl", made)
    memories = [
        {
            "unit": r["unit"],
            "persona": r["persona"],
            "route": r["route"],
            "id": r["memory"],
            "text": r["text"],
            "layer": r["layer"],
        }
        for r in made
        if r["kind"] == "sentence"
    ]
    write_jsonl(folder / "memories.jsonl", memories)
    return folder


def analysed(folder, *beside, **changes):
    params = KiokuParams(system=folder.parent.name, bootstrap=50, beside=[str(b) for b in beside], **changes)
    analyze.run(folder, params)
    return (folder / "report.html").read_text(encoding="utf-8"), params


def test_hostile_memory_text_is_only_text(tmp_path):
    def spoil(made):
        for row in made:
            if row["kind"] == "sentence":
                row["text"] = HOSTILE
            if row["kind"] == "answer" and row["answer"]:
                row["answer"] = HOSTILE + "x" * 1_000_000

    folder = a_run(tmp_path, "vector", "everything", change=spoil)
    html, params = analysed(folder)
    page = Page(html)
    assert not [t for t, _ in page.tags if t in ("script", "iframe", "object", "form", "link")]
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    assert all(a.get("src", "data:").startswith("data:") for t, a in page.tags if t == "img")
    assert "<script>alert(1)</script>" in page.text and "{{ 7*1111 }}" in page.text and "7777" not in page.text
    assert (
        not any(c in html for c in "\x00\x1b\x07\u202e\u2066")
        and "⟨U+202E⟩" in html
        and "⟨U+D800⟩" in html
        and "␀" in html
    )
    assert "(cut: 1,000,1" in html and len(html) < 3_000_000
    html.encode("utf-8")
    for name in ("routes", "languages", "cases", "differences", "beyond", "judge", "conditions"):
        found = report.part(report.open_run(folder, params), name)
        assert not [t for t, _ in Page(found).tags if t == "script"] and "onerror" not in {
            a for _, x in Page(found).tags for a in x
        }


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(codec=None), max_size=60), st.integers(1, 50))
def test_plain_text_cannot_act(text, longest):
    shown = report.plain(text, longest)
    shown.encode("utf-8")
    assert all(c == "\n" or (ord(c) >= 32 and c not in "\x7f\u2028\u2029\u202e\u2066\u200f\ufeff") for c in shown)
    assert report.plain("x" * 100, 10) == "xxxxxxxxxx … (cut: 100 characters in all)"


def test_tables_for_notebooks_escape_keys_and_cells():
    page = Page(report.table([{"<b>": HOSTILE, "n": 3, "empty": None}]))
    assert not [t for t, _ in page.tags if t in ("script", "img", "b")] and "<b>" in page.text
    assert "nothing" in report.table([])


def test_the_page_is_self_contained_and_speaks_of_its_pictures(tmp_path):
    oracle = a_run(tmp_path, "oracle", "perfect")
    html, _ = analysed(a_run(tmp_path, "vector", "tidy"), oracle)
    page = Page(html)
    pictures = [a for t, a in page.tags if t == "img"]
    assert len(pictures) == 3 and all(
        len(a["alt"]) > 20 and a["src"].startswith("data:image/png;base64,") for a in pictures
    )
    assert all(base64.b64decode(a["src"].split(",")[1]).startswith(b"\x89PNG") for a in pictures)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//|@import|url\((?!\"data:font)", html)
    assert "prefers-color-scheme: dark" in html and ("html", {"lang": "en"}) in page.tags
    assert any(a.get("lang") == "ja" for t, a in page.tags if t == "bdi")
    assert "published: other dataset, other judge" in page.text and "31.6" in page.text


def test_the_same_run_gives_the_same_bytes(tmp_path):
    one, other = (a_run(tmp_path / n, "vector", "tidy") for n in "ab")
    analysed(one), analysed(other)
    for name in (
        "metrics.json",
        "comparison.json",
        "report.html",
        "figures/index.png",
        "figures/fates.png",
        "figures/floors.png",
    ):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_a_broken_oracle_shows_no_table_and_names_what_fell_short(tmp_path):
    def break_it(made):
        next(r for r in made if r["kind"] == "version" and r["fact"] == "f01")["verdict"] = "absent"

    oracle = a_run(tmp_path, "oracle", "perfect", change=break_it)
    folder = a_run(tmp_path, "vector", "tidy")
    html, params = analysed(folder, oracle)
    assert "This table is not shown" in html and "recall is 95.8 % (23/24)" in html and 'role="alert"' in html
    assert (
        ("td", {"class": "best"}) not in Page(html).tags
        and not (folder / "figures" / "index.png").exists()
        and analyze.refused(folder)
    )
    assert "Not drawn" in report.figure(report.open_run(folder, params), "index")
    analysed(oracle)
    assert analyze.summary([folder, oracle]).startswith("REFUSED")


def test_runs_that_may_not_share_a_table_are_left_out_with_their_reason(tmp_path):
    def other_judge(made):
        made[-1]["name"] = "llm:some"

    folder = a_run(tmp_path, "vector", "tidy")
    strange = a_run(tmp_path, "null", "nothing", people=personas(1))
    judged = a_run(tmp_path, "oracle", "perfect", change=other_judge)
    html, _ = analysed(folder, strange, judged, tmp_path / "kioku" / "v0.1" / "not" / "there")
    found = json.loads((folder / "comparison.json").read_bytes())
    assert len(found["systems"]) == 1 and [x["reason"][:12] for x in found["left_out"]] == [
        "it was made ",
        "it was judge",
        "it is not fi",
    ]
    assert "Left out" in html and str(tmp_path) not in html + json.dumps(found)
    assert "nothing here shows that the harness itself is sound" in html


def test_ten_cases_come_from_all_kinds_and_both_languages(tmp_path):
    folder = a_run(tmp_path, "vector", "everything", people=personas(4))
    _, params = analysed(folder)
    cases = report.failure_cases(report.open_run(folder, params))
    assert (
        len(cases) == 10
        and {c["language"] for c in cases} == {"en", "ja"}
        and {c["kind"] for c in cases} >= {"stale", "leaked"}
    )
    assert len({(c["unit"], c["fact"]) for c in cases}) == 10 and len({c["persona"] for c in cases}) >= 6
    case = next(c for c in cases if c["kind"] == "stale")
    assert case["said"] and case["stored"] and case["question"] and [v["n"] for v in case["versions"]] == [1, 2]
    assert cases == report.failure_cases(report.open_run(folder, params))


def test_a_perfect_run_has_no_case(tmp_path):
    html, _ = analysed(a_run(tmp_path, "oracle", "perfect"))
    assert "No failures in full" in html


def test_the_fates_of_facts(tmp_path):
    folder = a_run(tmp_path, "vector", "tidy")
    _, params = analysed(folder)
    fates = report.fates(report.open_run(folder, params).units, "raw")["en-01"]
    assert fates == {
        "f01": "held",
        "f02": "held",
        "f03": "held",
        "f04": "held",
        "f05": "held",
        "f06": "stale",
        "f07": "leaked",
    }


def entry(label, system, **rates):
    return {
        "label": label,
        "system": system,
        "part": {
            "index": {"value": rates.pop("index", 1)},
            "metrics": {n: {"rate": rates.get(n, 0.5)} for n in analyze.METRICS},
        },
    }


def test_best_values_go_the_right_way_and_anchors_that_know_or_store_nothing_do_not_compete():
    rows = [
        entry("oracle", "oracle", recall=1, noise=0),
        entry("null", "null", noise=0),
        entry("a", "a", recall=0.9, noise=0.1, compression=0.8),
        entry("b", "b", recall=0.8, noise=0.2, compression=1.0),
    ]
    tops = report.best(rows)
    assert tops["recall"] == {"a"} and tops["noise"] == {"a"} and "compression" not in tops and "index" not in tops
    assert report.best(rows[:3]) == {}


def test_what_was_not_run_is_said(tmp_path):
    html, _ = analysed(a_run(tmp_path, "vector", "tidy"), personas=4)
    text = Page(html).text
    assert "Not run: route requests, signaled." in text and "Only the first 4 personas" in text


def test_a_missing_file_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="not there"):
        analyze.run(tmp_path, KiokuParams())


def test_a_page_brings_its_japanese_characters_along():
    """A reader's machine may have no Japanese font; the page must show Japanese all the same, and nothing else is
    loaded."""
    from kiokulab import page

    text = page.document("記憶", [("歯医者", page.table([{"予約": "午後4時45分"}]))])
    assert "data:font/woff;base64," in text and text == page.document(
        "記憶", [("歯医者", page.table([{"予約": "午後4時45分"}]))]
    )
    assert "http://" not in text and "https://" not in text and "font/woff" not in page.document("memory", [])

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import runs_made
from kiokulab import compare, receipts, site
from kiokulab.errors import InputError, VerificationFailed
from kiokulab.kioku import analyze
from kiokulab.notebooks import clean, to_html

REPOSITORY = Path(__file__).resolve().parents[1]
PUBLISHED = REPOSITORY / "outputs" / "published"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    target = tmp_path_factory.mktemp("published")
    for system in ("oracle", "null", "store-everything", "replace-similar"):
        site.publish(runs_made.folder(runs_made.standard(), system), target)
    return target


@pytest.fixture(scope="module")
def built(published, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    site.build(published, out)
    return out


# --- publishing ---------------------------------------------------------------------------------------------------


def test_a_published_run_is_small_whole_and_verifies(published):
    for folder in site.published_runs(published):
        assert sum(p.stat().st_size for p in folder.iterdir()) < site.LARGEST
        whole = site.opened(folder)
        assert receipts.verify(whole).status == "finished" and (whole / "units").is_dir()
        original = runs_made.folder(runs_made.standard(), folder.parent.name)
        assert {p.relative_to(whole) for p in whole.rglob("*")} == {
            p.relative_to(original) for p in original.rglob("*")
        }


def test_published_twice_is_the_same_bytes(published):
    folder = site.published_runs(published)[0]
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    site.publish(runs_made.folder(runs_made.standard(), folder.parent.name), published)
    assert before == {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("name", ["run.tar.xz", "metrics.json", "receipt.json"])
def test_a_changed_file_of_a_published_run_is_named(published, tmp_path, name):
    folder = tmp_path / "copy"
    shutil.copytree(site.published_runs(published)[0], folder)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(VerificationFailed, match=re.escape(name)):
        receipts.verify(site.opened(folder))


def test_what_may_not_be_published_is_refused(tmp_path, monkeypatch):
    root = runs_made.copy(tmp_path)
    folder = runs_made.folder(root, "null")
    monkeypatch.setattr(site, "LARGEST", 1000)
    with pytest.raises(InputError, match="1,000 is the most"):
        site.publish(folder, tmp_path / "p")
    (folder / "events.jsonl").write_bytes((folder / "events.jsonl").read_bytes()[:-10])
    with pytest.raises(VerificationFailed, match="events.jsonl"):
        site.publish(folder, tmp_path / "p")
    assert not site.published_runs(tmp_path / "p")


def test_an_archive_that_climbs_out_is_refused(tmp_path, monkeypatch):
    import io
    import tarfile

    monkeypatch.setenv("KIOKULAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    folder.mkdir()
    with tarfile.open(folder / site.ARCHIVE, "w:xz") as tar:
        one = tarfile.TarInfo("../../climbed.txt")
        one.size = 2
        tar.addfile(one, io.BytesIO(b"hi"))
    with pytest.raises(VerificationFailed, match="cannot be taken apart"):
        site.opened(folder)
    assert not list(tmp_path.rglob("climbed.txt"))


def published_here():
    return site.published_runs(PUBLISHED)


@pytest.mark.parametrize(
    "folder",
    published_here() or [None],
    ids=lambda f: "none published" if f is None else f.relative_to(PUBLISHED).as_posix(),
)
def test_each_run_published_here_verifies(folder):
    if folder is None:
        pytest.skip("nothing is published yet")
    assert sum(p.stat().st_size for p in folder.iterdir()) < site.LARGEST
    assert receipts.verify(site.opened(folder)).status == "finished"


def test_the_readme_table_is_that_of_the_published_runs():
    if not published_here():
        pytest.skip("nothing is published yet")
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert text == site.with_table(text, site.readme_table(PUBLISHED)), "make publish writes it"


def test_the_table_holds_each_figure_with_its_counts(published):
    table = site.readme_table(published, every=True)
    lines = table.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        "oracle",
        "replace-similar",
        "null",
        "store-everything",
    ]
    for folder in site.published_runs(published):
        part = json.loads((folder / "metrics.json").read_bytes())["by_route"]["raw"]
        line = next(x for x in lines if x.startswith(f"| {folder.parent.name} |"))
        for name, f in part["metrics"].items():
            assert (f"{analyze.shown(name, f)}<br>{f['k']}/{f['n']}" if f["rate"] is not None else "| n/a |") in line
    assert site.readme_table(published, "drift") == "" == site.readme_table(published / "nowhere")


def test_the_table_goes_between_its_marks():
    before = "a\n<!-- table:kioku -->\nold\n<!-- /table:kioku -->\nb"
    after = site.with_table(before, "| new |")
    assert (
        after == "a\n<!-- table:kioku -->\n| new |\n<!-- /table:kioku -->\nb"
        and site.with_table(after, "| new |") == after
    )
    for text in ("no marks", before + before, "<!-- /table:kioku --><!-- table:kioku -->"):
        with pytest.raises(InputError):
            site.with_table(text, "x")


# --- the site -----------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.outside, self.images = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get("id"):
            self.ids.add(found["id"])
        self.outside += [
            v
            for n, v in attributes
            if n in ("src", "srcset", "action", "data", "poster") and not (v or "").startswith("data:")
        ]
        if tag in ("script", "iframe", "object", "embed", "form", "base") or any(
            n.startswith("on") for n, _ in attributes
        ):
            self.outside.append(tag)
        if tag == "img":
            self.images.append(found.get("alt"))


def test_every_page_is_self_contained_and_every_link_leads_somewhere(built):
    pages = {p.relative_to(built).as_posix(): Links(p.read_text(encoding="utf-8")) for p in built.rglob("*.html")}
    assert {"index.html", "kioku.html", "kioku/oracle.html"} <= set(pages) and not [
        p for p in built.rglob("*") if p.is_file() and p.suffix != ".html"
    ]
    for name, page in pages.items():
        assert not page.outside, (name, page.outside[:3])
        assert all(alt and alt.strip() for alt in page.images), name
        text = (built / name).read_text(encoding="utf-8")
        assert (
            "default-src 'none'" in text
            and "prefers-color-scheme: dark" in text
            and "@import" not in text
            and "url(" not in text
        )
        for href in page.links:
            if not href.startswith("https://"):
                path, fragment = urldefrag(unquote(href))
                target = (
                    (built / name).parent.joinpath(path).resolve().relative_to(built.resolve()).as_posix()
                    if path
                    else name
                )
                assert target in pages, (name, href)
                assert not fragment or fragment in pages[target].ids, (name, href)


def test_ten_figures_lead_to_their_utterance_and_ledger_line_in_three_clicks(built, published):
    """Following links alone: leaderboard figure -> what it counted -> one case -> the utterance, or the ledger line."""
    from kiokulab.kioku.records import Persona

    table = compare.compare(published, resamples=0)["tables"][0]
    followed = 0
    start = Links((built / "kioku.html").read_text(encoding="utf-8"))
    for row in table["rows"]:
        people = {
            p["id"]: Persona.model_validate(p)
            for p in map(json.loads, open(site.opened(published / row["folder"]) / "dataset.jsonl", encoding="utf-8"))
        }
        for metric in ("recall", "update_applied", "old_version_kept", "forget_violation", "check_questions"):
            first = next(
                link for link in start.links if f"-{row['system']}-" in link and link.endswith(f"/{metric}.html")
            )
            list_page = (built / first).read_text(encoding="utf-8")
            figure = next(f for f in row["figures"] if f["name"] == metric)
            assert list_page.count("<tr") - 1 == figure["n"] + figure["not_judged"]
            # null holds nothing, and its cases say so
            second = next(link for link in Links(list_page).links if "#f" in link)
            path, fact = urldefrag(second)
            case_page = (built / first).parent / path
            block = case_page.read_text(encoding="utf-8").split(f'id="{fact}"')[1].split('class="case"')[0]
            third = [link for link in Links(block).links if "-ledger.html#" in link]
            for mark in ("#u-", "#f-"):
                path, place = urldefrag(next(link for link in third if mark in link))
                last = (case_page.parent / path).read_text(encoding="utf-8")
                assert f'id="{place}"' in last
                person = people[path.removesuffix("-ledger.html")]
                there = html.unescape(re.sub("<[^>]+>", "", last.split(f'id="{place}"')[1][:3000]))
                if mark == "#f-":
                    text = next(f for f in person.facts if f.id == fact).versions[0].text
                else:
                    session, turn = place.removeprefix("u-").split(".t")
                    text = next(s for s in person.sessions if s.id == session).turns[int(turn) - 1].text
                assert " ".join(text.split()) in " ".join(there.split())
            followed += 1
    assert followed >= 10


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp.exe \x00"


def test_hostile_text_of_a_memory_is_text(tmp_path, monkeypatch):
    from kiokulab.explore import Explorer, case_html

    x = Explorer(runs_made.folder(runs_made.standard(), "store-everything"))
    item = next(i for i in x.items("recall", "everything") if x.case(i["id"])["memories"])
    for memory in x.memories[item["unit"]].values():
        memory["text"] = HOSTILE
    page = Links(case_html(x, item["id"]))
    text = case_html(x, item["id"])
    assert (
        not page.outside
        and not page.images
        and "&lt;script&gt;" in text
        and "\u202e" not in text
        and "\x00" not in text
    )


@pytest.mark.parametrize(
    "bad",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<img src='https://a.example/x.png'>",
        "<a href='javascript:alert(1)'>x</a>",
        "<iframe src='https://a.example'></iframe>",
        "<p style='background:url(https://a.example)'>x</p>",
        "<svg onload=alert(1)>",
        "<style>@import 'x'</style>",
    ],
)
def test_a_notebook_from_anywhere_is_cleaned(bad):
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": [bad]},
            {
                "cell_type": "code",
                "source": [bad],
                "execution_count": 1,
                "outputs": [
                    {"output_type": "display_data", "data": {"text/html": [bad]}},
                    {"output_type": "stream", "name": "stdout", "text": [bad]},
                ],
            },
        ]
    }
    shown = to_html(notebook)
    page = Links(shown)
    assert (
        not page.outside
        and not [x for x in page.links if not x.startswith("https://")]
        and "@import" not in clean(bad)
        and "url(" not in clean(bad)
    )


def test_a_folder_that_is_no_site_is_left_alone(published, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="not a site"):
        site.build(published, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with pytest.raises(InputError, match="nothing is published"):
        site.build(tmp_path, tmp_path / "out")


# --- routes, other tracks, the README's table ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A site of runs of all four tracks, published; the kioku runs on all routes."""
    root, target = tmp_path_factory.mktemp("many"), tmp_path_factory.mktemp("published-many")
    made = [runs_made.make(root, system, personas=2, route="all") for system in ("oracle", "replace-similar")]
    made += [runs_made.make(root, system, track="drift", language="en") for system in ("oracle", "mute")]
    made += [
        runs_made.make(root, "reference-lexical", track="emem"),
        runs_made.make(root, "plain-rag", track="verdict", questions=6),
    ]
    for folder in made:
        site.publish(folder, target)
    out = tmp_path_factory.mktemp("site-many") / "site"
    site.build(target, out)
    return target, out


def test_runs_of_every_track_are_published_verified_and_have_their_pages(many):
    target, out = many
    for folder in site.published_runs(target):
        receipt = receipts.verify(site.opened(folder))
        assert sum(p.stat().st_size for p in folder.iterdir()) < site.LARGEST
        place = out / "runs" / f"{receipt.track}-{receipt.edition}-{receipt.system}-{receipt.run}"
        page = (place / "index.html").read_text(encoding="utf-8")
        assert (out / receipt.track / f"{receipt.system}.html").is_file() and "What each figure counted" in page
        if receipt.track == "kioku":
            assert "No person has reviewed a session" in page or "sessions of v0.1 are reviewed" in page


def test_a_figure_of_a_route_leads_to_what_that_route_counted(many):
    target, out = many
    tables = {t["route"]: t for t in compare.compare(target, resamples=0)["tables"] if t["track"] == "kioku"}
    page = Links((out / "kioku.html").read_text(encoding="utf-8"))
    for route, end in (("raw", ""), ("requests", "-requests"), ("signaled", "-signaled")):
        row = next(r for r in tables[route]["rows"] if r["system"] == "replace-similar")
        for metric in ("old_version_kept", "noise"):
            link = next(
                link for link in page.links if "-replace-similar-" in link and link.endswith(f"/{metric}{end}.html")
            )
            listed = (out / link).read_text(encoding="utf-8")
            figure = next(f for f in row["figures"] if f["name"] == metric)
            assert (
                listed.count("<tr") - 1 == figure["n"] + figure["not_judged"]
                and f"/{route}<" in listed
                and f"route {route}" in listed
            )
    person = (out / link).parent / "en-01-requests.html"
    assert "(route requests)" in person.read_text(
        encoding="utf-8"
    ) and 'href="en-01-signaled.html"' in person.read_text(encoding="utf-8")


def test_every_link_of_a_site_of_all_tracks_leads_somewhere(many):
    _, out = many
    pages = {p.relative_to(out).as_posix(): Links(p.read_text(encoding="utf-8")) for p in out.rglob("*.html")}
    for name, page in pages.items():
        assert not page.outside, (name, page.outside[:3])
        for href in page.links:
            if not href.startswith("https://"):
                path, fragment = urldefrag(unquote(href))
                target = (
                    (out / name).parent.joinpath(path).resolve().relative_to(out.resolve()).as_posix() if path else name
                )
                assert target in pages and (not fragment or fragment in pages[target].ids), (name, href)


def test_the_readme_table_takes_runs_of_the_default_parameters_alone(many, published):
    assert site.readme_table(many[0]) == "" == site.readme_table(published), "two and four personas are not the edition"
    assert not published_here() or site.readme_table(PUBLISHED).count("\n") > 2


def test_tables_of_one_title_say_what_differs(tmp_path):
    root = runs_made.copy(tmp_path)
    for system in ("oracle", "null"):
        runs_made.make(root, system, personas=2)
    titles = [t["title"] for t in compare.compare(root, resamples=0)["tables"]]
    assert sorted(titles) == [
        "kioku · v0.1 · raw conversation · personas 2",
        "kioku · v0.1 · raw conversation · personas 4",
    ]

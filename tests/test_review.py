import json
import shutil
import threading
from pathlib import Path

import pytest

from kiokulab import review
from kiokulab.errors import InputError
from kiokulab.notebooks import execute
from kiokulab.params import edition_digest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def edition(tmp_path):
    return Path(shutil.copytree(REPOSITORY / "data" / "kioku" / "v0.1", tmp_path / "v0.1"))


def test_the_editions_of_the_kit_say_plainly_how_many_sessions_people_have_reviewed():
    for name in ("v0.1", "v1"):
        found = review.summary(name)
        assert found["sessions"] == 300 and review.said(name).startswith(
            "No person has reviewed" if not found["items"] else f"{found['reviewed']} of 300"
        )


def test_a_review_is_appended_and_changes_no_digest(edition):
    before = edition_digest("kioku", str(edition))
    reviews = review.Reviews(edition)
    reviews.say("Ada", "en-01/s03", natural=True, right=False, note="nobody says “houseplant I am proud of”")
    reviews.say("Ada", "ja-01/s01.t01", natural=False)
    reviews.say("Bo", "ja-01/f02", right=True)
    assert edition_digest("kioku", str(edition)) == before == reviews.digest
    again = review.Reviews(edition)
    assert again.rows == reviews.rows and [r["kind"] for r in again.rows] == ["session", "utterance", "fact"]
    assert review.summary(edition) == {
        "sessions": 300,
        "reviewed": 1,
        "people": 2,
        "items": 3,
        "unnatural": 1,
        "wrong": 1,
        "older": 0,
    }
    assert review.said(edition).startswith("1 of 300 sessions of v0.1 are reviewed, by 2 people")


def test_the_later_word_of_a_person_stands_and_the_earlier_line_stays(edition):
    reviews = review.Reviews(edition)
    reviews.say("Ada", "en-01/s03", natural=False)
    reviews.say("Ada", "en-01/s03", natural=True)
    assert reviews.standing()["Ada", "en-01/s03"]["natural"] is True and len(review.read(edition)) == 2
    assert review.summary(edition)["unnatural"] == 0


def test_a_note_alone_is_kept_and_is_no_reviewed_session(edition):
    review.Reviews(edition).say("Ada", "en-01/s03", note="to be looked at again")
    assert review.summary(edition)["reviewed"] == 0 and review.summary(edition)["items"] == 1


@pytest.mark.parametrize(
    "item",
    ["", "en-01", "en-99/s01", "en-01/s99", "en-01/s01.t99", "en-01/s01.t00", "en-01/s01.tx", "en-01/f99", "../s01"],
)
def test_an_item_that_is_not_there_is_bad_input(edition, item):
    with pytest.raises(InputError, match="has no session"):
        review.Reviews(edition).say("Ada", item, right=True)
    assert not (edition / "reviews.jsonl").exists()


def test_nobody_and_nothing_are_bad_input(edition):
    reviews = review.Reviews(edition)
    with pytest.raises(InputError, match="needs a name"):
        reviews.say("  ", "en-01/s01", right=True)
    with pytest.raises(InputError, match="nothing is said"):
        reviews.say("Ada", "en-01/s01", note=" ")


def test_reviews_of_an_edition_that_has_changed_count_for_nothing(edition):
    reviews = review.Reviews(edition)
    reviews.say("Ada", "en-01/s01", right=True)
    rows = [{**row, "digest": "0" * 64} for row in reviews.rows]
    (edition / "reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = review.summary(edition)
    assert found["reviewed"] == found["items"] == 0 and found["older"] == 1


def test_a_torn_last_line_is_named_and_nothing_is_added(edition):
    reviews = review.Reviews(edition)
    reviews.say("Ada", "en-01/s01", right=True)
    path = edition / "reviews.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    torn = path.read_bytes()
    with pytest.raises(InputError, match="torn"):
        reviews.say("Ada", "en-01/s02", right=True)
    assert path.read_bytes() == torn
    with pytest.raises(InputError, match="reviews.jsonl:1"):
        review.Reviews(edition)


@pytest.mark.parametrize("change", [{"who": None}, {"natural": "yes"}, {"kind": "opinion"}, {"right": 2}])
def test_a_line_that_is_no_review_is_named(edition, change):
    reviews = review.Reviews(edition)
    row = reviews.say("Ada", "en-01/s01", right=True)
    (edition / "reviews.jsonl").write_text(json.dumps({**row, **change}) + "\n")
    with pytest.raises(InputError, match="reviews.jsonl:1: not a review"):
        review.read(edition)


def test_people_who_save_at_the_same_time_lose_nothing(edition):
    (edition / "reviews.jsonl").write_text("")
    row = {"who": "x", "note": "y" * 5000}
    threads = [
        threading.Thread(
            target=lambda n=n: [review.append(edition / "reviews.jsonl", {**row, "n": (n, m)}) for m in range(20)]
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [json.loads(line) for line in (edition / "reviews.jsonl").read_bytes().splitlines()]
    assert sorted(tuple(r["n"]) for r in rows) == [(n, m) for n in range(4) for m in range(20)]


def test_hostile_names_and_notes_are_text(edition):
    reviews = review.Reviews(edition)
    reviews.say(
        "<script>alert(1)</script>", "en-01/s01", right=False, note="<img src=x onerror=alert(1)> \u202e \udcff\n# x"
    )
    shown = review.page(review.Reviews(edition), "en-01/s01")
    assert "<script>" not in shown and "<img" not in shown and "&lt;script&gt;" in shown and "\u202e" not in shown


def test_a_session_stands_beside_the_ledger_as_it_is_by_then(edition):
    reviews = review.Reviews(edition)
    person = reviews.people["en-01"]
    fact = next(f for f in person.facts if f.change == "full")
    first, second = fact.versions[0].valid_from, fact.versions[1].valid_from
    for session, states in ((first, ("true", "not yet said")), (second, ("no longer true", "true"))):
        rows = review.page(reviews, f"en-01/{session}").split("<tr")
        for version, state in zip(fact.versions, states):
            (row,) = [r for r in rows if f"<td>{fact.id}.{version.n}</td>" in r]
            assert f"<td>{state}</td>" in row
            assert state != "true" or row.startswith(' class="here"')


def test_the_widgets_step_save_and_say_what_is_missing(edition):
    panel = review.panel(edition).panel
    assert "0 of 300" in panel.progress.value and panel.item == "en-01/s01"
    panel.right.value = True
    panel.save.click()
    assert "needs a name" in panel.answer.value and not (edition / "reviews.jsonl").exists()
    panel.who.value = "Ada"
    panel.natural.value = False
    panel.note.value = "stiff"
    panel.save.click()
    assert (
        "saved: en-01/s01" in panel.answer.value and "1 of 300" in panel.progress.value and "stiff" in panel.shown.value
    )
    panel.open.click()
    assert panel.item == "en-01/s02" and panel.right.value is None and panel.note.value == ""
    panel.back.click()
    assert (
        panel.item == "en-01/s01"
        and panel.right.value is True
        and panel.natural.value is False
        and panel.note.value == "stiff"
    )
    panel.back.click()
    assert panel.item == "ja-05/s30"
    panel.target.value = panel.target.options[1][1]
    panel.natural.value = True
    panel.save.click()
    row = review.read(edition)[-1]
    assert (row["item"], row["kind"], row["natural"], row["right"]) == (
        "ja-05/s30.t01",
        "utterance",
        True,
        None,
    ) and panel.target.value == "ja-05/s30.t01"


@pytest.mark.timeout(300)
def test_the_notebook_runs(edition, tmp_path):
    done = execute(REPOSITORY / "notebooks" / "review.ipynb", tmp_path / "out.ipynb", {"edition": str(edition)})
    shown = json.dumps(done, ensure_ascii=False)
    assert (
        "No person has reviewed a session of v0.1 yet (0 of 300)" in shown
        and "application/vnd.jupyter.widget-view+json" in shown
    )

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_mini import record, write

from kiokulab.errors import InputError
from kiokulab.verdict import TYPES, dataset


def test_a_record_is_read_without_what_tells_where_the_answer_lies():
    question = dataset.parse_record(record(), 0, "f.json")
    assert [session.id for session in question.sessions] == ["s001", "s002", "s003"]
    assert question.evidence == ("s002",)
    seen = repr(question.sessions)
    assert "answer_ab" not in seen and "sharegpt" not in seen and "has_answer" not in seen
    assert question.date == "2023-05-30T21:48:00+00:00"
    assert question.sessions[0].turns[0].role == "assistant"  # some filler sessions begin so


def test_an_oracle_file_is_not_sorted_and_sessions_are_put_in_the_order_of_their_dates():
    row = record(haystack_dates=["2023/05/20 (Sat) 10:00", "2023/05/10 (Wed) 09:30", "2023/05/02 (Tue) 08:00"])
    question = dataset.parse_record(row, 0, "f.json")
    assert [s.date[:10] for s in question.sessions] == ["2023-05-02", "2023-05-10", "2023-05-20"]
    assert "crepes" in question.sessions[0].turns[0].text and question.evidence == ("s002",)


def test_a_question_dated_before_its_evidence_keeps_every_session():
    question = dataset.parse_record(record(question_date="2023/05/10 (Wed) 08:08"), 0, "f.json")
    assert len(question.sessions) == 3 and question.evidence == ("s002",)


def test_an_integer_answer_becomes_its_text_and_a_flag_does_not():
    assert dataset.parse_record(record(answer=3), 0, "f.json").answer == "3"
    with pytest.raises(InputError, match="bool"):
        dataset.parse_record(record(answer=True), 0, "f.json")


@pytest.mark.parametrize("kind", TYPES)
def test_abstention_is_in_the_id_alone_and_never_a_rubric(kind):
    plain, absent = (dataset.parse_record(record(name, kind), 0, "f.json") for name in ("q7", "q7_abs"))
    assert (plain.abstention, absent.abstention) == (False, True)
    assert plain.rubric is (kind == "single-session-preference") and absent.rubric is False and absent.type == kind


BROKEN = {
    "short_date_list": (dict(haystack_dates=["2023/05/02 (Tue) 08:00"]), "one length"),
    "no_session": (dict(haystack_dates=[], haystack_sessions=[], haystack_session_ids=[]), "no session"),
    "session_id_twice": (dict(haystack_session_ids=["a", "a", "b"]), "stands twice"),
    "unknown_type": (dict(question_type="multi_session"), "unknown question_type"),
    "date_without_weekday": (dict(question_date="2023/05/30 21:48"), "not a date"),
    "date_that_is_none": (dict(haystack_dates=["2023/02/30 (Thu) 08:00"] * 3), "day"),
    "turn_without_role": (dict(haystack_sessions=[[{"content": "x"}], [], []]), "role"),
    "blank_id": (dict(question_id=" "), "blank"),
    "list_answer": (dict(answer=["a"]), "list"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_refused_with_its_place(name, tmp_path):
    changes, message = BROKEN[name]
    path = write(tmp_path / "file.json", [record("q0"), record("q1", **{k: v for k, v in changes.items()})])
    with pytest.raises(InputError, match=message) as caught:
        dataset.manifest(path)
    assert "file.json[1]" in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize("field", sorted(record()))
def test_a_missing_field_is_named(field, tmp_path):
    row = record()
    del row[field]
    with pytest.raises(InputError, match=f"field {field} is missing"):
        dataset.manifest(write(tmp_path / "f.json", [row]))


def test_an_id_that_stands_twice_is_refused_with_both_places(tmp_path):
    with pytest.raises(InputError, match=r"f.json\[2\].*twice.*First at \[0\]"):
        dataset.manifest(write(tmp_path / "f.json", [record("a"), record("b"), record("a")]))


def test_a_torn_file_gives_no_smaller_denominator(tmp_path):
    path = write(tmp_path / "f.json", [record("a"), record("b")])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="not a whole JSON list"):
        dataset.manifest(path)


@pytest.mark.parametrize("content", [b"[]", b"{}", b"", b'{"a": [1]}'])
def test_a_file_without_records_is_refused(content, tmp_path):
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(InputError):
        dataset.manifest(tmp_path / "f.json")


def test_an_unknown_file_needs_a_label_and_a_known_one_has_a_name(tmp_path):
    path = write(tmp_path / "f.json", [record()])
    with pytest.raises(InputError, match="LABEL"):
        dataset.identify(path)
    assert dataset.identify(path, "my own")[1:] == ("my own", False)
    with pytest.raises(InputError, match="data-longmemeval"):
        dataset.identify(tmp_path / "nothing.json")


def test_the_genuine_questions_are_known_and_whole(shared):
    path = shared("longmemeval/derived/longmemeval_sample_23.json")
    assert dataset.identify(path)[2] is False  # re-assembled: never called official
    rows = dataset.manifest(path)
    assert (
        len(rows) == 23 and sum(row["abstention"] for row in rows) == 5 and {row["type"] for row in rows} == set(TYPES)
    )
    assert max(row["sessions"] for row in rows) == 53


def test_only_wanted_records_are_made(tmp_path):
    path = write(tmp_path / "f.json", [record("a"), record("b", haystack_dates=[]), record("c")])
    assert [q.id for q in dataset.stream(path, {"c", "a"})] == ["a", "c"]


@settings(deadline=None)
@given(st.datetimes(min_value=__import__("datetime").datetime(1900, 1, 1)))
def test_a_date_survives_both_ways(when):
    iso = when.replace(second=0, microsecond=0).isoformat() + "+00:00"
    assert dataset.parse_date(dataset.show_date(iso), "here") == iso


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda c: st.lists(c, max_size=4) | st.dictionaries(st.sampled_from(sorted(record())), c, max_size=4),
        max_leaves=8,
    )
)
def test_whatever_a_record_is_it_is_refused_and_not_a_crash(value):
    row = {**record(), **value} if isinstance(value, dict) else value
    try:
        dataset.parse_record(row, 0, "f.json")
    except InputError as error:
        assert "f.json[0]" in str(error)


def test_weekdays_are_not_checked_against_the_calendar_but_text_that_is_no_date_is():
    assert dataset.parse_date("2023/05/30 (Mon) 21:48", "x")  # the file's own weekday is decoration
    for text in ("2023/05/30 (Tue)", "2023-05-30 21:48", "", None, 5, "2023/05/30 (Tue) 21:48:00"):
        with pytest.raises(InputError):
            dataset.parse_date(text, "x")


def test_lone_surrogates_and_long_lines_pass_through(tmp_path):
    row = record(
        haystack_sessions=[[{"role": "user", "content": "x" * 1_000_000}], [{"role": "user", "content": "\ud83d"}], []]
    )
    (tmp_path / "f.json").write_text(json.dumps([row]))
    question = next(dataset.stream(tmp_path / "f.json"))
    assert len(question.sessions[0].turns[0].text) == 1_000_000


def test_the_files_help_names_digests_and_tells_what_a_file_is(tmp_path):
    from kiokulab.verdict import fetch

    assert "d6f21ea9d60a0d56f34a05b609c79c88a451d2ae03597821ea3d5a9678c3a442" in fetch.help_and_check()
    said = fetch.help_and_check(str(write(tmp_path / "f.json", [record("a"), record("b_abs")])))
    assert "2 questions" in said and "1 to be declined" in said and "not an official file" in said
    with pytest.raises(InputError):
        fetch.help_and_check(str(tmp_path / "none.json"))

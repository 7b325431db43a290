import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab.verdict import TYPES, grade


@pytest.mark.parametrize(
    "reply, official, strict",
    [
        ("Yes", True, True),
        ("no.", False, False),
        ("  **Yes**, it does", True, True),
        ("Yesterday's news: no", True, None),
        ("No, not yes", True, False),
        ("INCORRECT", False, None),
        ("I think yes", True, None),
        ("", None, None),
        ("  \n", None, None),
        (None, None, None),
        ('"No"', False, False),
        ("nope", False, None),
    ],
)
def test_both_readings_of_a_judges_words(reply, official, strict):
    assert grade.official_parse(reply) is official and grade.strict_parse(reply) is strict


def test_metrics_of_all_six_types_by_hand():
    rows = [
        {"id": "a", "type": TYPES[0], "correct": True},
        {"id": "b_abs", "type": TYPES[0], "correct": False},
        {"id": "c", "type": TYPES[3], "correct": True},
    ]
    found = grade.accuracy(rows)
    assert (
        found["overall"] == {"k": 2, "n": 3, "rate": 2 / 3}
        and found["task_averaged"] == 0.75
        and found["types_present"] == 2
    )
    assert found["abstention"] == {"k": 0, "n": 1, "rate": 0.0} and found["by_type"][TYPES[0]]["n"] == 2
    assert grade.accuracy([])["overall"]["rate"] is None and grade.accuracy([])["task_averaged"] is None


def test_what_was_not_judged_cannot_slip_into_a_rate():
    with pytest.raises(ValueError, match="no verdict"):
        grade.accuracy([{"id": "a", "type": TYPES[0], "correct": None}])


@settings(deadline=None)
@given(st.lists(st.sampled_from([True, False, None]), max_size=4))
def test_a_panel_never_guesses(votes):
    verdict = grade.majority(votes)
    if votes.count(True) < 2 and votes.count(False) < 2:
        assert verdict is None
    if len(votes) == 3 and None not in votes:
        assert verdict is (votes.count(True) > votes.count(False))

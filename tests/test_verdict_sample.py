import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab.errors import InputError
from kiokulab.verdict import sample

LONGMEMEVAL = {
    "multi-session": 133,
    "temporal-reasoning": 133,
    "knowledge-update": 78,
    "single-session-user": 70,
    "single-session-assistant": 56,
    "single-session-preference": 30,
}


def rows_of(counts):
    return [{"id": f"{name[:2]}{name[-2:]}{n}", "type": name} for name, count in counts.items() for n in range(count)]


def test_thirty_of_five_hundred_are_the_pilots_seats():
    assert sample.quotas(LONGMEMEVAL, 30) == dict(zip(LONGMEMEVAL, (8, 8, 5, 4, 3, 2)))


@settings(deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 200), min_size=1, max_size=7), st.integers(1, 50)
)
def test_seats_add_up_stay_within_one_of_the_quota_and_never_exceed_a_stratum(counts, n):
    total = sum(counts.values())
    if n > total:
        with pytest.raises(InputError):
            sample.quotas(counts, n)
        return
    seats = sample.quotas(counts, n)
    assert sum(seats.values()) == n
    for name, count in counts.items():
        assert abs(seats[name] - count * n / total) < 1 and seats[name] <= count


def test_the_sample_depends_on_seed_and_ids_and_not_on_file_order():
    rows = rows_of(LONGMEMEVAL)
    first = sample.draw(rows, 30, 1)
    assert first == sample.draw(list(reversed(rows)), 30, 1) and len(set(first)) == 30
    assert first != sample.draw(rows, 30, 2)
    assert sample.draw(rows, 0, 1) == sorted(row["id"] for row in rows)
    assert sample.digest_of(first) == sample.digest_of(list(reversed(first)))


def test_more_than_there_are_is_refused():
    for n in (501, -1):
        with pytest.raises(InputError, match="cannot be drawn"):
            sample.draw(rows_of(LONGMEMEVAL), n, 1)


def test_the_genuine_manifest_gives_the_same_seats(shared):
    with open(shared("longmemeval/derived/longmemeval_s_500_manifest.csv"), encoding="utf-8") as file:
        rows = [{"id": row["question_id"], "type": row["question_type"]} for row in csv.DictReader(file)]
    types = {row["id"]: row["type"] for row in rows}
    found = [types[i] for i in sample.draw(rows, 30, 1)]
    assert {name: found.count(name) for name in LONGMEMEVAL} == dict(zip(LONGMEMEVAL, (8, 8, 5, 4, 3, 2)))


def test_an_id_file_mirrors_somebody_elses_sample(tmp_path):
    rows = rows_of({"multi-session": 3})
    path = tmp_path / "ids.txt"
    path.write_text("# theirs\nmuon2\n\n muon0 # the first\n")
    assert sample.from_file(path, rows) == ["muon0", "muon2"]
    for text, message in (
        ("muon0\nxx\n", "ids.txt:2.*not in the data"),
        ("muon0\nmuon0\n", "ids.txt:2.*First in line 1"),
        ("# none\n", "names no question"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            sample.from_file(path, rows)
    with pytest.raises(InputError, match="cannot be read"):
        sample.from_file(tmp_path / "nothing", rows)

"""The published arithmetic of KiokuBench, and that a wrong digit in it would be noticed."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiokulab import reproduce
from kiokulab.errors import InputError, VerificationFailed

TABLES = reproduce.published()
PAGE = {
    "sepiace": (96.1, 98.7, 98.0, 100.0, 88.3),
    "Supermemory": (58.9, 95.3, 95.0, 22.0, 60.5),
    "Mem0": (8.5, 96.3, 0.0, 0.0, 55.0),
    "ByteRover": (39.2, 72.3, 19.0, 62.0, 27.7),
    "Store everything": (8.0, 99.0, 0.0, 0.0, 41.7),
}


def test_all_three_tables_are_there():
    assert (len(TABLES["index"]), len(TABLES["routes"]), len(TABLES["languages"])) == (5, 14, 24)
    assert all(row.get("footnote") in (None, *TABLES["footnotes"]) for row in TABLES["routes"] + TABLES["languages"])
    assert TABLES["source"] and TABLES["judge"] and set(TABLES["dates"]) == set(PAGE)


@pytest.mark.parametrize("system", PAGE)
def test_each_row_comes_out_as_the_page_has_it(system):
    rates = next(r for r in TABLES["routes"] if r["system"] == system and r["route"] in ("raw", "baseline"))
    got = reproduce._figures(rates)
    assert tuple(round(got[n], 1) for n in ("index", "remember", "replace", "forget", "tidy")) == PAGE[system]
    row = next(r for r in TABLES["index"] if r["system"] == system)
    assert tuple(row[n] for n in ("index", "remember", "replace", "forget", "tidy")) == PAGE[system]


def test_it_passes_and_prints_both_readings(capsys):
    text = reproduce.reproduce("kioku")
    assert text in capsys.readouterr().out and "58.9" in text and "59.1 to 59.4" in text


@pytest.mark.parametrize(
    "table, where, name, value, says",
    [
        ("index", 0, "index", 96.2, "sepiace, index"),
        ("index", 1, "forget", 22.6, "Supermemory, forget"),
        ("routes", 3, "old_version_kept", 80, "ByteRover"),
        ("routes", 1, "forget_violation", 79, "no whole count of 40 is printed as 79 %"),
        ("languages", 3, "recall", 90, "do not make 85 %"),
    ],
)
def test_a_changed_digit_is_named(monkeypatch, table, where, name, value, says):
    changed = copy.deepcopy(TABLES)
    changed[table][where][name] = value
    monkeypatch.setattr(reproduce, "published", lambda name="kiokubench": changed)
    with pytest.raises(VerificationFailed) as caught:
        reproduce.reproduce("kioku")
    assert caught.value.exit_code == 6 and says in str(caught.value)


def test_an_unknown_track_is_bad_input():
    with pytest.raises(InputError):
        reproduce.reproduce("nothing")


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_count_fits_what_it_is_printed_as(share):
    k, n = share
    assert k in reproduce.fitting(reproduce.rounds_to(k, n), n)


def test_halves_go_up():
    assert reproduce.rounds_to(31, 40) == 78 and reproduce.rounds_to(15, 40) == 38 and reproduce.rounds_to(1, 200) == 1

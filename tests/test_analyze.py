"""From rows to metrics.json: the page's arithmetic, the three ways not to have a figure, and what lies beyond the
page."""

from __future__ import annotations

import copy
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kioku_rows import params, persona, personas, rows

from kiokulab.errors import InputError
from kiokulab.files import dumps
from kiokulab.kioku import analyze, compare

PAGE = {"sepiace": 96.1, "Supermemory": 58.9, "Mem0": 8.5, "ByteRover": 39.2, "Store everything": 8.0}


def of(kind, **changes):
    return analyze.metrics(rows(kind), personas(), params(**changes))


def shares(found):
    return {name: f["rate"] for name, f in found["metrics"].items()}


def test_a_perfect_store():
    found = of("perfect")
    assert shares(found) == {
        "recall": 1,
        "update_applied": 1,
        "old_version_kept": 0,
        "forget_violation": 0,
        "noise": 0,
        "language_mismatch": 0,
        "check_questions": 1,
        "compression": 1,
    }
    assert found["index"]["value"] == 100 and compare.oracle_faults(found) == []
    assert found["metrics"]["recall"] == {
        "k": 36,
        "n": 36,
        "rate": 1,
        "low": pytest.approx(0.9036, abs=1e-4),
        "high": 1,
        "not_judged": 0,
        "worst": 1,
        "reason": None,
    }
    assert found["metrics"]["update_applied"]["n"] == 12 and found["metrics"]["forget_violation"]["n"] == 6


def test_storing_everything():
    found = of("everything")
    assert shares(found) | {"noise": 0, "compression": 0, "language_mismatch": 0} == {
        "recall": 1,
        "update_applied": 1,
        "old_version_kept": 1,
        "forget_violation": 1,
        "noise": 0,
        "language_mismatch": 0,
        "check_questions": 1,
        "compression": 0,
    }
    assert found["metrics"]["noise"]["k"] == 6 * 30 and found["metrics"]["noise"]["n"] == 6 * 39
    assert found["metrics"]["language_mismatch"]["k"] == 3 * 30
    assert found["beyond"]["leak_questions"]["k"] == 6 and len(compare.oracle_faults(found)) == 4


def test_an_empty_store_gets_31_6_and_is_flagged():
    found = of("nothing")
    assert round(found["index"]["value"], 1) == 31.6 and found["index"]["empty_store"]
    noise = found["metrics"]["noise"]
    assert (noise["k"], noise["n"], noise["rate"]) == (0, 0, None) and "nothing is stored" in noise["reason"]
    assert found["metrics"]["compression"]["rate"] == 0
    assert "Nothing is stored" in analyze.printed(found)


@pytest.mark.parametrize("floor, index", [(0.001, 2.7), (0.01, 8.5), (0.05, 19.1)])
def test_the_floor_decides_much_of_mem0s_index(floor, index):
    page = {
        "recall": 1,
        "update_applied": 1,
        "old_version_kept": 1,
        "forget_violation": 1,
        "noise": 0.47,
        "language_mismatch": 0.09,
        "check_questions": 0.89,
        "compression": 4.78,
    }
    assert round(float(analyze.index_of(page, floor)["index"]), 1) == index


def test_old_versions_in_a_change_log_count_as_kept_and_are_shown_apart():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "version" and row["fact"] == "f05" and row["version"] == 1:
            row["verdict"], row["how"] = "partial", "history"
    found = analyze.metrics(some, personas(), params())
    split = found["beyond"]["old_version_split"]
    assert found["metrics"]["old_version_kept"]["k"] == 6 and (split["held"]["k"], split["history"]["k"]) == (0, 6)
    assert found["live"]["metrics"]["old_version_kept"]["k"] == 0
    assert found["beyond"]["changes"]["full"]["old_version_in_history"]["k"] == 6
    assert found["beyond"]["changes"]["partial"]["old_version_kept"]["k"] == 0


def test_a_partly_stated_fact_is_not_held():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "version" and row["fact"] == "f01":
            row["verdict"], row["how"] = "partial", "surface"
    assert analyze.metrics(some, personas(), params())["metrics"]["recall"]["k"] == 30


def test_partial_changes_are_reported_apart():
    changes = of("tidy")["beyond"]["changes"]
    assert changes["full"]["old_version_kept"]["k"] == 0 and changes["partial"]["old_version_kept"]["k"] == 6
    assert changes["partial"]["stale_answers"]["k"] == 6 and changes["full"]["check_questions"]["k"] == 6


def test_what_was_not_judged_is_in_no_rate_and_in_the_worse_case():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "version" and row["fact"] in ("f01", "f07"):
            row["verdict"], row["reason"] = "not_judged", "judge timed out"
        if row["kind"] == "answer" and row["fact"] == "f02":
            row["verdict"], row["reason"] = "not_judged", "no reply"
    found = analyze.metrics(some, personas(), params())
    recall, forget = found["metrics"]["recall"], found["metrics"]["forget_violation"]
    assert (recall["k"], recall["n"], recall["not_judged"]) == (30, 30, 6) and recall["worst"] == pytest.approx(
        30 / 36, abs=1e-6
    )
    assert forget["rate"] is None and forget["worst"] == 1 and forget["reason"] == "none of 6 was judged"
    assert found["index"]["value"] is None and found["index"]["worst"] < 40
    assert found["beyond"]["not_judged"] == {"answer": {"no reply": 6}, "version": {"judge timed out": 12}}


def test_a_version_without_a_row_is_not_absent():
    some = [r for r in rows("perfect") if not (r["kind"] == "version" and r["fact"] == "f01")]
    recall = analyze.metrics(some, personas(), params())["metrics"]["recall"]
    assert (recall["k"], recall["n"], recall["not_judged"]) == (30, 30, 6)


def test_a_store_that_cannot_be_listed_is_not_applicable_with_its_reason():
    some = [r for r in rows("perfect") if r["kind"] in ("answer", "size", "judge")]
    for row in some:
        if row["kind"] == "size":
            row["status"], row["reason"] = "unsupported", "the API cannot list"
    found = analyze.metrics(some, personas(), params())
    assert found["metrics"]["recall"]["rate"] is None and "the API cannot list" in found["metrics"]["recall"]["reason"]
    assert found["metrics"]["recall"]["not_judged"] == 0 and found["metrics"]["check_questions"]["rate"] == 1
    assert found["pillars"] == {"remember": None, "replace": None, "forget": None, "tidy": None}
    assert (
        found["index"]["value"] is None and not found["index"]["empty_store"] and len(found["units"]["unreadable"]) == 6
    )


def test_a_system_without_search_is_not_applicable():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "answer":
            row["verdict"], row["reason"] = "unsupported", "no search call"
    found = analyze.metrics(some, personas(), params())
    assert found["metrics"]["check_questions"]["reason"] == "no search call" and found["metrics"]["recall"]["rate"] == 1
    assert found["pillars"]["remember"] is None and found["pillars"]["replace"] == 1


def test_a_system_that_was_never_asked_to_forget_is_not_applicable():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "version" and row["fact"] == "f07":
            row["verdict"] = row["live"] = "not_judged"
            row["reason"] = "forget: the system has no forget call"
    found = analyze.metrics(some, personas(), params(routing="forget"))
    forget = found["metrics"]["forget_violation"]
    assert (forget["rate"], forget["not_judged"], forget["reason"]) == (
        None,
        0,
        "forget: the system has no forget call",
    )
    assert found["pillars"]["forget"] is None and found["index"]["worst"] is None and found["pillars"]["replace"] == 1


def test_an_edition_without_changes_has_no_replace_pillar():
    people = [persona("en-01", "en", facts=4)]
    found = analyze.metrics(rows("perfect", people), people, params())
    assert found["pillars"]["replace"] is None and found["index"]["value"] is None
    assert "the edition changes no fact" in found["index"]["reason"]


def test_units_that_failed_are_named_and_leave_the_denominators():
    people = personas()
    found = analyze.metrics(rows("perfect", people[1:]), people, params(), failed={"en-01/raw": "worker died"})
    assert found["units"] == {
        "planned": 6,
        "finished": 5,
        "unreadable": [],
        "failed": [{"unit": "en-01/raw", "reason": "worker died"}],
    }
    assert found["metrics"]["recall"]["n"] == 30 and "failed en-01/raw: worker died" in analyze.printed(found)


def test_no_unit_at_all_gives_no_figure():
    found = analyze.metrics([], personas(), params())
    assert found["index"]["value"] is None and len(found["units"]["failed"]) == 6


def test_routes_and_languages():
    both = rows("perfect") + rows("everything", route="requests")[:-1]
    found = analyze.metrics(both, personas(), params(route="all"))
    assert list(found["by_route"]) == ["raw", "requests"] and found["route"] == "raw"
    assert (
        found["by_route"]["requests"]["metrics"]["forget_violation"]["k"] == 6
        and found["metrics"]["forget_violation"]["k"] == 0
    )
    assert found["by_language"]["en"]["metrics"]["recall"]["n"] == 18
    assert [u["unit"] for u in found["units"]["failed"]] == [f"{p.id}/signaled" for p in personas()]


def test_layers_only_live_text_counts_in_live():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "sentence" and row["states"] == ["f01.1"]:
            row["layer"], row["states"] = "derived", []
        if row["kind"] == "sentence" and row["states"] == ["f02.1"]:
            row["layer"], row["states"] = "log", []
    found = analyze.metrics(some, personas(), params())
    assert (found["metrics"]["noise"]["k"], found["metrics"]["noise"]["n"]) == (6, 30)
    assert (found["live"]["metrics"]["noise"]["k"], found["live"]["metrics"]["noise"]["n"]) == (0, 24)


def test_rows_of_an_unknown_persona_are_refused():
    with pytest.raises(InputError, match="not in the dataset"):
        analyze.metrics(rows("perfect"), personas()[:2], params())


def event(op, **more):
    return {
        "unit": "en-01/raw",
        "persona": "en-01",
        "route": "raw",
        "seq": 1,
        "op": op,
        "item": None,
        "seconds": 1.0,
        "status": "ok",
        "added": None,
        "changed": None,
        "removed": None,
        "detail": {},
        "warnings": [],
        **more,
    }


def seen(added, changed, removed, **more):
    return {"observed": {"added": added, "changed": changed, "removed": removed}, "over": 1, **more}


def test_yield_counts_calls_that_report_success_and_change_nothing():
    events = [
        event("ingest", added=2, changed=0, removed=0, detail=seen(1, 0, 0, no_op=0)),
        event("ingest", added=1, changed=0, removed=0, detail=seen(0, 0, 0, no_op=1)),
        event("ingest", warnings=["full"]),
        event("ingest", status="failed"),
        event("reread", added=0, changed=1, removed=0),
    ]
    found = analyze.metrics(rows("tidy"), personas(), params(), events=events)["beyond"]
    assert found["yield"] == {
        "calls": 4,
        "failed": 1,
        "unsupported": 0,
        "warning_kinds": {"full": 1},
        "warnings": 1,
        "told": {"added": 3, "changed": 0, "removed": 0},
        "seen": {"added": 1, "changed": 0, "removed": 0},
        "no_op": 1,
    }
    assert found["reading"]["changed_units"] == 1


def test_collateral_is_what_was_seen_going_away():
    some = rows("perfect")
    for row in some:
        if row["kind"] == "version" and row["fact"] in ("f02", "f03") and row["persona"] == "en-01":
            row["verdict"] = row["live"] = "absent"
    lost = analyze.metrics(some, personas(), params())["beyond"]["collateral"]
    assert lost["lost"]["rate"] is None and "not listed" in lost["lost"]["reason"]
    assert lost["untouched_absent_at_end"]["k"] == 2
    gone = [
        {"id": "m1", "layer": "live", "text": "user: The swim is\n at 2"},
        {"id": "m2", "layer": "live", "text": "The swim is at 1"},
    ]
    events = [event("ingest", item="s03", detail=seen(0, 0, 2, gone=gone))]
    lost = analyze.metrics(some, personas(), params(), events=events)["beyond"]["collateral"]["lost"]
    # f02 went away and is missing; f01 went away and is there; f03 was never seen
    assert (lost["k"], lost["n"]) == (
        1,
        4,
    )


def test_residue_is_told_by_kind_of_file():
    detail = {
        "forgotten": {"n": 2, "found": {"f07": ["sqlite", "log"]}, "not_searchable": []},
        "files": 3,
        "bytes": 100,
        "replaced": {"n": 2, "found": {}, "not_searchable": ["f06"]},
    }
    found = analyze.metrics(rows("tidy"), personas(), params(), events=[event("residue", detail=detail)])["beyond"][
        "residue"
    ]
    assert found["forgotten"]["kinds"] == {"log": 1, "sqlite": 1} and (
        found["forgotten"]["k"],
        found["forgotten"]["n"],
    ) == (1, 2)
    assert found["replaced"]["k"] == 0 and found["replaced"]["not_searchable"] == 1 and found["files"] == 3
    empty = analyze.metrics(rows("tidy"), personas(), params())["beyond"]["residue"]
    assert empty["units"] == 0 and empty["reason"] == "no store folder was searched"


def test_the_same_rows_in_any_order_give_the_same_bytes():
    some = rows("tidy")
    mixed = copy.deepcopy(some)
    random.Random(3).shuffle(mixed)
    one, other = (dumps(analyze.metrics(r, personas(), params())) for r in (some, mixed))
    assert one == other and "nan" not in one.lower().replace("unanswered", "")


def test_the_index_has_an_interval_that_holds_it():
    some = rows("tidy", personas()[:3]) + rows("everything", personas()[3:])[:-1]
    index = analyze.metrics(some, personas(), params())["index"]
    assert index["low"] <= index["value"] <= index["high"] and index["floors"]["0.05"] >= index["floors"]["0.001"]


unit = st.floats(0, 1)


@settings(max_examples=200)
@given(st.fixed_dictionaries({name: unit for name in analyze.METRICS[:-1]} | {"compression": st.floats(0, 100)}), unit)
def test_index_properties(rates, better):
    whole = analyze.index_of(rates)
    assert 1 - 1e-9 <= whole["index"] <= 100 + 1e-9
    assert all(0 <= whole[p] <= 1 + 1e-9 for p in analyze.PILLARS)
    assert analyze.index_of({**rates, "recall": max(rates["recall"], better)})["index"] >= whole["index"] - 1e-9
    assert analyze.index_of({**rates, "noise": max(rates["noise"], better)})["index"] <= whole["index"] + 1e-9
    assert math.isnan(analyze.index_of({**rates, "noise": None})["index"])


def runs(*kinds):
    people = personas()
    return [
        compare.Run(
            kind,
            f"{i:012x}",
            analyze.metrics(rows(kind), people, params(system=kind)),
            analyze.units_of(rows(kind), people),
        )
        for i, kind in enumerate(kinds)
    ]


def test_paired_tests_between_systems():
    found = compare.comparison(runs("tidy", "everything", "nothing"), seed=1, resamples=200, floor=0.01)["by_route"][
        "raw"
    ]
    old = {(p["a"], p["b"]): p for p in found["metrics"]["old_version_kept"]["pairs"]}
    assert (
        found["pairs"] == 3
        and old["tidy", "everything"]["only_a"] == 6
        and old["tidy", "everything"]["p"] == pytest.approx(2 / 64)
    )
    assert old["tidy", "everything"]["holm"] >= old["tidy", "everything"]["p"]
    assert {p["verdict"] for p in found["metrics"]["recall"]["pairs"] if "nothing" not in (p["a"], p["b"])} == {
        "identical"
    }
    assert any(d["apart"] for d in found["index"]) and set(found["ranks"]) == {"tidy", "everything", "nothing"}


def test_an_oracle_that_falls_short_refuses_the_table():
    people, broken = personas(), rows("perfect")
    next(r for r in broken if r["kind"] == "version" and r["fact"] == "f01")["verdict"] = "absent"
    bad = compare.Run(
        "oracle", "0" * 12, analyze.metrics(broken, people, params(system="oracle")), analyze.units_of(broken, people)
    )
    found = compare.comparison([*runs("tidy"), bad], seed=1, resamples=10, floor=0.01)
    assert found["checked"] and found["refused"] == [
        "oracle (000000000000): recall is 97.2 % (35/36) on route raw; it must be 100 %"
    ]
    assert compare.comparison(runs("tidy"), seed=1, resamples=10, floor=0.01)["checked"] is False


def test_the_same_system_twice_keeps_two_names():
    found = compare.comparison([*runs("tidy"), *runs("everything", "tidy")[1:]], seed=1, resamples=10, floor=0.01)
    assert len({s["label"] for s in found["systems"]}) == 2


def test_every_printed_rate_has_its_counts(tmp_path):
    found = of("tidy")
    text = analyze.printed(found)
    for name, figure in found["metrics"].items():
        assert f"{figure['k']}/{figure['n']}" in text and analyze.TITLES[name] in text
    folder = tmp_path / "vector" / "abc"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(found))
    assert "36/36" in analyze.summary([folder]) and "not analysed" in analyze.summary([tmp_path / "x" / "y"])

import json
import re

import pytest
from drift_mini import hit, mini, silent
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab.drift import analyze, arms, generate, ingest, judge, report
from kiokulab.drift.ingest import replay
from kiokulab.drift.params import DriftParams
from kiokulab.drift.script import Recalled
from kiokulab.files import write_jsonl


def finished(folder, system, scripts=None, transcripts=None, **more):
    """A run folder with steps 1 to 3 done in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    scripts = scripts or [generate.generate(30, 1, language) for language in generate.LANGUAGES]
    write_jsonl(folder / "dataset.jsonl", [generate.script_row(script) for script in scripts])
    made = transcripts or [replay(script, arms.make(system, script)) for script in scripts]
    write_jsonl(
        folder / "contexts.jsonl",
        [row for script, t in zip(scripts, made, strict=True) for row in ingest.transcript_rows(script.name, t)],
    )
    params = DriftParams(system=system, bootstrap=200, **more)
    judge.run(folder, params)
    return params


def test_a_run_of_one_world_has_the_public_receipt_by_its_own_names(tmp_path):
    script = generate.generate(30, 1, "en")
    params = finished(tmp_path, "tfidf", [script])
    analyze.run(tmp_path, params)
    found = json.loads((tmp_path / "metrics.json").read_text())
    receipt = analyze.rounded(
        judge.without_times(judge.grade(script, replay(script, arms.make("tfidf", script))).receipt)
    )
    assert {name: found[name] for name in receipt} == receipt
    assert set(receipt) >= {
        "arm",
        "script_digest",
        "tasks",
        "attempted",
        "passed",
        "score",
        "tokens_billed",
        "families",
        "failed",
    }


def test_no_wall_time_is_in_the_figures_and_the_same_rows_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        analyze.run(tmp_path / name, finished(tmp_path / name, "grep"))
    assert (tmp_path / "one/metrics.json").read_bytes() == (tmp_path / "two/metrics.json").read_bytes()
    assert not re.search(r"_ms|timing|seconds", (tmp_path / "one/metrics.json").read_text().replace(" seconds", ""))


def test_figures_are_derived_again_from_the_rows(tmp_path):
    params = finished(tmp_path, "grep")
    analyze.run(tmp_path, params)
    assert analyze.rederive(tmp_path, params) == json.loads((tmp_path / "metrics.json").read_text())
    text = analyze.printed(analyze.rederive(tmp_path, params))
    assert "a memory that answers nothing scores 300" in text and "worlds: 2 of 2" in text


def test_several_worlds_are_summed_and_their_scores_averaged(tmp_path):
    params = finished(tmp_path, "grep")
    found = analyze.metrics(analyze.load(tmp_path), 1, 200)
    worlds = list(found["worlds"].values())
    assert found["tasks"] == sum(world["tasks"] for world in worlds) and found["passed"] == sum(
        world["passed"] for world in worlds
    )
    assert found["score"] == pytest.approx(sum(world["score"] for world in worlds) / 2)
    assert (
        found["intervals"]["score"]["value"] == pytest.approx(found["score"])
        and found["intervals"]["score_over_worlds"]["worlds"] == 2
    )
    assert set(found["by_language"]) == {"en", "ja"} and params.bootstrap == 200


@pytest.mark.parametrize("name", ["tfidf", "whole", "mute", "oracle", "chance"])
def test_the_interval_is_of_the_very_score_and_holds_it(tmp_path, name):
    finished(tmp_path, name)
    graded = analyze.load(tmp_path)
    found = analyze.metrics(graded, 1, 300)
    for part in ("score", "family_points", "signal_score", "token_score", "success"):
        figure = found["intervals"][part]
        assert figure["value"] == pytest.approx(found[part]), part
    score = found["intervals"]["score"]
    assert score["low"] <= score["value"] + 1e-6 and score["value"] <= score["high"] + 1e-6 or name == "chance"
    if name == "mute":
        assert score["low"] == score["high"] == 300


def test_both_rates_of_a_family_stand_there_with_their_counts(tmp_path):
    finished(tmp_path, "grep")
    rates = analyze.metrics(analyze.load(tmp_path), 1, 0)["metrics"]
    assert (
        rates["drift"]["n"] > 0
        and rates["drift"]["k"] == 0
        and rates["drift"]["attempted"]["n"] == 0
        and rates["drift"]["attempted"]["rate"] is None
    )
    assert rates["deletion"]["attempted"]["n"] < rates["deletion"]["n"]
    assert all({"k", "n", "rate", "low", "high", "not_judged"} <= set(rate) for rate in rates.values())


def test_two_systems_on_one_script_are_compared_pair_by_pair(tmp_path):
    for name in ("oracle", "grep", "mute"):
        finished(tmp_path / name, name)
    oracle, grep, mute = (analyze.load(tmp_path / name) for name in ("oracle", "grep", "mute"))
    rows = analyze.differences(grep, [oracle, mute], 1, 200)
    assert (
        rows[0]["only first"] == 0
        and rows[0]["only second"] == sum(task["passed"] is not True for task in grep.tasks)
        and rows[0]["pairs"] == 2
    )
    assert rows[0]["score difference"] < 0 < rows[1]["score difference"] and rows[0]["p (Holm)"] < 0.001
    same = analyze.difference(grep, grep, 1, 50)
    assert (
        same["verdict"] == "identical"
        and same["p"] is None
        and same["score difference"] == same["low"] == same["high"] == 0
    )
    other = finished(tmp_path / "other", "grep", [mini()])
    with pytest.raises(ValueError, match="same scripts"):
        analyze.difference(grep, analyze.load(tmp_path / "other"), 1, other.bootstrap)


def test_runs_on_other_worlds_are_left_out_with_a_reason(tmp_path):
    for name, scripts in (("grep", None), ("mute", None), ("chance", [mini()])):
        finished(tmp_path / "drift" / name, name, scripts)
    (tmp_path / "drift" / "empty").mkdir()
    graded = analyze.load(tmp_path / "drift" / "grep")
    runs, left_out = analyze.beside(
        graded, [str(tmp_path / "drift" / name) for name in ("grep", "mute", "chance", "empty")]
    )
    assert [run.system for run in runs] == ["mute"]
    assert "other worlds" in left_out[0] and "not finished" in left_out[1]


def test_the_report_shows_silence_beside_the_score_and_refuses_when_the_oracle_falls_short(tmp_path):
    for name in ("mute", "grep"):
        finished(tmp_path / name, name)
    script = mini()
    params = finished(tmp_path / "run", "grep", beside=[str(tmp_path / "mute"), str(tmp_path / "grep")])
    rows = analyze.run(tmp_path / "run", params)
    page = (tmp_path / "run/report.html").read_text()
    assert (
        [row["system"] for row in rows][:2] == ["grep", "grep"]
        and "what silence scores" in page
        and "came back" in page
    )
    assert (tmp_path / "run/figures/scenarios.png").read_bytes()[:4] == b"\x89PNG"
    short = silent(script)
    short.arm = "oracle"
    params = finished(tmp_path / "short", "oracle", [script], [short])
    analyze.run(tmp_path / "short", params)
    page = (tmp_path / "short/report.html").read_text()
    assert "No table." in page and "<img" not in page


def test_hostile_text_is_shown_and_never_acts(tmp_path):
    script = mini()
    evil = silent(script)
    evil.arm = "<script>alert(1)</script>\u202e\x00"
    evil.recalls["R1"] = Recalled([hit("<b>k</b>", "</dd><img src=x onerror=alert(1)> \ud800 " + "y" * 5_000_000)])
    params = finished(tmp_path, "grep", [script], [evil])
    analyze.run(tmp_path, params)
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page and "<img src=x" not in page and "\u202e" not in page and "\x00" not in page
    assert "&lt;img src=x" in page and len(page) < 1_000_000


def test_failures_stand_in_full(tmp_path):
    finished(tmp_path, "grep")
    cases = report.failures(analyze.load(tmp_path))
    assert {case["scenario"] for case in cases} >= {"Retrieval", "Abstention", "Rationale"}
    assert all(case["why"] and case["asked"] for case in cases) and any(case["delivered"] for case in cases)
    assert len({(case["world"], case["task"]) for case in cases}) == len(cases)


def test_a_world_that_failed_is_named_and_never_a_smaller_denominator_in_silence(tmp_path):
    scripts = [generate.generate(30, 1, language) for language in generate.LANGUAGES]
    finished(tmp_path, "grep", scripts)
    rows = [json.loads(line) for line in (tmp_path / "contexts.jsonl").read_text().splitlines()]
    write_jsonl(tmp_path / "contexts.jsonl", [row for row in rows if row["unit"] == scripts[0].name])
    params = DriftParams(system="grep", bootstrap=50)
    judge.run(tmp_path, params)
    analyze.run(tmp_path, params)
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["units"] == {"planned": 2, "finished": 1, "failed": {scripts[1].name: "it has no transcript"}}
    assert "Not all worlds were measured" in (tmp_path / "report.html").read_text() and "failed" in analyze.printed(
        found
    )


def test_the_public_receipt_of_a_run_has_its_times(tmp_path):
    finished(tmp_path, "grep", [mini()])
    write_jsonl(
        tmp_path / "events.jsonl",
        [{"unit": "mini", "seq": 1, "op": "recall", "item": "R1", "seconds": 0.25, "status": "ok"}],
    )
    receipt = judge.public_receipt(tmp_path, "mini")
    assert receipt["cost"]["recall_ms"] == 250 and receipt["timing"] == {"recall": {"count": 1, "total_ms": 250.0}}


def test_public_worlds_are_known_by_their_digest():
    graded = analyze.Graded("mem0-verbatim", "r", {}, [], {}, [], {"w": "9766378f93e3a7d4", "o": "0"})
    assert (
        "mem0-2.0.20" in analyze.comparable(graded)[0]
        and "not exactly" in analyze.comparable(graded)[0]
        and "no published" in analyze.comparable(graded)[1]
    )
    table = report.published_rows(graded)
    assert {row["published system"]: row["score"] for row in table}["tfidf"] == 574 and len(table) == 12


@settings(deadline=None)  # other work on the machine is no failure
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_rounding_keeps_twelve_digits(values):
    for before, after in zip(values, analyze.rounded(values), strict=True):
        assert after == pytest.approx(before, rel=1e-11)

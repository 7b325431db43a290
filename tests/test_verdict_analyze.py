import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_mini import record, write

from kiokulab.files import read_jsonl
from kiokulab.verdict import PARAMS, TYPES, analyze, dataset, generate, grade, ingest, judge, report


def row(name, kind=TYPES[0], verdict="right", **more):
    return {
        "kind": "answer",
        "id": name,
        "type": kind,
        "abstention": "_abs" in name,
        "verdict": verdict,
        "missing": None,
        "official": None,
        "strict": None,
        "panel": None,
        **more,
    }


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(TYPES), st.sampled_from(["right", "wrong", "not_judged"]), st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_figures_agree_with_the_official_arithmetic_on_what_was_judged(drawn):
    rows = [row(f"q{n}{'_abs' if absent else ''}", kind, verdict) for n, (kind, verdict, absent) in enumerate(drawn)]
    judged = [
        {"id": r["id"], "type": r["type"], "correct": r["verdict"] == "right"}
        for r in rows
        if r["verdict"] != "not_judged"
    ]
    official, ours = grade.accuracy(judged), analyze.rate(rows)
    assert (ours["k"], ours["n"], ours["not_judged"]) == (
        official["overall"]["k"],
        official["overall"]["n"],
        len(rows) - len(judged),
    )
    average = analyze.task_average(rows, 0, 1)
    assert average["types"] == official["types_present"]
    assert average["value"] == pytest.approx(official["task_averaged"]) if judged else average["value"] is None


def test_the_task_averages_interval_holds_its_value_and_is_the_same_each_time():
    rows = [row(f"q{n}", TYPES[n % 6], "right" if n % 4 else "wrong") for n in range(30)]
    found = analyze.task_average(rows, 500, 1)
    assert found["low"] < found["value"] < found["high"] and found == analyze.task_average(rows, 500, 1)


def test_missing_answers_are_wrong_and_not_judged_ones_are_apart_and_disputed_ones_a_second_line():
    rows = [row("a"), row("b", verdict="wrong", missing="timeout: x"), row("c", verdict="not_judged")]
    head = {
        "name": "n",
        "sha256": "s",
        "official": False,
        "records": 3,
        "sample": {"digest": "d", "by": "x"},
        "disputed": {"a": "issue 1: y"},
        "run": {
            "system": "bm25",
            "embedder": "use",
            "top_sessions": 10,
            "k": 30,
            "unit_timeout_s": 1,
            "seed": 1,
            "bootstrap": 0,
        },
    }
    who = {
        "reader": "r",
        "name": "j",
        "panel": [],
        "internal_model": None,
        "prompts": {"official_prompts": False, "digest": "p"},
    }
    found = analyze.metrics(
        rows, who, head, {"recall_any": analyze.rate([]), "recall_all": analyze.rate([]), "untraced": 0}, None
    )
    assert (
        found["accuracy"]["overall"]["k"],
        found["accuracy"]["overall"]["n"],
        found["accuracy"]["overall"]["not_judged"],
    ) == (1, 2, 1)
    assert found["missing"] == {"b": "timeout: x"} and found["worst"]["n"] == 3
    assert (
        found["without_disputed"]["left_out"] == ["a"]
        and found["without_disputed"]["k"] == 0
        and found["without_disputed"]["n"] == 1
    )
    text = analyze.printed(json.loads(json.dumps(found)))
    assert text == analyze.printed(found) and "b: timeout: x" in text and "1 disputed" in text


def test_panel_counts_flips_unanimity_and_what_is_undecided():
    votes = [
        ("right", [True, True, True]),
        ("right", [False, False, True]),
        ("wrong", [False, None, True]),
        ("not_judged", [False, False, False]),
    ]
    rows = [
        row(f"q{n}", verdict=v, panel={"votes": w, "replies": [], "majority": grade.majority(w)})
        for n, (v, w) in enumerate(votes)
    ]
    found = analyze.panel(rows)
    assert found["flips"] == ["q1"] and found["undecided"] == ["q2"]
    assert (found["all_agree"]["k"], found["all_agree"]["n"], found["all_agree"]["not_judged"]) == (1, 2, 2)
    assert (found["majority"]["k"], found["majority"]["n"]) == (1, 3)
    assert found["pairs"]["headline judge and panel 1"]["n"] == 3
    assert analyze.panel([row("a")]) is None


def test_a_systems_calls_after_it_has_settled_are_what_retrieving_costs(tmp_path):
    from kiokulab import calls

    record = calls.Record(tmp_path / "calls.sqlite")
    made = (("q1", 1), ("q1", 2), ("q1", 3), ("q2", 1))
    record.add([calls.Call(unit, "system", seq, 1, "chat/completions", "k", b"{}", cost="0.5") for unit, seq in made])
    assert record.given("q1") == {}  # none of them was answered
    record.add(
        [
            calls.Call(
                "q3", "system", 1, 1, "chat/completions", "k", b"{}", answer=b"{}", status=200, final=1, cost="0.5"
            )
        ]
    )
    assert record.given("q3") == {"system": 1}
    record.begin("q3")
    assert record.given("q3") == {} and record.again("q3", "system", "k") and record.given("q3") == {"system": 1}
    record.close()
    event = {"id": "q1", "op": "ingest", "count": 1, "seconds": 0.1, "model_calls": {"system": 2}}
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")  # q2 failed while it was fed
    parts = analyze.cost(analyze.recorded_calls(tmp_path), 2)["per_1000_questions"]
    assert {name: part["calls"] for name, part in parts.items()} == {"ingest": 4, "retrieve": 1}
    assert parts["ingest"]["billed"] == "1000.0000" and parts["retrieve"]["billed"] == "250.0000"


def test_judges_who_never_differ_have_no_kappa_and_that_is_said():
    rows = [row(f"q{n}", panel={"votes": [True, True, True], "replies": [], "majority": True}) for n in range(3)]
    found = analyze.panel(rows)
    assert (
        found["alpha"] == {"value": None, "n": 3, "note": "no variation"}
        and found["pairs"]["panel 1 and panel 2"]["kappa"] is None
    )
    assert any("no variation" in str(cell) for line in report.panel_table({"panel": found}) for cell in line.values())


def test_cost_is_decimal_per_thousand_split_and_an_unknown_price_is_no_zero():
    calls = [
        {"role": "system", "cost": "0.001", "list_cost": "0.002"},
        {"role": "reader", "cost": "0.1", "list_cost": "0.2"},
        {"role": "reader", "cost": None, "list_cost": "0.2"},
        {"role": "judge", "cost": "5", "list_cost": "5"},
        {"role": "panel-2", "cost": "1", "list_cost": "1"},
    ]
    found = analyze.cost(calls, 3)
    assert found["per_1000_questions"]["ingest"]["billed"] == "0.3333"
    assert found["per_1000_questions"]["judge"]["calls"] == 2
    answer = {"calls": 2, "billed": "33.3333", "list": "133.3333", "not_billed": 1, "not_listed": 0}
    assert found["per_1000_questions"]["answer"] == answer
    assert found["total_without_judges"]["billed"] == "33.6667" and found["total_without_judges"]["not_billed"] == 1
    assert analyze.cost([], 3) is None
    unknown = analyze.cost([{"role": "reader", "cost": "0.1", "list_cost": None}], 1)
    assert unknown["per_1000_questions"]["answer"]["list"] is None
    shown = report.cost_table({"cost": unknown})[0]
    assert shown["list price"] == "not known" and report.cost_table({"cost": found})[0]["calls"] == 2


def test_recall_is_any_and_all_and_a_system_that_rewords_cannot_be_traced():
    question = dataset.parse_record(record(answer_session_ids=["answer_ab_1", "ultrachat_2"]), 0, "f")

    def context(*texts):
        return {"status": "ok", "kind": "facts", "items": [{"text": text} for text in texts]}

    found = analyze.retrieval([(question, context("user: My parrot Rio has learned to whistle."))])
    assert (found["recall_any"]["k"], found["recall_all"]["k"], found["recall_all"]["n"]) == (1, 0, 1)
    assert analyze.retrieval([(question, context("The user keeps a bird."))]) == {
        **found,
        "recall_any": analyze.rate([]),
        "recall_all": analyze.rate([]),
        "untraced": 1,
    }
    assert analyze.retrieval([(question, context())])["recall_any"]["n"] == 1  # nothing came through: that is a miss


def test_groups_are_all_largest_sets_that_cannot_be_told_apart():
    alike = {"a": {"a", "b"}, "b": {"a", "b", "c"}, "c": {"b", "c"}, "d": {"d"}}
    assert analyze.groups(alike, ["a", "b", "c", "d"]) == [["a", "b"], ["b", "c"], ["d"]]
    one = {f"q{n}": "right" for n in range(40)}
    found = analyze.tests({"best": one, "same": dict(one), "worst": {name: "wrong" for name in one}})
    assert [p["verdict"] for p in found["pairs"]] == ["identical", "different", "different"] and found["groups"] == [
        ["best", "same"],
        ["worst"],
    ]
    assert analyze.tests({"alone": one})["groups"] == [["alone"]] and analyze.tests({"alone": one})["cochran"] is None


HOSTILE = "<script>alert(1)</script>\u202e\x00\ud83d $x$ " + "y" * 5000


@pytest.fixture
def runs(tmp_path):
    """Two analysed runs on hostile questions, and one on others."""
    data = write(
        tmp_path / "d.json",
        [record(f"q{n}", TYPES[n % 6], question=f"What is the parrot {HOSTILE[:25]}?", answer="Rio") for n in range(7)],
    )
    data.write_text(data.read_text().replace("My parrot Rio", "My parrot Rio " + json.dumps(HOSTILE)[1:-1]))
    other = write(tmp_path / "o.json", [record("q1")])
    places = {}
    for name, system, file in (
        ("bm25", "bm25", data),
        ("full-context", "full-context", data),
        ("other", "bm25", other),
    ):
        chosen = PARAMS(system=system, data=str(file), label="hostile", embedder="hash", bootstrap=20, disputed="")
        folder = tmp_path / name / "run"
        folder.mkdir(parents=True)
        generate.run(folder, chosen)
        ingest.run(folder, chosen)
        judge.run(folder, chosen)
        places[name] = (folder, chosen)
    return places


def test_pages_escape_what_data_and_models_wrote_and_leave_out_what_cannot_be_compared(runs):
    folder, chosen = runs["bm25"]
    beside = [str(runs[name][0]) for name in ("full-context", "other")] + ["/nowhere/x/y"]
    analyze.run(folder, chosen.model_copy(update={"beside": beside}))
    for name in ("report.html", "system.html"):
        text = (folder / name).read_text(encoding="utf-8")
        assert "<script" not in text and "\u202e" not in text and "\x00" not in text
    compared = json.loads((folder / "comparison.json").read_bytes())
    assert set(compared["systems"]) == {"bm25", "full-context"}
    assert (
        compared["refused"]["other"] == "differs in data_sha256, sample_digest, n"
        and compared["refused"]["x"] == "not finished"
    )
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "no score of an agent" in page and "official_prompts: false" in page and "hostile" in page
    assert (folder / "figures/accuracy.png").read_bytes()[:4] == b"\x89PNG"


def test_figures_are_derived_again_from_the_files_alone_and_are_the_same_bytes(runs):
    folder, chosen = runs["bm25"]
    analyze.run(folder, chosen)
    first = {
        name: (folder / name).read_bytes()
        for name in ("metrics.json", "comparison.json", "figures/accuracy.png", "figures/types.png")
    }
    assert analyze.rederive(folder) == json.loads(first["metrics.json"])
    analyze.run(folder, chosen)
    assert first == {name: (folder / name).read_bytes() for name in first}
    assert "hostile" in analyze.summary([folder]) and "bm25" in analyze.summary([folder])


def test_answers_hold_no_wall_time(runs):
    folder, _ = runs["bm25"]
    assert all(
        "seconds" not in line
        for name in ("answers", "judgements", "contexts")
        for line in map(str, read_jsonl(folder / f"{name}.jsonl"))
    )


def test_vendor_figures_have_all_that_makes_them_comparable_or_not():
    import yaml

    from kiokulab.params import root

    for one in yaml.safe_load((root() / "data/published/vendor-reported.yml").read_text())["reports"]:
        assert (
            set(one) >= {"systems", "by", "figure", "metric", "reader", "judge", "data", "date", "source"}
            and one["source"]
        )


@pytest.mark.parametrize(
    "gold, response, verdict",
    [
        ("19 days. 20 days (including the last day) is also acceptable.", "It took 20 days.", True),
        ("19 days. 20 days (including the last day) is also acceptable.", "It took 21 days.", False),
        ("3", "You lent three books.", True),
        ("3", "You lent 13 books.", False),
        ("the accordion", "Accordions, since spring.", True),
        ("48 minutes 30 seconds", "48 minutes 50 seconds", False),
        ("$1,200", "about 1200 dollars", True),
        ("", "anything", False),
    ],
)
def test_the_rule_grader_on_texts_one_can_check_by_eye(gold, response, verdict):
    assert grade.rule_grade("multi-session", False, gold, response)[0] is verdict


def test_the_rule_grader_leaves_rubrics_alone_and_reads_declining():
    assert grade.rule_grade("single-session-preference", False, "They would like tea", "tea")[0] is None
    for text in (
        "I don't have any information about that.",
        "You never mentioned it.",
        "This cannot be determined.",
        "The chats do not say.",
    ):
        assert grade.rule_grade("multi-session", True, "x", text)[0] is True, text
    assert grade.rule_grade("single-session-preference", True, "x", "It was green.")[0] is False

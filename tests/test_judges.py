"""Two judges of one store, the cost of ingestion, and a panel's agreement: counted, and on the page."""

import json
import shutil

import pytest
from kioku_rows import rows
from test_report import Page, a_run, analysed

from kiokulab import calls
from kiokulab.files import read_jsonl, write_jsonl
from kiokulab.kioku import analyze, judges
from kiokulab.kioku.model_judge import agreement_of


def test_the_same_judgements_agree_in_everything():
    found = judges.compared(rows("tidy"), rows("tidy"), "vector/x")
    assert (
        found["versions"]["agree"] == found["versions"]["n"] > 20
        and found["versions"]["kappa"] == 1.0
        and found["versions"]["items"] == []
    )
    assert (found["mine"], found["theirs"]) == ("rules", "rules")


def test_each_item_that_differs_is_named_and_an_unjudged_one_is_no_disagreement():
    mine, theirs = rows("tidy"), rows("tidy")
    versions = [row for row in theirs if row["kind"] == "version"]
    turned = next(row for row in versions if row["verdict"] == "held")
    turned["verdict"] = "absent"
    lost = next(row for row in versions if row is not turned)
    lost.update(verdict="not_judged", reason="llm:x: refusal: no")
    theirs.remove(versions[-1])
    found = judges.compared(mine, theirs, "vector/x")["versions"]
    assert (found["n"], found["agree"]) == (len(versions) - 2, len(versions) - 3)
    assert (found["only_mine"], found["only_theirs"], found["missing"], found["differ"]) == (1, 0, 1, 2)
    assert {(row["fact"], row["mine"], row["theirs"]) for row in found["items"]} == {
        (turned["fact"], "held", "absent"),
        (
            lost["fact"],
            next(
                r
                for r in mine
                if r["kind"] == "version"
                and (r["unit"], r["fact"], r["version"]) == (lost["unit"], lost["fact"], lost["version"])
            )["verdict"],
            "not_judged",
        ),
    }
    assert 0 < found["kappa"] < 1


@pytest.mark.parametrize("empty", [[], [{"kind": "judge", "name": "x"}]])
def test_nothing_in_common_has_no_kappa(empty):
    found = judges.compared(rows("tidy"), empty, "x")
    assert found["answers"]["n"] == 0 and found["answers"]["kappa"] is None and found["versions"]["missing"] > 0


def sibling(folder, change):
    """A second run on the same store, whose proof names the first as its parent."""
    made = folder.parent / "fedcba987654"
    shutil.copytree(folder, made)
    for place in (folder, made):
        for name in ("contexts.jsonl", "events.jsonl"):
            write_jsonl(place / name, [])
    some = read_jsonl(made / "judgements.jsonl")
    change(some)
    write_jsonl(made / "judgements.jsonl", some)
    (made / "steps").mkdir()
    (made / "steps" / "2-ingest.json").write_text(json.dumps({"parent": f"{folder.parent.name}/{folder.name}"}))
    return made


def test_a_sibling_is_compared_with_its_parent_item_by_item(tmp_path):
    def other(some):
        some[-1]["name"] = "llm:<b>bold</b>"
        next(row for row in some if row["kind"] == "version" and row["verdict"] == "held").update(
            verdict="not_judged", reason="<script>x</script>"
        )

    made = sibling(a_run(tmp_path, "vector", "tidy"), other)
    text, _ = analysed(made)
    (found,) = json.loads((made / "comparison.json").read_bytes())["judges"]
    assert (
        found["run"] == "vector/0123456789ab"
        and (found["mine"], found["theirs"]) == ("llm:<b>bold</b>", "rules")
        and found["versions"]["differ"] == 1
    )
    page = Page(text)
    # as text
    assert (
        "read by another judge" in page.text
        and "1 versions that differ" in page.text
        and "<script>x</script>" in page.text
    )
    assert not any(tag == "script" for tag, _ in page.tags)


def test_a_run_on_another_store_is_no_second_judge_of_this_one(tmp_path):
    made = sibling(a_run(tmp_path, "vector", "tidy"), lambda some: None)
    write_jsonl(made / "memories.jsonl", [])
    analysed(made)
    assert "judges" not in json.loads((made / "comparison.json").read_bytes())


def a_call(seq, attempt=1, **more):
    values = {
        "status": 200,
        "final": 1,
        "mode": "live",
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "cost": "0.002",
        "list_cost": "0.003",
        "model_answered": "m-1",
        **more,
    }
    return calls.Call("en-01/raw", "system", seq, attempt, "chat/completions", f"k{seq}", b"{}", **values)


def test_what_ingestion_cost_is_counted_by_input_and_what_nobody_told_is_no_zero(tmp_path):
    folder = a_run(tmp_path, "vector", "tidy")
    record = calls.Record(folder / "calls.sqlite")
    record.add(
        [
            a_call(
                1,
                final=0,
                status=429,
                cost=None,
                list_cost=None,
                prompt_tokens=None,
                completion_tokens=None,
                model_answered=None,
            ),
            a_call(1, 2),
            a_call(2, list_cost=None),
            a_call(3),
        ]
    )
    record.close()
    events = [
        {
            "unit": "en-01/raw",
            "persona": "en-01",
            "route": "raw",
            "seq": n,
            "op": "ingest",
            "item": f"s{n}",
            "seconds": 0.1,
            "status": "ok",
            "added": 0,
            "changed": 0,
            "removed": 0,
            "detail": {},
            "warnings": [],
        }
        for n in (1, 2)
    ]
    write_jsonl(folder / "events.jsonl", events)
    text, params = analysed(folder)
    metrics = json.loads((folder / "metrics.json").read_bytes())
    assert metrics["cost"] == {
        "calls": 3,
        "attempts": 4,
        "inputs": 2,
        "calls_per_input": 1.5,
        "prompt_tokens": 300,
        "completion_tokens": 30,
        "billed_usd": "0.006",
        "list_usd": "0.006",
        "unbilled": 1,
        "unlisted": 2,
        "models": ["m-1"],
    }
    assert analyze.rederive(folder, params) == metrics
    assert "What ingestion cost" in text and "1 attempts untold" in text
    assert (
        analyze.ingestion_cost(
            [
                {
                    "attempt": 1,
                    "mode": "embedded",
                    "cost": None,
                    "list_cost": None,
                    "prompt_tokens": 5,
                    "completion_tokens": 1,
                    "model_answered": "extractive",
                }
            ],
            [],
        )["billed_usd"]
        == "0"
    )


def test_a_run_without_calls_has_no_cost_and_no_such_table(tmp_path):
    folder = a_run(tmp_path, "vector", "tidy")
    text, _ = analysed(folder)
    assert "cost" not in json.loads((folder / "metrics.json").read_bytes()) and "What ingestion cost" not in text


def test_the_agreement_of_a_panel_is_shown(tmp_path):
    votes = [
        {"llm:a": "held", "llm:b": "held", "llm:c": "held"},
        {"llm:a": "held", "llm:b": "absent", "llm:c": "partial"},
        {"llm:a": "absent", "llm:b": "absent", "llm:c": "held"},
    ]
    folder = a_run(tmp_path, "vector", "tidy", change=lambda made: made[-1].update(panel=agreement_of(votes)))
    text, _ = analysed(folder)
    assert json.loads((folder / "metrics.json").read_bytes())["judge"]["panel"]["unanimous"] == {"k": 1, "n": 3}
    assert (
        "1 of 3 versions" in Page(text).text
        and "1 versions had no majority" in Page(text).text
        and "llm:a | llm:b" in Page(text).text
    )


# --- the labelled pairs that a judge is measured on -----------------------------------------------------------------


def labelled(folder, **kinds):
    rows_of = [
        {"id": f"{kind}-{n}", "half": half, "kind": kind}
        for kind, count in kinds.items()
        for n in range(count)
        for half in ("dev", "scored")
    ]
    write_jsonl(folder / "en.jsonl", rows_of)
    return folder


def test_a_sample_of_the_labelled_pairs_is_mixed_as_the_set_is_and_the_same_for_the_same_seed(tmp_path):
    folder = labelled(tmp_path, negation=50, partial=30, joint=19, rare=1)
    ((every, of),) = judges.scored_pairs(folder).values()
    assert (
        len(every) == of == 100
        and {row["half"] for row, _ in every} == {"scored"}
        and every[0][1] == f"{folder / 'en.jsonl'}:2"
    )
    ((some, of),) = judges.scored_pairs(folder, 20, 7).values()
    kinds = [row["kind"] for row, _ in some]
    assert of == 100 and {kind: kinds.count(kind) for kind in ("negation", "partial", "joint", "rare")} == {
        "negation": 10,
        "partial": 6,
        "joint": 4,
        "rare": 0,
    }
    assert some == judges.scored_pairs(folder, 20, 7)["en"][0] != judges.scored_pairs(folder, 20, 8)["en"][0]
    assert [every.index(one) for one in some] == sorted(every.index(one) for one in some)  # in the order of the file
    assert all(len(judges.scored_pairs(folder, most)["en"][0]) == min(most, 100) for most in (1, 2, 3, 99, 100, 500))


def test_the_page_says_of_how_many_pairs_a_sample_was_drawn(tmp_path):
    assert "drawn from" not in analysed(a_run(tmp_path / "all", "vector", "tidy"))[0]
    folder = a_run(
        tmp_path / "some",
        "vector",
        "tidy",
        change=lambda made: made[-1].update(measured={"en": {"n": 200, "of": 1234, "accuracy": 0.9, "kappa": 0.8}}),
    )
    assert "drawn from 1234" in Page(analysed(folder)[0]).text


def test_a_run_that_the_built_in_model_fed_says_so_before_any_figure(tmp_path):
    assert "plumbing" not in analysed(a_run(tmp_path / "result", "vector", "tidy"))[0]
    text = Page(analysed(a_run(tmp_path / "plumbing", "mem0", "tidy"))[0]).text
    assert "Plumbing, and no result" in text and text.index("Plumbing, and no result") < text.index("Index, 0 to 100")


def test_warnings_are_told_by_kind_where_there_are_any(tmp_path):
    folder = a_run(tmp_path, "vector", "tidy")
    row = {
        "unit": "en-01/raw",
        "persona": "en-01",
        "route": "raw",
        "op": "ingest",
        "item": "s",
        "seconds": 0.1,
        "status": "ok",
        "added": 0,
        "changed": 0,
        "removed": 0,
        "detail": {},
    }
    lines = ["ERROR mem0: cannot parse: Expecting value", "ERROR mem0: cannot parse: Extra data", "<b>loud</b>"]
    write_jsonl(
        folder / "events.jsonl",
        [{**row, "seq": n, "warnings": some} for n, some in enumerate((lines, [], lines[:1]), 1)],
    )
    text = Page(analysed(folder)[0]).text
    assert "4 warnings (3 × “ERROR mem0: cannot parse”; 1 × “<b>loud</b>”). By" in text
    assert "warning_kinds" not in analyze.yields([{**row, "warnings": []}])

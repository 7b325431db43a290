import json
import re
import shutil

import pytest

import runs_made
from kiokulab import compare, receipts
from kiokulab.errors import InputError
from kiokulab.files import dumps, sha256_file, write_atomic


@pytest.fixture(scope="module")
def found():
    return compare.compare(runs_made.standard(), resamples=300)


def rewrite(folder, change):
    """The run's receipt with `change` applied: what a run made under other conditions would say."""
    row = json.loads((folder / "receipt.json").read_bytes())
    change(row)
    row["seal"] = receipts.digest({k: v for k, v in row.items() if k != "seal"})
    write_atomic(folder / "receipt.json", dumps(row) + "\n")


def reasons(result):
    return {row["run"].split("/")[2]: row["reason"] for row in result["left_out"]}


def test_the_leaderboard_holds_the_figures_of_metrics_json(found):
    (table,) = found["tables"]
    assert (table["track"], table["edition"], table["route"], table["refused"], found["left_out"]) == (
        "kioku",
        "v0.1",
        "raw",
        [],
        [],
    )
    assert {row["system"] for row in table["rows"]} == {"oracle", "null", "store-everything", "replace-similar"}
    values = [row["headline"]["value"] for row in table["rows"]]
    assert values == sorted(values, reverse=True)
    for row in table["rows"]:
        metrics = json.loads((runs_made.standard() / row["folder"] / "metrics.json").read_bytes())["by_route"]["raw"]
        assert (
            row["headline"]["value"] == metrics["index"]["value"] and row["headline"]["low"] == metrics["index"]["low"]
        )
        assert {f["name"]: (f["k"], f["n"], f["low"]) for f in row["figures"]} == {
            n: (f["k"], f["n"], f["low"]) for n, f in metrics["metrics"].items()
        }
        assert [p["name"] for p in row["parts"]] == ["remember", "replace", "forget", "tidy"]


def test_pairs_are_tested_on_the_same_items_and_adjusted(found):
    (table,) = found["tables"]
    assert len(table["differences"]) == 6 == len(table["pairs"]["recall"])
    old = next(p for p in table["pairs"]["old_version_kept"] if {p["a"], p["b"]} == {"oracle", "store-everything"})
    assert old["only_a"] == old["items"] and old["only_b"] == 0 and old["p"] <= old["holm"] < 0.01
    same = next(p for p in table["pairs"]["old_version_kept"] if {p["a"], p["b"]} == {"oracle", "null"})
    assert same["verdict"] == "identical" and same["p"] is None
    top = next(d for d in table["differences"] if {d["a"], d["b"]} == {"oracle", "null"})
    assert top["apart"] is True and top["low"] <= top["difference"] <= top["high"]
    assert table["ranks"]["oracle"] == {"low": 1, "high": 1, "shares": [1, 0, 0, 0], "like_leader": True}
    assert all(abs(sum(r["shares"]) - 1) < 1e-9 for r in table["ranks"].values())


def test_a_run_twice_cannot_be_told_apart_from_itself_and_is_one_group(tmp_path):
    root = runs_made.copy(tmp_path)
    runs_made.make(root, "null", seed=2)  # the seed is of the bootstrap: the same memory again
    (table,) = compare.compare(root, resamples=100)["tables"]
    names = [row["label"] for row in table["rows"] if row["system"] == "null"]
    assert len(names) == 2 and all(re.fullmatch(r"null \([0-9a-f]{6}\)", name) for name in names)
    assert any(set(names) <= set(group) for group in table["groups"])
    assert table["ranks"][names[0]] == table["ranks"][names[1]], (
        "systems that tie have the same rank, whatever they are called"
    )


CHANGES = {
    "edition": (lambda row: row.update(edition_digest="f" * 64), "edition"),
    "judge": (lambda row: row["judge"].update(version=99), "judge"),
    "prompts": (lambda row: row["cost"].update(prompts={"judge.txt": "0" * 64}), "prompts"),
    "k": (lambda row: row["parameters"].update(k=5), "k ("),
    "budget": (lambda row: row["parameters"].update(budget_tokens=50), "budget_tokens"),
    "embedder": (lambda row: row["parameters"].update(embedder="st:other"), "embedder"),
    "answerer": (lambda row: row["parameters"].update(answerer="llm:some/model"), "answerer"),
    "plumbing": (lambda row: row["cost"].update(plumbing=True), "plumbing"),
    "unfinished": (
        lambda row: row.update(status="failed", reason="the kernel died"),
        "not finished (failed: the kernel died)",
    ),
    "unknown track": (lambda row: row.update(track="toy"), "knows no figures of track 'toy'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_alike_is_left_out_with_the_reason(tmp_path, name):
    change, word = CHANGES[name]
    root = runs_made.copy(tmp_path)
    rewrite(runs_made.folder(root, "replace-similar"), change)
    result = compare.compare(root, resamples=0)
    assert word in reasons(result)["replace-similar"], result["left_out"]
    assert [sorted(row["system"] for row in t["rows"]) for t in result["tables"]] == [
        ["null", "oracle", "store-everything"]
    ]


def test_older_rules_are_left_out_and_other_conditions_with_two_systems_have_a_table_of_their_own(tmp_path):
    root = runs_made.copy(tmp_path)
    for system in ("replace-similar", "null"):
        rewrite(runs_made.folder(root, system), CHANGES["k"][0])
    result = compare.compare(root, resamples=0)
    assert [sorted(row["system"] for row in t["rows"]) for t in result["tables"]] == [
        ["null", "replace-similar"],
        ["oracle", "store-everything"],
    ] and not result["left_out"]
    assert len({t["id"] for t in result["tables"]}) == 2
    runs, _ = compare.collect(root)
    older = [compare.Run(r.folder, r.receipt, r.metrics, r.rules - (r.receipt.system == "oracle")) for r in runs]
    _, out = compare.sets(older)
    said = {row["run"].split("/")[2]: row["reason"] for row in out}
    assert "the track's rules" in said["oracle"]


def test_a_changed_figure_is_no_figure(tmp_path):
    root = runs_made.copy(tmp_path)
    path = runs_made.folder(root, "replace-similar") / "metrics.json"
    path.write_bytes(path.read_bytes().replace(b'"value":', b'"value": ', 1))
    assert "metrics.json is not what its receipt says" in reasons(compare.compare(root, resamples=0))["replace-similar"]
    (runs_made.folder(root, "null") / "receipt.json").write_bytes(b"{torn")
    assert any("cannot be read" in row["reason"] for row in compare.compare(root, resamples=0)["left_out"])


def test_an_oracle_that_falls_short_refuses_the_table(tmp_path):
    root = runs_made.copy(tmp_path)
    folder = runs_made.folder(root, "oracle")
    metrics = json.loads((folder / "metrics.json").read_bytes())
    metrics["by_route"]["raw"]["metrics"]["recall"]["k"] -= 1
    write_atomic(folder / "metrics.json", dumps(metrics) + "\n")
    rewrite(
        folder, lambda row: row["steps"][-1]["outputs"].update({"metrics.json": sha256_file(folder / "metrics.json")})
    )
    (table,) = compare.compare(root, resamples=0)["tables"]
    assert "recall" in table["refused"][0]
    assert (
        "is not shown" in compare.part("bars", table=table)
        and "<ol" not in compare.part("bars", table=table)
        and not compare.part("leaderboard", table=table).strip()
    )


def test_published_rows_stand_beside_and_never_in(found):
    (table,) = found["tables"]
    assert "other dataset, other judge" in table["published"]["label"] and any(
        row[0].startswith("Mem0") for row in table["published"]["rows"]
    )
    assert not {row["label"] for row in table["rows"]} & {
        "Mem0",
        "sepiace",
        "Store everything",
    } and "Mem0" not in json.dumps([table["ranks"], table["groups"], table["pairs"]])


def test_no_run_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="no run yet"):
        compare.compare(tmp_path)


def test_html_holds_hostile_names_as_text_and_bars_can_be_reached_by_keyboard(found):
    table = json.loads(json.dumps(found["tables"][0]))
    table["rows"][0]["label"] = "<script>alert(1)</script>\u202e<img src=x onerror=alert(1)>"
    table["rows"][0]["headline"]["note"] = "<b>note</b>"
    text = compare.table_html(table)
    assert (
        "<script" not in text
        and "<img" not in text
        and "<b>" not in text
        and "&lt;script&gt;" in text
        and "\u202e" not in text
    )
    bars = compare.part("bars", table=found["tables"][0])
    assert bars.count('tabindex="0"') == 4 and bars.count('role="tooltip"') == 4 and "Remember" in bars
    described = re.findall(r'aria-describedby="([^"]+)"', bars)
    assert described == re.findall(r'id="([^"]+)"', bars) and len(set(described)) == 4


def test_write_gives_a_page_without_script_whose_links_exist(tmp_path):
    root = runs_made.copy(tmp_path)
    compare.write(root, root / "compare", resamples=100)
    page = (root / "compare" / "compare.html").read_text(encoding="utf-8")
    assert "<script" not in page and "http" not in re.sub(r"http-equiv", "", page) and "default-src 'none'" in page
    links = set(re.findall(r'href="([^"#][^"]*)"', page)) - {"data:,"}
    assert len(links) == 4 and all((root / "compare" / link).is_file() for link in links)
    first = {path.name: path.read_bytes() for path in (root / "compare").iterdir()}
    compare.write(root, root / "compare", resamples=100)
    assert first == {path.name: path.read_bytes() for path in (root / "compare").iterdir()}


def test_pictures_and_frame(found):
    (table,) = found["tables"]
    assert compare.picture(table).startswith(b"\x89PNG") and compare.picture(table) == compare.picture(table)
    assert compare.rank_picture(table).startswith(b"\x89PNG") and "oracle" in compare.alt(table)
    frame = compare.frame(table)
    assert list(frame.index) == [row["label"] for row in table["rows"]] and frame.loc["null", "Recall"] == 0


@pytest.mark.timeout(300)
def test_the_notebook_gives_the_same_bytes_twice_wherever_it_lies(tmp_path):
    seen = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        root = runs_made.copy(tmp_path / name)
        result = compare.run_notebook(root)
        assert len(result["tables"]) == 1
        seen.append({path.name: path.read_bytes() for path in sorted((root / "compare").iterdir())})
    assert seen[0].keys() == seen[1].keys() and all(seen[0][name] == seen[1][name] for name in seen[0])
    notebook = json.loads(seen[0]["compare.ipynb"])
    assert (
        receipts.not_run(notebook) == []
        and b"data:image/png" in seen[0]["compare.ipynb"]
        and str(tmp_path).encode() not in seen[0]["compare.ipynb"]
    )


@pytest.mark.timeout(300)
def test_the_other_tracks_have_tables_of_their_own_and_their_items_add_up(tmp_path):
    from kiokulab.explore import Explorer

    for track, systems, extra in (
        ("verdict", ("plain-rag", "bm25"), {"questions": 6}),
        ("emem", ("reference-lexical", "reference-search"), {}),
        ("drift", ("oracle", "mute"), {"language": "en", "size": 20, "bootstrap": 100}),
    ):
        for system in systems:
            runs_made.make(tmp_path, system, track=track, **extra)
    result = compare.compare(tmp_path, resamples=100)
    assert [(t["track"], len(t["rows"])) for t in result["tables"]] == [
        ("drift", 2),
        ("emem", 2),
        ("verdict", 2),
    ] and result["left_out"] == []
    for table in result["tables"]:
        assert compare.table_html(table) and compare.picture(table) and table["differences"] and not table["refused"]
        for row in table["rows"]:
            x = Explorer(tmp_path / row["folder"])
            for figure in row["figures"]:
                if figure["name"] in x.metrics:
                    assert x.figure(figure["name"]) == {key: figure[key] for key in ("k", "n", "not_judged")}, (
                        table["track"],
                        figure["name"],
                    )
            assert set(x.metrics) <= {f["name"] for f in row["figures"]}
    mute = next(row for row in result["tables"][0]["rows"] if row["system"] == "mute")
    assert mute["headline"]["value"] == 300


def test_a_run_that_stands_alone_makes_no_table_before_one_of_several_systems(tmp_path):
    """An edition whose name comes first in the alphabet, run on one system."""
    root = runs_made.copy(tmp_path)
    alone = root / "kioku" / "a-first" / "null" / "copy"
    shutil.copytree(runs_made.folder(root, "null"), alone)
    rewrite(alone, lambda row: row.update(edition="a-first", edition_digest="0" * 64))
    found = compare.compare(root, resamples=0)
    assert [t["edition"] for t in found["tables"]] == ["v0.1"] and "alone under its conditions" in found["left_out"][0][
        "reason"
    ]

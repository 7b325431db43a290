import json
import shutil
from pathlib import Path

import pytest

import runs_made
from kiokulab import explore
from kiokulab.errors import InputError
from kiokulab.files import write_jsonl
from kiokulab.notebooks import execute

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def x():
    return explore.Explorer(runs_made.folder(runs_made.standard(), "store-everything"))


def test_the_items_add_up_to_every_figure_of_metrics_json(x):
    for system in ("store-everything", "replace-similar", "oracle", "null"):
        one = explore.Explorer(runs_made.folder(runs_made.standard(), system))
        figures = one.metrics_file["by_route"]["raw"]["metrics"]
        for metric in one.metrics:
            assert one.figure(metric) == {key: figures[metric][key] for key in ("k", "n", "not_judged")}, (
                system,
                metric,
            )
        assert set(figures) - set(one.metrics) <= {"compression", "noise", "language_mismatch"}


def test_kinds_and_languages_filter(x):
    kinds = x.kinds("old_version_kept")
    assert list(kinds)[0] == "every failure" and kinds["everything"] == len(x.items("old_version_kept", "everything"))
    every = x.items("old_version_kept")
    parts = [x.items("old_version_kept", "every failure", language) for language in x.languages]
    assert x.languages == ["en", "ja"] and sum(map(len, parts)) == len(every) > 0
    assert {i["language"] for i in parts[1]} == {"ja"} and all(i["good"] is False for i in every)
    assert x.items("nonsense") == [] == x.items("recall", "nonsense")


def test_a_case_leads_to_the_utterance_and_the_ledger_and_back(x):
    """Every failure of the metric, not one that happens to work."""
    for item in x.items("old_version_kept"):
        case = x.case(item["id"])
        old = case["verdicts"][0]
        assert old["what"] == "version 1" and old["verdict"] == "held" and old["sentences"]
        shown = next(m for m in case["memories"] if "version 1" in m["shows"])
        said = next(u for u in case["utterances"] if f"{item['fact']}.1" in u["states"])
        assert shown["text"] in said["text"] or said["text"] in shown["text"], "store-everything keeps what was said"
        assert (
            case["ledger"][0]["fact"] == item["fact"]
            and case["ledger"][0]["until"] == case["ledger"][1]["from"]
            and shown["source"]
        )
        back = x.of_utterance(item["unit"], said["id"])
        assert (
            item["fact"] in back["facts"]
            and item["id"] in {i["id"] for i in back["items"]}
            and shown["id"] in {m["id"] for m in back["memories"]}
        )
        from_memory = x.of_memory(item["unit"], shown["id"])
        assert item["fact"] in from_memory["facts"] and item["id"] in {i["id"] for i in from_memory["items"]}


def test_a_noise_item_leads_to_its_memory(x):
    item = x.items("noise")[0]
    case = x.case(item["id"])
    assert "states no fact" in case["verdicts"][0]["why"] and case["memories"][0]["text"] and not case["ledger"]


def test_the_store_before_and_after_an_utterance():
    x = explore.Explorer(runs_made.folder(runs_made.standard(), "replace-similar"))
    changes = [
        (i, u)
        for i in x.items("update_applied", "everything")
        for u in x.case(i["id"])["utterances"]
        if u["kind"] == "change"
    ]
    told = [x.change(i["unit"], u["id"]) for i, u in changes]
    assert all(t["call"] for t in told) and any(t["removed"] or t["changed"] for t in told)
    assert {"status", "added", "changed", "removed", "seen", "gone", "came"} <= set(told[0])


def test_unknown_names_are_bad_input(x, tmp_path):
    with pytest.raises(InputError, match="no item"):
        x.case("recall:nowhere:f99")
    with pytest.raises(InputError, match="no utterance"):
        x.of_utterance(next(iter(x.units)), "s99.t99")
    with pytest.raises(InputError, match="no run here"):
        explore.Explorer(tmp_path)


def test_two_systems_side_by_side(x):
    other = explore.Explorer(runs_made.folder(runs_made.standard(), "oracle"))
    differ = explore.same_cases(x, other, "old_version_kept")
    assert len(differ) == len(x.items("old_version_kept")) and {d["second"] for d in differ} == {explore.RIGHT}
    text = explore.side_by_side(x, other, differ[0]["id"])
    assert text.count("<section>") == 2 and "store-everything" in text and "oracle" in text
    alone = next(i["id"] for i in x.items("noise") if other.item(i["id"]) is None)
    assert "counts no such item" in explore.side_by_side(x, other, alone)


def test_a_saved_case_is_appended_and_cannot_break_the_file(x, tmp_path):
    path = tmp_path / "deep" / "notes.md"
    item = x.items("recall", "everything")[0]
    explore.save_note(path, x, item["id"], "first\n# not a heading")
    explore.save_note(path, x, item["id"], "second \udcff")
    text = path.read_text(encoding="utf-8")
    assert (
        text.count("## kioku store-everything") == 2
        and "> first\n> # not a heading" in text
        and item["id"] in text
        and "> second" in text
    )


def test_runs_lists_finished_ones_once(tmp_path):
    root = runs_made.copy(tmp_path)
    shutil.copytree(runs_made.folder(root, "null"), root / "published" / "kioku" / "v0.1" / "null" / "copy")
    row = json.loads((runs_made.folder(root, "oracle") / "receipt.json").read_bytes())
    (runs_made.folder(root, "oracle") / "receipt.json").write_text(json.dumps({**row, "status": "failed"}))
    assert [r["system"] for r in explore.runs(root)] == ["null", "replace-similar", "store-everything"]


def test_a_thousand_personas_are_answered_from_the_index(tmp_path):
    """No clock: the second click reads no file and looks at no more rows than it lists."""
    from kiokulab.kioku.records import Persona

    source = runs_made.folder(runs_made.standard(), "oracle")
    folder = tmp_path / "run"
    shutil.copytree(source, folder)
    rows = {
        name: [json.loads(line) for line in open(source / f"{name}.jsonl", encoding="utf-8")]
        for name in ("dataset", "judgements", "memories", "contexts", "events")
    }
    person = next(p for p in rows["dataset"] if p["id"] == "en-01")
    assert Persona.model_validate(person)
    many = 60
    for name, some in rows.items():
        if name == "dataset":
            new = [{**person, "id": f"en-{n:04d}"} for n in range(many)]
        else:
            mine = [r for r in some if r.get("persona") == "en-01"]
            new = [
                {**r, "persona": f"en-{n:04d}", "unit": r["unit"].replace("en-01", f"en-{n:04d}")}
                for n in range(many)
                for r in mine
            ]
        write_jsonl(folder / f"{name}.jsonl", new)
    x = explore.Explorer(folder)
    shutil.rmtree(folder)
    first = x.items("recall", "everything", "en")
    assert (
        len(first) == many * sum(f["forget"] is None for f in person["facts"])
        and x.items("recall", "everything", "en") is first
    )
    assert x.case(first[-1]["id"])["utterances"] and "Ledger" in explore.case_html(x, first[-1]["id"])


@pytest.mark.timeout(300)
def test_the_notebook_runs_and_its_static_part_says_the_same(tmp_path):
    root = runs_made.copy(tmp_path)
    done = execute(REPOSITORY / "notebooks" / "explore.ipynb", tmp_path / "explore.ipynb", {"root": str(root)})
    shown = json.dumps(done, ensure_ascii=False)
    x = explore.Explorer(runs_made.folder(root, "store-everything"))
    assert (
        f"{len(x.items('old_version_kept'))} items of kind" in shown
        and "Verdict and why" in shown
        and shown.count("<section>") == 2
    )
    assert "application/vnd.jupyter.widget-view+json" in shown


def test_the_panel_follows_its_choices(tmp_path):
    import ipywidgets as w

    root = runs_made.standard()
    panel = explore.panel(root, tmp_path / "notes.md", run="store-everything")
    found = {}

    def walk(box):
        for child in getattr(box, "children", ()):
            if getattr(child, "description", ""):
                found[child.description] = child
            walk(child)

    walk(panel)
    assert (
        found["Metric"].value == "old_version_kept" and found["Kind"].value == "every failure" and found["Items"].value
    )
    before = len(found["Items"].options)
    found["Language"].value = "ja"
    assert 0 < len(found["Items"].options) < before and all(":ja-" in value for _, value in found["Items"].options)
    shown = panel.children[1].children[0]
    assert "Stored memory" in shown.value
    found["Beside it"].value = next(value for label, value in found["Beside it"].options if "oracle" in label)
    assert shown.value.count("<section>") == 2
    found["Metric"].value = "noise"
    assert ":ja-" in found["Items"].value and found["Items"].value.startswith("noise:")
    found["Note"].value = "seen"
    found["Save case"].click()
    assert "> seen" in (tmp_path / "notes.md").read_text(encoding="utf-8") and isinstance(panel, w.HBox)
    with pytest.raises(InputError):
        explore.panel(tmp_path, tmp_path / "notes.md")


# --- routes, and what a case leads to -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    return explore.Explorer(
        runs_made.make(tmp_path_factory.mktemp("routes"), "replace-similar", personas=2, route="all")
    )


def test_every_route_of_a_run_adds_up_to_its_own_figures(routed):
    assert routed.routes == ["raw", "requests", "signaled"] and routed.route == "raw" and routed.at("raw") is routed
    for route in routed.routes:
        one = routed.at(route)
        figures = routed.metrics_file["by_route"][route]["metrics"]
        assert one.metrics and all(item["unit"].endswith(f"/{route}") for item in one.items("recall", "everything"))
        for metric in one.metrics:
            assert one.figure(metric) == {key: figures[metric][key] for key in ("k", "n", "not_judged")}, (
                route,
                metric,
            )
        assert one.at("raw") is routed and routed.at(route) is one, "made once"
        assert f"(route {route})" in explore.case_html(one, one.items("recall", "everything")[0]["id"])
    with pytest.raises(InputError, match="no route"):
        routed.at("sideways")


def test_what_a_case_leads_to_is_shown_and_leads_back(x):
    item = x.items("old_version_kept")[0]
    found = explore.leads(x, item["id"])
    assert {kind for kind, *_ in found} == {"utterance", "memory", "fact"}
    for kind, key, _ in found:
        shown = explore.look_html(x, item["unit"], kind, key)
        assert key in shown and ('aria-current="true"' in shown or kind == "memory")
        assert item["id"] in {i["id"] for i in explore.items_about(x, item["unit"], kind, key)}
    with pytest.raises(InputError, match="no utterance"):
        explore.look_html(x, item["unit"], "utterance", "s99.t01")


def test_contexts_stay_on_the_disk_and_are_read_by_key(tmp_path):
    write_jsonl(tmp_path / "c.jsonl", [{"k": n, "text": "日本語" * n} for n in range(50)])
    kept = explore.Kept(tmp_path / "c.jsonl", lambda row: row["k"])
    assert [kept.get(n)["text"] for n in (49, 0, 7)] == ["日本語" * 49, "", "日本語" * 7] and kept.get(50) is None
    (tmp_path / "torn.jsonl").write_text('{"k": 1}\n{"k"')
    with pytest.raises(InputError, match="torn.jsonl:2"):
        explore.Kept(tmp_path / "torn.jsonl", lambda row: row["k"])
    assert explore.Kept(tmp_path / "none.jsonl", lambda row: row["k"]).get(1) is None


def test_the_panel_shows_another_route_and_finds_its_way_back(routed, tmp_path, monkeypatch):
    explore.open_run.cache_clear()
    panel = explore.panel(routed.folder.parents[3], tmp_path / "n.md", run="replace-similar").panel
    panel.route.value = "requests"
    assert "(route requests)" in panel.shown.value and "/requests:" in panel.items.value
    panel.metric.value, panel.kind.value = "recall", "everything"
    kind, key = next(value for label, value in panel.look.options if label.startswith("ledger"))
    panel.look.value = (kind, key)
    assert "Ledger fact" in panel.shown.value and 'class="here"' in panel.shown.value
    target = next(value for _, value in panel.about.options if value.startswith("check_questions"))
    panel.about.value = target
    assert (
        panel.metric.value == "check_questions"
        and panel.items.value == target
        and "Verdict and why" in panel.shown.value
    )


def test_make_explore_opens_jupyterlab_or_voila(monkeypatch):
    started = []
    monkeypatch.setattr(
        explore.os, "execve", lambda path, arguments, environment: started.append((arguments, environment))
    )
    for chosen in ("", "1"):
        monkeypatch.setenv("VOILA", chosen)
        explore.main()
    (lab, _), (voila, environment) = started
    assert (
        lab[2] == "jupyterlab"
        and voila[2] == "voila"
        and "--Voila.auto_token=True" in voila
        and "--Voila.ip=127.0.0.1" in voila
        and voila[3].endswith("explore.ipynb")
    )
    assert (
        Path(environment["JUPYTER_PATH"].split(":")[0]) / "voila" / "templates" / "kiokulab" / "index.html.j2"
    ).is_file()
    monkeypatch.setenv("VOILA", "yes")
    with pytest.raises(InputError, match="VOILA"):
        explore.main()

"""The cache of the rule judge's own measure: it never gives figures of other sources, another embedder or another
set."""

import json

import pytest

from kiokulab.judging import RuleJudge, measure
from kiokulab.kioku import measured


ROW = {
    "id": "en-0001",
    "half": "scored",
    "language": "en",
    "kind": "verbatim",
    "label": "held",
    "sentence": "I live in Kyoto.",
    "version": {
        "n": 1,
        "text": "Lives in Kyoto.",
        "slot": "home",
        "question": "Where do I live?",
        "surface": {"anchors": ["live"], "values": [["Kyoto"]]},
        "other_versions": [],
    },
}


class Named:
    """An embedder with an identity that finds nothing alike."""

    def __init__(self, identity):
        self.identity = identity

    def encode(self, texts):
        import numpy as np

        return np.eye(len(texts), 4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KIOKULAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measured, "_LOADED", "as loaded")
    monkeypatch.setattr(measured, "_sources", lambda: "as loaded")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "en.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    return tmp_path / "set"


@pytest.fixture
def asked(monkeypatch):
    """How often the judge was in fact measured."""
    calls = []
    monkeypatch.setattr(measured, "measure", lambda *a, **k: calls.append(a) or measure(*a, **k))
    return calls


def test_the_second_time_nothing_is_judged_and_the_figures_are_the_same(folder, asked):
    first, second = measured.measured_once(RuleJudge(), folder), measured.measured_once(RuleJudge(), folder)
    assert first == second == measure(RuleJudge(), folder) and len(asked) == 1
    assert json.dumps(first) == json.dumps(second)  # order of keys too


def changed_set(folder, monkeypatch):
    row = {**ROW, "label": "absent"}
    (folder / "en.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return RuleJudge()


def another_language(folder, monkeypatch):
    (folder / "ja.jsonl").write_text(json.dumps({**ROW, "language": "ja"}) + "\n", encoding="utf-8")
    return RuleJudge()


def sources_that_changed_since_they_were_loaded(folder, monkeypatch):
    monkeypatch.setattr(measured, "_sources", lambda: "edited")
    return RuleJudge()


def other_sources(folder, monkeypatch):
    monkeypatch.setattr(measured, "_sources", lambda: "other")
    monkeypatch.setattr(measured, "_LOADED", "other")
    return RuleJudge()


def another_embedder(folder, monkeypatch):
    return RuleJudge(Named("a"))


def an_embedder_that_does_not_say_what_it_is(folder, monkeypatch):
    return RuleJudge(Named(None))


def another_kind_of_judge(folder, monkeypatch):
    return type("Other", (RuleJudge,), {})()


def a_later_version(folder, monkeypatch):
    monkeypatch.setattr(RuleJudge, "version", RuleJudge.version + 1)
    return RuleJudge()


def a_damaged_file(folder, monkeypatch):
    for path in (folder.parent / "cache" / "judge").iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    return RuleJudge()


def a_file_under_another_name(folder, monkeypatch):
    (path,) = (folder.parent / "cache" / "judge").iterdir()
    path.write_text(path.read_text(encoding="utf-8").replace('"key": "', '"key": "x'), encoding="utf-8")
    return RuleJudge()


@pytest.mark.parametrize(
    "change",
    [
        changed_set,
        another_language,
        sources_that_changed_since_they_were_loaded,
        other_sources,
        another_embedder,
        an_embedder_that_does_not_say_what_it_is,
        another_kind_of_judge,
        a_later_version,
        a_damaged_file,
        a_file_under_another_name,
    ],
    ids=lambda f: f.__name__,
)
def test_stale_figures_are_not_given(change, folder, asked, monkeypatch):
    measured.measured_once(RuleJudge(), folder)
    judge = change(folder, monkeypatch)
    assert measured.measured_once(judge, folder) == measure(judge, folder) and len(asked) == 2


def test_two_embedders_do_not_share(folder, asked):
    for name in ("a", "b", "a"):
        measured.measured_once(RuleJudge(Named(name)), folder)
    assert len(asked) == 2


def test_the_halves_do_not_share(folder, asked):
    assert (
        measured.measured_once(RuleJudge(), folder)["en"]["n"] == 1
        and measured.measured_once(RuleJudge(), folder, "dev")["en"]["n"] == 0
    )


def test_a_cache_that_cannot_be_written_is_not_needed(folder, asked, monkeypatch):
    monkeypatch.setenv("KIOKULAB_CACHE", str(folder / "en.jsonl" / "nowhere"))
    assert measured.measured_once(RuleJudge(), folder)["en"]["n"] == 1


def test_a_source_just_written_or_unreadable_is_not_trusted(tmp_path, monkeypatch):
    import os

    monkeypatch.setattr(measured, "_KIT", tmp_path)
    (tmp_path / "judging.py").write_text("x = 1\n", encoding="utf-8")
    assert measured._sources() is None
    os.utime(tmp_path / "judging.py", (1, 1))
    before = measured._sources()
    (tmp_path / "judging.py").write_text("x = 2\n", encoding="utf-8")
    os.utime(tmp_path / "judging.py", (1, 1))
    assert before and measured._sources() not in (None, before)


def test_all_that_the_judge_imports_lies_in_the_folder_that_is_digested():
    """A rule moved elsewhere would change the figures under an old key."""
    import ast

    seen, todo = set(), ["judging"]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        path = measured._KIT / f"{name}.py"
        assert path.is_file(), name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kiokulab":
                todo += (
                    [".".join(node.module.split(".")[1:])]
                    if "." in node.module
                    else [alias.name for alias in node.names]
                )
    assert {"cues", "people", "relative", "synonyms", "text", "values"} <= seen

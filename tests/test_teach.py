import json
import math
from pathlib import Path

import pytest

from kiokulab import teach

LESSONS = teach.lessons()


def test_there_are_six_lessons_each_with_solutions_and_no_outputs():
    assert [p.stem[:2] for p in LESSONS] == ["01", "02", "03", "04", "05", "06"]
    for path in [*LESSONS, *(p.with_name(f"{p.stem}-solutions.ipynb") for p in LESSONS)]:
        notebook = json.loads(path.read_bytes())
        assert all(not c.get("outputs") and c.get("execution_count") is None for c in notebook["cells"]), path.name
        assert notebook["cells"][0]["cell_type"] == "markdown" and "".join(notebook["cells"][0]["source"]).startswith(
            "# "
        )


def test_lesson_and_solutions_differ_in_the_exercises_alone():
    for path in LESSONS:
        a, b = (json.loads(p.read_bytes())["cells"] for p in (path, path.with_name(f"{path.stem}-solutions.ipynb")))
        differ = [x for x, y in zip(a[1:], b[1:], strict=True) if x != y]
        exercises = [x for x in a if "exercise" in x["metadata"].get("tags", [])]
        assert differ == exercises and len(exercises) == sum(name.startswith(path.stem[1]) for name in teach.CHECKS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda p: p.stem)
def test_checks_fail_unfilled_and_pass_on_the_solution(lesson, tmp_path):
    assert teach.faults(lesson, tmp_path) == []
    if lesson.stem.startswith("06"):
        done = json.loads((tmp_path / f"{lesson.stem}-solutions.ipynb").read_bytes())
        shown = json.dumps(done)
        assert (
            all(f"<bdi>{track}</bdi>" in shown for track in ("kioku", "drift", "emem", "verdict"))
            and "<bdi>failed</bdi>" not in shown
        ), "a track did not run"


@pytest.mark.parametrize("name", teach.CHECKS)
@pytest.mark.parametrize(
    "answer",
    [
        ...,
        None,
        "",
        0,
        -1,
        math.nan,
        math.inf,
        True,
        [],
        [..., ...],
        lambda *a: ...,
        lambda *a: 1 / 0,
        lambda *a: 0,
        int,
        object(),
    ],
    ids=lambda a: type(a).__name__,
)
def test_no_check_is_passed_by_a_lazy_answer(name, answer, capsys):
    assert teach.check(name, answer) is False
    assert "not yet" in capsys.readouterr().out


def test_a_fault_in_a_lesson_is_found(tmp_path):
    """The check of the checks: a lesson that is solved already, and a solution that is not."""
    for name in ("01-what-to-measure", "01-what-to-measure-solutions"):
        (tmp_path / f"{name}.ipynb").write_bytes(
            (
                LESSONS[0].parent
                / (
                    "01-what-to-measure-solutions.ipynb"
                    if not name.endswith("solutions")
                    else "01-what-to-measure.ipynb"
                )
            ).read_bytes()
        )
    found = teach.faults(tmp_path / "01-what-to-measure.ipynb", tmp_path / "out")
    assert (
        len([f for f in found if "passes on the unfilled" in f])
        == 3
        == len([f for f in found if "fails on its own solution" in f])
    )


def test_one_track_that_fails_is_said_and_the_others_go_on(monkeypatch):
    def broken(system):
        raise RuntimeError("no such thing")

    for name in ("_try_kioku", "_try_drift", "_try_emem", "_try_verdict"):
        monkeypatch.setattr(
            teach,
            name,
            broken if name == "_try_drift" else lambda system: {"what was run": "x", "result": "y", "of": "z"},
        )
    rows = teach.try_everywhere("mine.py:Mine")
    assert [r["what was run"] for r in rows] == ["x", "failed", "x", "x"] and "no such thing" in rows[1]["result"]


def test_the_lessons_own_figures_are_the_published_ones():
    assert abs(teach._index(teach.EMPTY) - 31.6) < 0.05 and [
        round(teach._index(teach.MEM0, f), 1) for f in (0.001, 0.01, 0.05)
    ] == [2.7, 8.5, 19.1]
    assert Path(teach.lessons()[0]).parent.name == "teach"

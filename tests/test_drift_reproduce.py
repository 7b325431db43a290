"""The public benchmark's frozen worlds and published figures, read from beside the repository where they are."""

from pathlib import Path

import pytest

from kiokulab.drift import arms, judge, reproduce
from kiokulab.drift.ingest import replay
from kiokulab.drift.script import load_script

SHARED = Path(__file__).parent.parent.parent / "shared"
needs_data = pytest.mark.skipif(
    not (SHARED / "knowledgedrift").is_dir(),
    reason="the public worlds are not part of this repository and are not beside it",
)


def test_without_the_data_nothing_is_claimed(tmp_path):
    with pytest.raises(reproduce.MissingData, match="are not there"):
        reproduce.reproduce(tmp_path)
    with pytest.raises(reproduce.MissingData, match="500-seed1"):
        reproduce.find_world("500-seed1", tmp_path)


@needs_data
@pytest.mark.parametrize(("world", "figures"), [("100-seed1", 456), ("500-seed1", 692)])
def test_every_figure_of_a_frozen_world_comes_out(world, figures):
    found, _ = reproduce.reproduce(SHARED, (world,))
    assert [figure for figure in found if not figure.equal] == []
    assert len(found) == figures


@needs_data
def test_every_published_figure_of_the_largest_world_comes_out():
    found, _ = reproduce.reproduce(SHARED, ("1500-seed1",))
    assert [figure for figure in found if not figure.equal] == []
    assert len(found) == 236


def test_the_table_says_that_nothing_was_reproduced(tmp_path):
    table, wrong = reproduce.drift(tmp_path)
    assert "not reproduced" in table and wrong == []


@needs_data
def test_a_changed_rule_does_not_go_unseen(monkeypatch):
    monkeypatch.setattr(judge, "TOP", 4)
    found, _ = reproduce.reproduce(SHARED, ("100-seed1",), ("grep",))
    assert any(figure.figure == "failed ids" for figure in found if not figure.equal)


@needs_data
def test_a_loaded_public_world_is_written_again_byte_for_byte():
    path = reproduce.find_world("100-seed1", SHARED)
    assert load_script(path).text() == path.read_text(encoding="utf-8")


@needs_data
def test_mute_scores_three_hundred_and_the_oracle_passes_every_task():
    script = load_script(reproduce.find_world("500-seed1", SHARED))
    mute = judge.grade(script, replay(script, arms.make("mute", script))).receipt
    assert mute["score"] == 300 and mute["passed"] == 321
    oracle = judge.grade(script, replay(script, arms.make("oracle", script))).receipt
    assert oracle["passed"] == oracle["tasks"] == 3042 and oracle["flags"] == []

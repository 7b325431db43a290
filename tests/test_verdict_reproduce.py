import pytest

from kiokulab.verdict import reproduce


def test_published_figures_come_out_and_what_is_not_there_is_said(tmp_path):
    table, wrong = reproduce.part(tmp_path)
    assert wrong == [] and "66.4 to 92.7" in table and "70.3 to 94.7" in table and "8, 8, 5, 4, 3, 2" in table
    assert table.count("not computed") == 2 and table.count("not measured again") == 2


def test_public_judged_runs_and_the_rule_graders_agreement(shared):
    table, wrong = reproduce.part(shared("longmemeval/judged").parents[1])
    assert wrong == [] and "0.7142" in table and "0.6540" in table and "0.9333" in table and "not computed" not in table


def test_a_figure_that_differs_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(reproduce.sample, "quotas", lambda types, n: {kind: 5 for kind in types})
    _, wrong = reproduce.part(tmp_path)
    assert len(wrong) == 1 and "by type" in wrong[0]


@pytest.mark.parametrize("name", ["oracle_con"])
def test_counts_of_the_rule_grader_add_up(name, shared):
    found = reproduce.rule_grader_on(name, shared("longmemeval/judged").parents[1])
    assert found["agree"] + found["lenient"] + found["strict"] == found["n"] == 470

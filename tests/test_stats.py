"""Statistics: known values first, then properties that no input may break."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab import stats

shares = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    "k, n, low, high", [(25, 30, 66.4, 92.7), (26, 30, 70.3, 94.7), (0, 40, 0.0, 8.8), (17, 25, 48.4, 82.8)]
)
def test_wilson_known_values(k, n, low, high):
    rate = stats.wilson(k, n)
    assert (round(100 * rate.low, 1), round(100 * rate.high, 1)) == (low, high)


def test_a_rate_prints_its_counts_and_its_interval():
    assert str(stats.wilson(0, 40)) == "0 % (0/40, at most 8.8 %)"
    assert str(stats.wilson(25, 30, 2)) == "83.3 % (25/30, 66.4 to 92.7; 2 not judged)"
    assert str(stats.wilson(40, 40)) == "100 % (40/40, at least 91.2 %)"
    assert str(stats.wilson(0, 0)) == "n/a (0 judged)"


def test_the_worse_case_counts_all_that_was_not_judged():
    rate = stats.wilson(3, 4, not_judged=1)
    assert rate.worst("higher") == 3 / 5 and rate.worst("lower") == 4 / 5
    assert stats.wilson(0, 0).worst("higher") is None


@pytest.mark.parametrize("k, n", [(-1, 3), (4, 3)])
def test_no_share_of_impossible_counts(k, n):
    with pytest.raises(ValueError):
        stats.wilson(k, n)


@given(shares)
def test_wilson_holds_its_estimate_and_mirrors(share):
    k, n = share
    rate, mirror = stats.wilson(k, n), stats.wilson(n - k, n)
    assert 0 <= rate.low <= rate.rate <= rate.high <= 1
    assert math.isclose(rate.low, 1 - mirror.high, abs_tol=1e-9)
    assert rate.high - rate.low > 0


def ratio(k, n):
    return lambda weights: (weights @ np.asarray(k)) / (weights @ np.asarray(n))


def test_bootstrap_is_reproducible_and_holds_the_figure():
    k, n = [3, 5, 9, 10, 7, 2, 8, 6], [10] * 8
    one = stats.bootstrap(ratio(k, n), 8, seed=7)
    assert one == stats.bootstrap(ratio(k, n), 8, seed=7)
    assert one != stats.bootstrap(ratio(k, n), 8, seed=8)
    assert one.method == "bca" and one.low < one.value == 50 / 80 < one.high


def test_bootstrap_agrees_with_scipy_bca():
    from scipy.stats import bootstrap

    values = np.array([3, 5, 9, 10, 7, 2, 8, 6, 4, 4, 1, 9], float)
    ours = stats.bootstrap(ratio(values, np.ones(12)), 12, resamples=20000)
    theirs = bootstrap((values,), np.mean, n_resamples=20000, rng=np.random.default_rng(3)).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.15) and ours.high == pytest.approx(theirs.high, abs=0.15)


def test_bootstrap_falls_back_where_nothing_varies():
    got = stats.bootstrap(ratio([5] * 4, [10] * 4), 4)
    assert got == stats.Interval(0.5, 0.5, 0.5, "percentile")


def test_bootstrap_of_one_cluster_has_no_interval():
    assert stats.bootstrap(ratio([5], [10]), 1) == stats.Interval(0.5, None, None, "none")


def test_one_persona_a_language_has_no_interval_and_not_one_of_no_width():
    assert stats.bootstrap(ratio([5, 9], [10, 10]), 2, strata=["en", "ja"]) == stats.Interval(0.7, None, None, "none")
    assert stats.bootstrap(ratio([5, 9], [10, 10]), 2).low == 0.5 and not stats.resamplable([])


def test_bootstrap_keeps_the_strata():
    drawn = stats.resamples_of(["en", "en", "ja", "ja", "ja"], 50, seed=1)
    assert (drawn[:, :2].sum(1) == 2).all() and (drawn[:, 2:].sum(1) == 3).all()


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    generator, hits = np.random.default_rng(5), 0
    for _ in range(200):
        k = generator.binomial(20, np.clip(generator.normal(0.6, 0.1, 30), 0, 1))
        got = stats.bootstrap(ratio(k, [20] * 30), 30, resamples=400)
        hits += got.low <= 0.6 <= got.high
    assert 176 <= hits <= 199  # 95 % of 200, less the known narrowness of a bootstrap of 30 clusters


def test_clustered_error_counts_clusters_not_items():
    values, groups = [1.0] * 20 + [0.0] * 20, ["a"] * 10 + ["b"] * 10 + ["c"] * 10 + ["d"] * 10
    got = stats.clustered_mean(values, groups)
    naive = np.std(values, ddof=1) / math.sqrt(40)
    assert got.value == 0.5 and got.clusters == 4 and got.error > 2 * naive
    with pytest.raises(ValueError):
        stats.clustered_mean([1, 0], ["a", "a"])


def test_clustered_interval_is_t_on_clusters_minus_one():
    from scipy.stats import t

    got = stats.clustered_mean([1, 0, 1, 1, 0, 0, 1, 1], list("aabbccdd"))
    assert got.high - got.value == pytest.approx(t.ppf(0.975, 3) * got.error)


def test_mcnemar_exact_value_and_identical():
    got = stats.mcnemar([True] * 6 + [False], [False] * 6 + [True])
    assert (got.b, got.c) == (6, 1) and got.p == pytest.approx(2 * (1 + 7) / 2**7)
    same = stats.mcnemar([True, False], [True, False])
    assert same.verdict == "identical" and same.p is None
    with pytest.raises(ValueError):
        stats.mcnemar([True], [True, False])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_does_not_care_who_is_first(pairs):
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    one, other = stats.mcnemar(a, b), stats.mcnemar(b, a)
    assert one.p == other.p and (one.b, one.c) == (other.c, other.b)
    assert one.b + one.c + one.both + one.neither == len(pairs)


def test_holm_by_hand_and_nothing_to_test_is_not_a_test():
    assert stats.holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    assert stats.holm([None]) == [None]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_and_keeps_the_order(values):
    adjusted = stats.holm(values)
    assert all(a >= p - 1e-12 and a <= 1 for a, p in zip(adjusted, values))
    for i in range(len(values)):
        for j in range(len(values)):
            if values[i] < values[j]:
                assert adjusted[i] <= adjusted[j] + 1e-12


def test_cochran():
    assert stats.cochran([[1, 1, 1], [0, 0, 0]])["verdict"] == "identical"
    got = stats.cochran([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 1, 0]])
    # by hand: column sums 4, 3, 0; row sums 2, 1, 2, 1, 1; Q = 2 * (3 * 25 - 49) / (3 * 7 - 11)
    assert got["q"] == pytest.approx(5.2) and got["df"] == 2


def test_permutation():
    assert stats.permutation([1, 2, 3], [1, 2, 3]) is None
    assert stats.permutation([1, 2, 3, 4], [0, 0, 0, 0]) == pytest.approx(2 / 16)


def test_ranks_say_who_cannot_be_told_from_the_leader():
    generator = np.random.default_rng(1)
    draws = np.stack([generator.normal(m, 1, 2000) for m in (10, 9.8, 0)], axis=1)
    got = stats.ranks(draws)
    assert got["like_leader"].tolist() == [True, True, False] and got["low"][2] == got["high"][2] == 3


def test_kappa_known_value_and_no_variation():
    first, second = [1] * 25 + [0] * 25, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert stats.kappa(first, second).value == pytest.approx(0.4)
    got = stats.kappa(["held"] * 5, ["held"] * 5)
    assert (got.raw, got.value, got.note) == (1.0, None, "no variation")


def test_alpha_of_the_textbook_example():
    # Krippendorff's own example with missing labels (nominal, four observers, twelve units): 0.743
    a = [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None]
    b = [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3]
    c = [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None]
    d = [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None]
    assert stats.alpha(list(zip(a, b, c, d))).value == pytest.approx(0.743, abs=5e-4)
    assert stats.alpha([["x", "x"], ["x", "x"]]).note == "no variation"


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab")), min_size=2, max_size=30))
def test_agreement_is_at_most_one_and_one_only_when_all_agree(pairs):
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    for got in (stats.kappa(a, b), stats.alpha(pairs)):
        assert got.value is None or got.value <= 1 + 1e-12
        if got.value is not None:
            assert (got.value > 1 - 1e-12) == (a == b)


def test_power_known_values():
    assert stats.items_needed(0.033, 0.10) == 715
    assert stats.items_needed(0.10, 0.20) == 151
    with pytest.raises(ValueError):
        stats.items_needed(0.5, 0.1)


def test_delays_are_a_median_and_a_tail():
    got = stats.delays([1.0] * 9 + [100.0])
    assert got["median"].value == 1.0 and got["p90"].value > 1.0
    assert stats.delays([])["median"].value is None

"""Intervals, paired tests, agreement and power. Counts go in, and every figure that comes out carries its counts.

A bare percentage is not a type we have: a share is a `Rate`, which knows its k, n, interval and what was not judged.
Statistics that could not be computed are None with a word that says why ("identical", "no variation"), never a zero.
Units of resampling are clusters (a persona, a history, a world), because the facts of one persona are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

LEVEL = 0.95


# --- rates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """A share of counted things.

    k, n : how many of how many, among the judged.  low, high : 95 % Wilson interval (None where n is 0).
    not_judged : how many more there are that the judge did not answer; they are in neither k nor n.
    """

    k: int
    n: int
    low: float | None
    high: float | None
    not_judged: int = 0

    @property
    def rate(self) -> float | None:
        """k / n, or None where nothing was judged."""
        return self.k / self.n if self.n else None

    def worst(self, better: str) -> float | None:
        """The share with everything that was not judged counted as the worse case. `better`: 'higher' or 'lower'."""
        n = self.n + self.not_judged
        return (self.k + (self.not_judged if better == "lower" else 0)) / n if n else None

    def __str__(self) -> str:
        if not self.n:
            text = "n/a (0 judged"
        elif self.k == 0:
            text = f"0 % (0/{self.n}, at most {percent(self.high)}"
        elif self.k == self.n:
            text = f"100 % ({self.n}/{self.n}, at least {percent(self.low)}"
        else:
            text = f"{percent(self.rate)} ({self.k}/{self.n}, {100 * self.low:.1f} to {100 * self.high:.1f}"
        return text + (f"; {self.not_judged} not judged)" if self.not_judged else ")")


def percent(share: float) -> str:
    """'8.8 %' of 0.0876."""
    return f"{100 * share:.1f} %"


def wilson(k: int, n: int, not_judged: int = 0, level: float = LEVEL) -> Rate:
    """Rate of k in n with its Wilson score interval (Wilson 1927), which stays inside 0..1 and is not empty at 0/n.

    It takes the n items as independent; facts of one persona are not quite, so it is a little too narrow.
    Raises ValueError where not 0 <= k <= n.
    """
    if not 0 <= k <= n or not_judged < 0:
        raise ValueError(f"{k} of {n} ({not_judged} not judged) is no share")
    if n == 0:
        return Rate(0, 0, None, None, not_judged)
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(k, n, alpha=1 - level, method="wilson")
    # the closed form leaves 1e-17 at the ends, and an interval must hold its own estimate
    low, high = min(max(float(low), 0.0), k / n), max(min(float(high), 1.0), k / n)
    return Rate(int(k), int(n), low if k else 0.0, high if k < n else 1.0, int(not_judged))


# --- bootstrap over clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A figure with a 95 % bootstrap interval. method: 'bca', 'percentile', or 'none' (then low and high are None)."""

    value: float | None
    low: float | None
    high: float | None
    method: str


Statistic = Callable[[np.ndarray], np.ndarray]


def resamples_of(strata: Sequence[Hashable], resamples: int, seed: int) -> np.ndarray:
    """How often each cluster is drawn: counts of shape (resamples, clusters), drawn with replacement inside each
    stratum, so that a resample has as many clusters of each language as the data. Same seed, same counts."""
    generator = np.random.default_rng(seed)
    counts = np.zeros((resamples, len(strata)), dtype=np.int64)
    for stratum in sorted(set(strata), key=str):
        places = np.array([i for i, s in enumerate(strata) if s == stratum])
        counts[:, places] = generator.multinomial(len(places), np.full(len(places), 1 / len(places)), size=resamples)
    return counts


def resamplable(strata: Sequence[Hashable]) -> bool:
    """Whether there is anything to draw from: two clusters at least in each stratum. One persona of a language, drawn
    again and again, would give an interval of no width, which says the opposite of what is known."""
    return bool(strata) and all(list(strata).count(stratum) > 1 for stratum in set(strata))


def bootstrap(
    statistic: Statistic,
    clusters: int,
    *,
    strata: Sequence[Hashable] | None = None,
    seed: int = 1,
    resamples: int = 2000,
    level: float = LEVEL,
) -> Interval:
    """Interval of any statistic by resampling clusters.

    `statistic` takes weights of shape (m, clusters), how often each cluster counts, and gives m figures (nan where it
    has none). Bias-corrected and accelerated (Efron 1987; the jackknife leaves out one cluster); percentile where
    that has no answer, which is when every resample gives the same figure or the jackknife does not vary. With a
    handful of clusters all bootstrap intervals come out too narrow: 10 personas are few, and the report says so.
    """
    value = float(statistic(np.ones((1, clusters)))[0])
    if math.isnan(value):
        return Interval(None, None, None, "none")
    if resamples < 1 or not resamplable(strata if strata is not None else [0] * clusters):
        return Interval(value, None, None, "none")
    weights = resamples_of(strata if strata is not None else [0] * clusters, resamples, seed)
    draws = statistic(weights)
    draws = draws[~np.isnan(draws)]
    if len(draws) == 0:
        return Interval(value, None, None, "none")
    tail = (1 - level) / 2
    quantiles = _bca_quantiles(value, draws, statistic(1 - np.eye(clusters)), tail)
    method = "bca" if quantiles else "percentile"
    low, high = np.quantile(draws, quantiles or (tail, 1 - tail))
    return Interval(value, float(low), float(high), method)


def _bca_quantiles(value: float, draws: np.ndarray, jackknife: np.ndarray, tail: float) -> tuple[float, float] | None:
    """The two quantiles of the draws that BCa reads off, or None where BCa is not defined."""
    normal = NormalDist()
    # draws that tie with the estimate count half, else a statistic with few distinct values is pushed to one side
    below = float(np.mean(draws < value) + np.mean(draws == value) / 2)
    deviations = np.nanmean(jackknife) - jackknife
    spread = float(np.nansum(deviations**2))
    if not 0 < below < 1 or spread <= 1e-24 or np.ptp(draws) <= 1e-12 or np.isnan(jackknife).any():
        return None
    bias, acceleration = normal.inv_cdf(below), float(np.nansum(deviations**3)) / (6 * spread**1.5)
    result = []
    for share in (tail, 1 - tail):
        z = bias + normal.inv_cdf(share)
        if 1 - acceleration * z <= 0:
            return None
        result.append(normal.cdf(bias + z / (1 - acceleration * z)))
    return result[0], result[1]


@dataclass(frozen=True)
class Mean:
    """A mean with its clustered standard error; t interval on clusters - 1 degrees of freedom."""

    value: float
    error: float
    low: float
    high: float
    n: int
    clusters: int


def clustered_mean(values: Sequence[float], groups: Sequence[Hashable]) -> Mean:
    """Mean of `values` whose errors are shared inside `groups` (a persona, a history, a world).

    Raises ValueError with fewer than two groups: a standard error that ignores the clusters would be a false one.
    """
    codes = {g: i for i, g in enumerate(dict.fromkeys(groups))}
    if len(values) != len(groups) or len(codes) < 2:
        raise ValueError(f"{len(values)} values in {len(codes)} group(s): two groups are the least")
    import statsmodels.api as sm

    fit = sm.OLS(np.asarray(values, float), np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array([codes[g] for g in groups])}, use_t=True
    )
    low, high = fit.conf_int(alpha=1 - LEVEL)[0]
    return Mean(float(fit.params[0]), float(fit.bse[0]), float(low), float(high), len(values), len(codes))


# --- comparisons --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paired:
    """Two systems on the same items. b: only the first is right; c: only the second; both and neither say the rest.
    p: exact two-sided McNemar, None where there is nothing to test. verdict: 'identical' where b + c is 0."""

    b: int
    c: int
    both: int
    neither: int
    p: float | None
    verdict: str


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Exact McNemar test of two systems, right or wrong on the same items in the same order."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} items against {len(second)}: the test is for the same items")
    both = sum(1 for a, b in zip(first, second) if a and b)
    only_first = sum(1 for a, b in zip(first, second) if a and not b)
    only_second = sum(1 for a, b in zip(first, second) if b and not a)
    neither = len(first) - both - only_first - only_second
    if only_first + only_second == 0:
        return Paired(0, 0, both, neither, None, "identical")
    from statsmodels.stats.contingency_tables import mcnemar as exact

    p = float(exact([[both, only_first], [only_second, neither]], exact=True).pvalue)
    return Paired(only_first, only_second, both, neither, min(p, 1.0), "tested")


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm-adjusted p values in the order given; None (nothing to test) stays None and is not counted as a test."""
    places = [i for i, p in enumerate(values) if p is not None]
    result: list[float | None] = [None] * len(values)
    if places:
        from statsmodels.stats.multitest import multipletests

        for i, p in zip(places, multipletests([values[i] for i in places], method="holm")[1]):
            result[i] = float(p)
    return result


def cochran(table: Sequence[Sequence[bool]]) -> dict[str, Any]:
    """Cochran's Q over several systems: a row an item, a column a system. {'q','p','df','items','verdict'}; where no
    item tells the systems apart, q and p are None and the verdict is 'identical'."""
    data = np.asarray(table, dtype=int)
    if data.ndim != 2 or data.shape[1] < 2:
        raise ValueError("a table of items by two or more systems is needed")
    df = data.shape[1] - 1
    if not ((data.sum(1) > 0) & (data.sum(1) < data.shape[1])).any():
        return {"q": None, "p": None, "df": df, "items": len(data), "verdict": "identical"}
    from statsmodels.stats.contingency_tables import cochrans_q

    result = cochrans_q(data)
    return {"q": float(result.statistic), "p": float(result.pvalue), "df": df, "items": len(data), "verdict": "tested"}


def permutation(first: Sequence[float], second: Sequence[float], seed: int = 1, resamples: int = 9999) -> float | None:
    """Two-sided p of a paired difference of graded scores (labels swapped inside each pair); None where all pairs
    tie."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} items against {len(b)}: the test is for the same items")
    if np.array_equal(a, b):
        return None
    from scipy.stats import permutation_test

    def difference(x, y, axis):
        return np.mean(x - y, axis=axis)

    return float(
        permutation_test(
            (a, b),
            difference,
            permutation_type="samples",
            vectorized=True,
            n_resamples=resamples,
            rng=np.random.default_rng(seed),
        ).pvalue
    )


def ranks(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Ranks (1 = highest) of systems over shared resamples: `draws` is (resamples, systems).

    Returns 'low' and 'high' (95 % of the ranks) and 'like_leader': True where the leader is not ahead in at least
    97.5 % of the resamples, that is, where the two cannot be told apart.
    """
    order = (-draws).argsort(axis=1).argsort(axis=1) + 1
    leader = int(np.nanmean(draws, axis=0).argmax())
    ahead = (draws[:, [leader]] > draws).mean(axis=0)
    like = ahead < 1 - (1 - LEVEL) / 2
    return {"low": np.quantile(order, 0.025, axis=0), "high": np.quantile(order, 0.975, axis=0), "like_leader": like}


# --- agreement ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """raw: share of equal labels. value: the chance-corrected figure, None with note 'no variation' where all labels
    are one and the same, because chance agreement is then 1 and the figure is 0/0."""

    raw: float
    value: float | None
    n: int
    note: str = ""


def kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> Agreement:
    """Cohen's kappa of two raters on the same items (labels of any hashable kind)."""
    if len(first) != len(second) or not first:
        raise ValueError(f"{len(first)} labels against {len(second)}: the same items, one at least")
    labels = {label: i for i, label in enumerate(sorted({*first, *second}, key=str))}
    raw = sum(a == b for a, b in zip(first, second)) / len(first)
    if len(labels) == 1:
        return Agreement(raw, None, len(first), "no variation")
    from statsmodels.stats.inter_rater import cohens_kappa

    table = np.zeros((len(labels), len(labels)))
    for a, b in zip(first, second):
        table[labels[a], labels[b]] += 1
    return Agreement(raw, float(cohens_kappa(table, return_results=False)), len(first))


def alpha(ratings: Sequence[Sequence[Hashable | None]]) -> Agreement:
    """Krippendorff's alpha for names (Krippendorff 2011, "Computing Krippendorff's alpha-reliability"): a row an item,
    an entry a rater, None where a rater gave no label. n counts items that two or more raters labelled."""
    items = [[label for label in row if label is not None] for row in ratings]
    items = [row for row in items if len(row) > 1]
    if not items:
        raise ValueError("no item was labelled by two raters")
    labels = {label: i for i, label in enumerate(sorted({x for row in items for x in row}, key=str))}
    coincidence = np.zeros((len(labels), len(labels)))
    for row in items:
        counts = np.bincount([labels[x] for x in row], minlength=len(labels))
        coincidence += (np.outer(counts, counts) - np.diag(counts)) / (len(row) - 1)
    total, margins = coincidence.sum(), coincidence.sum(0)
    observed = 1 - float(np.trace(coincidence)) / total
    if len(labels) == 1:
        return Agreement(1.0, None, len(items), "no variation")
    expected = 1 - float((margins * (margins - 1)).sum()) / (total * (total - 1))
    return Agreement(1 - observed, 1 - observed / expected, len(items))


# --- planning and delays ------------------------------------------------------------------------------------------


def items_needed(difference: float, discordant: float, power: float = 0.8) -> int:
    """Items that a paired comparison needs to see `difference` (0.033 = 3.3 points) when the systems disagree on a
    share `discordant` of the items: the paired t test on the difference, whose variance is discordant - difference².
    To the nearest item, as such tables are printed."""
    if not 0 < abs(difference) < 1 or not difference**2 < discordant <= 1:
        raise ValueError(f"a difference of {difference} cannot come with {discordant} discordant items")
    from statsmodels.stats.power import TTestPower

    effect = abs(difference) / math.sqrt(discordant - difference**2)
    return round(TTestPower().solve_power(effect_size=effect, alpha=1 - LEVEL, power=power))


def delays(seconds: Sequence[float], seed: int = 1, resamples: int = 2000) -> dict[str, Interval]:
    """Median and 90th percentile with percentile-bootstrap intervals; never a mean alone, which one stall decides."""
    values = np.sort(np.asarray(seconds, float))
    if len(values) == 0:
        return {name: Interval(None, None, None, "none") for name in ("median", "p90")}
    drawn = np.random.default_rng(seed).choice(values, size=(resamples, len(values)))
    result = {}
    for name, q in (("median", 0.5), ("p90", 0.9)):
        low, high = np.quantile(np.quantile(drawn, q, axis=1), [0.025, 0.975])
        result[name] = Interval(float(np.quantile(values, q)), float(low), float(high), "percentile")
    return result

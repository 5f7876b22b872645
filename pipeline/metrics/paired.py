"""Paired tests of differences per query, their corrections and power; letters and ranks of all pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import inf
from string import ascii_lowercase

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import Float64, JsonObject
from pipeline.metrics.definitions import Measure
from pipeline.metrics.statistics import ONE, ROUNDING, Estimate, Strata, estimate, pool_draws

SAME = 1e-12
"""Values that differ by no more are a tie; above 1, such as those of DCG, as a share of the highest."""
LEVEL = 0.05
POWER = 0.8
MOST_QUERIES = 1 << 40
MOST_FREEDOM = 10_000
PERMUTATIONS = 20_000
EXACT_QUERIES = 14
"""Up to so many queries, all 2^queries ways to change signs are counted."""
SEED_OF_SIGNS = 20190
BLOCK_SWAPS = 1 << 20  # random swaps made at once
BLOCK_ROWS = 1 << 11  # ways made at once


def paired_differences(ours: Float64, theirs: Float64) -> Float64:
    """Ours minus theirs, value by value; 0 where they are a tie, so that rounding decides nothing."""
    differences, highest = ours - theirs, np.maximum(np.abs(ours), np.abs(theirs))
    return np.where(np.abs(differences) <= SAME * np.maximum(highest, 1), 0, differences)


def paired_tests(differences: Strata, weights: Float64, most_lost: ArrayLike) -> tuple[Estimate, Float64]:
    """Test differences, and estimate their means: what is said of them wherever they are shown.

    Args:
        differences: For each collection float64 [queries, columns], as of `paired_differences`.
        weights: float64 [collections].
        most_lost: How much a query can lose, as of `most_lost_of`, float64 [columns] or one for all.

    Returns:
        The means with t-tests and intervals; and float64 [columns], the two-sided p of `randomization_test`.
    """
    most = np.asarray(most_lost)
    return estimate(differences, weights, low=-most, high=most), randomization_test(differences, weights)


def randomization_test(strata: Strata, weights: Float64 = ONE) -> Float64:
    """Two-sided p that the mean of differences is 0, of each column alone.

    If two runs are equally good, the values of a query could as well have changed places, which changes the
    sign of its difference. The statistic is Student's t, but changing signs leaves the sum of squares as it
    is, so t grows with |sum|, which is compared instead.

    20,000 ways to change signs are drawn from a fixed seed, the same for every column. The observed one is
    counted as one more, so that p is never 0 (Smucker, Allan and Carterette, CIKM 2007; Phipson and Smyth,
    Statistical Applications in Genetics and Molecular Biology 9(1), 2010). With up to 14 queries, all ways
    are counted instead, and p is exact. The queries of several collections count as those of one, each by the
    weight that it has in M.

    Args:
        strata: For each collection float64 [queries, columns], 0 where runs differ by rounding alone.
        weights: Of the collections.

    Returns:
        float64 [columns].
    """
    shares = weights / [len(values) for values in strata] if len(strata) > 1 else ONE
    changes = np.vstack([values * share for values, share in zip(strata, shares, strict=True)])
    n_queries = len(changes)
    scale = np.abs(changes).max(initial=0) or 1.0  # so that no sum is too large or too small
    changes = changes / scale
    totals, sizes = changes.sum(axis=0), np.abs(changes).sum(axis=0)
    observed = np.abs(totals) - ROUNDING * sizes
    reached = np.zeros(changes.shape[1])
    drawn = n_queries > EXACT_QUERIES  # else the observed way is among all of them
    generator = np.random.default_rng(SEED_OF_SIGNS)
    ways = PERMUTATIONS if drawn else 1 << n_queries
    rows = min(max(BLOCK_SWAPS // n_queries, 1), BLOCK_ROWS) if drawn else ways
    for start in range(0, ways, rows):
        # float64 [rows, queries]: 1 where the values of a query change places, from a random bit or the bit
        # of the number of the way
        block = min(rows, ways - start)
        if drawn:
            packed = np.frombuffer(generator.bytes(block * -(-n_queries // 8)), dtype=np.uint8)
            swaps = np.unpackbits(packed).reshape(block, -1)[:, :n_queries].astype(np.float64)
        else:
            swaps = (np.arange(ways)[:, None] >> np.arange(n_queries) & 1).astype(np.float64)
        reached += (np.abs(totals - 2 * (swaps @ changes)) >= observed).sum(axis=0)
    return (drawn + reached) / (drawn + ways)


def most_lost_of(highest: ArrayLike, seen: ArrayLike) -> Float64:
    """How much a query can lose: the highest value of its measure, or the highest seen, if there is none."""
    return np.where(np.isfinite(highest), highest, seen)


def changes(
    measures: Sequence[Measure], before: Float64, after: Float64, draws: Sequence[Hashable]
) -> dict[str, JsonObject]:
    """What happened to each measure, by its name, as JSON, of values float64 [queries, measures] each.

    `before` is the mean, `difference` that of after minus before; `p_holm` is `p_ttest` corrected for the
    number of measures; `wins`, `ties` and `losses` are queries that rose, stayed and fell. Queries of which
    `draws` are equal count as one in tests and intervals.
    """
    if not measures:  # nothing is judged
        return {}
    differences = paired_differences(after, before)
    highest = np.array([measure.definition.highest for measure in measures])
    pooled, _ = pool_draws([differences], ONE, [draws])
    seen = np.maximum(before, after).max(axis=0)
    estimated, p_randomization = paired_tests(pooled, ONE, most_lost_of(highest, seen))
    columns = {
        "before": before.mean(axis=0),
        "difference": estimated.means,
        "p_ttest": estimated.p,
        "p_randomization": p_randomization,
        "p_holm": holm(estimated.p),
        "wins": (differences > 0).sum(axis=0),
        "ties": (differences == 0).sum(axis=0),
        "losses": (differences < 0).sum(axis=0),
        "fragile": estimated.fragile,
    }
    listed = {name: column.tolist() for name, column in columns.items()}
    listed["ci_low"], listed["ci_high"] = map(list, zip(*estimated.ends, strict=True))
    return {
        str(measure): {name: column[number] for name, column in listed.items()}
        for number, measure in enumerate(measures)
    }


def larger_p(by_t: Float64, by_chance: Float64) -> Float64:
    """The larger p, of t-tests and of randomizations, float64 [tests].

    It is the t-test's where no randomization reaches the observed difference, so that their number sets no
    limit to what a correction for many tests leaves.
    """
    reached = by_chance > 1.5 / (PERMUTATIONS + 1)
    return np.where(reached, np.maximum(by_t, by_chance), by_t)


def holm(p_values: Float64) -> Float64:
    """p-values, float64 [tests], corrected for multiple tests (Holm, Scand. J. Statistics 6(2), 1979).

    A corrected value is below a level if and only if Holm's step-down method rejects that test at the level.
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty_like(p_values)
    corrected[order] = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    return np.minimum(corrected, 1.0)


def standings(
    means: Sequence[float], better: Iterable[tuple[int, int]]
) -> tuple[list[str], list[tuple[int, int]]]:
    """Letters and intervals of ranks of runs, from the pairs of which the first was shown to be better.

    Two runs share a letter if and only if neither was shown to be better; the run with the highest mean has
    the letter "a". By the insert-and-absorb algorithm: Piepho, *An algorithm for a letter-based
    representation of all-pairwise comparisons*, J. Computational and Graphical Statistics 13(2), 2004.

    The rank of a run is 1 + the number of those with a higher true mean; those shown to be better are among
    them, those shown to be worse are not. If the pairs are shown with a family-wise error of 5%, all
    intervals hold the true ranks together in 95% of cases (Mogstad, Romano, Shaikh and Wilhelm, Review of
    Economic Studies 91(1), 2024).

    Returns:
        For each run its letters in alphabetical order, and its lowest and highest rank, from 1 for the best.
    """
    runs = range(len(means))
    groups, above, below = [frozenset(runs)], [0] * len(means), [0] * len(means)
    for pair in better:
        winner, loser = pair
        above[loser] += 1
        below[winner] += 1
        # a group that holds both becomes two groups, each without one of them
        split = [
            half
            for group in groups
            for half in ([group - {one} for one in pair] if group.issuperset(pair) else [group])
        ]
        groups = [group for group in dict.fromkeys(split) if not any(group < other for other in split)]
    places = {run: place for place, run in enumerate(sorted(runs, key=lambda run: -means[run]))}
    groups.sort(key=lambda group: sorted(places[run] for run in group))
    names = [ascii_lowercase[i % 26] + str(i // 26 or "") for i in range(len(groups))]
    letters = [
        "".join(name for name, group in zip(names, groups, strict=True) if run in group) for run in runs
    ]
    return letters, [(1 + above[run], len(means) - below[run]) for run in runs]


def detectable_difference(errors: ArrayLike, freedom: ArrayLike, alpha: ArrayLike) -> Float64:
    """The smallest true difference of means that a one-sided t-test at `alpha` finds with 80% power.

    That is δ · error, where the noncentral t of noncentrality δ is above the test's quantile in 80% of
    cases (Cohen, *Statistical Power Analysis for the Behavioral Sciences*, 1988, section 2.5). It depends on
    the spread of the differences alone, and not on the difference that was observed. `queries_needed` is
    its inverse for one collection. A two-sided test at 5% takes alpha = 0.025; one corrected for m tests
    divides it by m, which is the first step of Holm's method.

    Args:
        errors: Standard errors of the mean differences, float64 [n], such as `Estimate.wide_errors`.
        freedom: Their degrees of freedom, float64 [n].
        alpha: The level of the test, float64 [n] or one for all.

    Returns:
        float64 [n], in the unit of the errors; infinite without spread or degrees of freedom, where nothing
        tells what could be found.
    """
    from scipy.special import nctdtrinc, ndtri, stdtrit

    errors, freedom, alpha = np.broadcast_arrays(
        *(np.asarray(each, dtype=np.float64) for each in (errors, freedom, alpha))
    )
    known = (errors > 0) & (freedom >= 1)
    degrees = np.where(known, freedom, 1)
    quantile = stdtrit(degrees, 1 - alpha)
    normal = degrees > MOST_FREEDOM  # above which the inverse of the noncentral t is no more precise
    by_t = nctdtrinc(np.where(normal, 1, degrees), 1 - POWER, np.where(normal, 1, quantile))
    distance = np.where(normal, quantile + ndtri(POWER), by_t)
    return np.where(known, distance * errors, inf)


def queries_needed(effect: ArrayLike, alpha: ArrayLike) -> Float64:
    """The numbers of queries with which a one-sided paired t-test at `alpha` has 80% power.

    Power is that of the noncentral t distribution. An effect is the distance of the true mean from the tested
    one, in standard deviations of the differences (Cohen, *Statistical Power Analysis for the Behavioral
    Sciences*, 1988, section 2.5).

    Args:
        effect: float64 [n].
        alpha: The level of the test, float64 [n] or one for all.

    Returns:
        float64 [n]: whole numbers; infinite where none has that power.
    """
    from scipy.special import nctdtr, ndtr, stdtrit

    effect, alpha = np.broadcast_arrays(np.asarray(effect, dtype=np.float64), alpha)
    low, high = np.ones(effect.shape), np.full(effect.shape, 2.0)
    enough_at_high, done = np.zeros((2, *effect.shape), dtype=bool)
    while not done.all():
        # `high` is doubled until it is enough; then the middle of what is too little and enough is tried
        queries = np.where(enough_at_high & ~done, (low + high) // 2, high)
        quantile, noncentrality = stdtrit(queries - 1, 1 - alpha), effect * np.sqrt(queries)
        normal = (queries > MOST_FREEDOM) | (noncentrality > 30)  # from which t no longer differs
        by_t = 1 - nctdtr(queries - 1, np.where(normal, 0, noncentrality), quantile)
        enough = np.where(normal, ndtr(noncentrality - quantile), by_t) >= POWER
        low = np.where(enough, low, queries)
        high = np.where(enough, queries, np.where(enough_at_high, high, 2 * high))
        enough_at_high |= enough
        done |= enough_at_high & (high - low <= 1) | (high > MOST_QUERIES)
    return np.where(high > MOST_QUERIES, inf, high)

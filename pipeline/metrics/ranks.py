"""Ranks of several runs, and the intervals that tests of all pairs give them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def ranks_of(means: Sequence[float]) -> list[int]:
    """The rank of each mean among all, 1 for the highest; equal ones share the best of theirs."""
    return [1 + sum(other > mean for other in means) for mean in means]


def rank_intervals(means: Sequence[float], different: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The best and the worst rank that each run can have, as far as tests of all pairs show.

    A run's best rank is 1 + the number of runs that were shown to be better, its worst the number of runs
    less those that were shown to be worse. Where the tests of all pairs together are wrong in at most 5% of
    cases, all intervals together hold the true ranks in at least 95% (Mogstad, Romano, Shaikh and Wilhelm,
    *Inference for ranks*, Review of Economic Studies 91(1), 2024).

    `different` are pairs of positions in `means` that were shown to differ.
    """
    best, worst = [1] * len(means), [len(means)] * len(means)
    for one, other in different:
        better, lower = (one, other) if means[one] > means[other] else (other, one)
        best[lower] += 1
        worst[better] -= 1
    return list(zip(best, worst, strict=True))

"""Words that set some texts apart from others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.core.words import words_of


def log_odds(inside: Float64, outside: Float64) -> Float64:
    """float64 [words]: how much more often each word occurs inside, as a z-score.

    The log-odds ratio with an informative Dirichlet prior (Monroe, Colaresi and Quinn, *Fightin' Words*,
    Political Analysis 16(4), 2008, equations 16, 20 and 22); the prior counts are those of both together.

    Args:
        inside: float64 [words], how often each word occurs inside.
        outside: The same outside; every word occurs somewhere, and there are two words at least.
    """
    prior = inside + outside
    total = prior.sum()

    def log_odds_of(counts: Float64) -> Float64:
        smoothed = counts + prior
        odds: Float64 = np.log(smoothed / (counts.sum() + total - smoothed))
        return odds

    variance = 1 / (inside + prior) + 1 / (outside + prior)
    z: Float64 = (log_odds_of(inside) - log_odds_of(outside)) / np.sqrt(variance)
    return z


def distinctive_words(
    texts: Sequence[str], inside: BoolArray, left_out: Collection[str] = (), limit: int = 3
) -> list[str]:
    """The words with the highest `log_odds` in some of the texts, bool [texts]; equal ones by the alphabet.

    A word counts once for a text. Words of a single text are taken only where none is in two. Words of
    `left_out`, numbers and single letters are never taken.
    """
    word_sets = [
        {word for word in words_of(text) if len(word) > 1 and not word.isdecimal() and word not in left_out}
        for text in texts
    ]
    counts_inside, counts_outside = (
        _counted(words for words, is_in in zip(word_sets, inside.tolist(), strict=True) if is_in == wanted)
        for wanted in (True, False)
    )
    words = sorted({*counts_inside, *counts_outside})
    if len(words) < 2:
        return words[:limit]
    ours, theirs = (
        np.array([counts[word] for word in words], np.float64) for counts in (counts_inside, counts_outside)
    )
    z = log_odds(ours, theirs)
    frequent = (z > 0) & (ours > 1)
    rows = np.flatnonzero(frequent if frequent.any() else z > 0).tolist()
    return [words[row] for row in sorted(rows, key=lambda row: (-z[row], words[row]))[:limit]]


def _counted(word_sets: Iterable[set[str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for words in word_sets:
        counts.update(words)
    return counts

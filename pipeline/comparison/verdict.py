"""A comparison in one sentence: who is better, by how much, or how many queries would decide."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.comparison import Correction
from pipeline.comparison.pairs import Pair, deciding_p
from pipeline.comparison.tables import Entry
from pipeline.core.display import bounds, counted, figure
from pipeline.results.tables import mean_sentence

MOST_NAMED = 6
"""Names in one enumeration; of more there is only the number."""


def verdict(
    measure: str,
    results: Sequence[Entry],
    pairs: Sequence[Pair],
    baseline: str | None,
    correction: Correction,
    margin: float | None,
) -> str:
    """The sentence, without its full stop."""
    queries, of_suites = results[0].queries, list(results[0].by_collection) != [""]
    best = max(results, key=lambda entry: entry.mean)
    if not pairs:
        return mean_sentence(best.name, measure, best.mean, best.ci_low, best.ci_high, queries, of_suites)
    if len(pairs) == 1:
        return _of_pair(measure, pairs[0], queries, correction, margin)
    if baseline:
        concerned = [(pair.a, pair) for pair in pairs]
        opening = f"Against {baseline} in {measure}"
        kinds = {
            "better:": [name for name, pair in concerned if pair.shown and pair.difference > 0],
            "worse:": [name for name, pair in concerned if pair.shown and pair.difference < 0],
        }
    else:
        concerned = [
            (pair.b if pair.a == best.name else pair.a, pair)
            for pair in pairs
            if best.name in (pair.a, pair.b)
        ]
        mean = "macro mean " if of_suites else ""
        opening = f"{best.name} has the highest {mean}{measure}, {figure(best.mean)}"
        kinds = {"shown to be better than": [name for name, pair in concerned if pair.shown]}
    kinds["no difference shown from"] = [name for name, pair in concerned if not pair.shown]
    parts = [f"{kind} {enumerated(names)}" for kind, names in kinds.items() if names]
    undecided = [pair for _, pair in concerned if not pair.shown]
    return f"{opening}; {'; '.join(parts)}{_too_few(undecided, queries)}"


def _of_pair(measure: str, pair: Pair, queries: int, correction: Correction, margin: float | None) -> str:
    """A pair: the difference with its interval and the corrected p."""
    first, second = (pair.a, pair.b) if pair.difference >= 0 else (pair.b, pair.a)
    low, high = pair.ci_low, pair.ci_high
    if first == pair.b and low is not None and high is not None:
        low, high = -high, -low
    p = _p(deciding_p(pair, correction))
    by = f"{figure(abs(pair.difference))}{bounds(low, high)}"
    if pair.shown:
        return f"{first} is better than {second} in {measure} by {by} ({p})"
    if pair.equivalent:
        return (
            f"{first} and {second} differ by less than {margin:g} in {measure}: {by} "
            f"({_p(pair.p_equivalent or 0.0)})"
        )
    sentence = f"No difference shown between {first} and {second} in {measure}: {by} ({p})"
    return sentence + _too_few([pair], queries)


def _too_few(undecided: Sequence[Pair], queries: int) -> str:
    """With how many queries the t-tests of these pairs would show what was found, where that is known."""
    needed = [pair.queries_needed for pair in undecided if pair.queries_needed]
    most = max(needed, default=0)
    if most <= queries:
        return ""
    few = f"{counted(queries, 'query is', 'queries are')} too few"
    return f"; {few}, about {most:,} would decide (80% power, if the difference stays the same)"


def _p(value: float) -> str:
    text = figure(value, "p")
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def enumerated(names: Sequence[str]) -> str:
    """Names joined by commas and "and", or their number if there are many."""
    if len(names) > MOST_NAMED:
        return f"{len(names)} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

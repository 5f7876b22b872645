"""How many queries detect a difference, before anything is run: from the spread of results that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.comparison.inputs import read_results, shared_values
from pipeline.comparison.pairs import two_sided
from pipeline.config import Config
from pipeline.core.display import figure
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.metrics.paired import LEVEL, detectable_difference, paired_differences, queries_needed
from pipeline.metrics.statistics import estimate
from pipeline.studies.study import Plan


@dataclass(frozen=True)
class Detection(Plan):
    """What a comparison can show with 80% power: by a paired t-test at 5%, with Bonferroni's correction."""

    difference: float  # of means, the one to detect
    spread: float  # standard deviation of the differences between queries
    origin: str  # where the spread is from, as a clause
    pairs: int  # how many are compared
    queries: int  # how many queries detect the difference
    alone = True

    def detects(self, queries: int | None) -> float | None:
        """The smallest difference that so many queries detect; None for fewer than 2, or if not known."""
        if not queries or queries < 2:
            return None
        level = LEVEL / 2 / self.pairs
        return float(detectable_difference(self.spread / sqrt(queries), queries - 1, level))

    def sentence(self, name: str = "", queries: int | None = None) -> str:
        """What it takes, and what the queries of the collection `name` detect, if their number is known."""
        said = f"a difference of {self.difference:g} takes about {self.queries:,} queries in compare "
        said += f"({two_sided(self.pairs)}) and {self.gate_queries:,} in gate (one-sided); {self.origin}"
        if (detected := self.detects(queries)) is not None:
            said += f"; the {queries:,} of {name} detect {figure(detected, '.2g')}"
        return said

    @property
    def gate_queries(self) -> int:
        """How many exclude a loss of `difference`, where there is none, of one measure."""
        return int(queries_needed(self.difference / self.spread, LEVEL))

    def document(self, queries: int | None = None) -> JsonObject:
        """The same as JSON."""
        return {**asdict(self), "gate_queries": self.gate_queries, "detects": self.detects(queries)}


def find_plan(configs: Sequence[Config], options: Mapping[str, Any]) -> Detection | None:
    """The plan that the options of `plan` ask for; None where they do not."""
    detect, spread = options["detect"], options["spread"] or []
    if spread and detect is None:
        raise InputError(
            "--spread without --detect", allowed="--detect 0.01 --spread 0.25", fix="add --detect"
        )
    return None if detect is None else plan_detection(detect, spread, len(configs))


def plan_detection(difference: float, spread: Sequence[str], results: int) -> Detection:
    """Plan the size of a comparison.

    Args:
        difference: Of means, the one to detect.
        spread: A number; or result folders that resemble those to compare: the largest spread of two of
            them. Of a single one it is that of its values, which is the spread of differences from a result
            of the same spread whose correlation with it is 0.5.
        results: How many are to be compared, every two of them.

    Raises:
        InputError: The difference is not above 0, the spread is neither a number above 0 nor results, or
            their values are all equal.
    """
    if not 0 < difference < np.inf:
        raise InputError(f"--detect {difference}", allowed="a difference above 0, such as 0.01")
    pairs = max(results * (results - 1) // 2, 1)
    try:
        (deviation,) = map(float, spread)
        origin = f"spread {deviation:g}"
    except ValueError:
        deviation, origin = _spread_of(spread)
    if not 0 < deviation < np.inf:
        raise InputError(
            f"--spread {' '.join(spread)}: a spread of {deviation:g}",
            allowed="a number above 0, or result folders whose values differ",
            fix="for example --spread 0.25",
        )
    needed = float(queries_needed(difference / deviation, LEVEL / 2 / pairs))
    if not isfinite(needed):
        raise InputError(f"--detect {difference}: no number of queries does", fix="take a larger difference")
    return Detection(difference, deviation, origin, pairs, int(needed))


def _spread_of(folders: Sequence[str]) -> tuple[float, str]:
    """The largest spread between two results, and where it is from."""
    if not folders or not all(Path(folder).exists() for folder in folders):
        raise InputError(
            f"--spread {' '.join(folders) or 'is missing'}",
            allowed="the standard deviation of the differences between queries, or result folders",
            fix="for example --detect 0.01 --spread results/a --spread results/b, or --spread 0.25",
        )
    results, _ = read_results(folders)
    (name, *_), values, _ = shared_values(results)
    pairs = list(combinations(range(len(results)), 2))
    columns = [
        np.stack([paired_differences(each[:, a, 0], each[:, b, 0]) for a, b in pairs], axis=1)
        if pairs
        else each[:, :, 0]
        for each in values
    ]
    strata, weights = results[0].pool_draws(columns)
    estimated = estimate(strata, weights)
    errors = estimated.wide_errors if pairs else estimated.errors
    spreads = errors * sqrt(sum(map(len, strata)))
    widest = int(spreads.argmax())
    of = " and ".join(results[number].name for number in (pairs[widest] if pairs else (0,)))
    of += "" if pairs else " alone, whose correlation with another result is taken for 0.5"
    spread = float(spreads[widest])
    return spread, f"spread {figure(spread, '.2g')}, in {name} of {of}"

"""Published scores that a config expects, and the verdict on each once it was measured.

Queries and passages of a public collection are the same everywhere, so a difference between a published and a
measured mean is one of implementation, and not of chance: no test of significance is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, get_args

from pipeline.core.result_records import Record
from pipeline.metrics.definitions import Measure, parse_measure
from pipeline.metrics.paired import SAME

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.config.stages import ExpectedScore

Verdict = Literal["reproduced", "not reproduced", "not comparable", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class ScoreCheck(Record):
    """A published score and the measured one."""

    model: str = ""
    collection: str = ""
    measure: str
    expected: float
    got: float | None = None  # none where it was not measured
    difference: float | None = None  # `got` minus `expected`
    # The largest difference that counts as reproduced, half a unit of the last digit included.
    tolerance: float
    digits: int  # published decimal places
    verdict: Verdict
    source: str = ""
    reason: str = ""  # why the two cannot be compared, or nothing was run


def decimals(value: float) -> int:
    """The decimal places that a number is written with."""
    return max(-int(Decimal(repr(value)).as_tuple().exponent), 0)


def check_score(
    expected: ExpectedScore, got: float | None, reason: str = "", model: str = "", collection: str = ""
) -> ScoreCheck:
    """The verdict on a measured mean; None with a reason is not comparable, without one not run."""
    digits = decimals(expected.value) if expected.digits is None else expected.digits
    tolerance = expected.tolerance + 0.5 * 10.0**-digits
    verdict: Verdict = "not comparable" if reason else "not run"
    difference = None
    if got is not None and not reason:
        difference = got - expected.value
        verdict = "reproduced" if abs(difference) <= tolerance + SAME else "not reproduced"
    return ScoreCheck(
        model=model,
        collection=collection,
        measure=str(parse_measure(expected.measure)),
        expected=expected.value,
        got=got,
        difference=difference,
        tolerance=tolerance,
        digits=digits,
        verdict=verdict,
        source=expected.source,
        reason=reason,
    )


def check_expected(config: Config, means: Mapping[str, float], absent: str = "") -> list[ScoreCheck]:
    """The verdict on each score of the config's own `expected`.

    `absent` says why a measure without a mean cannot be compared.
    """
    checks, name = [], collection_name(config)
    places: dict[str, int] = {}  # the most exact value of each source
    for each in config.expected:
        if each.digits is None:
            places[each.source] = max(places.get(each.source, 0), min(decimals(each.value), 17))
    for each in config.expected:
        if each.digits is None:
            each = each.model_copy(update={"digits": places[each.source]})
        measure = parse_measure(each.measure)
        got, reason = means.get(str(measure)), not_comparable(config, measure, "")
        reason = reason or (absent if got is None else "")
        checks.append(check_score(each, got, reason, config.label, name))
    return checks


def collection_name(config: Config) -> str:
    """What the collection of a config is called: the folder or id it is read from."""
    return PurePath(str(getattr(config.data, "path", config.data.source))).name


def not_comparable(config: Config, measure: Measure, split: str) -> str:
    """Why a published score is of something else than a config measures, by its settings; "" if it is not."""
    data = config.data
    if measure.cutoff and measure.cutoff > config.search.top_k:
        return f"cutoff {measure.cutoff:,}, and search.top_k is {config.search.top_k:,}"
    if split and split != getattr(data, "split", split):
        return f"published for split '{split}', measured on '{getattr(data, 'split', '')}'"
    if data.queries is not None:
        return f"measured on the first {data.queries:,} queries only"
    if isinstance(data.corpus, int):
        return f"measured on {data.corpus:,} passages only"
    return ""

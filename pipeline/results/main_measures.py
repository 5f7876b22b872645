"""The mean of main measures: of a suite whose collections are judged by different measures, as MTEB's boards.

It is the macro mean of each collection's mean of its own main measure, and stands among the measures of a
suite under the name `main measures`. Where all have the same main measure, it is the macro mean of that one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.metrics.names import parse_measure

MAIN = "main measures"
ALSO = "main"
"""What a user may write for it."""


def canonical_measure(text: str) -> str:
    """The name of a measure, or `MAIN`, as results have it."""
    return MAIN if text.strip().lower() in (MAIN, ALSO) else str(parse_measure(text))


def measure_in(collection: str, measure: str, main_measures: Mapping[str, str]) -> str:
    """The measure that a collection is judged by, where `MAIN` stands for that of each."""
    return main_measures[collection] if measure == MAIN else measure


def main_measures_note(main_measures: Mapping[str, str]) -> str:
    """Which collections are judged by which measure, as a sentence without its full stop."""
    by_measure: dict[str, list[str]] = {}
    for collection, measure in main_measures.items():
        by_measure.setdefault(measure, []).append(collection)
    parts = [f"{measure} of {', '.join(names)}" for measure, names in by_measure.items()]
    return f"{MAIN}: {'; '.join(parts)}"

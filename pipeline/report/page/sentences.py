"""Sentences of the page: the summary, the facts below it, and how to read the list of queries."""

from __future__ import annotations

from collections import Counter

from pipeline.core.display import counted, interval, rounded
from pipeline.report.page.queries import PASSAGE_LENGTH, QueryData, relevance_level
from pipeline.results.comparison import Comparison


def summary(comparison: Comparison) -> str:
    """The result with the highest mean, and from which others its difference is significant."""
    best, *others = sorted(comparison.results, key=lambda entry: -entry.mean)
    mean = f"{rounded(best.mean)}, 95% interval {interval(best.ci_low, best.ci_high)}"
    if not others:
        return f"Mean {comparison.measure} over {counted(best.queries, 'query', 'queries')} is {mean}."
    differing = {
        name
        for pair in comparison.pairs
        if pair.shown and best.name in (pair.a, pair.b)
        for name in (pair.a, pair.b)
    }
    worse = [entry.name for entry in others if entry.name in differing]
    alike = [entry.name for entry in others if entry.name not in differing]
    sentences = [f"{best.name} has the highest mean {comparison.measure}: {mean}."]
    if worse:
        sentences.append(f"It is significantly better than {_enumerated(worse)}.")
    if alike:
        sentences.append(f"No significant difference from {_enumerated(alike)} was found.")
    return " ".join(sentences)


def _enumerated(names: list[str]) -> str:
    """Names joined by commas and "and", or their number if there are many."""
    if len(names) > 6:
        return f"{len(names)} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Collection, sizes, measure and hardware, as terms and values."""
    first = comparison.sources[0]
    data = first.manifest.config.get("data", {})
    folder = str(data.get("path") or "").rstrip("/").rpartition("/")[2]
    passages = sorted({source.record.passages for source in comparison.sources})
    hardware = first.record.stage("passages").hardware or first.manifest.hardware
    cores = hardware.cores or "?"
    processor = f"{hardware.cpu}, {cores} core{'' if cores == 1 else 's'}"
    gpus = Counter(hardware.gpus)
    values = {
        "collection": folder or ("sample" if data.get("source") == "sample" else ""),
        "queries": f"{len(comparison.query_ids):,}",
        "passages": " to ".join(f"{number:,}" for number in dict.fromkeys((passages[0], passages[-1]))),
        "measure": comparison.measure,
        "processor": processor if hardware.found() else "",
        "GPU": ", ".join(f"{number} × {name}" for name, number in gpus.items()),
    }
    return [(term, value) for term, value in values.items() if value]


def guide(comparison: Comparison, data: QueryData) -> str:
    """How to read the list of queries."""
    if not data.selected:
        return "Only ids and values of queries are shown, because the collection is not in the cache."
    level = relevance_level(comparison)
    sentences = [
        "Open a query to see its top passages, the relevant passages outside the top, and an explanation.",
        f"Passages of grade {level} or higher count as relevant.",
    ]
    if len(data.selected) < len(comparison.query_ids):
        several = len(comparison.results) > 1
        which = "where results differ most or score lowest" if several else "with the lowest values"
        sentences.append(f"This file holds the passages of {len(data.selected)} queries, those {which}.")
    sentences.append(f"Passages are cut at {PASSAGE_LENGTH} characters.")
    return " ".join(sentences)

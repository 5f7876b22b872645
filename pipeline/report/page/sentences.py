"""What the page says: the summary, the facts below it, how to read the list of queries, and what was run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.verdict import enumerated
from pipeline.core.display import as_text
from pipeline.core.records import JsonObject
from pipeline.report.page.queries import PASSAGE_LENGTH, QueryData, relevance_level
from pipeline.run.reproduction import compared_settings


def summary(comparison: Comparison) -> str:
    """The verdict as a sentence, and for how many pairs it is corrected: one pair's interval may differ."""
    pairs = len(comparison.pairs)
    return f"{comparison.verdict}." + (f" Corrected for {pairs} pairs." if pairs > 1 else "")


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
    days = sorted({source.manifest.day for source in comparison.sources} - {""})
    values = {
        "collection": folder or ("sample" if data.get("source") == "sample" else ""),
        "queries": f"{len(comparison.query_ids):,}",
        "passages": " to ".join(f"{number:,}" for number in dict.fromkeys((passages[0], passages[-1]))),
        "measure": comparison.measure,
        **_model_settings(comparison),
        "processor": processor if hardware.found() else "",
        "GPU": ", ".join(f"{number} × {name}" for name, number in gpus.items()),
        "run on": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
    }
    return [(term, value) for term, value in values.items() if value]


def _model_settings(comparison: Comparison) -> dict[str, str]:
    """By setting of the models what was used and where it came from, for each result where they differ."""
    found: dict[str, dict[str, list[str]]] = {}
    for source in comparison.sources:
        for model in source.manifest.models:
            for name, used in model.settings.items():
                value = f"“{used.value}”" if "instruction" in name and used.value else used.value or "none"
                results = found.setdefault(name, {}).setdefault(f"{value} ({used.source})", [])
                if source.record.name not in results:
                    results.append(source.record.name)
    return {
        name: "; ".join(
            value if len(results) == len(comparison.sources) else f"{enumerated(results)}: {value}"
            for value, results in values.items()
        )
        for name, values in found.items()
    }


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


def provenance_section(comparison: Comparison) -> JsonObject:
    """Settings that differ, artifact keys, versions and whole configs."""
    manifests = [source.manifest for source in comparison.sources]
    configs = [manifest.config for manifest in manifests]
    settings = [compared_settings(config) for config in configs]
    keys = [{row.stage: row.key for row in source.record.all_stages} for source in comparison.sources]
    versions = _grid([manifest.versions | manifest.hardware.found() for manifest in manifests])
    return {
        "settings": [row for row in _grid(settings) if not row["same"]],
        "keys": _grid(keys, short=12),
        "versions": [row for row in versions if not row["same"]],
        "shared": [row for row in versions if row["same"]],
        "configs": [json.dumps(config, indent=2, ensure_ascii=False) for config in configs],
    }


def _grid(columns: Sequence[Mapping[str, object]], short: int | None = None) -> list[JsonObject]:
    """A row for each key of any column, and a cell for each column, cut to `short` characters."""
    rows = []
    for label in dict.fromkeys(key for column in columns for key in column):
        texts = [as_text(column[label]) if label in column else "" for column in columns]
        cells = [{"text": text[:short], "whole": text if short else ""} for text in texts]
        rows.append({"label": label, "cells": cells, "same": len(set(texts)) == 1})
    return rows

"""Baselines of gates: a result folder, or a single small file that holds what a gate needs of a result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipeline.core.errors import InputError
from pipeline.results.folder import SavedResult, read_result
from pipeline.results.records import Manifest, Metrics
from pipeline.storage import whole_files

FORMAT = 1


def write_baseline(result: SavedResult, measures: Sequence[str], file: Path) -> None:
    """Write a result's values per query, what it was scored by, and its speeds, as one JSON file.

    Args:
        result: The result.
        measures: Those to keep.
        file: The file to write; it is replaced as a whole.
    """
    columns = [result.measures.index(measure) for measure in measures]
    evaluate = result.manifest.recipes.get("evaluate", {})
    scored_by = {
        name: evaluate[name] for name in ("qrels", "ignore_identical_ids", "ignored") if name in evaluate
    }
    document: dict[str, Any] = {
        "benchmarco_baseline": FORMAT,
        "name": result.record.name,
        "queries": result.record.queries,
        "passages": result.record.passages,
        "metrics": {measure: result.record.metrics[measure] for measure in measures},
        "stages": [
            row.model_dump(mode="json", exclude_unset=True, exclude={"encoding"})
            for row in result.record.stages
        ],
        "scored_by": scored_by,
        "hardware": result.manifest.hardware.found(),
        "query_ids": result.query_ids,
        "values": dict(zip(measures, result.values[:, columns].T.tolist(), strict=True)),
    }
    whole_files.write_whole(file, (json.dumps(document, ensure_ascii=False) + "\n").encode())


def read_baseline(path: Path) -> SavedResult:
    """Read a baseline: a result folder, or a file that `write_baseline` wrote.

    Raises:
        InputError: It is neither.
    """
    if not path.is_file():
        return read_result(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("benchmarco_baseline") != FORMAT:
            raise ValueError("it was written by another version")
        query_ids, by_measure = document.pop("query_ids"), document.pop("values")
        values = np.array([by_measure[name] for name in by_measure], dtype=np.float64).T
        manifest = {"recipes": {"evaluate": document.pop("scored_by")}, "hardware": document.pop("hardware")}
        record = Metrics.model_validate(document)
        if values.shape != (record.queries, len(record.metrics)) or len(set(query_ids)) != record.queries:
            raise ValueError(f"it has values of {len(query_ids)} queries, and counts {record.queries}")
        if not np.isfinite(values).all() or list(by_measure) != list(record.metrics):
            raise ValueError("its values are not those of its measures")
        return SavedResult(
            path, record, Manifest.model_validate(manifest), query_ids, list(by_measure), values
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ValidationError) as error:
        what = "has no " + str(error) if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise InputError(
            f"{path} is no baseline: {what}",
            allowed="a result folder, or a file written by benchmarco gate --write-baseline",
            fix="write it again from the result",
        ) from None

"""The section "What was run": settings, artifact keys and versions, and which of them differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.comparison.side_by_side import Comparison
from pipeline.run.reproduction import NOT_COMPARED, as_text, flatten


def provenance_section(comparison: Comparison) -> dict[str, Any]:
    """Settings that differ, artifact keys, versions and whole configs."""
    manifests = [source.manifest for source in comparison.sources]
    configs = [manifest.config for manifest in manifests]
    settings = [
        {name: value for name, value in flatten(config).items() if name not in NOT_COMPARED}
        for config in configs
    ]
    keys = [{row.stage: row.key for row in source.record.all_stages} for source in comparison.sources]
    versions = _grid([manifest.versions | manifest.hardware.found() for manifest in manifests])
    return {
        "settings": [row for row in _grid(settings) if not row["same"]],
        "keys": _grid(keys, short=12),
        "versions": [row for row in versions if not row["same"]],
        "shared": [row for row in versions if row["same"]],
        "configs": [json.dumps(config, indent=2, ensure_ascii=False) for config in configs],
    }


def _grid(columns: Sequence[Mapping[str, Any]], short: int | None = None) -> list[dict[str, Any]]:
    """A row for each key of any column, and a cell for each column, cut to `short` characters."""
    rows = []
    for label in dict.fromkeys(key for column in columns for key in column):
        texts = [as_text(column[label]) if label in column else "" for column in columns]
        cells = [{"text": text[:short], "whole": text if short else ""} for text in texts]
        rows.append({"label": label, "cells": cells, "same": len(set(texts)) == 1})
    return rows

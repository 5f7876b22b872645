"""What was run? Settings, keys, versions: what differs between results, and what all share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.results.comparison import Comparison

NOT_COMPARED = ("name", "cache", "output")
"""Settings that do not say what was run."""


def origin(comparison: Comparison) -> dict[str, Any]:
    """Settings that differ, keys, versions and whole configs."""
    manifests = [source.manifest for source in comparison.sources]
    configs = [manifest.config for manifest in manifests]
    settings = [
        {name: value for name, value in _flat(config).items() if name not in NOT_COMPARED}
        for config in configs
    ]
    stages = [{row.stage: row.key for row in source.record.stages} for source in comparison.sources]
    software = [manifest.versions | manifest.hardware.found() for manifest in manifests]
    found = _grid(software)
    return {
        "settings": [row for row in _grid(settings) if not row["same"]],
        "keys": _grid(stages, short=12),
        "versions": [row for row in found if not row["same"]],
        "shared": [row for row in found if row["same"]],
        "configs": [json.dumps(config, indent=2, ensure_ascii=False) for config in configs],
    }


def _grid(columns: Sequence[Mapping[str, Any]], short: int | None = None) -> list[dict[str, Any]]:
    """A row for each key of any column, a cell for each column, cut to `short` characters."""
    rows = []
    for label in dict.fromkeys(key for column in columns for key in column):
        texts = [_plain(column[label]) if label in column else "" for column in columns]
        cells = [{"text": text[:short], "whole": text if short else ""} for text in texts]
        rows.append({"label": label, "cells": cells, "same": len(set(texts)) == 1})
    return rows


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return flat

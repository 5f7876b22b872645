"""Runs of the config `c.yaml` of a folder, with cache and results beside it."""

from __future__ import annotations

from pathlib import Path

from pipeline.api import run_benchmark
from pipeline.config import Config
from pipeline.config.files import load_config
from pipeline.results.folder import Result


def config(folder: Path, *settings: str) -> Config:
    return load_config(folder / "c.yaml", [f"cache={folder}/indexes", f"output={folder}/results", *settings])


def run(folder: Path, *settings: str, fresh: bool = False) -> Result:
    return run_benchmark(config(folder, *settings), fresh=fresh)

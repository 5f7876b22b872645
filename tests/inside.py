"""The one place of the tests that knows modules inside packages: sizes made small, and other machines."""

import importlib
import logging
import pkgutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

import pipeline
from pipeline.core import Texts

SIZES = {
    "answer_bytes": "encoders.http.client.ANSWER_BYTES",
    "bits_block": "search.quantized.BIT_ROWS",
    "bits_spare": "search.quantized.SPARE",
    "faiss_rows": "search.faiss_index.ADDED_VECTORS",
    "fused_cells": "search.fusion.BLOCK_CELLS",
    "hashed_bytes": "storage.hashing.HASHED_BYTES",
    "look": "engines.pool.LOOK",
    "losses": "engines.pool.LOSSES",
    "log_seconds": "terminal.LOG_SECONDS",
    "page_passage": "studies.page.queries.PASSAGE_LENGTH",
    "page_rankings": "studies.page.queries.RANKINGS",
    "permutations": "metrics.paired.PERMUTATIONS",
    "resamples": "studies.gate.margin_tests.RESAMPLES",
    "run_lines": "formats.runs.BLOCK_LINES",
    "shard_pairs": "retrievers.pair_scores.SHARD_PAIRS",
    "shipped_bytes": "engines.worker.SHIPPED_BYTES",
    "silence": "engines.pool.SILENCE",
    "swaps": "metrics.paired.BLOCK_SWAPS",
    "text_bytes": "formats.texts.BLOCK_BYTES",
    "judged_id_bytes": "formats.judgments.MOST_BYTES",
    "tied_id_bytes": "core.order.MOST_BYTES",
    "texts_at_once": "run.model_object.AT_ONCE",
    "train_rows": "search.faiss_index.TRAIN_ROWS",
    "tokenized_texts": "encoders.batching.TOKENIZED_TEXTS",
    "tokenized_window": "encoders.batching.WINDOW",
}
"""Sizes of blocks and samples: small ones make little data cross the borders of many blocks."""


def resize(patch: pytest.MonkeyPatch, **sizes: object) -> None:
    """Change sizes, by their names in `SIZES`."""
    for name, size in sizes.items():
        patch.setattr(f"pipeline.{SIZES[name]}", size)


def pretend(
    patch: pytest.MonkeyPatch,
    *,
    vnni: bool | None = None,
    amx: bool | None = None,
    flags: set[str] | None = None,
    gpus: tuple[str, ...] | None = None,
    lacks: str | None = None,
    no_version: tuple[str, ...] | None = None,
    installed: dict[str, str] | None = None,
    memory: int | None = None,
    disk: int | None = None,
) -> None:
    """Pretend another machine: processor, GPUs, bytes of memory and free disk, packages that it lacks."""
    if disk is not None:
        usage = SimpleNamespace(free=disk)
        patch.setattr("pipeline.run.benchmark.shutil.disk_usage", lambda path: usage)
    known = flags if flags is None else frozenset(flags)
    for name, found in (
        ("has_vnni", vnni),
        ("has_amx", amx),
        ("processor_flags", known),
        ("gpus", gpus),
        ("memory_bytes", memory),
    ):
        if found is not None:
            patch.setattr(f"pipeline.core.machine.{name}", lambda found=found: found)
    if lacks is not None:
        for module in ("core.installation", "encoders.openers"):
            patch.setattr(f"pipeline.{module}.is_installed", lambda package: package != lacks)
    installation = importlib.import_module("pipeline.core.installation")
    if installed is not None:
        found = {**installation.versions(), **installed}
        patch.setattr(installation, "versions", lambda: found)
    if no_version is not None:
        named = {*installation.required_packages()}
        patch.setattr(
            installation,
            "versions",
            lambda *others: dict.fromkeys(named.union(others).difference(no_version), "1"),
        )


def files_on_disk(patch: pytest.MonkeyPatch) -> list[Any]:
    """Pretend a system without files in memory; the files that are sent to processes from now on."""
    processes = importlib.import_module("pipeline.engines.processes")
    sent: list[Any] = []

    def nameless() -> Any:
        sent.append(tempfile.TemporaryFile())  # noqa: SIM115 - what sends it closes it
        return sent[-1]

    patch.setattr(processes.machine, "nameless_file", nameless)
    patch.setattr(processes, "OPEN", 3)
    return sent


def be_processor(features: str) -> None:
    """Pretend a processor with these features for the rest of this process."""
    machine = importlib.import_module("pipeline.core.machine")
    machine.processor_flags = lambda: frozenset(features.split())  # type: ignore[attr-defined]


def is_processor(features: str) -> bool:
    """Whether this processor has these of the features that the package looks for, and no other one."""
    machine = importlib.import_module("pipeline.core.machine")
    return set(machine.FEATURES).intersection(features.split()) == set(machine.processor_features())


def be_offline(patch: pytest.MonkeyPatch, offline: bool = True) -> None:
    """Let the hub's client use cached files only."""
    patch.setattr(constants, "HF_HUB_OFFLINE", offline)


def keep_stderr(patch: pytest.MonkeyPatch) -> None:
    """Stop commands from configuring logging, which would keep this test's stderr open."""
    patch.setattr(logging, "basicConfig", lambda **_: None)


def leave_the_checkout(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Pretend that the wheel is installed, without the checkout's script that installs extras."""
    patch.setattr("pipeline.core.installation._SETUP", folder / "setup")


def be_no_node(patch: pytest.MonkeyPatch) -> None:
    """Make every worker count as one on another machine."""
    patch.setattr("pipeline.engines.cluster.node_id", lambda: "no worker's")


def convert_by(patch: pytest.MonkeyPatch, subprocess: object) -> None:
    """Start the processes that convert models by this object instead of `subprocess`."""
    patch.setattr("pipeline.core.subprocesses.subprocess", subprocess)


def measure_by(patch: pytest.MonkeyPatch, subprocess: object) -> None:
    """Start the processes in which queries are timed by this object instead of `subprocess`."""
    patch.setattr("pipeline.studies.latency.measurement.subprocess", subprocess)


def read_once(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Read once what nobody changes while tests run: files to hash in a folder, and versions of packages."""
    files = importlib.import_module("pipeline.models.files")
    hash_file, hash_once = files.hash_file, cache(files.hash_file)
    patch.setattr(
        files, "hash_file", lambda path: (hash_once if path.is_relative_to(folder) else hash_file)(path)
    )
    patch.setattr(metadata, "version", cache(metadata.version))


def escape_what_is_printed() -> None:
    """Let what this process prints pass as that of a command does."""
    with importlib.import_module("pipeline.terminal").guarded():
        pass


def import_all() -> None:
    """Import every module, and what commands import late."""
    for module in pkgutil.walk_packages(pipeline.__path__, "pipeline."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("pipeline.core.installation").import_openvino()


def calibration_texts(texts: Texts) -> list[str]:
    """The texts that an int8 model is calibrated on."""
    found: list[str] = importlib.import_module("pipeline.encoders.openvino").calibration_texts(texts)
    return found


WATCHED = {
    "hash a file": "data.sources.folders.hash_file",
    "read a ranking": "studies.changes.changes.scored_ranking",
    "run a benchmark": "run.benchmark.Benchmark.run",
    "run a result again": "studies.reproduce.reproduction.reproduce",
    "try a setting": "studies.verify.trials.run_each",
}
"""What tests watch, by what it does."""


def watch(patch: pytest.MonkeyPatch, what: str, before: Callable[..., object]) -> None:
    """Call `before` with the same arguments ahead of each call of one of `WATCHED`."""
    place = f"pipeline.{WATCHED[what]}"
    original = pkgutil.resolve_name(place)
    patch.setattr(place, lambda *given, **more: (before(*given, **more), original(*given, **more))[1])


def set_clock(patch: pytest.MonkeyPatch, clock: object) -> None:
    """Give the search for causes of a difference another clock."""
    for module in ("causes", "trials", "verification"):
        patch.setattr(f"pipeline.studies.verify.{module}.time", clock, raising=False)

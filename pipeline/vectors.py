"""How are vectors kept? In shards of consecutive rows, each a `.npy` file: the unit of work and of loss."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from pipeline.artifacts import Artifact, Draft
from pipeline.errors import InputError
from pipeline.records import Embeddings, Float32

_NAME = re.compile(r"rows-(\d{10})-(\d{10})\.npy")
TOLERANCE = 1e-3  # of a length that should be 1; bf16 and fp16 keep within it


def missing(rows: int, shard_rows: int, whole: Iterable[str]) -> list[tuple[int, int]]:
    """The row ranges [start, stop) still to make, at most `shard_rows` long.

    Args:
        rows: Of all vectors.
        shard_rows: Longest shard.
        whole: Names of the shards that are there, of any length: an earlier run may have cut otherwise.
    """
    ranges, start = [], 0
    for first, last in [*sorted(_span(name) for name in whole if _NAME.fullmatch(name)), (rows, rows)]:
        while start < first:
            stop = min(start + shard_rows, first)
            ranges.append((start, stop))
            start = stop
        start = max(start, last)
    return ranges


def write(draft: Draft, start: int, vectors: Float32) -> None:
    """Write the shard that begins at row `start`."""
    with draft.file(f"rows-{start:010d}-{start + len(vectors):010d}.npy") as path, open(path, "wb") as file:
        np.save(file, vectors, allow_pickle=False)


def open_embeddings(artifact: Artifact) -> Embeddings:
    """All shards of a finished artifact, memory-mapped.

    Raises:
        InputError: Their dimensions differ.
    """
    names = sorted(name for name in artifact.files if _NAME.fullmatch(name))
    shards = [np.load(artifact.path(name), mmap_mode="r", allow_pickle=False) for name in names]
    for name, shard in zip(names, shards, strict=True):
        if shard.shape[1] != shards[0].shape[1]:
            raise InputError(
                f"{artifact.folder}: from row {_span(name)[0]} on vectors have {shard.shape[1]} dimensions, "
                f"before {shards[0].shape[1]}",
                allowed="one dimension for all",
                fix="check the model, and run again with --fresh",
            )
    return Embeddings(tuple(shards))


def check(vectors: Float32, ids: Iterable[str], normalized: bool) -> None:
    """Refuse vectors no score can be trusted on.

    Args:
        vectors: float32 [n, dimension].
        ids: Of the n texts they were made of.
        normalized: Whether every length must be 1.

    Raises:
        InputError: A vector holds NaN or infinity, or is not of length 1; the first is named.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    wrong = ~np.isfinite(lengths)
    what = "holds NaN or infinity"
    if not wrong.any() and normalized:
        wrong = np.abs(lengths - 1) > TOLERANCE
        what = f"has length {lengths[np.argmax(wrong)]:.4g} where model.normalize says 1"
    if wrong.any():
        first = list(ids)[int(np.argmax(wrong))]
        raise InputError(
            f"the vector of '{first}' {what}; {int(wrong.sum())} of {len(wrong)} like it",
            fix="check the model's weights, or try model.precision: fp32",
        )


def _span(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"not a shard: {name}")
    return int(match[1]), int(match[2])

"""Token vectors in NumPy's `.npz` files, mapped into memory."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, TokenEmbeddings
from pipeline.formats.npy import map_member


def map_token_vectors(path: Path, setting: str) -> TokenEmbeddings:
    """The token vectors of a file, memory-mapped where the file is not compressed, else read into memory.

    `setting` is the config's setting that names the file, for messages.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            vectors, ends = (map_member(path, archive, name) for name in ("vectors.npy", "ends.npy"))
    except Exception:  # the file may hold anything
        vectors = ends = np.empty(0)
    if vectors.ndim != 2 or not vectors.shape[1] or vectors.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(
            f"{setting}: {path} has no token vectors",
            allowed="a file that numpy.savez wrote of `vectors`, floats [tokens, dimension], and `ends`, "
            "whole numbers [texts]: where each text ends in the vectors",
            fix="save the vectors again",
        )
    whole = ends.ndim == 1 and ends.dtype.kind in "iu"
    bounds = np.concatenate([[0], ends]).astype(np.int64) if whole else np.zeros(1, np.int64)
    if (np.diff(bounds) < 1).any() or bounds[-1] != len(vectors):
        raise InputError(
            f"{setting}: {path}: the `ends` do not cut {len(vectors):,} token vectors into texts",
            allowed="rising whole numbers, one for each text, the last of them the number of vectors",
            fix="save the vectors again",
        )
    return TokenEmbeddings(Embeddings((vectors,)), bounds[1:])

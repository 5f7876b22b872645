"""Rounding of a layer's weights to int8 so that its outputs change least.

A row is rounded with one step for all its numbers, as its largest ones allow. So each input is multiplied by
a scale, by which its weights are divided, so that neither stands out (SmoothQuant, Xiao and others, ICML
2023). Columns of weights are rounded one after another, and what each lost is made up for by the columns that
are not rounded yet, as far as their inputs go together (GPTQ, Frantar and others, ICLR 2023). With H the mean
products of all pairs of inputs, and U the upper Cholesky factor of its inverse, what rounding took from
column j, times U[j, i] / U[j, j], is given to each later column i.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.core.records import Array, Float32, Float64, Int32
from pipeline.kernels.int8 import INT8_LIMIT, LONGEST, in_panels, row_factors

DAMPING = 0.01  # added to the diagonal of H, as a share of its mean
LARGEST_SCALE = 16.0  # of an input, also as a divisor
COLUMNS = 64  # rounded before those after them are corrected, in one matrix product


class Int8Layer(NamedTuple):
    """One layer's part of a `MixedLinear`."""

    integers: Int32
    factors: Float32
    scale: Float32
    sums: Int32


def rounded(weights: Float32, moments: Float64, first: int = 0) -> Int8Layer:
    """Round the weights of a layer.

    Args:
        weights: float32 [n, k].
        moments: The mean products of all pairs of inputs, float64 [k, k].
        first: The first row of weights that scales are made for. Keys and values have the same inputs, and
            errors of values change what attention gives far more than errors of keys.
    """
    if len(moments) > LONGEST:
        raise ValueError(f"a layer has {len(moments):,} inputs, and int8 is exact for {LONGEST:,}")
    scale = _scales(weights[first:], np.sqrt(np.diagonal(moments)))
    divided = weights / scale
    factors = row_factors(divided)
    scales = scale.astype(np.float64)
    whole = _rounded(divided / factors[:, None], moments * scales * scales[:, None])
    return Int8Layer(in_panels(whole), factors, scale, whole.sum(axis=1, dtype=np.int32))


def _scales(weights: Float32, sizes: Float64) -> Float32:
    """What each input is multiplied by, float32 [k]: then inputs and their weights are about as large.

    Args:
        weights: float32 [n, k].
        sizes: float64 [k], the root mean square of each input.
    """
    met = np.sqrt((weights.astype(np.float64) ** 2).mean(axis=0))
    scale, used = np.ones(len(met)), (met > 0) & (sizes > 0)
    if used.any():
        found = np.sqrt(met[used] / sizes[used])
        scale[used] = np.clip(found / np.exp(np.log(found).mean()), 1 / LARGEST_SCALE, LARGEST_SCALE)
    return scale.astype(np.float32)


def _rounded(weights: Float32, moments: Float64) -> Array:
    """Weights in units of their rows' steps, [n, k], as int8; the mean products are of scaled inputs."""
    k = len(moments)
    damping = max(DAMPING * moments.trace() / k, 1e-30)
    order = np.argsort(-np.diagonal(moments), kind="stable")  # the largest inputs first
    inverse = np.linalg.inv(moments[order][:, order] + damping * np.eye(k))
    upper = np.linalg.cholesky(inverse).T
    upper = (upper / np.diagonal(upper)[:, None]).astype(np.float32)
    left = np.asfortranarray(weights[:, order], np.float32)
    whole = np.empty(left.shape, np.int8, order="F")
    for start in range(0, k, COLUMNS):
        end = min(start + COLUMNS, k)
        errors = np.empty((len(left), end - start), np.float32, order="F")
        for j in range(start, end):
            nearest = np.rint(left[:, j]).clip(-INT8_LIMIT, INT8_LIMIT)
            whole[:, j] = nearest
            errors[:, j - start] = left[:, j] - nearest
            left[:, j + 1 : end] -= np.outer(errors[:, j - start], upper[j, j + 1 : end])
        left[:, end:] -= errors @ upper[start:end, end:]
    made = np.empty_like(whole)
    made[:, order] = whole
    return np.ascontiguousarray(made)

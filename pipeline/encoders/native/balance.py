"""Centres and scales of the inputs of linear layers, for `layers.fine_linear`.

A row is rounded to whole numbers with one step for all its numbers, as its largest ones allow. So rounding
loses least when no number of a row stands out, neither of the activations nor of the weights that they are
multiplied with. Activations are centred, x - m, and each number is multiplied by a scale, by which the
weights are divided (SmoothQuant, Xiao and others, ICML 2023): W x = (W / s) (s (x - m)) + W m.

How large a number usually is, is estimated from the network's weights alone, so that packing needs no texts:
what comes out of a normalization has its bias as mean, and its weight as standard deviation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.core.records import Float32, Float64
from pipeline.encoders.native.architectures import Matrix, Norm

LARGEST_SCALE = 16.0  # also as a divisor


class Spread(NamedTuple):
    """Mean and standard deviation of each of k numbers, float64 [k]."""

    mean: Float64
    deviation: Float64


def plain(columns: int) -> Spread:
    """Of numbers of which nothing is known: all of them are treated alike."""
    return Spread(np.zeros(columns), np.ones(columns))


def after_norm(norm: Norm) -> Spread:
    """Of what a normalization gives."""
    return Spread(norm.bias.astype(np.float64), np.abs(norm.weight.astype(np.float64)))


def balanced(matrix: Matrix, inputs: Spread) -> tuple[Matrix, Float32, Float32]:
    """A layer for centred and scaled inputs, and the centre and the scale of each, float32 [k]."""
    weights = np.sqrt((matrix.weight.astype(np.float64) ** 2).mean(axis=0))
    scale = np.ones(len(weights))
    used = (weights > 0) & (inputs.deviation > 0)
    if used.any():
        found = np.sqrt(weights[used] / inputs.deviation[used])
        scale[used] = np.clip(found / np.exp(np.log(found).mean()), 1 / LARGEST_SCALE, LARGEST_SCALE)
    centre, rounded = inputs.mean.astype(np.float32), scale.astype(np.float32)
    bias = matrix.bias + matrix.weight.astype(np.float64) @ centre.astype(np.float64)
    return Matrix(matrix.weight / rounded, bias.astype(np.float32)), centre, rounded

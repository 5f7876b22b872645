"""Linear layers of which some are computed in int8, and the others in int16.

Which of them are is chosen by `pipeline.encoders.native.choosing`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32
from pipeline.encoders.native.rows import scale_sums
from pipeline.kernels.compiling import merged
from pipeline.kernels.int8 import round_to_bytes
from pipeline.kernels.int16 import PANEL, Workspace
from pipeline.kernels.tiles import INTEGER_WIDTH, TALL, int8_tile


class MixedLinear(NamedTuple):
    """A `layers.Linear` whose layers are int8 or int16.

    Inputs of a layer in int8 are multiplied by `scale` before they are rounded, and its weights were divided
    by it. That brings inputs that are often large, and the weights that they meet, to a like size.
    """

    integers: Any  # int32, flat: the weights of each layer, as `pack_rows` or `in_panels` has them
    starts: Any  # int64 [layers + 1], where each layer's begin, and the end
    narrow: Any  # bool [layers]: whether a layer is int8
    factors: Any  # float32 [layers, n]
    bias: Any  # float32 [layers, n]
    scale: Any  # float32 [layers, k]
    sums: Any  # int32 [layers, n]: of each row's int8


@merged
def int8_linear(
    x: Float32, layers: MixedLinear, layer: int, gelu: bool, space: Workspace, out: Float32
) -> None:
    """Set out [n, m] to x [n, k] times the weights of a layer in int8, plus its bias; see `layers.linear`."""
    (n, k), m = x.shape, out.shape[1]
    words = k // 4
    weights = layers.integers[layers.starts[layer] : layers.starts[layer + 1]]
    factors, bias, weight_sums = layers.factors[layer], layers.bias[layer], layers.sums[layer]
    bytes_, zeros = space.rows.view(np.uint8), np.empty(n, np.int32)
    for i in range(n):
        row = bytes_[i * k : (i + 1) * k]
        space.factors[i], zeros[i] = round_to_bytes(x[i], layers.scale[layer], row)
    rows = space.rows.view(np.int32)
    for panel in range(0, m, PANEL):
        for i in range(0, n, TALL):
            for j in range(0, PANEL, INTEGER_WIDTH):
                int8_tile(
                    space.sums, i * m + panel + j, m, rows, i * words, words,
                    weights, panel * words + j, PANEL, words,
                )  # fmt: skip
    for i in range(n):
        sums, factor, zero = space.sums[i * m : (i + 1) * m], space.factors[i], zeros[i]
        for j in range(m):
            sums[j] -= zero * weight_sums[j]
        scale_sums(sums, factor, factors, bias, gelu, out[i])

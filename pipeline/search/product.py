"""How are many vectors multiplied by many queries, as fast as the processor can? In bfloat16 where it has it.

A product only finds candidates: `error_bound` says how far it can be from what orders pairs.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np

from pipeline.core.openvino_runtime import has_bfloat16, import_openvino
from pipeline.core.records import Array, Float32, Float64
from pipeline.search.scores import Metric

ENOUGH = 1e10  # operations that are worth preparing a faster product for
_ROUNDOFF = 2.0**-24  # of float32
_BFLOAT16_ROUNDOFF = 2.0**-8
_PIECE = 256  # vectors rounded at once; they stay in the processor's cache


class Product(Protocol):
    """Multiplies vectors by a few queries, given when it is made.

    Attributes:
        norms: float64 [queries], a little rounded up, of the queries as it uses them.
        rounded: float64 [queries], how far those are from the queries given.
        roundoff: Of its results, beyond that of float32.
    """

    norms: Float64
    rounded: Float64
    roundoff: float

    @staticmethod
    def prepare(rows: Float32) -> tuple[Array, float]:
        """Vectors as this kind of product takes them, and the most that moves any of them."""
        ...

    def __call__(self, rows: Array) -> Float32:
        """float32 [rows, queries] of prepared vectors; it holds until the call after the next."""
        ...


def products(queries: Float32, tile: int, rows: int) -> list[Product]:
    """The fastest product of every `tile` queries.

    Args:
        queries: float32 [queries, dimension].
        tile: How many each takes.
        rows: How many vectors there will be.
    """
    kind: type[Float32Product | BFloat16Product] = Float32Product
    if 2.0 * rows * queries.size > ENOUGH and has_bfloat16():
        kind = BFloat16Product
    return [kind(queries[start : start + tile]) for start in range(0, len(queries), tile)]


def error_bound(product: Product, longest: float, moved: float, dimension: int, metric: Metric) -> Float64:
    """float64 [queries]: how far `q·p`, or `q·p - |p|²/2` for l2, can be from what orders pairs.

    A sum of d products in any order is off by at most gamma_d |q||p| (Higham, *Accuracy and Stability of
    Numerical Algorithms*, 2002, section 3.1). Four roundings more are for the half, the difference and the
    score's own. Rounded vectors add |q - q'||p| + |q'||p - p'|, rounded results their roundoff of |q'||p'|;
    what is added last is for underflow.

    Args:
        product: What multiplies.
        longest: Norm of the longest passage.
        moved: The most that preparing moved any passage.
        dimension: Of the vectors.
        metric: What a score is.
    """
    gamma = (dimension + 4) * _ROUNDOFF / (1 - (dimension + 4) * _ROUNDOFF)
    norms, reach = product.norms + product.rounded, longest + moved
    size = (norms + reach) ** 2 if metric == "l2" else norms * reach
    least = dimension * float(np.finfo(np.float32).tiny) * (1 + norms) * (1 + reach)
    results = product.roundoff * (1 + gamma) * norms * reach
    bound: Float64 = gamma * size + product.rounded * longest + product.norms * moved + results + least
    return bound


def norms(rows: Float32) -> Float64:
    """float64 [n]: the vectors' lengths, a little rounded up."""
    squares: Float32 = np.einsum("ij,ij->i", rows, rows)
    return 1.001 * np.sqrt(squares).astype(np.float64)


class Float32Product:
    """In float32, by NumPy."""

    roundoff = 0.0

    def __init__(self, queries: Float32) -> None:
        self.norms, self.rounded = norms(queries), np.zeros(len(queries))
        self._queries = np.ascontiguousarray(queries.T)
        self._outs = [np.empty((0, len(queries)), np.float32)] * 2

    @staticmethod
    def prepare(rows: Float32) -> tuple[Array, float]:
        """See `Product`."""
        return rows, 0.0

    def __call__(self, rows: Array) -> Float32:
        """See `Product`."""
        self._outs.reverse()
        if len(self._outs[0]) < len(rows):
            self._outs[0] = np.empty((len(rows), self._queries.shape[1]), np.float32)
        return np.matmul(rows, self._queries, out=self._outs[0][: len(rows)])


class BFloat16Product:
    """In bfloat16, summed in float32, by OpenVINO: matrix units do ten times as much of it.

    OpenVINO 2026.4 gives the sums as they are, but nowhere promises it, and rounds them to bfloat16 inside a
    larger graph. So some are looked at: one with bits that bfloat16 does not have was not rounded to it.
    """

    def __init__(self, queries: Float32) -> None:
        openvino = import_openvino()
        operations = openvino.opset13
        halves, _ = self.prepare(queries)
        near = (halves.astype(np.uint32) << 16).view(np.float32)
        self.norms, self.rounded = norms(near), norms(near - queries)
        rows = operations.parameter([-1, queries.shape[1]], openvino.Type.bf16)
        made = operations.matmul(operations.convert(rows, "f32"), operations.constant(near), False, True)
        model = openvino.Core().compile_model(
            openvino.Model([made], [rows]), "CPU", {"INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": "1"}
        )
        self._requests = [model.create_infer_request() for _ in range(2)]
        self._tensor: Any = functools.partial(openvino.Tensor, type=openvino.Type.bf16)
        whole = (self(halves).view(np.uint32) & 0xFFFF).any()
        self.roundoff = 0.0 if whole else _BFLOAT16_ROUNDOFF

    @staticmethod
    def prepare(rows: Float32) -> tuple[Array, float]:
        """See `Product`; the upper halves of the rounded numbers, as uint16."""
        halves, moved = np.empty(rows.shape, np.uint16), 0.0
        for start in range(0, len(rows), _PIECE):
            piece = np.ascontiguousarray(rows[start : start + _PIECE])
            bits = piece.view(np.uint32) + np.uint32(1 << 15)
            bits &= np.uint32(0xFFFF0000)
            moved = max(moved, float(norms(piece - bits.view(np.float32)).max()))
            bits >>= 16
            halves[start : start + _PIECE] = bits
        return halves, moved

    def __call__(self, rows: Array) -> Float32:
        """See `Product`."""
        self._requests.reverse()
        request = self._requests[0]
        request.set_input_tensor(self._tensor(rows, rows.shape))
        request.infer()
        made: Float32 = request.get_output_tensor().data
        return made

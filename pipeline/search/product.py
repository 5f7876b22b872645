"""Fast matrix products of many vectors with many queries, and the bound on their error.

A product is in bfloat16 where the processor multiplies in it, else in float32. It is not a score: it only
selects candidates, and `error_bound` says how far it can be from the score that orders them (`similarity`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pipeline.core.extras import is_installed
from pipeline.core.openvino_runtime import has_bfloat16, import_openvino
from pipeline.core.records import Array, Float32, Float64
from pipeline.search.similarity import Metric

ENOUGH = 1e10  # operations from which on a bfloat16 product is worth the time it takes to prepare
_ROUNDOFF = 2.0**-24  # of float32
_BFLOAT16_ROUNDOFF = 2.0**-8
_PIECE = 256  # rows rounded at once: they stay in the processor's cache


class Float32Product:
    """Multiplies rows with the given queries in float32 by NumPy.

    Attributes:
        norms: float64 [queries], at least the length of each query in the precision of the product.
        query_errors: float64 [queries], at least the distance of each query to the one given.
        result_roundoff: Unit roundoff of the results, where they are rounded to less than float32; else 0.
    """

    result_roundoff = 0.0

    def __init__(self, queries: Float32) -> None:
        self.norms = norm_bounds(queries)
        self.query_errors = np.zeros(len(queries))
        self._queries = np.ascontiguousarray(queries.T)
        self._results = [np.empty((0, len(queries)), np.float32)] * 2

    @staticmethod
    def to_operand(rows: Float32) -> tuple[Array, float]:
        """The rows in the precision of the product, and the largest distance of one to the row given."""
        return rows, 0.0

    def __call__(self, operand: Array) -> Float32:
        """float32 [rows, queries]; the memory is used again by the call after the next."""
        self._results.reverse()
        if len(self._results[0]) < len(operand):
            self._results[0] = np.empty((len(operand), self._queries.shape[1]), np.float32)
        return np.matmul(operand, self._queries, out=self._results[0][: len(operand)])


class BFloat16Product(Float32Product):
    """A product in bfloat16, summed in float32, by OpenVINO: ten times as fast with matrix units.

    OpenVINO 2026.4 returns the float32 sums, but documents no such promise, and inside a larger graph it
    rounds them to bfloat16. So the first results are inspected: a bit that bfloat16 does not have shows that
    they were not rounded.
    """

    def __init__(self, queries: Float32) -> None:
        openvino = import_openvino()
        operations = openvino.opset13
        halves, _ = self.to_operand(queries)
        rounded = (halves.astype(np.uint32) << 16).view(np.float32)
        self.norms = norm_bounds(rounded)
        self.query_errors = norm_bounds(rounded - queries)
        rows = operations.parameter([-1, queries.shape[1]], openvino.Type.bf16)
        sums = operations.matmul(operations.convert(rows, "f32"), operations.constant(rounded), False, True)
        model = openvino.Core().compile_model(
            openvino.Model([sums], [rows]), "CPU", {"INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": "1"}
        )
        self._requests = [model.create_infer_request() for _ in range(2)]
        self._tensor: Any = functools.partial(openvino.Tensor, type=openvino.Type.bf16)
        low_bits = self(halves).view(np.uint32) & 0xFFFF
        self.result_roundoff = 0.0 if low_bits.any() else _BFLOAT16_ROUNDOFF

    @staticmethod
    def to_operand(rows: Float32) -> tuple[Array, float]:
        """As `Float32Product.to_operand`; the upper 16 bits of the rounded float32 numbers, as uint16."""
        halves = np.empty(rows.shape, np.uint16)
        row_error = 0.0
        for start in range(0, len(rows), _PIECE):
            piece = np.ascontiguousarray(rows[start : start + _PIECE])
            bits = piece.view(np.uint32) + np.uint32(1 << 15)  # half of the last bit kept: rounds to nearest
            bits &= np.uint32(0xFFFF0000)
            row_error = max(row_error, float(norm_bounds(piece - bits.view(np.float32)).max()))
            bits >>= 16
            halves[start : start + _PIECE] = bits
        return halves, row_error

    def __call__(self, operand: Array) -> Float32:
        """As `Float32Product`."""
        self._requests.reverse()
        request = self._requests[0]
        request.set_input_tensor(self._tensor(operand, operand.shape))
        request.infer()
        result: Float32 = request.get_output_tensor().data
        return result


def tile_products(queries: Float32, tile: int, n_rows: int) -> list[Float32Product]:
    """The fastest kind of product for `n_rows` rows, one object for every `tile` queries."""
    kind = fastest_kind(queries, n_rows)
    return [kind(queries[start : start + tile]) for start in range(0, len(queries), tile)]


def fastest_kind(queries: Float32, n_rows: int) -> type[Float32Product]:
    """The kind of product for `n_rows` rows. The first call for many of them imports OpenVINO.

    Without OpenVINO it is float32.
    """
    large = 2.0 * n_rows * queries.size > ENOUGH
    fast = large and is_installed("openvino") and has_bfloat16()
    return BFloat16Product if fast else Float32Product


def error_bound(
    product: Float32Product, longest: float, row_error: float, dimension: int, metric: Metric
) -> Float64:
    """float64 [queries]: how far a product can be from the value that orders passages p for a query q.

    That value is q·p, or for l2 q·p - |p|²/2 = (|q|² - |q - p|²)/2, which falls as the distance grows; |v| is
    the length of v. The bound is the sum of four errors:

    - Summation. A float32 sum of d products, in any order, is off by at most gamma_d sum(|q_i p_i|), where
      gamma_n = n u / (1 - n u) and u = 2^-24 (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
      edition, 2002, section 3.1). By the Cauchy-Schwarz inequality, that sum is at most |q||p|. The code
      takes d + 4 for d, as halving, subtracting and rounding the score are four roundings at most. For l2,
      (|q| + |p|)² takes the place of |q||p| and covers |p|²/2 and the score as well.
    - Rounded operands q', p': q·p - q'·p' = (q - q')·p + q'·(p - p'), at most |q - q'||p| + |q'||p - p'|.
      These distances are measured and not estimated.
    - Rounded results, where a product does not keep its sums in float32: their unit roundoff times |q'||p'|.
    - Underflow. Each of the d terms may lose up to the smallest normal float32.

    `longest`: at least the length of the longest row; `row_error`: largest distance of a row to its operand.
    """
    gamma = (dimension + 4) * _ROUNDOFF / (1 - (dimension + 4) * _ROUNDOFF)
    norms, reach = product.norms + product.query_errors, longest + row_error
    size = (norms + reach) ** 2 if metric == "l2" else norms * reach
    underflow = dimension * float(np.finfo(np.float32).tiny) * (1 + norms) * (1 + reach)
    results = product.result_roundoff * (1 + gamma) * norms * reach
    operands_and_sums: Float64 = gamma * size + product.query_errors * longest + product.norms * row_error
    return operands_and_sums + results + underflow


def norm_bounds(rows: Float32) -> Float64:
    """float64 [n]: at least the length of each row: 0.1% is added for rounding in float32."""
    squares: Float32 = np.einsum("ij,ij->i", rows, rows)
    return 1.001 * np.sqrt(squares).astype(np.float64)

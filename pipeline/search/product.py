"""Fast matrix products of many vectors with many queries, and the bound on their error.

A product is in int16 where the processor has an instruction for that, else in float32. It is not a score: it
only selects candidates, and `error_bound` says how far it can be from the score that orders them
(`similarity`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline.core import machine
from pipeline.core.records import Float32, Float64
from pipeline.kernels.int16 import ROW_LENGTH
from pipeline.search.similarity import Metric

ENOUGH = 1e10  # operations from which on integer products are worth the time it takes to load their kernels
LARGEST = 1 << 16  # dimensions up to which sums of integer products cannot overflow, with much to spare
_PIECE = 1024  # rows that a core multiplies at once in int16
_ROUNDOFF = 2.0**-24  # of float32


def integers_pay(queries: Float32, n_rows: int) -> bool:
    """Whether a search of `n_rows` rows is large enough, and the processor able, to multiply integers."""
    large = 2.0 * n_rows * queries.size > ENOUGH
    return large and queries.shape[1] <= LARGEST and machine.has_vnni()


class Float32Product:
    """Multiplies rows with the given queries in float32 by NumPy.

    Attributes:
        norms: float64 [queries], at least the length of each query in the precision of the product.
        query_errors: float64 [queries], at least the distance of each query to the one given.
        row_error: At least the distance of a row to what is multiplied, as a share of the row's length.
    """

    row_error = 0.0

    def __init__(self, queries: Float32) -> None:
        self.norms = norm_bounds(queries)
        self.query_errors = np.zeros(len(queries))
        self._queries = np.ascontiguousarray(queries.T)
        self._results = [np.empty((0, len(queries)), np.float32)] * 2

    def __call__(self, rows: Float32) -> Float32:
        """float32 [rows, queries]; the memory is used again by the call after the next."""
        return np.matmul(rows, self._queries, out=self._result(len(rows)))

    def _result(self, n_rows: int) -> Float32:
        self._results.reverse()
        if len(self._results[0]) < n_rows:
            self._results[0] = np.empty((n_rows, len(self.norms)), np.float32)
        return self._results[0][:n_rows]


class Int16Product(Float32Product):
    """A product of int16 rows and queries, each scaled by its own length; see `integer_kernels`.

    Rounding moves each of d numbers by at most 0.51 (the 0.01 is for scaling in float32), so a row by at most
    0.51 sqrt(d) times its factor, which is its length divided by `ROW_LENGTH`.
    """

    def __init__(self, queries: Float32) -> None:
        from pipeline.search import integer_kernels

        super().__init__(queries)
        self._packed = integer_kernels.pack_queries(queries, narrow=False)
        self.query_errors = self._packed.errors[: len(queries)]
        self.row_error = 0.51 * np.sqrt(queries.shape[1]) / ROW_LENGTH

    def __call__(self, rows: Float32) -> Float32:
        """As `Float32Product`; each core multiplies some of the rows."""
        from pipeline.search import integer_kernels

        result, queries = self._result(len(rows)), self._packed

        def multiply(start: int) -> None:
            span = slice(start, start + _PIECE)
            made = integer_kernels.round_rows(integer_kernels.fixed(rows[span]), False, False, 0.0)
            integer_kernels.multiply(made, queries, result[span])

        with ThreadPoolExecutor(machine.threads()) as threads:
            list(threads.map(multiply, range(0, len(rows), _PIECE)))
        return result


def error_bound(product: Float32Product, longest: float, dimension: int, metric: Metric) -> Float64:
    """float64 [queries]: how far a product can be from the value that orders passages p for a query q.

    That value is q·p, or for l2 q·p - |p|²/2 = (|q|² - |q - p|²)/2, which falls as the distance grows; |v| is
    the length of v. The bound is the sum of three errors:

    - Summation. A float32 sum of d products, in any order, is off by at most gamma_d sum(|q_i p_i|), where
      gamma_n = n u / (1 - n u) and u = 2^-24 (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
      edition, 2002, section 3.1). By the Cauchy-Schwarz inequality, that sum is at most |q||p|. The code
      takes d + 4 for d, as halving, subtracting and rounding the score are four roundings at most. For l2,
      (|q| + |p|)² takes the place of |q||p| and covers |p|²/2 and the score as well.
    - Rounded operands q', p': q·p - q'·p' = (q - q')·p + q'·(p - p'), at most |q - q'||p| + |q'||p - p'|.
    - Underflow. Each of the d terms may lose up to the smallest normal float32.

    `longest`: at least the length of the longest row.
    """
    gamma = (dimension + 4) * _ROUNDOFF / (1 - (dimension + 4) * _ROUNDOFF)
    row_error = product.row_error * longest
    norms, reach = product.norms + product.query_errors, longest + row_error
    size = (norms + reach) ** 2 if metric == "l2" else norms * reach
    underflow = dimension * float(np.finfo(np.float32).tiny) * (1 + norms) * (1 + reach)
    operands_and_sums: Float64 = gamma * size + product.query_errors * longest + norms * row_error
    return operands_and_sums + underflow


def norm_bounds(rows: Float32) -> Float64:
    """float64 [n]: at least the length of each row: 0.1% is added for rounding in float32."""
    squares: Float32 = np.einsum("ij,ij->i", rows, rows)
    return 1.001 * np.sqrt(squares).astype(np.float64)

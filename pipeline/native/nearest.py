"""Public interface to search: kernels that find the rows nearest to queries.

`dense` filters pairs of vectors, `maxsim` scores texts by their token vectors, `sparse` searches postings.
"""

from __future__ import annotations

from pipeline.native import dense_kernels as dense, maxsim_kernels as maxsim, posting_kernels as sparse
from pipeline.native.compiling import compiling
from pipeline.native.integers import ROW_LENGTH

__all__ = ["ROW_LENGTH", "compiling", "dense", "maxsim", "sparse"]

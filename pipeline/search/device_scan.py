"""The scan of an exact search on a GPU: products and thresholds there, exact scores here.

A block of rows is copied to the card, multiplied with all queries, and only the pairs whose product reaches
the threshold of their query come back. Products are IEEE float32, never TF32, so the bound on their error,
which holds for sums in any order, holds here, too: the candidates that are left are scored as in `scan`, and
the ranking is the same.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pipeline.core.display import Bar
from pipeline.core.records import Float32
from pipeline.search.scan import StreamingScan, growing_blocks
from pipeline.storage import vector_shards

if TYPE_CHECKING:
    import torch

BLOCK = 1 << 16  # rows of the longest block
PRODUCTS = 1 << 28  # most products made at once: 1 GiB


class DeviceScan(StreamingScan):
    """One reading of all vectors, whose products are made on a device of torch."""

    def collect_on(self, device: torch.device, block: int, bar: Bar) -> None:
        """Read all vectors and collect the candidates, in blocks of up to `block` rows.

        One thread reads the next block, while this one waits for the device.
        """
        import torch

        torch.set_float32_matmul_precision("highest")
        queries = _copied(self.queries, device)
        n, n_queries = len(self.embeddings), len(self.queries)
        blocks = growing_blocks(n, min(2 * self.k, block), min(block, max(PRODUCTS // n_queries, 1)))
        counted = 0
        with ThreadPoolExecutor(1) as reader:
            reading = reader.submit(self._read_block, *blocks[0])
            for (start, stop), upcoming in zip(blocks, [*blocks[1:], (n, n)], strict=True):
                rows, halves, longest = reading.result()
                reading = reader.submit(self._read_block, *upcoming)
                self.longest = max(self.longest, longest)
                products = self.multiply(queries, _copied(rows, device))
                if halves is not None:
                    products -= _copied(halves, device)
                least = self.candidates.least_products(slice(0, n_queries))
                reached = products >= _copied(least, device)[:, None]
                query, row = reached.nonzero(as_tuple=True)  # sorted by query
                values = products[query, row]
                self.candidates.add_pairs(
                    0, n_queries, query.cpu().numpy(), row.cpu().numpy() + start, values.cpu().numpy()
                )
                vector_shards.release_memory(self.embeddings, start, stop)
                done = n_queries * stop // n
                bar.update(done - counted)
                counted = done

    def multiply(self, queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Products float32 [queries, rows], on their device."""
        return queries @ rows.T


def _copied(values: Float32, device: torch.device) -> torch.Tensor:
    """Values on a device; by way of pinned memory, from which a GPU copies at its full rate."""
    import torch

    pinned = torch.empty(values.shape, dtype=torch.float32, pin_memory=device.type == "cuda")
    pinned.numpy()[:] = values
    return pinned.to(device)

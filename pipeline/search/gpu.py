"""The device that an index is searched on: a GPU, if Faiss has one and it can take the index, or the CPU."""

from __future__ import annotations

import logging
from typing import Any

import faiss

from pipeline.core.errors import InputError

log = logging.getLogger(__name__)

FAST_HITS = 1024  # per query; Faiss has faster kernels up to this number
MAX_HITS = 2048  # per query; Faiss refuses more on a GPU, and more lists as well


def choose_gpu(device: str, gpus: int) -> int | None:
    """The number of the GPU to use, None for the CPU.

    Args:
        device: `search.device`: auto, cpu, cuda or cuda:N.
        gpus: How many GPUs Faiss sees; 0 if it was built without GPU support.
    """
    if device == "cpu" or (device == "auto" and not gpus):
        return None
    wanted = int(device.partition(":")[2] or 0)
    if wanted >= gpus:
        raise InputError(
            f"search.device: {device}, and faiss sees {gpus} GPUs here",
            allowed="auto, cpu" + "".join(f", cuda:{number}" for number in range(gpus)),
            fix="set search.device to cpu, or install faiss with its GPU part",
        )
    return wanted


def count_gpus() -> int:
    """How many GPUs Faiss can use."""
    return int(faiss.get_num_gpus())


def move_to_device(index: Any, device: str, hits: int) -> Any:
    """A copy of an index on the GPU that `search.device` chooses, or the index itself for the CPU.

    Args:
        index: A faiss index, its search parameters set.
        device: `search.device`. An index that the GPU cannot take stays on the CPU if this is auto, and is
            refused otherwise.
        hits: Fewest hits per query that a search needs.
    """
    number = choose_gpu(device, count_gpus())
    if number is None:
        return index
    try:
        _check_limits(index, hits)
        return _copy_to_gpu(index, number)
    except RuntimeError as error:
        if device != "auto":
            raise InputError(
                f"search.device: {device}: {error}", allowed="auto, cpu", fix="set search.device to cpu"
            ) from None
        log.warning("searching on the CPU, as the GPU cannot take this index: %s", error)
        return index


def max_hits(top_k: int) -> int:
    """The most hits per query to ask a GPU for, when some more than `top_k` are useful."""
    return FAST_HITS if top_k < FAST_HITS else MAX_HITS


def _check_limits(index: Any, hits: int) -> None:
    """Raise a RuntimeError for what Faiss itself would refuse only during the search."""
    if hits > MAX_HITS:
        raise RuntimeError(f"a GPU returns {MAX_HITS:,} hits at most, and {hits:,} are needed")
    inverted = faiss.try_extract_index_ivf(index)
    if inverted and inverted.nprobe > MAX_HITS:
        raise RuntimeError(f"a GPU searches {MAX_HITS:,} lists at most, and nprobe is {inverted.nprobe:,}")


def _copy_to_gpu(index: Any, number: int) -> Any:
    """A copy of the index on a GPU, in fp32 throughout, which is Faiss's default."""
    options = faiss.GpuClonerOptions()
    if hasattr(options, "use_cuvs"):
        options.use_cuvs = False  # the error bound in `exact.exact_search_via` is not known to hold for it
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)

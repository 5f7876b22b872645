"""On which device is an index searched? On a GPU where Faiss has one and can take the index, else here."""

from __future__ import annotations

import logging
from typing import Any

from pipeline.core.errors import InputError

log = logging.getLogger(__name__)

FAST_HITS, MOST_HITS = 1024, 2048  # of a query: Faiss' kernels up to the first are the faster ones


def choose(device: str, gpus: int) -> int | None:
    """The number of the GPU to use, None for the CPU.

    Args:
        device: `search.device`: auto, cpu, cuda or cuda:N.
        gpus: How many GPUs Faiss sees; 0 where it is built without.

    Raises:
        InputError: A GPU is asked for that is not there.
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


def name(device: str) -> str:
    """The GPU that `search.device` chooses, as `cuda:N`."""
    return f"cuda:{choose(device, count())}"


def count() -> int:
    """How many GPUs Faiss can use."""
    import faiss

    return int(faiss.get_num_gpus())


def place(index: Any, device: str, hits: int) -> Any:
    """An index where it is to be searched: a copy on a GPU, in its own precision, or itself.

    Args:
        index: A faiss index, its search parameters set.
        device: `search.device`.
        hits: How many will be asked for at least.

    Raises:
        InputError: A GPU is asked for by name that is not there, or that cannot take the index.
    """
    number = choose(device, count())
    if number is None:
        return index
    try:
        _check(index, hits)
        return _copy(index, number)
    except RuntimeError as error:
        if device != "auto":
            raise InputError(
                f"search.device: {device}: {error}", allowed="auto, cpu", fix="set search.device to cpu"
            ) from None
        log.warning("searching on the CPU, as the GPU cannot take this index: %s", error)
        return index


def most_hits(top_k: int) -> int:
    """How many hits of a query to ask a GPU for at most, where some more than `top_k` would do good."""
    return FAST_HITS if top_k < FAST_HITS else MOST_HITS


def _check(index: Any, hits: int) -> None:
    """Refuse what Faiss would refuse when it searches.

    Raises:
        RuntimeError: It would.
    """
    import faiss

    if hits > MOST_HITS:
        raise RuntimeError(f"a GPU gives {MOST_HITS:,} hits at most, and {hits:,} are needed")
    inverted = faiss.try_extract_index_ivf(index)
    if inverted and inverted.nprobe > MOST_HITS:
        raise RuntimeError(f"a GPU looks at {MOST_HITS:,} lists at most, and nprobe is {inverted.nprobe:,}")


def _copy(index: Any, number: int) -> Any:
    """The same index on a GPU, in fp32 throughout: half precision is off unless asked for."""
    import faiss

    options = faiss.GpuClonerOptions()
    if hasattr(options, "use_cuvs"):
        options.use_cuvs = False  # its products are not those that `exact.best_via` knows the error of
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)

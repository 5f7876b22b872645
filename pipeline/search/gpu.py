"""On which device is an index searched? On a GPU where Faiss has one and can take the index, else here."""

from __future__ import annotations

import logging
from typing import Any

from pipeline.errors import InputError

log = logging.getLogger(__name__)


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


def count() -> int:
    """How many GPUs Faiss can use."""
    import faiss

    return int(faiss.get_num_gpus())


def place(index: Any, device: str, top_k: int) -> Any:
    """An index where it is to be searched: a copy on a GPU, in its own precision, or itself.

    Args:
        index: A faiss index.
        device: `search.device`.
        top_k: Hits that will be asked for; a GPU gives at most `faiss.GpuIndex` allows.

    Raises:
        InputError: A GPU is asked for by name that is not there, or that cannot take the index.
    """
    number = choose(device, count())
    if number is None:
        return index
    import faiss

    options = faiss.GpuClonerOptions()  # fp32 throughout: its half precisions are off
    try:
        if top_k >= _MOST_HITS:
            raise RuntimeError(f"a GPU gives {_MOST_HITS - 1:,} hits at most, search.top_k is {top_k:,}")
        return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)
    except RuntimeError as error:
        if device != "auto":
            raise InputError(
                f"search.device: {device}: {error}", allowed="auto, cpu", fix="set search.device to cpu"
            ) from None
        log.warning("searching on the CPU, as the GPU cannot take this index: %s", error)
        return index


_MOST_HITS = 2048  # of one query in faiss' GPU kernels

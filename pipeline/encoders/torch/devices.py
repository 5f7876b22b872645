"""Devices of torch: which one can be used, in which arithmetic, and which errors say it is full."""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    import torch

    from pipeline.models.model import ResolvedBase

HALF_CAPABILITY = (8, 0)  # of the first cards that compute bf16, and that flash attention runs on
OUT_OF_MEMORY = (
    "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "can't allocate memory",
)  # fmt: skip
"""In errors of CUDA, its libraries, and torch's allocator on a CPU, which are no `torch.OutOfMemoryError`."""


def check_device(name: str, precision: str, section: str) -> None:
    """Refuse a GPU that torch cannot use, or that does not compute in the precision.

    `section` is that of the config which names the device, for messages.
    """
    import torch

    device = torch.device(name)
    reason = _obstacle(device)
    if reason:
        raise InputError(
            f"{section}.device: {name}, which PyTorch {torch.__version__} cannot use: {reason}",
            allowed="cpu, or a GPU that PyTorch can use",
            fix=f"set {section}.device to cpu, or install a PyTorch built for this GPU and its driver",
        )
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else HALF_CAPABILITY
    if precision == "bf16" and capability < HALF_CAPABILITY:
        raise InputError(
            f"{section}.precision: bf16, which {torch.cuda.get_device_name(device)} does not compute: its "
            f"compute capability is {capability[0]}.{capability[1]}",
            allowed="bf16 on cards of compute capability 8.0 or above",
            fix=f"set {section}.precision to fp16 or fp32",
        )


def _obstacle(device: torch.device) -> str:
    """Why torch cannot use a GPU; empty if it can."""
    import torch

    if device.type == "mps":
        return "" if torch.backends.mps.is_available() else "it finds no GPU of Apple's, or macOS is too old"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # the reason is in its error, where `torch.cuda.is_available` only says no
            torch.cuda.init()  # type: ignore[no-untyped-call]
            count = torch.cuda.device_count()
            if (device.index or 0) >= count:
                return f"it sees {count} GPU{'s' if count > 1 else ''}, of which the last is cuda:{count - 1}"
            torch.ones(1, device=device).add_(1).item()
        except (AssertionError, RuntimeError) as error:  # the first where it is built without CUDA
            reasons = [str(warning.message) for warning in caught] + [str(error)]
            return next(iter(reasons[-1].splitlines()), "it does not say why").rstrip(". ")
    return ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch says that the memory of a device is full."""
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def free_memory(device: torch.device) -> None:
    """Give memory that no tensor uses back to a GPU."""
    import torch

    if device.type != "cpu":
        gc.collect()
        getattr(torch, device.type).empty_cache()


def no_room(model: ResolvedBase) -> InputError:
    """The refusal of a model that does not fit into the memory of its device."""
    section = model.section
    return InputError(
        f"model '{model.name}' does not fit into the memory of {model.device}{_size(model.device)}",
        fix=f"choose a smaller {section}.precision, a smaller model, or set {section}.device to cpu",
    )


def _size(device: str) -> str:
    """The free and the whole memory of a GPU, as a clause."""
    import torch

    with contextlib.suppress(RuntimeError, AssertionError, ValueError):
        free, whole = torch.cuda.mem_get_info(torch.device(device))
        return f", which has {whole / 1e9:.1f} GB, {free / 1e9:.1f} GB of them free"
    return ""

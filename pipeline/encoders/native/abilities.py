"""What the native backend can compute, as told by the processor and a model's `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

TYPES = ("bert", "roberta", "xlm-roberta")
"""The values of `model_type` in `config.json` of networks that the kernels compute."""
LIMITS = "BERT, RoBERTa and XLM-RoBERTa with GELU, widths in multiples of 64, heads in multiples of 32"
WIDTH, HEAD = 64, 32  # a layer's width is a multiple of the first, and a head's of the second
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads")


@cache
def has_vnni() -> bool:
    """Whether this processor multiplies and adds int16 in one instruction."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return any(features.get(name) for name in ("avx512vnni", "avxvnni"))


def fits(width: int, inner: int, heads: int) -> bool:
    """Whether the kernels compute layers of these widths, of the hidden states and between them."""
    return width % WIDTH == 0 and inner % WIDTH == 0 and width // heads % HEAD == 0


def computes(config: Mapping[str, Any], own_code: bool) -> bool:
    """Whether the kernels compute a network with this `config.json`, as far as that tells.

    With `own_code`, Python files that come with the model may run.
    """
    sizes = [int(config.get(name) or 0) for name in _SIZES]
    return (
        config.get("model_type") in TYPES
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
        and not (own_code and "auto_map" in config)
        and min(sizes) > 0
        and fits(*sizes)
    )

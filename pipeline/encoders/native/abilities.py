"""What the native backend can compute, as told by the processor and a model's `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core import machine

PLAIN = ("bert", "roberta", "xlm-roberta", "distilbert")
TYPES = (*PLAIN, "mpnet", "modernbert", "nomic_bert", "gte")
"""The values of `model_type` in `config.json` of networks that the kernels compute; first those like BERT."""
LIMITS = "BERT, RoBERTa, XLM-RoBERTa, DistilBERT and MPNet with GELU; ModernBERT, Nomic-BERT and GTE"
WIDTH, HEAD = 64, 32  # a layer's width is rounded up to a multiple of the first, a head's to the second
_ACTIVATIONS = ("hidden_act", "activation", "hidden_activation", "activation_function")


def runs_here(config: Mapping[str, Any], own_code: bool) -> bool:
    """Whether the kernels are fast on this processor and compute the network; arguments as of `computes`."""
    return machine.has_vnni() and computes(config, own_code)


def computes(config: Mapping[str, Any], own_code: bool) -> bool:
    """Whether the kernels compute a network with this `config.json`, as far as that tells.

    With `own_code`, Python files that come with the model may run.
    """
    kind = config.get("model_type")
    activation = next((config[name] for name in _ACTIVATIONS if name in config), "gelu")
    return (
        kind in TYPES
        and (activation == "gelu" or kind in ("nomic_bert", "gte"))
        and config.get("position_embedding_type", "absolute") in ("absolute", "rope")
        and not config.get("is_decoder")
        and not (own_code and "auto_map" in config)
    )

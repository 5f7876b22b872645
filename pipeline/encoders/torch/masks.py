"""The mask that a network is given: none where it changes nothing, else the smallest one.

For a batch with padding, transformers expands the mask of its tokens to one number for each pair of tokens.
For 4 texts of 8,192 tokens these are more numbers than the hidden states of a layer, and they keep torch from
its fused kernels. And to see whether there is padding at all it waits for a GPU, once a batch.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BY_KEYS = (
    "bert.Bert",
    "camembert.Camembert",
    "distilbert.DistilBert",
    "roberta.Roberta",
    "xlm_roberta.XLMRoberta",
)
"""Networks of transformers, by folder and class name, in which all tokens see the same tokens in all layers:
a mask [b, 1, 1, tokens] says it all."""
CAUSAL = ("llama.Llama", "mistral.Mistral", "qwen2.Qwen2", "qwen3.Qwen3")
"""Decoders in which a token sees none after it, so padding on the right needs no mask."""


def named(network: torch.nn.Module, names: tuple[str, ...]) -> bool:
    """Whether a network is a `…Model` of transformers itself, not a subclass of one, and among some names."""
    kind = type(network)
    return any(
        kind.__name__ == f"{name.partition('.')[2]}Model"
        and kind.__module__.startswith(f"transformers.models.{name.partition('.')[0]}.")
        for name in names
    )


def is_causal(network: torch.nn.Module) -> bool:
    """Whether a network is a decoder of `CAUSAL` whose config does not make it look in both directions."""
    config: Any = network.config
    both = getattr(config, "use_bidirectional_attention", None) or getattr(config, "is_causal", True) is False
    return named(network, CAUSAL) and not both


class MaskReduction(threading.local):  # one query may be encoded beside another
    """Replaces the mask of a network's calls; a backend sets `padded` for each batch."""

    padded = True  # whether any text of the current batch is padded

    def attach(self, body: Any, padded_right: bool) -> None:
        """Let calls of a network of transformers pass through this object."""
        by_keys = named(body, BY_KEYS) and body.config._attn_implementation == "sdpa"
        by_keys = by_keys and not getattr(body.config, "is_decoder", False)
        no_mask = padded_right and is_causal(body)

        forward = body.forward

        @functools.wraps(forward)  # sentence-transformers calls it past hooks, and reads its signature
        def reduced(*arguments: Any, **inputs: Any) -> Any:
            mask = inputs.get("attention_mask")
            if mask is not None and mask.dim() == 2:
                if no_mask or not self.padded:
                    inputs["attention_mask"] = None
                elif by_keys:
                    inputs["attention_mask"] = mask.bool()[:, None, None, :]
            return forward(*arguments, **inputs)

        body.forward = reduced

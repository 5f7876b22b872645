"""Repairs of two classes of FlagEmbedding, which were written for transformers 4, for transformers 5.

`LayerWiseMiniCPMForCausalLM` and `CostWiseGemmaForCausalLM` hold copies of transformers' decoders. Since
version 5 a network lists its tied weights as a mapping, a config always has RoPE parameters, a decoder layer
is given the cosines and sines of its positions and returns a tensor, and a loaded network's buffers that are
not stored are left empty. Nothing is changed in what the classes compute.
"""

from __future__ import annotations

from typing import Any


def repair_classes() -> None:
    """Make the classes loadable; before FlagEmbedding loads one. Calling it again changes nothing."""
    from FlagEmbedding.inference.reranker.decoder_only.models import gemma_model, modeling_minicpm_reranker

    minicpm = modeling_minicpm_reranker.LayerWiseMiniCPMForCausalLM
    gemma = gemma_model.CostWiseGemmaForCausalLM
    if minicpm._tied_weights_keys is None:
        return
    for each in (minicpm, gemma):
        each._tied_weights_keys = None  # neither has tied weights: their heads are separate
    whole_init = minicpm.__init__

    def init(self: Any, config: Any, *rest: Any, **settings: Any) -> None:
        if (config.rope_scaling or {}).get("rope_type") == "default":
            config.rope_scaling = None
        config.use_cache = False
        whole_init(self, config, *rest, **settings)

    minicpm.__init__ = init
    gemma_model.Gemma2DecoderLayer = _gemma_layer(gemma_model.Gemma2DecoderLayer)


def repair_network(network: Any) -> None:
    """Fill a loaded network's buffers, and have Gemma's attention limit its logits, which `sdpa` does not."""
    kind = type(network).__name__
    if kind == "LayerWiseMiniCPMForCausalLM":
        for layer in network.model.layers:
            layer.self_attn._init_rope()
    elif kind == "CostWiseGemmaForCausalLM":
        network.set_attn_implementation("eager")


def _gemma_layer(base: Any) -> Any:
    """A decoder layer that computes cosines and sines itself, and returns a tuple, as in transformers 4."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RotaryEmbedding

    class Layer(base):  # type: ignore[misc]
        def forward(self, hidden: Any, attention_mask: Any, position_ids: Any, **_: Any) -> Any:
            rotary = Gemma2RotaryEmbedding(self.config).to(hidden.device)
            return (
                super().forward(
                    hidden,
                    position_embeddings=rotary(hidden, position_ids),
                    attention_mask=attention_mask,
                    position_ids=position_ids,
                ),
            )

    return Layer

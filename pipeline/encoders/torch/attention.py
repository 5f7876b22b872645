"""Work saved in attention: masks and padding that are left out, and all but one token of the last layer.

For a batch with padding, transformers expands the mask of its tokens to one number for each pair of tokens.
For 4 texts of 8,192 tokens these are more numbers than the hidden states of a layer, and they keep torch from
its fused kernels. And to see whether there is padding at all it waits for a GPU, once a batch. So a network
is given no mask where it changes nothing, else the smallest one.

Without padding, all texts of a batch are in one row. Transformers lets an attention function be registered
by name, and makes no mask for it. The one here calls `torch.nn.attention.varlen.varlen_attn`, which needs
fp16 or bf16 and a GPU on which flash attention runs. Attention alone sees where a text ends; all other layers
compute token by token. The padded path is the reference.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.records import Int32, Int64
from pipeline.encoders.torch.checks import architecture
from pipeline.encoders.torch.devices import HALF_CAPABILITY

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel
    from transformers.models.bert.modeling_bert import BertLayer

    from pipeline.encoders.batching import TokenBatch

BY_KEYS = (
    "bert.BertModel",
    "camembert.CamembertModel",
    "distilbert.DistilBertModel",
    "roberta.RobertaModel",
    "xlm_roberta.XLMRobertaModel",
)
"""Networks of transformers in which all tokens see the same tokens in all layers: a mask [b, 1, 1, tokens]
says it all. Here and below they are named as `architecture` does it."""
CAUSAL = ("llama.LlamaModel", "mistral.MistralModel", "qwen2.Qwen2Model", "qwen3.Qwen3Model")
"""Decoders in which a token sees none after it, so padding on the right needs no mask."""


def is_causal(config: Any) -> bool:
    """Whether the config of a decoder of `CAUSAL` does not make it look in both directions."""
    both = getattr(config, "use_bidirectional_attention", None) or getattr(config, "is_causal", True) is False
    return not both


class MaskReduction(threading.local):  # one query may be encoded beside another
    """Replaces the mask of a network's calls; a backend sets `padded` for each batch."""

    padded = True  # whether any text of the current batch is padded

    def attach(self, body: Any, padded_right: bool) -> None:
        """Let calls of a network of transformers pass through this object."""
        kind, config = architecture(body), body.config
        by_keys = kind in BY_KEYS and config._attn_implementation == "sdpa"
        by_keys = by_keys and not getattr(config, "is_decoder", False)
        no_mask = padded_right and kind in CAUSAL and is_causal(config)
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


NAME = "benchmarco_varlen"
FROM_0 = (
    "bert.BertModel",
    "distilbert.DistilBertModel",
    "modernbert.ModernBertModel",
    "nomic_bert.NomicBertModel",
)
AFTER_PADDING = ("camembert.CamembertModel", "roberta.RobertaModel", "xlm_roberta.XLMRobertaModel")
"""Encoders that are computed without padding, by the position of a text's first token: 0, or the padding id
plus 1. So are the decoders of `CAUSAL`."""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **inputs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of the texts in one row, as transformers calls it: [1, heads, tokens, width] each.

    Returns:
        [1, tokens, heads, width].
    """
    ends, longest = inputs["cu_seq_lens_q"], inputs["max_length_q"]
    causal = bool(getattr(module, "is_causal", False))
    one_side = -1 if sliding_window is None or sliding_window > longest else sliding_window - 1
    window = one_side, 0 if causal else one_side
    return attend_texts(query, key, value, (ends, ends), (longest, longest), scaling, window), None


def attend_texts(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int],
    scaling: float | None = None,
    window: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """Attention of queries to the keys of their own text: [1, tokens, heads, width].

    Args:
        query: [1, heads, tokens, width]; so are `key` and `value`, maybe with fewer heads.
        key: Of all texts.
        value: Of all texts.
        ends: int32 [texts + 1] of queries and of keys: where each text begins, and where the last one ends.
        longest: The most queries, and the most keys, of a text.
        scaling: Of the products; None is 1 over the root of the width.
        window: Tokens seen before and after the own one; -1 is all.
    """
    from torch.nn.attention.varlen import varlen_attn

    groups = query.shape[1] // key.shape[1]
    if groups > 1:  # not every release of torch lets groups of heads share keys
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    attention: Any = varlen_attn
    rows = [states[0].transpose(0, 1) for states in (query, key, value)]  # [tokens, heads, width]
    scaling = 1 / math.sqrt(query.shape[-1]) if scaling is None else scaling
    mixed: torch.Tensor = attention(*rows, *ends, *longest, scale=scaling, window_size=window)
    return mixed[None]


def runs_without_padding(runner: Any) -> bool:
    """Whether its GPU and the installed torch compute texts in one row, in the runner's precision.

    Its network must be one that the tests compare with its padded form.
    """
    import torch

    if runner.dtype == torch.float32:
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    accepted = inspect.signature(varlen_attn).parameters
    new_enough = torch.cuda.get_device_capability(runner.device) >= HALF_CAPABILITY
    if not new_enough or not {"scale", "window_size"} <= set(accepted):
        return False
    kind, config = architecture(runner.network), runner.network.config
    if kind in CAUSAL:
        return is_causal(config)
    return kind in FROM_0 + AFTER_PADDING and not getattr(config, "is_decoder", False)


def hidden_states(
    network: Any, batch: TokenBatch, on_device: Callable[[Int64 | Int32], torch.Tensor]
) -> torch.Tensor:
    """The last hidden states of a batch, computed without padding, at the places where padding has them.

    `on_device` copies an array to the network's device.

    Returns:
        [b, tokens, width], zeros at padding; [b, 1, width] where the last layer computes first tokens alone.
    """
    mask = batch.mask.astype(bool)
    mask[:, 0] = True  # a text without tokens keeps its first padding
    places = np.flatnonzero(mask)
    ids, positions = batch.ids.flat[places][None], (places % batch.ids.shape[1])[None]
    ends = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)  # [b + 1]
    if architecture(network) in AFTER_PADDING:
        positions = positions + int(network.config.pad_token_id) + 1
    places_of_texts = on_device(ends)
    longest = max(int(batch.mask.sum(axis=1).max()), 1)
    states: torch.Tensor = network(
        input_ids=on_device(ids),
        position_ids=on_device(positions),
        cu_seq_lens_q=places_of_texts,
        cu_seq_lens_k=places_of_texts,
        max_length_q=longest,
        max_length_k=longest,
        return_dict=True,
    ).last_hidden_state[0]
    if len(states) == len(batch.rows) != ids.size:
        return states[:, None]
    padded = states.new_zeros((batch.ids.size, states.shape[-1]))
    padded[on_device(places)] = states
    return padded.reshape(*batch.ids.shape, -1)


FIRST_TOKEN = ("bert.Bert", "roberta.Roberta", "xlm_roberta.XLMRoberta")
"""Beginnings of the names of classes for which `limit_last_layer_to_first_token` is right.

Their `Layer` computes what that function writes out, and their `Model` adds nothing to it. A model's own
Python files may define classes of the same name, or subclasses that do more: these have no `architecture`.
"""


def limit_last_layer_to_first_token(network: PreTrainedModel) -> None:
    """Make a network compute its last hidden state for the first token only, float [b, 1, width].

    Of texts in one row, as `hidden_states` gives them, it is [1, b, width].

    It is a torch model as transformers loads it, with or without a head. It stays as it is unless it is one
    of `FIRST_TOKEN`, bidirectional, with absolute positions and a 4-d mask; or if its head is not
    transformers' own, which may read other tokens.
    """
    import torch

    body, config = network.base_model, network.base_model.config
    prefix = architecture(body).removesuffix("Model")
    if (
        not architecture(network)
        or prefix not in FIRST_TOKEN
        or {architecture(layer) for layer in body.encoder.layer} != {prefix + "Layer"}
        or config.is_decoder
        or getattr(config, "position_embedding_type", "absolute") != "absolute"
        or config._attn_implementation not in {"sdpa", "eager"}
    ):
        return
    layers = body.encoder.layer

    class FirstToken(torch.nn.Module):
        def __init__(self, layer: BertLayer) -> None:
            super().__init__()
            self.layer = layer

        def forward(
            self, hidden: Tensor, attention_mask: Tensor | None = None, *rest: object, **named: Any
        ) -> Tensor:
            ends = named.get("cu_seq_lens_q")  # of texts in one row, without padding
            first = hidden[:, :1] if ends is None else hidden[:, ends[:-1]]
            attention = self.layer.attention
            linear = attention.self

            def heads(states: Tensor) -> Tensor:  # [b, heads, tokens, width of a head]
                parts: Tensor = states.unflatten(-1, (linear.num_attention_heads, -1))  # type: ignore[no-untyped-call]
                return parts.transpose(1, 2)

            states = heads(linear.query(first)), heads(linear.key(hidden)), heads(linear.value(hidden))
            if ends is None:
                mask = None if attention_mask is None else attention_mask[..., :1, :]
                mixed = torch.nn.functional.scaled_dot_product_attention(*states, mask).transpose(1, 2)
            else:
                starts = torch.arange(len(ends), dtype=ends.dtype, device=ends.device)
                mixed = attend_texts(*states, (starts, ends), (1, named["max_length_q"]))
            attended = attention.output(mixed.flatten(2), first)
            state: Tensor = self.layer.feed_forward_chunk(attended)
            return state

    layers[-1] = FirstToken(layers[-1])

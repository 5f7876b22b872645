"""Batches without padding: all texts in one row, and torch's attention for sequences of several lengths.

Transformers lets an attention function be registered by name, and makes no mask for it. This one calls
`torch.nn.attention.varlen.varlen_attn`, which needs fp16 or bf16 and a GPU on which flash attention runs.
Attention alone sees where a text ends; all other layers compute token by token. The padded path is
the reference.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.encoders.torch.devices import HALF_CAPABILITY
from pipeline.encoders.torch.masks import is_causal, named

if TYPE_CHECKING:
    import torch

    from pipeline.encoders.batching import TokenBatch
    from pipeline.encoders.torch.backend import TorchRunner

NAME = "benchmarco_varlen"
FROM_0 = ("bert.Bert", "distilbert.DistilBert", "modernbert.ModernBert", "nomic_bert.NomicBert")
AFTER_PADDING = ("camembert.Camembert", "roberta.Roberta", "xlm_roberta.XLMRoberta")
"""Encoders that are computed without padding, by the position of a text's first token: 0, or the padding id
plus 1. So are the decoders of `masks.CAUSAL`."""


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
    """Whether the device and the installed torch compute texts in one row, in the runner's precision.

    Its network must be one that the tests compare with its padded form.
    """
    import torch

    if runner.device.type != "cuda" or runner.dtype == torch.float32:
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    accepted = inspect.signature(varlen_attn).parameters
    new_enough = torch.cuda.get_device_capability(runner.device) >= HALF_CAPABILITY
    if not new_enough or not {"scale", "window_size"} <= set(accepted):
        return False
    network = runner.network
    encoder = named(network, FROM_0 + AFTER_PADDING) and not getattr(network.config, "is_decoder", False)
    return encoder or is_causal(network)


def hidden_states(network: Any, batch: TokenBatch, runner: TorchRunner[Any]) -> torch.Tensor:
    """The last hidden states of a batch, computed without padding, at the places where padding has them.

    Returns:
        [b, tokens, width], zeros at padding; [b, 1, width] where the last layer computes first tokens alone.
    """
    mask = batch.mask.astype(bool)
    mask[:, 0] = True  # a text without tokens keeps its first padding
    places = np.flatnonzero(mask)
    ids, positions = batch.ids.flat[places][None], (places % batch.ids.shape[1])[None]
    ends = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)  # [b + 1]
    if named(network, AFTER_PADDING):
        positions = positions + int(network.config.pad_token_id) + 1
    places_of_texts = runner.on_device(ends)
    longest = max(int(batch.mask.sum(axis=1).max()), 1)
    states: torch.Tensor = network(
        input_ids=runner.on_device(ids),
        position_ids=runner.on_device(positions),
        cu_seq_lens_q=places_of_texts,
        cu_seq_lens_k=places_of_texts,
        max_length_q=longest,
        max_length_k=longest,
        return_dict=True,
    ).last_hidden_state[0]
    if len(states) == len(batch.rows) != ids.size:
        return states[:, None]
    padded = states.new_zeros((batch.ids.size, states.shape[-1]))
    padded[runner.on_device(places)] = states
    return padded.reshape(*batch.ids.shape, -1)

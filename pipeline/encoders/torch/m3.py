"""The heads of BGE-M3 for word weights and for token vectors: their files, and what they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int32, Int64, Ragged
from pipeline.models.model import Model

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

TOKEN_HEAD, WORD_HEAD = "colbert_linear.pt", "sparse_linear.pt"
"""Files of the heads; if one is missing, FlagEmbedding takes random weights for both."""
UNUSED = ("cls_token", "eos_token", "pad_token", "unk_token")
"""Special tokens that FlagEmbedding gives no weight."""


def refuse_missing_heads(model: Model) -> None:
    """Raise an `InputError` if a model is without the files of BGE-M3's heads."""
    folder = model.files.folder()
    missing = [name for name in (TOKEN_HEAD, WORD_HEAD) if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"model '{model.name}' has no {missing[0]}",
            allowed="BGE-M3, or a model that was fine-tuned from it by FlagEmbedding",
            fix="choose such a model, backend sentence-transformers, or model.output: dense",
        )


def read_head(folder: Path, output: str) -> dict[str, torch.Tensor]:
    """The weights of a linear head, `weight` and `bias`, by the output that it makes."""
    import torch

    path = folder / (WORD_HEAD if output == "sparse" else TOKEN_HEAD)
    head: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return head


def unused_tokens(tokenizer: PreTrainedTokenizerBase) -> Int64:
    """The numbers of the special tokens that have no weight."""
    named = tokenizer.special_tokens_map
    return np.array(
        [tokenizer.convert_tokens_to_ids(named[name]) for name in UNUSED if name in named], np.int64
    )


def largest_weights(rows: Int64, words: Int32 | Int64, weights: Float32, unused: Int64, count: int) -> Ragged:
    """The words of each text, ascending, and of each word the largest weight.

    Args:
        rows: int64 [n], the text of each token, of `count` texts.
        words: [n], the number of each token.
        weights: float32 [n], above 0.
        unused: The tokens that have no weight.
        count: How many texts there are.
    """
    used = ~np.isin(words, unused)
    pairs = rows[used] * (1 << 32) + words[used]
    order = np.argsort(pairs, kind="stable")
    firsts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    chosen = pairs[order][firsts]
    largest = weights[used][order]
    largest = np.maximum.reduceat(largest, firsts) if len(firsts) else largest
    lengths = np.bincount(chosen >> 32, minlength=count)
    return Ragged(np.cumsum(lengths), ((chosen & 0xFFFFFFFF).astype(np.int32), largest))

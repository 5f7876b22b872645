"""The passages of the collection that a model in int8 is calibrated on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.records import Int32, Int64, Texts
from pipeline.data.collection_files import open_texts
from pipeline.encoders.batching import tokenize
from pipeline.models.model import Model

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLE = 256  # passages that the model is observed on
SEED = 0  # for drawing them


def calibration_recipe(model: Model) -> dict[str, Any]:
    """What decides which passages these are, and how they are tokenized, as parts of a recipe."""
    return {
        "corpus": model.corpus.identity if model.corpus else None,
        "prompt": list(model.prompts["passages"]),
        "max_length": model.max_lengths["passages"],
        "sample": [SAMPLE, SEED],
    }


def calibration_texts(passages: Texts) -> list[str]:
    """The passages a model is calibrated on: drawn with a fixed seed, in the corpus's order."""
    count = min(SAMPLE, len(passages))
    rows: Int64 = np.sort(np.random.default_rng(SEED).choice(len(passages), count, replace=False))
    texts: list[str] = passages.texts.take(rows).to_pylist()
    return texts


def calibration_tokens(model: Model, tokenizer: Tokenizer) -> list[Int32]:
    """Token ids of these passages, with the prompt and the length that they are encoded with."""
    if model.corpus is None:
        raise ValueError("an int8 model needs a corpus to calibrate on")
    before, after = model.prompts["passages"]
    texts = calibration_texts(open_texts(model.corpus.path))
    return tokenize(tokenizer, [before + text + after for text in texts], model.max_lengths["passages"])

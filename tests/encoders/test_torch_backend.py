"""What every torch backend does with batches where memory runs out, and between them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Float32
from pipeline.encoders.batching import Usage, batches, encode
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.models.files import Files
from pipeline.models.model import Model

MODEL = Model(
    name="tiny", files=Files(), identity={}, pooling="mean", precision="fp32", device="cpu",
    prompts={"passages": ("", ""), "queries": ("", "")}, max_lengths={"passages": 20, "queries": 20},
    pad_id=0,
)  # fmt: skip


class Tiny(TorchBackend):
    """A mean of random token embeddings, on a device that holds only so many tokens at once."""

    dimension = 4

    def __init__(self, room: int, error: type[RuntimeError] = torch.OutOfMemoryError) -> None:
        super().__init__(MODEL)
        self.room, self.error = room, error
        self.tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "a": 1, "b": 2, "c": 3}, unk_token="[PAD]"))
        self.tokenizer.pre_tokenizer = Whitespace()
        torch.manual_seed(0)
        self.embeddings = torch.nn.Embedding(4, 4)

    def rows(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if ids.numel() > self.room:
            raise self.error("no room")
        hidden = self.embeddings(ids) * mask.unsqueeze(-1)
        return hidden.sum(1) / mask.sum(1, keepdim=True)


TEXTS = [" ".join("abc"[(n + m) % 3] for m in range(n % 19 + 1)) for n in range(200)]


def run(backend: Tiny) -> Float32:
    with silent("", None, "") as bar:
        return encode(backend, TEXTS, 20, Usage(), bar)


def test_a_batch_without_room_is_cut_and_those_after_it_are_smaller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small = Tiny(150)
    with caplog.at_level(logging.WARNING):
        vectors = run(small)
    np.testing.assert_allclose(vectors, run(Tiny(10**6)), atol=1e-6)
    assert small.token_budget <= 150
    assert "out of memory on cpu with" in caplog.messages[0]
    assert f"going on with {small.token_budget}" in caplog.messages[-1]
    told = len(caplog.messages)
    run(small)
    assert len(caplog.messages) == told  # it has learnt


def test_one_text_without_room_is_refused_with_its_length() -> None:
    with pytest.raises(InputError, match="one text of 19 tokens does not fit into the memory of cpu"):
        run(Tiny(15))


def test_any_other_error_is_raised() -> None:
    backend = Tiny(150, RuntimeError)
    with pytest.raises(RuntimeError, match="no room"):
        run(backend)
    assert backend.token_budget > 150


def test_others_may_compute_gradients_while_batches_are_under_way() -> None:
    backend = Tiny(10**6)
    backend.token_budget = 20
    usage, windows = Usage(), [[(0, np.ones(15, np.int64)), (1, np.ones(14, np.int64))]]
    for _ in backend.forward(batches(backend, windows, 20, usage)):
        assert not torch.is_inference_mode_enabled()

"""The batcher, on backends whose vectors can be worked out by hand, and what torch does without memory."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from inside import resize
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel
from tokenizers.pre_tokenizers import Whitespace
from workplaces import BAR

from pipeline import InputError
from pipeline.encoders import (
    Encoder,
    TokenBatch,
    Usage,
    Window,
    batches,
    text_windows,
    tokenize,
)
from pipeline.encoders.torch import DeviceBatch, TorchBackend
from pipeline.models import Files, ModelTokenizer, ResolvedModel, TokenizerSettings

PAD = 9


def letters() -> Tokenizer:
    """A tokenizer of the words `a`, `b` and `c`."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


class Counting:
    """A vector of (tokens, sum of ids) per text; remembers the batches it was given."""

    dimension, pad_id = 2, PAD
    reads_padding, embedded = False, None

    def __init__(self, token_budget: int, width_multiple: int = 1) -> None:
        self.token_budget, self.width_multiple, self.computes_padding = token_budget, width_multiple, True
        self.tokenizer = letters()
        self.batches: list[TokenBatch] = []

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        self.batches = list(batches)
        for batch in reversed(self.batches):  # any order is allowed
            ids = batch.ids * batch.mask
            yield batch.rows, np.stack([batch.mask.sum(1), ids.sum(1)], 1).astype(np.float32)


NO_CARD: Any = None
MODEL = ResolvedModel(
    name="tiny", files=Files(Path()), identity={}, pooling="mean", precision="fp32", device="cpu",
    prompts={"passages": ("", ""), "queries": ("", "")}, max_lengths={"passages": 20, "queries": 20},
    pad_id=0, tokenizers={}, tokenizer=ModelTokenizer(Path(), "", TokenizerSettings("tiny")), card=NO_CARD,
)  # fmt: skip


def encoder(backend: Any, max_length: int = 50, size: int | None = None, watch: Any = None) -> Encoder:
    return Encoder(replace(MODEL, max_lengths={"passages": max_length}), backend, size, watch)


def run(
    backend: Any, texts: list[str], max_length: int = 50, size: int | None = None
) -> tuple[np.ndarray, Usage]:
    ((rows, usage),) = encoder(backend, max_length, size).encode_parts([texts], "passages", BAR)
    return rows, usage


TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=20).map(" ".join), max_size=40)


@given(TEXTS, st.integers(1, 60), st.none() | st.integers(1, 7), st.integers(1, 8), st.booleans())
def test_vectors_come_back_in_the_order_of_the_texts(
    texts: list[str], budget: int, size: int | None, multiple: int, by_windows: bool
) -> None:
    backend = Counting(budget, multiple)
    with pytest.MonkeyPatch.context() as patch:
        if by_windows:
            resize(patch, tokenized_texts=2, tokenized_window=3)
        vectors, usage = run(backend, texts, 19, size)
    kept = [["abc".index(word) + 1 for word in text.split()][:19] for text in texts]
    assert vectors.tolist() == [[len(ids), sum(ids)] for ids in kept]
    widths = [batch.ids.shape[1] for batch in backend.batches]
    assert widths == sorted(widths, reverse=True)  # so that memory peaks first
    for batch in backend.batches:
        assert batch.ids.size <= budget or len(batch.rows) == 1
        assert size is None or len(batch.rows) <= size
        longest = max(int(batch.mask.sum(1).max()), 1)
        assert batch.ids.shape[1] == min(-(-longest // multiple) * multiple, 19)
        assert (batch.ids[batch.mask == 0] == PAD).all()
    assert usage.texts == len(texts)
    assert usage.tokens == sum(map(len, kept))
    assert usage.padded == sum(batch.ids.size for batch in backend.batches)


def test_what_fills_no_batch_goes_into_the_next_window(monkeypatch: pytest.MonkeyPatch) -> None:
    resize(monkeypatch, tokenized_texts=5, tokenized_window=7)
    backend = Counting(12)
    vectors, usage = run(backend, ["a b c"] * 30)
    assert [len(batch.rows) for batch in backend.batches] == [4] * 7 + [2]
    assert vectors.tolist() == [[3, 6]] * 30
    assert usage.padded == usage.tokens == 90


def test_padding_share_is_what_was_computed_in_vain() -> None:
    _, usage = run(Counting(8), ["a a a a", "a a"])
    assert usage.figures()["padding_share"] == pytest.approx(2 / 8)


def test_a_text_that_a_tokenizer_cannot_encode_is_no_traceback() -> None:
    with pytest.raises(InputError, match=r"tokenizer cannot encode a text: .*unknown token"):
        tokenize(Tokenizer(Unigram([("a", 0.0)])), ["b"], 5)


def test_little_is_tokenized_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    resize(monkeypatch, tokenized_texts=2, tokenized_window=4)
    assert text_windows(range(1, 9)) == [[7, 6], [5, 4, 3, 2], [1, 0]]


class Tiny(TorchBackend):
    """A mean of random token embeddings, on a device that holds only so many tokens at once."""

    dimension = 4

    def __init__(self, room: int, error: RuntimeError | None = None) -> None:
        torch.manual_seed(0)
        self.embeddings = torch.nn.Embedding(4, 4)
        super().__init__(MODEL, self.embeddings)
        self.room, self.error = room, error or torch.OutOfMemoryError("no room")
        self.sizes: list[tuple[int, int]] = []  # the texts and tokens of each batch, also without room
        self.tokenizer = letters()

    def rows(self, texts: DeviceBatch) -> torch.Tensor:
        self.sizes.append(tuple(texts.ids.shape))
        if texts.ids.numel() > self.room:
            raise self.error
        hidden = self.embeddings(texts.ids) * texts.mask.unsqueeze(-1)
        return hidden.sum(1) / texts.mask.sum(1, keepdim=True)


LINES = [" ".join("abc"[(n + m) % 3] for m in range(n % 19 + 1)) for n in range(200)]


def test_a_batch_without_room_is_cut_and_those_after_it_are_smaller(caplog: Any) -> None:
    small = Tiny(150)
    with caplog.at_level(logging.WARNING):
        vectors, _ = run(small, LINES, 20)
    np.testing.assert_allclose(vectors, run(Tiny(10**6), LINES, 20)[0], atol=1e-6)
    assert "out of memory on cpu with" in caplog.messages[0]
    assert 75 <= int(caplog.messages[-1].rpartition("going on with ")[2]) <= 150
    told = len(caplog.messages)
    small.sizes.clear()
    run(small, LINES, 20)
    assert len(caplog.messages) == told  # it has learnt
    assert 75 <= max(texts * tokens for texts, tokens in small.sizes) <= 150


def test_one_text_without_room_is_refused_with_its_length() -> None:
    with pytest.raises(InputError, match="one text of 19 tokens does not fit into the memory of cpu"):
        run(Tiny(15), LINES, 20)


def test_any_other_error_is_raised() -> None:
    backend = Tiny(150, RuntimeError("no room"))
    with pytest.raises(RuntimeError, match="no room"):
        run(backend, LINES, 20)
    ((texts, tokens),) = backend.sizes  # nothing was cut
    assert texts * tokens > 150


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: out of memory",
        "[enforce fail at alloc_cpu.cpp:126] . DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_memory_that_runs_out_in_a_library_is_no_other_error(said: str) -> None:
    """torch says `OutOfMemoryError` for its own allocator on a GPU alone."""
    vectors, _ = run(Tiny(150, RuntimeError(said)), LINES, 20)
    np.testing.assert_allclose(vectors, run(Tiny(10**6), LINES, 20)[0], atol=1e-6)


@pytest.mark.parametrize(("room", "budget"), [(40_000, 32_768), (10_000, 8_192), (5_000, 4_096), (700, 512)])
def test_batches_without_room_leave_the_largest_budget_that_fits(room: int, budget: int) -> None:
    """Parts of a batch that were cut before another one failed must not halve the budget again."""
    backend = Tiny(room)
    backend.token_budget = 65_536
    texts = ["a b c a b c a b c a b c a b c a"] * 16_384
    run(backend, texts, 20)
    assert max(texts * tokens for texts, tokens in backend.sizes if texts * tokens <= room) == budget
    assert len(backend.sizes) <= 1.05 * 16 * len(texts) / budget + 16


def test_narrow_batches_are_not_as_small_as_wide_ones() -> None:
    """A row of attention is as long as its text, so a token of a short one takes less memory."""

    class Attention(Tiny):
        def rows(self, texts: DeviceBatch) -> torch.Tensor:
            count, tokens = texts.ids.shape
            if count * tokens * tokens > self.room:
                raise self.error
            return super().rows(texts)

    backend = Attention(16 * 1024)
    backend.token_budget = 4096
    run(backend, [" ".join(["a"] * tokens) for tokens in (16, 8, 4, 2) for _ in range(2000)], 20)
    largest = dict(sorted((tokens, texts * tokens) for texts, tokens in backend.sizes))
    assert [largest[width] for width in (16, 8, 4)] == [1024, 2048, 4096]


def test_others_may_compute_gradients_while_batches_are_under_way() -> None:
    backend = Tiny(10**6)
    backend.token_budget = 20
    texts = [(0, np.ones(15, np.int32)), (1, np.ones(14, np.int32))]
    for _ in backend.forward(batches(backend, [Window(texts, Usage(), True)], 20)):
        assert not torch.is_inference_mode_enabled()


class Streaming(Counting):
    """Gives the rows of each batch before it takes the next."""

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in batches:
            self.batches.append(batch)
            ids = batch.ids * batch.mask
            yield batch.rows, np.stack([batch.mask.sum(1), ids.sum(1)], 1).astype(np.float32)


@pytest.mark.parametrize("kind", [Counting, Streaming])
@given(parts=st.lists(TEXTS, max_size=5), budget=st.integers(1, 60))
def test_parts_have_the_rows_and_the_batches_that_each_has_alone(
    kind: Callable[[int], Counting], parts: list[list[str]], budget: int
) -> None:
    backend, checked, shapes = kind(budget), [], []

    def check(texts: Any, length: int, rows: Any) -> None:
        checked.append((list(texts), length, len(rows)))

    watched = encoder(backend, watch=SimpleNamespace(check=check))
    found = list(watched.encode_parts(parts, "passages", BAR))
    for (rows, usage), texts in zip(found, parts, strict=True):
        alone = kind(budget)
        expected, cost = run(alone, texts)
        shapes += [batch.ids.shape for batch in alone.batches]
        assert np.array_equal(rows, expected)
        assert (usage.texts, usage.tokens, usage.padded) == (cost.texts, cost.tokens, cost.padded)
    assert [batch.ids.shape for batch in backend.batches] == shapes
    assert checked == [(texts, 50, len(texts)) for texts in parts]


def test_a_part_is_read_while_the_one_before_is_computed() -> None:
    was_read = threading.Event()

    def parts() -> Iterator[list[str]]:
        yield ["a b"]
        was_read.set()
        yield ["c"]

    class Waiting(Streaming):
        def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for batch in batches:
                assert was_read.wait(60)
                yield from super().forward(iter([batch]))

    found = [rows.tolist() for rows, _ in encoder(Waiting(8)).encode_parts(parts(), "passages", BAR)]
    assert found == [[[2, 3]], [[1, 3]]]

"""Models that other number formats lose are refused, by texts of the sample or by those that are encoded."""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
import torch
from tokenizers import Tokenizer
from workplaces import BAR

from pipeline import InputError
from pipeline.encoders import Encoder, Probes, Usage, Watch, sample_tokens
from pipeline.storage import Store

SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "initializer_range": 0.3, "max_position_embeddings": 128,
}  # fmt: skip
WORDS = slice(100, None)  # the ids of special tokens and of words; those below it stand in no text
RARE = slice(1740, 1800)  # letters of Chinese, which the sample has not
INT16 = {"backend": "native", "precision": "int16"}
BF16 = {"backend": "openvino", "precision": "bf16"}


def quiet_network() -> Any:
    """A random network whose positions all have the same embedding."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    network = BertModel(BertConfig(**SHAPE)).eval()
    network.embeddings.position_embeddings.weight.data.zero_()
    network.embeddings.token_type_embeddings.weight.data.zero_()
    return network


def with_an_outlier_channel(tokens: Any) -> Any:
    """Of these tokens, channel 0 is 80,000 in all hidden states, and multiplied by zeros."""
    network = quiet_network()
    network.embeddings.word_embeddings.weight.data[tokens, 0] = 10_000
    norms = [network.embeddings.LayerNorm]
    for layer in network.encoder.layer:
        norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
        attention = layer.attention.self
        attention.query.weight.data.zero_()  # every token attends to all of them alike
        for linear in (attention.key, attention.value, layer.intermediate.dense):
            linear.weight.data[:, 0] = 0
    spread = 10_000 / 64 * 63**0.5
    for norm in norms:  # gives back what it takes
        norm.weight.data[:] = spread
        norm.bias.data[:] = 10_000 / 64
    network.encoder.layer[-1].output.LayerNorm.weight.data[0] = 0
    network.encoder.layer[-1].output.LayerNorm.bias.data[0] = 0
    return network


def with_sharp_attention(tokens: Any) -> Any:
    """Attention chooses one token of a text by differences that are tiny beside its scores; not of others."""
    network = quiet_network()
    words = network.embeddings.word_embeddings.weight.data
    own = words[tokens].clone()
    words[:] = words[5]
    words[tokens] = own
    for layer in network.encoder.layer:
        layer.attention.self.query.weight.data *= 300
    return network


def with_one_direction(tokens: Any) -> Any:
    """Vectors of these tokens have a large part in common."""
    network = quiet_network()
    network.embeddings.word_embeddings.weight.data[tokens] += 3000 * torch.randn(64)
    return network


@pytest.mark.parametrize("model", [with_an_outlier_channel, with_sharp_attention, with_one_direction])
def test_a_model_that_int16_loses_on_words_alone_is_refused(
    model: Callable[[Any], Any],
    saved: Callable[[Any], Path],
    opened: Callable[..., Encoder],
    own_models: Path,
) -> None:
    said = r"native does not run .* in int16 .*: a text of \d+ tokens has a cosine of .* limit is .*openvino"
    with pytest.raises(InputError, match=said):
        opened(Store(own_models), name=saved(model(WORDS)), pooling="mean", **INT16)
    assert not list(own_models.glob("comparison/*/manifest.json"))


@pytest.mark.parametrize(
    ("settings", "fix"), [(INT16, "model.backend to openvino"), (BF16, "model.precision to fp32")]
)
def test_a_text_that_is_lost_stops_the_run(
    settings: dict[str, str],
    fix: str,
    saved: Callable[[Any], Path],
    opened: Callable[..., Encoder],
    store: Store,
) -> None:
    """The sample has no such text, so that the model is taken at first.

    On a processor without AVX-512, OpenVINO computes bf16 in fp32, and loses nothing.
    """
    computed = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    is_exact = settings is BF16 and "BF16" not in computed
    encoder = opened(store, name=saved(with_sharp_attention(RARE)), pooling="mean", **settings)
    lost = " ".join(map(str, map(encoder.backend.tokenizer.id_to_token, range(1789, 1794))))
    encoder.encode(["two words"], "passages", Usage(), BAR)
    said = rf"in {settings['precision']}, the vector of a text of 7 tokens has a cosine of .* Set {fix}"
    with nullcontext() if is_exact else pytest.raises(InputError, match=said):
        encoder.encode([lost], "passages", Usage(), BAR)


def test_the_texts_are_real_ones_of_every_length(bge_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(bge_folder / "tokenizer.json"))
    tokens = sample_tokens(tokenizer, 512)
    lengths = [len(ids) for ids in tokens]
    assert (max(lengths), min(lengths)) == (512, 3)
    assert all(longer <= 1.6 * shorter for longer, shorter in itertools.pairwise(lengths))
    assert all((ids[0], ids[-1]) == (101, 102) for ids in tokens)


def test_a_nan_is_a_disagreement() -> None:
    vectors = np.eye(4, 3, dtype=np.float32)
    mask = np.ones((4, 2), np.int64)
    probes = Probes(mask, mask, vectors)

    def forward(batches: Any) -> Any:
        return ((batch.rows, vectors[batch.rows]) for batch in batches)

    assert probes.compare(forward, "fp32") == (1, 1, "")
    vectors = vectors.copy()
    vectors[1] = np.nan
    assert probes.compare(forward, "fp32").problem


def test_one_character_in_a_thousand_is_watched(bge_folder: Path) -> None:
    seen: list[int] = []

    def vector(ids: Any) -> Any:
        seen.append(len(ids))
        return np.ones(2, np.float32)

    def lengths(texts: list[str]) -> list[int]:
        seen.clear()
        watch.check(texts, 20, np.ones((len(texts), 2), np.float32))
        return sorted(seen)

    tokenizer = Tokenizer.from_file(str(bge_folder / "tokenizer.json"))
    watch = Watch("m", vector, "int16", "", tokenizer)
    assert lengths([]) == []
    assert lengths(["a"] * 20) == [3]
    assert lengths(["a"] * 2999) == [3, 3]
    assert lengths(["a"] * 10_000 + ["a b c"]) == [3] * 5 + [5]  # the longest takes half
    assert lengths(["a"] * 5000 + ["a b c"]) == [3] * 5  # it would take more than half

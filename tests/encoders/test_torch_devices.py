"""Devices and memory of torch, on stand-ins of GPUs; precisions, and the masks that networks are given."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from workplaces import BAR

from pipeline import InputError
from pipeline.encoders import LIMITS, Encoder, Usage
from pipeline.storage import Store

Opened = Callable[..., Encoder]
SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "pad_token_id": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_arithmetic() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU that torch finds, and that holds nothing; its attributes may be changed."""
    card = SimpleNamespace(count=1, capability=(9, 0), error=None)

    def start() -> None:
        if card.error:
            raise card.error

    ones = torch.ones
    monkeypatch.setattr("torch.cuda.init", start)
    monkeypatch.setattr("torch.cuda.device_count", lambda: card.count)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA Card")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: card.capability)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (2 * 10**9, 16 * 10**9))
    monkeypatch.setattr("torch.ones", lambda *size, device=None, **more: ones(*size, **more))
    return card


OLD = RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nUpdate it.")
NO_CUDA = AssertionError("Torch not compiled with CUDA enabled")
TURING = r"bf16, which NVIDIA Card does not compute: its compute capability is 7\.5.*precision to fp16"
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no such GPU": ({}, {"device": "cuda:7"}, "cannot use: it sees 1 GPU, of which the last is cuda:0"),
    "an old driver": ({"error": OLD}, {"device": "cuda:0"}, r"cannot use: .* \(found version 11040\)\. "),
    "torch without CUDA": ({"error": NO_CUDA}, {"device": "cuda"}, f"cannot use: {NO_CUDA}"),
    "bf16 before Ampere": ({"capability": (7, 5)}, {"device": "cuda:0", "precision": "bf16"}, TURING),
}


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_device_that_cannot_be_used_is_refused_before_anything_is_loaded(
    case: str, backend: str, gpu: SimpleNamespace, bge_folder: Path, opened: Opened, store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    card, settings, said = REFUSED[case]
    vars(gpu).update(card)
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", None)
    with pytest.raises(InputError, match=said):
        opened(store, name=bge_folder, backend=backend, **settings)


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_a_model_larger_than_the_memory_is_refused_with_both(
    backend: str, gpu: SimpleNamespace, bge_folder: Path, opened: Opened, store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def move(network: Any, *arguments: Any, **settings: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14.00 GiB.")

    monkeypatch.setattr("torch.nn.Module.to", move)
    fits = r"does not fit into the memory of cuda:0, which has 16\.0 GB, 2\.0 GB of them free"
    with pytest.raises(InputError, match=fits):
        opened(store, name=bge_folder, backend=backend, device="cuda:0")


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_a_gpu_of_apple_s_is_refused_where_torch_finds_none(
    backend: str, bge_folder: Path, opened: Opened, store: Store
) -> None:
    said = r"model\.device: mps, which PyTorch .* cannot use: it finds no GPU of Apple's"
    with pytest.raises(InputError, match=said):
        opened(store, name=bge_folder, backend=backend, device="mps")


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_on_a_gpu_of_apple_s_network_and_texts_are_there(
    backend: str, bge_folder: Path, opened: Opened, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in computes on the CPU, and notes what is moved."""
    texts = ["two words", "three of them"]
    here = opened(store, name=bge_folder, backend=backend, device="cpu").encode(
        texts, "passages", Usage(), BAR
    )
    moved = set[str]()

    def moves(what: str, to: Callable[..., Any]) -> Callable[..., Any]:
        def move(part: Any, device: Any = None, *more: Any, **settings: Any) -> Any:
            if str(device) != "mps":
                return to(part, device, *more, **settings)
            moved.add(what)
            return part

        return move

    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.nn.Module.to", moves("network", torch.nn.Module.to))
    monkeypatch.setattr("torch.Tensor.to", moves("texts", torch.Tensor.to))
    encoder = opened(store, name=bge_folder, backend=backend, device="mps")
    assert encoder.backend.device.type == "mps"
    np.testing.assert_array_equal(encoder.encode(texts, "passages", Usage(), BAR), here)
    assert moved == {"network", "texts"}


def test_fp32_is_not_tf32_even_if_the_environment_says_so(
    bge_folder: Path, opened: Opened, store: Store
) -> None:
    torch.set_float32_matmul_precision("high")
    opened(store, name=bge_folder, backend="flag")
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.fixture
def long_decoder(bge_folder: Path, tmp_path: Path) -> Path:
    """A Qwen3 with random weights that reads 2,000 tokens."""
    folder = tmp_path / "decoder"
    shutil.copytree(bge_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        **SHAPE, num_key_value_heads=2, head_dim=16, max_position_embeddings=2048, initializer_range=0.2
    )
    transformers.Qwen3Model(config).save_pretrained(folder)
    content = {"word_embedding_dimension": 64, "pooling_mode_lasttoken": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_frequencies_of_rotary_positions_stay_in_fp32(
    backend: str, long_decoder: Path, opened: Opened, store: Store
) -> None:
    encoder = opened(store, name=long_decoder, backend=backend, precision="bf16", passage_max_length=600)
    assert encoder.backend.device.type == "cpu"
    parts = encoder.backend.network
    assert {parameter.dtype for parameter in parts.parameters()} == {torch.bfloat16}
    frequencies = {buffer.dtype for name, buffer in parts.named_buffers() if name.endswith("inv_freq")}
    assert frequencies == {torch.float32}


def test_vectors_that_bf16_spoils_are_refused_when_a_model_is_loaded(
    long_decoder: Path, opened: Opened, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounded frequencies went unseen, as they spoil long texts alone: one of full length is compared."""
    settings = {"name": long_decoder, "backend": "flag", "precision": "bf16", "passage_max_length": 700}
    opened(store, **settings)
    monkeypatch.setitem(LIMITS, "bf16", 1.0)
    refused = r"cannot be computed in bf16: a text of \d+ tokens has a cosine of 0\.\d+.* to fp32\."
    with pytest.raises(InputError, match=refused):
        opened(store, **settings)


@pytest.mark.parametrize("output", ["sparse", "multivector"])
def test_other_outputs_are_compared_in_bf16_too(
    output: str, m3_folder: Path, opened: Opened, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"name": m3_folder, "backend": "flag", "precision": "bf16", "output": output}
    opened(store, **settings)
    monkeypatch.setitem(LIMITS, "bf16", 1.0)
    with pytest.raises(InputError, match=r"cannot be computed in bf16: a text of \d+ tokens"):
        opened(store, **settings)


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_no_mask_has_a_number_for_each_pair_of_tokens(
    backend: str, bge_folder: Path, opened: Opened, store: Store, passages: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It would be larger than all hidden states of a long text, and keep torch from its fused kernels."""
    shapes: list[tuple[int, ...] | None] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def record(query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **more: Any) -> Any:
        shapes.append(None if attn_mask is None else tuple(attn_mask.shape))
        return attention(query, key, value, attn_mask, *rest, **more)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", record)
    encoder = opened(store, name=bge_folder, backend=backend)
    shapes.clear()
    encoder.encode(passages[:4], "passages", Usage(), BAR)
    assert {shape and shape[1:3] for shape in shapes} == {(1, 1)}
    shapes.clear()
    encoder.encode(["all of one length"] * 4, "passages", Usage(), BAR)
    assert set(shapes) == {None}


def test_a_decoder_that_is_padded_on_the_right_needs_no_mask(
    long_decoder: Path, opened: Opened, store: Store, passages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = opened(store, name=long_decoder, backend="flag")
    masks: list[Any] = []
    network = encoder.backend.network
    network.layers[0].self_attn.register_forward_pre_hook(
        lambda module, arguments, inputs: masks.append(inputs.get("attention_mask")), with_kwargs=True
    )
    together = encoder.encode(passages[:4], "passages", Usage(), BAR)
    assert masks == [None]
    alone = np.concatenate([encoder.encode([text], "passages", Usage(), BAR) for text in passages[:4]])
    np.testing.assert_allclose(together, alone, atol=1e-4)

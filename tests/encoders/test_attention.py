"""Masks that are left out or made smaller, and batches without padding, against plain calls of networks."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from workplaces import BAR

from pipeline.encoders import Encoder, Usage, tokenize
from pipeline.storage import Store

Opened = Callable[..., Encoder]
SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 600, "pad_token_id": 0, "initializer_range": 0.1,
}  # fmt: skip
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
LOCAL = {"local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2}
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": {}, "Roberta": {}, "XLMRoberta": {}, "Camembert": {}, "DistilBert": {"hidden_dim": 96},
    "NomicBert": {}, "ModernBert": {**LOCAL, "bos_token_id": 1, "eos_token_id": 2},
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "Qwen3": GROUPED, "Qwen2": {"num_key_value_heads": 2}, "Llama": GROUPED,
    "Mistral": {**GROUPED, "sliding_window": 8},
}  # fmt: skip
CASES = [
    *((kind, pooling) for kind in ENCODERS for pooling in ("cls", "mean")),
    *((kind, "last_token") for kind in DECODERS),
]
PADDED_ALONE = [("MPNet", "mean"), ("Electra", "cls")]


def loop(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, ends_q: torch.Tensor, ends_k: torch.Tensor,
    longest_q: int, longest_k: int, *, scale: float, window_size: tuple[int, int],
) -> torch.Tensor:  # fmt: skip
    """What `varlen_attn` computes, text by text: [tokens, heads, width]."""
    parts = []
    for text in range(len(ends_q) - 1):
        of_q, of_k = (slice(int(ends[text]), int(ends[text + 1])) for ends in (ends_q, ends_k))
        assert of_q.stop - of_q.start <= longest_q
        assert of_k.stop - of_k.start <= longest_k
        states = [part.transpose(0, 1) for part in (query[of_q], key[of_k], value[of_k])]
        distance = torch.arange(of_k.stop - of_k.start) - torch.arange(of_q.stop - of_q.start)[:, None]
        before, after = (10**6 if side < 0 else side for side in window_size)
        seen = (distance <= after) & (distance >= -before)
        mixed = torch.nn.functional.scaled_dot_product_attention(*states, seen, scale=scale)
        parts.append(mixed.transpose(0, 1))
    return torch.cat(parts)


@pytest.fixture
def folder_of(bge_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """The folder of a network with random weights, with a pooling and a tokenizer that its library takes."""

    def make(kind: str, pooling: str) -> Path:
        folder = tmp_path / kind
        shutil.copytree(bge_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        if kind == "Qwen2":  # transformers takes no class but its own
            (folder / "vocab.txt").unlink()
            texts = [Path(__file__).read_text(encoding="utf-8")]
            transformers.Qwen2Tokenizer().train_new_from_iterator(texts, 400).save_pretrained(folder)
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **{**ENCODERS, **DECODERS}.get(kind, {})})
        network = getattr(transformers, f"{kind}Model")(config)
        network.save_pretrained(folder)
        mode = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
        mode["last_token"] = "pooling_mode_lasttoken"
        content = {"word_embedding_dimension": 64, mode[pooling]: True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(content), encoding="utf-8")
        return folder

    return make


def alone(folder: Path, encoder: Encoder, texts: list[str], pooling: str) -> Any:
    """float32 [texts, width]: each text's vector by transformers itself, without any padding."""
    network = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for tokens in tokenize(encoder.backend.tokenizer, texts, 300)[0]:
        ids = torch.tensor(tokens[None], dtype=torch.int64)
        with torch.inference_mode():
            hidden = network(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        rows.append({"cls": hidden[0], "mean": hidden.mean(0), "last_token": hidden[-1]}[pooling])
    return torch.stack(rows).numpy()


@pytest.mark.parametrize(("kind", "pooling"), CASES + PADDED_ALONE)
def test_vectors_are_those_of_texts_alone_whatever_mask_is_left_out(
    kind: str, pooling: str, folder_of: Callable[..., Path], opened: Opened, store: Store, passages: list[str]
) -> None:
    """With padding, without, and all texts in one row, where the network is one of those that are listed."""
    folder = folder_of(kind, pooling)
    encoder = opened(store, name=folder, backend="flag", pooling=pooling, passage_max_length=300)
    texts = ["a", *passages[:5], "a b c", " ".join(passages[:20])]
    expected = alone(folder, encoder, texts, pooling)

    def close(rows: Any, expected: Any) -> bool:
        return bool(np.abs(rows - expected).max() < 2e-5)

    assert close(encoder.encode(texts, "passages", Usage(), BAR), expected)
    assert close(encoder.encode(texts[:1] * 3, "passages", Usage(), BAR), expected[:1])
    if (kind, pooling) in PADDED_ALONE:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.attention.varlen.varlen_attn", loop)
        encoder.backend.unpad()
        usage = Usage()
        assert close(encoder.encode(texts, "passages", usage, BAR), expected)
        assert close(encoder.encode(texts[:1] * 3, "passages", Usage(), BAR), expected[:1])
    assert usage.padded == usage.tokens

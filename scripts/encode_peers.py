"""Other programs that run an encoder on a CPU, for `bench_encode.py`: each only if it is installed.

ONNX Runtime in fp32 and, by its own dynamic quantization, in int8; fastembed and sentence-transformers' own
backend `onnx`, with the same ONNX file; CTranslate2 in int8; llama.cpp, with files of its own format. Texts
are sorted by length and encoded 32 at a time; fastembed, sentence-transformers and llama.cpp make their
batches themselves.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.installation import is_installed

Encode = Callable[[list[str]], Any]

BATCH = 32  # texts


def installed_peers(folder: Path, pooling: str, longest: int, work: Path) -> dict[str, Encode]:
    """Encoders of the packages that are installed, each giving vectors of length 1.

    Args:
        folder: The model, as on the hub.
        pooling: "cls" or "mean".
        longest: Tokens of a text, of which the others are cut; fastembed takes what the files say.
        work: Where converted models are written.
    """
    peers: dict[str, Encode] = {}
    if can_export():
        path = export(folder, work)
        peers["onnxruntime-fp32"] = _onnx_runtime(_tokenizer(folder, longest), path, pooling)
        peers["onnxruntime-int8"] = _onnx_runtime(_tokenizer(folder, longest), quantize(path), pooling)
        if is_installed("fastembed"):
            peers["fastembed-fp32"] = _fastembed(folder, path, pooling)
        if is_installed("optimum"):  # of its package optimum-onnx, which wants transformers 4
            peers["sentence-transformers-onnx-fp32"] = _sentence_transformers(path, longest)
    if is_installed("ctranslate2"):
        peers["ctranslate2-int8"] = _ctranslate2(folder, _tokenizer(folder, longest), work, pooling)
    return peers


def llama_cpp(path: Path, pooling: str) -> Encode:
    """llama.cpp with a GGUF file, as its `convert_hf_to_gguf.py` writes it."""
    import llama_cpp as package

    kind = package.LLAMA_POOLING_TYPE_CLS if pooling == "cls" else package.LLAMA_POOLING_TYPE_MEAN
    threads = os.cpu_count() or 1
    model = package.Llama(
        str(path), embedding=True, n_ctx=0, n_batch=2048, n_ubatch=2048, n_threads=threads,
        n_threads_batch=threads, pooling_type=kind, verbose=False,
    )  # fmt: skip
    return lambda texts: np.array(model.embed(texts, normalize=True), np.float32)


def can_export() -> bool:
    """Whether `export` and `quantize` have what they need."""
    return all(map(is_installed, ("onnxruntime", "onnx")))


def export(folder: Path, work: Path) -> Path:
    """The network as an ONNX file, in a folder with the model's other files; it is written once."""
    import torch
    from transformers import AutoModel

    class LastLayer(torch.nn.Module):
        """The network with its last hidden states as the only output."""

        def __init__(self) -> None:
            super().__init__()
            self.network = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.network(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    target = work / "onnx"
    if (target / "model.onnx").is_file():
        return target / "model.onnx"
    shutil.copytree(folder, target)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    sample = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names)
    axes = {name: {0: "texts", 1: "tokens"} for name in (*names, "last_hidden_state")}
    torch.onnx.export(
        LastLayer().eval(),
        sample,
        str(target / "model.onnx"),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        dynamo=False,
    )
    return target / "model.onnx"


def quantize(path: Path) -> Path:
    """An ONNX file in int8, beside that in fp32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = path.with_name("model-int8.onnx")
    quantize_dynamic(path, target, weight_type=QuantType.QInt8, per_channel=True)
    return target


def _tokenizer(folder: Path, longest: int) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(longest)
    tokenizer.no_padding()
    return tokenizer


def _batches(tokenizer: Any, texts: list[str]) -> Iterator[tuple[Any, Any, Any]]:
    """Rows of the texts, and token ids and mask, int64 [texts, tokens]: the longest texts first."""
    encoded = [each.ids for each in tokenizer.encode_batch(texts)]
    order = np.argsort([-len(each) for each in encoded], kind="stable")
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        ids = np.zeros((len(rows), len(encoded[rows[0]])), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(encoded[row])] = encoded[row]
        lengths = np.array([len(encoded[row]) for row in rows])
        yield rows, ids, (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)


def _pooled(hidden: Any, mask: Any, pooling: str) -> Any:
    if pooling == "cls":
        vectors = hidden[:, 0]
    else:
        weights = mask[:, :, None].astype(np.float32)
        vectors = (hidden * weights).sum(1) / weights.sum(1)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _encode(tokenizer: Any, pooling: str, hidden_of: Callable[[Any, Any], Any]) -> Encode:
    def encode(texts: list[str]) -> Any:
        out: Any = None
        for rows, ids, mask in _batches(tokenizer, texts):
            vectors = _pooled(hidden_of(ids, mask), mask, pooling)
            if out is None:
                out = np.empty((len(texts), vectors.shape[1]), np.float32)
            out[rows] = vectors
        return out

    return encode


def _onnx_runtime(tokenizer: Any, path: Path, pooling: str) -> Encode:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def hidden_of(ids: Any, mask: Any) -> Any:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(["last_hidden_state"], given)[0]

    return _encode(tokenizer, pooling, hidden_of)


def _ctranslate2(folder: Path, tokenizer: Any, work: Path, pooling: str) -> Encode:
    import ctranslate2

    target = work / "ctranslate2"
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(target), quantization="int8")
    encoder = ctranslate2.Encoder(str(target), device="cpu", intra_threads=os.cpu_count() or 1)

    def hidden_of(ids: Any, mask: Any) -> Any:
        lengths = mask.sum(1).astype(np.int32)
        given = (
            ctranslate2.StorageView.from_array(np.ascontiguousarray(ids, np.int32)),
            ctranslate2.StorageView.from_array(lengths),
        )
        return np.array(encoder.forward_batch(*given).last_hidden_state)

    return _encode(tokenizer, pooling, hidden_of)


def _sentence_transformers(path: Path, longest: int) -> Encode:
    from sentence_transformers import SentenceTransformer

    settings = {"file_name": path.name, "provider": "CPUExecutionProvider"}
    model = SentenceTransformer(str(path.parent), backend="onnx", device="cpu", model_kwargs=settings)
    model.max_seq_length = longest
    return lambda texts: model.encode(texts, batch_size=BATCH, normalize_embeddings=True)


def _fastembed(folder: Path, path: Path, pooling: str) -> Encode:
    import json

    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    width = json.loads((folder / "config.json").read_text(encoding="utf-8"))["hidden_size"]
    TextEmbedding.add_custom_model(
        model="bench/encode",
        pooling=PoolingType.CLS if pooling == "cls" else PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="bench/encode"),
        dim=width,
        model_file=path.name,
    )
    model = TextEmbedding("bench/encode", specific_model_path=str(path.parent), threads=os.cpu_count())
    return lambda texts: np.stack(list(model.embed(texts, batch_size=BATCH)))

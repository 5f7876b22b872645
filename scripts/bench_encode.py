#!/usr/bin/env python
"""Encoding speed, against FlagEmbedding's and sentence-transformers' own encoders.

    .venv/bin/python scripts/bench_encode.py --passages 2000 --rounds 3
    .venv/bin/python scripts/bench_encode.py --model bge-base-shape --passages 400
    .venv/bin/python scripts/bench_encode.py --sparse --passages 1000

ONNX Runtime, CTranslate2 and fastembed are measured too where they are installed (`encode_peers.py`):

    pip install onnxruntime onnx ctranslate2 fastembed

sentence-transformers' own backend `onnx` needs optimum-onnx, of which no version so far installs beside
transformers 5: it is measured where an environment has both.


llama.cpp is measured with --gguf FILE, a file that its convert_hf_to_gguf.py wrote (pip install
llama-cpp-python):

    .venv/bin/python scripts/bench_encode.py --gguf minilm-f32.gguf minilm-q8.gguf

Every encoder encodes the same texts in turn, round after round, in one process; loading and one warming
pass are not counted. The ratio is to FlagModel in the same round, as median and range over the rounds.
`of limit` is the arithmetic of the model's linear layers alone, as a share of the rate that PyTorch's own
matrix product reaches here, in the same number format and on the shape of a layer; PyTorch has none of int16,
so there it is our own. Ours may pass it where a model pools its first token: its last layer is not computed
for the others. With --sparse a SPLADE is encoded, and the ratio is to SparseEncoder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from encode_peers import can_export, export, installed_peers, llama_cpp, quantize
from harness import in_turn, show

from pipeline import data
from pipeline.config import BACKENDS, SOURCES
from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.data.collection_files import CORPUS
from pipeline.encoders import Encoder, Usage, resolve
from pipeline.models import CalibrationCorpus, ResolvedModel, token_counter
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store

SHARED = Path(__file__).resolve().parents[2] / "shared"
SLICE, SPLADE = SHARED / "data" / "msmarco-dl19", SHARED / "models" / "splade-tiny"
SHAPE = "bge-base-shape"
OURS = (
    ("flag", "fp32"),
    ("flag", "bf16"),
    ("openvino", "fp32"),
    ("openvino", "bf16"),
    ("openvino", "int8"),
    ("native", "int16"),
)
Encode = Callable[[list[str]], Any]


def parser_of(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """A parser of what encoding is measured with: the model, passages, and rounds, with their default."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="all-minilm-l6-v2", help=f"alias, folder, or {SHAPE}: BERT-base, random weights"
    )
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--only", nargs="*", help="encoders to run besides FlagModel")
    parser.add_argument("--gguf", nargs="*", type=Path, default=[], help="GGUF files, for llama.cpp")
    parser.add_argument("--sparse", action="store_true", help=f"encode {SPLADE.name}, or --model, a SPLADE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        texts, corpus = passages(store, arguments.passages)
        if arguments.sparse:
            default = parser.get_default("model")
            folder_of = str(SPLADE) if arguments.model == default else arguments.model
            compare_sparse(folder_of, texts, arguments.rounds, store)
            return
        name = named(arguments.model, Path(folder))
        encoders = build(name, store, corpus, arguments.only, arguments.gguf, Path(folder))
        compare(encoders, texts, arguments.rounds, work(name, texts), layer_shape(name))


def passages(store: Store, count: int) -> tuple[list[str], CalibrationCorpus]:
    """The first passages of the MS MARCO slice, or of the sample where that is absent, repeated; and all."""
    config = SOURCES.make(source="beir", path=str(SLICE)) if SLICE.is_dir() else SOURCES.make(source="sample")
    source = data.identify(config).source
    artifact = store.make(Recipe("data", {}), lambda draft: data.load(source, config, draft))
    texts: list[str] = data.open_collection(artifact).passages.texts.slice(0, count).to_pylist()
    repeated = [texts[row % len(texts)] for row in range(count)]
    return repeated, CalibrationCorpus({}, artifact.folder / CORPUS)


def random_model(folder: Path) -> str:
    """A model of BERT-base's shape, pooled as BGE is, its weights random."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig()).eval().save_pretrained(folder)
    bundled = model_folder("all-minilm-l6-v2")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(bundled / name, folder)
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 768, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    chain = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(chain)
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return str(folder)


def named(model: str, folder: Path) -> str:
    """The model that `--model` names; that of BERT-base's shape is written into a folder."""
    return random_model(folder / SHAPE) if model == SHAPE else model


def model_folder(name: str) -> Path:
    return resolved(name).files.folder()


def resolved(name: str) -> ResolvedModel:
    """What is known of a model before it is loaded."""
    model: ResolvedModel = resolve(BACKENDS.make(backend="flag", name=name)).model
    return model


def layer_shape(name: str) -> tuple[int, int, int]:
    """Layers, width, and width of the feed-forward layer."""
    own = json.loads((model_folder(name) / "config.json").read_text(encoding="utf-8"))
    return own["num_hidden_layers"], own["hidden_size"], own["intermediate_size"]


def work(name: str, texts: list[str]) -> tuple[int, float]:
    """Tokens of all texts, and the arithmetic of a model's linear layers on them, in operations."""
    model = resolved(name)
    count = token_counter(model.tokenizer)
    tokens = sum(min(length, model.max_lengths["passages"]) for length in count(texts))
    layers, width, inner = layer_shape(name)
    return tokens, 2.0 * layers * (4 * width * width + 2 * width * inner) * tokens


def build(
    name: str, store: Store, corpus: CalibrationCorpus, only: list[str] | None, gguf: list[Path], work: Path
) -> dict[str, Encode]:
    """Every encoder that is asked for, loaded; llama.cpp with each of the files `gguf`."""
    from FlagEmbedding import FlagModel
    from sentence_transformers import SentenceTransformer

    model = resolved(name)
    folder = str(model.files.folder())
    longest = model.max_lengths["passages"]  # of every encoder, so that all compute the same
    flag = FlagModel(folder, pooling_method=model.pooling, use_fp16=False, devices=["cpu"])
    encoders: dict[str, Encode] = {
        "FlagModel": lambda texts: flag.encode(texts, batch_size=64, max_length=longest)
    }
    if only is None or "sentence-transformers" in only:
        transformer = SentenceTransformer(folder, device="cpu")
        transformer.max_seq_length = longest
        encoders["sentence-transformers"] = lambda texts: transformer.encode(
            texts, batch_size=8, normalize_embeddings=True
        )
    for backend, precision in OURS:
        if only is not None and f"{backend}-{precision}" not in only:
            continue
        if (backend, precision) != ("openvino", "int8") or importlib.util.find_spec("nncf"):
            encoders[f"{backend}-{precision}"] = ours(name, backend, precision, store, corpus)
    if can_export() and (only is None or {"onnx-fp32", "onnx-int8"} & {*only}):
        whole = export(model.files.folder(), work)
        for file, precision in ((whole, "fp32"), (quantize(whole), "int8")):
            opener = resolve(BACKENDS.make(name=str(whole.parent), backend="onnx", file=file.name))
            encoders[f"onnx-{precision}"] = vectors_by(opener.open(store))
    peers = installed_peers(model.files.folder(), model.pooling, longest, work)
    encoders |= {peer: peers[peer] for peer in peers if only is None or peer in only}
    return encoders | {f"llama.cpp {path.stem}": llama_cpp(path, model.pooling) for path in gguf}


def ours(name: str, backend: str, precision: str, store: Store, corpus: CalibrationCorpus) -> Encode:
    opener = resolve(BACKENDS.make(name=name, backend=backend, precision=precision))
    return vectors_by(opener.calibrated_on(corpus).open(store))


def vectors_by(encoder: Encoder) -> Encode:
    def encode(texts: list[str]) -> Any:
        with silent("", None, "") as bar:
            return encoder.encode(texts, "passages", Usage(), bar)

    return encode


def compare(
    encoders: dict[str, Encode],
    texts: list[str],
    rounds: int,
    work: tuple[int, float],
    shape: tuple[int, int, int],
) -> None:
    tokens, operations = work
    tasks = {name: partial(encode, texts) for name, encode in encoders.items()}
    for encode in encoders.values():
        encode(texts[: len(texts) // 8])  # loads and compiles what is loaded late
    before = matrix_rates(*shape)
    timed = in_turn(tasks, rounds, warm=0)
    rates = {name: max(rate, before[name]) for name, rate in matrix_rates(*shape).items()}
    vectors = {name: np.asarray(each.result, np.float32) for name, each in timed.items()}
    unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in vectors.items()}

    def share(name: str) -> str:
        if name.endswith("int8") or name.startswith("llama.cpp"):
            return ""
        limit = rates.get(name.rpartition("-")[2], rates["fp32"])
        return f"{operations / timed[name].median / 1e9 / limit:.0%}"

    said = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    show(
        f"{len(texts)} passages, {tokens:,} tokens, {rounds} rounds; matrix product in GFLOP/s: {said}",
        timed,
        len(texts),
        "passages",
        "FlagModel",
        {
            "tokens/s": lambda name: f"{tokens / timed[name].median:,.0f}",
            "of limit": share,
            "lowest cosine": lambda name: f"{(unit[name] * unit['FlagModel']).sum(1).min():.6f}",
        },
    )


def compare_sparse(folder: str, texts: list[str], rounds: int, store: Store) -> None:
    """Passages a second of a SPLADE, against SparseEncoder at its default batch size, and their agreement."""
    from scipy.sparse import csr_array
    from sentence_transformers import SparseEncoder

    peer = SparseEncoder(folder, device="cpu")
    encoders: dict[str, Encode] = {"SparseEncoder": peer.encode_document}
    for backend, precision in (("sentence-transformers", "fp32"), ("native", "int16")):
        config = BACKENDS.make(name=folder, backend=backend, output="sparse", precision=precision)
        opener = resolve(config)
        peer.max_seq_length = opener.model.max_lengths["passages"]
        encoders[f"{backend}-{precision}"] = partial(words_of, opener.open(store))
    for each in encoders.values():
        each(texts[: len(texts) // 8])
    timed = in_turn({name: partial(encode, texts) for name, encode in encoders.items()}, rounds, warm=0)
    theirs = timed["SparseEncoder"].result.coalesce()
    shape = tuple(theirs.shape)
    weights = {"SparseEncoder": csr_array((theirs.values().numpy(), tuple(theirs.indices().numpy())), shape)}
    for name in [name for name in timed if name != "SparseEncoder"]:
        rows = timed[name].result
        starts = np.concatenate([[0], rows.ends])
        weights[name] = csr_array((rows.columns[1], rows.columns[0], starts), shape)
    expected = weights["SparseEncoder"]
    show(
        f"{len(texts)} passages, {expected.nnz / len(texts):.1f} words each, {rounds} rounds",
        timed,
        len(texts),
        "passages",
        "SparseEncoder",
        {"largest difference": lambda name: f"{abs(weights[name] - expected).max():.1e}"},
    )


def words_of(encoder: Encoder, texts: list[str]) -> Any:
    """The word weights of passages, as `RaggedRows`."""
    with silent("", None, "") as bar:
        return encoder.encode(texts, "passages", Usage(), bar)


def matrix_rates(
    layers: int, width: int, inner: int, rows: int = 2048, seconds: float = 1.0
) -> dict[str, float]:
    """GFLOP/s of PyTorch's own product on the shape of a feed-forward layer."""
    import torch

    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.randn(rows, width).to(dtype), torch.randn(width, inner).to(dtype)
        left @ right
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            left @ right
            count += 1
        rates[name] = 2 * rows * width * inner * count / (time.perf_counter() - started) / 1e9
    return {**rates, "int16": int16_rate(width, inner, seconds)}


def int16_rate(width: int, inner: int, seconds: float) -> float:
    """GFLOP/s of our own product, all threads together."""
    from pipeline.native import layers
    from pipeline.native.forward import project
    from pipeline.native.integers import pack_rows

    rows = layers.MOST_TOKENS
    left, right = (np.random.default_rng(0).random((n, width), np.float32) for n in (rows, inner))
    pairs, factors = pack_rows(right)
    layer = layers.Linear(pairs[None], factors[None], np.zeros((1, inner), np.float32))
    layer = layer.on_tiles() if machine.has_amx() else layer

    def multiply(until: float) -> int:
        count = 0
        while not count or time.perf_counter() < until:
            project(left, layer)
            count += 1
        return count

    multiply(0)  # once, which compiles it
    threads = machine.cores()
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        count = sum(pool.map(multiply, [started + seconds] * threads))
        return 2 * rows * width * inner * count / (time.perf_counter() - started) / 1e9


if __name__ == "__main__":
    main()

#!/usr/bin/env python
"""How fast are passages encoded, against FlagEmbedding's and sentence-transformers' own encoders?

    .venv/bin/python scripts/bench_encode.py --passages 2000 --rounds 3

Every encoder encodes the same texts in turn, round after round, in one process; loading and one warming
pass are not counted. The ratio is to FlagModel in the same round, as median and range over the rounds.
Beside them stands the rate of the machine's own matrix product on the shapes of the model's layers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow as pa

from pipeline import data
from pipeline.artifacts import Recipe, Store
from pipeline.config import DataConfig, ModelConfig
from pipeline.encoders import Usage, open_encoder, resolve
from pipeline.progress import silent
from pipeline.records import Texts

SLICE = Path(__file__).resolve().parents[2] / "shared" / "data" / "msmarco-dl19"
Encode = Callable[[list[str]], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="all-minilm-l6-v2", help="alias or folder")
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="encoders to run besides FlagModel")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        texts = passages(store, arguments.passages)
        encoders = build(arguments.model, store)
        if arguments.only:
            encoders = {name: run for name, run in encoders.items() if name in ("FlagModel", *arguments.only)}
        compare(encoders, texts, arguments.rounds)
        matrix_rate()


def passages(store: Store, count: int) -> list[str]:
    """The first passages of the MS MARCO slice, or of the sample where that is absent, repeated."""
    config = DataConfig(source="beir", path=str(SLICE)) if SLICE.is_dir() else DataConfig(source="sample")
    artifact, _ = store.make(Recipe("data", {}), lambda draft: (data.load(config, draft), {}))
    texts: list[str] = data.open_collection(artifact).passages.texts.slice(0, count).to_pylist()
    return [texts[row % len(texts)] for row in range(count)]


def build(name: str, store: Store) -> dict[str, Encode]:
    """Every encoder, loaded."""
    from FlagEmbedding import FlagModel
    from sentence_transformers import SentenceTransformer

    model = resolve(ModelConfig(name=name))
    folder = str(model.files.folder())
    flag = FlagModel(folder, pooling_method=model.pooling, use_fp16=False, devices=["cpu"])
    transformer = SentenceTransformer(folder, device="cpu")
    transformer.max_seq_length = 512
    encoders: dict[str, Encode] = {
        "FlagModel": lambda texts: flag.encode(texts, batch_size=64),
        "sentence-transformers": lambda texts: transformer.encode(
            texts, batch_size=8, normalize_embeddings=True
        ),
    }
    for backend, precision in (
        ("flag", "fp32"),
        ("flag", "bf16"),
        ("openvino", "fp32"),
        ("openvino", "bf16"),
    ):
        encoders[f"{backend}-{precision}"] = ours(name, backend, precision, store)
    return encoders


def ours(name: str, backend: str, precision: str, store: Store) -> Encode:
    config = ModelConfig.model_validate({"name": name, "backend": backend, "precision": precision})
    encoder = open_encoder(config, resolve(config), store)

    def encode(texts: list[str]) -> Any:
        column = pa.chunked_array([pa.array(texts, pa.string())])
        with silent("", None, "") as bar:
            return encoder.encode(Texts(column, column), range(len(texts)), "passages", Usage(), bar)

    return encode


def compare(encoders: dict[str, Encode], texts: list[str], rounds: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    reference, lowest = None, {}
    for number in range(rounds + 1):
        for name, encode in encoders.items():
            part = texts if number else texts[: len(texts) // 8]  # round 0 warms up
            started = time.perf_counter()
            vectors = np.asarray(encode(part))
            if number:
                seconds[name].append(time.perf_counter() - started)
                reference = vectors if reference is None else reference
                lowest[name] = float((vectors * reference).sum(1).min())
    print(f"{len(texts)} passages, {rounds} rounds")
    print(f"{'encoder':<24}{'passages/s':>11}{'x FlagModel':>13}{'range':>16}{'lowest cosine':>15}")
    for name, times in seconds.items():
        ratios = [base / mine for base, mine in zip(seconds["FlagModel"], times, strict=True)]
        rate, ratio = len(texts) / statistics.median(times), statistics.median(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name:<24}{rate:>11.1f}{ratio:>13.2f}{spread:>16}{lowest[name]:>15.6f}")


def matrix_rate(width: int = 384, rows: int = 2048, seconds: float = 2.0) -> None:
    """PyTorch's own product on the shape of a feed-forward layer."""
    import torch

    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.randn(rows, width).to(dtype), torch.randn(width, 4 * width).to(dtype)
        left @ right
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            left @ right
            count += 1
        rate = 2 * rows * width * 4 * width * count / (time.perf_counter() - started) / 1e9
        print(f"matrix product {str(dtype).removeprefix('torch.')}: {rate:.0f} GFLOP/s")


if __name__ == "__main__":
    main()

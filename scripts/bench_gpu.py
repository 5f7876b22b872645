#!/usr/bin/env python
"""Encoding on one GPU: the backend `flag` beside FlagEmbedding's and sentence-transformers' own encoders.

    .venv/bin/python scripts/bench_gpu.py --json gpu.json
    .venv/bin/python scripts/bench_gpu.py --model FOLDER --passages 8000
    .venv/bin/python scripts/bench_gpu.py --device cpu --passages 50 --shapes minilm --precisions fp32

Networks have the shape of all-MiniLM-L6-v2, all-mpnet-base-v2 and bge-base, with random weights, unless
--model names folders. Every encoder encodes the same texts, which are as long as MS MARCO's passages. They
take turns, round after round; loading and one warming round are not counted, and ratios are to FlagModel in
the same precision and round. `of rate` is the arithmetic of the linear layers for the texts' own tokens, as
a share of what the device reaches in a matrix product of a layer's shape in the same precision. Cosines are
the lowest over some texts, to this project's fp32 on the same device, and to its fp32 on the CPU; behind
each is that of the vectors minus their mean, as the vectors of random networks point in nearly one
direction. `MB` is the most memory that tensors took on the GPU besides the weights.

Needs torch, transformers and pydantic. FlagEmbedding or sentence-transformers are left out with a sentence if
they are missing; without FlagEmbedding, this project's rows are those of its backend `sentence-transformers`.
The JSON is written after every model, so that what was measured is there if time runs out.
"""

from __future__ import annotations

import argparse
import gc
import importlib.machinery
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

try:
    import torch

    from pipeline.config import BACKENDS
    from pipeline.core import installation, machine
    from pipeline.core.display import silent
    from pipeline.data.sources.folders import SAMPLE
    from pipeline.encoders import Usage, resolve
    from pipeline.encoders.torch import attention
except ModuleNotFoundError as error:
    raise SystemExit(f"bench_gpu needs the package {error.name}, which is not installed") from None

SHAPES: dict[str, tuple[str, dict[str, int]]] = {
    "minilm": ("Bert", {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}),
    "mpnet": ("MPNet", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}),
    "bge-base": ("Bert", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}),
}
POOLING = {"minilm": "mean", "mpnet": "mean", "bge-base": "cls"}
VOCABULARY = 30522
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LENGTH = 512  # tokens of the longest text
PROBES = 64  # texts whose vectors are compared
BATCH = 256  # of peers: FlagModel's default; sentence-transformers' own is 32
STARTED = time.monotonic()
Row = dict[str, Any]
Encode = Callable[[list[str]], Any]
Encoders = dict[tuple[str, str], Encode]


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--passages", type=int, default=16384, help="of minilm; half of them for the others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--model", nargs="*", type=Path, default=[], help="folders, in place of the shapes")
    parser.add_argument("--seconds", type=float, default=280, help="no further model is begun after these")
    parser.add_argument("--json", type=Path, help="where the rows are written as JSON")
    return parser.parse_args()


def write_shape(shape: str, folder: Path, texts: Sequence[str]) -> None:
    """Write a network with random weights, its pooling, and a tokenizer of the words of texts."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    kind, sizes = SHAPES[shape]
    special = ["<s>", "<pad>", "</s>", "[UNK]"] if kind == "MPNet" else ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
    counts = Counter(word for text in texts for word in text.lower().split())
    letters = sorted({letter for word in counts for letter in word})
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters)]
    words = [word for word, _ in counts.most_common() if len(word) > 1]
    vocabulary = {piece: number for number, piece in enumerate((pieces + words)[:VOCABULARY])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    begin, pad, end, _ = special
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B {end}", special_tokens=[(begin, 0), (end, 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=begin, sep_token=end, pad_token=pad, unk_token="[UNK]",
        model_max_length=LENGTH, model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCABULARY,
        intermediate_size=4 * sizes["hidden_size"],
        max_position_embeddings=LENGTH + 2,
        pad_token_id=1,
        initializer_range=0.05,
        **sizes,
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    pooling = {
        "word_embedding_dimension": sizes["hidden_size"],
        "pooling_mode_cls_token": POOLING[shape] == "cls",
        "pooling_mode_mean_tokens": POOLING[shape] == "mean",
    }
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    limit = {"max_seq_length": LENGTH, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limit), encoding="utf-8")


def passages(count: int) -> list[str]:
    """Passages of real words, with as many of them as MS MARCO's have: 56 in the middle, a few above 200."""
    lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    words = [word for line in lines for word in json.loads(line)["text"].split()]
    random = np.random.default_rng(0)
    lengths = np.clip(np.exp(random.normal(np.log(56), 0.45, count)), 5, 400).astype(int)
    starts = random.integers(0, len(words) - 400, count)
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


def matrix_rate(config: Any, dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations per second in the product of a layer's feed-forward, the best of five."""
    tokens = 65536 if device.type == "cuda" else 2048
    states = torch.randn(tokens, config.hidden_size, device=device).to(dtype)
    weights = torch.randn(config.hidden_size, config.intermediate_size, device=device).to(dtype)
    best = float("inf")
    for _ in range(6):
        synchronize(device)
        started = time.perf_counter()
        for _ in range(4):
            states @ weights
        synchronize(device)
        best = min(best, (time.perf_counter() - started) / 4)
    return 2.0 * states.numel() * weights.shape[1] / best


def synchronize(device: torch.device) -> None:
    """Wait for what was started on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def operations_per_token(config: Any) -> float:
    """Floating-point operations of the linear layers for a token."""
    width, inner = config.hidden_size, config.intermediate_size
    return float(2 * config.num_hidden_layers * (4 * width * width + 2 * width * inner))


def obstacle_to_flag_embedding() -> str:
    """Why FlagEmbedding cannot be imported; empty if it can."""
    if importlib.util.find_spec("FlagEmbedding") is None:
        return "FlagEmbedding is not installed"
    if importlib.util.find_spec("datasets") is None:  # its training code imports it, which nothing here runs
        stub = types.ModuleType("datasets")
        stub.__spec__ = importlib.machinery.ModuleSpec("datasets", None)
        stub.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
        sys.modules["datasets"] = stub
    try:
        import FlagEmbedding  # noqa: F401
    except ImportError as error:
        return f"FlagEmbedding cannot be imported: {error}"
    return ""


class Ours:
    """This project's backend; with `padded`, batches are computed with padding also where they need none."""

    def __init__(self, folder: Path, backend: str, precision: str, device: str, padded: bool = False) -> None:
        config = BACKENDS.make(
            backend=backend, name=str(folder), precision=precision, device=device,
            passage_max_length=LENGTH, query_max_length=LENGTH,
        )  # fmt: skip
        supported = mock.patch.object(attention, "runs_without_padding", return_value=False)
        with supported if padded else nullcontext():
            self.encoder = resolve(config).load(None)
        self.unpadded = getattr(self.encoder.backend, "unpadded", False)
        self.usage = Usage()

    def __call__(self, texts: list[str]) -> Any:
        """The vectors of texts, float32 [texts, dimension], not normalized."""
        self.usage = Usage()
        with silent("", None, "") as bar:
            return self.encoder.encode(texts, "passages", self.usage, bar)

    def figures(self) -> Row:
        """What tokenizing took, beside the computation, and the padding."""
        cost = self.usage.figures()
        return {name: cost[name] for name in ("tokens", "padding_share", "tokenize_seconds")}


def peers(folder: Path, pooling: str, precision: str, device: str, missing: set[str]) -> dict[str, Encode]:
    """FlagModel and SentenceTransformer, those that are not `missing`."""
    encoders: dict[str, Encode] = {}
    if "FlagEmbedding" not in missing:
        from FlagEmbedding import FlagModel

        flag = FlagModel(
            str(folder), pooling_method=pooling, devices=[device], use_fp16=precision == "fp16",
            use_bf16=precision == "bf16",
        )  # fmt: skip
        encoders["FlagModel"] = lambda texts: flag.encode(texts, batch_size=BATCH, max_length=LENGTH)
    if "sentence-transformers" not in missing:
        from sentence_transformers import SentenceTransformer

        other = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": DTYPES[precision]})
        other.max_seq_length = LENGTH
        encoders["sentence-transformers"] = lambda texts: other.encode(
            texts, batch_size=BATCH, normalize_embeddings=True
        )
    return encoders


def attempt(what: str, do: Callable[[], Any]) -> Any:
    """What `do` returns; None, with a sentence, if it fails: the others are measured all the same."""
    try:
        return do()
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        print(f"left out: {what}: {type(error).__name__}: {reason}", file=sys.stderr)
        return None


def encoders_of(folder: Path, pooling: str, arguments: argparse.Namespace, missing: set[str]) -> Encoders:
    """Every encoder of a model, by its precision and its name."""
    backend = "sentence-transformers" if "FlagEmbedding" in missing else "flag"
    device = arguments.device
    encoders: Encoders = {}
    for precision in arguments.precisions:
        ours = partial(Ours, folder, backend, precision, device)
        padded = attempt(f"{backend} in {precision}, padded", partial(ours, padded=True))
        unpadded = attempt(f"{backend} in {precision}", ours)
        if padded:
            encoders[precision, f"{backend} here, padded"] = padded
        if unpadded and unpadded.unpadded:
            encoders[precision, f"{backend} here, unpadded"] = unpadded
        elif precision != "fp32":
            print(f"{precision}: this network or device is not computed without padding", file=sys.stderr)
        others = attempt(f"peers in {precision}", partial(peers, folder, pooling, precision, device, missing))
        for name, encode in (others or {}).items():
            encoders[precision, name] = encode
    return encoders


def unit(vectors: Any) -> Any:
    """Vectors float64 [n, d], scaled to length 1."""
    vectors = np.asarray(vectors, np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(vectors: Any, expected: Any) -> tuple[float, float]:
    """The lowest cosine, and that of the vectors minus the mean of the expected ones."""
    one, two = unit(vectors), unit(expected)
    apart, expected_apart = unit(one - two.mean(0)), unit(two - two.mean(0))
    return float((one * two).sum(1).min()), float((apart * expected_apart).sum(1).min())


def measure(
    name: str, folder: Path, texts: list[str], arguments: argparse.Namespace, missing: set[str]
) -> list[Row]:
    """A row for each encoder of a model."""
    from transformers import AutoConfig

    device, config = torch.device(arguments.device), AutoConfig.from_pretrained(folder)
    by_device = BACKENDS.make(name=str(folder), backend="flag", device="cpu")
    pooling = resolve(by_device).model.pooling
    probes = [*texts[: PROBES - 1], max(texts, key=len)]
    reference = "sentence-transformers" if "FlagEmbedding" in missing else "flag"
    on_cpu = Ours(folder, reference, "fp32", "cpu")(probes)
    encoders = encoders_of(folder, pooling, arguments, missing)
    rates = {precision: matrix_rate(config, DTYPES[precision], device) for precision in arguments.precisions}
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in encoders}
    memory, details = dict.fromkeys(encoders, 0.0), dict[tuple[str, str], Row]()
    for number in range(arguments.rounds + 1):
        for key, encode in list(encoders.items()):
            gc.collect()
            before = reset_memory(device)
            started = time.perf_counter()
            if attempt(" ".join(key), partial(encode, texts)) is None:
                del encoders[key]
                continue
            synchronize(device)
            if number:
                seconds[key].append(time.perf_counter() - started)
            memory[key] = max(memory[key], peak_memory(device) - before)
            if isinstance(encode, Ours):
                details[key] = encode.figures()
        print(f"{name}: round {number} of {arguments.rounds}", file=sys.stderr)
        if number and time.monotonic() - STARTED > arguments.seconds:
            break
    rows = []
    ours = {key: encode for key, encode in encoders.items() if isinstance(encode, Ours)}
    tokens = details[next(iter(ours))]["tokens"]
    vectors = {key: encode(probes) for key, encode in encoders.items()}
    in_fp32 = next((vectors[key] for key in ours if key[0] == "fp32"), on_cpu)
    for key in encoders:
        precision, encoder = key
        taken = statistics.median(seconds[key])
        base = seconds[precision, "FlagModel"] if (precision, "FlagModel") in encoders else None
        ratios = [there / here for there, here in zip(base, seconds[key], strict=True)] if base else []
        row: Row = {
            "model": name, "precision": precision, "encoder": encoder, "passages": len(texts),
            "seconds": seconds[key], "passages_per_second": len(texts) / taken,
            "tokens_per_second": tokens / taken,
            "matrix_tflops": rates[precision] / 1e12,
            "of_rate": tokens * operations_per_token(config) / taken / rates[precision],
            "x_flagmodel": [statistics.median(ratios), min(ratios), max(ratios)] if ratios else None,
            "cosine_to_fp32": cosines(vectors[key], in_fp32),
            "cosine_to_cpu": cosines(vectors[key], on_cpu),
            "peak_mb_above_weights": memory[key] / 1e6,
        }  # fmt: skip
        rows.append({**row, **details.get(key, {})})
    return rows


def reset_memory(device: torch.device) -> float:
    """Bytes that tensors hold on a GPU; the record of the most is begun anew."""
    if device.type != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return float(torch.cuda.memory_allocated(device))


def peak_memory(device: torch.device) -> float:
    """The most bytes that tensors held on a GPU since then."""
    return float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else 0.0


def show(rows: list[Row]) -> None:
    """Print a table."""
    heads = (
        "encoder",
        "",
        "passages/s",
        "tokens/s",
        "of rate",
        "x FlagModel",
        "range",
        "cosine to fp32",
        "to CPU",
        "MB",
    )
    print(f"\n{rows[0]['model']}, {rows[0]['passages']:,} passages, {len(rows[0]['seconds'])} rounds")
    widths = (32, 5, 11, 12, 8, 12, 14, 20, 20, 7)
    print(
        "".join(
            f"{head:>{width}}" if n else f"{head:<{width}}"
            for n, (head, width) in enumerate(zip(heads, widths, strict=True))
        )
    )
    for row in rows:
        median, low, high = row["x_flagmodel"] or (float("nan"),) * 3
        cells = [
            row["encoder"], row["precision"], f"{row['passages_per_second']:,.0f}",
            f"{row['tokens_per_second']:,.0f}", f"{row['of_rate']:.1%}", f"{median:.2f}",
            f"{low:.2f} to {high:.2f}",
            *(" ".join(f"{cosine:.6f}" for cosine in row[to]) for to in ("cosine_to_fp32", "cosine_to_cpu")),
            f"{row['peak_mb_above_weights']:,.0f}",
        ]  # fmt: skip
        print(
            "".join(
                f"{cell:>{width}}" if n else f"{cell:<{width}}"
                for n, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
        )


def versions() -> Row:
    """The machine, the card, and versions."""
    facts: Row = {"hardware": machine.hardware(), "versions": installation.versions()}
    facts["torch"] = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        facts["card"] = {"name": properties.name, "memory_gb": properties.total_memory / 1e9}
    return facts


def main() -> None:
    """Measure every model that is asked for, and print and write what was found."""
    arguments = parsed()
    missing = set()
    if reason := obstacle_to_flag_embedding():
        print(f"left out: {reason}", file=sys.stderr)
        missing.add("FlagEmbedding")
    if importlib.util.find_spec("sentence_transformers") is None:
        print("left out: sentence-transformers is not installed", file=sys.stderr)
        missing.add("sentence-transformers")
    if len(missing) == 2:
        raise SystemExit("bench_gpu needs FlagEmbedding or sentence-transformers, which load networks")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in [str(folder) for folder in arguments.model] or arguments.shapes:
            if rows and time.monotonic() - STARTED > arguments.seconds:
                print(f"{name}: not begun, as {arguments.seconds:.0f} s are over", file=sys.stderr)
                continue
            texts = passages(arguments.passages // (1 if name == "minilm" else 2))
            folder = Path(name) if arguments.model else Path(scratch) / name
            if not arguments.model:
                write_shape(name, folder, texts)
            found = attempt(name, partial(measure, name, folder, texts, arguments, missing))
            if not found:
                continue
            rows += found
            show(found)
            if arguments.json:
                arguments.json.write_text(
                    json.dumps({**versions(), "rows": rows}, indent=1), encoding="utf-8"
                )
            gc.collect()
            if arguments.device != "cpu":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

"""Keys: what each field of the config, and each fact outside it, makes again, and that nothing else changes.

`CHANGES` has an entry for every field of every kind. A field that is added without one fails
`test_every_field_has_a_change`, so nobody can add a setting without saying what it invalidates.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from huggingface_hub import constants
from pydantic import BaseModel

from pipeline.config import BACKENDS, STAGES, Config
from pipeline.config.files import load_config
from pipeline.config.kinds import kinds_of
from pipeline.config.model import RUN_HERE
from pipeline.config.settings import OUTPUTS, outputs_of
from pipeline.config.suites import ManySettings
from pipeline.core import machine
from pipeline.encoders import choice
from pipeline.retrievers import bm25, dense, fused, multivector, reranked, sparse, texts
from pipeline.run import plan
from pipeline.run.benchmark import Benchmark, several
from pipeline.storage.store import Store

ALL = set(STAGES)
QUERIES_ON = {"data", "queries", "search", "evaluate"}
PASSAGES_ON = {"data", "chunks", "passages", "index", "search", "evaluate"}
VECTORS_ON = ALL - {"data", "chunks"}
CHUNKS_ON = VECTORS_ON - {"queries"} | {"chunks"}
NEEDS: dict[str, set[str]] = {
    "data": set(),
    "chunks": {"data"},
    "passages": {"data", "chunks"},
    "queries": {"data"},
    "index": {"passages"},
    "search": {"data", "chunks", "index", "queries"},
    "fuse": {"data", "search"},
    "rerank": {"data", "search", "fuse"},
    "evaluate": {"data", "search", "fuse", "rerank"},
}
FIRST, SECOND = "1" * 40, "2" * 40  # commits

CONFIGS = {
    "files": """
        name: t
        data: {source: beir, path: data}
        model: {backend: openvino, name: ./bge-small-en-v1.5}
    """,
    "cut": """
        name: t
        data: {source: beir, path: data, chunks: {tokens: 64}}
        model: {backend: openvino, name: ./bge-small-en-v1.5}
    """,
    "cut by words": """
        name: t
        data: {source: beir, path: data, chunks: {tokens: 64}}
        model: {backend: bm25}
    """,
    "packed": """
        name: t
        data: {source: beir, path: data}
        model: {backend: native, precision: int16, name: ./bge-small-en-v1.5}
    """,
    "the fastest": """
        name: t
        data: {source: beir, path: data}
        model: {backend: auto, name: ./bge-small-en-v1.5}
    """,
    "packed for token vectors": """
        name: t
        data: {source: beir, path: data}
        model: {backend: native, output: multivector, name: ./bge-m3}
    """,
    "the fastest for words": """
        name: t
        data: {source: beir, path: data}
        model: {backend: auto, output: sparse, name: ./bge-m3}
    """,
    "the fastest for token vectors": """
        name: t
        data: {source: beir, path: data}
        model: {backend: auto, output: multivector, name: ./bge-m3}
    """,
    "tables": """
        name: t
        data: {source: hub, path: rows, split: dev}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "subsets": """
        name: t
        data: {source: beir, path: subsets, subset: sw}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "bright": """
        name: t
        data: {source: bright, path: bright, domain: pony}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "air-bench": """
        name: t
        data: {source: air-bench, path: qa_wiki_en, split: dev}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "belebele": """
        name: t
        data: {source: belebele, path: belebele, language: sw}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "mldr": """
        name: t
        data: {source: mldr, path: mldr, language: sw}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "two tables": """
        name: t
        data: {source: hub, path: rows, split: dev, corpus_path: texts}
        model: {backend: flag, name: ./bge-small-en-v1.5}
    """,
    "hub": """
        name: t
        data: {source: hub, path: owner/rows, split: dev, corpus_path: owner/texts}
        model: {backend: flag, name: owner/tiny}
    """,
    "precomputed": """
        name: t
        data: {source: beir, path: data}
        model: {backend: precomputed, passages: passages.npy, queries: queries.npy}
    """,
    "served": """
        name: t
        data: {source: beir, path: data}
        model: {backend: http, name: some-model, url: http://localhost:1/v1}
    """,
    "chain": """
        name: t
        data: {source: beir, path: data}
        model: {backend: sentence-transformers, name: ./bge-small-en-v1.5}
    """,
    "sparse": """
        name: t
        data: {source: beir, path: data}
        model: {backend: precomputed, output: sparse, passages: passages.npy, queries: queries.npy}
    """,
    "m3 words": """
        name: t
        data: {source: beir, path: data}
        model: {backend: flag, output: sparse, name: ./bge-m3}
    """,
    "splade": """
        name: t
        data: {source: beir, path: data}
        model: {backend: sentence-transformers, output: sparse, name: ./masked}
    """,
    "packed words": """
        name: t
        data: {source: beir, path: data}
        model: {backend: native, output: sparse, precision: int16, name: ./masked}
    """,
    "m3": """
        name: t
        data: {source: beir, path: data}
        model: {backend: flag, output: multivector, name: ./bge-m3}
    """,
    "late interaction": """
        name: t
        data: {source: beir, path: data}
        model: {backend: sentence-transformers, output: multivector, name: ./colbert}
    """,
    "token vectors": """
        name: t
        data: {source: beir, path: data}
        model: {backend: precomputed, output: multivector, passages: passages.npy, queries: queries.npy}
    """,
    "bm25": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
    """,
    "reranked": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
        rerank: {backend: sentence-transformers, name: ./reranker}
    """,
    "scored by a decoder": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
        rerank: {backend: flag, name: ./lightweight}
    """,
    "scored by a server": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
        rerank: {backend: http, name: some-model, url: http://localhost:1}
    """,
    "scored by openvino": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
        rerank: {backend: openvino, name: ./reranker}
    """,
    "scored by the fastest": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
        rerank: {backend: auto, name: ./reranker}
    """,
    "fused": """
        name: t
        data: {source: beir, path: data}
        fuse: {of: [{model: {backend: bm25}}, {model: {backend: openvino, name: ./bge-small-en-v1.5}}]}
        rerank: {backend: sentence-transformers, name: ./bge-small-en-v1.5}
    """,
    "reranked on the hub": """
        name: t
        data: {source: beir, path: data}
        model: {backend: bm25}
        rerank: {backend: sentence-transformers, name: owner/tiny}
    """,
}


@dataclass(frozen=True)
class Change:
    """One field given another value.

    Attributes:
        to: `key=value`, as `--set` takes it, applied on top of `base`.
        base: A config of `CONFIGS`, and settings applied before.
        makes_again: The stages whose keys must change; None is what the field claims, and what is made
            of that. Spelled out for the data section, where a part of a collection may stay.
    """

    to: str
    base: tuple[str, ...] = ("files",)
    makes_again: set[str] | None = None


CHANGES: dict[str, list[Change]] = {
    "name": [Change("name=other")],
    "data.source": [Change("data.source=flag", makes_again=ALL)],
    "data.path": [
        Change("data.path=other", makes_again=PASSAGES_ON),
        Change("data.path=copy", makes_again=set()),
    ],
    "data.revision": [Change("data.revision=v1", ("hub",), QUERIES_ON)],
    "data.split": [
        Change("data.split=dev", makes_again=QUERIES_ON),
        Change("data.split=train", ("tables",), ALL),
    ],
    "data.queries": [Change("data.queries=3", makes_again=QUERIES_ON)],
    "data.corpus": [
        Change("data.corpus=300", makes_again=PASSAGES_ON),
        Change("data.corpus={positives_of: 2}", ("tables",), ALL),
    ],
    "data.corpus.positives_of": [
        Change("data.corpus.positives_of=3", ("tables", "data.corpus={positives_of: 2}"), ALL)
    ],
    "data.missing_passages": [Change("data.missing_passages=drop", makes_again={"data", "evaluate"})],
    "data.ignored": [Change("data.ignored=identical_ids"), Change("data.ignored=none", ("bright",))],
    "data.subset": [Change("data.subset=en", ("subsets",), PASSAGES_ON | QUERIES_ON)],
    "data.domain": [Change("data.domain=biology", ("bright",), PASSAGES_ON | QUERIES_ON)],
    "data.documents": [Change("data.documents=long", ("bright",), PASSAGES_ON | QUERIES_ON)],
    "data.dataset": [Change("data.dataset=other", ("air-bench",), PASSAGES_ON | QUERIES_ON)],
    "data.corpus_language": [Change("data.corpus_language=en", ("belebele",), PASSAGES_ON | QUERIES_ON)],
    "data.language": [Change("data.language=en", ("mldr",), PASSAGES_ON | QUERIES_ON)],
    "data.chunks.tokens": [
        Change("data.chunks.tokens=65", ("cut",)),
        Change("data.chunks.tokens=65", ("cut by words",)),
    ],
    "data.chunks.overlap": [Change("data.chunks.overlap=31", ("cut",))],
    "data.chunks.boundary": [Change("data.chunks.boundary=token", ("cut",))],
    "data.query_column": [Change("data.query_column=question", ("tables",), QUERIES_ON)],
    "data.positives_column": [
        Change("data.positives_column=also", ("tables",), ALL),
        Change("data.positives_column=also", ("two tables",), QUERIES_ON),
    ],
    "data.corpus_path": [
        Change("data.corpus_path=texts", ("tables",), ALL),
        Change("data.corpus_path=texts_copy", ("two tables",), set()),
    ],
    "data.corpus_revision": [Change("data.corpus_revision=v1", ("hub",), PASSAGES_ON)],
    "data.corpus_split": [Change("data.corpus_split=test", ("two tables",), PASSAGES_ON)],
    "data.corpus_column": [Change("data.corpus_column=body", ("two tables",), PASSAGES_ON)],
    "model.backend": [Change("model.backend=flag")],
    "model.name": [
        Change("model.name=./other-model"),
        Change("model.name=owner/tiny"),
        Change("model.name=other", ("served",)),
    ],
    "model.revision": [Change("model.revision=v1", ("hub",)), Change("model.revision=b", ("served",))],
    "model.output": [Change("model.output=sparse", ("precomputed",))],
    "model.token_precision": [Change("model.token_precision=fp16", ("token vectors",))],
    "model.score": [
        Change("model.score=mean", ("token vectors",)),
        Change("model.score=sum", ("m3",)),
        Change("model.score=mean", ("m3",), set()),
    ],
    "model.pooling": [Change("model.pooling=mean"), Change("model.pooling=cls", makes_again=set())],
    "model.normalize": [Change("model.normalize=false")],
    "model.precision": [Change("model.precision=bf16")],
    "model.query_instruction": [
        Change("model.query_instruction='find: '"),
        Change("model.query_instruction='find: '", ("served",)),
        Change("model.query_instruction=''", ("served",), set()),
    ],
    "model.passage_instruction": [Change("model.passage_instruction='text: '")],
    "model.query_max_length": [Change("model.query_max_length=7")],
    "model.passage_max_length": [Change("model.passage_max_length=7")],
    "model.truncate_dim": [Change("model.truncate_dim=32")],
    "model.batch_size": [Change("model.batch_size=3")],
    "model.device": [Change("model.device=cpu")],
    "model.vector_precision": [
        Change("model.vector_precision=fp16"),
        Change("model.vector_precision=int8"),
        Change("model.vector_precision=binary"),
    ],
    "model.shard_rows": [Change("model.shard_rows=7")],
    "model.trust_remote_code": [Change("model.trust_remote_code=true")],
    "model.passages": [Change("model.passages=other.npy", ("precomputed",))],
    "model.queries": [Change("model.queries=other.npy", ("precomputed",))],
    "model.passage_ids": [Change("model.passage_ids=ids.txt", ("precomputed",))],
    "model.query_ids": [Change("model.query_ids=ids.txt", ("precomputed",))],
    "model.url": [
        Change("model.url=http://localhost:2/v1", ("served",)),
        Change("model.url=http://LOCALHOST:1/v1/", ("served",), set()),
    ],
    "model.dimensions": [Change("model.dimensions=64", ("served",))],
    "model.same_as": [Change("model.same_as={name: ./bge-small-en-v1.5}", ("served",))],
    "model.max_characters": [Change("model.max_characters=100", ("served",))],
    "model.api_key_env": [Change("model.api_key_env=SOME_KEY", ("served",))],
    "model.concurrency": [Change("model.concurrency=2", ("served",))],
    "model.timeout": [Change("model.timeout=5", ("served",))],
    "model.batch_tokens": [Change("model.batch_tokens=100", ("served",))],
    "model.requests_per_minute": [Change("model.requests_per_minute=100", ("served",))],
    "model.tokens_per_minute": [Change("model.tokens_per_minute=1e6", ("served",))],
    "model.price_per_million_tokens": [Change("model.price_per_million_tokens=0.02", ("served",))],
    "model.changed": [Change("model.changed=warn", ("served",))],
    "model.k1": [Change("model.k1=1.2", ("bm25",))],
    "model.b": [Change("model.b=0.75", ("bm25",))],
    "model.stop_words": [Change("model.stop_words=null", ("bm25",))],
    "model.stemmer": [Change("model.stemmer=porter", ("bm25",))],
    "index.factory": [Change("index.factory=SQfp16")],
    "index.metric": [Change("index.metric=l2")],
    "index.train_rows": [Change("index.train_rows=100")],
    "index.shards": [Change("index.shards=3")],
    "index.seed": [Change("index.seed=1")],
    "search.top_k": [Change("search.top_k=1001"), Change("search.top_k=1001", ("fused",))],
    "search.batch_size": [Change("search.batch_size=5")],
    "search.memory_mb": [Change("search.memory_mb=64")],
    "search.rescore": [
        Change("search.rescore=4", ("files", "model.vector_precision=binary")),
    ],
    "search.aggregate": [Change("search.aggregate=first", ("cut",))],
    "search.parameters": [
        Change("search.parameters={efSearch: 9}", ("files", "index.factory=HNSW8")),
    ],
    "search.against_exact": [
        Change("search.against_exact=false", ("files", "index.factory=HNSW8")),
        Change("search.against_exact=false", makes_again=set()),
    ],
    "search.device": [Change("search.device=cpu")],
    "fuse.method": [Change("fuse.method=combsum", ("fused",))],
    "fuse.of": [
        Change(
            "fuse.of=[{model: {backend: openvino, name: ./bge-small-en-v1.5}}, {model: {backend: bm25}}]",
            ("fused",),
        )
    ],
    "fuse.k": [Change("fuse.k=20", ("fused",))],
    "fuse.normalize": [Change("fuse.normalize=rank", ("fused", "fuse.method=combmnz"))],
    "fuse.weights": [Change("fuse.weights=[0.3, 0.7]", ("fused",))],
    "fuse.tune": [
        Change("fuse.tune=ndcg@10", ("fused", "fuse.method=weighted", "fuse.tune=mrr@10")),
        Change("fuse.tune=nDCG@10", ("fused", "fuse.tune=ndcg@10"), set()),
    ],
    "fuse.folds": [Change("fuse.folds=3", ("fused",))],
    "rerank.backend": [Change("rerank.backend=flag", ("reranked",))],
    "rerank.name": [Change("rerank.name=./other-model", ("reranked",))],
    "rerank.revision": [
        Change("rerank.revision=v1", ("reranked on the hub",)),
        Change("rerank.revision=b", ("scored by a server",)),
    ],
    "rerank.precision": [Change("rerank.precision=bf16", ("fused",))],
    "rerank.depth": [Change("rerank.depth=50", ("reranked",))],
    "rerank.max_length": [Change("rerank.max_length=256", ("reranked",))],
    "rerank.batch_size": [Change("rerank.batch_size=3", ("reranked",))],
    "rerank.device": [Change("rerank.device=cpu", ("reranked",))],
    "rerank.query_max_length": [
        Change("rerank.query_max_length=64", ("scored by a decoder",)),
        Change("rerank.query_max_length=384", ("scored by a decoder",), set()),
    ],
    "rerank.query_instruction": [Change("rerank.query_instruction='Q: '", ("scored by a decoder",))],
    "rerank.passage_instruction": [Change("rerank.passage_instruction='P: '", ("scored by the fastest",))],
    "rerank.prompt": [Change("rerank.prompt='Yes or No?'", ("scored by a decoder",))],
    "rerank.cutoff_layers": [Change("rerank.cutoff_layers=[2]", ("scored by a decoder",))],
    "rerank.compress_layers": [Change("rerank.compress_layers=[1]", ("scored by a decoder",))],
    "rerank.compress_ratio": [Change("rerank.compress_ratio=2", ("scored by a decoder",))],
    "rerank.url": [
        Change("rerank.url=http://localhost:2", ("scored by a server",)),
        Change("rerank.url=http://localhost:1/", ("scored by a server",), set()),
    ],
    "rerank.form": [Change("rerank.form=tei", ("scored by a server",))],
    "rerank.max_characters": [Change("rerank.max_characters=100", ("scored by a server",))],
    "rerank.api_key_env": [Change("rerank.api_key_env=SOME_KEY", ("scored by a server",))],
    "rerank.concurrency": [Change("rerank.concurrency=2", ("scored by a server",))],
    "rerank.timeout": [Change("rerank.timeout=5", ("scored by a server",))],
    "rerank.batch_tokens": [Change("rerank.batch_tokens=100", ("scored by a server",))],
    "rerank.requests_per_minute": [Change("rerank.requests_per_minute=100", ("scored by a server",))],
    "rerank.tokens_per_minute": [Change("rerank.tokens_per_minute=1e6", ("scored by a server",))],
    "rerank.price_per_million_tokens": [
        Change("rerank.price_per_million_tokens=0.02", ("scored by a server",))
    ],
    "rerank.changed": [Change("rerank.changed=warn", ("scored by a server",))],
    "rerank.trust_remote_code": [Change("rerank.trust_remote_code=true", ("reranked",))],
    "engine.kind": [Change("engine.kind=ray")],
    "engine.address": [Change("engine.address=auto", ("files", "engine.kind=ray"))],
    "engine.workers": [Change("engine.workers=2", ("files", "engine.kind=ray"))],
    "evaluate.measures": [
        Change("evaluate.measures=[ndcg@5]"),
        Change(
            "evaluate.measures=[nDCG@10, RR@10, R@100, AP@1000, P@10]", makes_again=set()
        ),  # other names of the same
    ],
    "evaluate.ignore_identical_ids": [Change("evaluate.ignore_identical_ids=true")],
    "cache": [Change("cache=elsewhere")],
    "output": [Change("output=elsewhere")],
}


def write_suite_layouts(folder: Path) -> None:
    """The files of layouts that hold several collections; no content but their names, as none is parsed."""
    parts = ("corpus", "queries", "qrels")
    names = [f"subsets/{subset}-{part}/test-0.parquet" for subset in ("sw", "en") for part in parts]
    tables = ("documents", "long_documents", "examples")
    names += [f"bright/{table}/{domain}-0.parquet" for table in tables for domain in ("pony", "biology")]
    for dataset in ("default", "other"):
        texts, judged = "qa_wiki_en/AIR-Bench_24.05", "qrels-qa_wiki_en-dev/AIR-Bench_24.05"
        names += [f"{texts}/corpus_{dataset}-0.parquet", f"{texts}/queries_{dataset}_dev-0.parquet"]
        names += [f"{judged}/qrels_{dataset}_dev-0.parquet"]
    names += [
        f"mldr/mldr-v1.0-{name}/{part}.jsonl.gz" for name in ("sw", "en") for part in ("corpus", "test")
    ]
    names += [f"belebele/{language}/test-0.parquet" for language in ("sw", "en")]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, root: Path, bge_folder: Path, m3_folder: Path) -> Path:
    """Everything the configs name; never changed."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("data", "copy", "other"):
        shutil.copytree(root / "pipeline" / "data" / "sample", folder / name)
        append(folder / name / "corpus.jsonl", b'{"_id": "x1", "text": "more than the sample has"}\n')
        shutil.copy(folder / name / "qrels" / "test.tsv", folder / name / "qrels" / "dev.tsv")
        append(folder / name / "qrels" / "dev.tsv", b"\n")
        for kind in ("queries", "qrels"):  # the same folder in FlagEmbedding's layout
            shutil.copy(folder / name / "queries.jsonl", folder / name / f"test_{kind}.jsonl")
    append(folder / "other" / "corpus.jsonl", b'{"_id": "x2", "text": "more"}\n')
    shutil.copytree(bge_folder, folder / "bge-small-en-v1.5")
    shutil.copytree(bge_folder, folder / "other-model")
    shutil.copytree(bge_folder, folder / "masked")
    declared = (folder / "masked" / "config.json").read_text(encoding="utf-8")
    (folder / "masked" / "config.json").write_text(declared.replace("BertModel", "BertForMaskedLM"))
    for name, kind in (
        ("reranker", "BertForSequenceClassification"),
        ("lightweight", "CostWiseGemmaForCausalLM"),
    ):
        shutil.copytree(bge_folder, folder / name)
        described = json.loads((folder / name / "config.json").read_text(encoding="utf-8"))
        described |= {"architectures": [kind], "id2label": {"0": "LABEL_0"}, "start_layer": 1}
        (folder / name / "config.json").write_text(json.dumps(described), encoding="utf-8")
    flip(folder / "other-model" / "model.safetensors")
    shutil.copytree(m3_folder, folder / "bge-m3")
    shutil.copytree(bge_folder, folder / "colbert")
    declared = folder / "colbert" / "config_sentence_transformers.json"
    declared.write_text('{"model_type": "MultiVectorEncoder"}', encoding="utf-8")
    tables = {
        "rows": {"query": ["a", "b", "c"], "question": ["d", "e", "f"], "positive": [["x"], ["y"], ["z"]]},
        "texts": {"content": ["x", "y", "z"], "body": ["u", "v", "w"]},
    }
    tables["rows"]["also"] = tables["rows"]["positive"][::-1]
    for name, columns in tables.items():
        for split in ("train", "dev", "test"):
            (folder / name / "data").mkdir(parents=True, exist_ok=True)
            table = pa.table({**columns, "split": [split] * 3})
            pa.parquet.write_table(table, folder / name / "data" / f"{split}-00000-of-00001.parquet")
    shutil.copytree(folder / "texts", folder / "texts_copy")
    write_suite_layouts(folder)
    for name, seed in (("passages", 1), ("queries", 2), ("other", 3)):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).random((4, 2), np.float32))
    (folder / "ids.txt").write_text("a\nb\nc\nd\n", encoding="utf-8")
    for kind, name in (("dataset", "rows"), ("dataset", "texts"), ("model", "tiny")):
        on_hub(folder / "hub", kind, name, folder / (name if kind == "dataset" else "bge-small-en-v1.5"))
    for name, text in CONFIGS.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def unchanged(original: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything as it is, and no hub but the one in its cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(original / "hub"))
    return original


@pytest.fixture
def workplace(unchanged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to change."""
    folder = Path(shutil.copytree(unchanged, tmp_path / "w", symlinks=True))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    return folder


def on_hub(cache: Path, kind: str, name: str, content: Path) -> None:
    """A repository in the hub client's own cache: one content under two commits, `main` and `v1`."""
    folder = cache / f"{kind}s--owner--{name}"
    (folder / "refs").mkdir(parents=True)
    for revision, commit in (("main", FIRST), ("v1", SECOND)):
        (folder / "refs" / revision).write_text(commit, encoding="utf-8")
        shutil.copytree(content, folder / "snapshots" / commit)


def append(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


def flip(path: Path) -> None:
    """Change one bit of the last byte but one."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def swap(path: Path, first: int = 1) -> None:
    """Exchange two lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[first], lines[first + 1] = lines[first + 1], lines[first]
    path.write_bytes(b"".join(lines))


def keys(folder: Path, base: str, *settings: str) -> dict[str, str]:
    config = load_config(folder / f"{base}.yaml", settings)
    recipes = Benchmark(config, Store(folder / "indexes")).recipes
    found: dict[str, list[str]] = {}
    for role, recipe in recipes.items():  # the same stage of several parts counts as one
        found.setdefault(role.rpartition("/")[2], []).append(recipe.key)
    return {stage: " ".join(sorted(keys)) for stage, keys in found.items()}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {stage for stage in before if before[stage] != after[stage]}


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a model that holds a value, sections opened: all kinds, and those that are an option."""
    for name, field in model.model_fields.items():
        if kinds_of(field) is RUN_HERE:  # the settings are those of `model`
            yield prefix + name, field
            continue
        if kinds := kinds_of(field):
            for kind in kinds:
                if issubclass(kinds[kind], ManySettings):
                    continue  # each of the collections is a benchmark, whose settings are those below
                yield from walk(kinds[kind], f"{prefix}{name}.")
            continue
        is_union = isinstance(field.annotation, types.UnionType)
        options = get_args(field.annotation) if is_union else (field.annotation,)
        sections = [each for each in options if isinstance(each, type) and issubclass(each, BaseModel)]
        if set(options) - {*sections, type(None)}:
            yield prefix + name, field
        for section in sections:
            yield from walk(section, f"{prefix}{name}.")


FIELDS = dict(walk(Config))


def after(stages: set[str]) -> set[str]:
    """The stages and all that is made of them; a collection's texts are part of the data."""
    again = set(stages)
    for stage in STAGES:
        if again & NEEDS[stage]:
            again.add(stage)
    return again


def test_every_field_has_a_change() -> None:
    assert set(FIELDS) == set(CHANGES), "give the new field an entry in CHANGES"
    without = [name for name, listed in CHANGES.items() if not listed]
    assert [name for name in without if len(get_args(FIELDS[name].annotation)) != 1] == []


def test_kinds_agree_on_what_a_setting_shapes() -> None:
    marks: dict[str, set[str]] = {}
    for name, field in walk(Config):
        marks.setdefault(name, set()).add(str(field.json_schema_extra))
    assert [name for name, found in marks.items() if len(found) > 1] == []


MODELS = {
    (backend, output): base
    for base, text in CONFIGS.items()
    for backend in BACKENDS
    for output in OUTPUTS
    if f"model: {{backend: {backend}," in text.replace("}", ",") and "rerank" not in text
    if (re.findall(r"output: (\w+)", text) or ["dense"]) == [output]
}
"""For each backend and output a config that uses it."""


@pytest.mark.parametrize(("backend", "output"), MODELS)
def test_every_backend_keys_its_settings_as_they_claim(unchanged: Path, backend: str, output: str) -> None:
    """The settings whose value is in the keys, of every backend that has them."""
    base = MODELS[backend, output]
    before, tried = keys(unchanged, base), 0
    for name, field in BACKENDS[backend].model_fields.items():
        setting, marks = f"model.{name}", field.json_schema_extra
        if name in ("backend", "output") or output not in outputs_of(field):
            continue
        if marks["shapes"] and not marks["keyed"]:  # type: ignore[index,call-overload]
            continue
        found = changed(before, keys(unchanged, base, CHANGES[setting][0].to))
        assert found == after(set(marks["shapes"])) & set(before), setting  # type: ignore[index,call-overload]
        tried += 1
    assert tried >= 3


@pytest.mark.parametrize(
    ("field", "change"),
    [(field, change) for field, listed in CHANGES.items() for change in listed],
    ids=[change.to for listed in CHANGES.values() for change in listed],
)
def test_a_field_changes_the_keys_it_claims_and_no_others(
    unchanged: Path, field: str, change: Change
) -> None:
    assert change.to.partition("=")[0] == field
    base, *settings = change.base
    before = keys(unchanged, base, *settings)
    found = changed(before, keys(unchanged, base, *settings, change.to))
    claimed = set(FIELDS[field].json_schema_extra["shapes"]) & set(before)
    expected = after(claimed) if change.makes_again is None else change.makes_again
    expected = expected & set(before)
    assert found == expected
    assert expected <= after(claimed)  # no field shapes more than it claims
    assert claimed <= expected or not expected


MODEL_FILES = (
    "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",
    "vocab.txt", "1_Pooling/config.json",
)  # fmt: skip

FACTS: dict[str, tuple[str, Callable[[Path], object], set[str]]] = {
    "a byte of passages that are cut": ("cut", lambda w: flip(w / "data/corpus.jsonl"), PASSAGES_ON),
    "a byte of the weights": (
        "cut",
        lambda w: flip(w / "bge-small-en-v1.5/model.safetensors"),
        VECTORS_ON,
    ),
    "a byte of the tokenizer that cuts": (
        "cut",
        lambda w: touch_up(w / "bge-small-en-v1.5/tokenizer.json"),
        CHUNKS_ON | VECTORS_ON,
    ),
    "a byte of the corpus": ("files", lambda w: flip(w / "data/corpus.jsonl"), PASSAGES_ON),
    "a byte of the queries": ("files", lambda w: flip(w / "data/queries.jsonl"), QUERIES_ON),
    "a byte of the judgments": ("files", lambda w: append(w / "data/qrels/test.tsv", b"\n"), QUERIES_ON),
    "the order of passages": ("files", lambda w: swap(w / "data/corpus.jsonl"), PASSAGES_ON),
    "the order of queries": ("files", lambda w: swap(w / "data/queries.jsonl"), QUERIES_ON),
    "the order of judgments": ("files", lambda w: swap(w / "data/qrels/test.tsv"), QUERIES_ON),
    "the judgments of another split": ("files", lambda w: append(w / "data/qrels/dev.tsv", b"\n"), set()),
    "a byte of a table": ("tables", lambda w: flip(w / "rows/data/dev-00000-of-00001.parquet"), ALL),
    "a byte of a corpus table": (
        "two tables",
        lambda w: flip(w / "texts/data/train-00000-of-00001.parquet"),
        PASSAGES_ON,
    ),
    "code of the model": ("files", lambda w: append_new(w / "bge-small-en-v1.5/modeling.py"), VECTORS_ON),
    "the model's README": ("files", lambda w: append_new(w / "bge-small-en-v1.5/README.md"), set()),
    "a byte of the passages' vectors": (
        "precomputed",
        lambda w: flip(w / "passages.npy"),
        PASSAGES_ON - {"data"},
    ),
    "a byte of the queries' vectors": (
        "precomputed",
        lambda w: flip(w / "queries.npy"),
        QUERIES_ON - {"data"},
    ),
    "the dataset's commit": ("hub", lambda w: move(w, "datasets--owner--rows"), QUERIES_ON),
    "the corpus dataset's commit": ("hub", lambda w: move(w, "datasets--owner--texts"), PASSAGES_ON),
    "the model's commit": ("hub", lambda w: move(w, "models--owner--tiny"), VECTORS_ON),
    "the time of files": ("files", lambda w: [os.utime(path) for path in w.rglob("*")], set()),
    "where files are": ("files", lambda w: [w.rename(w.parent / "x"), w.symlink_to(w.parent / "x")], set()),
    "the number of cores": (
        "files",
        lambda w: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
        set(),
    ),
    **{
        f"a byte of the model's {name}": (
            "files",
            lambda w, n=name: touch_up(w / "bge-small-en-v1.5" / n),
            VECTORS_ON,
        )
        for name in MODEL_FILES
    },
}


def append_new(path: Path) -> None:
    path.write_text("# new\n", encoding="utf-8")


def touch_up(path: Path) -> None:
    """Change a byte and leave JSON valid."""
    flip(path) if path.suffix == ".safetensors" else append(path, b" ")


def move(folder: Path, repo: str) -> None:
    """A new commit on `main`."""
    (folder / "hub" / repo / "refs" / "main").write_text(SECOND, encoding="utf-8")


@pytest.fixture
def cores() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_outside_the_config_changes_the_keys_of_what_it_shapes(workplace: Path, fact: str) -> None:
    base, change, expected = FACTS[fact]
    before = keys(workplace, base)
    change(workplace)
    assert changed(before, keys(workplace, base)) == expected & set(before)


def test_the_model_s_files_are_all_in_the_table(bge_folder: Path) -> None:
    there = {str(path.relative_to(bge_folder)) for path in bge_folder.rglob("*") if path.is_file()}
    assert there == set(MODEL_FILES)


NUMBERS = {
    **{
        f"{kind.__name__}.SCHEMAS[{stage}]": after({stage})
        for kind in (plan, texts, dense, sparse, multivector, bm25, fused, reranked)
        for stage in kind.SCHEMAS
    },
    "pipeline.data.loading.SCHEMA": ALL,
    "pipeline.data.loading.JUDGED_SCHEMA": QUERIES_ON,
    "pipeline.encoders.openvino.backend.SCHEMA": VECTORS_ON,
    "pipeline.encoders.native.SCHEMA": VECTORS_ON,
    "pipeline.encoders.http.backend.SCHEMA": VECTORS_ON,
    **{
        f"pipeline.encoders.pairs.{module}.SCHEMA": {"rerank", "evaluate"}
        for module in ("__init__", "converted", "served")
    },
}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_schema_number_changes_the_keys_of_what_that_code_makes(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    named = {
        "native": "packed",
        "http": "served",
        "sparse": "sparse",
        "multivector": "token vectors",
        "bm25": "bm25",
        "fused": "fused",
        "reranked": "reranked",
        "texts": "cut",
    }
    if "encoders.pairs" in number:
        named = {
            "converted": "scored by openvino",
            "served": "scored by a server",
        }
        named["__init__"] = "reranked"
    base = next((base for name, base in named.items() if name in number), "files")
    before = keys(unchanged, base)
    path, _, stage = number.rstrip("]").partition("[")
    module, _, name = path.replace(".__init__", "").rpartition(".")
    owner = importlib.import_module(module)
    if stage:
        monkeypatch.setitem(getattr(owner, name), stage, 99)
    else:
        monkeypatch.setattr(owner, name, 99)
    assert changed(before, keys(unchanged, base)) == NUMBERS[number] & set(before)


def test_every_schema_number_is_in_the_table(root: Path) -> None:
    found = set()
    for path in (root / "pipeline").rglob("*.py"):
        for name in re.findall(
            r"^((?:JUDGED_)?SCHEMAS?)\b.*=", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            found.add(".".join(path.relative_to(root).with_suffix("").parts) + f".{name}")
    assert found == {number.partition("[")[0] for number in NUMBERS}


@pytest.mark.parametrize(("package", "base"), [("openvino", "files"), ("numba", "packed")])
def test_the_version_that_converted_a_model_is_in_the_keys_of_its_vectors(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch, package: str, base: str
) -> None:
    before = {name: keys(unchanged, name) for name in (base, "tables")}
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.0" if name == package else installed(name)
    )
    assert changed(before[base], keys(unchanged, base)) == VECTORS_ON & set(before[base])
    assert changed(before["tables"], keys(unchanged, "tables")) == set()  # the flag backend converts nothing


def test_the_version_that_converted_a_reranker_is_in_the_keys_of_its_ranking(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(unchanged, "scored by openvino")
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.0" if name == "openvino" else installed(name)
    )
    assert changed(before, keys(unchanged, "scored by openvino")) == {"rerank", "evaluate"}


@pytest.mark.parametrize("taken", ["native", "openvino", "flag"])
def test_what_auto_takes_has_the_keys_of_that_backend(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    monkeypatch.setattr(machine, "has_vnni", lambda: taken == "native")
    monkeypatch.setattr(choice, "is_installed", lambda package: taken != "flag")
    for base, section in (("the fastest", "model"), ("scored by the fastest", "rerank")):
        backend = "openvino" if (section, taken) == ("rerank", "native") else taken
        named = [f"{section}.backend={backend}"]
        assert keys(unchanged, base) == keys(unchanged, base, *named)
        assert keys(unchanged, base, f"{section}.precision=fp16") == keys(unchanged, base, *named)
    for base in ("the fastest for words", "the fastest for token vectors"):
        other = "native" if taken == "native" else "flag"
        assert keys(unchanged, base) == keys(unchanged, base, f"model.backend={other}")


@pytest.mark.parametrize("package", ["bm25s", "PyStemmer"])
def test_the_versions_that_made_words_are_in_their_keys(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    before = keys(unchanged, "bm25")
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.0" if name == package else installed(name)
    )
    assert changed(before, keys(unchanged, "bm25")) == VECTORS_ON & set(before)


def test_a_shard_size_a_batch_size_a_name_and_folders_together_change_nothing(unchanged: Path) -> None:
    free = [
        name
        for name, field in FIELDS.items()
        if not field.json_schema_extra["shapes"]
        and not name.startswith("rerank.")
        and CHANGES[name][0].base[0] == "files"
    ]
    together = [change.to for name in free for change in CHANGES[name]]
    assert len(together) >= 6
    assert keys(unchanged, "files") == keys(unchanged, "files", *together)


def test_benchmarks_that_share_what_was_hashed_have_the_keys_they_have_alone(unchanged: Path) -> None:
    """An int8 model is calibrated on the passages of its own benchmark."""
    settings = [["model.precision=int8", f"data.path={name}"] for name in ("data", "other")]
    settings.append(["model.query_instruction='find: '"])
    together = several([load_config(unchanged / "files.yaml", given) for given in settings])
    for benchmark, given in zip(together, settings, strict=True):
        assert {stage: r.key for stage, r in benchmark.recipes.items()} == keys(unchanged, "files", *given)
    one, other, third = (benchmark.recipe("passages").plain for benchmark in together)
    assert one["openvino"] != other["openvino"]
    assert one["model"]["identity"] is other["model"]["identity"] is third["model"]["identity"]  # hashed once

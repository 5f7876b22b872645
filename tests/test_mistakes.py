"""Mistakes people make: each is exit code 2, one message that says where and what to do, and nothing written.

One table, grouped by where the mistake is. Each runs in this process; one of each few also as the real
command.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from scipy.sparse import csr_array, save_npz
from typer.testing import CliRunner

from pipeline.cli import app

Apply = Callable[[Path], object]
RUN, EVALUATE = ("run", "c.yaml"), ("evaluate", "--qrels", "q.trec", "--run", "r.trec")
FILES = {
    "c.yaml": (
        "name: t\ndata: {source: beir, path: data}\nmodel: {name: all-minilm-l6-v2}\nsearch: {top_k: 1000}\n"
    ),
    "data/corpus.jsonl": '{"_id": "d1", "text": "the cat sat"}\n{"_id": "d2", "text": "a dog ran"}\n',
    "data/queries.jsonl": '{"_id": "q1", "text": "cat"}\n',
    "data/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    "flag.yaml": "name: t\ndata: {source: flag, path: flag, split: dev}\nmodel: {name: all-minilm-l6-v2}\n",
    "flag/corpus.jsonl": '{"id": "d1", "text": "the cat sat"}\n',
    "flag/dev_queries.jsonl": '{"id": "q1", "text": "cat"}\n',
    "flag/dev_qrels.jsonl": '{"qid": "q1", "docid": "d1", "relevance": 1}\n',
    "ms.yaml": "name: t\ndata: {source: msmarco, path: ms, split: dev}\nmodel: {name: all-minilm-l6-v2}\n",
    "ms/collection.tsv": "d1\tthe cat sat\nd2\ta dog ran\n",
    "ms/queries.dev.tsv": "q1\tcat\n",
    "ms/qrels.dev.tsv": "q1\t0\td1\t1\n",
    "pre.yaml": (
        "name: t\n"
        "data: {source: beir, path: data}\n"
        "model: {backend: precomputed, passages: p.npy, queries: q.npy}\n"
    ),
    "words.yaml": (
        "name: t\n"
        "data: {source: beir, path: data}\n"
        "model: {backend: precomputed, output: sparse, passages: p.npz, queries: q.npz}\n"
    ),
    "tokens.yaml": (
        "name: t\n"
        "data: {source: beir, path: data}\n"
        "model: {backend: precomputed, output: multivector, passages: p.npz, queries: q.npz}\n"
    ),
    "m.yaml": "name: t\ndata: {source: beir, path: data}\nmodel: {name: ./model}\n",
    "model/config.json": '{"model_type": "bert", "max_position_embeddings": 512}',
    "model/model.safetensors": "weights",
    "model/vocab.txt": "[UNK]",
    "q.trec": "q1 0 d1 1\nq1 0 d2 0\n",
    "r.trec": "q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\n",
}


def spoil(path: str, old: str, new: str) -> Apply:
    """In the file at `path`, `new` where `old` stood; all of it where `old` is empty."""

    def apply(folder: Path) -> None:
        content = (folder / path).read_text(encoding="utf-8")
        assert old in content
        changed = content.replace(old, new, 1) if old else new
        (folder / path).write_text(changed, encoding="utf-8")

    return apply


def config(old: str, new: str) -> Apply:
    return spoil("c.yaml", old, new)


def remove(path: str) -> Apply:
    return lambda folder: (folder / path).unlink()


def content(path: str, data: bytes) -> Apply:
    return lambda folder: (folder / path).write_bytes(data)


def array(path: str, values: object, **kind: object) -> Apply:
    return lambda folder: np.save(folder / path, np.asarray(values, **kind))


def both(*applied: Apply) -> Apply:
    return lambda folder: [apply(folder) for apply in applied]


def nothing(folder: Path) -> None:
    """The mistake is on the command line."""


def settings(*given: str) -> tuple[str, ...]:
    return (*RUN, *(word for text in given for word in ("--set", text)))


VECTORS = both(array("p.npy", np.eye(2), dtype=np.float32), array("q.npy", np.eye(2)[:1], dtype=np.float32))


def words(path: str, weights: object) -> Apply:
    return lambda folder: save_npz(folder / path, csr_array(np.asarray(weights, np.float32)))


def tokens(path: str, vectors: object, ends: list[int]) -> Apply:
    return lambda folder: np.savez(folder / path, vectors=np.asarray(vectors, np.float32), ends=ends)


WORDS = both(words("p.npz", np.eye(2)), words("q.npz", np.eye(2)[:1]))
TOKENS = both(tokens("p.npz", np.eye(3), [1, 3]), tokens("q.npz", np.eye(3), [3]))


def nested_aliases(first: str, each: str) -> str:
    """A list of ten values, where each but the first has the one before it nine times."""
    levels = [f"&a0 {first}"]
    for level in range(1, 10):
        levels.append(f"&a{level} " + each.replace("THEM", ", ".join([f"*a{level - 1}"] * 9)))
    return f"[{', '.join(levels)}]"


LISTS, MERGES = nested_aliases("[x]", "[THEM]"), nested_aliases("{x: 1}", "{<<: [THEM]}")
BOMBS = [
    config("1000", LISTS),
    config("1000", MERGES),
    config("name: t", f"name: t\nsweep: {{search.top_k: {LISTS}}}"),
    config("name: t", f"name: t\nsweep: {LISTS}"),
    config("1000", "&a [1, *a]"),
]

# what is wrong, which command, and what the message must say
CONFIG: list[tuple[Apply, tuple[str, ...], list[str]]] = [
    (config("name: t", "name: [t"), RUN, ["c.yaml, line 2", "not valid YAML", "one 'key: value' a line"]),
    (config("name: t\n", "name: t\n\tx: 1\n"), RUN, ["c.yaml, line 2", "not valid YAML"]),
    (config("name: t", "name: t\nname: u"), RUN, ["line 2", "duplicate key 'name'"]),
    (
        config("name: t", "name: !!python/object/apply:os.getcwd []"),
        RUN,
        ["c.yaml, line 1", "not valid YAML"],
    ),
    (config("name: t", "name: !!int ''"), RUN, ["c.yaml, line 1", "not valid YAML: '' is not a valid int"]),
    (config("name: t", "name: !!bool x"), RUN, ["c.yaml, line 1", "not valid YAML: 'x' is not a valid bool"]),
    (config("name: t", "name: 2026-13-45"), RUN, ["c.yaml, line 1", "'2026-13-45' is not a valid timestamp"]),
    (config("path: data", 'path: "a\\0b"'), RUN, ["c.yaml, line 2", "a text holds \\0"]),
    (config("path: data", 'path: "\\ud800"'), RUN, ["c.yaml, line 2", "half a surrogate pair"]),
    (config("1000", "0x" + "f" * 5000), RUN, ["c.yaml, line 4", "more than 64 bits"]),
    (
        config("name: t", f"name: {'t' * 300}"),
        RUN,
        ["results/ttt", "name is too long", "change the config's name"],
    ),
    (config("path: data", f"path: {'t' * 300}"), RUN, ["ttt: File name too long; give a shorter name"]),
    (config("path: data", r'path: "a\nb"'), RUN, ["'a b' is neither an existing folder nor a dataset id"]),
    (config("1000", f"[{{a: [b, {'c' * 200}]}}, 1]"), RUN, ["is [{'a': ['b', 'cccc", "... (passages kept"]),
    (config("1000", f"[{'1, ' * 500}]"), RUN, ["'search.top_k' is [1, 1, ", "... (passages kept"]),
    (config("search: {top_k: 1000}", "search: lots"), RUN, ["'search' is 'lots'", "a section: settings"]),
    (config("", ""), RUN, ["c.yaml is empty", "sections name, data"]),
    (config("", "- a\n- b\n"), RUN, ["c.yaml is not a mapping of sections"]),
    *((bomb, RUN, ["c.yaml, line", "with its aliases written out, it has more than"]) for bomb in BOMBS),
    (content("c.yaml", b"\xff\xfe"), RUN, ["c.yaml: not UTF-8 text (byte 0)", "Save it as UTF-8"]),
    (remove("c.yaml"), RUN, ["config c.yaml: no such file", "Check the path"]),
    (nothing, ("run", "data"), ["config data is a folder"]),
    (config("name: t\n", ""), RUN, ["'name' is missing"]),
    (config("name: t", "name: ../t"), RUN, ["'name' is '../t'", "letters, digits"]),
    (config("name: t", "name: /etc/t"), RUN, ["'name' is '/etc/t'", "letters, digits"]),
    (config("name: t", "name: .."), RUN, ["'name' is '..'", "not only dots"]),
    (config("name: t", "name: 5"), RUN, ["'name' is 5", "string"]),
    (config("data: {source: beir, path: data}\n", ""), RUN, ["'data' is missing"]),
    (config("model:", "modle:"), RUN, ["unknown key 'modle'", "Did you mean 'model'"]),
    (config("top_k", "topk"), RUN, ["unknown key 'search.topk'", "Did you mean 'top_k'"]),
    (config("1000", "lots"), RUN, ["'search.top_k' is 'lots'", "passages kept", "integer"]),
    (config("1000", "0"), RUN, ["'search.top_k' is 0", "greater than or equal to 1"]),
    (config("1000", "10.5"), RUN, ["'search.top_k' is 10.5", "integer"]),
    (config("1000", "'1000'"), RUN, ["'search.top_k' is '1000'", "integer"]),
    (config("1000", "true"), RUN, ["'search.top_k' is True", "integer"]),
    (config("search: {top_k: 1000}", "search: 5"), RUN, ["'search' is 5"]),
    (
        config("search: {top_k: 1000}", "search: {top_k: 5}"),
        RUN,
        ["ndcg@10 looks at 10 ranks", "cutoffs up to 5"],
    ),
    (config("beir", "bier"), RUN, ["'data.source' is 'bier'", "'beir'"]),
    (config(", path: data", ""), RUN, ["c.yaml: 'data.path' is missing (folder of the collection", "Add it"]),
    (config("path: data", "path: data, queries: 0"), RUN, ["'data.queries' is 0"]),
    (config("path: data", "path: data, corpus: -3"), RUN, ["'data.corpus'", "-3"]),
    (
        config("beir, path: data", "hub, path: data, corpus: {positives_of: 0}"),
        RUN,
        ["'data.corpus.positives_of' is 0", "greater than or equal to 1"],
    ),
    (config("path: data", "path: data, corpus: {positives_of: 3}"), RUN, ["only with source 'hub'"]),
    (config("v2}", "v2, precision: int4}"), RUN, ["'model.precision' is 'int4'", "'fp32'"]),
    (config("v2}", "v2, device: gpu}"), RUN, ["'model.device' is 'gpu'", "cuda:N"]),
    (config("v2}", "v2, normalize: maybe}"), RUN, ["'model.normalize' is 'maybe'", "boolean"]),
    (config("v2}", "v2, pooling: max}"), RUN, ["'model.pooling' is 'max'", "'cls'"]),
    (config("v2}", "v2, batch_size: 0}"), RUN, ["'model.batch_size' is 0"]),
    (config("v2}", "v2, query_max_length: 1}"), RUN, ["'model.query_max_length' is 1", "3"]),
    (config("v2}", "v2, backend: onnx}"), RUN, ["'model.backend' is 'onnx'", "'openvino'"]),
    (
        config("v2}", "v2, k1: 1.2}"),
        RUN,
        ["model.k1 is not a setting of backend 'auto' (it belongs to bm25)", "Allowed: backend"],
    ),
    (
        config("v2}", "v2, backend: bm25, pooling: cls}"),
        RUN,
        ["model.pooling is not a setting of backend 'bm25'", "stop_words", "Leave it out"],
    ),
    (config("v2}", "v2, backend: bm25, stemmer: klingon}"), RUN, ["'model.stemmer' is 'klingon'", "porter"]),
    (
        both(config("v2}", "v2, backend: bm25}"), config("top_k: 1000", "parameters: {nprobe: 2}")),
        RUN,
        ["backend 'bm25' makes an index of its own"],
    ),
    *(
        (
            spoil("pre.yaml", "q.npy}", f"q.npy, {given}}}"),
            ("plan", "pre.yaml"),
            [f"model.{given.partition(':')[0]} is not a setting of backend 'precomputed'", "Leave it out"],
        )
        for given in (
            "precision: bf16",
            "pooling: cls",
            "query_instruction: 'q: '",
            "passage_instruction: ''",
            "query_max_length: 64",
            "passage_max_length: 64",
            "trust_remote_code: true",
        )
    ),
    (
        config("v2}", "v2, passages: p.npy}"),
        RUN,
        ["model.passages is not a setting of backend 'auto' (it belongs to precomputed)"],
    ),
    (
        config("v2}", "v2, backend: openvino, queries: q.npy}"),
        RUN,
        ["model.queries is not a setting of backend 'openvino'"],
    ),
    (config("beir", "sample"), RUN, ["data.path is not a setting of source 'sample'", "Leave it out"]),
    (
        config("path: data", "path: data, query_column: q"),
        RUN,
        ["data.query_column is not a setting of source 'beir' (it belongs to hub)"],
    ),
    (
        spoil("ms.yaml", "path: ms", "path: ms, revision: v1"),
        ("plan", "ms.yaml"),
        ["data.revision is not a setting of source 'msmarco' (it belongs to beir, hub, "],
    ),
    (
        config("beir, path: data", "ir_datasets, path: cranfield, split: dev"),
        RUN,
        ["data.split is not a setting of source 'ir_datasets'"],
    ),
    (config("name: t", "name: t\ncache: ~no-such-user/x"), RUN, ["'cache' is '~no-such-user/x'", "no ~"]),
    (config("path: data", "path: ~no-such-user/x"), RUN, ["'data.path' is '~no-such-user/x'", "no ~"]),
    (config("v2}", "v2, truncate_dim: 0}"), RUN, ["'model.truncate_dim' is 0", "1"]),
    (config("v2}", "v2, backend: bm25, k1: .inf}"), RUN, ["'model.k1' is inf", "a finite number"]),
    (
        config("search: {", "index: {factory: HNSW8}\nsearch: {parameters: {efSearch: .nan}, "),
        RUN,
        ["'search.parameters.efSearch' is nan"],
    ),
    (config("v2}", "v2, backend: bm25, b: 1.5}"), RUN, ["'model.b' is 1.5", "less than or equal to 1"]),
    (
        config("v2}\n", "v2, backend: bm25}\nindex: {factory: SQfp16}\n"),
        RUN,
        ["backend 'bm25' makes an index of its own", "leave out the section 'index'"],
    ),
    (config("v2}", "v2, trust_remote_code: 'yes'}"), RUN, ["'model.trust_remote_code' is 'yes'", "boolean"]),
    (config("search: {", "evaluate: {measures: [ndgc@10]}\nsearch: {"), RUN, ["'ndgc@10'", "ndcg"]),
    (config("search: {", "evaluate: {measures: [ndcg@0]}\nsearch: {"), RUN, ["ndcg@0"]),
    (
        config("search: {", "evaluate: {measures: []}\nsearch: {"),
        RUN,
        ["'evaluate.measures' is []", "one or more"],
    ),
    (
        config("search: {", "evaluate: {measures: ndcg@10}\nsearch: {"),
        RUN,
        ["'evaluate.measures' is 'ndcg@10'", "Allowed: a list."],
    ),
    (
        config("search: {", "index: {factory: Flatt}\nsearch: {"),
        RUN,
        ["index.factory: 'Flatt'", "such as Flat"],
    ),
    (
        config("search: {", "index: {factory: HNSW0}\nsearch: {"),
        RUN,
        ["index.factory: 'HNSW0': HNSW0 makes Faiss crash or never end", "such as Flat"],
    ),
    (
        config("search: {", "index: {factory: PQ7}\nsearch: {"),
        RUN,
        ["index.factory: 'PQ7'", "should be a multiple of the number of subquantizers"],
    ),
    (
        config("v2}", "v2, truncate_dim: 20}\nindex: {factory: PQ8}"),
        RUN,
        ["index.factory: 'PQ8'", "should be a multiple of the number of subquantizers"],
    ),
    (
        config("search: {", "index: {metric: L2}\nsearch: {"),
        RUN,
        ["'index.metric' is 'L2'", "'inner_product'", "'l2'"],
    ),
    (
        config("search: {", "index: {factory: HNSW8}\nsearch: {parameters: {nprobe: 4}, "),
        RUN,
        ["search.parameters: 'nprobe'", "'HNSW8'", "Allowed: efSearch"],
    ),
    (
        config("search: {", "index: {factory: 'IVF16,Flat'}\nsearch: {parameters: {nprobe: 17}, "),
        RUN,
        ["search.parameters: 'nprobe' is 17", "1 to 16"],
    ),
    (
        config("search: {", "search: {rescore: 4, "),
        RUN,
        ["search.rescore scores the hits of quantized", "int8"],
    ),
    (config("search: {", "search: {rescore: 0, "), RUN, ["'search.rescore' is 0", "1"]),
    (config("v2}", "v2, vector_precision: int4}"), RUN, ["'model.vector_precision' is 'int4'", "'binary'"]),
    *(
        (
            both(
                config("v2}", f"v2, vector_precision: {form}}}"), config("search: {", f"{given}\nsearch: {{")
            ),
            RUN,
            [f"model.vector_precision: {form} is searched exactly", "leave out the section 'index'"],
        )
        for form, given in (("int8", "index: {metric: l2}"), ("binary", "index: {factory: HNSW8}"))
    ),
    (
        config("search: {", "index: {factory: HNSW8}\nsearch: {memory_mb: 100, "),
        ("plan", "c.yaml"),
        ["search.memory_mb limits exact search", "'HNSW8'", "leave out one of the two"],
    ),
    (
        both(config("v2}", "v2, backend: bm25}"), config("search: {", "search: {memory_mb: 100, ")),
        RUN,
        ["backend 'bm25' holds its index in memory", "leave out search.memory_mb"],
    ),
    (
        both(config("v2}", "v2, backend: bm25}"), config("search: {", "search: {device: cuda, ")),
        RUN,
        ["backend 'bm25' is searched on the CPU: leave out search.device"],
    ),
    (config("search: {", "search: {memory_mb: 10, "), RUN, ["'search.memory_mb' is 10", "64"]),
    (
        config("search: {", "index: {shards: 2}\nsearch: {memory_mb: 100, "),
        RUN,
        ["search.memory_mb searches without an index", "leave out index.shards"],
    ),
    (
        config("v2}\n", "v2}\nindex: {shards: 3}\n"),
        RUN,
        ["index.shards: 3, and the collection has 2 passages", "1 to 2"],
    ),
    (config("v2}\n", "v2}\nindex: {shards: 0}\n"), RUN, ["'index.shards' is 0", "1"]),
    (
        config("v2}\n", "v2, backend: bm25}\nindex: {shards: 2}\n"),
        RUN,
        ["backend 'bm25' makes an index of its own"],
    ),
    (
        config("v2}\n", "v2}\nengine: {kind: ray, store: 's3://b/f'}\n"),
        RUN,
        ["'engine.store' no longer exists"],
    ),
    (config("search: {", "search: {device: cuda:7, "), RUN, ["search.device: cuda:7", "cpu"]),
]

COMMAND_LINE: list[tuple[Apply, tuple[str, ...], list[str]]] = [
    (nothing, ("runn", "c.yaml"), ["Did you mean 'run'"]),
    (nothing, ("run",), ["Missing argument"]),
    (nothing, (*RUN, "--outptu", "x"), ["No such option: --outptu", "--output"]),
    (nothing, (*RUN, "c.yaml"), ["config c.yaml: another config is named 't' too"]),
    (nothing, settings("search.top_k"), ["--set search.top_k: not of the form key.path=value"]),
    (nothing, settings("=3"), ["--set =3: not of the form key.path=value"]),
    (nothing, settings("search.topk=3"), ["unknown key 'search.topk'", "Did you mean 'top_k'"]),
    (nothing, settings("search.top_k=ten"), ["'search.top_k' is 'ten'"]),
    (nothing, settings("search.top_k=["), ["--set search.top_k=[", "not valid YAML"]),
    (nothing, settings("name.x=1"), ["--set name.x=1: 'name.x' is below 'name', which is a value"]),
    (nothing, settings("name=../../x"), ["'name' is '../../x'"]),
    (
        lambda folder: (folder / "file").touch(),
        (*RUN, "--output", "file"),
        ["result folder file/t", "is not a folder"],
    ),
    (
        lambda folder: [(folder / "results").mkdir(), (folder / "results/t").symlink_to(folder / "data")],
        RUN,
        ["result folder results/t: is a link to", "--output DIR"],
    ),
    (nothing, settings("cache=c.yaml"), ["c.yaml/", "Not a directory; name a folder", "--set cache=DIR"]),
    (nothing, ("plan", "none.yaml"), ["config none.yaml: no such file"]),
    (nothing, ("data", "none.yaml"), ["config none.yaml: no such file"]),
    (nothing, ("cache", "prune", "--size", "9" * 400 + "TB"), ["--size 999", "not a number with a unit"]),
    (nothing, ("evaluate", "--qrels", "q.trec"), ["Missing option '--run'"]),
    (
        nothing,
        ("evaluate", "--qrels", "none", "--run", "r.trec"),
        ["none: cannot be read: No such file", "Check the file: plain or gzip text is read"],
    ),
    (nothing, (*EVALUATE, "--measures", "ndcg@ten"), ["ndcg@ten"]),
    (nothing, (*EVALUATE, "--measures", "recall(cap=maybe)@10"), ["recall(cap=maybe)@10"]),
    (nothing, (*EVALUATE, "--measures", ""), ["measure"]),
    (nothing, (*EVALUATE, "--per-query", "none/q.csv"), ["--per-query none/q.csv", "no folder none"]),
    (nothing, (*EVALUATE, "--per-query", "data"), ["--per-query data: is a folder"]),
]

DATA: list[tuple[Apply, tuple[str, ...], list[str]]] = [
    (remove("data/corpus.jsonl"), RUN, ["corpus.jsonl", "BEIR's layout"]),
    (remove("data/queries.jsonl"), RUN, ["queries.jsonl", "BEIR's layout"]),
    (remove("data/qrels/test.tsv"), RUN, ["test.tsv"]),
    (config("path: data", "path: date"), RUN, ["date"]),
    (
        both(lambda folder: (folder / "loop").symlink_to("loop"), config("path: data", "path: ./loop")),
        RUN,
        ["data.path", "loop: no such folder"],
    ),
    (config("path: data", "path: data, split: train"), RUN, ["train.tsv", "test"]),
    (spoil("data/corpus.jsonl", "", ""), RUN, ["corpus.jsonl: the file is empty"]),
    (
        spoil("data/corpus.jsonl", '"d2"', '"d1"'),
        RUN,
        ["corpus.jsonl, line 2", "'d1' is a duplicate", "line 1"],
    ),
    (spoil("data/corpus.jsonl", "dog ran", 'dog" ran'), RUN, ["corpus.jsonl, line 2", "not valid JSON"]),
    (
        spoil("data/corpus.jsonl", "", "null\n"),
        RUN,
        ["corpus.jsonl, line 1", "a JSON null instead of an object"],
    ),
    (spoil("data/corpus.jsonl", '"_id": "d2"', '"id": "d2"'), RUN, ["line 2", "no field '_id'"]),
    (spoil("data/corpus.jsonl", '"d2"', '"d 2"'), RUN, ["line 2", "white space"]),
    (
        content("data/corpus.jsonl", b'{"_id": "d1", "text": "caf\xe9"}\n'),
        RUN,
        ["corpus.jsonl, line 1", "not UTF-8"],
    ),
    (
        both(remove("data/corpus.jsonl"), content("data/corpus.jsonl.gz", b"no gzip")),
        RUN,
        ["corpus.jsonl.gz"],
    ),
    (
        both(
            remove("data/corpus.jsonl"),
            content("data/corpus.jsonl.gz", gzip.compress(b'{"_id": "d1"}' * 99)[:-9]),
        ),
        RUN,
        ["corpus.jsonl.gz"],
    ),
    (spoil("data/queries.jsonl", '"cat"', "null"), RUN, ["queries.jsonl, line 1", "null"]),
    (spoil("data/queries.jsonl", "", ""), RUN, ["queries.jsonl"]),
    (spoil("data/qrels/test.tsv", "d1\t1", "d9\t1"), RUN, ["no judged passage left", "test.tsv, line 2"]),
    (spoil("data/qrels/test.tsv", "q1\td1", "q9\td1"), RUN, ["no judged query left", "test.tsv, line 2"]),
    (spoil("data/qrels/test.tsv", "d1\t1", "d1\tyes"), RUN, ["test.tsv, line 2", "yes"]),
    (spoil("data/qrels/test.tsv", "d1\t1", "d1"), RUN, ["test.tsv, line 2"]),
    (spoil("data/qrels/test.tsv", "d1\t1\n", "d1\t1\nq1\td1\t0\n"), RUN, ["test.tsv, line 3"]),
    (spoil("data/qrels/test.tsv", "q1\td1\t1\n", ""), RUN, ["test.tsv"]),
    (remove("flag/dev_qrels.jsonl"), ("run", "flag.yaml"), ["dev_qrels.jsonl"]),
    (
        spoil("flag/dev_qrels.jsonl", '"docid"', '"doc"'),
        ("run", "flag.yaml"),
        ["dev_qrels.jsonl, line 1", "docid"],
    ),
    (
        spoil("flag/dev_qrels.jsonl", "1}", '"one"}'),
        ("run", "flag.yaml"),
        ["dev_qrels.jsonl: column 'relevance' holds string"],
    ),
    (
        spoil("flag/dev_queries.jsonl", '"id"', '"_id"'),
        ("run", "flag.yaml"),
        ["dev_queries.jsonl, line 1", "'id'"],
    ),
    (remove("ms/collection.tsv"), ("run", "ms.yaml"), ["collection"]),
    (spoil("ms/collection.tsv", "d2\ta", "d2 a"), ("run", "ms.yaml"), ["collection.tsv, line 2"]),
    (spoil("ms/qrels.dev.tsv", "\t0\td1", ""), ("run", "ms.yaml"), ["qrels.dev.tsv, line 1"]),
    (config("{source: beir, path: data}", "{source: ir_datasets, path: no-such/one}"), RUN, ["no-such/one"]),
    (
        config("{source: beir, path: data}", "{source: hub, path: owner/none}"),
        RUN,
        ["dataset 'owner/none'", "not on this machine", "HF_HUB_OFFLINE"],
    ),
    (config("{source: beir, path: data}", "{source: hub, path: ../x y}"), RUN, ["x y"]),
]

MODEL: list[tuple[Apply, tuple[str, ...], list[str]]] = [
    (config("all-minilm-l6-v2", "''"), RUN, ["c.yaml: backend 'auto' needs model.name: add it."]),
    (
        config("all-minilm-l6-v2", "./no-model"),
        RUN,
        ["model.name: no folder", "no-model", "all-minilm-l6-v2"],
    ),
    (
        config("all-minilm-l6-v2", "BAAI/bge-base-en-v1.5"),
        RUN,
        ["not on this machine and HF_HUB_OFFLINE is set"],
    ),
    (
        config("all-minilm-l6-v2", "no such model"),
        RUN,
        ["'no such model' is neither an existing folder nor a model id"],
    ),
    (
        config("all-minilm-l6-v2", "a/b/c, revision: " + "a" * 40),
        RUN,
        ["'a/b/c' is neither an existing folder nor a model id"],
    ),
    (
        config("v2}", "v2, backend: openvino, device: cuda}"),
        RUN,
        ["'model.device' is 'cuda' (auto or cpu: it computes nowhere else)", "'auto' or 'cpu'"],
    ),
    (
        config("v2}", "v2, backend: flag, precision: int8}"),
        RUN,
        ["'model.precision' is 'int8'", "'fp32', 'fp16' or 'bf16'"],
    ),
    (remove("model/config.json"), ("run", "m.yaml"), ["model folder", "no config.json"]),
    (
        content("model/adapter_config.json", b'{"base_model_name_or_path": "org/base"}'),
        ("run", "m.yaml"),
        ["model", "is a PEFT adapter of 'org/base'", "merge_and_unload"],
    ),
    (remove("model/model.safetensors"), ("run", "m.yaml"), ["no weights (*.safetensors or *.bin)"]),
    (spoil("model/config.json", "}", ""), ("run", "m.yaml"), ["config.json: not valid JSON"]),
    (
        spoil("model/config.json", "512", '"x"'),
        ("run", "m.yaml"),
        ["model/config.json: 'max_position_embeddings' is 'x'", "a whole number of 0 or more, or null"],
    ),
    (spoil("model/config.json", "512", "-1"), ("run", "m.yaml"), ["'max_position_embeddings' is -1"]),
    (spoil("model/config.json", "512", "true"), ("run", "m.yaml"), ["'max_position_embeddings' is True"]),
    (spoil("model/config.json", "512", "[512]"), ("run", "m.yaml"), ["'max_position_embeddings' is [512]"]),
    (
        spoil("model/config.json", "512", '512, "num_attention_heads": 0'),
        ("run", "m.yaml"),
        ["model/config.json: 'num_attention_heads' is 0", "a whole number of 1 or more"],
    ),
    (
        spoil("model/config.json", "512", '512, "num_hidden_layers": -1'),
        ("run", "m.yaml"),
        ["model/config.json: 'num_hidden_layers' is -1", "a whole number of 1 or more"],
    ),
    (
        spoil("model/config.json", "512", '512, "quantization_config": {"quant_method": "gptq"}'),
        ("run", "m.yaml"),
        ["the weights of model", "are quantized, by 'gptq'", "fp32, fp16 or bf16"],
    ),
    (
        spoil("model/config.json", "512", '512, "pad_token_id": "0"'),
        ("run", "m.yaml"),
        ["model/config.json: 'pad_token_id' is '0'", "a whole number, or null"],
    ),
    (
        spoil("model/config.json", "512", '512, "architectures": 5'),
        ("run", "m.yaml"),
        ["model/config.json: 'architectures' is 5", "a list of texts"],
    ),
    (
        spoil("model/config.json", '"bert"', '["bert"]'),
        ("run", "m.yaml"),
        ["model/config.json: 'model_type' is ['bert']", "a text"],
    ),
    (
        spoil("model/config.json", "", "[1, 2]"),
        ("run", "m.yaml"),
        ["model/config.json is [1, 2]", "a JSON object", "Restore the model's file"],
    ),
    (spoil("model/config.json", "", "null"), ("run", "m.yaml"), ["model/config.json is None"]),
    (
        content("model/model.safetensors.index.json", b"[]"),
        ("run", "m.yaml"),
        ["model.safetensors.index.json is []", "a JSON object"],
    ),
    (
        content("model/model.safetensors.index.json", b'{"weight_map": {"a": "../m.yaml"}}'),
        ("run", "m.yaml"),
        ["model folder", "names ../m.yaml", "files in the folder itself"],
    ),
    (
        both(content("x.json", b"{}"), content("model/modules.json", b'[{"type": "a.Dense", "path": ".."}]')),
        ("run", "m.yaml"),
        ["model folder", "names ../x.json", "files in the folder itself"],
    ),
    (content("model/modules.json", b"{}"), ("run", "m.yaml"), ["modules.json is {}", "a JSON list"]),
    (
        content("model/config_sentence_transformers.json", b'{"truncate_dim": -1}'),
        ("run", "m.yaml"),
        ["'truncate_dim' is -1", "a whole number of 0 or more"],
    ),
    (
        content("model/sentence_bert_config.json", b'{"max_seq_length": true}'),
        ("run", "m.yaml"),
        ["'max_seq_length' is True", "a whole number of 0 or more"],
    ),
    (
        content("model/tokenizer_config.json", b'{"model_max_length": Infinity}'),
        ("run", "m.yaml"),
        ["'model_max_length' is inf", "a number of 0 or more"],
    ),
    (
        both(
            lambda folder: (folder / "model/1_Pooling").mkdir(),
            content("model/1_Pooling/config.json", b'{"pooling_mode": 5}'),
        ),
        ("run", "m.yaml"),
        ["1_Pooling/config.json: 'pooling_mode' is 5", "a text or a list of texts"],
    ),
    *(
        (
            both(remove("model/vocab.txt"), spoil("m.yaml", "./model", f"./model, backend: {backend}")),
            ("run", "m.yaml"),
            ["model", "has no file with its tokenizer's vocabulary", "such as vocab.txt"],
        )
        for backend in ("flag", "openvino", "native, precision: int16", "sentence-transformers")
    ),
    (
        spoil("m.yaml", "./model", "./model, backend: flag"),
        ("run", "m.yaml"),
        ["weights of model", "cannot be read"],
    ),
    (remove("pre.yaml"), ("run", "pre.yaml"), ["no such file"]),
    (nothing, ("run", "pre.yaml"), ["model.passages: no file", "p.npy"]),
    (
        both(VECTORS, spoil("pre.yaml", ", queries: q.npy", "")),
        ("run", "pre.yaml"),
        ["model.queries: is not given"],
    ),
    (
        both(VECTORS, content("p.npy", b"not an array")),
        ("run", "pre.yaml"),
        ["model.passages", "p.npy is not a .npy or .npz file of vectors"],
    ),
    (
        both(VECTORS, array("p.npy", [{"a": 1}], dtype=object)),
        ("run", "pre.yaml"),
        ["p.npy is not a .npy or .npz file of vectors", "pickled"],
    ),
    (
        both(VECTORS, content("p.npy", b"\x93NUMPY\x01\x00\x10\x00((((((((((((((({")),
        ("run", "pre.yaml"),
        ["p.npy is not a .npy or .npz file of vectors"],
    ),
    (both(VECTORS, array("p.npy", [1, 2])), ("run", "pre.yaml"), ["p.npy holds int64 of shape [2]"]),
    (
        both(VECTORS, array("p.npy", np.eye(3, 2), dtype=np.float32)),
        ("run", "pre.yaml"),
        ["p.npy has 3 rows", "2, one for each of the passages"],
    ),
    (
        both(VECTORS, array("q.npy", np.eye(2), dtype=np.float32)),
        ("run", "pre.yaml"),
        ["q.npy has 2 rows", "1, one for each of the queries"],
    ),
    (
        both(VECTORS, array("p.npy", np.eye(2, 3), dtype=np.float32)),
        ("run", "pre.yaml"),
        ["3 dimensions and model.queries 2"],
    ),
    (
        both(VECTORS, array("p.npy", [[1, 0], [0, np.nan]], dtype=np.float32)),
        ("run", "pre.yaml"),
        ["'d2' holds NaN or infinity", "1 of 2"],
    ),
    (
        both(VECTORS, array("p.npy", [[1, 0], [np.inf, 0]], dtype=np.float32)),
        ("run", "pre.yaml"),
        ["'d2' holds NaN or infinity"],
    ),
    (
        both(VECTORS, array("p.npy", [[1, 0], [0, 1e300]], dtype=np.float64)),
        ("run", "pre.yaml"),
        ["'d2' holds NaN or infinity", "make vectors from a file again"],
    ),
    (
        both(VECTORS, array("p.npy", [[1, 0], [0, 3]], dtype=np.float32)),
        ("run", "pre.yaml"),
        ["'d2' has length 3", "scale them or set model.normalize to false"],
    ),
    (
        both(VECTORS, array("p.npy", [[1, 0], [0, 0]], dtype=np.float32)),
        ("run", "pre.yaml"),
        ["p.npy: row 1 ('d2') is all zeros"],
    ),
]

KINDS: list[tuple[Apply, tuple[str, ...], list[str]]] = [
    (
        config("v2}", "v2, backend: openvino, output: sparse}"),
        RUN,
        ["'dense'; with backend flag, native, sentence-transformers"],
    ),
    (both(WORDS, words("p.npz", -np.eye(2))), ("run", "words.yaml"), ["word 0 of 'd1' has the weight -1"]),
    (both(WORDS, words("p.npz", np.eye(3))), ("run", "words.yaml"), ["p.npz has 3 rows", "2, one for each"]),
    (both(WORDS, words("q.npz", np.eye(1))), ("run", "words.yaml"), ["has 2 columns and model.queries 1"]),
    (both(WORDS, TOKENS), ("run", "words.yaml"), ["p.npz is not a sparse matrix in CSR", "save_npz"]),
    (
        both(WORDS, spoil("words.yaml", "path: data}", "path: data}\nindex: {factory: HNSW8}")),
        ("run", "words.yaml"),
        ["model.output 'sparse' makes an index of its own", "leave out the section 'index'"],
    ),
    (both(TOKENS, WORDS), ("run", "tokens.yaml"), ["p.npz has no token vectors", "numpy.savez"]),
    (
        both(TOKENS, tokens("p.npz", np.eye(3), [2, 2])),
        ("run", "tokens.yaml"),
        ["the `ends` do not cut 3 token vectors into texts"],
    ),
    (
        both(TOKENS, tokens("p.npz", np.full((3, 3), np.nan), [1, 3])),
        ("run", "tokens.yaml"),
        ["'d1' holds NaN or infinity"],
    ),
    (
        both(TOKENS, spoil("tokens.yaml", "q.npz}", "q.npz, token_precision: int8}")),
        ("run", "tokens.yaml"),
        ["'model.token_precision' is 'int8'", "'fp16'"],
    ),
    (
        both(TOKENS, spoil("tokens.yaml", "path: data}", "path: data}\nindex: {factory: HNSW8}")),
        ("run", "tokens.yaml"),
        ["model.output 'multivector' searches the stored vectors themselves"],
    ),
    *(
        (
            both(TOKENS, spoil("tokens.yaml", "path: data}", f"path: data}}\n{given}")),
            ("run", "tokens.yaml"),
            said,
        )
        for given, said in (
            ("index: {factory: PLAID}", ["'index.factory' is 'PLAID', which no longer exists"]),
            ("index: {plaid: {bits: 2}}", ["'index.plaid' no longer exists"]),
            ("index: {factory: HNSW8}", ["searches the stored vectors themselves", "'index'"]),
            ("search: {device: cuda}", ["is searched on the CPU"]),
        )
    ),
]

TREC: list[tuple[Apply, tuple[str, ...], list[str]]] = [
    (spoil("r.trec", "1.5 tag", "high tag"), EVALUATE, ["r.trec, line 2", "high"]),
    (spoil("r.trec", "1.5 tag", "nan tag"), EVALUATE, ["r.trec, line 2", "nan"]),
    (spoil("r.trec", "2 1.5 tag", "1.5 tag"), EVALUATE, ["r.trec, line 2"]),
    (spoil("r.trec", "d2", "d1"), EVALUATE, ["r.trec, line 2", "d1"]),
    (spoil("r.trec", "", ""), EVALUATE, ["r.trec"]),
    (content("r.trec", b"q1 Q0 d\xff 1 1 t\n"), EVALUATE, ["r.trec, line 1"]),
    (both(content("r.trec", gzip.compress(b"q1 Q0 d1 1 1 t\n" * 9)[:-4])), EVALUATE, ["r.trec"]),
    (spoil("q.trec", "d2 0", "d2 zero"), EVALUATE, ["q.trec, line 2", "zero"]),
    (spoil("q.trec", "d2 0", "d2 1.5"), EVALUATE, ["q.trec, line 2", "1.5"]),
    (spoil("q.trec", "0 d2 0", "d2"), EVALUATE, ["q.trec, line 2"]),
    (spoil("q.trec", "d2 0", "d1 0"), EVALUATE, ["q.trec, line 2", "d1"]),
    (spoil("q.trec", "", ""), EVALUATE, ["q.trec"]),
    (remove("q.trec"), EVALUATE, ["q.trec"]),
    (nothing, ("evaluate", "--qrels", "data", "--run", "r.trec"), ["data: cannot be read: Is a directory"]),
]

GROUPS = ("CONFIG", "COMMAND_LINE", "DATA", "MODEL", "KINDS", "TREC")
MISTAKES = [(group, number, *mistake) for group in GROUPS
            for number, mistake in enumerate(globals()[group])]  # fmt: skip
NAMES = [f"{group}-{number}-{' '.join(expected)[:50]}" for group, number, *_, expected in MISTAKES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a collection in each layout, configs, a run and judgments, all of them right."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def there(folder: Path) -> dict[str, int]:
    """Every file below a folder with its time, locks and folders of unfinished work aside."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in paths}


def assert_plain(
    folder: Path, before: dict[str, int], code: int, out: str, err: str, expected: list[str]
) -> None:
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    for part in expected:
        assert part in err
    uses = r"^benchmarco: model \S+(: (backend|pooling|query instruction) | does not declare its ).*\n"
    begins = r"^benchmarco: \S+: computes .*\n"
    err = re.sub(f"{uses}|{begins}", "", err, flags=re.MULTILINE)
    messages = [line for line in err.splitlines() if re.match("benchmarco: |Error: ", line)]
    assert len(messages) == 1
    if not err.startswith("Usage:"):
        assert len(err.splitlines()) == 1
    assert {path: time for path, time in there(folder).items() if "/indexes/data/" not in path} == before


@pytest.mark.parametrize(("group", "number", "mistake", "arguments", "expected"), MISTAKES, ids=NAMES)
def test_a_mistake_is_one_plain_message_and_nothing_is_written(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    number: int,
    mistake: Apply,
    arguments: tuple[str, ...],
    expected: list[str],
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would keep this test's stderr for ever
    mistake(folder)
    before = there(folder)
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert_plain(folder, before, done.exit_code, done.stdout, done.stderr, expected)


REAL = [each for each in MISTAKES if each[1] % 20 == 1]


@pytest.mark.parametrize(
    ("group", "number", "mistake", "arguments", "expected"), REAL, ids=[f"{g}-{n}" for g, n, *_ in REAL]
)
def test_the_real_command_says_the_same(
    folder: Path, group: str, number: int, mistake: Apply, arguments: tuple[str, ...], expected: list[str]
) -> None:
    mistake(folder)
    before = there(folder)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert_plain(folder, before, done.returncode, done.stdout, done.stderr, expected)


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 60
    assert len(REAL) >= 12
    assert len(set(NAMES)) == len(NAMES)


def test_without_a_mistake_the_same_files_are_taken(folder: Path) -> None:
    for name in ("c.yaml", "flag.yaml", "ms.yaml"):
        assert CliRunner().invoke(app, ["plan", name]).exit_code == 0
        assert CliRunner().invoke(app, ["data", name]).exit_code == 0
    VECTORS(folder)
    done = CliRunner().invoke(app, ["run", "pre.yaml"])
    assert done.exit_code == 0, done.stderr
    for given, name in ((WORDS, "words.yaml"), (TOKENS, "tokens.yaml")):
        given(folder)
        done = CliRunner().invoke(app, ["run", name])
        assert done.exit_code == 0, done.stderr
    assert CliRunner().invoke(app, list(EVALUATE)).exit_code == 0
    assert json.loads((folder / "results/t/metrics.json").read_text(encoding="utf-8"))["passages"] == 2


@pytest.mark.parametrize(
    ("path", "config"),
    [("data/corpus.jsonl", "c.yaml"), ("p.npy", "pre.yaml"), ("model/model.safetensors", "m.yaml")],
)
def test_a_given_file_that_cannot_be_read_is_bad_input(folder: Path, path: str, config: str) -> None:
    VECTORS(folder)
    (folder / path).unlink()
    (folder / path).symlink_to("/proc/self/mem")  # whose first byte is an I/O error
    done = CliRunner().invoke(app, ["run", config])
    assert done.exit_code == 2
    assert "mem: cannot be read: Input/output error. Check the file" in done.stderr.replace(path, "mem")
    assert not (folder / "indexes").exists()

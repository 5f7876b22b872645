"""Benchmarks of passages that are cut: their rankings against the definition, which scores every chunk."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from search.by_definition import best_documents, positive, same, vector_scores
from workplaces import BAR

from pipeline import compare, run_benchmark
from pipeline.config import SearchConfig
from pipeline.core import Ranking
from pipeline.run import Benchmark
from pipeline.search import QuantizedSearcher
from pipeline.storage import read_rows
from pipeline.studies.page import render_page

CUT = "data.chunks={tokens: 24, overlap: 6}"
WORDS = "model={backend: bm25}"
M3 = ("data.queries=4", "data.corpus=40", "search.top_k=20", "evaluate.measures=[ndcg@10]")


@pytest.fixture(scope="module")
def runs(
    finished: Path, tmp_path_factory: pytest.TempPathFactory, runs_of: Callable[..., Any]
) -> Callable[..., SimpleNamespace]:
    """Runs the finished benchmark with settings."""
    folder = tmp_path_factory.mktemp("chunks")
    shutil.copytree(finished / "indexes", folder / "indexes")
    return runs_of(finished / "c.yaml", folder)


def expected(made: SimpleNamespace, scores: np.ndarray, how: str, k: int = 50) -> Ranking:
    """The best documents by the scores of all chunks, float32 [queries, chunks]."""
    benchmark = made.benchmark
    return best_documents(
        scores, benchmark.opened("chunks").bounds, k, how, benchmark.collection.passages.ids
    )


def dense_scores(benchmark: Benchmark) -> np.ndarray:
    rows = benchmark.opened("passages")
    return vector_scores(read_rows(rows, 0, len(rows)), benchmark.opened("queries"))


@pytest.mark.parametrize(
    ("how", "settings"), [("max", ()), ("mean", ("search.memory_mb=64",))], ids=["in memory", "streamed"]
)
def test_documents_rank_as_if_every_chunk_were_scored(
    runs: Callable[..., SimpleNamespace], how: str, settings: tuple[str, ...]
) -> None:
    made = runs(CUT, f"search.aggregate={how}", *settings)
    assert len(made.benchmark.opened("chunks")) > len(made.benchmark.collection.passages)
    best, found = expected(made, dense_scores(made.benchmark), how), made.benchmark.opened("search")
    assert same(found, Ranking(best.passages, best.scores))
    assert np.array_equal(made.benchmark.ensure("search").array("chunks.npy"), best.chunks)


def test_first_encodes_the_first_chunks_and_no_others(runs: Callable[..., SimpleNamespace]) -> None:
    whole, made = runs(CUT), runs(CUT, "search.aggregate=first")
    best = expected(whole, dense_scores(whole.benchmark), "first")
    assert np.array_equal(made.benchmark.opened("search").passages, best.passages)
    row = made.record.stage("passages")
    assert (row.items, row.found, row.encoding.texts) == (345, 345, 0)


def test_chunks_longer_than_every_passage_change_nothing_and_encode_nothing(
    runs: Callable[..., SimpleNamespace],
) -> None:
    whole = runs()
    for how in ("max", "mean", "first"):
        made = runs("data.chunks={tokens: 300}", f"search.aggregate={how}")
        for name in ("run.trec", "per_query.csv"):
            same = [(each.result.folder / name).read_bytes() for each in (whole, made)]
            assert same[0] == same[1]
    assert made.record.stage("passages").encoding.texts == 0
    bm25 = [runs(WORDS, *more) for more in ((), ("data.chunks={tokens: 300}",))]
    assert len({(each.result.folder / "run.trec").read_bytes() for each in bm25}) == 1


def test_chunks_are_texts_of_their_passages(runs: Callable[..., SimpleNamespace]) -> None:
    for settings in ((CUT,), (CUT, WORDS)):
        made = runs(*settings)
        chunks, passages = made.benchmark.opened("chunks"), made.benchmark.collection.passages
        texts = passages.texts.to_pylist()
        owner = np.repeat(np.arange(len(texts)), np.diff(chunks.bounds))
        names = passages.ids.take(pa.array(owner)).to_pylist()
        number = np.arange(len(owner)) - chunks.bounds[owner]
        assert chunks.texts.ids.to_pylist() == [f"{name}#{n}" for name, n in zip(names, number, strict=True)]
        assert chunks.texts.texts.to_pylist() == [
            texts[row][start:stop] for row, start, stop in zip(owner, *chunks.places.tolist(), strict=True)
        ]


@pytest.mark.parametrize("how", ["mean", "first"])
def test_bm25_ranks_documents_by_chunks_of_words(runs: Callable[..., SimpleNamespace], how: str) -> None:
    made = runs(CUT, WORDS, f"search.aggregate={how}")
    index, queries = (made.benchmark.opened(name) for name in ("index", "queries"))
    number = [index.vocab_dict.get(word, -1) for word in queries.vocabulary]
    known = [[number[word] for word in words if number[word] >= 0] for words in queries]
    scores = np.array([index.get_scores_from_ids(np.array(words, np.int64)) for words in known])
    assert same(made.benchmark.opened("search"), positive(expected(made, scores, how)))


def word_weights(made: SimpleNamespace) -> np.ndarray:
    """Scores of all chunks by their word weights, [queries, chunks]."""
    rows = [made.benchmark.opened("queries"), *made.benchmark.opened("passages")]
    asked, *shards = weights = [np.zeros((len(each), 700)) for each in rows]
    for whole, each in zip(weights, rows, strict=True):
        whole[np.repeat(np.arange(len(each)), each.lengths), each.columns[0]] = each.columns[1]
    return np.concatenate([asked @ shard.T for shard in shards], axis=1).astype(np.float32)


def token_vectors(made: SimpleNamespace) -> np.ndarray:
    """Scores of all chunks by their token vectors, [queries, chunks]."""
    passages, queries = (
        [text.astype(np.float64) for shard in shards for text in np.split(shard.columns[0], shard.ends[:-1])]
        for shards in (made.benchmark.opened("passages"), [made.benchmark.opened("queries")])
    )
    return np.array([[(q @ p.T).max(axis=1).mean() for p in passages] for q in queries]).astype(np.float32)


@pytest.mark.parametrize(
    ("output", "scores_of", "how"),
    [("sparse", word_weights, "mean"), ("multivector", token_vectors, "max")],
)
def test_word_weights_and_token_vectors_rank_documents(
    runs: Callable[..., SimpleNamespace],
    m3_folder: Path,
    output: str,
    scores_of: Callable[[SimpleNamespace], np.ndarray],
    how: str,
) -> None:
    """The same documents, and scores that differ in the last bits at most."""
    model = f"model={{backend: flag, output: {output}, name: {m3_folder}}}"
    made = runs("data.chunks={tokens: 30, overlap: 4}", model, f"search.aggregate={how}", *M3)
    best, found = expected(made, scores_of(made), how, 20), made.benchmark.opened("search")
    assert np.allclose(found.scores, best.scores, rtol=1e-6)
    assert np.array_equal(found.passages, best.passages)


def test_an_approximate_index_ranks_documents(runs: Callable[..., SimpleNamespace]) -> None:
    """Faiss sums in float32, so documents whose scores differ in the last bit may change places."""
    exact = runs(CUT).benchmark.opened("search")
    found = runs(CUT, "index.factory='IVF4,Flat'", "search.parameters={nprobe: 4}")
    assert np.allclose(found.benchmark.opened("search").scores, exact.scores, rtol=0, atol=1e-6)
    assert found.record.against_exact.overlap["50"] > 0.99


@pytest.mark.parametrize(("precision", "how"), [("binary", "max"), ("int8", "mean")])
def test_quantized_vectors_rank_documents(
    runs: Callable[..., SimpleNamespace], precision: str, how: str
) -> None:
    """Distances of bits often tie, and so go deep."""
    made = runs(CUT, f"model.vector_precision={precision}", f"search.aggregate={how}")
    chunks, queries = made.benchmark.opened("chunks"), made.benchmark.opened("queries")
    searcher = QuantizedSearcher(SearchConfig(), made.benchmark.opened("index"), chunks.texts.ids)
    whole = searcher.search(queries, len(chunks), BAR)
    scores = np.empty(whole.scores.shape, np.float32)
    np.put_along_axis(scores, whole.passages, whole.scores, axis=1)
    best = expected(made, scores, how)
    assert same(made.benchmark.opened("search"), Ranking(best.passages, best.scores))


def test_a_setting_of_chunks_makes_again_what_is_made_of_them(runs: Callable[..., SimpleNamespace]) -> None:
    runs(CUT)
    found = runs(CUT, "search.aggregate=mean", "search.top_k=60").result.reused
    assert found == ["data", "chunks", "passages", "queries", "index"]
    other = runs("data.chunks={tokens: 24, overlap: 7}")
    assert other.result.reused == ["data", "queries"]
    assert other.record.stage("passages").found > 0


def test_a_ranking_in_the_cache_is_scored_without_the_chunks_that_it_was_made_of(tmp_path: Path) -> None:
    data = {"source": "sample", "queries": 20, "chunks": {"tokens": 24, "overlap": 6}}
    where = {"cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results")}
    settings = {"name": "cut", "data": data, "model": {"backend": "bm25"}, **where}
    before = run_benchmark(settings)
    shutil.rmtree(tmp_path / "indexes" / "chunks")
    after = run_benchmark(settings)
    assert after.metrics == before.metrics
    assert "chunks" not in after.reused


def test_results_and_the_page_say_what_was_cut_and_which_chunk_was_found(
    runs: Callable[..., SimpleNamespace],
) -> None:
    made = [runs(), runs(CUT), runs("data.chunks={tokens: 24, overlap: 7}")]
    chunks, collection = made[1].benchmark.opened("chunks"), made[1].benchmark.collection
    cut = made[1].record.chunks
    assert (cut.tokens, cut.overlap, cut.aggregate, cut.chunks) == (24, 6, "max", len(chunks))
    assert cut.cut == int((np.diff(chunks.bounds) > 1).sum())
    compared = compare([each.result.folder for each in made], "ndcg@10")
    table = next(table for table in compared.tables() if table.title == "chunks of passages")
    assert [row[1:3] for row in table.rows] == [("24", "6"), ("24", "7")]
    page = render_page(compared)
    assert '<section id="quality-against-chunk-size">' in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    texts = dict(zip(collection.passages.ids.to_pylist(), collection.passages.texts.to_pylist(), strict=True))
    found = made[1].benchmark.opened("search").passages
    chunk_of = made[1].benchmark.ensure("search").array("chunks.npy")
    rows = {name: row for row, name in enumerate(texts)}
    seen = 0
    for row, results in data["details"].items():
        assert all(chunk is None for *_, chunk in results[0]["top"])  # whole passages
        query = collection.queries.ids.to_pylist().index(data["ids"][int(row)])
        for name, *_, (start, stop, excerpt) in results[1]["top"]:
            rank = found[query].tolist().index(rows[name])
            assert [start, stop] == chunks.places[:, chunk_of[query, rank]].tolist()
            assert excerpt == texts[name][start:stop]
            seen += 1
    assert seen >= 100

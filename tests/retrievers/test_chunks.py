"""Benchmarks of passages that are cut: their rankings against a plain version that scores every chunk."""

from __future__ import annotations

import itertools
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

from pipeline import api
from pipeline.comparison.side_by_side import compare
from pipeline.config.files import load_config
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Chunks, Collection, Float32, Ranking
from pipeline.report.page.render import render_page
from pipeline.run.benchmark import Benchmark
from pipeline.storage import vector_shards
from pipeline.storage.store import Store

CUT = "data.chunks={tokens: 24, overlap: 6}"
WORDS = "model={backend: bm25}"
M3 = ("data.queries=4", "data.corpus=40", "search.top_k=20", "evaluate.measures=[ndcg@10]")


@pytest.fixture(scope="module")
def runs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SimpleNamespace]:
    """Runs the finished benchmark with settings, once for each; all share a cache."""
    folder = tmp_path_factory.mktemp("chunks")
    shutil.copytree(finished / "indexes", folder / "indexes")
    made: dict[tuple[str, ...], SimpleNamespace] = {}

    def run(*settings: str) -> SimpleNamespace:
        if settings not in made:
            places = [f"cache={folder}/indexes", f"output={folder}/results", f"name=r{len(made)}"]
            config = load_config(finished / "c.yaml", [*places, *settings])
            result = api.run_benchmark(config)
            benchmark = Benchmark(config, Store(folder / "indexes"))
            made[settings] = SimpleNamespace(result=result, benchmark=benchmark, record=result.record)
        return made[settings]

    return run


def plain(scores: Float32, chunks: Chunks, collection: Collection, k: int, how: str) -> Ranking:
    """The best documents by the scores of all chunks, float32 [queries, chunks], in the contract's order."""
    spans = [slice(*span) for span in itertools.pairwise(chunks.bounds.tolist())]
    reduce: dict[str, Callable[[Float32], Any]] = {
        "max": np.max, "mean": lambda each: each.astype(np.float64).mean(), "first": lambda each: each[0],
    }  # fmt: skip
    values = np.array([[reduce[how](row[span]) for span in spans] for row in scores]).astype(np.float32)
    rank = descending_id_rank(collection.passages.ids)
    order = np.array([np.lexsort((rank, -row)) for row in values])[:, :k]
    best = np.array([[span.start + int(np.argmax(row[span])) for span in spans] for row in scores])
    found = [np.take_along_axis(each, order, axis=1) for each in (values, best)]
    return Ranking(order, found[0], found[1])


def dense_scores(benchmark: Benchmark) -> Float32:
    rows, queries = benchmark.opened("passages"), benchmark.opened("queries")
    whole = vector_shards.read_rows(rows, 0, len(rows)).astype(np.float64)
    return (queries.astype(np.float64) @ whole.T).astype(np.float32)


@pytest.mark.parametrize("settings", [(), ("search.memory_mb=64",)], ids=["in memory", "streamed"])
@pytest.mark.parametrize("how", ["max", "mean"])
def test_documents_rank_as_if_every_chunk_were_scored(
    runs: Callable[..., SimpleNamespace], how: str, settings: tuple[str, ...]
) -> None:
    made = runs(CUT, f"search.aggregate={how}", *settings)
    chunks: Chunks = made.benchmark.opened("chunks")
    expected = plain(dense_scores(made.benchmark), chunks, made.benchmark.collection, 50, how)
    found = made.benchmark.opened("search")
    assert len(chunks) > len(made.benchmark.collection.passages)
    assert np.array_equal(found.passages, expected.passages)
    assert np.array_equal(found.scores, expected.scores)
    best = made.benchmark.ensure("search").array("chunks.npy")
    assert np.array_equal(best, expected.chunks)


def test_first_encodes_the_first_chunks_and_no_others(runs: Callable[..., SimpleNamespace]) -> None:
    whole, made = runs(CUT), runs(CUT, "search.aggregate=first")
    chunks = whole.benchmark.opened("chunks")
    expected = plain(dense_scores(whole.benchmark), chunks, whole.benchmark.collection, 50, "first")
    assert np.array_equal(made.benchmark.opened("search").passages, expected.passages)
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


@pytest.mark.parametrize("how", ["max", "mean", "first"])
def test_bm25_ranks_documents_by_chunks_of_words(runs: Callable[..., SimpleNamespace], how: str) -> None:
    made = runs(CUT, WORDS, f"search.aggregate={how}")
    chunks, index, queries = (made.benchmark.opened(name) for name in ("chunks", "index", "queries"))
    number = [index.vocab_dict.get(word, -1) for word in queries.vocabulary]
    known = [[number[word] for word in words if number[word] >= 0] for words in queries]
    scores = np.array([index.get_scores_from_ids(np.array(words, np.int64)) for words in known])
    expected = plain(scores, chunks, made.benchmark.collection, 50, how)
    found = made.benchmark.opened("search")
    assert np.array_equal(found.passages, np.where(expected.scores > 0, expected.passages, -1))
    assert np.array_equal(found.scores, np.where(expected.scores > 0, expected.scores, -np.inf))


@pytest.mark.parametrize("how", ["max", "mean"])
def test_word_weights_and_token_vectors_rank_documents(
    runs: Callable[..., SimpleNamespace], m3_folder: Path, how: str
) -> None:
    model = f"model={{backend: flag, output: %s, name: {m3_folder}}}"
    sparse = runs("data.chunks={tokens: 30, overlap: 4}", model % "sparse", f"search.aggregate={how}", *M3)
    rows, queries = sparse.benchmark.opened("passages"), sparse.benchmark.opened("queries")
    asked = np.zeros((len(queries), 700))
    asked[np.repeat(np.arange(len(queries)), queries.lengths), queries.columns[0]] = queries.columns[1]
    scores = []
    for shard in rows:
        held = np.zeros((len(shard), 700))
        held[np.repeat(np.arange(len(shard)), shard.lengths), shard.columns[0]] = shard.columns[1]
        scores.append(asked @ held.T)
    check_close(sparse, np.concatenate(scores, axis=1).astype(np.float32), how)
    multi = runs(
        "data.chunks={tokens: 30, overlap: 4}", model % "multivector", f"search.aggregate={how}", *M3
    )
    shards, asked_for = multi.benchmark.opened("passages"), multi.benchmark.opened("queries")
    held = [text for shard in shards for text in np.split(shard.columns[0], shard.ends[:-1])]
    given = [text for shard in asked_for for text in np.split(shard.columns[0], shard.ends[:-1])]
    wide = np.float64
    made = [[(q.astype(wide) @ p.astype(wide).T).max(axis=1).mean() for p in held] for q in given]
    check_close(multi, np.array(made).astype(np.float32), how)


def check_close(made: SimpleNamespace, scores: Float32, how: str) -> None:
    """The same documents and best chunks, and scores that differ in the last bits at most."""
    chunks = made.benchmark.opened("chunks")
    expected = plain(scores, chunks, made.benchmark.collection, 20, how)
    found = made.benchmark.opened("search")
    assert np.allclose(found.scores, expected.scores, rtol=1e-6)
    assert np.array_equal(found.passages, expected.passages)


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
    with silent("", None, "") as bar:
        whole = made.benchmark.opened("index").search(queries, len(chunks), None, chunks.texts.ids, bar)
    scores = np.empty(whole.scores.shape, np.float32)
    np.put_along_axis(scores, whole.passages, whole.scores, axis=1)
    expected = plain(scores, chunks, made.benchmark.collection, 50, how)
    found = made.benchmark.opened("search")
    assert np.array_equal(found.passages, expected.passages)
    assert np.array_equal(found.scores, expected.scores)


def test_a_setting_of_chunks_makes_again_what_is_made_of_them(runs: Callable[..., SimpleNamespace]) -> None:
    runs(CUT)
    assert runs(CUT, "search.aggregate=mean").result.reused == [
        "data",
        "chunks",
        "passages",
        "queries",
        "index",
    ]
    other = runs("data.chunks={tokens: 24, overlap: 7}")
    assert other.result.reused == ["data", "queries"]
    assert other.record.stage("passages").found > 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.chunks={tokens: 32, overlap: 32}"], "data.chunks.overlap is 32"),
        (["search.aggregate=mean"], "leave it out, or set data.chunks"),
        ([CUT, "index.factory=HNSW8", "search.aggregate=mean"], "choose max or first"),
        ([CUT, "index.shards=2"], "leave out index.shards"),
        ([CUT, "model={backend: precomputed, passages: a.npy, queries: b.npy}"], "leave out data.chunks"),
        (["data.chunks={tokens: 511}"], "1 to 510"),
    ],
)
def test_what_does_not_go_together_is_refused(finished: Path, settings: list[str], said: str) -> None:
    def check() -> None:
        config = load_config(finished / "c.yaml", settings)
        Benchmark(config, Store(finished / "none")).check()

    with pytest.raises(InputError, match=said):
        check()
    assert not (finished / "none").exists()


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
    assert [row[1] for row in table.rows] == ["whole", "24", "24"]
    page = render_page(compared)
    assert '<section id="quality-against-chunk-size">' in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    texts = dict(zip(collection.passages.ids.to_pylist(), collection.passages.texts.to_pylist(), strict=True))
    seen = 0
    for row, results in data["details"].items():
        assert all(len(hit) == 4 for hit in results[0]["top"])  # whole passages
        query = collection.queries.ids.to_pylist().index(data["ids"][int(row)])
        for hit in results[1]["top"]:
            start, stop, excerpt = hit[4]
            name = data["passages"][hit[0]][0]
            document = collection.passages.ids.to_pylist().index(name)
            ranking = made[1].benchmark.opened("search")
            rank = ranking.passages[query].tolist().index(document)
            best = int(made[1].benchmark.ensure("search").array("chunks.npy")[query, rank])
            assert [start, stop] == chunks.places[:, best].tolist()
            assert excerpt == texts[name][start:stop]
            seen += 1
    assert seen >= 100

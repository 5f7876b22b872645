"""Passages that a query's ranking leaves out, `data.ignored`: others take their places, in every kind."""

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings, strategies as st
from layouts import Plain, beir_mteb
from workplaces import config, give_rows, hits, run

from pipeline import run_benchmark, write_collection

IDS = [*"abcdefghijkl", "q0", "q1"]
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
Ranked = dict[str, list[str]]


def write(folder: Path, draw: np.random.Generator) -> dict[str, dict[str, int]]:
    """A small collection in `data`, of which two queries are passages too; returns its judgments."""
    passages = {name: " ".join(draw.choice(WORDS, 8)) for name in IDS}
    queries = {f"q{number}": " ".join(draw.choice(WORDS, 3)) for number in range(4)}
    grades = {
        query: dict(zip(IDS, draw.integers(-1, 3, len(IDS)).tolist(), strict=True)) for query in queries
    }
    write_collection(folder / "data", passages, queries, grades)
    return grades


def ranked(folder: Path) -> Ranked:
    found = defaultdict[str, list[str]](list)
    for query, passage, _ in hits(folder):
        found[query].append(passage)
    return found


def expected(full: Ranked, grades: dict[str, dict[str, int]], ignored: str, top_k: int) -> Ranked:
    """The slow definition: what is not ignored of the whole ranking, cut."""
    dropped = {
        "none": lambda query, passage: False,
        "identical_ids": lambda query, passage: query == passage,
        "negative_grades": lambda query, passage: grades[query][passage] < 0,
    }[ignored]
    left = {query: [each for each in row if not dropped(query, each)] for query, row in full.items()}
    return {query: row[:top_k] for query, row in left.items() if row}


MODELS = {
    "words": "model: {backend: bm25}",
    "chunks": "model: {backend: bm25}; data.chunks={tokens: 3, overlap: 1}",
    "flat": "model: VECTORS",
    "streamed": "model: VECTORS; search.memory_mb=64",
    "int8": "model: VECTORS; model.vector_precision=int8",
    "approximate": "model: VECTORS; index.factory=IVF2,Flat; search.parameters={nprobe: 2}",
    "shards": "model: VECTORS; index.shards=2",
    "sparse": "sparse",
    "multivector": "multivector",
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_fills_the_places_of_what_is_ignored(kind: str, tmp_path: Path) -> None:
    """ArguAna and BRIGHT at a depth that is the cutoff: recall@10 was 0 for 1."""
    draw = np.random.default_rng(0)
    grades = write(tmp_path, draw)
    model, *more = MODELS[kind].split("; ")
    for name, rows in (("p", len(IDS)), ("q", 4)):
        np.save(tmp_path / f"{name}.npy", draw.normal(size=(rows, 8)).astype(np.float32))
    vectors = "{backend: precomputed, passages: p.npy, queries: q.npy, normalize: false}"
    line = "model: {}" if kind == model else model.replace("VECTORS", vectors)
    text = f"name: t\ndata: {{source: beir, path: data}}\n{line}\nevaluate: {{measures: [recall@3]}}\n"
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    if kind == model:
        give_rows(tmp_path, kind)
    full = ranked(run(tmp_path, *more).folder)
    for ignored, top_k in itertools.product(("identical_ids", "negative_grades"), (3, 5)):
        found = run(tmp_path, *more, f"data.ignored={ignored}", f"search.top_k={top_k}", "name=cut").folder
        assert ranked(found) == expected(full, grades, ignored, top_k)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 999),
    top_k=st.integers(1, 8),
    ignored=st.sampled_from(["identical_ids", "negative_grades"]),
)
def test_measures_are_trec_eval_s_of_the_whole_ranking_without_what_is_ignored(
    tmp_path_factory: pytest.TempPathFactory, seed: int, top_k: int, ignored: str
) -> None:
    folder = tmp_path_factory.mktemp("ignored")
    grades = write(folder, np.random.default_rng(seed))
    measures = [f"recall@{top_k}", f"ndcg@{top_k}", f"precision@{top_k}"]
    config: dict[str, Any] = {
        "name": "t", "data": {"source": "beir", "path": str(folder / "data")}, "model": {"backend": "bm25"},
        "output": str(folder / "results"),
        "cache": str(folder / "indexes"), "evaluate": {"measures": measures},
    }  # fmt: skip
    full = ranked(run_benchmark(config).folder)
    config |= {"data": config["data"] | {"ignored": ignored}, "search": {"top_k": top_k}, "name": "cut"}
    result = run_benchmark(config)
    left = expected(full, grades, ignored, len(IDS))
    names = [f"recall_{top_k}", f"ndcg_cut_{top_k}", f"P_{top_k}"]
    run_of = {query: {each: 1.0 / rank for rank, each in enumerate(row, 1)} for query, row in left.items()}
    judged = {query: {each: max(grade, 0) for each, grade in row.items()} for query, row in grades.items()}
    theirs = pytrec_eval.RelevanceEvaluator(judged, set(names)).evaluate(run_of)
    for measure, name in zip(measures, names, strict=True):
        total = sum(each[name] for each in theirs.values()) / len(grades)
        assert result.metrics[measure] == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_arguana_and_quora_of_the_suites_are_scored_as_beir_scores_them(name: str, tmp_path: Path) -> None:
    """BEIR drops a query's own passage of the ranking and keeps k; here search.top_k is the cutoff."""
    draw = np.random.default_rng(len(name))
    texts = {f"{number}-con": " ".join(draw.choice(WORDS, 6)) for number in range(30)}
    queries = {passage: texts[passage] for passage in [*texts][:10]}
    if name == "quora":  # some of whose queries are no passages
        queries |= {f"q{number}": " ".join(draw.choice(WORDS, 3)) for number in range(5)}
    grades = {
        query: dict.fromkeys(draw.choice([each for each in texts if each != query], 2).tolist(), 1)
        for query in queries
    }
    rows = [(query, passage, 1) for query, row in grades.items() for passage in row]
    passages = [(passage, "", text) for passage, text in texts.items()]
    beir_mteb(tmp_path / "data", Plain(passages, [*queries.items()], rows))
    suite = "name: t\ndata: {source: suite, suite: beir}\nmodel: {backend: bm25}\n"
    (tmp_path / "c.yaml").write_text(suite, encoding="utf-8")
    data = config(tmp_path).members[name].data.model_dump(mode="json")
    data |= {"path": str(tmp_path / "data"), "revision": None}
    given = {
        "name": "t", "data": data, "model": {"backend": "bm25"}, "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10", "recall@10"]}, "cache": str(tmp_path / "indexes"),
        "output": str(tmp_path / "results"),
    }  # fmt: skip
    result = run_benchmark(given)
    whole = {**given, "name": "whole", "data": data | {"ignored": "none"}, "search": {"top_k": 1000}}
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for query, passage, score in hits(run_benchmark(whole).folder):
        if query != passage:
            scores[query][passage] = score
    theirs = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut_10", "recall_10"}).evaluate(dict(scores))
    for ours, name_there in (("ndcg@10", "ndcg_cut_10"), ("recall@10", "recall_10")):
        total = sum(theirs[query][name_there] if query in theirs else 0 for query in grades)
        assert result.metrics[ours] == pytest.approx(total / len(grades), abs=1e-9)


def test_rerankers_and_fusion_get_no_passage_that_is_ignored(
    tmp_path: Path, reranking: Any, minilm_folder: Path
) -> None:
    grades = write(tmp_path, np.random.default_rng(1))
    line = "name: t\ndata: {source: beir, path: data}\nmodel: {backend: bm25}\n"
    line += "evaluate: {measures: [recall@4]}\n"
    (tmp_path / "c.yaml").write_text(line, encoding="utf-8")
    full = ranked(run(tmp_path).folder)
    cut = ("data.ignored=negative_grades", "search.top_k=4")
    wanted = expected(full, grades, "negative_grades", 4)
    with reranking.registered():
        reranking.SharedWords.scored.clear()
        named = f"rerank={{backend: shared-words, name: {minilm_folder}, depth: 4}}"
        reranked = ranked(run(tmp_path, *cut, named).folder)
    assert {query: {*row} for query, row in reranked.items()} == {
        query: {*row} for query, row in wanted.items()
    }
    assert len(reranking.SharedWords.scored) == sum(map(len, wanted.values()))
    fuse = "fuse={method: rrf, of: [{model: {backend: bm25}}, {model: {backend: bm25, b: 0.75}}]}"
    assert ranked(run(tmp_path, *cut, "model=null", fuse).folder) == wanted

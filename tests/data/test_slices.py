"""Slices are the same everywhere, and a larger one contains the smaller."""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import beir

from pipeline import compare, evaluate_model
from pipeline.api import describe_data
from pipeline.comparison.gate import gate
from pipeline.config import SOURCES
from pipeline.config.files import as_config
from pipeline.data import identify
from pipeline.data.selection import draw
from pipeline.results.folder import read_result


def ids(made):
    return made.collection.passages.ids.to_pylist()


def test_first_queries_are_the_first_judged_ones(tmp_path, plain, loaded):
    config = beir(tmp_path / "c", plain).model_copy(update={"queries": 2})
    made = loaded(config)
    assert made.collection.queries.ids.to_pylist() == ["q0", "q1"]
    assert made.facts["outside_slice"] == {"queries": 1, "judgments": 1, "passages": 0}


def test_corpus_slice_keeps_the_judged_passages_of_the_kept_queries(tmp_path, plain, write_layout, loaded):
    base = write_layout(tmp_path / "c", plain)
    chosen = loaded(base.model_copy(update={"queries": 1, "corpus": 5}))
    assert {"p0", "p1"} <= set(ids(chosen))
    assert len(ids(chosen)) == 5
    assert ids(chosen) == sorted(ids(chosen), key=lambda name: int(name[1:]))  # in the corpus' own order


def test_rest_is_drawn_by_a_keyed_hash_of_the_id(tmp_path, plain, loaded):
    config = beir(tmp_path / "c", plain).model_copy(update={"queries": 1, "corpus": 5})
    rest = [name for name, _, _ in plain.passages if name not in ("p0", "p1")]
    rest.sort(key=lambda name: hashlib.blake2b(name.encode(), digest_size=8, key=b"benchmarco").digest())
    assert set(ids(loaded(config))) == {"p0", "p1", *rest[:3]}


def test_a_larger_slice_contains_the_smaller(dl19, loaded):
    def slice_of(size):
        return set(ids(loaded(SOURCES.make(source="beir", path=str(dl19), queries=5, corpus=size))))

    small, middle, large = slice_of(1000), slice_of(1001), slice_of(5000)
    assert (len(small), len(middle), len(large)) == (1000, 1001, 5000)
    assert small < middle < large


def test_slice_below_the_judged_passages_keeps_them_all(dl19, loaded):
    made = loaded(SOURCES.make(source="beir", path=str(dl19), queries=5, corpus=10))
    assert made.facts["judgments"] == 481
    assert made.facts["passages"] == 481


def test_slice_above_the_corpus_is_the_corpus(tmp_path, plain, loaded):
    config = beir(tmp_path / "c", plain)
    whole, sliced = loaded(config), loaded(config.model_copy(update={"corpus": 100}))
    assert sliced.facts == whole.facts


def test_identity_of_a_slice(tmp_path, plain):
    base = beir(tmp_path / "c", plain)
    whole = identify(base)
    queries = identify(base.model_copy(update={"queries": 2}))
    corpus = identify(base.model_copy(update={"corpus": 5}))
    both = identify(base.model_copy(update={"queries": 2, "corpus": 5}))
    assert queries.passages == whole.passages  # the corpus is the same whatever is asked
    assert queries.queries != whole.queries
    assert corpus.queries == whole.queries  # all judged passages stay, so no query is lost
    assert len({str(identity.passages) for identity in (whole, corpus, both)}) == 3
    assert len({str(identity.qrels) for identity in (whole, queries, corpus, both)}) == 4


@given(st.text(), st.text())
def test_draw_is_a_function_of_the_id_alone(one, other):
    assert draw(one) == draw(one)
    assert 0 <= draw(one) < 2**64
    assert (draw(one) == draw(other)) == (one == other)


class Hashing:
    """A dense model: unit vectors drawn with a hash of the text and a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def encode(self, texts: list[str]) -> np.ndarray:
        drawn = [np.random.default_rng([self.seed, *text.encode()]).normal(size=16) for text in texts]
        return np.array(drawn, np.float32)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """Two systems on 400 passages, by name; and how to run them on a slice."""
    folder = tmp_path_factory.mktemp("pooled")
    (folder / "c" / "qrels").mkdir(parents=True)
    passages = [f'{{"_id": "p{n}", "text": "passage {n}"}}\n' for n in range(400)]
    queries = [f'{{"_id": "q{n}", "text": "query {n}"}}\n' for n in range(30)]
    judged = [f"q{n}\tp{7 * n + k}\t{k % 3}\n" for n in range(30) for k in range(6)]
    (folder / "c" / "corpus.jsonl").write_text("".join(passages))
    (folder / "c" / "queries.jsonl").write_text("".join(queries))
    (folder / "c" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))

    def run(name, seed, corpus=None):
        data = {"source": "beir", "path": str(folder / "c"), "corpus": corpus}
        config = {
            "name": name, "data": data, "search": {"top_k": 30},
            "evaluate": {"measures": ["ndcg@10", "map@30"]},
            "cache": str(folder / "indexes"), "output": str(folder / "results"),
        }  # fmt: skip
        return evaluate_model(config, Hashing(seed))

    return folder, run, {"a": run("a", 1), "b": run("b", 2)}


def values(result):
    return read_result(result.folder).values


def test_a_pooled_slice_is_exact_for_the_systems_that_chose_it_and_flags_others(pooled):
    _, run, whole = pooled
    corpus = {"top": 10, "of": [str(whole["a"].folder)], "random": 5}
    inside, outside = run("s-a", 1, corpus), run("s-b", 2, corpus)
    assert 150 < inside.record.passages < 400
    assert inside.record.slice.model_dump() == {
        "passages": inside.record.passages, "of": 400, "top": 10, "nearest": "a", "shared": 1.0,
    }  # fmt: skip
    assert (values(inside)[:, 0] == values(whole["a"])[:, 0]).all()
    # what is left out is not relevant, so nothing can fall
    assert (values(inside) >= values(whole["a"])).all()
    assert (values(outside) >= values(whole["b"])).all()
    assert (values(outside) > values(whole["b"])).any()
    assert not outside.record.slice.in_pool
    comparison = compare([inside, outside])
    notes = " ".join(comparison.notes)
    assert "s-a: slice" in notes
    assert "s-b: slice" in notes
    assert "s-b: slice" in " ".join(gate(outside, inside).tables()[0].notes)
    assert "not chosen by this ranking" in outside.tables()[0].notes[-3]


def test_description_says_what_a_slice_holds(pooled):
    _, _, whole = pooled
    folder = whole["a"].folder.parent.parent
    data = {
        "source": "beir",
        "path": str(folder / "c"),
        "corpus": {"top": 4, "of": [str(whole["a"].folder), str(whole["b"].folder / "run.trec")]},
    }
    config = as_config(
        {"name": "s", "data": data, "model": {"backend": "bm25"}, "cache": str(folder / "indexes")}
    )
    (found,) = describe_data([config]).values()
    tops = {}
    for name, result in whole.items():
        lines = [line.split() for line in (result.folder / "run.trec").read_text().splitlines()]
        tops[name] = {line[2] for line in lines if int(line[3]) <= 4}
    judged = {f"p{7 * n + k}" for n in range(30) for k in range(6)}
    assert found["slice"] == {
        "passages": len(judged | tops["a"] | tops["b"]),
        "of": 400,
        "judged": len(judged),
        "judged_of": len(judged),
        "top": 4,
        "pool": [
            {"passages": len(tops["a"]), "alone": len(tops["a"] - tops["b"] - judged), "name": "a"},
            {"passages": len(tops["b"]), "alone": len(tops["b"] - tops["a"] - judged), "name": "b"},
        ],
    }


def test_a_pooled_slice_is_keyed_by_the_rankings_and_not_their_paths(pooled, tmp_path):
    folder, _, whole = pooled
    run = whole["a"].folder / "run.trec"
    shutil.copy(run, tmp_path / "copy.trec")
    (tmp_path / "other.trec").write_text(run.read_text().replace(" 30 ", " 31 ", 1))

    def of(**corpus):
        given = {"top": 5, "of": [str(run)], **corpus}
        return str(identify(SOURCES.make(source="beir", path=str(folder / "c"), corpus=given)))

    assert of(of=[str(tmp_path / "copy.trec")]) == of() == of(of=[str(whole["a"].folder)])
    others = [of(top=6), of(of=[str(tmp_path / "other.trec")]), of(random=1), of(random=1, seed=1)]
    assert len({of(), *others}) == 5

"""Slices are the same everywhere, and a larger one contains the smaller."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st
from layouts import beir

from pipeline.config import SOURCES
from pipeline.data import identify
from pipeline.data.selection import draw


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

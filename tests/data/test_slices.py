"""Slices are the same everywhere, and a larger one contains the smaller."""

import hashlib
import shutil

import numpy as np
import pytest
from layouts import beir

from pipeline import compare, evaluate_model, write_collection
from pipeline.api import describe_data
from pipeline.config import SOURCES, as_config
from pipeline.data import identify
from pipeline.results import read_result
from pipeline.studies.gate import gate_result


def test_first_queries_are_the_first_judged_ones(tmp_path, plain, loaded):
    config = beir(tmp_path / "c", plain).model_copy(update={"queries": 2})
    made = loaded(config)
    assert list(made.queries) == ["q0", "q1"]
    assert made.facts["outside_slice"] == {"queries": 1, "judgments": 1, "passages": 0}


def test_a_slice_is_what_is_judged_and_the_rest_by_a_keyed_hash_of_the_id(tmp_path, plain, loaded):
    base = beir(tmp_path / "c", plain)
    rest = [name for name, _, _ in plain.passages if name not in ("p0", "p1")]
    rest.sort(key=lambda name: hashlib.blake2b(name.encode(), digest_size=8, key=b"benchmarco").digest())
    for size, drawn in ((1, 0), (5, 3), (6, 4), (100, 10)):  # a larger one contains the smaller
        made = loaded(base.model_copy(update={"queries": 1, "corpus": size}))
        assert set(made.passages) == {"p0", "p1", *rest[:drawn]}
        assert list(made.passages) == sorted(made.passages, key=lambda name: int(name[1:]))
        assert made.facts["judgments"] == 2
    whole = loaded(base.model_copy(update={"corpus": 100}))
    assert whole.facts == loaded(base).facts


class Hashing:
    """A dense model: unit vectors drawn with a hash of the text and a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def encode(self, texts: list[str]) -> np.ndarray:
        drawn = [np.random.default_rng([self.seed, *text.encode()]).normal(size=16) for text in texts]
        return np.array(drawn, np.float32)


COUNTS = {"passage": 400, "query": 30}
JUDGED = {f"q{n}": {f"p{7 * n + k}": k % 3 for k in range(6)} for n in range(30)}


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """Two systems on 400 passages, by name; and how to run them on a slice."""
    folder = tmp_path_factory.mktemp("pooled")
    texts = ({f"{role[0]}{n}": f"{role} {n}" for n in range(count)} for role, count in COUNTS.items())
    whole = write_collection(folder / "c", *texts, JUDGED)

    def run(name, seed, corpus=None):
        config = {
            "name": name, "data": {**whole, "corpus": corpus}, "search": {"top_k": 30},
            "evaluate": {"measures": ["ndcg@10", "map@30"]},
            "cache": str(folder / "indexes"), "output": str(folder / "results"),
        }  # fmt: skip
        return evaluate_model(config, Hashing(seed))

    return folder, run, {"a": run("a", 1), "b": run("b", 2)}


def values(result):
    return read_result(result.folder).only_collection().values


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
    notes = " ".join(compare([inside, outside]).notes)
    assert "s-a: slice" in notes
    assert "s-b: slice" in notes
    assert "s-b: slice" in " ".join(gate_result(outside, inside).tables()[0].notes)
    assert "not chosen by this ranking" in outside.tables()[0].notes[-3]


def test_description_says_what_a_slice_holds(pooled):
    _, _, whole = pooled
    folder = whole["a"].folder.parent.parent
    of = [str(whole["a"].folder), str(whole["b"].folder / "run.trec")]
    data = {"source": "beir", "path": str(folder / "c"), "corpus": {"top": 4, "of": of}}
    model = {"backend": "bm25"}
    config = as_config({"name": "s", "data": data, "model": model, "cache": str(folder / "indexes")})
    (found,) = describe_data([config]).values()
    tops = {}
    for name, result in whole.items():
        lines = [line.split() for line in (result.folder / "run.trec").read_text().splitlines()]
        tops[name] = {line[2] for line in lines if int(line[3]) <= 4}
    judged = {passage for grades in JUDGED.values() for passage in grades}
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

    def of(ranking):
        corpus = {"top": 5, "of": [str(ranking)]}
        return identify(SOURCES.make(source="beir", path=str(folder / "c"), corpus=corpus))

    assert of(tmp_path / "copy.trec") == of(run) == of(whole["a"].folder)
    assert of(tmp_path / "other.trec") != of(run)

"""Slices that rankings choose: what they hold, and what they do to measures."""

import json

import numpy as np
import pytest
from workplaces import benchmarco

from pipeline import InputError, compare, evaluate_model, write_collection
from pipeline.config import as_config
from pipeline.results import read_result
from pipeline.studies.collection import describe_data
from pipeline.studies.gate import gate_result
from pipeline.studies.slices import write_slice


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

    def run(name, seed, data=whole):
        config = {
            "name": name, "data": data, "search": {"top_k": 30},
            "evaluate": {"measures": ["ndcg@10", "map@30"]},
            "cache": str(folder / "indexes"), "output": str(folder / "results"),
        }  # fmt: skip
        return evaluate_model(config, Hashing(seed))

    return folder, run, {"a": run("a", 1), "b": run("b", 2)}


def values(result):
    return read_result(result.folder).only_collection().values


def config_of(folder, **data):
    data = {"source": "beir", "path": str(folder / "c"), **data}
    return {"name": "s", "data": data, "model": {"backend": "bm25"}, "cache": str(folder / "indexes")}


def test_a_slice_is_exact_for_the_systems_that_chose_it_and_flags_others(pooled, tmp_path):
    folder, run, whole = pooled
    made = write_slice(as_config(config_of(folder)), [whole["a"].folder], tmp_path / "c", top=10, random=5)
    data = {"source": "beir", "path": str(tmp_path / "c")}
    inside, outside = run("s-a", 1, data), run("s-b", 2, data)
    assert 150 < inside.record.passages < 400
    assert (made.passages, made.of) == (inside.record.passages, 400)
    assert (values(inside)[:, 0] == values(whole["a"])[:, 0]).all()
    # what is left out is not relevant, so nothing can fall
    assert (values(inside) >= values(whole["a"])).all()
    assert (values(outside) >= values(whole["b"])).all()
    assert (values(outside) > values(whole["b"])).any()
    note = f"slice: {made.passages} of 400 passages; measures to rank 10 are those of all passages for"
    assert note in " ".join(compare([inside, outside]).notes)
    assert note in " ".join(gate_result(outside, inside).tables()[0].notes)
    assert any(line.startswith(note) for line in outside.tables()[0].notes)


def test_the_command_says_what_each_ranking_chose(pooled, tmp_path):
    folder, _, whole = pooled
    (tmp_path / "c.yaml").write_text(json.dumps(config_of(folder)), encoding="utf-8")
    rankings = [whole["a"].folder, whole["b"].folder / "run.trec"]
    command = ["slice", tmp_path / "c.yaml", *rankings, "--top", "4", "--random", "7"]
    told = json.loads(benchmarco(*command, "--output", tmp_path / "few", "--json").stdout)
    tops = {}
    for name, result in whole.items():
        lines = [line.split() for line in (result.folder / "run.trec").read_text().splitlines()]
        tops[name] = {line[2] for line in lines if int(line[3]) <= 4}
    judged = {passage for grades in JUDGED.values() for passage in grades}
    chosen = judged | tops["a"] | tops["b"]
    kept = [json.loads(line)["_id"] for line in (tmp_path / "few" / "corpus.jsonl").open(encoding="utf-8")]
    assert chosen < set(kept)
    assert len(set(kept)) == len(kept) == len(chosen) + 7
    assert told == {
        "passages": len(kept), "of": 400, "judged": len(judged),
        "rankings": [
            {"name": "a", "passages": len(tops["a"]), "alone": len(tops["a"] - tops["b"] - judged)},
            {"name": "b", "passages": len(tops["b"]), "alone": len(tops["b"] - tops["a"] - judged)},
        ],
        "output": str(tmp_path / "few"),
    }  # fmt: skip
    again = benchmarco(*command, "--output", tmp_path / "few", code=2).stderr
    assert "--output" in again
    shown = benchmarco(*command, "--output", tmp_path / "other").stdout
    assert f"{len(kept)} of 400 passages" in shown
    assert (tmp_path / "other" / "corpus.jsonl").read_bytes() == (
        tmp_path / "few" / "corpus.jsonl"
    ).read_bytes()


def test_rankings_of_another_collection_and_slices_of_slices_are_refused(pooled, tmp_path):
    folder, _, whole = pooled
    config = as_config(config_of(folder))
    for line, said in (
        ("z Q0 p1 1 1 t", "none of the 30 queries"),
        ("q1 Q0 z 1 1 t", "none of the 400 passages"),
    ):
        (tmp_path / "other.trec").write_text(line + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=said):
            write_slice(config, [tmp_path / "other.trec"], tmp_path / "new", top=3)
    with pytest.raises(InputError, match="there is no file"):
        write_slice(config, [tmp_path / "absent"], tmp_path / "new", top=3)
    with pytest.raises(InputError, match="is a slice already"):
        write_slice(as_config(config_of(folder, corpus=50)), [whole["a"].folder], tmp_path / "new", top=3)
    assert not (tmp_path / "new").exists()


def test_description_says_how_much_a_slice_of_n_passages_holds(pooled):
    folder, *_ = pooled
    (found,) = describe_data([as_config(config_of(folder, corpus=250))]).values()
    judged = {passage for grades in JUDGED.values() for passage in grades}
    assert found["slice"] == {"passages": 250, "of": 400, "judged": len(judged), "judged_of": len(judged)}

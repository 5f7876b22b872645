"""`evaluate.cluster`: queries of one cluster are one draw, in a result, a comparison and a gate."""

import json
import shutil
from pathlib import Path

import pytest
from comparison.made import config
from workplaces import read_json

from pipeline import InputError, compare, run_benchmark
from pipeline.results import Result
from pipeline.studies.gate import gate_result
from pipeline.studies.groups import groups_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The sample, whose queries name a document: three have the same, and the last has none."""
    folder = tmp_path_factory.mktemp("clusters")
    shutil.copytree(root / "pipeline/data/sample", folder / "data")
    lines = (folder / "data/queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line) | {"document": number // 3} for number, line in enumerate(lines)]
    queries[-1]["document"] = None
    written = "\n".join(map(json.dumps, [query | {"tags": []} for query in queries]))
    (folder / "data/queries.jsonl").write_text(written, encoding="utf-8")
    return folder


def ran(place: Path, name: str, cluster: str | None = "document", k1: float = 0.9) -> Result:
    sections = {
        "model": {"backend": "bm25", "k1": k1},
        "evaluate": {"measures": ["ndcg@10", "mrr@10"], "cluster": cluster},
    }
    data = {"source": "beir", "path": str(place / "data")}
    return run_benchmark(config(place, name, data=data, **sections))


@pytest.fixture(scope="module")
def drawn(place: Path) -> list[Result]:
    return [ran(place, "drawn"), ran(place, "other", k1=2.5)]


@pytest.fixture(scope="module")
def apart(place: Path) -> list[Result]:
    return [ran(place, "apart", None), ran(place, "other-apart", None, k1=2.5)]


def test_means_stay_and_intervals_are_of_clusters(drawn: list[Result], apart: list[Result]) -> None:
    record = read_json(drawn[0].folder / "metrics.json")
    assert record["clusters"][:4] == ["0", "0", "0", "1"]
    assert record["clusters"][-1] is None
    assert record["metrics"] == apart[0].metrics
    assert "clusters" not in read_json(apart[0].folder / "metrics.json")
    assert drawn[0].collections[0].values.tolist() == apart[0].collections[0].values.tolist()
    assert record["intervals"] != {k: list(v) if v else v for k, v in apart[0].record.intervals.items()}
    assert "the queries are in 39 clusters" not in str(apart[0])
    assert "the queries are in 39 clusters" in str(drawn[0])


def test_comparisons_and_gates_draw_clusters(drawn: list[Result], apart: list[Result]) -> None:
    (by_cluster,), (by_query,) = compare(drawn).pairs, compare(apart).pairs
    assert by_cluster.difference == pytest.approx(by_query.difference)
    assert (by_cluster.wins, by_cluster.ties) == (by_query.wins, by_query.ties)
    assert by_cluster.p_ttest != by_query.p_ttest
    gated, alone = (gate_result(*results).measures[0] for results in (drawn, apart))
    assert gated.detectable > alone.detectable  # by the spread of 39 means
    assert gated.p > alone.p
    assert gated.queries == alone.queries


def test_what_does_not_fit_is_refused(place: Path, drawn: list[Result], apart: list[Result]) -> None:
    with pytest.raises(InputError, match="drawn and apart have other clusters of queries"):
        compare([drawn[0], apart[0]])
    with pytest.raises(InputError, match=r"--groups with evaluate\.cluster"):
        groups_of(compare(drawn))
    with pytest.raises(InputError, match=r"no query of .* has a field documnet"):
        ran(place, "t", "documnet")
    with pytest.raises(InputError, match="column 'tags' holds list"):
        ran(place, "t", "tags")
    (place / "ms").mkdir()
    for name, line in (("collection", "1\ttext"), ("queries.test", "1\ttext"), ("qrels.test", "1\t0\t1\t1")):
        (place / f"ms/{name}.tsv").write_text(f"{line}\n")
    data = {"source": "msmarco", "path": str(place / "ms")}
    with pytest.raises(InputError, match=r"evaluate\.cluster: text with data\.source: msmarco"):
        run_benchmark(config(place, "t", data=data, evaluate={"measures": ["mrr@10"], "cluster": "text"}))

"""Results in groups of queries: which groups there are, and that one made worse on purpose is found."""

import json
import random
import shutil
from pathlib import Path

import pytest
from comparison.made import config
from workplaces import benchmarco, document, read_json, seal

from pipeline import InputError, compare, run_benchmark
from pipeline.comparison import Comparison
from pipeline.studies.groups import groups_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Two results on the sample: in the second, the words of some of the queries are shuffled.

    These are the queries of one cluster that BM25 does well, and their words are shuffled among them all.
    """
    folder = tmp_path_factory.mktemp("groups")
    shutil.copytree(root / "pipeline/data/sample", folder / "data")

    def run(name: str, data: str) -> Path:
        beir = {"source": "beir", "path": str(folder / data)}
        return run_benchmark(config(folder, name, data=beir)).folder

    found = groups_of(compare([run("whole", "data")]))
    large = [group for group in found.groups if group.by == "cluster" and len(group.query_ids) >= 20]
    chosen = max(large, key=lambda group: group.means[0].mean)
    (folder / "chosen.json").write_text(json.dumps([chosen.name, chosen.query_ids]), encoding="utf-8")
    shutil.copytree(folder / "data", folder / "shuffled")
    lines = (folder / "data/queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = list(map(json.loads, lines))
    mine = [query for query in queries if query["_id"] in chosen.query_ids]
    words = [word for query in mine for word in query["text"].split()]
    random.Random(0).shuffle(words)
    for query in mine:
        query["text"] = " ".join(words.pop() for _ in query["text"].split())
    (folder / "shuffled/queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    run("worse", "shuffled")
    return folder


@pytest.fixture(scope="module")
def compared(place: Path) -> Comparison:
    return compare([place / "results/whole", place / "results/worse"], "ndcg@10")


def test_a_cluster_that_was_made_worse_is_found(place: Path, compared: Comparison) -> None:
    name, ids = read_json(place / "chosen.json")
    ((group, difference),) = [each for each in groups_of(compared).found if each[0].by == "cluster"]
    assert (group.name, sorted(group.query_ids)) == (name, sorted(ids))
    assert difference.difference > 0.4
    assert difference.rest == 0
    assert difference.p_holm < 0.05
    assert difference.p_rest_maxt < 0.05
    results = (place / "results/whole", place / "results/worse")
    shown = benchmarco("compare", *results, "--groups", "--html", place / "page.html").stdout
    page = (place / "page.html").read_text(encoding="utf-8")
    assert "Where they differ" in page
    assert page.count(name) >= 2
    assert "where ndcg@10 differs" in shown
    assert name in shown


def test_every_grouping_holds_every_query_once(compared: Comparison) -> None:
    by = {group.by for group in groups_of(compared).groups}
    assert by == {"cluster", "length", "overlap"}
    for each in by:
        groups = [group for group in groups_of(compared).groups if group.by == each]
        assert sorted(query for group in groups for query in group.query_ids) == sorted(compared.query_ids)
        assert len({group.name for group in groups}) == len(groups) <= 8
        for group in groups:
            rows = [compared.query_ids.index(query) for query in group.query_ids]
            means = [mean.mean for mean in group.means]
            assert means == pytest.approx(compared.values[rows].mean(axis=0))
    written = json.loads(json.dumps(groups_of(compared).json()))["groups"][0]
    assert {"by", "name", "query_ids", "means", "differences"} == set(written)


def test_commands_show_groups_when_asked_and_where_the_collection_is_there(
    place: Path, tmp_path: Path
) -> None:
    whole = place / "results/whole"
    assert "groups" not in document("compare", whole)
    benchmarco("compare", whole, "--groups", "--format", "csv", code=2)
    moved = Path(shutil.copytree(whole, tmp_path / "whole"))
    manifest = read_json(moved / "manifest.json")
    manifest["cache"] = manifest["config"]["cache"] = str(tmp_path / "nowhere")
    (moved / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    seal(moved)
    with pytest.raises(InputError, match="is not in its cache"):
        groups_of(compare([moved]))
    benchmarco("compare", moved, "--groups", code=2)
    page = tmp_path / "page.html"
    for folder, more, shown in ((whole, [], True), (whole, ["--no-groups"], False), (moved, [], False)):
        benchmarco("report", folder, "--html", page, *more)
        assert ("Where it is weak" in page.read_text(encoding="utf-8")) == shown


def test_clusters_are_of_the_vectors_of_the_queries_where_there_are_any(finished: Path) -> None:
    found = groups_of(compare([finished / "results/t"]))
    assert "k-means over the vectors of the queries" in found.notes[0]

"""Results in groups of queries: which groups there are, and that one made worse on purpose is found."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.api import run_benchmark
from pipeline.cli import app
from pipeline.comparison.side_by_side import Comparison, compare
from pipeline.config.files import load_config
from pipeline.core.errors import InputError
from pipeline.report.page.render import render_page
from pipeline.results.cached import find_query_vectors
from pipeline.results.folder import read_result

CONFIG = """
name: whole
data: {source: beir, path: data}
model: {backend: bm25}
search: {top_k: 20}
evaluate: {measures: [ndcg@10]}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Two results on the sample: in the second, the words of a tenth of the queries are shuffled.

    These are the queries of one cluster that BM25 does well, and their words are shuffled among them all.
    """
    folder = tmp_path_factory.mktemp("groups")
    shutil.copytree(root / "pipeline/data/sample", folder / "data")
    (folder / "c.yaml").write_text(
        CONFIG + f"cache: {folder}/indexes\noutput: {folder}/results\n", encoding="utf-8"
    )
    whole = run_benchmark(load_config(folder / "c.yaml"))
    found = compare([whole.folder]).with_groups().groups
    assert found is not None
    chosen = max(
        (group for group in found.groups if group.by == "cluster" and len(group.query_ids) <= 25),
        key=lambda group: group.means[0].mean,
    )
    (folder / "chosen.json").write_text(json.dumps([chosen.name, chosen.query_ids]), encoding="utf-8")
    shutil.copytree(folder / "data", folder / "worse")
    queries = [json.loads(line) for line in (folder / "data/queries.jsonl").read_text("utf-8").splitlines()]
    mine = [query for query in queries if query["_id"] in chosen.query_ids]
    words = [word for query in mine for word in query["text"].split()]
    random.Random(0).shuffle(words)
    for query in mine:
        query["text"] = " ".join(words.pop() for _ in query["text"].split())
    lines = "".join(json.dumps(query) + "\n" for query in queries)
    (folder / "worse/queries.jsonl").write_text(lines, encoding="utf-8")
    run_benchmark(load_config(folder / "c.yaml", [f"data.path={folder / 'worse'}", "name=worse"]))
    return folder


@pytest.fixture(scope="module")
def compared(place: Path) -> Comparison:
    return compare([place / "results/whole", place / "results/worse"], "ndcg@10").with_groups()


def test_a_cluster_that_was_made_worse_is_found(place: Path, compared: Comparison) -> None:
    name, ids = json.loads((place / "chosen.json").read_text(encoding="utf-8"))
    assert compared.groups is not None
    found = {group.by: (group, difference) for group, difference in compared.groups.found}
    assert "cluster" in found
    for group, difference in [found["cluster"]]:
        assert sorted(group.query_ids) == sorted(ids)
        assert difference.difference > 0.4
        assert difference.rest == 0
        assert difference.p_holm is not None
        assert difference.p_holm < 0.05
        assert difference.p_rest_maxt is not None
        assert difference.p_rest_maxt < 0.05
    assert found["cluster"][0].name == name
    page = render_page(compared)
    assert "Where they differ" in page
    assert page.count(name) >= 2


def test_every_grouping_holds_every_query_once(compared: Comparison) -> None:
    assert compared.groups is not None
    by = {group.by for group in compared.groups.groups}
    assert by == {"cluster", "length", "overlap"}
    for each in by:
        groups = [group for group in compared.groups.groups if group.by == each]
        assert sorted(query for group in groups for query in group.query_ids) == sorted(compared.query_ids)
        assert len({group.name for group in groups}) == len(groups) <= 8
        for group in groups:
            rows = [compared.query_ids.index(query) for query in group.query_ids]
            means = [mean.mean for mean in group.means]
            assert means == pytest.approx(compared.values[rows].mean(axis=0))


def test_the_command_shows_groups_when_asked(place: Path) -> None:
    folders = [str(place / "results" / name) for name in ("whole", "worse")]
    name, _ = json.loads((place / "chosen.json").read_text(encoding="utf-8"))
    plain = CliRunner().invoke(app, ["compare", *folders, "--json"])
    assert "groups" not in json.loads(plain.stdout)
    shown = CliRunner().invoke(app, ["compare", *folders, "--groups"])
    assert shown.exit_code == 0
    assert "where ndcg@10 differs" in shown.stdout
    assert name in shown.stdout
    as_json = json.loads(CliRunner().invoke(app, ["compare", *folders, "--groups", "--json"]).stdout)
    assert {"by", "name", "query_ids", "means", "differences"} == set(as_json["groups"]["groups"][0])
    assert CliRunner().invoke(app, ["compare", *folders, "--groups", "--format", "csv"]).exit_code == 2
    page = place / "one.html"
    assert CliRunner().invoke(app, ["report", folders[0], "--html", str(page)]).exit_code == 0
    assert "Where it is weak" in page.read_text(encoding="utf-8")
    CliRunner().invoke(app, ["report", folders[0], "--html", str(page), "--no-groups"])
    assert "Where it is weak" not in page.read_text(encoding="utf-8")


def test_without_the_collection_groups_are_refused_and_a_page_goes_without(
    place: Path, tmp_path: Path
) -> None:
    result = Path(shutil.copytree(place / "results/whole", tmp_path / "whole"))
    manifest = json.loads((result / "manifest.json").read_text(encoding="utf-8"))
    manifest["config"]["cache"] = str(tmp_path / "nowhere")
    (result / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match="is not in its cache"):
        compare([result]).with_groups()
    page = CliRunner().invoke(app, ["report", str(result), "--html", str(tmp_path / "page.html")])
    assert page.exit_code == 0
    assert CliRunner().invoke(app, ["compare", str(result), "--groups"]).exit_code == 2


def test_clusters_are_of_the_vectors_of_the_queries_where_there_are_any(finished: Path) -> None:
    vectors = find_query_vectors(read_result(finished / "results/t").manifest)
    assert vectors is not None
    assert vectors.shape == (114, 128)
    found = compare([finished / "results/t"]).with_groups().groups
    assert found is not None
    assert "k-means over the vectors of the queries" in found.notes[0]

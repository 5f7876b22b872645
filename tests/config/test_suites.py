"""Configs of several collections, and the files that list those of a suite."""

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from pipeline import InputError, load_config
from pipeline.config import file_schema

LISTED = """
name: two
data:
  queries: 5
  collections:
    small: {source: sample, queries: 3}
    whole: {source: sample, missing_passages: drop}
model: {backend: bm25}
output: there
"""
FILE = """
description: two tasks
main_measure: ndcg@10
collections:
  facts: {data: {source: sample}, query_instruction: Find a fact, group: all}
  other: {data: {source: beir, path: there}, query_instruction: Find another, main_measure: map, queries: 9}
"""
TASKS = "model={backend: flag, name: all-minilm-l6-v2, query_instruction: 'Task: {task} '}"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    (tmp_path / "tasks.yaml").write_text(FILE, encoding="utf-8")
    path = tmp_path / "c.yaml"
    path.write_text(LISTED, encoding="utf-8")
    return path


def test_every_collection_is_a_benchmark_with_the_suites_other_sections(config: Path) -> None:
    suite = load_config(config)
    small, whole = suite.members.values()
    assert (small.name, small.output, small.data.queries) == ("small", "there/two", 3)
    assert (whole.data.queries, whole.data.missing_passages) == (5, "drop")
    assert small.model == whole.model == suite.model
    assert (small.data.source, small.members, small.suite) == ("sample", {}, None)


def test_settings_beside_collections_hold_for_those_that_do_not_set_them(config: Path) -> None:
    given = "data={collections: {one: {source: sample}, own: {source: sample, ignored: negative_grades}}, "
    given += "ignored: identical_ids, title_separator: null, chunks: {tokens: 50, overlap: 0}}"
    one, own = load_config(config, [given]).members.values()
    assert (one.data.ignored, own.data.ignored) == ("identical_ids", "negative_grades")
    assert one.data.title_separator is own.data.title_separator is None
    assert [each.data.chunks and each.data.chunks.tokens for each in (one, own)] == [50, 50]


def test_chunks_of_one_collection_must_fit_the_index_and_the_search(config: Path) -> None:
    chunks = "chunks: {tokens: 50, overlap: 0}"
    given = f"data={{collections: {{cut: {{source: sample, {chunks}}}, whole: {{source: sample}}}}}}"
    cut, whole = load_config(config, [given, "search.aggregate=mean"]).members.values()
    assert cut.data.chunks
    assert whole.data.chunks is None
    dense = "model={backend: native, name: all-minilm-l6-v2}"
    with pytest.raises(InputError, match="searched in one index"):
        load_config(config, [given, dense, "index.shards=2"])


def test_a_file_lists_collections_and_what_each_is_run_with(config: Path) -> None:
    suite = load_config(config, ["data={suite: ./tasks.yaml, queries: 2}", TASKS])
    facts, other = suite.members.values()
    assert facts.model is not None
    assert other.model is not None
    asked = [facts.model.query_instruction, other.model.query_instruction]
    assert asked == ["Task: Find a fact ", "Task: Find another "]
    assert other.evaluate.measures == (*facts.evaluate.measures, "map")
    assert other.data.path == str(config.parent / "there")  # from the folder of the suite's file
    assert suite.suite is not None
    listed = suite.suite.collections
    assert (listed["facts"].group, listed["other"].queries) == ("all", 9)
    assert suite.suite.measure_of("other") == "map"


def test_the_schema_has_both_forms_and_demands_one() -> None:
    raw, schema = yaml.safe_load(LISTED), Draft202012Validator(file_schema())
    for data in (raw["data"], {"suite": "beir"}, {"source": "sample"}):
        assert schema.is_valid({**raw, "data": data})
    assert not schema.is_valid({**raw, "data": {"queries": 3}})


def test_tasks_reach_every_retriever_that_is_joined_and_the_reranker(config: Path) -> None:
    part = "{model: {backend: flag, name: all-minilm-l6-v2, query_instruction: '{task}: '}}"
    fused = ["model=null", f"fuse={{of: [{part}, {{model: {{backend: bm25}}}}]}}"]
    made = load_config(config, ["data={suite: ./tasks.yaml}", *fused])
    parts = [member.parts[0].model for member in made.members.values()]
    assert [getattr(part, "query_instruction", None) for part in parts] == ["Find a fact: ", "Find another: "]

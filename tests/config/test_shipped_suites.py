"""The suites that come with the package."""

import re
from pathlib import Path

import pytest
from workplaces import benchmarco, document

from pipeline import load_config
from pipeline.config import read_suite, suite_names
from pipeline.metrics import parse_measures

UNPINNED = "air-bench"  # read at the newest commit
COUNTS = {"beir": (26, 15), "nanobeir": (13, 13), "miracl": (18, 18), "mldr": (13, 13), "bright": (12, 12),
          "bright-long": (8, 8), "msmarco": (3, 3), "mteb-english": (10, 10), "mteb-multilingual": (532, 18),
          "air-bench": (58, 58)}  # fmt: skip
"""For each suite its collections, and how many numbers its mean is taken over."""


def test_every_suite_is_known_here() -> None:
    assert set(suite_names()) == set(COUNTS)


@pytest.mark.parametrize("name", suite_names())
def test_a_shipped_suite_loads(name: str, tmp_path: Path) -> None:
    suite = read_suite(name)
    assert suite.description
    assert (len(suite.collections), suite.counted_as) == COUNTS[name]
    for collection, each in suite.collections.items():
        measure = suite.measure_of(collection)
        assert suite.license_of(collection)
        assert [str(parsed) for parsed in parse_measures([measure])] == [measure]
        unknown = each.group == "MLQARetrieval"  # MTEB states some of its sizes
        assert unknown or min(each.passages or 0, each.queries or 0) > 0, collection
        revision = getattr(each.data, "revision", None)
        assert re.fullmatch(r"[0-9a-f]{40}", revision or "") if name != UNPINNED else revision is None
    config = tmp_path / "c.yaml"
    config.write_text(f"name: t\ndata: {{suite: {name}}}\nmodel: {{backend: bm25}}\n", encoding="utf-8")
    assert list(load_config(config).members) == list(suite.collections)


def test_the_lists_that_people_read() -> None:
    every = benchmarco("suites").stdout
    assert "10 suites" in every
    assert "106,332,152" in every
    assert "3,238,230+" in every
    one = benchmarco("suites", "beir").stdout
    assert one.count("\ncqadupstack-") == 12
    assert "The mean is over 15" in one
    found = document("suites", "msmarco")
    measures = {each["name"]: each["main_measure"] for each in found["collections"]}
    assert measures == {"dev": "mrr@10", "dl19": "ndcg@10", "dl20": "ndcg@10"}
    assert found["queries"] == 6980 + 43 + 54

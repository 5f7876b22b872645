"""The same collection in every layout is the same collection."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
from layouts import beir

from pipeline.api import run_benchmark
from pipeline.config import BACKENDS, SOURCES, Config
from pipeline.data import identify

RELEASE = version("ir_datasets")


def test_every_layout_gives_the_collection(tmp_path, plain, write_layout, loaded):
    config = write_layout(tmp_path / "collection", plain)
    made = loaded(config)
    assert list(made.passages.items()) == [(i, f"{t} {x}" if t else x) for i, t, x in plain.passages]
    assert list(made.queries.items()) == [("q0", "first?"), ("q1", "second?"), ("q3", "fourth?")]
    assert made.qrels == [
        ("q0", "p0", 1),
        ("q0", "p1", 2),
        ("q1", "p0", 0),
        ("q1", "p7", 3),
        ("q3", "p11", 1),
    ]
    assert made.facts["passages"] == 12
    assert made.facts["queries"] == 3
    assert made.facts["judgments"] == 5
    assert made.facts["titles"] == (0 if config.source in ("msmarco", "ir_datasets") else 4)
    assert made.facts["dropped"]["queries_without_judgments"] == 1


@pytest.mark.parametrize("separator", ["\n", ". ", "", None])
def test_titles_are_joined_by_the_separator_of_the_config(tmp_path, plain, loaded, separator):
    plain.passages[3] = ("p3", "title 3", "")
    usual = beir(tmp_path / "collection", plain)
    config = usual.model_copy(update={"title_separator": separator})
    kept = [
        text if not title or separator is None else f"{title}{separator if text else ''}{text}"
        for _, title, text in plain.passages
    ]
    made = loaded(config)
    assert list(made.passages.values()) == kept
    ours, theirs = identify(config), identify(usual)
    assert ours.passages != theirs.passages
    assert ours.queries == theirs.queries


def test_queries_in_lower_case_leave_the_passages_as_they_are(tmp_path, plain, loaded):
    plain.queries[1] = ("q1", "What IS Ärger?")
    usual = beir(tmp_path / "collection", plain)
    config = usual.model_copy(update={"lowercase_queries": True})
    assert loaded(config).queries["q1"] == "what is ärger?"
    assert loaded(usual).queries["q1"] == "What IS Ärger?"
    ours, theirs = identify(config), identify(usual)
    assert ours.passages == theirs.passages
    assert ours.queries != theirs.queries


@pytest.fixture(scope="session")
def dl19_plain(dl19):
    """The real slice as Python values, in the fixtures' form."""

    def lines(path):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        return [json.loads(line) for line in content.splitlines()]

    qrels = [line.split("\t") for line in (dl19 / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    return (
        [(line["_id"], "", line["text"]) for line in lines(dl19 / "corpus.jsonl.gz")],
        [(line["_id"], line["text"]) for line in lines(dl19 / "queries.jsonl")],
        [(query, passage, int(grade)) for query, passage, grade in qrels],
    )


@pytest.fixture
def measures(tmp_path):
    """Takes the slice's size of random vectors, the same each time, through index, search and measures."""
    for role, count in (("passages", 14581), ("queries", 43)):
        np.save(
            tmp_path / f"{role}.npy", np.random.default_rng(count).standard_normal((count, 8), np.float32)
        )
    model = BACKENDS.make(
        backend="precomputed",
        normalize=False,
        passages=str(tmp_path / "passages.npy"),
        queries=str(tmp_path / "queries.npy"),
    )

    def run(data):
        config = Config(name="t", data=data, model=model, cache=str(tmp_path / "indexes"))
        return run_benchmark(config, output=tmp_path / "results").metrics["metrics"]

    return run


def test_the_real_slice_has_one_content_and_one_set_of_measures_in_every_layout(
    tmp_path, dl19, dl19_plain, plain, write_layout, loaded, measures
):
    collection = type(plain)(*dl19_plain)
    shipped = SOURCES.make(source="beir", path=str(dl19))
    other = write_layout(tmp_path / "collection", collection)
    original, rewritten = loaded(shipped), loaded(other)
    assert original.facts["passages"] == 14581
    assert original.facts["judgments"] == 4337
    assert rewritten.facts == original.facts
    scores = measures(shipped)
    assert scores["recall@100"] > 0
    assert measures(other) == scores


def test_content_tells_where_a_text_ends(tmp_path, plain, loaded):
    before = loaded(beir(tmp_path / "before", plain)).facts["content"]
    (one, title, text), (other, _, following) = plain.passages[1:3]
    plain.passages[1:3] = [(one, title, text + following[0]), (other, "", following[1:])]
    after = loaded(beir(tmp_path / "after", plain)).facts["content"]
    assert after["passages"] != before["passages"]
    assert {**after, "passages": ""} == {**before, "passages": ""}


def test_sample_is_whole(loaded):
    made = loaded(SOURCES.make(source="sample"))
    assert made.facts["passages"] >= 240
    assert made.facts["queries"] >= 60
    assert not any(made.facts["dropped"].values())
    assert set(made.collection.qrels.grades.tolist()) == {0, 1, 2, 3}


def test_datasets_opens_the_files(tmp_path, plain, loaded):
    from datasets import Dataset

    made = loaded(beir(tmp_path / "collection", plain))
    opened = Dataset.from_file(str(made.folder / "corpus.arrow"))
    assert opened.column_names == ["id", "text"]
    assert opened["id"][:] == [name for name, _, _ in plain.passages]


def test_identity_is_of_bytes_and_not_of_paths(tmp_path, plain, write_layout):
    config = write_layout(tmp_path / "here", plain)
    first = identify(config)
    if config.source == "ir_datasets":  # an id and a release; the package checks the bytes
        assert first.passages["corpus"] == {"layout": "ir_datasets", "id": config.path, "release": RELEASE}
        return
    assert identify(write_layout(tmp_path / "elsewhere", plain)) == first
    plain.passages[5] = ("p5", "", "one letter more")
    changed = identify(write_layout(tmp_path / "changed", plain))
    assert changed.passages != first.passages


def test_identity_needs_no_arrow_and_no_hub_library(tmp_path, plain):
    beir(tmp_path, plain)
    code = (
        "import sys; from pipeline.config import SOURCES; from pipeline.data import identify, load, "
        f"open_collection; identify(SOURCES.make(source='beir', path={str(tmp_path)!r})); "
        "print([name for name in ('pyarrow', 'datasets', 'huggingface_hub', 'ir_datasets', 'pandas') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

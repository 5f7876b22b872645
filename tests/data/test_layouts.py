"""The same collection in every layout is the same collection."""

import shutil
from importlib.metadata import version

import pytest
from layouts import LAYOUTS, Plain, beir

from pipeline.config import SOURCES
from pipeline.data import identify


def test_every_layout_gives_the_collection_and_an_identity_of_its_bytes(
    tmp_path, plain, write_layout, loaded
):
    config = write_layout(tmp_path / "here", plain)
    made = loaded(config)
    assert list(made.passages.items()) == [(i, f"{t} {x}" if t else x) for i, t, x in plain.passages]
    assert list(made.queries.items()) == [("q0", "first?"), ("q1", "second?"), ("q3", "fourth?")]
    assert made.qrels == [
        ("q0", "p0", 1), ("q0", "p1", 2), ("q1", "p0", 0), ("q1", "p7", 3), ("q3", "p11", 1)
    ]  # fmt: skip
    counts = [made.facts[name] for name in ("passages", "queries", "judgments")]
    assert counts == [12, 3, 5]
    assert made.facts["titles"] == (0 if config.source in ("msmarco", "ir_datasets") else 4)
    assert made.facts["dropped"]["queries_without_judgments"] == 1

    if config.source == "ir_datasets":  # an id and a release; the package checks the bytes
        expected = {"layout": "ir_datasets", "id": config.path, "release": version("ir_datasets")}
        assert made.identity.passages["corpus"] == expected
        return
    for folder in tmp_path.glob("here*"):
        shutil.copytree(folder, tmp_path / folder.name.replace("here", "there"))
    moved = config.model_dump_json().replace(f"{tmp_path}/here", f"{tmp_path}/there")
    assert identify(type(config).model_validate_json(moved)) == made.identity
    plain.passages[5] = ("p5", "", "one letter more")
    assert identify(write_layout(tmp_path / "changed", plain)).passages != made.identity.passages


@pytest.mark.parametrize("separator", ["\n", ". ", "", None])
def test_titles_are_joined_by_the_separator_of_the_config(tmp_path, plain, loaded, separator):
    plain.passages[3] = ("p3", "title 3", "")
    config = beir(tmp_path / "collection", plain).model_copy(update={"title_separator": separator})
    assert list(loaded(config).passages.values()) == [
        text if not title or separator is None else f"{title}{separator if text else ''}{text}"
        for _, title, text in plain.passages
    ]


def test_queries_are_put_in_lower_case_if_asked_for(tmp_path, plain, loaded):
    plain.queries[1] = ("q1", "What IS Ärger?")
    usual = beir(tmp_path / "collection", plain)
    assert loaded(usual.model_copy(update={"lowercase_queries": True})).queries["q1"] == "what is ärger?"
    assert loaded(usual).queries["q1"] == "What IS Ärger?"


@pytest.mark.parametrize("layout", ["beir as mteb", "flag", "msmarco", "tables as CSV and TSV"])
def test_the_real_slice_has_one_content(tmp_path, slice_dl19, loaded, layout):
    """Of files that are read in several blocks."""
    passages = [(name, "", text) for name, text in slice_dl19.passages.items()]
    plain = Plain(passages, [*slice_dl19.queries.items()], slice_dl19.qrels)
    rewritten = loaded(LAYOUTS[layout](tmp_path / "collection", plain))
    assert rewritten.facts == slice_dl19.facts  # with hashes of its texts and judgments
    assert (rewritten.facts["passages"], rewritten.facts["judgments"]) == (14581, 4337)


def test_content_tells_where_a_text_ends(tmp_path, plain, loaded):
    before = loaded(beir(tmp_path / "before", plain)).facts["content"]
    (one, title, text), (other, _, following) = plain.passages[1:3]
    plain.passages[1:3] = [(one, title, text + following[0]), (other, "", following[1:])]
    after = loaded(beir(tmp_path / "after", plain)).facts["content"]
    assert after["passages"] != before["passages"]
    assert {**after, "passages": ""} == {**before, "passages": ""}


def test_sample_is_whole_and_datasets_opens_its_files(loaded):
    from datasets import Dataset

    made = loaded(SOURCES.make(source="sample"))
    assert made.facts["passages"] >= 240
    assert made.facts["queries"] >= 60
    assert not any(made.facts["dropped"].values())
    assert set(made.collection.qrels.grades.tolist()) == {0, 1, 2, 3}
    opened = Dataset.from_file(str(made.folder / "corpus.arrow"))
    assert opened.column_names == ["id", "text"]
    assert opened["id"][:] == list(made.passages)

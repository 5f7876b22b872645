"""Datasets of queries and positives: the real code on local folders with the hub's layout."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from pipeline.config import SOURCES
from pipeline.config.data import PositivesOf
from pipeline.core.errors import InputError
from pipeline.data import identify

ROWS = [  # as in namespace-Pt/msmarco: a query and its positives
    ("first?", ["alpha", "beta"]),
    ("second?", ["gamma"]),
    ("third?", ["beta", "delta", "beta"]),
    ("fourth?", ["epsilon"]),
]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def folder(tmp_path):
    """`namespace-Pt/msmarco`'s schema."""
    path = tmp_path / "msmarco"
    (path / "data").mkdir(parents=True)
    for number, part in enumerate([ROWS[:3], ROWS[3:]]):
        table = pa.table({"query": [q for q, _ in part], "positive": [p for _, p in part]})
        pa.parquet.write_table(table, path / "data" / f"dev-0000{number}-of-00002.parquet")
    pa.parquet.write_table(
        pa.table({"query": ["no"], "positive": [["no"]]}), path / "data" / "train-00000-of-00001.parquet"
    )
    return path


@pytest.fixture
def corpus(tmp_path):
    """`namespace-Pt/msmarco-corpus`'s schema."""
    path = tmp_path / "msmarco-corpus"
    (path / "data").mkdir(parents=True)
    texts = ["zeta", "gamma", "alpha", "eta", "gamma", "delta"]
    pa.parquet.write_table(pa.table({"content": texts}), path / "data" / "train-00000-of-00001.parquet")
    return path


def judged(collection):
    qrels = collection.qrels
    passages = [*collection.passages.ids.to_pylist(), *collection.missing_ids.to_pylist()]
    queries = collection.queries.ids.to_pylist()
    return [
        (queries[query], passages[passage], int(grade))
        for query, passage, grade in zip(qrels.queries, qrels.passages, qrels.grades, strict=True)
    ]


def test_corpus_is_every_positive_of_every_row(folder, loaded):
    made = loaded(SOURCES.make(source="hub", path=str(folder), split="dev"))
    passages = made.collection.passages
    assert passages.ids.to_pylist() == [str(row) for row in range(7)]
    assert passages.texts.to_pylist() == ["alpha", "beta", "gamma", "beta", "delta", "beta", "epsilon"]
    assert made.collection.queries.ids.to_pylist() == ["0", "1", "2", "3"]
    assert made.collection.queries.texts.to_pylist() == [query for query, _ in ROWS]


def test_judgments_join_by_text(folder, loaded):
    made = loaded(SOURCES.make(source="hub", path=str(folder), split="dev"))
    beta = [("1", 1), ("3", 1), ("5", 1)]
    assert judged(made.collection) == [
        ("0", "0", 1),
        *[("0", *passage) for passage in beta],
        ("1", "2", 1),
        *[("2", *passage) for passage in sorted([*beta, ("4", 1)])],
        ("3", "6", 1),
    ]


def test_the_tutorials_slice(folder, loaded):
    config = SOURCES.make(
        source="hub", path=str(folder), split="dev", queries=3, corpus=PositivesOf(positives_of=2)
    )
    made = loaded(config)
    assert made.collection.passages.texts.to_pylist() == ["alpha", "beta", "gamma"]
    assert judged(made.collection) == [("0", "0", 1), ("0", "1", 1), ("1", "2", 1), ("2", "1", 1)]
    assert made.facts["missing"]["judgments"] == 0
    assert made.facts["outside_slice"] == {"queries": 0, "judgments": 2, "passages": 0}  # delta, epsilon


def test_a_slice_of_positives_has_only_queries_with_a_positive_in_it(folder, loaded):
    config = SOURCES.make(
        source="hub",
        path=str(folder),
        split="dev",
        corpus=PositivesOf(positives_of=2),
    )
    made = loaded(config)
    assert made.collection.queries.texts.to_pylist() == ["first?", "second?", "third?"]
    assert made.facts["dropped"]["queries_without_judgments"] == 1


def test_corpus_of_a_second_dataset(folder, corpus, loaded):
    made = loaded(SOURCES.make(source="hub", path=str(folder), split="dev", corpus_path=str(corpus)))
    assert made.collection.passages.ids.to_pylist() == [str(row) for row in range(6)]
    assert made.collection.queries.texts.to_pylist() == [query for query, _ in ROWS]
    found = [("0", "2", 1), ("1", "1", 1), ("1", "4", 1), ("2", "5", 1)]
    absent = [("0", "absent-0", 1), ("2", "absent-0", 1), ("3", "absent-1", 1)]  # beta twice, epsilon
    assert judged(made.collection) == sorted(found + absent)
    assert made.facts["missing"] == {
        "handling": "count", "passages": 2, "judgments": 3, "relevant": 3, "queries": 0
    }  # fmt: skip
    assert not any(made.facts["dropped"].values())


def test_other_columns_and_json_lines(tmp_path, folder, loaded):
    path = tmp_path / "json"
    path.mkdir()
    lines = [json.dumps({"question": query, "answers": texts, "more": 1}) for query, texts in ROWS]
    (path / "dev.jsonl").write_text("\n".join(lines), encoding="utf-8")
    config = SOURCES.make(
        source="hub", path=str(path), split="dev", query_column="question", positives_column="answers"
    )
    parquet = loaded(SOURCES.make(source="hub", path=str(folder), split="dev"))
    assert loaded(config).facts == parquet.facts


def test_one_positive_as_plain_text(tmp_path, loaded):
    table = pa.table({"query": ["a?", "b?"], "positive": ["x", "y"]})
    pa.parquet.write_table(table, tmp_path / "dev.parquet")
    made = loaded(SOURCES.make(source="hub", path=str(tmp_path), split="dev"))
    assert judged(made.collection) == [("0", "0", 1), ("1", "1", 1)]


@pytest.mark.parametrize("name", ["dev.parquet", "dev/part.parquet", "data/dev-00000-of-00001.parquet"])
def test_file_names_that_tell_the_split(tmp_path, name, loaded):
    for split, text in (("dev", "wanted"), ("train", "other"), ("devil", "other")):
        path = tmp_path / name.replace("dev", split)
        path.parent.mkdir(exist_ok=True)
        pa.parquet.write_table(pa.table({"query": [text], "positive": [[text]]}), path)
    made = loaded(SOURCES.make(source="hub", path=str(tmp_path), split="dev"))
    assert made.collection.queries.texts.to_pylist() == ["wanted"]


def test_identity_follows_the_bytes_of_the_split_alone(folder, corpus):
    config = SOURCES.make(source="hub", path=str(folder), split="dev", corpus_path=str(corpus))
    before = identify(config)
    (folder / "data" / "train-00000-of-00001.parquet").write_bytes(b"something else")
    assert identify(config) == before
    pa.parquet.write_table(pa.table({"content": ["zeta"]}), corpus / "data" / "train-00000-of-00001.parquet")
    assert identify(config).passages != before.passages


def test_settings_that_shape_a_part_are_in_its_identity(folder, corpus):
    def of(**settings):
        return identify(SOURCES.make(source="hub", path=str(folder), split="dev", **settings))

    base = of()
    assert of(query_column="text").queries != base.queries
    assert of(query_column="text").passages == base.passages
    assert of(positives_column="text").passages != base.passages
    assert of(corpus=PositivesOf(positives_of=2)).passages != base.passages
    assert of(corpus=PositivesOf(positives_of=2)).queries != base.queries
    whole = of(corpus_path=str(corpus))
    assert of(corpus_path=str(corpus), corpus_column="text").passages != whole.passages


def bad(tmp_path, table, **settings):
    pa.parquet.write_table(pa.table(table), tmp_path / "dev.parquet")
    return SOURCES.make(source="hub", path=str(tmp_path), split="dev", **settings)


def refused(loaded, config, *words):
    with pytest.raises(InputError) as error:
        loaded(config)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"question": ["a"], "positive": [["b"]]},
            ("dev.parquet", "no column 'query'", "question, positive"),
        ),
        ({"query": ["a", None], "positive": [["b"], ["c"]]}, ("dev.parquet, row 1", "'query' is null")),
        (
            {"query": ["a", "b"], "positive": [["b"], ["d", None]]},
            ("dev.parquet, row 1", "'positive' is null"),
        ),
        ({"query": ["a"], "positive": [[1]]}, ("'positive' holds list<", "lists of texts")),
        ({"query": ["a"], "positive": pa.array([[]], pa.list_(pa.string()))}, ("has no judgments",)),
    ],
)
def test_wrong_columns_are_refused(tmp_path, loaded, columns, words):
    refused(loaded, bad(tmp_path, columns), *words)


def test_missing_split_names_the_files_there(folder, loaded):
    config = SOURCES.make(source="hub", path=str(folder), split="test")
    refused(loaded, config, "'test'", "data/dev-00000-of-00002.parquet")


def test_split_that_the_readme_lacks(folder, loaded):
    text = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: dev\n    path: data/dev-*\n---\n"
    (folder / "README.md").write_text(text)
    refused(loaded, SOURCES.make(source="hub", path=str(folder), split="test"), "'test'", "default: dev")
    assert loaded(SOURCES.make(source="hub", path=str(folder), split="dev")).facts["queries"] == 4


def test_titles_are_texts_or_null(tmp_path, plain, write_beir_hub, loaded):
    config = write_beir_hub(tmp_path / "tiny", plain)
    ids, _, texts = map(list, zip(*plain.passages, strict=True))
    path = tmp_path / "tiny" / "corpus" / "corpus-00000-of-00001.parquet"
    pa.parquet.write_table(pa.table({"_id": ids, "title": [["a"]] * len(ids), "text": texts}), path)
    refused(loaded, config, "corpus-00000-of-00001.parquet: column 'title' holds list<", "text")
    pa.parquet.write_table(pa.table({"_id": ids, "title": [None] * len(ids), "text": texts}), path)
    assert loaded(config).facts["titles"] == 0


def test_broken_parquet(folder, loaded):
    (folder / "data" / "dev-00000-of-00002.parquet").write_bytes(b"PAR1 and no more")
    refused(loaded, SOURCES.make(source="hub", path=str(folder), split="dev"), "not readable as Parquet")

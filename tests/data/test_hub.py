"""Datasets of queries and positives: the real code on local folders with the hub's layout."""

import pyarrow as pa
import pytest
from layouts import beir_hub, write_lines, write_parquet, write_readme

from pipeline import InputError
from pipeline.config import SOURCES

ROWS = [  # as in namespace-Pt/msmarco: a query and its positives
    ("first?", ["alpha", "beta"]),
    ("second?", ["gamma"]),
    ("third?", ["beta", "delta", "beta"]),
    ("fourth?", ["epsilon"]),
]


@pytest.fixture
def folder(tmp_path):
    """`namespace-Pt/msmarco`'s schema."""
    path = tmp_path / "msmarco" / "data"
    for number, part in enumerate([ROWS[:3], ROWS[3:]]):
        queries, positives = map(list, zip(*part, strict=True))
        write_parquet(path / f"dev-0000{number}-of-00002.parquet", query=queries, positive=positives)
    write_parquet(path / "train-00000-of-00001.parquet", query=["no"], positive=[["no"]])
    return path.parent


@pytest.fixture
def corpus(tmp_path):
    """`namespace-Pt/msmarco-corpus`'s schema."""
    path = tmp_path / "msmarco-corpus"
    texts = ["zeta", "gamma", "alpha", "eta", "gamma", "delta"]
    write_parquet(path / "data/train-00000-of-00001.parquet", content=texts)
    return path


@pytest.fixture
def load_dev(folder, loaded):
    """Loads the split `dev` of that dataset, or of another folder."""

    def load(path=folder, **settings):
        return loaded(SOURCES.make(source="hub", path=str(path), split="dev", **settings))

    return load


def test_corpus_is_every_positive_of_every_row_and_judgments_join_by_text(load_dev):
    made = load_dev()
    texts = ["alpha", "beta", "gamma", "beta", "delta", "beta", "epsilon"]
    assert list(made.passages.items()) == [(str(row), text) for row, text in enumerate(texts)]
    assert list(made.queries.items()) == [(str(row), query) for row, (query, _) in enumerate(ROWS)]
    beta = [("1", 1), ("3", 1), ("5", 1)]
    assert made.qrels == [
        ("0", "0", 1),
        *[("0", *passage) for passage in beta],
        ("1", "2", 1),
        *[("2", *passage) for passage in sorted([*beta, ("4", 1)])],
        ("3", "6", 1),
    ]


def test_a_slice_of_positives_has_only_queries_with_a_positive_in_it(load_dev):
    made = load_dev(corpus={"positives_of": 2})
    assert list(made.passages.values()) == ["alpha", "beta", "gamma"]
    assert list(made.queries.values()) == ["first?", "second?", "third?"]
    assert made.qrels == [("0", "0", 1), ("0", "1", 1), ("1", "2", 1), ("2", "1", 1)]
    assert made.facts["missing"]["judgments"] == 0
    assert made.facts["outside_slice"] == {"queries": 0, "judgments": 2, "passages": 0}  # delta, epsilon
    assert made.facts["dropped"]["queries_without_judgments"] == 1


def test_corpus_of_a_second_dataset(corpus, load_dev):
    made = load_dev(corpus_path=str(corpus))
    assert list(made.passages) == [str(row) for row in range(6)]
    assert list(made.queries.values()) == [query for query, _ in ROWS]
    found = [("0", "2", 1), ("1", "1", 1), ("1", "4", 1), ("2", "5", 1)]
    absent = [("0", "absent-0", 1), ("2", "absent-0", 1), ("3", "absent-1", 1)]  # beta twice, epsilon
    assert made.qrels == sorted(found + absent)
    assert made.facts["missing"] == {
        "handling": "count", "passages": 2, "judgments": 3, "relevant": 3, "queries": 0
    }  # fmt: skip
    assert not any(made.facts["dropped"].values())


def test_other_columns_and_json_lines(tmp_path, load_dev):
    records = [{"question": query, "answers": texts, "more": 1} for query, texts in ROWS]
    write_lines(tmp_path / "json" / "dev.jsonl", records)
    made = load_dev(tmp_path / "json", query_column="question", positives_column="answers")
    assert made.facts == load_dev().facts


def test_one_positive_as_plain_text(tmp_path, load_dev):
    write_parquet(tmp_path / "plain/dev.parquet", query=["a?", "b?"], positive=["x", "y"])
    assert load_dev(tmp_path / "plain").qrels == [("0", "0", 1), ("1", "1", 1)]


@pytest.mark.parametrize("name", ["dev.parquet", "dev/part.parquet", "data/dev-00000-of-00001.parquet"])
def test_file_names_that_tell_the_split(tmp_path, name, load_dev):
    for split, text in (("dev", "wanted"), ("train", "other"), ("devil", "other")):
        write_parquet(tmp_path / "named" / name.replace("dev", split), query=[text], positive=[[text]])
    assert list(load_dev(tmp_path / "named").queries.values()) == ["wanted"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"question": ["a"], "positive": [["b"]]}, "no column 'query'.*question, positive"),
        ({"query": ["a", None], "positive": [["b"], ["c"]]}, "dev.parquet, row 1: 'query' is null"),
        ({"query": ["a", "b"], "positive": [["b"], ["d", None]]}, "dev.parquet, row 1: 'positive' is null"),
        ({"query": ["a"], "positive": [[1]]}, "'positive' holds list<.*lists of texts"),
        ({"query": ["a"], "positive": pa.array([[]], pa.list_(pa.string()))}, "has no judgments"),
        (None, "dev.parquet.*not readable as Parquet"),
    ],
)
def test_wrong_columns_are_refused(tmp_path, load_dev, columns, message):
    if columns:
        write_parquet(tmp_path / "bad/dev.parquet", **columns)
    else:
        (tmp_path / "bad").mkdir()
        (tmp_path / "bad/dev.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=message):
        load_dev(tmp_path / "bad")


def test_missing_split_names_the_files_there_or_what_the_readme_declares(folder, loaded, load_dev):
    config = SOURCES.make(source="hub", path=str(folder), split="test")
    with pytest.raises(InputError, match=r"'test'.*data/dev-00000-of-00002.parquet"):
        loaded(config)
    write_readme(folder, {"default": {"dev": "data/dev-*"}})
    with pytest.raises(InputError, match=r"'test'.*default: dev"):
        loaded(config)
    assert load_dev().facts["queries"] == 4


def test_titles_are_texts_or_null(tmp_path, plain, loaded):
    config = beir_hub(tmp_path / "tiny", plain)
    ids, _, texts = map(list, zip(*plain.passages, strict=True))
    path = tmp_path / "tiny/corpus/corpus-00000-of-00001.parquet"
    write_parquet(path, _id=ids, title=[["a"]] * len(ids), text=texts)
    with pytest.raises(InputError, match=f"{path.name}: column 'title' holds list<.*text"):
        loaded(config)
    write_parquet(path, _id=ids, title=[None] * len(ids), text=texts)
    assert loaded(config).facts["titles"] == 0

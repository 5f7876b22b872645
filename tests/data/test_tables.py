"""Tables with any column names: what CSV and TSV hold, which columns are read, and what is refused."""

import bz2
import gzip
import shutil

import pyarrow as pa
import pytest
import yaml
from layouts import tables_csv, tables_other
from pyarrow import csv, parquet
from workplaces import benchmarco, on_one_line

from pipeline import InputError, run_benchmark
from pipeline.data import identify


@pytest.fixture
def written(tmp_path, plain):
    """The settings of a collection as CSV and TSV."""
    return tables_csv(tmp_path / "collection", plain)


def test_quoted_cells_of_csv_hold_anything_and_tsv_has_no_quotes(tmp_path, written, loaded):
    docs = tmp_path / "docs.csv"
    docs.write_text('doc,head,body\np1,,"a ""b"",\nnext"\n7,NA,\np0,,null\n', encoding="utf-8")
    (tmp_path / "asked.tsv").write_text('q\twords\nq0\t"is" it "\n', encoding="utf-8")
    found = {"corpus_file": str(docs), "queries_file": str(tmp_path / "asked.tsv")}
    made = loaded(written.model_copy(update=found))
    assert made.passages == {"p1": 'a "b",\nnext', "7": "NA", "p0": "null"}
    assert made.queries == {"q0": '"is" it "'}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip under another name"])
@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('p1,"plum cake\np0,fig\np2,grape\n', 2),
        ('p1,"a\nb"\np0,"plum\np2,"fig"\n', 4),
        ('p1,"a\nb" c\np0,fig\n', 2),
    ],
)
def test_an_open_quote_of_csv_swallows_no_rows(tmp_path, written, loaded, rows, line, packed):
    docs = tmp_path / "docs.csv"
    data = f"doc,body\n{rows}".encode()
    docs.write_bytes(gzip.compress(data) if packed else data)
    changed = written.model_copy(update={"corpus_file": str(docs), "corpus_title": None})
    with pytest.raises(InputError, match=rf"docs\.csv: the row that begins on line {line} has an open quote"):
        loaded(changed)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("doc,body\np1,a\n".encode("utf-16"), "is no UTF-8 text"),
        (bz2.compress(b"doc,body\np1,a\n"), "is no UTF-8 text"),
    ],
)
def test_tables_of_other_forms_are_named(tmp_path, written, loaded, data, found):
    (tmp_path / "docs.csv").write_bytes(data)
    changed = written.model_copy(update={"corpus_file": str(tmp_path / "docs.csv"), "corpus_title": None})
    with pytest.raises(InputError, match=rf"docs\.csv: {found}"):
        loaded(changed)


def test_a_grade_of_a_parquet_file_may_be_a_text(tmp_path, written, loaded):
    table = pa.table({"q": ["q0", "q0"], "doc": ["p1", "p0"], "rel": ["1.0", "2"]})
    parquet.write_table(table, tmp_path / "found.parquet")
    made = loaded(written.model_copy(update={"judgments_file": str(tmp_path / "found.parquet")}))
    assert {grade for _, _, grade in made.qrels} == {1, 2}


def test_without_a_column_of_grades_every_row_is_relevant(written, loaded):
    made = loaded(written.model_copy(update={"grade": None}))
    assert {grade for _, _, grade in made.qrels} == {1}


def test_the_form_of_a_file_is_part_of_the_identity(tmp_path, written):
    as_csv = shutil.copy(tmp_path / "collection" / "asked.tsv", tmp_path / "asked.csv")
    first = identify(written)
    assert identify(written.model_copy(update={"queries_file": str(as_csv)})).queries != first.queries


@pytest.mark.parametrize(
    ("part", "change", "content", "expected"),
    [
        ("queries", {"query_text": "text"}, "q\twords\nq0\ta\n", ".*no column 'text'.*q, words"),
        ("queries", {}, "q\twords\nq0\ta\tb\n", ".*not readable as TSV.*Expected 2 columns"),
        ("queries", {}, "", ".*not readable as TSV.*Empty"),
        ("queries", {}, "q\twords\nq0\t\xff\n", ".*not readable as TSV.*UTF8"),
        ("queries", {}, "q\twords\nq0\t\xff\n", r".*Row #2: .*invalid UTF8 data.*Convert the file"),
        ("queries", {}, "q;words\nq0;a\n", ".*q;words .separated by ';': write commas"),
        (
            "judgments",
            {},
            "q\tdoc\trel\nq0\tp0\t1\nq0\tp1\thigh\n",
            ", row 2: 'rel' is 'high'.*a number",
        ),
    ],
)
def test_a_broken_table_is_refused_with_its_file(tmp_path, written, loaded, part, change, content, expected):
    path = tmp_path / "broken.tsv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=f"broken.tsv{expected}"):
        loaded(written.model_copy(update={f"{part}_file": str(path), **change}))


def test_a_config_names_its_files(tmp_path, plain):
    made = tables_other(tmp_path / "collection", plain).model_dump(exclude_unset=True)
    config = {
        "name": "t", "data": made, "model": {"backend": "bm25"}, "evaluate": {"measures": ["ndcg@10"]},
        "cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results"),
    }  # fmt: skip
    assert run_benchmark(config).document["queries"] == 3
    with pytest.raises(InputError, match=r"data\.queries_file .*none\.csv: no such file"):
        run_benchmark(config | {"data": made | {"queries_file": str(tmp_path / "none.csv")}})
    del made["judgments_file"]
    with pytest.raises(InputError, match=r"judgments_file is not set: .*unjudged_queries: keep"):
        run_benchmark(config)
    assert run_benchmark(config | {"data": made | {"unjudged_queries": "keep"}}).metrics == {}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_folder_of_tables_whose_columns_are_plain(tmp_path, monkeypatch, ending):
    monkeypatch.chdir(tmp_path)
    tables = {
        "documents": {"doc_id": ["1", "2"], "Title": ["", "dogs"], "body": ["the cat sat", "a dog ran"]},
        "fragen": {"qid": ["a"], "question": ["cat"]},
        "labels": {"qid": ["a"], "doc_id": ["1"], "relevance": ["1"]},
    }
    (tmp_path / "mine").mkdir()
    for name, columns in tables.items():
        path = tmp_path / "mine" / f"{name}{ending}"
        write = parquet.write_table if ending == ".parquet" else csv.write_csv
        write(pa.table(columns), path)
    printed = benchmarco("example", "--model", "bm25", "--data", "mine").stdout
    assert yaml.safe_load(printed)["data"] == {
        "source": "table",
        "corpus_file": f"mine/documents{ending}", "corpus_id": "doc_id", "corpus_text": "body",
        "corpus_title": "Title",
        "queries_file": f"mine/fragen{ending}", "query_id": "qid", "query_text": "question",
        "judgments_file": f"mine/labels{ending}", "judged_query": "qid", "judged_passage": "doc_id",
        "grade": "relevance",
    }  # fmt: skip
    (tmp_path / "mine.yaml").write_text(printed, encoding="utf-8")
    assert "recall@100" in benchmarco("run", "mine.yaml").stdout


def test_files_and_columns_that_are_named_are_not_guessed(tmp_path, monkeypatch, caplog):
    """One run in which each message says what to name next."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    tables = {"a": "heading,nr,body\n,1,the cat sat\n", "b": "nr,words\n7,cat\n", "c": "q,p,rel\n7,1,1\n"}
    for name, text in tables.items():
        (tmp_path / "mine" / f"{name}.csv").write_text(text, encoding="utf-8")
    command = ["run", "--model", "bm25", "--data", "mine"]

    def name_each(**settings):
        command.extend(part for key, value in settings.items() for part in ("--set", f"data.{key}={value}"))

    def refused():
        return on_one_line(benchmarco(*command, code=2))

    said = refused()
    assert "cannot tell which file holds the corpus and the queries and the judgments; it has a.csv" in said
    assert "Name each: --set data.corpus_file=mine/FILE --set data.queries_file=mine/FILE" in said
    name_each(corpus_file="mine/a.csv", queries_file="mine/b.csv", judgments_file="c.csv")
    assert "data.judgments_file c.csv: no such file; mine has a.csv, b.csv, c.csv" in refused()
    name_each(judgments_file="mine/c.csv", corpus_id="nr")
    said = refused()
    assert "b.csv: cannot tell which column is data.query_id (the query's id) or data.query_text" in said
    assert "c.csv: cannot tell which column is data.judged_query" in said
    assert "data.corpus" not in said
    name_each(query_id="nr", query_text="words", judged_query="q", judged_passage="p")
    benchmarco(*command)
    assert "a.csv (nr as corpus_id, body as corpus_text, heading as corpus_title)" in caplog.text


def test_the_example_for_tables_names_every_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(benchmarco("example", "--table").stdout, encoding="utf-8")
    tables = {
        "passages": "id,text\n1,the cat sat\n", "queries": "id,text\na,cat\n",
        "judgments": "query_id,passage_id,grade\na,1,1\n",
    }  # fmt: skip
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    benchmarco("run", "mine.yaml", "--set", "model={backend: bm25}")


def test_ids_of_json_lines_may_be_integers(tmp_path):
    folder = tmp_path / "mine"
    (folder / "qrels").mkdir(parents=True)
    passages = '{"_id": 1, "text": "the cat sat"}\n{"_id": 2, "text": "a dog ran"}\n'
    (folder / "corpus.jsonl").write_text(passages, encoding="utf-8")
    (folder / "queries.jsonl").write_text('{"_id": 7, "text": "cat"}\n{"_id": "8", "text": "dog"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n7\t1\t1\n8\t2\t1\n")
    data = {"source": "beir", "path": str(folder)}
    config = {"name": "x", "data": data, "model": {"backend": "bm25"}, "cache": str(tmp_path / "i")}
    assert run_benchmark(config | {"output": str(tmp_path / "r")}).metrics["ndcg@10"] == 1

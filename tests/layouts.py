"""Writers of small collections, in every layout that is read."""

import csv
import dataclasses
import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml

from pipeline.config import SOURCES, DataSettings


@dataclasses.dataclass
class Plain:
    """A small collection as Python values: (id, title, text), (id, text), (query, passage, grade)."""

    passages: list[tuple[str, str, str]]
    queries: list[tuple[str, str]]
    qrels: list[tuple[str, str, int]]


def write_packed(path: Path, text: str) -> None:
    """Write a text, packed if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write JSONL."""
    write_packed(path, "".join(json.dumps(record) + "\n" for record in records))


def write_text(path: Path, rows: list[tuple[Any, ...]], separator: str = "\t") -> None:
    """Write columns."""
    write_packed(path, "".join(separator.join(map(str, row)) + "\n" for row in rows))


def write_parquet(path: Path, **columns: Any) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table(columns), path)


def write_readme(folder: Path, tables: dict[str, dict[str, str]]) -> None:
    """Write a README that declares tables, split by split, as on the hub."""
    declared = {
        name: [{"split": split, "path": path} for split, path in splits.items()]
        for name, splits in tables.items()
    }
    configs = [{"config_name": name, "data_files": files} for name, files in declared.items()]
    text = yaml.safe_dump({"configs": configs}, sort_keys=False)
    (folder / "README.md").write_text(f"---\n{text}---\n", encoding="utf-8")


def beir(folder: Path, plain: Plain, packed: str = "") -> DataSettings:
    """BEIR's own files."""
    records = [{"_id": i, "title": t, "text": x, "metadata": {"n": 1}} for i, t, x in plain.passages]
    write_lines(folder / f"corpus.jsonl{packed}", records)
    write_lines(folder / f"queries.jsonl{packed}", [{"_id": i, "text": x} for i, x in plain.queries])
    header: list[tuple[Any, ...]] = [("query-id", "corpus-id", "score")]
    write_text(folder / "qrels" / f"test.tsv{packed}", header + plain.qrels)
    return SOURCES.make(source="beir", path=str(folder))


def beir_mteb(folder: Path, plain: Plain) -> DataSettings:
    """The hub layout of `mteb/*`: a README that declares the tables, scores as floats, two corpus files."""
    half = len(plain.passages) // 2
    for number, part in enumerate([plain.passages[:half], plain.passages[half:]]):
        ids, titles, texts = map(list, zip(*part, strict=True))
        write_parquet(
            folder / f"corpus/corpus-0000{number}-of-00002.parquet", _id=ids, title=titles, text=texts
        )
    ids, texts = map(list, zip(*plain.queries, strict=True))
    write_parquet(folder / "queries/queries-00000-of-00001.parquet", _id=ids, text=texts)
    queries, passages, grades = map(list, zip(*plain.qrels, strict=True))
    columns = {"query-id": queries, "corpus-id": passages, "score": [float(grade) for grade in grades]}
    write_parquet(folder / "data/test-00000-of-00001.parquet", **columns)
    tables = {"corpus": {"corpus": "corpus/corpus-*"}, "queries": {"queries": "queries/queries-*"}}
    write_readme(folder, {"default": {"test": "data/test-*"}, **tables})
    return SOURCES.make(source="beir", path=str(folder))


def beir_hub(folder: Path, plain: Plain) -> DataSettings:
    """The hub layout of `BeIR/*`: tables by name, judgments as TSV in a repository beside it."""
    ids, titles, texts = map(list, zip(*plain.passages, strict=True))
    write_parquet(folder / "corpus/corpus-00000-of-00001.parquet", _id=ids, title=titles, text=texts)
    ids, texts = map(list, zip(*plain.queries, strict=True))
    write_parquet(
        folder / "queries/queries-00000-of-00001.parquet", _id=ids, title=[""] * len(ids), text=texts
    )
    header: list[tuple[Any, ...]] = [("query-id", "corpus-id", "score")]
    write_text(folder.with_name(folder.name + "-qrels") / "test.tsv", header + plain.qrels)
    return SOURCES.make(source="beir", path=str(folder))


def beir_hub_jsonl(folder: Path, plain: Plain) -> DataSettings:
    """A hub layout of JSON lines in folders."""
    records = [{"_id": i, "title": t, "text": x} for i, t, x in plain.passages]
    write_lines(folder / "corpus" / "part.jsonl", records)
    write_lines(folder / "queries" / "part.jsonl.gz", [{"_id": i, "text": x} for i, x in plain.queries])
    judgments = [{"query-id": q, "corpus-id": p, "score": g} for q, p, g in plain.qrels]
    write_lines(folder / "qrels" / "test.jsonl", judgments)
    return SOURCES.make(source="beir", path=str(folder))


def flag(folder: Path, plain: Plain) -> DataSettings:
    """FlagEmbedding's evaluation layout."""
    write_lines(folder / "corpus.jsonl", [{"id": i, "title": t, "text": x} for i, t, x in plain.passages])
    write_lines(folder / "dev_queries.jsonl", [{"id": i, "text": x} for i, x in plain.queries])
    judgments = [{"qid": q, "docid": p, "relevance": g} for q, p, g in plain.qrels]
    write_lines(folder / "dev_qrels.jsonl", judgments)
    return SOURCES.make(source="flag", path=str(folder), split="dev")


def msmarco(folder: Path, plain: Plain) -> DataSettings:
    """MS MARCO's own files, which have no titles: they are joined before."""
    write_text(folder / "collection.tsv.gz", [(i, f"{t} {x}" if t else x) for i, t, x in plain.passages])
    write_text(folder / "queries.dev.small.tsv", list(plain.queries))
    write_text(folder / "qrels.dev.small.tsv", [(q, 0, p, g) for q, p, g in plain.qrels])
    return SOURCES.make(source="msmarco", path=str(folder), split="dev.small")


def catalogue(folder: Path, plain: Plain) -> DataSettings:
    """A dataset registered with ir_datasets."""
    import ir_datasets

    write_text(folder / "docs.tsv", [(i, f"{t} {x}" if t else x) for i, t, x in plain.passages])
    write_text(folder / "queries.tsv", list(plain.queries))
    write_text(folder / "qrels.txt", [(q, 0, p, g) for q, p, g in plain.qrels], " ")
    dataset = ir_datasets.create_dataset(
        str(folder / "docs.tsv"), str(folder / "queries.tsv"), str(folder / "qrels.txt")
    )
    name = f"benchmarco-test/{folder}"
    ir_datasets.registry.register(name, dataset)
    return SOURCES.make(source="ir_datasets", path=name)


def tables_csv(folder: Path, plain: Plain) -> DataSettings:
    """Tables with names of their own: CSV as a spreadsheet writes it, packed, and TSV."""
    folder.mkdir(parents=True)
    with gzip.open(folder / "docs.csv.gz", "wt", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(
            [("doc", "no", "body", "head"), *((i, 1, x, t) for i, t, x in plain.passages)]
        )
    write_text(folder / "asked.tsv", [("q", "words"), *plain.queries])
    write_text(folder / "found.CSV", [("rel", "doc", "q"), *((g, p, q) for q, p, g in plain.qrels)], ",")
    return SOURCES.make(
        source="table", corpus_file=str(folder / "docs.csv.gz"), corpus_id="doc", corpus_text="body",
        corpus_title="head", queries_file=str(folder / "asked.tsv"), query_id="q", query_text="words",
        judgments_file=str(folder / "found.CSV"), judged_query="q", judged_passage="doc", grade="rel",
    )  # fmt: skip


def tables_other(folder: Path, plain: Plain) -> DataSettings:
    """Tables as Parquet and JSON lines, with the names of columns that are taken by default."""
    ids, titles, texts = map(list, zip(*plain.passages, strict=True))
    write_parquet(folder / "docs.parquet", text=texts, id=ids, title=[title or None for title in titles])
    write_lines(folder / "asked.jsonl.gz", [{"id": i, "text": x} for i, x in plain.queries])
    queries, passages, grades = map(list, zip(*plain.qrels, strict=True))
    write_parquet(folder / "found.parquet", query_id=queries, passage_id=passages, grade=grades)
    return SOURCES.make(
        source="table", corpus_file=str(folder / "docs.parquet"), corpus_title="title",
        queries_file=str(folder / "asked.jsonl.gz"), judgments_file=str(folder / "found.parquet"),
    )  # fmt: skip


LAYOUTS: dict[str, Callable[[Path, Plain], DataSettings]] = {
    "beir": beir,
    "beir .gz": partial(beir, packed=".gz"),
    "beir as mteb": beir_mteb,
    "beir on the hub": beir_hub,
    "beir hub jsonl": beir_hub_jsonl,
    "flag": flag,
    "msmarco": msmarco,
    "ir_datasets": catalogue,
    "tables as CSV and TSV": tables_csv,
    "tables as Parquet and JSON lines": tables_other,
}

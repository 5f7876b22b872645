"""A folder of tables whose names and columns tell what they hold: the settings of the source `table`.

passages.csv       id, title, text
queries.csv        id, query
judgments.parquet  query_id, passage_id, grade
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.data.sources.folders import TABLE_COLUMNS
from pipeline.formats.tables import column_names

ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")
FILES = {
    "corpus_file": ("corpus", "passages", "documents", "docs", "collection", "chunks", "articles", "texts"),
    "queries_file": ("queries", "questions", "topics", "searches"),
    "judgments_file": ("qrels", "judgments", "judgements", "labels", "relevance", "grades", "answers"),
}
"""By the setting of a file the names that it is known by, without case and ending."""
PASSAGE_IDS = (
    "passage_id", "passage-id", "doc_id", "docid", "document_id", "corpus_id", "corpus-id", "pid", "docno"
)  # fmt: skip
QUERY_IDS = ("query_id", "query-id", "qid", "question_id", "topic_id")
COLUMNS = {
    "corpus_id": ("id", "_id", *PASSAGE_IDS),
    "corpus_text": ("text", "contents", "content", "passage", "body", "document"),
    "corpus_title": ("title", "headline", "heading"),
    "query_id": ("id", "_id", *QUERY_IDS),
    "query_text": ("text", "query", "question", "query_text"),
    "judged_query": (*QUERY_IDS, "query"),
    "judged_passage": (*PASSAGE_IDS, "passage", "document", "doc"),
    "grade": ("grade", "score", "relevance", "rel", "label", "judgment"),
}
"""By the setting of a column the names that it is known by, without case."""
OPTIONAL = ("corpus_title", "grade")


@dataclass(frozen=True)
class PlainTables:
    """The tables of a folder: settings of the source `table`, and a sentence that says what each is."""

    settings: Mapping[str, str | None]
    described: str


def find_tables(folder: Path, name: str) -> PlainTables | None:
    """The tables of a folder, whose paths begin with `name`; None if it has none.

    Raises:
        InputError: It has tables, and it is not plain which is which, or a column has no known name.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and _plain_name(path)[1] in ENDINGS)
    if not files:
        return None
    found = {setting: _only(files, setting, names) for setting, names in FILES.items()}
    absent = [setting for setting, path in found.items() if path is None]
    if absent:
        expected = "; ".join(f"{setting}: {', '.join(FILES[setting][:4])}" for setting in absent)
        raise InputError(
            f"--data {name}: which file is data.{' and data.'.join(absent)} is not plain; it has "
            f"{', '.join(path.name for path in files[:8])}",
            allowed=f"one file for each, by these names with .csv, .tsv, .parquet or .jsonl: {expected}",
            fix="rename them, or start from: benchmarco example --table",
        )
    settings: dict[str, str | None] = {}
    said = []
    for setting, path in found.items():
        assert path is not None
        settings[setting] = str(Path(name) / path.name)
        columns = dict(_columns(path, TABLE_COLUMNS[setting]))
        settings |= columns
        named = ", ".join(f"{column or 'none'} as {part}" for part, column in columns.items())
        said.append(f"{path.name} ({named})")
    return PlainTables(settings, f"--data {name}: reads {'; '.join(said)}")


def _plain_name(path: Path) -> tuple[str, str]:
    """The name of a file in lower case, and its ending, without that of gzip."""
    name = Path(path.name.lower().removesuffix(".gz"))
    return name.stem, name.suffix


def _only(files: Sequence[Path], setting: str, names: Sequence[str]) -> Path | None:
    """The only file that has one of the names; else the only one whose columns are those of the setting."""
    by_name = [path for path in files if _plain_name(path)[0] in names]
    if by_name:
        return by_name[0] if len(by_name) == 1 else None
    others = [path for path in files if not any(_plain_name(path)[0] in each for each in FILES.values())]
    by_column = [path for path in others if _kind(column_names(path)) == setting]
    return by_column[0] if len(by_column) == 1 else None


def _kind(present: Sequence[str]) -> str:
    """The setting of the file that has such columns."""
    lowered = [column.lower() for column in present]

    def has(setting: str) -> bool:
        return any(column in lowered for column in COLUMNS[setting])

    if any(column in lowered for column in QUERY_IDS) and any(column in lowered for column in PASSAGE_IDS):
        return "judgments_file"
    asked = any(column in lowered for column in ("query", "question", "query_text"))
    if asked and has("query_id"):
        return "queries_file"
    return "corpus_file" if has("corpus_id") and has("corpus_text") else ""


def _columns(path: Path, settings: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The column of a file for each setting."""
    present = column_names(path)
    lowered = {column.lower(): column for column in reversed(present)}
    absent = []
    for setting in settings:
        column = next((lowered[name] for name in COLUMNS[setting] if name in lowered), None)
        if column is None and setting not in OPTIONAL:
            absent.append(setting)
        yield setting, column
    if absent:
        expected = "; ".join(f"data.{setting}: {', '.join(COLUMNS[setting][:5])}" for setting in absent)
        raise InputError(
            f"{path}: no column is plainly data.{' or data.'.join(absent)}; it has {', '.join(present)}",
            allowed=expected,
            fix="rename the columns, or start from: benchmarco example --table",
        )

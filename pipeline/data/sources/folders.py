"""Collections of three local files: a table of layouts of a folder, and tables of any column names.

docs/data.md says what each file holds. Each may be plain or gzip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.data import PathSettings, SampleSettings, TableSettings
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments, no_judgments, read_qrels
from pipeline.formats.tables import read_texts
from pipeline.formats.texts import Batch
from pipeline.storage.hashing import hash_file

if TYPE_CHECKING:
    import pyarrow as pa

NOTE = "note.txt"
"""In a folder: a line that every result on the collection shows."""
MOST_NOTE = 300  # characters
EXCLUDED = "excluded_ids"
"""The field of a query that lists passages; in a CSV file, separated by spaces."""
TABLE_COLUMNS = {
    "corpus_file": ("corpus_id", "corpus_text", "corpus_title"),
    "queries_file": ("query_id", "query_text"),
    "judgments_file": ("judged_query", "judged_passage", "grade"),
}
"""Of a collection in tables, the settings that name the columns of each file."""
SAMPLE = Path(__file__).parents[1] / "sample"


@dataclass(frozen=True)
class FolderLayout:
    """The names of the files of a layout, and how they are read."""

    title: str
    corpus: str
    queries: str
    qrels: str
    id_field: str | None  # of texts in JSON lines; None where they are in TSV
    read_qrels: Callable[[Path], Judgments] = read_qrels

    @property
    def expected(self) -> str:
        """The files, for messages."""
        files = f"{self.corpus}, {self.queries} and {self.qrels}".replace("{split}", "<split>")
        return f"{self.title}: {files}, each plain or .gz"


LAYOUTS = {
    "beir": FolderLayout("BEIR's layout", "corpus.jsonl", "queries.jsonl", "qrels/{split}.tsv", "_id"),
    "flag": FolderLayout(
        "FlagEmbedding's layout",
        "corpus.jsonl",
        "{split}_queries.jsonl",
        "{split}_qrels.jsonl",
        "id",
        lambda path: tables.read_judgments([path], "qid", "docid", "relevance"),
    ),
    "msmarco": FolderLayout(
        "MS MARCO's files", "collection.tsv", "queries.{split}.tsv", "qrels.{split}.tsv", None
    ),
}


@dataclass(frozen=True)
class FolderSource:
    """A collection of three files."""

    name: str  # of the layout, part of the files' identity
    id_field: str | None  # of texts in JSON lines; None where they are in TSV
    corpus_file: Path
    queries_file: Path
    qrels_file: Path | None  # None without judgments
    note: str  # what the folder says of the collection: the first line of `note.txt`
    size: tuple[int, str]  # bytes of the corpus file, and the unit

    def identity(self) -> dict[str, JsonObject]:
        """The three files' bytes."""
        files = {"corpus": self.corpus_file, "queries": self.queries_file, "qrels": self.qrels_file}
        parts: dict[str, JsonObject] = {
            part: {"layout": self.name, "sha256": [hash_file(file)] if file else []}
            for part, file in files.items()
        }
        if self.note:
            parts["qrels"]["note"] = self.note
        return parts

    def passages(self) -> Iterator[Batch]:
        """The corpus."""
        return read_texts(self.corpus_file, self.id_field, "title")

    def queries(self) -> Iterator[Batch]:
        """The queries."""
        return read_texts(self.queries_file, self.id_field, excluded=EXCLUDED)

    def judgments(self) -> Judgments:
        """The judgments."""
        return LAYOUTS[self.name].read_qrels(self.qrels_file) if self.qrels_file else no_judgments()


def layout_of(folder: Path) -> str | None:
    """The layout of a folder, by its corpus and judgments; BEIR's also without judgments, and as tables."""
    for name, layout in LAYOUTS.items():
        if _splits(layout, folder) and any(folder.glob(f"{layout.corpus}*")):
            return name
    has_texts = any(folder.glob("corpus.jsonl*")) and any(folder.glob("queries.jsonl*"))
    has_tables = any(folder.glob("corpus/*")) or any(folder.glob("corpus*.parquet"))
    return "beir" if has_texts or has_tables else None


def open_corpus(settings: PathSettings) -> Iterator[Batch]:
    """The passages of a folder, which needs no queries."""
    layout = LAYOUTS[settings.source]
    file = _file(layout, Path(settings.path), layout.corpus, settings.split)
    return read_texts(file, layout.id_field, "title")


def open_folder(settings: PathSettings | SampleSettings) -> FolderSource:
    """Open the folder that settings name, or the sample; refused if it or one of its files is missing."""
    name, folder = "beir", SAMPLE
    if isinstance(settings, PathSettings):
        name, folder = settings.source, Path(settings.path)
    layout = LAYOUTS[name]
    if not folder.is_dir():
        what = "is a file" if folder.is_file() else "no such folder"
        allowed = f"a folder with {layout.expected}"
        raise InputError(f"data.path {folder}: {what}", allowed=allowed, fix="check the path")
    needs_judgments = settings.unjudged_queries == "drop" or bool(_splits(layout, folder))
    parts = [layout.corpus, layout.queries, *([layout.qrels] if needs_judgments else [])]
    corpus, queries, *qrels = (_file(layout, folder, part, settings.split) for part in parts)
    noted = folder / NOTE
    text = noted.read_text(encoding="utf-8", errors="replace") if noted.is_file() else ""
    note = text.split("\n")[0].strip()[:MOST_NOTE]
    size = corpus.stat().st_size, "B"
    return FolderSource(name, layout.id_field, corpus, queries, qrels[0] if qrels else None, note, size)


def _file(layout: FolderLayout, folder: Path, part: str, split: str) -> Path:
    """The file of a part of the layout, plain or with `.gz`; refused if further parts of it are beside it."""
    name = part.format(split=split)
    path = next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    if path is None:
        raise _lacks(layout, folder, part, name)
    stem, ending = name.rsplit(".", 1)
    if part != layout.qrels and (shards := sorted(folder.glob(f"{stem}[-_.][0-9]*.{ending}*"))):
        raise InputError(
            f"{folder}: {path.name} and {', '.join(each.name for each in shards[:3])}, "
            "of which only the first would be read",
            allowed=f"all in {path.name}",
            fix="join the files, or move the others elsewhere",
        )
    return path


def _lacks(layout: FolderLayout, folder: Path, part: str, name: str) -> InputError:
    """The error for a folder without the file of a part."""
    splits = _splits(layout, folder)
    fix = "add the file, or check data.path and data.split"
    if part == layout.qrels and not splits:
        fix += "; data.unjudged_queries: keep needs no judgments"
    return InputError(
        f"{folder}: no file {name} (plain or .gz)"
        + (f"; its judgments are of split {' and '.join(splits)}" if splits else ""),
        allowed=layout.expected,
        fix=fix,
    )


def _splits(layout: FolderLayout, folder: Path) -> list[str]:
    """The names of the splits that a folder has judgments of, sorted."""
    before, after = str(folder / layout.qrels).split("{split}")
    pattern = layout.qrels.format(split="*")
    files = [*folder.glob(pattern), *folder.glob(f"{pattern}.gz")]
    return sorted({str(path).removesuffix(".gz").removeprefix(before).removesuffix(after) for path in files})


@dataclass(frozen=True)
class TableSource:
    """A file of passages, one of queries and perhaps one of judgments."""

    settings: TableSettings
    id_field: str | None  # of queries; None if their distinct texts are numbered
    queries_file: Path
    size: tuple[int, str]  # bytes of the file of passages, and the unit

    def identity(self) -> dict[str, JsonObject]:
        """The files' bytes, and the columns that are read."""
        each = self.settings
        judged = [each.judged_query, each.judged_passage, each.grade]
        return {
            "corpus": _identity(each.corpus_file, [each.corpus_id, each.corpus_text, each.corpus_title]),
            "queries": _identity(each.queries_file, [each.query_id, each.query_text]),
            "qrels": _identity(each.judgments_file, judged) if each.judgments_file else {"layout": "table"},
        }

    def passages(self) -> Iterator[Batch]:
        """The rows of the file of passages."""
        each = self.settings
        return _texts(each.corpus_file, each.corpus_id, each.corpus_text, each.corpus_title)

    def queries(self) -> Iterator[Batch]:
        """The rows of the file of queries; without ids the distinct texts."""
        each = self.settings
        if self.id_field is not None:
            return _texts(each.queries_file, self.id_field, each.query_text, excluded=EXCLUDED)
        texts = self._distinct_queries()
        numbers = np.arange(len(texts))
        names = tables.number_texts(texts, texts)
        return iter([Batch(names, texts, None, each.queries_file, "distinct query", numbers, 0)])

    def _distinct_queries(self) -> pa.Array:
        """The distinct texts of queries, in the order of first appearance."""
        import pyarrow as pa

        column = self.settings.query_text
        rows = tables.read_rows([self.queries_file], [column])
        texts = [part.strings(column) for part in rows]
        return pa.concat_arrays(texts).unique() if texts else pa.array([], pa.string())

    def judgments(self) -> Judgments:
        """The rows of the file of judgments."""
        each = self.settings
        if not each.judgments_file:
            return no_judgments()
        numbered = self._distinct_queries() if self.id_field is None else None
        return tables.read_judgments(
            [Path(each.judgments_file)], each.judged_query, each.judged_passage, each.grade, numbered=numbered
        )


def open_table(settings: TableSettings) -> TableSource:
    """Open the tables that settings name; refused if a file is missing."""
    for name in ("corpus_file", "queries_file", "judgments_file"):
        path = getattr(settings, name)
        if path and not Path(path).is_file():
            found = f"data.{name} {path}: {'is a folder' if Path(path).is_dir() else 'no such file'}"
            raise InputError(found, allowed="a CSV, TSV, Parquet or JSON lines file", fix="check the path")
    size = Path(settings.corpus_file).stat().st_size, "B"
    return TableSource(settings, settings.query_id, Path(settings.queries_file), size)


def _identity(file: str, columns: list[str | None]) -> JsonObject:
    path = Path(file)  # the ending decides how the bytes are read
    hashes = [hash_file(path)]
    return {"layout": "table", "form": tables.form_of(path), "columns": columns, "sha256": hashes}


def _texts(
    file: str, ids: str, text: str, title: str | None = None, excluded: str | None = None
) -> Iterator[Batch]:
    wanted, lists = [name for name in (ids, text, title) if name], [excluded] if excluded else []
    parts = tables.read_rows([Path(file)], wanted, lists, ids=[ids, *lists])
    return (rows.texts(ids, text, title, excluded) for rows in parts)

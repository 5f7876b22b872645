"""A folder of tables whose names and columns tell what they hold: the settings of the source `table`.

passages.csv       id, title, text
queries.csv        id, query
judgments.parquet  query_id, passage_id, grade

Or a shop's products and its search log, whose queries have no ids: distinct texts are numbered.

products.csv       sku, name, description
log.csv            query, sku, weight
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.data.sources.folders import TABLE_COLUMNS
from pipeline.formats.tables import column_names, columns_shown

ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")
FILES = {
    "corpus_file": (
        "corpus", "passages", "documents", "docs", "collection", "chunks", "articles", "texts", "products",
        "items",
    ),
    "queries_file": ("queries", "questions", "topics", "searches"),
    "judgments_file": (
        "qrels", "judgments", "judgements", "labels", "relevance", "grades", "answers", "clicks", "log",
        "search_log", "purchases",
    ),
}  # fmt: skip
"""By the setting of a file the names that it is known by, without case and ending."""
PASSAGE_IDS = (
    "passage_id", "passage-id", "doc_id", "docid", "document_id", "corpus_id", "corpus-id", "pid", "docno",
    "sku", "product_id", "item_id", "asin",
)  # fmt: skip
QUERY_IDS = ("query_id", "query-id", "qid", "question_id", "topic_id")
COLUMNS = {
    "corpus_id": ("id", "_id", *PASSAGE_IDS),
    "corpus_text": (
        "text", "contents", "content", "passage", "body", "document", "description", "name", "title",
    ),
    "corpus_title": ("title", "headline", "heading", "name"),
    "query_id": ("id", "_id", *QUERY_IDS),
    "query_text": ("text", "query", "question", "query_text"),
    "judged_query": (*QUERY_IDS, "query"),
    "judged_passage": (*PASSAGE_IDS, "passage", "document", "doc"),
    "grade": ("grade", "score", "relevance", "rel", "label", "judgment", "weight", "clicks", "count"),
}  # fmt: skip
"""By the setting of a column the names that it is known by, without case."""
MEANINGS = {
    "corpus_id": "the passage's id", "corpus_text": "the passage's text", "query_id": "the query's id",
    "query_text": "the query's text", "judged_query": "the query's id", "judged_passage": "the passage's id",
}  # fmt: skip
"""By the setting of a column that a file must have, what it holds."""


def find_tables(
    folder: Path, name: str, given: Facts, section: str
) -> tuple[dict[str, str | None], str] | None:
    """Settings of the source `table` for the tables of a folder, and what each is; None if it has none.

    Args:
        folder: The folder.
        name: The folder as the user wrote it, with which the settings' paths begin.
        given: Settings of files and columns that are taken as they are.
        section: The config's section that the settings are in, as `--set` has it.

    Raises:
        InputError: It has tables, and it is not plain which is which, or a column has no known name.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and _plain_name(path)[1] in ENDINGS)
    if not files:
        return None
    present = ", ".join(path.name for path in files[:8])
    chosen = {setting: Path(str(path)).expanduser() for setting in FILES if (path := given.get(setting))}
    if missing := [f"{section}.{setting} {path}" for setting, path in chosen.items() if not path.is_file()]:
        raise InputError(
            f"{', '.join(missing)}: no such file; {name} has {present}",
            fix=f"name it as from the current folder: {Path(name, 'FILE')}",
        )
    taken = {path.resolve() for path in chosen.values()}
    others = [path for path in files if path.resolve() not in taken]
    found = {setting: chosen.get(setting) or _only(others, setting, FILES[setting]) for setting in FILES}
    judged = found["judgments_file"]
    is_log = found["queries_file"] is None and judged is not None and _is_log(column_names(judged))
    if is_log:
        found["queries_file"] = judged
    absent = [setting for setting, path in found.items() if path is None]
    if absent:
        parts = " and ".join(f"the {setting.removesuffix('_file')}" for setting in absent)
        raise InputError(
            f"--data {name}: cannot tell which file holds {parts}; it has {present}",
            allowed="by their names, with .csv, .tsv, .parquet or .jsonl, "
            + "; ".join(f"{setting}: {', '.join(FILES[setting][:4])}" for setting in absent),
            fix="name each: " + " ".join(f"--set {section}.{each}={Path(name, 'FILE')}" for each in absent),
        )
    paths = {setting: path for setting, path in found.items() if path is not None}
    columns = {setting: _columns(path, TABLE_COLUMNS[setting], given) for setting, path in paths.items()}
    if is_log:
        columns["queries_file"].pop("query_id")
    _refuse_unknown(paths, columns, section)
    settings: dict[str, str | None] = {}
    said = []
    for setting, path in paths.items():
        settings[setting] = str(path if setting in chosen else Path(name) / path.name)
        settings |= columns[setting]
        named = ", ".join(f"{column or 'none'} as {part}" for part, column in columns[setting].items())
        said.append(f"{path.name} ({named})")
    if is_log:
        settings["query_id"] = None
        said[-1] += ", whose distinct queries are numbered, as they have no ids, and repeated rows added up"
    return settings, f"--data {name}: reads {'; '.join(said)}"


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
    names = {column.lower() for column in present}
    if names & {*QUERY_IDS} and names & {*PASSAGE_IDS}:
        return "judgments_file"
    if names & {"query", "question", "query_text"}:
        if names & {*COLUMNS["query_id"]}:
            return "queries_file"
        if _is_log(present):
            return "judgments_file"
    return "corpus_file" if names & {*COLUMNS["corpus_id"]} and names & {*COLUMNS["corpus_text"]} else ""


def _is_log(present: Sequence[str]) -> bool:
    """Whether such columns are those of queries without ids, and of passages."""
    names = {column.lower() for column in present}
    return "query" in names and not names & {*QUERY_IDS} and bool(names & {*PASSAGE_IDS})


def _columns(path: Path, settings: Sequence[str], given: Facts) -> dict[str, str | None]:
    """The column of a file for each setting, None where it is not plain."""
    present = column_names(path)
    lowered = {column.lower(): column for column in reversed(present)}
    columns = {
        setting: given[setting]
        if setting in given
        else next((lowered[name] for name in COLUMNS[setting] if name in lowered), None)
        for setting in settings
    }
    if columns.get("corpus_title") == columns.get("corpus_text"):
        columns.pop("corpus_title", None)
    return columns


def _refuse_unknown(
    paths: Mapping[str, Path], columns: Mapping[str, Mapping[str, str | None]], section: str
) -> None:
    """Refuse files in which a column is not plain; the message has those of all files."""
    found, allowed, sets = [], [], []
    for file, path in paths.items():
        absent = [each for each, column in columns[file].items() if column is None and each in MEANINGS]
        if absent:
            parts = " or ".join(f"{section}.{each} ({MEANINGS[each]})" for each in absent)
            held = columns_shown(column_names(path))
            found.append(f"{path}: cannot tell which column is {parts}; it has {held}")
            allowed += [f"{each}: {', '.join(COLUMNS[each][:5])}" for each in absent]
            sets += [f"--set {section}.{each}=COLUMN" for each in absent]
    if found:
        raise InputError(
            "; ".join(found),
            allowed=f"by their names: {'; '.join(allowed)}",
            fix=f"name each: {' '.join(sets)}",
        )

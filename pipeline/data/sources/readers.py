"""Readers of parts of dataset repositories: texts and judgments in the forms of well-known datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.data.sources.repos import Part, RepoSource
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments, judgments_by_answers, make_judgments, read_qrels
from pipeline.formats.records import Batch

if TYPE_CHECKING:
    import pyarrow as pa

Texts = Callable[[Part], Iterator[Batch]]
Judge = Callable[[RepoSource], Judgments]
Change = Callable[["pa.Array"], "pa.Array"]

CONTROLS = "".join(map(chr, (*range(1, 9), 14, 15, *range(17, 28), 0xAD)))  # and the soft hyphen
REWRITTEN = {
    "": CONTROLS,
    " ": "\v\f\x85",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u207b\uff0d",
    "/": "\u2044\u2215",
    '"': "\u201c\u201d\u201e\u201f",
    "'": "\u2018\u2019\u201a\u201b\u055a\ua78b\ua78c\uff07`\u00b4\u2032\u2035",
    "''": "\u2033\u2036",
    "'''": "\u2034\u2037",
    "''''": "\u2057",
    "...": "\u2026",
}
"""What FlagEmbedding's copy of Natural Questions has in place of each of some characters."""
PLAIN = str.maketrans({each: plain for plain, characters in REWRITTEN.items() for each in characters})


def texts_of(
    *ids: str,
    text: str = "text",
    title: str | None = None,
    rename: Change | None = None,
    rewrite: Change | None = None,
) -> Texts:
    """A reader of the rows of tables.

    Args:
        ids: The columns that may hold the ids; the first that a table has is read.
        text: The column of texts.
        title: The column of titles, which a table may lack.
        rename: Gets the ids and returns those of the collection.
        rewrite: Gets the texts, or the titles, and returns those of the collection.
    """
    required = [text] if ids[1:] else [*ids, text]
    optional = [*ids[1:], ids[0]] if ids[1:] else []

    def read(part: Part) -> Iterator[Batch]:
        for rows in part.rows(required, [*optional, *([title] if title else [])]):
            column = next((name for name in ids if name in rows.columns), ids[0])
            found, texts = rows.strings(column, integers=True), rows.strings(text)
            titles = rows.strings(title, nulls=True) if title in rows.columns else None
            if rewrite:
                texts, titles = rewrite(texts), None if titles is None else rewrite(titles)
            yield rows.batch(rename(found) if rename else found, texts, titles)

    return read


def first_rows(key: str, text: str, prefix: str) -> Texts:
    """A reader of the first row of each value of the column `key`.

    Its id is the prefix and the number of that value, from 0, in the order of first appearance.
    """

    def read(part: Part) -> Iterator[Batch]:
        import pyarrow as pa

        seen: set[str] = set()
        for rows in part.rows(list(dict.fromkeys((key, text)))):
            start, first = len(seen), []
            for row, value in enumerate(rows.strings(key).to_pylist()):
                if value not in seen:
                    seen.add(value)
                    first.append(row)
            ids = pa.array([f"{prefix}{number}" for number in range(start, len(seen))], pa.string())
            chosen = rows.batch(rows.strings(text), rows.strings(text)).take(np.array(first, np.int64))
            yield replace(chosen, ids=ids, advance=rows.advance)

    return read


def judged_in(query: str, passage: str, grade: str, grade_is_optional: bool = False) -> Judge:
    """A reader of judgments from tables with columns of those names, or from one file as TSV."""

    def judge(source: RepoSource) -> Judgments:
        files = source.qrels.paths()
        if len(files) == 1 and files[0].name.endswith((".tsv", ".tsv.gz")):
            return read_qrels(files[0])
        return tables.read_judgments(files, query, passage, grade, grade_is_optional)

    return judge


def judged_in_lists(
    query: str,
    grades: Mapping[str, int],
    *,
    none: str | None = None,
    rename: Change | None = None,
) -> Judge:
    """A reader of tables with a row for each query, and the ids of its passages in lists.

    Args:
        query: The column of query ids.
        grades: The columns of lists, and the grade of the passages in each.
        none: An entry that is no id.
        rename: Gets the passages' ids and returns those of the collection.
    """

    def judge(source: RepoSource) -> Judgments:
        import pyarrow as pa

        from pipeline.core.records import from_numpy

        queries, passages, values, numbers = [], [], [], []
        origin, unit = "", "row"
        for part in source.qrels.rows([query, *grades]):
            origin, unit = part.origin, part.unit
            for column, grade in grades.items():
                ids, parents = part.lists(column)
                if none is not None:
                    kept = np.array([name != none for name in ids.to_pylist()], np.bool_)
                    ids, parents = ids.filter(pa.array(kept)), parents[kept]
                queries.append(part.strings(query, integers=True).take(from_numpy(parents)))
                passages.append(rename(ids) if rename else ids)
                values.append(np.full(len(ids), grade, np.int64))
                numbers.append(np.asarray(part.numbers, np.int64)[parents])
        if not queries:
            raise InputError("the table of queries is empty", fix="check data.path and data.split")
        ids = pa.concat_arrays(queries), pa.concat_arrays(passages)
        return make_judgments(*ids, np.concatenate(values), origin, unit, np.concatenate(numbers))

    return judge


def judged_by_link(source: RepoSource) -> Judgments:
    """Belebele's judgments: a passage is relevant to the questions with its link."""
    import pyarrow as pa

    passages = _numbers(source.corpus_part.rows(["link"]), "link")
    questions = _numbers(source.queries_part.rows(["question"]), "question")
    pairs = [
        (f"Q{questions[question]}", f"C{passages[link]}")
        for rows in source.queries_part.rows(["question", "link"])
        for question, link in zip(*(rows.strings(name).to_pylist() for name in rows.columns), strict=True)
        if link in passages
    ]
    queries, found = zip(*pairs, strict=True) if pairs else ((), ())
    ids = pa.array(queries, pa.string()), pa.array(found, pa.string())
    origin = f"{source.queries_part.repo.name}, {source.queries_part.place.table}"
    return make_judgments(*ids, np.ones(len(pairs)), origin, "row", np.arange(len(pairs)))


def _numbers(parts: Iterable[tables.Rows], key: str) -> dict[str, int]:
    """The number of each value of a column, in the order of first appearance."""
    values: dict[str, int] = {}
    for rows in parts:
        for value in rows.strings(key).to_pylist():
            values.setdefault(value, len(values))
    return values


def judged_by_answers(source: RepoSource) -> Judgments:
    """The answers of each question, by which passages are judged (`pipeline.metrics.answers`)."""
    import pyarrow as pa

    (rows,) = source.qrels.rows(["id", "answers"])
    texts, parents = rows.lists("answers")
    ends = np.searchsorted(parents, np.arange(len(rows) + 1)).astype(np.int32)
    answers = pa.ListArray.from_arrays(pa.array(ends), texts)
    return judgments_by_answers(rows.strings("id", integers=True), answers, rows.origin)


def without_spaces(ids: pa.Array) -> pa.Array:
    """Ids that are file names, with `%20` for a space: TREC files allow none."""
    import pyarrow.compute as pc

    return pc.replace_substring(ids, " ", "%20")


def in_plain_characters(texts: pa.Array) -> pa.Array:
    """Texts in plain characters and lower case."""
    import pyarrow as pa

    plain = (text.translate(PLAIN).replace(" . . . ", " ... ").lower() for text in texts.to_pylist())
    return pa.array(plain, pa.string())

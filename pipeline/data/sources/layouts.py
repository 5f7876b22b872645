"""Layouts of well-known datasets in repositories, on the hub or in local folders: a table, and what opens it.

A row says where corpus, queries and judgments are and how each is read. Names in braces stand for settings of
`data`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.data import AirBenchSettings, BeirSettings, BelebeleSettings, BrightSettings
from pipeline.core.errors import InputError
from pipeline.core.records import from_numpy
from pipeline.data.sources.folders import FolderSource, open_folder
from pipeline.data.sources.repos import Repo, RepoPart, RepoSource
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments, make_judgments, read_qrels
from pipeline.formats.texts import Batch

if TYPE_CHECKING:
    import pyarrow as pa

TextsReader = Callable[[RepoPart], Iterator[Batch]]
Judge = Callable[[RepoSource], Judgments]
Rename = Callable[["pa.Array"], "pa.Array"]


def texts_of(
    *ids: str, text: str = "text", title: str | None = None, rename: Rename | None = None
) -> TextsReader:
    """A reader of the rows of tables: of the first column of `ids` that a table has, and of two others.

    A table may lack titles. `rename` gets the ids and returns those of the collection.
    """
    required = [text] if ids[1:] else [*ids, text]
    optional = [*ids[1:], ids[0]] if ids[1:] else []

    def read(part: RepoPart) -> Iterator[Batch]:
        for rows in part.rows(required, [*optional, *([title] if title else [])]):
            column = next((name for name in ids if name in rows.columns), ids[0])
            batch = rows.texts(column, text, title)
            yield replace(batch, ids=rename(batch.ids)) if rename else batch

    return read


def first_rows(key: str, text: str, prefix: str) -> TextsReader:
    """A reader of the first row of each value of the column `key`.

    Its id is the prefix and the number of that value, from 0, in the order of first appearance.
    """

    def read(part: RepoPart) -> Iterator[Batch]:
        keys, texts = _whole_columns(part, key, text)
        _, first = np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)
        ids = tables.number_texts(values := keys.unique(), values, prefix, 0)
        yield Batch(ids, texts.take(from_numpy(first)), None, part.repo.name, "row", first, part.size())

    return read


def _whole_columns(part: RepoPart, *names: str) -> list[pa.Array]:
    """All of some columns of texts, Arrow strings [rows]."""
    import pyarrow as pa

    read = list(part.rows(names))
    columns = ([rows.strings(name) for rows in read] for name in names)
    return [pa.chunked_array(column, pa.string()).combine_chunks() for column in columns]


def judged_in(query: str, passage: str, grade: str, grade_is_optional: bool = False) -> Judge:
    """A reader of judgments from tables with columns of those names, or from one file as TSV."""

    def judge(source: RepoSource) -> Judgments:
        files = source.qrels.paths()
        if len(files) == 1 and files[0].name.endswith((".tsv", ".tsv.gz")):
            return read_qrels(files[0])
        return tables.read_judgments(files, query, passage, grade, grade_is_optional)

    return judge


def judged_in_lists(query: str, grades: Mapping[str, int], none: str) -> Judge:
    """A reader of tables with a row for each query, and the ids of its passages in lists.

    `grades` has the columns of lists, and the grade of the passages in each; `none` is an entry that is no
    id.
    """

    def judge(source: RepoSource) -> Judgments:
        import pyarrow as pa
        import pyarrow.compute as pc

        queries, passages, values, numbers = [], [], [], []
        origin, unit = "", "row"
        for part in source.qrels.rows([query, *grades]):
            origin, unit = part.origin, part.unit
            for column, grade in grades.items():
                ids, parents = part.lists(column, integers=True)
                is_id = pc.not_equal(ids, none)
                ids, parents = ids.filter(is_id), parents[is_id.to_numpy(zero_copy_only=False)]
                queries.append(part.strings(query, integers=True).take(from_numpy(parents)))
                passages.append(without_spaces(ids))
                values.append(np.full(len(ids), grade, np.int64))
                numbers.append(np.asarray(part.numbers, np.int64)[parents])
        if not queries:
            raise InputError("the table of queries is empty", fix="check data.path and data.split")
        ids = pa.concat_arrays(queries), pa.concat_arrays(passages)
        return make_judgments(*ids, np.concatenate(values), origin, unit, np.concatenate(numbers))

    return judge


def judged_by_link(source: RepoSource) -> Judgments:
    """Belebele's judgments: a passage is relevant to the questions with its link."""
    import pyarrow.compute as pc

    (links,) = _whole_columns(source.corpus_part, "link")
    questions, linked = _whole_columns(source.queries_part, "question", "link")
    has_passage = pc.is_in(linked, value_set=links)
    queries = tables.number_texts(questions, questions.unique(), "Q", 0).filter(has_passage)
    passages = tables.number_texts(linked, links.unique(), "C", 0).filter(has_passage)
    origin = f"{source.queries_part.repo.name}, {source.queries_part.table}"
    return make_judgments(queries, passages, np.ones(len(queries)), origin, "row", np.arange(len(queries)))


def without_spaces(ids: pa.Array) -> pa.Array:
    """Ids that are file names, with `%20` for a space: TREC files allow none."""
    import pyarrow.compute as pc

    return pc.replace_substring(ids, " ", "%20")


BEIR_TEXTS = texts_of("_id", "id", title="title")
AIR_BENCH = "AIR-Bench_24.05"  # the name of each of its tables


def open_bright(settings: BrightSettings) -> RepoSource:
    """Open a domain of BRIGHT, of passages or of whole documents; ids are in lists.

    Documents that must not count for a question, such as the page that it was taken from, get the grade -1;
    `data.ignored: negative_grades` removes them, as FlagEmbedding's evaluation does.
    """
    repo, long = Repo.open(settings.path, settings.revision), settings.documents == "long"
    queries = RepoPart(repo, settings.split, settings.domain, {"layout": "bright"})
    grades = {"gold_ids_long": 1} if long else {"gold_ids": 1, "excluded_ids": -1}
    return RepoSource(
        replace(queries, table="long_documents" if long else "documents"),
        queries,
        replace(queries, marks={**queries.marks, "long": long}),
        texts_of("id", text="content", rename=without_spaces),
        texts_of("id", text="query"),
        judged_in_lists("id", grades, none="N/A"),
    )


def open_belebele(settings: BelebeleSettings) -> RepoSource:
    """Open questions of one language of Belebele, and passages of the same or another.

    A table for each language is joined as MTEB's BelebeleRetrieval does: a row holds a question, the passage
    that answers it, and its link, which is the same in all languages.
    """
    repo = Repo.open(settings.path, settings.revision)
    queries = RepoPart(repo, settings.language, settings.split, {"layout": "belebele"})
    passages = replace(queries, table=settings.corpus_language or settings.language)
    read_texts = first_rows("link", "flores_passage", "C"), first_rows("question", "question", "Q")
    return RepoSource(passages, queries, None, *read_texts, judged_by_link)


def open_air_bench(settings: AirBenchSettings) -> RepoSource:
    """Open a dataset of AIR-Bench, with the judgments from their own repository.

    Texts are in AIR-Bench/qa_wiki_en, judgments in AIR-Bench/qrels-qa_wiki_en-dev; those of the test sets, in
    a repository without -dev, are not public.
    """
    above, slash, name = settings.path.rstrip("/").rpartition("/")
    judged = f"{above}{slash}qrels-{name}{'-dev' if settings.split == 'dev' else ''}"
    texts, qrels = Repo.open(settings.path, settings.revision), Repo.open(judged, None)
    dataset = settings.dataset.replace("-", "_")
    return RepoSource(
        RepoPart(texts, AIR_BENCH, f"corpus_{dataset}"),
        RepoPart(texts, AIR_BENCH, f"queries_{dataset}_{settings.split}"),
        RepoPart(qrels, AIR_BENCH, f"qrels_{dataset}_{settings.split}"),
        BEIR_TEXTS,
        BEIR_TEXTS,
        judged_in("qid", "docid", "relevance"),
    )


def open_beir(settings: BeirSettings) -> FolderSource | RepoSource:
    """Open BEIR's own files where the folder has them, else its layout on the hub.

    On the hub, as in `BeIR/*` and `mteb/*`, texts are in tables `corpus` and `queries`; judgments in a table
    `qrels` or `default`, or in a repository or folder of the same name with `-qrels` at its end. Without a
    column `score`, judgments list relevant passages. A repository may hold several collections: as subsets
    with tables such as `sw-corpus` (MTEB), or as splits of the three tables (NanoBEIR).
    """
    folder = Path(settings.path)
    has_own = any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))
    if folder.is_absolute() and (has_own or not folder.is_dir() or not any(folder.rglob("*corpus*"))):
        return open_folder(settings)
    texts = Repo.open(settings.path, settings.revision)
    corpus, queries = (_beir_texts(texts, settings, part) for part in ("corpus", "queries"))
    qrels = _beir_qrels(texts, settings)
    judge = judged_in("query-id", "corpus-id", "score", grade_is_optional=True)
    return RepoSource(corpus, queries, qrels, BEIR_TEXTS, BEIR_TEXTS, judge)


def _beir_texts(texts: Repo, settings: BeirSettings, part: str) -> RepoPart:
    """The table of a part's texts and its split: the one named as the part, or as that of the judgments.

    The split is None if there is neither, which takes the table's only split.
    """
    table = f"{settings.subset}-{part}" if settings.subset is not None else part
    splits = texts.splits(table)
    return RepoPart(texts, table, next((name for name in (part, settings.split) if name in splits), None))


def _beir_qrels(texts: Repo, settings: BeirSettings) -> RepoPart:
    """The judgments: in the repository of the texts, or in one beside it."""
    if settings.subset is not None:
        return RepoPart(texts, f"{settings.subset}-qrels", settings.split)
    for table in ("qrels", "default"):
        if texts.has(table):
            return RepoPart(texts, table, settings.split)
    beside = settings.path.rstrip("/") + "-qrels"
    if texts.commit is None and not Path(beside).is_dir():
        raise InputError(
            f"data.path {settings.path}: no judgments, neither in a table 'qrels' or 'default' "
            f"nor in {beside}",
            allowed="BEIR's layout, of files or as on the hub (README.md: data)",
            fix="add the judgments",
        )
    return RepoPart(Repo.open(beside, None), None, settings.split)

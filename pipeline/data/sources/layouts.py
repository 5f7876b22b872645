"""Layouts of well-known datasets in repositories, on the hub or in local folders: a table, and what opens it.

A row says where corpus, queries and judgments are and how each is read. Names in braces stand for settings of
`data`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.config.data import AirBenchSettings, BeirSettings, BelebeleSettings, BrightSettings
from pipeline.core.errors import InputError
from pipeline.core.records import from_numpy
from pipeline.data.sources.folders import FolderSource, open_folder
from pipeline.data.sources.repos import Place, Repo, RepoPart, RepoSource
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
    query: str, grades: Mapping[str, int], *, none: str | None = None, rename: Rename | None = None
) -> Judge:
    """A reader of tables with a row for each query, and the ids of its passages in lists.

    `grades` has the columns of lists, and the grade of the passages in each; `none` is an entry that is no
    id; `rename` gets the passages' ids and returns those of the collection.
    """

    def judge(source: RepoSource) -> Judgments:
        import pyarrow as pa

        queries, passages, values, numbers = [], [], [], []
        origin, unit = "", "row"
        for part in source.qrels.rows([query, *grades]):
            origin, unit = part.origin, part.unit
            for column, grade in grades.items():
                ids, parents = part.lists(column, integers=True)
                if none is not None:
                    is_id = np.array([name != none for name in ids.to_pylist()], np.bool_)
                    ids, parents = ids.filter(pa.array(is_id)), parents[is_id]
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


def _numbers(parts: Iterable[tables.TableRows], key: str) -> dict[str, int]:
    """The number of each value of a column, in the order of first appearance."""
    values: dict[str, int] = {}
    for rows in parts:
        for value in rows.strings(key).to_pylist():
            values.setdefault(value, len(values))
    return values


def without_spaces(ids: pa.Array) -> pa.Array:
    """Ids that are file names, with `%20` for a space: TREC files allow none."""
    import pyarrow.compute as pc

    return pc.replace_substring(ids, " ", "%20")


class RepoLayout(NamedTuple):
    """Where the parts of a collection are and how they are read."""

    corpus: Place
    queries: Place
    qrels: Place | None  # None if the judgments are made of the two others
    read_corpus: TextsReader
    read_queries: TextsReader
    judge: Judge
    mark: str | None = None  # in the identity of each part


BEIR_TEXTS = texts_of("_id", "id", title="title")
AIR_BENCH = "AIR-Bench_24.05"  # the name of each of its tables
BRIGHT = RepoLayout(
    # Ids in lists. Documents that must not count for a question, such as the page that it was taken from, get
    # the grade -1; data.ignored: negative_grades removes them, as FlagEmbedding's evaluation does.
    corpus=Place("documents", "{domain}"),
    queries=Place("{split}", "{domain}"),
    qrels=Place("{split}", "{domain}", identity={"long": False}),
    read_corpus=texts_of("id", text="content", rename=without_spaces),
    read_queries=texts_of("id", text="query"),
    judge=judged_in_lists("id", {"gold_ids": 1, "excluded_ids": -1}, none="N/A", rename=without_spaces),
    mark="bright",
)
LAYOUTS = {
    # Texts in AIR-Bench/qa_wiki_en, judgments in AIR-Bench/qrels-qa_wiki_en-dev; those of the test sets, in a
    # repository without -dev, are not public.
    "air-bench": RepoLayout(
        corpus=Place(AIR_BENCH, "corpus_{dataset}"),
        queries=Place(AIR_BENCH, "queries_{dataset}_{split}"),
        qrels=Place(AIR_BENCH, "qrels_{dataset}_{split}", repo="qrels_path"),
        read_corpus=BEIR_TEXTS,
        read_queries=BEIR_TEXTS,
        judge=judged_in("qid", "docid", "relevance"),
    ),
    # A table for each language, joined as MTEB's BelebeleRetrieval does: a row holds a question, the passage
    # that answers it, and its link, which is the same in all languages.
    "belebele": RepoLayout(
        corpus=Place("{corpus_language}", "{split}"),
        queries=Place("{language}", "{split}"),
        qrels=None,
        read_corpus=first_rows("link", "flores_passage", "C"),
        read_queries=first_rows("question", "question", "Q"),
        judge=judged_by_link,
        mark="belebele",
    ),
    "bright": BRIGHT,
    "bright long": BRIGHT._replace(
        corpus=Place("long_documents", "{domain}"),
        qrels=Place("{split}", "{domain}", identity={"long": True}),
        judge=judged_in_lists("id", {"gold_ids_long": 1}, none="N/A", rename=without_spaces),
    ),
}


def open_bright(settings: BrightSettings) -> RepoSource:
    """Open a domain of BRIGHT, of passages or of whole documents."""
    return _open(LAYOUTS["bright long" if settings.documents == "long" else "bright"], dict(settings))


def open_belebele(settings: BelebeleSettings) -> RepoSource:
    """Open questions of one language of Belebele, and passages of the same or another."""
    passages = settings.corpus_language or settings.language
    return _open(LAYOUTS["belebele"], {**dict(settings), "corpus_language": passages})


def open_air_bench(settings: AirBenchSettings) -> RepoSource:
    """Open a dataset of AIR-Bench, with the judgments from their own repository."""
    above, slash, name = settings.path.rstrip("/").rpartition("/")
    judged = f"{above}{slash}qrels-{name}{'-dev' if settings.split == 'dev' else ''}"
    values = {"dataset": settings.dataset.replace("-", "_"), "qrels_path": judged}
    return _open(LAYOUTS["air-bench"], {**dict(settings), **values})


def _open(layout: RepoLayout, values: Mapping[str, object]) -> RepoSource:
    """Open the repositories of a layout, with settings for the names in braces."""
    repos: dict[str, Repo] = {}

    def found(place: Place) -> RepoPart:
        if place.repo not in repos:
            revision = values.get(place.repo.replace("path", "revision"))
            repos[place.repo] = Repo.open(
                str(values[place.repo]), None if revision is None else str(revision)
            )
        return RepoPart(repos[place.repo], place.filled(values), layout.mark)

    corpus, queries = found(layout.corpus), found(layout.queries)
    qrels = found(layout.qrels) if layout.qrels else None
    return RepoSource(corpus, queries, qrels, layout.read_corpus, layout.read_queries, layout.judge)


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
    corpus, queries = (_place_of_texts(texts, settings, part) for part in ("corpus", "queries"))
    qrels = _beir_qrels(texts, settings)
    judge = judged_in("query-id", "corpus-id", "score", grade_is_optional=True)
    return RepoSource(RepoPart(texts, corpus), RepoPart(texts, queries), qrels, BEIR_TEXTS, BEIR_TEXTS, judge)


def _place_of_texts(texts: Repo, settings: BeirSettings, part: str) -> Place:
    """The table of a part's texts and its split: the one named as the part, or as that of the judgments.

    The split is None if there is neither, which takes the table's only split.
    """
    table = f"{settings.subset}-{part}" if settings.subset is not None else part
    splits = texts.splits(table)
    return Place(table, next((name for name in (part, settings.split) if name in splits), None))


def _beir_qrels(texts: Repo, settings: BeirSettings) -> RepoPart:
    """The judgments: in the repository of the texts, or in one beside it."""
    if settings.subset is not None:
        return RepoPart(texts, Place(f"{settings.subset}-qrels", settings.split))
    for table in ("qrels", "default"):
        if texts.has(table):
            return RepoPart(texts, Place(table, settings.split))
    beside = settings.path.rstrip("/") + "-qrels"
    if texts.commit is None and not Path(beside).is_dir():
        raise InputError(
            f"data.path {settings.path}: no judgments, neither in a table 'qrels' or 'default' "
            f"nor in {beside}",
            allowed="BEIR's layout, of files or as on the hub (README.md: data)",
            fix="add the judgments",
        )
    return RepoPart(Repo.open(beside, None), Place(None, settings.split))

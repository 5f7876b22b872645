"""Layouts of well-known datasets in repositories, on the hub or in local folders: a table, and what opens it.

A row says where corpus, queries and judgments are and how each is read. Names in braces stand for settings of
`data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.config.data import (
    AirBenchSettings,
    BeirSettings,
    BelebeleSettings,
    BrightSettings,
    LocatedSettings,
)
from pipeline.core.errors import InputError
from pipeline.data.sources.folders import FolderSource, open_folder
from pipeline.data.sources.readers import (
    Judge,
    Texts,
    first_rows,
    in_plain_characters,
    judged_by_answers,
    judged_by_link,
    judged_in,
    judged_in_lists,
    texts_of,
    without_spaces,
)
from pipeline.data.sources.repos import Part, Place, Repo, RepoSource


class Layout(NamedTuple):
    """Where the parts of a collection are and how they are read.

    Attributes:
        corpus, queries, qrels: The places; judgments without one are made of the two others.
        read_corpus, read_queries, judge: The readers.
        mark: The name that the identity of each part has; None for none.
    """

    corpus: Place
    queries: Place
    qrels: Place | None
    read_corpus: Texts
    read_queries: Texts
    judge: Judge
    mark: str | None = None


BEIR_TEXTS = texts_of("_id", "id", title="title")
AIR_BENCH = "AIR-Bench_24.05"  # the name of each of its tables
BRIGHT = Layout(
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
    "air-bench": Layout(
        corpus=Place(AIR_BENCH, "corpus_{dataset}"),
        queries=Place(AIR_BENCH, "queries_{dataset}_{split}"),
        qrels=Place(AIR_BENCH, "qrels_{dataset}_{split}", repo="qrels_path"),
        read_corpus=BEIR_TEXTS,
        read_queries=BEIR_TEXTS,
        judge=judged_in("qid", "docid", "relevance"),
    ),
    # A table for each language, joined as MTEB's BelebeleRetrieval does: a row holds a question, the passage
    # that answers it, and its link, which is the same in all languages.
    "belebele": Layout(
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
    # As FlagEmbedding evaluates it: questions of a language, asked of the passages of BeIR/nq, which are
    # judged by the answers that they contain.
    "mkqa": Layout(
        corpus=Place("corpus", repo="corpus_path"),
        queries=Place(
            files="MKQA_test-data.zip", member="{language}.jsonl", identity={"language": "{language}"}
        ),
        qrels=Place(
            files="MKQA_test-data.zip", member="{language}.jsonl", identity={"language": "{language}"}
        ),
        read_corpus=texts_of("_id", "id", title="title", rewrite=in_plain_characters),
        read_queries=texts_of("id", text="question"),
        judge=judged_by_answers,
        mark="mkqa",
    ),
}


def open_layout(settings: LocatedSettings) -> RepoSource:
    """Open a collection in the layout named as its source."""
    return _open(LAYOUTS[settings.source], dict(settings))


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
    given = {"dataset": settings.dataset.replace("-", "_"), "qrels_path": judged}
    return _open(LAYOUTS["air-bench"], {**dict(settings), **given})


def _open(layout: Layout, values: Mapping[str, Any]) -> RepoSource:
    """Open the repositories of a layout, with settings for the names in braces."""
    repos: dict[str, Repo] = {}

    def found(place: Place) -> Part:
        if place.repo not in repos:
            revision = values.get(place.repo.replace("path", "revision"))
            repos[place.repo] = Repo.open(values[place.repo], revision)
        return Part(repos[place.repo], place.filled(values), layout.mark)

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
    return RepoSource(Part(texts, corpus), Part(texts, queries), qrels, BEIR_TEXTS, BEIR_TEXTS, judge)


def _place_of_texts(texts: Repo, settings: BeirSettings, part: str) -> Place:
    """The table of a part's texts and its split: the one named as the part, or as that of the judgments.

    The split is None if there is neither, which takes the table's only split.
    """
    table = f"{settings.subset}-{part}" if settings.subset is not None else part
    splits = texts.splits(table)
    return Place(table, next((name for name in (part, settings.split) if name in splits), None))


def _beir_qrels(texts: Repo, settings: BeirSettings) -> Part:
    """The judgments: in the repository of the texts, or in one beside it."""
    if settings.subset is not None:
        return Part(texts, Place(f"{settings.subset}-qrels", settings.split))
    for table in ("qrels", "default"):
        if texts.has(table):
            return Part(texts, Place(table, settings.split))
    beside = settings.path.rstrip("/") + "-qrels"
    if texts.commit is None and not Path(beside).is_dir():
        raise InputError(
            f"data.path {settings.path}: no judgments, neither in a table 'qrels' or 'default' "
            f"nor in {beside}",
            allowed="BEIR's layout, of files or as on the hub (README.md: data)",
            fix="add the judgments",
        )
    return Part(Repo.open(beside, None), Place(None, settings.split))

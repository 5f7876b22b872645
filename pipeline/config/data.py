"""The section `data`: the sources of collections, and the settings that they share."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from pipeline.config.settings import Kinds, LocalPath, PathOrId, Section, setting
from pipeline.core import plugins


class ChunkSettings(Section):
    """Parts of passages that are encoded and searched in their place."""

    tokens: int = setting(256, "maximum tokens of a chunk, without special tokens", shapes="chunks", ge=1)
    overlap: int = setting(32, "maximum tokens repeated from the previous chunk", shapes="chunks", ge=0)
    boundary: Literal["sentence", "token"] = setting(
        "sentence", "cut between sentences where possible, or between words", shapes="chunks"
    )

    @model_validator(mode="after")
    def _moves_on(self) -> Self:
        if self.overlap >= self.tokens:
            raise ValueError(
                f"data.chunks.overlap is {self.overlap:,}, and data.chunks.tokens {self.tokens:,}: "
                "lower the first or raise the second"
            )
        return self


class PositivesOf(Section):
    """The corpus of FlagEmbedding's tutorial: the positives of the first N rows of the dataset."""

    positives_of: int = setting(
        ..., "rows whose positives make the corpus", shapes="data passages queries", ge=1
    )


Slice: TypeAlias = PositivesOf | Annotated[int, Field(ge=1)]


class DataSettings(Section):
    """Where the collection comes from, and which part of it is used."""

    source: str = setting(..., "layout of the collection", names="data")
    queries: int | None = setting(None, "keep the first N queries; null: all", shapes="data queries", ge=1)
    corpus: Slice | None = setting(
        None,
        "slice: keep N passages, and all judged ones; {positives_of: N} with source 'hub'; null: all",
        shapes="data passages",
    )
    title_separator: str | None = setting(
        " ", "text between title and passage; null: no titles", shapes="data passages"
    )
    lowercase_queries: bool = setting(False, "lowercase queries", shapes="data queries")
    unjudged_queries: Literal["drop", "keep"] = setting(
        "drop", "queries without judgments: leave them out, or search without scoring", shapes="data queries"
    )
    missing_passages: Literal["count", "drop"] = setting(
        "count",
        "judged passages missing from the corpus: count as not retrieved, or drop",
        shapes="data evaluate",
    )
    ignored: Literal["none", "identical_ids", "negative_grades"] = setting(
        "none",
        "passages that a query's ranking leaves out: with the query's own id, or with a grade below 0",
        shapes="search",
    )
    chunks: ChunkSettings | None = setting(
        None, "cut passages into chunks and search these; null: whole passages", shapes="chunks"
    )


class PathSettings(DataSettings):
    """Where the files of a collection are, and which of its judgments are used."""

    path: PathOrId = setting(..., "folder of the collection, or a dataset id on the hub", names="data")
    split: str = setting("test", "split of the judgments or rows", names="data")


class SampleSettings(DataSettings):
    """The collection that comes with this package."""

    source: Literal["sample"] = DataSettings.narrowed("source", "sample")
    split: str = PathSettings.narrowed("split", "test")


class BeirSettings(PathSettings):
    """BEIR's layout: its own files, or tables as on the hub."""

    source: Literal["beir"] = DataSettings.narrowed("source", "beir")
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="data")
    subset: str | None = setting(None, "prefix of the hub's table names, such as sw", names="data")


class MsMarcoSettings(PathSettings):
    """MS MARCO's own files."""

    source: Literal["msmarco"] = DataSettings.narrowed("source", "msmarco")
    path: LocalPath = PathSettings.narrowed("path", doc="folder of the collection")


class FlagFolderSettings(PathSettings):
    """FlagEmbedding's evaluation layout."""

    source: Literal["flag"] = DataSettings.narrowed("source", "flag")
    path: LocalPath = PathSettings.narrowed("path", doc="folder of the collection")


class TableSettings(DataSettings):
    """Tables with any column names: CSV, TSV, Parquet or JSON lines, by their ending; .gz too."""

    source: Literal["table"] = DataSettings.narrowed("source", "table")
    corpus_file: LocalPath = setting(..., "file of passages", names="data")
    corpus_id: str = setting("id", "column of passage ids", names="data")
    corpus_text: str = setting("text", "column of passage texts", names="data")
    corpus_title: str | None = setting(None, "column of titles; null: none", names="data")
    queries_file: LocalPath = setting(..., "file of queries", names="data")
    query_id: str | None = setting(
        "id",
        "column of query ids; null: distinct texts are numbered, and judged_query holds texts",
        names="data",
    )
    query_text: str = setting("text", "column of query texts", names="data")
    judgments_file: LocalPath | None = setting(None, "file of judgments", names="data")
    judged_query: str = setting("query_id", "its column of query ids", names="data")
    judged_passage: str = setting("passage_id", "its column of passage ids", names="data")
    grade: str | None = setting(
        "grade", "its column of grades; null: each listed passage has grade 1", names="data"
    )

    @model_validator(mode="after")
    def _is_judged(self) -> Self:
        if not self.judgments_file and self.unjudged_queries == "drop":
            raise ValueError(
                "data.judgments_file is not set: name the file, or set data.unjudged_queries: keep, "
                "which searches all queries and scores none"
            )
        return self


class HubSettings(PathSettings):
    """A dataset of queries with their relevant texts, and perhaps another that holds the corpus."""

    source: Literal["hub"] = DataSettings.narrowed("source", "hub")
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="data")
    query_column: str = setting("query", "column of query texts", names="data")
    positives_column: str = setting("positive", "column of lists of relevant texts", names="data")
    corpus_path: PathOrId | None = setting(
        None, "dataset with the corpus; null: the positives are the corpus", names="data"
    )
    corpus_split: str = setting("train", "split of corpus_path", names="data")
    corpus_column: str = setting("content", "column of passage texts in corpus_path", names="data")


class CatalogueSettings(DataSettings):
    """A collection of the ir_datasets catalogue."""

    source: Literal["ir_datasets"] = DataSettings.narrowed("source", "ir_datasets")
    path: str = setting(..., "id in the catalogue", names="data")


class AirBenchSettings(PathSettings):
    """One dataset of AIR-Bench."""

    source: Literal["air-bench"] = DataSettings.narrowed("source", "air-bench")
    split: str = PathSettings.narrowed("split", doc="dev, or test where it exists")
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="data")
    dataset: str = setting("default", "name in AIR-Bench's task table", names="data")


class BelebeleSettings(PathSettings):
    """Questions of one language of Belebele, and passages of the same or another."""

    source: Literal["belebele"] = DataSettings.narrowed("source", "belebele")
    path: PathOrId = PathSettings.narrowed("path", "mteb/belebele")
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="data")
    language: str = setting(..., "language of the questions, such as swh_Latn", names="data")
    corpus_language: str | None = setting(None, "language of the passages; null: the same", names="data")


class BrightSettings(PathSettings):
    """One domain of BRIGHT."""

    source: Literal["bright"] = DataSettings.narrowed("source", "bright")
    path: PathOrId = PathSettings.narrowed("path", "xlangai/BRIGHT")
    split: str = PathSettings.narrowed(
        "split", "examples", "examples, or rewritten questions such as gpt4_reason"
    )
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="data")
    domain: str = setting(..., "domain, such as biology", names="data")
    documents: Literal["short", "long"] = setting("short", "search passages or whole documents", names="data")
    ignored: Literal["none", "identical_ids", "negative_grades"] = DataSettings.narrowed(
        "ignored", "negative_grades"
    )


SOURCES = Kinds(
    DataSettings,
    "source",
    {
        "sample": SampleSettings,
        "beir": BeirSettings,
        "msmarco": MsMarcoSettings,
        "flag": FlagFolderSettings,
        "table": TableSettings,
        "hub": HubSettings,
        "ir_datasets": CatalogueSettings,
        "air-bench": AirBenchSettings,
        "belebele": BelebeleSettings,
        "bright": BrightSettings,
    },
    groups=(plugins.SOURCES,),
)
"""The sources of one collection."""

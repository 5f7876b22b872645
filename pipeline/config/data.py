"""The section `data`: the sources of collections, and the settings that they share."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pipeline.config.chunks import ChunkSettings
from pipeline.config.kinds import Kinds
from pipeline.config.settings import PathOrId, Section, setting


class DataSettings(Section):
    """Where the collection comes from, and which part of it is used."""

    has_answers: ClassVar[bool] = False
    """Whether passages are judged by the answers that they contain, in place of judgments."""

    source: str = setting(..., "layout of the collection", shapes="data", keyed=False)
    queries: int | None = setting(None, "keep the first N queries; null is all", shapes="data", ge=1)
    corpus: int | None = setting(
        None,
        "keep N passages (all judged ones stay); {positives_of: N} only with source 'hub'; null is all",
        shapes="data",
        ge=1,
    )

    missing_passages: Literal["count", "drop", "refuse"] = setting(
        "count",
        "judgments of passages that the corpus lacks: count them as not retrieved, as trec_eval does",
        shapes="data evaluate",
    )
    ignored: Literal["none", "identical_ids", "negative_grades"] = setting(
        "none",
        "passages that are removed from a ranking before it is scored: those with the query's own id, or "
        "those judged below 0 for it",
        shapes="evaluate",
    )
    chunks: ChunkSettings | None = setting(
        None, "cuts passages into chunks, which are searched; null keeps them whole", shapes="chunks"
    )

    @property
    def passages_kept(self) -> int | None:
        """The number of passages in the slice of the corpus; None if it is not limited to a number."""
        return self.corpus

    def open(self) -> Any:
        """The reader of this source, a `pipeline.data.sources.protocol.Source`; refused without its files."""
        raise NotImplementedError


class LocatedSettings(DataSettings):
    """Where the files of a collection are, and which of its judgments are used."""

    path: PathOrId = setting(
        ..., "folder of the collection, or a dataset's id on the hub", shapes="data", keyed=False
    )
    split: str = setting("test", "which judgments or rows", shapes="data", keyed=False)


SOURCES = Kinds(
    DataSettings,
    "source",
    {
        "sample": "pipeline.data.sources.beir:SampleSettings",
        "beir": "pipeline.data.sources.beir:BeirSettings",
        "msmarco": "pipeline.data.sources.msmarco:MsMarcoSettings",
        "flag": "pipeline.data.sources.flag:FlagFolderSettings",
        "hub": "pipeline.data.sources.hub:HubSettings",
        "ir_datasets": "pipeline.data.sources.ir_datasets:CatalogueSettings",
        "air-bench": "pipeline.data.sources.air_bench:AirBenchSettings",
        "belebele": "pipeline.data.sources.belebele:BelebeleSettings",
        "bright": "pipeline.data.sources.bright:BrightSettings",
        "miracl": "pipeline.data.sources.miracl:MiraclSettings",
        "mkqa": "pipeline.data.sources.mkqa:MkqaSettings",
        "mldr": "pipeline.data.sources.mldr:MldrSettings",
    },
)
"""The sources: to add one, write its file in `pipeline/data/sources/` and its line here."""

DATA = Kinds(
    DataSettings,
    "source",
    {
        "collections": "pipeline.config.suites:CollectionsSettings",
        "suite": "pipeline.config.suites:SuiteSettings",
    },
    besides=SOURCES,
    implied=("collections", "suite"),
)
"""What the section may be: the source of one collection, or several collections."""

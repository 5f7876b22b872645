"""Sources of collections: a module for each layout, and what opens the settings of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.config.data import (
        AirBenchSettings,
        BeirSettings,
        BelebeleSettings,
        BrightSettings,
        CatalogueSettings,
        DataSettings,
        FlagFolderSettings,
        HubSettings,
        MiraclSettings,
        MkqaSettings,
        MldrSettings,
        MsMarcoSettings,
        SampleSettings,
    )
    from pipeline.data.sources.protocol import Source


def _sample(settings: SampleSettings) -> Source:
    from pipeline.data.sources.beir import open_sample

    return open_sample(settings)


def _beir(settings: BeirSettings) -> Source:
    from pipeline.data.sources.beir import open_beir

    return open_beir(settings)


def _msmarco(settings: MsMarcoSettings) -> Source:
    from pipeline.data.sources.msmarco import open_source

    return open_source(settings)


def _flag(settings: FlagFolderSettings) -> Source:
    from pipeline.data.sources.flag import open_source

    return open_source(settings)


def _hub(settings: HubSettings) -> Source:
    from pipeline.data.sources.hub import open_source

    return open_source(settings)


def _ir_datasets(settings: CatalogueSettings) -> Source:
    from pipeline.data.sources.ir_datasets import open_source

    return open_source(settings)


def _air_bench(settings: AirBenchSettings) -> Source:
    from pipeline.data.sources.air_bench import open_source

    return open_source(settings)


def _belebele(settings: BelebeleSettings) -> Source:
    from pipeline.data.sources.belebele import open_source

    return open_source(settings)


def _bright(settings: BrightSettings) -> Source:
    from pipeline.data.sources.bright import open_source

    return open_source(settings)


def _miracl(settings: MiraclSettings) -> Source:
    from pipeline.data.sources.miracl import open_source

    return open_source(settings)


def _mkqa(settings: MkqaSettings) -> Source:
    from pipeline.data.sources.mkqa import open_source

    return open_source(settings)


def _mldr(settings: MldrSettings) -> Source:
    from pipeline.data.sources.mldr import open_source

    return open_source(settings)


OPENERS: dict[str, Callable[[Any], Source]] = {
    "sample": _sample,
    "beir": _beir,
    "msmarco": _msmarco,
    "flag": _flag,
    "hub": _hub,
    "ir_datasets": _ir_datasets,
    "air-bench": _air_bench,
    "belebele": _belebele,
    "bright": _bright,
    "miracl": _miracl,
    "mkqa": _mkqa,
    "mldr": _mldr,
}
"""What opens the settings of each source, by its name; a module is imported when its source is opened."""


def open_source(settings: DataSettings) -> Source:
    """The reader of a collection; refused without its files, and for a list of collections."""
    if settings.source not in OPENERS:
        raise InputError(
            "data names several collections",
            allowed="one collection here",
            fix="name one of them by data.source",
        )
    return OPENERS[settings.source](settings)

"""Which reader belongs to which `data.source`? Importing this imports none of their heavy libraries."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import DataConfig
from pipeline.data.sources.beir import BeirFolder
from pipeline.data.sources.beir_hub import BeirHub
from pipeline.data.sources.flag import FlagFolder
from pipeline.data.sources.hub import HubDataset
from pipeline.data.sources.ir_datasets import CatalogueDataset
from pipeline.data.sources.msmarco import MsMarcoFolder
from pipeline.data.sources.protocol import Source

SAMPLE = Path(__file__).parents[1] / "sample"


def open_source(config: DataConfig) -> Source:
    """The reader of a config's source.

    Raises:
        InputError: Its files are not there.
    """
    path = str(config.path)
    match config.source:
        case "sample":
            return BeirFolder.open(str(SAMPLE), config.split)
        case "beir":
            return _beir(path, config)
        case "msmarco":
            return MsMarcoFolder.open(path, config.split)
        case "flag":
            return FlagFolder.open(path, config.split)
        case "hub":
            return HubDataset.open(config)
        case "ir_datasets":
            return CatalogueDataset.open(path)


def _beir(path: str, config: DataConfig) -> Source:
    """BEIR's own files where the folder has them, else its layout on the hub."""
    folder = Path(path)
    own = any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))
    on_hub = not folder.is_absolute() and not folder.exists()
    if on_hub or (folder.is_dir() and not own and any(folder.rglob("corpus*"))):
        return BeirHub.open(path, config.revision, config.split)
    return BeirFolder.open(path, config.split)

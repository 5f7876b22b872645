"""A finished index on disk, whole or in shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import UInt8
from pipeline.storage.artifacts import Artifact


@dataclass(frozen=True)
class StoredIndex:
    """A finished index; nothing of it is read yet."""

    artifact: Artifact

    def file(self, shard: int) -> Path:
        """The file of one of its shards."""
        return self.artifact.path(file_name(shard, len(self.artifact.files)))

    def bytes_of(self, shard: int) -> UInt8:
        """The bytes of a shard's file, memory-mapped."""
        return np.memmap(self.file(shard), np.uint8, "r")

    @property
    def cost(self) -> dict[str, Any]:
        """Seconds that it took to build, and bytes on disk."""
        made = self.artifact.manifest["made"]
        return {"build_seconds": made["seconds"], "disk_bytes": self.artifact.bytes}


def file_name(shard: int, shards: int) -> str:
    """The name of a shard's file; an index that is not cut has no number."""
    return f"index-{shard}.faiss" if shards > 1 else "index.faiss"

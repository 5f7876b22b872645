"""Collections that are a folder with three files: finding the files, and what identifies them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline.core.errors import InputError
from pipeline.storage.hashing import hash_user_file


@dataclass(frozen=True)
class CollectionFiles:
    """The files of a collection.

    Attributes:
        layout: Name of the layout, part of the files' identity.
        corpus_file: The passages.
        queries_file: The queries.
        qrels_file: The judgments of one split.
    """

    layout: ClassVar[str]
    corpus_file: Path
    queries_file: Path
    qrels_file: Path

    def identity(self) -> dict[str, dict[str, Any]]:
        """The three files' bytes."""
        files = {"corpus": self.corpus_file, "queries": self.queries_file, "qrels": self.qrels_file}
        return {part: {"layout": self.layout, **hashed(path)} for part, path in files.items()}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus file."""
        return self.corpus_file.stat().st_size, "B"


def collection_folder(path: str | None, layout: str) -> Path:
    """The folder of a collection.

    Args:
        path: As the config gives it.
        layout: The files it should hold, for the error.

    Raises:
        InputError: There is no such folder.
    """
    folder = Path(path or "")
    if not folder.is_dir():
        what = "is a file" if folder.is_file() else "no such folder"
        raise InputError(
            f"data.path {folder}: {what}", allowed=f"a folder with {layout}", fix="check the path"
        )
    return folder


def find(folder: Path, names: Sequence[str], layout: str) -> Path:
    """The first of `names` that `folder` has, plain or with `.gz`.

    Raises:
        InputError: It has none of them.
    """
    for name in names:
        for path in (folder / name, folder / (name + ".gz")):
            if path.is_file():
                return path
    raise InputError(
        f"{folder}: no file {' or '.join(names)} (plain or .gz)",
        allowed=layout,
        fix="add the file, or check data.path and data.split",
    )


def hashed(*paths: Path) -> dict[str, Any]:
    """The identity of files: their bytes, not their names or folders.

    Raises:
        InputError: One cannot be read.
    """
    return {"sha256": [hash_user_file(path) for path in paths]}

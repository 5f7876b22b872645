"""Where are a collection's files, and how are their lines read? Plain or gzip, block by block."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.storage.hashing import hash_user_file

BLOCK_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Consecutive whole lines of a file.

    Attributes:
        path: The file.
        first: Number of the first line, from 1.
        data: The lines' bytes, line ends included.
        advance: Bytes of the file on disk that were read for this block.
    """

    path: Path
    first: int
    data: bytes
    advance: int

    @cached_property
    def rows(self) -> int:
        """How many lines there are."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line, without its line end."""
        return enumerate(self.data.removesuffix(b"\n").split(b"\n"), self.first)

    def texts(self) -> list[str]:
        """The lines as text, without line ends.

        Raises:
            InputError: A line is not UTF-8.
        """
        try:
            lines = self.data.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            lines = [decoded(line, f"{self.path}, line {number}") for number, line in self.lines()]
        return [line.rstrip("\r") for line in lines]


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


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Read a file in blocks of whole lines; `.gz` is unpacked, a byte order mark is skipped.

    Raises:
        InputError: It is empty, cannot be read, or is not whole gzip data.
    """
    number, position = 1, 0
    try:
        with open(path, "rb") as raw, _unpacked(raw, path) as stream:
            while data := stream.read(block_bytes):
                data += stream.readline()
                data = data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data
                block = Block(path, number, data, raw.tell() - position)
                yield block
                number += block.rows
                position += block.advance
            if number == 1:
                raise InputError(f"{path}: the file is empty", fix="fetch it again, or check data.path")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip data ({error})", fix="fetch or pack the file again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", fix="check the file") from None


def _unpacked(raw: io.BufferedReader, path: Path) -> io.BufferedReader:
    return io.BufferedReader(gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw


def decoded(line: bytes, place: str) -> str:
    """A line as text.

    Args:
        line: Its bytes.
        place: File and line, for the error.

    Raises:
        InputError: It is not UTF-8.
    """
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: not UTF-8 text (byte {error.start + 1} of the line is 0x{line[error.start]:02x})",
            allowed="UTF-8",
            fix="convert the file, for example with iconv",
        ) from None

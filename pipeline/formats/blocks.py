"""Text files in blocks of whole lines, plain or gzip; all readers of lines build on it."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError

BLOCK_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"  # no UTF-8 text begins so


@dataclass(frozen=True)
class Block:
    """Consecutive whole lines of a file."""

    path: Path
    first: int  # number of the first line, from 1
    data: bytes  # the lines, with their ends
    advance: int  # bytes of the file on disk that were read for this block

    @cached_property
    def rows(self) -> int:
        """How many lines there are."""
        ends = np.count_nonzero(np.frombuffer(self.data, np.uint8) == 10)  # faster than bytes.count
        return int(ends) + (not self.data.endswith(b"\n"))

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line, without its line end."""
        return enumerate(self.data.removesuffix(b"\n").split(b"\n"), self.first)

    def texts(self) -> list[str]:
        """The lines as text, without line ends; refused if one is not UTF-8."""
        try:
            lines = self.data.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            lines = [decoded(line, f"{self.path}, line {number}") for number, line in self.lines()]
        return [line.rstrip("\r") for line in lines]

    def after(self, number: int) -> Block:
        """The lines that follow line `number` of the file, which is in this block."""
        passed = number - self.first + 1
        rest = b"".join(self.data.split(b"\n", passed)[passed:])
        return Block(self.path, number + 1, rest, self.advance)


def read_blocks(path: Path | str, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Read a file in blocks of whole lines; gzip data is unpacked, a byte order mark is skipped.

    A file is gzip data if its name ends in `.gz` or its first bytes say so. It may be a pipe.

    A block has `block_bytes` and the rest of its last line.

    Raises:
        InputError: The file is empty, cannot be read, or is not whole gzip data.
    """
    path, number, position = Path(path), 1, 0
    try:
        with open(path, "rb") as raw, _unpacked(raw, path) as stream:
            while data := stream.read(block_bytes):
                data += stream.readline()
                data = data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data
                end = raw.tell() if raw.seekable() else position
                block = Block(path, number, data, end - position)
                yield block
                number += block.rows
                position = end
            if number == 1:
                raise InputError(f"{path}: the file is empty", fix="check the path, or write the file again")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip data ({error})", fix="fetch or pack the file again") from None
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror}"
        raise InputError(reason, fix="check the file: plain or gzip text is read") from None


def _unpacked(raw: io.BufferedReader, path: Path) -> io.BufferedReader:
    zipped = path.suffix == ".gz" or raw.peek(2)[:2] == _GZIP_MAGIC
    return io.BufferedReader(gzip.GzipFile(fileobj=raw)) if zipped else raw


def decoded(line: bytes, place: str) -> str:
    """A line as text; one that is not UTF-8 is refused, with its `place` in the message."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: not UTF-8 text (byte {error.start + 1} of the line is 0x{line[error.start]:02x})",
            allowed="UTF-8",
            fix="convert the file, for example with iconv",
        ) from None

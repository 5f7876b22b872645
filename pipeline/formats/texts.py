"""Text files in blocks of lines; batches of passages or queries, from TSV; the rule for ids."""

from __future__ import annotations

import gzip
import io
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Int64, JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

ID_NAMES = {
    "id", "_id", "pid", "qid", "docid", "docno", "doc_id", "passage_id", "query_id", "query-id", "corpus-id",
}  # fmt: skip
TEXT_NAMES = {"text", "passage", "query", "content", "contents", "body", "question"}
"""The two fields of a file's first line if it names columns."""


def read_tsv(path: Path) -> Iterator[Batch]:
    """Passages or queries of a TSV file, an id and a text on each line; blank lines are skipped."""
    import pyarrow as pa

    for block in read_blocks(path):
        lines = enumerate((line.split("\t") for line in block.texts()), block.first)
        rows = [(number, fields) for number, fields in lines if fields != [""]]
        for number, fields in rows:
            if number == 1 and fields[0].lower() in ID_NAMES and fields[-1].lower() in TEXT_NAMES:
                raise InputError(
                    f"{path}, line 1: '{' '.join(fields)}' looks like a header, and would be a text",
                    allowed="an id and a text on each line, from the first on",
                    fix="remove that line",
                )
            if len(fields) != 2:
                raise InputError(
                    f"{path}, line {number}: expected 2 fields (id text), found {len(fields)}",
                    allowed="fields separated by tabs",
                    fix="correct that line",
                )
        ids, texts = (pa.array([fields[at] for _, fields in rows], pa.string()) for at in (0, 1))
        yield Batch(ids, texts, None, str(path), "line", [number for number, _ in rows], block.advance)


def parse_lines(block: Block) -> Iterator[tuple[int, str, JsonObject]]:
    """Number, place and object of each line that is not blank."""
    for number, line in block.lines():
        if not line.strip():
            continue
        place = f"{block.path}, line {number}"
        try:
            record = json.loads(line.decode(), object_pairs_hook=_object)
        except json.JSONDecodeError as error:
            raise _broken(place, f"not valid JSON: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise _broken(place, f"not readable JSON: {error}") from None
        if not isinstance(record, dict):
            what = "null" if record is None else type(record).__name__
            raise _broken(place, f"a JSON {what} instead of an object")
        yield number, place, record


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of fields, each of which is there once."""
    record = dict(pairs)
    if len(record) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"duplicate field '{name}'")
    return record


def _broken(place: str, problem: str) -> InputError:
    return InputError(f"{place}: {problem}", allowed="one JSON object a line", fix="correct that line")


def ids_apart(first: str, second: str) -> tuple[str, str]:
    """Two ids for a message; escaped where they print alike, as they differ in their Unicode form alone."""
    alike = unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second)
    return (ascii(first), ascii(second)) if alike else (repr(first), repr(second))


BATCH_ROWS = 8192


class SourceRecords:
    """Records with their place: for line 3 of a file, `origin` is the file, `unit` "line", the number 3."""

    origin: str
    unit: str
    numbers: Sequence[int] | Int64

    def __len__(self) -> int:
        return len(self.numbers)

    def place(self, row: int) -> str:
        """The place of record `row`, for messages."""
        return f"{self.origin}, {self.unit} {self.numbers[row]}"


ID_BYTES = 10_000
"""The longest id: ids are compared in blocks of eight bytes, and a text by mistake is no id."""
_UNFIT = r"[\x00-\x20\x{7f}-\x{a0}\p{Z}\x{feff}]|^$|^\p{Cf}|\p{Cf}$"
"""White space, control characters, a byte order mark, no character, an invisible one at an end (RE2)."""


def refuse_unfit_ids(ids: pa.Array, what: str, place: Callable[[int], str]) -> None:
    """Refuse ids that TREC files cannot hold, or that look like others, wherever they come from.

    Those are ids that are empty or longer than `ID_BYTES`, that hold white space, a control character or a
    byte order mark, that begin or end with another invisible character such as U+200B, and a query's with
    `#` in front: there a comment begins.

    `ids` are Arrow strings [n], `what` is "passage" or "query"; `place` gives the place of a row.
    """
    import pyarrow.compute as pc

    unfit = pc.match_substring_regex(ids, f"^#|{_UNFIT}" if what == "query" else _UNFIT)
    row = pc.index(pc.or_(unfit, pc.greater(pc.binary_length(ids), ID_BYTES)), True).as_py()
    if row < 0:
        return
    raise InputError(
        f"{place(row)}: the {what}'s id is {short_repr(str(ids[row]))}",
        allowed=f"1 to {ID_BYTES:,} bytes, no white space, nothing invisible, no # before a query's, "
        "as TREC files need",
        fix="rename it, in the collection and in the judgments",
    )


@dataclass(frozen=True)
class Batch(SourceRecords):
    """Some consecutive passages or queries of a source."""

    ids: pa.Array  # Arrow string array [n], without nulls
    texts: pa.Array  # Arrow string array [n], without nulls; '' is allowed
    titles: pa.Array | None  # Arrow string array [n], '' for no title; None if no record has one
    origin: str  # origin, unit, numbers: see `SourceRecords`
    unit: str
    numbers: Sequence[int] | Int64
    advance: int  # how much of the source's `size` this batch is
    # Of queries: passages that each excludes, Arrow lists [n] of ids, or texts of ids separated by spaces.
    excluded: pa.Array | None = None

    def joined(self, separator: str | None) -> pa.Array:
        """Each title, the separator and the text; one alone if the other is empty. None leaves titles out."""
        import pyarrow.compute as pc

        if self.titles is None or separator is None:
            return self.texts
        both = pc.binary_join_element_wise(self.titles, self.texts, separator)
        joined = pc.if_else(pc.equal(self.texts, ""), self.titles, both)
        return pc.if_else(pc.equal(self.titles, ""), self.texts, joined)

    def take(self, rows: Int64) -> Batch:
        """Some of the records, in the order given."""
        ids = self.ids.take(rows)
        texts = self.texts.take(rows)
        titles = None if self.titles is None else self.titles.take(rows)
        numbers = [int(self.numbers[row]) for row in rows]
        return replace(self, ids=ids, texts=texts, titles=titles, numbers=numbers)


BLOCK_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"  # no UTF-8 text begins so
_FOREIGN = re.compile(rb"\xff\xfe|\xfe\xff|.?\0|BZh|\xfd7zXZ|PK\x03\x04|\x28\xb5\x2f\xfd|PAR1", re.DOTALL)
"""How UTF-16 text begins, with its mark or without, and files of bzip2, xz, zip, zstd and Parquet."""


@dataclass(frozen=True)
class Block:
    """Consecutive whole lines of a file, UTF-8."""

    path: Path
    first: int  # number of the first line, from 1
    rows: int  # how many lines there are
    data: bytes  # the lines, with their ends
    advance: int  # bytes of the file on disk that were read for this block

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line, without its line end."""
        return enumerate(self.data.removesuffix(b"\n").split(b"\n"), self.first)

    def texts(self) -> list[str]:
        """The lines as text, without line ends."""
        return [line.rstrip("\r") for line in self.data.decode().removesuffix("\n").split("\n")]


def read_blocks(path: Path | str, whole: bool = False) -> Iterator[Block]:
    """Read a file, which may be a pipe, in blocks of `BLOCK_BYTES` and the rest of the last line, or in one.

    It is gzip data if its name ends in `.gz` or its first bytes say so. A byte order mark at the beginning
    of a line is skipped: files that were joined have several. What is not UTF-8 is refused.
    """
    path, number, position = Path(path), 1, 0
    try:
        with open(path, "rb") as raw:
            zipped = path.suffix == ".gz" or raw.peek(2)[:2] == _GZIP_MAGIC
            stream = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if zipped else raw
            while data := stream.read(-1 if whole else BLOCK_BYTES):
                data += stream.readline()
                if number == 1 and _FOREIGN.match(data):
                    raise _foreign(path, data)
                data = data.removeprefix(_BYTE_ORDER_MARK).replace(b"\n" + _BYTE_ORDER_MARK, b"\n")
                if not data.isascii():
                    data.decode()  # or UnicodeDecodeError
                end = raw.tell() if raw.seekable() else position
                ends = np.count_nonzero(np.frombuffer(data, np.uint8) == 10)  # faster than bytes.count
                rows = int(ends) + (not data.endswith(b"\n"))
                yield Block(path, number, rows, data, end - position)
                number, position = number + rows, end
            if number == 1:
                raise InputError(f"{path}: the file is empty", fix="check the path, or write the file again")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number, error) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip data ({error})", fix="fetch or pack the file again") from None
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror}"
        raise InputError(reason, fix="check the file: plain or gzip text is read") from None


def is_gzip(path: Path) -> bool:
    """Whether a file of text is gzip data, whatever its name is; one of another form is refused."""
    with open(path, "rb") as file:
        start = file.read(8)
    if _FOREIGN.match(start):
        raise _foreign(path, start)
    return start.startswith(_GZIP_MAGIC)


def _foreign(path: Path, data: bytes) -> InputError:
    return InputError(
        f"{path}: is no UTF-8 text: it begins with {data[:5]!r}",
        allowed="UTF-8 text, plain or packed by gzip",
        fix="unpack it, or convert it, for example with iconv",
    )


def _not_utf8(path: Path, first: int, error: UnicodeDecodeError) -> InputError:
    """The error for lines that are not UTF-8, of which `first` is the number of the first."""
    before = error.object[: error.start]
    line, byte = first + before.count(b"\n"), error.start - before.rfind(b"\n")
    return InputError(
        f"{path}, line {line}: not UTF-8 text (byte {byte} of the line is 0x{error.object[error.start]:02x})",
        allowed="UTF-8",
        fix="convert the file, for example with iconv",
    )

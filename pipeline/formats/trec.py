"""How are TREC runs and judgments read and written? By columns, never line by line.

    run:    qid Q0 docid rank score tag          any white space between the fields
    qrels:  qid iteration docid grade            the same
    qrels:  query-id corpus-id score             BEIR's form, with or without that first line

Lines that are blank or start with `#` are skipped; a file may be gzipped. Ids are opaque UTF-8 without white
space. The rank of a run is not read: as in trec_eval, the score alone orders it (`pipeline.core.order`).
"""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Int32, Ranking
from pipeline.formats.duplicates import first_duplicate, string_buffers
from pipeline.formats.lines import BEIR, QRELS, RUN, Block, Form, duplicated, explain, fields_by_line, parse

BLOCK_BYTES = 1 << 21  # parsed at once, by one thread
BLOCK_LINES = 1 << 18  # written at once

_BEIR_HEADER = [b"query-id", b"corpus-id", b"score"]


@dataclass(frozen=True)
class Lines:
    """The lines of a run or of judgments, in the file's order.

    Attributes:
        query_ids: Arrow strings [queries], in order of first appearance.
        queries: int32 [lines], row in `query_ids`.
        documents: Arrow strings [lines]. No document stands twice under one query.
        values: [lines], float32 scores of a run or int64 grades of judgments.
    """

    query_ids: pa.Array
    queries: Int32
    documents: pa.ChunkedArray
    values: npt.NDArray[Any]


def read_run(path: Path | str) -> Lines:
    """Read a TREC run; values are float32 scores, the precision trec_eval 9 compares them in.

    Raises:
        InputError: The file cannot be read, a line is malformed, or a document stands twice under a query.
    """
    if Path(path).is_file():
        return _read(path, lambda: _blocks(path), RUN)
    blocks = list(_blocks(path))  # a pipe is read but once
    return _read(path, lambda: blocks, RUN)


def read_qrels(path: Path | str) -> Lines:
    """Read judgments in TREC's or BEIR's form, told apart by the first line; values are int64 grades.

    Raises:
        InputError: The file cannot be read, a line is malformed, or a document is judged twice for a query.
    """
    data = b"".join(_blocks(path))
    number, fields = next(fields_by_line(data), (0, []))
    if len(fields) != len(BEIR.columns):
        return _read(path, lambda: [data], QRELS)
    if [field.lower().replace(b"_", b"-") for field in fields] == _BEIR_HEADER:
        data = b"\n" * number + b"".join(data.split(b"\n", number)[number:])  # lines keep their numbers
    return _read(path, lambda: [data], BEIR)


def write_run(
    file: BinaryIO, query_ids: pa.ChunkedArray, passage_ids: pa.ChunkedArray, ranking: Ranking, tag: str
) -> None:
    """Write `qid Q0 docid rank score tag` lines, ranks from 1, queries in their order.

    Scores have as many digits as tell any two float32 apart, so reading them back keeps every tie.

    Args:
        file: Open for writing bytes.
        query_ids: Arrow strings [queries].
        passage_ids: Arrow strings [passages].
        ranking: [queries, k], ordered by the tie rule; pads are left out.
        tag: The run's name, a single word.

    Raises:
        InputError: The tag is empty or has white space.
    """
    if not tag or tag.split() != [tag]:
        raise InputError(f"run tag {tag!r}", allowed="one word without white space")
    k = ranking.passages.shape[1]
    ranks = pc.cast(pa.array(np.arange(1, k + 1)), pa.string())
    rows = max(BLOCK_LINES // max(k, 1), 1)
    for start in range(0, len(ranking.passages), rows):
        block = ranking.passages[start : start + rows]
        row, column = np.nonzero(block >= 0)
        lines = pc.binary_join_element_wise(
            query_ids.take(pa.array(row + start)).cast(pa.string()),
            "Q0",
            passage_ids.take(pa.array(block[row, column])).cast(pa.string()),
            ranks.take(pa.array(column)),
            pc.cast(pa.array(ranking.scores[start : start + rows][row, column]), pa.string()),
            f"{tag}\n",
            " ",
        )
        for chunk in lines.chunks:
            offsets, text = string_buffers(chunk)
            file.write(text[offsets[0] : offsets[-1]].data)


def _blocks(path: Path | str) -> Iterator[bytes]:
    """Whole lines of a file, some at a time, unzipped and without a byte-order mark."""
    try:
        with open(path, "rb") as plain:
            zipped = plain.peek(2)[:2] == b"\x1f\x8b"
            file = gzip.GzipFile(fileobj=plain) if zipped else plain
            block = (file.read(BLOCK_BYTES) + file.readline()).removeprefix(b"\xef\xbb\xbf")
            while block:
                yield block
                block = file.read(BLOCK_BYTES) + file.readline()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path} cannot be read: {reason}", fix="give a plain or gzipped text file"
        ) from error


def _read(path: Path | str, texts: Callable[[], Iterable[bytes]], form: Form) -> Lines:
    """Read the lines of `texts()`, which is called again to say where, if something is wrong."""
    try:
        blocks = [block for block in _in_parallel(partial(parse, form=form), texts()) if block]
    except ValueError as error:  # Arrow's errors are ValueErrors, too
        fault = explain(path, b"".join(texts()), form)
        raise fault or InputError(f"{path} cannot be read: {error}") from error
    if not blocks:
        allowed = f"lines of {' '.join(form.columns)}"
        raise InputError(f"{path} holds no line", allowed=allowed, fix="check what wrote this file")
    lines = _concatenate(blocks)
    prints = np.concatenate([block.fingerprints for block in blocks])
    twice = first_duplicate(lines.queries, lines.documents, prints)
    if twice is not None:
        query, document = lines.query_ids[lines.queries[twice]].as_py(), lines.documents[twice].as_py()
        raise duplicated(path, b"".join(texts()), form, query, document)
    return lines


def _in_parallel(function: Callable[[bytes], Block | None], texts: Iterable[bytes]) -> list[Block | None]:
    """`list(map(function, texts))` by threads. Texts are taken one by one, so few are in memory."""
    numbered, taking = enumerate(texts), threading.Lock()
    results: dict[int, Block | None] = {}

    def work() -> None:
        while True:
            with taking:
                number, text = next(numbered, (-1, b""))
            if number < 0:
                return
            results[number] = function(text)

    workers = machine.cores()
    with ThreadPoolExecutor(workers) as pool:  # Arrow and NumPy work outside Python's lock
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return [results[number] for number in sorted(results)]


def _concatenate(blocks: list[Block]) -> Lines:
    runs = pa.chunked_array([block.queries.values for block in blocks]).combine_chunks().dictionary_encode()
    lengths = [np.diff(block.queries.run_ends.to_numpy(), prepend=0) for block in blocks]
    return Lines(
        query_ids=runs.dictionary,
        queries=np.repeat(runs.indices.to_numpy(), np.concatenate(lengths)),
        documents=pa.chunked_array([block.documents for block in blocks]),
        values=np.concatenate([block.values for block in blocks]),
    )

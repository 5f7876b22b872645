"""What a collection keeps of its source: checked ids, the judged queries, and the passages of a slice.

A slice of a corpus keeps all judged passages, then those with the lowest seeded hash of their id. The hash
depends on the id alone, so a larger slice contains the smaller one, on every machine and from every source.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import DataSettings
from pipeline.core.display import Bar, Progress
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Int64
from pipeline.data.collection_files import blank, write_texts
from pipeline.data.sources import Source
from pipeline.formats.judgments import Judgments
from pipeline.formats.texts import Batch, refuse_unfit_ids

if TYPE_CHECKING:
    import pyarrow as pa

SEED = b"benchmarco"


def checked(read: Callable[[], Iterator[Batch]], what: str) -> Iterator[Batch]:
    """The batches of `read`, each with its ids checked; after the last, duplicates are refused.

    Only a 64-bit hash of each id is kept. If two are equal, `read` is called again to name the ids.

    Raises:
        InputError: An id is unfit (`refuse_unfit_ids`) or a duplicate, or there is no record at all.
    """
    hashes = []
    origin = ""
    for batch in read():
        refuse_unfit_ids(batch.ids, what, batch.place)
        ids = batch.ids.to_pylist()
        hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
        origin = batch.origin
        yield batch
    if not any(map(len, hashes)):
        raise InputError(f"{origin or 'the source'}: has no {what}", fix="check data.path and data.split")
    ordered = np.sort(np.concatenate(hashes))
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    first: dict[str, str] = {}
    for batch in read() if suspects else ():  # equal hashes may belong to different ids
        for row, name in enumerate(batch.ids.to_pylist()):
            if name in first:
                raise InputError(
                    f"{batch.place(row)}: {what} id '{name}' is a duplicate; first at {first[name]}",
                    allowed="each id once",
                    fix="remove or rename one of them",
                )
            if hash(name) in suspects:
                first[name] = batch.place(row)


@dataclass(frozen=True)
class SelectedQueries:
    """The queries of a slice, and their relation to the source and the judgments."""

    table: pa.Table  # of `id` and `text`, [q]
    numbers: Int64  # [q], each query's row in the judgments' `query_ids`; -1 without judgments
    kept: BoolArray  # [judged queries], whether each of `query_ids` is in the table
    seen: BoolArray  # [judged queries], whether each is in the source
    dropped: int  # queries of the source that are left out because they have no judgment


def select_queries(source: Source, judgments: Judgments, config: DataSettings) -> SelectedQueries:
    """Read the queries and keep the first ones in their own order, as many as `config` says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seen = np.zeros(len(judgments.query_ids), dtype=np.bool_)
    is_kept = np.zeros_like(seen)
    tables = []
    numbers = []
    dropped = 0
    keep_all = config.unjudged_queries == "keep"
    room = sys.maxsize if config.queries is None else config.queries
    number_of = {name: number for number, name in enumerate(judgments.query_ids.to_pylist())}
    for batch in checked(source.queries, "query"):
        number = np.fromiter(map(number_of.get, batch.ids.to_pylist(), repeat(-1)), np.int64, len(batch))
        judged = number >= 0
        seen[number[judged]] = True
        wanted = judged | keep_all
        dropped += int((~wanted).sum())
        rows = np.flatnonzero(wanted)[:room]
        room -= len(rows)
        is_kept[number[rows[judged[rows]]]] = True
        numbers.append(number[rows])
        texts = batch.texts.take(rows)
        texts = pc.utf8_lower(texts) if config.lowercase_queries else texts
        tables.append(pa.table({"id": batch.ids.take(rows), "text": texts}))
    return SelectedQueries(pa.concat_tables(tables), np.concatenate(numbers), is_kept, seen, dropped)


@dataclass
class WrittenCorpus:
    """A written corpus: its passages with a `title`, those that are `empty`, and its SHA-256."""

    rows: Int64  # [judged passages], the row of each in the file; -1 if it was not written
    read: int = 0  # passages of the source
    kept: int = 0  # passages written
    titles: int = 0
    empty: int = 0
    content: str = ""


def write_corpus(
    source: Source,
    judgments: Judgments,
    of_kept_query: BoolArray,
    config: DataSettings,
    path: Path,
    progress: Progress,
) -> WrittenCorpus:
    """Write the passages of a slice, with their titles, as an Arrow stream.

    `of_kept_query`, bool [j], says whether a judgment's query is kept; the passages of such judgments are
    always written.
    """
    corpus = WrittenCorpus(np.full(len(judgments.passage_ids), -1, np.int64))
    rows = np.unique(judgments.passages[of_kept_query])
    wanted = dict(zip(judgments.passage_ids.take(rows).to_pylist(), rows.tolist(), strict=True))
    keep, (total, unit) = None, source.size()
    if config.passages_kept is not None:
        with progress("drawing passages", total, unit) as bar:
            keep = sample(checked(source.passages, "passage"), wanted, config.passages_kept, bar)
    batches = checked(source.passages, "passage") if keep is None else source.passages()

    def chosen_texts() -> Iterator[tuple[pa.Array, pa.Array]]:
        for batch in batches:
            chosen = batch if keep is None else batch.take(np.flatnonzero(keep[corpus.read :][: len(batch)]))
            number = np.fromiter(map(wanted.get, chosen.ids.to_pylist(), repeat(-1)), np.int64, len(chosen))
            hits = np.flatnonzero(number >= 0)
            corpus.rows[number[hits]] = corpus.kept + hits
            texts = chosen.joined(config.title_separator)
            corpus.read += len(batch)
            corpus.kept += len(chosen)
            if chosen.titles is not None:
                corpus.titles += len(chosen) - chosen.titles.to_pylist().count("")
            corpus.empty += blank(texts)
            yield chosen.ids, texts
            bar.update(batch.advance)

    with progress("reading passages", total, unit) as bar:
        corpus.content = write_texts(path, chosen_texts())
    return corpus


def draw(passage_id: str, seed: int = 0) -> int:
    """The seeded hash of an id: the first 8 bytes of its BLAKE2b, keyed with `SEED` and any other seed."""
    key = SEED + (str(seed).encode() if seed else b"")
    return int.from_bytes(hashlib.blake2b(passage_id.encode(), digest_size=8, key=key).digest(), "big")


def sample(batches: Iterator[Batch], chosen: Container[str], size: int, bar: Bar) -> BoolArray:
    """Which passages a slice keeps, bool [passages]: those in `chosen`, and others by `draw` up to `size`."""
    drawn, stays = [], []
    for batch in batches:
        ids = batch.ids.to_pylist()
        drawn.append(np.fromiter((draw(name) for name in ids), np.uint64, len(ids)))
        stays.append(np.fromiter((name in chosen for name in ids), np.bool_, len(ids)))
        bar.update(batch.advance)
    keep = np.concatenate(stays)
    rest = np.flatnonzero(~keep)
    order = np.argsort(np.concatenate(drawn)[rest], kind="stable")
    keep[rest[order[: max(size - int(keep.sum()), 0)]]] = True
    return keep

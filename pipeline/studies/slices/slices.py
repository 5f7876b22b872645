"""A slice of a corpus that rankings choose, as a collection of its own.

It holds what is judged, what each ranking has among its first passages, and random passages. What is not
judged counts as not relevant, so a passage without a judgment that a slice leaves out moves those below it
up. A retriever that scores each passage by itself thus gets measures as high as on the whole corpus or
higher. Those to rank k are the same if its first k passages of each query are all in the slice, because its
ranking chose them; of other retrievers, a slice lacks passages that they would rank high. BM25 weighs terms
by the passages it has, so a slice changes its ranking.

Fröbe et al., "Corpus Subsampling: Estimating the Effectiveness of Neural Retrieval Models on Large Corpora",
ECIR 2025, choose passages by the rankings of many systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import Config
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError, short_repr
from pipeline.core.order import sort_hits
from pipeline.core.records import Collection, Int64, Texts, from_numpy, take_texts
from pipeline.data.loading import draw
from pipeline.data.sources import folders
from pipeline.formats.runs import RunRows, read_run
from pipeline.metrics.scoring import row_numbers
from pipeline.results.folder import ranking_file
from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.whole_files import RANKING, check_new_folder, write_whole
from pipeline.studies.shared.collections import write_beir

if TYPE_CHECKING:
    import pyarrow as pa

NOTE = (
    "slice: {passages:,} of {of:,} passages; measures to rank {top:,} are those of all passages for the "
    "rankings that chose it, deeper ones and those of other rankings usually too high; chosen by {names}"
)


@dataclass(frozen=True)
class RankingShare:
    """How many passages a ranking chose, and how many of these are neither judged nor chosen by another."""

    name: str
    passages: int
    alone: int


@dataclass(frozen=True)
class SlicedCollection:
    """What a slice holds."""

    passages: int  # its passages, `of` those of the corpus
    of: int
    judged: int  # its judged passages, `judged_of` those of the corpus
    rankings: list[RankingShare]  # what each ranking chose


def write_slice(
    config: Config,
    rankings: Sequence[Path],
    folder: Path,
    top: int,
    random: int = 0,
    seed: int = 0,
    progress: Progress = silent,
) -> SlicedCollection:
    """Write a slice of a config's collection in BEIR's layout; `note.txt` is shown with every result on it.

    Rankings are result folders and TREC runs, of the whole corpus: each chooses its `top` passages of each
    query. Besides, so many `random` passages are added, by a hash of the seed and their ids.

    Raises:
        InputError: The folder holds anything, a ranking cannot be read or is of other queries or passages,
            or the config has a slice already.
    """
    check_new_folder(folder, "--output")
    if config.suite or config.data.corpus is not None:
        raise InputError(
            f"{config.name}: {'several collections' if config.suite else 'data.corpus is a slice already'}",
            allowed="a config of one collection with all its passages",
            fix="leave out data.corpus" if not config.suite else "name a config of one of them",
        )
    files = {path: ranking_file(path) if path.is_dir() else path for path in rankings}
    for path in files.values():
        if not path.is_file():
            allowed = "result folders and TREC run files"
            raise InputError(f"there is no file {path}", allowed=allowed, fix="correct the path")
    with Session() as session:
        collection = Benchmark(config, session, progress).collection
    count = len(collection.passages)
    chosen = {path: _first_rows(file, collection, top) for path, file in files.items()}
    judged = np.unique(collection.qrels.passages)
    judged = judged[judged < count]
    # judged ones count twice: no ranking has these alone
    times = np.bincount(np.concatenate([judged, judged, *chosen.values()]), minlength=count)
    keep = times > 0
    rest = np.flatnonzero(~keep)
    ids = collection.passages.ids.take(from_numpy(rest)).to_pylist()
    drawn = np.argsort(np.fromiter((draw(name, seed) for name in ids), np.uint64, len(ids)), kind="stable")
    keep[rest[drawn[:random]]] = True
    kept = np.flatnonzero(keep)
    texts = Texts(take_texts(collection.passages.ids, kept), take_texts(collection.passages.texts, kept))
    write_beir(folder, texts, collection)
    named = (path.parent if path.name == RANKING else path for path in rankings)
    names = [path.name.removesuffix(".gz").removesuffix(".trec") for path in named]
    said = NOTE.format(passages=len(texts), of=count, top=top, names=", ".join(names))
    write_whole(folder / folders.NOTE, f"{said}\n".encode())
    shares = [
        RankingShare(name, len(rows), int((times[rows] == 1).sum()))
        for name, rows in zip(names, chosen.values(), strict=True)
    ]
    return SlicedCollection(len(texts), count, len(judged), shares)


def _first_rows(file: Path, collection: Collection, top: int) -> Int64:
    """int64 [n], sorted: the passages among the first `top` of any query in a ranking."""
    run, count = read_run(file), len(collection.queries)
    rows_of = RunRows.of(run, row_numbers(run.query_ids, collection.queries.ids, absent=count), count)
    if not rows_of.lines.size:
        raise _of_another(file, "queries", collection.queries.ids)
    lines = [np.empty(0, np.int64)]
    for _, hits, scores in rows_of.parts():
        best = sort_hits(hits, scores, run.documents)[0][:, :top]
        lines.append(best[best >= 0])
    ids = run.documents.take(from_numpy(np.concatenate(lines))).unique()
    rows = row_numbers(ids, collection.passages.ids)
    if not (rows >= 0).any():
        raise _of_another(file, "passages", collection.passages.ids)
    return np.unique(rows[rows >= 0])


def _of_another(file: Path, what: str, ids: pa.ChunkedArray) -> InputError:
    return InputError(
        f"{file} has none of the {len(ids):,} {what} of the collection, such as {short_repr(ids[0].as_py())}",
        allowed="rankings of the queries and the whole corpus of this collection",
        fix="name another file",
    )

"""How does a corpus get to disk? Batch by batch, titles joined, only the slice's passages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.progress import Progress
from pipeline.core.records import Int64
from pipeline.data.checks import checked, numbers_of
from pipeline.data.judged import Judged
from pipeline.data.slices import sample
from pipeline.data.storage import TextsWriter, blank
from pipeline.formats.source import Batch, Source


@dataclass
class Corpus:
    """What writing a corpus found.

    Attributes:
        rows: int64 [judged passages], row of each number in the written corpus; -1 where it has none.
        read: Passages of the source.
        kept: Passages written.
        titles: How many of these have a title.
        empty: How many of these have no text.
        content: SHA-256 of these.
    """

    rows: Int64
    read: int = 0
    kept: int = 0
    titles: int = 0
    empty: int = 0
    content: str = ""


def write_corpus(
    source: Source,
    judged: Judged,
    asked: npt.NDArray[np.bool_],
    size: int | None,
    path: Path,
    progress: Progress,
) -> Corpus:
    """Write the passages of a slice.

    Args:
        source: Where they are.
        judged: The judgments.
        asked: bool [j], which judgments are of the kept queries; their passages stay.
        size: Passages to keep; None is all.
        path: The Arrow stream to write.
        progress: Shows how much is read.

    Raises:
        InputError: A passage is not as it should be.
    """
    corpus = Corpus(np.full(len(judged.passage_numbers), -1, np.int64))
    wanted = _wanted(judged, asked)
    keep = None
    if size is not None:
        keep = sample(_shown(source, checked(source.passages, "passage"), progress, "drawing"), wanted, size)
    batches = checked(source.passages, "passage") if keep is None else source.passages()
    with TextsWriter(path) as writer:
        for batch in _shown(source, batches, progress, "reading"):
            chosen = batch if keep is None else batch.take(np.flatnonzero(keep[corpus.read :][: len(batch)]))
            number = numbers_of(chosen, wanted)
            hits = np.flatnonzero(number >= 0)
            corpus.rows[number[hits]] = corpus.kept + hits
            texts = chosen.joined()
            writer.write(chosen.ids, texts)
            corpus.read += len(batch)
            corpus.kept += len(chosen)
            corpus.titles += chosen.titled()
            corpus.empty += blank(texts)
    corpus.content = writer.content()
    return corpus


def _wanted(judged: Judged, asked: npt.NDArray[np.bool_]) -> dict[str, int]:
    """The passages judged for the kept queries: id -> number."""
    chosen = np.zeros(len(judged.passage_numbers), dtype=np.bool_)
    chosen[judged.passages[asked]] = True
    return {name: number for name, number in judged.passage_numbers.items() if chosen[number]}


def _shown(source: Source, batches: Iterator[Batch], progress: Progress, doing: str) -> Iterator[Batch]:
    """The same batches, counted on a bar."""
    total, unit = source.size()
    with progress(f"{doing} passages", total, unit) as bar:
        for batch in batches:
            yield batch
            bar.update(batch.advance)

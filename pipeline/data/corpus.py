"""The writer of a corpus: batch by batch, titles joined, only the passages of the slice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.progress import Progress
from pipeline.core.records import Int64
from pipeline.data.checks import checked, numbers_of
from pipeline.data.collection_files import TextsWriter, blank
from pipeline.data.slices import sample
from pipeline.data.sources import Source
from pipeline.formats.judgments import Judgments
from pipeline.formats.records import Batch


@dataclass
class WrittenCorpus:
    """The rows, counts and content hash of a written corpus.

    Attributes:
        rows: int64 [judged passages], the row of each in the file; -1 if it was not written.
        read: Passages of the source.
        kept: Passages written.
        titles: How many written passages have a title.
        empty: How many written passages have no text.
        content: SHA-256 of the written passages.
    """

    rows: Int64
    read: int = 0
    kept: int = 0
    titles: int = 0
    empty: int = 0
    content: str = ""


def write_corpus(
    source: Source,
    judgments: Judgments,
    of_kept_query: npt.NDArray[np.bool_],
    size: int | None,
    path: Path,
    progress: Progress,
) -> WrittenCorpus:
    """Write the passages of a slice.

    Args:
        source: The source to read.
        judgments: Its judgments.
        of_kept_query: bool [j], whether a judgment's query is kept; their passages are always written.
        size: Passages to keep; None is all.
        path: The Arrow stream to write.
        progress: Shows how much is read.
    """
    corpus = WrittenCorpus(np.full(len(judgments.passage_ids), -1, np.int64))
    rows = np.unique(judgments.passages[of_kept_query])
    wanted = dict(zip(judgments.passage_ids.take(rows).to_pylist(), rows.tolist(), strict=True))
    keep = None
    if size is not None:
        whole = _with_bar(source, checked(source.passages, "passage"), progress, "drawing")
        keep = sample(whole, wanted, size)
    batches = checked(source.passages, "passage") if keep is None else source.passages()
    with TextsWriter(path) as writer:
        for batch in _with_bar(source, batches, progress, "reading"):
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


def _with_bar(source: Source, batches: Iterator[Batch], progress: Progress, doing: str) -> Iterator[Batch]:
    """The same batches, counted on a bar."""
    total, unit = source.size()
    with progress(f"{doing} passages", total, unit) as bar:
        for batch in batches:
            yield batch
            bar.update(batch.advance)

"""Collections that a study writes."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.records import Collection, Qrels, Texts
from pipeline.data.collection_files import write_lines
from pipeline.formats.judgments import beir_qrels
from pipeline.storage.whole_files import write_whole

FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


def write_beir(folder: Path, passages: Texts, collection: Collection, qrels: Qrels | None = None) -> None:
    """Write passages with the queries and the judgments of a collection, or other ones, in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for file, texts in zip(FILES, (passages, collection.queries), strict=False):
        write_lines(folder / file, texts)
    judgments = beir_qrels(collection.queries.ids, collection.judged_ids, qrels or collection.qrels)
    write_whole(folder / FILES[2], judgments.encode())

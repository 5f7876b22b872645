"""Collections that a study writes."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.core.records import Collection, Qrels, Texts
from pipeline.formats.judgments import beir_qrels
from pipeline.storage.whole_files import replacing, write_whole


def write_beir(folder: Path, passages: Texts, collection: Collection, qrels: Qrels | None = None) -> None:
    """Write passages with the queries and the judgments of a collection, or other ones, in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_lines(folder / "corpus.jsonl", passages)
    write_lines(folder / "queries.jsonl", collection.queries)
    judgments = beir_qrels(collection.queries.ids, collection.judged_ids, qrels or collection.qrels)
    write_whole(folder / "qrels" / "test.tsv", judgments.encode())


def write_lines(path: Path, texts: Texts) -> None:
    """Write texts as JSON lines of `_id` and `text`, a batch at a time."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for ids, batch in zip(texts.ids.chunks, texts.texts.chunks, strict=True):
            for name, text in zip(ids.to_pylist(), batch.to_pylist(), strict=True):
                file.write(json.dumps({"_id": name, "text": text}, ensure_ascii=False) + "\n")

"""The texts of a collection as files, to encode elsewhere, in the order of the `precomputed` backend."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Texts
from pipeline.storage import whole_files


def export_texts(collection: Collection, folder: Path) -> list[Path]:
    """Write the texts of passages and queries in the collection's order, and their ids alone.

    Args:
        collection: The collection.
        folder: A new or empty folder; `passages.jsonl` and `queries.jsonl` get lines of `_id` and `text`, a
            title joined to its text; `passage_ids.txt` and `query_ids.txt` an id a line.

    Returns:
        The files.
    """
    written = []
    for role, texts in (("passage", collection.passages), ("query", collection.queries)):
        several = {"passage": "passages", "query": "queries"}[role]
        written += [folder / f"{several}.jsonl", folder / f"{role}_ids.txt"]
        _write(texts, *written[-2:])
    return written


def check_export(folder: Path) -> None:
    """Refuse a folder that holds anything, or cannot be made, before anything is read for it."""
    if folder.is_dir() and any(folder.iterdir()):
        what = "is not empty"
    elif (folder.exists() and not folder.is_dir()) or not folder.absolute().parent.is_dir():
        what = "cannot be made"
    else:
        return
    raise InputError(
        f"--export {folder}: {what}",
        allowed="a new or empty folder, inside one that exists",
        fix="name another",
    )


def _write(texts: Texts, text_path: Path, id_path: Path) -> None:
    """Write ids and texts, and ids alone, a batch at a time."""
    text_path.parent.mkdir(exist_ok=True)
    with (
        whole_files.replacing(text_path) as new_texts,
        whole_files.replacing(id_path) as new_ids,
        open(new_texts, "w", encoding="utf-8") as text_file,
        open(new_ids, "w", encoding="utf-8") as id_file,
    ):
        for ids, batch in zip(texts.ids.chunks, texts.texts.chunks, strict=True):
            names = ids.to_pylist()
            records = (
                {"_id": name, "text": text} for name, text in zip(names, batch.to_pylist(), strict=True)
            )
            text_file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            id_file.writelines(f"{name}\n" for name in names)

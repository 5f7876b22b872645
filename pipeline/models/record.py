"""The record of a resolved model, for people: its card, and how each setting was decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.core.records import Facts
from pipeline.models.card import UNLIMITED, max_positions
from pipeline.models.model import ResolvedBase, ResolvedModel


def model_record(model: ResolvedBase) -> Facts:
    """What is known of a model and what its files do not say, as plain JSON; fetches its files."""
    files, card = model.files, model.card
    folder = files.folder()
    positions = max_positions(card.config)
    of_texts = {}
    if isinstance(model, ResolvedModel):
        of_texts = {
            "output": model.output,
            "declared similarity": card.similarity or None,
            "used similarity": model.similarity or "cosine",
            "dimensions": model.dimension,
            "kept dimensions": model.truncate_dim,
        }
    return {
        "name": model.name,
        "files": f"{files.repo} at {files.commit}" if files.repo else str(folder),
        "weights": [*_weights(folder)],
        "network": card.config.get("model_type"),
        "modules": card.module_names,
        "tokenizer": card.tokenizer_class,
        "hash of token ids": model.tokenizer.probe[:16],
        "end tokens": [token for token in model.tokenizer.settings.end_tokens if token],
        **{name: {"value": value, "source": source} for name, (value, source) in model.decided.items()},
        "positions": positions if positions < UNLIMITED else None,
        **of_texts,
        "not there": [*card.absent],
    }


def _weights(folder: Path) -> Iterator[str]:
    """Each file of weights below a folder, with the number formats that it stores."""
    for path in sorted([*folder.rglob("*.safetensors"), *folder.rglob("pytorch_model*.bin")]):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".bin":
            yield name
            continue
        with path.open("rb") as file:  # 8 bytes of length, then JSON
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        formats = sorted({entry["dtype"] for key, entry in header.items() if key != "__metadata__"})
        yield f"{name} ({', '.join(formats)})"

"""The record of a resolved model, for people: its files, and all that was read of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.core.records import Facts
from pipeline.models.card import max_positions, read_card
from pipeline.models.model import ResolvedModel

DECLARING = (
    "modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
"""Files that say how a model is used, in the model's folder or in that of its network."""
UNLIMITED = 1 << 30


def model_record(model: ResolvedModel) -> Facts:
    """What is known of a model and what its files do not say, as plain JSON; fetches its files."""
    files = model.files
    folder = files.folder()
    card = read_card(files, "dense" if model.output == "multivector" else model.output, model.name)
    network = folder / files.network_folder()
    settings = files.read_json(f"{files.network_folder()}/tokenizer_config.json".lstrip("/"))
    positions = max_positions(model.config)
    return {
        "name": model.name,
        "files": f"{files.repo} at {files.commit}" if files.repo else str(folder),
        "weights": [*_weights(folder)],
        "network": model.config.get("model_type"),
        "modules": card.module_names,
        "tokenizer": settings.get("tokenizer_class"),
        "hash of token ids": model.tokenizer.probe[:16],
        "end tokens": [token for token in model.tokenizer.settings.end_tokens if token],
        **{name: {"value": value, "source": source} for name, (value, source) in model.decided.items()},
        "output": model.output,
        "declared similarity": card.similarity or None,
        "positions": positions if positions < UNLIMITED else None,
        "dimensions": model.dimension,
        "kept dimensions": model.truncate_dim,
        "not there": [
            name for name in DECLARING if not any((at / name).is_file() for at in (folder, network))
        ],
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

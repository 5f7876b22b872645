"""A model's folder that a test may change."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from workplaces import read_json

Edit = Callable[..., Path]


def _copy(source: str, target: str) -> None:
    """Copy a file; weights, which no test writes into, are linked."""
    (os.link if source.endswith(".safetensors") else shutil.copy2)(source, target)


@pytest.fixture
def edited(bge_folder: Path, tmp_path: Path) -> Edit:
    """Copies a model's folder, once for a test, and changes it; returns it.

    The changes are contents by path: None deletes, bytes are written, a mapping is merged with the JSON
    object that is there, and any other JSON is written.
    """

    def edit(changes: Mapping[str, object], name: str = "bge-small-en-v1.5") -> Path:
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(bge_folder, folder, copy_function=_copy)
        for place, content in changes.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                if isinstance(content, Mapping) and path.exists():
                    content = {**read_json(path), **content}
                path.write_text(json.dumps(content), encoding="utf-8")
        return folder

    return edit

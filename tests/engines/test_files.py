"""Files sent to another machine: they arrive whole, once, and under their own names."""

import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inside import resize

from pipeline.engines import ShippedFiles
from pipeline.storage import Store, hash_file


@pytest.fixture
def shipped(bge_folder: Path, tmp_path: Path) -> ShippedFiles:
    """A model folder, with a folder in it and an empty file."""
    folder = Path(shutil.copytree(bge_folder, tmp_path / "driver"))
    (folder / "empty.txt").touch()
    paths = [path for path in folder.rglob("*") if path.is_file()]
    entries = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": hash_file(path)}
        for path in paths
    }
    return ShippedFiles(folder, entries, "driver")


def contents(shipped: ShippedFiles) -> dict[str, Iterator[Any]]:
    return {name: shipped.chunks(name) for name in shipped.entries}


def test_another_machine_writes_them_once(
    shipped: ShippedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, shipped_bytes=1000)
    arrived = pickle.loads(pickle.dumps(shipped))
    assert arrived.find("other", Store(tmp_path / "node")) is None
    first = arrived.write(Store(tmp_path / "node"), contents(shipped))
    assert first.is_relative_to(tmp_path / "node")
    found = {str(path.relative_to(first)): path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert found == {name: (shipped.folder / name).read_bytes() for name in shipped.entries}
    inodes = {path: path.stat().st_ino for path in first.rglob("*")}
    assert arrived.find("other", Store(tmp_path / "node")) == first
    assert arrived.write(Store(tmp_path / "node"), {}) == first  # a second worker
    assert shipped.find("driver", Store(tmp_path / "node")) == shipped.folder
    hidden = replace(shipped, folder=tmp_path / "in a container")
    assert hidden.find("driver", Store(tmp_path / "node")) == first
    assert {path: path.stat().st_ino for path in first.rglob("*")} == inodes


def test_what_is_damaged_on_its_way_or_where_it_is_kept_is_sent_again(
    shipped: ShippedFiles, tmp_path: Path
) -> None:
    damaged = contents(shipped) | {"vocab.txt": iter([next(shipped.chunks("config.json"))])}
    with pytest.raises(ChildProcessError, match=r"vocab\.txt was damaged on its way"):
        shipped.write(Store(tmp_path / "node"), damaged)
    assert shipped.find("other", Store(tmp_path / "node")) is None
    folder = shipped.write(Store(tmp_path / "node"), contents(shipped))
    kept, whole = (folder / "vocab.txt").resolve(), (shipped.folder / "vocab.txt").read_bytes()
    assert kept.read_bytes() == whole
    kept.write_bytes(whole[:-1] + b"?")
    assert shipped.find("other", Store(tmp_path / "node")) is None
    assert shipped.write(Store(tmp_path / "node"), contents(shipped)) == folder
    assert (folder / "vocab.txt").read_bytes() == whole

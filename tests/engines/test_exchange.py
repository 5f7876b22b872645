"""Files through a store: only whole ones arrive, and nothing of the driver's disk is named."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.engines.away import Receiver, Sender
from pipeline.engines.work import save
from pipeline.models.files import Files
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, entry_of

PART = (2, 5)


@dataclass(frozen=True)
class Cut:
    """A job that copies some rows of an array; its fact is where it found that."""

    read: Artifact

    def do(self, encoder: Any, part: tuple[int, int], path: Path, bar: Any) -> str:
        found = self.read.path("a.npy")
        save(path, np.load(found)[part[0] : part[1]])
        bar.update(part[1] - part[0])
        return str(found)


@pytest.fixture
def job(tmp_path: Path) -> Cut:
    folder = tmp_path / "driver"
    folder.mkdir()
    save(folder / "a.npy", np.arange(9))
    return Cut(Artifact(folder, {"files": {"a.npy": entry_of(folder / "a.npy")}}))


@pytest.fixture(params=["file://{}/store", "file://{}/store/", "memory://{}/store"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, and a store that is no part of the file system."""
    url: str = request.param.format(tmp_path)
    return url


def stored(url: str) -> list[str]:
    """Every file in the store."""
    system, root = fsspec.core.url_to_fs(url)
    return [path.removeprefix(root.rstrip("/") + "/") for path in system.find(root)]


def received(sender: Sender, monkeypatch: pytest.MonkeyPatch, kept: Path) -> Receiver:
    """The other end, of a machine that keeps what it fetched in another folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    return Receiver(*sender.place)


def test_a_job_is_done_without_the_driver_s_disk(
    job: Cut, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(url)
    sent = pickle.dumps(sender.job(job))
    assert str(tmp_path).encode() not in sent
    receiver = received(sender, monkeypatch, tmp_path / "node")
    receiver.exchange.check("n")
    (tmp_path / "driver" / "a.npy").unlink()
    piece = receiver.perform(pickle.loads(sent), None, PART, "n")
    assert Path(piece.facts).is_relative_to(tmp_path / "node" / "benchmarco")
    (tmp_path / "aside").mkdir()
    taken = sender.take(piece, tmp_path / "aside")
    assert taken is not None
    assert np.load(taken.path).tolist() == [2, 3, 4]
    assert (taken.entry, taken.done) == (entry_of(taken.path), 3)
    sender.close()
    assert stored(url) == ["files/" + job.read.manifest["files"]["a.npy"]["sha256"]]


def test_what_is_there_is_not_sent_again(job: Cut, tmp_path: Path) -> None:
    sender = Sender(f"file://{tmp_path}/store")
    sender.job(job)
    (file,) = (tmp_path / "store" / "files").iterdir()
    before = file.stat().st_ino
    sender.job(job)
    assert file.stat().st_ino == before
    file.write_bytes(b"cut short")
    sender.job(job)
    assert file.read_bytes() == job.read.path("a.npy").read_bytes()


def test_damage_in_the_store_is_refused_and_mended(
    job: Cut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(f"file://{tmp_path}/store")
    sent = sender.job(job)
    (file,) = (tmp_path / "store" / "files").iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    receiver = received(sender, monkeypatch, tmp_path / "node")
    with pytest.raises(InputError, match=rf"engine\.store: .*/files/{file.name} is damaged, and was removed"):
        receiver.perform(sent, None, PART, "n")
    sender.job(job)
    assert receiver.perform(sent, None, PART, "n").done == 3


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_piece_that_does_not_arrive_whole_is_not_taken(
    job: Cut, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(f"file://{tmp_path}/store")
    piece = received(sender, monkeypatch, tmp_path / "node").perform(sender.job(job), None, PART, "n")
    (file,) = (tmp_path / "store" / "runs").rglob(piece.path.name)
    file.write_bytes(bytes(file.stat().st_size)) if damage == "changed" else file.unlink()
    assert sender.take(piece, tmp_path) is None


def test_drivers_at_the_same_time_have_folders_of_their_own_and_clear_what_a_dead_one_left(
    tmp_path: Path,
) -> None:
    url = f"file://{tmp_path}/store"
    first, second = Sender(url), Sender(url)
    runs = tmp_path / "store" / "runs"
    assert len(list(runs.iterdir())) == 2
    left = runs / first.place[1] / "left"
    left.touch()
    first._lock.release()  # as the system does when a driver is killed
    third = Sender(url)
    assert third.place == first.place
    assert not left.exists()
    second.exchange.check("here")


def test_a_model_s_own_files_come_along(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {str(p.relative_to(bge_folder)): p for p in bge_folder.rglob("*") if p.is_file()}
    identity = {"files": {name: entry_of(path)["sha256"] for name, path in names.items()}}
    fields = dict.fromkeys(
        ("pooling", "normalize", "precision", "device", "prompts", "max_lengths", "pad_id")
    )
    model = Model(name="./m", files=Files(bge_folder), identity=identity, **fields)
    sender = Sender(f"file://{tmp_path}/store")
    sender.push(model)
    sent = pickle.dumps(sender.source(model))
    assert str(bge_folder).encode() not in sent
    receiver = received(sender, monkeypatch, tmp_path / "node")
    source = receiver.source(None, pickle.loads(sent))
    for _ in range(2):  # a second worker of the same machine
        folder = source.files.folder()
        assert folder.is_relative_to(tmp_path / "node")
        found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        assert found == {name: path.read_bytes() for name, path in names.items()}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/folder", "s3://bucket/folder: Install s3fs to access S3"),
        ("nope://x", "nope://x: Protocol not known: nope"),
        ("file://{}/file/store", "Not a directory"),
        ("file:///proc/store", "/proc/store"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_in_one_sentence(
    url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)  # not installed
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as refused:
        Sender(url.format(tmp_path))
    assert str(refused.value).startswith("engine.store: ")
    assert message in str(refused.value)


def test_a_node_that_sees_another_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender(f"file://{tmp_path}/store")
    elsewhere = Receiver(f"file://{tmp_path}/other", sender.place[1])
    with pytest.raises(InputError, match=r"on node n: .*No such file"):
        elsewhere.exchange.check("n")

"""Artifacts: keys, whole files, reuse, damage, two processes at once."""

import errno
import json
import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from workplaces import read_json

from pipeline import InputError, storage
from pipeline.studies import cache

RECIPE = storage.Recipe("index", {"schema": 1, "factory": "Flat"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def build_two(draft: storage.Draft) -> dict[str, Any]:
    """Two files; those an earlier run left whole are kept."""
    for name in ("a.bin", "b.bin"):
        if name not in draft.whole:
            with draft.file(name) as path:
                path.write_bytes(name.encode() * 1000)
    return {"rows": 2}


def make(store: storage.Store, **kwargs: Any) -> storage.Artifact:
    return store.make(RECIPE, build_two, **kwargs)


@given(JSON, JSON)
def test_equal_recipes_of_a_stage_and_only_they_have_equal_keys(one: Any, two: Any) -> None:
    same = storage.hash_json(one) == storage.hash_json(two)
    assert (storage.Recipe("s", {"x": one}).key == storage.Recipe("s", {"x": two}).key) == same
    key = storage.Recipe("s", {"x": one, "y": two}).key
    assert (
        key == storage.Recipe("s", {"y": two, "x": one}).key != storage.Recipe("t", {"x": one, "y": two}).key
    )


def test_made_afresh_what_another_process_uses_stays_until_nobody_does(tmp_path: Path) -> None:
    def build_other(draft: storage.Draft) -> dict[str, Any]:
        with draft.file("other.bin") as path:
            path.write_bytes(b"other")
        return {}

    make(storage.Store(tmp_path))
    reader, writer = (
        storage.Store(tmp_path),
        storage.Store(tmp_path),
    )  # a lock is a store's own, as it is a process's
    used = reader.load(RECIPE)
    assert used is not None
    made = writer.make(RECIPE, build_other, fresh=True)
    assert (used.damaged(), made.damaged()) == ([], [])
    del writer
    (kept,) = cache.cache_entries(tmp_path)
    assert not kept.remove()
    del reader
    storage.Store(tmp_path).make(RECIPE, build_other, fresh=True)
    assert {path.name for path in made.folder.iterdir()} == {"other.bin", "manifest.json"}


def test_a_file_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    def build_empty(draft: storage.Draft) -> dict[str, Any]:
        with draft.file("empty.bin") as path:
            path.touch()
        return {}

    artifact = storage.Store(tmp_path).make(RECIPE, build_empty)
    path = artifact.folder / "empty.bin"
    path.unlink()
    path.symlink_to("/proc/self/mem")  # as empty, and its first byte is an I/O error
    assert artifact.damaged() == ["empty.bin"]


def test_afresh_nothing_is_taken_of_what_an_unfinished_run_left(tmp_path: Path) -> None:
    whole: list[set[str]] = []

    def fail(draft: storage.Draft) -> dict[str, Any]:
        whole.append(set(draft.whole))
        if len(whole) == 1:
            with draft.file("a.bin") as path:
                path.write_bytes(b"old")
        raise ValueError

    for fresh in (False, True, False):
        with pytest.raises(ValueError):  # noqa: PT011
            storage.Store(tmp_path).make(RECIPE, fail, fresh=fresh)
    assert whole == [set(), set(), set()]


def test_an_artifact_of_which_nothing_was_written_leaves_no_folder(tmp_path: Path) -> None:
    def fail(draft: storage.Draft) -> dict[str, Any]:
        raise ValueError

    (tmp_path / "others").mkdir()
    for root in (tmp_path / "new", tmp_path):
        with pytest.raises(ValueError):  # noqa: PT011
            storage.Store(root).make(RECIPE, fail)
        assert [path.name for path in tmp_path.rglob("*")] == ["others"]


def test_a_manifest_that_names_files_elsewhere_writes_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "artifact").mkdir()
    files = {"../outside": {"bytes": 1, "sha256": "0" * 64}}
    manifest = {"layout": storage.LAYOUT, "stage": tmp_path.name, "key": "artifact", "files": files}
    (tmp_path / "artifact" / "manifest.json").write_text(json.dumps(manifest))
    storage.Draft.begin(tmp_path / "artifact", fresh=False)
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_files_of_an_artifact_that_was_moved_to_another_key_are_not_kept(tmp_path: Path) -> None:
    store, other = storage.Store(tmp_path), storage.Recipe("index", {"schema": 2, "factory": "Flat"})
    store.make(RECIPE, build_two).folder.rename(tmp_path / "index" / other.key)
    whole: list[object] = []
    store.make(other, lambda draft: whole.extend(draft.whole) or build_two(draft))
    assert whole == []


def test_whoever_waited_for_a_lock_that_was_removed_holds_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(20):
        first = storage.hold(path, create=True)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(storage.hold, path, create=True)
            path.unlink()
            first.release()
            second = waiting.result()
        assert path.exists()
        assert storage.hold(path, wait=False) is None
        second.release()


@pytest.mark.parametrize("level", ["artifact", "stage", "locks"])
def test_a_link_in_the_cache_is_refused_and_what_it_leads_to_stays(tmp_path: Path, level: str) -> None:
    mine, store = tmp_path / "mine", storage.Store(tmp_path / "cache")
    folder = store.folder(RECIPE)
    link = {"artifact": folder, "stage": folder.parent, "locks": store.root / ".locks"}[level]
    for path in (mine, mine / RECIPE.key):
        path.mkdir()
        (path / "thesis.tex").write_text("years of work", encoding="utf-8")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(mine)
    for act in (make, lambda store: make(store, fresh=True), lambda store: store.find(RECIPE)):
        with pytest.raises(InputError, match=f"{link} is a link to {mine}"):
            act(store)
    assert cache.cache_entries(store.root) == []
    assert sorted(path.name for path in mine.rglob("*")) == [RECIPE.key, "thesis.tex", "thesis.tex"]


def test_what_carries_no_manifest_of_ours_is_neither_filled_nor_removed(tmp_path: Path) -> None:
    store = storage.Store(tmp_path)
    folder = store.folder(RECIPE)
    folder.mkdir(parents=True)
    others = [folder / "layer.tar", folder.parent / "notes.txt", tmp_path / "README.md"]
    for path in others:
        path.write_text("another program's", encoding="utf-8")
    with pytest.raises(InputError, match="was not created by benchmarco"):
        make(store)
    assert cache.prune(tmp_path, [], size=0, dry=False) == []
    assert all(path.exists() for path in others)


def a_pipe(manifest: Path) -> None:
    """It is not waited for."""
    manifest.unlink()
    os.mkfifo(manifest)


def content(text: str) -> Callable[[Path], object]:
    return lambda manifest: manifest.write_text(text, encoding="utf-8")


def changed(parts: dict[str, Any]) -> Callable[[Path], None]:
    """A manifest with other parts, and a checksum that is right."""

    def write(path: Path) -> None:
        manifest = read_json(path) | parts
        del manifest["sha256"]
        path.write_text(json.dumps({**manifest, "sha256": storage.hash_json(manifest)}), encoding="utf-8")

    return write


WRONG_PARTS: tuple[dict[str, Any], ...] = (
    {"layout": 999}, {"facts": None}, {"made": []}, {"made": {"from_files": {"data": "x"}}},
    {"recipe": "Flat"}, {"stage": 5}, {"files": ["a.bin"]}, {"files": {"a.bin": {"bytes": "9"}}},
    {"files": {"../x": {"bytes": 1, "sha256": ""}}}, {"files": {"a\0b": {"bytes": 1, "sha256": ""}}},
)  # fmt: skip
OTHERS = ("", "[]", '{"layout": 1, "key": "other"}')


@pytest.mark.parametrize("harm", [a_pipe, *map(content, OTHERS), *map(changed, WRONG_PARTS)])
def test_what_is_not_a_manifest_of_ours_is_damage(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    artifact = make(storage.Store(tmp_path))
    harm(artifact.folder / "manifest.json")
    assert storage.Store(tmp_path).find(RECIPE) is None
    assert [entry.damaged() for entry in cache.cache_entries(tmp_path)] == [["manifest.json"]]
    assert cache.describe_entries(tmp_path)[0]["state"] == "damaged"
    assert make(storage.Store(tmp_path)).damaged() == []


def test_a_full_disk_is_named_where_a_library_writes_files_of_its_own(tmp_path: Path) -> None:
    """NumPy raises an OSError without a number when a write is cut short."""

    def build(draft: storage.Draft) -> dict[str, Any]:
        with draft.scratch() as aside:
            np.save(aside / "x.npy", np.zeros(1 << 20))
        return {}

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            storage.Store(tmp_path).make(RECIPE, build)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value.filename).startswith(str(storage.Store(tmp_path).folder(RECIPE)))


def test_a_lock_that_is_a_link_to_a_missing_folder_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / ".locks" / f"{RECIPE.stage}-{RECIPE.key}"
    lock.parent.mkdir()
    lock.symlink_to(tmp_path / "missing" / "lock")
    with pytest.raises(InputError, match="is a link to a missing folder"):
        make(storage.Store(tmp_path))

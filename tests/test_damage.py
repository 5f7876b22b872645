"""Damage in any stage's artifact: `cache verify` finds it, the next run says so and makes that again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workplaces import run

from pipeline.core.errors import InputError
from pipeline.storage.artifacts import entry_of
from pipeline.storage.cache import cache_entries, verify
from pipeline.storage.hashing import hash_file, hash_json

pytestmark = pytest.mark.usefixtures("quick_conversion")

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
MADE_OF_IT = {
    "data": ("search", "evaluate"),
    "passages": ("index", "search", "evaluate"),
    "queries": ("search", "evaluate"),
    "index": ("search", "evaluate"),
    "search": ("evaluate",),
    "evaluate": (),
}
Harm = Callable[[Path], str]
of_kinds = partial(pytest.mark.parametrize, indirect=["workplace"])
"""Parametrizes a test by `workplace`, the kind, and other arguments."""


@pytest.fixture
def workplace(finished_of: Callable[[str], Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a finished run, for a test to change; its parameter is the kind, `dense` without one."""
    finished = finished_of(getattr(request, "param", "dense"))
    return Path(shutil.copytree(finished, tmp_path / "workplace"))


def remove_what_is_made_of(folder: Path, stage: str) -> None:
    """Remove the artifacts that a stage was needed for, so that it is needed again."""
    for made in MADE_OF_IT[stage]:
        if (folder / "indexes" / made).exists():  # token vectors have no index
            shutil.rmtree(folder / "indexes" / made)


def largest(folder: Path) -> Path:
    return max(
        (path for path in folder.iterdir() if path.name != "manifest.json"), key=lambda p: p.stat().st_size
    )


def flip_a_bit(folder: Path) -> str:
    path = largest(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path.name


def truncate(folder: Path) -> str:
    path = largest(folder)
    path.write_bytes(path.read_bytes()[:-1])
    return path.name


def remove_a_file(folder: Path) -> str:
    path = largest(folder)
    path.unlink()
    return path.name


def edit_manifest(change: Callable[[str], str]) -> Harm:
    def harm(folder: Path) -> str:
        path = folder / "manifest.json"
        before = path.read_text(encoding="utf-8")
        path.write_text(change(before), encoding="utf-8")
        assert path.read_text(encoding="utf-8") != before
        return "manifest.json"

    return harm


def another_version(text: str) -> str:
    """A manifest as a later version of this program might write it, whole in its own way."""
    manifest = json.loads(text)
    del manifest["sha256"]
    manifest["layout"] += 1
    return json.dumps({**manifest, "sha256": hash_json(manifest)})


HARMS: dict[str, Harm] = {
    "a flipped bit": flip_a_bit,
    "a truncated file": truncate,
    "a missing file": remove_a_file,
    "a flipped digit in the manifest": edit_manifest(
        lambda text: (
            re.sub(r'("seconds": \d+\.\d*)(\d)', lambda m: m[1] + str((int(m[2]) + 1) % 10), text, count=1)
            if '"seconds"' in text
            else text.replace('"facts": {', '"facts": {"x": 1, ')
        )
    ),
    "a truncated manifest": edit_manifest(lambda text: text[: len(text) // 2]),
    "a manifest of another version": edit_manifest(another_version),
}


def state(folder: Path) -> dict[str, str]:
    """Checksums of every file of every artifact, and of the results."""
    paths = [
        path
        for path in (folder / "indexes").rglob("*")
        if path.is_file() and path.suffix in (".npy", ".ragged", ".arrow", ".faiss", ".trec", ".csv")
    ]
    paths += [folder / "results/t" / name for name in ("per_query.csv", "run.trec")]
    return {str(path.relative_to(folder)): hash_file(path) for path in paths}


CASES = [
    *[("dense", "passages", harm) for harm in HARMS],
    *[
        ("dense", stage, harm)
        for number, stage in enumerate(("data", "queries", "index", "search", "evaluate"))
        for harm in list(HARMS)[number % 2 :: 2]
    ],
    ("sparse", "passages", "a flipped bit"),
    ("sparse", "queries", "a truncated file"),
    ("sparse", "index", "a flipped bit"),
    ("multivector", "passages", "a missing file"),
    ("multivector", "queries", "a flipped bit"),
]


@of_kinds(
    ("workplace", "stage", "harm"), CASES, ids=[f"{harm} in {stage}, {kind}" for kind, stage, harm in CASES]
)
def test_damage_is_found_told_and_mended(
    workplace: Path, caplog: pytest.LogCaptureFixture, stage: str, harm: str
) -> None:
    before = state(workplace)
    remove_what_is_made_of(workplace, stage)
    (folder,) = (workplace / "indexes" / stage).iterdir()
    file = HARMS[harm](folder)
    found = [
        (row["stage"], row["key"], row["files"])
        for row in verify(workplace / "indexes")
        if row["state"] != "whole"
    ]
    assert found == [(stage, folder.name, [file])]
    run(workplace)
    (told,) = [message for message in caplog.messages if "recomputing it" in message]
    assert str(folder) in told
    assert state(workplace) == before
    assert {row["state"] for row in verify(workplace / "indexes")} == {"whole"}


def written(path: Path) -> tuple[int, int]:
    """Which file this is and when it was written: a number alone may be given to a new file."""
    return path.stat().st_ino, path.stat().st_mtime_ns


@of_kinds(
    ("workplace", "harm"),
    [
        *[("dense", harm) for harm in HARMS],
        ("sparse", "a truncated file"),
        ("multivector", "a flipped bit"),
    ],
)
def test_whole_shards_beside_damage_are_kept(workplace: Path, harm: str) -> None:
    remove_what_is_made_of(workplace, "passages")
    (folder,) = (workplace / "indexes" / "passages").iterdir()
    shards = {path: written(path) for path in folder.glob("rows-*")}
    harmed = folder / HARMS[harm](folder)
    run(workplace)
    same = {path for path, before in shards.items() if written(path) == before}
    assert len(shards) > 1
    if harm in ("a truncated manifest", "a manifest of another version"):
        assert same == set()  # nothing vouches for them any more
    else:
        assert same == set(shards) - {harmed}


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an artifact, and write a manifest that agrees with it."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    del manifest["sha256"]
    change(manifest)
    manifest["files"] = {name: entry_of(folder / name) for name in manifest["files"]}
    path.write_text(json.dumps({**manifest, "sha256": hash_json(manifest)}), encoding="utf-8")


def save(name: str, array: object) -> Callable[[Path], Callable[[dict[str, Any]], object]]:
    return lambda folder: lambda manifest: np.save(folder / name, np.asarray(array))


def write(name: str, content: bytes) -> Callable[[Path], Callable[[dict[str, Any]], object]]:
    return lambda folder: lambda manifest: (folder / name).write_bytes(content)


@of_kinds(
    ("workplace", "stage", "corrupt"),
    [
        ("dense", "data", write("corpus.arrow", b"no arrow")),
        ("dense", "data", save("qrels.npy", np.full((3, 5), 10**9))),
        ("dense", "data", save("qrels.npy", [1.0])),
        ("dense", "queries", lambda folder: lambda manifest: largest(folder).write_bytes(b"no array")),
        ("dense", "search", save("scores.npy", [1.0])),
        ("dense", "search", lambda folder: lambda manifest: manifest["facts"].clear()),
        ("dense", "index", write("index.faiss", b"no index")),
        ("sparse", "queries", lambda folder: lambda manifest: largest(folder).write_bytes(b"no array")),
        ("sparse", "index", lambda folder: lambda manifest: largest(folder).write_bytes(b"no array")),
        ("multivector", "passages", lambda folder: lambda manifest: largest(folder).write_bytes(b"x")),
        ("dense", "evaluate", lambda folder: lambda manifest: manifest["facts"].clear()),
    ],
)
def test_an_artifact_that_agrees_with_its_manifest_and_holds_nonsense_is_one_message(
    workplace: Path, stage: str, corrupt: Callable[[Path], Callable[[dict[str, Any]], object]]
) -> None:
    remove_what_is_made_of(workplace, stage)
    (folder,) = (workplace / "indexes" / stage).iterdir()
    rewrite(folder, corrupt(folder))
    with pytest.raises(InputError, match=rf"{folder} is not a complete .*Remove that folder"):
        run(workplace)


def test_a_manifest_that_was_rewritten_for_other_settings_is_found(workplace: Path) -> None:
    (kept,) = [kept for kept in cache_entries(workplace / "indexes") if kept.stage == "evaluate"]
    manifest = {name: value for name, value in kept.manifest.items() if name != "sha256"}
    manifest["recipe"]["measures"] = ["ndcg@1"]
    (kept.folder / "manifest.json").write_text(json.dumps({**manifest, "sha256": hash_json(manifest)}))
    assert [row["files"] for row in verify(workplace / "indexes") if row["state"] == "damaged"] == [
        ["manifest.json"]
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        r"allow_pickle=True",
        r"\bpickle\b(?!d| import UnpicklingError)",
        r"yaml\.(unsafe_|full_)?load\((?!.*(_Loader|yaml\.SafeLoader|yaml\.BaseLoader))",
        r"\beval\(",
        r"\bexec\(",
        r"trust_remote_code=True(?!`)",
        r"weights_only=False",
        r"shell=True",
        r"os\.system",
    ],
)
def test_nothing_is_opened_in_a_way_that_can_execute_it(root: Path, pattern: str) -> None:
    found = [
        f"{path}:{number}: {line}"
        for path in (root / "pipeline").rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
        and "allow_pickle=False" not in line
        and not re.search(r"\.eval\(\)", line)
    ]
    assert found == []


def test_every_array_is_loaded_without_pickle(root: Path) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (root / "pipeline").rglob("*.py"))
    calls = re.findall(r"np\.(?:load|save)\([^\n]*", text)
    assert len(calls) >= 5
    assert all("allow_pickle=False" in call for call in calls)

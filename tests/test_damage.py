"""Damage in any stage's artifact: `cache verify` finds it, the next run says so and makes that again."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workplaces import read_json, run

from pipeline import InputError
from pipeline.storage import hash_file, hash_json
from pipeline.studies.cache import verify

MADE_OF_IT = {
    "data": ("search", "evaluate"),
    "passages": ("index", "search", "evaluate"),
    "queries": ("search", "evaluate"),
    "index": ("search", "evaluate"),
    "search": ("evaluate",),
    "evaluate": (),
}


@pytest.fixture
def copy(finished_of: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copies a finished run of a kind."""
    return lambda kind: Path(shutil.copytree(finished_of(kind), tmp_path / "w"))


def need_again(folder: Path, stage: str) -> Path:
    """Remove the artifacts that a stage was needed for; the artifact of that stage."""
    for made in MADE_OF_IT[stage]:
        shutil.rmtree(folder / "indexes" / made, ignore_errors=True)  # token vectors have no index
    (artifact,) = (folder / "indexes" / stage).iterdir()
    return artifact


def largest(folder: Path) -> Path:
    files = (path for path in folder.iterdir() if path.name != "manifest.json")
    return max(files, key=lambda path: path.stat().st_size)


def state(folder: Path) -> dict[str, str]:
    """Checksums of every file of every artifact, and of the results."""
    kinds = (".npy", ".ragged", ".arrow", ".faiss", ".trec", ".csv")
    paths = [path for path in (folder / "indexes").rglob("*") if path.suffix in kinds]
    paths += [folder / "results/t" / name for name in ("per_query.csv", "run.trec")]
    return {str(path.relative_to(folder)): hash_file(path) for path in paths}


def written(path: Path) -> tuple[int, int]:
    """Which file this is and when it was written: a number alone may be given to a new file."""
    return path.stat().st_ino, path.stat().st_mtime_ns


@pytest.mark.parametrize(
    ("kind", "stage", "harm"),
    [
        ("dense", "data", "removed"),
        ("dense", "passages", "flipped"),
        ("dense", "passages", "manifest cut"),
        ("dense", "queries", "grown"),
        ("dense", "index", "cut"),
        ("dense", "search", "flipped"),
        ("dense", "evaluate", "flipped"),
        ("sparse", "passages", "cut"),
        ("sparse", "index", "flipped"),
        ("multivector", "passages", "removed"),
        ("multivector", "queries", "flipped"),
    ],
)
def test_damage_is_found_told_and_mended_and_whole_shards_are_kept(
    copy: Callable[[str], Path], caplog: pytest.LogCaptureFixture, kind: str, stage: str, harm: str
) -> None:
    is_manifest = harm == "manifest cut"
    folder = copy(kind)
    before, artifact = state(folder), need_again(folder, stage)
    shards = {path: written(path) for path in artifact.glob("rows-*")}
    file = artifact / "manifest.json" if is_manifest else largest(artifact)
    content = file.read_bytes()
    half = len(content) // 2
    flipped = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
    harmed = {"flipped": flipped, "grown": content + b"x"}.get(harm, content[:half])
    file.unlink() if harm == "removed" else file.write_bytes(harmed)
    rows = [row for row in verify(folder / "indexes") if row["state"] != "whole"]
    assert [(row["stage"], row["key"], row["files"]) for row in rows] == [(stage, artifact.name, [file.name])]
    run(folder)
    (told,) = [message for message in caplog.messages if "recomputing it" in message]
    assert str(artifact) in told
    assert state(folder) == before
    assert {row["state"] for row in verify(folder / "indexes")} == {"whole"}
    kept = {path for path, when in shards.items() if written(path) == when}
    vouched_for = set() if is_manifest else set(shards) - {file}
    assert kept == vouched_for
    assert stage != "passages" or len(shards) > 1


def test_what_is_made_in_place_of_a_damaged_ranking_is_checked_first(copy: Callable[[str], Path]) -> None:
    folder = copy("dense")
    (search,) = (folder / "indexes/search").iterdir()
    scores, before = search / "scores.npy", state(folder)
    run(folder, "search.device=cuda:99")  # searches nothing
    scores.write_bytes(scores.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"search\.device: cuda:99, and this machine has"):
        run(folder, "search.device=cuda:99")
    run(folder)
    assert state(folder) == before


Corrupt = Callable[[Path, dict[str, Any]], object]


def save(name: str, array: object) -> Corrupt:
    return lambda folder, manifest: np.save(folder / name, np.asarray(array))


def no_facts(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["facts"].clear()


def no_array(folder: Path, manifest: dict[str, Any]) -> None:
    largest(folder).write_bytes(b"no array")


@pytest.mark.parametrize(
    ("kind", "stage", "corrupt"),
    [
        ("dense", "data", no_array),
        ("dense", "data", save("qrels.npy", np.full((2, 5), 10**9))),
        ("dense", "queries", no_array),
        ("dense", "search", save("scores.npy", [1.0])),
        ("dense", "search", no_facts),
        ("dense", "index", no_array),
        ("sparse", "index", no_array),
        ("multivector", "passages", no_array),
        ("dense", "evaluate", no_facts),
    ],
)
def test_an_artifact_that_agrees_with_its_manifest_and_holds_nonsense_is_one_message(
    copy: Callable[[str], Path], kind: str, stage: str, corrupt: Corrupt
) -> None:
    folder = copy(kind)
    artifact = need_again(folder, stage)
    manifest = read_json(artifact / "manifest.json")
    del manifest["sha256"]
    corrupt(artifact, manifest)
    for name in manifest["files"]:
        path = artifact / name
        manifest["files"][name] = {"bytes": path.stat().st_size, "sha256": hash_file(path)}
    (artifact / "manifest.json").write_text(json.dumps({**manifest, "sha256": hash_json(manifest)}))
    with pytest.raises(InputError, match=rf"{artifact} is not a complete .*Remove that folder"):
        run(folder)


UNPICKLES = r"\bpickle\b(?!d| import UnpicklingError)(?!.*allow_pickle=False)"
EXECUTES = (
    r"allow_pickle=True",
    r"np\.(load|save)\((?!.*allow_pickle=False)",
    UNPICKLES,
    r"yaml\.(unsafe_|full_)?load(_all)?\(",
    r"\b(C?(Unsafe|Full)Loader|yaml\.C?Loader)\b",
    r"(?<!\.)\beval\(",
    r"\bexec\(",
    r"trust_remote_code=True(?!`)",
    r"weights_only=False",
    r"shell=True",
    r"os\.system",
)
OF_THIS_RUN = {
    "engines/processes.py", "studies/latency/measurement.py",
    "studies/latency/process.py", "encoders/conversion.py",
}  # fmt: skip
"""Modules that unpickle messages between processes of one run.

They come through a socket that `socketpair` made, which has no address, or a pipe to stdin: only this program
and the processes that it started with the other end can write to it. These run the same code as the same
user, so a message can do nothing that its sender cannot do itself. Ray sends its messages in the same form.
"""


def test_nothing_is_opened_in_a_way_that_can_execute_it(root: Path) -> None:
    found = [
        f"{path}:{number}: {line}"
        for path in (root / "pipeline").rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for pattern in EXECUTES
        if re.search(pattern, line)
        and (pattern != UNPICKLES or path.relative_to(root / "pipeline").as_posix() not in OF_THIS_RUN)
    ]
    assert found == []

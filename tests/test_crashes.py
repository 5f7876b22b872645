"""What a run that is killed, interrupted or refused by the disk leaves, and what the next one makes of it.

Every run here is the real command in a process of its own. Each test begins where the model is converted and
nothing is encoded, kills a run at one moment, looks at what is left, and runs again to the end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.storage.cache import PruneLimits, cache_entries, prune, verify
from pipeline.storage.hashing import hash_file

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
RESULTS = {"manifest.json", "metrics.json", "per_query.csv", "run.trec"}
Command = Callable[..., int]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Command]:
    """Runs `benchmarco run c.yaml ARGUMENTS` in a folder and gives the exit code (`tests/fork_server.py`)."""
    log = tmp_path_factory.mktemp("log")
    process = subprocess.Popen(
        [sys.executable, str(root / "tests" / "fork_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(folder: Path, *arguments: str, models: str = "", **at: Any) -> int:
        line = {"folder": str(folder), "log": str(log), "arguments": ["run", "c.yaml", *arguments], "at": at}
        line["models"] = models or os.environ["BENCHMARCO_CACHE"]
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        return run.answer()

    def answer() -> Any:
        code = json.loads(process.stdout.readline())
        said = (log / "stderr").read_text(encoding="utf-8").splitlines(keepends=True)
        begins = ("benchmarco: model ", "benchmarco: t: computes ")
        run.stderr = "".join(line for line in said if not line.startswith(begins))
        if code == 0:
            run.calls = json.loads((log / "calls").read_text(encoding="utf-8"))
        return code

    run.answer = answer
    yield run
    process.stdin.close()
    assert process.wait() == 0


def outcome(folder: Path) -> dict[str, Any]:
    """What a run ends with: the checksums of all artifacts and results, without times and places."""
    manifests = {(kept.stage, kept.key): kept.manifest for kept in cache_entries(folder / "indexes")}
    assert None not in manifests.values()
    artifacts = {name: manifest["files"] for name, manifest in manifests.items()}
    return {"artifacts": artifacts, "results": results(folder)}


def results(folder: Path) -> dict[str, Any]:
    result = folder / "results" / "t"
    metrics = json.loads((result / "metrics.json").read_text(encoding="utf-8"))["metrics"]
    return {**metrics, **{name: hash_file(result / name) for name in ("per_query.csv", "run.trec")}}


def files(folder: Path) -> set[str]:
    """Every file of the cache and the results; not the locks, nor checksums that a manifest took over."""
    paths = [path for part in ("indexes", "results") for path in (folder / part).rglob("*")]
    finished = {path.parent for path in paths if path.name == "manifest.json"}
    return {
        str(path.relative_to(folder))
        for path in paths
        if path.is_file()
        and ".locks" not in path.parts
        and not (path.suffix == ".sha256" and path.parent in finished)
    }


def whole_files(folder: Path) -> dict[Path, int]:
    """The inode of every whole shard of vectors, and of every file of a finished artifact."""
    found = {}
    for path in (folder / "indexes").rglob("rows-*.sha256"):
        whole, entry = path.with_suffix(""), json.loads(path.read_text(encoding="utf-8"))
        if whole.is_file() and hash_file(whole) == entry["sha256"]:
            found[whole] = whole.stat().st_ino
    for kept in cache_entries(folder / "indexes"):
        for name in kept.manifest["files"] if kept.manifest else ():
            found[kept.folder / name] = (kept.folder / name).stat().st_ino
    return found


def assert_nothing_lies(folder: Path, reference: dict[str, Any]) -> None:
    """What looks finished is whole, in the cache and in the result folder."""
    assert not [row for row in verify(folder / "indexes") if row["state"] == "damaged"]
    if (folder / "results" / "t" / "manifest.json").exists():
        assert {path.name for path in (folder / "results" / "t").iterdir()} == RESULTS
        assert results(folder) == reference["results"]


def assert_goes_on(
    command: Command, folder: Path, undisturbed: tuple[dict[str, Any], set[str]], *arguments: str
) -> None:
    """The next run keeps what is whole and ends as a run that nothing disturbed."""
    kept = whole_files(folder)
    assert command(folder, *arguments) == 0, command.stderr
    assert "waiting" not in command.stderr  # whatever the dead run held is free
    assert outcome(folder) == undisturbed[0]
    assert files(folder) == undisturbed[1]
    assert {path: path.stat().st_ino for path in kept} == kept


@pytest.fixture(scope="module")
def converted_of(
    finished: Path, give_rows: Callable[[Path, str], None], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """For each kind data, config, and a cache that holds the converted model and nothing else.

    Short texts are fast. With the kind `sparse` or `multivector` the model is rows from files; with `chunks`
    a few passages are cut.
    """

    @cache
    def make(kind: str) -> Path:
        folder = tmp_path_factory.mktemp("converted") / "w"
        shutil.copytree(finished, folder)
        for part in (*(f"indexes/{stage}" for stage in STAGES), "indexes/.locks", "results"):
            shutil.rmtree(folder / part)
        if kind in ("sparse", "multivector"):
            give_rows(folder, kind)
            return folder
        config = (folder / "c.yaml").read_text(encoding="utf-8")
        if kind == "chunks":
            cut = "source: beir, queries: 5, corpus: 60, chunks: {tokens: 12, overlap: 0}"
            config = config.replace("source: beir", cut)
        short = "backend: openvino, passage_max_length: 16, query_max_length: 16"
        (folder / "c.yaml").write_text(config.replace("backend: openvino", short), encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="module")
def undisturbed_of(
    converted_of: Callable[[str], Path], command: Command, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[dict[str, Any], set[str]]]:
    """For each kind the outcome and the files of a run that nothing disturbed."""

    @cache
    def run(kind: str) -> tuple[dict[str, Any], set[str]]:
        folder = Path(shutil.copytree(converted_of(kind), tmp_path_factory.mktemp("undisturbed") / "w"))
        assert command(folder) == 0, command.stderr
        least = CALLS[kind]
        assert command.calls["replace"] == least["replace"], "change CALLS and MOMENTS"
        assert {name: command.calls[name] >= least[name] for name in least} == dict.fromkeys(least, True)
        return outcome(folder), files(folder)

    return run


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of a test's config."""
    return getattr(request, "param", "dense")


@pytest.fixture
def undisturbed(
    kind: str, undisturbed_of: Callable[[str], tuple[dict[str, Any], set[str]]]
) -> tuple[dict[str, Any], set[str]]:
    """The outcome and the files of a run that nothing disturbed."""
    return undisturbed_of(kind)


@pytest.fixture
def place(kind: str, converted_of: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy to run in."""
    return Path(shutil.copytree(converted_of(kind), tmp_path / "w", copy_function=os.link))


CALLS = {
    "dense": {"replace": 44, "open": 37, "unlink": 38, "fsync": 88},
    "sparse": {"replace": 34, "open": 30},
    "multivector": {"replace": 31, "open": 27},
    "chunks": {"replace": 51, "open": 30},
}
"""Calls of an undisturbed run, at least: the runs below end at one of each few.

The kinds share what writes files, so that fewer runs of sparse and multi-vector ones are killed."""

MOMENTS = [
    *[("dense", "replace", number) for number in range(1, 45, 6)],  # before a rename
    *[("dense", "open", number) for number in range(1, 38, 12)],  # with half a file written
    *[("dense", "unlink", number) for number in (22,)],
    *[("dense", "fsync", number) for number in (11, 75)],
    *[("sparse", "replace", number) for number in (6, 22)],
    *[("sparse", "open", number) for number in (7,)],
    *[("multivector", "replace", number) for number in (14, 26)],
    *[("multivector", "open", number) for number in (9,)],
    *[("chunks", "replace", number) for number in (12, 15, 44)],  # two of them as chunks are written
    *[("chunks", "open", number) for number in (10,)],
]
of_kinds = partial(pytest.mark.parametrize, indirect=["kind"])
"""Parametrizes a test by `kind` and other arguments."""


@of_kinds(("kind", "call", "number"), MOMENTS)
def test_killed_at_any_write_the_next_run_ends_as_if_nothing_had_happened(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]], call: str, number: int
) -> None:
    assert command(place, call=call, number=number, signal=signal.SIGKILL) == -signal.SIGKILL
    assert_nothing_lies(place, undisturbed[0])
    assert_goes_on(command, place, undisturbed)


def test_killed_while_it_makes_everything_afresh(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]]
) -> None:
    assert command(place) == 0
    moments = [("replace", 5), ("open", 9), ("replace", 29), ("fsync", 43), ("replace", 35)]
    for call, number in moments:  # the last is late: a run takes what is finished, and needs no data for it
        command(place, "--fresh", call=call, number=number, signal=signal.SIGKILL)
        assert_nothing_lies(place, undisturbed[0])
    assert_goes_on(command, place, undisturbed)


def test_killed_while_the_model_is_converted(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]]
) -> None:
    kill = {"call": "Popen", "number": 1, "signal": signal.SIGKILL}
    assert command(place, models="models", **kill) == -signal.SIGKILL
    (draft,) = (place / "models" / "openvino").iterdir()
    assert not (draft / "manifest.json").exists()
    assert command(place, models="models") == 0, command.stderr
    assert (draft / "manifest.json").exists()
    assert files(place) == undisturbed[1]
    assert results(place) == undisturbed[0]["results"]


@of_kinds(
    ("kind", "number", "arguments"),
    [("dense", 1, ("--fresh",)), ("dense", 6, ()), ("sparse", 2, ()), ("multivector", 2, ("--fresh",))],
)
def test_ctrl_c_says_in_one_line_how_to_go_on(
    place: Path,
    command: Command,
    undisturbed: tuple[dict[str, Any], set[str]],
    number: int,
    arguments: tuple[str, ...],
) -> None:
    without = " without --fresh" if arguments else ""
    at = {"call": "replace", "path": "indexes/passages/", "number": number, "signal": signal.SIGINT}
    assert command(place, *arguments, **at) == 130
    lines = command.stderr.splitlines()
    assert lines == [
        f"benchmarco: interrupted; run the same command again{without} to go on where it stopped"
    ]
    assert not list((place / "indexes").rglob("*.tmp"))
    assert_nothing_lies(place, undisturbed[0])
    assert_goes_on(command, place, undisturbed)


@of_kinds(
    ("kind", "call", "number"),
    [("dense", "replace", 36), ("dense", "fsync", 30), ("sparse", "open", 14)],
)
def test_a_full_disk_is_said_plainly_and_loses_nothing(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]], call: str, number: int
) -> None:
    assert command(place, call=call, number=number, errno=errno.ENOSPC) == 1
    (line,) = command.stderr.splitlines()
    assert "No space left on device; make room and run the same command again" in line
    assert_nothing_lies(place, undisturbed[0])
    assert not list((place / "indexes").rglob("*.tmp"))
    assert_goes_on(command, place, undisturbed)


def remount(folder: Path, options: str) -> None:
    """Change a folder that is mounted."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


@pytest.fixture
def mounted() -> Iterator[Callable[..., None]]:
    """Mounts folders, and takes them away again."""
    folders: list[str] = []

    def at(folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this user may not mount: {done.stderr.strip()}")
        folders.append(str(folder))

    yield at
    for folder in reversed(folders):
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize(
    ("folder", "room"),
    [
        ("indexes/passages", "100k"),  # two shards and a half
        ("indexes/index", "128k"),  # all but what Faiss holds back until it closes the file
        ("results", "32k"),
    ],
)
def test_a_disk_that_is_really_full(
    place: Path,
    command: Command,
    undisturbed: tuple[dict[str, Any], set[str]],
    mounted: Callable[..., None],
    folder: str,
    room: str,
) -> None:
    mounted(place / folder, "-t", "tmpfs", "-o", f"size={room}", "tmpfs")
    assert command(place) == 1
    (line,) = command.stderr.splitlines()
    assert folder in line
    assert "No space left on device; make room and run the same command again" in line
    assert_nothing_lies(place, undisturbed[0])
    remount(place / folder, "size=100m")
    assert_goes_on(command, place, undisturbed)


def test_a_read_only_cache_serves_what_it_holds_and_says_what_it_cannot(
    place: Path,
    command: Command,
    undisturbed: tuple[dict[str, Any], set[str]],
    mounted: Callable[..., None],
) -> None:
    assert command(place) == 0
    shutil.rmtree(place / "results")
    mounted(place / "indexes", "--bind", str(place / "indexes"))
    remount(place / "indexes", "bind,ro")
    before = files(place)
    assert command(place) == 0, command.stderr
    assert outcome(place) == undisturbed[0]
    shutil.rmtree(place / "results")
    assert command(place, "--set", "search.top_k=60") == 1
    (line,) = command.stderr.splitlines()
    assert "indexes/" in line
    assert "Read-only file system; name a folder that can be written with --set cache=DIR" in line
    assert files(place) == before
    assert command(place, "--fresh") == 1
    assert files(place) == before


def test_a_read_only_output_folder_is_said_before_anything_is_computed(
    place: Path, command: Command, mounted: Callable[..., None]
) -> None:
    mounted(place / "results", "--bind", str(place / "results"))
    remount(place / "results", "bind,ro")
    assert command(place) == 2
    (line,) = command.stderr.splitlines()
    assert "results" in line
    assert "--output DIR" in line
    assert cache_entries(place / "indexes") == []


def test_a_folder_that_this_user_may_not_write_is_said_plainly(place: Path, command: Command) -> None:
    assert command(place, call="mkdir", number=1, errno=errno.EACCES) == 1
    (line,) = command.stderr.splitlines()
    assert "Permission denied; name a folder that can be written with --set cache=DIR" in line


@contextlib.contextmanager
def standing_still(command: Command, folder: Path, *arguments: str, **at: Any) -> Iterator[None]:
    """A run that is stopped at a moment, goes on after the block, whatever that came to, and ends well."""
    stopped = command(folder, *arguments, **at, signal=signal.SIGSTOP)
    assert isinstance(stopped, dict), command.stderr
    try:
        yield
    finally:
        os.kill(stopped["stopped"], signal.SIGCONT)
        code = command.answer()
    assert code == 0, command.stderr


def second(place: Path, *arguments: str) -> subprocess.Popen[str]:
    """Another process with the same config."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", "run", "c.yaml", *arguments],
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@of_kinds(
    ("kind", "stage"),
    [("dense", "data"), ("dense", "passages"), ("sparse", "index")],
)
def test_of_two_processes_one_computes_and_the_other_waits_and_says_so(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]], stage: str
) -> None:
    at = {"call": "replace", "path": f"indexes/{stage}/", "number": 2}
    with standing_still(command, place, "--output", "first", **at):
        other = second(place)
        told = next(line for line in other.stderr if "waiting" in line)
    assert told.startswith(f"benchmarco: waiting: another process is making {stage} ")
    assert other.wait() == 0
    other.stderr.close()
    assert outcome(place) == undisturbed[0]
    stages = [
        json.loads(path.read_text(encoding="utf-8"))["stages"]
        for path in (place / "first/t/metrics.json", place / "results/t/metrics.json")
    ]
    made = [{each["stage"] for each in of_one if not each["reused"]} for of_one in stages]
    assert stage in made[0]
    assert made[0] | made[1] == {each["stage"] for each in stages[0]}
    assert not made[0] & made[1]
    for name in ("per_query.csv", "run.trec"):
        assert (place / "first/t" / name).read_bytes() == (place / "results/t" / name).read_bytes()


def test_of_two_processes_one_writes_the_result_folder_after_the_other(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]]
) -> None:
    with standing_still(command, place, call="replace", path="results/", number=2):
        assert not (place / "results/t/manifest.json").exists()
        other = second(place, "--set", "evaluate.measures=[ndcg@5]")
        told = next(line for line in other.stderr if "waiting" in line)
    assert told == "benchmarco: waiting: another run is writing results/t\n"
    assert other.wait() == 0
    other.stderr.close()
    metrics = json.loads((place / "results/t/metrics.json").read_text(encoding="utf-8"))["metrics"]
    manifest = json.loads((place / "results/t/manifest.json").read_text(encoding="utf-8"))
    assert list(metrics) == manifest["config"]["evaluate"]["measures"] == ["ndcg@5"]


def test_what_a_running_process_makes_or_uses_is_not_pruned(
    place: Path, command: Command, undisturbed: tuple[dict[str, Any], set[str]]
) -> None:
    with standing_still(command, place, call="replace", path="indexes/search/", number=2):
        there = {(kept.stage, kept.busy()) for kept in cache_entries(place / "indexes")}
        removed = prune(place / "indexes", [], PruneLimits(size=0), dry=False)
    assert there == {(stage, True) for stage in ("data", "passages", "queries", "index", "search")}
    assert removed == []
    assert outcome(place) == undisturbed[0]
    assert len(prune(place / "indexes", [], PruneLimits(size=0), dry=False)) == 6
    assert cache_entries(place / "indexes") == []
    assert list((place / "indexes" / ".locks").iterdir()) == []


SERVED = """
name: t
data: {source: sample, queries: 30, corpus: 200}
model: {backend: http, name: all-minilm-l6-v2, batch_size: 4, concurrency: 3, shard_rows: 8, changed: ignore}
search: {top_k: 100}
evaluate: {measures: [ndcg@10, mrr@10, recall@100]}
"""


def stored_texts(folder: Path, texts: dict[str, list[str]]) -> set[str]:
    """The texts whose vectors are in whole shards."""
    return {
        text
        for path in whole_files(folder)
        if path.name.startswith("rows-")
        for text in texts[path.parent.parent.name][slice(*map(int, path.stem.split("-")[1:]))]
    }


def test_a_run_that_is_killed_asks_a_server_for_no_text_of_a_whole_shard_again(
    command: Command, tmp_path: Path, embedding_server: Any, local_run: Path
) -> None:
    (tmp_path / "c.yaml").write_text(SERVED, encoding="utf-8")
    (tmp_path / "indexes").mkdir()
    known = list(json.loads((local_run / "vectors.json").read_text(encoding="utf-8")))
    texts = {"passages": known[:200], "queries": known[200:]}
    at_random, kept = random.Random(18), []
    arguments = ("--set", f"model.url={embedding_server.url}")
    for _ in range(10):
        before = stored_texts(tmp_path, texts)
        moment = {"call": "replace", "path": "/passages/", "number": at_random.randint(1, 5)}
        assert command(tmp_path, *arguments, **moment, signal=signal.SIGKILL) == -signal.SIGKILL
        assert before.isdisjoint(embedding_server.answered)
        kept.append(len(before))
        embedding_server.clear()
    before = stored_texts(tmp_path, texts)
    assert kept == sorted(kept)
    assert 40 <= len(before) < 200  # whole shards of 8
    assert command(tmp_path, *arguments) == 0, command.stderr
    assert embedding_server.answered == dict.fromkeys(set(known) - before, 1)
    metrics = json.loads((tmp_path / "results/t/metrics.json").read_text(encoding="utf-8"))
    local = json.loads((local_run / "results/local/metrics.json").read_text(encoding="utf-8"))
    assert metrics["metrics"] == pytest.approx(local["metrics"], abs=1e-12)

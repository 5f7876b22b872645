"""What a run that is killed, interrupted or refused by the disk leaves, and what the next one makes of it.

Every run here is the real command in a process of its own. Each test begins where the model is converted and
nothing is encoded, ends a run at some moment, looks at what is left, and runs again to the end.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from workplaces import give_rows, read_json

from pipeline.storage import hash_file
from pipeline.studies.cache import cache_entries, prune, verify

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
RESULTS = {"checksums.json", "manifest.json", "metrics.json", "per_query.csv", "run.trec"}


class Trial(NamedTuple):
    """A folder to run in, and the outcome of a run that nothing disturbed."""

    folder: Path
    fork: Any
    undisturbed: Any = None

    def run(self, *arguments: str, models: str = "", **at: Any) -> Any:
        """`benchmarco run c.yaml ARGUMENTS`, and what happens to it at a call (`tests/fork_server.py`)."""
        environment = {**os.environ, "BENCHMARCO_CACHE": models or os.environ["BENCHMARCO_CACHE"]}
        command = ("pipeline", "run", "c.yaml", *arguments)
        ended = self.fork(*command, folder=self.folder, environment=environment, at=at)
        # Lines that every run has; and tests in another process may hold the model, which all share.
        held = "benchmarco: waiting: another process is making openvino "
        begins = ("benchmarco: model ", "benchmarco: t: computes ", held)
        lines = [line for line in ended.stderr.splitlines() if not line.startswith(begins)]
        ended.stderr = "\n".join(lines)
        return ended

    def kill(self, *arguments: str, **at: Any) -> bool:
        """A run that is killed at a call; whether it came to that call."""
        ended = self.run(*arguments, **at, signal=signal.SIGKILL)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        self.assert_nothing_lies()
        return bool(ended.returncode)

    def refused(self, *arguments: str, code: int = 1, **at: Any) -> str:
        """The single line of a run that ends by itself."""
        ended = self.run(*arguments, **at)
        assert ended.returncode == code
        (line,) = ended.stderr.splitlines()
        self.assert_nothing_lies()
        return str(line)

    def assert_nothing_lies(self) -> None:
        """What looks finished is whole, in the cache and in the result folder."""
        assert not [row for row in verify(self.folder / "indexes") if row["state"] == "damaged"]
        result = self.folder / "results" / "t"
        if (result / "manifest.json").exists():
            assert outcome(self.folder)["results"] == self.undisturbed["results"]
        if (result / "checksums.json").exists():  # written last: the folder is finished
            assert {path.name for path in result.iterdir()} == RESULTS

    def assert_goes_on(self) -> None:
        """The next run keeps what is whole and ends as a run that nothing disturbed."""
        kept = whole_files(self.folder)
        ended = self.run()
        assert ended.returncode == 0, ended.stderr
        assert "waiting" not in ended.stderr  # whatever the dead run held is free
        assert outcome(self.folder) == self.undisturbed
        assert kept.items() <= whole_files(self.folder).items()


def outcome(folder: Path) -> dict[str, Any]:
    """What a run leaves: checksums of artifacts and results without times and places, and every file.

    Not the locks, nor a list of finished files that a manifest took over.
    """
    paths = [path for part in ("indexes", "results") for path in (folder / part).rglob("*.*")]
    finished = {path.parent for path in paths if path.name == "manifest.json"}
    taken = {path for path in paths if path.name == "finished.jsonl" and path.parent in finished}
    found: dict[str, Any] = {"files": {str(path.relative_to(folder)) for path in paths if path not in taken}}
    manifests = {(kept.stage, kept.key): kept.manifest for kept in cache_entries(folder / "indexes")}
    found["artifacts"] = {name: manifest and manifest["files"] for name, manifest in manifests.items()}
    result = folder / "results" / "t"
    if result.exists():
        metrics = read_json(result / "metrics.json")["metrics"]
        hashes = {name: hash_file(result / name) for name in ("per_query.csv", "run.trec")}
        found["results"] = {**metrics, **hashes}
    return found


def whole_files(folder: Path) -> dict[Path, int]:
    """The inode of every whole shard of vectors, and of every file of a finished artifact."""
    found = {}
    for path in (folder / "indexes").rglob("finished.jsonl"):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # cut off
                name, entry = json.loads(line)
                whole = path.with_name(name)
                if name.startswith("rows-") and whole.is_file() and hash_file(whole) == entry["sha256"]:
                    found[whole] = whole.stat().st_ino
    for kept in cache_entries(folder / "indexes"):
        for name in kept.manifest["files"] if kept.manifest else ():
            found[kept.folder / name] = (kept.folder / name).stat().st_ino
    return found


Begin = Callable[..., Trial]


@pytest.fixture(scope="module")
def undisturbed(finished: Path, fork: Any, tmp_path_factory: Any) -> Callable[[str], Any]:
    """For each kind where a run begins, and the outcome of one that nothing disturbed.

    It begins with data, config and the converted model. Short texts are fast. With the kind `sparse` or
    `multivector` the model is rows from files; with `chunks` a few passages are cut.
    """

    @cache
    def make(kind: str) -> tuple[Path, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("undisturbed") / "begins"
        shutil.copytree(finished, folder, ignore=shutil.ignore_patterns(*STAGES[1:], ".locks", "results"))
        shutil.rmtree(folder / "indexes" / "data")
        config = (folder / "c.yaml").read_text(encoding="utf-8")
        if kind == "chunks":
            cut = "source: beir, queries: 5, corpus: 60, chunks: {tokens: 12, overlap: 0}"
            config = config.replace("source: beir", cut)
        short = "backend: openvino, passage_max_length: 16, query_max_length: 16"
        (folder / "c.yaml").write_text(config.replace("backend: openvino", short), encoding="utf-8")
        if kind in ("sparse", "multivector"):
            give_rows(folder, kind)
        ended = Path(shutil.copytree(folder, folder.with_name("ended")))
        assert Trial(ended, fork).run().returncode == 0
        return folder, outcome(ended)

    return make


@pytest.fixture
def begin(undisturbed: Callable[[str], Any], fork: Any, tmp_path: Path) -> Begin:
    """Begins a trial of a kind."""

    def make(kind: str) -> Trial:
        folder, expected = undisturbed(kind)
        return Trial(Path(shutil.copytree(folder, tmp_path / "w", copy_function=os.link)), fork, expected)

    return make


@pytest.fixture
def trial(begin: Begin) -> Trial:
    """A trial with dense vectors."""
    return begin("dense")


@pytest.mark.parametrize(
    ("kind", "call", "first", "step"),
    [
        ("dense", "open", 2, 3),  # with half a file written
        ("dense", "fsync", 1, 1),
        ("sparse", "replace", 2, 2),  # before a rename
        ("multivector", "open", 2, 3),
        ("chunks", "replace", 3, 2),
    ],
)
def test_killed_again_and_again_it_ends_as_if_nothing_had_happened(
    begin: Begin, kind: str, call: str, first: int, step: int
) -> None:
    """Each run goes on from where the one before was killed, at a later one of its calls."""
    trial, kept, number = begin(kind), dict[Path, int](), first
    while trial.kill(call=call, number=number):
        whole = whole_files(trial.folder)
        assert kept.items() <= whole.items()
        kept, number = whole, number + step
    assert number >= first + 3 * step
    trial.assert_goes_on()


def test_killed_while_it_makes_everything_afresh(trial: Trial) -> None:
    assert trial.run().returncode == 0
    for call, number in (("replace", 5), ("open", 9), ("replace", 14)):
        assert trial.kill("--fresh", call=call, number=number)
    late = {"call": "replace", "path": "/evaluate/", "number": 1}
    assert trial.kill("--fresh", **late)  # a run takes what is finished without data
    trial.assert_goes_on()


def test_killed_while_the_model_is_converted(trial: Trial) -> None:
    kill = {"call": "Popen", "number": 1, "signal": signal.SIGKILL}
    assert trial.run(models="models", **kill).returncode == -signal.SIGKILL
    (draft,) = (trial.folder / "models" / "openvino").iterdir()
    assert not (draft / "manifest.json").exists()
    assert trial.run(models="models").returncode == 0
    assert (draft / "manifest.json").exists()
    assert outcome(trial.folder) == trial.undisturbed


@pytest.mark.parametrize(("kind", "arguments"), [("dense", ()), ("multivector", ("--fresh",))])
def test_ctrl_c_says_in_one_line_how_to_go_on(begin: Begin, kind: str, arguments: tuple[str, ...]) -> None:
    trial = begin(kind)
    at = {"call": "replace", "path": "indexes/passages/", "number": 2, "signal": signal.SIGINT}
    without = " without --fresh" if arguments else ""
    assert trial.refused(*arguments, code=130, **at) == (
        f"benchmarco: interrupted; run the same command again{without} to go on where it stopped"
    )
    assert not list((trial.folder / "indexes").rglob("*.tmp"))
    trial.assert_goes_on()


FULL = "No space left on device; make room and run the same command again"


@pytest.mark.parametrize(("kind", "call", "number"), [("dense", "fsync", 4), ("sparse", "open", 14)])
def test_a_full_disk_is_said_plainly_and_loses_nothing(
    begin: Begin, kind: str, call: str, number: int
) -> None:
    trial = begin(kind)
    assert FULL in trial.refused(call=call, number=number, errno=errno.ENOSPC)
    assert not list((trial.folder / "indexes").rglob("*.tmp"))
    trial.assert_goes_on()


@pytest.fixture
def mounted() -> Iterator[Callable[..., None]]:
    """Mounts folders, and takes them away again."""
    folders: set[Path] = set()

    def mount(folder: Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        command = ["mount", *arguments, str(folder)]
        if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("this user may not mount")
        folders.add(folder)

    yield mount
    for folder in folders:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_really_full_while_faiss_writes(trial: Trial, mounted: Callable[..., None]) -> None:
    """It holds back a part until it closes the file."""
    mounted(trial.folder / "indexes/index", "-t", "tmpfs", "-o", "size=128k", "tmpfs")
    line = trial.refused()
    assert "indexes/index" in line
    assert FULL in line
    mounted(trial.folder / "indexes/index", "-o", "remount,size=100m")
    trial.assert_goes_on()


def test_a_read_only_disk_serves_what_it_holds_and_says_what_it_cannot(
    trial: Trial, mounted: Callable[..., None]
) -> None:
    cache, results = trial.folder / "indexes", trial.folder / "results"
    results.mkdir()
    mounted(results, "--bind", "-o", "ro", str(results))
    line = trial.refused(code=2)
    assert "results" in line
    assert "--output DIR" in line
    assert cache_entries(cache) == []  # nothing is computed before
    output = ("--output", "other")
    assert trial.run(*output).returncode == 0
    mounted(cache, "--bind", "-o", "ro", str(cache))
    before = outcome(trial.folder)
    assert trial.run(*output).returncode == 0
    line = trial.refused(*output, "--set", "search.top_k=60")
    assert "indexes/" in line
    assert "Read-only file system; name a folder that can be read and written with --set cache=DIR" in line
    assert trial.run(*output, "--fresh").returncode == 1
    assert outcome(trial.folder) == before


def test_a_folder_that_this_user_may_not_write_is_said_plainly(trial: Trial) -> None:
    line = trial.refused(code=2, call="mkdir", number=1, errno=errno.EACCES)
    assert "result folder results/t: cannot be written: " in line
    assert "takes no new folder (Permission denied)" in line
    assert "--output DIR" in line
    line = trial.refused(call="mkdir", path="indexes/", number=1, errno=errno.EACCES)
    assert "Permission denied; name a folder that can be read and written with --set cache=DIR" in line


@contextlib.contextmanager
def standing_still(trial: Trial, *arguments: str, **at: Any) -> Iterator[None]:
    """A run that is stopped at a moment, goes on after the block, whatever that came to, and ends well."""
    stopped = trial.run(*arguments, call="replace", number=2, **at, signal=signal.SIGSTOP)
    assert isinstance(stopped.returncode, dict), stopped.stderr
    try:
        yield
    finally:
        os.kill(stopped.returncode["stopped"], signal.SIGCONT)
        ended = trial.fork.answer()
    assert ended.returncode == 0, ended.stderr


@contextlib.contextmanager
def second(trial: Trial, *arguments: str) -> Iterator[str]:
    """What another process with the same config says of waiting; it ends well after the block."""
    command = [sys.executable, "-m", "pipeline", "run", "c.yaml", *arguments]
    with subprocess.Popen(
        command, cwd=trial.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        yield next(line for line in process.stderr if "waiting" in line)
        assert process.wait() == 0


def test_of_two_processes_one_computes_and_the_other_waits_and_says_so(trial: Trial) -> None:
    cache = trial.folder / "indexes"
    with (
        contextlib.ExitStack() as other,
        standing_still(trial, "--output", "first", path="indexes/passages/"),
    ):
        busy = {kept.stage: kept.busy() for kept in cache_entries(cache)}
        removed = prune(cache, [], size=0, dry=False)
        said = other.enter_context(second(trial))
    assert (busy, removed) == ({"data": True, "passages": True}, [])  # what a run makes or uses
    assert said.startswith("benchmarco: waiting: another process is making passages ")
    assert outcome(trial.folder) == trial.undisturbed
    first, then = trial.folder / "first/t", trial.folder / "results/t"
    made = []
    for result in (first, then):
        stages = read_json(result / "metrics.json")["stages"]
        made.append({row["stage"] for row in stages if not row["reused"]})
    assert "passages" in made[0]
    assert made[0] | made[1] == set(STAGES)
    assert not made[0] & made[1]
    for name in ("per_query.csv", "run.trec"):
        assert (first / name).read_bytes() == (then / name).read_bytes()
    assert len(prune(cache, [], size=0, dry=False)) == 6
    assert cache_entries(cache) == list((cache / ".locks").iterdir()) == []


def test_of_two_processes_one_writes_the_result_folder_after_the_other(trial: Trial) -> None:
    result = trial.folder / "results/t"
    with contextlib.ExitStack() as other, standing_still(trial, path="results/"):
        assert not (result / "manifest.json").exists()
        said = other.enter_context(second(trial, "--set", "evaluate.measures=[ndcg@5]"))
    assert said == "benchmarco: waiting: another run is writing results/t\n"
    metrics = read_json(result / "metrics.json")["metrics"]
    manifest = read_json(result / "manifest.json")
    assert list(metrics) == manifest["config"]["evaluate"]["measures"] == ["ndcg@5"]


SERVED = """
name: t
data: {source: sample, queries: 30, corpus: 200}
model: {backend: http, name: all-minilm-l6-v2, batch_size: 4, concurrency: 3, shard_rows: 8, changed: ignore}
search: {top_k: 100}
evaluate: {measures: [ndcg@10, mrr@10, recall@100]}
"""


def test_a_run_that_is_killed_asks_a_server_for_no_text_of_a_whole_shard_again(
    fork: Any, tmp_path: Path, embedding_server: Any, local_run: Path
) -> None:
    trial, stored = Trial(tmp_path, fork), set[str]()
    (tmp_path / "c.yaml").write_text(SERVED, encoding="utf-8")
    (tmp_path / "indexes").mkdir()
    known = list(read_json(local_run / "vectors.json"))
    arguments = ("--set", f"model.url={embedding_server.url}")
    for number in (4, 5, 3, 6):
        assert trial.kill(*arguments, call="replace", path="/passages/", number=number)
        assert stored.isdisjoint(embedding_server.answered)
        embedding_server.clear()
        before = stored
        stored = set[str]()
        for path in whole_files(tmp_path):
            if path.parent.parent.name == "passages":
                stored |= set(known[slice(*map(int, path.stem.split("-")[1:]))])
        assert before <= stored
    assert 16 <= len(stored) < 200  # whole shards of 8
    assert trial.run(*arguments).returncode == 0
    assert embedding_server.answered == dict.fromkeys(set(known) - stored, 1)
    metrics = read_json(tmp_path / "results/t/metrics.json")
    local = read_json(local_run / "results/local/metrics.json")
    assert metrics["metrics"] == pytest.approx(local["metrics"], abs=1e-12)

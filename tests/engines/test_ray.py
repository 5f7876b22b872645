"""The Ray engine: the same results as the local one, whoever dies; what it says when it cannot begin."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.api import run_benchmark
from pipeline.config import BACKENDS, Config, EngineConfig
from pipeline.config.files import load_config
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.encoders import Network, resolve
from pipeline.engines import Engine, Part, open_with
from pipeline.engines import cluster as engine_cluster
from pipeline.engines.cluster import share_out
from pipeline.engines.ray import LOSSES
from pipeline.retrievers import pair_scores
from pipeline.run.benchmark import Benchmark
from pipeline.storage.store import Store

BEGINNING = ("benchmarco: model ", "benchmarco: t: computes ")  # what a run says before it begins


def config(folder: Path, *settings: str) -> Config:
    return load_config(folder / "c.yaml", [f"cache={folder}/indexes", f"output={folder}/results", *settings])


def on_ray(folder: Path, cluster: str, *settings: str) -> Config:
    return config(folder, "engine.kind=ray", f"engine.address={cluster}", "engine.workers=2", *settings)


def scores(folder: Path) -> dict[str, dict[str, float]]:
    """Each query's passages and scores, by the run file."""
    found: dict[str, dict[str, float]] = {}
    for line in (folder / "results" / "t" / "run.trec").read_text(encoding="utf-8").splitlines():
        query, _, passage, _, score, _ = line.split()
        found.setdefault(query, {})[passage] = float(score)
    return found


def made(folder: Path, stage: str) -> dict[str, Any]:
    (path,) = (folder / "indexes" / stage).glob("*/manifest.json")
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return manifest


def assert_same_results(folder: Path, reference: Path) -> None:
    """Measures to 0.0002; rankings but for scores within 1e-5 of each other; every row once."""
    metrics, expected = (
        json.loads((place / "results" / "t" / "metrics.json").read_text(encoding="utf-8"))["metrics"]
        for place in (folder, reference)
    )
    assert metrics == pytest.approx(expected, abs=0.0002)
    ours, theirs = scores(folder), scores(reference)
    assert ours.keys() == theirs.keys()
    for query, ranked in theirs.items():
        lowest = min(ranked.values())
        assert len(ours[query]) == len(ranked)
        for passage in ours[query].keys() | ranked.keys():  # at the end of a list two close ones may change
            assert ours[query].get(passage, lowest) == pytest.approx(ranked.get(passage, lowest), abs=1e-5)
    for stage in ("passages", "queries"):
        manifest, expected = made(folder, stage), made(reference, stage)
        assert manifest["facts"] == expected["facts"]
        names = sorted(manifest["files"])
        assert names == sorted(expected["files"])
        place = folder / "indexes" / stage / manifest["key"]
        assert sorted(path.name for path in place.iterdir()) == ["manifest.json", *names]


@pytest.fixture
def emptied(workplace: Path) -> Path:
    """Data, model, its conversion, and nothing made with them."""
    for path in (workplace / "indexes").iterdir():
        if path.name != "openvino":
            subprocess.run(["rm", "-r", str(path)], check=True)
    subprocess.run(["rm", "-r", str(workplace / "results")], check=True)
    return workplace


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "in chunks"])
def test_two_workers_make_what_one_process_makes(
    emptied: Path, finished: Path, tmp_path: Path, cluster: str, cut: bool
) -> None:
    texts, alone, settings = 345, finished, []
    if cut:
        settings = ["data.queries=5", "data.corpus=60", "data.chunks={tokens: 24, overlap: 6}"]
        alone = Path(shutil.copytree(emptied, tmp_path / "alone"))
        run_benchmark(config(alone, *settings))
        texts = made(alone, "chunks")["facts"]["chunks"]
    run_benchmark(on_ray(emptied, cluster, *settings))
    assert_same_results(emptied, alone)
    encoded = made(emptied, "passages")["made"]
    assert texts > 100
    assert encoded["encoding"]["texts"] == texts
    assert (encoded["engine"]["kind"], encoded["engine"]["workers"]) == ("ray", 2)
    assert sum(encoded["engine"]["parts"].values()) == -(-texts // 100)


def test_workers_make_the_token_vectors_that_one_process_makes(
    emptied: Path, tmp_path: Path, cluster: str, m3_folder: Path
) -> None:
    """Rows of any length, as word weights are too, travel as those of one length do."""
    (emptied / "bge-m3").symlink_to(m3_folder)
    alone = tmp_path / "alone"
    shutil.copytree(emptied, alone, symlinks=True)
    model = "model={backend: flag, name: ./bge-m3, output: multivector, shard_rows: 40}"
    settings = (model, "data.corpus=120", "data.queries=20", "search.top_k=20", "evaluate.measures=[mrr@10]")
    run_benchmark(config(alone, *settings))
    run_benchmark(on_ray(emptied, cluster, *settings))
    assert_same_results(emptied, alone)
    engine = made(emptied, "passages")["made"]["engine"]
    assert (engine["kind"], sum(engine["parts"].values())) == ("ray", 3)


def workers() -> list[int]:
    """The workers of the Ray engine on the cluster that these tests started, and on no other."""
    parents, named = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if (path / "cmdline").read_bytes().startswith(b"ray::Worker"):
                named.append(int(path.name))

    def ours(process: int) -> bool:
        parent = parents.get(process, 0)
        return parent == os.getpid() or (parent > 1 and ours(parent))

    return [process for process in named if ours(process)]


def test_workers_killed_in_the_middle_cost_their_shards_only(
    emptied: Path, finished: Path, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    killed = []

    class Killing:
        """A bar that kills every worker when the first shard is done."""

        def update(self, n: int = 1) -> None:
            if not killed:
                killed.extend(workers())
                for worker in killed:
                    os.kill(worker, signal.SIGKILL)

    def progress(label: str, total: int | None, unit: str) -> Any:
        watched = label == "encode passages"
        return contextlib.nullcontext(Killing()) if watched else silent(label, total, unit)

    run_benchmark(on_ray(emptied, cluster), progress=progress)
    assert killed
    assert "a worker died" in caplog.text
    assert_same_results(emptied, finished)
    encoded = made(emptied, "passages")["made"]
    assert encoded["encoding"]["texts"] == 345
    assert sum(encoded["engine"]["parts"].values()) == 4


DRIVER = """
import os, sys
from pipeline import cli
replace, left, ending = os.replace, int(sys.argv.pop(1)), int(sys.argv.pop(1))
def dying(source, target):
    global left
    left -= "indexes/passages/" in str(target)
    if not left:
        os.kill(os.getpid(), ending)
    replace(source, target)
os.replace = dying
cli.main()
"""


def test_the_driver_killed_its_whole_shards_are_kept_whichever_engine_goes_on(
    emptied: Path, finished: Path, cluster: str
) -> None:
    settings = ["engine.kind=ray", f"engine.address={cluster}", "engine.workers=2"]
    sets = [part for setting in settings for part in ("--set", setting)]
    renames = "6"  # two for each shard
    command = [sys.executable, "-c", DRIVER, renames, str(int(signal.SIGKILL)), "run", "c.yaml", *sets]
    assert subprocess.run(command, cwd=emptied, check=False).returncode == -signal.SIGKILL
    (draft,) = (emptied / "indexes" / "passages").iterdir()
    whole = {path: path.stat().st_ino for path in draft.glob("rows-*.npy")}
    assert len(whole) == 2
    run_benchmark(config(emptied))
    assert_same_results(emptied, finished)
    assert {path: path.stat().st_ino for path in whole} == whole
    encoded = made(emptied, "passages")["made"]
    assert encoded["engine"] == {"kind": "local", "workers": 1, "parts": {"local": 2}}
    assert encoded["encoding"]["texts"] < 345


def test_workers_find_what_an_index_finds(workplace: Path, cluster: str) -> None:
    """The score of a pair depends on its two vectors alone, so the run is the same to the byte."""
    before = (workplace / "results" / "t" / "run.trec").read_bytes()
    for stage in ("index", "search", "evaluate"):
        subprocess.run(["rm", "-r", str(workplace / "indexes" / stage)], check=True)
    run_benchmark(on_ray(workplace, cluster))
    assert (workplace / "results" / "t" / "run.trec").read_bytes() == before
    assert sum(made(workplace, "search")["made"]["engine"]["parts"].values()) == 8
    assert not (workplace / "indexes" / "index").exists()


def scores_of_run(workplace: Path) -> dict[tuple[str, str], float]:
    """By ids of query and passage the score, of the result `t`."""
    lines = (workplace / "results" / "t" / "run.trec").read_text(encoding="utf-8").splitlines()
    return {(query, passage): float(score) for query, _, passage, _, score, _ in map(str.split, lines)}


@pytest.mark.usefixtures("quick_conversion")
def test_workers_score_the_pairs_that_one_process_scores(
    workplace: Path, cluster: str, reranker: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_scores, "SHARD_PAIRS", 200)
    rerank = f"rerank={{backend: openvino, name: {reranker('bert')}, depth: 4}}"
    run_benchmark(config(workplace, rerank))
    alone = scores_of_run(workplace)
    for stage in ("scores", "rerank", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    run_benchmark(on_ray(workplace, cluster, rerank))
    assert scores_of_run(workplace) == pytest.approx(alone, abs=1e-4)
    reranked = made(workplace, "rerank")["made"]
    assert reranked["pairs"] == {"found": 0, "scored": 114 * 4}
    assert (reranked["engine"]["kind"], reranked["engine"]["workers"]) == ("ray", 2)
    assert sum(reranked["engine"]["parts"].values()) == 3


def test_workers_elsewhere_are_sent_the_model_that_was_calibrated_here(
    emptied: Path,
    tmp_path: Path,
    cluster: str,
    kept_by_nodes: Path,
    own_models: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_benchmark(config(emptied, "model.precision=int8"))
    alone = Path(shutil.copytree(emptied, tmp_path / "alone"))
    for stage in ("passages", "queries", "index", "search", "evaluate"):
        shutil.rmtree(emptied / "indexes" / stage)
    monkeypatch.setattr(engine_cluster, "node_id", lambda: "no worker's")
    run_benchmark(on_ray(emptied, cluster, "model.precision=int8"))
    assert_same_results(emptied, alone)
    assert not (kept_by_nodes / "openvino").exists()  # no worker calibrated one of its own
    sent = [json.loads(path.read_text())["recipe"] for path in kept_by_nodes.glob("files/*/manifest.json")]
    prepared = [json.loads(path.read_text()) for path in own_models.glob("openvino/*/manifest.json")]
    (calibrated,) = (manifest for manifest in prepared if "corpus" in manifest["recipe"])
    assert {"files": calibrated["files"]} in [{"files": recipe["files"]} for recipe in sent]


def test_a_run_that_finds_everything_needs_no_cluster(workplace: Path) -> None:
    metrics = run_benchmark(on_ray(workplace, "127.0.0.1:1")).metrics
    assert all(stage["reused"] for stage in metrics["stages"])


@dataclass(frozen=True)
class Meeting:
    """A job of which two parts must be at work at the same time: each waits until the other comes."""

    fifo: Path

    def __call__(self, inputs: range, encoder: Any, bar: Any) -> tuple[Any, int]:
        with open(self.fifo, "rb" if inputs.start else "wb"):
            bar.update(len(inputs))
            return np.array(inputs), os.getpid()


@dataclass(frozen=True)
class Deadly:
    """A job that kills its worker each time at one part, and at another the first time."""

    once: Path
    always: int = -1

    def __call__(self, inputs: range, encoder: Any, bar: Any) -> int:
        if inputs.start == self.always:
            os.kill(os.getpid(), signal.SIGKILL)
        if inputs.start == 1:
            with contextlib.suppress(FileExistsError):
                self.once.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return inputs.start


@dataclass(frozen=True)
class Refusing:
    """A job that meets what a user has to mend, or a disk that is full."""

    error: str

    def __call__(self, inputs: range, encoder: Any, bar: Any) -> None:
        if self.error == "input":
            raise InputError("found", allowed="allowed", fix="fix")
        raise OSError(28, "No space left on device", "/there")


@dataclass(frozen=True)
class Sizes:
    """A job that tells how its inputs arrived."""

    shared: Any

    def __call__(self, inputs: Any, encoder: Any, bar: Any) -> Any:
        array, ids = inputs
        return type(array).__name__, array.sum(), self.shared.sum(), ids.to_pylist(), ids.nbytes


def part(start: int, stop: int) -> Part:
    """A part whose inputs are its rows' numbers."""
    return Part(start, stop, lambda: range(start, stop))


@pytest.fixture
def engine(cluster: str, tmp_path: Path) -> Iterator[Engine]:
    """Two workers, whose model nothing asks for."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    opened = open_with(
        EngineConfig(kind="ray", address=cluster, workers=2),
        None,
        "cpu",
        Store(tmp_path),
    )
    yield opened
    opened.close()


class Counting:
    total = 0

    def update(self, n: int = 1) -> None:
        self.total += n


def test_two_parts_are_done_at_once_on_two_nodes(engine: Engine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    bar = Counting()
    found = list(engine.each(Meeting(tmp_path / "fifo"), [part(0, 3), part(3, 5)], bar))
    assert bar.total == 5
    assert len({done.node for done in found}) == len({done.outputs[1] for done in found}) == 2
    for done in found:
        assert done.outputs[0].tolist() == list(range(done.part.start, done.part.stop))


def test_what_is_mapped_or_sliced_here_travels_as_it_is_and_alone(engine: Engine, tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint8).tofile(tmp_path / "array")
    mapped = np.memmap(tmp_path / "array", np.uint8, "r")
    ids = pa.chunked_array([pa.array([f"document {number}" for number in range(9000)])]).slice(8000, 2)
    one = Part(0, 1, lambda: (mapped[10:20], ids))
    (done,) = engine.each(Sizes(mapped), [one], Counting())
    kind, total, shared, arrived, size = done.outputs
    assert (kind, total, shared) == ("ndarray", sum(range(10, 20)), mapped.sum())
    assert arrived == ["document 8000", "document 8001"]
    assert size < 100


def test_no_more_inputs_are_read_than_workers_need_and_one(engine: Engine, tmp_path: Path) -> None:
    read, most = [], 0

    def counted(number: int) -> Part:
        return Part(number, number + 1, lambda: read.append(number) or range(number, number + 1))

    for finished, _ in enumerate(
        engine.each(Deadly(tmp_path / "once"), [counted(n) for n in range(9)], Counting())
    ):
        most = max(most, len(read) - finished)
    assert len(read) == 9  # those of the part that lost its worker are still there
    assert most <= engine.workers + 1


def test_a_part_that_loses_its_worker_is_done_once_by_another(engine: Engine, tmp_path: Path) -> None:
    parts = [part(n, n + 1) for n in range(7)]
    found = list(engine.each(Deadly(tmp_path / "once"), parts, Counting()))
    assert (tmp_path / "once").exists()
    assert Counter(done.outputs for done in found) == Counter(range(7))


def test_a_part_that_always_kills_its_worker_ends_the_run(engine: Engine, tmp_path: Path) -> None:
    job = Deadly(tmp_path / "once", always=4)
    with pytest.raises(ChildProcessError, match=f"a worker died at rows 4 to 9, {LOSSES} times"):
        list(engine.each(job, [part(4, 9)], Counting()))


def test_what_a_worker_refuses_is_said_as_if_it_had_been_here(engine: Engine) -> None:
    with pytest.raises(InputError) as refused:
        list(engine.each(Refusing("input"), [part(0, 1)], Counting()))
    assert str(refused.value) == "found. Allowed: allowed. Fix."
    with pytest.raises(OSError, match="No space left") as full:
        list(engine.each(Refusing("disk"), [part(0, 1)], Counting()))
    assert (full.value.errno, full.value.filename) == (28, "/there")


def test_what_a_worker_refuses_when_it_joins_is_no_death(
    cluster: str, bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been sent the model's own files by then, as a worker on another machine is."""
    monkeypatch.setattr(engine_cluster, "node_id", lambda: "no worker's")
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    settings = BACKENDS.make(name=str(folder), backend="flag", truncate_dim=4096)
    config = EngineConfig(kind="ray", address=cluster, workers=1)
    opened = open_with(config, Network(settings, resolve(settings)).ready, "cpu", Store(tmp_path))
    try:
        with pytest.raises(InputError, match=r"model\.truncate_dim: 4096, but .* of 128 dimensions"):
            opened.load(1)
    finally:
        opened.close()


LOST = """
import os, signal, sys, time
from pathlib import Path
import psutil
from pipeline import cli
from pipeline.engines.ray import RayEngine
moment, wait = sys.argv.pop(1), RayEngine._wait
def waiting(engine):
    at_work = any(task for _, task in engine._calls.values())
    if (moment == "load" or at_work) and not Path("pids").exists():
        time.sleep(1)
        started = psutil.Process().children(recursive=True)
        Path("pids").write_text(" ".join(str(process.pid) for process in started))
        (raylet,) = engine._ray._private.worker.global_worker.node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)
        time.sleep(1)
    return wait(engine)
RayEngine._wait = waiting
cli.main()
"""


@pytest.mark.parametrize("moment", ["load", "each"])
def test_the_loss_of_this_machine_s_node_ends_the_run(emptied: Path, moment: str) -> None:
    sets = ["--set", "engine.kind=ray", "--set", "engine.workers=2"]
    command = [sys.executable, "-c", LOST, moment, "run", "c.yaml", *sets]
    done = subprocess.run(command, cwd=emptied, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 1
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith(BEGINNING)]
    assert said[0] == "benchmarco: starting Ray here"
    assert said[1:] == [line for line in said if "this machine's Ray node is lost" in line]
    assert len(said) == 2
    started = {int(number) for number in (emptied / "pids").read_text().split()}
    until = time.monotonic() + 20  # workers look every second whether their raylet is there
    while left := {number for number in started if alive(number)}:
        assert time.monotonic() < until, left
        time.sleep(0.2)


def alive(number: int) -> bool:
    """Whether a process is there, and no mere entry of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_an_engine_that_cannot_be_made_leaves_the_cluster(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def interrupted(*given: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_cluster, "share_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_with(
            EngineConfig(kind="ray", address=cluster),
            None,
            "cpu",
            Store(tmp_path),
        )
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("nodes", "workers", "gpu", "expected"),
    [
        ([{"CPU": 2}], None, False, (1, 2)),
        ([{"CPU": 2}], 2, False, (2, 1)),
        ([{"CPU": 8}, {"CPU": 8}], None, False, (2, 8)),
        ([{"CPU": 8}, {"CPU": 8}], 3, False, (3, 4)),
        ([{"CPU": 8}, {"CPU": 3}], 3, False, (3, 3)),
        ([{"CPU": 8}, {"memory": 1e9}], None, False, (1, 8)),
        ([{"CPU": 16, "GPU": 4}, {"CPU": 12, "GPU": 2}, {"CPU": 64}], None, True, (6, 4)),
        ([{"CPU": 2, "GPU": 8}], 3, True, (3, 0)),
    ],
)
def test_a_cluster_is_shared_out_evenly(
    nodes: list[dict[str, float]], workers: int | None, gpu: bool, expected: tuple[int, int]
) -> None:
    assert share_out(nodes, workers, gpu) == expected


@pytest.mark.parametrize(
    ("nodes", "workers", "gpu", "message"),
    [
        ([{"CPU": 8, "GPU": 1.0}], 2, True, "engine.workers: 2, but the cluster has 1 GPU. Allowed: 1 to 1"),
        (
            [{"CPU": 8}],
            2,
            True,
            "engine.workers: 2, but the cluster has 0 GPUs. Allowed: a cluster with a GPU",
        ),
        ([{"CPU": 8}], None, True, "model.device: cuda, but the cluster has 0 GPUs."),
        (
            [{"CPU": 2}, {"CPU": 1}],
            4,
            False,
            "engine.workers: 4, but the cluster has 3 CPUs. Allowed: 1 to 3",
        ),
    ],
)
def test_a_cluster_that_is_too_small_is_said_with_both_numbers(
    nodes: list[dict[str, float]], workers: int | None, gpu: bool, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        share_out(nodes, workers, gpu)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["engine.workers=3"], "engine.workers: 3, but the cluster has 2 CPUs"),
        (["model.backend=flag", "model.device=cuda"], "engine.workers: 2, but the cluster has 0 GPUs"),
        (["model.backend=flag", "model.device=cuda:1"], "model.device: cuda:1 with engine.kind: ray"),
        (["engine.address=127.0.0.1:1"], "engine.address: no Ray cluster at 127.0.0.1:1: .*refused"),
    ],
)
def test_what_ray_cannot_give_is_said_before_anything_is_made(
    emptied: Path, cluster: str, settings: list[str], message: str
) -> None:
    before = sorted(emptied.rglob("*"))
    with pytest.raises(InputError, match=message):
        run_benchmark(on_ray(emptied, cluster, *settings))
    assert sorted(emptied.rglob("*")) == before


def test_without_ray_the_extra_and_the_command_are_named(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    with pytest.raises(InputError, match=r"ray, which is not installed\. Run scripts/setup ray"):
        Benchmark(config(finished, "engine.kind=ray"), Store(finished / "indexes")).check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["engine.address=10.0.0.1:6379"], "engine.address is for kind 'ray'"),
        (["engine.workers=2"], "engine.workers is for kind 'ray'"),
        (["engine.store=s3://bucket/folder"], "engine.store. no longer exists"),
        (["engine.kind=ray", "engine.address=ray://head:10001"], "null, auto or HOST:PORT"),
        (["engine.kind=ray", "engine.workers=0"], "greater than or equal to 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(finished: Path, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(finished, *settings)

"""The Ray engine: the same results as the local one, whoever dies; what it says when it cannot begin."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

from pipeline.api import run_benchmark
from pipeline.config import BACKENDS, Config, EngineConfig
from pipeline.config.files import load_config
from pipeline.core.errors import InputError
from pipeline.core.progress import silent
from pipeline.encoders import Precomputed
from pipeline.engines import Engine, open_engine
from pipeline.engines import cluster as engine_cluster
from pipeline.engines.cluster import share_out
from pipeline.engines.exchange import Exchange
from pipeline.engines.ray import LOSSES
from pipeline.engines.work import save
from pipeline.runner import Benchmark
from pipeline.storage.artifacts import entry_of
from pipeline.storage.hashing import hash_file
from pipeline.storage.store import Store


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


def test_two_workers_make_what_one_process_makes(emptied: Path, finished: Path, cluster: str) -> None:
    run_benchmark(on_ray(emptied, cluster))
    assert_same_results(emptied, finished)
    encoded = made(emptied, "passages")["made"]
    assert encoded["encoding"]["texts"] == 345
    assert (encoded["engine"]["kind"], encoded["engine"]["workers"]) == ("ray", 2)
    assert sum(encoded["engine"]["parts"].values()) == 4


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


@pytest.mark.parametrize("here", [True, False], ids=["started here", "a cluster"])
def test_a_driver_that_is_asked_to_end_does_so_quietly(emptied: Path, cluster: str, here: bool) -> None:
    sets = ["--set", "engine.kind=ray", "--set", f"engine.address={'null' if here else cluster}"]
    command = [sys.executable, "-c", DRIVER, "2", str(int(signal.SIGTERM)), "run", "c.yaml", *sets]
    done = subprocess.run(command, cwd=emptied, capture_output=True, text=True, check=False)
    assert done.returncode in (1, signal.SIGTERM)  # as Ray has it
    assert done.stderr == ("benchmarco: starting Ray here\n" if here else "")
    assert not list((emptied / "indexes" / "passages").glob("*/manifest.json"))


def test_what_the_local_engine_left_is_not_made_again(workplace: Path, cluster: str) -> None:
    (shard,) = (workplace / "indexes" / "passages").glob("*/rows-0000000100-*.npy")
    shard.unlink()
    before = {path: path.stat().st_ino for path in shard.parent.glob("rows-*.npy")}
    for stage in ("index", "search"):
        subprocess.run(["rm", "-r", str(workplace / "indexes" / stage)], check=True)
    metrics = run_benchmark(on_ray(workplace, cluster)).metrics
    reused = {stage["stage"] for stage in metrics["stages"] if stage["reused"]}
    assert {"data", "queries"} <= reused
    assert len(before) == 3
    assert {path: path.stat().st_ino for path in before} == before
    assert made(workplace, "passages")["made"]["encoding"]["texts"] == 100


def test_workers_find_what_an_index_finds(workplace: Path, cluster: str) -> None:
    """The score of a pair depends on its two vectors alone, so the run is the same to the byte."""
    before = (workplace / "results" / "t" / "run.trec").read_bytes()
    for stage in ("index", "search", "evaluate"):
        subprocess.run(["rm", "-r", str(workplace / "indexes" / stage)], check=True)
    run_benchmark(on_ray(workplace, cluster))
    assert (workplace / "results" / "t" / "run.trec").read_bytes() == before
    assert sum(made(workplace, "search")["made"]["engine"]["parts"].values()) == 8
    assert not (workplace / "indexes" / "index").exists()


def test_workers_that_do_not_see_the_cache_make_the_same_through_a_store(
    emptied: Path,
    finished: Path,
    cluster: str,
    kept_by_nodes: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    take, damaged = Exchange.take, []

    def taken(self: Exchange, path: Path, entry: dict[str, Any]) -> bool:
        if not damaged:
            damaged.extend((emptied / "store" / "runs").rglob(path.name))
            damaged[0].write_bytes(damaged[0].read_bytes()[:-1])
        return take(self, path, entry)

    monkeypatch.setattr(Exchange, "take", taken)
    run_benchmark(on_ray(emptied, cluster, f"engine.store=file://{emptied}/store"))
    assert_same_results(emptied, finished)
    assert "a result was damaged on its way at rows" in caplog.text
    assert sum(made(emptied, "search")["made"]["engine"]["parts"].values()) == 8
    assert len(list((kept_by_nodes / "openvino").glob("*/manifest.json"))) == 1  # converted by a worker
    assert list((emptied / "store" / "runs").iterdir()) == []
    fetched = {hash_file(path) for path in kept_by_nodes.glob("files/*/content")}
    assert fetched >= {path.name for path in (emptied / "store" / "files").iterdir()}


def test_the_shipped_config_asks_for_two_workers(root: Path) -> None:
    engine = load_config(root / "configs" / "dl19-ray.yaml").engine
    assert (engine.kind, engine.address, engine.workers) == ("ray", None, 2)


def test_a_run_that_finds_everything_needs_no_cluster(workplace: Path) -> None:
    metrics = run_benchmark(on_ray(workplace, "127.0.0.1:1")).metrics
    assert all(stage["reused"] for stage in metrics["stages"])


@dataclass(frozen=True)
class Meeting:
    """A job of which two parts must be at work at the same time: each waits until the other comes."""

    fifo: Path

    def do(self, encoder: Any, part: tuple[int, int], path: Path, bar: Any) -> int:
        with open(self.fifo, "rb" if part[0] else "wb"):
            bar.update(part[1] - part[0])
            save(path, np.arange(*part))
            return os.getpid()


@dataclass(frozen=True)
class Deadly:
    """A job that kills its worker each time at one part, and once at another when the result is there."""

    once: Path
    always: int = -1

    def do(self, encoder: Any, part: tuple[int, int], path: Path, bar: Any) -> int:
        if part[0] == self.always:
            os.kill(os.getpid(), signal.SIGKILL)
        if part[0] == 1:
            with contextlib.suppress(FileExistsError):
                self.once.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        save(path, np.arange(*part))
        return part[0]


@dataclass(frozen=True)
class Refusing:
    """A job that meets what a user has to mend, or a disk that is full."""

    error: str

    def do(self, encoder: Any, part: tuple[int, int], path: Path, bar: Any) -> int:
        if self.error == "input":
            raise InputError("found", allowed="allowed", fix="fix")
        raise OSError(28, "No space left on device", "/there")


@pytest.fixture
def engine(cluster: str, tmp_path: Path) -> Iterator[Engine]:
    """Two workers, whose model nothing asks for."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    opened = open_engine(
        EngineConfig(kind="ray", address=cluster, workers=2),
        BACKENDS.make(name="x"),
        Precomputed({}),
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
    pieces = list(engine.each(Meeting(tmp_path / "fifo"), [(0, 3), (3, 5)], tmp_path, bar))
    assert bar.total == 5
    assert len({piece.node for piece in pieces}) == len({piece.facts for piece in pieces}) == 2
    for piece in pieces:
        assert np.load(piece.path).tolist() == list(range(*piece.part))
        assert piece.entry == entry_of(piece.path)


def test_a_part_that_loses_its_worker_is_done_once_by_another(engine: Engine, tmp_path: Path) -> None:
    parts = [(n, n + 1) for n in range(7)]
    pieces = list(engine.each(Deadly(tmp_path / "once"), parts, tmp_path, Counting()))
    assert (tmp_path / "once").exists()
    assert Counter(piece.facts for piece in pieces) == Counter(range(7))


def test_a_part_that_always_kills_its_worker_ends_the_run(engine: Engine, tmp_path: Path) -> None:
    job = Deadly(tmp_path / "once", always=4)
    with pytest.raises(ChildProcessError, match=f"a worker died at rows 4 to 9, {LOSSES} times"):
        list(engine.each(job, [(4, 9)], tmp_path, Counting()))


def test_what_a_worker_refuses_is_said_as_if_it_had_been_here(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        list(engine.each(Refusing("input"), [(0, 1)], tmp_path, Counting()))
    assert str(refused.value) == "found. Allowed: allowed. Fix."
    with pytest.raises(OSError, match="No space left") as full:
        list(engine.each(Refusing("disk"), [(0, 1)], tmp_path, Counting()))
    assert (full.value.errno, full.value.filename) == (28, "/there")
    with pytest.raises(InputError, match=r"cache: .*gone is not there on node .*shared file system"):
        list(engine.each(Refusing("input"), [(0, 1)], tmp_path / "gone", Counting()))


class OnlyHere(LocalFileSystem):
    """A kind of place that this process knows, and the workers do not."""

    protocol = "only-here"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("only-here://")))


def test_what_a_worker_refuses_when_it_joins_is_no_death(cluster: str, tmp_path: Path) -> None:
    fsspec.register_implementation("only-here", OnlyHere, clobber=True)
    config = EngineConfig(kind="ray", address=cluster, workers=1, store=f"only-here://{tmp_path}/store")
    opened = open_engine(config, BACKENDS.make(name="x"), Precomputed({}), Store(tmp_path))
    try:
        with pytest.raises(InputError, match=r"engine\.store: only-here://.*Protocol not known: only-here"):
            list(opened.each(Refusing("input"), [(0, 1)], tmp_path, Counting()))
    finally:
        opened.close()


def test_an_engine_that_cannot_be_made_leaves_the_cluster(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def interrupted(*given: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_cluster, "share_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_engine(
            EngineConfig(kind="ray", address=cluster),
            BACKENDS.make(name="x"),
            Precomputed({}),
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
        (["engine.store=file:///proc/store"], "engine.store: file:///proc/store: "),
        (["engine.store=nope://x"], "engine.store: nope://x: Protocol not known: nope"),
        (
            ["engine.store=file:///tmp", "model.precision=int8"],
            "int8 with engine.store: each node would calibrate a model of its own",
        ),
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
    with pytest.raises(InputError, match=r"scripts/setup ray, or pip install 'benchmarco\[ray\]'"):
        Benchmark(config(finished, "engine.kind=ray"), Store(finished / "indexes")).check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["engine.address=10.0.0.1:6379"], "engine.address is for kind 'ray'"),
        (["engine.workers=2"], "engine.workers is for kind 'ray'"),
        (["engine.store=s3://bucket/folder"], "engine.store is for kind 'ray'"),
        (["engine.kind=ray", "engine.store=/shared"], "'engine.store' is '/shared'.* a URL such as s3://"),
        (["engine.kind=ray", "engine.address=ray://head:10001"], "null, auto or HOST:PORT"),
        (["engine.kind=ray", "engine.workers=0"], "greater than or equal to 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(finished: Path, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(finished, *settings)

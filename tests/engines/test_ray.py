"""The Ray engine: the same results as the local one, whoever dies; what it says when it cannot begin."""

import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from forked import Fork
from inside import be_no_node, resize
from workplaces import config, hits, read_json, run

from pipeline import InputError, run_benchmark
from pipeline.config import BACKENDS, Config, EngineConfig
from pipeline.core import silent
from pipeline.encoders import ModelSource, Opener, resolve
from pipeline.engines import Engine, EngineFactory, Part, PartJob, share_out
from pipeline.run import Benchmark, Session
from pipeline.storage import Store

BEGINNING = ("benchmarco: model ", "benchmarco: t: computes ")  # what a run says before it begins


def on_ray(folder: Path, cluster: str, *settings: str, workers: int = 2) -> Config:
    engine = ("engine.kind=ray", f"engine.address={cluster}", f"engine.workers={workers}")
    return config(folder, *engine, *settings)


def scores(folder: Path) -> dict[tuple[str, str], float]:
    """By ids of query and passage the score, of the result `t`."""
    return {(query, passage): score for query, passage, score in hits(folder / "results" / "t")}


def remove(folder: Path, *stages: str) -> None:
    for stage in stages:
        shutil.rmtree(folder / "indexes" / stage)


def made(folder: Path, stage: str) -> dict[str, Any]:
    (path,) = (folder / "indexes" / stage).glob("*/manifest.json")
    manifest: dict[str, Any] = read_json(path)
    return manifest


def assert_same_results(folder: Path, reference: Path) -> None:
    """Measures to 0.0002; rankings but for scores within 1e-5 of each other; every row once."""
    metrics, expected = (
        read_json(place / "results" / "t" / "metrics.json")["metrics"] for place in (folder, reference)
    )
    assert metrics == pytest.approx(expected, abs=0.0002)
    ours, theirs = scores(folder), scores(reference)
    assert Counter(query for query, _ in ours) == Counter(query for query, _ in theirs)
    lowest: dict[str, float] = {}
    for (query, _), score in theirs.items():
        lowest[query] = min(score, lowest.get(query, score))
    for pair in ours.keys() | theirs.keys():  # at the end of a list two close ones may change
        default = lowest[pair[0]]
        assert ours.get(pair, default) == pytest.approx(theirs.get(pair, default), abs=1e-5)
    for stage in ("passages", "queries"):
        manifest, expected = made(folder, stage), made(reference, stage)
        assert manifest["facts"] == expected["facts"]
        place = folder / "indexes" / stage / manifest["key"]
        assert {path.name for path in place.iterdir()} == {"manifest.json", *expected["files"]}


@pytest.fixture
def emptied(workplace: Path) -> Path:
    """Data, model, its conversion, and nothing made with them."""
    remove(workplace, *(path.name for path in (workplace / "indexes").iterdir() if path.name != "openvino"))
    shutil.rmtree(workplace / "results")
    return workplace


def test_workers_make_the_word_weights_of_chunks_that_one_process_makes(
    emptied: Path, tmp_path: Path, cluster: str, root: Path
) -> None:
    """Rows of any length, as token vectors are too, travel as those of one length do."""
    splade = root.parent / "shared" / "models" / "splade-tiny"
    if not splade.is_dir():
        pytest.skip("the model ../shared/models/splade-tiny is not on this machine")
    model = (
        f"model={{backend: native, output: sparse, name: {splade}, passage_max_length: 32, shard_rows: 50}}"
    )
    settings = (model, "data.corpus=60", "data.queries=5", "data.chunks={tokens: 24, overlap: 6}")
    alone = Path(shutil.copytree(emptied, tmp_path / "alone"))
    run(alone, *settings)
    run_benchmark(on_ray(emptied, cluster, *settings, workers=1))
    assert_same_results(emptied, alone)
    engine, texts = made(emptied, "passages")["made"]["engine"], made(alone, "chunks")["facts"]["chunks"]
    assert (engine["kind"], sum(engine["parts"].values())) == ("ray", -(-texts // 50))


def workers() -> list[int]:
    """The workers of the Ray engine on the cluster that these tests started, and on no other."""
    started = psutil.Process().children(recursive=True)
    return [process.pid for process in started if process.cmdline()[:1] == ["ray::Worker"]]


def test_workers_elsewhere_killed_in_the_middle_cost_their_shards_only(
    emptied: Path,
    finished: Path,
    cluster: str,
    kept_by_nodes: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are sent the model that was converted here, and convert none of their own."""
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

    be_no_node(monkeypatch)
    run_benchmark(on_ray(emptied, cluster), progress=progress)
    assert killed
    assert "a worker died" in caplog.text
    assert_same_results(emptied, finished)
    encoded = made(emptied, "passages")["made"]
    assert encoded["encoding"]["texts"] == 345
    assert (encoded["engine"]["kind"], encoded["engine"]["workers"]) == ("ray", 2)
    assert sum(encoded["engine"]["parts"].values()) == 4
    assert not (kept_by_nodes / "openvino").exists()
    sent = [json.loads(path.read_text())["recipe"] for path in kept_by_nodes.glob("files/*/manifest.json")]
    stored = Path(os.environ["BENCHMARCO_CACHE"]).glob("openvino/*/manifest.json")
    converted = [json.loads(path.read_text())["files"] for path in stored]
    assert any(model["files"] in converted for model in sent)


DRIVER = """
import os
from pipeline import cli
replace, left = os.replace, 6  # two for each shard: its rows and their tokens
def dying(source, target):
    global left
    left -= "indexes/passages/" in str(target)
    if not left:
        os.kill(os.getpid(), 9)
    replace(source, target)
os.replace = dying
cli.main()
"""


def test_the_driver_killed_its_whole_shards_are_kept_whichever_engine_goes_on(
    emptied: Path, finished: Path, cluster: str, fork: Fork
) -> None:
    (emptied / "driving.py").write_text(DRIVER, encoding="utf-8")
    settings = ("engine.kind=ray", f"engine.address={cluster}", "engine.workers=1")
    sets = [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(emptied)}
    done = fork("driving", "run", "c.yaml", *sets, environment=environment, folder=emptied)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (draft,) = (emptied / "indexes" / "passages").iterdir()
    whole = {path: path.stat().st_ino for path in draft.glob("rows-*.npy")}
    assert len(whole) == 2
    run(emptied)
    assert_same_results(emptied, finished)
    assert {path: path.stat().st_ino for path in whole} == whole
    encoded = made(emptied, "passages")["made"]
    assert encoded["engine"] == {"kind": "local", "workers": 1, "parts": {"local": 2}}
    assert encoded["encoding"]["texts"] < 345


def test_workers_find_what_one_process_finds(workplace: Path, cluster: str) -> None:
    """The score of a pair depends on its two vectors alone, so the ranking is the same to the byte.

    The same two workers search vectors in parts, and then make the shards of an index and search them.
    """
    shards = ("index.factory=HNSW8", "index.shards=3", "search.against_exact=false")
    asked = (((), {"search": 8}), (shards, {"index": 3, "search": 3}))
    folder = workplace
    remove(folder, "index", "search")
    with Session() as here, Session() as there:
        for settings, parts in asked:
            alone = Benchmark(config(folder, *settings), here).ensure("search")
            remove(folder, "index", "search")
            divided = Benchmark(on_ray(folder, cluster, *settings), there)
            assert divided.ensure("search").files == alone.files
            assert (folder / "indexes" / "index").exists() == ("index" in parts)
            for stage, count in parts.items():
                engine = made(folder, stage)["made"]["engine"]
                assert (engine["kind"], sum(engine["parts"].values())) == ("ray", count)
            remove(folder, "search")


def test_workers_score_the_pairs_that_one_process_scores(
    workplace: Path, cluster: str, reranker: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, shard_pairs=200)
    rerank = f"rerank={{backend: openvino, name: {reranker('bert')}, depth: 4}}"
    run(workplace, rerank)
    alone = scores(workplace)
    remove(workplace, "scores", "rerank", "evaluate")
    run_benchmark(on_ray(workplace, cluster, rerank, workers=1))
    assert scores(workplace) == pytest.approx(alone, abs=1e-4)
    reranked = made(workplace, "rerank")["made"]
    assert reranked["pairs"] == {"found": 0, "scored": 114 * 4}
    assert (reranked["engine"]["kind"], reranked["engine"]["workers"]) == ("ray", 1)
    assert sum(reranked["engine"]["parts"].values()) == 3


def test_a_run_that_finds_everything_needs_no_cluster(workplace: Path) -> None:
    metrics = run_benchmark(on_ray(workplace, "127.0.0.1:1")).document
    assert all(stage["reused"] for stage in metrics["stages"])


def meet(fifo: Path, inputs: range, bar: Any) -> tuple[Any, int]:
    """A job of which two parts must be at work at the same time: each waits until the other comes."""
    with open(fifo, "rb" if inputs.start else "wb"):
        bar.update(len(inputs))
        return np.array(inputs), os.getpid()


def die(always: int, once: Path, inputs: range, bar: Any) -> int:
    """A job that kills its worker each time at one part, and at another the first time."""
    if inputs.start == always:
        os.kill(os.getpid(), signal.SIGKILL)
    if inputs.start == 1:
        with contextlib.suppress(FileExistsError):
            once.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return inputs.start


def refuse(error: str, inputs: range, bar: Any) -> None:
    """A job that meets what a user has to mend, or a disk that is full."""
    if error == "input":
        raise InputError("found", allowed="allowed", fix="fix")
    raise OSError(28, "No space left on device", "/there")


def tell(shared: Any, inputs: Any, bar: Any) -> Any:
    """A job that tells how its inputs arrived."""
    array, ids = inputs
    return type(array).__name__, array.sum(), shared.sum(), ids.to_pylist(), ids.nbytes


def part(start: int, stop: int) -> Part:
    """A part whose inputs are its rows' numbers."""
    return Part(start, stop, lambda: range(start, stop))


class Counting:
    total = 0

    def update(self, n: int = 1) -> None:
        self.total += n


@dataclass
class Named:
    """A model on a processor, or its settings; the name is the file that counts deaths."""

    name: str
    device: str = "cpu"
    files: Any = field(default_factory=lambda: SimpleNamespace(repo="of the hub"))


class Dying(Opener):
    """A model whose worker dies, as often as a file says, as it loads it."""

    def prepare(self, store: Store) -> None:
        return None

    def load(self, prepared: Path | None) -> str:
        lives = Path(self.model.name)
        left = int(lives.read_text())
        lives.write_text(str(left - 1))
        if left > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return "model"


@pytest.fixture(scope="class")
def engine(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Two workers, whose model nothing asks for."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = EngineConfig(kind="ray", address=cluster, workers=2)
    opened = EngineFactory(ModelSource(), settings)(Store(tmp_path_factory.mktemp("engine")))
    yield opened
    opened.close()


class TestJobs:
    """One engine does the jobs of all these tests."""

    def test_two_parts_are_done_at_once_on_two_nodes(self, engine: Engine, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        bar = Counting()
        found = list(engine.each(PartJob(partial(meet, tmp_path / "fifo")), [part(0, 3), part(3, 5)], bar))
        assert bar.total == 5
        assert len({done.node for done in found}) == len({done.outputs[1] for done in found}) == 2
        for done in found:
            assert done.outputs[0].tolist() == list(range(done.part.start, done.part.stop))

    def test_what_is_mapped_or_sliced_here_travels_as_it_is_and_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        np.arange(1000, dtype=np.uint8).tofile(tmp_path / "array")
        mapped = np.memmap(tmp_path / "array", np.uint8, "r")
        ids = pa.chunked_array([pa.array([f"document {number}" for number in range(9000)])]).slice(8000, 2)
        one = Part(0, 1, lambda: (mapped[10:20], ids))
        (done,) = engine.each(PartJob(partial(tell, mapped)), [one], Counting())
        kind, total, shared, arrived, size = done.outputs
        assert (kind, total, shared) == ("ndarray", sum(range(10, 20)), mapped.sum())
        assert arrived == ["document 8000", "document 8001"]
        assert size < 100

    def test_what_a_worker_refuses_is_said_as_if_it_had_been_here(self, engine: Engine) -> None:
        with pytest.raises(InputError) as refused:
            list(engine.each(PartJob(partial(refuse, "input")), [part(0, 1)], Counting()))
        assert str(refused.value) == "found. Allowed: allowed. Fix."
        with pytest.raises(OSError, match="No space left") as full:
            list(engine.each(PartJob(partial(refuse, "disk")), [part(0, 1)], Counting()))
        assert (full.value.errno, full.value.filename) == (28, "/there")

    def test_a_part_that_loses_its_worker_is_done_once_by_another(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """No more inputs are read than workers need and one; those of the part are still there."""
        read, most, outputs = [], 0, Counter[int]()

        def counted(number: int) -> Part:
            return Part(number, number + 1, lambda: read.append(number) or range(number, number + 1))

        parts = [counted(number) for number in range(9)]
        for finished, done in enumerate(
            engine.each(PartJob(partial(die, -1, tmp_path / "once")), parts, Counting())
        ):
            most = max(most, len(read) - finished)
            outputs[done.outputs] += 1
        assert (tmp_path / "once").exists()
        assert outputs == Counter(range(9))
        assert len(read) == 9
        assert most <= engine.workers + 1

    def test_a_part_that_always_kills_its_worker_ends_the_run(
        self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resize(monkeypatch, losses=2)
        job = PartJob(partial(die, 4, tmp_path / "once"))
        with pytest.raises(ChildProcessError, match="a worker died at rows 4 to 9, 2 times"):
            list(engine.each(job, [part(4, 9)], Counting()))


def test_what_a_worker_refuses_when_it_joins_is_no_death(
    cluster: str, bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been sent the model's own files by then, as a worker on another machine is."""
    be_no_node(monkeypatch)
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    settings = BACKENDS.make(name=str(folder), backend="flag", truncate_dim=4096)
    config = EngineConfig(kind="ray", address=cluster, workers=1)
    opened = EngineFactory(resolve(settings), config)(Store(tmp_path))
    try:
        with pytest.raises(InputError, match=r"model\.truncate_dim: 4096, but .* of 128 dimensions"):
            opened.load(1)
    finally:
        opened.close()


def test_a_worker_killed_as_it_starts_is_replaced_and_many_end_the_run(
    cluster: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the only one; the system kills processes so for want of memory."""
    from ray import cloudpickle

    resize(monkeypatch, losses=2)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    config, lives = EngineConfig(kind="ray", address=cluster, workers=1), tmp_path / "lives"
    dying = Dying(Named("auto"), Named(str(lives)), function=str, conversion=None)
    open_engine = EngineFactory(dying, config)
    opened = open_engine(Store(tmp_path))
    try:
        lives.write_text("1")
        opened.load(1)
        assert lives.read_text() == "-1"
        assert "a worker died as it started; another one does its work" in caplog.text
        assert "not started" not in caplog.text
    finally:
        opened.close()
    opened = open_engine(Store(tmp_path))
    try:
        lives.write_text("99")
        with pytest.raises(ChildProcessError, match=r"as it started, 2 times; the last one: .*died"):
            opened.load(1)
    finally:
        opened.close()


LOST = """
import sys, time
from pathlib import Path
import psutil
from pipeline import cli
from pipeline.engines.ray import RayEngine
moment, wait = sys.argv.pop(1), RayEngine._wait
def waiting(engine, seconds):
    at_work = any(state.tasks for state in engine._workers.values())
    if (moment == "load" or at_work) and not Path("pids").exists():
        time.sleep(1)
        started = psutil.Process().children(recursive=True)
        Path("pids").write_text(" ".join(str(process.pid) for process in started))
        (raylet,) = engine._ray._private.worker.global_worker.node.all_processes["raylet"]
        raylet.process.kill()
        raylet.process.wait()
    return wait(engine, seconds)
RayEngine._wait = waiting
cli.main()
"""


@pytest.mark.parametrize("moment", ["load", "each"])
def test_the_loss_of_this_machine_s_node_ends_the_run(emptied: Path, moment: str) -> None:
    sets = ["--set", "engine.kind=ray", "--set", "engine.workers=1"]
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


@pytest.mark.parametrize(("end", "lines"), [("os._exit(1)", 1), ("sys.exit(1)", 0), ("raise KeyError", 0)])
def test_a_process_that_ray_s_code_ends_is_explained(end: str, lines: int) -> None:
    """As after the loss of Ray's agent: its C++ code ends the process, and Python cannot say a word."""
    program = f"import os, sys\nfrom pipeline.engines import explain_sudden_end\nexplain_sudden_end()\n{end}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("benchmarco: the run ended")]
    assert (done.returncode, len(said)) == (1, lines)


def alive(number: int) -> bool:
    """Whether a process is there, and no mere entry of one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.parametrize(
    ("nodes", "workers", "gpu", "expected"),
    [
        ([{"CPU": 8}, {"CPU": 8}], None, False, (2, 8)),
        ([{"CPU": 8}, {"CPU": 3}], 3, False, (3, 3)),
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
        ([{"CPU": 8}], None, True, "model.device: cuda, but the cluster has 0 GPUs. Allowed: a cluster with"),
    ],
)
def test_a_cluster_that_is_too_small_is_said_with_both_numbers(
    nodes: list[dict[str, float]], workers: int | None, gpu: bool, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        share_out(nodes, workers, gpu)
    assert str(refused.value).startswith(message)


def test_a_port_that_another_program_serves_is_no_cluster(emptied: Path) -> None:
    """Ray itself would try for more than ten minutes."""
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        with pytest.raises(InputError, match=f"no Ray cluster at {address}: another program answers there"):
            run_benchmark(on_ray(emptied, address))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["engine.workers=3"], "engine.workers: 3, but the cluster has 2 CPUs"),
        (["model.backend=flag", "model.device=cuda"], "engine.workers: 2, but the cluster has 0 GPUs"),
        (["model.backend=flag", "model.device=cuda:1"], "model.device: cuda:1 with engine.kind: ray"),
        (["engine.address=127.0.0.1:1"], "engine.address: no Ray cluster at 127.0.0.1:1: .*refused"),
        (["engine.address=ray://head:10001"], "null, auto or HOST:PORT"),
        (["engine.workers=0"], "greater than or equal to 1"),
        (["engine.kind=local", "engine.workers=null"], "engine.address is for kind 'ray'"),
        (["engine.devices=[cpu, cpu]"], "engine.devices is for kind 'local'"),
    ],
)
def test_what_ray_cannot_give_is_said_before_anything_is_made_and_the_cluster_is_left(
    emptied: Path, cluster: str, settings: list[str], message: str
) -> None:
    import ray

    before = sorted(emptied.rglob("*"))
    with pytest.raises(InputError, match=message):
        run_benchmark(on_ray(emptied, cluster, *settings))
    assert sorted(emptied.rglob("*")) == before
    assert not ray.is_initialized()

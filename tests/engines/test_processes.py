"""Several processes on this machine: the same bytes as one, whoever dies, and nothing is left of them."""

import contextlib
import logging
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from engines.jobs import Named, Toy, die, double, meet, refuse
from forked import Fork
from inside import files_on_disk, pretend, resize
from workplaces import config, read_json, run

from pipeline import InputError, run_benchmark
from pipeline.config import EngineConfig
from pipeline.core import silent
from pipeline.engines import Engine, EngineFactory, Part, check_engine, devices_of
from pipeline.storage import Store

TWO = "engine.devices=[cpu, cpu]"


def numbers(start: int, stop: int) -> Part:
    """A part whose inputs are its rows' numbers."""
    return Part(start, stop, lambda: np.arange(start, stop))


class Counting:
    total = 0

    def update(self, n: int = 1) -> None:
        self.total += n


def toy(device: str = "cpu", setting: str = "auto", name: str = "toy") -> Toy:
    return Toy(Named(setting), Named(device, name), function=str, conversion=None)


def watch_children() -> Callable[[], list[psutil.Process]]:
    """Gives the processes that this one started since this call; servers of other tests run on."""
    before = psutil.Process().children()
    return lambda: [child for child in psutil.Process().children() if child not in before]


@contextlib.contextmanager
def two_processes(folder: Path) -> Iterator[Engine]:
    """An engine of two processes, none of which is left at the end; they are not started yet."""
    children = watch_children()
    opened = EngineFactory(toy(), EngineConfig(devices=["cpu", "cpu"]))(Store(folder))
    yield opened
    opened.close()
    assert children() == []


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Two processes, not started yet."""
    with two_processes(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="class")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Two processes that have loaded their models."""
    with two_processes(tmp_path_factory.mktemp("started")) as opened:
        opened.load(2)
        yield opened


def test_two_processes_do_all_parts_and_split_the_threads(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    engine.load(2)
    bar = Counting()
    found = list(engine.each(double, [numbers(start, start + 10) for start in range(0, 90, 10)], bar))
    assert bar.total == 90
    for done in found:
        rows, _, device, threads = done.outputs
        assert rows.tolist() == [2 * row for row in range(done.part.start, done.part.stop)]
        assert (device, threads, done.node) == ("cpu", "3", "cpu")
    assert sorted(done.part.start for done in found) == list(range(0, 90, 10))


def test_without_files_in_memory_a_file_stays_open_until_it_has_been_received(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nodejs/node#7512: macOS closes a file on its way if its sender does."""
    opened = files_on_disk(monkeypatch)
    (tmp_path / "sitecustomize.py").write_text("import os; del os.memfd_create", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    engine.load(1)
    found = list(engine.each(double, [numbers(row, row + 5000) for row in range(0, 40000, 5000)], Counting()))
    assert sum(int(done.outputs[0].sum()) for done in found) == 2 * sum(range(40000))
    assert len(opened) >= 8
    assert [file.closed for file in opened[-2:]] == [False, False]
    assert sum(not file.closed for file in opened) <= 2 * 3


class TestJobs:
    """One engine does the jobs of all these tests."""

    def test_two_parts_are_done_at_once(self, started: Engine, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        found = started.each(partial(meet, tmp_path / "fifo"), [numbers(0, 1), numbers(1, 2)], Counting())
        assert len({done.outputs for done in found}) == 2

    def test_what_a_process_refuses_is_said_as_if_it_had_been_here(self, started: Engine) -> None:
        with pytest.raises(InputError) as refused:
            list(started.each(refuse, [numbers(0, 1)], Counting()))
        assert str(refused.value) == "found. Allowed: allowed. Fix."

    def test_a_part_whose_process_dies_is_done_again(self, started: Engine, tmp_path: Path) -> None:
        bar = Counting()
        parts = [numbers(number, number + 1) for number in range(9)]
        job = partial(die, -1, tmp_path / "once")
        found = Counter(done.outputs for done in started.each(job, parts, bar))
        assert (tmp_path / "once").exists()
        assert found == Counter(range(9))
        assert bar.total == 9

    def test_three_deaths_at_a_part_end_the_run_in_one_sentence(
        self, started: Engine, tmp_path: Path
    ) -> None:
        job = partial(die, 4, tmp_path / "once")
        with pytest.raises(ChildProcessError) as ended:
            list(started.each(job, [numbers(4, 9)], Counting()))
        said = "a worker died at rows 4 to 9, 3 times; the last one: it ended with SIGKILL"
        assert str(ended.value) == said


def test_what_a_process_refuses_as_it_loads_the_model_is_said_as_if_it_had_been_here(tmp_path: Path) -> None:
    broken = EngineFactory(toy(name="broken"), EngineConfig(workers=2))(Store(tmp_path))
    with pytest.raises(InputError) as refused:
        broken.load(2)
    assert str(refused.value) == "found. Allowed: allowed. Fix."
    broken.close()


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[Callable[[int, int], Engine]]:
    """Opens an engine of so many processes, of which so many die as they load the model."""
    opened = []

    def open_engine(workers: int, deaths: int) -> Engine:
        lives = tmp_path / "lives"
        lives.write_text(str(deaths))
        factory = EngineFactory(toy(name=f"dies in {lives}"), EngineConfig(workers=workers))
        opened.append(factory(Store(tmp_path)))
        return opened[-1]

    def too_long(*_: object) -> None:
        raise AssertionError("the engine waits for ever")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    yield open_engine
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    for engine in opened:
        engine.close()


def test_a_process_that_dies_as_it_loads_the_model_is_replaced(
    dying: Callable[[int, int], Engine], caplog: pytest.LogCaptureFixture
) -> None:
    """As one that the system kills for want of memory; also where it is the only one that starts."""
    engine = dying(2, 2)
    engine.load(1)
    assert caplog.text.count("a worker died as it started; another one does its work") == 2
    (done,) = engine.each(double, [numbers(0, 3)], Counting())
    assert done.outputs[0].tolist() == [0, 2, 4]


@pytest.mark.parametrize("parts", [1, 2])
def test_processes_that_all_die_as_they_load_the_model_end_the_run(
    dying: Callable[[int, int], Engine], parts: int
) -> None:
    engine = dying(2, 99)
    with pytest.raises(
        ChildProcessError, match="as it started, 3 times; the last one: it ended with SIGKILL"
    ):
        engine.load(parts)


def test_deaths_that_are_spread_over_a_long_job_do_not_end_it(
    dying: Callable[[int, int], Engine], tmp_path: Path
) -> None:
    """Each is followed by a process that starts well."""
    engine = dying(2, 0)
    engine.load(1)
    bar, found = Counting(), []
    for done in engine.each(double, [numbers(start, start + 1) for start in range(30)], bar):
        found.append(done.part.start)
        if len(found) in (3, 7, 11):
            (tmp_path / "next").write_text("1")  # lives of the next one
            (tmp_path / "next").replace(tmp_path / "lives")  # at once: another process may read it
            os.kill(done.outputs[1], signal.SIGKILL)
    assert (sorted(found), bar.total) == (list(range(30)), 30)


class KillTheNamed(logging.Handler):
    """Does what the message about a silent process says, if it is the one that was stopped."""

    def __init__(self, stopped: int) -> None:
        super().__init__()
        self.stopped = stopped

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"nothing from process (\d+) \(cpu\) for .*'kill -9 \1'", record.getMessage())
        if found and int(found[1]) == self.stopped:
            os.kill(self.stopped, signal.SIGKILL)


def test_a_process_that_is_stopped_is_named_and_can_be_replaced(
    dying: Callable[[int, int], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, silence=1, look=0.1)
    engine = dying(2, 0)
    engine.load(1)
    (first,) = engine.each(double, [numbers(0, 1)], Counting())
    os.kill(first.outputs[1], signal.SIGSTOP)
    monkeypatch.setattr(logging.getLogger("pipeline"), "handlers", [KillTheNamed(first.outputs[1])])
    (second,) = engine.each(double, [numbers(0, 1)], Counting())
    assert second.outputs[1] != first.outputs[1]


def encoded(folder: Path) -> dict[str, Any]:
    """The manifest of the passages that the last run encoded."""
    paths = (folder / "indexes" / "passages").glob("*/manifest.json")
    manifest: dict[str, Any] = read_json(max(paths, key=lambda path: path.stat().st_mtime_ns))
    return manifest


NATIVE = (
    "model={backend: native, name: all-minilm-l6-v2, passage_max_length: 16, shard_rows: 20}",
    "data.corpus=120",
    "data.queries=5",
)


def test_they_write_the_bytes_that_one_process_writes_also_if_all_are_killed(
    workplace: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kernels compute a batch in one thread, so nothing depends on how many there are."""
    children = watch_children()
    alone = Path(shutil.copytree(workplace, tmp_path / "alone"))
    run(alone, *NATIVE)
    killed = []

    class Killing:
        """A bar that kills every process when a part is done."""

        def update(self, n: int = 1) -> None:
            if not killed:
                killed.extend(children())
                for process in killed:
                    process.kill()

    def progress(label: str, total: int | None, unit: str) -> Any:
        watched = label == "encode passages"
        return contextlib.nullcontext(Killing()) if watched else silent(label, total, unit)

    run_benchmark(config(workplace, *NATIVE, TWO), progress=progress)
    assert len(killed) == 2
    assert "a worker died" in caplog.text
    ours, expected = encoded(workplace), encoded(alone)
    assert ours["files"] == expected["files"]
    assert ours["made"]["engine"]["kind"] == "local"
    assert ours["made"]["engine"]["workers"] == 2
    shards = sum(name.startswith("rows-") for name in ours["files"])
    assert sum(ours["made"]["engine"]["parts"].values()) == shards
    trec = Path("results", "t", "run.trec")
    assert (workplace / trec).read_bytes() == (alone / trec).read_bytes()


DRIVER = """
import os, sys
from pathlib import Path
import psutil
from pipeline import cli
from pipeline.engines.processes import ProcessEngine
wait = ProcessEngine._wait
def waiting(engine, seconds):
    found = wait(engine, seconds)
    if any(state.tasks for state in engine._workers.values()):
        Path("pids").write_text(" ".join(str(child.pid) for child in psutil.Process().children()))
        os.kill(os.getpid(), number)
    return found
ProcessEngine._wait = waiting
number = int(sys.argv.pop())
cli.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_runs_on_after_ctrl_c_or_when_the_parent_is_killed(
    workplace: Path, fork: Fork, number: int, code: int
) -> None:
    (workplace / "driving.py").write_text(DRIVER, encoding="utf-8")
    arguments = [part for setting in (*NATIVE, TWO) for part in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(workplace)}
    done = fork(
        "driving", "run", "c.yaml", *arguments, str(int(number)), environment=environment, folder=workplace
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    workers = [int(pid) for pid in (workplace / "pids").read_text().split()]
    assert len(workers) == 2
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(worker).wait(20)


@pytest.mark.parametrize(
    ("settings", "source", "expected"),
    [
        ({}, toy(), ["cpu"]),
        ({"workers": 3}, toy(), ["cpu", "cpu", "cpu"]),
        ({"devices": ["cpu", "cpu"]}, toy(), ["cpu", "cpu"]),
        ({}, toy("cuda:0"), ["cuda:0", "cuda:1"]),
        ({"workers": 1}, toy("cuda:0"), ["cuda:0"]),
        ({}, toy("cuda:1", "cuda:1"), ["cuda:1"]),
        ({"devices": ["cuda:1"]}, toy("cuda:0"), ["cuda:1"]),
    ],
)
def test_every_gpu_has_a_process_unless_the_config_says_otherwise(
    settings: dict[str, Any], source: Toy, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpus=("a", "b"))
    check_engine(EngineConfig(**settings), source)
    assert devices_of(EngineConfig(**settings), source) == expected


@pytest.mark.parametrize(
    ("settings", "source", "message"),
    [
        (
            {"devices": ["cuda:2"]},
            toy("cuda:0"),
            "this machine has 2 GPUs. Allowed: cuda:0, cuda:1",
        ),
        ({"workers": 3}, toy("cuda:0"), "engine.workers: 3, and this machine has 2 GPUs"),
        ({"devices": ["cpu", "cpu"]}, toy("cuda:0"), "Set model.device to cpu"),
        ({"devices": ["cuda:0"]}, toy(), "Set model.device to cuda"),
    ],
)
def test_devices_that_do_not_fit_are_refused(
    settings: dict[str, Any], source: Toy, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpus=("a", "b"))
    with pytest.raises(InputError) as refused:
        check_engine(EngineConfig(**settings), source)
    assert message in str(refused.value)

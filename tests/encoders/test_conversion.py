"""The process that converts a model: it runs this project's module, wherever it is started."""

import errno
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from inside import convert_by
from workplaces import process

from pipeline.core import ending_at, run_in_subprocess


@pytest.fixture(autouse=True)
def _real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    convert_by(monkeypatch, subprocess)


def test_what_lies_in_the_working_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pipeline", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = run_in_subprocess("pipeline.encoders.native_packing", [], tmp_path / "out.npz", b"no task")
    assert said is not None
    assert "UnpicklingError" in said


@pytest.mark.parametrize(
    ("ends", "error", "number"),
    [
        ("raise OSError(27, 'File too large')", OSError, errno.EFBIG),
        ("raise OSError(122, 'Disk quota exceeded', 'model.bin')", OSError, errno.EDQUOT),
        ("raise RuntimeError('[json.exception] iostream error')", OSError, errno.ENOSPC),
        ("raise MemoryError", MemoryError, None),
        ("raise RuntimeError('std::bad_alloc')", MemoryError, None),
        ("from signal import *; signal(2, SIG_DFL); raise_signal(2)", ChildProcessError, None),  # by OpenBLAS
    ],
)
def test_what_the_machine_refuses_is_no_fault_of_the_model(
    ends: str, error: type[Exception], number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending.py").write_text(ends, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(error) as raised:
        run_in_subprocess("ending", [], tmp_path / "weights")
    assert getattr(raised.value, "errno", None) == number


def test_a_limit_of_file_sizes_is_said_and_nothing_kept(
    bge_folder: Path, own_models: Path, tmp_path: Path
) -> None:
    config = f"name: t\ndata: {{source: sample, queries: 3, corpus: 20}}\nmodel: {{name: {bge_folder}}}\n"
    (tmp_path / "c.yaml").write_text(config, encoding="utf-8")
    command = f"ulimit -f 2000; {sys.executable} -m pipeline run c.yaml -q --set model.backend=native"
    done = process(tmp_path, "bash", "-c", command, code=1)
    assert "File too large; files may not be that long here" in done.stderr
    assert not list(own_models.glob("native/*/manifest.json"))


def test_it_is_killed_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waiting.py").write_text("import signal\nsignal.pause()\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with ending_at(0.0), pytest.raises(TimeoutError, match="the time is over"):
        run_in_subprocess("waiting", [], tmp_path / "weights")


def test_it_ends_with_the_process_that_it_works_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waiting = "import signal, sys\nfile = open(sys.argv[1], 'w')\nfile.write('started')\nfile.flush()\n"
    (tmp_path / "waiting.py").write_text(waiting + "signal.pause()\n", encoding="utf-8")
    script = (
        "from pathlib import Path\n"
        "from pipeline.core.subprocesses import run_in_subprocess\n"
        f"run_in_subprocess('waiting', [{str(pipe)!r}], Path('weights'))\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    driver = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths})
    try:
        with open(pipe, "rb", buffering=0) as child:  # opens when the child opens its side
            assert child.read(7) == b"started"
            driver.kill()
            ended, _, _ = select.select([child], [], [], 60)
            assert ended, "the child lives on"
            assert child.read(1) == b""
    finally:
        driver.kill()
        driver.wait()

"""Importing the package starts no threads, on any processor, and no forked process waits for ever."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from children import abort_children
from forked import Fork
from inside import is_processor

AVX512 = "sse2 avx2 fma avx512f avx512dq avx512bw avx512vl avx512cd avx512_vnni amx_int8"
PARALLEL = "torch.nn.Embedding(30522, 384)(torch.randint(0, 30000, (64, 256)))"


def start(root: Path, folder: Path, *features: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a server of its own; it has ended the listing of what it imports when this returns."""
    command = [sys.executable, str(root / "tests/fork_server.py"), str(folder / "socket"), *features]
    said = folder / "said"  # a pipe would stay open as long as the server runs
    with said.open("w") as stderr:
        done = subprocess.run(command, env={**os.environ, **environment}, stderr=stderr, check=False)
    return subprocess.CompletedProcess(command, done.returncode, stderr=said.read_text())


def forked(folder: Path, statement: str, seconds: int) -> tuple[int, str]:
    """The exit code and stderr of a process that the server forks, which runs a statement."""
    (folder / "stdin").touch()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "socket"))
        with connection.makefile("rw", encoding="utf-8") as lines:
            lines.readline()
            line = {
                "module": "timeit", "arguments": ["-n1", "-r1", "-s", "import torch", statement],
                "environment": dict(os.environ), "seconds": seconds,
                "folder": str(folder), "log": str(folder),
            }  # fmt: skip
            print(json.dumps(line), file=lines, flush=True)
            return json.loads(lines.readline()), (folder / "stderr").read_text("utf-8")


@pytest.mark.parametrize("features", [AVX512, "sse2 avx2 fma", "sse2"], ids=["AVX-512", "AVX2", "no AVX2"])
def test_every_module_is_imported_without_starting_threads(
    features: str, root: Path, tmp_path: Path, fork: Fork
) -> None:
    """With a product of Faiss at import, torch waited for ever in forked processes on a Sapphire Rapids.

    On a processor with these features, the server of all tests is that server.
    """
    if is_processor(features):
        statement = ("-n1", "-r1", "-s", "import torch", PARALLEL)
        done = fork("timeit", *statement, environment=dict(os.environ), folder=tmp_path, seconds=60)
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert start(root, tmp_path, features).returncode == 0
    code, stderr = forked(tmp_path, PARALLEL, seconds=60)
    assert (code, stderr) == (0, "")


def test_a_server_whose_imports_started_threads_says_so_and_ends(root: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    done = start(root, tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "imports have started 1 threads" in done.stderr


def test_a_forked_process_that_waits_for_ever_ends_with_its_stack(fork: Fork, tmp_path: Path) -> None:
    statement = ("-n1", "-r1", "-s", "import threading", "threading.Event().wait()")
    done = fork("timeit", *statement, environment=dict(os.environ), folder=tmp_path, seconds=1)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert 'threading.py", line' in done.stderr


def test_a_child_that_a_test_waits_for_ends_with_its_stack() -> None:
    command = [sys.executable, "-c", "import threading; print(flush=True); threading.Event().wait()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        abort_children()
        _, stderr = child.communicate()
    assert child.returncode == -signal.SIGABRT
    assert 'File "<string>", line 1 in <module>' in stderr

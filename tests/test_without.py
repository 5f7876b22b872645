"""What a run does without: connections to anyone, and what only Linux on x86 has; what Windows is told.

In runs that are refused every connection, attempts are counted, also native ones.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workplaces import process, read_json

from pipeline import run_benchmark

REFUSE = """
import os, socket

def refused(*arguments, **_):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{os.getpid()} {arguments}\\n")
    raise ConnectionRefusedError("this test refuses every connection")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refused)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refused)
"""
NAMES = "HF_|TRANSFORMERS_|DO_NOT_TRACK|DISABLE_TELEMETRY|.*_PROXY|.*_proxy"
STRACE = bool(shutil.which("strace"))
"""Whether native connections are seen."""


def attempts(folder: Path, *arguments: str) -> list[str]:
    """What a command tried to connect to, in any of its processes, by any of its libraries."""
    (folder / "sitecustomize.py").write_text(REFUSE, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not re.match(NAMES, name)}
    ours = {"PYTHONPATH": str(folder), "ATTEMPTS": str(folder / "attempts"), "HOME": str(folder)}
    command = [sys.executable, *arguments]
    if STRACE:
        trace = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect,sendto,sendmsg", "-o"]
        command = [*trace, str(folder / "trace"), *command]
    done = subprocess.run(command, cwd=folder, env=kept | ours, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    found = []
    for name in ("attempts", "trace"):
        if (folder / name).exists():
            lines = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            found += [line for line in lines if name == "attempts" or "AF_INET" in line]
    return found


def test_runs_try_to_reach_nobody(root: Path, tmp_path: Path) -> None:
    quickstart = (root / "configs/quickstart.yaml").read_text(encoding="utf-8")
    for name in ("flag", "openvino"):
        changed = quickstart.replace("name: quickstart", f"name: {name}").replace("flag", name)
        (tmp_path / f"{name}.yaml").write_text(changed, encoding="utf-8")
    small = ("--set", "data.corpus=60", "--set", "data.queries=10")
    assert attempts(tmp_path, "-m", "pipeline", "run", "flag.yaml", "openvino.yaml", *small) == []
    for name in ("flag", "openvino"):
        assert (tmp_path / f"results/{name}/manifest.json").exists()


PYTHON = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 1)\nexcept OSError: pass\n"
NATIVE = (
    "import ctypes, socket, struct\n"
    "place = struct.pack('=H', socket.AF_INET) + struct.pack('>H', 80) + b'\\x7f\\0\\0\\1' + bytes(8)\n"
    "libc = ctypes.CDLL(None)\n"
    "libc.connect(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0), place, 16)\n"
)


@pytest.mark.parametrize("script", [PYTHON, *([NATIVE] if STRACE else [])])
def test_an_attempt_would_be_counted(tmp_path: Path, script: str) -> None:
    assert len(attempts(tmp_path, "-c", script)) == 1


HIDDEN = """
import atexit, builtins, ctypes, errno, io, mmap, os, sys
import llvmlite.binding as llvm

del os.sched_getaffinity, os.memfd_create, mmap.MADV_DONTNEED
opened = builtins.open
asked = set()

def open_without(file, *rest, **named):
    if str(file).startswith(("/proc", "/sys")):
        asked.add(str(file))
        raise FileNotFoundError(errno.ENOENT, "no such file", str(file))
    return opened(file, *rest, **named)

class WithoutPrctl(ctypes.CDLL):
    def __getattr__(self, name):
        if name in ("prctl", "syscall"):
            raise AttributeError(name)
        return super().__getattr__(name)

builtins.open, io.open = open_without, open_without
ctypes.CDLL = WithoutPrctl
llvm.get_host_cpu_features = llvm.FeatureMap  # empty: kernels are compiled for any processor of the kind
atexit.register(lambda: opened(os.environ["ASKED"], "a").write("\\n".join(asked)))
"""
"""Runs as each process starts, also those that a run starts."""
SPAWN = """
import multiprocessing, runpy, sys

run = {"target": runpy.run_module, "args": ("pipeline",), "kwargs": {"run_name": "__main__"}}
process = multiprocessing.get_context("spawn").Process(**run)
process.start()
process.join()
sys.exit(process.exitcode)
"""
"""A command in a process of multiprocessing, as macOS starts them."""


def test_a_benchmark_runs_without_them(tmp_path: Path) -> None:
    words = {"name": "words", "model": {"backend": "bm25"}}
    vectors = {"name": "vectors", "model": {"name": "all-minilm-l6-v2"}}
    config = {
        "data": {"source": "sample", "corpus": 60, "queries": 10}, "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10"]}, "cache": f"{tmp_path}/usual", "output": f"{tmp_path}/u",
    }  # fmt: skip
    swept = {**config, "name": "t", "sweep": [words, vectors], "cache": "indexes", "output": "results"}
    (tmp_path / "c.yaml").write_text(json.dumps(swept), encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(HIDDEN, encoding="utf-8")
    hidden = {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path)), "ASKED": str(tmp_path / "asked")}
    for command in (["-m", "pipeline", "doctor"], ["-c", SPAWN, "run", "c.yaml"]):
        process(tmp_path, *command, **hidden)
    assert "/proc/cpuinfo" in (tmp_path / "asked").read_text(encoding="utf-8")
    results = tmp_path / "results"
    for name in ("words", "vectors"):
        scores = read_json(results / name / "metrics.json")
        assert scores["metrics"]["ndcg@10"] > 0.4
    manifest = read_json(results / "vectors" / "manifest.json")
    assert manifest["hardware"]["cores"] >= 1
    usual = (run_benchmark({**config, **words}).folder / "per_query.csv").read_bytes()
    assert (results / "words" / "per_query.csv").read_bytes() == usual


@pytest.mark.parametrize(
    ("command", "code"),
    [(("-m", "pipeline", "doctor", "c.yaml"), 2), (("-c", "from pipeline import run_benchmark"), 1)],
)
def test_a_system_without_file_locks_is_told_of_wsl_in_one_sentence(
    command: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """Windows has no `fcntl`."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['fcntl'] = None", encoding="utf-8")
    (tmp_path / "c.yaml").write_text(
        "name: t\nmodel: {backend: bm25}\ndata: {source: sample}", encoding="utf-8"
    )
    path = os.pathsep.join((str(tmp_path), *sys.path))
    said = process(tmp_path, *command, code=code, PYTHONPATH=path).stderr.splitlines()
    assert said[-1].endswith("benchmarco runs on Linux and macOS, and on Windows inside WSL.")
    assert len(said) == 1 or code == 1


def test_no_file_of_the_repository_is_a_link(root: Path) -> None:
    """Windows checks a link out as a file that has the path of its target."""
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no checkout of git")
    assert [line for line in listed.stdout.splitlines() if line.startswith("120000")] == []

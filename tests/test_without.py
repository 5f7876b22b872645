"""What a run does without: connections to anyone, and what only Linux on x86 has.

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
import builtins, ctypes, errno, io, os, runpy, sys
import llvmlite.binding as llvm

del os.sched_getaffinity
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

builtins.open = io.open = open_without
ctypes.CDLL = WithoutPrctl
llvm.get_host_cpu_features = llvm.FeatureMap  # empty: kernels are compiled for any processor of the kind
sys.argv = ["benchmarco", *sys.argv[1:]]
try:
    runpy.run_module("pipeline", run_name="__main__")
finally:
    assert "/proc/cpuinfo" in asked, asked
"""


def test_a_benchmark_runs_without_them(tmp_path: Path) -> None:
    words = {"name": "words", "model": {"backend": "bm25"}}
    vectors = {"name": "vectors", "model": {"name": "all-minilm-l6-v2"}}
    config = {
        "data": {"source": "sample", "corpus": 60, "queries": 10}, "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10"]}, "cache": f"{tmp_path}/usual", "output": f"{tmp_path}/u",
    }  # fmt: skip
    swept = {**config, "name": "t", "sweep": [words, vectors], "cache": "indexes", "output": "results"}
    (tmp_path / "c.yaml").write_text(json.dumps(swept), encoding="utf-8")
    for command in (["doctor"], ["run", "c.yaml"]):
        process(tmp_path, "-c", HIDDEN, *command)
    results = tmp_path / "results"
    for name in ("words", "vectors"):
        scores = read_json(results / name / "metrics.json")
        assert scores["metrics"]["ndcg@10"] > 0.4
    manifest = read_json(results / "vectors" / "manifest.json")
    assert manifest["hardware"]["cores"] >= 1
    usual = (run_benchmark({**config, **words}).folder / "per_query.csv").read_bytes()
    assert (results / "words" / "per_query.csv").read_bytes() == usual

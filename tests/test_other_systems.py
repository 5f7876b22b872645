"""What only Linux on x86 has is not needed: /proc, prctl, affinity, features of the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pipeline import run_benchmark

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


def test_a_benchmark_runs_without_them(root: Path, tmp_path: Path) -> None:
    words = {"name": "words", "model": {"backend": "bm25"}}
    vectors = {"name": "vectors", "model": {"name": "all-minilm-l6-v2"}}
    config = {
        "data": {"source": "sample", "corpus": 60, "queries": 10}, "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10"]}, "cache": str(tmp_path / "indexes"), "output": str(tmp_path),
    }  # fmt: skip
    swept = {"name": "t", **config, "sweep": [words, vectors]}
    (tmp_path / "c.yaml").write_text(json.dumps(swept), encoding="utf-8")
    for command in (["doctor"], ["run", str(tmp_path / "c.yaml")]):
        done = subprocess.run(
            [sys.executable, "-c", HIDDEN, *command], cwd=root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for name in ("words", "vectors"):
        scores = json.loads((tmp_path / name / "metrics.json").read_text(encoding="utf-8"))
        assert scores["metrics"]["ndcg@10"] > 0.4
        assert {row["stage"] for row in scores["stages"]} >= {"search", "evaluate"}
    usual = run_benchmark(
        {**config, **words, "cache": str(tmp_path / "usual"), "output": str(tmp_path / "u")}
    )
    assert (usual.folder / "per_query.csv").read_bytes() == (
        tmp_path / "words" / "per_query.csv"
    ).read_bytes()
    manifest = json.loads((tmp_path / "vectors" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["hardware"]["cores"] >= 1

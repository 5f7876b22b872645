"""Faiss multiplies with kernels that suit the processor, where its OpenBLAS does not know it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from inside import pretend

from pipeline.core import kernels
from pipeline.search import faiss_library

UNKNOWN_PROCESSOR = """
import ctypes, importlib.metadata, json, os, subprocess, sys

# the library of Faiss's wheel, loaded as on a processor that it does not know
libraries = [file.locate() for file in importlib.metadata.files("faiss-cpu") if ".libs" in str(file)]
for name in ("quadmath", "gfortran", "gomp", "openblas"):
    for path in libraries:
        if name in str(path):
            ctypes.CDLL(str(path))
if not sys.argv[1:]:
    del os.environ["OPENBLAS_CORETYPE"]
os.environ.pop("OMP_NUM_THREADS", None)

import numpy
from pipeline.core.kernels import loaded_kernels

def cores():
    return {each.library: each.core for each in loaded_kernels()}

before = cores()
from pipeline.search.faiss_library import faiss, products_agree

index = faiss.IndexFlatIP(8)
index.add(numpy.eye(8, dtype=numpy.float32))
rows = index.search(numpy.repeat(numpy.eye(8, dtype=numpy.float32), 4096, axis=0), 1)[1]
child = [sys.executable, "-c", "import os; print(os.environ.get('OPENBLAS_CORETYPE', ''))"]
print(json.dumps({
    "before": before,
    "after": cores(),
    "found": bool((rows[:, 0] == numpy.arange(8 * 4096) // 4096).all()) and products_agree(),
    "child": subprocess.run(child, capture_output=True, text=True).stdout.strip(),
}))
"""


def of_unknown_processor(*arguments: str) -> dict[str, dict[str, str]]:
    """Which kernels a process uses whose Faiss starts with those for the Pentium 4."""
    done = subprocess.run(
        [sys.executable, "-c", UNKNOWN_PROCESSOR, *arguments],
        env=os.environ | {"OPENBLAS_CORETYPE": "Prescott"},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_it_takes_the_kernels_of_the_processor_for_itself_alone() -> None:
    kept = of_unknown_processor()
    assert kept["before"]["Faiss"] == "Prescott"
    assert kept["after"] == kept["before"] | {"Faiss": kernels.suited_core() or "Prescott"}
    assert (kept["found"], kept["child"]) == (True, "")


def test_a_users_choice_stands() -> None:
    kept = of_unknown_processor("chosen by the user")
    assert kept["before"]["Faiss"] == kept["after"]["Faiss"] == "Prescott"
    assert (kept["found"], kept["child"]) == (True, "Prescott")


def test_kernels_that_multiply_wrongly_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def faiss_core() -> str:
        return next(each.core for each in kernels.loaded_kernels() if each.library == "Faiss")

    before = faiss_core()
    tried = []
    monkeypatch.delenv(faiss_library.VARIABLE, raising=False)
    monkeypatch.setattr(kernels, "is_outdated", lambda core: True)
    monkeypatch.setattr(kernels, "suited_core", lambda: "Prescott")
    monkeypatch.setattr(faiss_library, "products_agree", lambda: tried.append(faiss_core()))
    faiss_library.use_suited_kernels()
    assert (tried, faiss_core()) == (["Prescott"], before)
    assert faiss_library.VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("flags", "core", "outdated"),
    [
        ({*kernels.AVX512, "avx2", "fma"}, "SkylakeX", ["Prescott", "Katmai", "Haswell", "Sandybridge"]),
        ({"avx2", "fma", "avx512f"}, "Haswell", ["Prescott", "Katmai", "Sandybridge"]),
        ({"asimddp", "sve"}, None, []),
        (set(), None, []),
    ],
)
def test_kernels_are_judged_by_the_processors_features(
    flags: set[str], core: str | None, outdated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, flags=flags)
    names = ["Prescott", "Katmai", "Haswell", "Zen", "SkylakeX", "SapphireRapids", "Sandybridge"]
    assert kernels.suited_core() == core
    assert {name for name in names if kernels.is_outdated(name)} == set(outdated)


def test_faiss_is_loaded_in_one_place(root: Path) -> None:
    importing = re.compile(r"^\s*(?:import faiss|from faiss)\b", re.MULTILINE)
    files = [path for path in (root / "pipeline").rglob("*.py") if importing.search(path.read_text("utf-8"))]
    assert [path.name for path in files] == ["faiss_library.py"]

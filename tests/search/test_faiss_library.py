"""Faiss multiplies with kernels that suit the processor, and importing it computes nothing."""

import importlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from inside import pretend

from pipeline.core import machine
from pipeline.search import faiss_library

PROCESSORS = {
    "AVX-512": {*faiss_library.AVX512, "avx2", "fma"},
    "AVX2": {"avx2", "fma"},
    "no AVX2": {"sse2"},
}
"""Features of a processor that Faiss's OpenBLAS does not know, of one that it knows, and of an old one."""

IMPORTING = """
import json, os, sys
threads = len(os.listdir("/proc/self/task"))
from pipeline.core import kernels, machine
machine.processor_flags = lambda: frozenset(json.loads(sys.argv[1]))
from pipeline.search.faiss_library import faiss
import subprocess
child = [sys.executable, "-c", "import os; print(os.environ.get('OPENBLAS_CORETYPE', ''))"]
index = faiss.IndexFlatIP(2)
print(json.dumps({
    "threads": len(os.listdir("/proc/self/task")) - threads,
    "core": next(each.core for each in kernels.loaded_kernels() if each.library == "Faiss"),
    "child": subprocess.run(child, capture_output=True, text=True).stdout.strip(),
}))
"""


def importing(flags: set[str], **environment: str) -> dict[str, str | int]:
    """The kernels of Faiss in a process on a processor with these features, and the threads it starts."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, json.dumps(sorted(flags))],
        env=inherited | {"OPENBLAS_NUM_THREADS": "1"} | environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("processor", "core"), [("AVX-512", "SkylakeX"), ("AVX2", "Haswell")])
def test_it_takes_the_kernels_of_the_processor_for_itself_alone(processor: str, core: str) -> None:
    if not machine.processor_flags().issuperset(PROCESSORS[processor]):
        pytest.skip(f"this processor has no {processor}")
    assert importing(PROCESSORS[processor]) == {"threads": 0, "core": core, "child": ""}


def test_a_users_choice_stands() -> None:
    oldest = {"x86_64": "Prescott"}.get(platform.machine(), "ARMV8")
    chosen = importing(PROCESSORS["AVX-512"], OPENBLAS_CORETYPE=oldest)
    assert chosen == {"threads": 0, "core": oldest, "child": oldest}


def test_without_avx2_openblas_chooses() -> None:
    chosen = importing(PROCESSORS["no AVX2"])
    assert (chosen["threads"], chosen["child"]) == (0, "")


@pytest.mark.parametrize(
    ("flags", "core"),
    [
        (PROCESSORS["AVX-512"], "SkylakeX"),
        ({"avx2", "fma", "avx512f"}, "Haswell"),
        ({"asimddp", "sve"}, None),
        (set(), None),
    ],
)
def test_kernels_are_chosen_by_the_processors_features(
    flags: set[str], core: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, flags=flags)
    assert core == importlib.reload(faiss_library).SUITED


def test_faiss_is_loaded_in_one_place(root: Path) -> None:
    importing = re.compile(r"^\s*(?:import faiss|from faiss)\b", re.MULTILINE)
    files = [path for path in (root / "pipeline").rglob("*.py") if importing.search(path.read_text("utf-8"))]
    assert [path.name for path in files] == ["faiss_library.py"]

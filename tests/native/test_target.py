"""What Numba compiles for, where the environment says something else than the processor at hand."""

import subprocess
import sys

import pytest
from workplaces import benchmarco

PROGRAM = """
import numpy as np
from numba import njit
from pipeline.core import machine
from pipeline.native.registers import LANES, load, store
@njit
def copy(a, b):
    store(b, 0, load(a, 0))
a, b = np.arange(LANES, dtype=np.float32), np.zeros(LANES, np.float32)
copy(a, b)
print(LANES, (a == b).all(), machine.has_vnni(), machine.has_amx(), machine.float_kernels())
"""


@pytest.mark.parametrize("variable", ["NUMBA_CPU_NAME=generic", "NUMBA_ENABLE_AVX=0"])
def test_kernels_use_what_the_compiler_s_target_has(variable: str) -> None:
    """Instructions of the processor at hand ended in an error of LLVM; some emulators are `generic` too."""
    done = subprocess.run(
        ["env", variable, sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lanes, *rest, kernels, _, _ = done.stdout.split()
    assert rest == ["True", "False", "False"]
    assert int(lanes) == int(kernels) == 8


def test_a_run_where_nothing_may_be_compiled_is_refused_before_it_begins() -> None:
    command = ("run", "--model", "all-minilm-l6-v2", "--data", "sample")
    said = benchmarco(*command, code=2, NUMBA_DISABLE_JIT="1").output
    assert "unset NUMBA_DISABLE_JIT" in said.replace("Unset", "unset")


def test_the_manifest_names_the_variables_that_choose_kernels() -> None:
    program = "from pipeline.core import machine; print(machine.hardware()['variables'])"
    done = subprocess.run(
        ["env", "ATEN_CPU_CAPABILITY=default", sys.executable, "-c", program],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "'ATEN_CPU_CAPABILITY': 'default'" in done.stdout

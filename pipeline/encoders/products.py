"""How fast each backend multiplies matrices on this machine, measured in a fraction of a second each.

The matrices have the shape of a feed-forward layer of BERT-base on a batch of 512 tokens. What is measured is
the library call that the backend's models spend most of their time in, with the threads that a run would use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core import machine, openvino_runtime
from pipeline.core.records import Float32

if TYPE_CHECKING:
    from pipeline.encoders.native.layers import Linear

TOKENS, WIDTH, INNER = 512, 768, 3072
OPERATIONS = 2 * TOKENS * WIDTH * INNER  # a multiplication and an addition for each pair of numbers
SECONDS = 0.12  # spent on each measurement, at least

FEATURES = (
    "avx2", "fma", "avx512f", "avxvnni", "avx512vnni", "avx512bf16", "avx512fp16", "amx-int8", "amx-bf16",
    "neon", "dotprod", "i8mm", "bf16", "sve",
)  # fmt: skip
"""Features of processors, by LLVM's names, that decide how fast the backends multiply."""


@dataclass(frozen=True)
class Speed:
    """How fast one backend multiplies matrices.

    Attributes:
        backends: The values of `model.backend` that compute so.
        precision: The number format.
        device: `cpu`, or `cuda:0`.
        gflops: 10^9 multiplications and additions a second; None if it does not run.
        problem: Why it does not run.
        missing: The module that it lacks; "" if it lacks none.
    """

    backends: tuple[str, ...]
    precision: str
    device: str
    gflops: float | None
    problem: str = ""
    missing: str = ""


def processor_features() -> list[str]:
    """Those of `FEATURES` that this processor has."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return [name for name in FEATURES if features.get(name)]


def measure_speeds() -> list[Speed]:
    """The speed of every backend, the CPU first; one that fails says why."""
    return [
        *_measured(("flag", "sentence-transformers"), ("fp32", "bf16"), _torch),
        *_measured(("openvino",), ("fp32", "bf16"), _openvino),
        *_measured(("native",), ("int16",), _native),
    ]


Maker = Callable[[str], Iterator[tuple[str, Callable[[], object], int]]]
"""For a precision gives the devices that compute in it, each with a product and how many it computes."""


def _measured(backends: tuple[str, ...], precisions: tuple[str, ...], make: Maker) -> Iterator[Speed]:
    """The speed of one library in each precision, on each of its devices."""
    for precision in precisions:
        try:
            for device, multiply, products in make(precision):
                yield Speed(backends, precision, device, _gflops(multiply, products))
        except ModuleNotFoundError as error:
            yield Speed(backends, precision, "cpu", None, str(error), error.name or "")
        except Exception as error:  # a broken installation may raise anything
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            yield Speed(backends, precision, "cpu", None, problem)


def _gflops(multiply: Callable[[], object], products: int) -> float:
    """The highest of the speeds measured, after one call that is not counted."""
    multiply()
    ends, fastest = time.perf_counter() + SECONDS, 0.0
    while not fastest or time.perf_counter() < ends:
        started = time.perf_counter()
        multiply()
        fastest = max(fastest, products * OPERATIONS / (time.perf_counter() - started) / 1e9)
    return round(fastest, 1)


def _matrices() -> tuple[Float32, Float32]:
    """The tokens [TOKENS, WIDTH] and the weights [INNER, WIDTH]."""
    random = np.random.default_rng(0)
    return (
        random.standard_normal((TOKENS, WIDTH), np.float32),
        random.standard_normal((INNER, WIDTH), np.float32),
    )


def _torch(precision: str) -> Iterator[tuple[str, Callable[[], object], int]]:
    """PyTorch's product, on the CPU and on the first GPU."""
    import torch

    for device in ("cpu", "cuda:0") if torch.cuda.is_available() else ("cpu",):
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        tokens, weights = (torch.from_numpy(each).to(device, kind) for each in _matrices())

        def multiply(tokens: Any = tokens, weights: Any = weights) -> None:
            torch.nn.functional.linear(tokens, weights)
            if tokens.is_cuda:
                torch.cuda.synchronize()

        yield device, multiply, 1


def _openvino(precision: str) -> Iterator[tuple[str, Callable[[], object], int]]:
    """OpenVINO's product; in bf16 only where the processor has it."""
    if precision == "bf16" and not openvino_runtime.has_bfloat16():
        return
    openvino = openvino_runtime.import_openvino()
    from openvino import opset13

    tokens, weights = _matrices()
    given = opset13.parameter(tokens.shape, np.float32)
    product = opset13.matmul(given, opset13.constant(weights), False, True)
    hint = {"INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision]}
    compiled = openvino.Core().compile_model(openvino.Model([product], [given]), "CPU", hint)
    request = compiled.create_infer_request()
    yield "cpu", lambda: request.infer({0: tokens}), 1


def _native(precision: str) -> Iterator[tuple[str, Callable[[], object], int]]:
    """The native backend's product: each thread computes one of its own, as with a model."""
    from pipeline.encoders.native.heads import project

    tokens, weights = _matrices()
    layer = packed_layer(weights)
    threads = machine.threads_allowed() or machine.cores()
    pool = ThreadPoolExecutor(threads)
    yield "cpu", lambda: list(pool.map(lambda _: project(tokens, layer), range(threads))), threads
    pool.shutdown()


def packed_layer(weights: Float32) -> Linear:
    """Weights float32 [m, k] as the one layer that `heads.project` applies, without a bias."""
    from pipeline.encoders.native.layers import Linear
    from pipeline.kernels.int16 import pack_rows

    pairs, factors = pack_rows(weights)
    return Linear(pairs[None], factors[None], np.zeros((1, len(weights)), np.float32))

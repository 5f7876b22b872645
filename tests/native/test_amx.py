"""Products by AMX: NumPy's, VNNI's bit by bit, and the way without it where Linux refuses it."""

import os
import subprocess
import sys
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from numba import njit
from transformers import BertConfig, BertModel

from pipeline.core import machine
from pipeline.native import amx, layers, vectors
from pipeline.native.forward import largest_logits, project
from pipeline.native.integers import BLOCK, PANEL, pack_blocks
from pipeline.native.layers import MOST_TOKENS, LayerNorm, Linear

with_amx = pytest.mark.skipif(not machine.has_amx(), reason="this machine has no AMX")


def layer_of(weights: Any, bias: Any) -> Linear:
    pairs, factors = pack_blocks(weights)
    return Linear(pairs[None], factors[None], bias[None])


def pairs_of(weights: Any) -> Any:
    """int16 [n, k] as a layer has them: panel after panel of pairs, int32 [1, n * k / 2]."""
    n, k = weights.shape
    panels = weights.reshape(n // PANEL, PANEL, k // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels).view(np.int32).reshape(1, -1)


@njit
def multiply(layer: Any, panel: int, k: int, ones: Any, space: Any, out: Any) -> None:
    amx.begin(layer.planes)
    layers.multiply(layer.pairs, layer.planes, 0, panel, k, ones, np.zeros_like(ones), False, space, out)
    amx.end(layer.planes)


@pytest.mark.parametrize(("n", "k"), [(64, 64), (128, 384), (192, 64)])
def test_planes_hold_every_number_once_where_its_tile_reads_it(n: int, k: int) -> None:
    whole = np.random.default_rng(0).integers(-32768, 32768, (n, k)).astype(np.int16)
    planes = amx.panels_to_planes(pairs_of(whole), k)
    # [strip of columns, tile of k, row of four k, column, one of four]
    high, low = (plane.reshape(n // 16, k // 64, 16, 16, 4) for plane in planes)
    found = (high.astype(np.int8).astype(int) * 256 + low).transpose(0, 3, 1, 2, 4).reshape(n, k)
    assert (found == whole).all()


@with_amx
@pytest.mark.parametrize("largest", [200, 32_768])
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 33, 96])
@pytest.mark.parametrize(("k", "n"), [(64, 64), (384, 1536), (1536, 384), (448, 128), (3072, 64)])
def test_sums_are_numpy_s(rows: int, k: int, n: int, largest: int) -> None:
    """Of int16 as they come, whose blocks pass an int32 and wrap around, too, and exact ones below 2^24."""
    generator = np.random.default_rng(1)
    x, weights = (generator.integers(-largest, largest, (m, k)).astype(np.int16) for m in (MOST_TOKENS, n))
    x[0], weights[0] = -largest, -largest
    layer = Linear(pairs_of(weights), *np.ones((2, 1, n), np.float32)).on_tiles()
    tiles = x.view(np.uint8).reshape(MOST_TOKENS // 16, 16, k // 64, 64, 2).transpose(4, 0, 2, 1, 3)
    space = layers.workspace(k, n)
    space.factors[:] = 1
    space.high[:], space.low[:] = tiles[1].reshape(-1), tiles[0].reshape(-1)
    expected = np.zeros((rows, n), np.float32)
    for start in range(0, k, BLOCK):
        left, right = (part[:, start : start + BLOCK].astype(np.int64) for part in (x[:rows], weights))
        expected += (left @ right.T).astype(np.int32).astype(np.float32)
    for panel in range(0, n, PANEL):
        out = np.full((rows, PANEL), np.nan, np.float32)
        multiply(layer, panel, k, np.ones(PANEL, np.float32), space, out)
        assert (out == expected[:, panel : panel + PANEL]).all()


@with_amx
@pytest.mark.parametrize("tokens", [1, 96, 131])
@pytest.mark.parametrize(("k", "n"), [(64, 64), (384, 1536), (1536, 384), (768, 192)])
def test_layers_and_logits_are_vnni_s_bit_by_bit(tokens: int, k: int, n: int) -> None:
    generator = np.random.default_rng(2)
    x, weights = (generator.standard_normal((m, k)).astype(np.float32) for m in (tokens, n))
    layer = layer_of(weights, generator.standard_normal(n).astype(np.float32))
    assert (project(x, layer.on_tiles()) == project(x, layer)).all()
    first = layer_of(x[:1].repeat(k, 0), np.ones(k, np.float32))
    norm = LayerNorm(*np.ones((2, 1, k), np.float32))
    owners = np.sort(generator.integers(0, 3, tokens))
    vnni, tiles = (
        largest_logits(x, owners, 3, *given, k, np.float32(1e-6))
        for given in ((first, norm, layer), (first.on_tiles(), norm, layer.on_tiles()))
    )
    assert (vnni == tiles).all()


REFUSE = """
import ctypes, struct, sys
libc = ctypes.CDLL(None)
# a filter of system calls, as containers have: arch_prctl with ARCH_REQ_XCOMP_PERM fails, all else passes
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, 158), (0x20, 0, 0, 16), (0x15, 0, 1, 0x1023), (6, 0, 0, 0x50001),
         (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
"""
ENCODE = """
from pipeline.core import machine
from pipeline.native.vectors import PackedModel
import numpy as np, sys
from pathlib import Path
network = PackedModel(Path(sys.argv[1]), "mean")
ids = np.random.default_rng(0).integers(1, 100, (5, 40))
print(machine.has_amx(), network.vectors(ids, np.ones_like(ids)).tobytes().hex())
"""


HIDE = """
import llvmlite.binding as llvm
features = llvm.get_host_cpu_features()
for name in features:
    features[name] &= not name.startswith(%s)
llvm.get_host_cpu_features = lambda: features
from pipeline.core import machine
machine.has_amx = lambda: False
"""


def test_vectors_have_the_same_bits_on_every_processor(tmp_path: Any) -> None:
    """LLVM writes other code for others, with other registers and instructions, and AMX may be refused."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
    body = BertModel(BertConfig(**sizes, num_hidden_layers=2, initializer_range=0.3))
    np.savez(tmp_path / "w.npz", **vectors.network_arrays(body))
    features = llvm.get_host_cpu_features().flatten()
    other = {"NUMBA_CPU_NAME": "znver4", "NUMBA_CPU_FEATURES": features}
    no_vnni, avx2 = (HIDE % names for names in ('("avx512vnni", "avxvnni")', '("avx512",)'))
    ways = [("", {}), ("", other), (no_vnni, {}), (avx2, {})]
    ways += [(REFUSE, {})] if machine.has_amx() else []
    said = [
        subprocess.run(
            [sys.executable, "-c", before + ENCODE, str(tmp_path / "w.npz")],
            capture_output=True, text=True, check=True, env={**os.environ, **environment},
        ).stdout.split()
        for before, environment in ways
    ]  # fmt: skip
    rows = [np.frombuffer(bytes.fromhex(vectors), np.float32) for _, vectors in said]
    narrow = ways.index((avx2, {}))  # half as many numbers in a register: sums, then int16, round otherwise
    assert np.abs(rows.pop(narrow) - rows[0]).max() < 1e-3
    assert all((others == rows[0]).all() for others in rows[1:])
    assert [used for used, _ in said[2:]] == ["False"] * len(said[2:])

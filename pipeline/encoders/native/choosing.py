"""The choice of which linear layers of a network are computed in int8, and which in int16.

All are in int8, if the vectors of passages of the collection stay close to those of fp32. If they do not,
each layer is tried alone, and those that harm most for their size are int16, as many as it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import machine
from pipeline.core.records import Array, Float32, Float64, Int32
from pipeline.encoders.native.layers import Linear
from pipeline.encoders.native.mixed import MixedLinear
from pipeline.encoders.native.packed_model import PackedModel
from pipeline.encoders.native.reference import LINEAR, Fp32Model
from pipeline.encoders.native.rounding import Int8Layer, rounded

TOKENS = 32_000  # about, of all passages

Place = tuple[str, int]
"""A kind of linear layer, and the number of a layer."""


class Mixture(NamedTuple):
    """A network in int8 and int16.

    Attributes:
        arrays: The arrays of its linear layers, by the names that `PackedNetwork` reads.
        narrow: How many of its linear layers are int8.
        layers: How many there are.
        lowest: The lowest cosine of a passage's vector and that of fp32.
        passages: How many were compared.
    """

    arrays: dict[str, Array]
    narrow: int
    layers: int
    lowest: float
    passages: int


def mixture(weights: Path, pooling: str, tokens: list[Int32], goal: float) -> Mixture:
    """Make int8 layers of a packed model, and choose among them.

    Args:
        weights: The `.npz` of the model in int16, with the matrices in fp32 beside it.
        pooling: As in `Model`.
        tokens: Token ids of passages. The weights are rounded for every other one, and the choice is made on
            the rest.
        goal: The lowest cosine that the vector of a passage may have.
    """
    step = -(-sum(map(len, tokens)) // TOKENS)
    tokens = [ids for ids in tokens[::step] if len(ids)]
    layers, vectors = _Observed(weights, pooling).int8_layers(tokens)
    kept = slice(1 if len(tokens) > 1 else 0, None, 2)
    trial = _Trial(PackedModel(weights, pooling), layers, tokens[kept], vectors[kept])
    narrow = _chosen(trial, goal)
    lowest = float(trial.cosines(narrow).min())
    arrays = {
        f"{kind}.{field}": array
        for kind in LINEAR
        for field, array in trial.mixed(kind, narrow)._asdict().items()
    }
    return Mixture(arrays, len(narrow), len(trial.places), lowest, len(trial.tokens))


def _chosen(trial: _Trial, goal: float) -> set[Place]:
    """The layers to compute in int8: the fewest are left out with which the goal is reached."""
    if trial.cosines(set(trial.places)).min() >= goal:
        return set(trial.places)
    harms = {place: (1 - trial.cosines({place})).mean() / trial.size(place) for place in trial.places}
    order = sorted(trial.places, key=lambda place: harms[place])
    few, many = 0, len(order)  # the goal is reached with the first, and not with the second
    while many - few > 1:
        middle = (few + many) // 2
        if trial.cosines(set(order[:middle])).min() >= goal:
            few = middle
        else:
            many = middle
    return set(order[:few])


class _Observed(Fp32Model):
    """The network in fp32, which adds up the products of all pairs of inputs of its linear layers."""

    observes = False
    moments: dict[str, Float64]

    def int8_layers(self, tokens: Sequence[Int32]) -> tuple[dict[Place, Int8Layer], Float32]:
        """All layers in int8, made for every other text, and the vectors of all texts."""
        from threadpoolctl import ThreadpoolController

        libraries = ThreadpoolController()
        states, made = [self._embedded(ids) for ids in tokens], {}
        count = sum(map(len, tokens[::2]))
        for layer in range(self.layers):
            self.moments = {}
            with libraries.limit(limits=1, user_api="blas"):  # a text is too short for more threads
                for number, state in enumerate(states):
                    self.observes = number % 2 == 0
                    states[number] = self._layer(state, layer)
            self.moments["query"] = self.moments["key_value"]
            for kind in LINEAR:
                weights = self.matrices[kind][layer]
                first = len(weights) // 2 if kind == "key_value" else 0
                made[kind, layer] = rounded(weights, self.moments[kind] / count, first)
        return made, np.stack([self._finished(state, ids) for state, ids in zip(states, tokens, strict=True)])

    def _linear(self, kind: str, x: Float32, layer: int) -> Float32:
        if self.observes and kind != "query":  # which has the inputs of `key_value`
            self.moments[kind] = self.moments.get(kind, 0.0) + (x.T @ x).astype(np.float64)
        return super()._linear(kind, x, layer)


class _Trial:
    """Passages on which a network is computed with some of its layers in int8."""

    def __init__(
        self, network: PackedModel, layers: dict[Place, Int8Layer], tokens: list[Int32], vectors: Float32
    ) -> None:
        self.network, self.layers, self.tokens, self.vectors = network, layers, tokens, vectors
        self.places = sorted(layers)
        self.plain: dict[str, Linear] = {kind: getattr(network.weights, kind) for kind in LINEAR}

    def size(self, place: Place) -> int:
        """How many weights a layer has."""
        kind, layer = place
        return len(self.plain[kind].pairs[layer])

    def mixed(self, kind: str, narrow: set[Place]) -> MixedLinear:
        """One kind of linear layer, of which some are int8."""
        plain = self.plain[kind]
        count = len(plain.pairs)
        is_narrow = np.array([(kind, layer) in narrow for layer in range(count)])
        ours = [self.layers[kind, layer] for layer in range(count)]
        integers = [own.integers if is_narrow[n] else plain.pairs[n] for n, own in enumerate(ours)]
        factors = [own.factors if is_narrow[n] else plain.factors[n] for n, own in enumerate(ours)]
        return MixedLinear(
            np.concatenate(integers),
            np.concatenate([[0], np.cumsum([len(each) for each in integers])]),
            is_narrow,
            np.stack(factors),
            plain.bias,
            np.stack([own.scale for own in ours]),
            np.stack([own.sums for own in ours]),
        )

    def cosines(self, narrow: set[Place]) -> Float64:
        """The cosine of each passage's vector and that of fp32, float64 [passages]."""
        own: dict[str, Any] = {kind: self.mixed(kind, narrow) for kind in LINEAR}
        self.network.weights = self.network.weights._replace(**own)
        with ThreadPoolExecutor(machine.threads_allowed() or machine.cores()) as threads:
            found = np.stack(list(threads.map(self._vector, self.tokens))).astype(np.float64)
        expected = self.vectors.astype(np.float64)
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        cosines: Float64 = (found * expected).sum(axis=1) / np.maximum(lengths, 1e-30)
        return cosines

    def _vector(self, ids: Int32) -> Float32:
        row = ids.astype(np.int64)[None]
        vector: Float32 = self.network.vectors(row, np.ones_like(row))[0]
        return vector

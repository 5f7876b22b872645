"""int8 with the native backend: arithmetic, the rounding of weights, what is chosen, and what shapes that."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.config import BACKENDS
from pipeline.core.errors import InputError
from pipeline.core.progress import silent
from pipeline.core.records import Float32
from pipeline.data.collection_files import open_texts
from pipeline.encoders import CalibrationCorpus, Usage, calibration, open_encoder, prepared_keys, resolve
from pipeline.encoders.native import backend, int8_model, mixed, prepared
from pipeline.encoders.native.layers import BLOCK
from pipeline.encoders.native.mixed import MixedLinear
from pipeline.encoders.native.rounding import Int8Layer, rounded
from pipeline.kernels.int8 import LONGEST, in_panels, row_factors
from pipeline.kernels.int16 import PANEL, Workspace
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import unit_vectors


def whole_numbers(layer: Int8Layer, n: int) -> Any:
    """The weights of a layer as int64 [n, k], in their own order again."""
    panels = layer.integers.view(np.int8).reshape(n // PANEL, -1, PANEL, 4)
    return panels.transpose(0, 2, 1, 3).reshape(n, -1).astype(np.int64)


def layer_of(x: Float32, layer: Int8Layer, bias: Float32, gelu: bool = False) -> Float32:
    """What `int8_linear` makes of x, with a workspace that others have used."""
    (rows, k), n = x.shape, len(bias)
    stacked = MixedLinear(
        layer.integers, np.array([0, len(layer.integers)]), np.array([True]), layer.factors[None],
        bias[None], layer.scale[None], layer.sums[None],
    )  # fmt: skip
    size = BLOCK * max(k, n)
    space = Workspace(np.full(size, 30_000, np.int16), np.empty(BLOCK, np.float32), np.empty(size, np.int32))
    out = np.empty((rows, n), np.float32)
    mixed.int8_linear(x, stacked, 0, gelu, space, out)
    return out


def nearest(weights: Float32) -> Int8Layer:
    """Weights rounded each to the nearest number."""
    factors = row_factors(weights)
    whole = np.rint(weights / factors[:, None]).astype(np.int8)
    scale = np.ones(weights.shape[1], np.float32)
    return Int8Layer(in_panels(whole), factors, scale, whole.sum(axis=1, dtype=np.int32))


@pytest.mark.parametrize("rows", [1, 7, 96])
@pytest.mark.parametrize(("k", "n"), [(64, 128), (1536, 64)])
def test_an_int8_layer_is_the_product_of_whole_numbers(rows: int, k: int, n: int) -> None:
    generator = np.random.default_rng(0)
    x = (generator.standard_normal((rows, k)) + generator.standard_normal((rows, 1))).astype(np.float32)
    layer = nearest(generator.standard_normal((n, k)).astype(np.float32))
    scale = np.exp(generator.standard_normal(k)).astype(np.float32)
    bias = generator.standard_normal(n).astype(np.float32)
    scaled = (x * scale).astype(np.float64)
    low, high = np.minimum(scaled.min(axis=1), 0), np.maximum(scaled.max(axis=1), 0)
    step = ((high - low) / 254)[:, None]
    zero = np.rint(-low[:, None] / step)
    bytes_ = np.floor(scaled / step + zero + 0.5)
    assert bytes_.min() >= 0
    assert bytes_.max() <= 255
    sums = (bytes_ - zero).astype(np.int64) @ whole_numbers(layer, n).T
    exact = sums * step * layer.factors + bias
    most = (
        2 * step * layer.factors * 127
    )  # a few numbers lie between two bytes, and go to the other in float32
    found = layer_of(x, layer._replace(scale=scale), bias)
    assert (np.abs(found - exact) < most).all()
    assert np.median(np.abs(found - exact)) < 1e-4
    curved = exact * 0.5 * (1 + np.vectorize(math.erf)(exact / math.sqrt(2)))
    assert (np.abs(layer_of(x, layer._replace(scale=scale), bias, gelu=True) - curved) < 1.2 * most).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("k", [64, 4096, LONGEST // PANEL * PANEL])
def test_the_largest_sum_there_can_be_fits_in_int8(k: int, sign: int) -> None:
    row = np.full((1, k), 7.5 * sign, np.float32)
    weights = np.full((PANEL, k), 0.01, np.float32)
    weights[1::2] *= -1
    expected = sign * 0.075 * k * np.tile([1, -1], PANEL // 2)
    assert layer_of(row, nearest(weights), np.zeros(PANEL, np.float32))[0] == pytest.approx(
        expected, rel=1e-5
    )
    assert (layer_of(row * 0, nearest(weights), np.ones(PANEL, np.float32)) == 1).all()


def test_weights_are_rounded_for_the_inputs_that_there_are() -> None:
    """Of inputs that go together, and are unlike in size, outputs change less than by the nearest numbers."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((500, 40)) @ generator.standard_normal((40, 128))
    x = (x * np.where(np.arange(128) % 16, 1, 20)).astype(np.float32)
    weights = generator.standard_normal((64, 128)).astype(np.float32)
    exact = x.astype(np.float64) @ weights.T

    def error(layer: Int8Layer) -> float:
        made = whole_numbers(layer, 64) * layer.factors[:, None].astype(np.float64)
        return float((((x * layer.scale) @ made.T - exact) ** 2).mean())

    made = rounded(weights, x.T.astype(np.float64) @ x / len(x))
    assert error(made) < 0.3 * error(nearest(weights))
    assert (made.sums == whole_numbers(made, 64).sum(axis=1)).all()


def encoded(
    name: Path | str, corpus: CalibrationCorpus, store: Store, precision: str = "int8", **more: Any
) -> Float32:
    settings = BACKENDS.make(name=str(name), backend="native", precision=precision, **more)
    encoder = open_encoder(settings, replace(resolve(settings), corpus=corpus), store)
    texts = open_texts(corpus.path).texts.slice(0, 60).to_pylist()
    with silent("", None, "") as bar:
        return unit_vectors(encoder.encode(texts, "passages", Usage(), bar))


def facts(name: Path | str, corpus: CalibrationCorpus, store: Store) -> dict[str, Any]:
    settings = BACKENDS.make(name=str(name), backend="native", precision="int8")
    prepared = settings.prepare(replace(resolve(settings), corpus=corpus), store)
    found: dict[str, Any] = prepared.facts
    return found


@pytest.fixture(scope="module")
def folder(bge_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT whose layers change their input much, so that it matters how they are rounded."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("model")
    shutil.copytree(bge_folder, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    shape = BertConfig.from_pretrained(bge_folder, initializer_range=0.2)
    BertModel(shape).eval().save_pretrained(folder)
    return folder


def test_minilm_in_int8_is_close_to_int16(
    corpus: CalibrationCorpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SAMPLE", 16)
    found = encoded("all-minilm-l6-v2", corpus, store)
    assert (found * encoded("all-minilm-l6-v2", corpus, store, "int16")).sum(axis=1).min() > 0.999
    made = facts("all-minilm-l6-v2", corpus, store)
    assert made["products"] == 30
    assert made["int8_products"] > 15
    assert made["lowest_cosine"] >= int8_model.GOAL


def test_as_many_products_are_int16_as_the_goal_takes(
    folder: Path, corpus: CalibrationCorpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, made = encoded(folder, corpus, store, "int16"), []
    for goal in (lambda: 0.0, lambda: (1 + made[0]["lowest_cosine"]) / 2, lambda: 1.1):
        monkeypatch.setattr(int8_model, "GOAL", goal())
        made.append(facts(folder, corpus, store))
        found = encoded(folder, corpus, store)
        assert (encoded(folder, corpus, store, batch_size=7) == found).all()
        assert made[-1]["lowest_cosine"] >= goal() or not made[-1]["int8_products"]
    counts = [each["int8_products"] for each in made]
    assert counts[0] == 10 > counts[1] > counts[2] == 0
    assert 0.9 < made[0]["lowest_cosine"] < 0.9999
    assert (found == expected).all()


def test_a_text_that_int8_does_not_suit_ends_a_run(
    folder: Path, corpus: CalibrationCorpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "INT8_LIMIT", 1.0)
    with pytest.raises(InputError, match=r"in int8, .* Allowed: 1 or more. Set model\.precision to int16"):
        encoded(folder, corpus, store)


def test_what_shapes_the_choice_is_in_the_key(
    bge_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(identity: dict[str, Any], **settings: Any) -> str:
        config = BACKENDS.make(
            **{"name": str(bge_folder), "backend": "native", "precision": "int8", **settings}
        )
        calibration = CalibrationCorpus(identity, tmp_path)
        return prepared_keys(config, replace(resolve(config), corpus=calibration))["native"]

    here = {"a": 1}
    assert key(here) == key(here, query_max_length=64)
    others = [
        key({"a": 2}), key(here, precision="int16"), key(here, pooling="mean"),
        key(here, passage_instruction="passage: "), key(here, passage_max_length=64),
    ]  # fmt: skip
    for module, constant in (
        (int8_model, "INT8_SCHEMA"), (int8_model, "GOAL"), (calibration, "SAMPLE"), (prepared, "SCHEMA"),
    ):  # fmt: skip
        with monkeypatch.context() as changed:
            changed.setattr(module, constant, 99)
            others.append(key(here))
    assert len({key(here), *others}) == 10
    assert key(here, precision="int16") == key({"a": 2}, precision="int16")

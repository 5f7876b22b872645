"""The int8 model: what it is calibrated on shapes it, and what it needs is said."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from inside import calibration_texts
from workplaces import BAR

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.core import Texts
from pipeline.encoders import LIMITS, Usage, resolve
from pipeline.models import CalibrationCorpus
from pipeline.storage import Store, unit_vectors


def test_int8_is_close_to_fp32_and_not_it(
    bge_folder: Path,
    corpus: CalibrationCorpus,
    store: Store,
    passages: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def encode(precision: str) -> np.ndarray:
        config = BACKENDS.make(name=str(bge_folder), backend="openvino", precision=precision)
        encoder = resolve(config).calibrated_on(corpus).open(store)
        return unit_vectors(encoder.encode(passages[:100], "passages", Usage(), BAR))

    full, small = encode("fp32"), encode("int8")
    cosines = (full * small).sum(1)
    assert cosines.min() > 0.99
    assert cosines.max() < 0.99999999
    assert np.allclose(np.linalg.norm(small, axis=1), 1, atol=1e-3)
    monkeypatch.setitem(LIMITS, "int8", 1.0)
    with pytest.raises(InputError, match=r"in int8, .* Allowed: 1 or more. Set model\.precision to bf16"):
        encode("int8")


def test_other_passages_make_another_model(bge_folder: Path, tmp_path: Path) -> None:
    def key(corpus: CalibrationCorpus, **settings: object) -> str:
        config = BACKENDS.make(name=str(bge_folder), backend="openvino", precision="int8", **settings)
        opener = resolve(config).calibrated_on(corpus)
        return str(opener.conversion.recipe(opener.model).key)

    here, there = CalibrationCorpus({"a": 1}, tmp_path / "a"), CalibrationCorpus({"a": 1}, tmp_path / "b")
    assert key(here) == key(there)
    assert key(here) != key(CalibrationCorpus({"a": 2}, tmp_path / "a"))
    assert key(here) != key(here, passage_instruction="passage: ")
    assert key(here) != key(here, passage_max_length=64)
    assert key(here) == key(here, query_max_length=64)


def test_the_sample_is_drawn_evenly_and_always_the_same() -> None:
    numbers = pa.chunked_array([pa.array([str(row) for row in range(5000)])])
    drawn = [int(text) for text in calibration_texts(Texts(numbers, numbers))]
    assert len(drawn) == 256
    assert drawn == sorted(set(drawn))
    assert 2000 < np.mean(drawn) < 3000
    assert drawn == [int(text) for text in calibration_texts(Texts(numbers, numbers))]
    few = numbers.slice(0, 3)
    assert calibration_texts(Texts(few, few)) == ["0", "1", "2"]

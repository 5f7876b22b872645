"""What tests against other encoders share: passages, our vectors of them, and how close two are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from workplaces import BAR

from pipeline.config import BACKENDS
from pipeline.core.records import Embeddings, Float32, RaggedRows, Role
from pipeline.encoders import Usage, resolve
from pipeline.storage.store import Store
from pipeline.storage.vector_shards import read_rows

Encode = Callable[..., Float32]


@pytest.fixture(scope="session")
def few_texts(passages: list[str]) -> list[str]:
    """A few passages, and texts at the edges."""
    return [*passages[:12], "", "word", "Größe 數字 🙂", "long " * 700]


@pytest.fixture(scope="session")
def encode(tmp_path_factory: pytest.TempPathFactory) -> Encode:
    """Encodes texts as a config of these settings would."""
    store = Store(tmp_path_factory.mktemp("store"))

    def encode(texts: list[str], role: Role = "passages", **settings: Any) -> Any:
        config = BACKENDS.make(**{"backend": "flag", **settings, "name": str(settings["name"])})
        opener = resolve(config)
        vectors = opener.open(store).encode(texts, role, Usage(), BAR)
        if isinstance(vectors, RaggedRows):
            return vectors
        return read_rows(Embeddings((vectors,), opener.form(config)), 0, len(texts))

    return encode


@pytest.fixture(scope="session")
def lowest_cosine() -> Callable[[Any, Any], float]:
    """The lowest cosine between rows of two arrays."""

    def lowest(one: Any, two: Any) -> float:
        one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
        cosines = (one * two).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1))
        return float(cosines.min())

    return lowest

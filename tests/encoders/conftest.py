"""A store, a collection that models in int8 are calibrated on, and a server that is soon asked again."""

from __future__ import annotations

import pytest

from pipeline import data
from pipeline.config import SOURCES
from pipeline.data.collection_files import CORPUS
from pipeline.encoders import CalibrationCorpus
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def corpus(store: Store) -> CalibrationCorpus:
    """The sample's passages, as the data stage leaves them."""
    made = store.make(Recipe("data", {}), lambda draft: data.load(SOURCES.make(source="sample"), draft))
    return CalibrationCorpus({"sample": 1}, made.path(CORPUS))


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are sent again at once."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)

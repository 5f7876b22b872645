"""A store, builders of models, a collection to calibrate on, and a server that is soon asked again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workplaces import read_json

from pipeline import data
from pipeline.config import BACKENDS, SOURCES
from pipeline.encoders import Encoder, resolve
from pipeline.models import CalibrationCorpus
from pipeline.storage import Recipe, Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def opened() -> Callable[..., Encoder]:
    """Loads a model as a config with these settings would."""

    def load(store: Store, **settings: Any) -> Encoder:
        opener = resolve(BACKENDS.make(**{**settings, "name": str(settings["name"])}))
        encoder: Encoder = opener.open(store)
        return encoder

    return load


@pytest.fixture
def saved(bge_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a network into a folder that has the tokenizer of another; `described` goes to its config."""

    def save(network: Any, **described: object) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(bge_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        network.save_pretrained(folder)
        path = folder / "config.json"
        content = read_json(path)
        path.write_text(json.dumps({**content, **described}), encoding="utf-8")
        return folder

    return save


@pytest.fixture(scope="module")
def corpus(store: Store) -> CalibrationCorpus:
    """The sample's passages, as the data stage leaves them."""
    settings = SOURCES.make(source="sample")
    source = data.identify(settings).source
    made = store.make(Recipe("data", {}), lambda draft: data.load(source, settings, draft))
    return CalibrationCorpus({"sample": 1}, made.folder / "corpus.arrow")


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are sent again at once."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)

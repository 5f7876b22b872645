"""Fixtures of the data tests: a small collection, and `load` through a real store, here or from a hub."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer
from layouts import LAYOUTS, Plain

from pipeline.config import DataSettings
from pipeline.core.records import Collection
from pipeline.data import identify, load, open_collection
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store


@pytest.fixture(params=list(LAYOUTS))
def write_layout(request: pytest.FixtureRequest) -> Callable[[Path, Plain], DataSettings]:
    """Writes a collection in one layout; the test runs once for each."""
    return LAYOUTS[request.param]


@pytest.fixture
def plain() -> Plain:
    """Twelve passages, a third with a title; four queries, three of them judged."""
    return Plain(
        passages=[
            (f"p{row}", f"title {row}" if row % 3 == 0 else "", f"text of passage {row} – naïve ☃")
            for row in range(12)
        ],
        queries=[("q0", "first?"), ("q1", "second?"), ("q2", "never judged"), ("q3", "fourth?")],
        qrels=[("q0", "p1", 2), ("q3", "p11", 1), ("q1", "p0", 0), ("q0", "p0", 1), ("q1", "p7", 3)],
    )


class Loaded:
    """What `load` made, opened.

    Attributes:
        facts: The artifact's.
        passages, queries: The text of each id.
        qrels: (query, passage, grade) by ids, in stored order; ids of passages that the corpus lacks too.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.facts, self.folder = artifact.facts, artifact.folder
        made: Collection = open_collection(artifact)
        self.collection = made
        self.passages, self.queries = (
            dict(zip(texts.ids.to_pylist(), texts.texts.to_pylist(), strict=True))
            for texts in (made.passages, made.queries)
        )
        queries, passages = [*self.queries], [*self.passages, *made.missing_ids.to_pylist()]
        rows = zip(made.qrels.queries, made.qrels.passages, made.qrels.grades, strict=True)
        self.qrels = [(queries[query], passages[passage], int(grade)) for query, passage, grade in rows]


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[DataSettings], Loaded]:
    """Loads a collection through a real artifact store."""

    def make(config: DataSettings) -> Loaded:
        recipe = Recipe("data", dataclasses.asdict(identify(config)))
        store = Store(tmp_path / "store")
        return Loaded(store.make(recipe, lambda draft: load(config, draft), fresh=True))

    return make


FROM_HUB = """
import dataclasses, json, sys
from pathlib import Path
from pipeline.config import SOURCES
from pipeline.core.errors import InputError
from pipeline.data import identify, load
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store
made = []
for settings in json.loads(sys.argv[1]):
    try:
        config = SOURCES.make(**settings)
        identity = dataclasses.asdict(identify(config))
        Store(Path(sys.argv[2])).make(Recipe("data", identity), lambda draft: load(config, draft), fresh=True)
        made.append(identity)
    except InputError as error:
        made.append(str(error))
print(json.dumps(made))
"""


@pytest.fixture
def ask(hub_server: HubServer, tmp_path: Path) -> Callable[..., Any]:
    """Loads data sections in a fresh process that knows only this hub.

    It gives the identity of each collection and what was made of it, or the message that refused it.
    """

    def load_all(*sections: dict[str, Any], **environment: str) -> list[Any]:
        command = [sys.executable, "-c", FROM_HUB, json.dumps(sections), str(tmp_path / "store")]
        known = hub_server.environment(tmp_path / "home", **environment)
        done = subprocess.run(command, env=known, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        store = Store(tmp_path / "store")
        return [
            each if isinstance(each, str) else (each, Loaded(store.load(Recipe("data", each))))
            for each in json.loads(done.stdout)
        ]

    return load_all

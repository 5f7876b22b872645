"""Fixtures of the data tests: a small collection, and `load` through a real store, here or from a hub."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from data.hub_client import client_of
from hub_server import HubServer
from layouts import LAYOUTS, Plain

from pipeline.config import SOURCES, DataSettings
from pipeline.core import Collection
from pipeline.data import Identity, identify, load, open_collection
from pipeline.storage import Artifact, Recipe, Store


@pytest.fixture(params=list(LAYOUTS))
def write_layout(request: pytest.FixtureRequest) -> Callable[[Path, Plain], DataSettings]:
    """Writes a collection in one layout; the test runs once for each."""
    return LAYOUTS[request.param]


@pytest.fixture
def plain() -> Plain:
    """Twelve passages, a third with a title; four queries, three of them judged."""
    return Plain(
        passages=[
            (f"p{row}", f"title {row}" if row % 3 == 0 else "", f'"text" of passage {row}, – naïve ☃')
            for row in range(12)
        ],
        queries=[("q0", "first?"), ("q1", "second?"), ("q2", "never judged"), ("q3", "fourth?")],
        qrels=[("q0", "p1", 2), ("q3", "p11", 1), ("q1", "p0", 0), ("q0", "p0", 1), ("q1", "p7", 3)],
    )


class Loaded:
    """What `load` made, opened.

    Attributes:
        identity: Of its parts.
        facts: The artifact's.
        passages, queries: The text of each id.
        qrels: (query, passage, grade) by ids, in stored order; ids of passages that the corpus lacks too.
    """

    def __init__(self, identity: Identity, artifact: Artifact) -> None:
        self.identity, self.facts, self.folder = identity, artifact.facts, artifact.folder
        made: Collection = open_collection(artifact)
        self.collection = made
        self.passages, self.queries = (
            dict(zip(texts.ids.to_pylist(), texts.texts.to_pylist(), strict=True))
            for texts in (made.passages, made.queries)
        )
        queries, passages = [*self.queries], [*self.passages, *made.missing_ids.to_pylist()]
        rows = zip(made.qrels.queries, made.qrels.passages, made.qrels.grades, strict=True)
        self.qrels = [(queries[query], passages[passage], int(grade)) for query, passage, grade in rows]


def load_into(store: Store, config: DataSettings) -> Loaded:
    identity = identify(config)
    recipe = Recipe(
        "data", {"passages": identity.passages, "queries": identity.queries, "qrels": identity.qrels}
    )
    return Loaded(
        identity, store.make(recipe, lambda draft: load(identity.source, config, draft), fresh=True)
    )


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[DataSettings], Loaded]:
    """Loads a collection through a real artifact store."""
    return partial(load_into, Store(tmp_path / "store"))


@pytest.fixture(scope="session")
def slice_dl19(dl19: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """The real slice."""
    config = SOURCES.make(source="beir", path=str(dl19))
    return load_into(Store(tmp_path_factory.mktemp("dl19")), config)


@pytest.fixture
def hub(hub_server: HubServer, tmp_path: Path) -> Iterator[HubServer]:
    """A hub on this machine, the only one that the client in this process knows; its cache is empty."""
    with client_of(hub_server.url, tmp_path / "home" / "hub"):
        yield hub_server

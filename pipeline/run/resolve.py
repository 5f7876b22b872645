"""From a config to what runs: its models, stages and keys, known before anything is computed."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.config import Config
from pipeline.data.collection_files import CORPUS
from pipeline.registry import make_retriever
from pipeline.retrievers.retriever import COLLECTION, Identities, Retriever
from pipeline.retrievers.stage import Plan
from pipeline.run import plan
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store


class Resolved(NamedTuple):
    """What a config, its files and this machine decide.

    Attributes:
        config: The settings, with the backend that `auto` takes in place of `auto`.
        stages: In the order they are reported in, each after those that it needs.
        recipes: What shapes the artifact of each stage: its settings, and the keys of stages before it.
    """

    config: Config
    retriever: Retriever
    stages: Plan
    recipes: dict[str, Recipe]


def resolve(config: Config, store: Store, identities: Identities) -> Resolved:
    """Hash the data and the models of a config, and parse none of them.

    Raises:
        InputError: The data or a model cannot be found, or cannot be used so.
    """
    identity = identities.collection(config.data)
    collection = plan.collection_stage(config, identity)
    corpus = store.folder(collection.recipe({})).absolute() / CORPUS
    taken = identities.settle(config)
    retriever = make_retriever(taken, identities, identity, corpus)
    scores = plan.evaluate_stage(config, retriever)
    stages = {COLLECTION: collection, **retriever.plan(), plan.SCORES: scores}
    keys: dict[str, str] = {}
    recipes = {}
    for role, stage in stages.items():
        recipes[role] = stage.recipe(keys)
        keys[role] = recipes[role].key
    return Resolved(taken, retriever, stages, recipes)

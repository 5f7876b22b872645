"""The `auto` backend of rerankers: `native` where its scores agree with torch's, else `flag`."""

from __future__ import annotations

import logging
from typing import Any, Literal

from pipeline.config import RerankSettings
from pipeline.config.rerank import RERANKERS, FlagRerankSettings
from pipeline.rerankers.model import Reranker, UnsuitedError, settled
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)

SCHEMA = 1


class AutoRerankSettings(FlagRerankSettings):
    """The fastest backend here that gives FlagEmbedding's scores."""

    backend: Literal["auto"] = RerankSettings.narrowed("backend", "auto")
    precision: Literal["fp32"] = RerankSettings.narrowed(
        "precision", "fp32", doc="fp32; int16 counts as such where it gives the same scores"
    )

    def prepared_recipe(self, model: Reranker) -> Recipe | None:
        """The recipe of the choice; None where there is no choice, because only `flag` runs the model."""
        from pipeline.encoders.native.kernels import HAS_VNNI
        from pipeline.rerankers.packing import ARCHITECTURES

        if model.device != "cpu" or not HAS_VNNI or model.architecture not in ARCHITECTURES:
            return None
        native = self._as("native")
        packed = native.prepared_recipe(settled(model, native))
        return Recipe("choice", {"schema": SCHEMA, "native": packed.key})

    def taken(self, model: Reranker, store: Store) -> RerankSettings:
        """See `RerankSettings.taken`."""
        recipe = self.prepared_recipe(model)
        if recipe is None:
            return self._as("flag")
        choice, _ = store.make(recipe, lambda draft: (self._choose(model, store), {}))
        return self._as(choice.facts["backend"])

    def _choose(self, model: Reranker, store: Store) -> dict[str, Any]:
        native = self._as("native")
        try:
            native.prepare(settled(model, native), store)
        except UnsuitedError as error:
            log.warning("rerank.backend: flag for '%s', because %s", model.name, error.found)
            return {"backend": "flag", "because": error.found}
        return {"backend": "native"}

    def _as(self, backend: str) -> RerankSettings:
        """These settings for another backend."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"precision"}}
        return RERANKERS.make(**{**given, "backend": backend})

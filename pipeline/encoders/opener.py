"""Sources of embeddings and of pair scores, and those that are local models.

A source is a local model, a server, or files. The opener of a local model holds a section of the config and
its resolved model. It gives the model's part of artifact keys, converts the model once where its backend
needs that, and loads it: for texts as an `Encoder`, for pairs of texts as a `Scorer`. Backends are modules
with a function `load`, which `openers.TEXTS` and `openers.PAIRS` list.
"""

from __future__ import annotations

import contextlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

import numpy as np
from typing_extensions import override

from pipeline.config import EncoderSettings, RerankSettings, RowSettings, ScorerSettings, keyed_settings
from pipeline.core import machine
from pipeline.core.display import NO_BAR, Bar
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts, Float32, JsonObject, Role, VectorForm
from pipeline.encoders.agreement import CHECKS, LIMITS, PAIR_LIMITS, PAIRS, PROBES, Probes
from pipeline.encoders.batching import RowArrays, Usage
from pipeline.encoders.conversion import Conversion
from pipeline.encoders.encoder import Encoder
from pipeline.models.model import HALF, CalibrationCorpus, ResolvedModel
from pipeline.models.reranker import ResolvedReranker
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store
from pipeline.storage.vector_shards import check_dimensions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

SCORE_SCHEMA = 1
"""Schema of what is computed for a pair."""
COMPARISON, COMPARISON_SCHEMA = "comparison", 4
"""The stage, in the user's store, of comparisons of converted models with their library."""


class ModelSource:
    """Source of embeddings or pair scores: a local model, a server, or files."""

    served: ClassVar[bool] = False  # whether a server computes them
    stored: ClassVar[bool] = False  # whether files hold them, as rows that `EmbeddingSource.take` reads

    def check(self) -> None:
        """Refuse settings that a server cannot be asked with; asks it nothing."""
        raise NotImplementedError

    def match(self, collection: Collection) -> None:
        """Refuse files that do not fit a collection."""
        raise NotImplementedError

    def confirm(self, store: Store, fresh: bool) -> None:
        """Check that a served model still returns what is cached; cache keys cannot detect that."""
        raise NotImplementedError

    def open(self, store: Store) -> Any:
        """The loaded local model, an `Encoder` or a `Scorer`; `store` holds what is converted for it.

        Of a server the connection, with the same methods and `close`; several threads may use it at once.
        """
        raise NotImplementedError


class EmbeddingSource(ModelSource, ABC):
    """Source of a row for each text: a vector, word weights or token vectors."""

    model: ResolvedModel | None = None  # the local model; None where a server or files give the rows
    unit_length: ClassVar[bool] = False  # whether rows that are to have length 1 must have it already

    @abstractmethod
    def ingredients(self, role: Role, /) -> JsonObject:
        """The parts of the key of rows that the source decides, by name."""

    def form(self, settings: RowSettings) -> VectorForm:
        """What settings make of whole vectors, their number format apart."""
        dimensions = self.model.truncate_dim if self.model else settings.truncate_dim
        given_at_length_1 = self.unit_length and settings.normalize
        return VectorForm(dimensions, settings.normalize, given_at_length_1=given_at_length_1)

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> RowArrays:
        """The rows of consecutive texts; `ids` are the texts', Arrow strings [rows], for messages."""
        raise NotImplementedError


class ScoreSource(ModelSource, ABC):
    """Source of a score for each pair of a query and a passage."""

    settings: ScorerSettings

    @abstractmethod
    def ingredients(self) -> JsonObject:
        """The parts of the key of scores that the source decides, by name."""

    def recipe(self) -> JsonObject:
        """All that shapes the score of a pair, besides its texts, in artifact keys."""
        return {"schema": SCORE_SCHEMA, **self.ingredients(), **keyed_settings(self.settings, "scores")}


@dataclass(frozen=True, eq=False)
class Opener(ModelSource, ABC):
    """A local model: its settings, what they resolve to, and how its backend loads it. It can be pickled."""

    settings: Any  # a section `model` or `rerank`
    model: Any  # the resolved model, a `ResolvedModel` or a `ResolvedReranker`
    function: Callable[..., Any]  # loads the model: see `TextOpener` and `PairOpener`
    conversion: Conversion | None  # none if the backend runs the model's own files
    # Gives the scores of the model's library for some pairs, given settings and model.
    library: Callable[..., Float32] | None = None

    @abstractmethod
    def load(self, prepared: Path | None) -> Any:
        """The loaded model; `prepared` is the folder of the converted one, or None."""

    def prepare(self, store: Store) -> Artifact | None:
        """The converted model, made once for all benchmarks of this user; None if there is none.

        The first time, the model is compared with its library. The time both take is not the stage's.

        Raises:
            InputError: See `Conversion.make`; or the comparison shows other results than the library's.
        """
        conversion, converted = self.conversion, None
        if conversion:
            with self._preparing(store, conversion.recipe(self.model)) as (models, _):
                converted = conversion.make(self.model, models)
            self.model.files.check()
            if reason := converted.facts.get("not_compared"):
                log.info("model %s: not compared with its library: %s", self.model.name, reason)
        if conversion or self.library:
            recipe = self.comparison_recipe()
            folder = converted.folder if converted else None
            with self._preparing(store, recipe) as (models, is_new):
                found = models.make(recipe, lambda draft: self.compare(folder)).facts
            if is_new and "lowest_cosine" in found:
                log.info(
                    "model %s: cosine to the vectors of %s on %d texts: %.6f at the lowest, %.6f in the mean",
                    *(self.model.name, found["reference"], found["texts"]),
                    *(found["lowest_cosine"], found["mean_cosine"]),
                )
        return converted

    @contextlib.contextmanager
    def _preparing(self, store: Store, recipe: Recipe) -> Iterator[tuple[Store, bool]]:
        """The store in which a recipe's artifact is made, and whether it is new: its time is no stage's."""
        models = store.for_models(recipe)
        is_new = models.find(recipe) is None
        with machine.preparing(lambda: is_new):
            yield models, is_new

    def comparison_recipe(self) -> Recipe:
        """All that shapes what `compare` finds."""
        raise NotImplementedError

    def compare(self, prepared: Path | None) -> Facts:
        """Compare the model, of the folder of a converted one or None, with its library, if that is known.

        Raises:
            InputError: The results are too far from each other.
        """
        raise NotImplementedError

    def comparison(self, store: Store) -> Facts:
        """How a prepared model compares with its library, or why not; empty if it was not prepared."""
        conversions = [self.conversion.recipe(self.model)] if self.conversion else []
        recipes = [self.comparison_recipe(), *conversions]
        known = (store.for_models(recipe).find(recipe) for recipe in recipes)
        facts = [artifact.facts for artifact in known if artifact]
        return next((each for each in facts if each.keys() & {"reference", "not_compared"}), {})

    def checks(self, store: Store) -> Facts:
        """What each check of the network has found, by its name; see `pipeline.encoders.torch.checks`."""
        prepared = self.prepare(store)
        if prepared and CHECKS in prepared.files:
            return cast("Facts", json.loads((prepared.folder / CHECKS).read_text(encoding="utf-8")))
        return {} if prepared else dict(getattr(self.load(None).backend, "figures", {}))

    @override
    def open(self, store: Store) -> Any:
        prepared = self.prepare(store) if self.conversion or self.library else None
        return self.load(prepared.folder if prepared else None)

    def ingredients(self, *role: Role) -> JsonObject:
        """The model's part of artifact keys, for the role of its texts, and the key of the converted one."""
        prepared = {"prepared": self.conversion.recipe(self.model).key} if self.conversion else {}
        return {"model": self.model.recipe(*role), **prepared}


class TextOpener(Opener, EmbeddingSource):
    """Loads a model for texts. Its `function`, of the model and `prepared`, gives a `Backend`."""

    settings: EncoderSettings
    model: ResolvedModel

    @override
    def load(self, prepared: Path | None, watched: bool = True) -> Encoder:
        """The loaded model; unless `watched` is False, a few rows are compared with the reference's."""
        backend, watch = self.function(self.model, prepared), None
        if self.model.precision in HALF or self.model.device != "cpu":
            from pipeline.encoders.torch.backend import TorchBackend, check_precision

            if isinstance(backend, TorchBackend):
                check_precision(backend, self.function)
        if self.conversion and prepared and watched:
            watch = self.conversion.watch(self.model, prepared, backend.tokenizer)
        if prepared is None:
            self.model.files.check()
        if self.model.truncate_dim:
            check_dimensions(self.model.truncate_dim, backend.dimension)
        return Encoder(self.model, backend, self.settings.batch_size, watch)

    @override
    def comparison_recipe(self) -> Recipe:
        plain = {"schema": COMPARISON_SCHEMA, "backend": self.settings.backend}
        if self.conversion:  # which gives the key all else that shapes the model
            plain["prepared"] = self.conversion.recipe(self.model).key
        return Recipe(COMPARISON, {**plain, "precision": self.model.precision})

    @override
    def compare(self, prepared: Path | None) -> Facts:
        if not self.conversion or not prepared or not (prepared / PROBES).is_file():
            return {}
        name, precision = self.settings.backend, self.model.precision
        probes = Probes.read(prepared / PROBES)
        agreement = probes.compare(self.function(self.model, prepared).forward, precision)
        if agreement.problem and self.conversion.is_exact(self.model):
            raise InputError(
                f"backend {name} does not run model '{self.model.name}' in {precision} as its library does: "
                f"{agreement.problem}",
                allowed=f"a cosine of {LIMITS[precision]:g} or more",
                fix=self.conversion.fix(self.model),
            )
        return {
            "reference": "the model's library in fp32",
            "texts": len(probes.ids),
            "lowest_cosine": round(agreement.lowest, 7),
            "mean_cosine": round(agreement.mean, 7),
        }

    def calibrated_on(self, corpus: CalibrationCorpus | None) -> TextOpener:
        """The same model, whose int8 form is calibrated on the passages of a collection."""
        return replace(self, model=replace(self.model, corpus=corpus))


class Scorer(Protocol):
    """A loaded reranker."""

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """Scores float32 [pairs] of queries and passages, in their order, a higher one for a better passage.

        A pair's score does not depend on the other pairs. What scoring costs is added to `usage`, and `bar`
        is advanced by each pair.
        """
        ...


class PairOpener(Opener, ScoreSource):
    """Loads a reranker. Its `function`, of settings, model and `prepared`, gives a `Scorer`."""

    settings: RerankSettings
    model: ResolvedReranker

    @override
    def load(self, prepared: Path | None) -> Scorer:
        scorer: Scorer = self.function(self.settings, self.model, prepared)
        if prepared is None:
            self.model.files.check()
        return scorer

    @override
    def comparison_recipe(self) -> Recipe:
        versions = {package: metadata.version(package) for package in ("torch", "transformers")}
        made = {"schema": COMPARISON_SCHEMA, "backend": self.settings.backend, "device": self.model.device}
        return Recipe(COMPARISON, {**made, **versions, "scores": self.recipe()})

    @override
    def compare(self, prepared: Path | None) -> Facts:
        if not self.library or self.model.by_predict:
            return {}
        scores = self.load(prepared).score(PAIRS, Usage(), NO_BAR)  # first: it refuses what libraries fail on
        expected = self.library(self.settings, self.model, PAIRS)
        with np.errstate(invalid="ignore"):  # the difference of infinite ones
            difference = float(np.where(scores == expected, 0, np.abs(scores - expected)).max())
        spread = float(np.ptp(expected)) if np.isfinite(expected).all() else 1.0
        allowed = PAIR_LIMITS[self.model.precision] * max(spread, 1)
        if not difference <= allowed:  # also if it is NaN
            raise InputError(
                f"backend {self.settings.backend} gives pairs other scores with '{self.model.name}' than "
                f"the model's library: they differ by {difference:.2g}",
                allowed=f"a difference of {allowed:.2g}",
                fix="set another rerank.backend, or rerank.precision to fp32",
            )
        return {
            "reference": "the model's library",
            "pairs": len(PAIRS),
            "largest_difference": float(f"{difference:.2g}"),
        }

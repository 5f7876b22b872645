"""Openers of local models: the parts of a backend that are known before a model is loaded, and its loading.

An opener holds a section of the config and its resolved model. It gives the model's part of artifact keys,
converts the model once where its backend needs that, and loads it: for texts as an `Encoder`, for pairs of
texts as a `Scorer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Protocol

from typing_extensions import override

from pipeline.config import EncoderSettings, RerankSettings
from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.records import ROLES, Facts, Float32, JsonObject, Role
from pipeline.encoders import batching
from pipeline.encoders.agreement import LIMITS, PROBES, NoReferenceError, Probes, Reference, Watch
from pipeline.encoders.base import EmbeddingSource, ModelSource, ScoreSource
from pipeline.encoders.batching import Backend, RowArrays, Usage
from pipeline.models.model import CalibrationCorpus, ResolvedModel
from pipeline.models.reranker import ResolvedReranker
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import check_dimensions


@dataclass(frozen=True, eq=False)
class Opener(ModelSource, ABC):
    """A local model: its settings, what they resolve to, and how its backend loads it. It can be pickled.

    Attributes:
        settings: A section `model` or `rerank`.
        model: The resolved model, a `ResolvedModel` or a `ResolvedReranker`.
    """

    settings: Any
    model: Any

    @property
    @override
    def device(self) -> str:
        return str(self.model.device)

    def suits(self) -> bool:
        """Whether the backend runs the model fast on this machine, as far as its files tell."""
        return True

    def conversion(self) -> Recipe | None:
        """The recipe of the converted model; None if the backend runs the model's own files."""
        return None

    def convert(self, store: Store) -> Artifact | None:
        """The artifact of `conversion`, from the store or made now; None if there is none.

        Raises:
            InputError: The backend cannot run the model, or gives other results than torch.
        """
        return None

    @abstractmethod
    def load(self, prepared: Path | None) -> Any:
        """The loaded model; `prepared` is the folder of the converted one, or None."""

    def prepare(self, store: Store) -> Artifact | None:
        """As `convert`, once for all benchmarks of this user; the time it takes is not its stage's."""
        recipe = self.conversion()
        if recipe is None:
            return None
        models = store.for_models(recipe)
        if models.find(recipe):
            converted = self.convert(models)
        else:
            with machine.preparing():
                converted = self.convert(models)
        self.model.files.check()
        return converted

    @override
    def open(self, store: Store) -> Any:
        prepared = self.prepare(store)
        return self.load(prepared.folder if prepared else None)

    def prepared_key(self) -> JsonObject:
        """The key of the converted model, in keys of what it computes; empty if there is none."""
        recipe = self.conversion()
        return {"prepared": recipe.key} if recipe else {}


COMPARISON = "comparison"
"""The stage, in the user's store, of comparisons with a reference."""
COMPARISON_SCHEMA = 2


class TextOpener(Opener, EmbeddingSource):
    """Loads a model for texts; a backend's subclass says how.

    Attributes:
        libraries: Packages besides those in the key of a converted model that compute its rows.
    """

    settings: EncoderSettings
    model: ResolvedModel
    libraries: ClassVar[tuple[str, ...]] = ()

    @property
    def instead(self) -> str:
        """What to set if its rows are too far from those of the reference."""
        return "set another model.backend"

    @abstractmethod
    def load_backend(self, prepared: Path | None) -> Backend:
        """The loaded network, from the folder of the converted model or from its own files."""

    def reference(self, prepared: Path | None) -> Reference | None:
        """The model that vectors are compared with while texts are encoded; None if that is not needed."""
        return None

    @override
    def load(self, prepared: Path | None) -> Encoder:
        return Encoder(self, prepared)

    @override
    def prepare(self, store: Store) -> Artifact | None:
        converted = super().prepare(store)
        if converted and (converted.folder / PROBES).is_file():
            folder = converted.folder
            self.compare(store, lambda: self.load_backend(folder), lambda _: Probes.read(folder / PROBES))
        return converted

    def compare(self, store: Store, load: Callable[[], Backend], probes: Callable[[Backend], Probes]) -> None:
        """Compare the backend's rows with those of the reference, once, and keep the figure.

        Args:
            store: For converted models; the comparison goes where they go.
            load: Gives the loaded network.
            probes: Gives the reference's rows.

        Raises:
            InputError: They are too far from each other.
        """
        recipe = self.comparison_recipe()
        models = store.for_models(recipe)
        if models.find(recipe) is None:
            with machine.preparing():
                models.make(recipe, lambda draft: self._compare_rows(load(), probes))

    def comparison(self, store: Store) -> Facts:
        """How the backend's rows compare with those of the reference, if it has one."""
        self.open(store)
        recipe = self.comparison_recipe()
        known = store.for_models(recipe).find(recipe)
        return known.facts if known else {"reference": None}

    def comparison_recipe(self) -> Recipe:
        """All that the backend's rows of given token ids depend on."""
        model = self.model.recipe("passages")
        plain = {
            "schema": COMPARISON_SCHEMA,
            "backend": self.settings.backend,
            "model": {name: model[name] for name in model if name not in ("prompt", "max_length")},
            **self.prepared_key(),
            "device": self.device.partition(":")[0],
            "code": self.model.trust_remote_code,
            **{package: metadata.version(package) for package in self.libraries},
        }
        return Recipe(COMPARISON, plain)

    def _compare_rows(self, backend: Backend, probes: Callable[[Backend], Probes]) -> Facts:
        name, precision = self.settings.backend, self.model.precision
        try:
            reference = probes(backend)
        except NoReferenceError as error:
            return {"reference": None, "reason": str(error)}
        lowest, problem = reference.compare(backend.forward, precision)
        if problem:
            raise InputError(
                f"backend {name} does not run model '{self.model.name}' in {precision} as transformers and "
                f"its own modules do: {problem}",
                allowed=f"a cosine of {LIMITS[precision]:g} or more",
                fix=self.instead,
            )
        return {
            "reference": "transformers and the declared modules in fp32",
            "texts": len(reference.ids),
            "lowest_cosine": round(lowest, 7),
        }

    @override
    def ingredients(self, role: Role) -> JsonObject:
        return {"model": self.model.recipe(role), **self.prepared_key()}

    @override
    def shared_key(self) -> JsonObject:
        loaded = [self.ingredients(role) for role in ROLES]
        return {"settings": self.settings.model_dump(mode="json"), "device": self.device, "model": loaded}

    def calibrated_on(self, corpus: CalibrationCorpus | None) -> TextOpener:
        """The same model, whose int8 form is calibrated on the passages of a collection."""
        return replace(self, model=replace(self.model, corpus=corpus))


class Encoder:
    """A loaded model, which turns texts into rows; `prepared` is the folder of the converted one.

    Unless `watched` is False, rows of some texts are compared with those of the fp32 model.
    """

    def __init__(self, opener: TextOpener, prepared: Path | None, watched: bool = True) -> None:
        self.settings, self.model = opener.settings, opener.model
        self.backend = opener.load_backend(prepared)
        reference = opener.reference(prepared) if watched else None
        self.watch = Watch(self.model.name, reference, self.backend.tokenizer) if reference else None
        if prepared is None:
            self.model.files.check()
        if self.model.truncate_dim:
            check_dimensions(self.model.truncate_dim, getattr(self.backend, "dimension"))  # noqa: B009

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> RowArrays:
        """The rows of some texts, as `encode_parts` gives them; what they cost is added to `usage`."""
        ((rows, cost),) = self.encode_parts([texts], role, bar)
        usage.add(cost)
        return rows

    def encode_parts(
        self, parts: Iterable[list[str]], role: Role, bar: Bar
    ) -> Iterator[tuple[RowArrays, Usage]]:
        """Encode parts of a collection as passages or queries, with the prompt and length of the role.

        `parts` are read by a thread, ahead of the computation, and `bar` is advanced by each text.

        Returns:
            For each part its rows in the order of its texts, float32 [texts, dimension], whole and not
            normalized, or `RaggedRows`; and what they cost.

        Raises:
            InputError: A text's vector is too far from that of the fp32 model.
        """
        before, after = self.model.prompts[role]
        prompted = ([before + text + after for text in texts] for texts in parts)
        length, backend = self.model.max_lengths[role], self.backend
        if isinstance(backend, batching.RoleDependent):
            backend = backend.for_role(role)
        watch = self.watch
        check = (lambda texts, rows: watch.check(texts, length, rows)) if watch else None
        return batching.encode_parts(
            backend, prompted if before or after else parts, length, bar, self.settings.batch_size, check
        )


class Scorer(Protocol):
    """A loaded reranker."""

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """Scores float32 [pairs] of queries and passages, in their order, a higher one for a better passage.

        A pair's score does not depend on the other pairs. What scoring costs is added to `usage`, and `bar`
        is advanced by each pair.
        """
        ...


class PairOpener(Opener, ScoreSource):
    """Loads a reranker for pairs of texts; a backend's subclass says how."""

    settings: RerankSettings
    model: ResolvedReranker

    @abstractmethod
    def load_scorer(self, prepared: Path | None) -> Scorer:
        """The loaded reranker, from the folder of the converted model or from its own files."""

    @override
    def load(self, prepared: Path | None) -> Scorer:
        scorer = self.load_scorer(prepared)
        if prepared is None:
            self.model.files.check()
        return scorer

    @override
    def ingredients(self) -> JsonObject:
        return {"model": self.model.recipe(), **self.prepared_key()}

    @override
    def shared_key(self) -> JsonObject:
        settings = self.settings.model_dump(mode="json")
        return {"settings": settings, "device": self.device, "scorer": self.recipe()}

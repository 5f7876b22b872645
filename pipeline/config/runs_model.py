"""The base class of sections that name the backend which runs a model, for texts or for pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PrivateAttr

from pipeline.config.settings import Section


class RunsModel(Section):
    """Settings of a backend that runs a model."""

    on_gpu: ClassVar[bool] = True
    """Whether the backend can compute on GPUs."""
    extra: ClassVar[str] = ""
    """The extra that installs the package of this name, which only this backend needs; "" if none does."""
    _taken_by_auto: bool = PrivateAttr(False)
    if TYPE_CHECKING:  # settings of every such section, each with a text of its own
        backend: str
        precision: str
        device: str

    @property
    def label(self) -> str:
        """A short name for tables."""
        raise NotImplementedError

    @property
    def taken_by_auto(self) -> bool:
        """Whether the config leaves the backend to `auto`, which took this one."""
        return self._taken_by_auto

    def candidates(self, resolve: Callable[[Any], Any]) -> Sequence[RunsModel]:
        """Settings of the backends that may be used, the fastest first: these, unless there is a choice.

        `resolve` gives the resolved model of settings, loading nothing.
        """
        return [self]

    def suits(self, model: Any) -> bool:
        """Whether the backend runs a resolved model fast on this machine, as far as its files tell."""
        return True

    def load(self, model: Any, prepared: Any) -> Any:
        """Load a resolved model; `prepared` is the folder that `prepare` made of it, or None.

        Returns a `pipeline.encoders.batching.Backend` for texts, a `pipeline.rerankers.Scorer` for pairs.
        """
        raise NotImplementedError

    def prepared_recipe(self, model: Any) -> Any:
        """The recipe of the model's prepared form; None if the backend runs the model's own files."""
        return None

    def prepare(self, model: Any, store: Any) -> Any:
        """The artifact of `prepared_recipe`, loaded or made in a `pipeline.storage.store.Store`; or None.

        Raises:
            InputError: The backend cannot run the model, or gives other results than torch.
        """
        return None

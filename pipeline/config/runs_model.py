"""The base class of sections that name the backend which runs a model, for texts or for pairs of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

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

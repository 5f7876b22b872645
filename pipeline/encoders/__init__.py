"""Which backend runs the model? A backend is one file here that turns token ids into vectors.

To add one, write its file with a class that keeps `batching.Backend`, and add
its line to `_BACKENDS` and its name to `config.ModelConfig.backend`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property

from pipeline.artifacts import Store
from pipeline.config import ModelConfig
from pipeline.encoders import batching, models
from pipeline.encoders.batching import Backend, Usage
from pipeline.encoders.models import Model, Role
from pipeline.progress import Bar
from pipeline.records import Float32

__all__ = ["Encoder", "Model", "Role", "Usage", "resolve"]

_BACKENDS = {
    "flag": ("flag", "FlagBackend", ("fp32", "fp16", "bf16")),
    "openvino": ("openvino", "OpenVINOBackend", ("fp32", "bf16")),
}
"""Module, class and precisions of each backend; the module is imported when a model is loaded."""


def resolve(config: ModelConfig) -> Model:
    """What the config's model is, without loading it (see `models.resolve`)."""
    return models.resolve(config, _BACKENDS[config.backend][2])


class Encoder:
    """A model, loaded when first used.

    Args:
        config: The model section.
        model: What it resolved to.
        store: Where a backend may keep what it prepares.
    """

    def __init__(self, config: ModelConfig, model: Model, store: Store) -> None:
        self.config, self.model, self.store = config, model, store

    @cached_property
    def backend(self) -> Backend:
        """The loaded model; the first use loads it, which may convert or fetch it."""
        module, name, _ = _BACKENDS[self.config.backend]
        backend: Backend = getattr(importlib.import_module(f"{__name__}.{module}"), name)(
            self.model, self.store
        )
        return backend

    def load(self) -> None:
        """Load the model now, so that encoding alone can be timed."""
        _ = self.backend

    def encode(self, texts: Sequence[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        """Encode texts as passages or queries.

        Args:
            texts: Any number; they are sorted by length among themselves.
            role: Decides prompt and length.
            usage: Added to.
            bar: Told of every text encoded.

        Returns:
            float32 [texts, dimension], in the order of `texts`.
        """
        before, after = self.model.prompts[role]
        prompted = [before + text + after for text in texts] if before or after else texts
        length = self.model.max_lengths[role]
        return batching.encode(self.backend, prompted, length, usage, bar, self.config.batch_size)

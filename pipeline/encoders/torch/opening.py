"""The opening of a backend that runs PyTorch: its device, its memory, and the check of its rows.

In fp16 and bf16, rows are compared with those of fp32 each time. The first time that a backend runs a model,
its rows of fixed texts are compared with those of a `PlainModel`, and the result is kept.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from pipeline.core import machine
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Array, Facts, Int32, RaggedRows
from pipeline.encoders.agreement import LIMITS, farthest, row_as_vector, sample_tokens
from pipeline.encoders.batching import (
    Backend,
    RoleDependent,
    RowArrays,
    Usage,
    batches,
    encode,
    in_order,
    tokenize,
)
from pipeline.encoders.opener import Encoder, TextOpener
from pipeline.encoders.torch.backend import TorchBackend
from pipeline.encoders.torch.devices import fitting, free_memory, is_out_of_memory
from pipeline.encoders.torch.plain import NoReferenceError, PlainModel
from pipeline.models.model import ROLES, ResolvedModel
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import cosines

log = logging.getLogger(__name__)

SHORT = 256  # tokens of a text that is compared, besides the longest one
COMPARISON = "comparison"  # the stage, in the user's store, of comparisons
SCHEMA = 1
COMPARED_TOKENS = 512  # of the longest text
TEXTS = (
    "how do pilots guide ships",
    "Café, naïve & GRÖSSE: 2,023 + 3.5 = 2026.5!",
    "one\ntwo\t three   four",
    "數字 ひらがな 한국어 Привет עברית العربية हिन्दी ไทย 🙂",
    "a",
    "The pilot boarded the ship at the mouth of the river. " * 60,
)
"""What is compared: words, case, accents, digits, white space, scripts, and a long text."""
Load = Callable[[ResolvedModel], TorchBackend]


class TorchOpener(TextOpener):
    """A backend that runs a model's own files in PyTorch; `library` is the package that loads it."""

    library: ClassVar[str]

    @abstractmethod
    def loads(self) -> Load:
        """What loads the output of the model."""

    @override
    def load_backend(self, prepared: Path | None) -> Backend:
        return open_backend(self.loads(), self.model)

    @override
    def open(self, store: Store) -> Encoder:
        encoder: Encoder = super().open(store)
        recipe = self.comparison_recipe()
        if store.for_models(recipe).find(recipe) is None:
            with machine.preparing():
                store.for_models(recipe).make(recipe, lambda draft: self._compare(encoder))
        return encoder

    @override
    def comparison(self, store: Store) -> Facts:
        recipe = self.comparison_recipe()
        artifact = store.for_models(recipe).find(recipe)
        if artifact is None:
            self.open(store)
            artifact = store.for_models(recipe).find(recipe)
        return artifact.facts if artifact else {}

    def comparison_recipe(self) -> Recipe:
        """All that rows depend on."""
        packages = ("torch", "transformers", self.library)
        plain = {
            "schema": SCHEMA,
            "backend": self.settings.backend,
            "model": {role: self.ingredients(role) for role in ROLES},
            "device": self.device.partition(":")[0],
            "code": self.model.trust_remote_code,
            **{package: metadata.version(package) for package in packages},
        }
        return Recipe(COMPARISON, plain)

    def _compare(self, encoder: Encoder) -> Facts:
        """The lowest cosine of the encoder's rows and those of a `PlainModel`, for each text alone.

        Raises:
            InputError: It is below the limit of the precision.
        """
        model = self.model
        try:
            _refuse_large(model)
            plain = PlainModel(model)
        except NoReferenceError as error:
            return {"reference": None, "reason": str(error)}
        lowest = 1.0
        for role in ROLES:
            before, after = model.prompts[role]
            most = min(model.max_lengths[role], COMPARED_TOKENS)
            texts = [before + text + after for text in TEXTS]
            backend: Any = encoder.backend
            backend = backend.for_role(role) if isinstance(backend, RoleDependent) else backend
            tokens = tokenize(backend.tokenizer, texts, most)
            read = [row for row, ids in enumerate(tokens) if len(ids)]
            with silent("", None, "") as bar:
                rows = encode(backend, [texts[row] for row in read], most, Usage(), bar)
            for place, row in enumerate(read):
                expected = plain.row(tokens[row])
                cosine = _cosine(row_as_vector(rows, place, len(expected)), expected)
                lowest = min(lowest, cosine)
                if not cosine >= LIMITS[model.precision]:
                    raise InputError(
                        f"backend {self.settings.backend} does not run model '{model.name}' as transformers "
                        f"and its own modules do: the cosine of a text's rows is {cosine:.6f}",
                        allowed=f"{LIMITS[model.precision]:g} or more in {model.precision}",
                        fix="set another model.backend",
                    )
        return {"reference": "transformers", "texts": len(TEXTS), "lowest_cosine": round(lowest, 7)}


def _refuse_large(model: ResolvedModel) -> None:
    """Raise a `NoReferenceError` if a second copy of the model, in fp32, may not fit into the memory."""
    stored = sum(path.stat().st_size for path in model.files.folder().rglob("*.safetensors"))
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 2 * stored > free:
        raise NoReferenceError("too little memory for a second copy in fp32")


def _cosine(one: Array, two: Array) -> float:
    if one.shape != two.shape:
        return -1.0
    if not one.any() and not two.any():  # a text without words
        return 1.0
    (cosine,) = cosines(one[None], two[None])
    return float(cosine)


def open_backend(load: Load, model: ResolvedModel) -> TorchBackend:
    """Load a model; compare its vectors in fp16 and bf16 with those in fp32; let a GPU choose kernels.

    Raises:
        InputError: The device cannot be used, the model does not fit into its memory, or its vectors are too
            far from those in fp32.
    """
    with fitting(model, "model"):
        backend = load(model)
        if model.precision == "fp32" and backend.device.type == "cpu":
            return backend
        with machine.preparing():
            texts = _sample(backend)
            rows = _encode(backend, texts)
            if model.precision != "fp32":
                difference = _difference(rows, _in_fp32(load, model, texts), texts, model.precision)
                free_memory(backend.device)
                if difference:
                    wider = "bf16 or fp32" if model.precision == "fp16" else "fp32"
                    raise InputError(
                        f"model '{model.name}' cannot be computed in {model.precision}: {difference}",
                        fix=f"set model.precision to {wider}",
                    )
    return backend


def _sample(backend: TorchBackend) -> list[Int32]:
    """Token ids of short texts and of one that is as long as the model reads them."""
    longest, *others = sample_tokens(backend.tokenizer, max(backend.model.max_lengths.values()))
    return [longest, *(ids for ids in others if len(ids) <= SHORT)]


def _encode(backend: TorchBackend, texts: Sequence[Int32]) -> RowArrays:
    windows = [list(enumerate(texts))]
    return in_order(backend.forward(batches(backend, windows, len(texts[0]), Usage())), len(texts))


def _in_fp32(load: Load, model: ResolvedModel, texts: Sequence[Int32]) -> RowArrays:
    """The rows of the same model in fp32; on the CPU if the device has no room for both."""
    if model.device != "cpu":
        try:
            return _encode(load(replace(model, precision="fp32")), texts)
        except (RuntimeError, InputError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
    return _encode(load(replace(model, precision="fp32", device="cpu")), texts)


def _difference(rows: RowArrays, expected: RowArrays, texts: Sequence[Int32], precision: str) -> str | None:
    """How rows differ from those of fp32 beyond the limit of a precision; None if they do not."""
    if not isinstance(rows, RaggedRows) or not isinstance(expected, RaggedRows):
        assert not isinstance(rows, RaggedRows)
        assert not isinstance(expected, RaggedRows)
        return farthest(rows, expected, np.array([len(ids) for ids in texts]), precision)
    words = 0
    if len(expected.columns) == 2:
        words = 1 + max(int(some.columns[0].max(initial=0)) for some in (rows, expected))
    for row, ids in enumerate(texts):
        one, two = (row_as_vector(some, row, words) for some in (rows, expected))
        if not one.any() and not two.any():  # a text without words
            continue
        (cosine,) = cosines(one[None], two[None])
        if not cosine >= LIMITS[precision]:
            return (
                f"a text of {len(ids)} tokens has a cosine of {cosine:.6f} to that of fp32, and the limit is "
                f"{LIMITS[precision]:g}"
            )
    return None

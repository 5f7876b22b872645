"""The backends of the section `model`: what opens the settings of each, imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.config.model import HttpSettings, PrecomputedSettings
    from pipeline.encoders.base import Opener, RowSource
    from pipeline.encoders.batching import Backend
    from pipeline.encoders.http.backend import Served
    from pipeline.encoders.precomputed import Precomputed
    from pipeline.models.model import Model


def _flag() -> Opener[Any, Model, Backend]:
    from pipeline.encoders.torch.flag import FlagOpener

    return FlagOpener()


def _openvino() -> Opener[Any, Model, Backend]:
    from pipeline.encoders.openvino.backend import OpenVINOOpener

    return OpenVINOOpener()


def _native() -> Opener[Any, Model, Backend]:
    from pipeline.encoders.native import NativeOpener

    return NativeOpener()


def _sentence_transformers() -> Opener[Any, Model, Backend]:
    from pipeline.encoders.torch.sentence_transformers import SentenceTransformersOpener

    return SentenceTransformersOpener()


def _http(settings: HttpSettings) -> Served:
    from pipeline.encoders.http.backend import Served

    return Served(settings)


def _precomputed(settings: PrecomputedSettings) -> Precomputed:
    from pipeline.encoders.precomputed import open_token_vectors, open_vectors, open_weights

    opens = {"dense": open_vectors, "sparse": open_weights, "multivector": open_token_vectors}
    return opens[settings.output](settings)


OPENERS: dict[str, Callable[[], Opener[Any, Model, Backend]]] = {
    "flag": _flag,
    "openvino": _openvino,
    "native": _native,
    "sentence-transformers": _sentence_transformers,
}
"""What opens a model that runs here, by the name of its backend; imported when it is needed."""
SOURCES: dict[str, Callable[[Any], RowSource]] = {"http": _http, "precomputed": _precomputed}
"""What opens the settings of a backend that runs no model here."""

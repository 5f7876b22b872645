"""The backends of the section `rerank`: what opens the settings of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.core.progress import Bar
from pipeline.core.records import Float32
from pipeline.encoders.usage import Usage

if TYPE_CHECKING:
    from pipeline.config.rerank import HttpRerankSettings
    from pipeline.encoders.opener import Opener
    from pipeline.rerankers.http import ServedReranker
    from pipeline.rerankers.model import Reranker


class Scorer(Protocol):
    """A loaded reranker."""

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """Scores float32 [pairs] of queries and passages, in their order, a higher one for a better passage.

        A pair's score does not depend on the other pairs. What scoring costs is added to `usage`, and `bar`
        is advanced by each pair.
        """
        ...


def _flag() -> Opener[Any, Reranker, Any]:
    from pipeline.rerankers.flag import FlagRerankOpener

    return FlagRerankOpener()


def _openvino() -> Opener[Any, Reranker, Any]:
    from pipeline.rerankers.openvino import OpenVINORerankOpener

    return OpenVINORerankOpener()


def _sentence_transformers() -> Opener[Any, Reranker, Any]:
    from pipeline.rerankers.sentence_transformers import SentenceTransformersRerankOpener

    return SentenceTransformersRerankOpener()


def _http(settings: HttpRerankSettings) -> ServedReranker:
    from pipeline.rerankers.http import ServedReranker

    return ServedReranker(settings)


OPENERS: dict[str, Callable[[], Opener[Any, Reranker, Scorer]]] = {
    "flag": _flag,
    "openvino": _openvino,
    "sentence-transformers": _sentence_transformers,
}
"""What opens a reranker that runs here, by the name of its backend; imported when it is needed."""
SOURCES: dict[str, Callable[[Any], ServedReranker]] = {"http": _http}
"""What opens the settings of a backend that runs no model here."""

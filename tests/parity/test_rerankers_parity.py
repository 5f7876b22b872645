"""Scores of rerankers against FlagEmbedding's `compute_score` and sentence-transformers' `predict`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.records import Float32
from pipeline.encoders.pairs.flag_rerankers import DECODER, ENCODER
from pipeline.encoders.pairs.scorer import TextPair

Scores = Callable[..., Float32]
Kind = Callable[[str], Path]


@pytest.mark.parametrize(
    ("kind", "flag_class", "settings"),
    [
        ("bert", ENCODER, {}),
        ("xlm_roberta", ENCODER, {"max_length": 96, "query_max_length": 40}),
        ("gemma", DECODER, {"prompt": "Does B answer A?", "max_length": 96}),
    ],
)
def test_scores_are_those_of_flagembedding(
    scores: Scores,
    reranker: Kind,
    plain_pairs: list[TextPair],
    kind: str,
    flag_class: str,
    settings: dict[str, Any],
) -> None:
    """On texts whose tokens FlagEmbedding can turn into text and back, as it does with transformers 5."""
    from FlagEmbedding import FlagAutoReranker

    flag = FlagAutoReranker.from_finetuned(
        str(reranker(kind)), model_class=flag_class, devices=["cpu"], trust_remote_code=False, batch_size=8,
        **settings,
    )  # fmt: skip
    expected = np.array(flag.compute_score([list(pair) for pair in plain_pairs]))
    for backend in ("flag", "openvino") if flag_class == ENCODER else ("flag",):
        found = scores(plain_pairs, backend=backend, name=reranker(kind), **settings)
        assert np.abs(found - expected).max() < 1e-4 * max(1, np.ptp(expected))
    assert np.ptp(expected) > 0.05


@pytest.mark.parametrize(("kind", "max_length"), [("bert", 512), ("xlm_roberta", 64)])
def test_scores_are_those_of_a_cross_encoder(
    scores: Scores, reranker: Kind, pairs: list[TextPair], kind: str, max_length: int
) -> None:
    from sentence_transformers import CrossEncoder

    peer = CrossEncoder(str(reranker(kind)), device="cpu", max_length=max_length)
    expected = peer.predict(pairs, batch_size=4, show_progress_bar=False)
    found = scores(pairs, backend="sentence-transformers", name=reranker(kind), max_length=max_length)
    assert np.abs(found - expected).max() < 1e-4
    assert np.ptp(expected) > 0.05

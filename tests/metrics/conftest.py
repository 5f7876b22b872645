"""What the tests of the measures share."""

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.core.records import Float64, Qrels, Ranking
from pipeline.metrics import parse_measures
from pipeline.metrics.scoring import compute_measures


@pytest.fixture(scope="session")
def score_lists() -> Callable[..., Float64]:
    """Scores ranked lists of row numbers, ragged ones too, against {passage: grade} of each query."""

    def run(ranked: list[list[int]], judged: list[dict[int, int]], measures: str) -> Float64:
        width = max(map(len, ranked), default=0)
        passages = np.array([row + [-1] * (width - len(row)) for row in ranked], dtype=np.int64)
        passages = passages.reshape(len(ranked), width)
        scores = np.where(passages < 0, -np.inf, -np.arange(width)).astype(np.float32)
        entries = [(q, p, g) for q, grades in enumerate(judged) for p, g in sorted(grades.items())]
        qrels = Qrels(*np.array(entries, dtype=np.int64).reshape(-1, 3).T)
        return compute_measures(Ranking(passages, scores), qrels, len(ranked), parse_measures(measures))

    return run

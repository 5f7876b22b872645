"""How near two runs are, against the package repro_eval: on real runs, some of which rank alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from repro_eval.measure.document_order import KTU, RBO
from repro_eval.measure.effectiveness import RMSE
from repro_eval.measure.overall_effects import ER
from repro_eval.measure.statistics import ttest

from pipeline.api import evaluate
from pipeline.metrics import reproduction
from pipeline.metrics.statistics import t_test
from pipeline.results.reproduction import read_rankings

MEASURES = "ndcg@10,map@100,mrr"


@pytest.fixture(scope="module")
def runs(dl19: Path) -> list[Path]:
    """Runs of two systems, and a reproduction of each: of another system."""
    paths = sorted((dl19 / "runs").glob("*.trec.gz"))
    assert len(paths) >= 4
    return paths[:4]


def test_rankings_and_scores_are_repro_eval_s(dl19: Path, runs: list[Path]) -> None:
    scored = [evaluate(dl19 / "qrels/full.trec", path, MEASURES) for path in runs]
    queries = scored[0].query_ids
    rankings = read_rankings(runs, queries)
    ids = sorted({int(number) for ranking in rankings for number in ranking.ravel()})
    names = {number: f"{number:09}" for number in ids}  # in the order of the numbers, as text

    def nested(ranking: np.ndarray) -> dict[str, dict[str, float]]:
        return {
            query: {names[number]: -float(rank) for rank, number in enumerate(row) if number >= 0}
            for query, row in zip(queries, ranking.tolist(), strict=True)
        }

    depth = rankings[0].shape[1]
    for one, other in ((0, 1), (0, 2), (2, 2)):
        ours = reproduction.kendall_tau_union(rankings[one], rankings[other])
        theirs = KTU(nested(rankings[one]), nested(rankings[other]), per_topic=True)
        assert dict(zip(queries, ours.tolist(), strict=True)) == pytest.approx(theirs, abs=1e-9)
        ours = reproduction.rank_biased_overlap(rankings[one], rankings[other])
        theirs = RBO(
            nested(rankings[one]), nested(rankings[other]), reproduction.PERSISTENCE, depth, False, True
        )
        assert dict(zip(queries, ours.tolist(), strict=True)) == pytest.approx(theirs, abs=1e-9)

    columns = [str(measure) for measure in scored[0].measures]
    topics = [
        {
            query: dict(zip(columns, row, strict=True))
            for query, row in zip(queries, each.values.tolist(), strict=True)
        }
        for each in scored
    ]
    values = [each.values for each in scored]
    errors = dict(zip(columns, reproduction.root_mean_square_error(*values[:2]).tolist(), strict=True))
    assert errors == pytest.approx(RMSE(*topics[:2]), abs=1e-9)
    p = dict(zip(columns, t_test(values[0] - values[1]).tolist(), strict=True))
    assert p == pytest.approx(ttest(*topics[:2]), abs=1e-9)
    ratios = reproduction.effect_ratio(values[0] - values[1], values[2] - values[3])
    expected = ER(*topics)
    assert dict(zip(columns, ratios.tolist(), strict=True)) == pytest.approx(expected, rel=1e-9)

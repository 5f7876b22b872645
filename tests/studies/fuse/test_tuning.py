"""Weights of a fusion that are tuned by cross-validation over queries."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from search.test_fusion import ID_RANK, A, B, ranking
from workplaces import BAR

from pipeline import InputError
from pipeline.core import Qrels
from pipeline.metrics import compute_measures, parse_measure
from pipeline.search import Fusion, fuse
from pipeline.studies.fuse import Tuning, folds_of, fuse as fuse_runs, tune


def test_folds_do_not_depend_on_the_order_of_queries() -> None:
    ids = [f"q{number}" for number in range(11)]
    folds = folds_of(pa.chunked_array([ids]), 5)
    assert np.bincount(folds).tolist() == [3, 2, 2, 2, 2]
    back = folds_of(pa.chunked_array([ids[::-1]]), 5)
    assert back[::-1].tolist() == folds.tolist()
    with pytest.raises(InputError, match="two queries"):
        folds_of(pa.chunked_array([["q"]]), 5)


def test_no_query_is_scored_by_weights_that_have_seen_it() -> None:
    """Where the judgments of a fold change, its own weights do not, and those of the others do."""
    good, bad = {A: 3.0, B: 1.0}, {B: 3.0, A: 1.0}
    rankings = [ranking(*[good] * 4), ranking(*[bad] * 4)]
    folds = np.array([0, 0, 1, 1])
    method = Fusion("weighted")

    def tuned(relevant: list[int]) -> list[list[float]]:
        qrels = Qrels(np.arange(4), np.array(relevant), np.ones(4, np.int64))
        weights = tune(rankings, method, Tuning(parse_measure("mrr@1"), qrels, folds), ID_RANK, None, BAR)
        joined = fuse(rankings, method, weights[folds], ID_RANK)
        assert compute_measures(joined, qrels, [parse_measure("mrr@1")]).shape == (4, 1)
        return weights.tolist()

    both = tuned([A, A, A, A])
    assert both == [[0.6, 0.4], [0.6, 0.4]]  # those nearest to equal weights that put A first
    assert tuned([A, A, B, B]) == [[0.5, 0.5], [0.6, 0.4]]
    assert tuned([B, B, A, A]) == [[0.6, 0.4], [0.5, 0.5]]


def test_a_query_that_a_run_lacks_counts_and_a_tuned_fusion_knows_judged_documents_only(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("q1 Q0 x 1 2 t\nq1 Q0 y 2 1 t\nq2 Q0 x 1 1 t\n", encoding="utf-8")
    (tmp_path / "b").write_text("q1 Q0 y 1 2 t\nq1 Q0 x 2 1 t\nq3 Q0 z 1 1 t\n", encoding="utf-8")
    (tmp_path / "qrels").write_text("q1 0 y 1\nq2 0 never 1\n", encoding="utf-8")
    paths = [tmp_path / "a", tmp_path / "b"]
    facts = fuse_runs(paths, tmp_path / "o", method="weighted", tune="mrr", qrels=tmp_path / "qrels", folds=2)
    assert (facts["queries"], facts["queries_not_in_all"], facts["documents"]) == (3, 2, 3)
    # q1 alone could choose, and has not seen its own weights: they are the equal ones, a tie, y before x
    assert facts["tuned"]["folds"] == [
        {"queries": 2, "weights": [0.5, 0.5]},
        {"queries": 1, "weights": [0.5, 0.5]},
    ]
    assert [line.split()[:4] for line in (tmp_path / "o").read_text().splitlines()] == [
        ["q1", "Q0", "y", "1"], ["q1", "Q0", "x", "2"], ["q2", "Q0", "x", "1"], ["q3", "Q0", "z", "1"]
    ]  # fmt: skip

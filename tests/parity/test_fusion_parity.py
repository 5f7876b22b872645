"""Fusion against ranx: every method and normalization that both have, on six real runs, to 1e-9.

They are on record (`scripts/record_ranx.py`), because ranx compiles for a minute before it fuses.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_ranx

from pipeline.config.benchmark import METHODS, NORMALIZATIONS
from pipeline.core.records import Ranking
from pipeline.formats.runs import read_run
from pipeline.search.fusion import Fusion, fuse
from pipeline.studies.fuse.fused_runs import JoinedRuns, join_runs

RECORD = json.loads((Path(__file__).parent / "ranx_fusion.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def joined(dl19: Path) -> dict[str, JoinedRuns]:
    """The six runs whole, and with some of them cut to their best hits."""
    whole = join_runs([read_run(path) for path in sorted((dl19 / "runs").glob("*.trec.gz"))])
    cut = [
        Ranking(ranking.passages[:, :kept], ranking.scores[:, :kept])
        for ranking, kept in zip(whole.parts[0][1], RECORD["kept"], strict=True)
    ]
    return {"whole": whole, "cut": replace(whole, parts=[(whole.parts[0][0], cut)])}


def figures(ids: list[str], ranking: Ranking, row: int) -> list[float]:
    """Those of one query of a ranking."""
    hits = zip(ranking.passages[row], ranking.scores[row], strict=True)
    return record_ranx.figures({ids[passage]: float(score) for passage, score in hits if passage >= 0})


def test_the_record_has_every_method_and_normalization() -> None:
    by_score = [f"{method} {norm}" for norm in NORMALIZATIONS for method in METHODS[1:4]]
    assert METHODS[1:4] == ("combsum", "combmnz", "weighted")
    assert sorted(RECORD["whole"]) == sorted(RECORD["cut"]) == sorted(["rrf 60", "rrf 10", *by_score])


@pytest.mark.parametrize("runs", ["whole", "cut"])
def test_fused_scores_are_those_of_ranx(joined: dict[str, JoinedRuns], runs: str) -> None:
    made = joined[runs]
    queries, ids = made.query_ids.to_pylist(), made.document_ids.to_pylist()
    for name, recorded in RECORD[runs].items():
        method, detail = name.split()
        options: dict[str, Any] = {"k": int(detail)} if method == "rrf" else {"normalize": detail}
        fusion = Fusion(method, **options)  # type: ignore[arg-type]
        weights = fusion.weights(RECORD["weights"] if method == "weighted" else None, 6)
        ranking = fuse(made.parts[0][1], fusion, weights, made.id_rank)
        assert sorted(queries) == sorted(recorded)
        for row, query in enumerate(queries):
            ours, theirs = figures(ids, ranking, row), recorded[query]
            assert len(ours) == len(theirs), (name, query)
            scale = max(1, abs(theirs[2]))  # a sum of products is known less exactly than one of them
            assert np.allclose(ours[:2] + ours[3:], theirs[:2] + theirs[3:], rtol=1e-12, atol=1e-9), name
            assert abs(ours[2] - theirs[2]) <= 1e-12 * scale + 1e-9, (name, query)

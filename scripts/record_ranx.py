"""Record what ranx makes of the six real runs; `tests/parity/test_fusion_parity.py` compares with it.

pip install ranx==0.3.21 && python scripts/record_ranx.py

The package compiles for a minute or more before it fuses, so that a test cannot call it. For each query the
record has the number of documents, the sum of their scores, the sum of score times place in the order of ids,
and every 97th score in that order: no score of a document can differ without one of them.
"""

from __future__ import annotations

import gzip
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUNS = ROOT.parent / "shared" / "data" / "msmarco-dl19" / "runs"
WEIGHTS = [0.05, 0.1, 0.3, 0.2, 0.25, 0.1]
STEP = 97
NORMALIZATIONS = {
    "none": None,
    "min_max": "min-max",
    "max": "max",
    "sum": "sum",
    "z_score": "zmuv",
    "rank": "rank",
}
METHODS = {"combsum": "sum", "combmnz": "mnz", "weighted": "wsum"}
KEPT = [100, 40, 100, 100, 70, 100]  # hits of each run that are kept in the second half of the record

Run = dict[str, dict[str, float]]


def read(path: Path) -> Run:
    run: Run = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            query, _, document, _, score, _ = line.split()
            run.setdefault(query, {})[document] = float(score)
    return run


def best(hits: dict[str, float], kept: int) -> list[str]:
    """The documents by the tie rule: by score, then by id, both descending."""
    return sorted(hits, key=lambda document: (hits[document], document.encode()), reverse=True)[:kept]


def by_rank(run: Run) -> Run:
    """The same run without ties, for methods that read ranks only: ranx leaves the order of ties open."""
    return {
        query: {document: -float(rank) for rank, document in enumerate(best(hits, len(hits)))}
        for query, hits in run.items()
    }


def figures(scores: dict[str, float]) -> list[float]:
    """The record of one query."""
    ordered = [scores[document] for document in sorted(scores)]
    places = sum(score * place for place, score in enumerate(ordered))
    return [len(ordered), sum(ordered), places, *ordered[::STEP]]


def main() -> None:
    from ranx import Run as RanxRun, fuse

    record: dict[str, Any] = {"ranx": version("ranx"), "weights": WEIGHTS, "step": STEP, "kept": KEPT}
    whole = [read(path) for path in sorted(RUNS.glob("*.trec.gz"))]
    cut = [
        {query: {name: hits[name] for name in best(hits, kept)} for query, hits in run.items()}
        for run, kept in zip(whole, KEPT, strict=True)
    ]
    for label, runs in (("whole", whole), ("cut", cut)):
        scored = [RanxRun(run) for run in runs]
        ranked = [RanxRun(by_rank(run)) for run in runs]
        fused = {f"rrf {k}": fuse(ranked, norm=None, method="rrf", params={"k": k}) for k in (60, 10)}
        for ours, norm in NORMALIZATIONS.items():
            given = ranked if norm == "rank" else scored
            for method, theirs in METHODS.items():
                params = {"weights": WEIGHTS} if theirs == "wsum" else {}
                fused[f"{method} {ours}"] = fuse(given, norm=norm, method=theirs, params=params)
        record[label] = {
            name: {query: figures(scores) for query, scores in sorted(run.to_dict().items())}
            for name, run in fused.items()
        }
    (ROOT / "tests/parity/ranx_fusion.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

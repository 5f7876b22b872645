"""Scoring speed, against pytrec_eval: one table, medians over rounds, the two taking turns.

    python scripts/bench_metrics.py [--queries 6980] [--depth 1000] [--rounds 3]

"arrays" scores a ranking held as arrays, looking up its grades included, against pytrec_eval's
`RelevanceEvaluator.evaluate` from ready dicts. "file" reads the same run from a TREC file and scores it,
against `pytrec_eval.parse_run` and `evaluate`. Both compute nDCG, MAP, recall, precision and MRR at six
cutoffs, and must agree. (pytrec_eval has no MRR with a cutoff; it computes one reciprocal rank, not six.)
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytrec_eval
from harness import Timed, in_turn, show

from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Qrels, Ranking
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run, write_run
from pipeline.metrics import parse_measures
from pipeline.metrics.evaluation import join_run_and_qrels
from pipeline.metrics.scoring import compute_measures

CUTOFFS = (1, 3, 5, 10, 100, 1000)
MEASURES = parse_measures(
    [f"{name}@{k}" for name in ("ndcg", "map", "recall", "precision", "mrr") for k in CUTOFFS]
)
THEIR_NAMES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
THEIRS = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in THEIR_NAMES.values()} | {"recip_rank"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=6980)
    parser.add_argument("--depth", type=int, default=1000, help="documents per query")
    parser.add_argument("--passages", type=int, default=8_841_823, help="documents to choose from")
    parser.add_argument(
        "--judged", type=int, default=5, help="judgments per query, about half of them retrieved"
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ranking, qrels = generate(args.queries, args.depth, args.passages, args.judged)
    with tempfile.TemporaryDirectory() as folder:
        run_path, qrels_path = Path(folder, "run.trec"), Path(folder, "qrels.trec")
        write_files(ranking, qrels, args.passages, run_path, qrels_path)
        for source, (timed, gap) in (
            ("arrays", compare_arrays(ranking, qrels, args.rounds)),
            ("file", compare_files(run_path, qrels_path, args.rounds)),
        ):
            title = (
                f"from {source}: {args.queries} queries x {args.depth} documents, {len(MEASURES)} measures"
            )
            show(f"{title}, means within {gap:.1e}", timed, args.queries, "queries", "pytrec_eval")


def generate(n_queries: int, depth: int, n_passages: int, judged: int) -> tuple[Ranking, Qrels]:
    """A random ranking with few ties, and judgments half inside it and half anywhere."""
    random = np.random.default_rng(0)
    steps = random.integers(1, n_passages // depth, size=(n_queries, depth))
    passages = random.permuted(np.cumsum(steps, axis=1), axis=1)
    scores = random.normal(0.7, 0.1, size=passages.shape).astype(np.float32)
    inside = np.take_along_axis(passages, random.integers(depth, size=(n_queries, judged)), axis=1)
    anywhere = random.integers(n_passages, size=inside.shape)
    chosen = np.where(random.random(inside.shape) < 0.5, inside, anywhere)
    keys = np.unique(chosen + n_passages * np.arange(n_queries)[:, None])
    grades = random.integers(0, 4, size=len(keys))
    numbers = string_ids(n_passages)
    return Ranking(*sort_hits_by_id(passages, scores, numbers)), Qrels(
        keys // n_passages, keys % n_passages, grades
    )


def string_ids(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(np.arange(count)).cast(pa.string())])


def write_files(ranking: Ranking, qrels: Qrels, n_passages: int, run_path: Path, qrels_path: Path) -> None:
    """The same ranking and judgments as TREC files; an id is its row number."""
    numbers = string_ids(n_passages)
    with run_path.open("wb") as file:
        write_run(file, numbers[: len(ranking.passages)], numbers, ranking, "bench")
    columns = (qrels.queries.tolist(), qrels.passages.tolist(), qrels.grades.tolist())
    lines = (f"{query} 0 {passage} {grade}\n" for query, passage, grade in zip(*columns, strict=True))
    qrels_path.write_text("".join(lines))


def compare_arrays(ranking: Ranking, qrels: Qrels, rounds: int) -> tuple[dict[str, Timed], float]:
    """What both took, and the largest difference of a mean."""
    n_queries = len(ranking.passages)
    run: dict[str, dict[str, float]] = {}
    for query, (passages, scores) in enumerate(zip(ranking.passages, ranking.scores.tolist(), strict=True)):
        run[str(query)] = dict(zip(map(str, passages.tolist()), scores, strict=True))
    evaluator = pytrec_eval.RelevanceEvaluator(to_dicts(qrels), THEIRS)
    ours, theirs = (
        lambda: compute_measures(ranking, qrels, n_queries, MEASURES),
        lambda: evaluator.evaluate(run),
    )
    timed = in_turn({"benchmarco": ours, "pytrec_eval": theirs}, rounds)
    means = timed["benchmarco"].result.mean(axis=0)
    return timed, difference(means, timed["pytrec_eval"].result)


def compare_files(run_path: Path, qrels_path: Path, rounds: int) -> tuple[dict[str, Timed], float]:
    """What both took, and the largest difference of a mean."""

    def ours_from_file() -> Any:
        joined = join_run_and_qrels(read_run(run_path), read_qrels(qrels_path))
        return compute_measures(joined.ranking, joined.qrels, len(joined.query_ids), MEASURES)

    def theirs_from_file() -> Any:
        with qrels_path.open() as qrels_file, run_path.open() as run_file:
            qrels, run = pytrec_eval.parse_qrel(qrels_file), pytrec_eval.parse_run(run_file)
        return pytrec_eval.RelevanceEvaluator(qrels, THEIRS).evaluate(run)

    ours, theirs = (ours_from_file, theirs_from_file)
    timed = in_turn({"benchmarco": ours, "pytrec_eval": theirs}, rounds)
    means = timed["benchmarco"].result.mean(axis=0)
    return timed, difference(means, timed["pytrec_eval"].result)


def to_dicts(qrels: Qrels) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for query, passage, grade in zip(
        qrels.queries.tolist(), qrels.passages.tolist(), qrels.grades.tolist(), strict=True
    ):
        judged.setdefault(str(query), {})[str(passage)] = grade
    return judged


def difference(means: Any, theirs: dict[str, dict[str, float]]) -> float:
    """Largest difference of a mean, over the measures both have."""
    gaps = []
    for measure, mean in zip(MEASURES, means.tolist(), strict=True):
        if measure.name in THEIR_NAMES:
            name = f"{THEIR_NAMES[measure.name]}_{measure.cutoff}"
            gaps.append(abs(mean - statistics.fmean(query[name] for query in theirs.values())))
    return float(max(gaps))


if __name__ == "__main__":
    main()

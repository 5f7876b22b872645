"""Measures against pytrec_eval, ir_measures and scikit-learn, to 1e-9.

Runs go through TREC files, as a user's do: reading, joining, tie rule and measures are all under test.
"""

import gzip
import itertools
import shutil
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings, strategies as st
from sklearn.metrics import ndcg_score

from pipeline.core.records import Qrels, Ranking
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.metrics import parse_measures
from pipeline.metrics.evaluation import join_run_and_qrels
from pipeline.metrics.scoring import compute_measures

DL19 = Path(__file__).parents[2].parent / "shared" / "data" / "msmarco-dl19"
RUNS = ["bm25", "bm25_rm3", "d_bert_kd_tasb", "open_ai_ada2", "rep_llama", "splade_p_p_ensemble_distil"]
CUTOFFS = [1, 2, 3, 5, 7, 10, 20, 50, 99, 100, 101, 200, 500, 1000]
TOLERANCE = 1e-9

Judgments = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]
Values = dict[str, dict[str, float]]

needs_dl19 = pytest.mark.skipif(
    not DL19.exists(), reason=f"{DL19} is not here: MS MARCO may not be shipped with the project"
)


def our_values(folder: Path, qrels: Judgments, run: Run, measures: list[str]) -> Values:
    """{query: {measure as asked: value}}, through files."""
    lines = [f"{q} 0 {d} {g}\n" for q, grades in qrels.items() for d, g in grades.items()]
    (folder / "qrels").write_text("".join(lines))
    lines = [f"{q} Q0 {d} 0 {s!r} t\n" for q, hits in run.items() for d, s in hits.items()]
    (folder / "run").write_text("".join(lines))
    return files_values(folder / "qrels", folder / "run", measures)


def files_values(qrels: Path, run: Path, measures: list[str]) -> Values:
    """Scores are compared as float32, as the trec_eval in pytrec_eval does."""
    joined = join_run_and_qrels(read_run(run), read_qrels(qrels), single_precision=True)
    values = compute_measures(joined.ranking, joined.qrels, parse_measures(measures))
    rows = zip(joined.query_ids.to_pylist(), values.tolist(), strict=True)
    return {query: dict(zip(measures, row, strict=True)) for query, row in rows}


def pytrec_names(rel: int, cutoffs: list[int]) -> dict[str, str]:
    """Our name and pytrec_eval's for all it computes at a relevance level."""
    at_rel = f"(rel={rel})"
    names = {f"map{at_rel}": "map", f"mrr{at_rel}": "recip_rank", f"r_precision{at_rel}": "Rprec"}
    names |= {f"bpref{at_rel}": "bpref", f"infap{at_rel}": "infAP"}
    for k in cutoffs:
        names |= {f"precision{at_rel}@{k}": f"P_{k}", f"recall{at_rel}@{k}": f"recall_{k}"}
        names |= {f"map{at_rel}@{k}": f"map_cut_{k}", f"success{at_rel}@{k}": f"success_{k}"}
        names |= {f"ndcg@{k}": f"ndcg_cut_{k}"}
    return names


def condensed(measure: str) -> str:
    """The measure of the ranking without unjudged documents."""
    name, at, cutoff = measure.partition("@")
    return (f"{name[:-1]}," if name.endswith(")") else f"{name}(") + f"unjudged=removed){at}{cutoff}"


def pytrec_values(
    qrels: Judgments, run: Run, rel: int, cutoffs: list[int], only_judged: bool = False
) -> Values:
    """pytrec_eval's values under our names, as `trec_eval -c` counts: 0 for a query without hits."""
    names = pytrec_names(rel, cutoffs)
    if only_judged:  # trec_eval -J
        names = {condensed(ours): theirs for ours, theirs in names.items()}
    ks = ",".join(map(str, cutoffs))
    wanted = {"map", "recip_rank", "Rprec", "bpref", "infAP"}
    wanted |= {f"{name}.{ks}" for name in ("P", "recall", "map_cut", "success", "ndcg_cut")}
    evaluator = pytrec_eval.RelevanceEvaluator(
        qrels, wanted, relevance_level=rel, judged_docs_only_flag=only_judged
    )
    theirs = evaluator.evaluate(run)
    return {q: {our: theirs[q][name] if q in theirs else 0.0 for our, name in names.items()} for q in qrels}


def assert_equal(ours: Values, theirs: Values) -> None:
    """Per query, and so on average."""
    assert ours.keys() == theirs.keys()
    for query, values in theirs.items():
        for measure, value in values.items():
            assert abs(ours[query][measure] - value) <= TOLERANCE, (query, measure)
    for measure in next(iter(theirs.values())):
        means = [np.mean([values[measure] for values in side.values()]) for side in (ours, theirs)]
        assert abs(means[0] - means[1]) <= TOLERANCE, measure


def without_ties(run: Run) -> Run:
    """The same order by trec_eval's rule, with scores that all differ: ir_measures has two rules for ties."""
    with np.errstate(over="ignore"):
        order = {q: sorted(hits, key=lambda d: (np.float32(hits[d]), d.encode())) for q, hits in run.items()}
    return {q: {d: float(place) for place, d in enumerate(documents)} for q, documents in order.items()}


def ir_measures_values(qrels: Judgments, run: Run, names: dict[str, str]) -> Values:
    """ir_measures' values under our names (our name -> theirs); 0 where it gives none."""
    parsed = {ir_measures.parse_measure(theirs): ours for ours, theirs in names.items()}
    values: Values = {query: dict.fromkeys(names, 0.0) for query in qrels}
    for metric in ir_measures.iter_calc(list(parsed), qrels, run):
        values[metric.query_id][parsed[metric.measure]] = metric.value
    return values


def ir_measures_names(rel: int, cutoffs: list[int]) -> dict[str, str]:
    names = {f"mrr(rel={rel})": f"RR(rel={rel})", f"r_precision(rel={rel})": f"Rprec(rel={rel})"}
    names |= {f"map(rel={rel})": f"AP(rel={rel})", f"bpref(rel={rel})": f"Bpref(rel={rel})"}
    names |= {f"infap(rel={rel})": f"infAP(rel={rel})"}
    pairs = [("mrr", "RR"), ("map", "AP"), ("precision", "P"), ("recall", "R"), ("success", "Success")]
    for k in cutoffs:
        names |= {f"{ours}(rel={rel})@{k}": f"{theirs}(rel={rel})@{k}" for ours, theirs in pairs}
        names |= {f"ndcg@{k}": f"nDCG@{k}", f"judged@{k}": f"Judged@{k}"}
    return names


def load(name: str) -> tuple[Path, Path, Judgments, Run]:
    """The files of a real run and of its judgments, and what they hold."""
    qrels_path, run_path = DL19 / "qrels" / "full.trec", DL19 / "runs" / f"{name}.trec.gz"
    with qrels_path.open() as qrels_file, gzip.open(run_path, "rt") as run_file:
        qrels, run = pytrec_eval.parse_qrel(qrels_file), pytrec_eval.parse_run(run_file)
    return qrels_path, run_path, dict(qrels), dict(run)


@needs_dl19
@pytest.mark.parametrize("name", RUNS)
def test_real_runs_equal_pytrec_eval(name: str) -> None:
    qrels_path, run_path, qrels, run = load(name)
    theirs: Values = {query: {} for query in qrels}
    for rel, only_judged in itertools.product((1, 2), (False, True)):
        for query, values in pytrec_values(qrels, run, rel, CUTOFFS, only_judged).items():
            theirs[query] |= values
    assert_equal(files_values(qrels_path, run_path, list(next(iter(theirs.values())))), theirs)


IDS = st.sampled_from(["1", "2", "10", "9", "q", "Q", "d", "d1", "é", "z", "\uffff", "\U0001f600", "a-b"])
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e39, 1.0 + 1e-9, 1.0 - 1e-12, 16777216.0, 16777217.0]),
    st.floats(-3, 3),
    st.floats(allow_nan=False),
    st.integers(-2, 2).map(float),
)
RUNS_OF = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=14), min_size=1, max_size=4)


GRADES = st.dictionaries(IDS, st.integers(-2, 4), min_size=1, max_size=14)
# form_res_rels.c leaves the number of levels unset if all grades are below zero: not asked of it.
JUDGED = st.dictionaries(IDS, GRADES.filter(lambda grades: max(grades.values()) >= 0), min_size=1, max_size=4)


@settings(max_examples=150)
@given(qrels=JUDGED, run=RUNS_OF, rel=st.integers(1, 3))
def test_generated_runs_equal_pytrec_eval(tmp_path: Path, qrels: Judgments, run: Run, rel: int) -> None:
    cutoffs = [1, 2, 3, 5, 10, 20]
    theirs = pytrec_values(qrels, run, rel, cutoffs)
    only_judged = pytrec_values(qrels, run, rel, cutoffs, only_judged=True)
    for query, values in theirs.items():
        # it has no MRR with a cutoff; within k, a reciprocal rank is at least 1/k
        first = values[f"mrr(rel={rel})"]
        values |= {f"mrr(rel={rel})@{k}": first if first >= 1 / k else 0.0 for k in cutoffs}
        values |= only_judged[query]
    ours = our_values(tmp_path, qrels, run, list(next(iter(theirs.values()))))
    assert_equal(ours, theirs)


@settings(max_examples=80)
@given(qrels=JUDGED, run=RUNS_OF, rel=st.integers(1, 3))
def test_generated_runs_without_ties_equal_ir_measures(
    tmp_path: Path, qrels: Judgments, run: Run, rel: int
) -> None:
    names = ir_measures_names(rel, [1, 3, 20])
    run = without_ties(run)
    assert_equal(our_values(tmp_path, qrels, run, list(names)), ir_measures_values(qrels, run, names))


@settings(max_examples=150)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=20).filter(any),
    st.integers(1, 20),
    st.sampled_from(["linear", "exp"]),
)
def test_ndcg_over_what_was_retrieved_equals_scikit_learn(grades: list[int], k: int, gain: str) -> None:
    ranks = np.arange(len(grades))
    scores = -ranks[None].astype(np.float32)
    ranking, qrels = Ranking(ranks[None], scores), Qrels(np.zeros_like(ranks), ranks, np.array(grades))
    ours = compute_measures(ranking, qrels, parse_measures(f"ndcg(ideal=retrieved,gain={gain})@{k}"))
    gains = np.array([grades]) if gain == "linear" else 2.0 ** np.array([grades]) - 1
    assert abs(ours.item() - ndcg_score(gains, scores, k=k)) <= TOLERANCE


@needs_dl19
def test_expected_reciprocal_rank_is_gdeval_s(tmp_path: Path) -> None:
    """To the five digits that gdeval.pl prints; it is a Perl program inside ir_measures."""
    if not shutil.which("perl"):
        pytest.skip("perl is not here, which gdeval is written in")
    *_, qrels, run = load("rep_llama")
    names = {f"err@{k}": f"ERR@{k}" for k in (1, 10, 100)}
    ours, theirs = our_values(tmp_path, qrels, run, list(names)), ir_measures_values(qrels, run, names)
    for query, values in theirs.items():
        assert list(ours[query].values()) == pytest.approx(list(values.values()), abs=6e-6)
    assert np.mean([values["err@10"] for values in ours.values()]) > 0.1

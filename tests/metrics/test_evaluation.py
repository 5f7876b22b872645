"""Runs and judgments from files: measures, short rankings, and ties at cutoffs."""

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inside import resize
from workplaces import benchmarco, document, on_one_line

from pipeline import InputError, evaluate, metrics, run_benchmark
from pipeline.core import Qrels, Ranking
from pipeline.metrics import parse_measure

QRELS = "q2 0 d1 1\nq1 0 d2 2\nq1 0 d1 0\nq3 0 d9 1\n"
RUN = "q1 Q0 d1 1 5 t\nq1 Q0 d2 2 4 t\nq9 Q0 d1 1 1 t\nq2 Q0 d8 1 3 t\nq2 Q0 d1 2 3 t\nq1 Q0 q1 3 9 t\n"


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text(QRELS)
    run.write_text(RUN)
    return qrels, run


def test_evaluate(paths: tuple[Path, Path]) -> None:
    measures = ["mrr", "recall@10"]
    evaluation = evaluate(*paths, measures)
    assert evaluation.query_ids == ["q2", "q1", "q3"]
    assert list(map(str, evaluation.measures)) == measures
    assert evaluation.values == pytest.approx(np.array([[1 / 2, 1], [1 / 3, 1], [0, 0]]))
    assert evaluation.means == pytest.approx([5 / 18, 2 / 3])
    assert evaluation.intervals[0] is None  # too few queries, but for values of 0 and 1
    assert (evaluation.missing, evaluation.unjudged) == (1, 1)
    # d8 of the first query's ranking, and q1 of the second's, are not judged; the third is not in the run
    assert evaluation.judged == {"recall@10": pytest.approx(7 / 18)}


def test_scores_are_compared_as_the_chosen_version_of_trec_eval_does(tmp_path: Path) -> None:
    """d1 is ahead by less than a float32 tells: there the two tie, and the higher id goes first."""
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    one, two = 'a"b', "x,y"  # which CSV quotes
    qrels.write_text(f"{one} 0 d1 1\n{one} 0 d2 0\n{two} 0 d1 1\n")
    hits = (
        f"{one} Q0 d1 1 1.00000000001",
        f"{one} Q0 d2 2 1",
        f"{two} Q0 d1 1 1e300",
        f"{two} Q0 d0 2 1e200",
    )
    run.write_text("".join(f"{hit} t\n" for hit in hits))
    for option, expected in ([], [1, 1]), (["--single-precision"], [0.5, 1]):
        table = tmp_path / "values.csv"
        files = ("--qrels", qrels, "--run", run, "--per-query", table)
        benchmarco("evaluate", *files, "--measures", "mrr", *option)
        rows = {row["query_id"]: float(row["mrr"]) for row in csv.DictReader(table.open(newline=""))}
        assert rows == dict(zip((one, two), expected, strict=True))


def test_repeated_judgments_are_merged_and_said(paths: tuple[Path, Path]) -> None:
    before = evaluate(*paths, ["map"])
    paths[0].write_text(QRELS + "q1 0 d1 0\n")
    evaluation = evaluate(*paths, ["map"])
    assert np.array_equal(evaluation.values, before.values)
    assert (before.repeated, evaluation.repeated) == (0, 1)
    titles = [each.tables()[0].title for each in (before, evaluation)]
    assert titles[1] == titles[0] + ", 1 repeated judgment merged"
    found = document("evaluate", "--qrels", paths[0], "--run", paths[1])
    assert document("evaluate", paths[1], paths[0]) == found
    said = benchmarco("evaluate", paths[1], paths[0]).stderr
    assert said == f"benchmarco: taken as: judgments {paths[0]}, run {paths[1]}\n"
    assert benchmarco("evaluate", *paths).stderr == ""
    for few in ([paths[0]], ["--run", paths[1]], []):
        assert "evaluate QRELS RUN..." in benchmarco("evaluate", *few, code=2).stderr
    assert found["repeated_judgments"] == 1


def test_identical_ids_go_only_when_asked_and_a_run_of_other_queries_is_refused(
    paths: tuple[Path, Path],
) -> None:
    evaluation = evaluate(*paths, ["mrr"], ignore_identical_ids=True)
    assert evaluation.values[:, 0] == pytest.approx([1 / 2, 1 / 2, 0])
    paths[1].write_text("other Q0 d1 1 1 t\n")
    with pytest.raises(InputError, match=r"no query of .* is judged in .*'q2'"):
        evaluate(*paths, ["mrr"])


SWAPPED = {
    "files": (RUN, QRELS, "line 1: expected 3 or 4 fields .* found 6: this looks like a run"),
    "run": (QRELS, QRELS, "line 1: expected 6 fields .* found 4: this looks like judgments"),
    "a run without scores": (QRELS, "q1\td1\t1\n", "found 3: this looks like judgments, or a run without sc"),
    "Unicode forms": (
        "e\u0301 0 a 1\n",
        "\xe9 Q0 a 1 1 t\n",
        r"has '\\xe9', and .* 'e\\u0301'",
    ),
    "ranks": (
        QRELS,
        "q1 Q0 a 0.9 1 t\nq1 Q0 b 0.8 2 t\nq1 Q0 c 0.7 3 t\n",
        "scores of the first query are its r",
    ),
    "iteration": (
        "q1 d1 0 1\nq2 d2 0 1\n",
        RUN,
        "no document of .* is judged in .* the run has 'd1', and .* '0'",
    ),
    "header": ("corpus-id query-id score\nd1 q1 1\n", RUN, "line 1: the header is corpus-id query-id"),
}


@pytest.mark.parametrize("what", SWAPPED)
def test_what_is_swapped_is_said(paths: tuple[Path, Path], what: str) -> None:
    qrels, run, message = SWAPPED[what]
    paths[0].write_text(qrels, encoding="utf-8")
    paths[1].write_text(run, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        evaluate(*paths, ["mrr"])
    if what != "files":
        command = benchmarco("evaluate", *paths, code=2)
        assert re.search(message, on_one_line(command))


def test_nothing_is_refused_for_its_values_where_it_is_said_what_it_is(paths: tuple[Path, Path]) -> None:
    # grades of 0.5, and whole scores: the options name the files
    paths[0].write_text("q1 0 a 0.5\nq2 0 b 0.5\n")
    paths[1].write_text("q1 Q0 a 1 3 t\nq2 Q0 c 1 2 t\n")
    named = "--qrels", paths[0], "--run", paths[1], "--measures", "mrr(rel=0.5)"
    assert document("evaluate", *named)["metrics"] == {"mrr(rel=0.5)": 0.5}


def test_an_interval_that_one_lost_query_would_outweigh_is_marked(paths: tuple[Path, Path]) -> None:
    names = [f"q{number}" for number in range(6)]
    paths[0].write_text("".join(f"{name} 0 b 1\n" for name in names))
    paths[1].write_text(
        "".join(f"{name} Q0 {hit} 1 {9 - rank} t\n" for name in names for rank, hit in enumerate("ab"))
    )
    command = "evaluate", "--qrels", paths[0], "--run", paths[1], "--measures", "mrr,success@5"
    found = document(*command)
    assert found["intervals"]["mrr"] == [0.5, 0.5]
    assert found["fragile"] == {"mrr": True, "success@5": False}  # of 0 and 1, by Wilson
    said = benchmarco(*command).stdout
    assert "0.5000 to 0.5000~" in said
    assert "one unseen query that loses everything" in said


def test_a_table_of_judgments_for_a_run_is_said() -> None:
    tables = [pd.DataFrame({"qid": ["a"], "docid": ["1"], name: [1]}) for name in ("score", "relevance")]
    with pytest.raises(InputError, match="this looks like judgments"):
        evaluate(*tables, ["mrr"])


def test_order_of_lines_does_not_matter(paths: tuple[Path, Path]) -> None:
    measures = ["mrr", "ndcg@3", "judged@2"]
    expected = evaluate(*paths, measures).values
    lines = RUN.splitlines(keepends=True)
    for seed in range(5):
        paths[1].write_text("".join(np.random.default_rng(seed).permutation(lines)))
        assert np.array_equal(evaluate(*paths, measures).values, expected)


def test_judged_passages_that_collide_in_the_table_are_all_found() -> None:
    passages = 1024 * np.arange(8)
    ranking = Ranking(passages[None], -np.arange(8, dtype=np.float32)[None])
    qrels = Qrels(np.zeros(8, np.int64), passages, np.ones(8, np.int64))
    assert metrics.compute_measures(ranking, qrels, metrics.parse_measures("recall@8")).item() == 1


def test_many_queries(tmp_path: Path) -> None:
    """More than 16 bits count, with runs of every length and in another order than the judgments."""
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    numbers = range(70_000)
    qrels.write_text("".join(f"{n} 0 d{n} 1\n" for n in numbers))
    hits = ((n, rank) for n in reversed(numbers) for rank in range(n % 4))
    run.write_text("".join(f"{n} Q0 d{n + 2 - r} {r + 1} {-r} t\n" for n, r in hits))
    found = evaluate(qrels, run, ["mrr"])
    assert found.values[:, 0].tolist() == [1 / 3 if n % 4 == 3 else 0 for n in numbers]
    assert found.missing == 17_500


@pytest.mark.parametrize(
    ("measures", "passages", "expected"),
    [
        ("mrr@2,recall@4", 9, {"queries": 2, "fewest": 0, "cutoff": 4}),
        ("recall@4", math.inf, {"queries": 2, "fewest": 0, "cutoff": 4}),
        ("recall@4", 2, {"queries": 1, "fewest": 0, "cutoff": 2}),
        ("map,mrr", 9, None),
    ],
)
def test_rows_with_fewer_hits_than_the_deepest_cutoff(
    measures: str, passages: float, expected: dict[str, int] | None
) -> None:
    rows = np.array([[0, 1, 2, 3], [4, 5, -1, -1], [-1, -1, -1, -1]])
    ranking = Ranking(rows, np.zeros(rows.shape, np.float32))
    found = metrics.short_rankings(ranking.lengths(), metrics.parse_measures(measures), passages)
    assert (found and found.model_dump(exclude_defaults=True)) == expected


def test_an_index_that_finds_too_little_says_so_wherever_its_measures_are_shown(workplace: Path) -> None:
    lists = ["index.factory='IVF64,Flat'", "search.top_k=300", "evaluate.measures=[recall@300]"]
    command = ("run", workplace / "c.yaml", "--output", workplace / "results")
    settings = [argument for each in (*lists, f"cache={workplace}/indexes") for argument in ("--set", each)]
    done = benchmarco(*command, *settings)
    folder = workplace / "results" / "t"
    found = json.loads((folder / "metrics.json").read_text())["short_rankings"]
    assert (found["queries"], found["cutoff"]) == (114, 300)
    assert f"300 passages were found for 114 queries ({found['fewest']} at the fewest)" in done.output
    files = ["--qrels", str(workplace / "data/qrels/test.tsv"), "--run", str(folder / "run.trec")]
    for arguments in (["evaluate", *files, "--measures", "recall@300"], ["compare", str(folder)]):
        said = on_one_line(benchmarco(*arguments))
        assert "fewer than 300 passages were found for 114 queries" in said
    words = ["model={backend: bm25}", "search.top_k=300", "evaluate.measures=[recall@300]"]
    done = benchmarco(*command, *(argument for each in words for argument in ("--set", each)))
    assert "fewer than" not in done.output  # it finds all that share a word


def test_fewer_than_five_queries_have_no_interval() -> None:
    qrels = {f"q{n}": {"d1": 1, "d2": 2} for n in range(9)}
    run = {query: {"d2": 2.0, "d1": 1.0} for query in qrels}
    assert "No interval" not in str(evaluate(qrels, run, "ndcg@2,dcg@2"))
    few = dict(list(qrels.items())[:4])
    (table,) = evaluate(few, run, "ndcg@2,dcg@2").tables()
    assert table.notes[0] == "No interval: fewer than 5 queries."


@pytest.mark.parametrize(
    "names", ["ndcg@1", "mrr@2,recall@4", "precision@5,precision@9", "ndcg@3,map", "map", ""]
)
def test_queries_with_ties_at_a_cutoff_are_those_of_a_slow_definition(names: str) -> None:
    """A measure without a cutoff has none."""
    measures, rng = metrics.parse_measures(names) if names else [], np.random.default_rng(7)
    scores = -np.sort(-rng.integers(0, 6, (200, 6)).astype(np.float32), axis=1)
    lengths = rng.integers(0, 7, 200)
    padded = np.arange(6) >= lengths[:, None]
    ranking = Ranking(np.where(padded, -1, np.arange(6)), np.where(padded, -np.inf, scores))
    expected = []
    for row, length in zip(scores.tolist(), lengths.tolist(), strict=True):
        cutoffs = [each.cutoff for each in measures if each.cutoff]
        expected.append(any(k < length and row[k - 1] == row[k] for k in cutoffs))
    found = metrics.tied_at_cutoffs(ranking, measures)
    assert found.tolist() == expected
    assert (0 < found.sum() < 200) == ("@" in names)
    assert not metrics.tied_at_cutoffs(Ranking(np.empty((2, 0), np.int64), np.empty((2, 0))), measures).any()


def test_ties_at_a_cutoff_are_one_note_and_a_count(tmp_path: Path) -> None:
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text("".join(f"q{n} 0 d1 1\n" for n in range(10)))
    hits = [(n, d, 1 if n == 3 else -d) for n in range(9) for d in (1, 2)]  # q9 is not in the run
    run.write_text("".join(f"q{n} Q0 d{d} 1 {score} t\n" for n, d, score in hits))
    said = "1 of 10 queries (10%) has equal scores at a cutoff: ties are broken by id, as trec_eval does."
    for measure, ties in (("mrr@1", {"queries": 1, "share": 0.1}), ("mrr@2", None)):
        assert document("evaluate", qrels, run, "--measures", measure)["ties"] == ties
        assert (said in on_one_line(benchmarco("evaluate", qrels, run, "--measures", measure))) == bool(ties)


def test_queries_of_very_different_lengths_are_scored_as_each_alone(tmp_path: Path) -> None:
    """Their rankings are not laid out as one matrix, whose memory would be queries times the longest."""
    measures = "ndcg@10,map,judged@5,rbp,recall@1000,ndcg@1"
    lengths = {f"q{number}": 3000 if number == 7 else 1 + number % 3 for number in range(2000)}
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text("".join(f"{query} 0 d{n} 1\n" for query in [*lengths, "missing"] for n in (0, 2)))
    run.write_text(
        "".join(
            f"{query} Q0 d{n} 1 {-(n // 2)} t\n" for query, length in lengths.items() for n in range(length)
        )
    )
    scored = metrics.evaluate(qrels, run, measures)
    assert (scored.missing, len(scored.query_ids)) == (1, 2001)
    assert scored.json()["short_rankings"] == {"queries": 1999, "fewest": 1, "cutoff": 1000}
    assert scored.ties.queries == 1 + sum(length > 1 for query, length in lengths.items() if query != "q7")
    for query in ("q6", "q7", "q8"):
        one, alone = tmp_path / "one", tmp_path / "alone"
        one.write_text(f"{query} 0 d0 1\n{query} 0 d2 1\n")
        alone.write_text("".join(line for line in run.open() if line.startswith(f"{query} ")))
        (values,) = metrics.evaluate(one, alone, measures).values
        assert scored.values[scored.query_ids.index(query)].tolist() == values.tolist()
    assert scored.values[scored.query_ids.index("missing")].tolist() == [0] * 6


def test_grades_that_are_not_whole_are_gains_and_rel_may_be_any_number() -> None:
    """mteb#5516, mteb#3479, pytrec_eval#16: the definition, and ir_measures where it takes floats."""
    judged = {"q": {"a": 0.5, "b": 2.75, "c": 1.0, "d": 0.0}}
    run = {"q": {"a": 9.0, "b": 8.0, "x": 7.0, "c": 6.0}}
    discounts = [1 / math.log2(rank + 1) for rank in (1, 2, 3, 4)]
    dcg = 0.5 * discounts[0] + 2.75 * discounts[1] + 1.0 * discounts[3]
    best = 2.75 * discounts[0] + 1.0 * discounts[1] + 0.5 * discounts[2]
    names = ["cg@4", "dcg@4", "ndcg@4", "map", "map(rel=0.5)", "mrr", "recall(rel=1.5)@10", "dcg(gain=exp)@1"]
    found = evaluate(judged, run, names).mean_by_measure
    expected = {
        "cg@4": 4.25, "dcg@4": dcg, "ndcg@4": dcg / best, "map": (1 / 2 + 2 / 4) / 2, "mrr": 0.5,
        "map(rel=0.5)": (1 + 1 + 3 / 4) / 3, "recall(rel=1.5)@10": 1.0, "dcg(gain=exp)@1": 2**0.5 - 1,
    }  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-12)
    with pytest.raises(InputError, match=r"grade 2\.75 with err.*whole grades up to 4"):
        evaluate(judged, run, "err@4")


@pytest.mark.parametrize(
    ("name", "printed"), [("map(rel=2.0)", "map(rel=2)"), ("P(rel=.5)@5", "precision(rel=0.5)@5")]
)
def test_a_level_of_relevance_is_read_as_it_is_printed(name: str, printed: str) -> None:
    assert str(parse_measure(name)) == printed
    assert parse_measure(printed) == parse_measure(name)


@pytest.mark.parametrize("name", ["map(rel=0.0)", "map(rel=0)", "map(rel=-1)", "map(rel=1e3)", "map(rel=.)"])
def test_other_levels_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="rel="):
        parse_measure(name)


def test_a_run_of_other_documents_is_refused_with_an_id_of_each_side(tmp_path: Path) -> None:
    """sentence-transformers#3717: ids 007 and 7 are not the same."""
    qrels, run, other = (tmp_path / name for name in ("qrels", "run", "other"))
    qrels.write_text("q1 0 7 1\n")
    run.write_text("q1 Q0 007 1 1 t\n")
    other.write_text("q1 Q0 7 1 1 t\n")
    message = r"no document of .*run is judged in .*qrels.*the run has '007', and .*qrels '7'"
    for command in (("evaluate", run, qrels), ("compare", run, other, "--qrels", qrels)):
        assert re.search(message, on_one_line(benchmarco(*command, code=2)))
    with pytest.raises(InputError, match="no document of the run is judged"):
        evaluate({"q1": {"7": 1}}, {"q1": {"007": 1.0}})


def test_queries_that_a_run_lacks_are_counted_in_every_comparison(tmp_path: Path) -> None:
    """librefang#7950: a run that answers 1 of 40 queries was worse, and nobody said why."""
    names = [f"q{number}" for number in range(40)]
    qrels, a, b = (tmp_path / name for name in ("qrels", "A.trec", "B.trec"))
    qrels.write_text("".join(f"{name} 0 d 1\n" for name in names))
    a.write_text("".join(f"{name} Q0 d 1 1 t\n" for name in names))
    b.write_text("q0 Q0 d 1 1 t\nz Q0 d 1 1 t\n")
    lacks = "B.trec: 39 judged queries are not in the run, and each scores 0"
    compared: Any = document("compare", a, b, "--qrels", qrels, "--measure", "mrr@10")
    assert lacks in compared["notes"]
    assert "B.trec: the run lacks the queries q1, q2, q3, ..." in compared["notes"]
    for command in (("compare", a, b, "--qrels", qrels), ("evaluate", a, b, qrels)):
        assert lacks in on_one_line(benchmarco(*command))


def test_ids_of_more_bytes_than_an_array_of_strings_holds_are_scored_alike(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run or judgments of 18 million ids of 120 characters: the arrays of such ids have another type."""
    expected = evaluate(*paths, ["ndcg@10", "mrr"]).json()
    resize(monkeypatch, judged_id_bytes=1, tied_id_bytes=1)
    assert evaluate(*paths, ["ndcg@10", "mrr"]).json() == expected
    data = {"source": "beir", "path": str(paths[0].parent)}
    for name, ids in (("corpus", ["d1", "d2", "d8"]), ("queries", ["q1", "q2", "q3"])):
        lines = [json.dumps({"_id": one, "text": "word"}) + "\n" for one in ids]
        (paths[0].parent / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    (paths[0].parent / "qrels").rename(paths[0].parent / "judged")
    (paths[0].parent / "qrels").mkdir()
    (paths[0].parent / "judged").rename(paths[0].parent / "qrels" / "test.tsv")
    config = {"name": "t", "data": data, "model": {"backend": "bm25"}, "evaluate": {"measures": ["mrr@10"]}}
    folders = {name: str(paths[0].parent / name) for name in ("cache", "output")}
    assert run_benchmark(config | folders).metrics["mrr@10"] > 0

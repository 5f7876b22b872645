"""Runs and judgments from files, by the public function and the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline import InputError, evaluate
from pipeline.cli import app
from pipeline.core.records import Ranking
from pipeline.metrics import parse_measures
from pipeline.metrics.scoring import short_rankings

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
    assert set(evaluation.intervals) == {None}  # too few queries
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
        files = ["--qrels", str(qrels), "--run", str(run), "--per-query", str(table)]
        done = CliRunner().invoke(app, ["evaluate", *files, "--measures", "mrr", *option])
        assert done.exit_code == 0, done.output
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
    done = CliRunner().invoke(app, ["evaluate", "--qrels", str(paths[0]), "--run", str(paths[1]), "--json"])
    assert CliRunner().invoke(app, ["evaluate", str(paths[1]), str(paths[0]), "--json"]).stdout == done.stdout
    for few in ([str(paths[0])], ["--run", str(paths[1])], []):
        refused = CliRunner().invoke(app, ["evaluate", *few])
        assert (refused.exit_code, "evaluate RUN... QRELS" in refused.stderr) == (2, True)
    assert json.loads(done.stdout)["repeated_judgments"] == 1


def test_identical_ids_go_only_when_asked_and_a_run_of_other_queries_is_refused(
    paths: tuple[Path, Path],
) -> None:
    evaluation = evaluate(*paths, ["mrr"], ignore_identical_ids=True)
    assert evaluation.values[:, 0] == pytest.approx([1 / 2, 1 / 2, 0])
    paths[1].write_text("other Q0 d1 1 1 t\n")
    with pytest.raises(InputError, match=r"no query of .* is judged in .*'q2'"):
        evaluate(*paths, ["mrr"])


def test_order_of_lines_does_not_matter(paths: tuple[Path, Path]) -> None:
    measures = ["mrr", "ndcg@3", "judged@2"]
    expected = evaluate(*paths, measures).values
    lines = RUN.splitlines(keepends=True)
    for seed in range(5):
        paths[1].write_text("".join(np.random.default_rng(seed).permutation(lines)))
        assert np.array_equal(evaluate(*paths, measures).values, expected)


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
        (
            "recall@4",
            None,
            {"queries": 1, "fewest": 2, "cutoff": 4},
        ),  # without hits: missing
        ("recall@4", 2, {"queries": 1, "fewest": 0, "cutoff": 2}),
        ("map,mrr", 9, None),
    ],
)
def test_rows_with_fewer_hits_than_the_deepest_cutoff(
    measures: str, passages: int | None, expected: dict[str, int] | None
) -> None:
    rows = np.array([[0, 1, 2, 3], [4, 5, -1, -1], [-1, -1, -1, -1]])
    ranking = Ranking(rows, np.zeros(rows.shape, np.float32))
    found = short_rankings(ranking, parse_measures(measures), passages)
    assert (found and found.model_dump()) == expected


def test_an_index_that_finds_too_little_says_so_wherever_its_measures_are_shown(workplace: Path) -> None:
    lists = ["index.factory='IVF64,Flat'", "search.top_k=300", "evaluate.measures=[recall@300]"]
    command = ["run", str(workplace / "c.yaml"), "--output", str(workplace / "results")]
    settings = [argument for each in lists for argument in ("--set", each)]
    done = CliRunner().invoke(app, [*command, *settings, "--set", f"cache={workplace}/indexes"])
    assert done.exit_code == 0, done.output
    folder = workplace / "results" / "t"
    found = json.loads((folder / "metrics.json").read_text())["short_rankings"]
    assert (found["queries"], found["cutoff"]) == (114, 300)
    assert f"300 passages were found for 114 queries ({found['fewest']} at the fewest)" in done.output
    files = ["--qrels", str(workplace / "data/qrels/test.tsv"), "--run", str(folder / "run.trec")]
    for arguments in (["evaluate", *files, "--measures", "recall@300"], ["compare", str(folder)]):
        said = " ".join(CliRunner().invoke(app, arguments).output.split())
        assert "fewer than 300 passages were found for 114 queries" in said

"""What changes where one result takes the place of another; computed only where it is shown."""

import csv
from pathlib import Path

import numpy as np
import pytest
from comparison.made import tops, write_qrels
from inside import watch
from workplaces import benchmarco, document

from pipeline import evaluate

K = 5


def churn_of(*arguments: object) -> dict[str, float | int | str | None]:
    found: dict[str, float | int | str | None] = document("compare", *arguments)["churn"]
    return found


def rbo(one: list[str], other: list[str], p: float = 0.9) -> float:
    """Equation 30 of Webber et al., word by word."""
    shared = [len(set(one[:d]) & set(other[:d])) for d in range(1, K + 1)]
    return shared[-1] / K * p**K + (1 - p) / p * sum(x / d * p**d for d, x in enumerate(shared, 1))


def test_rankings_are_compared_and_unjudged_passages_bound_the_difference(
    results: list[Path], qrels: dict[tuple[str, str], int], tmp_path: Path
) -> None:
    churn = churn_of(*results, "--measure", "precision@5")
    one, other = (tops(folder, K) for folder in results)
    assert churn["queries"] == len(one)
    assert churn["changed"] == sum(one[query] != other[query] for query in one)
    overlaps = [len(set(one[query]) & set(other[query])) / K for query in one]
    assert churn["overlap"] == pytest.approx(np.mean(overlaps))
    assert churn["rbo"] == pytest.approx(np.mean([rbo(one[query], other[query]) for query in one]))
    apart = {(q, p): p in other[q] for q in one for p in set(one[q]) ^ set(other[q]) if (q, p) not in qrels}
    assert churn["to_judge"] == len(apart) > 20
    for end in ("lowest", "highest"):
        best = end == "highest"
        judged = {**qrels, **{pair: int(second == best) for pair, second in apart.items()}}
        path = write_qrels(tmp_path / f"{end}.trec", judged)
        means = [evaluate(path, each / "run.trec", ["P@5"]).means[0] for each in results]
        assert churn[end] == pytest.approx(means[1] - means[0])
    page = tmp_path / "page.html"
    measure = ("--measure", "precision@5")
    lines = benchmarco("compare", *results, *measure, "--format", "csv", "--html", page).stdout.splitlines()
    (row,) = [row for row in csv.DictReader(lines) if row["churn_changed"]]
    assert row["churn_to_judge"] == str(churn["to_judge"])
    assert (row["against"], row["churn_before"], row["churn_after"]) == (
        row["churn_after"],
        row["name"],
        row["against"],
    )
    text = page.read_text(encoding="utf-8")
    assert "If you switch" in text
    assert f">{churn['changed']}<" in text

    # from the baseline to the other, and the same table for people
    turned = churn_of(results[0], "--baseline", results[1], "--measure", "precision@5")
    assert turned["highest"] == pytest.approx(-float(churn["lowest"] or 0))
    assert "to judge" in benchmarco("compare", "-v", *results).stdout
    of_ndcg = churn_of(*results, "--measure", "ndcg@10")
    assert (of_ndcg["lowest"], of_ndcg["depth"]) == (None, 10)


def test_more_results_have_none_and_equal_ones_no_change(results: list[Path]) -> None:
    assert churn_of(results[0], *results) is None
    same = churn_of(results[0], results[0], "--measure", "precision@5")
    assert (same["changed"], same["overlap"], same["to_judge"]) == (0, 1, 0)
    assert same["rbo"] == pytest.approx(1)
    assert same["lowest"] == same["highest"] == 0


def test_neither_the_collection_nor_rankings_are_read_where_no_churn_is_shown(
    results: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    watch(monkeypatch, "read a ranking", lambda *given: read.append(given))
    benchmarco("compare", *results)
    assert read == []
    benchmarco("compare", *results, "-v")
    assert len(read) == 2

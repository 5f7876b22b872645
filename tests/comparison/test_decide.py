"""Drawn queries for people to judge: what is listed, and which of their grades count."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from comparison.made import benchmarco, read_table, said, tops, write_qrels, write_table

from pipeline import InputError, evaluate
from pipeline.comparison.decide import open_rankings, read_labels

pool = partial(benchmarco, "pool")


def test_only_unshared_passages_of_drawn_queries_are_listed_and_their_grades_count(
    results: list[Path], qrels: dict[tuple[str, str], int], tmp_path: Path
) -> None:
    file, more = tmp_path / "pool.tsv", tmp_path / "more.tsv"
    draw = ("--decide", "P@4", "--seed", 5, "--queries")
    done = pool(*results, *draw, 12, "--output", file, "--json")
    rows, facts = read_table(file), json.loads(done.stdout)
    assert (facts["measure"], facts["queries"], facts["pairs"]) == ("precision@4", 12, len(rows))
    assert pool(*results, *draw, 16, "--output", more).exit_code == 0
    assert [(r["query_id"], r["passage_id"]) for r in read_table(more)][: len(rows)] == [
        (r["query_id"], r["passage_id"]) for r in rows
    ]
    other = tmp_path / "other.tsv"
    assert pool(*results, *draw[:3], 6, "--queries", 12, "--output", other).exit_code == 0
    assert {row["query_id"] for row in read_table(other)} != {row["query_id"] for row in rows}

    one, two = (tops(folder, 4) for folder in results)
    listed = defaultdict(set)
    for row in rows:
        listed[row["query_id"]].add(row["passage_id"])
    for query, passages in listed.items():
        apart = set(one[query]) ^ set(two[query])
        assert passages == {passage for passage in apart if (query, passage) not in qrels}
    assert {row["draw"].split("/")[1] for row in rows} == {"12 seed 5 precision@4"}

    # the first queries are judged, the next is not finished, the one after it is
    order = list(dict.fromkeys(row["query_id"] for row in rows))
    grades = {}
    for number, row in enumerate(rows):
        place = order.index(row["query_id"])
        if place < 5 or place == 6:
            grades[row["query_id"], row["passage_id"]] = row["grade"] = str(number % 2)
    labels = read_labels(open_rankings(results, "--labels"), write_table(tmp_path / "filled.tsv", rows))
    assert (labels.drawn, labels.after >= 1, str(labels.measure)) == (12, True, "precision@4")
    assert 5 <= len(labels.queries) < 12 - labels.after
    merged = write_qrels(tmp_path / "merged.trec", qrels | grades)
    scored = [evaluate(merged, folder / "run.trec", ["P@4"]) for folder in results]
    ids = json_ids(results[0])
    for place, row in enumerate(labels.queries.tolist()):
        expected = [each.values[each.query_ids.index(ids[row]), 0] for each in scored]
        assert labels.values[place].tolist() == pytest.approx(expected)

    # the same as lines of JSON
    lines = tmp_path / "pool.jsonl"
    assert pool(*results, *draw, 12, "--output", lines).exit_code == 0
    records = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    for record in records:
        grade = grades.get((record["query_id"], record["passage_id"]))
        record["grade"] = None if grade is None else int(grade)
    lines.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    assert read_labels(open_rankings(results, "--labels"), lines).values.tolist() == labels.values.tolist()


def json_ids(folder: Path) -> list[str]:
    """The queries in the order of the collection."""
    data = json.loads((folder / "manifest.json").read_text())["config"]["data"]["path"]
    lines = (Path(data) / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    judged = {row.split(",")[0] for row in (folder / "per_query.csv").read_text().splitlines()[1:]}
    return [query for query in (json.loads(line)["_id"] for line in lines) if query in judged]


def test_grades_of_queries_that_were_not_drawn_are_refused(results: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "pool.tsv"
    assert pool(*results, "--decide", "dcg@4", "--queries", 5, "--output", file).exit_code == 0
    rows = [row | {"grade": "1"} for row in read_table(file)]
    every = tmp_path / "every.tsv"
    pool(*results, "--depth", 4, "--output", every)
    drawn = {row["query_id"] for row in rows}
    chosen = next(row for row in read_table(every) if row["query_id"] not in drawn)
    for change in (
        [chosen | {"grade": "1", "draw": ""}],
        [chosen | {"grade": "1", "draw": rows[0]["draw"]}],
        [row | {"draw": row["draw"].replace("seed 1", "seed 2")} for row in rows],
        [row | {"draw": ""} for row in rows],
    ):
        bad = write_table(tmp_path / "bad.tsv", [*rows, *change] if len(change) == 1 else change)
        with pytest.raises(InputError, match="which was not drawn"):
            read_labels(open_rankings(results, "--labels"), bad)
    unfinished = [row | {"grade": ""} if row["query_id"] == rows[0]["query_id"] else row for row in rows]
    with pytest.raises(InputError, match="rows without a grade"):
        read_labels(open_rankings(results, "--labels"), write_table(tmp_path / "late.tsv", unfinished))


def test_what_cannot_be_decided_is_refused_and_nothing_written(results: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "pool.tsv"
    for message, arguments in {
        "measures with a cutoff": (*results, "--decide", "map"),
        "unjudged=removed": (*results, "--decide", "ndcg(unjudged=removed)@10"),
        "two or more": (results[0], "--decide", "P@10"),
        "--depth 5 with --decide": (*results, "--decide", "P@10", "--depth", 5),
        "without --decide": (*results, "--queries", 5),
    }.items():
        done = pool(*arguments, "--output", file)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in said(done)
        assert not file.exists()
    done = pool(*results, "--decide", "ndcg@4", "--output", file)
    assert "divides by all relevant passages" in done.stdout

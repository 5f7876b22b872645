"""Which passages people judge to decide between results, and the scores with their grades."""

import json
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from comparison.made import read_table, tops, write_qrels, write_table
from workplaces import benchmarco, document, on_one_line

from pipeline import InputError, evaluate
from pipeline.results import read_result
from pipeline.studies.judge import open_rankings, read_labels

DEPTH = 4


pool = partial(benchmarco, "pool")


def test_people_judge_what_was_found_and_results_are_scored_with_their_grades(
    finished: Path, results: list[Path], qrels: dict[tuple[str, str], int], tmp_path: Path
) -> None:
    file, again = tmp_path / "pool.tsv", tmp_path / "again.tsv"
    pool(*results, "--depth", DEPTH, "--output", file)
    rows = read_table(file)
    pairs = [(row["query_id"], row["passage_id"]) for row in rows]
    found = {(query, p) for folder in results for query, ps in tops(folder, DEPTH).items() for p in ps}
    expected = found - qrels.keys()
    assert len(pairs) == len(set(pairs)) > 50
    assert set(pairs) == expected
    assert list(rows[0]) == ["query_id", "passage_id", "query", "passage", "grade"]
    texts = {}
    for name in ("corpus.jsonl", "queries.jsonl"):
        for line in (finished / "data" / name).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            texts[record["_id"]] = " ".join(f"{record.get('title', '')} {record['text']}".split())
    assert all(
        (texts[row["query_id"]], texts[row["passage_id"]]) == (row["query"], row["passage"]) for row in rows
    )
    queries = [query for query, _ in pairs]
    blocks = [query for number, query in enumerate(queries) if queries[number - 1 : number] != [query]]
    assert len(blocks) == len(set(blocks))  # a query's passages stand together
    assert pairs != sorted(pairs)
    pool(*results, "--depth", DEPTH, "--output", again)
    assert again.read_bytes() == file.read_bytes()

    # every other row is judged, by a rule that both orders can lose or win by
    grades = {pair: number % 3 / 2 for number, pair in enumerate(pairs) if number % 2}
    graded = [row | {"grade": grades.get(pair, "")} for row, pair in zip(rows, pairs, strict=True)]
    write_table(file, graded)
    before = {path: path.read_bytes() for folder in results for path in folder.iterdir()}
    merged, original = tmp_path / "merged.trec", write_qrels(tmp_path / "original.trec", qrels)
    facts = document("pool", *results, "--add", file, "--output", merged)
    assert {path: path.read_bytes() for path in before} == before
    empty = len(pairs) - len(grades)
    assert facts == {"added": len(grades), "same": 0, "empty": empty, "output": str(merged)}
    lines = [line.split() for line in merged.read_text().splitlines()]
    assert {(query, passage): float(grade) for query, _, passage, grade in lines} == qrels | grades
    for folder in results:
        shares = [evaluate(path, folder / "run.trec", ["judged@4"]).means[0] for path in (merged, original)]
        assert shares[0] > shares[1]

    refused = {
        "exists already": (*results, "--output", file),
        "ends in .tsv": (*results, "--output", tmp_path / "pool.txt"),
        f"{again} exists already": (*results, "--output", again, "--add", file),
        "has no grade in": (*results, "--add", again, "--output", tmp_path / "none.trec"),
        "--add without --output": (*results, "--add", file),
    }
    (query, passage), grade = next(iter(qrels.items()))
    for number, (text, expected_message) in enumerate(
        (
            (f"{query}\t{passage}\t{grade + 1}", f"the collection's own judgments give it {grade}"),
            (f"{query}\tnothing\t1", "has passage 'nothing', which the collection lacks"),
            (f"{query}\t{passage}\tgood", "grade 'good'"),
            (f"{query}\tp\t1\n{query}\tp\t2", "one grade for each"),
        )
    ):
        bad = tmp_path / f"bad{number}.tsv"
        bad.write_text(f"query_id\tpassage_id\tgrade\n{text}\n")
        refused[expected_message] = (results[0], "--add", bad, "--output", tmp_path / "none.trec")
    for message, arguments in refused.items():
        done = pool(*arguments, code=2)
        assert done.stdout == ""
        assert message in done.stderr
    assert not (tmp_path / "none.trec").exists()


def test_only_unshared_passages_of_drawn_queries_are_listed_and_their_grades_count(
    results: list[Path], qrels: dict[tuple[str, str], int], tmp_path: Path
) -> None:
    file, more = tmp_path / "pool.tsv", tmp_path / "more.tsv"
    draw = ("--decide", "P@4", "--seed", 5, "--queries")
    facts = document("pool", *results, *draw, 12, "--output", file)
    rows = read_table(file)
    assert (facts["measure"], facts["queries"], facts["pairs"]) == ("precision@4", 12, len(rows))
    pool(*results, *draw, 16, "--output", more)
    assert [(r["query_id"], r["passage_id"]) for r in read_table(more)][: len(rows)] == [
        (r["query_id"], r["passage_id"]) for r in rows
    ]
    other = tmp_path / "other.tsv"
    pool(*results, *draw[:3], 6, "--queries", 12, "--output", other)
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
    assert (labels.after >= 1, str(labels.measure)) == (True, "precision@4")
    assert len(labels.queries) == 5
    merged = write_qrels(tmp_path / "merged.trec", qrels | grades)
    scored = [evaluate(merged, folder / "run.trec", ["P@4"]) for folder in results]
    ids = read_result(results[0]).only_collection().query_ids
    for row in labels.queries.tolist():
        expected = [each.values[each.query_ids.index(ids[row]), 0] for each in scored]
        assert labels.values[row].tolist() == pytest.approx(expected)


def test_grades_of_queries_that_were_not_drawn_are_refused(results: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "pool.tsv"
    pool(*results, "--decide", "dcg@4", "--queries", 5, "--output", file)
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
        done = pool(*arguments, "--output", file, code=2)
        assert done.stdout == ""
        assert message in on_one_line(done)
        assert not file.exists()
    done = pool(*results, "--decide", "ndcg@4", "--output", file)
    assert "divides by all relevant passages" in done.stdout

"""Pools of unjudged passages: what is in the file, and the scores with the grades that people gave."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from comparison.made import benchmarco, read_table, write_table

from pipeline import evaluate

DEPTH = 4
TURNED = 10**6  # all ranks


pool = partial(benchmarco, "pool")


def unjudged(folder: Path, qrels: dict[tuple[str, str], int], last: bool) -> set[tuple[str, str]]:
    """Pairs in the first or last ranks of a run that are not judged, by plain reading."""
    found = defaultdict(list)
    for line in (folder / "run.trec").read_text().splitlines():
        found[line.split()[0]].append(line.split()[2])
    tops = {query: hits[-DEPTH:] if last else hits[:DEPTH] for query, hits in found.items()}
    return {(query, hit) for query, hits in tops.items() for hit in hits if (query, hit) not in qrels}


def test_people_judge_what_was_found_and_the_scores_stand_side_by_side(
    finished: Path, results: list[Path], qrels: dict[tuple[str, str], int], tmp_path: Path
) -> None:
    file, again = tmp_path / "pool.tsv", tmp_path / "again.tsv"
    assert pool(*results, "--depth", DEPTH, "--output", file).exit_code == 0
    rows = read_table(file)
    pairs = [(row["query_id"], row["passage_id"]) for row in rows]
    expected = unjudged(results[0], qrels, last=False) | unjudged(results[0], qrels, last=True)
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
    assert pool(*results, "--depth", DEPTH, "--output", again).exit_code == 0
    assert again.read_bytes() == file.read_bytes()

    # every other row is judged, by a rule that both orders can lose or win by
    grades = {pair: number % 3 for number, pair in enumerate(pairs) if number % 2}
    graded = [row | {"grade": grades.get(pair, "")} for row, pair in zip(rows, pairs, strict=True)]
    write_table(file, graded)
    before = {path: path.read_bytes() for folder in results for path in folder.iterdir()}
    done = pool(*results, "--add", file, "--json")
    assert {path: path.read_bytes() for path in before} == before
    rescored = json.loads(done.stdout)
    assert (rescored["added"], rescored["same"], rescored["empty"]) == (
        len(grades),
        0,
        len(pairs) - len(grades),
    )
    merged = tmp_path / "merged.trec"
    assert pool(*results, "--add", file, "--output", merged).exit_code == 0
    lines = [line.split() for line in merged.read_text().splitlines()]
    assert {(query, passage): int(grade) for query, _, passage, grade in lines} == qrels | grades
    for folder, result in zip(results, rescored["results"], strict=True):
        original = json.loads((folder / "metrics.json").read_text())["metrics"]
        expected_values = evaluate(merged, folder / "run.trec", list(original))
        assert {name: each["original"] for name, each in result["metrics"].items()} == original
        added = {name: each["added"] for name, each in result["metrics"].items()}
        assert added == pytest.approx(expected_values.mean_by_measure, abs=1e-9)
        assert result["metrics"]["ndcg@10"]["unjudged"]["judged"] == pytest.approx(
            expected_values.judged["ndcg@10"]
        )
    printed = pool(*results, "--add", file).stdout
    assert f"with {len(grades)} additional judgments" in printed

    refused = {
        "exists already": (*results, "--output", file),
        "ends in .tsv": (*results, "--output", tmp_path / "pool.txt"),
        f"{again} exists already": (*results, "--output", again, "--add", file),
        "has no grade in": (*results, "--add", again),
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
        refused[expected_message] = (results[0], "--add", bad)
    for message, arguments in refused.items():
        done = pool(*arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr

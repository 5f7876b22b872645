"""What `benchmarco data` tells, computed by hand from twelve passages."""

import json

from layouts import beir
from workplaces import benchmarco

from pipeline.studies.collection import collection_view, describe


def count_words(texts):
    return [len(text.split()) for text in texts]


def test_a_small_collection(tmp_path, plain, loaded):
    made = loaded(beir(tmp_path / "c", plain))
    told = describe(made.collection, count_words)
    assert json.loads(json.dumps(told)) == told
    assert told["passages"] == 12
    assert told["titles"] == 4
    assert told["dropped"]["queries_without_judgments"] == 1
    per_query = told["judgments_per_query"]
    assert per_query["all"] == {"min": 1, "median": 2.0, "mean": 1.67, "p95": 2.0, "max": 2, "counted": 3}
    grades = {grade: entry["judgments"] for grade, entry in per_query["grade"].items()}
    assert grades == {"0": 1, "1": 2, "2": 1, "3": 1}
    characters = told["lengths"]["passages"]["characters"]
    joined = [f"{title} {text}" if title else text for _, title, text in plain.passages]
    assert characters["min"] == min(map(len, joined))
    assert characters["max"] == max(map(len, joined))
    assert told["lengths"]["queries"]["tokens"]["max"] == 1
    assert told["examples"][0] == {
        "id": "q0",
        "text": "first?",
        "judged": [
            {"grade": 2, "id": "p1", "text": plain.passages[1][2]},
            {"grade": 1, "id": "p0", "text": "title 0 " + plain.passages[0][2]},
        ],
    }
    assert set(describe(made.collection)["lengths"]["passages"]) == {"characters"}  # no tokens to count


def test_tokens_of_a_large_corpus_are_sampled_the_same_each_time(slice_dl19):
    described = [describe(slice_dl19.collection, count_words) for _ in range(2)]
    lengths = [each["lengths"]["passages"] for each in described]
    assert lengths[0] == lengths[1]
    assert lengths[0]["characters"]["counted"] == 14581
    assert lengths[0]["tokens"]["counted"] == 10_000
    _, distributions, *_ = collection_view("dl19", described[0])
    labels = {row[0] for row in distributions.rows}
    assert labels >= {
        "passage: tokens, of a sample of 10,000", "passage: characters", "query: tokens"
    }  # fmt: skip


def test_the_command_is_short_and_leaves_zeros_and_most_examples_to_v(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = "name: t\ndata: {source: sample}\nmodel: {backend: bm25}\n"
    (tmp_path / "c.yaml").write_text(config, encoding="utf-8")
    short, whole = (benchmarco("data", "c.yaml", *options).stdout for options in ([], ["-v"]))
    assert len(short.splitlines()) <= 25
    assert "judged queries 114" in " ".join(short.split())
    assert "query q001: how long does it take espresso beans to go stale\n  grade 3  coffee-01: " in short
    assert short.endswith("-v shows every count and more examples\n")
    only_whole = ["dropped: repeated judgments", "query: judgments of grade 0", "query q003: "]
    assert [text for text in only_whole if text in short or text not in whole] == []


def test_several_collections_are_a_row_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    halves = "{first: {source: sample, queries: 57}, whole: {source: sample}}"
    config = f"name: t\ndata: {{collections: {halves}}}\nmodel: {{backend: bm25}}\n"
    (tmp_path / "c.yaml").write_text(config, encoding="utf-8")
    _, first, whole, _ = benchmarco("data", "c.yaml").stdout.splitlines()
    assert (first.split()[:4], whole.split()[:4]) == (
        ["t/first", "345", "57", "415"],
        ["t/whole", "345", "114", "852"],
    )

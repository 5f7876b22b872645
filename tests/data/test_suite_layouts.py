"""The layouts of the shipped suites: tiny copies in their schemas, through the real client of the hub."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hub_server import HubServer
from layouts import write_parquet, write_readme

from pipeline import run_benchmark
from pipeline.config import SOURCES, DataSettings

PASSAGES = {"p1": "about owls", "p2": "about rain", "p3": "about tea"}
QUERIES = {"q1": "night birds", "q2": "wet weather"}
QRELS = [["q1", "p1", 1], ["q2", "p2", 1]]
PARTS = ("corpus", "queries", "qrels")
WHOLE = {"passages": PASSAGES, "queries": QUERIES, "qrels": QRELS}
Written = tuple[dict[str, Path], dict[str, Any], dict[str, Any]]
"""Repositories by name, the data section that reads them, and what it should give."""


def write_texts(path: Path, texts: dict[str, str], name: str = "_id", text: str = "text") -> None:
    write_parquet(path, **{name: list(texts), text: list(texts.values())})


def write_qrels(path: Path, qrels: list[list[Any]], names: str = "query-id corpus-id score") -> None:
    columns = names.split()
    write_parquet(path, **{column: [row[place] for row in qrels] for place, column in enumerate(columns)})


def subsets(folder: Path) -> Written:
    """`mteb/MIRACLRetrieval`: three tables for each language; `sw` here, beside another."""
    tables = {}
    for language, texts in (("sw", PASSAGES), ("en", {"x": "another"})):
        write_texts(folder / f"{language}-corpus/dev-0.parquet", texts)
        write_texts(folder / f"{language}-queries/dev-0.parquet", QUERIES)
        write_qrels(folder / f"{language}-qrels/dev-0.parquet", QRELS)
        for part in PARTS:
            tables[f"{language}-{part}"] = {"dev": f"{language}-{part}/dev-*"}
    write_readme(folder, tables)
    data = {"source": "beir", "path": "mteb/miracl", "subset": "sw", "split": "dev"}
    return {"mteb/miracl": folder}, data, WHOLE


def nano(folder: Path) -> Written:
    """`sentence-transformers/NanoBEIR-en`: splits as collections, no grades."""
    for split, texts in (("NanoNQ", PASSAGES), ("NanoFEVER", {"x": "another"})):
        write_texts(folder / f"corpus/{split}-0.parquet", texts)
        write_texts(folder / f"queries/{split}-0.parquet", QUERIES)
        write_qrels(folder / f"qrels/{split}-0.parquet", QRELS, "query-id corpus-id")
    tables = {part: {each: f"{part}/{each}-*" for each in ("NanoNQ", "NanoFEVER")} for part in PARTS}
    write_readme(folder, tables)
    data = {"source": "beir", "path": "someone/NanoBEIR-en", "split": "NanoNQ"}
    return {"someone/NanoBEIR-en": folder}, data, WHOLE


def bright(folder: Path) -> Written:
    """`xlangai/BRIGHT`: a split for each domain, ids in lists, some of them file names with spaces."""
    passages = {"a/Night birds_1.txt": "about owls", "p2": "about rain", "p3": "about tea"}
    write_texts(folder / "documents/biology-0.parquet", passages, "id", "content")
    write_texts(folder / "long_documents/biology-0.parquet", {"whole": "a long text"}, "id", "content")
    write_parquet(
        folder / "examples/biology-0.parquet",
        id=["0", "1"],
        query=list(QUERIES.values()),
        gold_ids=[["a/Night birds_1.txt"], ["p2", "p3"]],
        gold_ids_long=[["whole"], ["whole"]],
        excluded_ids=[["p3", "p2"], ["N/A"]],
    )
    write_readme(
        folder,
        {table: {"biology": f"{table}/biology-*"} for table in ("examples", "documents", "long_documents")},
    )
    found = {
        "passages": {"a/Night%20birds_1.txt": "about owls", "p2": "about rain", "p3": "about tea"},
        "queries": {"0": "night birds", "1": "wet weather"},
        "qrels": [
            ["0", "a/Night%20birds_1.txt", 1], ["0", "p2", -1], ["0", "p3", -1],
            ["1", "p2", 1], ["1", "p3", 1],
        ],
    }  # fmt: skip
    return {"xlangai/BRIGHT": folder}, {"source": "bright", "domain": "biology"}, found


def bright_long(folder: Path) -> Written:
    """The same with whole documents, which nothing excludes."""
    repos, data, _ = bright(folder)
    found = {
        "passages": {"whole": "a long text"},
        "queries": {"0": "night birds", "1": "wet weather"},
        "qrels": [["0", "whole", 1], ["1", "whole", 1]],
    }
    return repos, {**data, "documents": "long"}, found


def air_bench(folder: Path) -> Written:
    """`AIR-Bench/long-doc_arxiv_en`: the datasets as splits, judgments in a repository of their own."""
    texts, qrels = folder / "texts", folder / "qrels"
    version = "AIR-Bench_24.05"
    write_texts(texts / f"{version}/corpus_llm_survey-0.parquet", PASSAGES, "id")
    write_texts(texts / f"{version}/queries_llm_survey_dev-0.parquet", QUERIES, "id")
    write_qrels(qrels / f"{version}/qrels_llm_survey_dev-0.parquet", QRELS, "qid docid relevance")
    names = ("corpus_llm_survey", "queries_llm_survey_dev")
    write_readme(texts, {version: {name: f"{version}/{name}-*" for name in names}})
    write_readme(qrels, {version: {"qrels_llm_survey_dev": f"{version}/qrels_llm_survey_dev-*"}})
    repos = {"AIR-Bench/long-doc_arxiv_en": texts, "AIR-Bench/qrels-long-doc_arxiv_en-dev": qrels}
    data = {"source": "air-bench", "path": "AIR-Bench/long-doc_arxiv_en", "split": "dev"}
    data["dataset"] = "llm-survey"
    return repos, data, WHOLE


def belebele(folder: Path) -> Written:
    """`mteb/belebele`: Swahili questions, of which one comes twice, and English passages by their links."""
    links = ["b", "a", "b", "a"]
    texts = {"eng_Latn": ["about owls", "about rain"] * 2, "swh_Latn": ["bundi", "mvua"] * 2}
    questions = {
        "eng_Latn": ["who?", "what?", "why?", "when?"],
        "swh_Latn": ["nani?", "nini?", "kwa nini?", "nini?"],
    }
    for name, passages in texts.items():
        columns = {"link": links, "flores_passage": passages, "question": questions[name]}
        write_parquet(folder / name / "test-0.parquet", **columns)
    write_readme(folder, {name: {"test": f"{name}/test-*"} for name in texts})
    found = {
        "passages": {"C0": "about owls", "C1": "about rain"},
        "queries": {"Q0": "nani?", "Q1": "nini?", "Q2": "kwa nini?"},
        "qrels": [["Q0", "C0", 1], ["Q1", "C1", 1], ["Q2", "C0", 1]],
    }
    return {"mteb/belebele": folder}, {
        "source": "belebele", "language": "swh_Latn", "corpus_language": "eng_Latn"
    }, found  # fmt: skip


LAYOUTS: list[Callable[[Path], Written]] = [subsets, nano, bright, bright_long, air_bench, belebele]


def test_each_layout_is_read_from_the_hub_and_from_a_local_copy(
    hub: HubServer, loaded: Callable[[DataSettings], Any], tmp_path: Path
) -> None:
    written = [write(tmp_path / write.__name__) for write in LAYOUTS]
    for repos, *_ in written:
        for name, folder in repos.items():
            hub.publish("dataset", name, folder)
    from_hub = [loaded(SOURCES.make(**data)) for _, data, _ in written]
    others = ("en-", "corpus/NanoFEVER", "queries/queries-0")
    assert not [path for path in hub.downloads() if path.startswith(others)]
    for made, (repos, data, expected) in zip(from_hub, written, strict=True):
        texts, *beside = repos.values()
        for folder in beside:  # the judgments are in a folder beside the texts
            folder.rename(texts.with_name(f"qrels-{texts.name}-dev"))
        for found in (made, loaded(SOURCES.make(**{**data, "path": str(texts)}))):
            given = {"passages": found.passages, "queries": found.queries, "qrels": found.qrels}
            assert {**given, "qrels": sorted(map(list, found.qrels))} == expected


def test_ids_that_are_numbers_are_read_in_lists_too(
    loaded: Callable[[DataSettings], Any], tmp_path: Path
) -> None:
    (folder,) = bright(tmp_path)[0].values()
    write_parquet(folder / "documents/biology-0.parquet", id=[1, 2], content=["owls", "rain"])
    columns = {"id": [7], "query": ["night"], "gold_ids": [[1]], "excluded_ids": [["N/A"]]}
    write_parquet(folder / "examples/biology-0.parquet", **columns)
    made = loaded(SOURCES.make(source="bright", domain="biology", path=str(folder)))
    assert list(map(list, made.qrels)) == [["7", "1", 1]]


def test_excluded_documents_do_not_count(tmp_path: Path) -> None:
    """Question 0 finds p2 and p3, which are excluded, before its gold document."""
    (folder,) = bright(tmp_path)[0].values()
    columns = pq.read_table(folder / "examples/biology-0.parquet").to_pydict()
    columns["query"] = ["rain and tea, or owls", "rain"]
    write_parquet(folder / "examples/biology-0.parquet", **columns)
    ranks = {}
    for ignored in ("negative_grades", "none"):
        result = run_benchmark({
            "name": "t", "model": {"backend": "bm25"}, "evaluate": {"measures": ["mrr@10"]},
            "data": {"source": "bright", "path": str(folder), "domain": "biology", "ignored": ignored},
            "cache": str(tmp_path / "i"), "output": str(tmp_path / "out"),
        })  # fmt: skip
        ranks[ignored] = result.to_dataframe()["mrr@10"].to_dict()
    assert ranks["negative_grades"] == {"0": 1.0, "1": 1.0}
    assert ranks["none"]["0"] < 1

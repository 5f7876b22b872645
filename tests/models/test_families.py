"""Prompts of families: from the model's files, else by its name, and what is said where none is known."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline.config import BACKENDS
from pipeline.encoders import resolve
from pipeline.models import ResolvedModel

Edit = Callable[..., Path]
SETTINGS = "config_sentence_transformers.json"
WEB = "Given a web search query, retrieve relevant passages that answer the query"
GEMMA = "task: search result | query: ", "title: none | text: "
JINA = "Represent the query for retrieving evidence documents: ", "Represent the document for retrieval: "
STELLA = f"Instruct: {WEB}.\nQuery: "
GRIT = f"<|user|>\n{WEB}\n<|embed|>\n", "<|embed|>\n"
SARASHINA = (
    "task: クエリを与えるので、与えられたWeb検索クエリに答える関連文章を検索してください。\nquery: ",
    "text: ",
)


def resolved(folder: Path, **settings: object) -> ResolvedModel:
    model: ResolvedModel = resolve(BACKENDS.make(name=str(folder), backend="flag", **settings)).model
    return model


@pytest.mark.parametrize(
    ("name", "queries", "passages"),
    [
        ("embeddinggemma-300m", *GEMMA), ("jina-embeddings-v3", *JINA),
        ("jina-embeddings-v4-vllm-retrieval", "Query: ", "Passage: "), ("stella_en_1.5B_v5", STELLA, ""),
        ("ReasonIR-8B", *GRIT), ("GritLM-7B", *GRIT), ("sarashina-embedding-v2-1b", *SARASHINA),
    ],
)  # fmt: skip
def test_a_family_is_known_by_its_name(name: str, queries: str, passages: str, edited: Edit) -> None:
    model = resolved(edited({SETTINGS: {"prompts": {}}, "config.json": {"is_causal": False}}, name))
    assert model.prompts == {"queries": (queries, ""), "passages": (passages, "")}
    assert model.decided["query instruction"] == (queries, "family")


@pytest.mark.parametrize(
    ("prompts", "queries", "passages"),
    [
        ({"retrieval.query": JINA[0], "retrieval.passage": JINA[1], "separation": ""}, *JINA),
        ({"s2p_query": STELLA, "s2s_query": "Instruct: Retrieve similar text.\nQuery: "}, STELLA, ""),
        ({"Retrieval-query": GEMMA[0], "Retrieval-document": GEMMA[1], "STS": "x"}, *GEMMA),
        ({"query": "own: ", "s2p_query": STELLA}, "own: ", ""),
    ],
)  # fmt: skip
def test_names_that_cards_ask_for_are_read_from_the_files(
    prompts: Mapping[str, str], queries: str, passages: str, edited: Edit
) -> None:
    model = resolved(edited({SETTINGS: {"prompts": prompts}}, "mine"))
    assert model.prompts == {"queries": (queries, ""), "passages": (passages, "")}
    assert model.decided["query instruction"] == (queries, "model")


def test_where_no_instruction_is_known_it_is_said(edited: Edit) -> None:
    assert "query instruction '' (none known)" in resolved(edited({}, "mine")).describe()
    declared = resolved(edited({SETTINGS: {"prompts": {"query": "", "document": ""}}}, "other"))
    assert declared.decided["query instruction"] == ("", "model")


def test_an_instruction_without_its_blank_is_pointed_out(edited: Edit) -> None:
    folder = edited({SETTINGS: {"prompts": {}}}, "e5-small-v2")
    hint = resolved(folder, query_instruction="query:").hint
    assert (
        hint == "model.query_instruction is 'query:', and the model's own 'query: ', with a blank at its end"
    )
    assert not resolved(folder, query_instruction="query: ").hint
    assert not resolved(folder, query_instruction="question:").hint

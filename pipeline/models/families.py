"""The table of families of models: how their models are used, where the models' own files do not say it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

RELEVANT = "Represent this sentence for searching relevant passages:"
WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
INSTRUCT = "Instruct: {}\nQuery: {}"
GRIT = "<|user|>\n{}\n<|embed|>\n{}"
"""Of GritLM, and of ReasonIR, which was trained by its code."""
JAPANESE_WEB_SEARCH = "クエリを与えるので、与えられたWeb検索クエリに答える関連文章を検索してください。"


@dataclass(frozen=True)
class Family:
    """How the models of a family are used."""

    pattern: str  # regular expression for the whole model name without its owner; case is ignored
    pooling: str  # pooling of a model that does not declare one
    query_instruction: str = ""  # instruction for queries
    # How instruction and query are joined, as FlagEmbedding's `query_instruction_format`.
    query_format: str = "{}{}"
    passage_instruction: str = ""  # instruction for passages
    max_length: int | None = None  # number of tokens the model was trained for, if it has positions for more
    bidirectional: bool = False  # whether it is a decoder trained with bidirectional attention
    pools_prompt: bool = True  # whether the tokens of instructions are pooled with the text's


FAMILIES = (
    Family(r"bge-(small|base|large)-en(-v1\.5)?", "cls", RELEVANT),
    Family(r"bge-(small|base|large)-zh(-v1\.5)?", "cls", "为这个句子生成表示以用于检索相关文章："),
    Family(r"bge-m3", "cls"),
    Family(r"bge-multilingual-gemma2", "last_token", WEB_SEARCH + ".", "<instruct>{}\n<query>{}"),
    Family(r"bge-en-icl", "last_token", WEB_SEARCH + ".", "<instruct>{}\n<query>{}\n<response>"),
    Family(
        r"(multilingual-)?e5-(small|base|large)(-v2)?", "mean", "query: ", passage_instruction="passage: "
    ),
    Family(r"multilingual-e5-large-instruct", "mean", WEB_SEARCH, INSTRUCT),
    Family(r"e5-mistral-7b-instruct", "last_token", WEB_SEARCH, INSTRUCT, max_length=4096),
    Family(r"gte-(small|base|large)", "mean"),
    Family(r"gte-(small|base|large)-zh|gte-(base|large)-en-v1\.5|gte-multilingual-base", "cls"),
    Family(r"gte-qwen2-(1\.5|7)b-instruct", "last_token", WEB_SEARCH, INSTRUCT, bidirectional=True),
    Family(r"qwen3-embedding-(0\.6|4|8)b", "last_token", WEB_SEARCH, "Instruct: {}\nQuery:{}"),
    Family(r"nomic-embed-text-v(1|1\.5)", "mean", "search_query: ", passage_instruction="search_document: "),
    Family(r"mxbai-embed-large-v1", "cls", RELEVANT + " "),
    Family(r"snowflake-arctic-embed-(xs|s|m|l|m-long|m-v1\.5)", "cls", RELEVANT + " "),
    Family(r"snowflake-arctic-embed-(m|l)-v2\.0", "cls", "query: "),
    Family(r"jina-embeddings-v2-(small|base)-\w+", "mean"),
    Family(
        r"jina-embeddings-v3(-hf)?",
        "mean",
        "Represent the query for retrieving evidence documents: ",
        passage_instruction="Represent the document for retrieval: ",
    ),
    Family(r"jina-embeddings-v4.*", "mean", "Query: ", passage_instruction="Passage: "),
    Family(
        r"embeddinggemma-.+",
        "mean",
        "task: search result | query: ",
        passage_instruction="title: none | text: ",
    ),
    Family(r"stella_en_(400m|1\.5b)_v5", "mean", WEB_SEARCH + ".", INSTRUCT),
    Family(
        r"gritlm-(7b|8x7b)|reasonir-8b",
        "mean",
        WEB_SEARCH,
        GRIT,
        "<|embed|>\n",
        bidirectional=True,
        pools_prompt=False,
    ),
    Family(r"sarashina-embedding-v2-1b", "last_token", JAPANESE_WEB_SEARCH, "task: {}\nquery: {}", "text: "),
)


def family_of(name: str) -> Family | None:
    """The family of a model, by its hub id, folder or snapshot in the hub cache; or None."""
    cached = re.search(r"models--[^/]+?--([^/]+)/snapshots", name)
    short = cached.group(1) if cached else Path(name).name
    return next((known for known in FAMILIES if re.fullmatch(known.pattern, short, re.IGNORECASE)), None)


def prompt_parts(template: str, instruction: str) -> tuple[str, str]:
    """The strings before and after a text in FlagEmbedding's `template.format(instruction, text)`."""
    if not instruction:
        return "", ""
    before, between, after = template.split("{}", 2)
    return before + instruction + between, after

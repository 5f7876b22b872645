"""Families: a table of how well-known models are used, for what their own files do not declare.

Pooling and formats are from FlagEmbedding's model mapping and the models' documentation. The config and the
model's own files count before the table (docs/models.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

RELEVANT = "Represent this sentence for searching relevant passages:"
WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
INSTRUCT = "Instruct: {}\nQuery: {}"


@dataclass(frozen=True)
class Family:
    """How the models of a family are used.

    Attributes:
        pattern: Regular expression for the whole model name without its owner; case is ignored.
        pooling: Pooling of a model that does not declare one.
        query_instruction: Instruction for queries.
        query_format: How instruction and query are joined, as FlagEmbedding's `query_instruction_format`.
        passage_instruction: Instruction for passages.
        max_length: Number of tokens the model was trained for, if it has positions for more.
        bidirectional: Whether it is a decoder trained with bidirectional attention.
    """

    pattern: str
    pooling: str
    query_instruction: str = ""
    query_format: str = "{}{}"
    passage_instruction: str = ""
    max_length: int | None = None
    bidirectional: bool = False


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
)


def family_of(name: str) -> Family | None:
    """The family of a model, by its hub id or folder; None if the table has none."""
    short = short_name(name)
    return next((known for known in FAMILIES if re.fullmatch(known.pattern, short, re.IGNORECASE)), None)


def short_name(name: str) -> str:
    """A model's name without its owner; also of a folder, or of a snapshot in the hub cache."""
    cached = re.search(r"models--[^/]+?--([^/]+)/snapshots", name)
    return cached.group(1) if cached else Path(name).name


def prompt_parts(template: str, instruction: str) -> tuple[str, str]:
    """The strings before and after a text in FlagEmbedding's `template.format(instruction, text)`."""
    if not instruction:
        return "", ""
    before, between, after = template.split("{}", 2)
    return before + instruction + between, after

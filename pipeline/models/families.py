"""How do well-known models want to be used, where their own files do not say it? One small table.

Pooling and formats are those of FlagEmbedding's model mapping and of the models' own cards; the config
overrides all of it (docs/models.md). A model that is not here is asked what it declares.
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
    """How a family of models wants its texts.

    Attributes:
        pattern: Regular expression for the whole model name, without its owner, any case.
        pooling: Used when the model does not declare its own.
        query_instruction: Put before queries.
        query_format: How instruction and query are joined, as FlagEmbedding's `query_instruction_format`.
        passage_instruction: Put before passages.
        max_length: Tokens the model was made for, where it has positions for more.
        bidirectional: Whether it is a decoder whose tokens were trained to see those after them too.
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
    """The family of a model, by its hub id or folder; None for one that is not in the table."""
    short = short_name(name)
    return next((known for known in FAMILIES if re.fullmatch(known.pattern, short, re.IGNORECASE)), None)


def short_name(name: str) -> str:
    """A model's name without its owner or folder, by which its family is known."""
    cached = re.search(r"models--[^/]+?--([^/]+)/snapshots", name)
    return cached.group(1) if cached else Path(name).name


def prompt(form: str, instruction: str) -> tuple[str, str]:
    """What stands before and after a text: `FlagEmbedding`'s `format.format(instruction, text)`."""
    if not instruction:
        return "", ""
    before, after = form.split("{}", 1)
    middle, after = after.split("{}", 1)
    return before + instruction + middle, after

"""The sections `index`, `search`, `evaluate` and `engine`, and the settings of every served model.

A key of a server is never a setting: a config names the environment variable that holds it. What could be a
key by mistake is not repeated in messages (`repr=False`, see `pipeline.config.mistakes`).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from pipeline.config.settings import Section, setting

FLAT = "Flat"  # the factory whose search is exact
SEND = "send texts to {}"  # the effect of a server's address
RUN_CODE = "run Python files that come with a model"  # the effect of trusting a model's code


class IndexConfig(Section):
    """How the passages' vectors are indexed."""

    factory: str = setting("Flat", "Faiss factory string", shapes="index")
    metric: Literal["inner_product", "cosine", "l2"] = setting(
        "inner_product", "similarity; l2 is minus the squared distance", shapes="index"
    )
    seed: int = setting(0, "seed of the training sample", shapes="index", ge=0)
    shards: int = setting(1, "number of indexes, each of a part of the passages", shapes="index", ge=1)


class SearchConfig(Section):
    """How the index is searched."""

    top_k: int = setting(1000, "passages kept per query", shapes="search fuse", ge=1)
    batch_size: int = setting(256, "queries per batch in an approximate index", shapes="", ge=1)
    memory_mb: int | None = setting(
        None,
        "factory Flat: search stored vectors within this many MB; null: hold the index in memory",
        shapes="",
        ge=64,
    )
    device: str = setting(
        "auto", "exact search: auto, cpu, cuda or cuda:N", shapes="", pattern=r"^(auto|cpu|cuda(:\d+)?)$"
    )
    rescore: int | None = setting(
        None,
        "int8 and binary vectors: rescore the best N x top_k with unquantized queries",
        shapes="search",
        ge=1,
    )
    parameters: dict[str, int | float] = setting(
        {}, "index parameters, such as {nprobe: 16} or {efSearch: 64}", shapes="search"
    )
    against_exact: bool = setting(
        True, "approximate indexes: measure the loss against exact search", shapes=""
    )
    aggregate: Literal["max", "mean", "first"] = setting(
        "max", "with data.chunks: how the scores of a document's chunks are combined", names="chunks search"
    )


MEASURES = ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10")  # the default


class EvaluateConfig(Section):
    """How the ranking is scored."""

    measures: tuple[str, ...] = setting(
        MEASURES, "measures to compute", names="evaluate", min_length=1, strict=False
    )
    cluster: str | None = setting(
        None,
        "a field of the queries' file: queries with the same value are one draw",
        names="evaluate",
        min_length=1,
    )

    @field_validator("measures", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class ExpectedScore(Section):
    """A published score, which a run compares with its own."""

    measure: str = setting(..., "as in docs/measures.md", shapes="")
    value: float = setting(
        ..., "the published mean, as a fraction", shapes="", strict=False, allow_inf_nan=False
    )
    source: str = setting("", "where it was published", shapes="")
    tolerance: float = setting(
        0.001,
        "difference that still counts as reproduced, plus half a unit of the last digit",
        shapes="",
        ge=0,
        allow_inf_nan=False,
    )
    digits: int | None = setting(
        None,
        "published decimal places; null: as many as the source's most exact value",
        shapes="",
        ge=0,
        le=17,
    )


class EngineConfig(Section):
    """Where the work runs."""

    kind: Literal["local", "ray"] = setting("local", "this machine, or workers on a Ray cluster", shapes="")
    devices: list[Annotated[str, Field(pattern=r"^(cpu|cuda:\d+)$")]] | None = setting(
        None,
        "local: a process for each, such as [cuda:0, cuda:1]; null: all GPUs if model.device is auto or cuda",
        shapes="",
        min_length=1,
    )
    address: str | None = setting(
        None,
        "ray: HOST:PORT of a cluster; null: start one here",
        shapes="",
        effect="send data and code to the cluster {}",
    )
    workers: int | None = setting(
        None,
        "number of processes, which share the cores; null: one per GPU, or without GPUs one per machine",
        shapes="",
        ge=1,
    )

    @field_validator("address")
    @classmethod
    def _reachable(cls, value: str | None) -> str | None:
        if value not in (None, "auto") and not re.fullmatch(r"[^\s/:]+:\d{1,5}", value):
            raise ValueError("null, auto or HOST:PORT")
        return value


OPENAI = "https://api.openai.com/v1"
TEXTS = 32  # of a request by default: what TEI allows unless it is told otherwise


def _plain_url(value: str) -> str:
    """An http or https address without credentials, in one spelling; raises ValueError for others."""
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError:
        raise ValueError(_ADDRESS) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(_ADDRESS)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            f"{_ADDRESS}, without a user, a password, '?' or '#'. A key belongs into an environment "
            "variable, whose name is api_key_env"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


_ADDRESS = "an address that begins with http:// or https://, such as http://localhost:8000/v1"


def _variable_name(value: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,99}", value):
        raise ValueError(
            "the name of an environment variable in capitals, such as OPENAI_API_KEY, and not the key itself"
        )
    return value


ServerUrl = Annotated[str, AfterValidator(_plain_url)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
"""The name of an environment variable."""


class ServerSettings(Section):
    """How a server may be asked; nothing of it shapes what is answered."""

    api_key_env: VariableName | None = setting(
        None,
        "environment variable with the API key; null: OPENAI_API_KEY for OpenAI, else none",
        shapes="",
        repr=False,
        effect="send the content of the environment variable {} as a key",
    )
    concurrency: int = setting(8, "simultaneous requests", shapes="", ge=1, le=1024)
    timeout: float = setting(60.0, "seconds to wait for an answer", shapes="", gt=0, strict=False)


class EncodingServerSettings(ServerSettings):
    """How a server of vectors or scores may be asked."""

    batch_tokens: int = setting(8192, "maximum tokens per request, estimated from bytes", shapes="", ge=1)
    changed: Literal["stop", "warn", "ignore"] = setting(
        "stop", "action if the served model has changed; ignore: do not check", shapes=""
    )
    price_per_million_tokens: float | None = setting(
        None, "price per million tokens, in any currency", shapes="", ge=0, strict=False
    )


class ChatSettings(ServerSettings):
    """How a chat model may be asked, and which."""

    url: ServerUrl = setting(
        ..., "server address, without /chat/completions", shapes="", repr=False, effect=SEND
    )
    model: str = setting(..., "model name on the server", shapes="", min_length=1)

"""The section `search`: how an index is searched."""

from __future__ import annotations

from typing import Literal

from pipeline.config.settings import Section, setting


class SearchConfig(Section):
    """How the index is searched."""

    top_k: int = setting(1000, "passages kept for each query", shapes="search fuse", ge=1)
    batch_size: int = setting(
        256, "queries searched at once, by an approximate index or by Flat on a GPU", shapes="", ge=1
    )
    memory_mb: int | None = setting(
        None,
        "factory Flat only: search the stored vectors within this many MB; null holds the index in memory",
        shapes="",
        ge=64,
    )
    rescore: int | None = setting(
        None,
        "int8 and binary vectors only: score the best N x top_k again by the query's floats",
        shapes="search",
        ge=1,
    )
    parameters: dict[str, int | float] = setting(
        {}, "parameters of the index, such as {nprobe: 16} or {efSearch: 64}", shapes="search"
    )
    against_exact: bool = setting(
        True,
        "any factory but Flat: also measure speed, and what is lost to exact search",
        shapes="search evaluate",
        keyed=False,
    )
    aggregate: Literal["max", "mean", "first"] = setting(
        "max",
        "data.chunks only: the score of a document, made of those of its chunks",
        shapes="chunks search",
        keyed=False,
    )
    device: str = setting(
        "auto",
        "auto, cpu, cuda or cuda:N; a GPU where faiss has one and it can take the index",
        shapes="",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
    )

"""Which settings go with an index by fast-plaid, and the parameters of its search."""

from __future__ import annotations

from pipeline.config.index import PLAID, IndexConfig
from pipeline.config.search import SearchConfig

PARAMETERS = {"n_ivf_probe": 8, "n_full_scores": 4096}
"""The parameters of the search by their names in fast-plaid, with its defaults."""


def parameters_of(search: SearchConfig) -> dict[str, int]:
    """All parameters of a search: those given, and defaults."""
    return {**PARAMETERS, **{name: int(value) for name, value in search.parameters.items()}}


def scored_passages(search: SearchConfig) -> int:
    """How many passages of a query fast-plaid scores by all that it keeps of their vectors.

    These are all that it can return. See `search` in rust/search/search.rs of fast-plaid.
    """
    return max(parameters_of(search)["n_full_scores"] // 4, 1)


def check_plaid(index: IndexConfig, search: SearchConfig) -> None:
    """Raise ValueError for settings that fast-plaid lacks, or that do not fit each other."""
    if index != IndexConfig(factory=PLAID, plaid=index.plaid):
        raise ValueError(
            f"index.factory: {PLAID} has its own settings in index.plaid, ranks by inner products and is one "
            "index: leave out index.metric, index.train_rows, index.seed and index.shards"
        )
    for name, value in search.parameters.items():
        if name not in PARAMETERS:
            raise ValueError(
                f"search.parameters: '{name}' is not a parameter of index.factory {PLAID}, which has "
                f"{' and '.join(PARAMETERS)}: rename or remove it"
            )
        if value < 1 or value != int(value):
            raise ValueError(f"search.parameters: '{name}' is {value}: give a whole number of 1 or more")
    wanted, scored = search.top_k * (search.rescore or 1), scored_passages(search)
    if wanted > scored:
        times = f" times search.rescore {search.rescore}" if search.rescore else ""
        raise ValueError(
            f"search.top_k {search.top_k:,}{times} is {wanted:,}, and {PLAID} scores {scored:,} passages, a "
            f"quarter of n_full_scores: lower them, or set search.parameters: {{n_full_scores: {4 * wanted}}}"
        )

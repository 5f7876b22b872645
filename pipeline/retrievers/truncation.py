"""How much of the texts a model cuts: the counts in `metrics.json`, and the sentences about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from pipeline.core.records import ROLES, Array, Facts, JsonObject
from pipeline.core.result_records import Record, ReportSection

if TYPE_CHECKING:
    from pipeline.storage.artifacts import Artifact

ADVICE = " (data.chunks searches whole passages)"


class TruncatedTexts(Record):
    """How many texts have more tokens than the model reads, and how many of all tokens it does not read."""

    max_length: int  # the tokens that the model reads of a text, special ones and the instruction included
    texts: int  # all texts; `cut` are longer
    cut: int
    tokens: int  # of all texts; `tokens_cut` are not read
    tokens_cut: int

    @property
    def unread(self) -> float:
        """The share of the tokens that are not read."""
        return self.tokens_cut / max(self.tokens, 1)

    def note(self, role: str, advice: str = "") -> str:
        """How many texts of a role are cut, and how much of them is not read, without a full stop."""
        share = f"{self.cut / max(self.texts, 1):.2%}"
        reader = "reranker" if role == "pairs" else "model"
        return (
            f"{self.cut:,} of {self.texts:,} {role} ({share}) have more than the {self.max_length:,} tokens "
            f"that the {reader} reads; {self.unread:.2%} of the tokens of all {role} are not read{advice}"
        )


class Truncation(ReportSection):
    """How many texts are longer than what the model reads."""

    key = "truncation"

    passages: TruncatedTexts | None = None  # passages, or the chunks that they were cut into, if `chunks`
    queries: TruncatedTexts | None = None  # queries
    pairs: TruncatedTexts | None = None  # pairs of a query and a passage, by what the reranker reads
    chunks: bool = False  # see `passages`

    @staticmethod
    def reported(artifacts: Mapping[str, Artifact], chunks: bool, prefix: str = "") -> Facts:
        """The section by its key, from the artifacts of stages; empty where none counted tokens.

        `prefix` begins the names of the stages that encode.
        """
        facts = {role: artifacts[prefix + role].facts for role in ROLES if prefix + role in artifacts}
        counts = {
            role: of_role[Truncation.key] for role, of_role in facts.items() if Truncation.key in of_role
        }
        return {Truncation.key: {**counts, "chunks": chunks}} if counts else {}

    @property
    def unread(self) -> float:
        """The share of the tokens that are not read, of passages, of queries or of pairs."""
        return max(texts.unread for texts in (self.passages, self.queries, self.pairs) if texts)

    @override
    def notes(self) -> list[str]:
        texts = {
            "chunks" if self.chunks else "passages": self.passages,
            "queries": self.queries,
            "pairs": self.pairs,
        }
        advice = {"passages": ADVICE}
        return [some.note(role, advice.get(role, "")) for role, some in texts.items() if some and some.cut]


def truncation_of(counts: Array, max_length: int, left_out: Array | None = None) -> JsonObject:
    """JSON of how many of some texts, by their tokens [texts], a model cuts, and of how many tokens.

    `left_out` [texts] are the tokens that it does not read, if these are not all after `max_length`.
    """
    cut = np.maximum(counts.astype(np.int64) - max_length, 0) if left_out is None else left_out
    figures = {"texts": len(counts), "cut": int((cut > 0).sum())}
    figures |= {"tokens": int(counts.sum(dtype=np.int64)), "tokens_cut": int(cut.sum(dtype=np.int64))}
    return {"max_length": max_length, **figures}

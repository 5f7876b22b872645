"""What a reader of measures should know of the rankings and judgments: records, and the sentences on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline.core.display import counted
from pipeline.core.records import BoolArray
from pipeline.core.result_records import Record


class ShortRankings(Record):
    """How many queries have fewer hits than the deepest cutoff of the measures, and the fewest of one."""

    queries: int
    fewest: int
    cutoff: int


class Ties(Record):
    """How many queries have equal scores across a measure's cutoff, and which share of all queries."""

    queries: int
    share: float

    @classmethod
    def of(cls, tied: BoolArray) -> Ties | None:
        """The count of `tied`, bool [queries]; None if no query is."""
        queries = int(tied.sum())
        return cls(queries=queries, share=queries / len(tied)) if queries else None


class MissingTexts(Record):
    """Judged passages and queries that the collection lacks."""

    handling: Literal["count", "drop"]  # the setting `data.missing_passages`
    passages: int  # how many judged passages the corpus lacks
    judgments: int  # how many judgments are of these
    relevant: int  # how many of those have at least grade 1
    queries: int  # how many judged queries have no text; they are not run


def scoring_notes(
    short: ShortRankings | None,
    ties: Ties | None,
    missing: MissingTexts | None = None,
    missing_queries: int = 0,
    ignored_relevant: int = 0,
    missing_ids: Sequence[str] = (),
) -> list[str]:
    """What a reader of measures should know of rankings and judgments, a sentence each without full stop."""
    notes = []
    if ignored_relevant:
        relevant = counted(ignored_relevant, "relevant passage is", "relevant passages are")
        notes.append(f"{relevant} left out for having the query's id")
    if missing_queries:
        queries = counted(missing_queries, "judged query is", "judged queries are")
        notes.append(f"{queries} not in the run, and each scores 0")
    if missing_ids:
        named = ", ".join(missing_ids) + (", ..." if missing_queries > len(missing_ids) else "")
        notes.append(f"the run lacks the {'queries' if missing_queries > 1 else 'query'} {named}")
    if ties:
        queries = counted(round(ties.queries / ties.share), "query", "queries")
        verb = "has" if ties.queries == 1 else "have"
        notes.append(
            f"{ties.queries:,} of {queries} ({ties.share:.0%}) {verb} equal scores at a cutoff: "
            "ties are broken by id, as trec_eval does"
        )
    if short:
        queries = counted(short.queries, "query", "queries")
        notes.append(
            f"fewer than {short.cutoff:,} passages were found for {queries} ({short.fewest:,} at the fewest)"
        )
    if missing and missing.judgments:
        judged = f"{counted(missing.judgments, 'judgment')} of {counted(missing.passages, 'passage')}"
        how = "left out" if missing.handling == "drop" else "counted as not retrieved"
        notes.append(
            f"{judged} that the corpus lacks {'is' if missing.judgments == 1 else 'are'} {how}, "
            f"{missing.relevant:,} of them relevant (data.missing_passages: {missing.handling})"
        )
    if missing and missing.queries:
        queries = counted(missing.queries, "judged query", "judged queries")
        verb = "is" if missing.queries == 1 else "are"
        notes.append(f"{queries} without a text {verb} left out; trec_eval -c gives them a 0")
    return notes

"""The section `evaluate`: how a ranking is scored."""

from __future__ import annotations

from pipeline.config.settings import Section, setting

MEASURES = ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10")  # the default


class EvaluateConfig(Section):
    """How the ranking is scored."""

    measures: tuple[str, ...] = setting(
        MEASURES, "names as in docs/measures.md", shapes="evaluate", keyed=False, min_length=1, strict=False
    )
    ignore_identical_ids: bool = setting(
        False, "drop passages whose id is the query's own", shapes="evaluate"
    )

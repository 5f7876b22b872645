"""Tables of a finished run."""

from __future__ import annotations

from typing import Any

from pipeline.results.records import Metrics
from pipeline.results.tables import stage_table


def test_it_says_which_stages_were_timed_in_an_earlier_run_and_where() -> None:
    def row(stage: str, day: str, cores: int, reused: bool) -> dict[str, Any]:
        made = {"made_at": f"2026-11-{day}T10:00:00Z", "hardware": {"cpu": "x", "cores": cores}, "threads": 1}
        return {"stage": stage, "reused": reused, "seconds": 1.0, **made}

    stages = [
        row("data", "21", 1, True), row("passages", "21", 1, True), row("queries", "21", 2, True),
        row("index", "22", 2, False), {"stage": "search", "reused": True},
    ]  # fmt: skip
    sizes = {"name": "t", "queries": 1, "passages": 1, "metrics": {}}
    assert stage_table(Metrics.model_validate({**sizes, "stages": stages})).notes == [
        "data, passages: timed in an earlier run of 2026-11-21: x, 1 core, 1 thread",
        "queries: timed in an earlier run of 2026-11-21: x, 2 cores, 1 thread",
    ]

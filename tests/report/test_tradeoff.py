"""What approximate indexes lose and cost, as a table."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pipeline.core.table import Table, transposed
from pipeline.report.renderings import terminal_parts
from pipeline.results.records import Metrics
from pipeline.results.tables import section_tables

EXACT: dict[str, Any] = {"name": "exact", "queries": 1, "passages": 1, "metrics": {}, "stages": []}


def losses(results: list[dict[str, Any]]) -> list[Table]:
    records = map(Metrics.model_validate, results)
    tables = section_tables({record.name: record for record in records}, "ndcg@10")
    return tables.get("Against exact search", [])


def result(name: str, nprobe: int, overlap: float, speed: float) -> dict[str, Any]:
    latency = {"median": 0.5, "p95": 1.25, "p99": 2.0}
    change = {"exact": 0.5, "difference": -0.01, "ci_low": -0.02, "ci_high": 0.001}
    return {
        **EXACT,
        "name": name,
        "index": {
            "factory": "IVF16,Flat", "parameters": {"nprobe": nprobe}, "build_seconds": 3.25,
            "disk_bytes": 12_500_000, "memory_mb": 13.5, "threads": 2, "queries_per_second": speed,
            "queries_per_second_one_thread": speed / 2, "latency_ms": latency,
        },
        "against_exact": {"overlap": {"10": overlap, "100": overlap / 2}, "change": {"ndcg@10": change}},
    }  # fmt: skip


RESULTS = [result("few", 2, 0.75, 4000), EXACT, result("many", 8, 0.9, 1500)]


def test_results_measured_against_exact_search_are_the_rows() -> None:
    (table,) = losses(RESULTS)
    assert [row[0] for row in table.rows] == ["few", "many"]
    assert losses([EXACT]) == []


def table_of(results: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The table's rows, their cells by the first one."""
    console = Console(width=120)
    with console.capture() as captured:
        for table in map(transposed, losses(results)):
            console.print(*terminal_parts(table, 140))
    cells = {}
    for line in captured.get().splitlines():
        name, *values = (cell.strip() for cell in line[1:-1].replace("┃", "│").split("│"))
        cells[name] = values
    return cells


def test_a_column_says_what_is_lost_for_what_speed() -> None:
    cells = table_of(RESULTS)
    assert cells["index"] == ["IVF16,Flat nprobe=2", "IVF16,Flat nprobe=8"]
    assert cells["overlap@10"] == ["0.7500", "0.9000"]
    assert cells["change of ndcg@10"] == ["-0.0100", "-0.0100"]
    assert cells[""] == ["-0.0200 to +0.0010"] * 2
    assert cells["queries/s, all threads"] == ["4,000", "1,500"]
    assert cells["queries/s, one thread"] == ["2,000", "750"]
    assert cells["ms a query, 95%"] == ["1.25", "1.25"]
    assert cells["MB on disk"] == ["12.5", "12.5"]


def test_columns_that_do_not_fit_come_in_another_table() -> None:
    found = losses([result(f"tradeoff-parameters-nprobe-{n}", n, 0.9, 1500) for n in (1, 4, 16)])
    console = Console(width=80)
    with console.capture() as captured:
        for table in map(transposed, found):
            console.print(*terminal_parts(table, 80))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    for row in found[0].rows:
        assert row[0] in captured.get()
        assert row[1] in captured.get()


def test_a_gpu_is_named_and_has_no_figures_of_threads() -> None:
    fast = result("fast", 8, 0.9, 90_000)
    for absent in ("threads", "queries_per_second_one_thread", "memory_mb"):
        del fast["index"][absent]
    fast["index"]["device"] = "cuda:0"
    cells = table_of([*RESULTS, fast])
    assert cells["searched on"] == ["", "", "cuda:0"]
    assert cells["queries/s, one thread"] == ["2,000", "750", ""]
    assert "queries/s, one thread" not in table_of([fast])

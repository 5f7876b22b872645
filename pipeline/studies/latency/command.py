"""The command of the study, `latency`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pipeline.core.errors import InputError
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, Sets, argument, option, print_each, show

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.comparison.tables import ColumnGroup
    from pipeline.studies.study import Findings


def latency(
    targets: Annotated[list[Path], argument("Finished results, or their configs.", "CONFIG|RESULT_DIR")],
    queries: Annotated[int, option("How many queries are timed, at most.", min=1)] = 200,
    concurrency: Annotated[str, option("Numbers of clients that ask at once, such as 1,4.", "LIST")] = "1",
    threads: Annotated[int | None, option("Threads that libraries may use.", min=1)] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Time single queries, the cold start and the memory.

    The record is kept in the result folder, where compare and report find it.
    """
    clients = [int(each) for each in concurrency.split(",") if each.strip().isdecimal()]
    if not clients or min(clients) < 1 or len(clients) < len(concurrency.split(",")):
        raise InputError(f"--concurrency {concurrency}", allowed="numbers of 1 or more, separated by commas")
    from pipeline.studies.latency.measurement import measure

    records = measure(
        targets, queries=queries, concurrency=clients, threads=threads, overrides=settings or ()
    )
    if as_json:
        print_each([record.model_dump(mode="json") for record in records])
    else:
        show(*(table for record in records for table in record.tables()))


def find(comparison: Comparison, options: Mapping[str, Any]) -> Findings | None:
    """What the study says of compared results."""
    from pipeline.studies.latency.limits import affordable

    return affordable(comparison, options["limits"] or ())


def columns(comparison: Comparison) -> ColumnGroup | None:
    """The latency and memory of each result that has a record."""
    from pipeline.studies.latency.limits import columns_of

    return columns_of(comparison)


Limits = Annotated[
    list[str] | None,
    option(
        'The best result within a limit, such as "p95 <= 20ms" or "memory <= 500MB"; may be repeated.',
        "LIMIT",
        flags="--limit",
    ),
]
STUDY = Study(
    "What does one query cost, and which results are within limits?",
    {"latency": Command(latency, "results/A --queries 200")},
    findings=find,
    options={"limits": Limits},
    columns=columns,
)

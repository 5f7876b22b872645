"""The command of the study, `latency`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.core.errors import InputError
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, Sets, print_each, show

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.comparison.tables import ColumnGroup
    from pipeline.studies.latency.limits import Affordable


def latency(
    targets: Annotated[
        list[Path], typer.Argument(metavar="CONFIG|RESULT_DIR", help="Finished results, or their configs.")
    ],
    queries: Annotated[int, typer.Option(min=1, help="How many queries are timed, at most.")] = 200,
    concurrency: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of clients that ask at once, such as 1,4.")
    ] = "1",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that libraries may use.", show_default=False)
    ] = None,
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


def within(comparison: Comparison, options: Mapping[str, Any]) -> Affordable | None:
    """The results within limits, and the Pareto front."""
    from pipeline.studies.latency.limits import affordable

    return affordable(comparison, options)


def columns(comparison: Comparison) -> ColumnGroup | None:
    """The latency and memory of each result that has a record."""
    from pipeline.studies.latency.limits import columns_of

    return columns_of(comparison)


Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="LIMIT",
        help='The best result within a limit, such as "p95 <= 20ms" or "memory <= 500MB"; may be repeated.',
        show_default=False,
    ),
]
STUDY = Study(
    "What does one query cost, and which results are within limits?",
    {"latency": Command(latency, "results/A --queries 200")},
    part=within,
    options={"limits": Limits},
    columns=columns,
)

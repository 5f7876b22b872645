"""The command of the study, `latency`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from pipeline.core.errors import InputError
from pipeline.core.plugins import import_and_call
from pipeline.studies.study import Command, Study, find_by
from pipeline.terminal import Json, Sets, argument, option, print_each, show


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
    findings=partial(find_by, "studies.latency.limits:affordable", ["limits"]),
    options={"limits": Limits},
    columns=partial(import_and_call, "studies.latency.limits:columns_of"),
)

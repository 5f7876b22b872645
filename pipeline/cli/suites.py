"""The command `suites`, which imports none of the config's classes: it answers at once."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from pipeline.cli.options import Json
from pipeline.cli.terminal import print_json, show
from pipeline.core.errors import InputError
from pipeline.core.suite_files import list_suite, suite_names
from pipeline.report.listings import suite_table, suites_table


def suites(
    name: Annotated[str | None, typer.Argument(help="List the collections of this suite.")] = None,
    as_json: Json = False,
) -> None:
    """List the suites that are built in: sizes and licenses."""
    names = suite_names()
    if name is not None and name not in names:
        raise InputError(f"no suite '{name}'", allowed=", ".join(names), fix="name one of them")
    listed = [list_suite(each) for each in ([name] if name else names)]
    if as_json:
        totals = ("passages", "queries")
        documents = [
            {**dataclasses.asdict(each), **{part: each.total(part) for part in totals}} for each in listed
        ]
        print_json(documents[0] if name else documents)
    else:
        show(suite_table(listed[0]) if name else suites_table(listed))

"""The command `pool`: passages without judgments, to judge them, and the scores with these judgments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, check_file
from pipeline.cli.terminal import print_json, show
from pipeline.core.display import counted
from pipeline.core.errors import InputError


def pool(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT_DIR", help="A result's folder."),
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to judge: .tsv or .jsonl.  [default: pool.tsv]")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Ranks of each result that are looked at.")] = 10,
    added: Annotated[
        Path | None, typer.Option("--add", metavar="FILE", help="Score with the grades of this file, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List retrieved passages without judgments, to judge them."""
    if output and added:
        raise InputError(
            "--output and --add",
            allowed="--output to write what is to be judged, then --add to score with it",
            fix="name one of them",
        )
    from pipeline.results import pool as pools
    from pipeline.results.folder import read_result
    from pipeline.results.pool_files import check_pool_file, read_grades, write_pool

    results = [read_result(folder) for folder in folders]
    if added:
        rescored = pools.score_again(results, read_grades(added))
        if as_json:
            print_json(rescored.json())
        else:
            show(*rescored.tables())
        return
    output = output or Path("pool.tsv")
    check_file(output, "--output")
    check_pool_file(output, "--output", new=True)
    pooled = pools.pool(results, depth)
    write_pool(pooled.rows, output)
    if as_json:
        facts = {"unjudged": len(pooled.rows), "queries": pooled.queries, "pooled": pooled.seen}
        print_json({**facts, "depth": depth, "output": str(output)})
        return
    print(
        f"{len(pooled.rows):,} of {pooled.seen:,} passages in the top {depth} are not judged, "
        f"of {counted(pooled.queries, 'query', 'queries')}"
    )
    print(f"written to {output}", file=sys.stderr)

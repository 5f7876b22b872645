"""The command of the study: `slice`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pipeline.studies.shared.printing import print_written
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, Sets, argument, option, progress


def slice_corpus(
    config: Annotated[Path, argument("A YAML file of one collection, whole.", "CONFIG")],
    rankings: Annotated[list[Path], argument("Rankings of all its passages.", "RESULT_DIR|RUN")],
    top: Annotated[int, option("Keep the best N passages of each query in each ranking.", "N", min=1)],
    output: Annotated[Path, option("A new folder for the collection.", "FOLDER")],
    random: Annotated[int, option("Also keep N random passages.", "N", min=0)] = 0,
    seed: Annotated[int, option("Seed of the random passages.", min=0)] = 0,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Write a slice of a collection: what is judged or ranked high."""
    from pipeline.config.files import load_config
    from pipeline.core.table import Column, Table
    from pipeline.studies.slices.slices import write_slice

    loaded = load_config(config, settings or ())
    written = write_slice(loaded, rankings, output, top, random, seed, progress)
    rows = [(each.name, f"{each.passages:,}", f"{each.alone:,}") for each in written.rankings]
    columns = [Column("ranking"), Column("passages", "right"), Column("of no other", "right")]
    title = f"{written.passages:,} of {written.of:,} passages, {written.judged:,} of them judged"
    table = Table(title, columns, rows)
    print_written(output, asdict(written), as_json, table, hint=f": run it with --data {output}")


STUDY = Study(
    "Which passages keep the order of systems?",
    {"slice": Command(slice_corpus, "mine.yaml results/bm25 results/minilm --top 100 --output mine-slice")},
)

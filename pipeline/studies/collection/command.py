"""The command of the study: `data`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_new_folder
from pipeline.studies.study import Command, Study
from pipeline.terminal import Configs, Json, Sets, Verbose, option, print_each, progress, show


def data(
    configs: Configs,
    settings: Sets = None,
    as_json: Json = False,
    export: Annotated[
        Path | None, option("Write ids and texts, in the row order of precomputed vectors.", "FOLDER")
    ] = None,
    training_data: Annotated[
        list[Path] | None, option("Count texts that occur in this training data; may be repeated.", "FILE")
    ] = None,
    audit: Annotated[
        bool, option("Look for defects of texts and judgments, and what they do to scores.", flags="--audit")
    ] = False,
    cleaned: Annotated[
        Path | None,
        option("With --audit: write a copy in which equal passages share grades.", "FOLDER", flags="--write"),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Show what a collection contains: sizes, judgments, an example. Nothing is encoded."""
    from pipeline.config import of_each_collection
    from pipeline.config.files import load_configs
    from pipeline.studies.collection.collections import describe_data, export_data
    from pipeline.studies.collection.tables import collection_view, collections_table

    loaded = of_each_collection(load_configs(configs, settings or ()))
    for flag, folder in (("--export", export), ("--write", cleaned)):
        if folder and len({config.data for config in loaded}) > 1:
            raise InputError(
                f"{flag} {folder}: the configs have several collections",
                allowed="configs of one collection",
                fix="write one after the other",
            )
    if cleaned:
        if not audit:
            raise InputError("--write without --audit", allowed="--audit --write FOLDER", fix="add --audit")
        check_new_folder(cleaned, "--write")
    if export:
        for path in export_data(loaded[0], export, progress):
            print(f"written to {path}", file=sys.stderr)
    for file in training_data or ():
        if not file.is_file():
            allowed = "JSON lines, Parquet, or text with a tab between fields"
            raise InputError(f"--training-data {file}: no such file", allowed=allowed, fix="check the path")
    described = describe_data(loaded, progress, training_data or (), audit, cleaned)
    if as_json:
        print_each([{"name": name, **description} for name, description in described.items()])
        return
    named = [config for config in loaded if config.name in described]
    named.sort(key=lambda config: "tokens" in described[config.name]["lengths"]["passages"])
    # Each collection once, whole texts or chunks of them, and with tokens if there are any.
    once = {config.data.model_copy(update={"chunks": None}): config.name for config in named}
    if len(once) == 1 or verbose or audit or training_data:
        for name in described if verbose else once.values():
            show(*collection_view(name, described[name], verbose))
    else:
        show(collections_table({name: described[name] for name in once.values()}))
    if cleaned:
        print(f"written to {cleaned}: changes.tsv lists the changed judgments", file=sys.stderr)
    if not verbose:
        print("-v shows every count and more examples")


STUDY = Study("What does a collection hold, and what is wrong with it?", {"data": Command(data, "mine.yaml")})

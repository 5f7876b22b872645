"""The collections of configs: descriptions, with defects and training data; and their texts as files."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pipeline.config import Config, DataSettings, of_each_collection
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.encoders.opener import TextOpener
from pipeline.metrics.definitions import parse_measures
from pipeline.models.tokenizer import token_counter
from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.whole_files import check_new_folder
from pipeline.studies.collection.audit import audit as audit_collection, write_cleaned
from pipeline.studies.collection.description import describe, export_texts
from pipeline.studies.collection.training_data import find_training_data

log = logging.getLogger(__name__)


def describe_data(
    configs: Sequence[Config],
    progress: Progress = silent,
    training_data: Sequence[Path] = (),
    audit: bool = False,
    cleaned: Path | None = None,
) -> dict[str, Facts]:
    """Describe the collections of configs; reads those that are not in the cache, and computes nothing else.

    Args:
        configs: From `load_configs`. Those of one collection and one model's name share a description.
        progress: Opens progress bars; none by default.
        training_data: Files that are searched by `find_training_data`.
        audit: Whether to look for defects.
        cleaned: A new folder for a copy of the only collection in which equal passages share their grades.

    Returns:
        By the name of its first config what `describe` says of each collection, with `training_data` and
        `audit` where these are asked for. Tokens are counted by the model's tokenizer, if that can be found.

    Raises:
        InputError: The data cannot be found, or is not what it should be.
    """
    alike: defaultdict[tuple[DataSettings, str], list[Benchmark]] = defaultdict(list)
    described = {}
    with Session() as session:
        for config in of_each_collection(configs):
            name = config.model.name if config.model else config.label
            alike[config.data, name].append(Benchmark(config, session, progress))
        for group in alike.values():
            collection = group[0].collection
            model = None
            try:
                sources = [source for benchmark in group for source in benchmark.retriever.sources]
                model = next((each.model for each in sources if isinstance(each, TextOpener)), None)
            except InputError as error:
                log.warning("tokens are not counted: %s", error)
            counter = token_counter(model.tokenizer) if model else None
            facts: Facts = describe(collection, counter, model.room_for_texts() if model else None)
            if audit:
                cut = facts["lengths"]["passages"].get("tokens", {}).get("truncation")
                audited = audit_collection(collection, parse_measures(group[0].config.evaluate.measures), cut)
                facts["audit"] = audited.json()
                if cleaned:
                    write_cleaned(collection, audited, cleaned)
            if training_data:
                found = [find_training_data(collection, file, progress=progress) for file in training_data]
                facts["training_data"] = found
            described[group[0].config.name] = facts
    return described


def export_data(config: Config, folder: str | Path, progress: Progress = silent) -> list[Path]:
    """Write the texts of a config's collection, in the order in which given vectors are matched to them.

    The folder is new or empty; `export_texts` says which files, and returns them.

    Raises:
        InputError: The data cannot be found, or is not what it should be; or the folder is in use.
    """
    check_new_folder(Path(folder), "--export")
    with Session() as session:
        return export_texts(Benchmark(config, session, progress).collection, Path(folder))

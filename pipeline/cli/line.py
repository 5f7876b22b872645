"""A benchmark without a file: the config that `--model` and `--data` stand for."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.core.errors import InputError, did_you_mean
from pipeline.terminal import argument, option

if TYPE_CHECKING:
    from pipeline.core.records import Facts

log = logging.getLogger(__name__)

PLACE = Path("of --model and --data")  # in messages, in place of a config file
NAMED = ("beir", "nanobeir")  # the suites whose collections --data knows by name
Configs = Annotated[list[Path] | None, argument("A benchmark's YAML file.", "[CONFIG]...")]
Models = Annotated[
    list[str] | None,
    option("Model, instead of a CONFIG: hub id, folder, alias or bm25.", "NAME", flags="--model"),
]
Data = Annotated[
    list[str] | None,
    option(
        "Collection, instead of a CONFIG: folder, suite, or a name such as nfcorpus.", "NAME", flags="--data"
    ),
]


def line_config(
    configs: Sequence[Path] | None,
    models: Sequence[str] | None,
    data: Sequence[str] | None,
    settings: Sequence[str],
    look_only: bool,
) -> Facts:
    """The config of models on collections, before its `settings`; `look_only` downloads no model's files."""
    if configs or not (models and data):
        raise _unclear(configs, models, data)
    several = len(data) > 1
    sections = {name: f"data.collections.{_label(name)}" if several else "data" for name in data}
    collections = {_label(name): _data(name, section, settings) for name, section in sections.items()}
    if len(collections) < len(data) or (several and any("suite" in each for each in collections.values())):
        raise InputError(
            f"--data {' --data '.join(data)}: a suite among them, or two of one name",
            allowed="one suite, or collections with different names",
            fix="list them in a config, under data.collections",
        )
    on = "-".join(collections)
    entries = [
        {
            "name": f"{_label(model)}-{on}",
            "model": {"backend": "bm25"} if model == "bm25" else _model(model, look_only),
        }
        for model in models
    ]
    section = {"collections": collections} if several else next(iter(collections.values()))
    return {"data": section, **(entries[0] if len(entries) == 1 else {"sweep": entries})}


def _unclear(configs: object, models: object, data: object) -> InputError:
    """The message for a line that names configs besides, or not both models and collections."""
    named = {"a CONFIG": configs, "--model": models, "--data": data}
    known = [name for name, value in named.items() if value]
    if configs:
        found = f"{' and '.join(known)} given"
        fix = "with a CONFIG, change its model by --set model.name=NAME"
    else:
        found = f"{'--data' if models else '--model'} is missing" if known else "nothing to run given"
        fix = "for example --model all-minilm-l6-v2 --data sample, or benchmarco example > mine.yaml"
    return InputError(found, allowed="a CONFIG, or --model NAME --data FOLDER", fix=fix)


def line_example(models: Sequence[str] | None, data: Sequence[str] | None, settings: Sequence[str]) -> str:
    """The YAML of the config that `--model` and `--data` stand for, with the settings; it is checked."""
    import yaml

    from pipeline.config.files import load_configs

    content = line_config(None, models, data, settings, look_only=False)
    load_configs(PLACE, settings, content)
    return yaml.safe_dump(json.loads(json.dumps(content, default=str)), sort_keys=False, allow_unicode=True)


def _model(name: str, look_only: bool) -> Facts:
    """The section `model` of a model, with the output that its files are for, if that is not dense."""
    from pipeline.core.hub import no_downloads
    from pipeline.models.outputs import find_outputs

    try:
        with no_downloads() if look_only else contextlib.nullcontext():
            outputs = find_outputs(name)
    except InputError:  # which the run says, with all its settings
        return {"name": name}
    if len(outputs) > 1:
        log.info("%s: gives %s; --set model.output=… takes another than the first", name, ", ".join(outputs))
    if outputs[0] == "dense":
        return {"name": name}
    log.info("%s: output %s, by the model's files", name, outputs[0])
    return {"name": name, "output": outputs[0]}


def _data(name: str, section: str, settings: Sequence[str]) -> Facts:
    """The section `data` that a name stands for; what exists as a path is not looked up.

    `section` is its place in the config, and `settings` are as in `--set`.
    """
    from pipeline.config.files import apply_override
    from pipeline.config.suites import read_suite, suite_names
    from pipeline.data.sources import catalogue, folders
    from pipeline.data.sources.plain_tables import find_tables

    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml") or (name in suite_names() and not path.exists()):
        return {"suite": name}
    if path.exists():
        if source := folders.layout_of(path):
            return {"source": source, "path": name}
        prefix = f"{section}."
        given: Facts = {}
        for each in map(str.lstrip, settings):
            if each.startswith(prefix):
                apply_override(given, each.removeprefix(prefix))
        if path.is_dir() and (tables := find_tables(path, name, given, section)):
            columns, described = tables
            log.info("%s", described)
            return {"source": "table", **columns}
        held = (
            ", ".join(sorted(each.name for each in path.iterdir())[:8]) if path.is_dir() else "is no folder"
        )
        expected = "; or ".join(layout.expected for layout in folders.LAYOUTS.values())
        expected += "; or tables such as passages.csv, queries.csv, judgments.csv"
        raise InputError(
            f"--data {name}: {held or 'is empty'}",
            allowed=f"a folder with {expected}",
            fix="add what is missing, or write a config: docs/data.md lists the other sources",
        )
    if name == "sample":
        return {"source": "sample"}
    listed = (pair for suite in NAMED for pair in read_suite(suite).collections.items())
    known = {collection.lower(): each.data for collection, each in listed}
    if found := known.get(name.lower()):
        return found.model_dump(exclude_unset=True)
    if catalogue.is_listed(name):
        return {"source": "ir_datasets", "path": name}
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return {"source": "beir", "path": name}
    raise InputError(
        f"--data {name}: no folder {path.absolute()}, and nothing of that name",
        allowed="a folder; sample; a suite (see 'benchmarco suites'); a collection of BEIR such as nfcorpus; "
        "an id of ir_datasets or of the hub",
        fix=did_you_mean(name.lower(), [*known, *suite_names(), "sample"], "check the spelling"),
    )


def _label(name: str) -> str:
    """The part of a result's name that a model or a collection gives: the end of a path or of an id."""
    from pipeline.config.files import plain_name

    path = Path(name).expanduser()
    if path.exists():
        name = path.resolve().name.removesuffix(".yaml")
    last = name if name.count("/") > 1 else name.rpartition("/")[2]  # ids of ir_datasets end in /test
    return plain_name(last) or "unnamed"

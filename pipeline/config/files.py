"""Config files: their YAML, with changes by `--set`, as checked configs; and sweeps, several in one file.

A list under `sweep:` has an entry per benchmark with the settings it changes, by dotted keys or sections:

    sweep:
      - {name: minilm-fp32}
      - {name: minilm-bf16, model.precision: bf16}

A mapping there has a list of values for each setting, and every combination is a benchmark:

    sweep:
      model.precision: [fp32, bf16]
      index.factory: [Flat, SQ8]
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pipeline.config.benchmark import Config
from pipeline.config.mistakes import CommandLineLoader, explain, parse_yaml, read_yaml
from pipeline.config.settings import FOLDER, SWEEP
from pipeline.config.strangers import find_cache, refuse_unasked
from pipeline.core.errors import InputError, short_repr
from pipeline.storage.whole_files import MANIFEST

if TYPE_CHECKING:
    from pipeline.core.records import Facts


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a benchmark's YAML file; `load_configs` reads one that holds several.

    Args:
        path: The file, or the `manifest.json` of a result, which holds its config. Relative paths inside it
            are taken from its folder.
        overrides: `key.path=value` strings, as given to `--set`; values are YAML. A relative path in them is
            taken from the working directory, or from the file's folder where it exists only there.

    Raises:
        InputError: The file cannot be read, is not YAML, or has a setting or value that is not allowed; or a
            manifest sets what `overrides` do not give again, see `pipeline.config.strangers`.
    """
    config, *others = load_configs(path, overrides)
    if others:
        raise _several(path)
    return config


def _several(path: str | Path, part: str = "") -> InputError:
    fix = "list them in the outer sweep" if part else f"give load_configs a file, or remove '{SWEEP}'"
    found = f"config {path}{part} holds several benchmarks, by its '{SWEEP}'"
    return InputError(found, allowed="a config of one benchmark", fix=fix)


def apply_override(raw: dict[str, object], override: str) -> None:
    """Apply a `key.path=value` string to plain values, in place."""
    where, (keys, equals, value) = f"--set {override}", override.partition("=")
    setting_path = keys.strip().split(".")
    if not equals or not all(setting_path):
        allowed = "for example --set search.top_k=100"
        raise InputError(f"{where}: not of the form key.path=value", allowed=allowed)
    put(raw, setting_path, parse_yaml(value, where, CommandLineLoader), where)


def as_config(config: Config | Mapping[str, object] | str | Path) -> Config:
    """A config as it is, or made from a dictionary of its sections, or read from a file.

    Relative paths in a dictionary are taken from the working directory.

    Raises:
        InputError: The file cannot be read, or a setting is not allowed.
    """
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return make_config(config, Path("config"))
    return load_config(config)


def make_config(
    raw: Mapping[str, object], path: Path, part: str = "", given: Sequence[str] | None = ()
) -> Config:
    """A config from plain values.

    Args:
        raw: The content of the file.
        path: The file; relative paths are taken from its folder.
        part: The part of the file that is read, for messages; "" is the whole file.
        given: Of a manifest, what the user gives again, as `--set` takes it; None if nothing of it will run.

    Raises:
        InputError: A setting is not allowed, or is of a manifest and must be given again.
    """
    settings = dict(raw)
    if settings.pop(SWEEP, None) is not None:
        raise _several(path, part)
    try:
        config = Config.model_validate(settings, context={FOLDER: path.resolve().parent})
    except ValidationError as error:
        raise explain(error, f"config {path}{part}", Config, settings, (SWEEP,)) from None
    if path.name == MANIFEST and given is not None:
        refuse_unasked(config, given, path)
    return config


def put(raw: dict[str, object], keys: Sequence[str], value: object, where: str) -> None:
    """Set the value at a path of keys, in place; missing sections are added. `where` is for messages.

    A key of a list is the number of a place in it, from 1.
    """
    holder: Any
    place: str | int
    inside: object = raw
    for above, key in itertools.pairwise(("", *keys)):
        if not isinstance(inside, dict | list):
            raise InputError(
                f"{where}: '{'.'.join(keys)}' is below '{above}', which is a value and not a section",
                fix="name a setting below a section",
            )
        holder, place = inside, key
        if isinstance(holder, list):
            if not key.isdecimal() or not 1 <= int(key) <= len(holder):
                raise InputError(
                    f"{where}: '{key}' in '{'.'.join(keys)}' is not a position in that list",
                    allowed=f"1 to {len(holder)}",
                    fix="name one of them",
                )
            place = int(key) - 1
        elif holder.get(key) is None:
            holder[key] = {}
        inside = holder[place]
    holder[place] = value


SettingValues = dict[tuple[str, ...], object]  # values by the path of their setting

MOST_BENCHMARKS = 1000  # of a file
LABEL_LENGTH = 32  # characters of a value that a result's name keeps


def load_configs(
    paths: str | Path | Sequence[str | Path], overrides: Sequence[str] = (), content: Facts | None = None
) -> list[Config]:
    """Read benchmarks' YAML files, with every benchmark of a sweep.

    Args:
        paths: A file, or several.
        overrides: `key.path=value` strings, as given to `--set`; a sweep cannot change what they set.
        content: The values to take for those of the file, which is not read; overrides change them in place.

    Raises:
        InputError: As `load_config`; a sweep is malformed; or two benchmarks have the same name.
    """
    loaded: list[tuple[str, Config]] = []
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        raw = content or read_yaml(path, "config", Config, "what 'benchmarco example' prints")
        held = raw.get("config")
        if path.name == MANIFEST and isinstance(held, dict):
            cache = find_cache(str(raw.get("cache", "")), str(held.get("cache", "")))
            raw = held | ({"cache": cache} if cache else {})
        for override in overrides:
            apply_override(raw, override)
        benchmarks = [("", raw)] if raw.get(SWEEP) is None else expand(raw, path, overrides)
        loaded += [(f"config {path}", make_config(one, path, part, overrides)) for part, one in benchmarks]
    if len(loaded) > 1:
        refuse_namesakes((where, config.name) for where, config in loaded)
    return [config for _, config in loaded]


def refuse_namesakes(benchmarks: Iterable[tuple[str, str]]) -> None:
    """Refuse benchmarks with the same name or result folder; each comes after its origin, for messages."""
    seen: set[str] = set()
    for where, name in benchmarks:
        if name in seen:
            raise InputError(
                f"{where}: another config is named '{name}' too",
                allowed="a name of its own for each: it names the result folder",
                fix="change one name",
            )
        seen.add(name)


def file_schema() -> dict[str, object]:
    """A config file as JSON Schema: the settings of a benchmark, and `sweep`."""
    schema = Config.model_json_schema()
    keys = {"pattern": rf"^({'|'.join(Config.model_fields)})(\..+)?$"}
    values = {"type": ["array", "object"]}
    schema["properties"][SWEEP] = {
        "description": "several benchmarks: a list of changes, or lists of values by setting",
        "default": None,
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"type": "object", "propertyNames": keys}},
            {"type": "object", "minProperties": 1, "propertyNames": keys, "additionalProperties": values},
            {"type": "null"},
        ],
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def expand(raw: Facts, path: Path, overrides: Sequence[str]) -> Iterator[tuple[str, Facts]]:
    """For each benchmark of a sweep the text that names it in messages, and its values with overrides."""
    shared = dict(raw)
    sweep = shared.pop(SWEEP)
    if not isinstance(sweep, list | dict) or not sweep:
        raise _malformed(f"config {path}: '{SWEEP}' is {short_repr(sweep)}")
    entries = _entries(sweep, path) if isinstance(sweep, list) else _combinations(sweep, path)
    changes = list(itertools.islice(entries, MOST_BENCHMARKS + 1))
    if len(changes) > MOST_BENCHMARKS:
        raise InputError(
            f"config {path}: '{SWEEP}' makes more than {MOST_BENCHMARKS:,} benchmarks",
            allowed=f"up to {MOST_BENCHMARKS:,}",
            fix="shorten its lists, or split the file",
        )
    _refuse_set_twice(changes, overrides, path)
    taken: Counter[str] = Counter()
    for part, change in changes:
        one = deepcopy(shared)
        for keys, value in change.items():
            put(one, keys, value, f"config {path}{part}")
        base = raw.get("name")
        if ("name",) not in change and isinstance(base, str):
            name = "-".join([base, *_labels(change, changes)])
            taken[name] += 1
            one["name"] = name if taken[name] == 1 else f"{name}-{taken[name]}"
        yield part, one


def _entries(sweep: list[object], path: Path) -> Iterator[tuple[str, SettingValues]]:
    """For each entry of a list the text that names it in messages, and its change."""
    for number, entry in enumerate(sweep, start=1):
        part = f", {SWEEP} entry {number}"
        if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
            raise _malformed(f"config {path}{part} is {short_repr(entry)}")
        yield part, dict(_leaves(entry))


def _combinations(sweep: Mapping[str, object], path: Path) -> Iterator[tuple[str, SettingValues]]:
    """For each combination of values the text that names it in messages, and its change."""
    if not all(isinstance(key, str) for key in sweep):
        raise _malformed(f"config {path}: a key of '{SWEEP}' is not a text")
    axes: dict[tuple[str, ...], list[object]] = {}
    for keys, listed in _leaves(sweep):
        if not isinstance(listed, list) or not listed:
            raise _malformed(f"config {path}: '{SWEEP}.{'.'.join(keys)}' is {short_repr(listed)}")
        axes[keys] = listed
    for values in itertools.product(*axes.values()):
        change = dict(zip(axes, values, strict=True))
        named = ", ".join(f"{'.'.join(keys)}={value}" for keys, value in change.items())
        yield f", {SWEEP} {named}", change


def _malformed(found: str) -> InputError:
    return InputError(
        found,
        allowed="a list of changes such as [{name: a}, {name: b, model.precision: bf16}], "
        "or lists of values such as {model.precision: [fp32, bf16]}",
        fix="write one of them; docs/compare.md has examples",
    )


def _leaves(
    changes: Mapping[str, object], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """The path and value of each setting in nested sections and dotted keys."""
    for key, value in changes.items():
        path = (*above, *str(key).split("."))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _refuse_set_twice(changes: list[tuple[str, SettingValues]], overrides: Sequence[str], path: Path) -> None:
    """Refuse `--set` of a setting that the sweep changes: one of the two would be silently lost."""
    swept = {keys for _, change in changes for keys in change}
    for override in overrides:
        overridden = tuple(override.partition("=")[0].strip().split("."))
        for keys in swept:
            if overridden[: len(keys)] == keys[: len(overridden)]:
                raise InputError(
                    f"--set {override}: the sweep of config {path} sets {'.'.join(keys)} itself",
                    allowed="settings that the sweep leaves alone, or another sweep",
                    fix="change the sweep, or switch it off with --set sweep=null",
                )


def _labels(change: SettingValues, changes: list[tuple[str, SettingValues]]) -> Iterator[str]:
    """The parts of a benchmark's name: the values that not all changes have."""
    for keys, value in change.items():
        if any(other.get(keys, change) != value for _, other in changes):
            yield _label(keys[-1], value)


def _label(key: str, value: object) -> str:
    """A value as part of a result's name; a value that is not text follows its setting's name."""
    if isinstance(value, list):
        return "-".join(_label(key, each) for each in value)
    if isinstance(value, str):
        text = value.rstrip("/").rpartition("/")[2]
    else:
        text = f"{key}-{'null' if value is None else str(value).lower()}"
    return plain_name(text)[:LABEL_LENGTH].strip("-.") or f"{key}-empty"


def plain_name(text: str) -> str:
    """A text with '-' for what the name of a result cannot have; "" if nothing is left."""
    return re.sub(r"[^\w.]+", "-", unicodedata.normalize("NFC", text)).strip("-.")

"""Config files: their YAML, with changes by `--set`, as a checked config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.config.benchmark import Config
from pipeline.config.mistakes import explain
from pipeline.config.settings import FOLDER, SWEEP
from pipeline.config.yaml_files import parse_yaml, read_yaml
from pipeline.core.errors import InputError
from pipeline.core.removed import without_removed

MANIFEST = "manifest.json"
"""The file of a result folder that holds its config, with all settings."""


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a benchmark's YAML file; `pipeline.config.sweep.load_configs` reads one that holds several.

    Args:
        path: The file, or the `manifest.json` of a result, which holds its config. Relative paths inside it
            are taken from its folder.
        overrides: `key.path=value` strings, as given to `--set`; values are YAML.

    Raises:
        InputError: The file cannot be read, is not YAML, or has a setting or value that is not allowed.
    """
    path = Path(path)
    raw = read_config(path, overrides)
    if raw.get(SWEEP) is not None:
        raise InputError(
            f"config {path} holds several benchmarks, by its '{SWEEP}'",
            allowed="a config of one benchmark",
            fix="call load_configs, or remove the sweep",
        )
    return make_config(raw, path)


def read_config(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The file's YAML with the overrides applied, not yet checked; arguments as for `load_config`."""
    example = "what 'benchmarco example' prints"
    raw = read_yaml(path, "config", tuple(Config.model_fields), example, "a benchmark's YAML file")
    if path.name == MANIFEST and isinstance(raw.get("config"), dict):
        raw = raw["config"]
    return with_overrides(raw, overrides)


def with_overrides(raw: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Plain values with `key.path=value` strings applied to them, in place."""
    for override in overrides:
        keys, equals, value = override.partition("=")
        setting_path = keys.strip().split(".")
        if not equals or not all(setting_path):
            found = f"--set {override}: not of the form key.path=value"
            raise InputError(found, allowed="for example --set search.top_k=100")
        where = f"--set {override}"
        put(raw, setting_path, parse_yaml(value, where), where)
    return raw


def as_config(given: Config | Mapping[str, Any] | str | Path) -> Config:
    """A config as it is, or made from a dictionary of its sections, or read from a file.

    Relative paths in a dictionary are taken from the working directory.

    Raises:
        InputError: The file cannot be read, or a setting is not allowed.
    """
    if isinstance(given, Config):
        return given
    if isinstance(given, Mapping):
        return make_config(given, Path("config"))
    return load_config(given)


def make_config(raw: Mapping[str, Any], path: Path, part: str = "") -> Config:
    """A config from plain values.

    Args:
        raw: The content of the file.
        path: The file; relative paths are taken from its folder.
        part: The part of the file that is read, for messages; "" is the whole file.
    """
    settings = without_removed(raw, f"config {path}{part}")
    settings.pop(SWEEP, None)
    try:
        return Config.model_validate(settings, context={FOLDER: path.resolve().parent})
    except ValidationError as error:
        raise explain(error, f"config {path}{part}", Config, (SWEEP,)) from None


def put(raw: dict[str, Any], keys: Sequence[str], value: Any, where: str) -> None:
    """Set the value at a path of keys, in place; missing sections are added. `where` is for messages.

    A key of a list is the number of a place in it, from 1.
    """
    *above, last = keys
    holder: Any = raw
    for key in above:
        place = _place_in(holder, key, keys, where)
        if isinstance(holder, dict) and holder.get(key) is None:
            holder[key] = {}
        holder = holder[place]
        if not isinstance(holder, dict | list):
            raise InputError(
                f"{where}: '{'.'.join(keys)}' is below '{key}', which is a value and not a section",
                fix="name a setting below a section",
            )
    holder[_place_in(holder, last, keys, where)] = value


def _place_in(holder: dict[str, Any] | list[Any], key: str, keys: Sequence[str], where: str) -> Any:
    """The place of a key in a section, or in a list of sections, which are numbered from 1."""
    if isinstance(holder, dict):
        return key
    if key.isdecimal() and 1 <= int(key) <= len(holder):
        return int(key) - 1
    raise InputError(
        f"{where}: '{key}' in '{'.'.join(keys)}' is not a position in that list",
        allowed=f"1 to {len(holder)}",
        fix="name one of them",
    )

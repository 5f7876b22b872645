"""Config files: their YAML, with changes by `--set`, as a checked config."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipeline.config.benchmark import Config
from pipeline.config.mistakes import explain
from pipeline.config.settings import FOLDER, SWEEP
from pipeline.core.bounded_yaml import BoundedLoader
from pipeline.core.errors import InputError, short_repr


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a benchmark's YAML file; `pipeline.config.sweep.load_configs` reads one that holds several.

    Args:
        path: The file. Relative paths inside it are taken from its folder.
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
    raw = _read_yaml(path)
    for override in overrides:
        keys, equals, value = override.partition("=")
        setting_path = keys.strip().split(".")
        if not equals or not all(setting_path):
            found = f"--set {override}: not of the form key.path=value"
            raise InputError(found, allowed="for example --set search.top_k=100")
        where = f"--set {override}"
        put(raw, setting_path, _parse_yaml(value, where), where)
    return raw


def make_config(raw: Mapping[str, Any], path: Path, part: str = "") -> Config:
    """A config from plain values.

    Args:
        raw: The content of the file.
        path: The file; relative paths are taken from its folder.
        part: The part of the file that is read, for messages; "" is the whole file.
    """
    settings = {key: value for key, value in raw.items() if key != SWEEP}
    try:
        return Config.model_validate(settings, context={FOLDER: path.resolve().parent})
    except ValidationError as error:
        raise explain(error, f"config {path}{part}") from None


_UNFIT = re.compile("[\0\ud800-\udfff]")  # not possible in a path or a UTF-8 file
_WHOLE_NUMBERS = range(-(2**63), 2**63)


class _Loader(BoundedLoader):
    """A safe loader, which also refuses duplicate keys and values that no setting can hold."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value. For text that does not fit its tag, such as a bad date, PyYAML raises many types."""
        try:
            value = super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (AttributeError, LookupError, ValueError):
            raise yaml.MarkedYAMLError(
                problem=f"{short_repr(node.value)} is not a valid {node.tag.rpartition(':')[2]}",
                problem_mark=node.start_mark,
            ) from None
        if isinstance(value, str) and _UNFIT.search(value):
            problem = "a text holds \\0 or half a surrogate pair"
        elif isinstance(value, int) and value not in _WHOLE_NUMBERS:
            problem = "a whole number has more than 64 bits"
        else:
            return value
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping before `<<` merges others into it, which makes duplicates legitimate."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key '{key.value}'", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def _parse_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        problem = error.problem or error.context or "cannot be parsed"
        raise InputError(
            f"{where}{line}: not valid YAML: {problem}",
            allowed="one 'key: value' a line, indented by spaces, each key once",
            fix="correct that line",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{where}: not valid YAML: {detail}", fix="correct the file") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"config {path} is a folder" if path.is_dir() else f"config {path}: no such file",
            allowed="a benchmark's YAML file, such as configs/quickstart.yaml",
            fix="check the path",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"config {path}: not UTF-8 text (byte {error.start})"
        raise InputError(found, fix="save it as UTF-8") from None
    except OSError as error:
        found = f"config {path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check its permissions") from None
    raw = _parse_yaml(text, f"config {path}")
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise InputError(
            f"config {path} is {'empty' if raw is None else 'not a mapping of sections'}",
            allowed=f"sections {', '.join(Config.model_fields)}",
            fix="start from configs/quickstart.yaml",
        )
    return raw


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
        f"{where}: '{key}' in '{'.'.join(keys)}' is not a place in a list",
        allowed=f"1 to {len(holder)}",
        fix="name one of them",
    )

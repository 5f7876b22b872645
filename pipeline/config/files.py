"""How does a benchmark's YAML file become a config? Read, overridden, checked, its paths made absolute.

What is wrong with it is said in one sentence: where, what is allowed, what to do.
"""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pipeline.config import SWEEP, Config
from pipeline.core.errors import InputError, short_repr


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a benchmark's YAML file; `pipeline.config.sweep.load_configs` reads one that holds several.

    Args:
        path: The file. Relative paths inside it are taken from its folder.
        overrides: `key.path=value` strings, as given to `--set`; values are YAML.

    Raises:
        InputError: The file cannot be read, is not YAML, or says something that is not allowed.
    """
    path = Path(path)
    raw = read_config(path, overrides)
    if raw.get(SWEEP) is not None:
        raise InputError(
            f"config {path}: '{SWEEP}' makes several benchmarks of it",
            allowed="a config of one benchmark",
            fix="call load_configs, or remove the sweep",
        )
    return make_config(raw, path)


def read_config(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The file's YAML with the overrides in it, of which nothing is checked yet; as `load_config`."""
    raw = _read_yaml(path)
    for override in overrides:
        _override(raw, override)
    return raw


def make_config(raw: Mapping[str, Any], path: Path, part: str = "") -> Config:
    """The config that plain values make.

    Args:
        raw: What the file says.
        path: The file, whose folder relative paths are taken from.
        part: Which part of the file it is, for messages: "" is all of it.

    Raises:
        InputError: A value is not allowed, or a key is not known.
    """
    try:
        config = Config.model_validate({key: value for key, value in raw.items() if key != SWEEP})
    except ValidationError as error:
        raise _explain(error, f"config {path}{part}") from None
    return _anchor(config, path.resolve().parent)


_UNFIT = re.compile("[\0\ud800-\udfff]")  # what no path and no UTF-8 file can hold
_WHOLE_NUMBERS = range(-(2**63), 2**63)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key given twice instead of keeping the last, and unfit values."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value; PyYAML stumbles over a text that is not what its tag or its form says."""
        try:
            value = super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (AttributeError, LookupError, ValueError):
            raise yaml.MarkedYAMLError(
                problem=f"{short_repr(node.value)} is no {node.tag.rpartition(':')[2]}",
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
        """A mapping as it is written, before `<<` merges others into it."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key.value}' stands twice", problem_mark=key.start_mark
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
            fix="mend that line",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{where}: not valid YAML: {detail}", fix="mend the file") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise InputError(
            f"config {path}: {what}",
            allowed="a benchmark's YAML file, such as configs/quickstart.yaml",
            fix="check the path",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"config {path}: not UTF-8 text (byte {error.start})", fix="save it as UTF-8"
        ) from None
    except OSError as error:
        raise InputError(
            f"config {path}: cannot be read: {error.strerror}", fix="check its permissions"
        ) from None
    raw = _parse_yaml(text, f"config {path}")
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise InputError(
            f"config {path}: holds {'nothing' if raw is None else 'no mapping of sections'}",
            allowed=f"sections {', '.join(Config.model_fields)}",
            fix="start from configs/quickstart.yaml",
        )
    return raw


def _override(raw: dict[str, Any], text: str) -> None:
    """Apply one `key.path=value` to the raw mapping, in place."""
    keys, equals, value = text.partition("=")
    path = keys.strip().split(".")
    if not equals or not all(path):
        raise InputError(
            f"--set {text}: not of the form key.path=value", allowed="for example --set search.top_k=100"
        )
    parsed = _parse_yaml(value, f"--set {text}")
    put(raw, path, parsed, f"--set {text}")


def put(raw: dict[str, Any], keys: Sequence[str], value: Any, where: str) -> None:
    """Give a setting a value, in place; sections above it are made if they are not there.

    Args:
        raw: What a config file says.
        keys: The path of the setting.
        value: Its value.
        where: What asks for it, for messages.

    Raises:
        InputError: A key above it holds a value and no settings.
    """
    *above, last = keys
    for key in above:
        if raw.get(key) is None:
            raw[key] = {}
        raw = raw[key]
        if not isinstance(raw, dict):
            raise InputError(
                f"{where}: '{'.'.join(keys)}' is below '{key}', which holds a value, not settings",
                fix="name a setting below a section",
            )
    raw[last] = value


def _sections(model: type[BaseModel], location: Sequence[Any]) -> type[BaseModel] | None:
    """The section's model at `location` below `model`, or None where there is none."""
    for key in location:
        field = model.model_fields.get(str(key))
        if field is None:
            return None
        inner = field.annotation
        options = get_args(inner) if isinstance(inner, types.UnionType) else (inner,)
        models = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


_ALLOWED = {
    "model_type": "a section, of settings and their values",
    "tuple_type": "a list",
    "too_short": "one or more",
}
"""What YAML calls some things that pydantic complains of."""


def _explain(error: ValidationError, where: str) -> InputError:
    """One of pydantic's complaints as one sentence: of an unknown key, else the first of what is deepest."""
    issue = min(error.errors(), key=lambda issue: (issue["type"] != "extra_forbidden", -len(issue["loc"])))
    location = [part for part in issue["loc"] if isinstance(part, int) or not _is_branch(part)]
    dotted = ".".join(str(part) for part in location)
    if issue["type"] == "extra_forbidden":
        section = _sections(Config, location[:-1])
        known = [*(section.model_fields if section else []), *([] if location[:-1] else [SWEEP])]
        near = difflib.get_close_matches(str(location[-1]), known, 1, cutoff=0.0)
        return InputError(
            f"{where}: unknown key '{dotted}'",
            allowed=", ".join(known),
            fix=f"did you mean '{near[0]}'" if near else "remove it",
        )
    if issue["type"] == "missing":
        return InputError(f"{where}: '{dotted}' is missing", fix="add it; see configs/quickstart.yaml")
    message = issue["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if issue["type"] == "value_error" and isinstance(issue["input"], Mapping):
        return InputError(f"{where}: {message}")  # of a whole section, which says what to do
    section = _sections(Config, location[:-1])
    field = section.model_fields.get(str(location[-1])) if section and location else None
    doc = f" ({field.description})" if field and field.description else ""
    found = f"{where}: '{dotted}' is {short_repr(issue['input'])}{doc}"
    return InputError(found, allowed=_ALLOWED.get(issue["type"], message), fix="change it")


def _is_branch(part: str) -> bool:
    """Whether a part of pydantic's location names a branch of a union instead of a key."""
    return part in ("int", "str", "bool", "PositivesOf") or part.startswith(
        ("tuple[", "literal[", "function-")
    )


def _anchor(config: Config, base: Path) -> Config:
    """The config with local paths made absolute; names that no local folder has stay hub ids or aliases."""

    def local(value: str | None, explicit: bool = False) -> str | None:
        if value is None:
            return None
        path = Path(os.path.realpath(base / value))  # which a loop of links does not stop
        return str(path) if explicit or path.exists() or value.startswith((".", "/")) else value

    source, where = config.data.source, config.data.path
    data = config.data.model_copy(
        update={
            "path": where
            if source == "ir_datasets"
            else local(where, explicit=source in ("msmarco", "flag")),
            "corpus_path": local(config.data.corpus_path),
        }
    )
    model = config.model.model_copy(
        update={
            "name": local(config.model.name or None) or "",
            "passages": local(config.model.passages, explicit=True),
            "queries": local(config.model.queries, explicit=True),
        }
    )
    return config.model_copy(update={"data": data, "model": model})

"""YAML files: their values, and messages for what is not YAML or fits no setting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.errors import InputError, short_repr

_UNFIT = re.compile("[\0\ud800-\udfff]")  # not possible in a path or a UTF-8 file
_WHOLE_NUMBERS = range(-(2**63), 2**63)


class _Loader(yaml.SafeLoader):
    """A safe loader, which refuses duplicate keys and values that no setting can hold."""

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


def parse_yaml(text: str, where: str) -> Any:
    """The value of YAML text; `where` is for messages."""
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


def read_yaml(path: Path, kind: str, sections: Sequence[str], example: str, what: str) -> dict[str, object]:
    """The mapping of sections in a YAML file, not yet checked.

    Args:
        path: The file.
        kind: What it is in a word, for messages: "config".
        sections: The keys that it may have, for messages.
        example: A file to start from.
        what: What is expected at `path`: "a benchmark's YAML file".
    """
    if not path.is_file():
        raise InputError(
            f"{kind} {path} is a folder" if path.is_dir() else f"{kind} {path}: no such file",
            allowed=f"{what}, such as {example}",
            fix="check the path",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"{kind} {path}: not UTF-8 text (byte {error.start})"
        raise InputError(found, fix="save it as UTF-8") from None
    except OSError as error:
        found = f"{kind} {path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check its permissions") from None
    raw = parse_yaml(text, f"{kind} {path}")
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise InputError(
            f"{kind} {path} is {'empty' if raw is None else 'not a mapping of sections'}",
            allowed=f"sections {', '.join(sections)}",
            fix=f"start from {example}",
        )
    return raw

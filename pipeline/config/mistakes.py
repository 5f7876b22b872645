"""YAML files as values, and messages for what is not YAML or is no config: where it is, what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from pipeline.config.settings import OTHER_OUTPUT, UNKNOWN_KIND, CommandLineText, Kinds, Section, section_of
from pipeline.core.errors import InputError, did_you_mean, short_repr

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_ALLOWED = {
    "model_type": "a section: settings and their values",
    "tuple_type": "a list",
    "string_too_short": "a text that is not empty",
}
"""What is allowed, in terms of YAML, for some of pydantic's types of errors."""


def explain(
    error: ValidationError,
    where: str,
    root: type[BaseModel],
    raw: Mapping[str, object],
    besides: Sequence[str] = (),
) -> InputError:
    """Pydantic's errors about a file as one message, which names every setting that is wrong.

    Of a setting whose value can have several types, only the deepest error is shown. `where` names the file
    and its part, `root` is the section that all of it is, `raw` its values, and `besides` are other keys.
    """
    issues: dict[str, tuple[ErrorDetails, InputError]] = {}
    for issue in sorted(error.errors(), key=lambda issue: len(issue["loc"])):
        place = _place(issue["loc"], root, raw)
        issues[_dotted(place.keys)] = issue, _explain_one(issue, place, where, besides)
    for above in [key for key in issues if any(other.startswith(f"{key}.") for other in issues)]:
        del issues[above]
    ordered = sorted(issues.values(), key=lambda each: each[0]["type"] != "extra_forbidden")
    messages = [message for _, message in ordered]
    if len(messages) == 1:
        return messages[0]
    listed, said = "", set()
    for number, message in enumerate(messages, start=1):
        allowed = "" if message.allowed in said else message.allowed
        said.add(message.allowed)
        mistake = InputError(message.found.removeprefix(f"{where}: "), allowed=allowed, fix=message.fix)
        listed += f" ({number}) {mistake}"
    return InputError(f"{where} has {len(messages)} mistakes:{listed.removesuffix('.')}")


class _Place(NamedTuple):
    """A place in a file."""

    keys: list[str | int]
    section: type[BaseModel] | None  # that has the last key; None inside a plain mapping
    kinds: Kinds[Section] | None  # that this section is one of, if any


def _explain_one(issue: ErrorDetails, place: _Place, where: str, besides: Sequence[str]) -> InputError:
    """One of pydantic's errors as a message."""
    keys, section, kinds = place
    at = f"{where}: '{_dotted(keys)}'"
    if issue["type"] == "extra_forbidden":
        return _unknown_key(place, besides, where)
    if issue["type"] == UNKNOWN_KIND:
        return _unknown_kind(keys, issue["ctx"]["kinds"], issue["input"], where)
    if issue["type"] == OTHER_OUTPUT:
        found = f"{where}: {_dotted(keys)} is not a setting of {issue['msg']}"
        return InputError(found, allowed=issue["ctx"]["having"], fix="leave it out")
    field = section.model_fields.get(str(keys[-1])) if section and keys else None
    doc = f" ({field.description})" if field and field.description else ""
    if issue["type"] == "missing":
        return InputError(f"{at} is missing{doc}", fix="add it; see what 'benchmarco example' prints")
    message = issue["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if issue["type"] == "value_error" and isinstance(issue["input"], Mapping):
        return InputError(f"{where}: {message}")  # about a whole section; it says what to do
    allowed = _ALLOWED.get(issue["type"], message)
    if issue["type"] == "too_short":
        allowed = f"{issue['ctx']['min_length']} or more"
    pattern = str(issue.get("ctx", {}).get("pattern"))
    if pattern.startswith("^("):  # a list of words, some of them with a number
        allowed = pattern[2:-2].replace("|", ", ").replace(r"(:\d+)?", "[:N]").replace(r"\d+", "N")
    is_literal = issue["type"] == "literal_error"
    if kinds and is_literal and (others := kinds.allowing(str(keys[-1]), issue["input"])):
        allowed += f"; with {kinds.field} {', '.join(others)} also {short_repr(issue['input'])}"
    shown = "not shown" if field and not field.repr else short_repr(issue["input"])  # it may hold a key
    quotes = "write text in quotes; with --set, inside the quotes of the shell"
    fix = f"{quotes}: --set \"{_dotted(keys)}='TEXT'\"" if issue["type"] == "string_type" else "change it"
    return InputError(f"{at} is {shown}{doc}", allowed=allowed, fix=fix)


def _unknown_key(place: _Place, besides: Sequence[str], where: str) -> InputError:
    """The message for a key that its section does not have."""
    keys, section, kinds = place
    key = str(keys[-1])
    dotted = _dotted(keys)
    known = [*(section.model_fields if section else []), *(() if keys[:-1] else besides)]
    found = f"unknown key '{dotted}'"
    fix = did_you_mean(key, known, "remove it")
    if section and kinds and (others := kinds.having(key)):
        kind = section.model_fields[kinds.field].default
        found = f"{dotted} is not a setting of {kinds.field} '{kind}' (it belongs to {', '.join(others)})"
        whole = f'--set "{_dotted(keys[:-1])}={{{kinds.field}: {kind}}}"'
        fix = f"leave it out; to replace the whole section, type {whole}"
    return InputError(f"{where}: {found}", allowed=", ".join(known), fix=fix)


def _dotted(keys: Sequence[str | int]) -> str:
    """The path of a setting, as `--set` takes it: places in a list are numbered from 1."""
    return ".".join(str(key + 1) if isinstance(key, int) else key for key in keys)


def _unknown_kind(
    keys: Sequence[str | int], kinds: Kinds[Section], settings: Mapping[str, object], where: str
) -> InputError:
    """The message for a section without a kind, or with an unknown one of `kinds`."""
    value = settings.get(kinds.field, kinds.default)
    doc = kinds.base.model_fields[kinds.field].description
    is_given = kinds.field in settings
    return InputError(
        f"{where}: '{_dotted(keys)}.{kinds.field}' is {short_repr(value) if is_given else 'missing'} ({doc})",
        allowed=", ".join(f"'{name}'" for name in kinds.all()),
        fix=did_you_mean(value, kinds.all(), "change it") if is_given else "add it",
    )


def _place(location: Sequence[str | int], root: type[BaseModel], raw: Mapping[str, object]) -> _Place:
    """The place that one of pydantic's locations names, in which there are names of types too."""
    place = _Place([], root, None)
    value: Any = raw
    held: tuple[type[BaseModel] | None, Kinds[Section] | None] = root, None  # of the value, or those in it
    named = False  # whether it is such a mapping
    for part in location:
        section, kinds = held
        if kinds and isinstance(value, Mapping) and not named:
            section = kinds.all()[kinds.kind_of(value)]
        is_given = isinstance(value, Mapping) and part in value
        if not (is_given or isinstance(part, int) or (section and part in section.model_fields)):
            continue  # the name of a type, or of a mapping's key that is wrong
        place.keys.append(part)
        value = value[part] if is_given or isinstance(value, list | tuple) else None
        if isinstance(part, str):
            place = _Place(place.keys, None, None) if named else _Place(place.keys, section, kinds)
            field = None if named or not section else section.model_fields.get(part)
            held = held if named else section_of(field)
            named = field is not None and get_origin(field.annotation) is dict
    return place


_UNFIT = re.compile("[\0\ud800-\udfff]")  # not possible in a path or a UTF-8 file


class Loader(yaml.SafeLoader):
    """A safe loader, which refuses values that no setting can hold; `parse_yaml` refuses duplicate keys."""

    texts: type[str] = str
    """The class of texts."""

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
        if (isinstance(value, str) and _UNFIT.search(value)) or (isinstance(value, int) and abs(value) >> 63):
            problem = "a text holds \\0 or half a surrogate pair, or a whole number has more than 64 bits"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return self.texts(value) if isinstance(value, str) else value


class CommandLineLoader(Loader):
    """A loader of what `--set` is given."""

    texts = CommandLineText


MOST_VALUES = 100_000
"""Values of a YAML file, those of an alias counted wherever it stands."""
MOST_BYTES = 1 << 20
"""Of a YAML file: PyYAML reads about 100 KB a second."""


def _count_values(node: yaml.Node, counts: dict[yaml.Node, float], unique: bool) -> float:
    """Values of a node, those of an alias counted wherever it stands; infinity for one inside itself.

    `unique` refuses duplicate keys, before `<<` merges others into a mapping, which makes them legitimate.
    """
    if node not in counts:
        counts[node] = math.inf  # while it is counted
        inside = () if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if unique and isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:str":
                    if key.value in seen:
                        problem = f"duplicate key '{key.value}'"
                        raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                    seen.add(key.value)
            inside = chain.from_iterable(node.value)
        counts[node] = 1 + sum(_count_values(each, counts, unique) for each in inside)
    return counts[node]


def parse_yaml(text: str, where: str, load: Callable[[str], Any] = Loader) -> Any:
    """The value of YAML text; `where` is for messages. PyYAML's BaseLoader leaves all scalars texts."""
    try:
        loader = load(text)
        node = loader.get_single_node()
        # A few nested aliases stand for billions.
        if node and _count_values(node, {}, unique=isinstance(loader, Loader)) > MOST_VALUES:
            raise ValueError(f"aliases stand for more than {MOST_VALUES:,} values")
        return loader.construct_document(node) if node else None
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


def read_yaml(path: Path, kind: str, root: type[BaseModel], example: str) -> dict[str, object]:
    """The mapping of sections in a YAML file, not yet checked.

    For messages: its `kind` in a word, "config"; what it is read as; and an `example` to start from.
    """
    where = f"{kind} {path}"
    if not path.is_file():
        raise InputError(
            f"{where} is a folder" if path.is_dir() else f"{where}: no such file",
            allowed=f"a {kind} as a YAML file, such as {example}",
            fix="check the path",
        )
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            allowed = f"a {kind} of up to {MOST_BYTES:,} bytes"
            raise InputError(f"{where} has {size:,} bytes", allowed=allowed, fix="check the path")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start})", fix="save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror}", fix="check its permissions") from None
    raw = parse_yaml(text, where)
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise InputError(
            f"{where} is {'empty' if raw is None else 'not a mapping of sections'}",
            allowed=f"sections {', '.join(root.model_fields)}",
            fix=f"start from {example}",
        )
    return raw

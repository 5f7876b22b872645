"""All settings of a config in a flat list, for completion in a shell and for the template with comments."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipeline.config.benchmark import Config
from pipeline.config.kinds import Kinds, kinds_of


@dataclass
class Outlined:
    """A setting of the config.

    Attributes:
        path: Its keys, with dots between them.
        doc: What it is, in a line.
        default: Its default as YAML; None if it must be given.
        values: The values that are allowed, as YAML, where they can be listed.
        kinds: The kinds of its section that have it; empty where the section has no kinds.
        is_section: Whether it holds settings of its own, which follow it.
    """

    path: str
    doc: str
    default: str | None
    values: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    is_section: bool = False


def outline() -> Iterator[Outlined]:
    """Every setting, section by section in the order of the config; a section comes before its settings."""
    yield from _outline_of("", Config.model_fields)


def _outline_of(above: str, fields: Mapping[str, FieldInfo]) -> Iterator[Outlined]:
    for name, declared in fields.items():
        path = f"{above}{name}"
        section, kinds = section_of(declared), kinds_of(declared)
        made = Outlined(path, declared.description or "", _default(declared), _values(declared.annotation))
        made.is_section = section is not None and not (above and kinds)
        yield made
        if made.is_section and kinds:
            yield from _of_kinds(path, kinds)
        elif made.is_section and section:
            yield from _outline_of(f"{path}.", section.model_fields)


def _of_kinds(path: str, kinds: Kinds[Any]) -> Iterator[Outlined]:
    """The settings of all kinds of a section, each once, with the kinds that have it."""
    found: dict[str, Outlined] = {}
    for kind in kinds:
        for made in _outline_of(f"{path}.", kinds[kind].model_fields):
            known = found.setdefault(made.path, made)
            known.kinds.append(kind)
            known.values = _common(known.values, made.values)
    chooser = found[f"{path}.{kinds.field}"]
    chooser.values, chooser.default = kinds.names, kinds.default
    yield from found.values()


def section_of(declared: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, unless it is null; None where it holds values or a list of sections."""
    options = _options(declared.annotation)
    (first, *others) = [each for each in options if each is not type(None)]
    return first if not others and isinstance(first, type) and issubclass(first, BaseModel) else None


def _options(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the only type."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _common(ours: list[str], theirs: list[str]) -> list[str]:
    """The values of a setting that several kinds have; those of null alone where one of them lists none."""
    both = list(dict.fromkeys([*ours, *theirs]))
    listed = all(set(values) - {"null"} for values in (ours, theirs))
    return both if listed else [value for value in both if value == "null"]


def _values(annotation: Any) -> list[str]:
    """The values that a type lists, as YAML."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [yaml_text(value) for value in inner]
    if origin is Annotated:
        return _values(inner[0])
    if len(options := _options(annotation)) > 1:
        return [value for option in options for value in _values(option)]
    return {bool: ["true", "false"], type(None): ["null"]}.get(annotation, [])


def _default(declared: FieldInfo) -> str | None:
    return None if declared.is_required() else yaml_text(declared.default)


def yaml_text(value: Any) -> str:
    """A default or a value of a setting as YAML on one line."""
    if isinstance(value, BaseModel):
        given = {name: getattr(value, name) for name in value.model_fields_set}
        return "{" + ", ".join(f"{name}: {yaml_text(each)}" for name, each in given.items()) + "}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(yaml_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "''" if value == "" else str(value)

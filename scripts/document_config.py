#!/usr/bin/env python
"""Write docs/configuration.md from the config's settings classes.

.venv/bin/python scripts/document_config.py
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from pipeline.config import Config
from pipeline.config.settings import Kinds, kinds_of

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

One YAML file is one benchmark; `benchmarco schema` prints the same as JSON Schema, for editors. Unknown keys
are refused. Relative paths are taken from the config file's folder, `cache` and `output` from the working
directory. Any key can be set for one run: `--set search.top_k=100`.

`data`, `model` and `rerank` have kinds, chosen by `data.source`, `model.backend` and `rerank.backend`: a kind
has the settings of the first table and of those under its name. A setting of another kind, or of another
`model.output`, is refused, except with its default value. `data.collections` and `data.suite` name several
collections, and need no `data.source`: see [suites](suites.md). Retrievers in `fuse.of` are numbered from 1:
`--set fuse.of.2.model.precision=bf16`.

*Recomputes* names the stages whose output the setting changes directly. Stages that depend on those are
recomputed too; everything else is reused. If `data` changes but not its passages, their vectors are reused.
A setting with nothing in that column is recorded and changes no result.

This page is made by `scripts/document_config.py`.
"""


def main() -> None:
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    top = {key: field for key, field in Config.model_fields.items() if not section(field.annotation)}
    parts = [table("", top)]
    for name, field in Config.model_fields.items():
        if model := section(field.annotation):
            kinds = kinds_of(field)
            parts += [f"\n## `{name}`: {first_line(model)}\n", table(name, model.model_fields, kinds)]
            parts += inner_tables(name, model)
            parts += kind_tables(name, kinds) if kinds else []
    return HEAD + "\n## Top level\n" + "".join(parts)


def inner_tables(name: str, model: type[BaseModel]) -> list[str]:
    """A table for each section inside a section, but for those that are written out in its table."""
    return [
        f"\n### `{name}.{key}`\n{first_line(inner)}\n\n{table(f'{name}.{key}', inner.model_fields)}"
        for key, field in model.model_fields.items()
        if (inner := section(field.annotation)) and len(inner.model_fields) > 1
    ]


def kind_tables(name: str, kinds: Kinds[Any]) -> list[str]:
    """A table for each class of a section's kinds, with the settings that it adds or narrows.

    Classes that several kinds derive from come first, under the names of these kinds.
    """
    users: dict[type[BaseModel], list[str]] = {}
    for kind in kinds:
        classes = kinds[kind].__mro__
        for model in reversed(classes[: classes.index(kinds.base)]):
            users.setdefault(model, []).append(kind)
    parts = []
    for model, named in sorted(users.items(), key=lambda item: -len(item[1])):
        own = {key: model.model_fields[key] for key in settings_of(model) if key != kinds.field}
        others = [settings_of(kinds[kind]) for kind in named if kinds[kind] is not model]
        if others:  # a setting that each of the kinds declares again is in their tables
            own = {key: own[key] for key in own if not all(key in each for each in others)}
        names = ", ".join(f"`{kind}`" for kind in named)
        text = f"\n### `{name}.{kinds.field}`: {names}\n{first_line(model)}"
        parts.append(f"{text}\n\n{table(name, own)}" if own else f"{text} No settings of its own.\n")
    return parts


def settings_of(model: type[BaseModel]) -> list[str]:
    """The settings that a class declares itself, in order."""
    return [key for key in model.__annotations__ if key in model.model_fields]


def first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").splitlines()[0]


def fields(model: type[BaseModel]) -> list[tuple[str, Any]]:
    return list(model.model_fields.items())


def section(annotation: Any) -> type[BaseModel] | None:
    """The section that a setting always or sometimes holds."""
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    found = (each for each in options if isinstance(each, type) and issubclass(each, BaseModel))
    return next(found, None)


def table(name: str, settings: Mapping[str, Any], kinds: Kinds[Any] | None = None) -> str:
    rows = []
    for key, field in settings.items():
        if kinds and key == kinds.field:
            names, default = ", ".join(f"`{kind}`" for kind in kinds), kinds.default
            rows.append(row(name, key, field, f"`{default}`" if default else "required", names))
        else:
            default = "required" if field.is_required() else f"`{plain(field.default)}`"
            rows.append(row(name, key, field, default, allowed(field.annotation)))
    head = "| key | default | allowed | what it is | recomputes |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def row(name: str, key: str, field: Any, default: str, values: str) -> str:
    shapes = " ".join(field.json_schema_extra["shapes"])
    outputs = field.json_schema_extra["outputs"]
    doc = f"{field.description} (output {', '.join(outputs)})" if outputs else field.description
    dotted = f"{name}.{key}" if name else key
    cells = (f"`{dotted}`", default, values, doc, shapes)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def plain(value: Any) -> str:
    if value == "":
        return "''"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def allowed(annotation: Any) -> str:
    """A type as a reader of YAML would say it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (types.UnionType, typing.Union):
        return ", ".join(allowed(option) for option in inner)
    if origin in (tuple, list):
        return f"list of {allowed(inner[0])}"
    if origin is typing.Annotated:
        kinds = next((each for each in inner if isinstance(each, Kinds)), None)
        return f"a section with `{kinds.field}`" if kinds else allowed(inner[0])
    if origin is dict:
        return f"mapping to {allowed(inner[1])}"
    if section(annotation):
        inside = (
            f"{key}: …" if section(field.annotation) else f"{key}: {allowed(field.annotation)}"
            for key, field in fields(annotation)
        )
        return "`{" + ", ".join(inside).replace("`", "") + "}`"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return names.get(annotation, "any")


if __name__ == "__main__":
    main()

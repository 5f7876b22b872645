#!/usr/bin/env python
"""Write docs/configuration.md from the config's own models.

.venv/bin/python scripts/document_config.py
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from pipeline.config import Config

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

One YAML file is one benchmark; `benchmarco schema` prints the same as JSON Schema, for editors. Unknown keys
are refused. Relative paths are taken from the config file's folder, `cache` and `output` from the working
directory. Any key can be set for one run: `--set search.top_k=100`.

*Makes again* names the stages that the setting itself shapes. What is made from them follows; everything else
is reused. Of a changed `data` the passages' vectors stay if the passages do. Settings with none there are
recorded and change no result.

This page is made by `scripts/document_config.py`.
"""


def main() -> None:
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    sections = [("", Config), *((name, section(field.annotation)) for name, field in fields(Config))]
    return HEAD + "".join(table(name, model) for name, model in sections if model)


def fields(model: type[BaseModel]) -> list[tuple[str, Any]]:
    return list(model.model_fields.items())


def section(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def table(name: str, model: type[BaseModel]) -> str:
    rows = [row(name, key, field) for key, field in fields(model) if not section(field.annotation)]
    title = f"`{name}`: {(model.__doc__ or '').splitlines()[0]}" if name else "Top level"
    head = "| key | default | allowed | what it is | makes again |\n|---|---|---|---|---|\n"
    return f"\n## {title}\n{head}" + "".join(rows)


def row(name: str, key: str, field: Any) -> str:
    default = "required" if field.is_required() else f"`{plain(field.default)}`"
    shapes = " ".join(field.json_schema_extra["shapes"])
    dotted = f"{name}.{key}" if name else key
    cells = (f"`{dotted}`", default, allowed(field.annotation), field.description, shapes)
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
    if origin is dict:
        return f"mapping to {allowed(inner[1])}"
    if section(annotation):
        return (
            "`{"
            + ", ".join(f"{key}: {allowed(field.annotation)}" for key, field in fields(annotation))
            + "}`"
        )
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return names.get(annotation, "any")


if __name__ == "__main__":
    main()

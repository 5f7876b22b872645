"""The base of every section of a config: how a setting is declared, and which settings stand in which keys.

A setting is made by `setting`, which demands two marks: the stages whose artifacts it shapes, and whether its
own value stands in their keys. `keyed_settings` reads the marks when keys are made, so that no setting can be
added without deciding what it invalidates.
"""

from __future__ import annotations

import os
import typing
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

SWEEP = "sweep"  # the key of a file that holds several benchmarks; see `pipeline.config.sweep`
STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
FOLDER = "folder"
"""In a validation's context: the folder that relative paths are taken from."""


def setting(default: Any, doc: str, *, shapes: str, keyed: bool = True, **limits: Any) -> Any:
    """A config field.

    Args:
        default: The value when the config does not give one; `...` makes the field required.
        doc: One line for the schema and the documentation.
        shapes: The stages whose output the field changes, space-separated; "" for none.
        keyed: Whether the value itself is part of those stages' keys. False where the key holds what
            the value leads to instead: the content of a file, the identity of a model.
        **limits: Pydantic's own constraints, such as `ge=1`.
    """
    extra: dict[str, Any] = {"shapes": shapes.split(), "keyed": keyed}
    return Field(default, description=doc, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """A part of a config: immutable, without unknown keys, and strict about types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    @classmethod
    def narrowed(cls, name: str, default: Any = ..., doc: str = "") -> Any:
        """A setting of this class for a subclass that allows fewer values; it keeps its marks.

        Args:
            name: The setting.
            default: Its value in the subclass when the config does not give one; `...` makes it required.
            doc: What it is in the subclass, if that differs.
        """
        field = cls.model_fields[name]
        shapes, keyed = marks(field)
        return setting(default, doc or field.description or "", shapes=" ".join(shapes), keyed=keyed)


def marks(field: Any) -> tuple[list[str], bool]:
    """What `setting` was told: the stages that a field shapes, and whether its value is in their keys."""
    extra = typing.cast("dict[str, Any]", field.json_schema_extra)
    return extra["shapes"], extra["keyed"]


def keyed_settings(section: BaseModel, stage: str) -> dict[str, Any]:
    """The settings of one section whose own value is part of `stage`'s key, as plain JSON values."""
    chosen = {}
    for name, field in type(section).model_fields.items():
        shapes, keyed = marks(field)
        if keyed and stage in shapes:
            value = getattr(section, name)
            chosen[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return chosen


def _with_home(value: str) -> str:
    """A path with the home folder in place of its `~`."""
    if not value.startswith("~"):
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError:
        raise ValueError("a path with no ~ at its start, or with that of a user of this machine") from None


def _absolute(value: str, info: ValidationInfo) -> str:
    """A path, absolute where the folder is known that it is relative to; '' stays as it is."""
    value, folder = _with_home(value), (info.context or {}).get(FOLDER)
    if folder is None or not value:
        return value
    return str(os.path.realpath(folder / value))  # unlike Path.resolve, a loop of links does not stop it


def _absolute_if_local(value: str, info: ValidationInfo) -> str:
    """The same for what exists, or can only be a path; any other value is an id."""
    path = _absolute(value, info)
    return path if value.startswith((".", "/", "~")) or Path(path).exists() else value


HomePath = Annotated[str, AfterValidator(_with_home)]
"""A path, relative to the working directory."""
LocalPath = Annotated[str, AfterValidator(_absolute)]
"""A path, relative to the config file."""
PathOrId = Annotated[str, AfterValidator(_absolute_if_local)]
"""A path relative to the config file, or else the id of something on the hub, or an alias."""

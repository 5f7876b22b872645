"""The base class of a config's sections, and `setting`, which declares a field and the stages it shapes.

`setting` demands two marks: the stages whose artifacts the setting shapes, and whether its value is part of
their keys. `keyed_settings` reads them, so no setting can be added without deciding what it invalidates.
"""

from __future__ import annotations

import os
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo

SWEEP = "sweep"  # the key of a file that holds several benchmarks; see `pipeline.config.files`
STAGES = ("data", "chunks", "passages", "queries", "index", "search", "fuse", "rerank", "evaluate")
OUTPUTS = ("dense", "sparse", "multivector")  # what models give for a text
OTHER_OUTPUT = "other_output"  # type of the error for a setting that another output has
FOLDER = "folder"  # key of a validation's context: the folder that relative paths are taken from


def setting(
    default: Any, doc: str, *, shapes: str, keyed: bool = True, outputs: str = "", **limits: Any
) -> Any:
    """A config field.

    Args:
        default: The value when the config does not give one; `...` makes the field required.
        doc: One line for the schema and the documentation.
        shapes: The stages whose output the field changes, space-separated; "" for none.
        keyed: Whether the value is part of those stages' keys. False where the key holds what the value
            names instead: the content of a file, the identity of a model.
        outputs: In the section `model`, the outputs that have the setting, space-separated; "" is all.
        **limits: Pydantic's own constraints, such as `ge=1`.
    """
    extra: dict[str, Any] = {"shapes": shapes.split(), "keyed": keyed, "outputs": outputs.split()}
    return Field(default, description=doc, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """A part of a config: immutable, without unknown keys, and strict about types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    @classmethod
    def narrowed(cls, name: str, default: Any = ..., doc: str = "", **limits: Any) -> Any:
        """A setting of this class for a subclass that allows fewer values; it keeps its marks.

        `default`, `doc` and `limits` are those of the subclass: `...` makes it required, "" keeps this
        class's text.
        """
        field = cls.model_fields[name]
        shapes, keyed = marks(field)
        return setting(
            default,
            doc or field.description or "",
            shapes=" ".join(shapes),
            keyed=keyed,
            outputs=" ".join(_extra(field)["outputs"]),
            **limits,
        )


class RunsModel(Section):
    """Settings of a backend that runs a model."""

    on_gpu: ClassVar[bool] = True
    """Whether the backend can compute on GPUs."""
    extra: ClassVar[str] = ""
    """The extra that installs the package of this name, which only this backend needs; "" if none does."""
    _taken_by_auto: bool = PrivateAttr(False)
    if TYPE_CHECKING:  # settings of every such section, each with a text of its own
        backend: str
        precision: str
        device: str

    @property
    def label(self) -> str:
        """A short name for tables."""
        raise NotImplementedError

    @property
    def taken_by_auto(self) -> bool:
        """Whether the config leaves the backend to `auto`, which took this one."""
        return self._taken_by_auto


def marks(field: Any) -> tuple[list[str], bool]:
    """The stages that a field shapes, and whether its value is part of their keys."""
    extra = _extra(field)
    return extra["shapes"], extra["keyed"]


def outputs_of(field: Any) -> list[str]:
    """The outputs of a model that have a setting."""
    return _extra(field)["outputs"] or list(OUTPUTS)


def _extra(field: Any) -> dict[str, Any]:
    return typing.cast("dict[str, Any]", field.json_schema_extra)


def keyed_settings(section: BaseModel, stage: str) -> dict[str, Any]:
    """The settings of one section whose own value is part of `stage`'s key, as plain JSON values."""
    chosen = {}
    output = getattr(section, "output", None)
    for name, field in type(section).model_fields.items():
        shapes, keyed = marks(field)
        if keyed and stage in shapes and (output is None or output in outputs_of(field)):
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
    """An absolute path, if the context names the folder that it is relative to; '' is kept."""
    value, folder = _with_home(value), (info.context or {}).get(FOLDER)
    if folder is None or not value:
        return value
    return str(os.path.realpath(folder / value))  # unlike Path.resolve, a loop of links does not stop it


def _absolute_if_local(value: str, info: ValidationInfo) -> str:
    """An absolute path if the value exists or can only be a path; otherwise the value, which is an id.

    Without a config file, paths are relative to the working directory.
    """
    folder = (info.context or {}).get(FOLDER)
    path = str(os.path.realpath(Path(folder or "") / _with_home(value))) if value else value
    return path if value.startswith((".", "/", "~")) or Path(path).exists() else value


HomePath = Annotated[str, AfterValidator(_with_home)]
"""A path, relative to the working directory."""
LocalPath = Annotated[str, AfterValidator(_absolute)]
"""A path, relative to the config file."""
PathOrId = Annotated[str, AfterValidator(_absolute_if_local)]
"""A path relative to the config file, an id on the hub, or an alias."""

"""The base class of a config's sections, and `setting`, which declares a field and the stages it shapes.

`setting` demands a mark: the stages whose artifacts the setting shapes. `keyed_settings` reads it, so no
setting can be added without deciding what it invalidates.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from pipeline.core.errors import InputError
from pipeline.core.hub import UnresolvedId
from pipeline.core.plugins import add_plugins, origin

if TYPE_CHECKING:
    from pipeline.core.records import Facts

SWEEP = "sweep"  # the key of a file that holds several benchmarks; see `pipeline.config.files`
STAGES = ("data", "chunks", "passages", "queries", "index", "search", "fuse", "scores", "rerank", "evaluate")
OUTPUTS = ("dense", "sparse", "multivector")  # what models give for a text
OTHER_OUTPUT = "other_output"  # type of the error for a setting that another output has
UNKNOWN_KIND = "unknown_kind"  # type of the error for a section that names none of its `kinds`
BESIDE = "$CONFIG"  # begins a path that is relative to the config file
FOLDER = "folder"  # key of a validation's context: the folder that relative paths are taken from


def setting(
    default: Any,
    doc: str,
    *,
    shapes: str | None = None,
    names: str = "",
    outputs: str = "",
    effect: str = "",
    **limits: Any,
) -> Any:
    """A config field.

    Args:
        default: The value when the config gives none; `...` makes the field required.
        doc: One line for the schema and the documentation.
        shapes: The stages whose keys have the value, as it changes their output, space-separated.
        names: Instead, the stages whose keys have the content or the model that the value names.
        outputs: In the section `model`, the outputs that have the setting, space-separated; "" is all.
        effect: What the value `{}` does beyond a computation on this machine: it reaches an address, a
            variable of the environment, a folder or code. See `pipeline.config.strangers`.
        **limits: Pydantic's own constraints, such as `ge=1`.
    """
    assert names or shapes is not None, "a setting without a mark"
    listed = names if shapes is None else shapes
    mark = Mark(listed.split(), outputs.split() or list(OUTPUTS), shapes is not None, effect)
    return Field(default, description=doc, json_schema_extra=mark, **limits)


@dataclass(frozen=True)
class Mark:
    """What `setting` records of a field."""

    shapes: list[str]  # the stages
    outputs: list[str]  # those that have it
    by_value: bool
    effect: str

    def __call__(self, schema: JsonDict) -> None:
        """What pydantic calls to extend the field's JSON Schema: nothing of this is in it."""


class Section(BaseModel):
    """A part of a config: immutable, without unknown keys, and strict about types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def narrowed(cls, name: str, default: Any = ..., doc: str = "", **limits: Any) -> Any:
        """A setting for a subclass that allows fewer values: with its marks, and its text or `doc`."""
        field = cls.model_fields[name]
        doc = doc or str(field.description)
        return Field(default, description=doc, json_schema_extra=field.json_schema_extra, **limits)


class RunsModel(Section):
    """Settings of a backend that runs a model."""

    on_gpu: ClassVar[bool] = True
    """Whether the backend can compute on GPUs."""
    extra: ClassVar[str] = ""
    """The extra that installs the package of this name, which only this backend needs; "" if none does."""
    _asked: RunsModel | None = PrivateAttr(None)
    if TYPE_CHECKING:  # settings of every such section, each with a text of its own
        backend: str
        precision: str
        device: str

    @property
    def label(self) -> str:
        """A short name for tables."""
        raise NotImplementedError

    def source_of(self, name: str) -> Literal["config", "auto", "default"]:
        """Where a setting's value comes from: "auto" if that changed what the config says."""
        configured = self._asked or self
        if getattr(configured, name, None) != getattr(self, name, None):
            return "auto"
        return "config" if name in configured.model_fields_set else "default"


def mark_of(field: FieldInfo) -> Mark:
    """What `setting` says of a field."""
    return typing.cast("Mark", field.json_schema_extra)


def keyed_settings(section: BaseModel, stage: str) -> Facts:
    """The settings of one section whose own value is part of `stage`'s key, as plain JSON values.

    Those of another package are with its `origin`, as its code shapes the stage too.
    """
    chosen = dict(origin(type(section)))
    output = getattr(section, "output", None)
    for name, field in type(section).model_fields.items():
        mark = mark_of(field)
        if mark.by_value and stage in mark.shapes and output in (None, *mark.outputs):
            value = getattr(section, name)
            chosen[name] = keyed_settings(value, stage) if isinstance(value, BaseModel) else value
    return chosen


class CommandLineText(str):
    """A text of `--set`: a path in it starts where the command was started, and not at the config file."""

    __slots__ = ()


def _in_home(value: str, info: ValidationInfo) -> str:
    """A path with the home of a user for `~`, and the config file's folder for `BESIDE`."""
    beside, _, rest = value.partition("/")
    if beside == BESIDE:
        return os.path.realpath(Path((info.context or {}).get(FOLDER, "")) / rest)
    try:
        return str(Path(value).expanduser()) if value.startswith("~") else value
    except RuntimeError:
        raise ValueError("a path with no ~ at its start, or with that of a user of this machine") from None


def _path_or_id(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> str:
    """An absolute path if the value exists or can only be a path; otherwise the value, which is an id.

    A relative path is taken from the config file's folder, or without a file from the working directory; one
    of `--set` from the working directory where it exists there.
    """
    name: str = read(value)
    if not name:
        return name
    typed = isinstance(value, CommandLineText)
    starts = [*([""] if typed else []), (info.context or {}).get(FOLDER, "")]
    # Unlike Path.resolve, a loop of links does not stop realpath.
    paths = list(dict.fromkeys(os.path.realpath(Path(start) / _in_home(name, info)) for start in starts))
    if found := next((path for path in paths if Path(path).exists()), None):
        return found
    if typed and name.startswith("."):
        missing = f"neither {paths[0]} nor {paths[1]}" if len(paths) > 1 else f"no {paths[0]}"
        raise ValueError(f"a path that exists: there is {missing}")
    if name.startswith((".", "/", "~")):
        return paths[-1]
    unresolved = UnresolvedId(name)
    unresolved.tried = tuple(paths)
    return unresolved


def _local_path(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> str:
    """The path of a value that is no id."""
    path = _path_or_id(value, read, info)
    return path.tried[-1] if isinstance(path, UnresolvedId) else path


def _plain_name(value: str) -> str:
    """A name that can be that of a folder; raises ValueError for others."""
    if not re.fullmatch(r"[\w.-]+", value) or value.strip(".") == "":
        raise ValueError("letters, digits, '.', '_' and '-', and not only dots")
    return value


PlainName = Annotated[str, AfterValidator(_plain_name)]
HomePath = Annotated[str, AfterValidator(_in_home)]
"""A path, relative to the working directory, or to the config file if it begins with `BESIDE`."""
LocalPath = Annotated[str, WrapValidator(_local_path)]
"""A path, relative to the config file; in `--set` to the working directory first."""
PathOrId = Annotated[str, WrapValidator(_path_or_id)]
"""A path as in `LocalPath`, an id on the hub, or an alias."""
DEVICES = r"^(auto|cpu|cuda(:\d+)?|mps)$"
"""Devices of PyTorch; `mps` is a GPU of Apple's."""


S = TypeVar("S", bound=Section)


@dataclass(eq=False)
class Kinds(Generic[S]):
    """The settings classes of one section, by the name of their kind.

    Those of plugins (`pipeline.core.plugins`) are among them: such an entry point names a settings class and
    what opens it, as a pair.

    Args:
        base: The class that all of them derive from.
        field: The setting that names the kind.
        classes: Each kind's class by its name.
        default: The kind when a config names none; None refuses such a config.
        besides: Kinds that are among these too, whenever they are registered.
        implied: Kinds that a config need not name where it gives the setting of the same name.
        groups: The groups of entry points that add kinds.
    """

    base: type[S]
    field: str
    classes: dict[str, type[S]]
    default: str | None = None
    besides: Kinds[S] | None = None
    implied: Collection[str] = ()
    groups: Sequence[str] = ()
    # What opens kinds that were added.
    openers: dict[str, Any] = dataclasses.field(default_factory=dict, init=False)

    def register(self, settings: type[S], opener: Any) -> None:
        """Add a kind: its settings class, which declares `field` as `Literal[name]`, and what opens it.

        That is, for a backend of models or rerankers the function that loads one; for a source what makes a
        reader of its settings; for a kind of retriever its class.
        """
        (name,) = get_args(settings.model_fields[self.field].annotation)
        self.classes[name], self.openers[name] = settings, opener

    def opener(self, name: str) -> Any:
        """What opens a kind that was registered, or that a plugin added."""
        self.all()
        return self.openers[name]

    def all(self) -> dict[str, type[S]]:
        """The settings class of each kind by its name, with those of plugins."""
        for group in self.groups:
            add_plugins(group, self._add_plugin)
        return (self.besides.all() if self.besides else {}) | self.classes

    def _add_plugin(self, name: str, pair: Any) -> None:
        """Register the kind of an entry point."""
        settings, opener = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
        if not (isinstance(settings, type) and issubclass(settings, self.base)):
            raise InputError(
                "it names no kind", allowed=f"a pair of a {self.base.__name__} class and what opens it"
            )
        if get_args(settings.model_fields[self.field].annotation) != (name,):
            raise InputError("its settings have another name", allowed=f'{self.field}: Literal["{name}"]')
        if name in self.classes:
            raise InputError("its name is taken", fix="choose another name")
        self.register(settings, opener)

    def having(self, setting: str) -> list[str]:
        """The kinds that have a setting."""
        return [name for name, kind in self.all().items() if setting in kind.model_fields]

    def allowing(self, setting: str, value: object) -> list[str]:
        """The kinds that list a value of a setting."""
        fields = {name: self.all()[name].model_fields[setting] for name in self.having(setting)}
        listing = (name for name, field in fields.items() if value in get_args(field.annotation))
        return [name for name in listing if name != self.default]

    def make(self, **settings: object) -> S:
        """Settings of the kind named in them; raises pydantic's ValidationError if one is not allowed."""
        return self._validate(settings, None)

    def converted(self, settings: S, **choice: object) -> S:
        """Settings for another kind, which has all settings of this one: those given, and `choice`."""
        explicit = {name: getattr(settings, name) for name in settings.model_fields_set - choice.keys()}
        return self.make(**{**explicit, **choice}).model_copy(update=explicit)  # names are resolved already

    def kind_of(self, settings: Mapping[str, object]) -> Any:
        """The name of the kind that settings are for: what they say, or what they imply."""
        implied = next((kind for kind in self.implied if kind in settings), self.default)
        return settings.get(self.field, implied)

    def _validate(self, value: object, info: ValidationInfo | None) -> S:
        if isinstance(value, self.base):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("model_type", {"class_name": self.base.__name__})
        kind, kinds = self.kind_of(value), self.all()
        if kind not in list(kinds):  # which may be of any type
            raise PydanticCustomError(UNKNOWN_KIND, "one of its kinds", {"kinds": self})
        settings = {self.field: kind, **value}
        for name in settings.keys() - kinds[kind].model_fields.keys():
            fields = [kinds[other].model_fields[name] for other in self.having(name)]
            defaults = [None if field.is_required() else field.default for field in fields]
            # Dropped with the default that it has elsewhere, so that a sweep over kinds can give it for all.
            if any(type(each) is type(value[name]) and each == value[name] for each in defaults):
                del settings[name]
        return kinds[kind].model_validate(settings, context=info.context if info else None)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate by the class of the kind, which may be a later plugin's; serialize by the value's own."""
        kinds = core_schema.with_info_plain_validator_function(
            self._validate, serialization=core_schema.simple_ser_schema("any")
        )
        optional = type(None) in get_args(source)
        return core_schema.nullable_schema(kinds) if optional else kinds

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The union's schema, in which every kind but the default one must be named."""
        classes: Any = Union[tuple(self.all().values())]  # noqa: UP007
        union = handler(TypeAdapter(Annotated[classes, Field(discriminator=self.field)]).core_schema)
        for reference in union["oneOf"]:
            kind = handler.resolve_ref_schema(reference)
            named = kind["properties"][self.field]
            named.pop("default", None)
            if named["const"] not in (self.default, *self.implied):
                kind["required"] = list(dict.fromkeys([self.field, *kind.get("required", [])]))
        return {"anyOf": [union, {"type": "null"}]} if schema["type"] == "nullable" else union


def section_of(field: FieldInfo | None) -> tuple[type[BaseModel] | None, Kinds[Section] | None]:
    """The section that a setting holds, or its list or mapping, and the kinds that the section is one of."""
    parts: list[Any] = [field.annotation, *field.metadata] if field else []
    for part in parts:  # which grows
        parts += get_args(part)
    sections = (part for part in parts if isinstance(part, type) and issubclass(part, BaseModel))
    return next(sections, None), next((part for part in parts if isinstance(part, Kinds)), None)


def with_variant(name: str, variant: Sequence[str]) -> str:
    """A model's name, without the folders of a local one, and in brackets what sets its results apart."""
    short = PurePath(name).name if PurePath(name).is_absolute() else name
    return f"{short} ({', '.join(variant)})" if short and variant else short

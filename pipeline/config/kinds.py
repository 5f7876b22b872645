"""The kinds of a section: one settings class for each, chosen by the value of one setting.

`Kinds` is a registry and, as the metadata of a config's field, a discriminated union of pydantic: a file may
give the settings of the kind that it names, and no others. A kind's class is defined in the module of the
source or backend that it configures, so the registry names it as "module:class" and imports it when needed.

Kinds may have variants, chosen by a second setting: a backend runs a model for its dense vectors, and, as the
kind "flag sparse", for its word weights.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args

from pydantic import (
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from pipeline.config.settings import Section

S = TypeVar("S", bound=Section)


class Variant(NamedTuple):
    """The setting that chooses among the variants of a kind, and its value for the variant without a name."""

    field: str
    default: str


class Kinds(Generic[S]):
    """The settings classes of one section, by the name of their kind.

    Args:
        base: The class that all of them derive from.
        field: The setting that names the kind.
        classes: Each kind's class by its name, or "module:class" to import it from. A variant of a kind is
            named "KIND VARIANT".
        default: The kind when a config names none; None refuses such a config.
        variant: The setting that names a kind's variant, if kinds have any.
        besides: Kinds that are among these too, whenever they are registered.
        implied: Kinds that a config need not name where it gives the setting of the same name.
    """

    def __init__(
        self,
        base: type[S],
        field: str,
        classes: Mapping[str, str | type[S]],
        default: str | None = None,
        variant: Variant | None = None,
        besides: Kinds[S] | None = None,
        implied: Collection[str] = (),
    ) -> None:
        self.base, self.field, self.default, self.variant = base, field, default, variant
        self._classes = dict(classes)
        self._besides, self._implied = besides, implied
        self._adapter: tuple[list[str], TypeAdapter[S]] | None = None

    def register(self, name: str, settings: str | type[S]) -> None:
        """Add a kind. Its class, given as such or as "module:class", declares `field` as `Literal[name]`.

        The class of a variant declares the variant's setting likewise.
        """
        self._classes[name], self._adapter = settings, None

    def __iter__(self) -> Iterator[str]:
        return iter([*(self._besides or ()), *self._classes])

    def __getitem__(self, name: str) -> type[S]:
        """The settings class of a kind."""
        if self._besides and name in list(self._besides):
            return self._besides[name]
        found = self._classes[name]
        if isinstance(found, str):
            found = self._classes[name] = named(found)
        return found

    @property
    def names(self) -> list[str]:
        """The values that the setting which names the kind may have."""
        return list(dict.fromkeys(name.split()[0] for name in self))

    def having(self, setting: str) -> list[str]:
        """The kinds that have a setting."""
        return [name for name in self if setting in self[name].model_fields]

    def chosen(self, settings: Mapping[Any, Any]) -> str:
        """The name of the kind that settings choose, which may not exist."""
        kind = str(settings.get(self.field, self._unnamed(settings)))
        variant = settings.get(self.variant.field, self.variant.default) if self.variant else None
        return kind if self.variant is None or variant == self.variant.default else f"{kind} {variant}"

    def _unnamed(self, settings: Mapping[Any, Any]) -> str | None:
        """The kind of settings that name none."""
        return next((kind for kind in self._implied if kind in settings), self.default)

    @property
    def choosing(self) -> list[str]:
        """The settings that choose a kind."""
        return [self.field, *([self.variant.field] if self.variant else [])]

    def defaults(self, section: type[Section]) -> dict[str, Any]:
        """The values that choose a kind, given its class."""
        fields = section.model_fields
        return {name: fields[name].default for name in self.choosing if name in fields}

    def make(self, **settings: Any) -> S:
        """Settings of the kind named in them; raises pydantic's ValidationError if one is not allowed."""
        return self._validate(settings, None)

    def converted(self, settings: S, **choice: Any) -> S:
        """Settings for another kind, which has all settings of this one: those given, and `choice`."""
        given = {name: getattr(settings, name) for name in settings.model_fields_set - choice.keys()}
        return self.make(**{**given, **choice}).model_copy(update=given)  # names are resolved already

    @property
    def adapter(self) -> TypeAdapter[S]:
        """The union of all kinds."""
        names = list(self)
        if self._adapter is None or self._adapter[0] != names:
            tagged: list[Any] = [Annotated[self[name], Tag(name)] for name in names]
            union: Any = functools.reduce(operator.or_, tagged)
            by = Discriminator(self.chosen) if self.variant else Field(discriminator=self.field)
            self._adapter = names, TypeAdapter(Annotated[union, by])
        return self._adapter[1]

    def _validate(self, value: Any, info: ValidationInfo | None) -> S:
        if isinstance(value, self.base):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("model_type", {"class_name": self.base.__name__})
        unnamed = self._unnamed(value)
        given = {self.field: unnamed, **value} if unnamed else dict(value)
        kept = {name: each for name, each in given.items() if not self._is_idle(given, name, each)}
        return self.adapter.validate_python(kept, context=info.context if info else None)

    def _is_idle(self, given: Mapping[Any, Any], name: Any, value: Any) -> bool:
        """Whether a setting belongs to other kinds only, and has its default value there.

        Such a setting is accepted and dropped, so that a sweep over kinds can give it for all of them.
        """
        kind = self.chosen(given)
        if kind not in list(self) or name in self[kind].model_fields:
            return False
        fields = [self[other].model_fields[name] for other in self.having(name)]
        defaults = [None if field.is_required() else field.default for field in fields]
        return any(type(value) is type(default) and value == default for default in defaults)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate by the union, which is made when first needed; serialize by the value's own class."""
        kinds = core_schema.with_info_plain_validator_function(
            self._validate, serialization=core_schema.simple_ser_schema("any")
        )
        optional = type(None) in get_args(source)
        return core_schema.nullable_schema(kinds) if optional else kinds

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The union's schema, in which every kind and variant but the default ones must be named."""
        union = handler(self.adapter.core_schema)
        unnamed = {self.field: self.default}
        if self.variant:
            unnamed[self.variant.field] = self.variant.default
        for reference in union["oneOf"]:
            kind = handler.resolve_ref_schema(reference)
            given = {name: kind["properties"][name] for name in unnamed if name in kind["properties"]}
            for field in given.values():
                field.pop("default", None)
            free = (*unnamed.values(), *self._implied)
            demanded = [name for name, field in given.items() if field["const"] not in free]
            if demanded:
                kind["required"] = list(dict.fromkeys([*demanded, *kind.get("required", [])]))
        return {"anyOf": [union, {"type": "null"}]} if schema["type"] == "nullable" else union


def named(place: Any) -> Any:
    """The object that a string "module:name" names, imported; any other value is returned unchanged."""
    if not isinstance(place, str):
        return place
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def kinds_of(field: FieldInfo) -> Kinds[Any] | None:
    """The kinds of a config's field, if it has any."""
    return next((each for each in field.metadata if isinstance(each, Kinds)), None)

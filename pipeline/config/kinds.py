"""The kinds of a section: one settings class for each, chosen by the value of one setting.

`Kinds` is a registry and, as the metadata of a config's field, a discriminated union of pydantic: a file may
give the settings of the kind that it names, and no others.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import (
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


class Kinds(Generic[S]):
    """The settings classes of one section, by the name of their kind.

    Args:
        base: The class that all of them derive from.
        field: The setting that names the kind.
        classes: Each kind's class by its name.
        default: The kind when a config names none; None refuses such a config.
        besides: Kinds that are among these too, whenever they are registered.
        implied: Kinds that a config need not name where it gives the setting of the same name.
    """

    def __init__(
        self,
        base: type[S],
        field: str,
        classes: Mapping[str, type[S]],
        default: str | None = None,
        besides: Kinds[S] | None = None,
        implied: Collection[str] = (),
    ) -> None:
        self.base, self.field, self.default = base, field, default
        self._classes = dict(classes)
        self._besides, self._implied = besides, implied
        self._adapter: tuple[list[str], TypeAdapter[S]] | None = None

    def register(self, name: str, settings: type[S]) -> None:
        """Add a kind. Its class declares `field` as `Literal[name]`."""
        self._classes[name], self._adapter = settings, None

    def __iter__(self) -> Iterator[str]:
        return iter([*(self._besides or ()), *self._classes])

    def __getitem__(self, name: str) -> type[S]:
        """The settings class of a kind."""
        if self._besides and name in list(self._besides):
            return self._besides[name]
        return self._classes[name]

    def having(self, setting: str) -> list[str]:
        """The kinds that have a setting."""
        return [name for name in self if setting in self[name].model_fields]

    def allowing(self, setting: str, value: Any) -> list[str]:
        """The kinds that list a value of a setting."""
        listing = [name for name in self.having(setting) if name != self.default]
        return [name for name in listing if value in get_args(self[name].model_fields[setting].annotation)]

    def _unnamed(self, settings: Mapping[Any, Any]) -> str | None:
        """The kind of settings that name none."""
        return next((kind for kind in self._implied if kind in settings), self.default)

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
            self._adapter = names, TypeAdapter(Annotated[union, Field(discriminator=self.field)])
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
        kind = given.get(self.field)
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
        """The union's schema, in which every kind but the default one must be named."""
        union = handler(self.adapter.core_schema)
        for reference in union["oneOf"]:
            kind = handler.resolve_ref_schema(reference)
            named = kind["properties"][self.field]
            named.pop("default", None)
            if named["const"] not in (self.default, *self._implied):
                kind["required"] = list(dict.fromkeys([self.field, *kind.get("required", [])]))
        return {"anyOf": [union, {"type": "null"}]} if schema["type"] == "nullable" else union


def kinds_of(field: FieldInfo) -> Kinds[Any] | None:
    """The kinds of a config's field, if it has any."""
    return next((each for each in field.metadata if isinstance(each, Kinds)), None)

"""Explanations of what pydantic refuses in a config: where the mistake is, what is allowed, what to do."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pipeline.config.benchmark import Config
from pipeline.config.kinds import Kinds, kinds_of
from pipeline.config.settings import SWEEP
from pipeline.core.errors import InputError, short_repr

_ALLOWED = {
    "model_type": "a section, of settings and their values",
    "tuple_type": "a list",
    "too_short": "one or more",
}
"""What is allowed in place of some of pydantic's complaints, in terms of YAML."""


def explain(error: ValidationError, where: str) -> InputError:
    """One of pydantic's complaints as a message: an unknown key before the others, else the deepest.

    Args:
        error: The complaints about a whole config.
        where: The file, for the message.
    """
    issue = min(error.errors(), key=lambda issue: (issue["type"] != "extra_forbidden", -len(issue["loc"])))
    place = _Place.of(issue["loc"])
    if issue["type"] == "extra_forbidden":
        return _unknown_key(place, where)
    if issue["type"].startswith("union_tag"):
        return _unknown_kind(place, issue["input"], where)
    if issue["type"] == "missing":
        return InputError(
            f"{where}: '{place.dotted}' is missing{place.doc}", fix="add it; see configs/quickstart.yaml"
        )
    message = issue["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if issue["type"] == "value_error" and isinstance(issue["input"], Mapping):
        return InputError(f"{where}: {message}")  # of a whole section, which says what to do
    found = f"{where}: '{place.dotted}' is {short_repr(issue['input'])}{place.doc}"
    return InputError(found, allowed=_ALLOWED.get(issue["type"], message), fix="change it")


def _unknown_key(place: _Place, where: str) -> InputError:
    """A key that its section does not have, with the keys that it has."""
    key, section, kinds = str(place.keys[-1]), place.section, place.kinds
    known = [*(section.model_fields if section else []), *([] if place.keys[:-1] else [SWEEP])]
    if section and kinds and (others := kinds.having(key)):
        kind = section.model_fields[kinds.field].default
        return InputError(
            f"{where}: {place.dotted} is not a setting of {kinds.field} '{kind}' "
            f"(it belongs to {', '.join(others)})",
            allowed=", ".join(known),
            fix="leave it out",
        )
    near = difflib.get_close_matches(key, known, 1)
    return InputError(
        f"{where}: unknown key '{place.dotted}'",
        allowed=", ".join(known),
        fix=f"did you mean '{near[0]}'" if near else "remove it",
    )


def _unknown_kind(place: _Place, settings: Mapping[str, Any], where: str) -> InputError:
    """A section whose kind is not given, or not one of the kinds."""
    kinds = kinds_of(Config.model_fields[str(place.keys[-1])])
    assert kinds is not None
    dotted, allowed = f"{place.dotted}.{kinds.field}", ", ".join(f"'{name}'" for name in kinds)
    doc = f"({kinds.base.model_fields[kinds.field].description})"
    if kinds.field not in settings:
        return InputError(f"{where}: '{dotted}' is missing {doc}", allowed=allowed, fix="add it")
    value = settings[kinds.field]
    near = difflib.get_close_matches(value, kinds, 1) if isinstance(value, str) else []
    fix = f"did you mean '{near[0]}'" if near else "change it"
    return InputError(f"{where}: '{dotted}' is {short_repr(value)} {doc}", allowed=allowed, fix=fix)


@dataclass
class _Place:
    """Where in a config pydantic found a mistake.

    Attributes:
        keys: The keys that lead there, without what pydantic adds to name one of several types.
        section: The class of the section that the last key is in; None inside a plain mapping.
        kinds: What that section is one of the kinds of, if there are kinds.
    """

    keys: list[str | int]
    section: type[BaseModel] | None
    kinds: Kinds[Any] | None

    @classmethod
    def of(cls, location: Sequence[str | int]) -> _Place:
        """The place of one of pydantic's locations."""
        place = cls([], Config, None)
        inner: tuple[type[BaseModel] | None, Kinds[Any] | None] = (Config, None)
        for part in location:
            section, kinds = inner
            if kinds and kinds.base is section:
                inner = (kinds[str(part)], kinds)  # pydantic names the kind after the section
            elif isinstance(part, int) or not _names_a_type(part):
                field = section.model_fields.get(str(part)) if section else None
                place = cls([*place.keys, part], section, kinds)
                inner = (_section_in(field), kinds_of(field)) if field else (None, None)
        return place

    @property
    def dotted(self) -> str:
        """The keys as `--set` takes them."""
        return ".".join(map(str, self.keys))

    @property
    def doc(self) -> str:
        """What the setting is, in brackets; '' where that is not known."""
        field = self.section.model_fields.get(str(self.keys[-1])) if self.section and self.keys else None
        return f" ({field.description})" if field and field.description else ""


def _names_a_type(part: str) -> bool:
    """Whether a part of pydantic's location is a type of a union instead of a key."""
    return part in ("int", "str", "bool", "PositivesOf") or part.startswith(
        ("tuple[", "literal[", "function-")
    )


def _section_in(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, or that it may hold instead of a plain value."""
    inner = field.annotation
    options = get_args(inner) if isinstance(inner, types.UnionType) else (inner,)
    return next((each for each in options if isinstance(each, type) and issubclass(each, BaseModel)), None)

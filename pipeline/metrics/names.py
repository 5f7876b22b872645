"""Names of measures: parsing and printing, each the inverse of the other.

A name is `measure@k` or `measure(param=value,…)@k`; case does not matter. The names that other
tools print are read as well: `nDCG@10`, `RR`, `AP(rel=2)@100`, `ndcg_cut_10`, `ndcg_at_10`, `P_10`, `Rprec`.

    >>> str(parse_measure("AP(rel=2)@100"))
    'map(rel=2)@100'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from pipeline.core.errors import InputError, did_you_mean
from pipeline.metrics.definitions import (
    MEASURES,
    Cutoff,
    Definition,
    Parameter,
    Value,
    add_plugins,
    other_names,
)

CUTOFFS = range(1, 2**31)

_NAME = re.compile(r"(?P<name>[^()@]*)(?:\((?P<params>[^()]*)\))?\s*(?:@(?P<cutoff>[^()@]*))?")
_SUFFIXED = re.compile(r"(?P<name>[a-z_]+?)(?:_cut|_at)?[_.](?P<cutoff>[0-9]+)")
_SHARE = re.compile(r"0?\.[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{0,10}\.[0-9]{1,15}", re.ASCII)
_LIST_COMMA = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True)
class Measure:
    """A measure with its parameters and cutoff, made by `parse_measure`, which checks them."""

    name: str  # a key of `MEASURES`
    # Name and value of each parameter that differs from its default, sorted by name.
    params: tuple[tuple[str, Value], ...] = ()
    cutoff: int | None = None  # number of ranks that count; None counts all

    @property
    def definition(self) -> Definition:
        """What is true of the measure whatever its parameters and cutoff."""
        return MEASURES[self.name]

    @property
    def settings(self) -> dict[str, Value]:
        """All parameters of the measure's own, with defaults filled in."""
        changed = dict(self.params)
        return {each.name: changed.get(each.name, each.default) for each in self.definition.params}

    @property
    def mteb_name(self) -> str:
        """MTEB's name of the measure, such as `ndcg_at_10`; empty if it has none."""
        name = self.definition.mteb
        return f"{name}_at_{self.cutoff}" if name and self.cutoff and not self.params else ""

    @property
    def condensed(self) -> bool:
        """Whether unjudged documents are taken out of the ranking first."""
        return ("unjudged", "removed") in self.params

    def __str__(self) -> str:
        params = ",".join(f"{name}={_print(value)}" for name, value in self.params)
        return self.name + (f"({params})" if params else "") + (f"@{self.cutoff}" if self.cutoff else "")


def parse_measure(text: str) -> Measure:
    """Read one measure's name; if a part of it does not exist, the error names the nearest that does."""
    lowered = text.strip().lower()
    match = _SUFFIXED.fullmatch(lowered) or _NAME.fullmatch(lowered)
    if match is None:
        raise InputError(f"measure {text!r} cannot be read", allowed="name@k or name(param=value)@k")
    parts = match.groupdict()
    name, parameter = _parse_name(parts["name"].strip(), parts["cutoff"], text)
    params = _parse_params(name, ",".join((parameter, parts.get("params") or "")), text)
    cutoff, rule = parts["cutoff"], MEASURES[name].cutoff
    if cutoff is None and rule is Cutoff.REQUIRED:
        raise InputError(f"measure {text!r} has no cutoff", allowed=f"{name}@k", fix=f"write {name}@10")
    if cutoff is None:
        return Measure(name, params)
    if rule is Cutoff.NONE:
        raise InputError(f"measure {text!r} has a cutoff", allowed=f"{name} alone", fix="leave @k out")
    return Measure(name, params, _parse_count(cutoff.strip(), CUTOFFS, f"cutoff {cutoff.strip()!r}", text))


def parse_measures(texts: str | Iterable[str]) -> list[Measure]:
    """Read a list of names, or one string of names separated by commas.

    A measure that is named twice, also under another name, is kept once, in its first place.
    """
    measures = list(dict.fromkeys(map(parse_measure, split_names(texts))))
    if not measures:
        raise InputError("no measure is given", allowed=", ".join(MEASURES), fix="name one, such as ndcg@10")
    return measures


def split_names(texts: str | Iterable[str]) -> list[str]:
    """A list of names of measures, also from one string of names separated by commas."""
    return _LIST_COMMA.split(texts) if isinstance(texts, str) else list(texts)


def _parse_name(name: str, cutoff: str | None, text: str) -> tuple[str, str]:
    """The measure of a name, and the parameter that a name of another tool stands for."""
    if name in MEASURES:
        return name, ""
    others = other_names()
    if name in others:
        return others[name]
    add_plugins()
    if name in MEASURES:
        return name, ""
    stem = re.split(r"[0-9_.]", name)[0].strip() or name
    near = next(iter(get_close_matches(stem, [*MEASURES, *others], n=1)), "")
    near, _ = others.get(near, (near, ""))
    if near and MEASURES[near].cutoff is not Cutoff.NONE:
        near = f"{near}@{cutoff or 10}"
    fix = f"did you mean '{near}'" if near else ""
    raise InputError(f"unknown measure {text!r}", allowed=", ".join(MEASURES), fix=fix)


def _parse_params(name: str, params: str, text: str) -> tuple[tuple[str, Value], ...]:
    known = {parameter.name: parameter for parameter in MEASURES[name].all_params}
    values: dict[str, Value] = {}
    for item in filter(None, (item.strip() for item in params.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in known:
            raise InputError(
                f"{name} has no parameter {key!r} in measure {text!r}",
                allowed=", ".join(known),
                fix=did_you_mean(key, known, ""),
            )
        if key in values:
            raise InputError(f"duplicate parameter {key!r} in measure {text!r}", fix="leave one of them out")
        values[key] = _parse_value(known[key], value, text)
    return tuple(sorted((key, value) for key, value in values.items() if value != known[key].default))


def _parse_value(parameter: Parameter, value: str, text: str) -> Value:
    key, options = parameter.name, parameter.values
    if isinstance(options, range):
        if parameter.fractions and _DECIMAL.fullmatch(value) and 0 < float(value) < options.stop:
            number = float(value)
            return int(number) if number.is_integer() else number
        return _parse_count(value, options, f"{key}={value}", text)
    if isinstance(options[0], float):
        if _SHARE.fullmatch(value) and float(value) > 0:
            return float(value)
        raise InputError(
            f"{key}={value} in measure {text!r}", allowed="a share between 0 and 1, such as 0.95"
        )
    by_name = {_print(option): option for option in options}
    if value in by_name:
        return by_name[value]
    raise InputError(
        f"{key}={value} in measure {text!r}", allowed=", ".join(f"{key}={option}" for option in by_name)
    )


def _parse_count(digits: str, allowed: range, what: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,20}", digits) and int(digits) in allowed:
        return int(digits)
    numbers = f"a whole number from {allowed[0]} to {allowed[-1]}"
    raise InputError(f"{what} in measure {text!r}", allowed=numbers)


def _print(value: Value) -> str:
    """A value as it is read; a share has at most 15 digits, with which none is lost."""
    return f"{value:.15f}".rstrip("0") if isinstance(value, float) else str(value).lower()

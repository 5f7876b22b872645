"""Names of measures: parsing and printing, each the inverse of the other.

A name is `measure@k` or `measure(param=value,…)@k`; case does not matter. The names that other
tools print are read as well: `nDCG@10`, `RR`, `AP(rel=2)@100`, `ndcg_cut_10`, `ndcg_at_10`, `P_10`, `Rprec`.

    >>> str(parse_measure("AP(rel=2)@100"))
    'map(rel=2)@100'
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pipeline.core import plugins
from pipeline.core.errors import InputError
from pipeline.core.plugins import Plugin
from pipeline.core.records import Float64
from pipeline.metrics.measures import MEASURES, Cutoff, Definition

Value = int | bool | str | float

# Each parameter with its values; the first one is the default, which is not printed.
PARAMETERS: dict[str, Sequence[Value]] = {
    "cap": (False, True),
    "gain": ("linear", "exp"),
    "ideal": ("all", "retrieved"),
    "norm": ("all", "retrieved"),
    "p": (0.8,),  # and every other share between 0 and 1
    "rel": range(1, 2**31),
    "unjudged": ("kept", "removed"),
}
COMMON = ("unjudged",)
"""Parameters of every measure: what is done to a ranking before it is measured."""
CUTOFFS = range(1, 2**31)

ALIASES = {
    "ap": "map",
    "p": "precision",
    "prec": "precision",
    "qa_recall": "success",
    "r": "recall",
    "recip_rank": "mrr",
    "rr": "mrr",
    "rprec": "r_precision",
}

_NAME = re.compile(r"(?P<name>[^()@]*)(?:\((?P<params>[^()]*)\))?\s*(?:@(?P<cutoff>[^()@]*))?")
_SUFFIXED = re.compile(r"(?P<name>[a-z_]+?)(?:_cut|_at)?[_.](?P<cutoff>[0-9]+)")
_SHARE = re.compile(r"0?\.[0-9]{1,15}")
_LIST_COMMA = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True)
class Measure:
    """A measure with its parameters and cutoff, made by `parse_measure`, which checks them.

    Attributes:
        name: A key of `MEASURES`.
        params: Name and value of each parameter that differs from its default, sorted by name.
        cutoff: Number of ranks that count; None counts all.
    """

    name: str
    params: tuple[tuple[str, Value], ...] = ()
    cutoff: int | None = None

    @property
    def settings(self) -> dict[str, Value]:
        """All parameters of the measure's own, with defaults filled in."""
        given = dict(self.params)
        return {name: given.get(name, PARAMETERS[name][0]) for name in MEASURES[self.name].params}

    @property
    def added(self) -> str:
        """Its identifier in keys, if this program added it; else empty."""
        return MEASURES[self.name].added

    @property
    def highest(self) -> float:
        """The highest value that a query can have; infinite where there is none."""
        return MEASURES[self.name].highest

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
    name = _parse_name(parts["name"].strip(), parts["cutoff"], text)
    params = _parse_params(name, parts.get("params") or "", text)
    return Measure(name, params, _parse_cutoff(name, parts["cutoff"], text))


def parse_measures(texts: str | Iterable[str]) -> list[Measure]:
    """Read a list of names, or one string of names separated by commas.

    A measure that is named twice, also under another name, is kept once, in its first place.
    """
    names = _LIST_COMMA.split(texts) if isinstance(texts, str) else texts
    measures = list(dict.fromkeys(parse_measure(name) for name in names))
    if not measures:
        raise InputError("no measure is given", allowed=", ".join(MEASURES), fix="name one, such as ndcg@10")
    return measures


def register_measure(
    name: str, compute: Callable[..., Float64], *, parameters: Sequence[str] = (), highest: float = 1.0
) -> None:
    """Add a measure for `evaluate`, `run_benchmark` and `compare` in this program.

    Every program computes its values anew: nothing else can tell whether its code has changed.

    Args:
        name: Small letters and `_`; the measure is `name`, or `name@k`.
        compute: From a `JudgedRanking`, cutoffs, int64 [c] ascending, and its parameters by name to its
            values, float64 [queries, c].
        parameters: Those of other measures that it takes, such as `rel`.
        highest: The highest value that a query can have; infinite where there is none. The lowest is 0.

    Raises:
        InputError: The name is that of a measure of this package or another name of one, or is not one; or
            no measure has such a parameter.
    """
    if unknown := [each for each in parameters if each not in PARAMETERS]:
        raise InputError(f"parameter {unknown[0]!r} of measure {name!r}", allowed=", ".join(PARAMETERS))
    _add(name, Definition(compute, tuple(parameters), Cutoff.OPTIONAL, highest))


def _add(name: str, definition: Definition) -> None:
    """Add a measure of this program, or of a plugin: an entry point that names its `Definition`."""
    if not isinstance(definition, Definition):
        raise InputError("it names no measure", allowed="a Definition")
    taken = name in ALIASES or (name in MEASURES and not MEASURES[name].added)
    if taken or not re.fullmatch("[a-z]+(_[a-z]+)*", name):
        raise InputError(
            f"measure {name!r} {'is a measure of benchmarco' if taken else 'is no name'}",
            allowed="small letters and _, as in mean_grade",
            fix="choose another name",
        )
    MEASURES[name] = replace(definition, added=uuid.uuid4().hex)


def add_plugins() -> list[Plugin]:
    """Add the measures of other installed packages, once."""
    return plugins.add_plugins(plugins.MEASURES, _add)


def _parse_name(name: str, cutoff: str | None, text: str) -> str:
    known = ALIASES.get(name, name)
    if known not in MEASURES:
        add_plugins()
    if known in MEASURES:
        return known
    near = _nearest(re.split(r"[0-9_.]", name)[0].strip() or name, [*MEASURES, *ALIASES])
    near = ALIASES.get(near, near)
    if near and MEASURES[near].cutoff is not Cutoff.NONE:
        near = f"{near}@{cutoff or 10}"
    raise InputError(f"unknown measure {text!r}", allowed=", ".join(MEASURES), fix=_suggest(near))


def _parse_params(name: str, params: str, text: str) -> tuple[tuple[str, Value], ...]:
    values: dict[str, Value] = {}
    for item in filter(None, (item.strip() for item in params.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        applicable = (*MEASURES[name].params, *COMMON)
        if key not in applicable:
            raise InputError(
                f"{name} has no parameter {key!r} in measure {text!r}",
                allowed=", ".join(applicable),
                fix=_suggest(_nearest(key, applicable)),
            )
        if key in values:
            raise InputError(f"duplicate parameter {key!r} in measure {text!r}", fix="leave one of them out")
        values[key] = _parse_value(key, value, text)
    return tuple(sorted((key, value) for key, value in values.items() if value != PARAMETERS[key][0]))


def _parse_value(key: str, value: str, text: str) -> Value:
    options = PARAMETERS[key]
    if isinstance(options, range):
        return _parse_count(value, options, f"{key}={value}", text)
    if isinstance(options[0], float):
        return _parse_share(value, f"{key}={value}", text)
    by_name = {_print(option): option for option in options}
    if value in by_name:
        return by_name[value]
    near = _nearest(value, list(by_name))
    raise InputError(
        f"{key}={value} in measure {text!r}",
        allowed=", ".join(f"{key}={option}" for option in by_name),
        fix=_suggest(f"{key}={near}" if near else ""),
    )


def _parse_cutoff(name: str, cutoff: str | None, text: str) -> int | None:
    rule = MEASURES[name].cutoff
    if cutoff is None and rule is Cutoff.REQUIRED:
        raise InputError(f"measure {text!r} has no cutoff", allowed=f"{name}@k", fix=f"write {name}@10")
    if cutoff is None:
        return None
    if rule is Cutoff.NONE:
        raise InputError(f"measure {text!r} has a cutoff", allowed=f"{name} alone", fix="leave @k out")
    return _parse_count(cutoff.strip(), CUTOFFS, f"cutoff {cutoff.strip()!r}", text)


def _parse_count(digits: str, allowed: range, what: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,20}", digits) and int(digits) in allowed:
        return int(digits)
    numbers = f"a whole number from {allowed[0]} to {allowed[-1]}"
    raise InputError(f"{what} in measure {text!r}", allowed=numbers)


def _parse_share(digits: str, what: str, text: str) -> float:
    if _SHARE.fullmatch(digits) and float(digits) > 0:
        return float(digits)
    raise InputError(f"{what} in measure {text!r}", allowed="a share between 0 and 1, such as 0.95")


def _print(value: Value) -> str:
    """A value as it is read; a share has at most 15 digits, with which none is lost."""
    return f"{value:.15f}".rstrip("0") if isinstance(value, float) else str(value).lower()


def _nearest(word: str, options: Sequence[str]) -> str:
    """The option most similar to a word; empty if none is close."""
    return next(iter(get_close_matches(word, options, n=1)), "")


def _suggest(near: str) -> str:
    return f"the nearest is {near}" if near else ""

"""What is true of each measure, in one `Definition`, and how its name is read.

A new measure is one entry of `MEASURES`. A name is `measure@k` or `measure(param=value,…)@k`; case does not
matter. The names that other tools print are read as well: `nDCG@10`, `RR`, `AP(rel=2)@100`, `ndcg_cut_10`,
`ndcg_at_10`, `P_10`, `Rprec`.

    >>> str(parse_measure("AP(rel=2)@100"))
    'map(rel=2)@100'
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
from math import inf
from typing import Any

import numpy as np

from pipeline.core import plugins
from pipeline.core.errors import InputError, did_you_mean
from pipeline.core.plugins import Plugin
from pipeline.core.records import Float64, Int64
from pipeline.metrics import measures

Value = int | bool | str | float
CUTOFFS = range(1, 2**31)

_NAME = re.compile(r"(?P<name>[^()@]*)(?:\((?P<params>[^()]*)\))?\s*(?:@(?P<cutoff>[^()@]*))?")
_SUFFIXED = re.compile(r"(?P<name>[a-z_]+?)(?:_cut|_at)?[_.](?P<cutoff>[0-9]+)")
_SHARE = re.compile(r"0?\.[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{0,10}\.[0-9]{1,15}", re.ASCII)
_LIST_COMMA = re.compile(r",(?![^()]*\))")


class Cutoff(Enum):
    """Whether a measure's name takes `@k`."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True)
class Parameter:
    """A parameter of measures."""

    name: str  # as in a measure's name
    # What it can be; the first is the default, which is not printed. A range is of whole numbers; a single
    # share stands for all between 0 and 1.
    values: Sequence[Value]
    fractions: bool = False  # whether the numbers above 0 between those of a range are values, too


CAP = Parameter("cap", (False, True))
GAIN = Parameter("gain", ("linear", "exp"))
IDEAL = Parameter("ideal", ("all", "retrieved"))
NORM = Parameter("norm", ("all", "retrieved"))
P = Parameter("p", (0.8,))
REL = Parameter("rel", range(1, 2**31), fractions=True)
UNJUDGED = Parameter("unjudged", ("kept", "removed"))
"""What is done to a ranking before it is measured, by every measure."""


def even(ranks: Int64, **_: Value) -> Float64:
    """All ranks together weigh 1, and each as much as another."""
    return np.full(len(ranks), 1 / len(ranks))


def reciprocal(ranks: Int64, **_: Value) -> Float64:
    """The top ranks weigh most, as in all measures that ask for the first relevant document."""
    return 1 / ranks


def logarithmic(ranks: Int64, **_: Value) -> Float64:
    """As in DCG."""
    return 1 / np.log2(ranks + 1)


@dataclass(frozen=True)
class Definition:
    """A measure."""

    # (`JudgedRanking`, cutoffs int64 [c] ascending, **params) -> float64 [queries, c].
    compute: Callable[..., Float64]
    params: tuple[Parameter, ...] = (REL,)  # the parameters of `compute`, in the order of their names
    cutoff: Cutoff = Cutoff.REQUIRED  # whether the name takes a cutoff
    # The highest value that a query can have; infinite where there is none. The lowest is 0.
    highest: float = 1.0
    # (ranks int64 [k], **params) -> float64 [k]: how much a grade at each of the top k ranks can change the
    # value. It orders what people are asked to judge.
    weight: Callable[..., Float64] = even
    # Whether the value is a sum over ranks that no other judgment changes: a document at the same rank of two
    # rankings then changes no difference between them.
    additive: bool = False
    first_only: bool = False  # whether documents below the first relevant ones count little or nothing
    rises: bool = False  # whether the value never falls as the cutoff grows
    mteb: str = ""  # the name in MTEB, before `_at_k`; empty where MTEB does not have the measure
    trec_eval: str = ""  # the name in trec_eval, before `_k`; empty where it has no such measure
    aliases: tuple[str, ...] = ()  # other names that are read
    # Names that other tools give to the measure with a parameter, and that parameter.
    variants: Mapping[str, str] = field(default_factory=dict)
    # Empty for the measures of this package. A measure that a program added has a new identifier in each
    # program: keys hold it, as they cannot tell whether its code changed.
    added: str = ""

    @property
    def all_params(self) -> tuple[Parameter, ...]:
        """The parameters that the name takes."""
        return *self.params, UNJUDGED


MEASURES: dict[str, Definition] = {
    "precision": Definition(measures.precision, additive=True, mteb="precision", trec_eval="P",
        aliases=("prec",)),
    "recall": Definition(measures.recall, (CAP, REL), rises=True, mteb="recall", trec_eval="recall",
        aliases=("r",), variants={"r_cap": "cap=true"}),
    "mrr": Definition(measures.mrr, cutoff=Cutoff.OPTIONAL, weight=reciprocal, first_only=True, rises=True,
        mteb="mrr", trec_eval="recip_rank", aliases=("rr",)),
    "map": Definition(measures.average_precision, (NORM, REL), Cutoff.OPTIONAL, weight=reciprocal, rises=True,
        mteb="map", trec_eval="map", aliases=("ap", "map_cut")),
    "success": Definition(measures.success, weight=reciprocal, first_only=True, rises=True, mteb="hit_rate",
        trec_eval="success", aliases=("accuracy", "qa_recall")),
    "r_precision": Definition(measures.r_precision, cutoff=Cutoff.NONE, trec_eval="Rprec"),
    "judged": Definition(measures.judged_share, ()),
    "bpref": Definition(measures.bpref, cutoff=Cutoff.NONE, trec_eval="bpref"),
    "infap": Definition(measures.infap, cutoff=Cutoff.NONE, trec_eval="infAP"),
    "cg": Definition(measures.cg, (GAIN,), highest=inf, weight=lambda ranks, **_: np.ones(len(ranks)),
        additive=True, rises=True),
    "dcg": Definition(measures.dcg, (GAIN,), highest=inf, weight=logarithmic, additive=True, rises=True),
    "ndcg": Definition(measures.ndcg, (GAIN, IDEAL), weight=logarithmic, mteb="ndcg", trec_eval="ndcg_cut"),
    "rbp": Definition(measures.rbp, (P, REL), Cutoff.OPTIONAL,
        weight=lambda ranks, p, **_: (1 - p) * p ** (ranks - 1), additive=True, rises=True),
    "err": Definition(measures.err, (), weight=reciprocal, first_only=True, rises=True),
}  # fmt: skip
"""The measures by name."""


def other_names() -> dict[str, tuple[str, str]]:
    """What other tools call the measures: each name's measure, and the parameter that it stands for."""
    names: dict[str, tuple[str, str]] = {}
    for name, measure in MEASURES.items():
        aliases = {*measure.aliases, measure.mteb, measure.trec_eval.lower()} - {"", name}
        names |= dict.fromkeys(aliases, (name, ""))
        names |= {variant: (name, parameter) for variant, parameter in measure.variants.items()}
    return names


def register_measure(
    name: str, compute: Callable[..., Float64], *, parameters: Sequence[str | Parameter] = (), **facts: Any
) -> None:
    """Add a measure for `evaluate`, `run_benchmark` and `compare` in this program.

    Every program computes its values anew: nothing else can tell whether its code has changed.

    Args:
        name: Small letters and `_`; the measure is `name`, or `name@k`.
        compute: From a `JudgedRanking`, cutoffs, int64 [c] ascending, and its parameters by name to its
            values, float64 [queries, c].
        parameters: Those of other measures that it takes, such as `rel`, or new ones.
        facts: Other attributes of its `Definition`, such as `highest` and `mteb`.

    Raises:
        InputError: The name is that of a measure of this package or another name of one, or is not one; or
            no measure has such a parameter.
    """
    known = {parameter.name: parameter for measure in MEASURES.values() for parameter in measure.params}
    for parameter in parameters:
        if isinstance(parameter, str) and parameter not in known:
            raise InputError(f"parameter {parameter!r} of measure {name!r}", allowed=", ".join(sorted(known)))
    params = tuple(known[each] if isinstance(each, str) else each for each in parameters)
    _add(name, Definition(compute, params, Cutoff.OPTIONAL, **facts))


def _add(name: str, definition: Definition) -> None:
    """Add a measure of this program, or of a plugin: an entry point that names its `Definition`."""
    if not isinstance(definition, Definition):
        raise InputError("it names no measure", allowed="a Definition")
    taken = name in other_names() or (name in MEASURES and not MEASURES[name].added)
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


@dataclass(frozen=True)
class Measure:
    """A measure with its parameters and cutoff, made by `parse_measure`, which checks them."""

    name: str  # a key of `MEASURES`
    # What is true of the measure whatever its parameters and cutoff.
    definition: Definition = field(compare=False, repr=False)
    # Name and value of each parameter that differs from its default, sorted by name.
    params: tuple[tuple[str, Value], ...] = ()
    cutoff: int | None = None  # number of ranks that count; None counts all

    @property
    def settings(self) -> dict[str, Value]:
        """All parameters of the measure's own, with defaults filled in."""
        changed = dict(self.params)
        return {each.name: changed.get(each.name, each.values[0]) for each in self.definition.params}

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
    name, given, cutoff = parts["name"].strip(), parts.get("params") or "", parts["cutoff"]
    if name not in MEASURES:
        name, variant = _find_name(name, cutoff, text)
        given = f"{variant},{given}"
    definition = MEASURES[name]
    params = _parse_params(name, given, text) if given else ()
    if cutoff is None and definition.cutoff is Cutoff.REQUIRED:
        raise InputError(f"measure {text!r} has no cutoff", allowed=f"{name}@k", fix=f"write {name}@10")
    if cutoff is None:
        return Measure(name, definition, params)
    if definition.cutoff is Cutoff.NONE:
        raise InputError(f"measure {text!r} has a cutoff", allowed=f"{name} alone", fix="leave @k out")
    cutoff = cutoff.strip()
    return Measure(name, definition, params, _parse_count(cutoff, CUTOFFS, f"cutoff {cutoff!r}", text))


def parse_measures(texts: str | Iterable[str]) -> list[Measure]:
    """Read a list of names, or one string of names separated by commas.

    A measure that is named twice, also under another name, is kept once, in its first place.
    """
    names = split_names(texts) if isinstance(texts, str) else texts
    parsed = list(dict.fromkeys(map(parse_measure, names)))
    if not parsed:
        raise InputError("no measure is given", allowed=", ".join(MEASURES), fix="name one, such as ndcg@10")
    return parsed


def split_names(text: str) -> list[str]:
    """The names of measures in a string that separates them by commas."""
    return _LIST_COMMA.split(text)


def _find_name(name: str, cutoff: str | None, text: str) -> tuple[str, str]:
    """The measure that another tool or package names, and the parameter that the name stands for."""
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
    return tuple(sorted((key, value) for key, value in values.items() if value != known[key].values[0]))


def _parse_value(parameter: Parameter, value: str, text: str) -> Value:
    key, options = parameter.name, parameter.values
    if isinstance(options, range):
        if parameter.fractions and _DECIMAL.fullmatch(value) and 0 < float(value) < options.stop:
            number = float(value)
            return int(number) if number.is_integer() else number
        return _parse_count(value, options, f"{key}={value}", text)
    by_name = {_print(option): option for option in options}
    allowed = ", ".join(f"{key}={option}" for option in by_name)
    if isinstance(options[0], float):
        if _SHARE.fullmatch(value) and float(value) > 0:
            return float(value)
        allowed = "a share between 0 and 1, such as 0.95"
    elif value in by_name:
        return by_name[value]
    raise InputError(f"{key}={value} in measure {text!r}", allowed=allowed)


def _parse_count(digits: str, allowed: range, what: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,20}", digits) and int(digits) in allowed:
        return int(digits)
    numbers = f"a whole number from {allowed[0]} to {allowed[-1]}"
    raise InputError(f"{what} in measure {text!r}", allowed=numbers)


def _print(value: Value) -> str:
    """A value as it is read; a share has at most 15 digits, with which none is lost."""
    return f"{value:.15f}".rstrip("0") if isinstance(value, float) else str(value).lower()

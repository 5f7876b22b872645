"""What is true of each measure, in one `Definition`: a new measure is one entry of `MEASURES`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import Any

import numpy as np

from pipeline.core import plugins
from pipeline.core.errors import InputError
from pipeline.core.plugins import Plugin
from pipeline.core.records import Float64, Int64
from pipeline.metrics import measures

Value = int | bool | str | float


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

    @property
    def default(self) -> Value:
        """The value of a measure whose name has none."""
        return self.values[0]


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

"""How much the wording of the query instruction decides: results of models that were run with several.

compare_prompts(["results/minilm-a", "results/minilm-b", "results/mpnet-a", "results/mpnet-b"], "ndcg@10")
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import PurePath

import numpy as np

from pipeline.comparison.inputs import Given, check, read_all, shared_values
from pipeline.core.display import figure
from pipeline.core.errors import InputError
from pipeline.core.records import Float64, JsonObject
from pipeline.core.table import Column, Displayed, FilledColumn, Table, table_of
from pipeline.metrics.crossed import best_without_optimism, crossed_mean
from pipeline.results.folder import CollectionResult
from pipeline.results.tables import slice_notes


@dataclass(frozen=True)
class PromptedModel:
    """A model over its prompts.

    Attributes:
        mean, ci_low, ci_high: Over queries and prompts, both of which vary.
        spread: Standard deviation of the prompts' means.
        worst, best: The lowest and the highest of them.
        best_prompt: The query instruction of the highest.
        best_corrected: Its mean without optimism: other queries chose it.
    """

    model: str
    prompts: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    spread: float
    worst: float
    best: float
    best_prompt: str
    best_corrected: float


@dataclass(frozen=True)
class PromptedPair:
    """Two models.

    Attributes:
        difference, ci_low, ci_high: Mean of a minus mean of b with the same prompt, over queries and prompts;
            None without two common prompts.
        shared, ahead: The number of common prompts, and of those with which a is ahead.
        combinations, ahead_in_any: The same of any prompt of a against any of b.
    """

    a: str
    b: str
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    shared: int
    ahead: int
    combinations: int
    ahead_in_any: int


@dataclass(frozen=True, repr=False)
class PromptComparison(Displayed):
    """Models over prompts, by one measure; with what slices of a corpus do to it, as sentences."""

    measure: str
    models: list[PromptedModel]
    pairs: list[PromptedPair]
    notes: list[str]

    def json(self) -> JsonObject:
        """The document that `compare --prompts --json` prints."""
        models, pairs = map(asdict, self.models), map(asdict, self.pairs)
        return {
            "measure": self.measure, "models": list(models), "pairs": list(pairs), "notes": self.notes,
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """A model a row; and a pair a row."""
        models, pairs = self.models, self.pairs
        columns: list[FilledColumn] = [
            (Column("model"), [each.model for each in models]),
            (_right("prompts", "d"), [each.prompts for each in models]),
            (_right("mean"), [each.mean for each in models]),
            (_right("95% interval"), [(each.ci_low, each.ci_high) for each in models]),
            (_right("spread"), [each.spread for each in models]),
            (_right("worst"), [each.worst for each in models]),
            (_right("best"), [each.best for each in models]),
            (_right("best, corrected"), [each.best_corrected for each in models]),
            (Column("best prompt"), [repr(each.best_prompt) for each in models]),
        ]
        shown = [table_of(f"{self.measure} over queries and prompts", columns, [MODELS, *self.notes])]
        if pairs:
            columns = [
                (Column("a - b"), [f"{each.a} - {each.b}" for each in pairs]),
                (_right("difference", "+.4f"), [each.difference for each in pairs]),
                (_right("95% interval", "+.4f"), [(each.ci_low, each.ci_high) for each in pairs]),
                (_right("a ahead"), [f"{each.ahead} of {each.shared} prompts" for each in pairs]),
                (
                    _right("any prompt of each"),
                    [f"{figure(each.ahead_in_any / each.combinations, '.0%')}" for each in pairs],
                ),
            ]
            shown.append(table_of(f"differences in {self.measure} with the same prompt", columns, [PAIRS]))
        return shown


MODELS = (
    "The interval is of the mean, where other queries and other prompts could have been taken. spread: "
    "standard deviation of the prompts' means. corrected: other queries choose the prompt (cross-validation)."
)
PAIRS = "any prompt of each: share of all combinations of a prompt of a and one of b in which a is ahead."


def compare_prompts(given: Sequence[Given], measure: str | None = None) -> PromptComparison:
    """Compare models over the query instructions that they were run with.

    Results of one model are those whose configs differ in nothing but `model.query_instruction`, their name,
    and where they are kept.

    Raises:
        InputError: As `pipeline.compare`; or a model has one result, or two with one instruction.
    """
    suites, _ = read_all(given)
    check(suites)
    if suites[0].suite or any(suite.folder.is_file() for suite in suites):
        raise InputError(
            "--prompts with a suite or a run file",
            allowed="results of one collection, whose manifests name the query instruction",
            fix="name the folders of one collection",
        )
    (chosen, *_), values, _ = shared_values(suites, [measure] if measure else [])
    found: dict[str, dict[str, Float64]] = {}
    names: dict[str, str] = {}
    for number, suite in enumerate(suites):
        key, prompt, model = _identity(suite.only_collection())
        own = found.setdefault(key, {})
        if prompt in own:
            raise InputError(
                f"{suite.name} is a second result of {model} with the query instruction {prompt!r}",
                allowed="each instruction once",
                fix="leave one of the two out",
            )
        own[prompt] = values[0][:, number, 0]
        others = set(names.values()) - {names.get(key)}
        names.setdefault(key, model if model not in others else f"{model} ({suite.name})")
    if alone := next((names[key] for key, own in found.items() if len(own) < 2), None):
        raise InputError(
            f"--prompts: {alone} has one result",
            allowed="two or more of each model, which differ in model.query_instruction alone",
            fix="run a sweep over model.query_instruction; passages are encoded once",
        )
    models = [_model(names[key], own) for key, own in found.items()]
    pairs = [_pair(names[a], names[b], found[a], found[b]) for a, b in combinations(found, 2)]
    return PromptComparison(chosen, models, pairs, slice_notes([suite.record for suite in suites]))


def _identity(result: CollectionResult) -> tuple[str, str, str]:
    """What a result has in common with those of other prompts; its prompt; and its model's name."""
    kept = ("name", "cache", "output")
    config = {key: each for key, each in result.manifest.config.items() if key not in kept}
    model = dict(config.get("model") or {})
    used = [use.settings.get("query instruction") for use in result.manifest.models]
    prompt = model.pop("query_instruction", None)
    own = next((setting.value for setting in used if setting), "")
    key = json.dumps({**config, "model": model}, sort_keys=True)
    name = PurePath(str(model.get("name") or result.record.name)).name
    return key, str(own if prompt is None else prompt), name


def _model(name: str, prompted: dict[str, Float64]) -> PromptedModel:
    values = np.stack(list(prompted.values()), axis=1)
    means = values.mean(axis=0)
    best = int(means.argmax())
    return PromptedModel(
        name,
        len(prompted),
        *crossed_mean(values),
        spread=float(means.std(ddof=1)),
        worst=float(means.min()),
        best=float(means[best]),
        best_prompt=list(prompted)[best],
        best_corrected=best_without_optimism(values),
    )


def _pair(a: str, b: str, of_a: dict[str, Float64], of_b: dict[str, Float64]) -> PromptedPair:
    common = [prompt for prompt in of_a if prompt in of_b]
    differences = np.array([of_a[prompt] - of_b[prompt] for prompt in common]).T
    mean, low, high = crossed_mean(differences) if len(common) > 1 else (None, None, None)
    means_a, means_b = (np.array([each.mean() for each in own.values()]) for own in (of_a, of_b))
    return PromptedPair(
        a,
        b,
        mean,
        low,
        high,
        shared=len(common),
        ahead=sum(bool(of_a[prompt].mean() > of_b[prompt].mean()) for prompt in common),
        combinations=means_a.size * means_b.size,
        ahead_in_any=int((means_a[:, None] > means_b).sum()),
    )


def _right(name: str, form: str = ".4f") -> Column:
    return Column(name, "right", "never", form=form)

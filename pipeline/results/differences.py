"""The differences of what two results were made of: inputs, models, settings, versions and hardware."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.results.folder import SavedResult

Kind = Literal["input", "model", "precision", "setting", "code", "version", "hardware"]

NOT_COMPARED = ("name", "cache", "output", "engine.carbon_intensity")
"""Settings that do not affect what is run."""
PATHS = ("data.path", "data.corpus_path", "model.passages", "model.queries")
"""Settings that name files; the hashes of the files say whether the content differs."""
INPUTS = {"corpus": "passages", "queries": "queries", "qrels": "judgments"}
SHORT = 12
"""Characters of the hash of a file that are shown; a commit is shown whole."""


@dataclass(frozen=True)
class Difference:
    """One thing by which two results differ.

    Attributes:
        kind: `input`: passages, queries or judgments; `model`: its files, or its revision on the hub;
            `precision`; `setting`: any other; `code`: how this package computes a stage; `version`: of a
            package; `hardware`: processor, GPUs, system, threads.
        name: What it is: a setting by its dotted name, a package, a file of a model.
        original, reproduced: Its values; "" where a result does not have it.
    """

    kind: Kind
    name: str
    original: str
    reproduced: str


def differences(original: SavedResult, reproduced: SavedResult) -> list[Difference]:
    """All differences that the manifests of two results show, each once; inputs and models come first."""
    ours, theirs = original.manifest, reproduced.manifest
    recipes = list(_recipes(ours.recipes, theirs.recipes))
    by_settings = ("setting", "precision")
    found = [each for each in recipes if each.kind not in by_settings]
    same_model = not any(each.kind == "model" for each in found)
    found += _settings(ours.config, theirs.config, same_model)
    found += _decided(original, reproduced)
    found += _differing("version", ours.versions, theirs.versions)
    found += _machines(original, reproduced)
    seen = {(each.original, each.reproduced) for each in found}
    found += [each for each in recipes if each.kind in by_settings and _values(each) not in seen]
    order = list(Kind.__args__)  # type: ignore[attr-defined]
    return sorted(dict.fromkeys(found), key=lambda each: order.index(each.kind))


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of nested mappings by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def as_text(value: Any) -> str:
    """A value as it is shown: JSON, without quotes around a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _differing(kind: Kind, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Difference]:
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            values = [as_text(each[name]) if name in each else "" for each in (ours, theirs)]
            yield Difference(kind, name, *values)


def _recipes(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Difference]:
    """What differs in the recipes of the stages, apart from keys of other stages."""
    for stage in dict.fromkeys([*ours, *theirs]):
        leaves = [_leaves(recipes, stage) for recipes in (ours, theirs)]
        for found in _differing("setting", *leaves):
            yield from _classified(stage, found)


def _leaves(recipes: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The values of a stage's recipe without the keys of other artifacts, which follow from other values."""
    flat = flatten(recipes.get(stage, {}))
    return {name: value for name, value in flat.items() if "." in name or not _is_key(value)}


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _classified(stage: str, found: Difference) -> Iterator[Difference]:
    """A difference of a recipe under its kind and its short name; inputs are those of the stage `data`."""
    path = found.name.split(".")
    if path[0] in ("texts", "qrels") and stage != "data":
        return
    if path[-1] == "schema":
        part = path[-2] if path[1:] else stage
        yield Difference("code", f"schema of {part}", found.original, found.reproduced)
    elif "identity" in path:
        name = found.name.partition("identity.")[2].removeprefix("files.")
        yield Difference("model", MODEL_PARTS.get(name, name), *_shortened(found))
    elif path == ["model", "file"]:
        yield Difference("input", f"vectors of the {stage}", *_shortened(found))
    elif stage == "data":
        part = next((INPUTS[each] for each in reversed(path[:-1]) if each in INPUTS), "collection")
        if path[-1] not in ("first_queries", "size", "missing_passages"):  # settings, which the config has
            yield Difference("input", part, *_shortened(found))
    elif path[-1].endswith("precision"):
        yield Difference("precision", path[-1], found.original, found.reproduced)
    else:
        yield Difference("setting", f"{stage}: {found.name}", *_shortened(found))


MODEL_PARTS = {"commit": "revision", "hub": "repository"}


def _settings(ours: Mapping[str, Any], theirs: Mapping[str, Any], same_model: bool) -> Iterator[Difference]:
    """Settings that differ; a model's name only where its files differ."""
    for found in _differing("setting", flatten(ours), flatten(theirs)):
        if found.name in (*NOT_COMPARED, *PATHS) or (same_model and found.name.endswith(".name")):
            continue
        kind: Kind = "setting"
        if found.name.endswith("precision"):
            kind = "precision"
        elif found.name.endswith((".name", ".revision")):
            kind = "model"
        yield Difference(kind, found.name, found.original, found.reproduced)


def _decided(original: SavedResult, reproduced: SavedResult) -> Iterator[Difference]:
    """What differs in the settings that models were run with, where the configs leave them to the model."""
    configured = {
        (as_text(ours), as_text(theirs))
        for ours, theirs in _pairs(flatten(original.manifest.config), flatten(reproduced.manifest.config))
    }
    for ours, theirs in zip(original.manifest.models, reproduced.manifest.models, strict=False):
        values = [{name: used.value for name, used in model.settings.items()} for model in (ours, theirs)]
        for found in _differing("setting", *values):
            if (found.original, found.reproduced) not in configured:
                kind: Kind = "precision" if found.name == "precision" else "setting"
                yield Difference(kind, found.name, found.original, found.reproduced)


def _pairs(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    return ((ours.get(name), theirs.get(name)) for name in {*ours, *theirs})


def _machines(original: SavedResult, reproduced: SavedResult) -> Iterator[Difference]:
    """What differs in the machines that the stages ran on; their memory does not count."""
    for row in original.record.all_stages:
        other = next((each for each in reproduced.record.all_stages if each.stage == row.stage), None)
        if other is None or row.seconds is None or other.seconds is None:
            continue
        machines = []
        for each, result in ((row, original), (other, reproduced)):
            hardware = (each.hardware or result.manifest.hardware).found()
            hardware.pop("memory_gb", None)
            machines.append(hardware | ({"threads": each.threads} if each.threads else {}))
        yield from _differing("hardware", *machines)


def _values(found: Difference) -> tuple[str, str]:
    return found.original, found.reproduced


def _shortened(found: Difference) -> tuple[str, str]:
    """The values, of which hashes are cut."""
    ours, theirs = (value.strip('[]"') for value in _values(found))
    return ours[:SHORT] if len(ours) == 64 else ours, theirs[:SHORT] if len(theirs) == 64 else theirs

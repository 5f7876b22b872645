"""Results in the format of MTEB, written and read: a JSON file for each task, in a folder for each model.

    FOLDER/results/OWNER__MODEL/REVISION/TASK.json
    FOLDER/results/OWNER__MODEL/REVISION/model_meta.json

A task's file has, by split, a record for each subset: `hf_subset`, `languages`, `main_score`, and the
measures under MTEB's names, such as `ndcg_at_10`. `mteb_version` is null: MTEB did not compute them. Measures
that MTEB has no name for are left out.

Which task a collection is, the shipped suites say. Any other is written under the name of its result.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.core.suite_files import ListedCollection, list_suite, suite_names
from pipeline.metrics.names import parse_measures
from pipeline.results.folder import SavedResult
from pipeline.storage import whole_files

NAMES = {name: name for name in ("ndcg", "map", "recall", "precision", "mrr")} | {"success": "hit_rate"}
"""The names of measures without parameters, here and in MTEB."""
OURS = {theirs: ours for ours, theirs in NAMES.items()}
UNKNOWN_REVISION = "no_revision_available"  # as MTEB says it
META = "model_meta.json"
Entry = tuple[str, str, str]
"""A task, a split of it and a subset."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of one collection, under MTEB's names.

    Attributes:
        revision: Of the dataset.
        languages: Such as eng-Latn; empty if they are not known.
        main: The name of the main measure.
        scores: By MTEB's names of measures.
        seconds: How long the run took; None if that is not known.
    """

    entry: Entry
    path: str
    revision: str
    languages: Sequence[str]
    main: str
    scores: dict[str, float]
    seconds: float | None


@dataclass(frozen=True)
class PublishedModel:
    """The results of a model that were read from files in MTEB's format.

    Attributes:
        scores: For each entry the value of each measure, by its name here.
    """

    name: str
    revision: str
    scores: dict[Entry, dict[str, float]]


def mteb_name(measure: str) -> str | None:
    """MTEB's name of a measure, such as `ndcg_at_10`; None if it has none."""
    (parsed,) = parse_measures([measure])
    if parsed.params or parsed.cutoff is None or parsed.name not in NAMES:
        return None
    return f"{NAMES[parsed.name]}_at_{parsed.cutoff}"


def measure_named(name: str) -> str | None:
    """The measure that MTEB calls so; None if it is none of `NAMES`."""
    found = re.fullmatch(r"(\w+)_at_(\d+)", name)
    return f"{OURS[found[1]]}@{found[2]}" if found and found[1] in OURS else None


def task_scores(result: SavedResult) -> TaskScores:
    """The scores of a result, as those of a task of MTEB.

    Raises:
        InputError: MTEB has a name for none of its measures.
    """
    record, data = result.record, result.manifest.config.get("data", {})
    scores = {name: value for measure, value in record.metrics.items() if (name := mteb_name(measure))}
    if not scores:
        raise InputError(
            f"{result.folder}: none of its measures has a name in MTEB",
            allowed=f"{', '.join(f'{name}@k' for name in NAMES)}",
            fix="add one to evaluate.measures and run its config again",
        )
    listed = find_listed(data)
    main = mteb_name(listed.main_measure) if listed else None
    known: dict[str, Any] = (listed.mteb if listed else None) or {"task": record.name, "languages": []}
    split = known.get("split") or data.get("split") or "test"
    subset = known.get("subset") or data.get("subset") or "default"
    return TaskScores(
        entry=(known["task"], split, subset),
        path=str(data.get("path", data.get("source", ""))),
        revision=_commit(result) or UNKNOWN_REVISION,
        languages=known["languages"],
        main=main if main in scores else next(iter(scores)),
        scores=scores,
        seconds=result.manifest.wall_seconds,
    )


def _commit(result: SavedResult) -> str | None:
    """The commit of the collection on the hub that was searched; None if it is not from there."""
    corpus = result.manifest.recipes.get("data", {}).get("passages", {}).get("corpus", {})
    return corpus.get("commit") if isinstance(corpus, dict) else None


def find_listed(data: dict[str, Any]) -> ListedCollection | None:
    """The collection of a shipped suite that a config's section `data` names; None if it is in none."""
    if data.get("queries") is not None or data.get("corpus") is not None:
        return None  # a slice
    return next((each for each in _listed() if each.is_read_by(data)), None)


@functools.cache
def _listed() -> tuple[ListedCollection, ...]:
    """The collections of all shipped suites that are tasks of MTEB."""
    suites = [list_suite(name) for name in suite_names()]
    return tuple(each for suite in suites for each in suite.collections if each.mteb)


def model_of(result: SavedResult) -> tuple[str, str]:
    """The name of a result's model, or of the result if it has several or none, and its revision."""
    settings = result.manifest.config.get("model") or {}
    name = settings.get("name")
    if not name or result.manifest.config.get("rerank"):
        return result.record.name, UNKNOWN_REVISION
    name = Path(name).name if Path(name).is_absolute() else name
    return str(name), str(settings.get("revision") or UNKNOWN_REVISION)


def write_mteb(results: Sequence[SavedResult], folder: Path) -> list[Path]:
    """Write results of one model, each of another collection.

    Args:
        results: The results.
        folder: The folder above `results`; what is there already is replaced.

    Returns:
        The files of tasks that were written.

    Raises:
        InputError: The results are of several models, or two are of one collection.
    """
    names = {model_of(result) for result in results}
    if len(names) > 1:
        raise InputError(
            f"the results are of {len(names)} models: {', '.join(sorted(name for name, _ in names))}",
            allowed="results of one model",
            fix="write them one after the other",
        )
    ((name, revision),) = names
    tasks: defaultdict[str, list[TaskScores]] = defaultdict(list)
    for result in results:
        made = task_scores(result)
        if any(made.entry == other.entry for other in tasks[made.entry[0]]):
            raise InputError(
                f"{result.folder} and another result are both of {'/'.join(made.entry)}",
                allowed="one result of each collection",
                fix="name one of them",
            )
        tasks[made.entry[0]].append(made)
    inside = folder / "results" / name.replace("/", "__") / revision
    inside.mkdir(parents=True, exist_ok=True)
    written = [inside / f"{task}.json" for task in tasks]
    for path, (task, parts) in zip(written, tasks.items(), strict=True):
        whole_files.write_whole(path, _as_bytes(_document(task, parts)))
    whole_files.write_whole(inside / META, _as_bytes({"name": name, "revision": revision}))
    return written


def _document(task: str, parts: Sequence[TaskScores]) -> dict[str, Any]:
    """The content of a task's file."""
    scores: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        _, split, subset = part.entry
        entry = {"hf_subset": subset, "languages": list(part.languages), "main_score": part.scores[part.main]}
        scores[split].append({**part.scores, **entry})
    seconds = [part.seconds for part in parts if part.seconds is not None]
    return {
        "dataset_revision": parts[0].revision,
        "task_name": task,
        "mteb_version": None,
        "scores": dict(scores),
        "evaluation_time": math.fsum(seconds) if seconds else None,
        "kg_co2_emissions": None,
    }


def _as_bytes(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def read_mteb(path: Path) -> list[PublishedModel]:
    """The models whose results are in a folder in MTEB's format, or in one file of it.

    Args:
        path: A task's file, or a folder that holds such files at any depth, such as a copy of
            https://github.com/embeddings-benchmark/results.

    Raises:
        InputError: There is none, or one is not what it should be.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    files = [file for file in files if file.name != META]
    if not files or not path.exists():
        raise InputError(
            f"{path}: no file of results" if path.exists() else f"{path}: no such file or folder",
            allowed="files of MTEB's results, such as OWNER__MODEL/REVISION/NFCorpus.json, or a folder",
            fix="check the path",
        )
    models: defaultdict[tuple[str, str], dict[Entry, dict[str, float]]] = defaultdict(dict)
    for file in files:
        models[_model_at(file)] |= _read_task(file)
    return [PublishedModel(*model, scores) for model, scores in models.items()]


def _model_at(file: Path) -> tuple[str, str]:
    """The model and the revision that the folders of a file name."""
    folder = file.resolve().parent
    return folder.parent.name.replace("__", "/"), folder.name


def _read_task(file: Path) -> dict[Entry, dict[str, float]]:
    """The scores in a task's file, by entry."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        task = document["task_name"]
        entries = [
            ((str(task), str(split), str(scores["hf_subset"])), _measures(scores))
            for split, subsets in document["scores"].items()
            for scores in subsets
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file}: not a file of MTEB's results ({type(error).__name__}: {error})",
            allowed='{"task_name", "scores": {split: [{"hf_subset", "ndcg_at_10", …}]}}, as MTEB writes it',
            fix="name files of results only",
        ) from None
    return dict(entries)


def _measures(scores: dict[str, Any]) -> dict[str, float]:
    """The measures of `NAMES` in a record."""
    named: Iterable[tuple[str | None, Any]] = ((measure_named(name), value) for name, value in scores.items())
    return {name: float(value) for name, value in named if name and isinstance(value, int | float)}

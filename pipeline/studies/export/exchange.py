"""Results for other tools: files in MTEB's format, and the `model-index` of a model card.

MTEB's format is a JSON file for each task, in a folder for each model:

    FOLDER/results/OWNER__MODEL/REVISION/TASK.json
    FOLDER/results/OWNER__MODEL/REVISION/model_meta.json

A task's file has, by split, a record for each subset: `hf_subset`, `languages`, `main_score`, and the
measures under MTEB's names, such as `ndcg_at_10`. `mteb_version` is null: MTEB did not compute them. Measures
that MTEB has no name for are left out.

Which task a collection is, the shipped suites say. Others are written under the name of its result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.files import make_config
from pipeline.config.suites import MtebTask
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.metrics.definitions import MEASURES, parse_measure
from pipeline.results.folder import CollectionResult
from pipeline.storage import whole_files
from pipeline.storage.whole_files import MANIFEST
from pipeline.studies.shared.mteb_tasks import task_of

UNKNOWN_REVISION = "no_revision_available"  # as MTEB says it
META = "model_meta.json"
Entry = tuple[str, str, str]
"""A task, a split of it and a subset."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of one collection, under MTEB's names."""

    entry: Entry
    path: str  # where the dataset is from, without the folders of a local one
    revision: str  # of the dataset
    languages: Sequence[str]  # such as eng-Latn; empty if they are not known
    main: str  # the name of the main measure
    scores: dict[str, float]  # by MTEB's names of measures
    seconds: float | None  # how long the run took; None if that is not known


def task_scores(result: CollectionResult) -> TaskScores:
    """The scores of a result, as those of a task of MTEB.

    Raises:
        InputError: MTEB has a name for none of its measures.
    """
    record, data = result.record, result.manifest.config.get("data", {})
    scores = {
        name: value for measure, value in record.metrics.items() if (name := parse_measure(measure).mteb_name)
    }
    if not scores:
        raise InputError(
            f"{result.folder}: none of its measures has a name in MTEB",
            allowed=", ".join(f"{name}@k" for name, known in MEASURES.items() if known.mteb),
            fix="add one to evaluate.measures and run its config again",
        )
    task, measure = task_of(data) or (MtebTask(task=record.name, languages=()), None)
    corpus = result.manifest.recipes.get("data", {}).get("passages", {}).get("corpus", {})
    commit = corpus.get("commit") if isinstance(corpus, dict) else None  # of a dataset on the hub
    path = str(data.get("path") or data.get("source") or "")
    main = parse_measure(measure).mteb_name if measure else ""
    split = task.split or data.get("split") or "test"
    subset = task.subset or data.get("subset") or "default"
    return TaskScores(
        entry=(task.task, split, subset),
        path=Path(path).name if Path(path).is_absolute() else path,
        revision=commit or UNKNOWN_REVISION,
        languages=task.languages,
        main=main if main in scores else next(iter(scores)),
        scores=scores,
        seconds=result.manifest.wall_seconds,
    )


def model_of(results: Sequence[CollectionResult]) -> tuple[str, str]:
    """The name of the model that made all results, with its variant, and its revision.

    A result of vectors from files without a model's name has its own name.

    Raises:
        InputError: The results are of several models, or of several variants of one.
    """
    names = set()
    for result in results:
        config = make_config(deepcopy(result.manifest.config), result.folder / MANIFEST, given=None)
        revision = config.model.revision if config.model and not config.rerank else None
        names.add((config.made_by or result.record.name, revision or UNKNOWN_REVISION))
    if len(names) > 1:
        raise InputError(
            f"the results are of {len(names)} models: {'; '.join(sorted(name for name, _ in names))}",
            allowed="results of one model",
            fix="export them one after the other",
        )
    return names.pop()


def write_mteb(results: Sequence[CollectionResult], folder: Path) -> list[Path]:
    """Write results of one model, each of another collection; returns the files of tasks.

    Files of earlier exports are replaced.

    Raises:
        InputError: The results are of several models, or two are of one collection.
    """
    name, revision = model_of(results)
    tasks: defaultdict[str, list[TaskScores]] = defaultdict(list)
    for result in results:
        scores = task_scores(result)
        if any(scores.entry == other.entry for other in tasks[scores.entry[0]]):
            raise InputError(
                f"{result.folder} and another result are both of {'/'.join(scores.entry)}",
                allowed="one result of each collection",
                fix="name one of them",
            )
        tasks[scores.entry[0]].append(scores)
    inside = whole_files.file_inside(folder, "results", name, revision)
    documents = {
        whole_files.file_inside(inside, f"{task}.json"): (task, parts) for task, parts in tasks.items()
    }
    if len(documents) < len(tasks) or inside / META in documents:
        raise InputError(
            f"the names of the results lead to the same files: {', '.join(tasks)}",
            allowed=f"results with names of their own, and not {META}",
            fix="export them one after the other, to other folders",
        )
    inside.mkdir(parents=True, exist_ok=True)
    for path in (*documents, inside / META):
        whole_files.check_output(path, "--mteb")
    for path, (task, parts) in documents.items():
        whole_files.write_json(path, _document(task, parts))
    whole_files.write_json(inside / META, {"name": name, "revision": revision})
    return list(documents)


def _document(task: str, parts: Sequence[TaskScores]) -> JsonObject:
    """The content of a task's file."""
    scores: defaultdict[str, list[JsonObject]] = defaultdict(list)
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


def model_index(results: Sequence[CollectionResult]) -> JsonObject:
    """The metadata of a model card with an entry for each result; values are fractions, as in `metrics.json`.

    Its form: https://github.com/huggingface/huggingface_hub/blob/main/modelcard.md
    """
    name, _ = model_of(results)
    entries = []
    for scores in map(task_scores, results):
        task, split, subset = scores.entry
        dataset = {"type": scores.path, "name": f"{task} ({split})", "config": subset, "split": split}
        if scores.revision != UNKNOWN_REVISION:
            dataset["revision"] = scores.revision
        metrics = [{"type": name, "value": value} for name, value in scores.scores.items()]
        entries.append({"task": {"type": "Retrieval"}, "dataset": dataset, "metrics": metrics})
    return {"model-index": [{"name": name, "results": entries}]}

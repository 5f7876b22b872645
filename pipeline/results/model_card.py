"""Results as the `model-index` of a model card, which the hub shows beside the model.

Its form: https://github.com/huggingface/huggingface_hub/blob/main/modelcard.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.results.folder import SavedResult
from pipeline.results.mteb_results import UNKNOWN_REVISION, TaskScores, model_of, task_scores


def model_index(results: Sequence[SavedResult]) -> dict[str, Any]:
    """The metadata of a card with an entry for each result; values are fractions, as in `metrics.json`."""
    name, _ = model_of(results[0])
    return {"model-index": [{"name": name, "results": [_entry(task_scores(result)) for result in results]}]}


def _entry(made: TaskScores) -> dict[str, Any]:
    """One result."""
    task, split, subset = made.entry
    dataset = {"type": made.path, "name": f"{task} ({split})", "config": subset, "split": split}
    if made.revision != UNKNOWN_REVISION:
        dataset["revision"] = made.revision
    metrics = [{"type": name, "value": value} for name, value in made.scores.items()]
    return {"task": {"type": "Retrieval"}, "dataset": dataset, "metrics": metrics}

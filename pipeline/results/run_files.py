"""TREC run files as results, so that they can be compared with each other and with result folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.config import MEASURES
from pipeline.core.errors import InputError
from pipeline.metrics.evaluation import evaluate_files
from pipeline.metrics.names import parse_measures
from pipeline.results.folder import RUN, SavedResult, read_result
from pipeline.results.records import Manifest, Metrics, Unjudged
from pipeline.storage.hashing import hash_user_file


def read_results(paths: Sequence[Path], qrels: Path | None, measure: str | None) -> list[SavedResult]:
    """Read result folders, and score run files in their place.

    Args:
        paths: Folders, and files of runs.
        qrels: The judgments that runs are scored by; None where there are none.
        measure: A measure to score them by, besides the first folder's, or those that are the default.

    Raises:
        InputError: There are runs and no judgments, or judgments and no runs; or a folder was scored by other
            judgments than the runs.
    """
    runs = [path for path in paths if path.is_file()]
    folders = {path: read_result(path) for path in paths if path not in runs}
    if qrels is None:
        if not runs:
            return [folders[path] for path in paths]
        raise InputError(
            f"{runs[0]} is a run file, and --qrels is not given",
            allowed="run files with the judgments that score them, or result folders",
            fix="add --qrels FILE",
        )
    if not runs:
        raise InputError(
            f"--qrels {qrels} without a run file",
            allowed="run files with --qrels; a result folder has its scores already",
            fix="leave it out",
        )
    beside = next(iter(folders.values()), None)
    names = [*(beside.measures if beside else MEASURES), *([measure] if measure else [])]
    judged = _judged(qrels, beside)
    return [folders.get(path) or _score(path, qrels, names, judged, beside) for path in paths]


def _judged(qrels: Path, beside: SavedResult | None) -> dict[str, Any]:
    """How judgments are named in a manifest: as in that of a result which they have scored, if there is one.

    Raises:
        InputError: That result was scored by other judgments.
    """
    own = hash_user_file(qrels)
    if beside is None:
        return {"qrels": {"sha256": [own]}, "missing_passages": "count"}
    theirs: Any = beside.manifest.recipes.get("evaluate", {}).get("qrels")
    is_dict = isinstance(theirs, dict) and isinstance(theirs.get("qrels"), dict)
    if is_dict and theirs["qrels"].get("sha256") == [own] and theirs.get("missing_passages") == "count":
        return dict(theirs)
    raise InputError(
        f"{beside.folder} was not scored by {qrels}, as its manifest says",
        allowed="the file of judgments of its collection",
        fix="name that file, or its run.trec in place of the folder",
    )


def _score(
    path: Path, qrels: Path, measures: Sequence[str], judged: dict[str, Any], beside: SavedResult | None
) -> SavedResult:
    """A run as a result, which has measures and no stages; `beside` is of the same collection."""
    scored = evaluate_files(qrels, path, parse_measures(measures))
    in_result = path.name == RUN and path.parent.name  # a name that every result folder has
    record = Metrics(
        name=f"{path.parent.name}/{RUN}" if in_result else path.name,
        queries=len(scored.query_ids),
        passages=beside.record.passages if beside else 1,  # not known, and the same for all runs
        metrics=scored.mean_by_measure,
        unjudged={name: Unjudged(**means) for name, means in scored.unjudged_documents.items()},
        stages=(),
    )
    manifest = Manifest(recipes={"evaluate": {"qrels": judged, "ignore_identical_ids": False}})
    return SavedResult(
        path, record, manifest, scored.query_ids, list(scored.mean_by_measure), scored.values
    )  # fmt: skip

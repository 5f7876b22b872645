"""The command of the study: `fuse`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.studies.shared.printing import print_written
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, argument, option, progress

if TYPE_CHECKING:
    from pipeline.core.records import Facts


def fuse(
    runs: Annotated[list[Path], argument("Two or more TREC runs; may be .gz.", "RUN")],
    output: Annotated[Path, option("TREC run to write.", "FILE")],
    method: Annotated[str, option("rrf, combsum, combmnz, weighted or interpolation.")] = "rrf",
    normalize: Annotated[
        str | None,
        option(
            "Normalization of a query's scores, before they are added: none, min_max, max, sum, "
            "z_score or rank. Not for rrf, which adds ranks."
        ),
    ] = None,
    weights: Annotated[
        str | None, option("A weight for each run, separated by commas: 0.3,0.7.", "LIST")
    ] = None,
    k: Annotated[int | None, option("Of rrf, 60: a document scores 1 / (k + rank).", min=1)] = None,
    depth: Annotated[int | None, option("Documents to write for each query.", min=1)] = None,
    tune: Annotated[str | None, option("Tune the weights for it, by cross-validation.", "MEASURE")] = None,
    qrels: Annotated[Path | None, option("Qrels for --tune.")] = None,
    folds: Annotated[int, option("Cross-validation folds for --tune.", min=2)] = 5,
    as_json: Json = False,
) -> None:
    """Fuse TREC runs of any systems into one."""
    from pipeline.studies.fuse.fused_runs import fuse as fuse_runs

    try:
        numbers = None if weights is None else [float(part) for part in weights.split(",")]
    except ValueError:
        allowed = "numbers separated by commas, such as 0.3,0.7"
        raise InputError(f"--weights {weights}", allowed=allowed, fix="correct it") from None
    facts = fuse_runs(
        runs,
        output,
        method=method,
        normalize=normalize,
        weights=numbers,
        k=k,
        depth=depth,
        tune=tune,
        qrels=qrels,
        folds=folds,
        progress=progress,
    )
    print_written(output, facts, as_json, *_sentences(len(runs), facts))


def _sentences(runs: int, facts: Facts) -> Iterator[str]:
    """What was joined, and how."""
    from pipeline.retrievers.composition import FusionFacts

    queries = counted(facts["queries"], "query", "queries")
    yield f"{runs} runs joined: {queries}, {counted(facts['documents'], 'document')}"
    if facts["queries_not_in_all"]:
        yield f"{counted(facts['queries_not_in_all'], 'query', 'queries')} only in some of the runs"
    yield from FusionFacts.model_validate(facts).sentences()
    if tuned := facts.get("tuned"):
        yield (
            f"Weights tuned for {tuned['measure']} by cross-validation in {len(tuned['folds'])} folds: every "
            "query is scored by weights that have not seen it."
        )
        for fold in tuned["folds"]:
            listed = ", ".join(f"{weight:g}" for weight in fold["weights"])
            yield f"Weights for {counted(fold['queries'], 'query', 'queries')}: {listed}"


STUDY = Study(
    "What do the runs of several systems give together?",
    {"fuse": Command(fuse, "a.trec b.trec --output fused.trec --method rrf")},
)

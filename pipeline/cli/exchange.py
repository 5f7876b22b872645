"""The commands that exchange rankings, judgments and results with people, other machines and other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.terminal import Json, argument, option, print_json, progress

if TYPE_CHECKING:
    from pipeline.core.records import Facts


def export(
    results: Annotated[list[Path], argument("A result folder.", "RESULT")],
    mteb: Annotated[Path | None, option("Write MTEB result files to this folder.", "FOLDER")] = None,
    model_index: Annotated[
        bool, option("Print YAML for a model card: the model-index.", flags="--model-index")
    ] = False,
) -> None:
    """Convert results of one model for MTEB, or for a model card."""
    if (mteb is None) == (not model_index):
        raise InputError(
            "neither --mteb nor --model-index" if mteb is None else "--mteb and --model-index",
            allowed="--mteb FOLDER, or --model-index",
            fix="name one of them",
        )
    from pipeline.results.result import read_result

    read = []
    for result in map(read_result, results):
        if result.suite and result.suite.failed:
            raise InputError(
                f"{result.folder} is not complete: {', '.join(result.suite.failed)} failed",
                allowed="results that are complete",
                fix="run its config again, which does only what is missing; or export single collections",
            )
        read += result.collections
    if mteb:
        from pipeline.results.exchange import write_mteb

        for path in write_mteb(read, mteb):
            print(f"written to {path}")
        return
    import yaml

    from pipeline.results.exchange import model_index as index_of

    print("---")
    print(yaml.safe_dump(index_of(read), sort_keys=False, allow_unicode=True), end="")
    print("---")


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
    k: Annotated[int, option("Of rrf: a document scores 1 / (k + rank).", min=1)] = 60,
    depth: Annotated[int | None, option("Documents to write for each query.", min=1)] = None,
    tune: Annotated[str | None, option("Tune the weights for it, by cross-validation.", "MEASURE")] = None,
    qrels: Annotated[Path | None, option("Qrels for --tune.")] = None,
    folds: Annotated[int, option("Cross-validation folds for --tune.", min=2)] = 5,
    as_json: Json = False,
) -> None:
    """Fuse TREC runs of any systems into one."""
    from pipeline.search.fused_runs import fuse as fuse_runs

    facts = fuse_runs(
        runs,
        output,
        method=method,
        normalize=normalize,
        weights=None if weights is None else _numbers(weights),
        k=k,
        depth=depth,
        tune=tune,
        qrels=qrels,
        folds=folds,
        progress=progress,
    )
    if as_json:
        print_json({**facts, "output": str(output)})
        return
    _print_facts(len(runs), facts)
    print(f"written to {output}")


def _numbers(weights: str) -> list[float]:
    """The numbers of a list that is separated by commas."""
    try:
        return [float(part) for part in weights.split(",")]
    except ValueError:
        raise InputError(
            f"--weights {weights}", allowed="numbers separated by commas, such as 0.3,0.7", fix="correct it"
        ) from None


def _print_facts(runs: int, facts: Facts) -> None:
    from pipeline.retrievers.composition import FusionFacts

    queries = counted(facts["queries"], "query", "queries")
    print(f"{runs} runs joined: {queries}, {counted(facts['documents'], 'document')}")
    if facts["queries_not_in_all"]:
        print(f"{counted(facts['queries_not_in_all'], 'query', 'queries')} only in some of the runs")
    for sentence in FusionFacts.model_validate(facts).sentences():
        print(sentence)

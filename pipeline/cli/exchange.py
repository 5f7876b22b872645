"""The commands that exchange rankings, judgments and results with people, other machines and other tools."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.terminal import FAILED, Json, Sets, end_with, load, print_each, print_json, progress, show
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_output

if TYPE_CHECKING:
    from pipeline.core.records import Facts


def export(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT", help="A result folder."),
    ],
    mteb: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write MTEB result files to this folder.")
    ] = None,
    model_index: Annotated[
        bool, typer.Option("--model-index", help="Print YAML for a model card: the model-index.")
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


def pool(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT_DIR", help="A result folder."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to fill in, .tsv or .jsonl.  [default: pool.tsv]  With --add: the new qrels file.",
        ),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Take the top N passages of each result.  [default: 10]")
    ] = None,
    decide: Annotated[
        str | None,
        typer.Option(
            metavar="MEASURE",
            help="Draw a sample of queries, and list only the passages whose grades can change the "
            "difference of the results in this measure.",
        ),
    ] = None,
    queries: Annotated[int | None, typer.Option(min=2, help="Size of the sample.  [default: 40]")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sample.  [default: 1]")] = None,
    added: Annotated[
        Path | None,
        typer.Option("--add", metavar="FILE", help="Add the grades of FILE, a filled-in pool, to the qrels."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List retrieved passages without judgments, to be graded."""
    if added and decide:
        raise InputError(
            "--add and --decide",
            allowed="--decide to write what is to be judged; benchmarco judge --labels to use it",
            fix="leave one out",
        )
    if added:
        _add_grades(folders, added, output, as_json)
        return
    if not decide and (queries is not None or seed is not None):
        raise InputError(
            "--queries or --seed without --decide",
            allowed="--decide MEASURE, which draws queries",
            fix="name a measure, such as --decide precision@10",
        )
    if decide and depth is not None:
        raise InputError(
            f"--depth {depth} with --decide {decide}",
            allowed="the measure's cutoff, as in precision@10",
            fix="leave --depth out",
        )
    from pipeline.comparison.pool import check_pool_file

    output = output or Path("pool.tsv")
    check_output(output, "--output", folders)
    check_pool_file(output)
    if decide:
        _list_to_decide(folders, decide, queries, seed, output, as_json)
    else:
        _list_unjudged(folders, 10 if depth is None else depth, output, as_json)


def _add_grades(folders: list[Path], added: Path, output: Path | None, as_json: bool) -> None:
    """Write all judgments, with the grades of a file, to `output`."""
    from pipeline.comparison import pool as pools

    if output is None:
        raise InputError("--add without --output", allowed="--output FILE, for all judgments", fix="name one")
    check_output(output, "--output", folders)
    pools.check_new(output)
    grades = pools.read_grades(added)
    same = pools.add_grades(folders, grades, output)
    facts = {"added": len(grades.rows) - same, "same": same, "empty": grades.empty}
    if as_json:
        print_json({**facts, "output": str(output)})
        return
    empty = counted(grades.empty, "row has no grade", "rows have no grade")
    print(f"{counted(facts['added'], 'judgment')} added; {same:,} repeat one of the collection; {empty}")
    print(f"written to {output}: benchmarco evaluate scores a run with it", file=sys.stderr)


def _list_to_decide(
    folders: list[Path], measure: str, queries: int | None, seed: int | None, output: Path, as_json: bool
) -> None:
    """Write the pairs of drawn queries that can change a difference."""
    from pipeline.comparison import decide as decisions
    from pipeline.comparison.pool import write_pool

    drawn = decisions.pool_to_decide(
        folders,
        measure,
        decisions.QUERIES if queries is None else queries,
        decisions.SEED if seed is None else seed,
    )
    write_pool(drawn.rows, output)
    if as_json:
        facts = {"measure": str(drawn.measure), "queries": drawn.queries, "of": drawn.total}
        print_json({**facts, "pairs": len(drawn.rows), "output": str(output)})
        return
    print(
        f"{drawn.queries:,} of {counted(drawn.total, 'query', 'queries')} drawn: "
        f"{counted(len(drawn.rows), 'pair')} to judge can change a difference in {drawn.measure}"
    )
    if note := decisions.note_of(drawn.measure):
        print(f"Note: {note}.")
    print(f"written to {output}: judge it from the top, and stop anywhere", file=sys.stderr)


def _list_unjudged(folders: list[Path], depth: int, output: Path, as_json: bool) -> None:
    """Write the unjudged passages among the first ranks."""
    from pipeline.comparison import pool as pools

    pooled = pools.pool(folders, depth)
    pools.write_pool(pooled.rows, output)
    if as_json:
        facts = {"unjudged": len(pooled.rows), "queries": pooled.queries, "pooled": pooled.seen}
        print_json({**facts, "depth": depth, "output": str(output)})
        return
    print(
        f"{len(pooled.rows):,} of {pooled.seen:,} passages in the top {depth} are not judged, "
        f"of {counted(pooled.queries, 'query', 'queries')}"
    )
    print(f"written to {output}", file=sys.stderr)


def judge(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file with the section 'judge'.")],
    folders: Annotated[list[Path], typer.Argument(metavar="RESULT_DIR", help="Results to compare.")],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of pool --decide with people's grades.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="Measure with a cutoff. By default that of --labels, else the config's first."),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Only print the number of pairs and tokens, and the price.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Let a language model grade passages, to compare results.

    People's grades (--labels) correct the model's bias; without them, no result is called better.
    """
    from pipeline.core.table import html_page
    from pipeline.studies.judge import judged

    if html:
        check_output(html, "--html", [config, *folders, *([labels] if labels else [])])
    configs = load([config], settings)
    if any(each.judge != configs[0].judge or each.cache != configs[0].cache for each in configs):
        raise InputError(
            f"{config}: its benchmarks have different judges",
            allowed="one section 'judge', and one cache",
            fix="use a file with one benchmark",
        )
    asked = judged.prepare(configs[0], folders, labels, measure)
    if plan_only:
        if as_json:
            print_json(asked.json())
        else:
            print(asked)
        return
    print(asked, file=sys.stderr)
    made = judged.decide(asked, progress)
    if as_json:
        print_each(made.json())
    else:
        show(*made.tables())
    if html:
        html.write_text(html_page("Judged differences", made.tables()), encoding="utf-8")
        print(f"page written to {html}", file=sys.stderr)


def reproduce(
    folder: Annotated[Path, typer.Argument(metavar="RESULT_DIR", help="A result folder.")],
    settings: Sets = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RESULT_DIR", help="Run nothing: compare with this result of another run."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the new result, in DIR/NAME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rerun a result from scratch and show what differs.

    The exit code is 1 if anything differs.
    """
    if against and (settings or output):
        raise InputError(
            "--against with --set or --output",
            allowed="--against alone, which runs nothing",
            fix="leave the others out",
        )
    from pipeline.core.result_files import SUITE
    from pipeline.studies.reproduce.reproduction import reproduce as run_again

    found = run_again(folder, against=against, overrides=settings or (), output=output, progress=progress)
    name, unchanged = folder.resolve().name, all(each.unchanged for each in found)
    if not as_json:
        show(*chain.from_iterable(each.tables() for each in found))
    elif (folder / SUITE).is_file():
        print_json({"name": name, "unchanged": unchanged, "collections": {e.name: e.json() for e in found}})
    else:
        print_json(found[0].json())
    if output:
        print(f"written to {output / name}", file=sys.stderr)
    end_with(0 if unchanged else FAILED)


def fuse(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Two or more TREC runs; may be .gz.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="TREC run to write.")],
    method: Annotated[str, typer.Option(help="rrf, combsum, combmnz, weighted or interpolation.")] = "rrf",
    normalize: Annotated[
        str | None,
        typer.Option(
            help="Normalization of a query's scores, before they are added: none, min_max, max, sum, "
            "z_score or rank. Not for rrf, which adds ranks."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="LIST", help="A weight for each run, separated by commas: 0.3,0.7.")
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="Of rrf: a document scores 1 / (k + rank).")] = 60,
    depth: Annotated[int | None, typer.Option(min=1, help="Documents to write for each query.")] = None,
    tune: Annotated[
        str | None, typer.Option(metavar="MEASURE", help="Tune the weights for it, by cross-validation.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="Qrels for --tune.")] = None,
    folds: Annotated[int, typer.Option(min=2, help="Cross-validation folds for --tune.")] = 5,
    as_json: Json = False,
) -> None:
    """Fuse TREC runs of any systems into one."""
    from pipeline import api

    facts = api.fuse(
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
    from pipeline.retrievers.sections import FusionFacts

    queries = counted(facts["queries"], "query", "queries")
    print(f"{runs} runs joined: {queries}, {counted(facts['documents'], 'document')}")
    if facts["queries_not_in_all"]:
        print(f"{counted(facts['queries_not_in_all'], 'query', 'queries')} only in some of the runs")
    for sentence in FusionFacts.model_validate(facts).sentences():
        print(sentence)

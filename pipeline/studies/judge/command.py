"""The commands of the study: `pool` and `judge`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import MANIFEST, check_output
from pipeline.studies.shared.printing import print_as, print_written
from pipeline.studies.study import Command, NextStep, Plan, Study
from pipeline.terminal import Json, Sets, argument, option, print_json, progress

if TYPE_CHECKING:
    from pipeline.config import Config

log = logging.getLogger(__name__)


def pool(
    folders: Annotated[list[Path], argument("A result folder.", "RESULT_DIR")],
    output: Annotated[
        Path | None,
        option("TSV to fill in.  [default: pool.tsv]  With --add: the new qrels file.", "FILE"),
    ] = None,
    depth: Annotated[
        int | None, option("Take the top N passages of each result.  [default: 10]", min=1)
    ] = None,
    decide: Annotated[
        str | None,
        option("Draw queries, and list the passages that decide the difference in this measure.", "MEASURE"),
    ] = None,
    queries: Annotated[int | None, option("Size of the sample.  [default: 40]", min=2)] = None,
    seed: Annotated[int | None, option("Seed of the sample.  [default: 1]", min=0)] = None,
    added: Annotated[
        Path | None, option("Add the grades of FILE, a filled-in pool, to the qrels.", "FILE", flags="--add")
    ] = None,
    as_json: Json = False,
) -> None:
    """List retrieved passages without judgments, to be graded."""
    refused = {
        "--add and --decide": added and decide,
        "--queries or --seed without --decide": not decide and (queries is not None or seed is not None),
        f"--depth {depth} with --decide {decide}, whose cutoff counts": decide and depth is not None,
    }
    if found := [combination for combination, given in refused.items() if given]:
        raise InputError(
            found[0],
            allowed="--depth N; or --decide MEASURE, with --queries and --seed; or --add FILE",
            fix="leave one out; benchmarco judge --labels uses what --decide wrote",
        )
    if added:
        _add_grades(folders, added, output, as_json)
        return
    from pipeline.studies.judge import pool as pools

    output = output or Path("pool.tsv")
    if output.suffix != ".tsv":
        raise InputError(f"--output {output}", allowed="a file whose name ends in .tsv")
    pools.check_new(output)
    check_output(output, "--output", folders)
    if decide:
        _list_to_decide(folders, decide, queries, seed, output, as_json)
        return
    depth = 10 if depth is None else depth
    rows, seen = pools.pool(folders, depth)
    pools.write_pool(rows, output)
    of_queries = len({row.query_id for row in rows})
    print_written(
        output,
        {"unjudged": len(rows), "queries": of_queries, "pooled": seen, "depth": depth},
        as_json,
        f"{len(rows):,} of {seen:,} passages in the top {depth} are not judged, "
        f"of {counted(of_queries, 'query', 'queries')}",
    )


def _add_grades(folders: list[Path], added: Path, output: Path | None, as_json: bool) -> None:
    """Write all judgments, with the grades of a file, to `output`."""
    from pipeline.studies.judge import pool as pools

    if output is None:
        raise InputError("--add without --output", allowed="--output FILE, for all judgments", fix="name one")
    pools.check_new(output)
    check_output(output, "--output", folders)
    grades = pools.read_grades(added)
    same = pools.add_grades(folders, grades, output)
    new = len(grades.rows) - same
    empty = counted(grades.empty, "row has no grade", "rows have no grade")
    print_written(
        output,
        {"added": new, "same": same, "empty": grades.empty},
        as_json,
        f"{counted(new, 'judgment')} added; {same:,} repeat one of the collection; {empty}",
        hint=": benchmarco evaluate scores a run with it",
    )


def _list_to_decide(
    folders: list[Path], measure: str, queries: int | None, seed: int | None, output: Path, as_json: bool
) -> None:
    """Write the pairs of drawn queries that can change a difference."""
    from pipeline.studies.judge import sample
    from pipeline.studies.judge.pool import write_pool

    decided, seed = sample.decidable(measure), sample.SEED if seed is None else seed
    rows, facts = sample.pool_to_decide(folders, decided, queries or sample.QUERIES, seed)
    write_pool(rows, output)
    note = sample.note_of(decided)
    print_written(
        output,
        {"measure": str(decided), **facts, "pairs": len(rows)},
        as_json,
        f"{facts['queries']:,} of {counted(facts['of'], 'query', 'queries')} drawn: "
        f"{counted(len(rows), 'pair')} to judge can change a difference in {decided}; "
        f"{facts['known']:,} need no grade",
        f"Note: {note}." if note else "",
        hint=": judge it from the top, and stop anywhere",
    )


def judge(
    config: Annotated[Path, argument("A YAML file with the section 'judge'.", "CONFIG")],
    folders: Annotated[list[Path], argument("Results to compare.", "RESULT_DIR")],
    labels: Annotated[Path | None, option("A file of pool --decide with people's grades.", "FILE")] = None,
    measure: Annotated[
        str | None, option("Measure with a cutoff. By default that of --labels, else the config's first.")
    ] = None,
    plan_only: Annotated[
        bool, option("Only print the number of pairs and tokens, and the price.", flags="--plan")
    ] = False,
    html: Annotated[Path | None, option("Write an HTML page.", "FILE")] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Let a language model grade passages, to compare results.

    People's grades (--labels) correct the model's bias; without them, no result is called better.
    """
    from pipeline.config.files import load_configs
    from pipeline.studies.judge import judge as judging
    from pipeline.studies.shared.judge_settings import judge_of

    if html:
        check_output(html, "--html", [config, *folders, *([labels] if labels else [])])
    configs = load_configs(config, settings or ())
    if len({(judge_of(each), each.cache) for each in configs}) > 1:
        raise InputError(
            f"{config}: its benchmarks have different judges",
            allowed="one section 'judge', and one cache",
            fix="use a file with one benchmark",
        )
    request = judging.prepare(configs[0], folders, labels, measure)
    if plan_only:
        if as_json:
            print_json(request.document())
        else:
            print(request.sentence())
        return
    print(request.sentence(), file=sys.stderr)
    print_as(judging.decide(request, progress), as_json, html=html, title="Judged differences")


def planned(configs: Sequence[Config], options: Mapping[str, Any]) -> Plan | None:
    """What the judge of configs would be asked about their results; None before there are two."""
    from pipeline.studies.shared.judge_settings import judge_of

    judges = [config for config in configs if judge_of(config)]
    folders = [Path(config.output) / config.name for config in judges if not config.suite]
    results = [folder for folder in folders if (folder / MANIFEST).is_file()]  # written last: it is complete
    if len(results) < 2:
        return None
    from pipeline.studies.judge import judge as judging

    try:
        return judging.prepare(judges[0], results)
    except InputError as error:
        log.warning("judge: %s", error)
        return None


STUDY = Study(
    "Which result is better, by a few labels of people and many of a language model?",
    {
        "pool": Command(pool, "results/A results/B --output pool.tsv --depth 10"),
        "judge": Command(judge, "mine.yaml results/A results/B --labels pool.tsv", resumes=True),
    },
    sections={"judge": "pipeline.studies.shared.judge_settings:JudgeSettings"},
    plan=planned,
    next_step=NextStep(
        "to decide between results, let people judge some queries",
        "pool {folders} --decide precision@10 --output pool.tsv",
        judged=False,
    ),
)

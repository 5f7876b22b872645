"""The command of the study: `questions`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pipeline.core.display import counted
from pipeline.studies.shared.printing import print_written
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, Sets, argument, option, progress


def questions(
    config: Annotated[Path, argument("A YAML file with the section 'judge'.", "CONFIG")],
    number: Annotated[int, option("How many questions to write.", min=1)],
    output: Annotated[Path, option("A new folder for the collection.", "FOLDER")],
    seed: Annotated[int, option("Seed of the order in which passages are drawn.", min=0)] = 1,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Write questions about the passages of a collection.

    The model of the section judge writes them, and says whether their passage answers them.
    """
    from pipeline.config.files import load_config
    from pipeline.studies.questions.questions import write_questions
    from pipeline.studies.shared.judge_settings import require_judge

    loaded = load_config(config, settings or ())
    judge = require_judge(loaded)
    written = write_questions(loaded.data, judge, number, seed, Path(loaded.cache), output, progress)
    reasons = "".join(f"; {count} {reason}" for reason, count in sorted(written.rejected.items()))
    print_written(
        output,
        asdict(written),
        as_json,
        f"{counted(written.questions, 'question')} of {counted(written.tried, 'passage')} kept{reasons}",
        f"Note: {number} were wanted, and all passages were tried." if written.questions < number else "",
        hint=f": run it with --data {output}",
    )


STUDY = Study(
    "Which questions do these passages answer?",
    {"questions": Command(questions, "mine.yaml --number 100 --output mine-questions", resumes=True)},
    sections={"judge": "pipeline.studies.shared.judge_settings:JudgeSettings"},
)

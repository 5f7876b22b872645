"""A study by an entry point; its module is imported for the help of the command line, and is light."""

from pathlib import Path

from pipeline.studies import Command, Study


def best(folder: Path) -> None:
    """Print the measures of a result that are as high as its config asks."""
    from pipeline.results import read_result

    result = read_result(folder)
    least = (result.only_collection().manifest.config["best"] or {"least": 1})["least"]
    print(*[name for name, mean in result.metrics.items() if mean >= least])


STUDY = Study(
    "Which measures are perfect?", {"best": Command(best, "results/A")}, sections={"best": "toy_section:Best"}
)

"""A study by an entry point; its module is imported for the help of the command line, and is light."""

from pathlib import Path

from pipeline.studies import Command, Study


def best(folder: Path) -> None:
    """Print the measures of a result that are 1."""
    from pipeline.results import read_result

    print(*[name for name, mean in read_result(folder).metrics.items() if mean == 1])


STUDY = Study("Which measures are perfect?", {"best": Command(best, "results/A")})

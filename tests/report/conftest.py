"""Results to report on."""

import shutil
from pathlib import Path

import pytest
import workplaces

SETTINGS = {"whole": [], "five": ["model.query_max_length=15"], "three": ["model.query_max_length=13"]}
"""Results that differ in how many tokens of a query are read: no passage is encoded again."""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    """A folder with three results on the sample collection, in `results/`, and their cache."""
    folder = Path(shutil.copytree(finished, tmp_path_factory.mktemp("report") / "place"))
    for name, settings in SETTINGS.items():
        workplaces.run(folder, f"name={name}", *settings)
    return folder


@pytest.fixture(scope="session")
def folders(results: Path) -> list[Path]:
    """The three result folders."""
    return [results / "results" / name for name in SETTINGS]


@pytest.fixture(scope="session")
def indexed(results: Path) -> list[Path]:
    """Two results on the same vectors, of an approximate index that searches one of its lists, or four."""
    where = [f"output={results}/indexed", "index.factory=IVF16,Flat"]
    settings = ([*where, f"name=lists-{n}", f"search.parameters={{nprobe: {n}}}"] for n in (1, 4))
    return [workplaces.run(results, *each).folder for each in settings]

"""What tests of comparisons share."""

import shutil
from pathlib import Path

import pytest
from comparison.made import read_table
from workplaces import seal


@pytest.fixture(scope="module")
def results(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The finished result, and one that has each query's first six passages in the opposite order."""
    first = finished / "results" / "t"
    second = Path(shutil.copytree(first, tmp_path_factory.mktemp("turned") / "other"))
    lines = [line.split() for line in (first / "run.trec").read_text().splitlines()]
    turned = [[q, q0, d, r, r if int(r) <= 6 else -int(r), tag] for q, q0, d, r, _, tag in lines]
    (second / "run.trec").write_text("".join(" ".join(map(str, line)) + "\n" for line in turned))
    seal(second)
    return [first, second]


@pytest.fixture(scope="module")
def qrels(finished: Path) -> dict[tuple[str, str], int]:
    """The grade of each judged pair of a query and a passage."""
    rows = read_table(finished / "data" / "qrels" / "test.tsv")
    return {(row["query-id"], row["corpus-id"]): int(row["score"]) for row in rows}

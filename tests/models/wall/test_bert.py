"""Backends give the rows of the reference for a folder of BERT, or refuse it with the reason."""

from collections.abc import Callable
from pathlib import Path

import document_wall
import pytest
from models.wall.cases import WALL, Case
from models.wall.comparison import faults
from models.wall.folders import is_bert

CASES = [case for case in WALL if is_bert(case.network)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_every_backend_gives_the_reference_s_rows_or_refuses(
    case: Case, networks: Callable[[Case], Path], tmp_path: Path
) -> None:
    assert faults(case, networks(case), tmp_path) == []


def test_the_table_in_the_documentation_is_the_wall_s(root: Path) -> None:
    page = (root / "docs" / "models.md").read_text(encoding="utf-8")
    assert page == document_wall.page(page), "run scripts/document_wall.py"

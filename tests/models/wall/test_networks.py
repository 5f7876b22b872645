"""Backends give the rows of the reference for other networks than BERT, or refuse them with the reason."""

from collections.abc import Callable
from pathlib import Path

import pytest
from models.wall.cases import WALL, Case
from models.wall.comparison import faults
from models.wall.folders import is_bert

CASES = [case for case in WALL if not is_bert(case.network)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_every_backend_gives_the_reference_s_rows_or_refuses(
    case: Case, networks: Callable[[Case], Path], tmp_path: Path
) -> None:
    assert faults(case, networks(case), tmp_path) == []

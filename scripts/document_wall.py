#!/usr/bin/env python
"""Write the table of docs/models.md that says what runs where, from the wall of models in the tests.

.venv/bin/python scripts/document_wall.py
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "models.md"
sys.path.insert(0, str(ROOT / "tests"))

CASES = importlib.import_module("models.wall.cases")
BACKENDS: dict[str, str] = CASES.BACKENDS

BEGIN, END = "<!-- scripts/document_wall.py -->\n", "<!-- end -->\n"


def table(cases: Iterable[Any]) -> str:
    """Markdown: a row for each set of backends, with what they run, and why others refuse it."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for case in cases:
        kinds = groups.setdefault((case.output, case.runs, case.reason), [])
        if case.kind not in kinds:
            kinds.append(case.kind)
    rows = [(", ".join(kinds), _names(runs), reason) for (_, runs, reason), kinds in groups.items()]
    lines = [("model", "backends", "others refuse it:"), ("---", "---", "---"), *rows]
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def _names(runs: str) -> str:
    """The backends in words."""
    return "all" if len(runs) == len(BACKENDS) else ", ".join(BACKENDS[letter] for letter in runs) or "none"


def page(text: str) -> str:
    """The page with its table written anew."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table(CASES.WALL) + END + rest.partition(END)[2]


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")

"""Imports point one way: no module reaches up, and backends do not know each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pipeline.config import BACKENDS as KINDS

PACKAGE = Path(__file__).resolve().parent.parent / "pipeline"
FLOORS = (
    "core",
    "storage formats config",
    "data models metrics words",
    "encoders search",
    "recipes",
    "engines",
    "stages lexical benchmark",
    "results",
    "report",
    "api __init__",
    "cli",
    "__main__",
)
"""From the ground up; a module may import its own floor's other modules and those below."""
BACKENDS = {KINDS[name].__module__ for name in KINDS}


def floor(module: str) -> int:
    part = module.split(".")[1] if "." in module else "__init__"
    return next(number for number, names in enumerate(FLOORS) if part in names.split())


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts), path


def imported(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports, anywhere in it, save for type checkers only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"a relative import in {path}"
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pipeline":
            assert node.module is not None
            for alias in node.names:
                below = PACKAGE.parent / Path(*node.module.split("."), alias.name)
                is_module = below.is_dir() or below.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "pipeline")


def test_every_module_stands_on_a_floor() -> None:
    for module, _ in modules():
        floor(module)


def test_no_module_imports_from_above() -> None:
    upward = [
        f"{module} imports {other}"
        for module, path in modules()
        for other in imported(path)
        if floor(other) > floor(module)
    ]
    assert upward == []


def test_backends_do_not_know_each_other() -> None:
    known = [
        f"{module} imports {other}"
        for module, path in modules()
        if module in BACKENDS
        for other in imported(path)
        if other in BACKENDS - {module}
    ]
    assert known == []

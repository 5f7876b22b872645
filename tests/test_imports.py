"""Imports point one way: twelve floors, no module reaches up, and there is no circle of any sort.

Imports for type checkers only count as well: who must know a module to read another one is bound to it. So do
strings that name a module, such as "pipeline.search.searchers" or "results.folder:read_result".
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import encoders

PACKAGE = Path(__file__).resolve().parent.parent / "pipeline"
FLOORS = (
    "core",
    "storage formats config",
    "data models metrics native",
    "encoders search",
    "engines",
    "retrievers",
    "registry",
    "results",
    "run comparison",
    "report",
    "api __init__",
    "cli __main__ integrations",
)
"""From the ground up: a module may import modules of its own floor and of those below."""


def part(module: str) -> str:
    """The package or module directly below `pipeline` that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def floor(module: str) -> int:
    return next(number for number, names in enumerate(FLOORS) if part(module) in names.split())


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports, anywhere in it, also for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"a relative import in {path}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pipeline":
            assert node.module is not None
            for alias in node.names:
                below = PACKAGE.parent / Path(*node.module.split("."), alias.name)
                is_module = below.is_dir() or below.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "pipeline")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from named(node.value)


def named(text: str) -> Iterator[str]:
    """The module that a string names: a dotted name with or without "pipeline.", and perhaps ":name"."""
    if re.fullmatch(r"\w+(\.\w+)+(:\w+)?", text):
        below = text.partition(":")[0].removeprefix("pipeline.").split(".")
        if PACKAGE.joinpath(*below).with_suffix(".py").is_file() or PACKAGE.joinpath(*below).is_dir():
            yield ".".join(["pipeline", *below])


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """What each module imports."""
    return {module: set(imported(path)) - {module} for module, path in modules()}


def test_there_are_at_most_twelve_floors_and_every_module_stands_on_one(graph: dict[str, set[str]]) -> None:
    assert len(FLOORS) <= 12
    assert {part(module) for module in graph} == set(" ".join(FLOORS).split())


def test_no_module_imports_from_above(graph: dict[str, set[str]]) -> None:
    assert [
        (module, other) for module in graph for other in graph[module] if floor(other) > floor(module)
    ] == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of one circle; none if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_strings_that_name_modules_count() -> None:
    assert list(named("pipeline.config.files:load_config")) == ["pipeline.config.files"]
    assert list(named("core.errors")) == ["pipeline.core.errors"]
    assert list(named("config.json")) == []


def test_a_circle_would_be_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_no_modules_import_each_other(graph: dict[str, set[str]]) -> None:
    assert circle(graph) == []


def test_no_packages_import_each_other(graph: dict[str, set[str]]) -> None:
    packages: dict[str, set[str]] = {}
    for module, others in graph.items():
        packages.setdefault(part(module), set()).update(part(other) for other in others)
    assert circle({package: others - {package} for package, others in packages.items()}) == []


def test_the_compiled_engine_has_two_doors(graph: dict[str, set[str]]) -> None:
    doors = {"pipeline.native", "pipeline.native.vectors", "pipeline.native.nearest"}
    outside = {module: others for module, others in graph.items() if part(module) != "native"}
    assert {other for others in outside.values() for other in others if part(other) == "native"} <= doors


def test_backends_do_not_know_each_other(graph: dict[str, set[str]]) -> None:
    modules = {type(opener()).__module__ for opener in encoders.OPENERS.values()}
    known = {module: sorted(modules & graph[module]) for module in modules}
    assert known == {module: [] for module in modules}

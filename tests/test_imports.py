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


def is_module(names: list[str]) -> bool:
    below = PACKAGE.parent.joinpath(*names)
    return below.is_dir() or below.with_suffix(".py").is_file()


def imported(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports, anywhere in it, also for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"a relative import in {path}"
            names = (node.module or "").split(".")
            if names[0] == "pipeline":
                for alias in node.names:
                    yield ".".join([*names, alias.name] if is_module([*names, alias.name]) else names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "pipeline")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from named(node.value)


def named(text: str) -> Iterator[str]:
    """The module that a string names: a dotted name with or without "pipeline.", and perhaps ":name"."""
    if re.fullmatch(r"\w+(\.\w+)+(:\w+)?", text):
        names = ["pipeline", *text.partition(":")[0].removeprefix("pipeline.").split(".")]
        if is_module(names):
            yield ".".join(names)


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """What each module imports."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        found[module] = set(imported(path)) - {module}
    return found


def test_every_module_stands_on_a_floor_and_imports_none_from_above(graph: dict[str, set[str]]) -> None:
    assert len(FLOORS) <= 12
    assert {part(module) for module in graph} == set(" ".join(FLOORS).split())
    above = [(module, other) for module in graph for other in graph[module] if floor(other) > floor(module)]
    assert above == []
    assert list(named("pipeline.config.files:load_config")) == ["pipeline.config.files"]
    assert list(named("core.errors")) == ["pipeline.core.errors"]
    assert list(named("config.json")) == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of one circle; none if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_neither_modules_nor_packages_import_each_other(graph: dict[str, set[str]]) -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
    assert circle(graph) == []
    packages: dict[str, set[str]] = {}
    for module, others in graph.items():
        packages.setdefault(part(module), set()).update(part(other) for other in others)
    assert circle({package: others - {package} for package, others in packages.items()}) == []


def test_the_compiled_engine_has_two_doors_and_backends_do_not_know_each_other(
    graph: dict[str, set[str]],
) -> None:
    doors = {"pipeline.native", "pipeline.native.vectors", "pipeline.native.nearest"}
    outside = [others for module, others in graph.items() if part(module) != "native"]
    assert {other for other in set().union(*outside) if part(other) == "native"} <= doors
    modules = {type(opener()).__module__ for opener in encoders.OPENERS.values()}
    assert [(module, other) for module in modules for other in modules & graph[module]] == []

"""Imports point one way: eleven floors, no module reaches up, and there is no circle of any sort.

Imports for type checkers only count as well: who must know a module to read another one is bound to it. So do
strings that name a module, such as "pipeline.search.faiss_index" or "results.folder:read_result".
"""

import ast
import graphlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "pipeline"
FLOORS = (
    "core",
    "storage formats config",
    "data models metrics native",
    "encoders search",
    "engines",
    "retrievers",
    "results",
    "run comparison",
    "report api terminal version",
    "studies",
    "cli __init__ __main__",
)
"""From the ground up: a module may import modules of its own floor and of those below."""
FACES = sorted(PACKAGE.rglob("__init__.pyi"))
"""What each package offers to others, listed; no file of tests may name another module inside a package."""
INSIDE = re.compile(
    r"(native|parity)/|inside\.py|search/test_(exact|documents|maxsim|inverted_index|faiss_library)\.py"
)
"""Tests that name modules inside packages: of kernels, those that compare with peers, and `inside`."""


def part(module: str) -> str:
    """The package or module directly below `pipeline` that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def floor(module: str) -> int:
    return next(number for number, names in enumerate(FLOORS) if part(module) in names.split())


def listed(face: Path) -> Iterator[tuple[str, str]]:
    """The module and the name of each line of a face."""
    package = ".".join(face.parent.relative_to(PACKAGE.parent).parts)
    for node in ast.parse(face.read_text(encoding="utf-8")).body:
        assert isinstance(node, ast.ImportFrom), f"{face} has more than imports"
        assert node.level == 1
        assert node.module
        assert all(alias.asname == alias.name for alias in node.names)
        yield from ((f"{package}.{node.module}", alias.name) for alias in node.names)


def is_module(names: list[str]) -> bool:
    below = PACKAGE.parent.joinpath(*names)
    return below.is_dir() or below.with_suffix(".py").is_file()


def is_package(module: str) -> bool:
    return PACKAGE.parent.joinpath(*module.split(".")).is_dir()


def imports_of(node: ast.ImportFrom | ast.Import) -> Iterator[str]:
    """Modules of the package that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "pipeline")
        return
    assert not node.level, "a relative import"
    names = (node.module or "").split(".")
    if names[0] == "pipeline":
        for alias in node.names:
            yield ".".join([*names, alias.name] if is_module([*names, alias.name]) else names)


def imported(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports, anywhere in it, also for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from imports_of(node)
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
        if path.with_suffix(".pyi") in FACES:
            found[module] |= {other for other, _ in listed(path.with_suffix(".pyi"))}
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
    opened = {other for other in graph["pipeline.encoders.openers"] if part(other) == "encoders"}
    modules = {module for module in opened - {"pipeline.encoders.opener"} if ".pairs." not in module}
    assert len(modules) == 7, "count a new backend here"
    assert [(module, other) for module in modules for other in modules & graph[module]] == []


def test_no_study_imports_another_and_the_spine_imports_the_table_alone(graph: dict[str, set[str]]) -> None:
    def study(module: str) -> str:
        """The folder of a study's module below `pipeline.studies`; "" of others and of what studies share."""
        names = module.split(".")
        is_study = names[1:2] == ["studies"] and names[2:] and is_package(".".join(names[:3]))
        return names[2] if is_study and names[2] != "shared" else ""

    inside = {(module, other) for module in graph for other in graph[module] if study(other)}
    apart = {(module, other) for module, other in inside if study(module) != study(other)}
    assert {module for module, _ in apart} == {"pipeline.studies.table"}
    outside = {other for module, others in graph.items() if part(module) != "studies" for other in others}
    shared = {"pipeline.studies.study", "pipeline.studies.table"}
    assert {other for other in outside if part(other) == "studies" and not study(other)} == shared


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.parent.name)
def test_a_face_lists_names_of_its_own_package_and_modules_do_not_import_through_it(
    face: Path, graph: dict[str, set[str]]
) -> None:
    package = ".".join(face.parent.relative_to(PACKAGE.parent).parts)
    offered = dict(reversed(pair) for pair in listed(face))
    assert dir(importlib.import_module(package)) == sorted(offered)
    for name, module in offered.items():
        assert not is_module([*package.split("."), name])  # a name is either the function or its module
        found = getattr(importlib.import_module(package), name)
        assert found is getattr(importlib.import_module(module), name)
    importers = {module for module, others in graph.items() if package in others}
    assert package == "pipeline" or importers == set()


def test_no_test_names_a_module_inside_a_package() -> None:
    named_inside = []
    for path in TESTS.rglob("*.py"):
        file = str(path.relative_to(TESTS))
        for node in [] if INSIDE.match(file) else ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            inner: set[str] = set()
            if isinstance(node, ast.ImportFrom | ast.Import):
                inner.update(imports_of(node))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "setitem"):
                texts = [given.value for given in node.args[:1] if isinstance(given, ast.Constant)]
                inner.update(text.rpartition(".")[0] for text in texts if text.startswith("pipeline."))
            named_inside += [(file, name) for name in inner - {"pipeline.api"} if not is_package(name)]
    assert named_inside == []

"""How large the package may be: lines, settings and options, each below a ceiling that follows them down.

`python tests/test_sizes.py` prints the table as it is now.
"""

import ast
from pathlib import Path

import pytest
from typer.main import get_command

import pipeline
from pipeline import config
from pipeline.cli import app

PACKAGE = Path(pipeline.__file__).parent
SLACK = 0.97
"""A number below this share of its ceiling fails too: the commit that saves lines lowers the ceiling."""
WING = ("native", "studies")
"""What the spine does not count."""
LINES: dict[str, int] = {
    "top": 410,
    "cli": 1090,
    "comparison": 1330,
    "config": 2620,
    "core": 1870,
    "data": 2020,
    "encoders": 5840,
    "engines": 1300,
    "formats": 1790,
    "metrics": 1840,
    "models": 2350,
    "native": 3710,
    "report": 300,
    "results": 1070,
    "retrievers": 2500,
    "run": 1670,
    "search": 2570,
    "storage": 1330,
    "studies": 10830,
    "spine": 31830,
    "whole": 46370,
}
"""The most lines of each package, of the modules at the top, of the spine and of the whole."""
SETTINGS: dict[str, int] = {
    "benchmark": 22,
    "data": 43,
    "model": 35,
    "rerank": 16,
    "stages": 31,
    "suites": 20,
}
"""The most settings that the classes of each file of `pipeline/config` declare."""
OPTIONS: dict[str, int] = {
    "run": 9,
    "compare": 12,
    "fuse": 11,
    "gate": 11,
    "verify": 10,
}
"""The most options of a command, where it may have more than 8: those that scripts rely on."""


def lines() -> dict[str, int]:
    """Lines of Python by package."""
    counts: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        name = inside.parts[0] if inside.parts[1:] else "top"
        counts[name] = counts.get(name, 0) + len(path.read_text(encoding="utf-8").splitlines())
    whole = sum(counts.values())
    return {**counts, "spine": whole - sum(counts[name] for name in WING), "whole": whole}


def settings() -> dict[str, int]:
    """Settings by file: fields that are made by `setting`."""
    counts = {}
    for path in sorted(Path(config.__file__).parent.glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        if made := sum(isinstance(function, ast.Name) and function.id == "setting" for function in called):
            counts[path.stem] = made
    return counts


def options() -> dict[str, int]:
    """Options that the help of each command lists, without `--help`."""
    counts = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for child in getattr(command, "commands", {"": command}).values():
            named = [each for each in child.params if each.param_type_name == "option" and not each.hidden]
            said = [each for each in named if each.name != "help"]
            counts[name] = max(counts.get(name, 0), len(said))
    return counts


@pytest.mark.parametrize(("counts", "ceilings"), [(lines(), LINES), (settings(), SETTINGS)])
def test_nothing_grows_and_every_ceiling_follows(counts: dict[str, int], ceilings: dict[str, int]) -> None:
    assert counts.keys() == ceilings.keys()
    above = {name: (count, ceilings[name]) for name, count in counts.items() if count > ceilings[name]}
    assert not above, f"above the ceiling (found, most): {above}; make room, or say in the commit what did"
    below = {name: count for name, count in counts.items() if count < SLACK * ceilings[name]}
    assert not below, f"far below the ceiling: lower it to {below}"


def test_no_command_has_more_options_than_people_read() -> None:
    assert {name: count for name, count in options().items() if count > 8} == OPTIONS


if __name__ == "__main__":
    print(f"LINES = {lines()}\nSETTINGS = {settings()}")
    print(f"OPTIONS = { ({name: count for name, count in options().items() if count > 8}) }")

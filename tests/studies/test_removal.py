"""A study is one folder and one line of the table: without them, everything else works."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comparison.made import config

from pipeline import run_benchmark
from pipeline.studies import STUDIES, Study, all_studies


def copy_without(study: str, package: Path, folder: Path) -> Path:
    """A folder with a copy of the package without a study's folder and the lines that name it."""
    copy = folder / study / "pipeline"
    copy.mkdir(parents=True)
    for path in package.iterdir():
        if path.name not in ("studies", "__init__.pyi", "__pycache__"):
            (copy / path.name).symlink_to(path)
    shutil.copytree(
        package / "studies", copy / "studies", ignore=shutil.ignore_patterns("__pycache__", study)
    )
    for file in ("studies/table.py", "__init__.pyi"):
        lines = (package / file).read_text(encoding="utf-8").splitlines(keepends=True)
        left = [line for line in lines if not re.search(rf"\bstudies\.{study}\.", line)]
        assert len(left) >= len(lines) - 1
        (copy / file).write_text("".join(left), encoding="utf-8")
    return copy.parent


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory, root: Path) -> list[list[str]]:
    """What the spine does with two results, whose collection is in the cache."""
    folder, few = tmp_path_factory.mktemp("spine"), {"source": "sample", "corpus": 60, "queries": 25}
    for name, k1 in (("one", 0.9), ("two", 2.0)):
        settings = config(folder, name, data=few, model={"backend": "bm25", "k1": k1})
        (folder / f"{name}.yaml").write_text(json.dumps(settings), encoding="utf-8")
        run_benchmark(folder / f"{name}.yaml")
    one, two = (str(folder / "results" / name) for name in ("one", "two"))
    qrels = str(root / "pipeline/data/sample/qrels/test.tsv")
    return [
        ["run", str(folder / "one.yaml")],
        ["plan", str(folder / "one.yaml")],
        ["compare", one, two, "--json"],
        ["compare", one, two],
        ["evaluate", "--qrels", qrels, "--run", f"{one}/run.trec"],
        ["--help"],
    ]


def names_of(study: Study) -> list[str]:
    """What sentences call the commands and the options of a study by."""
    outputs = {name: output.option for name, output in study.outputs.items()}
    annotations = {**study.options, **outputs}.items()
    declared = [(name, each.__metadata__[0]) for name, each in annotations]
    flags = [flag for name, each in declared for flag in (each.default, *each.param_decls, f"--{name}")]
    return [
        *(f"benchmarco {name}" for name in study.commands),
        *filter(re.compile("--").match, map(str, flags)),
    ]


def test_without_a_study_all_else_works_and_nothing_names_it(
    commands: list[list[str]], root: Path, tmp_path: Path
) -> None:
    studies = all_studies()
    own = {name: [[command, "--help"] for command in studies[name].commands] for name in STUDIES}
    copies = [
        {"path": str(copy_without(name, root / "pipeline", tmp_path)), "commands": [*commands, *own[name]]}
        for name in STUDIES
    ]
    script = [sys.executable, str(Path(__file__).with_name("without.py"))]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # for products this small, threads cost more than they save
    done = subprocess.run(
        script, input=json.dumps(copies), env=one, capture_output=True, text=True, check=True
    )
    outcomes = dict(zip(STUDIES, map(json.loads, done.stdout.splitlines()), strict=True))
    for name, outcome in outcomes.items():
        spine = list(zip(commands, outcome, strict=False))
        assert (name, [(command, output) for command, (code, output) in spine if code]) == (name, [])
        assert [code for code, _ in outcome[len(commands) :]] == [2] * len(own[name])
        gone = [rf"{re.escape(each)}(?![\w-])" for each in names_of(studies[name])]
        named = [(command, word) for command, (_, text) in spine for word in gone if re.search(word, text)]
        assert (name, named) == (name, [])
        shown = json.loads(outcome[2][1])
        assert ("churn" in shown) == (name != "churn")

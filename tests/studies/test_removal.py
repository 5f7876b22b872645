"""A study is one folder, and the lines that name it in the table: without them, everything else works."""

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
        if path.name not in ("studies", "__pycache__"):
            (copy / path.name).symlink_to(path)
    shutil.copytree(
        package / "studies", copy / "studies", ignore=shutil.ignore_patterns("__pycache__", study)
    )
    lines = (package / "studies/table.py").read_text(encoding="utf-8").splitlines(keepends=True)
    left = [line for line in lines if not re.search(rf"\bstudies\.{study}\.", line)]
    (copy / "studies/table.py").write_text("".join(left), encoding="utf-8")
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
        ["compare", "--help"],
    ]


def names_of(study: Study) -> list[str]:
    """What sentences call the commands and the options of a study by."""
    annotations = [*study.options.values(), *(output.option for output in study.outputs.values())]
    declared = [annotation.__metadata__[0] for annotation in annotations]
    flags = [str(flag) for each in declared for flag in (each.default, *each.param_decls)]
    return [f"benchmarco {name}" for name in study.commands] + [flag for flag in flags if flag[:2] == "--"]


def test_without_a_study_all_else_works_and_nothing_names_it(
    commands: list[list[str]], root: Path, tmp_path: Path
) -> None:
    in_folder: dict[str, list[Study]] = {}
    for name, place in STUDIES.items():
        in_folder.setdefault(place.split(".")[2], []).append(all_studies()[name])
    own = {
        folder: [[*command.split(), "--help"] for study in studies for command in study.commands]
        for folder, studies in in_folder.items()
    }
    copies = [
        {"path": str(copy_without(folder, root / "pipeline", tmp_path)), "commands": [*commands, *theirs]}
        for folder, theirs in own.items()
    ]
    script = [sys.executable, str(Path(__file__).with_name("without.py"))]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # for products this small, threads cost more than they save
    done = subprocess.run(
        script, input=json.dumps(copies), env=one, capture_output=True, text=True, check=True
    )
    outcomes = dict(zip(in_folder, map(json.loads, done.stdout.splitlines()), strict=True))
    for folder, outcome in outcomes.items():
        spine = list(zip(commands, outcome, strict=False))
        assert (folder, [(command, output) for command, (code, output) in spine if code]) == (folder, [])
        assert [code for code, _ in outcome[len(commands) :]] == [2] * len(own[folder])
        gone = [rf"{re.escape(word)}(?![\w-])" for study in in_folder[folder] for word in names_of(study)]
        named = [(command, word) for command, (_, text) in spine for word in gone if re.search(word, text)]
        assert (folder, named) == (folder, [])
        assert ("churn" in json.loads(outcome[2][1])) == (folder != "changes")

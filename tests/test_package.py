"""The wheel and the source distribution hold what a stranger needs, and run away from the source tree."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

KEPT = ("pipeline", "configs", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, built from a copy of the tree without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in KEPT:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, source / name)
    build = (
        "import setuptools.build_meta as backend\nbackend.build_wheel('dist')\nbackend.build_sdist('dist')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return source / "dist"


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_wheel_holds_the_package_whole(built: Path, root: Path) -> None:
    with zipfile.ZipFile(one(built, "*.whl")) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("pipeline/")}
    files = (path for path in (root / "pipeline").rglob("*") if path.is_file())
    here = {str(path.relative_to(root)) for path in files if "__pycache__" not in path.parts}
    assert packed == here


def test_source_distribution_holds_what_the_wheel_is_built_from(built: Path) -> None:
    with tarfile.open(one(built, "*.tar.gz")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "LICENSE", "README.md", "pipeline/data/sample/corpus.jsonl"} <= names


def test_citation_names_the_version(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (root / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {project['version']}" in lines


def test_quickstart_runs_from_the_wheel(built: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(one(built, "*.whl")) as wheel:
        wheel.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}

    def command(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-P", "-m", "pipeline", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    (tmp_path / "mine.yaml").write_text(command("example"), encoding="utf-8")
    smaller = ("--set", "model.backend=openvino", "--set", "data.corpus=60", "--set", "data.queries=10")
    assert "ndcg@10" in command("run", "mine.yaml", *smaller)
    assert (tmp_path / "results/quickstart/metrics.json").is_file()
    script = (
        "import pipeline; from pipeline.core.installation import install_command\n"
        "print(pipeline.__file__, install_command('ray'), sep='\\n')"
    )
    asked = [sys.executable, "-P", "-c", script]
    found = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    place, installs = found.stdout.splitlines()
    assert place.startswith(str(site))
    assert installs == "pip install 'benchmarco[ray]'"


def test_no_message_names_a_file_that_the_wheel_lacks(root: Path) -> None:
    named = {
        f"{path.relative_to(root)}: {text}"
        for path in (root / "pipeline").rglob("*.py")
        for text in messages(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"\b(configs|scripts|tests)/", text)
    }
    assert {name for name in named if "core/installation.py: scripts/setup" not in name} == set()


def messages(tree: ast.AST) -> Iterator[str]:
    """The texts in a module that are not docstrings."""
    statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
            yield node.value


def test_supported_pythons_are_named(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert named == {"3.11", "3.12", "3.13"}
    assert project["requires-python"] == ">=3.11"
    workflow = yaml.safe_load((root / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"]) == named

"""The wheel and the source distribution hold what a stranger needs, and run away from the source tree."""

import ast
import inspect
import re
import shutil
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from workplaces import process

import pipeline

KEPT = ("pipeline", "configs", "pyproject.toml", "README.md", "LICENSE")
FUNCTIONS = {
    "compare", "evaluate", "evaluate_model", "load_config", "load_configs", "read_result",
    "register_measure", "run_benchmark", "run_benchmarks", "write_collection",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, built from a copy of the tree without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in KEPT:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, source / name)
    build = "backend.build_wheel('dist'); backend.build_sdist('dist')"
    process(source, "-c", f"import setuptools.build_meta as backend; {build}")
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """What the wheel holds."""
    (packed,) = built.glob("*.whl")
    with zipfile.ZipFile(packed) as file:
        file.extractall(built / "site")
    return built / "site"


def files(folder: Path) -> set[str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)) for path in paths}


def test_distributions_hold_what_they_should(built: Path, wheel: Path, root: Path) -> None:
    assert files(wheel / "pipeline") == files(root / "pipeline")
    (packed,) = built.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "LICENSE", "README.md", "pipeline/data/sample/corpus.jsonl"} <= names


def test_quickstart_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        return process(tmp_path, "-P", *arguments, PYTHONPATH=str(wheel)).stdout

    (tmp_path / "mine.yaml").write_text(command("-m", "pipeline", "example"), encoding="utf-8")
    smaller = ("--set", "model.backend=openvino", "--set", "data.corpus=60", "--set", "data.queries=10")
    assert "ndcg@10" in command("-m", "pipeline", "run", "mine.yaml", *smaller)
    assert (tmp_path / "results/quickstart/metrics.json").is_file()
    script = (
        "import pipeline; from pipeline.core import install_command\n"
        "print(pipeline.__file__, install_command('ray'), sep='\\n')"
    )
    place, installs = command("-c", script).splitlines()
    assert place.startswith(str(wheel))
    assert installs == "pip install 'benchmarco[ray]'"


def test_no_message_names_a_file_that_the_wheel_lacks(root: Path) -> None:
    named: set[str] = set()
    for path in (root / "pipeline").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        constants = {node for node in nodes if isinstance(node, ast.Constant)} - docstrings
        texts = {str(node.value) for node in constants}
        files = {text for text in texts if re.search(r"\b(configs|scripts|tests)/", text)}
        named |= {f"{path.name}: {text}" for text in files}
    assert {name for name in named if not name.startswith("installation.py: scripts/setup")} == set()


def test_version_and_supported_pythons_are_named_alike(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (root / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {project['version']}" in lines
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert named == {"3.11", "3.12", "3.13", "3.14"}
    assert project["requires-python"] == ">=3.11"
    assert {*re.findall(r" python(3\.\d+)", (root / "scripts/setup").read_text(encoding="utf-8"))} == named
    jobs = yaml.safe_load((root / ".github/workflows/test.yml").read_text(encoding="utf-8"))["jobs"]
    for job in jobs.values():
        assert set(job["strategy"]["matrix"]["python"]) == named
        assert {"run": ".ci/run"} in job["steps"]


def test_the_readme_names_the_machines_of_the_workflow(root: Path) -> None:
    jobs = yaml.safe_load((root / ".github/workflows/test.yml").read_text(encoding="utf-8"))["jobs"]
    machines = jobs["elsewhere"]["strategy"]["matrix"]["machine"]
    assert machines == ["macos-14", "ubuntu-24.04-arm"]
    assert all(f"`{machine}`" in (root / "README.md").read_text(encoding="utf-8") for machine in machines)


def test_the_public_names_are_these_and_each_is_documented(root: Path) -> None:
    assert set(pipeline.__all__) == FUNCTIONS | {"InputError", "__version__"}
    assert dir(pipeline) == sorted(pipeline.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", pipeline.__version__)
    with pytest.raises(AttributeError, match="attribute runs"):
        pipeline.runs  # noqa: B018
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)[(`]", page, re.MULTILINE)) == set(pipeline.__all__) - {"__version__"}
    for name in FUNCTIONS:
        function = getattr(pipeline, name)
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty
        assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
        assert "Args:" in function.__doc__

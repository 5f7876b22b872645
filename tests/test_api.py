"""What other programs may rely on: the public names, and what docs/api.md shows."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import pipeline
from pipeline.metrics.measures import MEASURES, Definition

FUNCTIONS = {
    "compare",
    "evaluate",
    "evaluate_model",
    "fuse",
    "load_config",
    "load_configs",
    "register_measure",
    "reproduce",
    "run_benchmark",
    "run_benchmarks",
    "verify",
    "write_collection",
}


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(pipeline.__all__) == FUNCTIONS | {"InputError", "__version__"}
    assert dir(pipeline) == sorted(pipeline.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", pipeline.__version__)
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        pipeline.runs  # noqa: B018


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_public_functions_are_annotated_and_documented(name: str) -> None:
    function = getattr(pipeline, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
    assert "Args:" in function.__doc__


def test_the_page_names_all_that_is_public(root: Path) -> None:
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)", page, re.MULTILINE)) == set(pipeline.__all__) - {"__version__"}


def test_the_page_s_snippets_run_as_shown(
    root: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "c.yaml").rename(workplace / "mine.yaml")
    (workplace / "pipeline" / "data").mkdir(parents=True)
    (workplace / "pipeline" / "data" / "sample").symlink_to(workplace / "data")
    monkeypatch.chdir(workplace)
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    monkeypatch.setitem(MEASURES, "mean_grade", Definition(len, added="here"))  # is removed in the end
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(snippet, names)
    shown = capsys.readouterr()
    assert "whole: 114 queries, 345 passages" in shown.out
    assert "(114, 2)" in shown.out
    assert "mean_grade@2" in shown.out
    assert "Did you mean 'precision'" in shown.out
    assert "data" in names["whole"].reused  # type: ignore[attr-defined]

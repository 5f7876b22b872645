"""What a shell completes, asked for as the script that `--install-completion` writes asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.cli.completing import complete_measure, complete_setting
from pipeline.config.outline import outline
from pipeline.metrics.names import parse_measures


def completed(*words: str) -> list[str]:
    """What bash is offered for the last of the words, as it splits them."""
    environment = {
        "_BENCHMARCO_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["benchmarco", *words]),
        "COMP_CWORD": str(len(words)),
    }
    with pytest.MonkeyPatch.context() as patch:  # the runner's own environment is not that of the process
        for name, value in environment.items():
            patch.setitem(os.environ, name, value)
        done = CliRunner().invoke(app, [], prog_name="benchmarco")
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["comp"], ["compare"]),
        (["run", "c.yaml", "--set", "model.back"], ["model.backend=", "model.backend=native"]),
        (["run", "c.yaml", "--set", "sea"], ["search.top_k=", "search.memory_mb="]),
        (["run", "c.yaml", "--set", "m"], ["model.backend=", "model.name="]),
        (["run", "c.yaml", "--set", "model.backend", "=", "nat"], ["native"]),
        (["run", "c.yaml", "--set", "model.normalize", "="], ["true", "false"]),
        (["evaluate", "--measures", "ndcg@10,rec"], ["ndcg@10,recall@100"]),
        (["compare", "--measure", "mr"], ["mrr@10"]),
        (["compare", "res"], ["results/t"]),
        (["report", "results/"], ["results/t"]),
        (["run", "c"], ["c.yaml"]),
        (["run", "results/t/"], ["results/t/manifest.json"]),
        (["compare", "results/t", "--format", "m"], ["markdown"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_typed_is_completed(
    words: list[str], offered: list[str], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    found = completed(*words)
    assert set(offered) <= set(found)
    assert "c.yaml" not in found or words == ["run", "c"]


def test_one_letter_asks_for_the_section_first() -> None:
    assert {text for text, _ in complete_setting("")} == {
        "name=", "data.", "model.", "fuse.", "index.", "search.", "rerank.", "engine.", "evaluate.", "cache=",
        "output=",
    }  # fmt: skip


def test_every_setting_and_measure_that_is_offered_exists() -> None:
    paths = [each.path for each in outline()]
    assert len(paths) == len(set(paths))
    assert {"data.chunks.tokens", "model.pooling", "rerank.depth", "fuse.method", "search.top_k"} <= set(
        paths
    )
    names = [text for text, _ in complete_measure("")]
    assert len(parse_measures(names)) == len(names)

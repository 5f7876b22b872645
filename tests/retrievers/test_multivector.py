"""A benchmark of token vectors, from files to hits."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from workplaces import hits

from pipeline import compare


@pytest.fixture
def workplace(finished_of: Callable[[str], Path], tmp_path: Path) -> Path:
    """A finished run of token vectors from the files `p.npz` and `q.npz`."""
    return Path(shutil.copytree(finished_of("multivector"), tmp_path / "workplace"))


def run(folder: Path, *settings: str) -> dict[str, Any]:
    """The stages' rows of one run, by name."""
    return {row.stage: row for row in workplaces.run(folder, *settings).record.stages}


def texts_of(path: Path) -> list[np.ndarray]:
    with np.load(path) as stored:
        bounds = [0, *stored["ends"].tolist()]
        return [stored["vectors"][a:b].astype(np.float64) for a, b in itertools.pairwise(bounds)]


def test_hits_are_those_of_the_definition_and_neither_memory_nor_file_changes_any(workplace: Path) -> None:
    found = hits(workplace / "results/t")
    passages, queries = texts_of(workplace / "p.npz"), texts_of(workplace / "q.npz")
    scores = [
        sorted((float((query @ passage.T).max(axis=1).sum()) for passage in passages), reverse=True)[:50]
        for query in queries
    ]
    np.testing.assert_allclose([score for _, _, score in found], np.ravel(scores), rtol=1e-6)
    run(workplace, "search.memory_mb=64", f"cache={workplace}/other")
    assert hits(workplace / "results/t") == found
    with np.load(workplace / "p.npz") as stored:
        vectors, ends = stored["vectors"], stored["ends"]
    np.savez(workplace / "p.npz", vectors=np.asfortranarray(vectors), ends=ends)
    rows = run(workplace)
    assert list(rows) == ["data", "passages", "queries", "search", "evaluate"]
    assert not rows["passages"].reused
    assert hits(workplace / "results/t") == found
    np.savez_compressed(workplace / "p.npz", vectors=vectors, ends=ends)
    run(workplace)
    assert hits(workplace / "results/t") == found


def test_the_mean_is_the_sum_over_the_query_s_tokens(workplace: Path) -> None:
    sums = hits(workplace / "results/t")
    rows = run(workplace, "model.score=mean")
    assert [name for name, row in rows.items() if not row.reused] == ["search", "evaluate"]
    tokens = np.repeat([len(query) for query in texts_of(workplace / "q.npz")], 50)
    means = hits(workplace / "results/t")
    assert [hit[:2] for hit in means] == [hit[:2] for hit in sums]
    np.testing.assert_allclose([hit[2] for hit in means] * tokens, [hit[2] for hit in sums], rtol=1e-6)


def test_what_is_stored_in_fp16_takes_half_the_space(workplace: Path) -> None:
    whole, halves = run(workplace), run(workplace, "model.token_precision=fp16")
    assert [name for name, row in halves.items() if row.reused] == ["data", "queries"]
    assert halves["passages"].bytes < 0.6 * whole["passages"].bytes
    (entry,) = compare([workplace / "results" / "t"]).results
    assert entry.index_bytes == halves["passages"].bytes  # there is no index

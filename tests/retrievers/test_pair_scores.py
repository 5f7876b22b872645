"""Stored scores: found by texts, of one scorer alone, and worth nothing when damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrievers.pair_scores import STAGE, ScoreStore, UInt64, hash_pairs, hash_texts
from pipeline.storage.cache import PruneLimits, prune
from pipeline.storage.store import Store

SCORER = {"model": "one"}


def hashes(*pairs: tuple[str, str]) -> UInt64:
    queries, passages = zip(*pairs, strict=True)
    return hash_pairs(hash_texts(queries), hash_texts(passages))


A, B, C = ("q", "a"), ("q", "b"), ("p", "a")


def test_scores_are_found_by_their_texts_in_whichever_part_and_order(tmp_path: Path) -> None:
    ScoreStore(Store(tmp_path), SCORER).add(hashes(A, B), np.array([1, 2], np.float32))
    ScoreStore(Store(tmp_path), SCORER).add(hashes(C), np.array([3], np.float32))
    kept = ScoreStore(Store(tmp_path), SCORER)
    found = kept.find(hashes(C, ("a", "q"), B, A, B))
    assert found.tolist()[::2] == [3, 2, 2]
    assert np.isnan(found[1])
    assert found[3] == 1
    assert len(kept.keys) == 2
    assert np.isnan(ScoreStore(Store(tmp_path), {"model": "two"}).find(hashes(A))).all()


def test_a_damaged_part_is_scored_again(tmp_path: Path) -> None:
    ScoreStore(Store(tmp_path), SCORER).add(hashes(A), np.array([1], np.float32))
    (path,) = (tmp_path / STAGE).glob("*/scores.npy")
    path.write_bytes(path.read_bytes()[:-4] + np.float32(7).tobytes())
    kept = ScoreStore(Store(tmp_path), SCORER)
    assert np.isnan(kept.find(hashes(A))).all()
    kept.add(hashes(A), np.array([1], np.float32))
    assert ScoreStore(Store(tmp_path), SCORER).find(hashes(A)).tolist() == [1]


def test_pairs_that_agree_in_one_number_alone_are_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = np.array([[1, 1], [1, 2]], np.uint64)
    ScoreStore(Store(tmp_path), SCORER).add(pairs[:1], np.array([5], np.float32))
    found = ScoreStore(Store(tmp_path), SCORER).find(pairs)
    assert found[0] == 5
    assert np.isnan(found[1])


def test_scores_in_use_are_not_pruned(tmp_path: Path) -> None:
    kept = ScoreStore(Store(tmp_path), SCORER)
    kept.add(hashes(A), np.array([1], np.float32))
    assert prune(tmp_path, [], PruneLimits(unused=True), dry=False) == []
    del kept
    assert len(prune(tmp_path, [], PruneLimits(unused=True), dry=False)) == 1


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=1, unique=True))
def test_different_pairs_have_different_hashes(pairs: list[tuple[str, str]]) -> None:
    found = hashes(*pairs)
    assert len(np.unique(found[:, 0])) == len(np.unique(found, axis=0)) == len(pairs)


def test_the_numbers_of_a_pair_are_those_of_its_texts() -> None:
    assert hash_texts(["a"]).shape == (1, 2)
    assert (hashes(("a", "b")) != hashes(("b", "a"))).all()

"""Backends of rerankers: scores that depend on nothing but the pair, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import RERANKERS
from pipeline.core.errors import InputError
from pipeline.core.records import Float32
from pipeline.encoders import choice
from pipeline.encoders import pairs as rerankers
from pipeline.encoders.pairs.scorer import Pair, longest_first

pytestmark = pytest.mark.usefixtures("quick_conversion")

CASES = [
    ("flag", "bert"), ("flag", "lightweight"), ("sentence-transformers", "xlm_roberta"),
    ("openvino", "bert"),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_no_pair_s_score_depends_on_its_company(
    scores: Callable[..., Float32],
    reranker: Callable[[str], Path],
    pairs: list[Pair],
    backend: str,
    kind: str,
) -> None:
    settings: dict[str, Any] = {"backend": backend, "name": reranker(kind)}
    if kind == "lightweight":
        settings |= {"compress_ratio": 2, "compress_layers": [1], "max_length": 64}

    def small(loaded: Any) -> None:
        loaded.token_budget = 200

    together = scores(pairs, **settings)
    alone = scores(pairs[::-1], small, **settings)[::-1]
    assert np.abs(together - alone).max() <= 1e-4
    assert len(np.unique(together)) > len(pairs) / 2


@pytest.mark.parametrize("kind", ["bert", "xlm_roberta"])
def test_converted_models_give_torch_s_scores(
    scores: Callable[..., Float32], reranker: Callable[[str], Path], pairs: list[Pair], kind: str
) -> None:
    expected = scores(pairs, backend="flag", name=reranker(kind))
    assert np.abs(scores(pairs, backend="openvino", name=reranker(kind)) - expected).max() < 1e-4


def test_auto_takes_flag_for_models_that_the_others_do_not_run(
    reranker: Callable[[str], Path], tmp_path: Path
) -> None:
    given = {"name": str(reranker("gemma")), "query_instruction": "Q: ", "batch_size": 3}
    taken = choice.take(RERANKERS.make(backend="auto", **given), rerankers.resolve)
    assert taken.model_dump() == RERANKERS.make(backend="flag", **given).model_dump()


def test_instructions_and_the_prompt_change_scores(
    scores: Callable[..., Float32], reranker: Callable[[str], Path], plain_pairs: list[Pair]
) -> None:
    bert, few = reranker("bert"), plain_pairs[:4]
    expected = scores(
        [(f"find {query}", f"text {passage}") for query, passage in few], backend="flag", name=bert
    )
    found = scores(few, backend="flag", name=bert, query_instruction="find ", passage_instruction="text ")
    assert np.abs(found - expected).max() < 1e-6
    gemma = reranker("gemma")
    other = scores(few, backend="flag", name=gemma, prompt="Is B right?")
    assert (scores(few, backend="flag", name=gemma) != other).all()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("bert", {"prompt": "?"}, r"rerank\.prompt: .* encoder-only-base.*decoder-only-base"),
        ("gemma", {"cutoff_layers": [2]}, r"rerank\.cutoff_layers: .*decoder-only-base.*layerwise"),
        ("layerwise", {"compress_ratio": 2}, r"rerank\.compress_ratio: .*decoder-only-lightweight"),
        ("layerwise", {"cutoff_layers": [9]}, r"rerank\.cutoff_layers: \[9\].*1 to 3"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(
    reranker: Callable[[str], Path], kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        rerankers.resolve(RERANKERS.make(backend="flag", name=str(reranker(kind)), **settings))


def test_models_that_are_no_rerankers_are_refused(
    reranker: Callable[[str], Path], minilm_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"is a BertModel.*such as BAAI/bge-reranker-base"):
        rerankers.resolve(RERANKERS.make(backend="flag", name=str(minilm_folder)))
    folder = Path(shutil.copytree(reranker("bert"), tmp_path / "three"))
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    labels = {str(number): f"LABEL_{number}" for number in range(3)}
    (folder / "config.json").write_text(json.dumps({**described, "id2label": labels}), encoding="utf-8")
    with pytest.raises(InputError, match="gives 3 values for a pair"):
        rerankers.resolve(RERANKERS.make(backend="openvino", name=str(folder)))


@pytest.mark.parametrize("settings", [{"transformer_task": "text-generation"}, {"prompt": "judge"}])
def test_a_reranker_that_reads_pairs_in_another_way_is_refused(
    settings: dict[str, str], reranker: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(reranker("bert"), tmp_path / "other"))
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings), encoding="utf-8")
    for backend in ("flag", "openvino", "sentence-transformers"):
        with pytest.raises(InputError, match=next(iter(settings))):
            rerankers.resolve(RERANKERS.make(backend=backend, name=str(folder)))


def test_a_model_without_its_head_is_refused(
    scores: Callable[..., Float32], minilm_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(minilm_folder, tmp_path / "headless"))
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    described |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    for backend in ("flag", "openvino", "sentence-transformers"):
        with pytest.raises(InputError, match=r"lack \d+ weights?, such as"):
            scores([("a", "b")], backend=backend, name=folder)


def test_longest_first_cuts_the_longer_text() -> None:
    cases = {
        (3, 4, 10): (3, 4),
        (3, 9, 10): (3, 7),
        (9, 3, 10): (7, 3),
        (9, 9, 10): (5, 5),
        (12, 20, 11): (5, 6),
    }
    assert {case: longest_first(*case) for case in cases} == cases

"""Backends of rerankers: scores that depend on nothing but the pair, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workplaces import read_json

from pipeline import InputError
from pipeline.config import RERANKERS, as_config
from pipeline.core import TextPair
from pipeline.encoders import resolve, settle

Scores = Callable[..., np.ndarray]
Kind = Callable[[str], Path]

CASES = [("flag", "bert"), ("flag", "gemma"), ("sentence-transformers", "xlm_roberta"), ("openvino", "bert")]


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_no_pair_s_score_depends_on_its_company(
    scores: Scores, reranker: Kind, pairs: list[TextPair], backend: str, kind: str
) -> None:
    settings = {"backend": backend, "name": reranker(kind)}
    together = scores(pairs, **settings)
    alone = scores(pairs[::-1], lambda loaded: setattr(loaded, "token_budget", 200), **settings)[::-1]
    assert np.abs(together - alone).max() <= 1e-4
    assert len(np.unique(together)) > len(pairs) / 2


def test_auto_takes_flag_for_models_that_the_others_do_not_run(reranker: Kind) -> None:
    given = {"name": str(reranker("gemma")), "query_instruction": "Q: ", "batch_size": 3}
    sections = {"data": {"source": "sample"}, "model": {"backend": "bm25"}}
    taken = settle(as_config({"name": "t", **sections, "rerank": given}))
    assert taken.rerank.model_dump() == RERANKERS.make(backend="flag", **given).model_dump()


def test_instructions_and_the_prompt_change_scores(
    scores: Scores, reranker: Kind, plain_pairs: list[TextPair]
) -> None:
    bert, few = reranker("bert"), plain_pairs[:4]
    written = [(f"find {query}", f"text {passage}") for query, passage in few]
    expected = scores(written, backend="flag", name=bert)
    found = scores(few, backend="flag", name=bert, query_instruction="find ", passage_instruction="text ")
    assert np.abs(found - expected).max() < 1e-6
    gemma = reranker("gemma")
    other = scores(few, backend="flag", name=gemma, prompt="Is B right?")
    assert (scores(few, backend="flag", name=gemma) != other).all()


def test_a_prompt_for_an_encoder_is_refused(reranker: Kind) -> None:
    with pytest.raises(InputError, match=r"rerank\.prompt: .* encoder-only-base.*decoder-only-base"):
        resolve(RERANKERS.make(backend="flag", name=str(reranker("bert")), prompt="?")).check()


def described(source: Path, folder: Path, file: str, content: dict[str, Any]) -> Path:
    """A copy of a model, of which a file says something else."""
    path = Path(shutil.copytree(source, folder)) / file
    before = read_json(path) if path.exists() else {}
    path.write_text(json.dumps({**before, **content}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", {"id2label": {"0": "a", "1": "b", "2": "c"}}, "gives 3 values for a pair"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("sentence_bert_config.json", {"prompt": "judge"}, "prompt"),
    ],
)
def test_models_of_other_outputs_or_that_read_pairs_in_another_way_are_refused(
    file: str, content: dict[str, Any], message: str, reranker: Kind, tmp_path: Path
) -> None:
    folder = described(reranker("bert"), tmp_path / "other", file, content)
    for backend in ("flag", "openvino", "sentence-transformers"):
        with pytest.raises(InputError, match=message):
            resolve(RERANKERS.make(backend=backend, name=str(folder)))


def test_models_that_are_no_rerankers_are_refused(
    reranker: Kind, minilm_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"is a BertModel.*such as BAAI/bge-reranker-base"):
        resolve(RERANKERS.make(backend="flag", name=str(minilm_folder))).check()
    layerwise = {"architectures": ["LayerWiseMiniCPMForCausalLM"]}
    folder = described(reranker("bert"), tmp_path / "layerwise", "config.json", layerwise)
    with pytest.raises(InputError, match=r"heads of single layers.*such as BAAI/bge-reranker-v2-gemma"):
        resolve(RERANKERS.make(backend="flag", name=str(folder))).check()


def test_a_model_without_its_head_is_refused(scores: Scores, minilm_folder: Path, tmp_path: Path) -> None:
    one = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    folder = described(minilm_folder, tmp_path / "headless", "config.json", one)
    (folder / "modules.json").unlink()
    for backend in ("flag", "openvino", "sentence-transformers"):
        with pytest.raises(InputError, match=r"lack \d+ weights?, such as"):
            scores([("a", "b")], backend=backend, name=folder)

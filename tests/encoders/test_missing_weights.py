"""Weights that the files of a model lack, or hold under other names, which libraries would draw at random."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from transformers import BertConfig, BertForMaskedLM

from pipeline import InputError
from pipeline.encoders import Encoder
from pipeline.storage import Store

Opened = Callable[..., Encoder]
PREFIXES = ("_orig_mod.", "module.", "model.")
"""Of torch.compile, DataParallel, and wrapper classes such as Lightning's."""
SAFE = "model.safetensors"
Tensors = dict[str, torch.Tensor]


def copy(source: Path, folder: Path, change: Callable[[Tensors], Tensors] = dict) -> Path:
    """A copy of a model, of which the tensors in its file are changed."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    tensors = change(load_file(folder / SAFE))
    save_file(tensors, folder / SAFE, metadata={"format": "pt"})
    return folder


def prefixed(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()}


@pytest.fixture(scope="module")
def folders(
    tmp_path_factory: pytest.TempPathFactory, bge_folder: Path, m3_folder: Path, reranker: Callable[..., Path]
) -> dict[str, Path]:
    """A model of each kind, by what it gives."""
    folder = tmp_path_factory.mktemp("models")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    shutil.copytree(bge_folder, folder / "splade", ignore=shutil.ignore_patterns("*.safetensors"))
    BertForMaskedLM(BertConfig(**shape)).save_pretrained(folder / "splade")
    MultiVectorEncoder(
        modules=[Transformer(str(bge_folder)), Normalize(module_input_name="token_embeddings")], device="cpu"
    ).save(str(folder / "colbert"))
    kinds = {kind: reranker(kind) for kind in ("bert", "xlm_roberta", "gemma")}
    own = {"splade": folder / "splade", "colbert": folder / "colbert"}
    return {"XLM-R": m3_folder, **own, **kinds}


DOORS: dict[str, tuple[str, str, str]] = {
    "BGE-M3's words": ("XLM-R", "flag", "sparse"),
    "BGE-M3's tokens": ("XLM-R", "flag", "multivector"),
    "SparseEncoder": ("splade", "sentence-transformers", "sparse"),
    "MultiVectorEncoder": ("colbert", "sentence-transformers", "multivector"),
}  # fmt: skip
CASES = [(door, prefix) for door in DOORS for prefix in PREFIXES]
RERANKERS = [
    ("bert", "flag"), ("gemma", "flag"), ("bert", "sentence-transformers"),
    ("xlm_roberta", "sentence-transformers"), ("bert", "openvino"),
]  # fmt: skip


@pytest.mark.parametrize(("door", "prefix"), CASES)
def test_tensors_with_a_wrapper_s_prefix_are_refused(
    door: str, prefix: str, folders: dict[str, Path], tmp_path: Path, opened: Opened, store: Store
) -> None:
    kind, backend, output = DOORS[door]
    settings = {"backend": backend, "output": output}
    opened(store, name=folders[kind], **settings)
    folder = copy(folders[kind], tmp_path / "model", prefixed(prefix))
    with pytest.raises(InputError, match=rf"files lack \d+ weights.* hold {prefix}.*emove '{prefix}' from"):
        opened(store, name=folder, **settings)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("kind", "backend"), RERANKERS)
def test_a_reranker_s_tensors_with_a_wrapper_s_prefix_are_found_or_refused(
    kind: str, backend: str, prefix: str, folders: dict[str, Path], tmp_path: Path, scores: Callable[..., Any]
) -> None:
    """Transformers itself finds a decoder's tensors behind `model.`, a second time."""
    right = scores([("a", "b")], backend=backend, name=folders[kind])
    folder = copy(folders[kind], tmp_path / "model", prefixed(prefix))
    if (kind, prefix) == ("gemma", "model."):
        assert (scores([("a", "b")], backend=backend, name=folder) == right).all()
        return
    with pytest.raises(InputError, match=rf"files lack \d+ weights?, such as .* hold {prefix}"):
        scores([("a", "b")], backend=backend, name=folder)


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_another_file_s_tensors_do_not_stand_for_those_that_are_missing(
    backend: str, bge_folder: Path, tmp_path: Path, opened: Opened, store: Store
) -> None:
    """The layer that `model.safetensors` lacks is in a file that nothing loads."""
    folder = copy(
        bge_folder,
        tmp_path / "model",
        lambda tensors: {name: tensor for name, tensor in tensors.items() if ".layer.1.output." not in name},
    )
    shutil.copy(bge_folder / SAFE, folder / "old.safetensors")
    with pytest.raises(InputError, match=r"files lack 4 weights, such as encoder\.layer\.1\.output\."):
        opened(store, name=folder, backend=backend)


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_tokens_without_an_embedding_are_refused(
    backend: str, folders: dict[str, Path], tmp_path: Path, scores: Callable[..., Any]
) -> None:
    place = "bert.embeddings.word_embeddings.weight"
    folder = copy(
        folders["bert"], tmp_path / "model", lambda tensors: {**tensors, place: tensors[place][:1100].clone()}
    )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 1100}), encoding="utf-8")
    with pytest.raises(InputError, match=r"gives token \d+, and its weights hold rows 0 to 1099"):
        scores([("how do pilots guide ships", "they navigate")], backend=backend, name=folder)


def test_an_infinite_logit_is_no_score_of_1(
    folders: dict[str, Path], tmp_path: Path, scores: Callable[..., Any]
) -> None:
    """The sigmoid of infinity is 1, which would rank all passages alike."""
    folder = copy(
        folders["bert"],
        tmp_path / "model",
        lambda tensors: {**tensors, "classifier.bias": torch.full((1,), torch.inf)},
    )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["sentence_transformers"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InputError, match="gives pairs other scores"):
        scores([("a", "b")], backend="sentence-transformers", name=folder)

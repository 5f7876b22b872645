"""Files of which torch cannot load a model: weights that are missing, of other shapes, pickled with code."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from inside import pretend
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, NomicBertConfig, NomicBertModel

from pipeline import InputError
from pipeline.encoders import Encoder
from pipeline.storage import Store

Opened = Callable[..., Encoder]
Saved = Callable[..., Path]
SHAPE = {
    "vocab_size": 30522, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16,
}  # fmt: skip
BIN, SAFE = "pytorch_model.bin", "model.safetensors"


def test_weights_that_only_transformers_knows_by_their_name_are_there_or_missing(
    saved: Saved, opened: Opened, store: Store
) -> None:
    folder = saved(NomicBertModel(NomicBertConfig(**SHAPE)))
    opened(store, name=folder, backend="flag")
    NomicBertConfig(**{**SHAPE, "num_hidden_layers": 3}).save_pretrained(folder)
    with pytest.raises(InputError, match=r"its files lack \d+ weights, such as layers\.2\."):
        opened(store, name=folder, backend="flag")


@pytest.mark.parametrize("package", ["transformers", "FlagEmbedding"])
def test_a_library_too_old_for_this_package_is_named_before_it_fails(
    package: str, saved: Saved, opened: Opened, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, installed={package: "1.3.5"})
    message = rf"installed: {package} 1\.3\.5\. Allowed: {package}>=.*\. Run pip install '{package}>="
    with pytest.raises(InputError, match=message):
        opened(store, name=saved(BertModel(BertConfig(**SHAPE))), backend="flag")


class Evil:
    """Leaves a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


LACKING = r"its files lack \d+ weights, such as embeddings\."
PICKLED = r"are pickled .* nothing in them was run"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weight in .bin": (lambda folder: torch.save({}, folder / BIN), LACKING),
    "no weight in .safetensors": (lambda folder: save_file({}, folder / SAFE), LACKING),
    "other shapes": (
        lambda folder: BertConfig(**{**SHAPE, "hidden_size": 12}).save_pretrained(folder), "have other shapes"
    ),
    "code in .bin": (lambda folder: torch.save(Evil(folder / "mark"), folder / BIN), PICKLED),
    "code in a plain pickle": (
        lambda folder: (folder / BIN).write_bytes(pickle.dumps(Evil(folder / "mark"))), PICKLED
    ),
    "a damaged tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_bytes(b"{}"), "not a tokenizer: "
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_cannot_be_loaded_are_refused_and_no_code_in_them_runs(
    case: str, saved: Saved, opened: Opened, store: Store, recwarn: Any
) -> None:
    spoil, said = REFUSED[case]
    whole = BertModel(BertConfig(**SHAPE))
    folder = saved(whole)
    (folder / SAFE).unlink()
    torch.save(whole.state_dict(), folder / BIN)
    opened(store, name=folder, backend="flag")
    spoil(folder)
    with pytest.raises(InputError, match=said):
        opened(store, name=folder, backend="flag")
    assert not (folder / "mark").exists()
    assert not recwarn.list


@pytest.mark.parametrize(
    ("content", "said"), [(Evil(Path("mark")), PICKLED), ({}, "cannot be loaded: KeyError: 'weight'")]
)
def test_a_head_of_token_vectors_that_cannot_be_read_is_refused(
    content: object, said: str, m3_folder: Path, tmp_path: Path, opened: Opened, store: Store
) -> None:
    folder = shutil.copytree(m3_folder, tmp_path / "bge-m3")
    torch.save(content, folder / "colbert_linear.pt")
    with pytest.raises(InputError, match=said):
        opened(store, name=folder, backend="flag", output="multivector")

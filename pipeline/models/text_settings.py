"""What `sentence_bert_config.json` declares about texts: how a model's Transformer module reads them.

Sentence-transformers writes this file, and honours every key in it. Here the same keys count with every
backend: numbers of tokens are honoured, and what would change token ids or hidden states is refused. So is
an unknown key. Keys: `Transformer.config_keys` and the arguments of `Transformer.__init__`, of version 6.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Facts, Role
from pipeline.models.files import COUNT, FLAG, OBJECT, Files, JsonType

SETTINGS_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Files in which sentence-transformers looks for these settings; the first that is not empty counts."""
TASKS: dict[Role, str] = {"queries": "query", "passages": "document"}
"""The names that sentence-transformers gives to the roles."""
SCORE = "score"
"""What a reranker makes of a pair of texts, beside the outputs of `model.output`."""
GENERATION = "text-generation"
"""The task of a reranker that sentence-transformers' own `predict` runs, so that it honours all settings."""
LENGTHS = {"max_seq_length": COUNT, "query_length": COUNT, "document_length": COUNT}
CALLS = {"padding": (True, "longest"), "truncation": (True, "longest_first"), "add_special_tokens": (True,)}
"""Arguments of the tokenizer's call, with the values that every backend uses."""
TEXTS = ("common", "text")
"""The kinds of input whose arguments shape token ids; those of the others do nothing to plain texts."""
OTHERS = ("audio", "image", "video", "chat_template")
LOADING = ("attn_implementation", "dtype", "torch_dtype", "trust_remote_code")
"""Arguments for loading that shape no vector, or that the config decides."""
IS_LOADING = JsonType(", ".join(LOADING), lambda value: isinstance(value, dict) and set(value) <= {*LOADING})
NOTHING = JsonType("nothing", lambda value: False)
LOWER_CASE = "do_lower_case"
ALLOWED: dict[str, JsonType] = {
    **LENGTHS,
    LOWER_CASE: JsonType("false, or true if the tokenizer does that", lambda value: not value),
    "transformer_task": JsonType("feature-extraction", lambda value: value == "feature-extraction"),
    "modality_config": JsonType(
        "text, by forward and last_hidden_state, and no messages",
        lambda value: _is_plain_text(value, "last_hidden_state"),
    ),
    "module_output_name": JsonType("token_embeddings", lambda value: value == "token_embeddings"),
    "processing_kwargs": JsonType("a max_length of texts", lambda value: _is_plain_call(value, True)),
    "unpad_inputs": FLAG,
    "query_expansion": NOTHING,
    "tokenizer_name_or_path": NOTHING,
    **{f"{part}_args": IS_LOADING for part in ("model", "tokenizer", "config")},
    **{f"{part}_kwargs": IS_LOADING for part in ("model", "processor", "config")},
}
"""The keys with the values that backends follow, for dense vectors."""
NO_LENGTH = JsonType("what the tokenizer does without it", lambda value: _is_plain_call(value, False))
ALLOWED_FOR: dict[str, dict[str, JsonType]] = {
    "dense": {},
    "multivector": {"query_expansion": OBJECT, "processing_kwargs": NO_LENGTH},
    "sparse": {
        "transformer_task": JsonType(
            "feature-extraction or fill-mask", lambda value: value in ("feature-extraction", "fill-mask")
        ),
        "modality_config": JsonType(
            "text, by forward and last_hidden_state or logits, and no messages",
            lambda value: _is_plain_text(value, "last_hidden_state", "logits"),
        ),
    },
    SCORE: {
        "transformer_task": JsonType(
            "sequence-classification", lambda value: value == "sequence-classification"
        ),
        "modality_config": JsonType(
            "text, by forward and logits, and no messages", lambda value: _is_plain_text(value, "logits")
        ),
        "module_output_name": JsonType("scores", lambda value: value == "scores"),
        "processing_kwargs": NO_LENGTH,
    },
}
"""What differs for another output."""


def read_text_settings(files: Files, output: str, name: str, folder: str = "") -> Facts:
    """The settings of the Transformer module in `folder` of a model's files; empty if it has none.

    `output` is a key of `ALLOWED_FOR`, and `name` the model's, for messages.

    Raises:
        InputError: A key is unknown, or asks for what no backend does here.
    """
    contents = ((file, files.read_json(f"{folder}/{file}".lstrip("/"), **LENGTHS)) for file in SETTINGS_FILES)
    file, settings = next(((file, content) for file, content in contents if content), ("", Facts()))
    if output == SCORE and settings.get("transformer_task") == GENERATION:
        return settings
    known, where = {**ALLOWED, **ALLOWED_FOR[output]}, f"model '{name}': {file}"
    encode = "encode with sentence-transformers yourself, and set model.backend to precomputed"
    fix = "choose another model" if output == SCORE else encode
    for key, value in settings.items():
        if key not in known:
            raise InputError(f"{where} has an unknown key '{key}'", allowed=", ".join(known), fix=fix)
        follows = value is None or known[key].accepts(value)
        if not follows and not (key == LOWER_CASE and _lowers_case(files, folder)):
            problem = f"{where} sets {key} to {short_repr(value)}, which no backend does here"
            raise InputError(problem, allowed=f"{known[key].description}, or null", fix=fix)
    return settings


def _is_plain_text(modalities: object, *outputs: str) -> bool:
    """Whether texts go to the network's method `forward` as they are, without a chat template.

    `outputs` are names of the network's, one of which is taken.
    """
    if not isinstance(modalities, Mapping) or "message" in modalities:
        return False
    text = modalities.get("text")
    if not isinstance(text, Mapping):
        return False
    return text.get("method") == "forward" and text.get("method_output_name") in outputs


def _is_plain_call(called: object, with_length: bool) -> bool:
    """Whether arguments of the processor's call do nothing to texts that is not done here."""
    if not isinstance(called, Mapping) or not set(called) <= {*TEXTS, *OTHERS}:
        return False
    parts = [called.get(part) or {} for part in TEXTS]
    if not all(isinstance(part, Mapping) for part in parts):
        return False
    for key, value in (item for part in parts for item in part.items()):
        is_length = key == "max_length" and with_length and type(value) is int and value > 0
        if not is_length and value not in CALLS.get(key, ()):
            return False
    return True


def _lowers_case(files: Files, folder: str) -> bool:
    """Whether a model's `tokenizer.json` makes texts lower-case, so that doing it before changes nothing."""
    normalizer = files.read_json(f"{folder}/tokenizer.json".lstrip("/")).get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    return any(step.get("lowercase") is True or step.get("type") == "Lowercase" for step in steps)

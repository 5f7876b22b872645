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
OUTPUTS_OF_TASKS: dict[str, dict[str, str]] = {
    "dense": {"feature-extraction": "last_hidden_state"},
    "multivector": {"feature-extraction": "last_hidden_state"},
    "sparse": {"feature-extraction": "last_hidden_state", "fill-mask": "logits"},
    SCORE: {"sequence-classification": "logits"},
}
"""For each output the tasks that run here, with the output of the network that they take."""
GENERATION = "text-generation"
"""The task of a reranker that sentence-transformers' own `predict` runs, so that it honours all settings."""
LENGTHS = {"max_seq_length": COUNT, "query_length": COUNT, "document_length": COUNT}
LOADING = ("attn_implementation", "dtype", "torch_dtype", "trust_remote_code")
"""Arguments for loading that shape no vector, or that the config decides."""
CALLS = {"padding": (True, "longest"), "truncation": (True, "longest_first"), "add_special_tokens": (True,)}
"""Arguments of the tokenizer's call, with the values that every backend uses."""
TEXTS = ("common", "text")
"""The kinds of input whose arguments shape token ids; those of the others do nothing to plain texts."""
OTHERS = ("audio", "image", "video", "chat_template")


def read_text_settings(files: Files, output: str, name: str, folder: str = "") -> Facts:
    """The settings of the Transformer module in `folder` of a model's files; empty if it has none.

    Args:
        files: The model's.
        output: A key of `OUTPUTS_OF_TASKS`.
        name: The model's, for messages.
        folder: Relative to the model's.

    Raises:
        InputError: A key is unknown, or asks for what no backend does here.
    """
    contents = ((file, files.read_json(f"{folder}/{file}".lstrip("/"), **LENGTHS)) for file in SETTINGS_FILES)
    file, settings = next(((file, content) for file, content in contents if content), ("", Facts()))
    if output == SCORE and settings.get("transformer_task") == GENERATION:
        return settings
    tasks, with_length = OUTPUTS_OF_TASKS[output], output in ("dense", "sparse")
    module_output = "scores" if output == SCORE else "token_embeddings"
    lowers_case = bool(settings.get("do_lower_case")) and _lowers_case(files, folder)
    nothing = JsonType("nothing", lambda value: False)
    loading = JsonType(", ".join(LOADING), lambda value: isinstance(value, dict) and set(value) <= {*LOADING})
    known = {
        **LENGTHS,
        "do_lower_case": JsonType(
            "false, or true if the tokenizer does that", lambda value: not value or lowers_case
        ),
        "transformer_task": JsonType(" or ".join(tasks), lambda value: value in tasks),
        "modality_config": JsonType(
            f"text, by forward and {' or '.join(tasks.values())}, and no messages",
            lambda value: _is_plain_text(value, tasks),
        ),
        "module_output_name": JsonType(module_output, lambda value: value == module_output),
        "processing_kwargs": JsonType(
            "a max_length of texts" if with_length else "what the tokenizer does without it",
            lambda value: _is_plain_call(value, with_length),
        ),
        "unpad_inputs": FLAG,
        "query_expansion": OBJECT if output == "multivector" else nothing,
        "tokenizer_name_or_path": nothing,
        **{f"{part}_args": loading for part in ("model", "tokenizer", "config")},
        **{f"{part}_kwargs": loading for part in ("model", "processor", "config")},
    }
    fix = "choose another model"
    if output != SCORE:
        fix = "encode with sentence-transformers yourself, and set model.backend to precomputed"
    for key, value in settings.items():
        where = f"model '{name}': {file}"
        if key not in known:
            raise InputError(f"{where} has an unknown key '{key}'", allowed=", ".join(known), fix=fix)
        if value is not None and not known[key].accepts(value):
            problem = f"{where} sets {key} to {short_repr(value)}, which no backend does here"
            raise InputError(problem, allowed=f"{known[key].description}, or null", fix=fix)
    return settings


def _is_plain_text(modalities: object, tasks: Mapping[str, str]) -> bool:
    """Whether texts go to the network's method `forward` as they are, without a chat template."""
    if not isinstance(modalities, Mapping) or "message" in modalities:
        return False
    text = modalities.get("text")
    return (
        isinstance(text, Mapping)
        and text.get("method") == "forward"
        and text.get("method_output_name") in tasks.values()
    )


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

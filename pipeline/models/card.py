"""Model cards: what a model's own configuration files declare about its use; its README is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Facts
from pipeline.models.files import (
    COUNT,
    FLAG,
    INTEGER,
    LIBRARY_SETTINGS,
    OBJECT,
    POSITIVE,
    SIZE,
    TEXT,
    TEXTS,
    Files,
    JsonType,
    damaged,
)
from pipeline.models.model import ROLES, Role
from pipeline.models.text_settings import TASKS, declared_length, read_text_settings

WIDTH_PRESERVING = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Modules after which a vector has as many dimensions as the network's hidden states."""
POOLING_MODES = JsonType(
    "a text or a list of texts", lambda modes: TEXT.accepts(modes) or TEXTS.accepts(modes)
)
POSITIONS_AFTER_PADDING = ("camembert", "mpnet", "data2vec-text", "longformer", "xmod", "ibert", "lilt")
"""Model types beside RoBERTa's whose positions are counted from the padding id plus 1."""
CONFIG_TYPES = {
    "architectures": TEXTS,
    "max_position_embeddings": COUNT,
    "model_type": TEXT,
    "pad_token_id": INTEGER,
    "quantization_config": OBJECT,
    **dict.fromkeys(
        (
            "dim", "d_ff", "d_kv", "d_model", "head_dim", "hidden_dim", "hidden_size", "intermediate_size",
            "n_heads", "n_layers", "num_attention_heads", "num_heads", "num_hidden_layers",
            "num_key_value_heads", "num_layers", "vocab_size",
        ),
        POSITIVE,
    ),
}  # fmt: skip
"""Types of the fields of `config.json` that are used here, and of those from which networks are made."""
PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "queries": ("query",),
    "passages": ("document", "passage", "corpus"),
}
"""Names that models give to the prompt of a role, in the order in which they are tried."""


@dataclass(frozen=True)
class ModelCard:
    """What a model's files declare; anything they do not declare is None or empty.

    Attributes:
        modules: Class of each module, in the order they run, such as `sentence_transformers.models.Dense`.
        pooling: `cls`, `mean`, `last_token`, or another of sentence-transformers', several joined by `+`.
        pools_prompt: Whether the prompt's tokens are pooled with the text's.
        prompts: Prompt put before each text, by role; roles with an empty prompt are left out.
        max_lengths: For each role the tokens that sentence-transformers is told to keep of a text; roles for
            which it is told nothing are left out.
        similarity: What vectors are compared by, as sentence-transformers names it; or "".
        tokenizer_length: Number of tokens that the tokenizer's settings allow.
        end_tokens: The tokens that begin and end a text by the tokenizer's settings; "" for none.
        truncate_dim: Number of dimensions kept of a vector.
        activations: Name of the activation of each Dense module, such as `torch.nn.modules.activation.Tanh`.
        config: Content of `config.json`.
    """

    modules: tuple[str, ...]
    pooling: str | None
    pools_prompt: bool
    prompts: dict[Role, str]
    max_lengths: dict[Role, int]
    similarity: str
    tokenizer_length: int | None
    end_tokens: tuple[str, str]
    truncate_dim: int | None
    activations: tuple[str, ...]
    config: Facts

    @property
    def is_masked_language_model(self) -> bool:
        """Whether the network gives a number for each word of its vocabulary, at each token."""
        return any(name.endswith("ForMaskedLM") for name in self.config.get("architectures") or [])

    @property
    def module_names(self) -> list[str]:
        """The modules' class names without their package, such as `Dense`."""
        return [module.rpartition(".")[2] for module in self.modules]


def read_card(files: Files, output: str, name: str) -> ModelCard:
    """Read what a model declares; fetches small files only.

    See `read_text_settings` for `output`, `name` and what is refused.
    """
    modules = files.read_modules()
    folders = {str(entry.get("type")).rpartition(".")[2]: str(entry.get("path")) for entry in modules}
    pooling_file = folders.get("Pooling", "1_Pooling") + "/config.json"
    pooling = files.read_json(pooling_file, pooling_mode=POOLING_MODES)
    settings = files.read_json(LIBRARY_SETTINGS, truncate_dim=COUNT, similarity_fn_name=TEXT, prompts=OBJECT)
    inside = f"{files.network_folder()}/".lstrip("/")
    networks = {role: files.network_folder(task) for role, task in TASKS.items()}
    texts = {role: read_text_settings(files, output, name, folder) for role, folder in networks.items()}
    lengths = {role: declared_length(texts[role] or texts["passages"], role) for role in ROLES}
    tokenizer = files.read_json(
        inside + "tokenizer_config.json", model_max_length=SIZE, add_bos_token=FLAG, add_eos_token=FLAG
    )
    return ModelCard(
        modules=tuple(str(entry.get("type")) for entry in modules),
        pooling=_pooling(pooling, name),
        pools_prompt=pooling.get("include_prompt") is not False,
        prompts=_prompts(settings.get("prompts") or {}, name),
        max_lengths={role: length for role, length in lengths.items() if length},
        similarity=settings.get("similarity_fn_name") or "",
        end_tokens=(_end_token(tokenizer, "bos"), _end_token(tokenizer, "eos")),
        tokenizer_length=int(tokenizer.get("model_max_length") or 0) or None,
        truncate_dim=settings.get("truncate_dim") or None,
        activations=tuple(_activations(files, modules, name)),
        config=files.read_json(inside + "config.json", **CONFIG_TYPES),
    )


def max_positions(config: Facts) -> int:
    """The largest number of tokens a model has positions for, by its `config.json`; 2^30 if unlimited."""
    most = int(config.get("max_position_embeddings") or 1 << 30)
    model_type = str(config.get("model_type"))
    pad_id = config.get("pad_token_id")
    if "roberta" not in model_type and model_type not in POSITIONS_AFTER_PADDING:
        return most
    return most - (2 if pad_id is None else int(pad_id) + 1)


def _activations(files: Files, modules: list[Facts], name: str) -> Iterator[str]:
    """The activation of each Dense module that names one.

    Raises:
        InputError: Such a module takes the vector of a text before there is one.
    """
    kinds = [str(entry.get("type")).rpartition(".")[2] for entry in modules]
    pooling = kinds.index("Pooling") if "Pooling" in kinds else -1
    for place, entry in enumerate(modules):
        if kinds[place] == "Dense":
            dense = files.read_json(f"{entry.get('path')}/config.json", activation_function=TEXT)
            if place < pooling and dense.get("module_input_name") != "token_embeddings":
                raise damaged(f"model '{name}' has a Dense module for vectors of texts before its Pooling")
            if dense.get("activation_function"):
                yield dense["activation_function"]


def _end_token(settings: Facts, name: str) -> str:
    """The token `bos` or `eos` of a `tokenizer_config.json` that says to add it to texts; else ""."""
    token = settings.get(f"{name}_token") if settings.get(f"add_{name}_token") else None
    return str(token.get("content") or "") if isinstance(token, dict) else str(token or "")


def _pooling(declared: Facts, name: str) -> str | None:
    """The pooling in a Pooling module's `config.json`, in the current or an earlier layout.

    Without a mode it is the mean, as in sentence-transformers.
    """
    names = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last_token", "max_tokens": "max"}
    modes = declared.get("pooling_mode")
    prefix = "pooling_mode_"
    if modes is None:
        chosen = [key for key, on in declared.items() if key.startswith(prefix) and on is True]
        modes = [key.removeprefix(prefix) for key in chosen]
        if not modes and "pooling_mode" in declared:
            raise damaged(f"model '{name}': its Pooling module sets pooling_mode to null", "a pooling")
    modes = [modes] if isinstance(modes, str) else modes
    return "+".join(names.get(mode, mode) for mode in modes) or ("mean" if declared else None)


def _prompts(declared: Facts, name: str) -> dict[Role, str]:
    """For each role the prompt under the first of its names that is there, as sentence-transformers takes it.

    A role whose prompt is empty is left out.
    """
    for key, prompt in declared.items():
        if prompt is not None and not isinstance(prompt, str):
            raise damaged(f"model '{name}': the prompt '{key}' is {short_repr(prompt)}", "a text")
    prompts = {
        role: next((declared[key] for key in names if declared.get(key) is not None), "")
        for role, names in PROMPT_NAMES.items()
    }
    return {role: prompt for role, prompt in prompts.items() if prompt}


RELEVANT = "Represent this sentence for searching relevant passages:"
WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
INSTRUCT = "Instruct: {}\nQuery: {}"


@dataclass(frozen=True)
class Family:
    """How the models of a family are used.

    Attributes:
        pattern: Regular expression for the whole model name without its owner; case is ignored.
        pooling: Pooling of a model that does not declare one.
        query_instruction: Instruction for queries.
        query_format: How instruction and query are joined, as FlagEmbedding's `query_instruction_format`.
        passage_instruction: Instruction for passages.
        max_length: Number of tokens the model was trained for, if it has positions for more.
        bidirectional: Whether it is a decoder trained with bidirectional attention.
    """

    pattern: str
    pooling: str
    query_instruction: str = ""
    query_format: str = "{}{}"
    passage_instruction: str = ""
    max_length: int | None = None
    bidirectional: bool = False


FAMILIES = (
    Family(r"bge-(small|base|large)-en(-v1\.5)?", "cls", RELEVANT),
    Family(r"bge-(small|base|large)-zh(-v1\.5)?", "cls", "为这个句子生成表示以用于检索相关文章："),
    Family(r"bge-m3", "cls"),
    Family(r"bge-multilingual-gemma2", "last_token", WEB_SEARCH + ".", "<instruct>{}\n<query>{}"),
    Family(r"bge-en-icl", "last_token", WEB_SEARCH + ".", "<instruct>{}\n<query>{}\n<response>"),
    Family(
        r"(multilingual-)?e5-(small|base|large)(-v2)?", "mean", "query: ", passage_instruction="passage: "
    ),
    Family(r"multilingual-e5-large-instruct", "mean", WEB_SEARCH, INSTRUCT),
    Family(r"e5-mistral-7b-instruct", "last_token", WEB_SEARCH, INSTRUCT, max_length=4096),
    Family(r"gte-(small|base|large)", "mean"),
    Family(r"gte-(small|base|large)-zh|gte-(base|large)-en-v1\.5|gte-multilingual-base", "cls"),
    Family(r"gte-qwen2-(1\.5|7)b-instruct", "last_token", WEB_SEARCH, INSTRUCT, bidirectional=True),
    Family(r"qwen3-embedding-(0\.6|4|8)b", "last_token", WEB_SEARCH, "Instruct: {}\nQuery:{}"),
    Family(r"nomic-embed-text-v(1|1\.5)", "mean", "search_query: ", passage_instruction="search_document: "),
    Family(r"mxbai-embed-large-v1", "cls", RELEVANT + " "),
    Family(r"snowflake-arctic-embed-(xs|s|m|l|m-long|m-v1\.5)", "cls", RELEVANT + " "),
    Family(r"snowflake-arctic-embed-(m|l)-v2\.0", "cls", "query: "),
    Family(r"jina-embeddings-v2-(small|base)-\w+", "mean"),
)


def family_of(name: str) -> Family | None:
    """The family of a model, by its hub id, folder or snapshot in the hub cache; or None."""
    cached = re.search(r"models--[^/]+?--([^/]+)/snapshots", name)
    short = cached.group(1) if cached else Path(name).name
    return next((known for known in FAMILIES if re.fullmatch(known.pattern, short, re.IGNORECASE)), None)


def prompt_parts(template: str, instruction: str) -> tuple[str, str]:
    """The strings before and after a text in FlagEmbedding's `template.format(instruction, text)`."""
    if not instruction:
        return "", ""
    before, between, after = template.split("{}", 2)
    return before + instruction + between, after


STANFORD = "artifact.metadata"
"""The file of Stanford's ColBERT."""
STANFORD_MARKERS: dict[Role, str] = {"queries": "[unused0]", "passages": "[unused1]"}
EXPANDED = 32
"""Tokens that a query is expanded to unless a model declares another number."""


@dataclass(frozen=True)
class LateInteraction:
    """What the files of a ColBERT-like model declare, in one of three layouts.

    They are those of sentence-transformers' `MultiVectorEncoder`, of PyLate and of Stanford's ColBERT.
    Sentence-transformers reads all of them; they are read here because artifact keys are made before a model
    is loaded, and a backend checks that it found the same.

    Attributes:
        prompts: Marker and prompt put before each text, by role.
        max_lengths: Number of tokens kept of a text, by role; roles for which none is declared are left out.
        mean: Whether a score is the mean over a query's tokens, not the sum.
    """

    prompts: dict[Role, str]
    max_lengths: dict[Role, int]
    mean: bool


def read_late_interaction(files: Files, name: str) -> LateInteraction:
    """Read what a ColBERT-like model declares; any other model is refused.

    Sentence-transformers would load another model too, with a projection of random weights.
    """
    settings = files.read_json(
        LIBRARY_SETTINGS,
        model_type=TEXT,
        prompts=OBJECT,
        query_prefix=TEXT,
        document_prefix=TEXT,
        query_length=COUNT,
        document_length=COUNT,
    )
    # an early version of PyLate wrote no model type; without a projection, random weights are added
    projects = any(str(module.get("type")).endswith(".Dense") for module in files.read_modules())
    by_library = settings.get("model_type") in ("MultiVectorEncoder", "ColBERT") or (
        "query_prefix" in settings and projects
    )
    architectures = files.read_json("config.json", architectures=TEXTS).get("architectures") or []
    if not by_library and "HF_ColBERT" not in architectures:
        raise InputError(
            f"model '{name}' is not a multi-vector model: its files do not define a vector for each token",
            allowed="a model of sentence-transformers' MultiVectorEncoder, of PyLate or of Stanford's "
            "ColBERT; with backend flag BGE-M3",
            fix="choose another model, or set model.output: dense",
        )
    if not by_library:
        return _stanford(files)
    of_module = read_text_settings(files, "multivector", name)
    return LateInteraction(
        prompts={role: _prompt(settings, task) for role, task in TASKS.items()},
        max_lengths=_lengths(settings, of_module),
        mean=settings.get("similarity_fn_name") == "meanmaxsim",
    )


def _prompt(settings: Facts, task: str) -> str:
    """A role's marker, PyLate's `prefix`, and prompt."""
    prefix = settings.get(f"{task}_prefix") or ""
    prompt = str((settings.get("prompts") or {}).get(task) or "")
    return prefix + prompt.removeprefix(prefix)


def _lengths(settings: Facts, of_module: Facts) -> dict[Role, int]:
    """Tokens kept by role; `of_module` are the settings of the Transformer module, which count first.

    A query that is expanded to a fixed length is cut there; one with a least length, not before it.
    """
    lengths = {
        role: of_module.get(f"{task}_length") or settings.get(f"{task}_length")
        for role, task in TASKS.items()
    }
    expansion = of_module["query_expansion"] if "query_expansion" in of_module else _expansion(settings)
    if isinstance(expansion, dict):
        length = int(expansion.get("length") or EXPANDED)
        shortest = expansion.get("strategy") == "min"
        lengths["queries"] = (
            (max(lengths["queries"], length) if lengths["queries"] else None) if shortest else length
        )
    return {role: int(length) for role, length in lengths.items() if length}


def _expansion(settings: Facts) -> object:
    """How PyLate's settings expand queries; None if they are no such settings, or say not to."""
    if "query_expansion" in settings:
        return settings["query_expansion"]
    marks = ("query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
             "attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words")  # fmt: skip
    if not any(mark in settings for mark in marks) or settings.get("do_query_expansion") is False:
        return None
    return {"strategy": "fixed", "length": settings.get("query_length")}


def _stanford(files: Files) -> LateInteraction:
    """What Stanford's ColBERT declares."""
    metadata = files.read_json(
        STANFORD, query_token_id=TEXT, doc_token_id=TEXT, query_maxlen=COUNT, doc_maxlen=COUNT
    )
    markers = {"queries": metadata.get("query_token_id"), "passages": metadata.get("doc_token_id")}
    lengths: dict[Role, int] = {"queries": metadata.get("query_maxlen") or EXPANDED}
    if metadata.get("doc_maxlen"):
        lengths["passages"] = metadata["doc_maxlen"]
    prompts: dict[Role, str] = {role: f"{markers[role] or STANFORD_MARKERS[role]} " for role in ROLES}
    return LateInteraction(prompts, lengths, mean=False)

"""Model cards: what a model's own files declare about its use; its README is not read.

A folder is read once, by `read_card`. Backends, chunks, keys and reports ask the card, and open no file of
the folder but weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import ROLES, Facts, Role
from pipeline.models.files import (
    COUNT,
    FLAG,
    HEADS,
    INTEGER,
    LIBRARY_SETTINGS,
    OBJECT,
    SIZE,
    STANFORD,
    STATIC,
    TEXT,
    TEXTS,
    WORD_HEAD,
    Files,
    JsonType,
    damaged,
)
from pipeline.models.text_settings import TASKS, read_text_settings

WIDTH_PRESERVING = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Modules after which a vector has as many dimensions as the network's hidden states."""
POOLING_MODES = JsonType(
    "a text or a list of texts", lambda modes: TEXT.accepts(modes) or TEXTS.accepts(modes)
)
POSITIONS_AFTER_PADDING = ("camembert", "mpnet", "data2vec-text", "longformer", "xmod", "ibert", "lilt")
"""Model types beside RoBERTa's whose positions are counted from the padding id plus 1."""
CONFIG_TYPES = {
    "architectures": TEXTS,
    "auto_map": OBJECT,
    "lora_adaptations": TEXTS,
    "max_position_embeddings": COUNT,
    "model_type": TEXT,
    "pad_token_id": INTEGER,
    "quantization_config": OBJECT,
}
"""Types of the fields of `config.json` that are used here."""
SETTINGS_TYPES = {
    "truncate_dim": COUNT, "similarity_fn_name": TEXT, "prompts": OBJECT, "model_type": TEXT,
    "query_prefix": TEXT, "document_prefix": TEXT, "query_length": COUNT, "document_length": COUNT,
}  # fmt: skip
STANFORD_TYPES = {"query_token_id": TEXT, "doc_token_id": TEXT, "query_maxlen": COUNT, "doc_maxlen": COUNT}
DECLARING = (
    "modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
"""Files that say how a model is used, in the model's folder or in that of its network."""
PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "queries": ("query", "retrieval.query", "Retrieval-query", "s2p_query"),
    "passages": ("document", "passage", "corpus", "retrieval.passage", "Retrieval-document"),
}
"""Names that models give to the prompt of a role, in the order in which they are tried: those that
sentence-transformers looks for, then those in the files of jina-v3, EmbeddingGemma and stella."""


TASK_ADAPTERS: dict[Role, str] = {"queries": "retrieval.query", "passages": "retrieval.passage"}
"""Names in `lora_adaptations` of a `config.json`, as of jina-v3."""


class Module(NamedTuple):
    """A module that sentence-transformers runs."""

    name: str  # of its class, such as `sentence_transformers.models.Dense`
    kind: str  # the class without its package, such as `Dense`
    folder: str  # inside the model's
    config: Facts  # content of its `config.json`


@dataclass(frozen=True)
class ModelCard:
    """What a model's files declare; anything they do not declare is None or empty."""

    modules: tuple[Module, ...]  # those that sentence-transformers runs, in their order
    module_names: list[str]  # their `kind`s
    # For each role the class of the module that its texts go to first, and the folder, inside the model's,
    # that has its tokenizer.
    routes: dict[Role, tuple[str, str]]
    network_folder: str  # the folder of the network, inside the model's; "" for its own
    heads: tuple[str, ...]  # the files of other outputs than dense vectors that are there
    # `cls`, `mean`, `last_token`, or another of sentence-transformers', several joined by `+`.
    pooling: str | None
    pools_prompt: bool  # whether the prompt's tokens are pooled with the text's
    prompts: dict[Role, str]  # prompt put before each text, by role; roles with an empty prompt are left out
    similarity: str  # what vectors are compared by, as sentence-transformers names it; or ""
    tokenizer_length: int | None  # number of tokens that the tokenizer's settings allow
    tokenizer_class: str | None  # the class that the tokenizer's settings name
    has_chat_template: bool  # whether texts can be put into a template of a conversation
    # The tokens that begin and end a text by the tokenizer's settings; "" for none.
    end_tokens: tuple[str, str]
    truncate_dim: int | None  # number of dimensions kept of a vector
    config: Facts  # content of `config.json`
    architectures: list[str]  # the network's classes in transformers, or in Python files of the model's own
    is_masked_language_model: bool  # whether the network gives a number for each word, at each token
    own_code: list[str]  # the classes of Python files in the folder that `config.json` names; sorted
    # For each role the number of its adapter in jina-v3's Python files; empty for other models.
    task_adapters: dict[Role, int]
    pad_id: int  # the id of the padding token; 0 where none is named
    settings: Facts  # content of `config_sentence_transformers.json`
    texts: dict[Role, Facts]  # for each role settings of the Transformer module that its texts go to
    stanford: Facts  # content of `artifact.metadata`
    absent: tuple[str, ...]  # files that would say how the model is used, and are not there

    @property
    def has_m3_heads(self) -> bool:
        """Whether FlagEmbedding reads word weights and token vectors from the files, as of BGE-M3."""
        return WORD_HEAD in self.heads


def read_card(files: Files, output: str, name: str) -> ModelCard:
    """Read what a model declares; fetches small files only.

    See `read_text_settings` for `output` and `name`. Quantized weights are refused: they need other packages,
    and choose the precision themselves.

    Raises:
        InputError: The files are damaged, or ask for what no backend does.
    """
    folder, modules = files.small_files, tuple(_modules(files, name))
    folders = {module.kind: module.folder for module in modules}
    pooling_file = folders.get("Pooling", "1_Pooling") + "/config.json"
    pooling = files.read_json(pooling_file, pooling_mode=POOLING_MODES)
    settings = files.read_json(LIBRARY_SETTINGS, **SETTINGS_TYPES)
    routes = {role: files.text_module(task) for role, task in TASKS.items()}
    networks = {role: "" if kind in STATIC else folder for role, (kind, folder) in routes.items()}
    inside = f"{networks['passages']}/".lstrip("/")
    config = files.read_json(inside + "config.json", **CONFIG_TYPES)
    quantized = config.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method", "a method that it does not name")
        raise InputError(
            f"the weights of model '{name}' are quantized, by {short_repr(method)}",
            allowed="weights in fp32, fp16 or bf16",
            fix="take the model that it was quantized from, and set its precision",
        )
    architectures = config.get("architectures") or []
    adapters = config.get("lora_adaptations") or []
    own_code = (config.get("auto_map") or {}).values()
    texts = {role: read_text_settings(files, output, name, folder) for role, folder in networks.items()}
    tokenizer = files.read_json(
        inside + "tokenizer_config.json", model_max_length=SIZE, add_bos_token=FLAG, add_eos_token=FLAG
    )
    end_tokens = []
    for end in ("bos", "eos"):
        token = tokenizer.get(f"{end}_token") if tokenizer.get(f"add_{end}_token") else ""
        end_tokens.append(str((token.get("content") if isinstance(token, dict) else token) or ""))
    return ModelCard(
        modules=modules,
        module_names=[module.kind for module in modules],
        routes=routes,
        network_folder=networks["passages"],
        heads=tuple(head for head in HEADS if (folder / head).is_file()),
        pooling=_pooling(pooling, name),
        pools_prompt=pooling.get("include_prompt") is not False,
        prompts=_prompts(settings.get("prompts") or {}, name),
        similarity=settings.get("similarity_fn_name") or "",
        tokenizer_class=tokenizer.get("tokenizer_class"),
        has_chat_template=(folder / "chat_template.jinja").is_file() or bool(tokenizer.get("chat_template")),
        end_tokens=(end_tokens[0], end_tokens[1]),
        tokenizer_length=int(tokenizer.get("model_max_length") or 0) or None,
        truncate_dim=settings.get("truncate_dim") or None,
        config=config,
        architectures=architectures,
        is_masked_language_model=any(each.endswith("ForMaskedLM") for each in architectures),
        own_code=sorted(each for each in own_code if isinstance(each, str)),
        task_adapters={
            role: adapters.index(each) for role, each in TASK_ADAPTERS.items() if each in adapters
        },
        pad_id=max(int(config.get("pad_token_id") or 0), 0),
        settings=settings,
        texts=texts,
        stanford=files.read_json(STANFORD, **STANFORD_TYPES),
        absent=tuple(
            path for path in DECLARING if not any((folder / at / path).is_file() for at in ("", inside))
        ),
    )


UNLIMITED = 1 << 30
"""The positions of a model without such a limit."""


def max_positions(config: Facts) -> int:
    """The largest number of tokens a model has positions for, by its `config.json`."""
    most = int(config.get("max_position_embeddings") or UNLIMITED)
    model_type = str(config.get("model_type"))
    pad_id = config.get("pad_token_id")
    if "roberta" not in model_type and model_type not in POSITIONS_AFTER_PADDING:
        return most
    return most - (2 if pad_id is None else int(pad_id) + 1)


def _modules(files: Files, name: str) -> Iterator[Module]:
    """The modules with their settings.

    Raises:
        InputError: A Dense module takes the vector of a text before there is one.
    """
    entries = files.read_modules()
    classes = [str(entry.get("type")) for entry in entries]
    kinds = [each.rpartition(".")[2] for each in classes]
    pooling = kinds.index("Pooling") if "Pooling" in kinds else -1
    for place, (kind, entry) in enumerate(zip(kinds, entries, strict=True)):
        folder = str(entry.get("path") or "")
        types = {"activation_function": TEXT} if kind == "Dense" else {}
        config = files.read_json(f"{folder}/config.json", **types) if folder else Facts()
        if kind == "Dense" and place < pooling and config.get("module_input_name") != "token_embeddings":
            raise damaged(f"model '{name}' has a Dense module for vectors of texts before its Pooling")
        yield Module(classes[place], kind, folder, config)


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
GRIT = "<|user|>\n{}\n<|embed|>\n{}"
"""Of GritLM, and of ReasonIR, which was trained by its code."""
JAPANESE_WEB_SEARCH = "クエリを与えるので、与えられたWeb検索クエリに答える関連文章を検索してください。"


@dataclass(frozen=True)
class Family:
    """How the models of a family are used."""

    pattern: str  # regular expression for the whole model name without its owner; case is ignored
    pooling: str  # pooling of a model that does not declare one
    query_instruction: str = ""  # instruction for queries
    # How instruction and query are joined, as FlagEmbedding's `query_instruction_format`.
    query_format: str = "{}{}"
    passage_instruction: str = ""  # instruction for passages
    max_length: int | None = None  # number of tokens the model was trained for, if it has positions for more
    bidirectional: bool = False  # whether it is a decoder trained with bidirectional attention
    pools_prompt: bool = True  # whether the tokens of instructions are pooled with the text's


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
    Family(
        r"jina-embeddings-v3(-hf)?",
        "mean",
        "Represent the query for retrieving evidence documents: ",
        passage_instruction="Represent the document for retrieval: ",
    ),
    Family(r"jina-embeddings-v4.*", "mean", "Query: ", passage_instruction="Passage: "),
    Family(
        r"embeddinggemma-.+",
        "mean",
        "task: search result | query: ",
        passage_instruction="title: none | text: ",
    ),
    Family(r"stella_en_(400m|1\.5b)_v5", "mean", WEB_SEARCH + ".", INSTRUCT),
    Family(
        r"gritlm-(7b|8x7b)|reasonir-8b",
        "mean",
        WEB_SEARCH,
        GRIT,
        "<|embed|>\n",
        bidirectional=True,
        pools_prompt=False,
    ),
    Family(r"sarashina-embedding-v2-1b", "last_token", JAPANESE_WEB_SEARCH, "task: {}\nquery: {}", "text: "),
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


STANFORD_MARKERS: dict[Role, str] = {"queries": "[unused0]", "passages": "[unused1]"}
EXPANDED = 32
"""Tokens that a query is expanded to unless a model declares another number."""


@dataclass(frozen=True)
class LateInteraction:
    """What the files of a ColBERT-like model declare, in one of three layouts.

    They are those of sentence-transformers' `MultiVectorEncoder`, of PyLate and of Stanford's ColBERT.
    Sentence-transformers reads all of them. Artifact keys are made before a model is loaded; a backend checks
    that the library found the same.
    """

    prompts: dict[Role, str]  # marker and prompt put before each text, by role
    # Number of tokens kept of a text, by role; roles for which none is declared are left out.
    max_lengths: dict[Role, int]
    mean: bool  # whether a score is the mean over a query's tokens, not the sum


def late_interaction(card: ModelCard, name: str) -> LateInteraction:
    """What a ColBERT-like model declares; any other model is refused.

    Sentence-transformers would load another model too, with a projection of random weights.
    """
    settings = card.settings
    # an early version of PyLate wrote no model type; without a projection, random weights are added
    by_library = settings.get("model_type") in ("MultiVectorEncoder", "ColBERT") or (
        "query_prefix" in settings and "Dense" in card.module_names
    )
    if not by_library and "HF_ColBERT" not in card.architectures:
        raise InputError(
            f"model '{name}' is not a multi-vector model: its files do not define a vector for each token",
            allowed="a model of sentence-transformers' MultiVectorEncoder, of PyLate or of Stanford's "
            "ColBERT; with backend flag BGE-M3",
            fix="choose another model, or set model.output: dense",
        )
    if not by_library:
        return _stanford(card.stanford)
    return LateInteraction(
        prompts={role: _prompt(settings, task) for role, task in TASKS.items()},
        max_lengths=_lengths(settings, card.texts["passages"]),
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


def _stanford(metadata: Facts) -> LateInteraction:
    """What Stanford's ColBERT declares."""
    markers = {"queries": metadata.get("query_token_id"), "passages": metadata.get("doc_token_id")}
    lengths: dict[Role, int] = {"queries": metadata.get("query_maxlen") or EXPANDED}
    if metadata.get("doc_maxlen"):
        lengths["passages"] = metadata["doc_maxlen"]
    prompts: dict[Role, str] = {role: f"{markers[role] or STANFORD_MARKERS[role]} " for role in ROLES}
    return LateInteraction(prompts, lengths, mean=False)

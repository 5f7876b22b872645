"""Model cards: what a model's own files declare about its use; its README is not read.

A folder is read once, by `read_card`. Backends, chunks, keys and reports ask the card, and open no file of
the folder but weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Facts, Role
from pipeline.models.files import (
    COUNT,
    FLAG,
    HEADS,
    INTEGER,
    LIBRARY_SETTINGS,
    MODULES,
    OBJECT,
    SIZE,
    STANFORD,
    TEXT,
    TEXTS,
    WORD_HEAD,
    Files,
    JsonType,
    damaged,
)
from pipeline.models.text_settings import TASKS, read_text_settings

STATIC = ("StaticEmbedding", "SparseStaticEmbedding")
"""Modules that look words up, and have no network: their texts have no special tokens."""
NETWORKS = ("Transformer", "MLMTransformer")
"""Modules that are a network of transformers."""
MODES = JsonType("a text or a list of texts", lambda modes: TEXT.accepts(modes) or TEXTS.accepts(modes))
MODULE_TYPES = {"Dense": {"activation_function": TEXT}, "Pooling": {"pooling_mode": MODES}}
"""Types of the settings that are used here, by the kind of module."""
WIDTH_PRESERVING = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Modules after which a vector has as many dimensions as the network's hidden states."""
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
TOKENIZER_TYPES = {"model_max_length": SIZE, "add_bos_token": FLAG, "add_eos_token": FLAG}
STANFORD_TYPES = {"query_token_id": TEXT, "doc_token_id": TEXT, "query_maxlen": COUNT, "doc_maxlen": COUNT}
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
    # for each role the kind of the module that its texts go to first, and the folder of its tokenizer
    routes: dict[Role, tuple[str, str]]
    network_folder: str  # the folder of the network, inside the model's; "" for its own
    heads: tuple[str, ...]  # the files of other outputs than dense vectors that are there
    pooling: str | None  # `cls`, `mean`, `last_token` or another of sentence-transformers', joined by `+`
    pools_prompt: bool  # whether the prompt's tokens are pooled with the text's
    similarity: str  # what vectors are compared by, as sentence-transformers names it; or ""
    tokenizer: Facts  # content of `tokenizer_config.json`
    tokenizer_length: int | None  # number of tokens that it allows
    has_chat_template: bool  # whether texts can be put into a template of a conversation
    config: Facts  # content of `config.json`
    width: int | None  # the network's width, if no module changes it
    architectures: list[str]  # the network's classes in transformers, or in Python files of the model's own
    is_masked_language_model: bool  # whether the network gives a number for each word, at each token
    own_code: list[str]  # the classes of Python files in the folder that `config.json` names; sorted
    task_adapters: dict[Role, int]  # for each role the number of its adapter in jina-v3's code; else empty
    pad_id: int  # the id of the padding token; 0 where none is named
    settings: Facts  # content of `config_sentence_transformers.json`
    texts: dict[Role, Facts]  # for each role settings of the Transformer module that its texts go to
    stanford: Facts  # content of `artifact.metadata`

    @property
    def has_m3_heads(self) -> bool:
        """Whether FlagEmbedding reads word weights and token vectors from the files, as of BGE-M3."""
        return WORD_HEAD in self.heads

    @property
    def end_tokens(self) -> tuple[str, str]:
        """The tokens that begin and end a text by the tokenizer's settings; "" for none."""
        settings, tokens = self.tokenizer, []
        for end in ("bos", "eos"):
            token = settings.get(f"{end}_token") if settings.get(f"add_{end}_token") else ""
            tokens.append(str((token.get("content") if isinstance(token, dict) else token) or ""))
        return tokens[0], tokens[1]


def read_card(files: Files, output: str, name: str) -> ModelCard:
    """Read what a model's small files declare; see `read_text_settings` for `output` and `name`.

    Raises:
        InputError: The files are damaged, or ask for what no backend does.
    """
    modules, routes = read_modules(files, name)
    networks = {role: "" if kind in STATIC else folder for role, (kind, folder) in routes.items()}
    inside = f"{networks['passages']}/".lstrip("/")
    pooling = {module.kind: module.config for module in modules}.get("Pooling")
    if pooling is None:
        pooling = files.read_json("1_Pooling/config.json", **MODULE_TYPES["Pooling"])
    settings = files.read_json(LIBRARY_SETTINGS, **SETTINGS_TYPES)
    config = files.read_json(inside + "config.json", **CONFIG_TYPES)
    if config.get("quantization_config") is not None:
        raise _quantized(config["quantization_config"], name)
    texts = {at: read_text_settings(files, output, name, at) for at in dict.fromkeys(networks.values())}
    tokenizer = files.read_json(inside + "tokenizer_config.json", **TOKENIZER_TYPES)
    template = (files.small_files / "chat_template.jinja").is_file() or tokenizer.get("chat_template")
    architectures, own_code = config.get("architectures") or [], (config.get("auto_map") or {}).values()
    tasks, width = config.get("lora_adaptations") or [], config.get("hidden_size")
    kinds = [module.kind for module in modules]
    return ModelCard(
        modules=modules,
        module_names=kinds,
        routes=routes,
        network_folder=networks["passages"],
        heads=tuple(head for head in HEADS if (files.small_files / head).is_file()),
        pooling=_pooling(pooling, name),
        pools_prompt=pooling.get("include_prompt") is not False,
        similarity=settings.get("similarity_fn_name") or "",
        tokenizer=tokenizer,
        tokenizer_length=int(tokenizer.get("model_max_length") or 0) or None,
        has_chat_template=bool(template),
        config=config,
        width=width if isinstance(width, int) and {*kinds} <= {*WIDTH_PRESERVING} else None,
        architectures=architectures,
        is_masked_language_model=any(each.endswith("ForMaskedLM") for each in architectures),
        own_code=sorted(each for each in own_code if isinstance(each, str)),
        task_adapters={role: tasks.index(each) for role, each in TASK_ADAPTERS.items() if each in tasks},
        pad_id=max(int(config.get("pad_token_id") or 0), 0),
        settings=settings,
        texts={role: texts[at] for role, at in networks.items()},
        stanford=files.read_json(STANFORD, **STANFORD_TYPES),
    )


def _quantized(declared: Facts, name: str) -> InputError:
    """The error for weights that need other packages, and choose the precision themselves."""
    method = declared.get("quant_method", "a method that it does not name")
    return InputError(
        f"the weights of model '{name}' are quantized, by {short_repr(method)}",
        allowed="weights in fp32, fp16 or bf16",
        fix="take the model that it was quantized from, and set its precision",
    )


def read_modules(files: Files, name: str) -> tuple[tuple[Module, ...], dict[Role, tuple[str, str]]]:
    """The modules, and for each role the kind of the one that its texts go to first, with a folder.

    The folder has this module's tokenizer, and is "" for the model's own. It is another one where a Router
    leads queries and passages to different modules, and in old models, whose Transformer has a folder.

    Raises:
        InputError: The files are damaged, or a Dense module takes the vector of a text before there is one.
    """
    modules: list[Module] = []
    for entry in files.read_json("modules.json", MODULES):
        class_name, folder = str(entry.get("type")), str(entry.get("path") or "")
        kind = class_name.rpartition(".")[2]
        config = files.read_json(f"{folder}/config.json", **MODULE_TYPES.get(kind, {})) if folder else Facts()
        modules.append(Module(class_name, kind, folder, config))
    kinds = [module.kind for module in modules]
    pooling = kinds.index("Pooling") if "Pooling" in kinds else 0
    for module in modules[:pooling]:
        if module.kind == "Dense" and module.config.get("module_input_name") != "token_embeddings":
            raise damaged(f"model '{name}' has a Dense module for vectors of texts before its Pooling")
    kind, folder = (modules[0].kind, modules[0].folder) if modules else ("", "")
    is_network = kind in NETWORKS and (files.small_files / folder / "config.json").is_file()
    routes = dict.fromkeys(TASKS, (kind, folder if is_network or kind in STATIC else ""))
    router = files.read_json("router_config.json", structure=OBJECT, types=OBJECT)
    for role, task in TASKS.items():
        if modules_of_role := (router.get("structure") or {}).get(task):
            folder = str(modules_of_role[0])
            routes[role] = str((router.get("types") or {}).get(folder)).rpartition(".")[2], folder
    return tuple(modules), routes


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
    # How instruction and query are joined, as FlagEmbedding formats them.
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

"""The wall: a line for each model folder, with the backends that run it and what the others say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from models.wall.folders import (
    DROPOUT,
    NORMALIZE,
    Make,
    Module,
    as_bin,
    colbert,
    dense,
    end_token_by_settings,
    inference_free,
    layer_norm,
    lose,
    m3,
    move_network,
    new_names,
    pooling,
    prefix,
    put,
    pylate,
    set_json,
    sharded,
    splade,
    stanford,
    static,
    store_as,
    tensors,
)

BACKENDS = {"f": "flag", "s": "sentence-transformers", "o": "openvino", "n": "native"}


def _nothing(folder: Path) -> None:
    pass


@dataclass(frozen=True)
class Case:
    """A model folder.

    Attributes:
        title: What is special about it; the table in the documentation has what is before a colon.
        runs: The first letters of the backends that run it.
        refused: What the others say, a regular expression; by letter, or for all.
        network: A key of `NETWORKS`.
        chain: The modules after the network; None writes no `modules.json`.
        edit: Changes the folder, also for the reference.
        spoil: Changes it for the backends alone, which must give the vectors of the unchanged folder.
        settings: Of the section `model`.
        name: The folder's name.
        names: Gives a module's class its full name.
        output: As `model.output`.
        head: The end of the network's class.
        make: Fills the folder instead of a copy of the network with `chain`.
        empty: Whether an empty text is encoded, too.
        report: The public report that it rebuilds.
    """

    title: str
    runs: str = "fson"
    refused: str | Mapping[str, str] = ""
    network: str = "shallow BERT"
    chain: tuple[Module, ...] | None = (pooling("mean"), NORMALIZE)
    edit: Callable[[Path], None] = _nothing
    spoil: Callable[[Path], None] = _nothing
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = "model"
    names: Callable[[str], str] | None = None
    output: str = "dense"
    head: str = "Model"
    make: Make | None = None
    empty: bool = True
    report: str = ""

    @property
    def kind(self) -> str:
        """The title without what varies in the cases of one kind."""
        return self.title.partition(":")[0]

    @property
    def reason(self) -> str:
        """Why backends refuse it, in words for the documentation."""
        return WORDS.get(str(self.refused), "")


CLS, MEAN, LAST = (pooling(mode) for mode in ("cls", "mean", "last"))
MODULE = r"has a module (Dense|LayerNorm|StaticEmbedding), which"
LACK = r"its files lack \d+ weights"
CONVERSION = r"cannot be (converted|packed)"
POOLING = "declares pooling"
FOLDER = "in its folder 0_Transformer"
T5_DECODER = "encoder alone"
FILE = r"model-00001|no file (named|with weights)|lack"
TOKENS = "by its tokenizer.json"
WORDS = {
    MODULE: "they would leave the module out",
    LACK: "weights would be random",
    CONVERSION: "they cannot convert it",
    POOLING: "they have no such pooling",
    FOLDER: "they do not look there",
    T5_DECODER: "they would run the decoder",
    FILE: "weights would be random",
    TOKENS: "libraries would read other tokens",
    "in an order that backend": "they pool once",
}
"""Reasons in words, by what is said."""
PREFIXES = ("_orig_mod.", "module.", "model.", "0.auto_model.", "base_model.model.", "encoder.bert.", "net.")
ENCODERS = ("BERT", "RoBERTa", "XLM-R", "DistilBERT", "MPNet", "NomicBERT", "GTE", "ModernBERT")
OTHER_ENCODERS = ("CamemBERT", "ALBERT", "ELECTRA", "DeBERTa-v2", "ERNIE", "EuroBERT")
FURTHER_ENCODERS = ("MegatronBERT", "RemBERT", "RoFormer", "Data2Vec", "XLM-R-XL", "BigBird")
DECODERS = ("Qwen2", "Qwen3", "Mistral", "Llama", "Gemma2", "Gemma3")
FURTHER_DECODERS = ("OPT", "GPT-NeoX", "Olmo2", "Granite", "SmolLM3")
PROMPTS = "config_sentence_transformers.json"


def _without_first_shard(folder: Path) -> None:
    sharded(folder)
    next(folder.glob("model-00001*")).unlink()


def _in_half_alone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")


def _with_cut_head(folder: Path) -> None:
    head = folder / "sparse_linear.pt"
    head.write_bytes(head.read_bytes()[: head.stat().st_size // 2])


def _with_narrow_head(folder: Path) -> None:
    torch.save(torch.nn.Linear(32, 1).state_dict(), folder / "sparse_linear.pt")


def _with_wrong_positions(folder: Path) -> None:
    """Add the buffer that old versions saved, with numbers beyond the embeddings."""
    numbers = torch.full((1, 128), 10**12)
    tensors(folder, lambda all_: {**all_, "embeddings.position_ids": numbers})


WALL = (
    # architecture x pooling
    *(Case(f"{network}: mean", network=network) for network in ENCODERS),
    *(Case(f"{network}: CLS", network=network, chain=(CLS, NORMALIZE)) for network in ENCODERS),
    *(Case(f"{network}: last token", network=network, chain=(LAST,)) for network in ("BERT", "ModernBERT")),
    *(
        Case(f"{network}: mean", "fso", CONVERSION, network=network)
        for network in (*OTHER_ENCODERS, *FURTHER_ENCODERS)
    ),
    *(
        Case(f"{network}: CLS", "fso", CONVERSION, network=network, chain=(CLS,))
        for network in ("CamemBERT", "DeBERTa-v2")
    ),
    *(
        Case(f"{network}: last token", "fs", CONVERSION, network=network, chain=(LAST, NORMALIZE))
        for network in (*DECODERS, *FURTHER_DECODERS)
    ),
    Case("XLNet: last token", "fso", CONVERSION, network="XLNet", chain=(LAST, NORMALIZE)),
    *(Case(f"{network}: mean", "fs", CONVERSION, network=network) for network in ("Qwen3", "Gemma3")),
    Case("T5: mean", "s", T5_DECODER, network="T5"),
    Case("T5: mT5", "s", T5_DECODER, network="mT5"),
    # pooling
    *(
        Case(f"other pooling: {modes}", "s", POOLING, chain=(pooling(modes),))
        for modes in ("max", "root", "weighted", "cls+mean", "cls+max")
    ),
    Case("BERT: pooling file without a mode", chain=(pooling(""),)),
    Case(
        "BERT: pooling file of version 6",
        chain=(("Pooling", {"pooling_mode": "mean", "embedding_dimension": 32}, {}),),
    ),
    Case("two Poolings", "s", "in an order that backend", chain=(CLS, MEAN, NORMALIZE)),
    Case("BERT: another pooling beside", chain=(CLS,), edit=put("2_Pooling/config.json", pooling("max")[1])),
    Case(
        "BERT: no modules.json, pooling of the family", chain=None, name="e5-small",
        settings={"query_instruction": "", "passage_instruction": ""},
    ),
    # modules
    Case("Dense: Tanh", "s", MODULE, chain=(MEAN, dense())),
    Case("Dense: without bias", "s", MODULE, chain=(CLS, dense(bias=False, activation="Identity"))),
    Case("Dense: two", "s", MODULE, chain=(MEAN, dense(64), dense(16, 64, "GELU"), NORMALIZE)),
    Case("Dense: after Normalize", "s", MODULE, chain=(MEAN, NORMALIZE, dense())),
    Case("Dense: names of version 6", "s", MODULE, names=new_names, chain=(MEAN, dense())),
    Case("misplaced Dense", "", "before its Pooling", chain=(dense(), MEAN)),
    Case("LayerNorm: after mean", "s", MODULE, chain=(MEAN, layer_norm())),
    Case("BERT: Dropout", chain=(MEAN, DROPOUT, NORMALIZE)),
    Case("BERT: names of modules in version 6", names=new_names),
    # weights
    *(Case(f"prefixed weights: {text}", "", LACK, spoil=prefix(text)) for text in PREFIXES),
    *(
        Case(f"prefixed weights: XLM-R, {text}", "", LACK, network="XLM-R", spoil=prefix(text))
        for text in PREFIXES[:3]
    ),
    Case("BERT: tensors behind bert.", edit=prefix("bert.")),
    Case("missing weights: layer", "", LACK, spoil=lose("layer.0.output.")),
    Case("missing weights: shard", "", FILE, spoil=_without_first_shard),
    Case("missing weights: fp16 alone", "", FILE, spoil=_in_half_alone),
    Case("BERT: weights in .bin", edit=as_bin),
    Case("BERT: positions that are no positions", spoil=_with_wrong_positions),
    Case("BERT: weights in shards", edit=sharded),
    Case("BERT: weights in fp16", edit=store_as(torch.float16)),
    Case("BERT: weights in bf16", edit=store_as(torch.bfloat16)),
    Case(
        "quantized weights", "", "are quantized",
        spoil=set_json("config.json", quantization_config={"quant_method": "awq"}),
    ),
    Case(
        "PEFT adapter beside weights", "", "is a PEFT adapter",
        spoil=put("adapter_config.json", {"base_model_name_or_path": "bert"}),
    ),
    # layout
    Case("0_Transformer", "s", FOLDER, edit=move_network("0_Transformer")),
    Case("BERT: folder's name with spaces and 中", name="mödel 中 of mine"),
    # prompts
    Case(
        "BERT: prompts for query and document",
        edit=set_json(PROMPTS, prompts={"query": "find: ", "document": "text: "}),
    ),
    Case(
        "BERT: an empty document beside passage",
        edit=set_json(PROMPTS, prompts={"query": "query: ", "document": "", "passage": "passage: "}),
        report="sentence-transformers#3532",
    ),
    Case(
        "prompt that is no text", "", "the prompt 'query' is 5",
        spoil=set_json(PROMPTS, prompts={"query": 5}),
    ),
    # end tokens
    Case(
        "Mistral: end token of tokenizer_config.json", "fs", CONVERSION, network="Mistral", chain=(LAST,),
        spoil=end_token_by_settings(), report="mteb#5237",
    ),
    Case(
        "Qwen3: end token of tokenizer_config.json", "fs", CONVERSION, network="Qwen3", chain=(LAST,),
        spoil=end_token_by_settings("", "<|endoftext|>"), empty=False, report="Qwen3-Embedding#122",
    ),
    # tokenizers
    *(
        Case(
            f"foreign tokenizer_class: {kind}", "", TOKENS, network="XLM-R",
            spoil=set_json("tokenizer_config.json", tokenizer_class=kind), report="transformers#45920",
        )
        for kind in ("RobertaTokenizer", "BertTokenizer", "GPT2Tokenizer", "LlamaTokenizer")
    ),
    # static models
    Case("static: sentence-transformers", "s", MODULE, make=static("0_StaticEmbedding"), empty=False),
    Case("static: model2vec", "s", MODULE, make=static(""), empty=False),
    # other outputs
    Case("BGE-M3 words", "fn", "gives no word weights", network="XLM-R", make=m3, output="sparse"),
    *(
        Case(
            f"BGE-M3 with a spoilt head: {what}", "", "cannot be (read|loaded)|gives no word weights",
            network="XLM-R", make=m3, spoil=spoil, output="sparse",
        )
        for what, spoil in (("cut", _with_cut_head), ("of another width", _with_narrow_head))
    ),
    Case("BGE-M3 tokens", "fn", "not a multi-vector model", network="XLM-R", make=m3, output="multivector"),
    Case("BGE-M3: dense", network="XLM-R", make=m3, settings={"pooling": "cls"}),
    *(
        Case(f"SPLADE: {network}", "sn", network=network, head="ForMaskedLM", chain=None, output="sparse")
        for network in ("BERT", "DistilBERT", "MPNet", "XLM-R")
    ),
    Case("SPLADE: SparseEncoder", "sn", head="ForMaskedLM", make=splade(), output="sparse"),
    Case(
        "SPLADE: two logarithms", "sn", head="ForMaskedLM",
        make=splade(activation_function="log1p_relu"), output="sparse",
    ),
    Case("inference-free SPLADE", "s", head="ForMaskedLM", make=inference_free, output="sparse"),
    Case("ColBERT: no projection", "s", make=colbert(), output="multivector"),
    Case("ColBERT: Dense, skip list", "s", make=colbert(skipped=",.!", width=8), output="multivector"),
    *(
        Case(
            f"ColBERT: Dense, expanded queries, {strategy}, {attend}", "s", output="multivector",
            make=colbert({"length": 32, "strategy": strategy, "attend": attend}, width=8),
        )
        for strategy, attend in (("fixed", False), ("fixed", True), ("min", False))
    ),
    Case("ColBERT: Stanford", "s", make=stanford, output="multivector"),
    Case("ColBERT: PyLate", "s", make=pylate, output="multivector"),
)  # fmt: skip

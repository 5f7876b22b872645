"""Model folders for the wall: small networks with random weights, tokenizers, modules, layouts."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from workplaces import read_json

SAFE = "model.safetensors"
WIDTH, LENGTH = 64, 96
TEXTS = (
    "how do pilots guide ships",
    "Some WORDS in a naïve Größe, of 2023!",
    "one\ntwo\tthree  four",
    "數字 🙂 Привет",
    "long " * 300 + "end",
    "a",
)
"""What is encoded: words, case, accents, digits, white space, scripts, more tokens than are kept."""
WORDS = ("how", "do", "pilots", "guide", "ships", "some", "words", "long", "in", "one", "two", "three")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,!:."
SHAPE: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "initializer_range": 0.12, "max_position_embeddings": 128,
}  # fmt: skip
SHALLOW = {**SHAPE, "num_hidden_layers": 1}  # where a second layer shows nothing that the first does not
DECODER = {**SHAPE, "num_key_value_heads": 1, "head_dim": 16}
T5 = {
    "d_model": WIDTH, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 2,
    "initializer_factor": 2.0,
}  # fmt: skip
AFTER_PADDING = {**SHAPE, "max_position_embeddings": 130, "type_vocab_size": 1}
SHALLOW_AFTER_PADDING = {**AFTER_PADDING, "num_hidden_layers": 1}
NETWORKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "BERT": ("Bert", SHAPE, "WordPiece"),
    "shallow BERT": ("Bert", SHALLOW, "WordPiece"),
    "RoBERTa": ("Roberta", AFTER_PADDING, "bytes"),
    "XLM-R": ("XLMRoberta", AFTER_PADDING, "Unigram"),
    "CamemBERT": ("Camembert", AFTER_PADDING, "Unigram"),
    "DistilBERT": (
        "DistilBert", {"dim": WIDTH, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "initializer_range": 0.12,
         "max_position_embeddings": 128},
        "WordPiece",
    ),
    "MPNet": ("MPNet", {**SHAPE, "max_position_embeddings": 130}, "MPNet"),
    "NomicBERT": ("NomicBert", SHAPE, "WordPiece"),
    "GTE": ("Gte", SHAPE, "WordPiece"),
    "ModernBERT": (
        "ModernBert", {**SHAPE, "local_attention": 16, "global_attn_every_n_layers": 2}, "ModernBERT"
    ),
    "ALBERT": ("Albert", {**SHAPE, "embedding_size": 16}, "WordPiece"),
    "ELECTRA": ("Electra", {**SHALLOW, "embedding_size": 16}, "WordPiece"),
    "DeBERTa-v2": (
        "DebertaV2", {**SHAPE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, "WordPiece"
    ),
    "ERNIE": ("Ernie", SHALLOW, "WordPiece"),
    "FNet": ("FNet", SHAPE, "WordPiece"),
    "MegatronBERT": ("MegatronBert", SHALLOW, "WordPiece"),
    "RemBERT": ("RemBert", {**SHALLOW, "input_embedding_size": 16}, "WordPiece"),
    "RoFormer": ("RoFormer", SHALLOW, "WordPiece"),
    "Data2Vec": ("Data2VecText", SHALLOW_AFTER_PADDING, "bytes"),
    "XLM-R-XL": ("XLMRobertaXL", SHALLOW_AFTER_PADDING, "Unigram"),
    "BigBird": ("BigBird", {**SHALLOW, "attention_type": "original_full"}, "WordPiece"),
    "XLNet": (
        "XLNet", {"d_model": WIDTH, "n_layer": 2, "n_head": 2, "d_inner": 64, "initializer_range": 0.12},
        "bytes",
    ),
    "OPT": ("OPT", {**SHAPE, "ffn_dim": 64, "word_embed_proj_dim": WIDTH}, "Qwen"),
    "GPT-NeoX": ("GPTNeoX", SHAPE, "Qwen"),
    "Olmo2": ("Olmo2", DECODER, "Qwen"),
    "Granite": ("Granite", DECODER, "Qwen"),
    "SmolLM3": ("SmolLM3", DECODER, "Qwen"),
    "EuroBERT": ("EuroBert", {**DECODER, "num_hidden_layers": 1}, "ModernBERT"),
    "Qwen2": ("Qwen2", DECODER, "Qwen"),
    "Qwen3": ("Qwen3", DECODER, "Qwen"),
    "Mistral": ("Mistral", DECODER, "Llama"),
    "Llama": ("Llama", DECODER, "Llama"),
    "Gemma2": ("Gemma2", {**DECODER, "query_pre_attn_scalar": 16}, "Llama"),
    "Gemma3": (
        "Gemma3Text", {**DECODER, "query_pre_attn_scalar": 16, "use_bidirectional_attention": True}, "Llama"
    ),
    "T5": ("T5Encoder", T5, "T5"),
    "mT5": ("MT5Encoder", T5, "T5"),
}  # fmt: skip
"""Class, shape and tokenizer of each network."""


def is_bert(network: str) -> bool:
    """Whether a key of `NETWORKS` is that of a BERT."""
    return NETWORKS[network][0] == "Bert"


def _wordpiece(special: Sequence[str], around: str, unknown: str = "[UNK]") -> Tokenizer:
    pieces = [*special, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _finish(tokenizer, special, around)


def _unigram(special: Sequence[str], around: str) -> Tokenizer:
    pieces = [f"▁{word}" for word in WORDS] + ["▁", *LETTERS]
    scores = [(piece, 0.0) for piece in special] + [
        (piece, -2.0 - at / 10) for at, piece in enumerate(pieces)
    ]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=list(special).index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    return _finish(tokenizer, special, around)


def _bytes(special: Sequence[str], around: str) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: at for at, piece in enumerate([*special, *alphabet, "in", "on", "lo"])}
    merges = [("i", "n"), ("o", "n"), ("l", "o")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer, special, around)


def _llama(special: Sequence[str], around: str) -> Tokenizer:
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *LETTERS, "lo", "▁lo", "on"]
    merges = [("l", "o"), ("▁", "lo"), ("o", "n")]
    vocabulary = {piece: at for at, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _finish(tokenizer, special, around)


def _finish(tokenizer: Tokenizer, special: Sequence[str], around: str) -> Tokenizer:
    """Add special tokens, and those around each text."""
    tokenizer.add_special_tokens(list(special))
    ids = [(token, tokenizer.token_to_id(token)) for token in special if token in around]
    if ids:
        end = around.partition("$A")[2].strip()
        second = f"$B:1 {end}:1" if end == "[SEP]" else f"{end} $B {end}"
        tokenizer.post_processor = processors.TemplateProcessing(
            single=around, pair=f"{around} {second}" if end else None, special_tokens=ids
        )
    return tokenizer


BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]")
SENTENCE_PIECES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
LLAMA = ("<unk>", "<s>", "</s>", "yes", "no", "Yes")
QWEN = ("<|endoftext|>", "<|im_end|>", "yes", "no", "Yes")
OF_BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
OF_ROBERTA = {
    "bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"
}  # fmt: skip
TOKENIZERS: dict[str, tuple[Callable[..., Tokenizer], Sequence[str], str, str, dict[str, str]]] = {
    "WordPiece": (_wordpiece, BERT_TOKENS, "[CLS] $A [SEP]", "BertTokenizer", OF_BERT),
    "MPNet": (
        lambda *how: _wordpiece(*how, unknown="<unk>"), SENTENCE_PIECES, "<s> $A </s>", "MPNetTokenizer",
        OF_ROBERTA,
    ),
    "bytes": (_bytes, SENTENCE_PIECES, "<s> $A </s>", "RobertaTokenizer", OF_ROBERTA),
    "ModernBERT": (_bytes, BERT_TOKENS, "[CLS] $A [SEP]", "PreTrainedTokenizerFast", OF_BERT),
    "Unigram": (_unigram, SENTENCE_PIECES, "<s> $A </s>", "XLMRobertaTokenizer", OF_ROBERTA),
    "T5": (
        _unigram, ("<pad>", "</s>", "<unk>"), "$A </s>", "T5Tokenizer",
        {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    ),
    "Llama": (
        _llama, LLAMA, "<s> $A </s>", "PreTrainedTokenizerFast",
        {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "</s>"},
    ),
    "Qwen": (
        _bytes, QWEN, "$A <|endoftext|>", "Qwen2Tokenizer",
        {"eos": "<|endoftext|>", "pad": "<|endoftext|>"},
    ),
}  # fmt: skip
"""Maker, special tokens, template, class and named tokens of each tokenizer."""


def save_tokenizer(folder: Path, kind: str) -> Tokenizer:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    make, special, around, name, named = TOKENIZERS[kind]
    tokenizer = make(special, around)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {f"{role}_token": token for role, token in named.items()}
    write(folder, "tokenizer_config.json", {"tokenizer_class": name, **tokens, "model_max_length": LENGTH})
    return tokenizer


def save_network(folder: Path, network: str, head: str = "Model", **more: object) -> None:
    """Write a network of transformers with its tokenizer; `head` is the end of its class's name.

    The settings `more` go to its config.
    """
    name, shape, kind = NETWORKS[network]
    tokenizer = save_tokenizer(folder, kind)
    named = TOKENIZERS[kind][4]
    roles = {"bos": "bos", "eos": "eos", "pad": "pad", "cls": "cls", "sep": "sep"}
    ids = {f"{role}_token_id": tokenizer.token_to_id(named[of]) for role, of in roles.items() if of in named}
    config_class = getattr(transformers, f"{name.removesuffix('Encoder')}Config")
    torch.manual_seed(0)
    config = config_class(**{**shape, **ids, "vocab_size": tokenizer.get_vocab_size(), **more})
    body = getattr(transformers, name + head)(config).eval()
    body.get_input_embeddings().weight.data.normal_(0, 0.3 if head == "Model" else 0.1)  # of padding, too
    body.save_pretrained(folder)


def write(folder: Path, name: str, content: object) -> None:
    """Write a file of JSON, or of bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def merge(folder: Path, name: str, content: Mapping[str, object]) -> None:
    """Change some fields of a JSON file; None deletes one."""
    merged = {**(read_json(folder / name) if (folder / name).exists() else {}), **content}
    write(folder, name, {key: value for key, value in merged.items() if value is not None})


OLD = "sentence_transformers.models."
FLAGS = {
    "cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken",
    "root": "mean_sqrt_len_tokens", "weighted": "weightedmean_tokens",
}  # fmt: skip


def pooling(modes: str, **more: object) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """A Pooling module; several `modes` are joined by +."""
    chosen = modes.split("+")
    flags = {f"pooling_mode_{flag}": mode in chosen for mode, flag in FLAGS.items()}
    return "Pooling", {"word_embedding_dimension": WIDTH, **flags, **more}, {}


def dense(
    width: int = 16, start: int = WIDTH, activation: str = "Tanh", bias: bool = True, **more: object
) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """A Dense module."""
    draw = torch.Generator().manual_seed(width)
    weights = {"linear.weight": torch.randn(width, start, generator=draw) / 4}
    if bias:
        weights["linear.bias"] = torch.randn(width, generator=draw) / 4
    place = "linear" if activation == "Identity" else "activation"
    named = {"activation_function": f"torch.nn.modules.{place}.{activation}"}
    return "Dense", {"in_features": start, "out_features": width, "bias": bias, **named, **more}, weights


def layer_norm(width: int = WIDTH) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    weights = {
        "norm.weight": torch.randn(width, generator=draw),
        "norm.bias": torch.randn(width, generator=draw),
    }
    return "LayerNorm", {"dimension": width}, weights


NORMALIZE: tuple[str, dict[str, Any], dict[str, torch.Tensor]] = "Normalize", {}, {}
DROPOUT: tuple[str, dict[str, Any], dict[str, torch.Tensor]] = "Dropout", {"dropout": 0.3}, {}
Module = tuple[str, dict[str, Any], dict[str, torch.Tensor]]


def save_modules(
    folder: Path, chain: Iterable[Module], network: str = "", names: Callable[[str], str] = OLD.__add__
) -> None:
    """Write `modules.json` and the folders of modules after the one in the folder `network`."""
    entries = [{"idx": 0, "name": "0", "path": network, "type": names("Transformer")}]
    for at, (kind, config, weights) in enumerate(chain, 1):
        path = f"{at}_{kind}"
        (folder / path).mkdir()
        if config:
            write(folder, f"{path}/config.json", config)
        if weights:
            save_file(weights, folder / path / SAFE)
        entries.append({"idx": at, "name": str(at), "path": path, "type": names(kind)})
    write(folder, "modules.json", entries)
    merge(folder / network, "sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False})


def new_names(kind: str) -> str:
    """The name of a module's class in version 6 of sentence-transformers."""
    places = {"Transformer": "base.modules.transformer", "Dense": "base.modules.dense"}
    own = f"sentence_transformer.modules.{kind.lower()}"
    return f"sentence_transformers.{places.get(kind, own)}.{kind}"


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Change the tensors of the weights."""
    save_file(change(load_file(folder / SAFE)), folder / SAFE, metadata={"format": "pt"})


def prefix(text: str) -> Callable[[Path], None]:
    """Put a text before the names of all tensors."""
    return lambda folder: tensors(folder, lambda all_: {text + name: value for name, value in all_.items()})


def lose(part: str) -> Callable[[Path], None]:
    """Leave out the tensors with `part` in their names."""
    return lambda folder: tensors(
        folder, lambda all_: {name: value for name, value in all_.items() if part not in name}
    )


def store_as(dtype: torch.dtype) -> Callable[[Path], None]:
    """Store the weights in another number format, as `config.json` then says."""

    def change(folder: Path) -> None:
        tensors(folder, lambda all_: {name: value.to(dtype) for name, value in all_.items()})
        merge(folder, "config.json", {"dtype": str(dtype).removeprefix("torch.")})

    return change


def as_bin(folder: Path) -> None:
    """Store the weights as `pytorch_model.bin`."""
    torch.save(load_file(folder / SAFE), folder / "pytorch_model.bin")
    (folder / SAFE).unlink()


def sharded(folder: Path) -> None:
    """Store the weights in several files."""
    network = transformers.AutoModel.from_pretrained(folder)
    (folder / SAFE).unlink()
    network.save_pretrained(folder, max_shard_size="20KB")


def set_json(name: str, **content: object) -> Callable[[Path], None]:
    """Change fields of a JSON file."""
    return lambda folder: merge(folder, name, content)


def put(name: str, content: object) -> Callable[[Path], None]:
    """Write a file."""
    return lambda folder: write(folder, name, content)


def drop(*names: str) -> Callable[[Path], None]:
    """Delete files and folders."""

    def change(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def in_turn(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    """Several changes."""

    def change(folder: Path) -> None:
        for each in changes:
            each(folder)

    return change


def move_network(target: str) -> Callable[[Path], None]:
    """Move the network into a folder, as before version 1 of sentence-transformers."""

    def change(folder: Path) -> None:
        (folder / target).mkdir()
        for path in [path for path in folder.iterdir() if path.is_file()]:
            if path.name not in ("modules.json", "config_sentence_transformers.json"):
                path.rename(folder / target / path.name)
        entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        entries[0]["path"] = target
        write(folder, "modules.json", entries)

    return change


def end_token_by_settings(begin: str = "<s>", end: str = "</s>") -> Callable[[Path], None]:
    """Declare the end token in `tokenizer_config.json` alone, and let `tokenizer.json` add none."""

    def change(folder: Path) -> None:
        content = read_json(folder / "tokenizer.json")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        if begin:
            number = tokenizer.token_to_id(begin)
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{begin} $A", special_tokens=[(begin, number)]
            )
            tokenizer.save(str(folder / "tokenizer.json"))
        else:
            write(folder, "tokenizer.json", {**content, "post_processor": None})
        merge(folder, "tokenizer_config.json", {"add_eos_token": True, "eos_token": end})

    return change


Make = Callable[[Path, Path], None]
"""Fills a folder from that of a network."""


def splade(**settings: object) -> Make:
    """A model of SparseEncoder with a SpladePooling of these settings."""

    def make(network: Path, folder: Path) -> None:
        from sentence_transformers import SparseEncoder
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        first = Transformer(str(network), transformer_task="fill-mask", max_seq_length=LENGTH)
        SparseEncoder(modules=[first, SpladePooling("max", **settings)]).save(str(folder))

    return make


def inference_free(network: Path, folder: Path) -> None:
    """A model of SparseEncoder that looks the weights of a query's words up."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    passages = Transformer(str(network), transformer_task="fill-mask", max_seq_length=LENGTH)
    words = torch.rand(len(passages.tokenizer), generator=torch.Generator().manual_seed(0))
    queries = SparseStaticEmbedding(passages.tokenizer, words)
    modules = [passages, SpladePooling("max", activation_function="log1p_relu")]
    router = Router.for_query_document(query_modules=[queries], document_modules=modules)
    SparseEncoder(modules=[router]).save(str(folder))


def colbert(expansion: dict[str, object] | None = None, skipped: str = "", **sizes: int) -> Make:
    """A model of MultiVectorEncoder with a projection of each token, and a skip list."""

    def make(network: Path, folder: Path) -> None:
        from sentence_transformers import MultiVectorEncoder
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

        torch.manual_seed(0)
        token = "token_embeddings"
        first = Transformer(
            str(network),
            query_length=40,
            document_length=60,
            query_expansion=expansion,
            max_seq_length=LENGTH,
        )
        modules = [
            first,
            *(
                Dense(WIDTH, width, False, torch.nn.Identity(), module_input_name=token)
                for width in sizes.values()
            ),
            MultiVectorMask(skiplist_words=list(skipped)),
            Normalize(module_input_name=token),
        ]  # fmt: skip
        prompts = {"query": "[unused0] ", "document": "[unused1] "}
        MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save(str(folder))

    return make


def stanford(network: Path, folder: Path) -> None:
    """The layout of Stanford's ColBERT."""
    shutil.copytree(network, folder)
    draw = torch.Generator().manual_seed(0)
    tensors(
        folder,
        lambda all_: {
            **{f"bert.{name}": value for name, value in all_.items()},
            "linear.weight": torch.randn(8, WIDTH, generator=draw) / 4,
        },
    )
    merge(folder, "config.json", {"architectures": ["HF_ColBERT"]})
    markers = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
    write(folder, "artifact.metadata", {"query_maxlen": 20, "doc_maxlen": 50, **markers})


def pylate(network: Path, folder: Path) -> None:
    """The layout of PyLate."""
    shutil.copytree(network, folder)
    save_modules(
        folder, [dense(8, activation="Identity", bias=False)],
        names={"Transformer": OLD + "Transformer", "Dense": "pylate.models.Dense.Dense"}.__getitem__,
    )  # fmt: skip
    (folder / "sentence_bert_config.json").unlink()
    declared = {
        "query_prefix": "[unused0] ", "document_prefix": "[unused1] ", "query_length": 24,
        "document_length": 48, "attend_to_expansion_tokens": False, "skiplist_words": [".", ","],
        "model_type": "ColBERT",
    }  # fmt: skip
    write(folder, "config_sentence_transformers.json", declared)


def m3(network: Path, folder: Path) -> None:
    """The layout of BGE-M3, with the heads for words and for tokens."""
    shutil.copytree(network, folder)
    torch.manual_seed(1)
    torch.save(torch.nn.Linear(WIDTH, WIDTH).state_dict(), folder / "colbert_linear.pt")
    torch.save(torch.nn.Linear(WIDTH, 1).state_dict(), folder / "sparse_linear.pt")


def static(place: str) -> Make:
    """A static model, with its words' vectors in a folder of its own, or beside all as model2vec's."""

    def make(network: Path, folder: Path) -> None:
        target = folder / place
        target.mkdir(parents=True)
        shutil.copy(network / "tokenizer.json", target)
        vocabulary = Tokenizer.from_file(str(network / "tokenizer.json")).get_vocab_size()
        draw = torch.Generator().manual_seed(0)
        name = "embedding.weight" if place else "embeddings"
        save_file({name: torch.randn(vocabulary, WIDTH, generator=draw)}, target / SAFE)
        kind = OLD + "StaticEmbedding"
        write(folder, "modules.json", [{"idx": 0, "name": "0", "path": place or ".", "type": kind}])
        if not place:
            write(folder, "config.json", {"model_type": "model2vec", "normalize": False})

    return make

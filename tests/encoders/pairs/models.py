"""Tiny rerankers with random weights, in the layout of the hub's repositories."""

import runpy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

VOCABULARY = 500
SHAPE = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
}  # fmt: skip


def bert(folder: Path, texts: Sequence[str], minilm: Path, labels: int = 1) -> None:
    """As cross-encoder/ms-marco-MiniLM-L6-v2: token types, and the identity as its activation."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=30522, num_labels=labels, initializer_range=0.12, **SHAPE)
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    BertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(minilm / name, folder)


def xlm_roberta(folder: Path, texts: Sequence[str], minilm: Path) -> None:
    """As BAAI/bge-reranker-base: a sentencepiece tokenizer, and positions counted from the padding id."""
    path = Path(__file__).parents[2] / "random_reranker.py"
    runpy.run_path(str(path))["write_reranker"](folder, texts, VOCABULARY, 0.12, **SHAPE)


def gemma(folder: Path, texts: Sequence[str], minilm: Path) -> None:
    """As BAAI/bge-reranker-v2-gemma."""
    from transformers import GemmaConfig, GemmaForCausalLM

    tokens = _byte_pairs(folder, texts)
    config = GemmaConfig(
        vocab_size=tokens,
        initializer_range=0.2,
        num_key_value_heads=1,
        head_dim=32,
        pad_token_id=0,
        bos_token_id=2,
        **SHAPE,
    )
    GemmaForCausalLM(config).save_pretrained(folder)


KINDS: dict[str, Callable[..., None]] = {"bert": bert, "xlm_roberta": xlm_roberta, "gemma": gemma}


def make(kind: str, folder: Path, texts: Sequence[str], minilm: Path) -> None:
    """Write a reranker into a folder."""
    import torch

    torch.manual_seed(0)
    KINDS[kind](folder, texts, minilm)


def _byte_pairs(folder: Path, texts: Sequence[str]) -> int:
    """A decoder's tokenizer, padded on the left as Gemma's; returns its number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<pad>", "<eos>", "<bos>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(["Yes No", *texts], trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=512,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
    ).save_pretrained(folder)
    return int(tokenizer.get_vocab_size())

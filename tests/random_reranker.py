"""A cross-encoder with random weights, in the layout of BAAI/bge-reranker-base."""

from collections.abc import Iterable
from pathlib import Path

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def write_reranker(
    folder: Path, texts: Iterable[str], vocabulary: int, initializer_range: float, **shape: int
) -> None:
    """Write XLM-RoBERTa with one score, and a tokenizer in its form, trained on texts.

    Args:
        folder: Made if it does not exist.
        texts: What the tokenizer is trained on, so that its tokens are about as long as a real one's.
        vocabulary: The most tokens of the tokenizer.
        initializer_range: Standard deviation of the weights.
        shape: Settings of `XLMRobertaConfig`; without any, those of XLM-RoBERTa-base.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForSequenceClassification

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    options = {"special_tokens": special, "unk_token": "<unk>", "show_progress": False}
    trainer = trainers.UnigramTrainer(vocab_size=vocabulary, **options)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    inputs = ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=inputs, model_max_length=512, **SPECIAL
    ).save_pretrained(folder)
    config = XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(), num_labels=1, max_position_embeddings=514, type_vocab_size=1,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, initializer_range=initializer_range, **shape,
    )  # fmt: skip
    XLMRobertaForSequenceClassification(config).eval().save_pretrained(folder)

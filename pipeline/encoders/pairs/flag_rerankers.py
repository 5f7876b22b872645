"""The `flag` backend of rerankers: a model as FlagEmbedding loads it, on CPU or GPU.

Encoders are scored by their head. A decoder reads the query, a line break, the passage, a line break and a
question; its score is the logit of "Yes" as the next token.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.config.rerank import FlagAutoRerankSettings, FlagRerankSettings
from pipeline.core.records import Float32, TextPair
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.pairs.cross_encoders import Classifier, TorchPairs
from pipeline.encoders.pairs.scorer import (
    BatchedScorer,
    PairTokenizer,
    Template,
    encoder_tokenizer,
)
from pipeline.encoders.torch.checks import observe
from pipeline.encoders.torch.loading import loading
from pipeline.models.reranker import DECODER, ENCODER, ResolvedReranker, flag_class

if TYPE_CHECKING:
    import torch
    from FlagEmbedding.abc.inference import AbsReranker
    from transformers import PreTrainedTokenizerBase

QUESTION = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query "
    "by providing a prediction of either 'Yes' or 'No'."
)
MARKS = ("A: ", "B: ")
"""FlagEmbedding's own prompt and instructions for decoders."""


def load(settings: FlagAutoRerankSettings, model: ResolvedReranker, prepared: Path | None) -> BatchedScorer:
    """A model in the class of FlagEmbedding for its architecture."""
    kind = flag_class(model)
    with loading(model):
        from FlagEmbedding import FlagAutoReranker

        flag = FlagAutoReranker.from_finetuned(str(model.files.folder()), **_arguments(model, kind))
        if kind == DECODER:
            return BatchedScorer(_Decoder(settings, model, flag), settings.batch_size)
        backend = Classifier(model, flag.model)
    fast = model.tokenizer.of_library(flag.tokenizer)
    backend.tokenizer = encoder_tokenizer(settings, model, fast, flag.tokenizer.model_input_names)
    return BatchedScorer(backend, settings.batch_size)


def library_scores(
    settings: FlagRerankSettings, model: ResolvedReranker, pairs: Sequence[TextPair]
) -> Float32:
    """The scores that FlagEmbedding itself gives to pairs, each alone."""
    kind = flag_class(model)
    arguments = _arguments(model, kind)
    if settings.query_instruction is not None:
        arguments["query_instruction_for_rerank"] = settings.query_instruction
    if settings.passage_instruction is not None:
        arguments["passage_instruction_for_rerank"] = settings.passage_instruction
    with loading(model):
        from FlagEmbedding import FlagAutoReranker

        flag = FlagAutoReranker.from_finetuned(str(model.files.folder()), **arguments)
        observe(model, flag.model.eval())  # where it cannot run, FlagEmbedding would try for ever
    lengths = {"max_length": model.max_length, "query_max_length": model.query_max_length}
    prompt = {"prompt": getattr(settings, "prompt", None)} if kind == DECODER else {}
    scores = [flag.compute_score([pair], batch_size=2, **lengths, **prompt)[0] for pair in pairs]
    return np.array(scores, np.float32)


def _arguments(model: ResolvedReranker, kind: str) -> dict[str, Any]:
    """What FlagEmbedding loads a model with: its class, precision and device."""
    return {
        "model_class": kind,
        "use_fp16": model.precision == "fp16",
        "devices": [model.device],
        "trust_remote_code": model.trust_remote_code,
        **({"use_bf16": model.precision == "bf16"} if kind != ENCODER else {}),
    }


class _Decoder(TorchPairs):
    """A decoder that FlagEmbedding has loaded, scored by the logit of "Yes" after the question."""

    padded_right = False

    def __init__(self, settings: FlagAutoRerankSettings, model: ResolvedReranker, flag: AbsReranker) -> None:
        super().__init__(model, flag.model)
        self.network = flag.model
        self.network.config.use_cache = False  # it would keep keys and values for text generation
        self.yes = flag.yes_loc
        template = _template(flag.tokenizer, settings.prompt or QUESTION)
        query, passage = settings.query_instruction, settings.passage_instruction
        self.tokenizer = PairTokenizer(
            model.tokenizer.of_library(flag.tokenizer),
            template,
            # as many tokens as FlagEmbedding leaves to both texts
            model.max_length + len(template.after) - len(template.before) - len(template.between),
            (model.query_max_length or model.max_length, model.max_length),
            (MARKS[0] if query is None else query, MARKS[1] if passage is None else passage),
        )

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        # padded on the left, so that the last token of all texts is in the last column
        width = batch.ids.shape[1]
        columns = (np.arange(width) - (width - batch.mask.sum(axis=1))[:, None]) % width
        ids, mask = (np.take_along_axis(array, columns, axis=1) for array in (batch.ids, batch.mask))
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        only_last = "logits_to_keep" in inspect.signature(self.network.forward).parameters
        logits: torch.Tensor = self.network(
            **{name: self.on_device(array) for name, array in inputs.items()},
            **({"logits_to_keep": 1} if only_last else {}),
        ).logits
        return logits[:, -1, self.yes]


def _template(tokenizer: PreTrainedTokenizerBase, question: str) -> Template:
    """What FlagEmbedding puts around a query and a passage."""

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

    begin = tokenizer.bos_token_id
    begins = begin is not None and begin != tokenizer.pad_token_id
    separator = ids("\n")
    return Template((begin,) if begins else (), separator, separator + ids(question))

"""FlagEmbedding's rerankers that are decoders: scored by the logit of "Yes", or by heads of their own.

A pair is read as the query, a line break, the passage, a line break and a question. The score is at the last
token: the logit of "Yes" as the next one; or, of `layerwise` and `lightweight` models, the number that a
small head makes of one layer's hidden state, after which no layer is computed. A `lightweight` model can also
put the mean of several neighbouring tokens of a passage in their place, from some layer on.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from pipeline.core.records import Int64
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.pairs.cross_encoders import TorchPairs
from pipeline.encoders.pairs.scorer import Pair, PairTokenizer, Reranker, Template, only_second
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch
    from FlagEmbedding.abc.inference import AbsReranker
    from transformers import PreTrainedTokenizerBase

QUESTION = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query "
    "by providing a prediction of either 'Yes' or 'No'."
)
SHORT_QUESTION = "Predict whether passage B contains an answer to query A."
"""FlagEmbedding's own prompts; the short one is that of `lightweight` models."""
MARKS = ("A: ", "B: ")  # FlagEmbedding's own instructions
COMPRESSED = (8,)  # FlagEmbedding's own choice of layers


class Decoder(TorchPairs):
    """A decoder, scored by the logit of "Yes" after the question.

    Args:
        model: The resolved model.
        flag: FlagEmbedding's reranker, which has loaded it.
        question: What follows the passage.
        instructions: Strings put before queries and passages.
    """

    def __init__(
        self,
        model: Reranker,
        flag: AbsReranker,
        question: str = QUESTION,
        instructions: Pair = MARKS,
    ) -> None:
        super().__init__(model)
        self.network = flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network.config.use_cache = False  # it would keep keys and values for text generation
        self.yes = getattr(flag, "yes_loc", None)
        fast = fast_tokenizer(model.name, flag.tokenizer)
        template = _template(flag.tokenizer, question, always_begin=self.yes is None)
        self.asked = len(template.after)
        self.tokenizer = PairTokenizer(
            fast,
            template,
            # as many tokens as FlagEmbedding leaves to both texts
            model.max_length + len(template.after) - len(template.before) - len(template.between),
            only_second,
            (model.query_max_length, model.max_length),
            instructions,
        )

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        ids, mask = _padded_left(batch)
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        only_last = "logits_to_keep" in inspect.signature(self.network.forward).parameters
        with torch.inference_mode():
            logits: torch.Tensor = self.network(
                **{name: self.on_device(array) for name, array in inputs.items()},
                **({"logits_to_keep": 1} if only_last else {}),
            ).logits
            return logits[:, -1, self.yes].float()


class LayerwiseDecoder(Decoder):
    """A decoder with a head for each of its last layers; `layer` is the one that counts, None the last."""

    layer: int | None = None

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            logits = self.network(
                **self.tensors(batch), cutoff_layers=[self.layer] if self.layer else None, return_dict=True
            ).logits[0]
            last = self.on_device(batch.mask).sum(1) - 1
            every: torch.Tensor = logits.reshape(*batch.ids.shape)
            return every[torch.arange(len(last), device=self.device), last].float()


class LightweightDecoder(LayerwiseDecoder):
    """A layerwise decoder that can put the mean of `ratio` tokens of a passage in their place.

    It does so before each of the layers `compressed`.
    """

    ratio: int = 1
    compressed: tuple[int, ...] = ()

    @override
    def compute(self, batch: TokenBatch) -> torch.Tensor:
        import torch

        assert batch.second is not None
        with torch.inference_mode():
            computed = self.network(
                **self.tensors(batch),
                cutoff_layers=[self.layer] if self.layer else None,
                compress_layer=list(self.compressed),
                compress_ratio=self.ratio,
                query_lengths=batch.second.tolist(),
                prompt_lengths=[self.asked] * len(batch.rows),
                return_dict=True,
            )
            last = computed.attention_masks[0].sum(1) - 1
            logits: torch.Tensor = computed.logits[0]
            return logits[torch.arange(len(last), device=self.device), last].float()


def _template(tokenizer: PreTrainedTokenizerBase, question: str, always_begin: bool) -> Template:
    """What FlagEmbedding puts around a query and a passage.

    `always_begin`: its layerwise classes put the first token even if it is the padding token too.
    """

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

    begin = tokenizer.bos_token_id
    begins = begin is not None and (always_begin or begin != tokenizer.pad_token_id)
    separator = ids("\n")
    return Template((begin,) if begins else (), separator, separator + ids(question))


def _padded_left(batch: TokenBatch) -> tuple[Int64, Int64]:
    """Ids and mask with padding on the left, so that the last token of all texts is in the last column."""
    shift = batch.ids.shape[1] - batch.mask.sum(axis=1)
    columns = (np.arange(batch.ids.shape[1]) - shift[:, None]) % batch.ids.shape[1]
    return np.take_along_axis(batch.ids, columns, axis=1), np.take_along_axis(batch.mask, columns, axis=1)

"""The loading of torch models: one way in for every network.

Every network that transformers loads, for texts or for pairs, by whichever library, is loaded inside
`loading`, which checks it; see `pipeline.encoders.torch.checks`.

And the heads of BGE-M3 for word weights and for token vectors: their files, and what they make.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.installation import check_versions
from pipeline.core.records import Float32, Int32, Int64, RaggedRows
from pipeline.encoders.agreement import CHECKS
from pipeline.encoders.torch.checks import load_checked, observe, tokens_embedded
from pipeline.encoders.torch.devices import check_device, is_out_of_memory, no_room
from pipeline.models.files import TOKEN_HEAD, WORD_HEAD, damaged, untrusted_code
from pipeline.models.model import ResolvedBase, ResolvedModel
from pipeline.storage.whole_files import write_json

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LIBRARIES = "torch", "transformers", "sentence-transformers", "FlagEmbedding"
QUIET = "FlagEmbedding", "sentence_transformers"  # names of their loggers


@contextlib.contextmanager
def loading(model: ResolvedBase) -> Iterator[None]:
    """A context to load a model in, through whichever library, and to take it to its device.

    Every network is checked, and an adapter merged into it: FlagEmbedding and sentence-transformers drop the
    report that transformers makes of names. Libraries log errors only.

    Raises:
        InputError: The device cannot be used, or has no room for the model; the model's files are damaged,
            incomplete, or declare what does not run; or a library has a version that is not supported.
    """
    check_versions(*LIBRARIES)
    import torch
    from transformers import PreTrainedModel
    from transformers.utils import logging as transformers_logging

    # the environment may have set another: vendors' containers force TF32, which keys do not tell from fp32
    torch.set_float32_matmul_precision("highest")
    if model.device != "cpu":
        check_device(model.device, model.precision, model.section)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    original = PreTrainedModel.__dict__["from_pretrained"]
    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, QUIET):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        stack.callback(setattr, PreTrainedModel, "from_pretrained", original)
        PreTrainedModel.from_pretrained = classmethod(partial(load_checked, model, original.__func__))
        stack.enter_context(warnings.catch_warnings(action="ignore", category=UserWarning))
        try:
            yield
        except Exception as error:
            if explained := _explained(model, error):
                raise explained from error
            raise


def _explained(model: ResolvedBase, error: Exception) -> InputError | None:
    """What an error of a library says of a model's files or size; None for one of another reason."""
    from safetensors import SafetensorError

    name, text = model.name, str(error)
    if is_out_of_memory(error):
        return no_room(model)
    if isinstance(error, UnpicklingError):
        found = f"the weights of model '{name}' are pickled with more than weights, or are no weights"
        return damaged(
            f"{found}; nothing in them was run", "model.safetensors, or .bin files that hold tensors alone"
        )
    if isinstance(error, SafetensorError):
        return damaged(f"the weights of model '{name}' cannot be read: {text}")
    if isinstance(error, OSError) and "no file named" in text:
        found = f"model '{name}' has no file with weights that transformers reads"
        return damaged(found, "model.safetensors or pytorch_model.bin, or an index of their parts")
    of_files = ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError
    if not isinstance(error, of_files) or (isinstance(error, RuntimeError) and "CUDA" in text):
        return None
    if "trust_remote_code" in text:
        return untrusted_code(name)
    if "ignore_mismatched_sizes" in text:
        return damaged(f"the weights of model '{name}' have other shapes than its config.json declares")
    reason = f"{type(error).__name__}: {text}".splitlines()[0]
    return damaged(f"the files of model '{name}' cannot be loaded: {reason}")


def load_network(model: ResolvedBase, kind: str = "AutoModel", target: Path | None = None) -> PreTrainedModel:
    """A model's network in fp32, in one of transformers' `Auto…` classes, for a process that converts it.

    What its checks found is written beside the file `target`, as `CHECKS`.
    """
    import torch
    import transformers

    with loading(model):
        network: PreTrainedModel = getattr(transformers, kind).from_pretrained(
            model.files.folder(), dtype=torch.float32, trust_remote_code=model.trust_remote_code
        )
    figures, reads_padding = observe(model, network.eval())
    if reads_padding:
        raise ValueError("padding changes what it computes of a text, and batches here are padded")
    if target:
        write_json(target.with_name(CHECKS), {"tokens embedded": tokens_embedded(network), **figures})
    return network


UNUSED = ("cls_token", "eos_token", "pad_token", "unk_token")
"""Special tokens that FlagEmbedding gives no weight."""


def refuse_missing_heads(model: ResolvedModel) -> None:
    """Raise an `InputError` if a model is without the files of BGE-M3's heads."""
    missing = [name for name in (TOKEN_HEAD, WORD_HEAD) if name not in model.card.heads]
    if missing:
        raise InputError(
            f"model '{model.name}' has no {missing[0]}",
            allowed="BGE-M3, or a model that was fine-tuned from it by FlagEmbedding",
            fix="choose such a model, backend sentence-transformers, or model.output: dense",
        )


def read_head(folder: Path, output: str) -> dict[str, torch.Tensor]:
    """The weights of a linear head, `weight` and `bias`, by the output that it makes."""
    import torch

    path = folder / (WORD_HEAD if output == "sparse" else TOKEN_HEAD)
    try:
        head: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (EOFError, RuntimeError) as error:
        raise damaged(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    return head


def unused_tokens(tokenizer: PreTrainedTokenizerBase) -> Int64:
    """The numbers of the special tokens that have no weight."""
    named = tokenizer.special_tokens_map
    return np.array(
        [tokenizer.convert_tokens_to_ids(named[name]) for name in UNUSED if name in named], np.int64
    )


def largest_weights(
    rows: Int64, words: Int32 | Int64, weights: Float32, unused: Int64, count: int
) -> RaggedRows:
    """The words of each of `count` texts, ascending, and of each word the largest weight.

    `rows` are int64 [n], the text of each token, `words` [n] its number, and `weights` float32 [n], above 0.
    The tokens `unused` have no weight.
    """
    used = ~np.isin(words, unused)
    pairs = rows[used] * (1 << 32) + words[used]
    order = np.argsort(pairs, kind="stable")
    firsts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    chosen = pairs[order][firsts]
    largest = weights[used][order]
    largest = np.maximum.reduceat(largest, firsts) if len(firsts) else largest
    lengths = np.bincount(chosen >> 32, minlength=count)
    return RaggedRows(np.cumsum(lengths), ((chosen & 0xFFFFFFFF).astype(np.int32), largest))

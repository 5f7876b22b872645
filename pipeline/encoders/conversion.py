"""Conversion of a torch model for another backend: the process it runs in, and the check of its vectors.

Converting takes several times the memory of the converted model, so it runs in a process of its own, which
gives all of that back when it ends (`pipeline.core.subprocesses`). A converted model must give the vectors
that torch gives; see `pipeline.encoders.agreement`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.core.errors import InputError
from pipeline.core.subprocesses import REFUSAL, last_line, run_in_subprocess
from pipeline.encoders.torch.loading import loading
from pipeline.models.files import untrusted_code
from pipeline.models.model import ResolvedBase, ResolvedModel
from pipeline.storage.artifacts import Draft, Recipe

if TYPE_CHECKING:
    import torch

    from pipeline.encoders.agreement import PooledNetwork


class ConversionSettings(NamedTuple):
    """The settings of a `ResolvedModel` that a conversion depends on, and its name for messages."""

    name: str
    pooling: str
    pad_id: int
    trust_remote_code: bool
    output: str = "dense"


def conversion_recipe(model: ResolvedModel, backend: str, schema: int, package: str) -> Recipe:
    """Everything that shapes the model that a backend converts with a package."""
    plain = {
        "schema": schema,
        "model": model.identity,
        "tokenizer": model.tokenizer.probe,
        "pooling": model.pooling,
        "trust_remote_code": model.trust_remote_code,
        package: metadata.version(package),
        **({} if model.output == "dense" else {"output": model.output}),
    }
    return Recipe(backend, plain)


def convert_in_subprocess(
    model: ResolvedBase,
    module: str,
    target: Path,
    action: str,
    allowed: str,
    fix: str,
    fields: Sequence[str] = ConversionSettings._fields,
) -> None:
    """Run a module that converts a model's torch weights.

    The module is run with the model's folder, the `target` to write, and JSON of these `fields` of the model.

    Raises:
        InputError: The model's files are at fault, or need Python files of their own; or the model is not
            supported: it "cannot be" that `action`, with `allowed` and `fix`.
    """
    settings = json.dumps({name: getattr(model, name) for name in fields})
    error = run_in_subprocess(module, [str(model.files.folder()), str(target), settings], target)
    if error is None:
        model.files.check()
        return
    if "`trust_remote_code=True`" in error and not model.trust_remote_code:
        raise untrusted_code(model.name)
    reason = last_line(error)
    if reason.startswith(REFUSAL):
        raise InputError(reason.removeprefix(REFUSAL).rstrip("."))
    raise InputError(f"model '{model.name}' cannot be {action}: {reason}", allowed=allowed, fix=fix)


def keep_files(aside: Path, draft: Draft, names: Iterable[str]) -> None:
    """Move finished files from a scratch folder into a draft."""
    for name in names:
        with draft.file(name) as path:
            os.replace(aside / name, path)


def pooled_network(folder: Path, settings: ConversionSettings) -> PooledNetwork:
    """A torch module from token ids and mask to vectors; its `body` is loaded by transformers from `folder`.

    Raises:
        InputError: The model's files are damaged.
    """
    import torch
    from transformers import AutoModel

    name, pooling, trust = settings.name, settings.pooling, settings.trust_remote_code

    class PooledEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with loading(name):
                body = AutoModel.from_pretrained(folder, dtype=torch.float32, trust_remote_code=trust)
            self.body = body.eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            if pooling == "cls":
                pooled = hidden[:, 0]
            elif pooling == "mean":
                mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
            else:
                last = attention_mask.sum(1) - 1
                pooled = hidden[torch.arange(hidden.shape[0]), last]
            vectors: torch.Tensor = pooled
            return vectors

    return PooledEncoder()

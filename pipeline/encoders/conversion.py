"""Conversion of a model for another backend: what it gives, its process, and the check of its vectors.

Converting takes several times the memory of the converted model, so it runs in a process of its own, which
gives all of that back when it ends (`pipeline.core.subprocesses`). Rows that the model's library gives are
kept beside the converted model, whose own are compared with them; see `pipeline.encoders.agreement`.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.core.subprocesses import REFUSAL, last_line, run_in_subprocess
from pipeline.encoders.agreement import LONGEST, SHORT, Probes, Watch, sample_tokens
from pipeline.models.files import untrusted_code
from pipeline.models.model import ResolvedBase, ResolvedModel
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"


class Conversion(ABC):
    """What a backend makes of a model's files once, before it runs the model; a subclass says how."""

    def suits(self, model: Any) -> bool:
        """Whether the backend runs a model fast on this machine, as far as its files tell."""
        return True

    @abstractmethod
    def recipe(self, model: Any) -> Recipe:
        """All that shapes the converted model."""

    @abstractmethod
    def make(self, model: Any, store: Store) -> Artifact:
        """The converted model, from the store or made now.

        It has rows of its library in the file `PROBES`, unless it was compared with the library while it was
        made.

        Raises:
            InputError: The backend cannot run the model, or gives other results than its library.
        """

    def watch(self, model: Any, folder: Path, tokenizer: Tokenizer) -> Watch | None:
        """What compares a few rows while texts are encoded; None if that is not needed."""
        return None

    def is_exact(self, model: Any) -> bool:
        """Whether rows beyond the limit are refused; otherwise their distance is only shown."""
        return True

    def fix(self, model: Any) -> str:
        """What to set if the rows are too far from those of the library."""
        return "set another model.backend"


def conversion_recipe(
    model: ResolvedModel, backend: str, schema: int, package: str, **others: object
) -> Recipe:
    """Everything that shapes the model that a backend converts with a package; `others` of that backend."""
    plain = {
        "schema": schema,
        "model": model.identity,
        "tokenizer": model.tokenizer.probe,
        "pooling": model.pooling,
        "trust_remote_code": model.trust_remote_code,
        package: metadata.version(package),
        **({} if model.output == "dense" else {"output": model.output}),
        **others,
    }
    return Recipe(backend, plain)


def library_rows(model: ResolvedModel, positions: int) -> Probes:
    """Rows of texts of the sample by the model's library, in fp32 on the CPU.

    That is sentence-transformers, or FlagEmbedding for the heads of BGE-M3. Texts have at most as many tokens
    as the network has `positions`.
    """
    plain = replace(model, precision="fp32", device="cpu")
    if model.output != "dense" and model.card.has_m3_heads:
        from pipeline.encoders.torch.flag import load
    else:
        from pipeline.encoders.torch.sentence_transformers import load
    many = model.output == "multivector"  # a row has a vector for each token
    most = min(SHORT if many else LONGEST, positions)
    library = load(plain)
    return Probes.by(library, sample_tokens(library.tokenizer, most, most // 8 if many else most))


def convert(
    model: ResolvedBase,
    draft: Draft,
    module: str,
    files: Sequence[str],
    action: str,
    allowed: str,
    fix: str,
) -> JsonObject:
    """Run a module that converts a model's torch weights, and keep the `files` that it writes.

    It reads the model and the path of the first file by `read_task`. The model's tokenizer is beside it.

    Raises:
        InputError: The model's files are at fault, or need Python files of their own; or the model is not
            supported: it "cannot be" that `action`, with `allowed` and `fix`.
    """
    here = replace(model, files=replace(model.files, small_files=model.files.folder(), repo=""))
    with draft.scratch() as aside:
        target = aside / files[0]
        shutil.copy(model.tokenizer.path, aside / TOKENIZER)
        error = run_in_subprocess(module, [], target, pickle.dumps((here, target)))
        if error is None:
            model.files.check()
            keep_files(aside, draft, files)
            return {"name": model.name}
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


def read_task() -> tuple[Any, Path]:
    """The model and the target that `convert` sends to this process."""
    task: tuple[Any, Path] = pickle.load(sys.stdin.buffer)
    return task

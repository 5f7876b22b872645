"""Conversion of a torch model for another backend: the process it runs in, and the check of its vectors.

Converting takes several times the memory of the converted model, so it runs in a process of its own, which
gives all of that back when it ends. The process runs a module such as `pipeline.encoders.openvino`, and the
last line on stderr says why it failed. It is started here, and killed as soon as its driver ends:

python -m pipeline.encoders.conversion DRIVER MODULE ARGUMENTS…

A converted model must give the vectors that torch gives; see `pipeline.encoders.agreement`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.core.errors import MEMORY_FULL, InputError
from pipeline.encoders.torch.loading import loading
from pipeline.models.model import ResolvedBase, ResolvedModel, untrusted_code
from pipeline.storage.artifacts import Draft, Recipe

if TYPE_CHECKING:
    import torch

    from pipeline.encoders.agreement import PooledNetwork

REFUSAL = f"{InputError.__module__}.{InputError.__qualname__}: "
"""Before the message, on the last line of stderr, where a model's own files are at fault."""
_SIGNAL_AT_PARENT_S_DEATH = 1  # PR_SET_PDEATHSIG of Linux's prctl
_DISK_FULL = ("iostream error", "No space left")  # in errors of OpenVINO and others whose write failed


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


def run_in_subprocess(module: str, arguments: list[str], weights: Path) -> str | None:
    """Run a module that writes a model's `weights`; what it wrote to stderr if it failed, else None.

    It is killed if this process ends first.

    Raises:
        OSError: The model cannot be written, or the process was killed.
        MemoryError: The memory ran out.
    """
    child = [__name__, str(os.getpid()), module, *arguments]
    command = [sys.executable, "-P", "-m", *child]  # -P: not from the working directory
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise ChildProcessError(f"{module}: the conversion was ended by {name}; memory may have run out")
    if done.returncode:
        _raise_what_the_machine_refused(last_line(done.stderr), weights)
    return done.stderr if done.returncode else None


def _raise_what_the_machine_refused(reason: str, weights: Path) -> None:
    """Raise an error of the disk or of the memory behind a process's last line: no fault of the model.

    Raises:
        OSError: The disk refused to write `weights`.
        MemoryError: The memory ran out.
    """
    if reason.startswith(REFUSAL):
        return
    if numbered := re.search(r"\[Errno (\d+)\] ([^:]*)", reason):
        raise OSError(int(numbered[1]), numbered[2], str(weights))
    if any(words in reason for words in _DISK_FULL):
        raise OSError(
            errno.ENOSPC, "the converted model cannot be written: the disk may be full", str(weights)
        )
    if any(words in reason for words in MEMORY_FULL):
        raise MemoryError(reason)


def last_line(stderr: str) -> str:
    """The last line of a process's stderr: the error that ended it."""
    return (stderr.strip().splitlines() or ["no reason given"])[-1]


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


def end_with(driver: int) -> None:
    """Let the kernel kill this process when the one that started it ends, as Linux can.

    Neither Python nor a signal's handler would get its turn while a library traces or compiles a model.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system: this process ends when its work does
        ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENT_S_DEATH, signal.SIGKILL)
    try:
        os.kill(driver, 0)
    except ProcessLookupError:  # it ended before that
        raise SystemExit("the process that this one works for has ended") from None


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

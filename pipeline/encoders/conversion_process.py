"""Conversions of a torch model for another backend, each in a process of its own.

Converting takes several times the memory of the converted model: torch's weights, the traced graph, and what
both leave in allocators. All of it is returned to the system when the process ends, before encoding begins.
The process runs one of this package's modules, such as `pipeline.encoders.openvino.conversion`; its last
line on stderr says why a conversion failed.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.models.model import Model, untrusted_code

_DISK_FULL = ("iostream error", "No space left")  # in errors of OpenVINO and others whose write failed


def convert_in_subprocess(
    model: Model, folder: Path, module: str, target: Path, made: str, allowed: str, fix: str
) -> None:
    """Run a module that converts a model's torch weights.

    Args:
        model: The model.
        folder: Folder with its files.
        module: Module to run, with the folder, the target and JSON of some of the model's settings.
        target: The file it writes; it may write others beside it.
        made: Past participle for errors, as in "cannot be packed in int16".
        allowed: Models that the module supports.
        fix: Advice to the user of another model.

    Raises:
        InputError: The model cannot be loaded, or the module does not support it.
        OSError: See `run_in_subprocess`.
    """
    names = ("pooling", "normalize", "pad_id", "trust_remote_code")
    settings = {name: getattr(model, name) for name in names}
    error = run_in_subprocess(module, [str(folder), str(target), json.dumps(settings)], target)
    if error is not None and "`trust_remote_code=True`" in error and not model.trust_remote_code:
        raise untrusted_code(model.name)
    if error is not None:
        raise InputError(
            f"model '{model.name}' cannot be {made}: {last_line(error)}", allowed=allowed, fix=fix
        )
    model.files.check()


def run_in_subprocess(module: str, arguments: list[str], weights: Path) -> str | None:
    """Run a module that writes a model's `weights`.

    Returns:
        What it wrote to stderr if it failed, else None.

    Raises:
        OSError: The model cannot be written, or the process was killed.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]  # -P: not from the working directory
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
        raise ChildProcessError(f"{module} was ended by {name}, which may mean that memory ran out")
    if done.returncode and any(reason in last_line(done.stderr) for reason in _DISK_FULL):
        raise OSError(
            errno.ENOSPC, "the converted model cannot be written: the disk may be full", str(weights)
        )
    return done.stderr if done.returncode else None


def last_line(stderr: str) -> str:
    """The last line of a process's stderr: the error that ended it."""
    return (stderr.strip().splitlines() or ["no reason given"])[-1]

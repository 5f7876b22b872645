"""How is a model made ready once? In a process that gives the memory it took back when it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.models.model import Model, distrusted

_UNWRITTEN = ("iostream error", "No space left")  # what OpenVINO, and others, say of a write that fails


def from_torch(
    model: Model, folder: Path, module: str, target: Path, made: str, allowed: str, fix: str
) -> None:
    """Run a module that makes something of a model's torch weights.

    Args:
        model: Whose.
        folder: Of its files.
        module: Run with the folder, the target, and as JSON how the model is used.
        target: The file it writes; others go beside it.
        made: What it makes, as in "cannot be ...".
        allowed: Models it is made for.
        fix: What to do about another one.

    Raises:
        InputError: The model cannot be loaded or is not one of those.
        OSError: See `in_its_own_process`.
    """
    settings = {
        name: getattr(model, name) for name in ("pooling", "normalize", "pad_id", "trust_remote_code")
    }
    said = in_its_own_process(module, [str(folder), str(target), json.dumps(settings)], target)
    if said is not None and "`trust_remote_code=True`" in said and not model.trust_remote_code:
        raise distrusted(model.name)
    if said is not None:
        raise InputError(
            f"model '{model.name}' cannot be {made}: {last_line(said)}", allowed=allowed, fix=fix
        )
    model.files.check()


def in_its_own_process(module: str, arguments: list[str], weights: Path) -> str | None:
    """Run a module that writes a model, so that the memory it takes is given back.

    Returns:
        What it said if it failed, else None.

    Raises:
        OSError: The model cannot be written, or something killed the process.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]  # -P: not what lies in the working directory
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
        raise ChildProcessError(f"{module} was ended by {name}, as for want of memory")
    if done.returncode and any(said in last_line(done.stderr) for said in _UNWRITTEN):
        raise OSError(errno.ENOSPC, "the model made ready cannot be written, as on a full disk", str(weights))
    return done.stderr if done.returncode else None


def last_line(said: str) -> str:
    """What a process said last, as on the error that ended it."""
    return (said.strip().splitlines() or ["no reason given"])[-1]

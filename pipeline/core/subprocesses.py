"""Processes of their own for work that takes much memory, or that imports what a run does without.

Such a process runs a module such as `pipeline.encoders.openvino`, and the last line on stderr says why it
failed. It is started here, and killed as soon as its driver ends:

python -m pipeline.core.subprocesses DRIVER MODULE ARGUMENTS…
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from pipeline.core.errors import MEMORY_FULL, InputError

REFUSAL = f"{InputError.__module__}.{InputError.__qualname__}: "
"""Before the message, on the last line of stderr, where a model's own files are at fault."""
_SIGNAL_AT_PARENT_S_DEATH = 1  # PR_SET_PDEATHSIG of Linux's prctl
_DISK_FULL = ("iostream error", "No space left")  # in errors of OpenVINO and others whose write failed


_END: ContextVar[float] = ContextVar("end", default=math.inf)


@contextlib.contextmanager
def ending_at(deadline: float) -> Iterator[None]:
    """Within this context, kill a process that runs past a deadline of the monotonic clock: TimeoutError."""
    before = _END.set(deadline)
    try:
        yield
    finally:
        _END.reset(before)


def run_in_subprocess(module: str, arguments: list[str], weights: Path, message: bytes = b"") -> str | None:
    """Run a module that writes a model's `weights`; what it wrote to stderr if it failed, else None.

    It reads the `message` on stdin, and is killed if this process ends first.

    Raises:
        OSError: The model cannot be written, or the process was killed, or was not done at its deadline.
        MemoryError: The memory ran out.
    """
    child = [__name__, str(os.getpid()), module, *arguments]
    command = [sys.executable, "-P", "-m", *child]  # -P: not from the working directory
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    left = _END.get() - time.monotonic()
    try:
        done = subprocess.run(
            command,
            # Threads that wait for work would spin: a conversion took a fifth more processor time.
            env={"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": paths},
            input=message,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=max(left, 0) if math.isfinite(left) else None,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, "the time is over", str(weights)) from None
    errors = done.stderr.decode(errors="replace")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise ChildProcessError(f"{module}: the conversion was ended by {name}; memory may have run out")
    if done.returncode:
        _raise_what_the_machine_refused(last_line(errors), weights)
    return errors if done.returncode else None


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

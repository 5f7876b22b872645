"""The start of a process that works for another, its driver: it is killed as soon as the driver ends.

python -m pipeline.encoders.child DRIVER MODULE ARGUMENTS… runs a module; DRIVER is the driver's process id.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys

_SIGNAL_AT_PARENT_S_DEATH = 1  # PR_SET_PDEATHSIG of Linux's prctl


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

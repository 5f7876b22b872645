"""The processes that a test waits for."""

import shlex
import signal
import sys

import psutil


def abort_children() -> None:
    """Let each child print its stacks and end, so that the test that waits for it fails and says where."""
    for child in psutil.Process().children(recursive=True):
        print(f"aborted: {shlex.join(child.cmdline())}", file=sys.__stderr__)
        child.send_signal(signal.SIGABRT)

"""What asks `fork_server.py` for a process: the tests, and processes of it that convert a model."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def connect(address: str) -> Any:
    """The lines of a connection to the server; an OSError if none runs."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    lines = connection.makefile("rw", encoding="utf-8")
    connection.close()  # when `lines` is closed
    if not lines.readline():
        raise ConnectionResetError("the server was about to end")
    return lines


class Fork:
    """Runs `python -m MODULE ARGUMENTS < INPUT` without its imports, as `subprocess.run` does.

    `log` is a folder for what it reads and prints, and `server` gives the lines of a connection.
    """

    def __init__(self, log: Path, server: Callable[[], Any]) -> None:
        self._log, self.server = log, cache(server)

    def __call__(
        self,
        module: str,
        *arguments: str,
        environment: dict[str, str],
        folder: Path | str,
        input: bytes = b"",
        **at: Any,
    ) -> Any:
        (self._log / "stdin").write_bytes(input)
        line = {"module": module, "arguments": arguments, "environment": environment, **at}
        line |= {"folder": str(folder), "log": str(self._log)}
        print(json.dumps(line), file=self.server(), flush=True)
        return self.answer()

    def answer(self) -> Any:
        """The end of a process; also of one that was stopped."""
        code = json.loads(self.server().readline())
        stdout, stderr = ((self._log / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([], code, stdout, stderr)

    def close(self) -> None:
        if self.server.cache_info().currsize:
            self.server().close()


def starting(fork: Fork) -> Any:
    """In place of `subprocess`, where a model is converted or queries are timed: it forks processes.

    So they need not import torch first. Of `-c` the statements run by the module `statements`.
    """

    def run(command: list[str], *, env: dict[str, str], input: bytes, **_: Any) -> Any:
        assert command[:2] == [sys.executable, "-P"]
        option, name, *arguments = command[2:]
        module = [name] if option == "-m" else ["statements", name]
        done = fork(*module, *arguments, environment=env, folder=os.getcwd(), input=input)
        done.stderr = done.stderr.encode()
        return done

    names = ("PIPE", "DEVNULL", "TimeoutExpired")
    return SimpleNamespace(run=run, **{name: getattr(subprocess, name) for name in names})

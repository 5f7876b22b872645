"""A process that has imported everything and started nothing, from which real commands fork in no time.

It reads a JSON line for each command on stdin: `arguments`, the `folder` to run in, the `log` folder for
`stdout` and `stderr`, the folder of prepared `models`, and perhaps `at`: the call of this process at which
something happens to it, as `{"call": "replace", "number": 3, "signal": 9}` (killed before its third rename)
or with `"errno": 28` (the call is refused); with a `path` only calls on paths that contain it count. It
answers with the exit code, and leaves in `calls` how many there were. A command that is stopped by SIGSTOP is
answered for twice: with its number, and when it has ended.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss  # noqa: F401
import numpy
import pyarrow.compute
import pyarrow.csv
import pyarrow.json
import rich.console  # noqa: F401
import scipy.stats  # noqa: F401
import tokenizers  # noqa: F401
import tqdm  # noqa: F401

import pipeline.api
import pipeline.encoders.openvino.backend
import pipeline.formats.judgments
import pipeline.metrics.evaluation
import pipeline.retrievers.dense
import pipeline.retrievers.multivector
import pipeline.retrievers.sparse
import pipeline.search.exact
import pipeline.search.inverted_index
import pipeline.search.maxsim  # noqa: F401
from pipeline import cli
from pipeline.core.installation import import_openvino

CALLS = {"replace": os, "fsync": os, "unlink": os, "mkdir": os, "open": builtins, "Popen": subprocess}
calls = dict.fromkeys(CALLS, 0)


def watch(name: str, at: dict[str, Any]) -> Callable[..., Any]:
    """The call, which counts itself, and at the given one does not happen, or happens by half."""
    original = getattr(CALLS[name], name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        if name == "open" and (
            not set("wxa") & set(args[1] if args[1:] else "") or str(args[0]).startswith("/proc")
        ):
            return original(*args, **kwargs)
        if name == "Popen" and "pipeline.encoders.openvino.conversion" not in args[0]:
            return original(*args, **kwargs)
        if "__pycache__" in str(args[0]):  # where Numba keeps what it has compiled
            return original(*args, **kwargs)
        calls[name] += at.get("path", "") in str(args[0])
        if at.get("call") != name or calls[name] != at["number"]:
            return original(*args, **kwargs)
        if "errno" in at:
            raise OSError(at["errno"], os.strerror(at["errno"]), str(args[0]))
        if name == "open":  # a file that is begun and not finished
            with original(*args, **kwargs) as file:
                os.write(file.fileno(), b"\x93NUMPY half")
        if name == "Popen":  # a child that outlives this process
            original(*args, **kwargs)
        os.kill(os.getpid(), at["signal"])
        return original(*args, **kwargs)

    return counted


def command(wanted: dict[str, Any]) -> None:
    """Become the command; does not return."""
    log = Path(wanted["log"])
    os.chdir(wanted["folder"])
    os.environ["BENCHMARCO_CACHE"] = wanted["models"]
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(log / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, owner in CALLS.items():
        setattr(owner, name, watch(name, wanted.get("at", {})))
    sys.argv = ["benchmarco", *wanted["arguments"]]
    code = 1
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        (log / "calls").write_text(json.dumps(calls), encoding="utf-8")
        os._exit(code)


def serve() -> None:
    """Fork a command for each line, and wait for it."""
    import_openvino()
    pyarrow.array(numpy.zeros(1))  # imports pandas, if it is installed
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            command(wanted)
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            print(json.dumps({"stopped": child}), flush=True)
            _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == "__main__":
    serve()

"""A process that has imported everything and started nothing, from which real processes fork in no time.

python tests/fork_server.py SOCKET [FEATURES]

FEATURES are those of the processor on which it imports everything, separated by spaces. If an import has
started threads, it ends with a message: a process that is forked lacks them, and may wait for them for ever.
A process that takes longer than it may prints its stacks to `stderr` and ends with 1.

It listens on a socket for the processes of a test run, and ends when the last of them does. Whoever starts it
waits until it listens. A connection begins with an empty line, which says that the server is there. Then it
reads a JSON line for each process to fork: the `module` to run as `python -m` does, its `arguments`, its
`environment`, the `folder` to run in, the `log` folder of `stdin`, `stdout` and `stderr`, perhaps `seconds`,
which it may take, and perhaps `at`: the call of this process at which something happens to it, as
`{"call": "replace", "number": 3, "signal": 9}` (killed before its third rename) or with `"errno": 28` (the
call is refused); with a `path` only calls on paths that contain it count. It answers with the exit code. A
process that is stopped by SIGSTOP is answered for twice: with its number, and when it has ended. A process
that converts a model asks this server for another one, unless something happens as it starts one.
"""

import builtins
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import inside
import pytest
from forked import Fork, connect, starting
from huggingface_hub import constants

if sys.argv[2:]:
    inside.be_processor(sys.argv[2])

import numpy
import pyarrow.compute
import pyarrow.csv
import pyarrow.json
import rich.console  # noqa: F401
import scipy.stats  # noqa: F401
import sentence_transformers  # noqa: F401
import torch  # noqa: F401
import tqdm  # noqa: F401
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.bert.modeling_bert  # noqa: F401
from threadpoolctl import ThreadpoolController

import pipeline.api
import pipeline.cli  # noqa: F401

ADDRESS = sys.argv[1]
SECONDS = 280
"""A forked process may take so long, unless it is told otherwise; pytest ends a test after 300 s."""
WATCHED = {"replace": os, "fsync": os, "unlink": os, "mkdir": os, "open": builtins, "Popen": subprocess}


def watch(at: dict[str, Any]) -> Callable[..., Any]:
    """The call, which counts itself, and at the given one does not happen, or happens by half."""
    name = at["call"]
    original = getattr(WATCHED[name], name)
    calls = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        place = str(args[0])
        reads = name == "open" and not set("wxa") & set(args[1] if args[1:] else "")
        other = name == "Popen" and "pipeline.encoders.openvino" not in args[0]
        passed = reads or other or place.startswith("/proc") or "__pycache__" in place  # Numba's own files
        counts = not passed and at.get("path", "") in place
        calls += counts
        if not counts or calls != at["number"]:
            return original(*args, **kwargs)
        if "errno" in at:
            raise OSError(at["errno"], os.strerror(at["errno"]), place)
        if name == "open":  # a file that is begun and not finished
            with original(*args, **kwargs) as file:
                os.write(file.fileno(), b"\x93NUMPY half")
        if name == "Popen":  # a child that outlives this process
            original(*args, **kwargs)
        os.kill(os.getpid(), at["signal"])
        return original(*args, **kwargs)

    return counted


def become(wanted: dict[str, Any]) -> None:
    """Be the process; does not return."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(wanted["log"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(Path(wanted["log"], "stdin"), os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # without what this process's parent read ahead
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.dump_traceback_later(wanted.get("seconds", SECONDS), exit=True, file=2)
    importlib.reload(constants)  # the hub's client reads the environment when it is imported
    at = wanted.get("at")
    if not at or at["call"] != "Popen":
        log = Path(wanted["log"], "conversion")
        log.mkdir(exist_ok=True)
        inside.convert_by(pytest.MonkeyPatch(), starting(Fork(log, partial(connect, ADDRESS))))
    if at:
        setattr(WATCHED[at["call"]], at["call"], watch(at))
    sys.argv = [wanted["module"], *wanted["arguments"]]
    code = 1
    try:
        runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def fork_for(lines: TextIO) -> None:
    """Fork a process for each line of a connection, and wait for it."""
    print(file=lines, flush=True)
    for line in lines:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            become(wanted)
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            print(json.dumps({"stopped": child}), file=lines, flush=True)
            _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), file=lines, flush=True)


def end_with_the_last(*_: object) -> None:
    """End this process when none is left that serves a connection."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        os._exit(0)


def started_threads() -> int:
    """Threads that imports have started, but those that survive a fork: of OpenBLAS, of Arrow's memory.

    An emulator has one of its own in each process, as a fork shows.
    """
    running = _threads()  # before the fork, which ends those of OpenBLAS
    if (child := os.fork()) == 0:
        os._exit(_threads())
    own = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    blas = [each for each in ThreadpoolController().lib_controllers if each.internal_api == "openblas"]
    return running - own - sum(each.num_threads - 1 for each in blas if each.threading_layer == "pthreads")


def _threads() -> int:
    """Threads of this process, but those of Arrow's memory."""
    tasks = [Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task")]
    return sum(not name.startswith("jemalloc") for name in tasks)


def serve(address: str) -> None:
    """Fork a process for each connection."""
    inside.import_all()  # of OpenVINO without its telemetry, for which each conversion would start processes
    import openvino.frontend.pytorch.ts_decoder
    import openvino.tools.ovc  # noqa: F401

    pyarrow.array(numpy.zeros(1))  # imports pandas, if it is installed
    if (started := started_threads()) > 0:  # fewer where a pool of OpenBLAS has not begun
        sys.exit(f"fork_server: imports have started {started} threads, which forked processes would lack")
    gc.freeze()  # a garbage collection in a fork would touch, and so copy, the memory that all share
    Path(address).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    if os.fork():
        os._exit(0)  # who started it waits no longer
    signal.signal(signal.SIGCHLD, end_with_the_last)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            with contextlib.suppress(BrokenPipeError), connection.makefile("rw", encoding="utf-8") as lines:
                fork_for(lines)
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    serve(ADDRESS)

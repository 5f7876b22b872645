"""Ray clusters: connecting to one, sharing out its processors, and checking that its nodes are usable."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from pipeline.core import installation, machine
from pipeline.core.display import counted
from pipeline.core.errors import InputError, memory_ran_out, short_repr

Handle: TypeAlias = Any
"""Ray itself, an actor or a reference in its object store: it has no types for them."""

log = logging.getLogger(__name__)

_ENDED = (
    "benchmarco: the run ended without a message: it was killed, or Ray ended it because a process of Ray on "
    "this machine is gone; what was finished is kept, run the same command again"
)
_REACH = 5.0  # seconds that a cluster's head may take to answer


def connect(address: str | None) -> tuple[Handle, bool]:
    """Ray, and whether this call connected to a cluster: the program may have done so already."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    if ray.is_initialized():
        return ray, False
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        log.info("starting Ray here")
        try:
            ray.init("local", num_cpus=machine.cores(), include_dashboard=False, **quiet)
        except Exception as error:  # Ray raises many types where one of its processes does not start or ends
            if memory_ran_out(error):
                raise
            raise InputError(
                f"engine.kind: ray: Ray does not start here: {type(error).__name__}: "
                f"{short_repr(str(error).strip().partition(chr(10))[0])}",
                allowed="a machine on which 'ray start --head' works",
                fix="run again, look into the newest logs in /tmp/ray, or set engine.kind: local",
            ) from None
    else:
        try:
            if address != "auto":  # Ray itself would try for minutes
                _check_answer(address)
            ray.init(address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(
                f"engine.address: no Ray cluster at {address}: {error}",
                allowed="null, auto, or HOST:PORT of the head of a cluster that this machine is a node of",
                fix="start one as docs/scale.md says; if it has a token, set RAY_AUTH_TOKEN_PATH as there",
            ) from None
    _print_nothing(ray)
    explain_sudden_end()
    return ray, True


def _check_answer(address: str) -> None:
    """Raise an OSError or a ValueError unless a gRPC server answers, as HTTP/2 begins (RFC 9113, 3.4)."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), _REACH) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        if connection.recv(9)[3:4] != b"\x04":  # the type of a frame of settings
            raise ValueError("another program answers there")


@cache
def explain_sudden_end() -> None:
    """Have a process say why, if this one ends without running Python's exit handlers.

    Ray's C++ code ends a process when the object store's socket closes, as after the loss of its agent. It
    kills its children first, so the process that watches is a grandchild.
    """
    script = 'exec 3<&0; (read -r end <&3 || echo "$0" >&2) &'
    watch = subprocess.Popen(
        ["/bin/sh", "-c", script, _ENDED],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
    )
    watch.wait()  # for the first process alone, which leaves the grandchild behind
    atexit.register(_say_end, watch.stdin)


def _say_end(watch: Any) -> None:
    with contextlib.suppress(OSError):
        watch.write(b"end\n")
        watch.close()


def _print_nothing(ray: Handle) -> None:
    """End the thread in which Ray prints to stdout what its processes report, as `ray.shutdown` ends it."""
    worker = ray._private.worker.global_worker
    with contextlib.suppress(AttributeError):  # where a version of Ray has no such thread
        worker.threads_stopped.set()
        worker.gcs_error_subscriber.close()
        worker.listener_thread.join()
        worker.threads_stopped.clear()


def share_out(nodes: Sequence[dict[str, float]], workers: int | None, gpu: bool) -> tuple[int, int]:
    """The number of workers, and of CPUs for each: the most that lets all run at once.

    Args:
        nodes: The resources of each node, as Ray counts them.
        workers: The number in the config; None is one per GPU, or without GPUs one per node.
        gpu: Whether each has a GPU of its own.
    """
    kind = "GPU" if gpu else "CPU"
    usable = [node for node in nodes if int(node.get(kind, 0))]
    most = sum(int(node[kind]) for node in usable)
    workers = workers or (most if gpu else len(usable))
    if not 0 < workers <= most:
        asked = f"engine.workers: {workers}" if workers else "model.device: cuda"
        raise InputError(
            f"{asked}, but the cluster has {counted(most, kind)}",
            allowed=f"1 to {most} workers" if most else f"a cluster with a {kind}",
            fix=f"lower engine.workers, or add nodes with {kind}s" if most else "set model.device to cpu",
        )
    if gpu:
        return workers, min(int(node.get("CPU", 0)) // int(node["GPU"]) for node in usable)
    sizes = range(int(max(node["CPU"] for node in usable)), 0, -1)
    return workers, next(n for n in sizes if sum(int(node["CPU"]) // n for node in usable) >= workers)


def compare(node: str, versions: dict[str, str]) -> None:
    """Refuse a node that has other versions of packages; builds of one version, such as +cpu, are alike."""
    for package, here in installation.versions().items():
        there = versions.get(package, "none")
        if there.partition("+")[0] != here.partition("+")[0]:
            raise InputError(
                f"engine: node {node} has {package} {there}, and this machine {here}",
                allowed="the same versions everywhere",
                fix="install the same versions of all packages on every node",
            )


def check_node(ray: Handle) -> None:
    """Raise a ChildProcessError if this machine's Ray node, its raylet, has died.

    Ray itself does not report it: calls that wait for a worker then wait for ever, and those that use the
    object store end this process without a message. The raylet listens on a socket, which refuses connections
    once it is dead; one that is only slow does not count as dead.
    """
    local = ray._private.worker.global_worker.node
    if local is None:  # the program is a client of a cluster and has no node
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_REACH)
        try:
            connection.connect(local.raylet_socket_name)
        except (ConnectionRefusedError, FileNotFoundError):
            raise ChildProcessError(
                "this machine's Ray node is lost: its raylet has ended, as for want of memory"
            ) from None
        except OSError:  # it is busy
            return


def send_no_more_than_needed(ray: Handle) -> None:
    """Send memory-mapped arrays as plain ones, and a slice of an Arrow column without the rest of it.

    Ray would copy the first once more, and send the whole column for the second.
    """
    import pyarrow as pa

    def chunks(column: pa.ChunkedArray) -> list[pa.Array]:
        return [pa.concat_arrays([chunk]) for chunk in column.chunks]

    register = ray.util.register_serializer
    register(np.memmap, serializer=np.asarray, deserializer=np.asarray)
    register(pa.ChunkedArray, serializer=chunks, deserializer=pa.chunked_array)


def node_id() -> str:
    """The id of the node that this process is on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def node() -> str:
    """This node's address and the beginning of its id."""
    import ray

    return f"{ray.util.get_node_ip_address()}/{node_id()[:8]}"

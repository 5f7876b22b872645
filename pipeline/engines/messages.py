"""Messages between processes of this machine: any object that can be pickled, its arrays in shared memory."""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import tempfile
from multiprocessing.connection import Connection
from typing import BinaryIO

from pipeline.engines.engine import Content

ALIGNED = 64  # arrays in shared memory begin at multiples of so many bytes


def send(connection: Connection, content: Content) -> None:
    """Send an object; its arrays are put into shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(content, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    connection.send_bytes(pickled)
    connection.send([array.nbytes for array in arrays])
    if not arrays:
        return
    with _nameless_file() as file:
        for array in arrays:
            file.seek(-file.tell() % ALIGNED, os.SEEK_CUR)
            file.write(array)
        file.write(b"\0")  # so that there is something to map
        file.flush()
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
            socket.send_fds(copy, [b"\0"], [file.fileno()])


def receive(connection: Connection) -> Content:
    """The next object that was sent; the memory of its arrays is freed with them."""
    pickled, sizes = connection.recv_bytes(), connection.recv()
    if not sizes:
        return pickle.loads(pickled)
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
        _, descriptors, *_ = socket.recv_fds(copy, 1, 1)
    if not descriptors:
        raise EOFError
    memory = memoryview(mmap.mmap(descriptors[0], 0))
    os.close(descriptors[0])
    arrays, start = [], 0
    for size in sizes:
        start += -start % ALIGNED
        arrays.append(memory[start : start + size])
        start += size
    return pickle.loads(pickled, buffers=arrays)


def _nameless_file() -> BinaryIO:
    """A file in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("benchmarco"), "w+b")
    return tempfile.TemporaryFile()

"""The training of Faiss indexes: how many vectors it takes, and a way to watch and interrupt it.

Training can take minutes, in which Faiss calls no Python. So it runs in a thread of its own while the main
thread waits, shows that time passes, and can be interrupted. The thread is then told to stop by Faiss's own
time limit. Most kinds of training look at that limit many times a second, some (LSQ) never do. Those are not
waited for: the process then ends without Python's usual cleaning up, which would free what they still use.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

import faiss

from pipeline.core.progress import Bar
from pipeline.core.records import Float32

TICK = 0.5  # seconds between two signs of life
STOPPING = 3.0  # seconds that an interrupted training has to end
INTERRUPTED = 130  # the exit code of an interrupted command


OPQ_CODES = 256  # the codes of the quantizer that Faiss trains a rotation (OPQ) with, whatever follows it


def least_training_rows(index: Any) -> int:
    """The fewest vectors that Faiss trains an index on: one for each centroid of its largest k-means.

    Those are the lists of an inverted file and the codes of quantizers. A PCA takes one for each component.
    For what is not known here, it is 1, and Faiss itself refuses to train the index.
    """
    actual = faiss.downcast_index(index)  # does not own the index: both names are needed while it is used
    needed = [1, *(1 << bits for bits in _code_bits(actual))]
    if isinstance(actual, faiss.IndexIVF):
        quantizer = faiss.downcast_index(actual.quantizer)
        if not isinstance(quantizer, faiss.MultiIndexQuantizer):  # that one makes its lists of few centroids
            needed.append(actual.nlist)
    if isinstance(actual, faiss.IndexPreTransform):
        chain: Any = actual.chain
        for number in range(chain.size()):
            step = faiss.downcast_VectorTransform(chain.at(number))
            if isinstance(step, faiss.OPQMatrix):
                needed.append(OPQ_CODES)
            elif isinstance(step, faiss.PCAMatrix):
                needed.append(step.d_out)
    names = ("quantizer", "index", "base_index", "refine_index", "storage")
    inner = [getattr(actual, name, None) for name in names]
    return max([*needed, *(least_training_rows(part) for part in inner if part is not None)])


def _code_bits(index: Any) -> list[int]:
    """The bits of a code of each quantizer of an index's own that is trained by k-means."""
    bits = [getattr(index, name).nbits for name in ("pq", "refine_pq") if hasattr(index, name)]
    for name in ("rq", "prq"):
        if hasattr(index, name):
            sizes = getattr(index, name).nbits
            bits += [sizes.at(number) for number in range(sizes.size())]
    return bits


def train(index: Any, vectors: Float32, bar: Bar) -> None:
    """Train an index on vectors float32 [n, dimension]; the bar is refreshed meanwhile, and counts nothing.

    Raises:
        RuntimeError: Faiss cannot train it on them.
        KeyboardInterrupt: The user interrupted it.
    """
    failure: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            index.train(vectors)
        except BaseException as error:
            failure.append(error)
        finally:
            faiss.PythonInterruptCallback.reset()
            ended.set()

    threading.Thread(target=work, name="faiss training", daemon=True).start()
    try:
        while not ended.wait(TICK):  # Python 3.11 takes a thread for ended whose `join` was interrupted
            bar.update(0)
    except KeyboardInterrupt:
        faiss.TimeoutCallback.reset(1e-9)  # 0 would set no limit
        if ended.wait(STOPPING):
            faiss.PythonInterruptCallback.reset()  # again: it may have ended before the limit was set
        else:
            atexit.register(os._exit, INTERRUPTED)
        raise
    if failure:
        raise failure[0]

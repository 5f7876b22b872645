#!/usr/bin/env python
"""How much of the package a command passes: its distinct functions and modules, in all threads.

    .venv/bin/python scripts/count_functions.py run configs/quickstart.yaml  # cold; and again, from the cache
    .venv/bin/python scripts/count_functions.py compare results/a results/b

Functions that modules call while they are imported count; lambdas, comprehensions and classes do not.
For an encoder it also prints the frames from the stage's `make` to the network's first call, both included,
those of a thread after those of the code that started it; and the functions before the encoder gets its first
text.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

PACKAGE = f"{Path(__file__).resolve().parents[1] / 'pipeline'}/"
MAKE, KERNELS = "EncodingRetriever._encode", (".rows", ".forward_tokens", ".compute")
"""Qualified name of the function that makes vectors, and ends of those of the functions that compute them."""
ENCODE = "Encoder.encode_parts"
"""The function of an encoder that is given texts."""


def main() -> None:
    """Run a command of the package, and print what it passed."""
    depths: dict[CodeType, int] = {}
    callers: dict[int, int] = {}  # for each thread, the frames of who started it
    start = threading.Thread.start

    def start_below(self: threading.Thread) -> None:
        callers[id(self)] = frames(sys._getframe(1))
        start(self)

    def frames(above: FrameType | None) -> int:
        depth = callers.get(id(threading.current_thread()), 0)
        while above:
            depth += above.f_code.co_filename.startswith(PACKAGE)
            above = above.f_back
        return depth

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in depths and code.co_filename.startswith(PACKAGE):
            depths[code] = frames(frame)

    threading.Thread.start = start_below  # type: ignore[method-assign]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        from pipeline.cli import main as command

        command()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
    passed = [
        code for code in depths if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    ]
    packages = Counter(code.co_filename.removeprefix(PACKAGE).partition("/")[0] for code in passed)
    print(f"{len(passed)} functions in {len({code.co_filename for code in passed})} modules", file=sys.stderr)
    print(", ".join(f"{name} {count}" for name, count in packages.most_common()), file=sys.stderr)
    names = [code.co_qualname for code in passed]  # in the order of their first calls
    if ENCODE in names:
        print(f"{names.index(ENCODE)} functions before {ENCODE}", file=sys.stderr)
    made = [depths[code] for code in passed if code.co_qualname == MAKE]
    ends = [code for code in passed if code.co_qualname.endswith(KERNELS)]
    kernels = [depths[code] for code in ends if "<locals>" not in code.co_qualname]
    if made and kernels:
        print(f"{max(kernels) - made[0] + 1} frames from {MAKE} to the network", file=sys.stderr)


if __name__ == "__main__":
    main()

"""How does a command speak? Exit codes, one message for what went wrong, progress, tables, JSON."""

from __future__ import annotations

import errno
import functools
import json
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import typer

from pipeline.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.progress import Bar

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Map what a command raises to one message on stderr and its exit code."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        logging.basicConfig(format="benchmarco: %(message)s", stream=sys.stderr)
        logging.getLogger("pipeline").setLevel(logging.INFO)
        try:
            command(*args, **kwargs)
        except InputError as error:
            _stop(str(error), BAD_INPUT)
        except KeyboardInterrupt:
            _stop("interrupted; run the same command again to go on where it stopped", INTERRUPTED)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            remedy = _REMEDIES.get(error.errno or 0, "what was finished is kept")
            _stop(f"{where}{error.strerror or error}; {remedy}", FAILED)

    return run


_ELSEWHERE = "name a folder that can be written with --set cache=DIR and --output DIR"
_REMEDIES = {
    errno.EFBIG: "files may not be that long here: raise ulimit -f, or set cache=DIR on another disk",
    errno.ENOSPC: "make room and run the same command again; what was finished is kept",
    errno.EDQUOT: "make room and run the same command again; what was finished is kept",
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.ENOTDIR: _ELSEWHERE,
    errno.EEXIST: _ELSEWHERE,
}
"""What to do about what a disk refuses."""


def _stop(message: str, code: int) -> None:
    print(f"benchmarco: {message}", file=sys.stderr)
    raise typer.Exit(code)


def progress(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    """A progress bar on stderr, if that is a terminal."""
    from tqdm import tqdm

    scaled = unit == "B"  # bytes, shown as kB and MB
    unit = unit if scaled else f" {unit}"
    return tqdm(total=total, desc=label, unit=unit, unit_scale=scaled, file=sys.stderr, disable=None)


def show(*parts: RenderableType) -> None:
    """Print tables on stdout, as wide as the terminal."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for part in parts:
        console.print(part)


def print_each(documents: list[dict[str, Any]]) -> None:
    """One JSON document: the only one, or a list of several."""
    print_json(documents[0] if len(documents) == 1 else documents)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))

"""How does a command speak? Exit codes, one message for what went wrong, progress, tables, JSON."""

from __future__ import annotations

import errno
import functools
import io
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.core.progress import Bar

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
LOG_SECONDS = 60.0  # between two lines about progress, where stderr is no terminal


def end_at_second_interrupt() -> None:
    """Let the first Ctrl-C end a command in order, and a second one at once, whatever the first waits for."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell ignores it
        signal.signal(signal.SIGINT, interrupt)


def open_closed_streams() -> None:
    """Put the null device where a command is started without stdin, stdout or stderr.

    Else a file that is opened later gets the number of one, and what a library says goes into that file.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Map what a command raises to one message on stderr and its exit code."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        logging.basicConfig(format="benchmarco: %(message)s", stream=sys.stderr)
        logging.getLogger("pipeline").setLevel(logging.INFO)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # letters that a locale cannot write
        try:
            try:
                command(*args, **kwargs)
            except SystemExit:  # after help, or the version
                sys.stdout.flush()
                raise
            sys.stdout.flush()
        except (InputError, OSError) as error:
            message, code = what_happened(error)
            _stop("" if isinstance(error, BrokenPipeError) and _nobody_reads() else message, code)
        except KeyboardInterrupt:
            again = "the same command again" + (" without --fresh" if kwargs.get("fresh") else "")
            _stop(f"interrupted; run {again} to go on where it stopped", INTERRUPTED)

    return run


def _nobody_reads() -> bool:
    """Whether stdout is a pipe whose reader has gone, as with `| head`."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


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
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "name what the link should lead to",
}
"""What to do about what a disk refuses, where the error has no note that says it."""
_MISNAMED = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
"""What no disk could do: the input names what cannot be there."""


def what_happened(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code that it means."""
    if isinstance(error, InputError):
        return str(error), BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        noted = "; ".join(getattr(error, "__notes__", ()))
        remedy = noted or _REMEDIES.get(error.errno or 0, "what was finished is kept")
        code = BAD_INPUT if error.errno in _MISNAMED else FAILED
        return f"{where}{error.strerror or error}; {remedy}", code
    return f"{type(error).__name__}: {error}", FAILED


def report_failure(name: str, error: Exception) -> int:
    """Say on stderr what stopped one of several benchmarks; the exit code that it means."""
    message, code = what_happened(error)
    if not isinstance(error, InputError | OSError):
        traceback.print_exception(error)
    print(f"benchmarco: {name} failed: {message}", file=sys.stderr)
    return code


def _stop(message: str, code: int) -> NoReturn:
    """Say what ended a command, if anything, and end; what stdout did not take is lost."""
    if message:
        print(f"benchmarco: {message}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # which Python would try once more, and say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(code)


def progress(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    """A progress bar on stderr; where that is no terminal, a line now and then."""
    from tqdm import tqdm

    scaled = unit == "B"  # bytes, shown as kB and MB
    unit = unit if scaled else f" {unit}"
    if sys.stderr.isatty():
        return tqdm(total=total, desc=label, unit=unit, unit_scale=scaled, file=sys.stderr)
    return nullcontext(_Lines(label, total, unit, scaled))


class _Lines:
    """A bar for logs: at most a line in `LOG_SECONDS`, and none for what is done sooner."""

    def __init__(self, label: str, total: int | None, unit: str, scaled: bool) -> None:
        self._label, self._total, self._unit, self._scaled = label, total, unit, scaled
        self._done, self._started = 0, time.monotonic()
        self._said = self._started

    def update(self, n: int = 1) -> None:
        """See `pipeline.core.progress.Bar`."""
        from tqdm import tqdm

        self._done += n
        now = time.monotonic()
        if now - self._said >= LOG_SECONDS:
            self._said = now
            meter = tqdm.format_meter(
                self._done, self._total or 0, now - self._started, ncols=0,
                prefix=self._label, unit=self._unit, unit_scale=self._scaled,
            )  # fmt: skip
            print(f"benchmarco: {meter}", file=sys.stderr, flush=True)


def show(*parts: RenderableType) -> None:
    """Print tables on stdout, as wide as the terminal; names may hold what rich takes for its markup."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False, width=width())
    for part in parts:
        if isinstance(part, Table) and part.title:  # as wide as the terminal, and not only as its table
            console.print(part.title, style=part.title_style)
            part.title = None
        console.print(part)


def width() -> int:
    """How many letters fit in a line: the terminal's, or plenty where stdout is none."""
    from rich.console import Console

    return Console().width if sys.stdout.isatty() else 140


def print_each(documents: list[dict[str, Any]]) -> None:
    """One JSON document: the only one, or a list of several."""
    print_json(documents[0] if len(documents) == 1 else documents)


def print_json(value: Any) -> None:
    """One JSON document on stdout, in letters that its encoding has."""
    escaped = "utf" not in sys.stdout.encoding.lower()
    print(json.dumps(value, indent=2, ensure_ascii=escaped))

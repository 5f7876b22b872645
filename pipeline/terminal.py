"""What commands share: exit codes, error messages, progress, tables, JSON, and common options."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import select
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from typing_extensions import override

from pipeline.core.display import visible
from pipeline.core.errors import InputError, memory_ran_out

if TYPE_CHECKING:
    from pipeline.core.display import Bar
    from pipeline.core.records import Facts
    from pipeline.core.table import Table

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
LOG_SECONDS = 60.0  # between two lines about progress, where stderr is not a terminal
_WRITTEN: dict[str, str] = {}  # the user's names of measures, by a pattern of their names in results


@dataclass(eq=False)
class EscapedStream:
    """A text stream that terminals cannot be controlled through: names and messages may be a stranger's.

    What progress bars write to move the cursor passes: a carriage return in front, or only moves up.
    """

    stream: TextIO
    _MOVES = re.compile("(\n|\x1b\\[A)*")

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        start = 1 if text[:1] == "\r" and self.stream.isatty() else 0
        moves = self._MOVES.fullmatch(text)
        return self.stream.write(text if moves else text[:start] + visible(text[start:]))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded(goes_on: str = "") -> Iterator[None]:
    """Make of what a command raises one message on stderr and an exit code; escape what it prints.

    `goes_on` says after an interrupt how to go on.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # characters that the locale lacks
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, EscapedStream):  # None: the process was started without it
            stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, EscapedStream(stream))
    _WRITTEN.clear()
    logging.basicConfig(format="benchmarco: %(message)s", stream=sys.stderr)
    logging.getLogger("pipeline").setLevel(logging.INFO)
    try:
        try:
            yield
        except SystemExit:  # after help, or the version
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (InputError, OSError, MemoryError, ImportError, RuntimeError) as error:
        if not isinstance(error, InputError | OSError) and not memory_ran_out(error):
            raise
        nobody_reads = isinstance(error, BrokenPipeError) and _nobody_reads()
        _stop(*(("", 0) if nobody_reads else what_happened(error)))
    except KeyboardInterrupt:
        _stop(f"interrupted{goes_on}", INTERRUPTED)


def _nobody_reads() -> bool:
    """Whether stdout is a pipe that nobody reads any more, as with `| head`."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


_ELSEWHERE = "name a folder that can be read and written with --set cache=DIR and --output DIR"
_REMEDIES = {
    errno.EFBIG: "files may not be that long here: raise ulimit -f, or set cache=DIR on another disk",
    errno.ENOSPC: "make room and run the same command again; what was finished is kept",
    errno.EDQUOT: "make room and run the same command again; what was finished is kept",
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EISDIR: "remove it, or name another folder with --set cache=DIR",
    errno.ENOTDIR: _ELSEWHERE,
    errno.EEXIST: _ELSEWHERE,
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "name the target of the link",
}
"""How to fix an error of the operating system, where the error itself has no note on that."""
_MISNAMED = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
"""Errors that are the fault of the input: it names a path that cannot exist."""


def what_happened(error: Exception) -> tuple[str, int]:
    """The message for an error, and its exit code."""
    if isinstance(error, InputError):
        return str(error), BAD_INPUT
    if memory_ran_out(error):
        remedy = "Lower model.batch_size or set search.memory_mb"
        return f"memory ran out; what was finished is kept. {remedy}", FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        noted = "; ".join(getattr(error, "__notes__", ()))
        remedy = noted or _REMEDIES.get(error.errno or 0, "what was finished is kept")
        code = BAD_INPUT if error.errno in _MISNAMED else FAILED
        return f"{where}{error.strerror or str(error) or type(error).__name__}; {remedy}", code
    return f"{type(error).__name__}: {error}", FAILED


def report_failure(name: str, error: Exception) -> int:
    """Print on stderr what stopped one of several benchmarks, and return the exit code for it."""
    message, code = what_happened(error)
    if not isinstance(error, InputError | OSError) and not memory_ran_out(error):
        traceback.print_exception(error)
    print(f"benchmarco: {name} failed: {message}", file=sys.stderr)
    return code


def _stop(message: str, code: int) -> NoReturn:
    """Print what ended a command, if anything, and exit; output that a stream does not take is lost."""
    for stream, text in ((sys.stderr, f"benchmarco: {message}\n" if message else ""), (sys.stdout, "")):
        try:
            stream.write(text)
            stream.flush()
        except OSError:  # Python would try again at exit, print a second message, and exit with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    raise SystemExit(code)


def progress(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    """A progress bar on stderr; a line now and then where stderr is not a terminal."""
    from tqdm import tqdm

    scaled = unit == "B"  # bytes, shown as kB and MB
    shown: Any = {"desc": label, "unit": unit if scaled else f" {unit}", "unit_scale": scaled}
    if not sys.stderr.isatty():  # no line for work that is done sooner, nor at the end; rates are means
        shown |= {"delay": LOG_SECONDS, "mininterval": LOG_SECONDS, "miniters": 1, "leave": False}
        shown |= {"file": _LogLines(), "position": 0, "ncols": 0, "smoothing": 0}
    return tqdm(total=total, **shown)


class _LogLines:
    """What a progress bar writes to a log: a line for each state that it shows."""

    def write(self, text: str) -> None:
        if meter := text.strip():
            print(f"benchmarco: {meter}", file=sys.stderr, flush=True)


def show_measures_as(names: Iterable[str]) -> None:
    """Show measures on the terminal by the names that the user wrote, such as rr@10; files have mrr@10."""
    from pipeline.results.result import canonical_measure

    for name in map(str.strip, names):
        if name.lower() != (usual := canonical_measure(name)):
            _WRITTEN[rf"(?<![\w@./-]){re.escape(usual)}(?![\w@(/-]|\.\w)"] = name


def as_shown(text: str) -> str:
    """A text with control characters escaped, and with the user's names of measures."""
    for usual, written in _WRITTEN.items():
        text = re.sub(usual, lambda _, written=written: written, text)  # type: ignore[misc]
    return visible(text)


def show(*tables: Table, verdict: str = "", decided: bool = True) -> None:
    """Print tables on stdout, no wider than the terminal, each with its notes below it.

    Above them is the sentence that a command opens with: green, or yellow where nothing is decided. Names may
    look like rich's markup or emoji codes, so both are off.
    """
    from rich.console import Console
    from rich.text import Text

    from pipeline.report.renderings import terminal_parts

    width = None if sys.stdout.isatty() else 140  # None: that of the terminal
    out: Any = sys.stdout
    colored = out.stream if isinstance(out, EscapedStream) else out  # what is printed is escaped here

    class PipedConsole(Console):
        @override
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))  # Console itself would exit with 1

    console = PipedConsole(file=colored, highlight=False, markup=False, emoji=False, width=width)
    if verdict:
        console.print(Text(as_shown(f"{verdict}."), style="bold green" if decided else "bold yellow"))
    for table in tables:
        shown = replace(
            table,
            title=as_shown(table.title),
            columns=[replace(column, name=as_shown(column.name)) for column in table.columns],
            rows=[[as_shown(cell) for cell in row] for row in table.rows],
            notes=[as_shown(note) for note in table.notes],
        )
        console.print(*terminal_parts(shown, console.width), sep="\n")


def print_each(documents: list[Facts]) -> None:
    """Print one JSON document: the only one given, or a list of several."""
    print_json(documents[0] if len(documents) == 1 else documents)


def print_json(value: object) -> None:
    """Print one JSON document; characters that the encoding of stdout may lack are escaped."""
    escaped = "utf" not in sys.stdout.encoding.lower()
    print(json.dumps(value, indent=2, ensure_ascii=escaped))


def option(help: str, metavar: str | None = None, flags: str = "", **settings: Any) -> Any:
    """An option of a command, as an annotation; `flags` where its name does not give them."""
    return typer.Option(*flags.split(), help=help, metavar=metavar, **settings)


def argument(help: str, metavar: str | None = None) -> Any:
    """An argument of a command, as an annotation."""
    return typer.Argument(help=help, metavar=metavar)


Configs = Annotated[list[Path], argument("A benchmark's YAML file.", "CONFIG")]
Sets = Annotated[
    list[str] | None,
    option("Override a setting of the config; may be repeated.", "key.path=value", flags="--set"),
]
Verbose = Annotated[bool, option("Show all tables and details.", flags="--verbose -v")]
Json = Annotated[bool, option("Print one JSON document on stdout.", flags="--json", hidden=True)]

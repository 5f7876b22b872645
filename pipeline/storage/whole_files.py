"""Files that appear under their name only when they are whole, and errors that name the file."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.records import Facts

MANIFEST = "manifest.json"
"""The file of an artifact that is written last: a folder that has one is complete."""
TEMPORARY = ".tmp"
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
NAME_BYTES = 200  # of a file's name; file systems allow 255, and a temporary file has a longer one
_TRIAL_BYTES = 1 << 20  # appended to find out whether the disk is full


def read_json_object(path: Path) -> Facts | None:
    """The object in a small JSON file; None if there is no such file or it holds anything else.

    A pipe is not read, as reading it would wait for a writer.
    """
    try:
        if path.is_fifo():
            return None
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def check_output(path: Path, option: str, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that cannot be written, or that is one of the inputs, before anything is computed.

    Args:
        path: The file to write.
        option: What names it, for messages.
        inputs: Files and result folders that are read; of a folder, a page may be written again.
    """
    if path.is_dir() or not path.parent.is_dir():
        found = "is a folder" if path.is_dir() else f"no folder {path.parent}"
        raise InputError(
            f"{option} {path}: {found}", allowed="a file in a folder that exists", fix="name another"
        )
    for source in inputs if path.exists() else ():
        held = source.is_dir() and path.suffix != ".html" and source.resolve() in path.resolve().parents
        if held or (source.exists() and source.samefile(path)):
            raise InputError(
                f"{option} {path}: it is read as {'part of ' if held else ''}{source}",
                allowed="a file that is not an input",
                fix="name another",
            )


def check_new_folder(folder: Path, option: str) -> None:
    """Refuse a folder to write that holds anything; `option` names it in the message."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "is not empty" if folder.is_dir() else "is a file"
        raise InputError(f"{option} {folder}: {found}", allowed="a new or empty folder", fix="name another")


def file_inside(folder: Path, *names: str) -> Path:
    """The path of a file or folder below `folder` whose names come from a user, a result or a server.

    Characters that a name should not have are replaced: '/' by '__', others by '_'. Names are at most
    `NAME_BYTES` long and do not begin with a dot.

    Raises:
        InputError: A link inside the folder leads out of it.
    """
    path = folder.joinpath(*map(_file_name, names))
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"{path} is a link to {path.resolve()}, which is not in {folder}",
            allowed="files inside the folder that is named",
            fix="remove the link, or name another folder",
        )
    return path


def _file_name(text: str) -> str:
    plain = re.sub(r"[^\w.-]+", "_", text.replace("/", "__")).strip("_").lstrip(".")
    stem, dot, ending = plain.rpartition(".")
    ending = f"{dot}{ending}" if stem and len(ending) < 10 else ""
    cut = plain.removesuffix(ending).encode()[: NAME_BYTES - len(ending)].decode(errors="ignore")
    return f"{cut or '_'}{ending}"


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file; until all of it is on the disk, `path` keeps what it held before."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(content)


def write_json(path: Path, value: Facts) -> None:
    """Write a small JSON file for people to read too."""
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write; when the block ends without an error, the file is renamed to `path`.

    Raises:
        OSError: The disk refuses to write; the error names the file.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        temporary.unlink(missing_ok=True)  # never written through: it may be a link to somewhere else
        yield temporary
        # The order matters. First the bytes reach the disk, then the name: a power cut after a rename that
        # was not preceded by a flush can leave the new name with no bytes. POSIX renames in one step, so a
        # process killed here leaves either the old file and a .tmp, which the next writer removes, or the
        # whole new file. The last flush is of the folder, so that the new name survives a power cut too.
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    except Exception as error:
        if refusal := disk_error(error, temporary):
            raise refusal from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def disk_error(error: Exception, path: Path) -> OSError | None:
    """The disk's refusal behind an error, with the name of the file; None if the disk takes more bytes.

    NumPy raises an OSError without a number and Faiss a RuntimeError, and neither says why the write failed.
    So after an error without a number, bytes are appended to the file at `path`, which the caller removes.
    """
    number = getattr(error, "errno", None)
    if not number and not isinstance(error, InputError):
        number = _write_error(path)
    return OSError(number, os.strerror(number), str(path)) if number in _DISK_ERRORS else None


def _flush(path: Path) -> None:
    """Wait until a file's bytes, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end, also where SIGTERM ends the process: with exit code 143.

    A second SIGTERM ends it at once. A handler that the program has set stays, and in other threads than the
    main one the signal ends the process as ever.
    """

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.exit(128 + signal.SIGTERM)

    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with tempfile.TemporaryDirectory(prefix="benchmarco-") as place:
        if ours:
            signal.signal(signal.SIGTERM, end)
        try:
            yield Path(place)
        finally:
            if ours and signal.getsignal(signal.SIGTERM) is end:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, or copy it to another disk and where there are no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def remove_path(path: Path) -> None:
    """Remove a file, a link, or a folder and its contents."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_error(path: Path) -> int | None:
    """The number of the error that appending to a file raises; None if it raises none."""
    try:
        with open(path, "ab") as file:
            file.write(bytes(_TRIAL_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as refusal:
        return refusal.errno
    return None

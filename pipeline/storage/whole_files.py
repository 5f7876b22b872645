"""Files that appear under their name only when they are whole, their names, and errors that name the file."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError
from pipeline.storage.hashing import hash_file

if TYPE_CHECKING:
    from pipeline.core.records import Facts

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
"""Of an artifact, whose last file it is: a folder that has one is complete; and of a result."""
METRICS = "metrics.json"
PER_QUERY = "per_query.csv"
RANKING = "run.trec"
CHECKSUMS = "checksums.json"
"""The last file of a result."""
SUITE = "suite.json"
"""Of a suite, beside the result folders of its collections."""
RESULT_FILES = (METRICS, PER_QUERY, RANKING, MANIFEST, CHECKSUMS, SUITE)
TEMPORARY = ".tmp"
OURS = re.compile(
    rb"query_id[,\n]|\S+ Q0 \S+ \S+ \S+ benchmarco\n|"
    rb'\s*<!doctype html>.*<meta name="generator" content="benchmarco">',
    re.DOTALL,
)
"""How files of this program begin: measures of each query, a TREC run, a page."""
OURS_BYTES = 2048  # of a file that are compared with `OURS`
OUR_JSON = (
    "name queries passages metrics", "name collections metrics", "config recipes", METRICS, SUITE,
    "dataset_revision task_name mteb_version", "name revision",
)  # fmt: skip
"""The names that JSON files of this program have: of a result, and of what is exported to MTEB."""
overwrites = ContextVar("overwrites", default=False)
"""Whether `--force` allows to overwrite files of others."""
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
NAME_BYTES = 200  # of a file's name; file systems allow 255, and a temporary file has a longer one
_TRIAL_BYTES = 1 << 20  # appended to find out whether the disk is full


def read_json_object(path: Path) -> Facts | None:
    """The object in a small JSON file; None if there is no such file or it holds anything else."""
    try:
        # a pipe is not read: that would wait for a writer
        value = None if path.is_fifo() else json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_foreign(path: Path) -> bool:
    """Whether a file is there, not empty, and not of this program; with `--force` none is foreign."""
    if overwrites.get() or not path.is_file() or not path.stat().st_size:
        return False
    if path.suffix == ".json":
        names = (read_json_object(path) or {}).keys()
        return not any(names >= set(own.split()) for own in OUR_JSON)
    with open(path, "rb") as file:
        return not OURS.match(file.read(OURS_BYTES))


def check_output(path: Path, option: str, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that cannot be written, is one of the inputs, or of others, before anything is computed.

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
    if is_foreign(path):
        raise InputError(
            f"{option} {path}: a file is there that benchmarco did not write",
            allowed="a new file, or one that it wrote",
            fix="name another, or add --force to overwrite it",
        )


def check_new_folder(folder: Path, option: str) -> None:
    """Refuse a folder to write that holds anything; `option` names it in the message."""
    if folder.exists() and (not folder.is_dir() or (not overwrites.get() and any(folder.iterdir()))):
        raise InputError(
            f"{option} {folder}: {'is not empty' if folder.is_dir() else 'is a file'}",
            allowed="a new or empty folder",
            fix="name another, or add --force to overwrite files in it",
        )


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


def comes_with(cache: str, folder: Path) -> bool:
    """Whether a cache may have come with a result folder, whose makers then say what was computed.

    It is there, and inside that folder, or that of the suite that the result is of; or a link below the
    working directory leads to it.
    """
    here = Path.cwd()
    named, real = Path(os.path.normpath(here / cache)), (here / cache).resolve()
    whole = folder.resolve()
    whole = whole.parent if (whole.parent / SUITE).is_file() else whole
    inside = real.is_relative_to(whole) or (named.is_relative_to(here) and real != named)
    return inside and real.exists()


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


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of those of some files that the folder has, beside the sums of others."""
    sums = read_json_object(folder / CHECKSUMS) or {}
    sums |= {name: hash_file(folder / name) for name in names if (folder / name).is_file()}
    write_json(folder / CHECKSUMS, sums)


def check_files(folder: Path, names: Iterable[str]) -> str:
    """Compare files of a result folder with its checksums, and log what differs.

    A file that is not there is not compared.

    Returns:
        What is wrong, to follow the name of the result: "" if nothing is.
    """
    sums = read_json_object(folder / CHECKSUMS) if (folder / CHECKSUMS).exists() else None
    if sums is None:
        log.warning("result folder %s has no %s, or one that cannot be read", folder, CHECKSUMS)
        return "unchecked"
    there = [name for name in names if (folder / name).is_file()]
    changed = [name for name in there if sums.get(name) != hash_file(folder / name)]
    if changed:
        log.warning("result folder %s was edited: %s changed after the run", folder, " and ".join(changed))
    return f"edited: {', '.join(changed)}" if changed else ""


@contextlib.contextmanager
def replacing(path: Path, lasting: bool = True) -> Iterator[Path]:
    """A temporary path to write; when the block ends without an error, the file is renamed to `path`.

    It is beside `path`, and no other file has its name. With `lasting`, a power cut leaves the old file or
    the whole new one; without, one that is cut short may have its name. The disk's refusals name `path`.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY}")
    try:
        yield temporary
        # First the bytes reach the disk, then the name: or a power cut can leave the new name with no bytes.
        # POSIX renames in one step: a process killed here leaves the old file or the whole new one.
        if lasting:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except Exception as error:
        if refusal := disk_error(error, temporary, path):
            raise refusal from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def disk_error(error: Exception, written: Path, path: Path) -> OSError | None:
    """The disk's refusal behind an error, with the name `path`; None if the disk takes more bytes.

    NumPy raises an OSError without a number and Faiss a RuntimeError, and neither says why the write failed.
    So after an error without a number, bytes are appended to the file `written`, which the caller removes.
    """
    number = getattr(error, "errno", None)
    if not number and not isinstance(error, InputError):
        number = _write_error(written)
    return OSError(number, os.strerror(number), str(path)) if number in _DISK_ERRORS else None


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end, also where SIGTERM ends the process: with exit code 143."""
    default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    catches = default and threading.current_thread() is threading.main_thread()
    with tempfile.TemporaryDirectory(prefix="benchmarco-") as place:
        if catches:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            yield Path(place)
        finally:
            if catches:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def name_on_disk(path: Path) -> str:
    """A path, in lower case where the disk does not tell names apart by case, as most of macOS do not."""
    for each in (path.absolute(), *path.absolute().parents):
        other = each.parent / each.name.swapcase()
        if each.exists() and other != each:
            return str(path).casefold() if other.exists() and other.samefile(each) else str(path)
    return str(path)


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

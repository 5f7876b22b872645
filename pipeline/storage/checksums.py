"""`checksums.json` of a result folder: SHA-256 of its other files, written last and checked by readers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from pipeline.core.result_files import CHECKSUMS
from pipeline.storage import whole_files
from pipeline.storage.hashing import hash_file

log = logging.getLogger(__name__)


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of those of some files that the folder has, beside the sums of others."""
    sums = whole_files.read_json_object(folder / CHECKSUMS) or {}
    sums |= {name: hash_file(folder / name) for name in names if (folder / name).is_file()}
    whole_files.write_json(folder / CHECKSUMS, sums)


def added_files(folder: Path, names: Iterable[str]) -> list[str]:
    """The files with a checksum besides those of some names: what studies added to a result."""
    sums = whole_files.read_json_object(folder / CHECKSUMS) or {}
    return [name for name in sums if name not in set(names) and (folder / name).is_file()]


def check_files(folder: Path, names: Iterable[str]) -> str:
    """Compare files of a result folder with its checksums, and log what differs.

    A file that is not there is not compared.

    Returns:
        What is wrong, to follow the name of the result: "" if nothing is.
    """
    sums = whole_files.read_json_object(folder / CHECKSUMS) if (folder / CHECKSUMS).exists() else None
    if sums is None:
        log.warning("result folder %s has no %s, or one that cannot be read", folder, CHECKSUMS)
        return "unchecked"
    there = [name for name in names if (folder / name).is_file()]
    changed = [name for name in there if sums.get(name) != hash_file(folder / name)]
    if changed:
        log.warning("result folder %s was edited: %s changed after the run", folder, " and ".join(changed))
    return f"edited: {', '.join(changed)}" if changed else ""

"""What to do after a run, as commands that can be pasted into a shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.results.folder import Result

NAME = "benchmarco"
LOOKED_AT = 20  # results beside a new one, the newest first, among which one is sought to compare it with


def command_line(*arguments: str | Path) -> str:
    """A command of this program, as the shell that started it finds it, quoted for it."""
    return f"{_program()} {shlex.join(map(str, arguments))}"


def _program() -> str:
    """How this program was called: by its name, by a path, or as a module."""
    called = sys.argv[0]
    if Path(called).parts[-2:] == ("pipeline", "__main__.py"):
        return f"{shlex.quote(sys.executable)} -m pipeline"
    found = shutil.which(NAME)
    if Path(called).name != NAME or (found and Path(found).resolve() == Path(called).resolve()):
        return NAME
    return shlex.quote(called)


def next_steps(results: Sequence[Result]) -> list[str]:
    """A line for each command that suits what was run: a comparison, or a report, and an earlier result."""
    folders = [result.folder for result in results]
    if len(folders) > 1:
        return [f"side by side: {command_line('compare', *folders)}"]
    (folder,) = folders
    lines = [f"as a page: {command_line('report', folder, '--html', f'{folder.name}.html')}"]
    if other := _latest_beside(results[0]):
        lines.append(f"compared with {other.name}: {command_line('compare', other, folder)}")
    return lines


def _latest_beside(result: Result) -> Path | None:
    """The result written last, of those in the same folder that it can be compared with."""
    from pipeline.storage.artifacts import MANIFEST

    folder = result.folder
    key, measures = _collection_and_measures(folder)
    beside = [path.parent for path in folder.parent.glob(f"*/{MANIFEST}") if path.parent.name != folder.name]
    beside.sort(key=lambda path: (path / MANIFEST).stat().st_mtime, reverse=True)
    for other in beside[:LOOKED_AT]:
        of, with_measures = _collection_and_measures(other)
        if key and of == key and measures & with_measures:
            return other
    return None


def _collection_and_measures(folder: Path) -> tuple[str, set[str]]:
    """The key of the collection that a result is of, and its measures; nothing where they cannot be read."""
    from pipeline.results.folder import METRICS, read_record
    from pipeline.results.records import Manifest, Metrics
    from pipeline.storage.artifacts import MANIFEST

    try:
        recipes = read_record(folder, MANIFEST, Manifest).recipes
        return recipes.get("data", {}).get("key", ""), set(read_record(folder, METRICS, Metrics).metrics)
    except (InputError, OSError):
        return "", set()

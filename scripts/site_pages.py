"""Writes the pages of the documentation site: README, docs/, and the files of the project that they link to.

On GitHub a link leads to any file of the project. A site has pages alone: so a file that a page links to gets
a page that shows it, and links are rewritten to lead there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pipeline

ROOT = Path(__file__).resolve().parent.parent
NAMED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages outside docs/, and their names on the site."""
LINK = re.compile(r"(\]\()([^)#\s]+)?((?:#[^)\s]*)?\))")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def write_pages(folder: Path) -> None:
    """Write all pages into a folder, which is emptied first."""
    if folder.exists():
        shutil.rmtree(folder)
    written: set[str] = set()
    waiting = [*NAMED, *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    while waiting:
        file = waiting.pop()
        if file in written:
            continue
        written.add(file)
        text, linked = page_of(file)
        waiting += linked
        place = folder / place_of(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".png"):
            shutil.copy(ROOT / file, place)
        else:
            place.write_text(text, encoding="utf-8")


def page_of(file: str) -> tuple[str, list[str]]:
    """The page that shows a file or folder of the project, and the files that it links to."""
    path = ROOT / file
    if path.is_dir():
        return listing(file, sorted(each.name for each in path.iterdir() if each.suffix == ".yaml"))
    if path.suffix == ".md":
        text, linked = relinked(path.read_text(encoding="utf-8"), file)
        return text + (reference(dir(pipeline)) if file == "docs/api.md" else ""), linked
    if path.suffix == ".png":
        return "", []
    language = {".yaml": "yaml", ".cff": "yaml", ".py": "python"}.get(path.suffix, "text")
    return f"# {file}\n\n```{language}\n{path.read_text(encoding='utf-8').rstrip()}\n```\n", []


def listing(folder: str, names: Iterable[str]) -> tuple[str, list[str]]:
    """A page of links to files of a folder, each with the first line of comment in it."""
    lines, files = [], []
    for name in names:
        first = (ROOT / folder / name).read_text(encoding="utf-8").splitlines()[0]
        lines.append(f"- [{name}]({name}.md): {first.removeprefix('# ')}")
        files.append(f"{folder}/{name}")
    return f"# {folder}\n\n" + "\n".join(lines) + "\n", files


def reference(names: Iterable[str]) -> str:
    """The docstrings of public functions, by the names that the package exports."""
    homes = [f"{getattr(pipeline, name).__module__}.{name}" for name in names if not name.startswith("_")]
    return "\n## Reference\n" + "".join(f"\n::: {home}\n" for home in homes)


def relinked(text: str, file: str) -> tuple[str, list[str]]:
    """A page with links between places on the site, and the files that it links to."""
    linked: list[str] = []

    def lead(match: re.Match[str]) -> str:
        target = match[2]
        if target is None or "://" in target:
            return match[0]
        name = os.path.normpath(os.path.join(os.path.dirname(file), target))
        linked.append(name)
        return match[1] + os.path.relpath(place_of(name), os.path.dirname(place_of(file))) + match[3]

    parts, start = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(lead, text[start : code.start()]), code[0]]
        start = code.end()
    return "".join([*parts, LINK.sub(lead, text[start:])]), linked


def place_of(file: str) -> str:
    """Where the site has a file of the project."""
    if file in NAMED:
        return NAMED[file]
    if (ROOT / file).is_dir():
        return f"{file}/index.md"
    place = file.removeprefix("docs/")
    return place if place.endswith((".md", ".png")) else f"{place}.md"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))

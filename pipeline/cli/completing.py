"""What a shell completes: settings of `--set`, measures, config files and result folders.

Nothing heavy is imported before it is needed, and no file is opened: a key press waits for this.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

Completions = list[tuple[str, str]]
"""Texts in place of what is typed, each with a line about it, which some shells show."""
EXAMPLES = ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10")
CONFIG_ENDS = (".yaml", ".yml", "manifest.json")
RESULT_FILES = ("metrics.json", "suite.json")


def complete_setting(incomplete: str) -> Completions:
    """Settings, by sections until one is named; and the values of one, after its `=`.

    Where one setting is left, its values come with it, so that shells add no space after the `=`.
    """
    from pipeline.config.outline import outline

    known = [each for each in outline() if not each.is_section]
    name, equals, value = incomplete.partition("=")
    if equals:
        return [
            (f"{name}={each}", setting.doc)
            for setting in known
            if setting.path == name
            for each in _values(setting.values, setting.default)
            if each.startswith(value)
        ]
    left = [setting for setting in known if setting.path.startswith(name)]
    if len(left) == 1:
        (setting,) = left
        values = _values(setting.values, setting.default)
        return [(f"{setting.path}={each}", setting.doc) for each in ("", *values)]
    sections = dict.fromkeys(setting.path.partition(".")[0] for setting in left)
    if "." not in name and len(sections) > 1:
        tops = {setting.path for setting in left if "." not in setting.path}
        return [(f"{each}=" if each in tops else f"{each}.", "") for each in sections]
    return [(f"{setting.path}=", setting.doc) for setting in left]


def _values(values: list[str], default: str | None) -> list[str]:
    """The values that can be offered for a setting: those that it lists, and its default."""
    return list(dict.fromkeys([*values, *([default] if default is not None else [])]))


def complete_config(incomplete: str) -> Completions:
    """Config files and folders; or, where bash takes the value of a setting for a word, such values."""
    setting = _setting_before_equals()
    if setting:
        found = complete_setting(f"{setting}={incomplete.removeprefix('=')}")
        return [(text.partition("=")[2], doc) for text, doc in found]
    return [
        (f"{shown}/" if path.is_dir() else shown, "")
        for shown, path in _beginning_with(incomplete)
        if path.is_dir() or path.name.endswith(CONFIG_ENDS)
    ]


def _setting_before_equals() -> str:
    """The setting whose value is typed, as bash splits `--set model.backend=na`; "" if none is."""
    try:
        words = shlex.split(os.environ.get("COMP_WORDS", ""))
        words = words[: int(os.environ.get("COMP_CWORD", "0")) + 1]
    except ValueError:  # a quote that is still open
        return ""
    at = next((place for place in (len(words) - 1, len(words) - 2) if words[place : place + 1] == ["="]), 0)
    return words[at - 1] if at >= 2 and words[at - 2] == "--set" else ""


def complete_measure(incomplete: str) -> Completions:
    """Names of measures, of which those before the last comma are kept."""
    from pipeline.metrics.graded import Cutoff
    from pipeline.metrics.measures import MEASURES

    before, comma, last = incomplete.rpartition(",")
    names = [
        *EXAMPLES,
        *(name if made.cutoff is Cutoff.NONE else f"{name}@10" for name, made in MEASURES.items()),
    ]
    return [(f"{before}{comma}{name}", "") for name in dict.fromkeys(names) if name.startswith(last)]


def complete_result(incomplete: str) -> Completions:
    """Result folders, also those in a folder that is no result itself, such as `results`."""
    found = []
    for shown, path in _beginning_with(incomplete):
        if not path.is_dir():
            continue
        inside = [name for name, each in _beginning_with(f"{shown}/") if _is_result(each)]
        found += [shown] if _is_result(path) else inside
    return [(each, "") for each in found]


def _is_result(path: Path) -> bool:
    return any((path / name).is_file() for name in RESULT_FILES)


def _beginning_with(incomplete: str) -> Iterator[tuple[str, Path]]:
    """Files and folders whose paths begin with what is typed, as they are typed, with their paths."""
    above, slash, start = incomplete.rpartition("/")
    try:
        names = sorted(os.listdir(Path(above + slash).expanduser()))
    except OSError:
        return
    for name in names:
        if name.startswith(start) and (start or not name.startswith(".")):
            yield f"{above}{slash}{name}", Path(above + slash).expanduser() / name

"""A config with every setting and what it is, made of the settings' own texts: it cannot be out of date.

What is needed is given, and runs as it is; all else is commented out, with its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from pipeline.config.outline import Outlined, outline

GIVEN = {
    "name": "mine",
    "data": "",
    "data.source": "sample",
    "model": "",
    "model.backend": "auto",
    "model.name": "all-minilm-l6-v2",
}
"""The settings that the template gives, and their values."""
HEAD = """\
# A benchmark, which runs as it is. After ## is what a setting is; after # is one that has its default:
# to change it, remove the #, and that of the section it is in. "…" stands for a value that must be given.
# "only with beir, hub" names the kinds of the section (source or backend) that have the setting.
"""
WIDTH = 110
GIVEN_KINDS = {"sample", "auto"}
"""The kinds of sections that it gives, and that of the reranker where one is given without more."""


def config_template() -> str:
    """The template, as YAML."""
    return HEAD + "\n".join(_lines(list(outline()))) + "\n"


def _lines(settings: Sequence[Outlined]) -> Iterator[str]:
    """The lines of each setting: what it is, and its key with its default or its value."""
    for each in settings:
        depth = each.path.count(".")
        given = each.path in GIVEN
        indent, key = "  " * depth, each.path.rpartition(".")[2]
        if depth == 0:
            yield ""
        yield from _said(each, indent)
        value = GIVEN[each.path] if given else "" if each.is_section else each.default
        text = f"{key}: {'…' if value is None else value}".rstrip()
        yield f"{indent}{text}" if given else f"{indent}# {text}"


def _said(setting: Outlined, indent: str) -> Iterator[str]:
    """What a setting is, which values it may have, and which kinds have it if the given one has not."""
    listed = [value for value in setting.values if value not in ("null", "true", "false")]
    parts = [setting.doc, *([f"one of {', '.join(listed)}"] if listed else []), *_marks(setting.kinds)]
    text = "; ".join(part for part in parts if part)
    for line in wrap(text, WIDTH - len(indent) - 3, break_on_hyphens=False):
        yield f"{indent}## {line}"


def _marks(kinds: Sequence[str]) -> Iterator[str]:
    """The kinds that have a setting, unless the kinds that the template gives have it."""
    if kinds and not GIVEN_KINDS & set(kinds):
        yield f"only with {', '.join(dict.fromkeys(kind.split()[0] for kind in kinds))}"
        outputs = [kind.split()[-1] for kind in kinds]
        if len(set(outputs)) == 1 and outputs[0] != kinds[0].split()[0]:
            yield f"and output {outputs[0]}"

#!/usr/bin/env python
"""Write docs/configuration.md from the config's settings classes.

.venv/bin/python scripts/document_config.py
"""

from __future__ import annotations

import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from pipeline.config import Config
from pipeline.config.settings import OUTPUTS, mark_of, section_of
from pipeline.config.stages import EncodingServerSettings

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

One YAML file defines one benchmark, or several by [`sweep`](compare.md#sweeps).
`--set search.top_k=100` changes a setting for one run. Paths in the file are relative to its folder; `cache`,
`output` and paths in `--set` to the working directory. `benchmarco schema` prints a JSON Schema.

In parentheses: the default (where none is shown, null), then the other values. `benchmarco plan` says what a
change recomputes.
"""
PAGES = {
    "data": "[Collections](data.md)",
    "model": "[Models](models.md)",
    "fuse": "[Rerank and fuse](rerank-and-fuse.md)",
    "index": "[Search](search.md)",
    "engine": "[Several devices, many machines](scale.md)",
    "evaluate": "[Measures](measures.md)",
    "judge": "[You have no judgments](judge.md)",
}
"""The page about a section."""
GROUPS = {
    "data": {
        "Where it is": "source path split revision subset collections suite",
        "Which part of it": "queries corpus chunks title_separator lowercase_queries",
        "Judgments": "unjudged_queries missing_passages ignored",
        "Tables": (
            "corpus_file corpus_id corpus_text corpus_title queries_file query_id query_text judgments_file "
            "judged_query judged_passage grade"
        ),
        "Pairs of queries and texts": (
            "query_column positives_column corpus_path corpus_split corpus_column"
        ),
        "AIR-Bench, Belebele, BRIGHT": "dataset language corpus_language domain documents",
    },
    "model": {
        "Which model": "backend name revision output trust_remote_code",
        "What it reads": (
            "query_instruction passage_instruction query_max_length passage_max_length max_characters"
        ),
        "What it computes": "precision pooling",
        "Its vectors": "normalize truncate_dim vector_precision token_precision score",
        "How it runs": "device batch_size shard_rows",
        "On a server": "url dimensions",
        "Vectors from files": "passages queries passage_ids query_ids",
        "BM25": "k1 b stop_words stemmer",
    },
    "rerank": {
        "Which model": "backend name revision depth trust_remote_code",
        "What it reads": (
            "max_length query_max_length query_instruction passage_instruction prompt max_characters"
        ),
        "How it runs": "precision device batch_size",
        "On a server": "url form",
    },
}
"""The lists of a section that has kinds, each with its settings; a setting in none is in the first."""
SERVERS = dict(EncodingServerSettings.model_fields)
"""Settings of all servers, which have a list of their own."""
MANY = 15
"""The number of values from which they are not listed."""


def main() -> None:
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    top = {key: field for key, field in Config.model_fields.items() if not section(field.annotation)}
    parts = ["\n## Top level\n", items({key: row(key, {"": field}) for key, field in top.items()})]
    for name, field in Config.model_fields.items():
        if model := section(field.annotation):
            kinds = section_of(field)[1]
            classes = kinds.all() if kinds else {"": model}
            about = f"{first_line(model)} See {PAGES[name]}." if name in PAGES else first_line(model)
            parts += [f"\n## `{name}`\n{about}\n", *lists(name, classes, kinds)]
    parts += ["\n## Servers\nFor `http` in `model`, as `model.timeout`, and in `rerank`; "]
    parts += ["the first five for `judge` too.\n"]
    return HEAD + said_once("".join(parts)) + items({key: row(key, {"": SERVERS[key]}) for key in SERVERS})


def said_once(text: str) -> str:
    """The lists, where a setting that another section explains in the same words refers to it."""
    known: dict[tuple[str, str], str] = {}

    def line(found: re.Match[str]) -> str:
        whole, key, start, words = found.groups()
        first = known.setdefault((key, words), whole)
        short = first == whole or len(words.split()) < 5
        return found.group() if short else f"- `{whole}`{start} as `{first}`"

    return re.sub(r"^- `(\w+\.(\w+))`( \(.*?\):|:) (.+)$", line, text, flags=re.MULTILINE)


def lists(name: str, classes: Mapping[str, Any], kinds: Any) -> Iterable[str]:
    """The lists of a section: one, or those of its groups."""
    known: dict[str, dict[str, Any]] = {}
    for kind, model in classes.items():
        for key, field in model.model_fields.items():
            if key not in SERVERS:
                known.setdefault(key, {})[kind] = field
    groups = {title: keys.split() for title, keys in GROUPS.get(name, {"": ""}).items()}
    grouped = {key for keys in groups.values() for key in keys}
    next(iter(groups.values())).extend(key for key in known if key not in grouped)
    for title, keys in groups.items():
        having = {tuple(known[key]) for key in keys}
        alone = having.pop() if len(having) == 1 else tuple(classes)
        rows = {}
        for key in keys:
            only = "" if tuple(known[key]) == alone else among(known[key], classes)
            if only.startswith("all but") and not next(iter(known[key].values())).is_required():
                only = ""  # the message that refuses it says so
            rows[f"{name}.{key}"] = row(key, known[key], only, kinds)
            inner = section(next(iter(known[key].values())).annotation)
            if inner and key == "chunks":
                rows |= {f"{name}.{key}.{each}": row(each, {"": f}) for each, f in inner.model_fields.items()}
        whose = "" if alone == tuple(classes) else f"For {among(alone, classes).removesuffix(' only')}."
        below = items(rows, whose)
        yield f"\n### {title}\n{below.lstrip()}" if title else below


def among(some: Iterable[str], every: Iterable[str]) -> str:
    """Which of all kinds, by the shorter list."""
    having, others = list(some), [each for each in every if each not in some]
    return f"{listed(having)} only" if len(having) <= len(others) else f"all but {listed(others)}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


def items(rows: Mapping[str, tuple[str, str]], above: str = "") -> str:
    """A list of settings, below what is said of all."""
    starts = {key: "" if default == "`null`" else f" ({default})" for key, (default, _) in rows.items()}
    lines = (f"- `{key}`{starts[key]}: {text}\n" for key, (_, text) in rows.items())
    return (f"\n{above}\n\n" if above else "\n") + "".join(lines)


def row(key: str, fields: Mapping[str, Any], only: str = "", kinds: Any = None) -> tuple[str, str]:
    """Default and text of a setting. Where kinds differ, the default kind's come first, or most."""
    field = next(iter(fields.values()))
    if kinds and key == kinds.field:
        start = f"`{kinds.default}`" if kinds.default else "required"
        return choice(start, listed(kinds.all())), field.description
    forms = {kind: (values(each), each.description, default(each)) for kind, each in fields.items()}
    usual = forms.get(kinds and kinds.default) or Counter(forms.values()).most_common(1)[0][0]
    outputs = mark_of(field).outputs
    notes = [f"{', '.join(outputs)} only"] if len(outputs) < len(OUTPUTS) else []
    notes += [only] if only else []
    text = usual[1] + (f" ({'; '.join(notes)})" if notes else "")
    for other in dict.fromkeys(form for form in forms.values() if form != usual):
        changed = [new for new, old in zip(other[:2], usual[:2], strict=True) if new not in ("", old)][:1]
        changed = [without_start(each, usual[1]) for each in changed]
        if other[2] not in (usual[2], *changed):
            changed.append(other[2] if other[2] == "required" else f"default {other[2]}")
        text += f"; {listed(kind for kind, form in forms.items() if form == other)}: {', '.join(changed)}"
    return choice(usual[2], usual[0]), text


def choice(start: str, allowed: str) -> str:
    """The default of a setting, then its other values."""
    others = [each for each in allowed.split(", ") if each not in (start, "")]
    separator = ": " if start == "required" and others else ", " if others else ""
    return start + separator + ", ".join(others)


def without_start(text: str, other: str) -> str:
    """The parts of a text after those with which another text begins, too."""
    parts, known = text.split("; "), other.split("; ")
    same = next((i for i, part in enumerate(parts) if part not in known[i : i + 1]), 0)
    return "; ".join(parts[same:])


def values(field: Any) -> str:
    """The values that a setting allows; "" where it allows any, or too many to list."""
    found = allowed(field.annotation)
    return listed(found) if len(found) < MANY else ""


def default(field: Any) -> str:
    return "required" if field.is_required() else f"`{plain(field.default)}`"


def first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").splitlines()[0]


def section(annotation: Any) -> type[BaseModel] | None:
    """The section that a setting always or sometimes holds."""
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    found = (each for each in options if isinstance(each, type) and issubclass(each, BaseModel))
    return next(found, None)


def plain(value: Any) -> str:
    if value in ("", " "):
        return f"'{value}'"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def allowed(annotation: Any) -> list[str]:
    """The values that a type lists; none if it lists none."""
    if typing.get_origin(annotation) is Literal:
        return [str(value) for value in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [value for option in typing.get_args(annotation) for value in allowed(option)]
    return []


if __name__ == "__main__":
    main()

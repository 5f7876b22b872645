#!/usr/bin/env python
"""Write docs/configuration.md from the config's settings classes.

.venv/bin/python scripts/document_config.py
"""

from __future__ import annotations

import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from pipeline.config import Config
from pipeline.config.settings import kinds_of
from pipeline.config.stages import EncodingServerSettings

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

One YAML file is one benchmark, or several by [`sweep` or `model.prompts`](compare.md). Any setting can be
changed for one run: `--set search.top_k=100`. Unknown settings are refused. Relative paths start at the
config file's folder (in `--set` where you stand), `cache` and `output` at the working directory.
`benchmarco schema` prints all this as JSON Schema, for editors.

Some settings are for some sources or backends only. Elsewhere only their default is accepted. Retrievers in
`fuse.of` are numbered from 1: `--set fuse.of.2.model.precision=bf16`.

*Recomputes* names the stages that a change makes anew, with all that depend on them; where it is empty, no
result changes. If `data` changes but not its passages, their vectors are reused.

Made by `scripts/document_config.py`.
"""
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
            "query_column positives_column corpus_path corpus_revision corpus_split corpus_column"
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
        "On a server": "url dimensions same_as",
        "Vectors from files": "passages queries passage_ids query_ids",
        "BM25": "k1 b stop_words stemmer",
    },
    "rerank": {
        "Which model": "backend name revision depth trust_remote_code",
        "What it reads": (
            "max_length query_max_length query_instruction passage_instruction prompt max_characters"
        ),
        "How it runs": "precision device batch_size",
        "Layerwise and lightweight models": "cutoff_layers compress_layers compress_ratio",
        "On a server": "url form",
    },
}
"""The tables of a section that has kinds, each with its settings; a setting in none is in the first."""
SERVERS = dict(EncodingServerSettings.model_fields)
"""Settings of all servers, which have a table of their own."""
MANY = 15
"""So many values are not listed."""


def main() -> None:
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    top = {key: field for key, field in Config.model_fields.items() if not section(field.annotation)}
    parts = ["\n## Top level\n", table({key: row(key, {"": field}) for key, field in top.items()})]
    for name, field in Config.model_fields.items():
        if model := section(field.annotation):
            kinds = kinds_of(field)
            classes = {kind: kinds[kind] for kind in kinds} if kinds else {"": model}
            parts += [f"\n## `{name}`\n{first_line(model)}\n", *tables(name, classes, kinds)]
    parts += ["\n## Servers\nFor `model` and `rerank` with backend `http`; the first five for `judge` too.\n"]
    return HEAD + "".join(parts) + "\n" + table({key: row(key, {"": SERVERS[key]}) for key in SERVERS})


def tables(name: str, classes: Mapping[str, Any], kinds: Any) -> Iterable[str]:
    """The tables of a section: one, or those of its groups."""
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
            rows[f"{name}.{key}"] = row(key, known[key], only, kinds)
            inner = section(next(iter(known[key].values())).annotation)
            if inner and key == "chunks":
                rows |= {f"{name}.{key}.{each}": row(each, {"": f}) for each, f in inner.model_fields.items()}
        whose = "" if alone == tuple(classes) else f"For {among(alone, classes)}. "
        below = (whose + table(rows)).replace(". \n", ".\n")
        yield f"\n### {title}\n{below.lstrip()}" if title else below.removeprefix("\n")


def among(some: Iterable[str], every: Iterable[str]) -> str:
    """Which of all kinds, by the shorter list."""
    having, others = list(some), [each for each in every if each not in some]
    return listed(having) if len(having) <= len(others) else f"all but {listed(others)}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


def table(rows: Mapping[str, tuple[str, str, str]]) -> str:
    """A table of settings; what all of them recompute stands above it once."""
    shapes = {shape for _, _, shape in rows.values()}
    if len(shapes) > 1:
        head = "\n\n| setting | default | what it is | recomputes |\n|---|---|---|---|\n"
        return head + "".join(line(f"`{key}`", *cells) for key, cells in rows.items())
    what = f"Recomputes {shapes.pop() or 'nothing'}.\n\n"
    head = what + "| setting | default | what it is |\n|---|---|---|\n"
    return head + "".join(line(f"`{key}`", *cells[:2]) for key, cells in rows.items())


def line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def row(key: str, fields: Mapping[str, Any], only: str = "", kinds: Any = None) -> tuple[str, str, str]:
    """Default, text and stages of a setting. Where kinds differ, the default kind's come first, or most."""
    field = next(iter(fields.values()))
    if kinds and key == kinds.field:
        start = f"`{kinds.default}`" if kinds.default else "required"
        return start, f"{listed(kinds)}: {field.description}", stages(field)
    forms = {kind: (values(each), each.description, default(each)) for kind, each in fields.items()}
    usual = forms.get(kinds and kinds.default) or Counter(forms.values()).most_common(1)[0][0]
    outputs = field.json_schema_extra["outputs"]
    notes = [f"{', '.join(outputs)} only"] if outputs else []
    notes += [only] if only else []
    text = ": ".join(each for each in usual[:2] if each) + (f" ({'; '.join(notes)})" if notes else "")
    for other in dict.fromkeys(form for form in forms.values() if form != usual):
        changed = [new for new, old in zip(other[:2], usual[:2], strict=True) if new not in ("", old)][:1]
        if other[2] not in (usual[2], *changed):
            changed.append(other[2] if other[2] == "required" else f"default {other[2]}")
        text += f"; {listed(kind for kind, form in forms.items() if form == other)}: {', '.join(changed)}"
    return usual[2], text, stages(field)


def stages(field: Any) -> str:
    return ", ".join(field.json_schema_extra["shapes"])


def values(field: Any) -> str:
    """The values that a setting lists; "" where it lists none."""
    found = allowed(field.annotation)
    return listed(found) if len(found) < MANY else f"one of {len(found)}"


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
    if value == "":
        return "''"
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

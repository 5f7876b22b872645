"""The description of a collection as terminal tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from pipeline.core.display import counted, cut
from pipeline.core.table import Column, Table

EXAMPLE_LENGTH = 200  # characters
MISSING = {
    "passages": "judged passages that the corpus lacks (missing_passages: {handling})",
    "judgments": "judgments of these",
    "relevant": "judgments of these, grade 1 or higher",
    "queries": "judged queries without a text (left out)",
}


def collection_view(name: str, description: Mapping[str, Any]) -> Iterator[Table | Text]:
    """Tables and examples of what `pipeline.data.describe` found."""
    yield _counts(name, description)
    yield _distributions(description)
    for found in description.get("training_data", ()):
        yield from _training_data(found)
    for example in description["examples"]:
        yield Text(f"query {example['id']}: {cut(example['text'], EXAMPLE_LENGTH)}", style="bold")
        for judged in example["judged"]:
            yield Text(f"  grade {judged['grade']}  {judged['id']}: {cut(judged['text'], EXAMPLE_LENGTH)}")


def _training_data(found: Mapping[str, Any]) -> Iterator[Table | Text]:
    """How many texts occur in a file of training data, and some of them."""
    labels = {"queries": "queries", "passages": "passages", "relevant": "passages of grade 1 or higher"}
    rows = [(label, f"{found[key]:,}") for key, label in labels.items()]
    notes = [
        f"{counted(found['pairs'], 'query', 'queries')} of these, each with a passage of grade 1 or higher "
        "that is relevant to it. A text occurs in the file if one of the file has the same words in the same "
        "order."
    ]
    columns = [Column("in the file"), Column("count", "right")]
    yield Table(f"{found['file']}: {counted(found['texts'], 'text')}", columns, rows, notes)
    for example in found["examples"]:
        text = cut(example["text"], EXAMPLE_LENGTH)
        yield Text(f"{example['role']} {example['id']}: {text}", style="bold")


def _counts(name: str, description: Mapping[str, Any]) -> Table:
    """Numbers of passages, queries and judgments, and of those that were dropped."""
    labels = {
        "passages": "passages",
        "titles": "passages with a title (joined as 'title text')",
        "empty_texts": "empty passages",
        "queries": "judged queries",
        "empty_queries": "empty queries",
        "judgments": "judgments",
    }
    rows = [(label, f"{description[key]:,}") for key, label in labels.items() if key in description]
    missing = description["missing"]
    for key, label in MISSING.items():
        rows.append((label.format(**missing), f"{missing[key]:,}"))
    for why, label in (("dropped", "dropped"), ("outside_slice", "outside the slice")):
        for reason, count in description[why].items():
            rows.append((f"{label}: {reason.replace('_', ' ')}", f"{count:,}"))
    return Table(name, [Column("what"), Column("count", "right")], rows)


def _distributions(description: Mapping[str, Any]) -> Table:
    """Judgments per query, and lengths of texts."""
    figures = ("min", "median", "mean", "p95", "max")
    judged = description["judgments_per_query"]
    rows = {"query: judgments": judged["all"]}
    rows |= {f"query: judgments of grade {grade}": each for grade, each in judged["grade"].items()}
    for role, lengths in description["lengths"].items():
        singular = {"passages": "passage", "queries": "query"}[role]
        texts = description[role]
        rows |= {f"{singular}: {unit}{_sample(each, texts)}": each for unit, each in lengths.items()}
    cells = [(label, *(f"{each[name]:,.5g}" for name in figures)) for label, each in rows.items()]
    return Table("", [Column("distribution"), *(Column(name, "right") for name in figures)], cells)


def _sample(lengths: Mapping[str, Any], texts: int) -> str:
    """What to add to the label of lengths that were counted in fewer texts than there are."""
    return f", of a sample of {lengths['counted']:,}" if lengths["counted"] < texts else ""

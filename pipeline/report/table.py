"""Which tables does the terminal show?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from pipeline.core.display import counted, interval, rate, rounded, size

WIDE = 80  # letters; a narrower terminal is shown less of each stage
ALL_OF_A_CACHE = 140  # the same of each artifact in the cache


def result_tables(metrics: Mapping[str, Any], width: int = WIDE) -> list[Table]:
    """The tables of one finished benchmark.

    Args:
        metrics: The content of `metrics.json`.
        width: Letters that fit in a line.
    """
    queries = counted(metrics["queries"], "query", "queries")
    title = f"{metrics['name']}: {queries}, {counted(metrics['passages'], 'passage')}"
    measures = measure_table(title, metrics["metrics"], metrics["intervals"])
    return [measures, _stage_table(metrics["stages"], width)]


def measure_table(title: str, means: Mapping[str, float], intervals: Mapping[str, Iterable[float]]) -> Table:
    """A measure a row, with the 95% interval of its mean."""
    table = plain_table(title, ("measure", "mean", "95% interval"), right=(1, 2))
    for name, mean in means.items():
        low, high = intervals[name]
        table.add_row(name, rounded(mean), interval(low, high))
    return table


def plan_table(title: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """A stage a row: its key, and whether its artifact is there."""
    table = plain_table(title, ("stage", "artifact", "key"))
    for row in rows:
        table.add_row(row["stage"], "there" if row["exists"] else "to make", row["key"])
    return table


def _stage_table(stages: Iterable[Mapping[str, Any]], width: int) -> Table:
    header = ["stage", "artifact", "items", "seconds", "items/s"]
    header += ["peak MB", "key"] if width >= WIDE else []
    table = plain_table(None, header, right=(2, 3, 4, 5))
    for row in stages:
        cells = (
            row["stage"],
            became(row),
            _number(row["items"], ",d"),
            _number(row["seconds"], ",.2f"),
            rate(row["items_per_second"]),
            _number(row["peak_rss_mb"], ",.0f"),
            row["key"][:12],
        )
        table.add_row(*cells[: len(header)])
        if row["stage"] == "passages" and row.get("encoding"):
            table.caption, table.caption_justify = _encoding(row), "left"
    return table


def became(row: Mapping[str, Any]) -> str:
    """What became of a stage's artifact: `made`, `reused`, or `not needed` and not there."""
    return "reused" if row["reused"] else "not needed" if row["seconds"] is None else "made"


def _encoding(row: Mapping[str, Any]) -> str:
    """What encoding the passages cost; the tokenizer works beside the model."""
    usage, texts_per_second = row["encoding"], row["items_per_second"] or 0
    per_text = texts_per_second / max(usage["texts"], 1)
    return (
        f"passages: {usage['tokens'] * per_text:,.0f} tokens/s; "
        f"tokenizer busy {usage['tokenize_seconds'] * per_text:.1%} of the time; "
        f"padding {usage['padding_share']:.1%} of the tokens computed"
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def plain_table(title: str | None, header: Iterable[str], right: Iterable[int] = ()) -> Table:
    """A table with a title on its left; the columns numbered in `right` are aligned right."""
    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    for position, name in enumerate(header):
        justify: Literal["left", "right"] = "right" if position in tuple(right) else "left"
        table.add_column(name, justify=justify, overflow="fold")
    return table


def fitting_tables(
    make: Callable[[str, tuple[str, ...]], Table],
    title: str,
    first: str,
    names: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    width: int,
) -> list[Table]:
    """Columns in as many tables as their width makes of them, each beside the rows' names.

    Args:
        make: Makes a table of a title and a header.
        title: Of the first table.
        first: Heads the rows' names.
        names: The rows'.
        columns: The cells of each column, by its name.
        width: Letters that fit beside the names.
    """
    tables: list[Table] = []
    for chosen in _side_by_side(columns, width):
        tables.append(make("" if tables else title, (first, *chosen)))
        for row in zip(names, *(columns[name] for name in chosen), strict=True):
            tables[-1].add_row(*row)
    return tables


def _side_by_side(columns: Mapping[str, Sequence[str]], width: int) -> list[list[str]]:
    """The columns' names, in groups that fit in a width with a border and two spaces each."""
    groups: list[list[str]] = [[]]
    left = width
    for name, cells in columns.items():
        needed = max(len(line) for cell in [name, *cells] for line in cell.split("\n")) + 3
        if needed > left and groups[-1]:
            groups.append([])
            left = width
        groups[-1].append(name)
        left -= needed
    return groups


def cache_table(folder: str, rows: Sequence[Mapping[str, Any]], width: int) -> Table:
    """A row for each artifact: `storage.cache.describe_entries`, with fewer columns in a narrow terminal."""
    total = sum(row["bytes"] for row in rows)
    title = f"{folder}: {counted(len(rows), 'artifact')}, {size(total)}"
    header = ["stage", "key", "state", "size", "last used"]
    header += ["made", "made from", "used by"] if width >= ALL_OF_A_CACHE else []
    table = plain_table(title, header, right=(3,))
    for row in rows:
        cells = (
            row["stage"],
            row["key"][:12],
            row["state"],
            size(row["bytes"]),
            _minute(row["used_at"]),
            _minute(row["made_at"]),
            _short(row["made_from"]),
            _short(row["used_by"]),
        )
        table.add_row(*cells[: len(header)])
    return table


def verify_table(folder: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """An artifact a row, with the files of it that are damaged."""
    damaged = sum(bool(row["files"]) for row in rows)
    title = f"{folder}: {counted(len(rows), 'artifact')}, {damaged:,} damaged"
    table = plain_table(title, ("stage", "artifact", "size", "damaged files", "key"), right=(2,))
    for row in rows:
        files = "\n".join(row["files"])
        table.add_row(row["stage"], row["state"], size(row["bytes"]), files, row["key"])
    return table


def prune_table(folder: str, rows: Sequence[Mapping[str, Any]], dry: bool) -> Table:
    """What goes, a row each, and why."""
    total = size(sum(row["bytes"] for row in rows))
    title = f"{folder}: {'would remove' if dry else 'removed'} {counted(len(rows), 'artifact')}, {total}"
    table = plain_table(
        title + ("; --yes removes them" if dry else ""), ("stage", "size", "why", "key"), (1,)
    )
    for row in rows:
        table.add_row(row["stage"], size(row["bytes"]), row["why"], row["key"])
    return table


def _minute(instant: str | None) -> str:
    return (instant or "")[:16].replace("T", " ")


def _short(names: Iterable[str]) -> str:
    """Artifacts by stage and the start of their keys, one a line."""
    return "\n".join(f"{name.partition('/')[0]} {name.partition('/')[2][:12]}" for name in names)

"""Tables of what a collection holds."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.core.display import counted, cut
from pipeline.core.records import Facts
from pipeline.core.table import Column, FilledColumn, Table, right, table_of
from pipeline.retrievers.truncation import ADVICE, TruncatedTexts

EXAMPLE_LENGTH = 200  # characters
ALWAYS = ("passages", "judged queries", "judgments")
"""Counts that are shown even if they are 0."""
MISSING = {
    "passages": "judged passages that the corpus lacks (missing_passages: {handling})",
    "judgments": "judgments of these",
    "relevant": "judgments of these, grade 1 or higher",
    "queries": "judged queries without a text (left out)",
}


def collection_view(name: str, description: Facts, whole: bool = True) -> Iterator[Table]:
    """Tables and examples of what `pipeline.data.describe` found; the main ones if not `whole`."""
    yield _counts(name, description, whole)
    yield _distributions(description, whole)
    for found in description.get("training_data", ()):
        yield from _training_data(found)
    if "audit" in description:
        yield from _audit(description["audit"], whole)
    length = EXAMPLE_LENGTH if whole else EXAMPLE_LENGTH // 2
    for example in description["examples"][: None if whole else 1]:
        judged = example["judged"]
        texts = [f"  grade {each['grade']}  {each['id']}: {cut(each['text'], length)}" for each in judged]
        yield Table(f"query {example['id']}: {cut(example['text'], length)}", [], [], texts)


def collections_table(descriptions: dict[str, Facts]) -> Table:
    """A row for each of several collections; lengths are means, in tokens where a model is known."""
    facts = descriptions.values()
    counts = {"passages": "passages", "judged queries": "queries", "judgments": "judgments"}
    columns: list[FilledColumn] = [(Column("collection"), list(descriptions))]
    columns += [(right(name, form=","), [each[key] for each in facts]) for name, key in counts.items()]
    judged = [each["judgments_per_query"]["all"]["mean"] for each in facts]
    columns.append((right("judgments/query", form=",.1f"), judged))
    for name, role in (("passage length", "passages"), ("query length", "queries")):
        lengths = [list(each["lengths"][role].items())[-1] for each in facts]
        columns.append((right(name), [f"{length['mean']:,.1f} {unit}" for unit, length in lengths]))
    return table_of("", columns)


def _audit(audited: Facts, whole: bool) -> Iterator[Table]:
    """Defects of a collection, and what equal passages with different grades do to each measure."""
    rows = [
        (defect["what"], f"{defect['count']:,}", f"{defect['of']:,}", ", ".join(defect["examples"]))
        for defect in audited["defects"]
        if whole or defect["count"]
    ]
    columns = [Column("defect"), Column("count", "right"), Column("of", "right"), Column("such as")]
    notes = [] if rows else ["No defect was found."]
    if rows and not whole:
        notes.append("Defects without a case are left out (-v).")
    yield Table("audit", columns, rows, notes)
    if audited["scores"]:
        columns = [Column("a perfect ranking scores"), Column("lowest", "right"), Column("highest", "right")]
        changes = [
            (change["measure"], f"{change['lowest']:.4f}", f"{change['perfect']:.4f}")
            for change in audited["scores"]
        ]
        queries = counted(audited["queries_with_differing_twins"], "query has", "queries have")
        judgments = counted(audited["judgments_changed"], "judgment")
        note = (
            "lowest: of equal passages, those of lower grades come first, as may happen by chance. "
            f"{queries} equal passages whose grades differ; --write FOLDER changes {judgments}."
        )
        yield Table("what equal passages with different grades do to scores", columns, changes, [note])


def _training_data(found: Facts) -> Iterator[Table]:
    """How many texts occur in a file of training data, and some of them."""
    labels = {"queries": "queries", "passages": "passages", "relevant": "passages of grade 1 or higher"}
    rows = [(label, f"{found[key]:,}") for key, label in labels.items()]
    note = (
        f"{counted(found['pairs'], 'query', 'queries')} of these, each with a passage that is relevant to "
        "it. A text is in the file if one there has the same words in the same order."
    )
    columns = [Column("in the file"), Column("count", "right")]
    yield Table(f"{found['file']}: {counted(found['texts'], 'text')}", columns, rows, [note])
    for example in found["examples"]:
        text = cut(example["text"], EXAMPLE_LENGTH)
        yield Table(f"{example['role']} {example['id']}: {text}", [], [])


def _counts(name: str, description: Facts, whole: bool) -> Table:
    """Numbers of passages, queries and judgments, and of those that were dropped."""
    labels = {
        "passages": "passages",
        "titles": "passages with a title (joined as 'title text')",
        "empty_texts": "empty passages",
        "queries": "judged queries",
        "empty_queries": "empty queries",
        "judgments": "judgments",
        "unjudged_copies": "passages nobody judged, with the text of a relevant one",
        "queries_as_passages": "queries that are a passage",
    }
    rows = [(label, f"{description[key]:,}") for key, label in labels.items() if key in description]
    if found := description.get("slice"):
        rows.append(("slice: share of the corpus", f"{found['passages'] / found['of']:.2%}"))
        share = f"{found['judged'] / max(found['judged_of'], 1):.2%}"
        rows.append(("slice: share of the judged passages", share))
    missing = description["missing"]
    for key, label in MISSING.items():
        rows.append((label.format(**missing), f"{missing[key]:,}"))
    for why, label in (("dropped", "dropped"), ("outside_slice", "outside the slice")):
        for reason, count in description[why].items():
            rows.append((f"{label}: {reason.replace('_', ' ')}", f"{count:,}"))
    shown = [row for row in rows if whole or row[1] != "0" or row[0] in ALWAYS]
    return Table(name, [Column("what"), Column("count", "right")], shown)


def _distributions(description: Facts, whole: bool) -> Table:
    """Judgments per query, and lengths of texts: in characters and tokens, or in one of these."""
    figures = ("min", "median", "mean", "p95", "max")
    judged = description["judgments_per_query"]
    rows = {"query: judgments": judged["all"]}
    if whole:
        rows |= {f"query: judgments of grade {grade}": each for grade, each in judged["grade"].items()}
    notes = []
    for role, lengths in description["lengths"].items():
        singular = {"passages": "passage", "queries": "query"}[role]
        units = list(lengths.items())
        for unit, each in units if whole else units[-1:]:
            sample = f", of a sample of {each['counted']:,}" if each["counted"] < description[role] else ""
            rows[f"{singular}: {unit}{sample}"] = each
        counts = lengths.get("tokens", {}).get("truncation", {})  # what the model does not read
        if counts.get("cut"):
            notes.append(f"{TruncatedTexts(**counts).note(role, ADVICE if role == 'passages' else '')}.")
    cells = [(label, *(f"{each[name]:,.5g}" for name in figures)) for label, each in rows.items()]
    columns = [Column("distribution"), *(Column(name, "right") for name in figures)]
    return Table("", columns, cells, notes)

"""The audit of a collection: defects of its texts and judgments, and what they do to scores.

Texts are equal if they are after Unicode normalization (NFKC) and with white space reduced to single spaces.
A retriever gives equal texts equal scores, so chance decides which of two it ranks first. Where their grades
differ, a perfect ranking loses by that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.records import (
    Array,
    BoolArray,
    Collection,
    Facts,
    Int64,
    JsonObject,
    Qrels,
    Ranking,
    Texts,
)
from pipeline.formats.texts import BATCH_ROWS
from pipeline.metrics.definitions import Measure
from pipeline.metrics.scoring import compute_measures
from pipeline.storage.whole_files import write_whole
from pipeline.studies.shared.collections import write_beir

if TYPE_CHECKING:
    import pyarrow as pa

SHORT_WORDS = 3
"""Passages of fewer words are counted as short."""
EXAMPLES = 5
DIGEST_BYTES = 16  # of a text's hash: two of 10^9 texts have an equal one with probability 1e-21

SUSPICIOUS = {
    "mojibake": "\u00c3[\u0080-\u00bf]|\u00e2\u20ac|\u00c2[\u0080-\u00bf]|\ufffd",
    "control characters": r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x{200b}\x{feff}]",
    "HTML": r"(?i)</?(p|br|div|span|a|b|i|li|ul|td|tr|table|h[1-6])(\s[^<>]*)?/?>|&(amp|lt|gt|quot|nbsp);",
}
"""Regular expressions of RE2: UTF-8 read as Latin-1 or lost, characters that no text needs, markup."""


@dataclass(frozen=True)
class Defect:
    """One kind of defect: how many there are `of` how many there could be, and ids of the first ones."""

    what: str
    count: int
    of: int
    examples: list[str]


Change = tuple[str, str, str, str, str]
"""A judgment that is changed: query, passage, grade before ("" if it was not judged), grade after, and the
equal passage whose grade it is."""


@dataclass(frozen=True)
class Audit:
    """The defects of a collection, what they do to scores, and the judgments that a cleaned copy has."""

    defects: list[Defect]
    queries: int  # how many queries have equal passages with different grades
    # What these do to each measure, as JSON, by two rankings in the order of the highest shared grade:
    # `lowest` is the mean where of equal passages those of lower grades come first, `perfect` where those of
    # higher grades do: the most that is possible if equal passages stand together. Else there are none.
    scores: list[Facts]
    qrels: Qrels  # the judgments, in which equal passages share their highest grade
    changes: list[Change]  # what is changed in them

    def json(self) -> JsonObject:
        """The document that `data --audit --json` prints under `audit`."""
        return {
            "defects": [vars(defect) for defect in self.defects],
            "queries_with_differing_twins": self.queries,
            "scores": self.scores,
            "judgments_changed": len(self.changes),
        }


def audit(collection: Collection, measures: Sequence[Measure], cut: Facts | None = None) -> Audit:
    """Look for the defects of a collection, and what they do to measures.

    `cut` says by `truncation_of` how many passages of a sample the model cuts; None if no model is known.
    """
    passages, passage_defects = _examine(collection.passages, "passages")
    queries, query_defects = _examine(collection.queries, "queries")
    twins = _twins(passages)
    qrels, changes, touched = _share_grades(collection, twins)
    defects = [
        *passage_defects,
        *query_defects,
        _defect("passages whose text another one has", twins >= 0, collection.passages),
        _defect(
            "queries with equal passages whose grades differ",
            np.isin(np.arange(len(collection.queries)), touched),
            collection.queries,
        ),
        _equal_queries(collection, _twins(queries)),
        _defect("queries whose text is a passage", np.isin(queries, passages), collection.queries),
        *_judgment_defects(collection),
    ]
    if cut:
        defects.append(Defect("passages that the model cuts (of a sample)", cut["cut"], cut["texts"], []))
    return Audit(defects, len(touched), _score_changes(collection, qrels, measures, touched), qrels, changes)


def _examine(texts: Texts, role: str) -> tuple[Array, list[Defect]]:
    """The hash of each normalized text, [n] of 16 bytes; texts that are empty, short or suspicious."""
    import pyarrow.compute as pc

    digests = bytearray()
    masks = {name: np.zeros(len(texts), bool) for name in ("empty", "short", *SUSPICIOUS)}
    for start in range(0, len(texts), BATCH_ROWS):
        column = texts.texts.slice(start, BATCH_ROWS)
        part = slice(start, start + len(column))
        ascii_only = bool(pc.all(pc.string_is_ascii(column)).as_py())
        plain = _normalized(column, ascii_only)
        for text in plain.to_pylist():
            digests += hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()
        masks["empty"][part] = pc.equal(pc.binary_length(plain), 0).to_numpy()
        masks["short"][part] = pc.less(pc.count_substring(plain, " "), SHORT_WORDS - 1).to_numpy()
        for name, pattern in SUSPICIOUS.items():
            if name != "mojibake" or not ascii_only:
                masks[name][part] = pc.match_substring_regex(column, pattern).to_numpy()
    defects = [_defect(f"empty {role}", masks["empty"], texts)]
    if role == "passages":
        defects.append(
            _defect(f"{role} of fewer than {SHORT_WORDS} words", masks["short"] & ~masks["empty"], texts)
        )
    defects += [_defect(f"{role} with {name}", masks[name], texts) for name in SUSPICIOUS]
    return np.frombuffer(bytes(digests), f"V{DIGEST_BYTES}"), defects


def _normalized(texts: pa.ChunkedArray, ascii_only: bool) -> pa.ChunkedArray:
    """Texts in NFKC, without characters that are not seen, and with single spaces."""
    import pyarrow.compute as pc

    if not ascii_only:
        texts = pc.utf8_normalize(texts, form="NFKC")
        texts = pc.replace_substring_regex(texts, r"[\x{200b}\x{feff}\x{ad}]", "")
        texts = pc.replace_substring_regex(texts, r"\p{Z}", " ")
    if pc.any(pc.match_substring_regex(texts, r"[\t-\r]|  ")).as_py():
        texts = pc.replace_substring_regex(texts, r"[\t-\r ]+", " ")
    return pc.utf8_trim_whitespace(texts)


def _twins(hashes: Array) -> Int64:
    """int64 [n]: the number of each text's group of equal texts; -1 for a text that no other equals."""
    _, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return np.where(counts[group] > 1, group, -1)


def _defect(what: str, rows: BoolArray, texts: Texts) -> Defect:
    """The defect of some texts, bool [n]."""
    return Defect(what, int(rows.sum()), len(texts), _ids(texts, np.flatnonzero(rows)))


def _ids(texts: Texts, rows: Int64) -> list[str]:
    """The ids of the first texts of some rows."""
    return [texts.ids[row].as_py() for row in rows[:EXAMPLES].tolist()]


def _judgment_defects(collection: Collection) -> Iterator[Defect]:
    """Judgments of what is not there, and queries without a relevant passage."""
    qrels, queries = collection.qrels, len(collection.queries)
    facts: Facts = collection.facts
    missing, dropped = facts.get("missing", {}), facts.get("dropped", {})
    total = len(qrels.grades) + int(dropped.get("judgments_of_unknown_passages", 0))
    names = collection.missing_ids.slice(0, EXAMPLES).to_pylist()
    yield Defect("judgments of passages that do not exist", int(missing.get("judgments", 0)), total, names)
    unknown = int(missing.get("queries", 0))
    yield Defect("judged queries that do not exist", unknown, queries + unknown, [])
    without = np.setdiff1d(qrels.queries, qrels.queries[qrels.grades > 0])
    of_all = np.isin(np.arange(queries), without)
    yield _defect("queries without a relevant passage", of_all, collection.queries)


def _equal_queries(collection: Collection, twins: Int64) -> Defect:
    """Queries with equal texts whose judgments differ."""
    judged: dict[int, dict[int, set[tuple[int, float]]]] = {}
    for row in np.flatnonzero(twins >= 0).tolist():
        judged.setdefault(int(twins[row]), {})[row] = set()
    for (row, passage), grade in _grades(collection.qrels).items():
        if twins[row] >= 0:
            judged[int(twins[row])][row].add((passage, grade))
    differing = sorted(
        row for group in judged.values() if len(set(map(frozenset, group.values()))) > 1 for row in group
    )
    examples = _ids(collection.queries, np.array(differing, np.int64))
    return Defect("queries with equal texts and other judgments", len(differing), len(twins), examples)


def _share_grades(collection: Collection, twins: Int64) -> tuple[Qrels, list[Change], Int64]:
    """The judgments in which equal passages share their highest grade, what changed, and the queries."""
    qrels, n = collection.qrels, len(collection.passages)
    order = np.argsort(twins, kind="stable")
    ordered = twins[order]
    grades: dict[tuple[int, int], dict[int, float]] = {}
    for (query, passage), grade in (own := _grades(qrels)).items():
        if passage < n and twins[passage] >= 0:
            grades.setdefault((query, int(twins[passage])), {})[passage] = grade
    changed: dict[tuple[int, int], float] = {}
    changes: list[Change] = []
    touched = set()
    for (query, group), known in grades.items():
        best = max(known, key=lambda passage: known[passage])
        first, last = np.searchsorted(ordered, [group, group + 1])
        for passage in order[first:last].tolist():
            before, after = known.get(passage), known[best]
            # an unjudged twin of a passage that is not relevant is as it was
            if before == after or (before is None and after <= 0):
                continue
            touched.add(query)
            changed[query, passage] = after
            name, twin = (collection.passages.ids[row].as_py() for row in (passage, best))
            grades_written = ("" if before is None else str(before), str(after))
            changes.append((collection.queries.ids[query].as_py(), name, *grades_written, twin))
    if changed:
        pairs = sorted((own | changed).items())
        queries, passages = np.array([pair for pair, _ in pairs], np.int64).T
        qrels = Qrels(queries, passages, np.array([grade for _, grade in pairs], qrels.grades.dtype))
    return qrels, changes, np.array(sorted(touched), np.int64)


def _grades(qrels: Qrels) -> dict[tuple[int, int], float]:
    """The grade of each pair of a query and a passage, by their rows."""
    pairs = zip(qrels.queries.tolist(), qrels.passages.tolist(), strict=True)
    return dict(zip(pairs, qrels.grades.tolist(), strict=True))


def _score_changes(
    collection: Collection, shared: Qrels, measures: Sequence[Measure], touched: Int64
) -> list[Facts]:
    """For each measure the means of two rankings that are perfect by the shared grades."""
    if not len(touched) or not measures:
        return []
    qrels = collection.qrels
    known = _grades(qrels)
    before = np.array([known.get(pair, 0) for pair in _grades(shared)])
    n = len(collection.queries)
    width = int(np.bincount(shared.queries, minlength=n).max())
    means = []
    for sign in (1, -1):  # of passages with one shared grade, those of lower grades first; of higher ones
        order = np.lexsort((sign * before, -shared.grades, shared.queries))
        rows = shared.queries[order]
        ranks = np.arange(len(rows)) - np.searchsorted(rows, np.arange(n))[rows]
        passages = np.full((n, width), -1)
        passages[rows, ranks] = shared.passages[order]
        scores = np.where(passages >= 0, -np.arange(width, dtype=np.float64), -np.inf)
        judged = np.unique(qrels.queries)
        means.append(compute_measures(Ranking(passages, scores), qrels, measures)[judged].mean(axis=0))
    return [
        {"measure": str(measure), "lowest": float(low), "perfect": float(high)}
        for measure, low, high in zip(measures, *means, strict=True)
    ]


def write_cleaned(collection: Collection, audited: Audit, folder: Path) -> None:
    """Write a cleaned copy in BEIR's layout, with the list of changed judgments as `changes.tsv`."""
    write_beir(folder, collection.passages, collection, audited.qrels)
    lines = [("query", "passage", "before", "after", "equal_passage"), *audited.changes]
    write_whole(folder / "changes.tsv", "".join("\t".join(line) + "\n" for line in lines).encode())

"""The identity of a collection, unparsed, and the conversion of its source into an artifact's files.

The rules, for every source:

* Queries are those with at least one judgment, of whatever grade, in their own order; then the first N.
  With `data.unjudged_queries: keep` they are all.
* A slice of the corpus keeps all passages that are judged for these queries, then those with the lowest
  seeded hash of their id. The hash depends on the id alone, so a larger slice contains the smaller one, on
  every machine and from every source.
* Judgments of queries that the collection does not have are dropped and counted: without a text, a query
  cannot be run.
* Judgments of passages that it does not have are counted, and kept by default, as trec_eval does: nothing can
  retrieve such a passage, and a relevant one lowers recall. `data.missing_passages` drops or refuses them. If
  all are of such passages, the collection is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import SOURCES, DataSettings, keyed_settings
from pipeline.core.display import Bar, Progress, counted, silent
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Facts, Int64, JsonObject, from_numpy, take_texts
from pipeline.data.collection_files import CORPUS, QUERIES, open_texts, write_judgments, write_texts
from pipeline.data.sources import OPENERS, Source, add_excluded
from pipeline.formats.judgments import Judgments
from pipeline.formats.texts import Batch, ids_apart, refuse_unfit_ids
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 4  # of reading, joining, slicing and storing; raise it when any of them gives other content
JUDGED_SCHEMA = 5  # of choosing queries and storing judgments; raise it when passages stay the same
SEED = b"benchmarco"  # of the hash that draws passages
BLANK = r"^[\s\p{Z}\p{Cc}\p{Cf}]*$"  # of white space and characters that are not seen, such as U+200B (RE2)


@dataclass(frozen=True)
class Identity:
    """For each part of a collection, JSON without paths that changes whenever the part's content can.

    That of the queries includes the judgments where only judged queries are kept. That of the judgments
    includes everything, as they are stored by row number.
    """

    passages: JsonObject
    queries: JsonObject
    qrels: JsonObject
    source: Source = field(compare=False, repr=False)  # what reads the content; on the hub, of one commit

    @property
    def on_hub(self) -> bool:
        """Whether the corpus is in a repository on the hub."""
        corpus = self.passages["corpus"]
        return isinstance(corpus, dict) and "dataset" in corpus


def identify(config: DataSettings, source: Source | None = None) -> Identity:
    """The identity of a collection: of its files' bytes, or its commit on the hub; opens `source` if None."""
    if source is None:
        opener = OPENERS.get(config.source) or SOURCES.opener(config.source)
        source = opener(config)
    parts = source.identity()
    judged: JsonObject = {
        "schema": [SCHEMA, JUDGED_SCHEMA],
        "queries": parts["queries"],
        "qrels": parts["qrels"],
        "settings": keyed_settings(config, "queries"),
    }
    # all queries of a source are the same whatever is judged
    asked = judged | {"qrels": None} if config.unjudged_queries == "keep" else judged
    corpus: JsonObject = {"schema": SCHEMA, "corpus": parts["corpus"]}
    of_slice: JsonObject = {"judged": judged} if isinstance(config.corpus, int) else {}  # which it keeps
    return Identity(
        passages=corpus | of_slice | {"settings": keyed_settings(config, "passages")},
        queries=asked,
        qrels=corpus | judged | {"settings": keyed_settings(config, "data")},
        source=source,
    )


def load(source: Source, config: DataSettings, draft: Draft, progress: Progress = silent) -> JsonObject:
    """Make a collection's files from its source; returns facts, as JSON.

    `content` has hashes of the texts, the same in any order and from any source.
    """
    queries = _select_queries(source, config)
    judgments = queries.judgments
    kept_ids = judgments.passage_ids.take(from_numpy(np.unique(judgments.passages[queries.judged])))
    read = PassageCounts()
    reading = closing(_read_corpus(source, kept_ids, config, read, progress))
    with draft.file(CORPUS) as path, reading as batches:
        content = {"passages": write_texts(path, batches)}
        corpus = open_texts(path)
        passage_rows = _rows_of(judgments.passage_ids, corpus.ids)
        rows = passage_rows[judgments.passages]
        kept = queries.judged & (rows >= 0)
        if queries.judged.any() and not kept.any():
            raise _nothing_left(judgments, "passage", judgments.passage_ids, corpus.ids)
    if config.missing_passages == "count":
        kept = queries.judged
    with draft.file(QUERIES) as path:
        content["queries"] = write_texts(path, (batch.columns for batch in queries.table.to_batches()))
    qrels = write_judgments(draft, judgments, kept, queries.rows, passage_rows, len(corpus))
    notes = list(filter(None, [getattr(source, "note", "")]))
    if read.left_out:
        size = f"{len(corpus):,} of {len(corpus) + read.left_out:,}"
        notes.append(f"slice: {size} passages, judged or drawn at random: scores are too high")
    if faint := int(((qrels.grades > 0) & (qrels.grades < 1)).sum()):
        have = counted(faint, "judgment has", "judgments have")
        notes.append(f"{have} a grade between 0 and 1: not relevant but for measures with a lower rel=N")
    texts, missing, dropped, outside = _count(queries, corpus.texts, rows, kept)
    return {
        "passages": len(corpus),
        "queries": len(queries.table),
        "judgments": len(qrels.grades),
        "titles": read.titles,
        **({"note": "; ".join(notes)} if notes else {}),
        **texts,
        "content": content,
        "missing": {"handling": config.missing_passages, **missing},
        "dropped": dropped,
        "outside_slice": outside | {"passages": read.left_out},
    }


def _count(
    queries: SelectedQueries, texts: pa.ChunkedArray, rows: Int64, kept: BoolArray
) -> list[dict[str, int]]:
    """Counts for the facts: of texts, and of what is missing, dropped and outside the slice.

    `texts` are those of the passages. `rows`, int64 [judgments], has the row of each judged passage, -1 where
    the corpus lacks it; `kept`, bool [judgments], marks the judgments that are stored.
    """
    import pyarrow.compute as pc

    judgments, judged, asked = queries.judgments, queries.judged, queries.table.column("text")
    known, relevant = queries.seen[judgments.queries], judgments.grades > 0
    found, lacking = judged & (rows >= 0), judged & (rows < 0)
    relevant_texts = take_texts(texts, np.unique(rows[found & relevant])).unique()
    copies = pc.is_in(texts, value_set=relevant_texts).to_numpy()
    copies[rows[found]] = False
    copies[pc.equal(pc.binary_length(texts), 0).to_numpy()] = False
    asked_texts = texts.filter(pc.is_in(texts, value_set=asked.unique())).unique()
    of_texts = {
        "empty_texts": np.count_nonzero(pc.match_substring_regex(texts, BLANK)),
        "unjudged_copies": np.count_nonzero(copies),  # of relevant passages
        "queries_as_passages": np.count_nonzero(pc.is_in(asked, value_set=asked_texts)),
        "empty_queries": np.count_nonzero(pc.match_substring_regex(asked, BLANK)),
    }
    missing = {
        "passages": len(np.unique(judgments.passages[lacking])),
        "judgments": np.count_nonzero(lacking),
        "relevant": np.count_nonzero(lacking & relevant),  # of a grade above 0
        "queries": np.count_nonzero(~queries.seen),  # that are judged and have no text
    }
    all_judged, still_judged = (len(np.unique(judgments.queries[some])) for some in (judged, kept))
    dropped = {
        "queries_without_judgments": queries.dropped,
        "queries_without_judged_passages": all_judged - still_judged,
        "judgments_of_unknown_queries": np.count_nonzero(~known),
        "judgments_of_unknown_passages": np.count_nonzero(judged & ~kept),
        "repeated_judgments": judgments.repeated,
    }
    outside = {
        "queries": np.count_nonzero(queries.seen & (queries.rows < 0)),
        "judgments": judgments.outside + np.count_nonzero(known & ~judged),
    }
    parts: tuple[Facts, ...] = of_texts, missing, dropped, outside
    return [{name: int(count) for name, count in part.items()} for part in parts]


@dataclass(frozen=True)
class SelectedQueries:
    """The queries of a slice, and their relation to the source and the judgments."""

    table: pa.Table  # of `id` and `text`, [q]
    judgments: Judgments  # of the source, for any query
    rows: Int64  # [judged queries], the row of each in the table; -1 if it is not there
    seen: BoolArray  # [judged queries], whether each is in the source
    judged: BoolArray  # [judgments], whether each is of a query in the table
    dropped: int  # queries of the source that are left out because they have no judgment


def _select_queries(source: Source, config: DataSettings) -> SelectedQueries:
    """Read judgments and queries, and keep the first queries in their own order, as many as `config` says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    judgments, batches = source.judgments(), list(_checked(source.queries, "query"))
    if excluding := [batch for batch in batches if batch.excluded is not None]:
        judgments = add_excluded(judgments, excluding, config)
    table = pa.concat_tables(pa.table({"id": batch.ids, "text": batch.texts}) for batch in batches)
    seen = pc.is_in(judgments.query_ids, value_set=table["id"]).to_numpy(zero_copy_only=False)
    if len(seen) and not seen.any():
        raise _nothing_left(judgments, "query", judgments.query_ids, table["id"])
    wanted = table
    if config.unjudged_queries == "drop":
        wanted = table.filter(pc.is_in(table["id"], value_set=judgments.query_ids))
    chosen = wanted.slice(0, config.queries)
    if config.lowercase_queries:
        chosen = chosen.set_column(1, "text", pc.utf8_lower(chosen["text"]))
    rows = _rows_of(judgments.query_ids, chosen["id"])
    judged = rows[judgments.queries] >= 0
    return SelectedQueries(chosen, judgments, rows, seen, judged, len(table) - len(wanted))


def _rows_of(judged: pa.Array, ids: pa.ChunkedArray) -> Int64:
    """The row of each of the ids `judged` among `ids`, int64 [judged]; -1 where it is not there."""
    import pyarrow.compute as pc

    ids = ids.cast(judged.type)
    hit = pc.is_in(ids, value_set=judged)
    rows = np.full(len(judged), -1, np.int64)
    # `take` would join all chunks first, and no array of Arrow strings holds more than 2 GiB
    rows[pc.index_in(ids.filter(hit), value_set=judged).to_numpy()] = pc.indices_nonzero(hit).to_numpy()
    return rows


@dataclass
class PassageCounts:
    """What is counted of a corpus as it is read."""

    titles: int = 0  # of passages that have one
    left_out: int = 0  # passages outside the slice


def _read_corpus(
    source: Source, judged: pa.Array, config: DataSettings, counts: PassageCounts, progress: Progress
) -> Generator[tuple[pa.Array, pa.Array]]:
    """The ids and texts of the passages of a slice, with their titles; fills in `counts`.

    Every slice has the passages with the ids `judged`, Arrow strings.
    """
    import pyarrow.compute as pc

    batches, (total, unit) = _checked(source.passages, "passage"), source.size
    if isinstance(config.corpus, int):
        with progress("drawing passages", total, unit) as bar:
            keep = _sample(batches, set(judged.to_pylist()), config.corpus, bar)
        counts.left_out = int(np.count_nonzero(~keep))
        batches = _only(keep, source.passages())
    with progress("reading passages", total, unit) as bar:
        for batch in batches:
            if batch.titles is not None:
                counts.titles += int(np.count_nonzero(pc.binary_length(batch.titles)))
            yield batch.ids, batch.joined(config.title_separator)
            bar.update(batch.advance)


def _only(keep: BoolArray, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The records that `keep`, bool [records], marks."""
    start = 0
    for batch in batches:
        rows = np.flatnonzero(keep[start : start + len(batch)])
        start += len(batch)
        yield batch.take(rows)


def draw(passage_id: str, seed: int = 0) -> int:
    """The seeded hash of an id: the first 8 bytes of its BLAKE2b, keyed with `SEED` and any other seed."""
    key = SEED + (str(seed).encode() if seed else b"")
    return int.from_bytes(hashlib.blake2b(passage_id.encode(), digest_size=8, key=key).digest(), "big")


def _sample(batches: Iterator[Batch], chosen: Container[str], size: int, bar: Bar) -> BoolArray:
    """Which passages a slice keeps, bool [passages]: those in `chosen`, and others by `draw` up to `size`."""
    drawn, stays = [], []
    for batch in batches:
        ids = batch.ids.to_pylist()
        drawn.append(np.fromiter((draw(name) for name in ids), np.uint64, len(ids)))
        stays.append(np.fromiter((name in chosen for name in ids), np.bool_, len(ids)))
        bar.update(batch.advance)
    keep = np.concatenate(stays)
    rest = np.flatnonzero(~keep)
    order = np.argsort(np.concatenate(drawn)[rest], kind="stable")
    keep[rest[order[: max(size - int(keep.sum()), 0)]]] = True
    return keep


def _checked(read: Callable[[], Iterator[Batch]], what: str) -> Iterator[Batch]:
    """The batches of `read`, each with its ids checked; after the last, duplicates are refused.

    Only a 64-bit hash of each id is kept. If two are equal, `read` is called again to name the ids.

    Raises:
        InputError: An id is unfit (`refuse_unfit_ids`) or a duplicate, or there is no record at all.
    """
    hashes, origin = [], ""
    for batch in read():
        refuse_unfit_ids(batch.ids, what, batch.place)
        ids = batch.ids.to_pylist()
        hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
        origin = batch.origin
        yield batch
    if not any(map(len, hashes)):
        raise InputError(f"{origin or 'the source'}: has no {what}", fix="check data.path and data.split")
    ordered = np.sort(np.concatenate(hashes))
    if (again := ordered[1:][ordered[1:] == ordered[:-1]]).size:
        _refuse_duplicates(read(), set(again.tolist()), what)


def _refuse_duplicates(batches: Iterator[Batch], suspects: set[int], what: str) -> None:
    """Refuse an id that occurs twice. `suspects` are the hashes that do; different ids can share one."""
    first: dict[str, str] = {}
    for batch in batches:
        for row, name in enumerate(batch.ids.to_pylist()):
            if name in first:
                raise InputError(
                    f"{batch.place(row)}: {what} id '{name}' is a duplicate; first at {first[name]}",
                    allowed="each id once",
                    fix="remove or rename one of them",
                )
            if hash(name) in suspects:
                first[name] = batch.place(row)


def _nothing_left(
    judgments: Judgments, what: str, judged: pa.Array, ids: pa.Array | pa.ChunkedArray
) -> InputError:
    of_judgment, own = ids_apart(judged[0].as_py(), ids[0].as_py())
    return InputError(
        f"no judged {what} left: the collection has no {what} of the {len(judgments.grades)} judgments, "
        f"such as {of_judgment} at {judgments.place(0)}, but such as {own}",
        allowed=f"judgments whose {what} ids are those of the collection",
        fix="check that the files belong together, and data.split",
    )

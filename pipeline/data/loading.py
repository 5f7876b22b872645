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

from pipeline.config import DataSettings, keyed_settings
from pipeline.core.display import Bar, Progress, counted, silent
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Int64, JsonObject, from_numpy
from pipeline.data.collection_files import CORPUS, QUERIES, open_texts, write_judgments, write_texts
from pipeline.data.sources import Source, add_excluded, open_source
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
    source = source or open_source(config)
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

    `content` has hashes of the texts, the same in any order and from any source. In `missing`, `relevant`
    counts judgments of a grade above 0, and `queries` the judged queries without a text.
    """
    judgments = add_excluded(source, source.judgments(), config)
    queries = _select_queries(source, judgments, config)
    of_kept_query = queries.rows[judgments.queries] >= 0
    kept_ids = judgments.passage_ids.take(from_numpy(np.unique(judgments.passages[of_kept_query])))
    passage_counts = PassageCounts()
    reading = closing(_read_corpus(source, kept_ids, config, passage_counts, progress))
    with draft.file(CORPUS) as path, reading as texts:
        content = write_texts(path, texts)
        corpus = open_texts(path)
        passage_rows = _rows_of(judgments.passage_ids, corpus.ids)
        rows = passage_rows[judgments.passages]
        lacking = of_kept_query & (rows < 0)
        if lacking.any() and (lacking == of_kept_query).all():
            raise _nothing_left(judgments, "passage", judgments.passage_ids, corpus.ids)
        relevant, judged = rows[of_kept_query & (judgments.grades > 0)], rows[of_kept_query]
        counts = _count_texts(corpus.texts, queries.table.column("text"), relevant, judged)
    kept = of_kept_query & ~lacking if config.missing_passages == "drop" else of_kept_query
    with draft.file(QUERIES) as path:
        asked = write_texts(path, (batch.columns for batch in queries.table.to_batches()))
    qrels = write_judgments(draft, judgments, kept, queries.rows, passage_rows, len(corpus))
    notes = list(filter(None, [getattr(source, "note", "")]))
    if left_out := passage_counts.left_out:
        size = f"{len(corpus):,} of {len(corpus) + left_out:,}"
        notes.append(f"slice: {size} passages, judged or drawn at random: scores are too high")
    if faint := int(((qrels.grades > 0) & (qrels.grades < 1)).sum()):
        have = counted(faint, "judgment has", "judgments have")
        notes.append(f"{have} a grade between 0 and 1: not relevant but for measures with a lower rel=N")
    return {
        "passages": len(corpus),
        "queries": len(queries.table),
        "judgments": len(qrels.grades),
        "titles": passage_counts.titles,
        **({"note": "; ".join(notes)} if notes else {}),
        **counts,
        "content": {"passages": content, "queries": asked},
        "missing": {
            "handling": config.missing_passages,
            "passages": len(np.unique(judgments.passages[lacking])),
            "judgments": int(lacking.sum()),
            "relevant": int((judgments.grades[lacking] > 0).sum()),
            "queries": int((~queries.seen).sum()),
        },
        "dropped": {
            "queries_without_judgments": queries.dropped,
            "queries_without_judged_passages": len(np.unique(judgments.queries[of_kept_query]))
            - len(np.unique(qrels.queries)),
            "judgments_of_unknown_queries": int((~queries.seen[judgments.queries]).sum()),
            "judgments_of_unknown_passages": int((of_kept_query & ~kept).sum()),
            "repeated_judgments": judgments.repeated,
        },
        "outside_slice": {
            "queries": int((queries.seen & (queries.rows < 0)).sum()),
            "judgments": judgments.outside + int((queries.seen[judgments.queries] & ~of_kept_query).sum()),
            "passages": left_out,
        },
    }


@dataclass(frozen=True)
class SelectedQueries:
    """The queries of a slice, and their relation to the source and the judgments."""

    table: pa.Table  # of `id` and `text`, [q]
    rows: Int64  # [judged queries], the row of each in the table; -1 if it is not there
    seen: BoolArray  # [judged queries], whether each is in the source
    dropped: int  # queries of the source that are left out because they have no judgment


def _select_queries(source: Source, judgments: Judgments, config: DataSettings) -> SelectedQueries:
    """Read the queries and keep the first ones in their own order, as many as `config` says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables(
        pa.table({"id": batch.ids, "text": batch.texts}) for batch in _checked(source.queries, "query")
    )
    seen = pc.is_in(judgments.query_ids, value_set=table.column("id")).to_numpy(zero_copy_only=False)
    if len(seen) and not seen.any():
        raise _nothing_left(judgments, "query", judgments.query_ids, table.column("id"))
    judged = pc.is_in(table.column("id"), value_set=judgments.query_ids)
    wanted = table if config.unjudged_queries == "keep" else table.filter(judged)
    chosen = wanted.slice(0, config.queries)
    if config.lowercase_queries:
        chosen = chosen.set_column(1, "text", pc.utf8_lower(chosen.column("text")))
    rows = _rows_of(judgments.query_ids, chosen.column("id"))
    return SelectedQueries(chosen, rows, seen, len(table) - len(wanted))


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

    batches, (total, unit) = _checked(source.passages, "passage"), source.size()
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


def _count_texts(
    texts: pa.ChunkedArray, queries: pa.ChunkedArray, relevant: Int64, judged: Int64
) -> dict[str, int]:
    """Count empty texts (see `BLANK`), unjudged copies of relevant passages, and queries that are passages.

    `relevant` and `judged` are int64, the rows of passages that are so for any query, some of them -1.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_relevant = np.isin(np.arange(len(texts)), relevant)
    copies = pc.is_in(texts, value_set=texts.filter(pa.array(is_relevant)).unique()).to_numpy()
    copies[judged[judged >= 0]] = False
    copies[pc.equal(pc.binary_length(texts), 0).to_numpy()] = False
    inside = pc.is_in(queries, value_set=texts.filter(pc.is_in(texts, value_set=queries.unique())).unique())
    flags = {
        "empty_texts": pc.match_substring_regex(texts, BLANK),
        "unjudged_copies": pa.array(copies),
        "queries_as_passages": inside,
        "empty_queries": pc.match_substring_regex(queries, BLANK),
    }
    return {name: int(pc.sum(flag).as_py() or 0) for name, flag in flags.items()}


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

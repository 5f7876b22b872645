"""The identity of a collection, unparsed, and the conversion of its source into an artifact's files.

The rules, for every source:

* Queries are those with at least one judgment, of whatever grade, in their own order; then the first N.
  With `data.unjudged_queries: keep` they are all.
* A slice of the corpus keeps all that are judged for these queries; see `pipeline.data.selection`.
* Judgments of queries that the collection does not have are dropped and counted: without a text, a query
  cannot be run.
* Judgments of passages that it does not have are counted, and kept by default, as trec_eval does: nothing can
  retrieve such a passage, and a relevant one lowers recall. `data.missing_passages` drops or refuses them. If
  all are of such passages, the collection is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config import DataSettings, keyed_settings
from pipeline.core.display import Progress, counted, silent
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Int64, JsonObject, Qrels, from_numpy
from pipeline.data.collection_files import (
    CORPUS,
    GRADES,
    MISSING,
    QRELS,
    QUERIES,
    blank,
    open_texts,
    write_texts,
)
from pipeline.data.query_fields import add_excluded
from pipeline.data.selection import SelectedQueries, WrittenCorpus, select_queries, write_corpus
from pipeline.data.sources import Source, open_source
from pipeline.formats.judgments import Judgments
from pipeline.formats.texts import ids_apart
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 4  # of reading, joining, slicing and storing; raise it when any of them gives other content
JUDGED_SCHEMA = 5  # of choosing queries and storing judgments; raise it when passages stay the same


@dataclass(frozen=True)
class Identity:
    """For each part of a collection, JSON without paths that changes whenever the part's content can.

    That of the queries includes the judgments where only judged queries are kept. That of the judgments
    includes everything, as they are stored by row number.
    """

    passages: JsonObject
    queries: JsonObject
    qrels: JsonObject

    @property
    def on_hub(self) -> bool:
        """Whether the corpus is in a repository on the hub."""
        corpus = self.passages["corpus"]
        return isinstance(corpus, dict) and "dataset" in corpus


def identify(config: DataSettings) -> Identity:
    """The identity of a collection, from its files' bytes or its commit on the hub."""
    source = open_source(config)
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
    of_slice: JsonObject = {"judged": judged} if config.passages_kept else {}  # it keeps what is judged
    return Identity(
        passages=corpus | of_slice | {"settings": keyed_settings(config, "passages")},
        queries=asked,
        qrels=corpus | judged | {"settings": keyed_settings(config, "data")},
    )


def load(config: DataSettings, draft: Draft, progress: Progress = silent) -> JsonObject:
    """Make a collection's files from its source; returns facts, as JSON.

    `titles` counts the passages with one; `content` has hashes that are the same for the same texts in any
    order, from any source. In `missing`, `relevant` counts judgments of grade 1 or higher, and `queries` the
    judged queries without a text.
    """
    source = open_source(config)
    judgments = add_excluded(source, source.judgments(), config)
    queries = select_queries(source, judgments, config)
    of_kept_query = queries.kept[judgments.queries]
    if len(queries.seen) and not queries.seen.any():
        raise _nothing_left(judgments, "query", judgments.query_ids, next(source.queries()).ids)
    with draft.file(CORPUS) as path:
        corpus = write_corpus(source, judgments, of_kept_query, config, path, progress)
        relevant = corpus.rows[judgments.passages[of_kept_query & (judgments.grades > 0)]]
        judged = corpus.rows[judgments.passages[of_kept_query]]
        repeated = _count_repeated(open_texts(path).texts, queries.table.column("text"), relevant, judged)
        lacking = of_kept_query & (corpus.rows[judgments.passages] < 0)
        if of_kept_query.any() and not (of_kept_query & ~lacking).any():
            raise _nothing_left(judgments, "passage", judgments.passage_ids, open_texts(path).ids)
    kept = of_kept_query & ~lacking if config.missing_passages == "drop" else of_kept_query
    with draft.file(QUERIES) as path:
        asked = write_texts(path, (batch.columns for batch in queries.table.to_batches()))
    qrels = _write_judgments(draft, queries, judgments, corpus, kept, lacking)
    return {
        "passages": corpus.kept,
        "queries": len(queries.table),
        "judgments": len(qrels.grades),
        "titles": corpus.titles,
        "empty_texts": corpus.empty,
        **({"note": note} if (note := _note(source, corpus, qrels)) else {}),
        **repeated,
        "empty_queries": blank(queries.table.column("text")),
        "content": {"passages": corpus.content, "queries": asked},
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
            "queries": int((queries.seen & ~queries.kept).sum()),
            "judgments": judgments.outside + int((queries.seen[judgments.queries] & ~of_kept_query).sum()),
            "passages": corpus.read - corpus.kept,
        },
    }


def _note(source: Source, corpus: WrittenCorpus, qrels: Qrels) -> str:
    """What to know of a collection, as a sentence without its full stop; "" of most."""
    notes = [getattr(source, "note", "")]
    if corpus.kept < corpus.read:
        size = f"{corpus.kept:,} of {corpus.read:,} passages"
        notes.append(f"slice: {size}, judged or drawn at random: scores are too high")
    if faint := int(((qrels.grades > 0) & (qrels.grades < 1)).sum()):
        judgments = counted(faint, "judgment has", "judgments have")
        notes.append(f"{judgments} a grade between 0 and 1: not relevant but for measures with a lower rel=N")
    return "; ".join(filter(None, notes))


def _count_repeated(
    texts: pa.ChunkedArray, queries: pa.ChunkedArray, relevant: Int64, judged: Int64
) -> dict[str, int]:
    """Texts that stand elsewhere, letter by letter.

    Args:
        texts: Arrow strings [passages].
        queries: Arrow strings [queries].
        relevant: int64, rows of passages that are relevant for any query; some are -1.
        judged: int64, rows of passages that are judged for any query; some are -1.

    Returns:
        `unjudged_copies`, passages that nobody judged, with the text of a relevant one; and
        `queries_as_passages`, queries whose text is a passage.
    """
    import pyarrow.compute as pc

    texts_of = texts.take(from_numpy(np.unique(relevant[relevant >= 0]))).unique()
    copies = pc.is_in(texts, value_set=texts_of).to_numpy()
    copies[judged[judged >= 0]] = False
    copies[pc.equal(pc.binary_length(texts), 0).to_numpy()] = False
    inside = pc.is_in(queries, value_set=texts.filter(pc.is_in(texts, value_set=queries.unique())).unique())
    return {"unjudged_copies": int(copies.sum()), "queries_as_passages": int(pc.sum(inside).as_py() or 0)}


def _write_judgments(
    draft: Draft,
    selected: SelectedQueries,
    judgments: Judgments,
    corpus: WrittenCorpus,
    kept: BoolArray,
    lacking: BoolArray,
) -> Qrels:
    """Write the judgments that `kept`, bool [j], chooses, by row number, sorted.

    The passages of those that are `lacking`, bool [j], are written before, sorted: they get the rows after
    those of the corpus.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = np.unique(judgments.passages[kept & lacking])
    ids = judgments.passage_ids.take(from_numpy(missing))
    order = pc.sort_indices(ids)
    corpus.rows[missing[order.to_numpy()]] = corpus.kept + np.arange(len(missing))
    with draft.file(MISSING) as path:
        write_texts(path, [(ids.take(order).cast("string"), pa.repeat("", len(missing)))])
    row_of = np.full(len(judgments.query_ids), -1, np.int64)
    judged = np.flatnonzero(selected.numbers >= 0)
    row_of[selected.numbers[judged]] = judged
    queries, passages = row_of[judgments.queries[kept]], corpus.rows[judgments.passages[kept]]
    order = np.lexsort((passages, queries))
    qrels = Qrels(queries[order], passages[order], judgments.grades[kept][order])
    draft.save_array(QRELS, np.stack([qrels.queries, qrels.passages]).astype("<i8"))
    draft.save_array(GRADES, qrels.grades.astype("<f8" if qrels.grades.dtype.kind == "f" else "<i8"))
    return qrels


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

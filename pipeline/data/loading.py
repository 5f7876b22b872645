"""Conversion of a source into the files of a collection: parsed, checked and sliced, a batch at a time.

The rules, for every source:

* Queries are those with at least one judgment, of whatever grade, in their own order; then the first N.
* A slice of N passages keeps all that are judged for these queries; see `pipeline.data.slices`.
* Judgments of queries or passages that the collection does not have are dropped and counted, and so is a
  query that has no judgment left. When nothing is left, the collection is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.config import DataSettings
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Qrels
from pipeline.data.collection_files import CORPUS, QRELS, QUERIES, TextsWriter, blank, write_qrels
from pipeline.data.corpus import WrittenCorpus, write_corpus
from pipeline.data.queries import SelectedQueries, select_queries
from pipeline.data.sources.protocol import Source
from pipeline.formats.judgments import Judgments
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def load(config: DataSettings, draft: Draft, progress: Progress = silent) -> dict[str, Any]:
    """Make a collection's files from its source.

    Args:
        config: The source and the slice.
        draft: The artifact that gets the files.
        progress: Shows how much of the corpus is read.

    Returns:
        Facts, as plain JSON: counts of `passages`, `queries`, `judgments`, `titles` (passages with one),
        `empty_texts`, `empty_queries`; `dropped` and `outside_slice` (name -> count); `content` (SHA-256
        of `passages`, `queries` and `qrels`, the same for the same data from any source).
    """
    source: Source = config.open()
    judgments = source.judgments()
    queries = select_queries(source, judgments, config.queries)
    of_kept_query = queries.kept[judgments.queries]
    if not of_kept_query.any():
        raise _nothing_left(judgments, "query", judgments.query_ids[0].as_py())
    with draft.file(CORPUS) as path:
        corpus = write_corpus(source, judgments, of_kept_query, config.passages_kept, path, progress)
        found = of_kept_query & (corpus.rows[judgments.passages] >= 0)
        if not found.any():
            raise _nothing_left(judgments, "passage", judgments.passage_ids[0].as_py())
    answerable, qrels = _resolve(queries, judgments, corpus, found)
    table = queries.table.filter(answerable)
    return {
        "passages": corpus.kept,
        "queries": len(table),
        "judgments": len(qrels.grades),
        "titles": corpus.titles,
        "empty_texts": corpus.empty,
        "empty_queries": blank(table.column("text")),
        "content": {"passages": corpus.content, **_write(draft, table, qrels)},
        "dropped": {
            "queries_without_judgments": queries.unjudged,
            "queries_without_judged_passages": int((~answerable).sum()),
            "judgments_of_unknown_queries": int((~queries.seen[judgments.queries]).sum()),
            "judgments_of_unknown_passages": int((of_kept_query & ~found).sum()),
            "repeated_judgments": judgments.repeated,
        },
        "outside_slice": {
            "queries": int((queries.seen & ~queries.kept).sum()),
            "judgments": int((queries.seen[judgments.queries] & ~of_kept_query).sum()),
            "passages": corpus.read - corpus.kept,
        },
    }


def _resolve(
    selected: SelectedQueries, judgments: Judgments, corpus: WrittenCorpus, found: Mask
) -> tuple[Mask, Qrels]:
    """Judgments by row number, without queries that have none left.

    `found`, bool [j], says which judgments have their query and passage in the collection. Returned are
    whether each query has a judgment left, bool [q], and these judgments, sorted.
    """
    has_judgment = np.zeros(len(judgments.query_ids), dtype=np.bool_)
    has_judgment[judgments.queries[found]] = True
    answerable = has_judgment[selected.numbers]
    row_of = np.full(len(judgments.query_ids), -1, np.int64)
    row_of[selected.numbers[answerable]] = np.arange(answerable.sum())
    queries, passages = row_of[judgments.queries[found]], corpus.rows[judgments.passages[found]]
    order = np.lexsort((passages, queries))
    return answerable, Qrels(queries[order], passages[order], judgments.grades[found][order])


def _write(draft: Draft, queries: pa.Table, qrels: Qrels) -> dict[str, str]:
    """Write queries and judgments, and return the content hash of each."""
    with draft.file(QUERIES) as path, TextsWriter(path) as writer:
        for batch in queries.to_batches():
            writer.write(batch.column("id"), batch.column("text"))
    with draft.file(QRELS) as path:
        qrels_hash = write_qrels(path, qrels)
    return {"queries": writer.content(), "qrels": qrels_hash}


def _nothing_left(judgments: Judgments, what: str, first: str) -> InputError:
    return InputError(
        f"no judged {what} left: the collection has no {what} of the {len(judgments.grades)} judgments, "
        f"such as '{first}' at {judgments.place(0)}",
        allowed=f"judgments whose {what} ids are those of the collection",
        fix="check that the files belong together, and data.split",
    )

"""How does a source become a collection? Parsed, checked, sliced and written, one batch at a time.

The rules, for every source:

* Queries are those with at least one judgment, of whatever grade, in their own order; then the first N.
* A slice of N passages keeps all that are judged for these queries; see `pipeline.data.slices`.
* Judgments of queries or passages that are not there are dropped and counted, and so is a query that has
  none left. When nothing is left, the collection is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.config import DataSettings
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Qrels
from pipeline.data.corpus import Corpus, write_corpus
from pipeline.data.judged import Judged, merge
from pipeline.data.queries import Questions, select_queries
from pipeline.data.storage import CORPUS, QRELS, QUERIES, TextsWriter, blank, write_qrels
from pipeline.formats.source import Judgments, Source
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def load(config: DataSettings, draft: Draft, progress: Progress = silent) -> dict[str, Any]:
    """Make a collection's files from its source.

    Args:
        config: The source and the slice.
        draft: Where the files go.
        progress: Shows how much of the corpus is read.

    Returns:
        Facts, as plain JSON: counts of `passages`, `queries`, `judgments`, `titles` (passages with one),
        `empty_texts`, `empty_queries`; `dropped` and `outside_slice` (what -> how many); `content` (SHA-256
        of `passages`, `queries` and `qrels`, the same for the same data from any source).

    Raises:
        InputError: The source is not what its layout asks for; file and line are named where there is one.
    """
    source: Source = config.open()
    judgments = source.judgments()
    judged = merge(judgments)
    questions = select_queries(source, judged, config.queries)
    asked = questions.kept[judged.queries]
    if not asked.any():
        raise _nothing_left(judgments, "query", judgments.queries)
    with draft.file(CORPUS) as path:
        corpus = write_corpus(source, judged, asked, config.passages_kept, path, progress)
        found = asked & (corpus.rows[judged.passages] >= 0)
        if not found.any():
            raise _nothing_left(judgments, "passage", judgments.passages)
    answerable, qrels = _resolve(questions, judged, corpus, found)
    table = questions.table.filter(answerable)
    return {
        "passages": corpus.kept,
        "queries": len(table),
        "judgments": len(qrels.grades),
        "titles": corpus.titles,
        "empty_texts": corpus.empty,
        "empty_queries": blank(table.column("text")),
        "content": {"passages": corpus.content, **_write(draft, table, qrels)},
        "dropped": {
            "queries_without_judgments": questions.unjudged,
            "queries_without_judged_passages": int((~answerable).sum()),
            "judgments_of_unknown_queries": int((~questions.seen[judged.queries]).sum()),
            "judgments_of_unknown_passages": int((asked & ~found).sum()),
            "repeated_judgments": judged.repeated,
        },
        "outside_slice": {
            "queries": int((questions.seen & ~questions.kept).sum()),
            "judgments": int((questions.seen[judged.queries] & ~asked).sum()),
            "passages": corpus.read - corpus.kept,
        },
    }


def _resolve(questions: Questions, judged: Judged, corpus: Corpus, found: Mask) -> tuple[Mask, Qrels]:
    """Judgments by row number, without queries that have none left.

    Args:
        questions: The queries of the slice.
        judged: The judgments by number.
        corpus: The written corpus.
        found: bool [j], whether a judgment's query and passage are both there.

    Returns:
        bool [q], whether each query has a judgment left, and these judgments, sorted.
    """
    has_judgment = np.zeros(len(judged.query_numbers), dtype=np.bool_)
    has_judgment[judged.queries[found]] = True
    answerable = has_judgment[questions.numbers]
    row_of = np.full(len(judged.query_numbers), -1, np.int64)
    row_of[questions.numbers[answerable]] = np.arange(answerable.sum())
    queries, passages = row_of[judged.queries[found]], corpus.rows[judged.passages[found]]
    order = np.lexsort((passages, queries))
    return answerable, Qrels(queries[order], passages[order], judged.grades[found][order])


def _write(draft: Draft, queries: pa.Table, qrels: Qrels) -> dict[str, str]:
    """Write queries and judgments; the content hash of each."""
    with draft.file(QUERIES) as path, TextsWriter(path) as writer:
        for batch in queries.to_batches():
            writer.write(batch.column("id"), batch.column("text"))
    with draft.file(QRELS) as path:
        qrels_hash = write_qrels(path, qrels)
    return {"queries": writer.content(), "qrels": qrels_hash}


def _nothing_left(judgments: Judgments, what: str, ids: pa.Array) -> InputError:
    return InputError(
        f"no judged {what} left: none of the {len(ids)} judgments is of a {what} that is there, "
        f"such as '{ids[0].as_py()}' at {judgments.place(0)}",
        allowed=f"judgments whose {what} ids are those of the collection",
        fix="check that the files belong together, and data.split",
    )

"""BEIR's layout on the hub, as in `BeIR/*` and `mteb/*`: the tables `corpus` and `queries`, and judgments.

The judgments are a table `qrels` or `default` of the same repository, or another repository or folder with
the same name and `-qrels` at its end. Judgments without a column `score` list relevant passages.

A repository may hold several collections: as subsets, each with tables of its own such as `sw-corpus`,
`sw-queries` and `sw-qrels` (MTEB), or as splits of the three tables (NanoBEIR).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.judgments import Judgments
from pipeline.formats.qrels import read_qrels
from pipeline.formats.records import Batch


@dataclass(frozen=True)
class BeirHub:
    """A collection in BEIR's hub layout.

    Attributes:
        texts: The repository of corpus and queries.
        qrels: The repository of the judgments.
        table: The table of the judgments in it; None is its default one.
        split: The split of the judgments.
        subset: The prefix of the tables' names; None if they have none.
    """

    texts: Repo
    qrels: Repo
    table: str | None
    split: str
    subset: str | None = None

    @staticmethod
    def open(path: str, revision: str | None, split: str, subset: str | None = None) -> BeirHub:
        """Find the repositories of texts and of judgments."""
        texts = Repo.open(path, revision)
        if subset is not None:
            return BeirHub(texts, texts, f"{subset}-qrels", split, subset)
        for table in ("qrels", "default"):
            if texts.has(table):
                return BeirHub(texts, texts, table, split)
        beside = path.rstrip("/") + "-qrels"
        if texts.commit is None and not Path(beside).is_dir():
            raise InputError(
                f"data.path {path}: no judgments, neither in a table 'qrels' or 'default' nor in {beside}",
                allowed="BEIR's layout, of files or as on the hub (README.md: data)",
                fix="add the judgments",
            )
        return BeirHub(texts, Repo.open(beside, None), None, split)

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commits, or the bytes of local files."""
        return {
            "corpus": self.texts.identity(*self._place("corpus")),
            "queries": self.texts.identity(*self._place("queries")),
            "qrels": self.qrels.identity(self.table, self.split),
        }

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        return sum(path.stat().st_size for path in self.texts.files(*self._place("corpus"))), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus: columns `_id` (or `id`), `text` and perhaps `title`."""
        return read_texts(self.texts.files(*self._place("corpus")))

    def queries(self) -> Iterator[Batch]:
        """The queries: columns `_id` (or `id`) and `text`."""
        return read_texts(self.texts.files(*self._place("queries")))

    def judgments(self) -> Judgments:
        """The judgments: columns `query-id`, `corpus-id` and `score`, as a table or as TSV."""
        files = self.qrels.files(self.table, self.split)
        if len(files) == 1 and files[0].name.endswith((".tsv", ".tsv.gz")):
            return read_qrels(files[0])
        return tables.read_judgments(files, "query-id", "corpus-id", "score", grade_is_optional=True)

    def _place(self, part: str) -> tuple[str, str | None]:
        """The table of a part's texts and its split: the one named as the part, or as that of the judgments.

        The split is None if there is neither, which takes the table's only split.
        """
        table = f"{self.subset}-{part}" if self.subset else part
        splits = self.texts.splits(table)
        return table, next((name for name in (part, self.split) if name in splits), None)


def read_texts(files: list[Path]) -> Iterator[Batch]:
    """The rows of tables with a column `_id` or `id`, `text` and perhaps `title`."""
    for rows in tables.read_rows(files, ["text"], ["_id", "id", "title"]):
        name = "_id" if "_id" in rows.columns or "id" not in rows.columns else "id"
        titles = rows.strings("title", nulls=True) if "title" in rows.columns else None
        yield rows.batch(rows.strings(name, integers=True), rows.strings("text"), titles)

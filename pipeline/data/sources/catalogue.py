"""Collections of the ir_datasets catalogue, by their id, such as `msmarco-passage/dev/small`.

ir_datasets downloads missing files and checks each against the checksum in its catalogue; so an id and the
package's version determine the content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

import numpy as np

from pipeline.config.data import CatalogueSettings
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.texts import BATCH_ROWS, Batch


def open_catalogue(settings: CatalogueSettings) -> CatalogueDataset:
    """Take the id; it is looked up when something is read."""
    try:
        return CatalogueDataset(settings.path, version("ir_datasets"))
    except PackageNotFoundError:
        raise InputError(
            "data.source ir_datasets: the package is not installed", fix="install it: pip install ir_datasets"
        ) from None


def is_listed(name: str) -> bool:
    """Whether the catalogue has an id; False where the package is not installed."""
    try:
        import ir_datasets

        ir_datasets.load(name)
    except (ImportError, KeyError):
        return False
    return True


@dataclass(frozen=True)
class CatalogueDataset:
    """A dataset of the catalogue: its id, and the version of the package."""

    name: str
    release: str

    def identity(self) -> dict[str, JsonObject]:
        """The id and the package's version."""
        plain: JsonObject = {"layout": "ir_datasets", "id": self.name, "release": self.release}
        return {"corpus": plain, "queries": plain, "qrels": plain}

    @property
    def size(self) -> tuple[int | None, str]:
        """The number of passages, if the catalogue has it."""
        return self._part("docs").docs_count(), "passages"

    def passages(self) -> Iterator[Batch]:
        """The corpus, with titles if its documents have fields `title` and `text`."""
        documents = self._guarded(self._part("docs").docs_iter())
        return self._batches(
            (doc.doc_id, getattr(doc, "title", "") or "", doc.text)
            if hasattr(doc, "text")
            else (doc.doc_id, "", doc.default_text())
            for doc in documents
        )

    def queries(self) -> Iterator[Batch]:
        """The queries, with the text that the catalogue uses by default."""
        queries = self._part("queries").queries_iter()
        return self._batches((query.query_id, "", query.default_text()) for query in self._guarded(queries))

    def judgments(self) -> Judgments:
        """The judgments."""
        import pyarrow as pa

        qrels = list(self._guarded(self._part("qrels").qrels_iter()))
        queries = pa.array([str(qrel.query_id) for qrel in qrels], pa.string())
        passages = pa.array([str(qrel.doc_id) for qrel in qrels], pa.string())
        grades = np.array([qrel.relevance for qrel in qrels], np.float64)
        origin = f"ir_datasets {self.name}"
        numbers = np.arange(len(qrels))
        return make_judgments(queries, passages, grades, origin, "judgment", numbers)

    def _part(self, part: str) -> Any:
        """The dataset, which is refused if it does not have a part."""
        import ir_datasets

        try:
            dataset = ir_datasets.load(self.name)
        except KeyError:
            raise InputError(
                f"data.path '{self.name}': ir_datasets {self.release} has no such id",
                allowed="an id of https://ir-datasets.com, such as msmarco-passage/dev/small",
                fix="check the spelling",
            ) from None
        if not dataset.has(part):
            raise InputError(
                f"data.path '{self.name}': this id has no {part}",
                allowed="an id with docs, queries and qrels, such as msmarco-passage/dev/small",
                fix="use a more specific id",
            )
        return dataset

    def _guarded(self, records: Iterable[Any]) -> Iterator[Any]:
        """The same records; an error while they are read becomes an InputError."""
        try:
            yield from records
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"data.path '{self.name}': ir_datasets cannot read it ({reason})",
                fix="connect to the network once so that it can fetch the files",
            ) from error

    def _batches(self, records: Iterator[tuple[str, str, str]]) -> Iterator[Batch]:
        import pyarrow as pa

        start = 0
        while part := list(islice(records, BATCH_ROWS)):
            for row, record in enumerate(part, start):
                if not all(isinstance(value, str) for value in record):
                    found = f"ir_datasets {self.name}, record {row}: no text"
                    raise InputError(found, fix="report it to the maintainers of ir_datasets")
            ids, titles, texts = (pa.array(column, pa.string()) for column in zip(*part, strict=True))
            numbers = range(start, start + len(part))
            yield Batch(ids, texts, titles, f"ir_datasets {self.name}", "record", numbers, len(part))
            start += len(part)

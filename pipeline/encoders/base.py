"""Sources of embeddings and of pair scores: a local model, a server, or files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline.config import RowSettings, ScorerSettings, keyed_settings
from pipeline.core.records import Collection, JsonObject, Role, VectorForm
from pipeline.encoders.batching import RowArrays
from pipeline.models.model import ResolvedModel
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1  # schema of what is computed for a pair


class ModelSource:
    """Source of embeddings or pair scores: a local model, a server, or files."""

    served: ClassVar[bool] = False  # whether a server computes them; `connect` gives the connection

    @property
    def device(self) -> str:
        """The device of this machine that is used: `cpu` or `cuda:N`."""
        return "cpu"

    def check(self) -> None:
        """Refuse settings that a server cannot be asked with; asks it nothing."""
        raise NotImplementedError

    def confirm(self, store: Store, fresh: bool) -> None:
        """Check that a served model still returns what is cached; cache keys cannot detect that."""
        raise NotImplementedError

    def open(self, store: Store) -> Any:
        """The loaded local model, an `Encoder` or a `Scorer`; `store` holds what is converted for it."""
        raise NotImplementedError

    def connect(self) -> Any:
        """The connection to a server, with the methods of `open`'s result and `close`.

        Several threads may use it at once.
        """
        raise NotImplementedError


class EmbeddingSource(ModelSource, ABC):
    """Source of a row for each text: a vector, word weights or token vectors."""

    model: ResolvedModel | None = None  # the local model; None where a server or files give the rows
    stored: ClassVar[bool] = False  # whether files hold the rows, which `take` reads
    unit_length: ClassVar[bool] = False  # whether rows that are to have length 1 must have it already

    @abstractmethod
    def ingredients(self, role: Role) -> JsonObject:
        """The parts of the key of rows that the source decides, by name."""

    def match(self, collection: Collection) -> None:
        """Refuse files that do not fit a collection."""
        raise NotImplementedError

    def form(self, settings: RowSettings) -> VectorForm:
        """What settings make of whole vectors, their number format apart."""
        dimensions = self.model.truncate_dim if self.model else settings.truncate_dim
        given_at_length_1 = self.unit_length and settings.normalize
        return VectorForm(dimensions, settings.normalize, given_at_length_1=given_at_length_1)

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> RowArrays:
        """The rows of consecutive texts; `ids` are the texts', Arrow strings [rows], for messages."""
        raise NotImplementedError


class ScoreSource(ModelSource, ABC):
    """Source of a score for each pair of a query and a passage."""

    settings: ScorerSettings

    @abstractmethod
    def ingredients(self) -> JsonObject:
        """The parts of the key of scores that the source decides, by name."""

    def recipe(self) -> JsonObject:
        """All that shapes the score of a pair, besides its texts, in artifact keys."""
        return {"schema": SCHEMA, **self.ingredients(), **keyed_settings(self.settings, "scores")}

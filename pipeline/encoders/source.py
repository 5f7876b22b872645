"""What gives a row for each text: a network that runs here, a server, or files on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.config import RowSettings
from pipeline.core.progress import Bar
from pipeline.core.records import Collection, VectorForm
from pipeline.encoders.usage import Usage
from pipeline.models.model import Model, Ready, Role
from pipeline.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


class Connection(Protocol):
    """A connection to a server that encodes texts; several threads may use it at once."""

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Any:
        """See `pipeline.encoders.Encoder.encode`."""

    def close(self) -> None:
        """Cancel what is under way."""


class RowSource(ABC):
    """What gives a row for each text.

    Attributes:
        model: The network that runs here; None where a server or files give the rows.
        served: Whether a server gives the rows: this process asks it, over `connect`.
        stored: Whether files hold the rows, which `take` reads.
        unit_length: Whether rows that are to have length 1 must have it already.
    """

    model: Model | None = None
    served: bool = False
    stored: bool = False
    unit_length: bool = False

    @abstractmethod
    def recipe(self, role: Role) -> dict[str, Any]:
        """What shapes the rows of a role, in artifact keys."""

    def ingredients(self, role: Role) -> dict[str, Any]:
        """The parts of the key of rows that the source decides, by name."""
        return {"model": self.recipe(role)}

    def check(self) -> None:
        """Refuse a source that cannot give rows on this machine, before anything is computed."""
        return

    def confirm(self, store: Store, fresh: bool) -> None:
        """Refuse stored rows that the source would not give again, which keys cannot say."""
        return

    def match(self, collection: Collection) -> None:
        """Refuse a source that does not fit a collection."""
        return

    def form(self, settings: RowSettings) -> VectorForm:
        """What settings make of whole vectors, their number format apart."""
        dimensions = self.model.truncate_dim if self.model else settings.truncate_dim
        given_at_length_1 = self.unit_length and settings.normalize
        return VectorForm(dimensions, settings.normalize, given_at_length_1=given_at_length_1)

    def shared_key(self) -> Any:
        """JSON of all that workers of an engine load; None if benchmarks cannot share them."""
        return None

    def ready(self, store: Store) -> Ready:
        """What workers of an engine load, where there is a `model`."""
        raise NotImplementedError

    def connect(self) -> Connection:
        """The connection to the server."""
        raise NotImplementedError

    def take(self, role: Role, rows: range, ids: pa.ChunkedArray) -> Any:
        """The rows of consecutive texts; `ids` are the texts', Arrow strings [rows], for messages."""
        raise NotImplementedError

"""The `http` backend: vectors of a model that a server runs, by the embeddings interface of OpenAI.

OpenAI, vLLM, TEI, Infinity, Ollama and llama.cpp speak it. What a server computes is not known by its files,
so keys hold the address, the model's name there, and a text, `revision`, which the user changes when the
model behind the address does. Before stored vectors are reused, a few texts are asked for again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.config import ModelSettings, VectorSettings, setting
from pipeline.config.server import OPENAI, ServerSettings, ServerUrl
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar, silent
from pipeline.core.records import Array, Float32
from pipeline.encoders.http.answers import tokens_of, vectors_of
from pipeline.encoders.http.batches import RequestSize
from pipeline.encoders.http.client import Client, TooLargeError, key_of
from pipeline.encoders.usage import ServerUse, Usage
from pipeline.models.model import Role

log = logging.getLogger(__name__)

SCHEMA = 1  # of what is asked for a text
TEXTS = 32  # of a request: what TEI allows unless it is told otherwise
ALONE = 256  # queries that are asked for alone, to measure how long one takes
ASKED_AGAIN = 8  # texts of a stage whose stored vectors are compared with what the server gives now
SAME = 0.999  # the lowest cosine of such vectors: bf16 keeps 0.9999, other weights or int8 do not


class HttpSettings(ServerSettings, VectorSettings):
    """A model that a server runs."""

    backend: Literal["http"] = ModelSettings.narrowed("backend", "http")
    name: str = setting(
        ..., "the model, as the server knows it", shapes="passages queries", keyed=False, min_length=1
    )
    revision: str | None = setting(
        None,
        "any text; change it when the model behind the address changes",
        shapes="passages queries",
        keyed=False,
    )
    url: ServerUrl = setting(
        OPENAI,
        "the server's address, up to and without /embeddings",
        shapes="passages queries",
        keyed=False,
        repr=False,
    )
    dimensions: int | None = setting(
        None,
        "dimensions that the server is asked for; null asks for none",
        shapes="passages queries",
        keyed=False,
        ge=1,
    )
    query_instruction: str | None = setting(
        None, "put before each query; null is none", shapes="queries", keyed=False
    )
    passage_instruction: str | None = setting(
        None, "put before each passage; null is none", shapes="passages", keyed=False
    )
    max_characters: int | None = setting(
        None, "characters kept of a text; null is all", shapes="passages queries", keyed=False, ge=1
    )
    batch_size: int | None = ModelSettings.narrowed(
        "batch_size", None, f"most texts of a request; null is {TEXTS}", ge=1
    )
    changed: Literal["stop", "warn", "ignore"] = setting(
        "stop", "if the server no longer gives the stored vectors; ignore does not ask", shapes=""
    )

    def open(self) -> Served:
        """See `ModelSettings.open`."""
        return Served(self)


@dataclass(frozen=True)
class Served:
    """A model behind an address; nothing of it is known but its settings."""

    config: HttpSettings

    def recipe(self, role: Role) -> dict[str, Any]:
        """The model's part of the key of its vectors."""
        config = self.config
        return {
            "served": SCHEMA,
            "url": config.url,
            "name": config.name,
            "revision": config.revision,
            "dimensions": config.dimensions,
            "instruction": self.instruction(role),
            "max_characters": config.max_characters,
        }

    def instruction(self, role: Role) -> str:
        """What is put before each text."""
        config = self.config
        return (config.passage_instruction if role == "passages" else config.query_instruction) or ""

    def check(self) -> None:
        """Refuse a missing package or key; asks the server nothing."""
        key_of(self.config, self.config.url, "model")

    def load(self) -> ServedEncoder:
        """The connection to the server."""
        return ServedEncoder(self)

    def confirm(self, role: Role, texts: list[str], stored: Float32) -> None:
        """Ask for some texts again, and compare the vectors with those that are stored.

        Args:
            role: The texts' role.
            texts: A few texts.
            stored: Their vectors, float32 [texts, dimension].

        Raises:
            InputError: They differ, and `model.changed` is `stop`; or the server cannot be asked.
        """
        if self.config.changed == "ignore" or not texts:
            return
        encoder = self.load()
        try:
            with silent("", None, "") as bar:
                now = encoder.encode(texts, role, Usage(), bar)
        except InputError as error:
            raise InputError(
                f"stored vectors of {role} could not be compared with the server's: {error.found}",
                fix=f"{error.fix}; or go on with what is stored by model.changed: ignore",
            ) from None
        finally:
            encoder.close()
        difference = _difference(now, stored)
        if difference is None:
            return
        found = (
            f"{self.config.url} no longer gives the stored vectors of the {role}: {difference} "
            f"when {len(texts)} texts were asked for again"
        )
        if self.config.changed == "warn":
            log.warning("%s; going on with both (model.changed: warn)", found)
            return
        raise InputError(
            found,
            allowed=f"a cosine of {SAME} at least",
            fix="change model.revision to encode all texts anew, or go on by model.changed: warn",
        )


def _difference(now: Float32, stored: Float32) -> str | None:
    """How two sets of vectors differ, in words; None if they are the same."""
    if now.shape != stored.shape:
        return f"they had {stored.shape[1]:,} dimensions, and have {now.shape[1]:,}"
    a, b = (each.astype(np.float64) for each in (now, stored))
    cosines = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    if cosines.min() >= SAME:
        return None
    return f"the cosine is {cosines.min():.4f} at the lowest and {cosines.mean():.4f} in the mean"


class ServedEncoder:
    """A connection to a server, which turns texts into vectors; see `pipeline.encoders.Encoder`."""

    def __init__(self, model: Served) -> None:
        self.model, self.config = model, model.config
        self.dimension = self.config.dimensions
        self._alone = ALONE
        self._size = RequestSize(self.config.batch_size or TEXTS, self.config.batch_tokens)
        self._client = Client(self.config, self.config.url, self.config.name)

    def close(self) -> None:
        """Cancel what is under way."""
        self._client.close()

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        """See `pipeline.encoders.Encoder.encode`; several threads may call it at once.

        Raises:
            InputError: The server cannot be reached, refuses, or answers with anything else than a vector of
                finite numbers for each text.
        """
        before = self.model.instruction(role)
        sent = [before + text[: self.config.max_characters] or " " for text in texts]  # OpenAI refuses ""
        asking = _Asking(self, sent, usage, bar)
        alone = self._choose_alone(len(sent)) if role == "queries" else []
        return self._client.run(asking.all(alone))

    def encode_several(
        self, others: Sequence[Any], texts: list[str], role: Role, usage: Usage, bar: Bar
    ) -> list[Float32]:
        """See `pipeline.encoders.Encoder.encode_several`; a server gives no other outputs."""
        return [self.encode(texts, role, usage, bar)]

    def _choose_alone(self, texts: int) -> list[int]:
        """The rows of texts that are asked for alone, spread over all."""
        count = min(self._alone, texts)
        self._alone -= count
        return [number * texts // count for number in range(count)]


class _Asking:
    """The requests for some texts, of which many are under way at once."""

    def __init__(self, encoder: ServedEncoder, texts: Sequence[str], usage: Usage, bar: Bar) -> None:
        self.encoder, self.texts, self.bar = encoder, texts, bar
        config = encoder.config
        self.usage = usage
        self.use = usage.server = ServerUse(
            price_per_million=config.price_per_million_tokens, concurrency=config.concurrency
        )
        self.sizes = [len(text.encode()) for text in texts]
        self.vectors: Array | None = None

    async def all(self, alone: Sequence[int]) -> Float32:
        """The vectors of all texts, float32 [texts, dimension]; those of `alone` in requests of their own."""
        requests = itertools.chain((([row], True) for row in alone), self._batches(set(alone)))

        async def work() -> None:
            for rows, timed in requests:
                await self._ask(rows, timed)

        tasks = [asyncio.ensure_future(work()) for _ in range(self.encoder.config.concurrency)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        self.usage.texts += len(self.texts)
        self.usage.padded = self.usage.tokens
        return np.empty((0, 0), np.float32) if self.vectors is None else self.vectors

    def _batches(self, alone: set[int]) -> Iterator[tuple[list[int], bool]]:
        """Rows of texts of similar length, the longest first, cut when a request is about to be sent."""
        order = sorted(set(range(len(self.texts))) - alone, key=lambda row: -self.sizes[row])
        start = 0
        while start < len(order):
            size = self.encoder._size
            count = size.next([self.sizes[row] for row in order[start : start + size.texts]])
            yield order[start : start + count], False
            start += count

    async def _ask(self, rows: list[int], timed: bool = False) -> None:
        """Ask for some texts in one request; in two halves if the server refuses so many."""
        encoder = self.encoder
        texts = [self.texts[row] for row in rows]
        body: dict[str, Any] = {"model": encoder.config.name, "input": texts, "encoding_format": "base64"}
        if encoder.config.dimensions:
            body["dimensions"] = encoder.config.dimensions
        sizes = [self.sizes[row] for row in rows]
        estimate = encoder._size.estimate(sum(sizes))
        try:
            answer, seconds = await encoder._client.post("/embeddings", body, estimate, self.use)
        except TooLargeError as error:
            if len(rows) == 1:
                raise InputError(
                    f"model.url: {encoder.config.url} refuses a text of {sizes[0]:,} bytes: {error}",
                    fix="set model.max_characters, or let the server cut texts that are too long",
                ) from None
            encoder._size.refused(sizes)
            half = (len(rows) + 1) // 2
            await self._ask(rows[:half])
            await self._ask(rows[half:])
            return
        self._keep(rows, vectors_of(answer, len(rows), encoder.dimension, encoder._client.bad_answer))
        if timed:
            self.use.seconds.append(seconds)
        tokens = tokens_of(answer)
        if tokens is not None:
            self.usage.tokens += tokens
            self.use.tokens_counted = True
            encoder._size.count(sum(sizes), tokens)

    def _keep(self, rows: list[int], vectors: Float32) -> None:
        self.encoder.dimension = vectors.shape[1]
        if self.vectors is None:
            self.vectors = np.empty((len(self.texts), vectors.shape[1]), np.float32)
        self.vectors[rows] = vectors
        self.bar.update(len(rows))

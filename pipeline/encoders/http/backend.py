"""The `http` backends: vectors and scores of models that a server runs.

OpenAI, vLLM, TEI, Infinity, Ollama and llama.cpp give vectors by OpenAI's `/embeddings`. Scores come from
`/rerank`, in the form of Cohere, Jina, vLLM and Infinity or in that of TEI: a request holds one query and
some of its passages.

What a server computes is not known by its files, so keys hold the address, the model's name there, and a
text, `revision`, which the user changes when the model behind the address does. Every run asks for a few
texts again (`Server.confirm`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from pipeline.config.model import HttpSettings
from pipeline.config.rerank import HttpRerankSettings
from pipeline.config.stages import TEXTS
from pipeline.core.display import Bar, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, JsonObject, Role
from pipeline.encoders.base import EmbeddingSource, ModelSource, ScoreSource
from pipeline.encoders.batching import ServerUse, Usage
from pipeline.encoders.http.client import Client, TooLargeError, key_of
from pipeline.encoders.http.probes import PROBED_PASSAGES, PROBES, SAME, cut_of, long_batch, spread_over
from pipeline.encoders.http.requests import (
    BatchedRequests,
    base64_of,
    is_numbered,
    may_be_float16,
    scores_of,
    tokens_of,
    vectors_of,
)
from pipeline.storage.artifacts import Draft, Recipe
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import cosines

log = logging.getLogger(__name__)

SCHEMA = 1  # of what is asked for a text or a pair
ALONE = 256  # queries that are asked for alone, to measure how long one takes
SAME_SCORE = 0.02  # the largest difference of a score, relative or absolute, that other batches may make

PROBE = "served"  # the stage, in the cache, of the first answers


@dataclass(frozen=True)
class Server(ModelSource, ABC):
    """A model behind an address; nothing of it is known but its settings."""

    served = True
    section: ClassVar[str]
    """The section of the config, for messages."""
    tolerance: ClassVar[str]
    """Which answers count as the same, for messages."""
    settings: HttpSettings | HttpRerankSettings
    confirmed: list[Float32] = field(default_factory=list, compare=False, repr=False)
    """The first answers to `PROBES`, once `confirm` has compared them."""

    def address(self) -> JsonObject:
        """The server and the model there, as the part of a key that all servers have."""
        config = self.settings
        return {
            "url": config.url,
            "name": config.name,
            "revision": config.revision,
            "max_characters": config.max_characters,
        }

    @abstractmethod
    def probe_recipe(self) -> JsonObject:
        """What shapes the answers to `PROBES`, in artifact keys."""

    @abstractmethod
    def difference(self, now: Float32, first: Float32) -> str | None:
        """How answers now differ from the first ones, in words; None if they are the same."""

    def refuse_change(self, now: Float32, first: Float32) -> None:
        """Refuse answers to `PROBES` that differ from the first ones; warn, where the config says so.

        Raises:
            InputError: They differ, and `changed` is `stop`.
        """
        config, section = self.settings, self.section
        differs = self.difference(now, first)
        if differs is None:
            return
        change = (
            f"{config.url} no longer gives what it gave: {differs} for {len(PROBES)} texts asked for again"
        )
        if config.changed == "warn":
            log.warning("%s; continuing with both (%s.changed: warn)", change, section)
            return
        raise InputError(
            change,
            allowed=self.tolerance,
            fix=f"change {section}.revision to request all again, or continue with {section}.changed: warn",
        )

    @override
    def check(self) -> None:
        """Refuse a missing package or key; asks the server nothing."""
        key_of(self.settings, self.settings.url, self.section)

    @override
    def confirm(self, store: Store, fresh: bool) -> None:
        """Compare the server's answers to `PROBES` with its first ones, which the cache keeps.

        What a server computes is not known by its files, so this is how stored rows and scores are known to
        be those of the model that is served now.

        Raises:
            InputError: They differ, and `changed` is `stop`; or the server cannot be asked.
        """
        config, section = self.settings, self.section
        if config.changed == "ignore":
            return
        probes = Recipe(PROBE, {"section": section, "model": self.probe_recipe()})
        try:
            with contextlib.closing(self.connect()) as client:
                now = client.probe()
        except InputError as error:
            if store.find(probes) is None:
                raise
            raise InputError(
                f"stored answers could not be compared with the server's: {error.found}",
                fix=f"{error.fix}; or use what is stored, with {section}.changed: ignore",
            ) from None

        def write(draft: Draft) -> JsonObject:
            draft.save_array("answers.npy", now)
            return {"probes": len(PROBES), "cut": self.cut()}

        first = store.make(probes, write, fresh)
        self.confirmed[:] = [np.array(first.array("answers.npy"))]
        self.refuse_change(now, self.confirmed[0])
        if cut := first.facts.get("cut"):
            log.warning("%s cuts long texts, without an error: %s; see data.chunks", config.url, cut)
        of_size = Recipe(PROBE, {**probes.plain, "texts": config.batch_size or TEXTS})
        if differs := store.make(of_size, self._compare_sizes, fresh).facts["differs"]:
            log.warning("%s; continuing (%s.changed: warn)", differs, section)

    def _compare_sizes(self, draft: Draft) -> JsonObject:
        """Compare answers in a request of the usual size with those to the same texts alone.

        Raises:
            InputError: They differ, and `changed` is `stop`: Ollama's vectors got worse from 16 texts on.
        """
        texts = self.settings.batch_size or TEXTS
        inputs, rows = self.inputs_of(long_batch(texts)), spread_over(range(texts))
        with contextlib.closing(self.connect()) as client:
            together = client.probe(inputs)[rows]
            alone = np.concatenate([client.probe([inputs[row]]) for row in rows])
        draft.save_array("answers.npy", alone)
        differs = self.difference(together, alone)
        if differs is None:
            return {"differs": None}
        what = f"{self.settings.url} answers differently in requests of {texts} texts and of one: {differs}"
        if self.settings.changed == "stop":
            raise InputError(
                what,
                allowed=self.tolerance,
                fix=f"lower {self.section}.batch_size, update the server, or continue with "
                f"{self.section}.changed: warn",
            )
        return {"differs": what}

    def inputs_of(self, passages: list[str]) -> Sequence[Any]:
        """What a server is asked for, to compare its answers to some passages."""
        return passages

    def cut(self) -> str | None:
        """What the server does to a long text, if it cuts it silently, as a clause."""
        return None

    def confirm_shard(self, probe: Callable[[], Float32]) -> None:
        """Compare the server's answers once more, after the requests for a shard: it is stored only then.

        Raises:
            InputError: The model changed during the run, and `changed` is `stop`.
        """
        if self.confirmed and self.settings.changed != "ignore":
            self.refuse_change(probe(), self.confirmed[0])


@dataclass(frozen=True)
class EmbeddingServer(Server, EmbeddingSource):
    """A model that gives vectors."""

    section = "model"
    tolerance = f"a cosine of {SAME} at least"
    settings: HttpSettings

    @override
    def ingredients(self, role: Role) -> JsonObject:
        return {"model": self.recipe(role)}

    def recipe(self, role: Role) -> JsonObject:
        """What shapes the rows of a role."""
        return {
            "served": SCHEMA,
            **self.address(),
            "dimensions": self.settings.dimensions,
            "instruction": self.instruction(role),
        }

    def instruction(self, role: Role) -> str:
        """What is put before each text."""
        config = self.settings
        return (config.passage_instruction if role == "passages" else config.query_instruction) or ""

    @override
    def connect(self) -> EmbeddingClient:
        return EmbeddingClient(self)

    @override
    def probe_recipe(self) -> JsonObject:
        return self.recipe("passages")

    @override
    def cut(self) -> str | None:
        with contextlib.closing(self.connect()) as encoder:
            return encoder.cut()

    @override
    def difference(self, now: Float32, first: Float32) -> str | None:
        if now.shape != first.shape:
            return f"they had {first.shape[1]:,} dimensions, and have {now.shape[1]:,}"
        similarity = cosines(now, first)
        if similarity.min() >= SAME:
            lengths = np.linalg.norm(now, axis=1) / np.linalg.norm(first, axis=1)
            alike = self.settings.normalize or abs(np.log(lengths)).max() < SAME_SCORE
            return (
                None if alike else f"lengths differ by a factor of {lengths.max():.4g} to {lengths.min():.4g}"
            )
        return f"the cosine is {similarity.min():.4f} at the lowest and {similarity.mean():.4f} in the mean"


class EmbeddingClient:
    """A connection to a server, which turns texts into vectors as `pipeline.encoders.Encoder` does."""

    def __init__(self, model: EmbeddingServer) -> None:
        self.model, self.config = model, model.settings
        self.dimension = self.config.dimensions
        if not self.dimension and model.confirmed:
            self.dimension = model.confirmed[0].shape[1]
        self.form = asyncio.Lock()  # held while the server is asked for numbers instead of base64
        self.client = Client(self.config, model.section)
        self._alone = ALONE

    def close(self) -> None:
        """Cancel what is under way."""
        self.client.close()

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        """Encode texts as passages or queries; several threads may call it at once.

        Raises:
            InputError: The server cannot be reached, refuses, or answers with anything else than a vector of
                finite numbers for each text.
        """
        vectors = self._encode(texts, role, usage, bar)
        self.model.confirm_shard(self.probe)
        return vectors

    def probe(self, texts: Sequence[str] = PROBED_PASSAGES) -> Float32:
        """The vectors of some texts now."""
        with silent("", None, "") as bar:
            return self._encode([*texts], "passages", Usage(), bar)

    def cut(self) -> str | None:
        """See `Server.cut`."""
        return self.client.run(cut_of(self._read_once))

    async def _read_once(self, text: str) -> tuple[Float32, int | None] | None:
        """The vector [1, dimension] of a text and the tokens that the server counted; None if it refuses."""
        client, body = self.client, {"model": self.config.name, "input": [text]}
        with contextlib.suppress(InputError, TooLargeError):
            answer, _ = await client.post(
                _VectorRequests.path, {**body, **self.shorter()}, ServerUse(), once=True
            )
            return vectors_of(answer, [text], self.dimension, client.bad_answer), tokens_of(answer)
        return None

    def shorter(self) -> JsonObject:
        """The part of a request that asks for fewer dimensions."""
        return {"dimensions": self.config.dimensions} if self.config.dimensions else {}

    def _encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        before = self.model.instruction(role)
        sent = [before + text[: self.config.max_characters] or " " for text in texts]  # OpenAI refuses ""
        requests = _VectorRequests(self, sent, usage, bar)
        count = min(self._alone, len(sent)) if role == "queries" else 0
        self._alone -= count
        alone = [number * len(sent) // count for number in range(count)]  # spread over all
        self.client.run(requests.send_all(alone))
        return requests.vectors

    def encode_parts(
        self, parts: Iterable[list[str]], role: Role, bar: Bar
    ) -> Iterator[tuple[Float32, Usage]]:
        """The vectors of each part, and what they cost."""
        for texts in parts:
            usage = Usage()
            yield self.encode(texts, role, usage, bar), usage


class _VectorRequests(BatchedRequests):
    """The requests for the vectors of some texts."""

    path = "/embeddings"

    def __init__(self, encoder: EmbeddingClient, texts: Sequence[str], usage: Usage, bar: Bar) -> None:
        super().__init__(encoder.client, [len(text.encode()) for text in texts], usage, bar)
        self.encoder, self.texts = encoder, texts
        self.vectors: Float32 = np.empty((0, 0), np.float32)

    @override
    def text(self, row: int) -> str:
        return self.texts[row]

    @override
    def body(self, rows: Sequence[int]) -> JsonObject:
        config = self.encoder.config
        texts = [self.texts[row] for row in rows]
        return {
            "model": config.name, "input": texts, "encoding_format": "base64", **self.encoder.shorter()
        }  # fmt: skip

    @override
    async def learn_form(self, rows: Sequence[int], answer: object) -> None:
        """Ask for a vector as numbers where base64 may be of float16, which reads as half as many float32.

        Raises:
            InputError: The server gives base64 then, too.
        """
        encoder = self.encoder
        if encoder.dimension is not None or not may_be_float16(base64_of(answer)):
            return
        async with encoder.form:
            if encoder.dimension is not None:  # learned meanwhile
                return
            body = {**self.body(rows[:1]), "encoding_format": "float"}
            numbers, _ = await encoder.client.post(self.path, body, self.use)
            if base64_of(numbers):
                raise InputError(
                    f"{encoder.client.url} gives base64 where numbers are asked for: their format is unknown",
                    allowed="`encoding_format` float, which tells float32 from float16",
                    fix="set model.dimensions to the number of dimensions of the vectors",
                )
            texts = [self.texts[rows[0]]]
            encoder.dimension = vectors_of(numbers, texts, None, encoder.client.bad_answer).shape[1]

    @override
    def store_answer(self, rows: Sequence[int], answer: object) -> None:
        encoder = self.encoder
        texts = [self.texts[row] for row in rows]
        vectors = vectors_of(answer, texts, encoder.dimension, encoder.client.bad_answer)
        encoder.dimension = vectors.shape[1]
        if not len(self.vectors):
            self.vectors = np.empty((len(self.texts), encoder.dimension), np.float32)
        self.vectors[rows] = vectors

    @override
    async def confirm_order(self, rows: Sequence[int], answer: object) -> None:
        """Ask for one text alone where vectors have no `index`: they may be in another order."""
        if len(rows) == 1 or (isinstance(answer, Mapping) and is_numbered(answer["data"])):
            return
        client, first = self.client, [rows[0]]
        alone, _ = await client.post(self.path, self.body(first), self.use)
        texts = [self.texts[rows[0]]]
        vectors = vectors_of(alone, texts, self.encoder.dimension, client.bad_answer)
        if cosines(vectors, self.vectors[first]).min() < SAME:
            raise client.bad_answer("vectors without `index`, in another order than the texts")


@dataclass(frozen=True)
class RerankServer(Server, ScoreSource):
    """A model that gives scores of pairs."""

    section = "rerank"
    tolerance = f"differences of {SAME_SCORE}, of a score or of 1"
    settings: HttpRerankSettings

    @override
    def ingredients(self) -> JsonObject:
        return {"model": self.probe_recipe()}

    @override
    def connect(self) -> RerankClient:
        return RerankClient(self)

    @override
    def probe_recipe(self) -> JsonObject:
        return {"served": SCHEMA, **self.address(), "form": self.settings.form}

    @override
    def inputs_of(self, passages: list[str]) -> list[tuple[str, str]]:
        return [(PROBES[0][0], passage) for passage in passages]

    @override
    def difference(self, now: Float32, first: Float32) -> str | None:
        if np.allclose(now, first, rtol=SAME_SCORE, atol=SAME_SCORE):
            return None
        return f"scores differ by up to {np.abs(now - first).max():.4g}"


class RerankClient:
    """A connection to a server, which scores pairs as `pipeline.encoders.opener.Scorer` does.

    Several threads may use it at once.
    """

    def __init__(self, model: RerankServer) -> None:
        self.model, self.config = model, model.settings
        self.client = Client(model.settings, model.section)

    def close(self) -> None:
        """Cancel what is under way."""
        self.client.close()

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """The score of each pair, whose texts are cut to `max_characters`."""
        scores = self._score(pairs, usage, bar)
        self.model.confirm_shard(self.probe)
        return scores

    def probe(self, pairs: Sequence[tuple[str, str]] = PROBES) -> Float32:
        """The scores of some pairs now."""
        with silent("", None, "") as bar:
            return self._score(pairs, Usage(), bar)

    def _score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        most = self.config.max_characters
        requests = _ScoreRequests(
            self, [(query[:most], passage[:most]) for query, passage in pairs], usage, bar
        )
        self.client.run(requests.send_all())
        return requests.scores


class _ScoreRequests(BatchedRequests):
    """The requests for the scores of some pairs."""

    path = "/rerank"

    def __init__(
        self, scorer: RerankClient, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar
    ) -> None:
        sizes = [len(query.encode()) + len(passage.encode()) for query, passage in pairs]
        super().__init__(scorer.client, sizes, usage, bar)
        self.config, self.pairs = scorer.config, pairs
        self.scores: Float32 = np.empty(len(pairs), np.float32)

    @override
    def text(self, row: int) -> str:
        return self.pairs[row][1]

    @override
    def groups(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Pairs of one query that follow each other."""
        for _, group in itertools.groupby(rows, key=lambda row: self.pairs[row][0]):
            yield list(group)

    @override
    def body(self, rows: Sequence[int]) -> JsonObject:
        query, passages = self.pairs[rows[0]][0], [self.pairs[row][1] for row in rows]
        if self.config.form == "tei":
            return {"query": query, "texts": passages, "raw_scores": True, "return_text": False}
        return {"model": self.config.name, "query": query, "documents": passages, "top_n": len(passages)}

    @override
    def store_answer(self, rows: Sequence[int], answer: object) -> None:
        passages = [self.pairs[row][1] for row in rows]
        self.scores[rows] = scores_of(answer, passages, self.client.bad_answer)

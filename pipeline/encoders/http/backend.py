"""The `http` backends: vectors and scores of models that a server runs.

OpenAI, vLLM, TEI, Infinity, Ollama and llama.cpp give vectors by OpenAI's `/embeddings`. Scores come from
`/rerank`, in the form of Cohere, Jina, vLLM and Infinity or in that of TEI: a request holds one query and
some of its passages.

What a server computes is not known by its files, so keys hold the address, the model's name there, and a
text, `revision`, which the user changes when the model behind the address does. Every run asks for a few
texts again (`Server.confirm`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from typing_extensions import override

from pipeline.config.model import HttpSettings
from pipeline.config.rerank import HttpRerankSettings
from pipeline.config.stages import TEXTS
from pipeline.core.display import NO_BAR, Bar
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, JsonObject, Role
from pipeline.encoders.batching import Usage
from pipeline.encoders.http.client import key_of
from pipeline.encoders.http.requests import Input, ModelClient, scores_of, vectors_of
from pipeline.encoders.opener import EmbeddingSource, ModelSource, ScoreSource
from pipeline.storage.artifacts import Draft, Recipe
from pipeline.storage.store import Store
from pipeline.storage.vector_shards import cosines

log = logging.getLogger(__name__)

SCHEMA = 1  # of what is asked for a text or a pair
ALONE = 256  # queries that are asked for alone, to measure how long one takes
SAME = 0.999  # the lowest cosine of two vectors of a text: bf16 keeps 0.9999, other weights or int8 less
SAME_SCORE = 0.02  # the largest difference of a score, relative or absolute, that other batches may make
WORDS = 2048  # of the text that is sent to see whether it is cut

PROBE = "served"  # the stage, in the cache, of the first answers
PROBES = (
    ("what is the capital of France", "Paris has been the capital of France since 987, with interruptions."),
    ("how do vaccines work", "A vaccine trains the immune system to recognize a pathogen."),
    ("python read file line by line", "for line in open('data.txt', encoding='utf-8'): print(line.rstrip())"),
    ("symptoms of iron deficiency", "Tiredness, pale skin and shortness of breath are common."),
    ("wie hoch ist der Mont Blanc", "Der Mont Blanc ist 4806 Meter hoch und der höchste Berg der Alpen."),
    ("best time to plant tulips", "Plant the bulbs in autumn, six weeks before the ground freezes."),
    ("meaning of GDPR", "The General Data Protection Regulation governs personal data in the EU."),
    ("qui a peint la Joconde", "Léonard de Vinci a peint la Joconde entre 1503 et 1519."),
)
"""Pairs of a query and a passage that a server is asked for in every run."""


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
    def inputs(self, pairs: Iterable[tuple[str, str]]) -> list[Input]:
        """What the server is asked for, of some pairs of a query and a passage."""

    @abstractmethod
    def difference(self, now: Float32, first: Float32) -> str | None:
        """How answers now differ from the first ones, in words; None if they are the same."""

    def refuse_change(self, now: Float32) -> None:
        """Refuse answers to `PROBES` that differ from the first ones; warn, where the config says so.

        Raises:
            InputError: They differ, and `changed` is `stop`.
        """
        config, section = self.settings, self.section
        differs = self.difference(now, self.confirmed[0])
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
        with contextlib.closing(self.open(store)) as client:
            try:
                now = self.ask_probes(client)
            except InputError as error:
                if store.find(probes) is None:
                    raise
                raise InputError(
                    f"stored answers could not be compared with the server's: {error.found}",
                    fix=f"{error.fix}; or use what is stored, with {section}.changed: ignore",
                ) from None

            def write(draft: Draft) -> JsonObject:
                draft.save_array("answers.npy", now)
                return {"probes": len(PROBES), "cut": self.cut(client)}

            first = store.make(probes, write, fresh)
            self.confirmed[:] = [np.array(first.array("answers.npy"))]
            self.refuse_change(now)
            if cut := first.facts.get("cut"):
                log.warning("%s cuts long texts, without an error: %s; see data.chunks", config.url, cut)
            of_size = Recipe(PROBE, {**probes.plain, "texts": config.batch_size or TEXTS})
            compared = store.make(of_size, lambda draft: self._compare_sizes(client, draft), fresh)
        if differs := compared.facts["differs"]:
            log.warning("%s; continuing (%s.changed: warn)", differs, section)

    def ask_probes(self, client: ModelClient) -> Float32:
        """The answers to `PROBES` now."""
        return client.ask(self.inputs(PROBES), Usage(), NO_BAR)

    def _compare_sizes(self, client: ModelClient, draft: Draft) -> JsonObject:
        """Compare answers in a request of the usual size with those to the same texts alone.

        Raises:
            InputError: They differ, and `changed` is `stop`: Ollama's vectors got worse from 16 texts on.
        """
        texts = self.settings.batch_size or TEXTS
        passages = itertools.cycle(passage for _, passage in PROBES)
        pairs = [(PROBES[0][0], f"{number} {next(passages)}") for number in range(texts)]
        inputs = self.inputs(sorted(pairs, key=lambda pair: -len(pair[1].encode())))  # as requests have them
        rows = sorted({0, texts // 2, texts - 1})
        together = client.ask(inputs, Usage(), NO_BAR)[rows]
        alone = np.concatenate([client.ask([inputs[row]], Usage(), NO_BAR) for row in rows])
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

    def cut(self, client: ModelClient) -> str | None:
        """What the server does to a long text, if it cuts it silently, as a clause."""
        return None

    def confirm_shard(self, client: ModelClient) -> None:
        """Compare the server's answers once more, after the requests for a shard: it is stored only then.

        Raises:
            InputError: The model changed during the run, and `changed` is `stop`.
        """
        if self.confirmed and self.settings.changed != "ignore":
            self.refuse_change(self.ask_probes(client))


@dataclass(frozen=True)
class EmbeddingServer(Server, EmbeddingSource):
    """A model that gives vectors."""

    section = "model"
    tolerance = f"a cosine of {SAME} at least"
    settings: HttpSettings

    @override
    def ingredients(self, role: Role) -> JsonObject:
        return {"model": self.probe_recipe(role)}

    @override
    def probe_recipe(self, role: Role = "passages") -> JsonObject:
        """What shapes the rows of a role, in artifact keys."""
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
    def open(self, store: Store) -> EmbeddingClient:
        return EmbeddingClient(self)

    @override
    def inputs(self, pairs: Iterable[tuple[str, str]]) -> list[Input]:
        return [self.input(passage, "passages") for _, passage in pairs]

    def input(self, text: str, role: Role) -> Input:
        """What is sent of a text; OpenAI refuses an empty one."""
        return (self.instruction(role) + text[: self.settings.max_characters] or " ",)

    @override
    def cut(self, client: ModelClient) -> str | None:
        """See `Server.cut`: a long text has the vector of its first half then."""
        queries, passages = (" ".join(texts).split() for texts in zip(*PROBES, strict=True))
        half = WORDS // 2
        # the second half has other words: the same ones have the same mean vector in any order
        words = [*itertools.islice(itertools.cycle(passages), half)]
        words += itertools.islice(itertools.cycle(queries), half)
        try:
            whole, part = (
                client.ask([(" ".join(words[:count]),)], Usage(), NO_BAR) for count in (WORDS, half)
            )
        except InputError:  # it refuses what is too long
            return None
        same = cosines(whole, part)[0] >= SAME
        return f"a text of {WORDS:,} words has the vector of its first {half:,}" if same else None

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


class EmbeddingClient(ModelClient):
    """A connection to a server, which turns texts into vectors as `pipeline.encoders.Encoder` does."""

    path = "/embeddings"
    server: EmbeddingServer
    settings: HttpSettings

    def __init__(self, server: EmbeddingServer) -> None:
        super().__init__(server)
        self.dimension = server.settings.dimensions
        if not self.dimension and server.confirmed:
            self.dimension = server.confirmed[0].shape[1]
        self._alone = ALONE

    @override
    def body(self, inputs: Sequence[Input]) -> JsonObject:
        """Vectors are asked for as numbers until their dimension is known: base64 may be of float16, too."""
        shorter = {"dimensions": self.settings.dimensions} if self.settings.dimensions else {}
        form = "base64" if self.dimension else "float"
        texts = [text for (text,) in inputs]
        return {"model": self.settings.name, "input": texts, "encoding_format": form, **shorter}

    @override
    def read(self, answer: object, passages: Sequence[str]) -> Float32:
        vectors = vectors_of(answer, passages, self.dimension, self.client)
        self.dimension = vectors.shape[1]
        return vectors

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        """Encode texts as passages or queries, and compare the model's answers to `PROBES` again."""
        inputs = [self.server.input(text, role) for text in texts]
        count = min(self._alone, len(inputs)) if role == "queries" else 0
        self._alone -= count
        alone = [number * len(inputs) // count for number in range(count)]  # spread over all
        vectors = self.ask(inputs, usage, bar, alone)
        self.server.confirm_shard(self)
        return vectors

    def encode_parts(
        self, parts: Iterable[list[str]], role: Role, bar: Bar
    ) -> Iterator[tuple[Float32, Usage]]:
        """The vectors of each part, and what they cost."""
        for texts in parts:
            usage = Usage()
            yield self.encode(texts, role, usage, bar), usage


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
    def open(self, store: Store) -> RerankClient:
        return RerankClient(self)

    @override
    def probe_recipe(self) -> JsonObject:
        return {"served": SCHEMA, **self.address(), "form": self.settings.form}

    @override
    def inputs(self, pairs: Iterable[tuple[str, str]]) -> list[Input]:
        most = self.settings.max_characters
        return [(query[:most], passage[:most]) for query, passage in pairs]

    @override
    def difference(self, now: Float32, first: Float32) -> str | None:
        if np.allclose(now, first, rtol=SAME_SCORE, atol=SAME_SCORE):
            return None
        return f"scores differ by up to {np.abs(now - first).max():.4g}"


class RerankClient(ModelClient):
    """A connection to a server, which scores pairs as `pipeline.encoders.opener.Scorer` does."""

    path = "/rerank"
    server: RerankServer
    settings: HttpRerankSettings

    @override
    def body(self, inputs: Sequence[Input]) -> JsonObject:
        query, passages = inputs[0][0], [passage for _, passage in inputs]
        if self.settings.form == "tei":
            return {"query": query, "texts": passages, "raw_scores": True, "return_text": False}
        return {"model": self.settings.name, "query": query, "documents": passages, "top_n": len(passages)}

    @override
    def read(self, answer: object, passages: Sequence[str]) -> Float32:
        return scores_of(answer, len(passages), self.client)

    def score(self, pairs: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> Float32:
        """The score of each pair, whose texts are cut to `max_characters`."""
        scores = self.ask(self.server.inputs(pairs), usage, bar)
        self.server.confirm_shard(self)
        return scores

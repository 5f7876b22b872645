"""A source, a backend, a reranker, a kind of retriever and a measure, each by an entry point."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipeline.config import DataSettings, EncoderSettings, ModelSettings, RerankSettings, setting
from pipeline.core import Bar, Ranking
from pipeline.encoders import TokenBatch, Usage
from pipeline.formats import Batch as Records, Judgments, make_judgments
from pipeline.metrics import Definition
from pipeline.retrievers import Context, Inputs, Plan, Retriever, Stage, open_ranking, save_ranking
from pipeline.storage import Draft

PASSAGES = {"p1": "red apples grow on trees", "p2": "the sea is salty", "p3": "trains leave from the station"}
QUERIES = {"q1": "which apples are red", "q2": "is the sea salty"}


# A source: its settings and its reader.
class ToySettings(DataSettings):
    source: Literal["toy"] = DataSettings.narrowed("source")
    upper: bool = setting(False, "whether texts are in capitals", names="data")


@dataclasses.dataclass
class ToySource:
    upper: bool

    def identity(self) -> dict[str, dict[str, Any]]:
        return {part: {"layout": "toy", "upper": self.upper} for part in ("corpus", "queries", "qrels")}

    @property
    def size(self) -> tuple[int | None, str]:
        return len(PASSAGES), "passages"

    def passages(self) -> Iterator[Records]:
        yield self._records(PASSAGES)

    def queries(self) -> Iterator[Records]:
        yield self._records(QUERIES)

    def judgments(self) -> Judgments:
        ids = pa.array(["q1", "q2"]), pa.array(["p1", "p2"])
        return make_judgments(*ids, np.array([1, 1]), "toy", "judgment", np.arange(2))

    def _records(self, texts: dict[str, str]) -> Records:
        values = [text.upper() if self.upper else text for text in texts.values()]
        return Records(pa.array(texts), pa.array(values), None, "toy", "text", range(len(texts)), len(texts))


# A backend: its settings and its class, here a bag of tokens.
class BagSettings(EncoderSettings):
    backend: Literal["bag"] = EncoderSettings.narrowed("backend")
    output: Literal["dense"] = EncoderSettings.narrowed("output", "dense")


def load_bag(model: Any, prepared: Path | None) -> "Bag":
    return Bag(model)


class Bag:
    dimension, pad_id, token_budget, width_multiple, computes_padding = 64, 0, 512, 1, False
    reads_padding, embedded = False, None

    def __init__(self, model: Any) -> None:
        self.tokenizer = Tokenizer.from_file(str(model.files.folder() / "tokenizer.json"))

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in batches:
            vectors = np.zeros((len(batch.ids), self.dimension), np.float32)
            for vector, ids, mask in zip(vectors, batch.ids, batch.mask, strict=True):
                np.add.at(vector, ids[mask == 1] % self.dimension, 1)
            yield batch.rows, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# A reranker: its settings and its class, here the shortest passage first.
class LengthSettings(RerankSettings):
    backend: Literal["shortest"] = RerankSettings.narrowed("backend")


def load_shortest(settings: LengthSettings, model: Any, prepared: Path | None) -> "Shortest":
    return Shortest()


class Shortest:
    def score(self, texts: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> np.ndarray:
        bar.update(len(texts))
        return np.array([-len(passage) for _, passage in texts], np.float32)


# A kind of retriever: its settings and its stages, here a single one.
class CommonWords(Retriever):
    def stages(self) -> Plan:
        texts = {"passages": self.identity.passages, "queries": self.identity.queries}
        settings = {**texts, "repeat": self.config.model.repeat, "top_k": self.config.search.top_k}
        return {"search": Stage("search", 1, ("data",), {}, settings, self.search, open_ranking)}

    def search(self, inputs: Inputs, draft: Draft, context: Context) -> dict[str, Any]:
        collection = inputs["data"]
        words = [set(text.lower().split()) for text in collection.passages.texts.to_pylist()]
        asked = [set(text.lower().split()) for text in collection.queries.texts.to_pylist()]
        common = np.array([[len(query & passage) for passage in words] for query in asked], np.float32)
        order = np.argsort(-common, axis=1, kind="stable")[:, : self.config.search.top_k]
        context.meter.items = len(asked)
        return save_ranking(draft, collection, Ranking(order, np.take_along_axis(common, order, axis=1)))


class CommonWordsSettings(ModelSettings):
    backend: Literal["common-words"] = ModelSettings.narrowed("backend")
    repeat: int = setting(1, "changes nothing but the key", shapes="search", ge=1)


# A measure: its function.
def hits(judged: Any, cutoffs: Any, rel: int) -> Any:
    return judged.found.relevant(rel).total(cutoffs)


SOURCE = (ToySettings, lambda settings: ToySource(settings.upper))
BACKEND = (BagSettings, load_bag)
RERANKER = (LengthSettings, load_shortest)
KIND = (CommonWordsSettings, CommonWords)
HITS = Definition(hits, highest=20)

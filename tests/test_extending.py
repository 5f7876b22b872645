"""A source, a backend, a reranker and a kind of retriever from outside the package, a line for each."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer
from workplaces import hits

from pipeline import InputError, compare, encoders, register_measure, registry, run_benchmark
from pipeline.config import (
    BACKENDS,
    RERANKERS,
    SOURCES,
    DataSettings,
    EncoderSettings,
    ModelSettings,
    RerankSettings,
    setting,
)
from pipeline.core import Bar, Ranking
from pipeline.data import sources
from pipeline.encoders import Opener, TokenBatch, Usage, pairs
from pipeline.encoders.pairs import Reranker
from pipeline.formats import Batch as Records, Judgments, make_judgments
from pipeline.metrics import MEASURES, Definition
from pipeline.models import Model
from pipeline.results import Result
from pipeline.retrievers import Context, Inputs, Keys, Plan, Retriever, Stage, open_ranking, save_ranking
from pipeline.storage import Draft

MINILM = "all-minilm-l6-v2"
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


class BagOpener(Opener[BagSettings, Model, Any]):
    def load(self, settings: BagSettings, model: Model, prepared: Path | None) -> "Bag":
        return Bag(model)


class Bag:
    dimension, pad_id, token_budget, width_multiple, computes_padding = 64, 0, 512, 1, False

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


class LengthOpener(Opener[LengthSettings, Reranker, Any]):
    def load(self, settings: LengthSettings, model: Reranker, prepared: Path | None) -> "Shortest":
        return Shortest()


class Shortest:
    def score(self, texts: Sequence[tuple[str, str]], usage: Usage, bar: Bar) -> np.ndarray:
        bar.update(len(texts))
        return np.array([-len(passage) for _, passage in texts], np.float32)


# A kind of retriever: its settings and its stages, here a single one.
class CommonWords(Retriever):
    def stages(self) -> Plan:
        def ingredients(keys: Keys) -> dict[str, Any]:
            settings = {"repeat": self.config.model.repeat, "top_k": self.config.search.top_k}
            return {"passages": self.identity.passages, "queries": self.identity.queries, **settings}

        return {"search": Stage("search", 1, ("data",), ingredients, self.search, open_ranking)}

    def search(self, inputs: Inputs, draft: Draft, context: Context) -> dict[str, Any]:
        collection = inputs["data"]
        words = [set(text.lower().split()) for text in collection.passages.texts.to_pylist()]
        asked = [set(text.lower().split()) for text in collection.queries.texts.to_pylist()]
        common = np.array([[len(query & passage) for passage in words] for query in asked], np.float32)
        order = np.argsort(-common, axis=1, kind="stable")[:, : self.config.search.top_k]
        context.meter.count(len(asked))
        return save_ranking(draft, collection, Ranking(order, np.take_along_axis(common, order, axis=1)))


class CommonWordsSettings(ModelSettings):
    backend: Literal["common-words"] = ModelSettings.narrowed("backend")
    repeat: int = setting(1, "changes nothing but the key", shapes="search", ge=1)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    kinds = [each._classes for each in (SOURCES, BACKENDS, RERANKERS)]
    tables: list[Any] = [sources.OPENERS, encoders.OPENERS, pairs.OPENERS, registry.KINDS, *kinds]
    before = [(table, dict(table)) for table in tables]
    registry.register_source(ToySettings, lambda settings: ToySource(settings.upper))
    registry.register_backend(BagSettings, BagOpener)
    registry.register_reranker(LengthSettings, LengthOpener)
    registry.register_kind(CommonWordsSettings, CommonWords)
    yield
    for table, content in before:
        table.clear()
        table.update(content)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Runs sections on the toy source."""
    places = {"cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results")}
    return lambda **sections: run_benchmark(
        {"name": "toy", "data": {"source": "toy"}, "search": {"top_k": 3}, **places, **sections}
    )


@pytest.mark.parametrize(
    "model", [{"backend": "bag", "name": "all-minilm-l6-v2"}, {"backend": "common-words"}]
)
def test_a_benchmark_runs_on_them(run: Callable[..., Result], model: dict[str, str]) -> None:
    sections = {"model": model, "evaluate": {"measures": ["mrr@2"]}}
    result = run(**sections)
    assert (result.record.metrics, result.record.passages) == ({"mrr@2": 1.0}, 3)
    again = run(**sections)
    assert again.reused == [stage["stage"] for stage in again.metrics["stages"]]
    louder = run(**sections, data={"source": "toy", "upper": True})
    assert louder.reused == []
    rerank = {"backend": "shortest", "name": MINILM, "depth": 3}
    reranked = run(**sections, rerank=rerank)
    assert [passage for _, passage, _ in hits(reranked.folder)[:3]] == ["p2", "p1", "p3"]
    with pytest.raises(InputError, match=r"unknown key 'data\.uper'.*upper"):
        run(model=model, data={"source": "toy", "uper": True})


def test_a_measure_of_a_program_is_computed_anew_by_each_and_compared(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES, "hits", Definition(len, added="here"))  # is removed in the end

    def hits(judged: Any, cutoffs: Any, rel: int) -> Any:
        return judged.found.relevant(rel).total(cutoffs)

    def twice(judged: Any, cutoffs: Any, rel: int) -> Any:
        return 2 * hits(judged, cutoffs, rel)

    sections = {
        "data": {"source": "sample", "queries": 30}, "search": {"top_k": 10},
        "evaluate": {"measures": ["hits@10", "precision@10", "hits(rel=2)@10"]},
    }  # fmt: skip
    remade = []
    for function in (hits, None, twice):  # the second time nothing is registered again
        if function:
            register_measure("hits", function, parameters=["rel"], highest=20)
        result = run(**sections, model={"backend": "bm25"})
        means = result.record.metrics
        times = 2 if function is twice else 1
        assert means["hits@10"] == pytest.approx(10 * times * means["precision@10"], rel=1e-12)
        assert means["hits(rel=2)@10"] < means["hits@10"]
        remade.append("evaluate" not in result.reused)
    assert remade == [True, False, True]
    words = run(**sections, name="other", model={"backend": "bm25", "k1": 2.0})
    pair = compare([result, words], "hits@10").pairs[0]
    assert pair.difference == pytest.approx(means["hits@10"] - words.record.metrics["hits@10"])
    for name in ("ndcg", "rr", "Hits", "p@10"):
        with pytest.raises(InputError, match="another name"):
            register_measure(name, hits)
    with pytest.raises(InputError, match="parameter 'alpha' of measure 'hits'"):
        register_measure("hits", hits, parameters=["alpha"])

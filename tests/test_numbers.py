"""Vectors: what is refused in a real run, and that the same config gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from workplaces import run

from pipeline.core.errors import InputError
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Recipe
from pipeline.storage.cache import cache_entries
from pipeline.storage.store import Store

pytestmark = pytest.mark.usefixtures("quick_conversion")

MODEL = Path("bge-small-en-v1.5/model.safetensors")
EMBEDDINGS = "embeddings.word_embeddings.weight"


def lone_token(folder: Path) -> tuple[int, str]:
    """A token that stands in one passage only and in no query, and the passage's id."""
    tokenizer = Tokenizer.from_file(str(folder / MODEL.parent / "tokenizer.json"))
    places: dict[int, set[str]] = {}
    for name in ("corpus", "queries"):
        for line in (folder / "data" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            text = f"{record.get('title', '')} {record['text']}"
            for token in tokenizer.encode(text).ids:
                places.setdefault(token, set()).add(record["_id"])
    lines = (folder / "data" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    corpus = [json.loads(line)["_id"] for line in lines]
    lone = {next(iter(ids)): token for token, ids in places.items() if len(ids) == 1 and ids <= set(corpus)}
    name = max(lone, key=corpus.index)  # far back, so that whole shards are kept before it
    return lone[name], name


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_whose_weights_are_not_finite_is_refused_by_the_first_text(
    workplace: Path, bad: float
) -> None:
    token, name = lone_token(workplace)
    weights = load_file(workplace / MODEL)
    weights[EMBEDDINGS][token] = bad
    save_file(weights, workplace / MODEL, metadata={"format": "pt"})
    with pytest.raises(InputError, match=f"the vector of '{name}' holds NaN or infinity; 1 of 45"):
        run(workplace)
    passages = [kept for kept in cache_entries(workplace / "indexes") if kept.stage == "passages"]
    drafts = [kept for kept in passages if not kept.finished]
    assert len(passages) == 2
    assert [len(list(kept.folder.glob("rows-*.npy"))) for kept in drafts] == [3]


def test_shards_whose_dimensions_differ_are_refused(tmp_path: Path, write_shard: Callable[..., None]) -> None:
    def build(draft):  # type: ignore[no-untyped-def]
        write_shard(draft, 0, np.ones((4, 3), np.float32))
        write_shard(draft, 4, np.ones((4, 2), np.float32))
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    with pytest.raises(InputError, match="the vectors from row 4 on have 2 dimensions, those before have 3"):
        vector_shards.open_embeddings(artifact)


@pytest.mark.parametrize(
    ("backend", "precision"), [("flag", "fp32"), ("openvino", "fp32"), ("native", "int16")]
)
def test_a_model_that_lacks_weights_is_refused_and_not_filled_in_at_random(
    workplace: Path, backend: str, precision: str
) -> None:
    path = workplace / MODEL.parent / "config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, "num_hidden_layers": 3}), encoding="utf-8")
    with pytest.raises(InputError, match=r"its files lack 16 weights, such as encoder\.layer\.2\.attention"):
        run(workplace, f"model.backend={backend}", f"model.precision={precision}")

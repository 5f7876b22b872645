"""A model that a real trainer trains is scored, logged and kept by the gate."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import InputError, run_benchmark
from pipeline.studies.gate import gate_result

MEASURES = ["ndcg@10", "recall(cap=true)@20"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Batches of two texts take longer on several threads, which wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "trained", "data": {"source": "sample", "corpus": 60, "queries": 30},
        "search": {"top_k": 20}, "evaluate": {"measures": MEASURES},
        "cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def made_up() -> Any:
    from datasets import Dataset

    pairs = [(f"question {n} about {n % 7}", f"answer {n} on {n % 7}") for n in range(60)]
    return Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})


def test_a_checkpoint_is_the_best_only_if_it_is_shown_to_be_better(
    config: dict[str, Any], made_up: Any, tmp_path: Path, minilm_folder: Path
) -> None:
    import torch
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments as Arguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    from pipeline.studies.gate import RetrievalCallback

    model = SentenceTransformer(str(minilm_folder), device="cpu")
    model.max_seq_length = 24
    good = {name: value.clone() for name, value in model.state_dict().items()}

    def shuffle_words() -> None:
        words = model.get_submodule("0").auto_model.embeddings.word_embeddings.weight
        with torch.no_grad():
            words.copy_(words[torch.randperm(len(words), generator=torch.Generator().manual_seed(1))])

    class Teacher(TrainerCallback):
        """Learning and forgetting that do not depend on luck: as MiniLM was published, then broken again."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 2:
                model.load_state_dict(good)
            if state.global_step == 6:
                shuffle_words()

    shuffle_words()
    arguments = Arguments(
        output_dir=str(tmp_path / "out"), max_steps=6, per_device_train_batch_size=2, learning_rate=1e-6,
        save_strategy="no", logging_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, made_up, loss=loss, callbacks=[Teacher()])
    callback = RetrievalCallback(trainer, config, every=2)
    trainer.add_callback(callback)
    trainer.train()

    assert list(callback.results) == [0, 2, 4, 6]
    rows = [row for row in trainer.state.log_history if "eval_ndcg_at_10" in row]
    assert [row["step"] for row in rows] == [0, 2, 4, 6]
    for row, result in zip(rows, callback.results.values(), strict=True):
        assert row["eval_ndcg_at_10"] == result.metrics["ndcg@10"]
        assert row["eval_recall_cap_true_at_20"] == result.metrics["recall(cap=true)@20"]
    assert all(re.fullmatch(r"\w+", name) for row in rows for name in row)
    lexical = run_benchmark({**config, "name": "again", "model": {"backend": "bm25"}})
    assert set(lexical.reused) >= {"data", "index", "search"}  # the callback made them
    assert rows[0]["eval_bm25_ndcg_at_10"] == lexical.metrics["ndcg@10"]

    # step 2 is shown to be better; 4 is nearly the same, 6 is worse
    assert [row["eval_best_step"] for row in rows] == [0, 2, 2, 2]
    assert rows[1]["eval_over_best"] > 0.1
    assert gate_result(callback.results[0], callback.results[2], ["ndcg@10"], 0.0).verdict == "fail"
    assert gate_result(callback.results[2], callback.results[4], ["ndcg@10"], 0.0).verdict != "fail"
    assert callback.best_step == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint-2"]
    assert callback.best_checkpoint == str(tmp_path / "out" / "checkpoint-2")
    kept = SentenceTransformer(callback.best_checkpoint, device="cpu").state_dict()
    assert all(torch.equal(kept[name], value) for name, value in good.items())


def test_a_model_without_a_method_that_encodes_is_held_by_an_object(
    config: dict[str, Any], tmp_path: Path
) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    from pipeline.studies.gate import RetrievalCallback

    class Bag(torch.nn.Module):
        """A model for transformers' own trainer, of bytes."""

        def __init__(self) -> None:
            super().__init__()
            self.bytes = torch.nn.EmbeddingBag(256, 32)

        def forward(self, input_ids: Any) -> dict[str, Any]:
            return {"loss": self.bytes(input_ids).square().mean()}

    model = Bag()

    class Encoder:
        """What `evaluate_model` takes."""

        def encode(self, texts: list[str]) -> Any:
            return [model.bytes(torch.tensor([[*text.encode()][:60]]))[0] for text in texts]

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=[{"input_ids": [n] * 8} for n in range(8)])
    callback = RetrievalCallback(trainer, config, every=1, model=Encoder(), bm25=False)
    trainer.add_callback(callback)
    trainer.train()
    assert list(callback.results) == [0, 1, 2]
    assert callback.results[0].metrics["ndcg@10"] > 0
    assert callback.best_checkpoint is None
    with pytest.raises(InputError, match="every is 0"):
        RetrievalCallback(trainer, config, every=0)

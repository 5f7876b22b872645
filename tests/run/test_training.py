"""A model that a real trainer trains is scored, logged and kept by the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import InputError, run_benchmark
from pipeline.comparison.gate import gate

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
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    from pipeline.integrations import RetrievalCallback

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
            if state.global_step == 10:
                model.load_state_dict(good)
            if state.global_step == 30:
                shuffle_words()

    shuffle_words()
    arguments = Arguments(
        output_dir=str(tmp_path / "out"), max_steps=30, per_device_train_batch_size=2, learning_rate=1e-6,
        save_strategy="no", logging_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, made_up, loss=loss, callbacks=[Teacher()])
    callback = RetrievalCallback(trainer, config, every=10)
    trainer.add_callback(callback)
    trainer.train()

    assert list(callback.results) == [0, 10, 20, 30]
    rows = [row for row in trainer.state.log_history if "eval_ndcg_at_10" in row]
    assert [row["step"] for row in rows] == [0, 10, 20, 30]
    for row, result in zip(rows, callback.results.values(), strict=True):
        assert row["eval_ndcg_at_10"] == result.metrics["metrics"]["ndcg@10"]
        assert row["eval_recall_cap_true_at_20"] == result.metrics["metrics"]["recall(cap=true)@20"]
    assert all(re.fullmatch(r"\w+", name) for row in rows for name in row)
    lexical = run_benchmark({**config, "name": "again", "model": {"backend": "bm25"}})
    assert set(lexical.reused) >= {"data", "index", "search"}  # the callback made them
    assert rows[0]["eval_bm25_ndcg_at_10"] == lexical.metrics["metrics"]["ndcg@10"]

    # step 10 is shown to be better; 20 is nearly the same, 30 is worse
    assert [row["eval_best_step"] for row in rows] == [0, 10, 10, 10]
    assert rows[1]["eval_over_best"] > 0.1
    assert gate(callback.results[0], callback.results[10], ["ndcg@10"], 0.0).verdict == "fail"
    assert gate(callback.results[10], callback.results[20], ["ndcg@10"], 0.0).verdict != "fail"
    assert callback.best_step == 10
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint-10"]
    assert callback.best_checkpoint == str(tmp_path / "out" / "checkpoint-10")
    kept = SentenceTransformer(callback.best_checkpoint, device="cpu").state_dict()
    assert all(torch.equal(kept[name], value) for name, value in good.items())


def test_a_model_without_a_method_that_encodes_is_held_by_an_object(
    config: dict[str, Any], tmp_path: Path, minilm_folder: Path
) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer, Trainer, TrainingArguments

    from pipeline.integrations import RetrievalCallback

    class Pairs(torch.nn.Module):
        """A model for transformers' own trainer: the mean of token vectors, and a loss of pairs."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = AutoModel.from_pretrained(str(minilm_folder))

        def forward(self, input_ids: Any, attention_mask: Any) -> dict[str, Any]:
            states = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mean = (states * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
            return {"loss": -torch.nn.functional.cosine_similarity(mean[0], mean[1], dim=0), "mean": mean}

    tokenizer = AutoTokenizer.from_pretrained(str(minilm_folder))
    model = Pairs()

    class Encoder:
        """What `evaluate_model` takes."""

        def encode(self, texts: list[str]) -> Any:
            model.eval()
            with torch.no_grad():
                parts = [texts[start : start + 64] for start in range(0, len(texts), 64)]
                tokens = [
                    tokenizer(part, padding=True, truncation=True, max_length=24, return_tensors="pt")
                    for part in parts
                ]
                return torch.cat(
                    [model(each["input_ids"], each["attention_mask"])["mean"] for each in tokens]
                )

    rows = [tokenizer(f"text {n}", padding="max_length", max_length=8) for n in range(8)]
    data = [{name: row[name] for name in ("input_ids", "attention_mask")} for row in rows]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=data)
    callback = RetrievalCallback(trainer, config, every=1, model=Encoder(), bm25=False)
    trainer.add_callback(callback)
    trainer.train()
    assert list(callback.results) == [0, 1, 2]
    assert callback.results[0].metrics["metrics"]["ndcg@10"] > 0.5
    assert callback.best_checkpoint is None
    with pytest.raises(InputError, match="every is 0"):
        RetrievalCallback(trainer, config, every=0)

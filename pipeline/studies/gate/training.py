"""Evaluation while a model is trained by transformers' or sentence-transformers' trainer.

    from pipeline.studies.gate import RetrievalCallback

    callback = RetrievalCallback(trainer, {"name": "mine", "data": {"source": "sample"}}, every=500)
    trainer.add_callback(callback)
    trainer.train()
    callback.best_step, callback.best_checkpoint

Importing it imports transformers, and torch with it; `import pipeline` imports neither.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from transformers import TrainerCallback

from pipeline.api import run_benchmark
from pipeline.config import BACKENDS, Config, IndexConfig
from pipeline.core.errors import InputError
from pipeline.results.result import Result
from pipeline.run.model_object import config_without_model, evaluate_model
from pipeline.studies.gate.gate import ALPHA, gate_result

log = logging.getLogger(__name__)
Foreign: TypeAlias = Any
"""Objects of transformers and of models."""
BM25 = "bm25"


class RetrievalCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Scores the model on a collection every N steps, logs that, and keeps the best checkpoint.

    The measures are logged by the trainer, so that every tracker it reports to has them: `ndcg@10` as
    `eval_ndcg_at_10`, and once that of BM25 as `eval_bm25_ndcg_at_10`. `eval_over_best` is the difference to
    the best model so far, and `eval_best_step` when that was.

    The first best model is the one before training. A later one takes its place only if the paired gate of
    `benchmarco gate` shows it to be better (one-sided, at `alpha`); a mean that is higher by chance does not.
    The trainer then saves a checkpoint, whatever its own strategy, and spares it when it removes others.

    Args:
        trainer: Whose model is scored, in one process.
        config: As for `pipeline.evaluate_model`. The collection is read once, and cached.
        every: Steps between two evaluations.
        model: What encodes, if not the trainer's own model: an object that holds that model and has methods
            as `pipeline.evaluate_model` takes them. sentence-transformers' models need none.
        measure: Decides; None is the first of the config.
        alpha: Significance level of one decision.
        bm25: Whether BM25 is scored too, before the first step.

    Attributes:
        results: The result of each evaluation by its step; their folders are `OUTPUT/NAME-step-N`.
        best_step: The step of the best model.
        best_checkpoint: Its folder; None where nothing was shown to be better than the model before training.

    Raises:
        InputError: The trainer has several processes; or as `pipeline.evaluate_model`.
    """

    def __init__(
        self,
        trainer: Foreign,
        config: Config | Mapping[str, object] | str | Path,
        *,
        every: int = 500,
        model: object = None,
        measure: str | None = None,
        alpha: float = ALPHA,
        bm25: bool = True,
    ) -> None:
        if every < 1:
            raise InputError(f"every is {every}", allowed="a number of steps, 1 or more")
        if trainer.args.world_size > 1:
            raise InputError(
                f"RetrievalCallback in a training of {trainer.args.world_size} processes",
                allowed="one process, whose model has all weights",
                fix="evaluate the saved checkpoints with benchmarco run",
            )
        self._trainer, self._config, self._model = trainer, config_without_model(config), model
        self._every, self._alpha, self._bm25 = every, alpha, bm25
        self._measures = [measure] if measure else []
        self.results: dict[int, Result] = {}
        self.best_step = 0
        self.best_checkpoint: str | None = None

    def on_train_begin(self, args: Foreign, state: Foreign, control: Foreign, **_: Foreign) -> None:
        """Score BM25, and the model before the first step, which is the best so far."""
        values = {}
        if self._bm25:
            name = f"{self._config.name}-{BM25}"
            settings = {"name": name, "model": BACKENDS.make(backend=BM25), "fuse": None, "rerank": None}
            lexical = self._config.model_copy(update={**settings, "index": IndexConfig()})
            values = logged(run_benchmark(lexical).metrics, f"{BM25}_")
        self.best_step = state.global_step
        self._evaluate(state, values)

    def on_step_end(self, args: Foreign, state: Foreign, control: Foreign, **_: Foreign) -> None:
        """Score the model if it is time, and have a better one saved."""
        if state.global_step % self._every == 0 and self._evaluate(state, {}):
            control.should_save = True

    def on_save(self, args: Foreign, state: Foreign, control: Foreign, **_: Foreign) -> None:
        """Remember the checkpoint of the best model."""
        if state.global_step == self.best_step:
            self.best_checkpoint = str(Path(args.output_dir) / f"checkpoint-{state.global_step}")
            state.best_model_checkpoint = self.best_checkpoint  # which the trainer then does not remove

    def _evaluate(self, state: Foreign, found: Mapping[str, float]) -> bool:
        """Score the model, log the measures and `found`; returns whether it is the best now."""
        step: int = state.global_step
        model = self._trainer.model if self._model is None else self._model
        result = evaluate_model(self._config, model, name=f"{self._config.name}-step-{step}")
        self.results[step] = result
        values = {**found, **logged(result.metrics)}
        is_better = False
        if step != self.best_step:
            # "fail": the best so far is shown to be worse than this one
            verdict = gate_result(self.results[self.best_step], result, self._measures, 0.0, self._alpha)
            (gated,) = verdict.measures
            is_better = verdict.verdict == "fail"
            values["eval_over_best"] = -gated.difference
            if is_better:
                log.info("step %d is better than step %d in %s", step, self.best_step, gated.measure)
                self.best_step = step
        self._trainer.log({**values, "eval_best_step": self.best_step})
        return is_better


def logged(measures: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Measures under names that trackers take: `ndcg@10` as `eval_ndcg_at_10`, after `eval_` the prefix."""
    names = {name: re.sub(r"\W+", "_", name.replace("@", " at ")) for name in measures}
    return {f"eval_{prefix}{names[name]}": value for name, value in measures.items()}

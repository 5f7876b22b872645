"""The `flag` backend of rerankers: the model as FlagEmbedding loads it, on CPU or GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pipeline.config import RerankSettings, setting
from pipeline.config.rerank import FlagRerankSettings
from pipeline.core.errors import InputError
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.tokenizer import fast_tokenizer
from pipeline.rerankers.classifier import Classifier
from pipeline.rerankers.model import Reranker
from pipeline.rerankers.pairs import PairScorer, encoder_tokenizer

ENCODER, DECODER = "encoder-only-base", "decoder-only-base"
LAYERWISE, LIGHTWEIGHT = "decoder-only-layerwise", "decoder-only-lightweight"
"""FlagEmbedding's names of its classes."""
CLASSES = {"LayerWiseMiniCPMForCausalLM": LAYERWISE, "CostWiseGemmaForCausalLM": LIGHTWEIGHT}
"""The class of FlagEmbedding for architectures of its own."""


class FlagAutoRerankSettings(FlagRerankSettings):
    """FlagEmbedding, on CPU or GPU."""

    backend: Literal["flag"] = RerankSettings.narrowed("backend", "flag")
    precision: Literal["fp32", "fp16", "bf16"] = RerankSettings.narrowed("precision", "fp32")
    prompt: str | None = setting(
        None,
        "decoders only: the question after the passage; null takes FlagEmbedding's own",
        shapes="rerank",
        min_length=1,
    )
    cutoff_layers: tuple[int, ...] | None = setting(
        None,
        "layerwise and lightweight models only: the layer whose score counts, as [28]; null is the last",
        shapes="rerank",
        min_length=1,
        max_length=1,
        strict=False,
    )
    compress_layers: tuple[int, ...] | None = setting(
        None,
        "lightweight models only: the layers from which on passages are shortened; null is [8]",
        shapes="rerank",
        min_length=1,
        strict=False,
    )
    compress_ratio: Literal[1, 2, 4, 8] | None = setting(
        None,
        "lightweight models only: the tokens of a passage that become one; null is 1, which keeps all",
        shapes="rerank",
    )

    def check_model(self, model: Reranker) -> None:
        """See `RerankSettings.check_model`."""
        kind = flag_class(model)
        suits = {
            "prompt": (DECODER, LAYERWISE, LIGHTWEIGHT),
            "cutoff_layers": (LAYERWISE, LIGHTWEIGHT),
            "compress_layers": (LIGHTWEIGHT,),
            "compress_ratio": (LIGHTWEIGHT,),
        }
        for name, kinds in suits.items():
            if getattr(self, name) is not None and kind not in kinds:
                raise InputError(
                    f"rerank.{name}: '{model.name}' is of FlagEmbedding's class {kind}",
                    allowed=f"models of {', '.join(kinds)}",
                    fix=f"leave out rerank.{name}",
                )
        if self.cutoff_layers:
            _check_layer(model, self.cutoff_layers[0])

    def load(self, model: Reranker, prepared: Path | None) -> PairScorer:
        """See `RerankSettings.load`."""
        kind = flag_class(model)
        flag = _load(model, kind)
        backend = self._encoder(model, flag) if kind == ENCODER else self._decoder(model, flag, kind)
        return PairScorer(backend, self.batch_size)

    def _encoder(self, model: Reranker, flag: Any) -> Any:
        backend = Classifier(model)
        backend.use(flag.model)
        fast = fast_tokenizer(model.name, flag.tokenizer)
        backend.tokenizer = encoder_tokenizer(self, model, fast, flag.tokenizer.model_input_names)
        return backend

    def _decoder(self, model: Reranker, flag: Any, kind: str) -> Any:
        from pipeline.rerankers import decoders

        own = decoders.SHORT_QUESTION if kind == LIGHTWEIGHT else decoders.QUESTION
        given = (self.query_instruction, self.passage_instruction)
        marks = tuple(
            default if text is None else text for text, default in zip(given, decoders.MARKS, strict=True)
        )
        made_by = {
            DECODER: decoders.Decoder,
            LAYERWISE: decoders.LayerwiseDecoder,
            LIGHTWEIGHT: decoders.LightweightDecoder,
        }
        backend: Any = made_by[kind](model, flag, self.prompt or own, (marks[0], marks[1]))
        if self.cutoff_layers:
            backend.layer = self.cutoff_layers[0]
        if kind == LIGHTWEIGHT:
            backend.ratio = self.compress_ratio or 1
            backend.compressed = self.compress_layers or decoders.COMPRESSED
        return backend


def flag_class(model: Reranker) -> str:
    """FlagEmbedding's class for a model, by its architecture; its own table goes by the name alone."""
    architecture = model.architecture
    if architecture in CLASSES:
        return CLASSES[architecture]
    if architecture.endswith("ForCausalLM"):
        return DECODER
    if architecture.endswith("ForSequenceClassification"):
        return ENCODER
    raise InputError(
        f"rerank.name: '{model.name}' is a {architecture or 'model that names no architecture'}",
        allowed="rerankers: …ForSequenceClassification, or …ForCausalLM",
        fix="choose another model, such as BAAI/bge-reranker-base",
    )


def _check_layer(model: Reranker, layer: int) -> None:
    """Refuse a layer without a head; FlagEmbedding fails at it."""
    first = int(model.config.get("start_layer") or 1)
    last = int(model.config.get("num_hidden_layers") or first)
    step = int(model.config.get("layer_sep") or 1)
    if layer not in range(first, last + 1, step):
        every = f", every {step}" if step > 1 else ""
        raise InputError(
            f"rerank.cutoff_layers: [{layer}], and '{model.name}' has no head there",
            allowed=f"{first} to {last}{every}",
            fix="choose one of them, or leave it out for the last",
        )


def _load(model: Reranker, kind: str) -> Any:
    """The model in a class of FlagEmbedding."""
    folder = model.files.folder()
    with explain_loading_errors(model, "FlagEmbedding.inference.auto_reranker"):
        from FlagEmbedding import FlagAutoReranker

        from pipeline.rerankers import flag_classes

        flag_classes.repair_classes()
        flag = FlagAutoReranker.from_finetuned(
            str(folder),
            model_class=kind,
            use_fp16=model.precision == "fp16",
            devices=[model.device],
            trust_remote_code=model.trust_remote_code,
            **({"use_bf16": model.precision == "bf16"} if kind != ENCODER else {}),
        )
        flag_classes.repair_network(flag.model)
    refuse_missing_weights(model, folder, flag.model)
    return flag

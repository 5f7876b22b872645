"""The `flag` backend of rerankers: the model as FlagEmbedding loads it, on CPU or GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.config.rerank import FlagAutoRerankSettings
from pipeline.core.errors import InputError
from pipeline.encoders.opener import Opener
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


class FlagRerankOpener(Opener[FlagAutoRerankSettings, Reranker, PairScorer]):
    """The classes of FlagEmbedding, by a model's architecture."""

    def check(self, settings: FlagAutoRerankSettings, model: Reranker) -> None:
        """Refuse settings that the model's class of FlagEmbedding lacks."""
        kind = flag_class(model)
        suits = {
            "prompt": (DECODER, LAYERWISE, LIGHTWEIGHT),
            "cutoff_layers": (LAYERWISE, LIGHTWEIGHT),
            "compress_layers": (LIGHTWEIGHT,),
            "compress_ratio": (LIGHTWEIGHT,),
        }
        for name, kinds in suits.items():
            if getattr(settings, name) is not None and kind not in kinds:
                raise InputError(
                    f"rerank.{name}: '{model.name}' is of FlagEmbedding's class {kind}",
                    allowed=f"models of {', '.join(kinds)}",
                    fix=f"leave out rerank.{name}",
                )
        if settings.cutoff_layers:
            _check_layer(model, settings.cutoff_layers[0])

    def load(self, settings: FlagAutoRerankSettings, model: Reranker, prepared: Path | None) -> PairScorer:
        """Load the model in its class of FlagEmbedding."""
        kind = flag_class(model)
        flag = _load(model, kind)
        backend = (
            _encoder(settings, model, flag) if kind == ENCODER else _decoder(settings, model, flag, kind)
        )
        return PairScorer(backend, settings.batch_size)


def _encoder(settings: FlagAutoRerankSettings, model: Reranker, flag: Any) -> Any:
    backend = Classifier(model)
    backend.use(flag.model)
    fast = fast_tokenizer(model.name, flag.tokenizer)
    backend.tokenizer = encoder_tokenizer(settings, model, fast, flag.tokenizer.model_input_names)
    return backend


def _decoder(settings: FlagAutoRerankSettings, model: Reranker, flag: Any, kind: str) -> Any:
    from pipeline.rerankers import decoders

    own = decoders.SHORT_QUESTION if kind == LIGHTWEIGHT else decoders.QUESTION
    given = (settings.query_instruction, settings.passage_instruction)
    marks = tuple(
        default if text is None else text for text, default in zip(given, decoders.MARKS, strict=True)
    )
    made_by = {
        DECODER: decoders.Decoder,
        LAYERWISE: decoders.LayerwiseDecoder,
        LIGHTWEIGHT: decoders.LightweightDecoder,
    }
    backend: Any = made_by[kind](model, flag, settings.prompt or own, (marks[0], marks[1]))
    if settings.cutoff_layers:
        backend.layer = settings.cutoff_layers[0]
    if kind == LIGHTWEIGHT:
        backend.ratio = settings.compress_ratio or 1
        backend.compressed = settings.compress_layers or decoders.COMPRESSED
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

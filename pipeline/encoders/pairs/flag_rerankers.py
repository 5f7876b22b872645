"""The `flag` backend of rerankers: a model as FlagEmbedding loads it, on CPU or GPU.

Two of its classes, `LayerWiseMiniCPMForCausalLM` and `CostWiseGemmaForCausalLM`, hold copies of transformers'
decoders of version 4; `repair_classes` and `repair_network` make them run with version 5. Since then a
network lists its tied weights as a mapping, a config always has RoPE parameters, a decoder layer is given the
cosines and sines of its positions and returns a tensor, and a loaded network's buffers that are not stored
are left empty. Nothing is changed in what the classes compute.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from pipeline.config.rerank import FlagAutoRerankSettings
from pipeline.core.errors import InputError
from pipeline.encoders.base import Opener
from pipeline.encoders.pairs.cross_encoders import Classifier
from pipeline.encoders.pairs.scorer import PairScorer, Reranker, encoder_tokenizer
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch
    from FlagEmbedding.abc.inference import AbsReranker
    from torch import Tensor
    from transformers import PretrainedConfig, PreTrainedModel

    from pipeline.encoders.pairs.decoders import Decoder

ENCODER, DECODER = "encoder-only-base", "decoder-only-base"
LAYERWISE, LIGHTWEIGHT = "decoder-only-layerwise", "decoder-only-lightweight"
"""FlagEmbedding's names of its classes."""
CLASSES = {"LayerWiseMiniCPMForCausalLM": LAYERWISE, "CostWiseGemmaForCausalLM": LIGHTWEIGHT}
"""The class of FlagEmbedding for architectures of its own."""


class FlagRerankOpener(Opener[FlagAutoRerankSettings, Reranker, PairScorer]):
    """The classes of FlagEmbedding, by a model's architecture."""

    @override
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

    @override
    def load(self, settings: FlagAutoRerankSettings, model: Reranker, prepared: Path | None) -> PairScorer:
        kind = flag_class(model)
        flag = _load(model, kind)
        if kind == ENCODER:
            return PairScorer(_encoder(settings, model, flag), settings.batch_size)
        return PairScorer(_decoder(settings, model, flag, kind), settings.batch_size)


def _encoder(settings: FlagAutoRerankSettings, model: Reranker, flag: AbsReranker) -> Classifier:
    backend = Classifier(model)
    backend.use(flag.model)
    fast = fast_tokenizer(model.name, flag.tokenizer)
    backend.tokenizer = encoder_tokenizer(settings, model, fast, flag.tokenizer.model_input_names)
    return backend


def _decoder(settings: FlagAutoRerankSettings, model: Reranker, flag: AbsReranker, kind: str) -> Decoder:
    from pipeline.encoders.pairs import decoders

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
    backend = made_by[kind](model, flag, settings.prompt or own, (marks[0], marks[1]))
    if isinstance(backend, decoders.LayerwiseDecoder) and settings.cutoff_layers:
        backend.layer = settings.cutoff_layers[0]
    if isinstance(backend, decoders.LightweightDecoder):
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


def _load(model: Reranker, kind: str) -> AbsReranker:
    """The model in a class of FlagEmbedding."""
    folder = model.files.folder()
    with explain_loading_errors(model, "FlagEmbedding.inference.auto_reranker"):
        from FlagEmbedding import FlagAutoReranker

        repair_classes()
        flag = FlagAutoReranker.from_finetuned(
            str(folder),
            model_class=kind,
            use_fp16=model.precision == "fp16",
            devices=[model.device],
            trust_remote_code=model.trust_remote_code,
            **({"use_bf16": model.precision == "bf16"} if kind != ENCODER else {}),
        )
        repair_network(flag.model)
    refuse_missing_weights(model, folder, flag.model)
    return flag


def repair_classes() -> None:
    """Make the classes loadable; before FlagEmbedding loads one. Calling it again changes nothing."""
    from FlagEmbedding.inference.reranker.decoder_only.models import gemma_model, modeling_minicpm_reranker

    minicpm = modeling_minicpm_reranker.LayerWiseMiniCPMForCausalLM
    gemma = gemma_model.CostWiseGemmaForCausalLM
    if minicpm._tied_weights_keys is None:
        return
    for each in (minicpm, gemma):
        each._tied_weights_keys = None  # neither has tied weights: their heads are separate
    whole_init = minicpm.__init__

    def init(self: PreTrainedModel, config: PretrainedConfig, *rest: object, **settings: object) -> None:
        if (config.rope_scaling or {}).get("rope_type") == "default":
            config.rope_scaling = None
        config.use_cache = False
        whole_init(self, config, *rest, **settings)

    minicpm.__init__ = init
    gemma_model.Gemma2DecoderLayer = _gemma_layer(gemma_model.Gemma2DecoderLayer)


def repair_network(network: PreTrainedModel) -> None:
    """Fill a loaded network's buffers, and have Gemma's attention limit its logits, which `sdpa` does not."""
    kind = type(network).__name__
    if kind == "LayerWiseMiniCPMForCausalLM":
        for layer in network.model.layers:
            layer.self_attn._init_rope()
    elif kind == "CostWiseGemmaForCausalLM":
        network.set_attn_implementation("eager")


def _gemma_layer(base: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """A decoder layer that computes cosines and sines itself, and returns a tuple, as in transformers 4."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RotaryEmbedding

    class Layer(base):  # type: ignore[misc,valid-type]
        def forward(
            self, hidden: Tensor, attention_mask: Tensor, position_ids: Tensor, **_: object
        ) -> tuple[Tensor]:
            rotary = Gemma2RotaryEmbedding(self.config).to(hidden.device)
            return (
                super().forward(
                    hidden,
                    position_embeddings=rotary(hidden, position_ids),
                    attention_mask=attention_mask,
                    position_ids=position_ids,
                ),
            )

    return Layer

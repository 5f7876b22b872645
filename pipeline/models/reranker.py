"""A resolved reranker, and how a section `rerank` is resolved to one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.config.rerank import FlagAutoRerankSettings, FlagRerankSettings, RerankSettings
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.models.card import max_positions, read_card
from pipeline.models.files import find_model
from pipeline.models.library_tokenizer import TokenizerSettings
from pipeline.models.model import ResolvedBase, precision_key
from pipeline.models.resolution import FindModel, choose_device, computed_in, padding_id
from pipeline.models.text_settings import SCORE
from pipeline.models.tokenizer import prepare_tokenizer

ENCODER, DECODER = "encoder-only-base", "decoder-only-base"
"""FlagEmbedding's names of its classes."""
LAYERWISE = ("LayerWiseMiniCPMForCausalLM", "CostWiseGemmaForCausalLM")
"""Decoders with a head for each of several layers, which are not run."""


@dataclass(frozen=True, kw_only=True)
class ResolvedReranker(ResolvedBase):
    """A config's reranker with every setting decided.

    Attributes:
        max_length: Tokens kept of a query and a passage together, at most as many as the model has positions.
        query_max_length: Tokens kept of a query; None is no limit of its own.
    """

    max_length: int
    query_max_length: int | None

    @property
    def architecture(self) -> str:
        """The class of transformers, or of the model's own Python files, that it names first; or ''."""
        return next(iter(self.card.architectures), "")

    def recipe(self) -> JsonObject:
        """The model's part of the key of its scores."""
        return {
            "identity": self.files.identity,
            **precision_key(self.precision),
            "max_length": self.max_length,
            "query_max_length": self.query_max_length,
            "tokenizer": self.tokenizer.probe,
        }


def resolve_reranker(
    settings: RerankSettings, find: FindModel = find_model, cache: Path | None = None
) -> ResolvedReranker:
    """Find a config's reranker and decide every setting that the config leaves open; see `resolve_model`."""
    device = choose_device(settings.device, settings.on_gpu)
    files = find(settings.name, settings.revision, settings.trust_remote_code)
    card = read_card(files, SCORE, settings.name)
    limits = [settings.max_length, max_positions(card.config)]
    query_max_length = None
    if isinstance(settings, FlagRerankSettings):
        query_max_length = settings.query_max_length or min(limits) * 3 // 4
    else:  # only sentence-transformers reads the tokenizer's limit
        limits.append(card.tokenizer_length or settings.max_length)
    model = ResolvedReranker(
        name=settings.name,
        files=files,
        precision=computed_in(settings.precision, device),
        device=device,
        pad_id=padding_id(card.config),
        tokenizer=prepare_tokenizer(
            files, "", TokenizerSettings(settings.name, settings.trust_remote_code), cache
        ),
        max_length=min(limits),
        query_max_length=query_max_length,
        trust_remote_code=settings.trust_remote_code,
        card=card,
    )
    if model.architecture.endswith("ForSequenceClassification"):
        labels = card.config.get("num_labels") or len(card.config.get("id2label") or {})
        check_labels(model.name, int(labels or 2))  # 2 is transformers' own default
    if isinstance(settings, FlagAutoRerankSettings):
        kind = flag_class(model)
        if settings.prompt is not None and kind != DECODER:
            raise InputError(
                f"rerank.prompt: '{model.name}' is of FlagEmbedding's class {kind}",
                allowed=f"models of {DECODER}",
                fix="leave out rerank.prompt",
            )
    return model


def flag_class(model: ResolvedReranker) -> str:
    """FlagEmbedding's class for a model, by its architecture; its own table goes by the name alone."""
    architecture = model.architecture
    if architecture.endswith("ForSequenceClassification"):
        return ENCODER
    if architecture.endswith("ForCausalLM") and architecture not in LAYERWISE:
        return DECODER
    what, other = architecture or "model that names no architecture", "base"
    if architecture in LAYERWISE:
        what, other = f"{architecture}, scored by heads of single layers", "v2-gemma"
    raise InputError(
        f"rerank.name: '{model.name}' is a {what}",
        allowed="rerankers: …ForSequenceClassification, or …ForCausalLM scored by its last layer",
        fix=f"choose another model, such as BAAI/bge-reranker-{other}",
    )


def check_labels(name: str, labels: int) -> None:
    """Refuse a model that gives several values for a pair, as one that was trained for another task does."""
    if labels != 1:
        raise InputError(
            f"rerank.name: '{name}' gives {labels} values for a pair",
            allowed="a reranker, which gives one",
            fix="choose another model, such as BAAI/bge-reranker-base",
        )

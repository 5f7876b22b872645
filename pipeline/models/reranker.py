"""A resolved reranker, and how a section `rerank` is resolved to one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.rerank import FlagAutoRerankSettings, FlagRerankSettings, RerankSettings
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.models.card import ModelCard, max_positions, read_card
from pipeline.models.files import Files
from pipeline.models.model import HALF, Origin, ResolvedBase, SettingWithOrigin
from pipeline.models.text_settings import GENERATION, SCORE
from pipeline.models.tokenizer import TokenizerSettings, prepare_tokenizer

TEMPLATE = "a chat template"
ENCODER, DECODER = "encoder-only-base", "decoder-only-base"
"""FlagEmbedding's names of its classes."""
LAYERWISE = ("LayerWiseMiniCPMForCausalLM", "CostWiseGemmaForCausalLM")
"""Decoders with a head for each of several layers, which are not run."""
READ_ANEW = tuple(f"{name}ForSequenceClassification" for name in ("Gemma", "Gemma2", "Llama", "Mistral"))
"""Decoders with a head of which FlagEmbedding tokenizes texts twice, and the second time to other tokens."""


@dataclass(frozen=True, kw_only=True)
class ResolvedReranker(ResolvedBase):
    """A config's reranker with every setting decided."""

    section = "rerank"
    max_length: int  # tokens kept of a query and a passage together, at most the model's positions
    query_max_length: int | None  # tokens kept of a query; None is no limit of its own
    by_predict: bool = False  # whether sentence-transformers' own `predict` is called; see `_needs_predict`

    @property
    def architecture(self) -> str:
        """The class of transformers, or of the model's own Python files, that it names first; or ''."""
        return next(iter(self.card.architectures), "")

    def recipe(self) -> JsonObject:
        """The model's part of the key of its scores."""
        return {
            "identity": self.identity,
            "precision": self.precision,
            **({"buffers": "fp32"} if self.precision in HALF else {}),
            "max_length": self.max_length,
            "query_max_length": self.query_max_length,
            "tokenizer": self.tokenizer.probe,
        }


def resolve_reranker(
    settings: RerankSettings, files: Files, device: str, precision: str, cache: Path | None
) -> ResolvedReranker:
    """Decide every setting of a reranker that the config leaves open; see `resolve_model`."""
    card = read_card(files, SCORE, settings.name)
    if files.adapter:
        raise InputError(
            f"rerank.name: '{settings.name}' is a PEFT adapter of {files.base}",
            allowed="a reranker with all of its weights",
            fix="merge the two with peft's merge_and_unload, and save the result and the tokenizer",
        )
    more, by_flag = _needs_predict(card), isinstance(settings, FlagRerankSettings)
    limits = [settings.max_length, max_positions(card.config)]
    query_max_length, made_by = None, TokenizerSettings(settings.name, settings.trust_remote_code)
    if isinstance(settings, FlagRerankSettings):
        query_max_length = settings.query_max_length or min(limits) * 3 // 4
    else:  # only sentence-transformers reads the tokenizer's limit
        limits.append(card.tokenizer_length or settings.max_length)
    model = ResolvedReranker(
        name=settings.name,
        files=files,
        identity=files.identity("dense"),
        precision=precision,
        device=device,
        pad_id=card.pad_id,
        tokenizer=prepare_tokenizer(files, ("", ""), made_by, cache),
        max_length=min(limits),
        query_max_length=query_max_length,
        trust_remote_code=settings.trust_remote_code,
        card=card,
        by_predict=not by_flag and bool(more or _is_decoder(card)),
        decided=_decided(settings, card, more),
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
    by_auto = settings.source_of("backend") == "auto"
    if by_flag and by_auto and model.architecture in READ_ANEW:
        raise InputError(
            f"rerank.name: FlagEmbedding changes the tokens of a {model.architecture}, '{settings.name}'",
            fix="set rerank.backend to sentence-transformers",
        )
    if by_flag and more and (by_auto or more != TEMPLATE):
        raise InputError(
            f"rerank.name: '{settings.name}' has {more}, which backend '{settings.backend}' does not use",
            allowed="models that FlagEmbedding runs: one network, and no template of its own",
            fix="set rerank.backend to sentence-transformers",
        )
    return model


def _is_decoder(card: ModelCard) -> bool:
    return any(name.endswith("ForCausalLM") for name in card.architectures[:1])


def _needs_predict(card: ModelCard) -> str:
    """What sentence-transformers does for a model besides giving a network tokens of pairs; "" for nothing.

    See its `CrossEncoder`: other modules, a default prompt, and a template that pairs are put into.
    """
    if card.texts["passages"].get("transformer_task") == GENERATION:
        return f"the transformer_task {GENERATION}"
    if card.module_names not in ([], ["Transformer"]):
        return f"the modules {', '.join(card.module_names)}"
    if card.settings.get("keep_in_fp32_modules"):
        return "modules that are kept in fp32"
    if card.settings.get("default_prompt_name"):
        return "a default prompt"
    return TEMPLATE if card.has_chat_template else ""


def _decided(settings: RerankSettings, card: ModelCard, more: str) -> dict[str, SettingWithOrigin]:
    """How pairs are read and what their score is, for people."""
    decoder, by_flag = _is_decoder(card), isinstance(settings, FlagRerankSettings)
    pairs = "into its chat template" if more == TEMPLATE and not by_flag else "one behind the other"
    score = "the logit of its head"
    if by_flag and decoder:
        prompt = getattr(settings, "prompt", None)
        pairs = f"before {'the prompt of the config' if prompt else 'the prompt of FlagEmbedding'}"
        score = "the logit of 'Yes'"
    elif not by_flag:
        named: Any = (card.config.get("sentence_transformers") or {}).get("activation_fn")
        named = named or card.settings.get("activation_fn")
        trusted = isinstance(named, str) and (settings.trust_remote_code or named.startswith("torch."))
        runs = str(named) if trusted else None
        score = "the logits of 'yes' less 'no'" if decoder else score
        score = f"{runs.rpartition('.')[2] if runs else 'Sigmoid'} of {score}"
        if named and not runs:
            score += f", as {named} does not run"
    source: Origin = "model" if not by_flag else "guess" if card.has_chat_template else "default"
    idle = [] if settings.trust_remote_code else card.own_code
    return {
        "backend": SettingWithOrigin(settings.backend, settings.source_of("backend")),
        "pairs": SettingWithOrigin(pairs, source),
        "score": SettingWithOrigin(score, source),
        **({"own code": SettingWithOrigin(f"{', '.join(idle)} does not run", "config")} if idle else {}),
    }


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

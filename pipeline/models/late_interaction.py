"""What the files of ColBERT-like models declare: markers, lengths, and how scores are combined."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.errors import InputError
from pipeline.core.records import ROLES, Facts, Role
from pipeline.models.card import ModelCard
from pipeline.models.text_settings import TASKS

STANFORD_MARKERS: dict[Role, str] = {"queries": "[unused0]", "passages": "[unused1]"}
EXPANDED = 32
"""Tokens that a query is expanded to unless a model declares another number."""


@dataclass(frozen=True)
class LateInteraction:
    """What a model declares in the layout of `MultiVectorEncoder`, of PyLate or of Stanford's ColBERT.

    Sentence-transformers reads all of them. Artifact keys are made before a model is loaded; a backend checks
    that the library found the same.
    """

    prompts: dict[Role, str]  # marker and prompt put before each text, by role; empty where there are none
    max_lengths: dict[Role, int]  # tokens kept of a text, by role; a role is left out if none is declared
    mean: bool  # whether a score is the mean over a query's tokens, not the sum


M3 = LateInteraction({}, {}, mean=True)
"""BGE-M3, as FlagEmbedding uses it."""


def late_interaction(card: ModelCard, name: str) -> LateInteraction:
    """What a ColBERT-like model declares; any other model is refused.

    Sentence-transformers would load another model too, with a projection of random weights.
    """
    settings = card.settings
    # an early version of PyLate wrote no model type; without a projection, random weights are added
    by_library = settings.get("model_type") in ("MultiVectorEncoder", "ColBERT") or (
        "query_prefix" in settings and "Dense" in card.module_names
    )
    if not by_library and "HF_ColBERT" not in card.architectures:
        raise InputError(
            f"model '{name}' is not a multi-vector model: its files do not define a vector for each token",
            allowed="a model of sentence-transformers' MultiVectorEncoder, of PyLate or of Stanford's "
            "ColBERT; with backend flag BGE-M3",
            fix="choose another model, or set model.output: dense",
        )
    if not by_library:
        return _stanford(card.stanford)
    return LateInteraction(
        prompts={role: _prompt(settings, task) for role, task in TASKS.items()},
        max_lengths=_lengths(settings, card.texts["passages"]),
        mean=settings.get("similarity_fn_name") == "meanmaxsim",
    )


def _prompt(settings: Facts, task: str) -> str:
    """A role's marker, PyLate's `prefix`, and prompt."""
    prefix = settings.get(f"{task}_prefix") or ""
    prompt = str((settings.get("prompts") or {}).get(task) or "")
    return prefix + prompt.removeprefix(prefix)


def _lengths(settings: Facts, of_module: Facts) -> dict[Role, int]:
    """Tokens kept by role; `of_module` are the settings of the Transformer module, which count first.

    A query that is expanded to a fixed length is cut there; one with a least length, not before it.
    """
    names = {role: f"{task}_length" for role, task in TASKS.items()}
    lengths = {role: of_module.get(name) or settings.get(name) for role, name in names.items()}
    expansion = of_module["query_expansion"] if "query_expansion" in of_module else _expansion(settings)
    if isinstance(expansion, dict):
        length = int(expansion.get("length") or EXPANDED)
        if expansion.get("strategy") != "min":
            lengths["queries"] = length
        elif lengths["queries"]:
            lengths["queries"] = max(lengths["queries"], length)
    return {role: int(length) for role, length in lengths.items() if length}


def _expansion(settings: Facts) -> object:
    """How PyLate's settings expand queries; None if they are no such settings, or say not to."""
    if "query_expansion" in settings:
        return settings["query_expansion"]
    marks = ("query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
             "attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words")  # fmt: skip
    if not any(mark in settings for mark in marks) or settings.get("do_query_expansion") is False:
        return None
    return {"strategy": "fixed", "length": settings.get("query_length")}


def _stanford(metadata: Facts) -> LateInteraction:
    """What Stanford's ColBERT declares."""
    markers = {"queries": metadata.get("query_token_id"), "passages": metadata.get("doc_token_id")}
    lengths: dict[Role, int] = {"queries": metadata.get("query_maxlen") or EXPANDED}
    if metadata.get("doc_maxlen"):
        lengths["passages"] = metadata["doc_maxlen"]
    prompts: dict[Role, str] = {role: f"{markers[role] or STANFORD_MARKERS[role]} " for role in ROLES}
    return LateInteraction(prompts, lengths, mean=False)

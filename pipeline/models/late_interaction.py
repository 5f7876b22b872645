"""Late interaction: what a ColBERT-like model's own files declare about markers, lengths and scores.

There are three layouts: that of sentence-transformers' `MultiVectorEncoder`, that of PyLate, and that of
Stanford's ColBERT. Sentence-transformers reads all of them, and a backend that loads a model with it checks
that it found the same. They are read here as well because artifact keys are made before a model is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.models.files import COUNT, OBJECT, TEXT, TEXTS, Files
from pipeline.models.model import ROLES, Role
from pipeline.models.text_settings import TASKS, read_text_settings

STANFORD = "artifact.metadata"
"""The file of Stanford's ColBERT."""
STANFORD_MARKERS: dict[Role, str] = {"queries": "[unused0]", "passages": "[unused1]"}
EXPANDED = 32
"""Tokens that a query is expanded to unless a model declares another number."""


@dataclass(frozen=True)
class LateInteraction:
    """What a model's files declare.

    Attributes:
        prompts: Marker and prompt put before each text, by role.
        max_lengths: Number of tokens kept of a text, by role; roles for which none is declared are left out.
        mean: Whether a score is the mean over a query's tokens, not the sum.
    """

    prompts: dict[Role, str]
    max_lengths: dict[Role, int]
    mean: bool


def read_late_interaction(files: Files, name: str) -> LateInteraction:
    """Read what a ColBERT-like model declares; any other model is refused.

    Sentence-transformers would load another model too, with a projection of random weights.
    """
    settings = files.read_json(
        "config_sentence_transformers.json",
        model_type=TEXT,
        prompts=OBJECT,
        query_prefix=TEXT,
        document_prefix=TEXT,
        query_length=COUNT,
        document_length=COUNT,
    )
    by_library = settings.get("model_type") in ("MultiVectorEncoder", "ColBERT") or (
        "query_prefix" in settings and _has_projection(files)  # of an early version of PyLate
    )
    architectures = files.read_json("config.json", architectures=TEXTS).get("architectures") or []
    if not by_library and "HF_ColBERT" not in architectures:
        raise InputError(
            f"model '{name}' is not a multi-vector model: its files do not define a vector for each token",
            allowed="a model of sentence-transformers' MultiVectorEncoder, of PyLate or of Stanford's "
            "ColBERT; with backend flag BGE-M3",
            fix="choose another model, or set model.output: dense",
        )
    if not by_library:
        return _stanford(files)
    own = read_text_settings(files, "multivector", name)
    return LateInteraction(
        prompts={role: _prompt(settings, task) for role, task in TASKS.items()},
        max_lengths=_lengths(settings, own),
        mean=settings.get("similarity_fn_name") == "meanmaxsim",
    )


def _has_projection(files: Files) -> bool:
    """Whether one of the model's modules projects each token; the library would add one of random weights."""
    return any(str(module.get("type")).endswith(".Dense") for module in files.read_modules())


def _prompt(settings: Facts, task: str) -> str:
    """A role's marker, PyLate's `prefix`, and prompt."""
    prefix = settings.get(f"{task}_prefix") or ""
    prompt = str((settings.get("prompts") or {}).get(task) or "")
    return prefix + prompt.removeprefix(prefix)


def _lengths(settings: Facts, own: Facts) -> dict[Role, int]:
    """Tokens kept by role; `own` are the settings of the Transformer module, which count first.

    A query that is expanded to a fixed length is cut there; one with a least length, not before it.
    """
    given = {
        role: own.get(f"{task}_length") or settings.get(f"{task}_length") for role, task in TASKS.items()
    }
    expansion = own["query_expansion"] if "query_expansion" in own else _expansion(settings)
    if isinstance(expansion, dict):
        length = int(expansion.get("length") or EXPANDED)
        shortest = expansion.get("strategy") == "min"
        given["queries"] = (
            (max(given["queries"], length) if given["queries"] else None) if shortest else length
        )
    return {role: int(kept) for role, kept in given.items() if kept}


def _expansion(settings: Facts) -> object:
    """How PyLate's settings expand queries; None if they are no such settings, or say not to."""
    if "query_expansion" in settings:
        return settings["query_expansion"]
    marks = ("query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
             "attend_to_mask_tokens", "query_prefix", "document_prefix", "skiplist_words")  # fmt: skip
    if not any(mark in settings for mark in marks) or settings.get("do_query_expansion") is False:
        return None
    return {"strategy": "fixed", "length": settings.get("query_length")}


def _stanford(files: Files) -> LateInteraction:
    """What Stanford's ColBERT declares."""
    metadata = files.read_json(
        STANFORD, query_token_id=TEXT, doc_token_id=TEXT, query_maxlen=COUNT, doc_maxlen=COUNT
    )
    markers = {"queries": metadata.get("query_token_id"), "passages": metadata.get("doc_token_id")}
    lengths: dict[Role, int] = {"queries": metadata.get("query_maxlen") or EXPANDED}
    if metadata.get("doc_maxlen"):
        lengths["passages"] = metadata["doc_maxlen"]
    prompts: dict[Role, str] = {role: f"{markers[role] or STANFORD_MARKERS[role]} " for role in ROLES}
    return LateInteraction(prompts, lengths, mean=False)

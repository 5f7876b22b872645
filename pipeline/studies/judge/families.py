"""Families of models: judges tend to favour results of their own."""

from __future__ import annotations

from collections.abc import Mapping

FAMILIES = {
    "OpenAI": ("gpt", "text-embedding-3", "text-embedding-ada"),
    "Qwen": ("qwen", "qwq"),
    "Google": ("gemini", "gemma"),
    "Mistral": ("mistral", "mixtral"),
    "Meta": ("llama",),
    "Cohere": ("cohere", "command-r", "command-a", "embed-english-v", "embed-multilingual-v"),
    "NVIDIA": ("nvidia", "nemo", "nv-embed"),
    "Microsoft": ("phi-", "harrier"),
    "Baichuan": ("baichuan",),
}
"""Parts of the names of models that share data or weights, in lower case."""


def related_results(judge: str, configs: Mapping[str, object]) -> dict[str, str]:
    """Results with a model of the judge's family, and that family; of the configs, as JSON, by name."""
    family = _family(judge)
    related = (name for name, config in configs.items() if family in map(_family, _models(config)))
    return dict.fromkeys(related, family) if family else {}


def _family(name: str) -> str:
    """The family of a model by its name; empty if it is not known."""
    lower = name.lower()
    return next((family for family, parts in FAMILIES.items() if any(p in lower for p in parts)), "")


def _models(config: object) -> list[str]:
    """The names of all models in a config, as JSON."""
    if isinstance(config, list):
        return [name for each in config for name in _models(each)]
    if not isinstance(config, dict):
        return []
    own = [config["name"]] if "backend" in config and isinstance(config.get("name"), str) else []
    return own + [name for each in config.values() for name in _models(each)]

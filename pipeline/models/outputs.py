"""What a model can give for a text, by its files: vectors, weights of words, or a vector for each token."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.models.card import ModelCard, family_of, read_card
from pipeline.models.files import Files
from pipeline.models.finding import BUNDLED, find_model
from pipeline.models.late_interaction import late_interaction
from pipeline.models.support import SPARSE


def find_outputs(name: str) -> tuple[str, ...]:
    """The outputs of a model by its name, as in a config, the one that it was trained for first.

    Raises:
        InputError: The model cannot be found or read.
    """
    if name in BUNDLED:
        return ("dense",)
    local = Path(name).expanduser()
    files = Files(local.resolve(), hashes={}) if local.is_dir() else find_model(name, None, False)
    card = read_card(files, "dense", name)
    if card.has_m3_heads:
        return "dense", "sparse", "multivector"
    says_how = card.modules or card.pooling or family_of(name)  # of SPLADE models, files often do not
    if not {*SPARSE}.isdisjoint(card.module_names) or (card.is_masked_language_model and not says_how):
        return ("sparse",)
    try:
        late_interaction(card, name)
    except InputError:
        return ("dense",)
    return ("multivector",)


LOGARITHMS = {"relu": 1, "log1p_relu": 2}
"""How many logarithms a weight goes through, by the activation of sentence-transformers' SpladePooling."""
SPLADES = tuple(f"{name}ForMaskedLM" for name in ("Bert", "DistilBert", "Roberta", "XLMRoberta", "MPNet"))


def splade_obstacle(card: ModelCard) -> str:
    """Why a SPLADE is not computed by the kernels, by its modules and settings; "" where it is."""
    pooling = {module.kind: module.config for module in card.modules}.get("SpladePooling", {})
    head = next(iter(card.architectures), "")
    strategy = pooling.get("pooling_strategy", "max")
    activation = pooling.get("activation_function", "relu")
    for holds, obstacle in (
        ("Router" in card.module_names, "it has a Router"),
        (card.module_names[1:] not in ([], ["SpladePooling"]), f"its modules are {card.module_names}"),
        (strategy != "max", f"its pooling strategy is {strategy}"),
        (activation not in LOGARITHMS, f"its activation is {activation}"),
        (card.settings.get("max_active_dims") is not None, "it limits the number of words"),
        (card.similarity == "cosine", "it scales weights to length 1"),
        (head not in SPLADES, f"it is a {head}"),
        (card.config.get("tie_word_embeddings") is False, "its last layer is not that of its embeddings"),
    ):
        if holds:
            return obstacle
    return ""

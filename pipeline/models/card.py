"""What does a model say of itself? The files that sentence-transformers writes beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.models.files import COUNT, SIZE, TEXT, TEXTS, Files, Kind

if TYPE_CHECKING:
    from pipeline.models.model import Role

LENGTHS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where sentence-transformers looks for the length of texts; it takes the first that is there."""

PLAIN = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Modules that leave a vector as wide as the network makes it."""
MODES = Kind("a text or a list of texts", lambda value: TEXT.fits(value) or TEXTS.fits(value))
"""What names a pooling, or several joined."""


@dataclass(frozen=True)
class Declared:
    """Everything a model's files say; what they are silent about is None or empty.

    Attributes:
        modules: Class of each module, in the order they run, such as `sentence_transformers.models.Dense`.
        pooling: `cls`, `mean`, `last_token`, or another of sentence-transformers', several joined by `+`.
        pools_prompt: Whether the prompt's tokens are pooled with the text's.
        prompts: Put before each text, by role, where the model has one that is not empty.
        max_length: Tokens sentence-transformers keeps of a text.
        truncate_dim: Dimensions kept of a vector.
    """

    modules: tuple[str, ...]
    pooling: str | None
    pools_prompt: bool
    prompts: dict[Role, str]
    max_length: int | None
    truncate_dim: int | None

    @property
    def chain(self) -> list[str]:
        """The modules' names alone, such as `Dense`."""
        return [module.rpartition(".")[2] for module in self.modules]


def read(files: Files) -> Declared:
    """Read what a model declares; fetches small files only."""
    modules = [entry for entry in files.read_list("modules.json") if isinstance(entry, dict)]
    places = {str(entry.get("type")).rpartition(".")[2]: str(entry.get("path")) for entry in modules}
    pooling = files.read_json(places.get("Pooling", "1_Pooling") + "/config.json", pooling_mode=MODES)
    settings = files.read_json("config_sentence_transformers.json", truncate_dim=COUNT)
    lengths = next(filter(None, (files.read_json(name, max_seq_length=COUNT) for name in LENGTHS)), {})
    tokenizer = files.read_json("tokenizer_config.json", model_max_length=SIZE)
    return Declared(
        modules=tuple(str(entry.get("type")) for entry in modules),
        pooling=_pooling(pooling),
        pools_prompt=pooling.get("include_prompt") is not False,
        prompts=_prompts(settings.get("prompts")),
        max_length=int(lengths.get("max_seq_length") or tokenizer.get("model_max_length") or 0) or None,
        truncate_dim=settings.get("truncate_dim") or None,
    )


def _pooling(declared: dict[str, Any]) -> str | None:
    """The pooling in a Pooling module's `config.json`, of this or an earlier sentence-transformers."""
    names = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last_token", "max_tokens": "max"}
    modes = declared.get("pooling_mode")
    if modes is None:
        modes = [
            key.removeprefix("pooling_mode_")
            for key, value in declared.items()
            if key.startswith("pooling_mode_") and value is True
        ]
    modes = [modes] if isinstance(modes, str) else modes
    return "+".join(names.get(mode, mode) for mode in modes) or None


def _prompts(declared: Any) -> dict[Role, str]:
    """By role: the first that is not empty under the names that models give them."""
    if not isinstance(declared, dict):
        return {}
    names: dict[Role, tuple[str, ...]] = {
        "queries": ("query",),
        "passages": ("document", "passage", "corpus"),
    }
    given = {role: [declared.get(name) for name in names[role]] for role in names}
    return {role: str(next(filter(None, prompts))) for role, prompts in given.items() if any(prompts)}

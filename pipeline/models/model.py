"""A resolved model: everything about it that shapes its vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePath
from typing import ClassVar, Literal, NamedTuple

from pipeline.core.records import ROLES, Facts, JsonObject, Role
from pipeline.models.card import UNLIMITED, ModelCard, max_positions
from pipeline.models.files import TOKEN_IDS, Files, damaged
from pipeline.models.onnx_file import OnnxFile
from pipeline.models.tokenizer import ModelTokenizer, token_counter

Origin = Literal["config", "auto", "model", "family", "default", "guess", "none known", "device"]
"""Where a setting comes from: the config, what `model.backend: auto` took, the model's own files, the table
of families, a default, a default that may well be wrong, nowhere, or what the device can compute in."""


class SettingWithOrigin(NamedTuple):
    """The value that a run uses for a setting of a model, and where it comes from."""

    value: str | int
    source: Origin


HALF = ("fp16", "bf16")
"""Precisions in which buffers, such as the frequencies of positions, are in fp32."""
DECLARING = (
    "modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
"""Files that say how a model is used, in the model's folder or in that of its network."""


@dataclass(frozen=True, kw_only=True)
class ResolvedBase:
    """What is known of a model or a reranker before it is loaded."""

    section: ClassVar[str] = "model"  # of the config, for messages
    name: str  # its name in the config
    files: Files  # its folder, or its commit on the hub
    identity: JsonObject  # hub id and commit, or the SHA-256 of each file that shapes what it computes
    precision: str  # number format of the computation: a CPU runs `fp16` as `fp32`, as FlagEmbedding does
    device: str  # `cpu` or `cuda:N`
    pad_id: int  # id of the padding token
    tokenizer: ModelTokenizer  # its tokenizer; of passages, where queries have another one
    card: ModelCard = field(compare=False, repr=False)  # what its files declare
    trust_remote_code: bool = False  # whether Python files that come with the model may run
    # The settings that its files, its family or a default may decide, by name, for reports.
    decided: dict[str, SettingWithOrigin] = field(default_factory=dict)

    def describe(self) -> str:
        """The settings that neither the model's files nor a default decide, and what does, as a clause."""
        shown = [
            f"{name} {repr(used.value) if 'instruction' in name else used.value} ({used.source})"
            for name, used in self.decided.items()
            if used.source not in ("model", "default")
        ]
        return f"model {self.name}: {', '.join(shown) or 'all as its files declare it'}"


@dataclass(frozen=True)
class CalibrationCorpus:
    """The passages an int8 model is calibrated on."""

    identity: JsonObject  # in artifact keys
    path: Path  # of their Arrow file, which exists by the time a model is loaded


@dataclass(frozen=True, kw_only=True)
class ResolvedModel(ResolvedBase):
    """A config's model with every setting decided."""

    tokenizers: dict[Role, ModelTokenizer]  # those of each role's texts; of passages, it is `tokenizer`
    pooling: str  # `cls`, `mean`, `last_token`, or another of sentence-transformers'; "" unless it is dense
    prompts: dict[Role, tuple[str, str]]  # for each role the strings put before and after each text
    max_lengths: dict[Role, int]  # for each role the number of tokens kept, at most the model's positions
    output: str = "dense"  # what is made of a text: `dense`, `sparse` or `multivector`
    mean_over_tokens: bool = False  # whether a score is the mean over a query's token vectors, not the sum
    # What vectors are compared by, as the model's files declare it: `cosine`, `dot`, `euclidean` or
    # `manhattan`; "" if they do not, or if they scale vectors to length 1.
    similarity: str = ""
    dimension: int | None = None  # number of dimensions of a dense vector, where it is known before loading
    truncate_dim: int | None = None  # number of dimensions kept of each vector (Matryoshka); None keeps all
    # For each role how many tokens at the beginning of a text are not pooled; empty where all are.
    skipped: dict[Role, int] = field(default_factory=dict)
    guessed: str = ""  # the settings that are only defaults, as a clause; "" if there are none
    hint: str = ""  # what is likely a mistake in the config, as a clause; "" if nothing is
    onnx: OnnxFile | None = None  # the ONNX file that is run; None with another backend
    corpus: CalibrationCorpus | None = None  # passages that an int8 model is calibrated on

    @property
    def tokenizer_identity(self) -> JsonObject:
        """What identifies the tokenizer in artifact keys: its file, or all that it is built from."""
        identity = self.files.identity(TOKEN_IDS)
        if self.files.repo:
            return identity
        folder, hashes = PurePath(self.card.routes["passages"][1]), identity["files"]
        beside = {PurePath(name).name: hashes[name] for name in hashes if PurePath(name).parent == folder}
        whole = beside.get("tokenizer.json")
        return {"files": {"tokenizer.json": whole} if whole else beside}

    def room_for_texts(self, special: bool = True) -> dict[str, int]:
        """How many tokens it reads of a text, without the instruction, and without special ones if not so."""
        prompts = ["".join(self.prompts[role]) for role in ROLES]
        empty, *around = token_counter(self.tokenizer)(["", *prompts])
        taken = (count - empty * special for count in around)
        return {role: self.max_lengths[role] - count for role, count in zip(ROLES, taken, strict=True)}

    def recipe(self, role: Role) -> JsonObject:
        """The model's part of the key of what it makes of texts in `role`.

        It holds what the installed transformers is known to compute otherwise than another version: version 5
        obeys `is_causal` of a decoder's `config.json`, and 4 does not. By scripts/compare_versions.py, with
        4.57.6, 5.18, 5.23 and 5.24, all else has equal bits, or differs in the last ones.
        """
        changes = {}
        if self.card.config.get("is_causal") is False:
            changes = {"obeys_is_causal": int(metadata.version("transformers").partition(".")[0]) >= 5}
        kind = {"pooling": self.pooling} if self.output == "dense" else {"output": self.output}
        return {
            "identity": self.identity,
            "precision": self.precision,
            **({"buffers": "fp32"} if self.precision in HALF else {}),
            "prompt": list(self.prompts[role]),
            "max_length": self.max_lengths[role],
            **kind,
            **({"skipped": self.skipped[role]} if self.skipped else {}),
            **({"task_adapter": self.card.task_adapters[role]} if self.card.task_adapters else {}),
            "tokenizer": self.tokenizers[role].probe,
            **changes,
        }


def model_record(model: ResolvedBase) -> Facts:
    """What is known of a model and what its files do not say, as plain JSON; fetches its files."""
    files, card = model.files, model.card
    folder, positions = files.folder(), max_positions(card.config)
    places, of_texts = (folder, folder / card.network_folder), {}
    if isinstance(model, ResolvedModel):
        of_texts = {
            "output": model.output,
            "declared similarity": card.similarity or None,
            "used similarity": model.similarity or "cosine",
            "dimensions": model.dimension,
            "kept dimensions": model.truncate_dim,
        }
    return {
        "name": model.name,
        "files": f"{files.repo} at {files.commit}" if files.repo else str(folder),
        "weights": [*_weights(folder)],
        "network": card.config.get("model_type"),
        "modules": card.module_names,
        "tokenizer": card.tokenizer.get("tokenizer_class"),
        "hash of token ids": model.tokenizer.probe[:16],
        "end tokens": [token for token in model.tokenizer.settings.end_tokens if token],
        **{name: {"value": value, "source": source} for name, (value, source) in model.decided.items()},
        "positions": positions if positions < UNLIMITED else None,
        **of_texts,
        "not there": [name for name in DECLARING if not any((at / name).is_file() for at in places)],
    }


def _weights(folder: Path) -> Iterator[str]:
    """Each file of weights below a folder, with the number formats that it stores."""
    for path in sorted([*folder.rglob("*.safetensors"), *folder.rglob("pytorch_model*.bin")]):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".bin":
            yield name
            continue
        try:
            with path.open("rb") as file:  # 8 bytes of length, then JSON of up to 10^8 bytes
                header = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), 10**8)))
            formats = sorted({entry["dtype"] for key, entry in header.items() if key != "__metadata__"})
        except (ValueError, TypeError, LookupError, AttributeError):
            raise damaged(f"{path}: its beginning is not that of safetensors") from None
        yield f"{name} ({', '.join(formats)})"

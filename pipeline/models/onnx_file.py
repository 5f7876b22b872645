"""A model's ONNX file: which one is run, the files that it consists of, and its number formats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path, PurePath

from pipeline.core import hub
from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.models.files import ONNX, Files, damaged
from pipeline.storage.hashing import hash_file

DEFAULTS = ("model.onnx", "onnx/model.onnx")
"""The files that are looked for where none is named; both are the whole model by convention."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
"""Names of the inputs that a file may have."""
TOKEN_VECTORS, TEXT_VECTORS = ("last_hidden_state", "token_embeddings"), "sentence_embedding"
"""Names of outputs: with a vector for each token, and with the vector of each text."""
POOLINGS = ("cls", "mean", "last_token")
"""What token vectors are pooled by here."""
WIDE = ("float", "double")
"""Number formats of weights, as ONNX names them, that have at least the digits of fp32."""
NO_WEIGHTS = ("int32", "int64", "bool", "string")
"""Formats of shapes and indices."""
LEAST = 0.001
"""Share of all weights from which on a format counts: a few constants are in other formats than weights."""


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file of a model."""

    name: str  # its path inside the model's folder
    formats: tuple[str, ...]  # the number formats of its weights, that of the most weights first
    inputs: tuple[str, ...]  # the names of its inputs
    outputs: tuple[str, ...]  # the names of its outputs

    def output(self, pooling: str) -> str:
        """The output that is taken for a pooling, which is `TEXT_VECTORS` if the file pools by itself."""
        if pooling == TEXT_VECTORS:
            return TEXT_VECTORS
        return next(name for name in TOKEN_VECTORS if name in self.outputs)

    @property
    def is_exact(self) -> bool:
        """Whether no weight has fewer digits than in fp32."""
        return not {*self.formats} - {*WIDE}


def find_onnx(files: Files, file: str | None, name: str) -> tuple[Files, OnnxFile]:
    """The ONNX file of a model, and the model's files with it; `file` and `name` are the config's.

    Raises:
        InputError: There is no such file, or it is none of ONNX, or its inputs are not known.
    """
    require("onnxruntime", "onnx", "model.backend: onnx")
    wanted = DEFAULTS if file is None else (file,)
    if any(PurePath(path).is_absolute() or ".." in PurePath(path).parts for path in wanted):
        raise InputError(f"model.file: {file}", allowed="a path inside the model's folder: onnx/model.onnx")
    patterns = tuple(pattern for path in wanted for pattern in (path, f"{path}_data", f"{path}.data"))
    folder = hub.snapshot(files.repo, files.commit, "model", patterns) if files.repo else files.small_files
    path = next((path for path in wanted if (folder / path).is_file()), None)
    if path is None:
        found = sorted(
            file.relative_to(folder).as_posix() for pattern in ONNX for file in folder.glob(pattern)
        )
        raise InputError(
            f"model '{name}' has no {' and no '.join(wanted)}",
            allowed=", ".join(found) or "a model with an ONNX file",
            fix="set model.file to the file that is meant" if found else "set another model.backend",
        )
    onnx, beside = _read(folder, path)
    if unknown := [each for each in onnx.inputs if each not in INPUTS]:
        raise InputError(
            f"{path} of model '{name}' has the input {unknown[0]}",
            allowed=", ".join(INPUTS),
            fix="export the model for feature extraction, without its cache; or set another model.file",
        )
    if outside := [part for part in beside if not (folder / part).is_file() or ".." in PurePath(part).parts]:
        raise damaged(f"{folder / path} names weights in {outside[0]}, which is not in the model's folder")
    if not files.repo:
        hashes = {part: hash_file(folder / part) for part in (path, *beside)}
        files = replace(files, hashes={**files.hashes, **hashes})
    return replace(files, patterns=(*files.patterns, path, *beside)), onnx


def _read(folder: Path, path: str) -> tuple[OnnxFile, list[str]]:
    """What is known of an ONNX file, and the files beside it that hold weights."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load(folder / path, load_external_data=False).graph
        numbers, beside = Counter[str](), set[str]()
        for weight in graph.initializer:
            numbers[onnx.TensorProto.DataType.Name(weight.data_type).lower()] += prod(weight.dims)
            beside.update(entry.value for entry in weight.external_data if entry.key == "location")
    except (DecodeError, ValueError):
        raise damaged(f"{folder / path} is no ONNX file") from None
    for other in NO_WEIGHTS:
        del numbers[other]
    formats = tuple(name for name, count in numbers.most_common() if count >= LEAST * numbers.total())
    weights = {weight.name for weight in graph.initializer}  # of old files, these are inputs too
    inputs = tuple(each.name for each in graph.input if each.name not in weights)
    known = OnnxFile(path, formats, inputs, tuple(each.name for each in graph.output))
    return known, [(PurePath(path).parent / other).as_posix() for other in sorted(beside)]

"""What each backend does to a model folder, beside the rows of the peer's own package."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from models.wall.cases import BACKENDS, Case
from models.wall.folders import LENGTH, OLD, TEXTS, save_modules
from workplaces import BAR

from pipeline import InputError, config as sections
from pipeline.core import Embeddings
from pipeline.encoders import Usage, resolve
from pipeline.storage import Store, read_rows

Vector = Any
ROLES: Any = ("passages", "queries")
Rows = dict[str, list[Vector]]
"""For each role a vector for each text: word weights by word, token vectors one after the other."""
VOCABULARY = 2000


def build(case: Case, network: Path, folder: Path) -> Path:
    if case.make:
        case.make(network, folder)
    else:
        shutil.copytree(network, folder)
        if case.chain is not None:
            save_modules(folder, case.chain, names=case.names or OLD.__add__)
    case.edit(folder)
    return folder


def reference(case: Case, folder: Path, texts: list[str]) -> Rows:
    """What the peer's own package makes of some texts."""
    import sentence_transformers

    if case.output != "dense" and (folder / "sparse_linear.pt").exists():
        return dict.fromkeys(ROLES, of_m3(case, folder, texts))
    name = {"dense": "SentenceTransformer", "sparse": "SparseEncoder", "multivector": "MultiVectorEncoder"}
    peer: Any = getattr(sentence_transformers, name[case.output])(
        str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": "float32"}
    )
    if "pooling" in case.settings:
        peer[1].pooling_mode = case.settings["pooling"]
    scaled = {"normalize_embeddings": True} if case.output == "dense" else {}
    return {
        role: [
            np.asarray(row.to_dense() if row.is_sparse else row, np.float32).reshape(-1)
            for row in encode(texts, batch_size=1, convert_to_tensor=case.output != "multivector", **scaled)
        ]
        if case.output != "multivector"
        else [row.reshape(-1) for row in encode(texts, convert_to_numpy=True)]
        for role, encode in (("queries", peer.encode_query), ("passages", peer.encode_document))
    }


def of_m3(case: Case, folder: Path, texts: list[str]) -> list[Vector]:
    from FlagEmbedding import BGEM3FlagModel

    peer = BGEM3FlagModel(str(folder), use_fp16=False, devices=["cpu"])
    words = case.output == "sparse"
    given = peer.encode(
        texts, max_length=LENGTH, return_dense=False, return_sparse=words, return_colbert_vecs=not words
    )
    if not words:
        return [vectors.reshape(-1) for vectors in given["colbert_vecs"]]
    rows = np.zeros((len(texts), VOCABULARY), np.float32)
    for row, weights in zip(rows, given["lexical_weights"], strict=True):
        row[[*map(int, weights)]] = [*weights.values()]
    return list(rows)


def as_vectors(rows: Any, form: Any, count: int) -> list[Vector]:
    if not hasattr(rows, "ends"):
        return list(read_rows(Embeddings((rows,), form), 0, count))
    parts = [np.split(column, rows.ends[:-1]) for column in rows.columns]
    if len(parts) == 1:
        return [vectors.reshape(-1) for vectors in parts[0]]
    whole = np.zeros((count, VOCABULARY), np.float32)
    for row, words, weights in zip(whole, *parts, strict=True):
        row[words] = weights
    return list(whole)


def cosine(one: Vector, two: Vector) -> float:
    longest = max(len(one), len(two)) if VOCABULARY in (len(one), len(two)) else 0
    if longest:  # of word weights, by word
        one, two = (np.pad(vector, (0, longest - len(vector))) for vector in (one, two))
    if one.shape != two.shape:
        return -1
    lengths = np.linalg.norm(one) * np.linalg.norm(two)
    return float(one @ two / lengths) if lengths else float((one == two).all())


def fault(case: Case, letter: str, folder: Path, texts: list[str], expected: Rows, store: Store) -> str:
    """What a backend does to a model folder that it should not do; "" for nothing."""
    backend = BACKENDS[letter]
    given = {"backend": backend, "precision": "int16" if letter == "n" else "fp32", "output": case.output}
    refusal = case.refused if isinstance(case.refused, str) else case.refused.get(letter, "")
    lowest = 1.0
    try:
        config = sections.BACKENDS.make(**{**given, **case.settings, "name": str(folder)})
        opener = resolve(config)
        encoder = opener.open(store)
        for role in ROLES:
            rows = as_vectors(encoder.encode(texts, role, Usage(), BAR), opener.form(config), len(texts))
            lowest = min(lowest, *map(cosine, rows, expected[role]))
    except InputError as error:
        if letter in case.runs:
            return f"{backend} refuses it: {error}"
        return "" if re.search(refusal, str(error)) else f"{backend} refuses it otherwise: {error}"
    if letter not in case.runs:
        return f"{backend} runs it, with a cosine of {lowest:.6f}"
    return "" if lowest > 0.99999 else f"{backend} gives a cosine of {lowest:.6f}"


def faults(case: Case, network: Path, place: Path) -> list[str]:
    """What backends do to a case's folder that they should not do."""
    folder = build(case, network, place / case.name)
    texts = [*TEXTS, *([""] if case.empty else [])]
    expected = reference(case, folder, texts) if case.runs else {}
    case.spoil(folder)
    store = Store(place / "store")
    letters = BACKENDS if case.output == "dense" else "fsn"  # openvino has no other output
    if case.head == "ForMaskedLM":  # native is compared in tests/encoders/test_native_sparse.py
        letters = "fs"
    return [*filter(None, (fault(case, letter, folder, texts, expected, store) for letter in letters))]

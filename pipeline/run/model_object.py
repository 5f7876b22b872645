"""The benchmark of a model that is an object in this process, such as one that is being trained.

Nothing of it is kept in the cache, for nothing there could tell one state of the object from another: its
vectors and what is made of them lie in a temporary folder, as files of the backend `precomputed`, and go with
it. The collection, which does not depend on the model, is read once and cached as ever.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from pipeline.config import BACKENDS, Config, RowSettings
from pipeline.config.benchmark import INSTRUCTIONS
from pipeline.config.files import as_config
from pipeline.config.mistakes import explain
from pipeline.config.stages import IndexConfig
from pipeline.core.display import Bar, Progress, silent
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import ROLES, Float32, Texts
from pipeline.results.result import Result
from pipeline.retrievers.retriever import COLLECTION
from pipeline.run.benchmark import Benchmark, Session
from pipeline.run.writing import check_folder, write_result
from pipeline.storage import whole_files
from pipeline.storage.store import Store
from pipeline.storage.vector_shards import unit_vectors

Foreign: TypeAlias = Any
"""The object, a module of it, or what its methods return: of any library."""
AT_ONCE = 8192  # texts that the object is given at once: it makes batches of them itself
KEPT = ("normalize", "truncate_dim", "vector_precision")
"""Settings of the section `model` that shape nothing before the index: they hold for any vectors."""
METHODS = (("encode_queries", "encode_corpus"), ("encode_query", "encode_document"), ("encode", "encode"))
"""Methods for queries and for passages, of FlagEmbedding, of sentence-transformers and of others, in the
order in which they are looked for."""


def evaluate_model(
    config: Config | Mapping[str, object] | str | Path,
    model: object,
    *,
    name: str | None = None,
    output: str | Path | None = None,
    progress: Progress = silent,
) -> Result:
    """Run one benchmark with a model that is an object of this process, such as one that is being trained.

    Its vectors are computed by every call and never cached, so that no result is of an earlier state of it.
    Each of its PyTorch modules is left in the mode, training or not, in which it was.

    Args:
        config: As for `run_benchmark`, of one collection. Of the section `model`, which a dictionary may
            leave out, `normalize`, `truncate_dim` and `vector_precision` are used. Instructions and lengths
            are the object's own.
        model: Has the methods `encode_queries` and `encode_corpus`, as FlagEmbedding's models; or
            `encode_query` and `encode_document`, or `encode`, as those of sentence-transformers. Each takes a
            list of texts and returns an array or tensor [texts, dimension].
        name: Of the result, in place of the config's: `step-1000`, for example.
        output: Folder of result folders; None is the config's `output`.
        progress: Opens progress bars; none by default.

    Returns:
        The result, with what is in its folder.

    Raises:
        InputError: The config, the data or the object does not allow it.
    """
    encode_queries, encode_passages = _methods(model)
    config = config_without_model(config)
    _check(config)
    config = _changed(config, name=name or config.name)
    folder = Path(output or config.output) / config.name
    check_folder(folder)
    plain = _changed(config, model=BACKENDS.make(backend="bm25"), rerank=None, index=IndexConfig())
    kept = {name: getattr(config.model, name) for name in KEPT if hasattr(config.model, name)}
    inner: Foreign = getattr(model, "model", None)  # FlagEmbedding's objects hold their module
    owners: list[Foreign] = [each for each in (model, inner) if hasattr(each, "modules")]
    modes = [(module, module.training) for owner in owners for module in owner.modules()]
    with Session() as session, whole_files.temporary_folder() as temporary:
        reading = Benchmark(plain, session, progress)
        paths = {role: temporary / f"{role}.npy" for role in ROLES}
        texts = (reading.collection.passages, reading.collection.queries)
        try:
            for role, some, encode in zip(ROLES, texts, (encode_passages, encode_queries), strict=True):
                with progress(f"encode {role}", len(some), "texts") as bar:
                    _write_vectors(paths[role], some, encode, kept.get("normalize", True), bar)
        finally:
            for module, training in modes:
                module.training = training
        files = {role: str(path) for role, path in paths.items()}
        settings = BACKENDS.make(backend="precomputed", name=type(model).__name__, **kept, **files)
        with Store(temporary / "indexes") as store:
            read = reading.ensure(COLLECTION)  # the same files where the disk is the same
            target = store.root / read.folder.parent.name / read.folder.name
            shutil.copytree(read.folder, target, copy_function=whole_files.link)
            benchmark = Benchmark(_changed(config, model=settings), session, progress, store)
            benchmark.check_collection()
            return write_result(folder, benchmark, benchmark.run())


def config_without_model(config: Config | Mapping[str, object] | str | Path) -> Config:
    """A config whose model is an object: a dictionary may leave out the section `model`."""
    if isinstance(config, Mapping) and not config.keys() & {"model", "fuse"}:
        config = {**config, "model": {"backend": "bm25"}}  # which reads the collection and no model
    return as_config(config)


def _methods(model: Foreign) -> tuple[Callable[..., Foreign], Callable[..., Foreign]]:
    """The methods of the object that encode queries and passages."""
    for names in METHODS:
        methods = [getattr(model, name, None) for name in names]
        if all(map(callable, methods)):
            return methods[0], methods[1]  # type: ignore[return-value]
    raise InputError(
        f"an object of type {type(model).__name__} has no method that encodes texts",
        allowed="; ".join(" and ".join(dict.fromkeys(names)) for names in METHODS),
        fix="give one of these methods: it takes a list of texts, and returns a vector for each",
    )


def _check(config: Config) -> None:
    """Refuse configs that ask for what an object does not give."""
    model = config.model
    if config.suite:
        found, allowed = "a suite", "a config of one collection"
    elif model is None:
        found, allowed = "fuse", "a config with one dense retriever"
    elif isinstance(model, RowSettings) and model.output != "dense":
        found, allowed = f"model.output: {model.output}", "dense vectors"
    elif config.data.chunks:
        found, allowed = "data.chunks", "a collection whose passages are the chunks"
    elif set_here := [name for name in INSTRUCTIONS if getattr(model, name, None)]:
        found, allowed = f"model.{set_here[0]}", "an object that adds its instructions itself"
    else:
        return
    raise InputError(f"{found} in the config of a model object", allowed=allowed, fix="change the config")


def _changed(config: Config, **changes: Foreign) -> Config:
    """The config with other settings, checked again."""
    settings = {name: getattr(config, name) for name in Config.model_fields} | changes
    try:
        return Config(**settings)
    except ValidationError as error:
        raise explain(error, "the config of a model object", Config, settings) from None


def _write_vectors(
    path: Path, texts: Texts, encode: Callable[..., Foreign], normalize: bool, bar: Bar
) -> None:
    """Write the vectors of texts, float32 [texts, dimension], as a `.npy` file."""
    stored: Foreign = None
    for start in range(0, len(texts), AT_ONCE):
        chosen: list[str] = texts.texts.slice(start, AT_ONCE).to_pylist()
        vectors = _as_vectors(encode(chosen), len(chosen))
        if stored is None:
            shape = (len(texts), vectors.shape[1])
            stored = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        elif vectors.shape[1] != stored.shape[1]:
            raise _no_vectors(f"vectors of {vectors.shape[1]} dimensions after {stored.shape[1]}")
        stored[start : start + len(chosen)] = unit_vectors(vectors) if normalize else vectors
        bar.update(len(chosen))
    stored.flush()


def _as_vectors(returned: Foreign, count: int) -> Float32:
    """What a method returned, as float32 [count, dimension]."""
    if isinstance(returned, dict):  # of BGE-M3
        returned = returned.get("dense_vecs")
    rows = [returned] if hasattr(returned, "detach") else returned
    if isinstance(rows, list | tuple) and rows and all(hasattr(row, "detach") for row in rows):  # tensors
        arrays = [row.detach().float().cpu().numpy() for row in rows]
        returned = arrays[0] if rows is not returned else np.stack(arrays)
    try:
        vectors = np.asarray(returned, np.float32)
    except (TypeError, ValueError):
        raise _no_vectors(short_repr(type(returned).__name__)) from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise _no_vectors(f"an array of shape {list(vectors.shape)} for {count} texts")
    if not np.isfinite(vectors).all():
        raise _no_vectors("numbers that are infinite or not a number")
    return vectors


def _no_vectors(returned: str) -> InputError:
    return InputError(
        f"the model object returned {returned}",
        allowed="an array or tensor [texts, dimension] of finite numbers",
        fix="change the method",
    )

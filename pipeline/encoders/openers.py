"""The backends: what loads the model of a section `model` or `rerank`, and the one that `auto` selects.

That is the fastest one here that gives FlagEmbedding's vectors or scores. It is known before any key is
computed, so what `auto` makes has the keys of the selected backend. The choice depends on the machine and on
the model's files alone, and nothing is loaded for it: of the backends that compute in the precision, in the
order of their measured speed, it is the first that suits both. Where FlagEmbedding does not run a model as
its files say, it is sentence-transformers. If the selected one cannot convert the model, or its vectors
differ from fp32, the run stops and names the setting to change.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.config import BACKENDS, RERANKERS, Config, EncoderSettings, RerankSettings
from pipeline.config.model import CPU_ALONE, HttpSettings, PrecomputedSettings
from pipeline.config.rerank import HttpRerankSettings
from pipeline.config.settings import Kinds, RunsModel, Section
from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.installation import install_command, is_installed
from pipeline.encoders.opener import Opener, PairOpener, TextOpener
from pipeline.models.files import Files
from pipeline.models.finding import find_model
from pipeline.models.reranker import resolve_reranker
from pipeline.models.resolution import resolve_model

log = logging.getLogger(__name__)

TEXTS = {
    "flag": "pipeline.encoders.torch.flag",
    "sentence-transformers": "pipeline.encoders.torch.sentence_transformers",
    "native": "pipeline.encoders.native",
    "onnx": "pipeline.encoders.onnx",
    "openvino": "pipeline.encoders.openvino",
}
PAIRS = {
    "flag": "pipeline.encoders.pairs.flag_rerankers",
    "sentence-transformers": "pipeline.encoders.pairs.cross_encoders",
    "openvino": "pipeline.encoders.pairs.converted",
}
"""The modules of backends for texts, and of those for pairs of texts, which are imported when they are used.

Each has a function `load`, may have a `CONVERSION`, and for pairs has `library_scores`; see `Opener`.
"""
ON_CPU = {
    "fp32": {"native": "int16", "openvino": "fp32", "flag": "fp32"},
    "fp16": {"native": "int16", "openvino": "fp32", "flag": "fp16"},  # which a CPU computes in fp32
    "bf16": {"flag": "bf16"},
    "int16": {"native": "int16"},
    "int8": {"openvino": "int8"},
}
"""By precision the backends that `auto` may select on a CPU, the fastest first, and the precision of each.

Those of fp32 equal FlagEmbedding's vectors to a cosine of 0.99999; docs/models.md has their speeds. In bf16
OpenVINO is closer to fp32 than torch is, and so not equal to it."""
LIBRARY = "sentence-transformers"
"""The backend of models that FlagEmbedding does not run."""
NOT_FOR_PAIRS = ("native",)
"""Backends that run no reranker."""
METRICS = {"dot": "inner_product", "euclidean": "l2"}
"""The `index.metric` of vectors of any length, by the similarity that a model declares beside `cosine`."""


def resolve(
    settings: Any, find: Callable[[str, str | None, bool], Files] = find_model, cache: Path | None = None
) -> Any:
    """The `EmbeddingSource` or `ScoreSource` of a section of a backend other than `auto`; loads nothing.

    `find` finds and hashes the model's files; a cached function does so once for several sections. `cache` is
    where tokenizers are kept if the user's store cannot be written.
    """
    if isinstance(settings, PrecomputedSettings):
        from pipeline.encoders.precomputed import KINDS

        return KINDS[settings.output](settings)
    if isinstance(settings, HttpSettings | HttpRerankSettings):
        from pipeline.encoders.http.backend import EmbeddingServer, RerankServer

        return EmbeddingServer(settings) if isinstance(settings, HttpSettings) else RerankServer(settings)
    if not isinstance(settings, EncoderSettings | RerankSettings):
        raise TypeError(f"{type(settings).__name__} names no model")
    device, precision = choose_device(settings.device, settings.on_gpu), settings.precision
    if precision == "fp16" and device == "cpu":
        precision = "fp32"  # as FlagEmbedding computes it
    files = find(settings.name, settings.revision, settings.trust_remote_code)
    model: Any
    opener: type[Opener]
    kinds: Kinds[Any]
    if isinstance(settings, EncoderSettings):
        model, opener = resolve_model(settings, files, device, precision, cache), TextOpener
        modules, kinds = TEXTS, BACKENDS
    else:
        model, opener = resolve_reranker(settings, files, device, precision, cache), PairOpener
        modules, kinds = PAIRS, RERANKERS
    if place := modules.get(settings.backend):
        module = importlib.import_module(place)
        backend = module.load, *(getattr(module, name, None) for name in ("CONVERSION", "library_scores"))
    else:
        added = kinds.opener(settings.backend)
        backend = added if isinstance(added, tuple) else (added, None)
    return opener(settings, model, *backend)


def choose_device(setting: str, on_gpu: bool) -> str:
    """`cpu` or `cuda:N`; `auto` is the first GPU if there is one and the backend supports it.

    It is `cpu` if the installed PyTorch is built for the CPU, which is told without importing it.
    """
    if setting != "auto":
        return "cuda:0" if setting == "cuda" else setting
    with contextlib.suppress(metadata.PackageNotFoundError):
        on_gpu = on_gpu and not metadata.version("torch").endswith("+cpu")
    return "cuda:0" if on_gpu and machine.gpus() else "cpu"


def settle(config: Config, resolve: Callable[[Any], Any] = resolve) -> Config:
    """The config with the backends that `auto` takes, and vectors compared as models declare it.

    `resolve` gives the source of a section; see `choose`.
    """
    return config.with_models(lambda section: choose(section, config.index.metric, resolve))


def choose(settings: Section, metric: str, resolve: Callable[[Section], Any]) -> Section:
    """The settings of a section `model` or `rerank` that are used: those of one backend.

    They are without `normalize` where the model declares a similarity of vectors of any length, which the
    `index.metric` must be; a config that sets `model.normalize` decides by itself. `resolve` gives the source
    of a section.

    Raises:
        InputError: The index compares vectors in another way than the model declares; or FlagEmbedding and
            sentence-transformers both refuse the model.
    """
    if isinstance(settings, RunsModel) and settings.backend == "auto":
        settings = _fastest(settings, resolve)
    if not isinstance(settings, EncoderSettings) or settings.output != "dense":
        return settings
    if settings.source_of("normalize") == "config":
        return settings
    similarity = resolve(settings).model.similarity
    if similarity in ("", "cosine"):
        return settings
    if METRICS.get(similarity) != metric:
        raise InputError(
            f"model '{settings.name}' declares the similarity {similarity}, and index.metric is {metric}",
            allowed=METRICS.get(similarity, "models that declare cosine, dot or euclidean"),
            fix="set model.normalize, to compare its vectors in another way",
        )
    return settings.model_copy(update={"normalize": False})


def _fastest(settings: RunsModel, resolve: Callable[[RunsModel], Opener]) -> RunsModel:
    """The settings of the backend that `auto` takes: the first of the candidates that is not ruled out."""
    *faster, last = _candidates(settings, resolve)
    try:
        resolve(last)
    except InputError as error:  # what no backend runs is refused in the name of FlagEmbedding
        known = settings.model_fields_set <= set(_kinds(settings).all()[LIBRARY].model_fields)
        if known and last.backend != LIBRARY and settings.precision not in CPU_ALONE:
            library = _with_backend(settings, backend=LIBRARY)
            with contextlib.suppress(InputError):
                resolve(library)
                log.info("auto takes backend %s: %s", LIBRARY, error.found)
                return library
        raise
    for candidate in faster:
        if candidate.extra and not is_installed(candidate.extra):
            _log_missing_extra(candidate.backend, candidate.extra)
        else:
            try:
                opener = resolve(candidate)
            except InputError as error:
                log.info("auto does not take backend %s: %s", candidate.backend, error.found)
                continue
            if opener.conversion is None or opener.conversion.suits(opener.model):
                return candidate
    return last


def _candidates(settings: RunsModel, resolve: Callable[[RunsModel], Opener]) -> list[RunsModel]:
    """Settings of the backends that may be used, the fastest first.

    For another output than dense, the last is FlagEmbedding for BGE-M3 and sentence-transformers for all
    others, which FlagEmbedding does not run. Before it comes `native`, where it computes that in the
    precision: BGE-M3's outputs, and weights of words.
    """
    precision, pairs = settings.precision, isinstance(settings, RerankSettings)
    on_gpu = choose_device(settings.device, on_gpu=True) != "cpu"
    if pairs or not isinstance(settings, EncoderSettings) or settings.output == "dense":
        on_device = {"flag": precision} if on_gpu and precision not in CPU_ALONE else ON_CPU[precision]
        return [
            _with_backend(settings, backend=backend, precision=computed)
            for backend, computed in on_device.items()
            if not (pairs and backend in NOT_FOR_PAIRS)
        ]
    by_flag = _with_backend(settings, backend="flag")
    of_m3 = resolve(by_flag).model.card.has_m3_heads
    last = by_flag if of_m3 else _with_backend(settings, backend=LIBRARY)
    native_precision = ON_CPU[precision].get("native")
    if on_gpu or native_precision is None or not (of_m3 or settings.output == "sparse"):
        return [last]
    return [_with_backend(settings, backend="native", precision=native_precision), last]


def _with_backend(settings: RunsModel, **choice: str) -> RunsModel:
    """The same settings for another backend, which know what was asked for."""
    converted: RunsModel = _kinds(settings).converted(settings, **choice)
    converted._asked = settings
    return converted


def _kinds(settings: RunsModel) -> Kinds[Any]:
    return RERANKERS if isinstance(settings, RerankSettings) else BACKENDS


@functools.cache  # so that it is said once
def _log_missing_extra(backend: str, extra: str) -> None:
    log.info("auto does not take backend %s, which is not installed: %s", backend, install_command(extra))

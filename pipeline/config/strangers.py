"""Which settings are taken from a manifest without `--set`: a manifest may come from a stranger.

`UNASKED` lists the settings that only shape a computation on this machine. Every other setting is taken from
a manifest only where `--set` gives it again, among them settings that another package defines. The check is
made on benchmarks as they will run: sweeps expanded, defaults filled in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from pipeline.config import benchmark, data, model, rerank, stages, suites
from pipeline.config.settings import Section
from pipeline.core.display import as_text
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import MANIFEST

UNASKED: dict[type[Section], str] = {
    benchmark.Config: "name data model fuse index search rerank engine evaluate expected judge",
    benchmark.PartConfig: "model index search rerank",
    benchmark.FuseConfig: "method of k normalize weights tune folds",
    data.DataSettings: "source queries corpus title_separator lowercase_queries unjudged_queries "
    "missing_passages ignored chunks",
    data.ChunkSettings: "tokens overlap boundary",
    data.PooledSlice: "top of random seed",
    data.PositivesOf: "positives_of",
    data.PathSettings: "path split",
    data.SampleSettings: "split",
    data.BeirSettings: "revision subset",
    data.TableSettings: "corpus_file corpus_id corpus_text corpus_title queries_file query_id query_text "
    "judgments_file judged_query judged_passage grade",
    data.HubSettings: "revision query_column positives_column corpus_path corpus_revision corpus_split "
    "corpus_column",
    data.CatalogueSettings: "path",
    data.AirBenchSettings: "revision dataset",
    data.BelebeleSettings: "revision language corpus_language",
    data.BrightSettings: "revision domain documents",
    suites.CollectionsSettings: "collections",
    suites.SuiteSettings: "suite",
    model.ModelSettings: "backend name revision batch_size device shard_rows",
    model.RowSettings: "output normalize truncate_dim vector_precision token_precision score",
    model.EncoderSettings: "precision query_instruction passage_instruction query_max_length "
    "passage_max_length pooling",
    model.PrecomputedSettings: "passages queries passage_ids query_ids",
    model.HttpSettings: "dimensions query_instruction passage_instruction same_as max_characters",
    model.Bm25Settings: "k1 b stop_words stemmer",
    rerank.ScorerSettings: "backend name revision depth batch_size",
    rerank.RerankSettings: "precision max_length device",
    rerank.FlagRerankSettings: "query_max_length query_instruction passage_instruction",
    rerank.FlagAutoRerankSettings: "prompt",
    rerank.HttpRerankSettings: "form max_characters",
    stages.IndexConfig: "factory metric train_rows seed shards",
    stages.SearchConfig: "top_k batch_size memory_mb device rescore parameters against_exact aggregate",
    stages.EngineConfig: "kind workers devices",
    stages.EvaluateConfig: "measures cluster",
    stages.ExpectedScore: "measure value source tolerance digits",
    stages.ServerSettings: "concurrency timeout requests_per_minute tokens_per_minute",
    stages.EncodingServerSettings: "batch_tokens changed price_per_million_tokens",
    stages.JudgeSettings: "backend model prompt grades repeats price",
}
"""The settings that each class of sections declares, and that may come from a manifest."""
FILES = (
    "path", "corpus_file", "queries_file", "judgments_file", "corpus_path", "of", "suite", "name", "passages",
    "queries", "passage_ids", "query_ids",
)  # fmt: skip
"""Settings of `UNASKED` that may name files: these stay on this machine, unless the benchmark sends texts."""
FOLDERS = {"cache": "store artifacts in {}", "output": "write results to {}"}
ADDRESSES = {"url": "send texts to {}", "address": "send data and code to the cluster {}"}
EFFECTS = {
    "trust_remote_code": "run Python files that come with a model",
    "api_key_env": "send the content of the environment variable {} as a key",
    **ADDRESSES,
    **FOLDERS,
}
"""By the name of a setting that is not in `UNASKED`, what its value does."""
OTHER = "set what another package defines to {}"


def refuse_unasked(config: benchmark.Config, given: Sequence[str], where: Path) -> None:
    """Refuse a manifest's settings beyond `UNASKED`, unless they are given again.

    Args:
        config: The benchmark that would run.
        given: The dotted names of settings that the user gives; a section stands for all in it.
        where: The manifest.

    Raises:
        InputError: It names the settings, what they would do, and how to give them.
    """
    settings = list(_settings(config, ""))
    beyond = [
        (path, value, EFFECTS.get(_last(path), OTHER))
        for path, value, listed in settings
        if not listed and value not in (None, False) and not _may_be_written(path, value)
    ]
    if any(_last(path) in ADDRESSES for path, _, _ in beyond):
        folder = where.resolve().parent
        beyond += [
            (path, value, "send what is in {}")
            for path, value, listed in settings
            if listed and _last(path) in FILES and _is_outside(value, folder)
        ]
    risky = [each for each in beyond if not any(f"{each[0]}.".startswith(f"{name}.") for name in given)]
    if not risky:
        return
    effects = ", ".join(f"{effect.format(as_text(value))} ({path})" for path, value, effect in risky)
    sets = " ".join(f"--set {shlex.quote(f'{path}={as_text(value)}')}" for path, value, _ in risky)
    raise InputError(
        f"{where}: its settings would {effects}",
        allowed="such settings only where you give them again",
        fix=f"if you trust them, add {sets}",
    )


def _settings(section: Section, path: str) -> Iterator[tuple[str, object, bool]]:
    """The dotted name and value of each setting inside a section, and whether it is in `UNASKED`.

    The collections that the file of a suite lists have the name of the setting that names the file.
    """
    for name in type(section).model_fields:
        listed = any(name in UNASKED.get(kind, "").split() for kind in type(section).__mro__)
        at, value = f"{path}{name}", getattr(section, name)
        yield from _values(value, at, listed)
        if isinstance(section, suites.SuiteSettings) and name == "suite":
            for collection in section.suite_of_collections.collections.values():
                yield from ((at, inner, inside) for _, inner, inside in _settings(collection.data, ""))


def _values(value: object, path: str, listed: bool) -> Iterator[tuple[str, object, bool]]:
    """The values of one setting: those of the sections that it holds; places in a list count from 1."""
    inside: Mapping[object, object] = {}
    if isinstance(value, Mapping):
        inside = value
    elif isinstance(value, list | tuple):
        inside = dict(enumerate(value, start=1))
    if isinstance(value, Section):
        yield from _settings(value, f"{path}.")
        if not listed:
            yield path, value.model_dump(mode="json"), False
    elif any(isinstance(each, Section) for each in inside.values()):
        for key, each in inside.items():
            yield from _values(each, f"{path}.{key}", listed)
    else:
        yield path, value, listed


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _may_be_written(path: str, value: object) -> bool:
    """Whether a setting is a folder inside the working directory, or a cache that has a collection."""
    if path not in FOLDERS or not isinstance(value, str):
        return False
    leads_out = PurePath(value).is_absolute() or ".." in PurePath(value).parts
    return not leads_out or (path == "cache" and has_collection(value))


def has_collection(cache: str) -> bool:
    """Whether a folder is a cache that has a collection."""
    return any(Path(cache).glob(f"data/*/{MANIFEST}"))


def _is_outside(value: object, folder: Path) -> bool:
    """Whether a value names files that are not in a folder: paths are absolute here, ids are not."""
    paths = [
        PurePath(each) for each in (value if isinstance(value, tuple) else [value]) if isinstance(each, str)
    ]
    return any(path.is_absolute() and folder not in path.parents for path in paths)

"""What may a benchmark's YAML say, and what does each setting shape?

One frozen model per stage. Every field is made by `setting`, which demands two things of it: the stages
whose artifacts it shapes (`shapes`), and whether its own value stands in their keys (`keyed`) or what it
leads to does: for a path the content of its files, for a model's name its weights. The artifact keys are
built from this table (`keyed_settings`), so a setting cannot be added without deciding what it invalidates.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.errors import InputError

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")


def setting(default: Any, doc: str, *, shapes: str, keyed: bool = True, **limits: Any) -> Any:
    """A config field.

    Args:
        default: The value when the config is silent; `...` makes the field required.
        doc: One line for the schema and the documentation.
        shapes: The stages whose output the field changes, space-separated; "" for none.
        keyed: Whether the value itself is part of those stages' keys. False where the key holds what
            the value leads to instead (the content of a file, the identity of a model).
        **limits: Pydantic's own constraints, such as `ge=1`.
    """
    extra: dict[str, Any] = {"shapes": shapes.split(), "keyed": keyed}
    return Field(default, description=doc, json_schema_extra=extra, **limits)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class PositivesOf(_Section):
    """The corpus slice of the tutorial: the positives of the first N rows of the dataset."""

    positives_of: int = setting(..., "rows whose positives make the corpus", shapes="data", ge=1)


class DataConfig(_Section):
    """Where the collection comes from, and which part of it is used."""

    source: Literal["sample", "beir", "msmarco", "flag", "hub", "ir_datasets"] = setting(
        ..., "layout of the collection", shapes="data", keyed=False
    )
    path: str | None = setting(
        None,
        "folder of the collection, a dataset's id on the hub, or an id of ir_datasets",
        shapes="data",
        keyed=False,
    )
    revision: str | None = setting(
        None, "on the hub: branch, tag or commit of the dataset", shapes="data", keyed=False
    )
    split: str = setting("test", "which judgments or rows; not for ir_datasets", shapes="data", keyed=False)
    queries: int | None = setting(None, "keep the first N queries; null is all", shapes="data", ge=1)
    corpus: int | PositivesOf | None = setting(
        None,
        "keep N passages (all judged ones stay), or {positives_of: N}; null is all",
        shapes="data",
    )
    query_column: str = setting("query", "hub only: the column of query texts", shapes="data")
    positives_column: str = setting(
        "positive", "hub only: the column of lists of relevant texts", shapes="data"
    )
    corpus_path: str | None = setting(
        None,
        "hub only: a dataset that holds the whole corpus; null takes the positives",
        shapes="data",
        keyed=False,
    )
    corpus_revision: str | None = setting(
        None, "hub only: branch, tag or commit of that dataset", shapes="data", keyed=False
    )
    corpus_split: str = setting("train", "hub only: split of the corpus dataset", shapes="data", keyed=False)
    corpus_column: str = setting("content", "hub only: its column of passage texts", shapes="data")

    @field_validator("corpus")
    @classmethod
    def _positive(cls, value: Any) -> Any:
        if isinstance(value, int) and value < 1:
            raise ValueError("a positive number of passages, {positives_of: N} or null")
        return value

    @model_validator(mode="after")
    def _fits_source(self) -> DataConfig:
        if self.source != "sample" and self.path is None:
            raise ValueError(f"source '{self.source}' needs data.path")
        if isinstance(self.corpus, PositivesOf) and (self.source != "hub" or self.corpus_path):
            raise ValueError("{positives_of: N} only with source 'hub' and without data.corpus_path")
        return self


class ModelConfig(_Section):
    """Which encoder turns texts into vectors, and how."""

    backend: Literal["flag", "openvino", "precomputed"] = setting(
        "flag", "the library that runs the model", shapes="passages queries"
    )
    name: str = setting(
        "", "hub id, local folder, or a bundled alias", shapes="passages queries", keyed=False
    )
    revision: str | None = setting(
        None, "hub only: branch, tag or commit of the model", shapes="passages queries", keyed=False
    )
    pooling: Literal["cls", "mean"] | None = setting(
        None, "null takes what the model itself declares", shapes="passages queries", keyed=False
    )
    normalize: bool = setting(True, "scale every vector to length 1", shapes="passages queries")
    precision: Literal["fp32", "fp16", "bf16"] = setting(
        "fp32",
        "number format the model computes in; fp16 is fp32 on a CPU",
        shapes="passages queries",
        keyed=False,
    )
    query_instruction: str | None = setting(
        None, "put before each query; null takes the model's own, '' is none", shapes="queries", keyed=False
    )
    passage_instruction: str | None = setting(
        None, "put before each passage; null takes the model's own", shapes="passages", keyed=False
    )
    query_max_length: int = setting(512, "tokens kept of a query", shapes="queries", keyed=False, ge=3)
    passage_max_length: int = setting(512, "tokens kept of a passage", shapes="passages", keyed=False, ge=3)
    batch_size: int | None = setting(
        None, "texts per batch; null lets the encoder choose by tokens", shapes="", ge=1
    )
    device: str = setting("auto", "auto, cpu, cuda or cuda:N", shapes="", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    shard_rows: int = setting(
        16384, "passages per stored shard: what an interrupted run loses at most", shapes="", ge=1
    )
    trust_remote_code: bool = setting(
        False, "run the Python files that come with the model", shapes="passages queries"
    )
    passages: str | None = setting(
        None, "precomputed only: .npy [passages, d], in corpus order", shapes="passages", keyed=False
    )
    queries: str | None = setting(
        None, "precomputed only: .npy [queries, d], in query order", shapes="queries", keyed=False
    )

    @model_validator(mode="after")
    def _has_name(self) -> ModelConfig:
        if self.backend != "precomputed" and not self.name:
            raise ValueError(f"backend '{self.backend}' needs model.name")
        return self


class IndexConfig(_Section):
    """How the passages' vectors are indexed."""

    factory: str = setting("Flat", "a faiss index_factory string", shapes="index")
    metric: Literal["inner_product"] = setting("inner_product", "what a score is", shapes="index")


class SearchConfig(_Section):
    """How the index is searched."""

    top_k: int = setting(1000, "passages kept for each query", shapes="search", ge=1)
    batch_size: int = setting(256, "queries searched at once", shapes="", ge=1)


class EvaluateConfig(_Section):
    """How the ranking is scored."""

    measures: tuple[str, ...] = setting(
        ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10"),
        "names as in docs/measures.md",
        shapes="evaluate",
        keyed=False,
        min_length=1,
        strict=False,
    )
    ignore_identical_ids: bool = setting(
        False, "drop passages whose id is the query's own", shapes="evaluate"
    )


class Config(_Section):
    """One benchmark, as its YAML file says."""

    name: str = setting(..., "names the result folder", shapes="")
    data: DataConfig = setting(..., "the collection", shapes="")
    model: ModelConfig = setting(..., "the encoder", shapes="")
    index: IndexConfig = setting(IndexConfig(), "the index", shapes="")
    search: SearchConfig = setting(SearchConfig(), "the search", shapes="")
    evaluate: EvaluateConfig = setting(EvaluateConfig(), "the measures", shapes="")
    cache: str = setting("indexes", "where artifacts are kept, relative to the working directory", shapes="")
    output: str = setting(
        "results", "where results are written, relative to the working directory", shapes=""
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", value) or value.strip(".") == "":
            raise ValueError("letters, digits, '.', '_' and '-', and not only dots")
        return value


def keyed_settings(section: BaseModel, stage: str) -> dict[str, Any]:
    """The settings of one section whose own value is part of `stage`'s key, as plain JSON values."""
    chosen = {}
    for name, field in type(section).model_fields.items():
        extra = typing.cast("dict[str, Any]", field.json_schema_extra)
        if extra["keyed"] and stage in extra["shapes"]:
            value = getattr(section, name)
            chosen[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return chosen


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a benchmark's YAML file.

    Args:
        path: The file. Relative paths inside it are taken from its folder.
        overrides: `key.path=value` strings, as given to `--set`; values are YAML.

    Raises:
        InputError: The file cannot be read, is not YAML, or says something that is not allowed.
    """
    path = Path(path)
    raw = _read_yaml(path)
    for override in overrides:
        _override(raw, override)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise _explain(error, path) from None
    return _anchor(config, path.resolve().parent)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key given twice instead of keeping the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key}' stands twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        problem = error.problem or error.context or "cannot be parsed"
        raise InputError(
            f"{where}{line}: not valid YAML: {problem}",
            allowed="one 'key: value' a line, indented by spaces, each key once",
            fix="mend that line",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{where}: not valid YAML: {detail}", fix="mend the file") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise InputError(
            f"config {path}: {what}",
            allowed="a benchmark's YAML file, such as configs/quickstart.yaml",
            fix="check the path",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"config {path}: not UTF-8 text (byte {error.start})", fix="save it as UTF-8"
        ) from None
    except OSError as error:
        raise InputError(
            f"config {path}: cannot be read: {error.strerror}", fix="check its permissions"
        ) from None
    raw = _parse_yaml(text, f"config {path}")
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise InputError(
            f"config {path}: holds {'nothing' if raw is None else 'no mapping of sections'}",
            allowed=f"sections {', '.join(Config.model_fields)}",
            fix="start from configs/quickstart.yaml",
        )
    return raw


def _override(raw: dict[str, Any], text: str) -> None:
    """Apply one `key.path=value` to the raw mapping, in place."""
    keys, equals, value = text.partition("=")
    path = keys.strip().split(".")
    if not equals or not all(path):
        raise InputError(
            f"--set {text}: not of the form key.path=value", allowed="for example --set search.top_k=100"
        )
    parsed = _parse_yaml(value, f"--set {text}")
    target = raw
    for key in path[:-1]:
        inner = target.get(key)
        if inner is None:
            inner = target[key] = {}
        if not isinstance(inner, dict):
            raise InputError(
                f"--set {text}: '{key}' holds a value, not settings", fix="name a setting below a section"
            )
        target = inner
    target[path[-1]] = parsed


def _sections(model: type[BaseModel], location: Sequence[Any]) -> type[BaseModel] | None:
    """The section's model at `location` below `model`, or None where there is none."""
    for key in location:
        field = model.model_fields.get(str(key))
        if field is None:
            return None
        inner = field.annotation
        options = get_args(inner) if isinstance(inner, types.UnionType) else (inner,)
        models = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


def _explain(error: ValidationError, path: Path) -> InputError:
    """The first of pydantic's complaints, unknown keys before all others, as one sentence."""
    issues = sorted(error.errors(), key=lambda issue: issue["type"] != "extra_forbidden")
    issue = issues[0]
    location = [part for part in issue["loc"] if isinstance(part, int) or not _is_branch(part)]
    dotted = ".".join(str(part) for part in location)
    if issue["type"] == "extra_forbidden":
        section = _sections(Config, location[:-1])
        known = list(section.model_fields) if section else []
        near = difflib.get_close_matches(str(location[-1]), known, 1, cutoff=0.0)
        return InputError(
            f"config {path}: unknown key '{dotted}'",
            allowed=", ".join(known),
            fix=f"did you mean '{near[0]}'?".rstrip("?") if near else "remove it",
        )
    if issue["type"] == "missing":
        return InputError(f"config {path}: '{dotted}' is missing", fix="add it; see configs/quickstart.yaml")
    message = issue["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    found = f" is {issue['input']!r}" if not isinstance(issue["input"], Mapping) else ""
    section = _sections(Config, location[:-1])
    field = section.model_fields.get(str(location[-1])) if section and location else None
    doc = f"; it is {field.description}" if field and field.description else ""
    where = f"'{dotted}'" if dotted else "the config"
    return InputError(f"config {path}: {where}{found}{doc}", allowed=message, fix="change it")


def _is_branch(part: str) -> bool:
    """Whether a part of pydantic's location names a branch of a union instead of a key."""
    return part in ("int", "str", "bool", "PositivesOf") or part.startswith(
        ("tuple[", "literal[", "function-")
    )


def _anchor(config: Config, base: Path) -> Config:
    """The config with local paths made absolute; names that no local folder has stay hub ids or aliases."""

    def local(value: str | None, explicit: bool = False) -> str | None:
        if value is None:
            return None
        path = (base / Path(value).expanduser()).resolve()
        return str(path) if explicit or path.exists() or value.startswith((".", "/", "~")) else value

    source, where = config.data.source, config.data.path
    data = config.data.model_copy(
        update={
            "path": where
            if source == "ir_datasets"
            else local(where, explicit=source in ("msmarco", "flag")),
            "corpus_path": local(config.data.corpus_path),
        }
    )
    model = config.model.model_copy(
        update={
            "name": local(config.model.name or None) or "",
            "passages": local(config.model.passages, explicit=True),
            "queries": local(config.model.queries, explicit=True),
        }
    )
    return config.model_copy(update={"data": data, "model": model})


def json_schema() -> dict[str, Any]:
    """The config as JSON Schema, without the marks of `setting`."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key not in ("shapes", "keyed")}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    stripped: dict[str, Any] = strip(Config.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **stripped}

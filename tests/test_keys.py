"""Keys: what each field of the config, and each fact outside it, makes again, and that nothing else changes.

Changes are made from the marks and types of settings; keys.txt has those that need a certain value.
"""

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from huggingface_hub import constants
from inside import be_offline, pretend, read_once
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from shipped import write_graph
from workplaces import read_json

import pipeline
from pipeline import load_config
from pipeline.config import STAGES, Config, ManySettings, mark_of, section_of
from pipeline.run import Benchmark, Session
from pipeline.storage import Store

QUERIES_ON = {"data", "queries", "search", "evaluate"}
PASSAGES_ON = {"data", "chunks", "passages", "index", "search", "evaluate"}
VECTORS_ON = set(STAGES) - {"data", "chunks", "scores"}  # which a reranker keeps beside its ranking
SETS = {
    "ALL": VECTORS_ON | {"data", "chunks"}, "PASSAGES": PASSAGES_ON, "QUERIES": QUERIES_ON,
    "VECTORS": VECTORS_ON, "CHUNKS": VECTORS_ON - {"queries"} | {"chunks"},
    "GIVEN_PASSAGES": PASSAGES_ON - {"data"}, "GIVEN_QUERIES": QUERIES_ON - {"data"},
}  # fmt: skip
NEEDS: dict[str, set[str]] = {
    "data": set(),
    "chunks": {"data"},
    "passages": {"data", "chunks"},
    "queries": {"data"},
    "index": {"passages"},
    "search": {"data", "chunks", "index", "queries"},
    "fuse": {"data", "search"},
    "scores": set(),
    "rerank": {"data", "search", "fuse", "scores"},
    "evaluate": {"data", "search", "fuse", "rerank"},
}
FIRST, SECOND = "1" * 40, "2" * 40  # commits
Keys = dict[str, dict[str, str]]
"""The key of each stage of each config."""

TABLES = re.split("^#.*\n", Path(__file__).with_name("keys.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]
LISTED, VALUES, FACTS = ([line for line in table.splitlines() if line] for table in TABLES)
"""Configs, values of settings, and what happens to files: keys.txt says how each line reads."""
SHORT = {
    "FLAG": "{backend: flag, name: BGE}",
    "TINY": "{backend: flag, name: owner/tiny}",
    "SELF": "{backend: sentence-transformers, name: BGE}",
    "GIVEN": "passages: passages.npy, queries: queries.npy",
    "NAMED": "corpus_file: data/corpus.jsonl, queries_file: data/queries.jsonl, judgments_file: one.trec",
    "BGE": "./bge-small-en-v1.5",
}


def written(sections: str) -> str:
    """A config file."""
    for short, long in SHORT.items():
        sections = sections.replace(short, long)
    data = "" if "data: {" in sections else "data: {source: beir, path: data}\n"
    return f"name: t\n{data}" + sections.replace("; ", "\n") + "\n"


CONFIGS = {name: written(text) for name, text in (line.split(" = ") for line in LISTED)}

PARTS = {
    **dict.fromkeys(("data.path=other",), PASSAGES_ON),
    **dict.fromkeys(("data.corpus_split=test", "data.corpus_column=OTHER_1"), PASSAGES_ON),
    **dict.fromkeys(("data.revision=v1", "data.split=dev"), QUERIES_ON),
    "data.query_column='OTHER_1'": QUERIES_ON,
    "data.corpus={positives_of: 2}": PASSAGES_ON | QUERIES_ON,
}
"""What a change of the data makes again, where a part of it stays."""


class Change(NamedTuple):
    """A setting given another value, on top of a config and of another setting."""

    to: str
    base: str = "files"
    given: tuple[str, ...] = ()
    changes: bool = True

    @classmethod
    def read(cls, line: str) -> "Change":
        rest, *nothing = line.split(" changes nothing")
        rest, *given = rest.split(" with ")
        to, *base = rest.split(" on ", 1)
        return cls(to, *(base or ["files"]), tuple(given), not nothing)

    @property
    def setting(self) -> str:
        return self.to.partition("=")[0]


SUITES = {
    "subsets": ["{part}-corpus/test-0", "{part}-queries/test-0", "{part}-qrels/test-0"],
    "bright": ["documents/{part}-0", "long_documents/{part}-0", "examples/{part}-0"],
    "qa_wiki_en/AIR-Bench_24.05": ["corpus_{part}-0", "queries_{part}_dev-0"],
    "qrels-qa_wiki_en-dev/AIR-Bench_24.05": ["qrels_{part}_dev-0"],
    "belebele": ["{part}/test-0"],
}
"""Files of layouts that hold several collections; no content but their names, as none is parsed."""


def write_json(path: Path, **values: Any) -> None:
    """Change values of a JSON object."""
    before = read_json(path) if path.exists() else {}
    path.write_text(json.dumps(before | values), encoding="utf-8")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, root: Path, bge_folder: Path, m3_folder: Path) -> Path:
    """Everything the configs name; never changed."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("data", "copy", "other"):
        shutil.copytree(root / "pipeline" / "data" / "sample", folder / name)
        append(folder / name / "corpus.jsonl", b'{"_id": "x1", "text": "more than the sample has"}\n')
        shutil.copy(folder / name / "qrels" / "test.tsv", folder / name / "qrels" / "dev.tsv")
        append(folder / name / "qrels" / "dev.tsv")
        for kind in ("queries", "qrels"):  # the same folder in FlagEmbedding's layout
            shutil.copy(folder / name / "queries.jsonl", folder / name / f"test_{kind}.jsonl")
    append(folder / "other" / "corpus.jsonl", b'{"_id": "x2", "text": "more"}\n')
    for name in ("one", "two"):
        (folder / f"{name}.trec").write_text(f"q1 Q0 p1 1 1.0 {name}\n", encoding="utf-8")
    for name in ("bge-small-en-v1.5", "other-model", "masked", "reranker", "decoder", "colbert", "shipped"):
        shutil.copytree(bge_folder, folder / name)
    for name in ("model.onnx", "other.onnx"):
        write_graph(folder / "shipped" / name)
    shutil.copytree(m3_folder, folder / "bge-m3")
    flip(folder / "other-model" / "model.safetensors")
    write_json(folder / "masked" / "config.json", architectures=["BertForMaskedLM"])
    scorer = {"id2label": {"0": "LABEL_0"}}
    write_json(folder / "reranker/config.json", architectures=["BertForSequenceClassification"], **scorer)
    write_json(folder / "decoder/config.json", architectures=["GemmaForCausalLM"], **scorer)
    write_json(folder / "colbert/config_sentence_transformers.json", model_type="MultiVectorEncoder")
    positives = [["x"], ["y"], ["z"]]
    rows = {"query": ["a", "b", "c"], "OTHER_1": ["d", "e", "f"]}
    tables = {
        "rows": {**rows, "positive": positives, "also": positives[::-1]},
        "texts": {"content": ["x", "y", "z"], "OTHER_1": ["u", "v", "w"]},
    }
    for name, columns in tables.items():
        for split in ("train", "dev", "test"):
            (folder / name / "data").mkdir(parents=True, exist_ok=True)
            table = pa.table({**columns, "split": [split] * 3})
            pa.parquet.write_table(table, folder / name / "data" / f"{split}-00000-of-00001.parquet")
    shutil.copytree(folder / "texts", folder / "texts_copy")
    for layout, names in SUITES.items():
        for part in ("sw", "pony", "default", "OTHER_1"):
            for path in (folder / layout / f"{name.format(part=part)}.parquet" for name in names):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(path.relative_to(folder)), encoding="utf-8")
    for name, seed in (("passages", 1), ("queries", 2), ("other", 3)):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).random((4, 2), np.float32))
    (folder / "ids.txt").write_text("a\nb\nc\nd\n", encoding="utf-8")
    for kind, name in (("dataset", "rows"), ("dataset", "texts"), ("model", "tiny")):  # in the hub's cache
        cached = folder / "hub" / f"{kind}s--owner--{name}"
        (cached / "refs").mkdir(parents=True)
        for revision, commit in (("main", FIRST), ("v1", SECOND)):
            (cached / "refs" / revision).write_text(commit, encoding="utf-8")
            content = folder / (name if kind == "dataset" else "bge-small-en-v1.5")
            shutil.copytree(content, cached / "snapshots" / commit)
    for name, text in CONFIGS.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def unchanged(original: Path) -> Iterator[Path]:
    """Everything as it is, with models that are hashed once, and no hub but the one in its cache."""
    with pytest.MonkeyPatch.context() as patch:
        be_offline(patch)
        read_once(patch, original)
        patch.setattr(constants, "HF_HUB_CACHE", str(original / "hub"))
        yield original


@pytest.fixture(scope="module")
def known(unchanged: Path) -> Keys:
    """The keys of each config."""
    return {base: keys(unchanged, base) for base in CONFIGS}


@pytest.fixture
def workplace(unchanged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to change."""
    folder = Path(shutil.copytree(unchanged, tmp_path / "w", symlinks=True))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    return folder


def append(path: Path, content: bytes = b"\n") -> None:
    path.write_bytes((path.read_bytes() if path.exists() else b"") + content)


def flip(path: Path) -> None:
    """Change one bit of the last byte but one."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    """Exchange the second line and the third."""
    first, second, third, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, third, second, *rest]))


def keys(folder: Path, base: str, *settings: str) -> dict[str, str]:
    config = load_config(folder / f"{base}.yaml", settings)
    recipes = Benchmark(config, Session(), cache=Store(folder / "indexes")).recipes
    found: dict[str, list[str]] = {}
    for role, recipe in recipes.items():  # the same stage of several parts counts as one
        found.setdefault(role.rpartition("/")[2], []).append(recipe.key)
    return {stage: " ".join(sorted(keys)) for stage, keys in found.items()}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {stage for stage in before if before[stage] != after[stage]}


def options_of(annotation: Any) -> Iterator[Any]:
    """The types of a union, without what annotates them."""
    if isinstance(annotation, types.UnionType) or get_origin(annotation) is Union:
        for option in get_args(annotation):
            yield from options_of(option)
    elif get_origin(annotation) is Annotated:
        yield from options_of(get_args(annotation)[0])
    else:
        yield annotation


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a model that holds a value, sections opened: all kinds, and those that are an option."""
    for name, field in model.model_fields.items():
        if kinds := section_of(field)[1]:
            for settings in kinds.all().values():
                if issubclass(settings, ManySettings):
                    continue  # each of the collections is a benchmark, whose settings are those below
                yield from walk(settings, f"{prefix}{name}.")
            continue
        options = list(options_of(field.annotation))
        sections = [each for each in options if isinstance(each, type) and issubclass(each, BaseModel)]
        if set(options) - {*sections, type(None)}:
            yield prefix + name, field
        for section in sections:
            yield from walk(section, f"{prefix}{name}.")


FIELDS = dict(walk(Config))


def after(stages: set[str]) -> set[str]:
    """The stages and all that is made of them; a collection's texts are part of the data."""
    again = set(stages)
    for stage in STAGES:
        if again & NEEDS[stage]:
            again.add(stage)
    return again


def another(field: FieldInfo, value: Any) -> str | None:
    """Another value of a setting by its type; None if it has a single value."""
    listed, kinds = [], set()
    for option in options_of(field.annotation):
        if get_origin(option) is Literal:
            listed += [each for each in get_args(option) if each != value]
        else:
            kinds.add(option)
    if listed:
        return str(listed[0])
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, float):
        return str(value / 2)
    if int in kinds or float in kinds:
        return str(64 if value is None else value // 2 if value > 16 else value + 1)
    if str in kinds:
        return "cpu" if str(field.metadata).count("cuda") else "'OTHER_1'"
    return None


def derived() -> Iterator[Change]:
    """For each settings class and output a change of every setting that it has, by its type."""
    seen = set()
    for base, text in CONFIGS.items():
        config = Config.model_validate(yaml.safe_load(text))
        sections = {name: getattr(config, name) for name in type(config).model_fields}
        sections["data.chunks"] = getattr(config.data, "chunks", None)
        for name, section in sections.items():
            for key, field in getattr(type(section), "model_fields", {}).items():
                setting, output = f"{name}.{key}", getattr(section, "output", "")
                known = (type(section), key, output)
                other = section_of(field)[1] or (output and output not in mark_of(field).outputs)
                if known in seen or other or setting in SPECIAL or key in ("chunks", "of"):
                    continue
                if (to := another(field, getattr(section, key))) is not None:
                    seen.add(known)
                    yield Change(f"{setting}={to}", base)


GIVEN = [Change.read(line) for line in VALUES]
SPECIAL = {change.setting for change in GIVEN if change.changes}
CHANGES = [*GIVEN, *derived()]


def test_every_field_has_a_change() -> None:
    literals = [name for name, field in FIELDS.items() if get_origin(field.annotation) is Literal]
    single = {name for name in literals if len(get_args(FIELDS[name].annotation)) == 1}
    unchanged = set(FIELDS) - {change.setting for change in CHANGES if change.changes} - single
    assert unchanged == set(), "give each another value by a line of the second table of keys.txt"


def test_kinds_agree_on_what_a_setting_shapes() -> None:
    marks: dict[str, set[str]] = {}
    for name, field in walk(Config):
        marks.setdefault(name, set()).add(str(field.json_schema_extra))
    assert [name for name, found in marks.items() if len(found) > 1] == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.to} on {change.base}")
def test_a_setting_changes_the_keys_that_its_mark_names_and_what_is_made_of_that(
    unchanged: Path, known: Keys, change: Change
) -> None:
    before = keys(unchanged, change.base, *change.given) if change.given else known[change.base]
    found = changed(before, keys(unchanged, change.base, *change.given, change.to))
    mark = mark_of(FIELDS[change.setting])
    claimed = set(mark.shapes) & set(before)
    if not change.changes:
        assert found == set()
    elif "data" not in claimed:
        assert found == after(set(mark.shapes)) & set(before)
    elif mark.by_value and change.to not in PARTS:  # judgments depend on the whole collection
        assert found == after(claimed - {"data"}) & set(before) | {"data", "evaluate"}
    else:  # it names content, of which parts may be the same
        assert found == PARTS.get(change.to, found) & set(before)
        assert claimed <= found <= after(claimed)


def move(folder: Path) -> None:
    """A new commit on `main` of a repository."""
    (folder.parent / "hub" / folder.name / "refs" / "main").write_text(SECOND, encoding="utf-8")


def declare(path: Path) -> None:
    """Settings of sentence-transformers: a prompt of queries, and what shapes no vector."""
    settings = {"__version__": {"torch": "2"}, "prompts": {"query": "find: "}}
    path.write_text(json.dumps(settings), encoding="utf-8")


CHANGES_OF_FILES: dict[str, Callable[[Path], None]] = {
    change.__name__: change for change in (flip, swap, append, move, declare)
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_outside_the_config_changes_the_keys_of_what_it_shapes(
    workplace: Path, known: Keys, fact: str
) -> None:
    what, _, rest = fact.partition(":")
    stages, _, base = rest.partition(" on ")
    change, file = what.split(" ", 1)
    before = known[base or "files"]
    CHANGES_OF_FILES[change](workplace / file)
    expected = set().union(*(SETS[name] for name in stages.split()))
    assert changed(before, keys(workplace, base or "files")) == expected & set(before)


def test_neither_times_nor_places_nor_cores_change_a_key(workplace: Path, known: Keys) -> None:
    before, cores = known["files"], os.sched_getaffinity(0)
    for path in workplace.rglob("*"):
        os.utime(path)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert keys(workplace, "files") == before
    finally:
        os.sched_setaffinity(0, cores)


def schema_numbers() -> Iterator[tuple[str, str, str]]:
    """Module, name and stage of every schema number in the package; "" where it is none of a stage."""
    package = Path(pipeline.__file__).parent
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"^((?:JUDGED_)?SCHEMAS?)\b.*=", text, re.MULTILINE):
            found = getattr(importlib.import_module(module), name)
            yield from ((module, name, stage) for stage in (found if isinstance(found, dict) else ("",)))


@pytest.mark.parametrize(("module", "name", "stage"), list(schema_numbers()))
def test_a_schema_number_changes_the_keys_of_what_that_code_makes(
    unchanged: Path,
    known: Keys,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
    stage: str,
) -> None:
    owner = importlib.import_module(module)
    monkeypatch.setitem(getattr(owner, name), stage, 99) if stage else monkeypatch.setattr(owner, name, 99)
    shaped = set()
    for base, before in known.items():
        if stage in before or not stage:
            found = changed(before, keys(unchanged, base))
            assert not (stage and found) or found == after({stage}) & set(before)
            shaped |= found
    assert shaped or not any(stage in before for before in known.values())  # of one that is not listed


@pytest.mark.parametrize(
    ("package", "base", "expected"),
    [
        ("openvino", "files", VECTORS_ON),
        ("openvino", "tables", set()),  # the flag backend converts nothing
        ("openvino", "scored by openvino", {"rerank", "evaluate"}),
        ("numba", "packed", VECTORS_ON),
        ("transformers", "cut", set()),  # as long as it reads texts in the same way
        ("tokenizers", "cut", set()),
        ("bm25s", "bm25", VECTORS_ON),
        ("PyStemmer", "bm25", VECTORS_ON),
    ],
)
def test_the_version_of_what_made_a_file_is_in_its_key(
    unchanged: Path, known: Keys, monkeypatch: pytest.MonkeyPatch, package: str, base: str, expected: set[str]
) -> None:
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.0" if name == package else installed(name)
    )
    assert changed(known[base], keys(unchanged, base)) == expected & set(known[base])


@pytest.mark.parametrize("taken", ["native", "openvino", "flag"])
def test_what_auto_takes_has_the_keys_of_that_backend(
    unchanged: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    pretend(monkeypatch, vnni=taken == "native", lacks="openvino" if taken == "flag" else "")
    for base, section in (("the fastest", "model"), ("scored by the fastest", "rerank")):
        backend = "openvino" if (section, taken) == ("rerank", "native") else taken
        named = [f"{section}.backend={backend}"]
        assert keys(unchanged, base) == keys(unchanged, base, *named)
        assert keys(unchanged, base, f"{section}.precision=fp16") == keys(unchanged, base, *named)
    for base in ("the fastest for words", "the fastest for token vectors"):
        other = "native" if taken == "native" else "flag"
        assert keys(unchanged, base) == keys(unchanged, base, f"model.backend={other}")


def test_benchmarks_that_share_what_was_hashed_have_the_keys_they_have_alone(unchanged: Path) -> None:
    """An int8 model is calibrated on the passages of its own benchmark."""
    settings = [["model.precision=int8", f"data.path={name}"] for name in ("data", "other")]
    settings.append(["model.query_instruction='find: '"])
    session = Session()
    together = [Benchmark(load_config(unchanged / "files.yaml", given), session) for given in settings]
    for benchmark, given in zip(together, settings, strict=True):
        assert {stage: r.key for stage, r in benchmark.recipes.items()} == keys(unchanged, "files", *given)
    one, other, third = (benchmark.recipes["passages"].plain for benchmark in together)
    assert one["prepared"] != other["prepared"]
    assert one["model"]["identity"] == other["model"]["identity"] == third["model"]["identity"]
    one_files, *others = [benchmark.retriever.sources[0].model.files for benchmark in together]
    assert all(files is one_files for files in others)  # hashed once

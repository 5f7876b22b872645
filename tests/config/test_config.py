"""Configs: what is read, what is refused and how, and what each setting shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline import encoders
from pipeline.config import STAGES, Config, json_schema
from pipeline.config.files import as_config, load_config, load_configs
from pipeline.config.settings import kinds_of
from pipeline.core.errors import InputError
from pipeline.data import identify

MINIMAL = "name: t\ndata: {source: sample}\nmodel: {name: all-minilm-l6-v2}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_the_contract_s(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, MINIMAL))
    assert config.search.top_k == 1000
    assert config.index.factory == "Flat"
    assert config.model.backend == "auto"
    assert config.model.shard_rows == 16384
    assert config.evaluate.measures == ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10")
    assert (config.cache, config.output) == ("indexes", "results")


def test_the_home_folder_is_put_for_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load_config(write(tmp_path, MINIMAL + "cache: ~/i\noutput: '~'\n"), ["model.name=~/none"])
    assert (config.cache, config.output) == (f"{tmp_path}/i", str(tmp_path))
    assert config.model.name == f"{tmp_path}/none"


def test_a_default_may_be_spelled_out_where_it_has_no_use(tmp_path: Path) -> None:
    """A sweep over backends sets one for those that have a use for it."""
    model = "model: {backend: precomputed, precision: fp32, pooling: null, query_max_length: null}\n"
    data = "data: {source: sample, path: null, corpus_split: train}\n"
    config = load_config(write(tmp_path, f"name: t\n{data}{model}"))
    assert config.model.backend == "precomputed"


def test_a_path_of_set_starts_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("here/mine", "there/mine", "there/alone"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "there" / "c.yaml").write_text(
        "name: t\ndata: {source: beir, path: mine}\nmodel: {name: all-minilm-l6-v2}\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path / "here")

    def path_of(*sets: str) -> str:
        return str(load_config("../there/c.yaml", sets).model_dump()["data"]["path"])

    assert path_of() == str(tmp_path / "there/mine")
    assert (
        path_of("data.path=mine")
        == path_of("data={source: beir, path: ./mine}")
        == str(tmp_path / "here/mine")
    )
    assert path_of("data.path=alone") == str(tmp_path / "there/alone")
    assert path_of("data.path=owner/name") == "owner/name"
    with pytest.raises(InputError, match=f"neither {tmp_path}/here/no nor {tmp_path}/there/no"):
        path_of("data.path=./no")


def test_set_changes_settings_of_any_kind(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    sets = ["search.top_k=7", "evaluate.measures=[map, mrr@5]", "model.query_instruction='q: '", "name=x"]
    config = load_config(path, sets)
    assert config.search.top_k == 7
    assert config.evaluate.measures == ("map", "mrr@5")
    assert load_config(path, ["evaluate.measures=map"]).evaluate.measures == ("map",)
    assert config.model.query_instruction == "q: "
    assert config.name == "x"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("model.query_instruction=query: ", "query: "),
        ("model.query_instruction=Find: it", "Find: it"),
        ("model.revision=7", "7"),
        ("model.query_instruction={a: 1, b: 2}", None),
        ("model.query_instruction=[1]", None),
    ],
)
def test_text_that_the_shell_took_the_quotes_from_is_told_how_to_keep_them(
    tmp_path: Path, typed: str, text: str | None
) -> None:
    path = write(tmp_path, MINIMAL)
    with pytest.raises(InputError) as raised:
        load_config(path, [typed])
    setting = typed.partition("=")[0]
    corrected = f"{setting}='{text}'"
    assert (f'--set "{corrected}"' in str(raised.value)) == (text is not None)
    if text is not None:
        assert getattr(load_config(path, [corrected]).model, setting.split(".")[1]) == text


def test_merge_keys_merge_and_keys_given_twice_beside_them_are_refused(tmp_path: Path) -> None:
    sweep = "sweep:\n  - &a {name: a, search.top_k: 5}\n  - &b {<<: *a, name: b}\n  - {<<: *b, name: c%s}\n"
    made = load_configs(write(tmp_path, MINIMAL + sweep % ""))
    assert [(each.name, each.search.top_k) for each in made] == [("a", 5), ("b", 5), ("c", 5)]
    with pytest.raises(InputError, match="duplicate key 'name'"):
        load_configs(write(tmp_path, MINIMAL + sweep % ", name: d"))


def test_paths_are_relative_to_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "corpora" / "x").mkdir(parents=True)
    text = "name: t\ndata: {source: beir, path: corpora/x}\nmodel: {name: model}\n"
    config = load_config(write(tmp_path, text))
    assert config.data.path == str(tmp_path.resolve() / "corpora" / "x")
    assert config.model.name == str(tmp_path.resolve() / "model")
    hub = load_config(write(tmp_path, MINIMAL.replace("all-minilm-l6-v2", "BAAI/bge-base-en-v1.5")))
    assert hub.model.name == "BAAI/bge-base-en-v1.5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MINIMAL + "serch: {top_k: 3}\n", ["unknown key 'serch'", "Did you mean 'search'"]),
        (MINIMAL.replace("sample", "sampel"), ["'data.source'", "'sampel'", "'sample'"]),
        (MINIMAL.replace("sample}", "sample, corpus: -3}"), ["data.corpus"]),
        (MINIMAL.replace("sample}", "sample, corpus: {positive_of: 3}}"), ["data.corpus"]),
    ],
)
def test_mistakes_are_refused_in_one_message(tmp_path: Path, text: str, expected: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_config(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for part in expected:
        assert part in message


@settings(max_examples=300)
@given(text=st.text(max_size=60) | st.text("ab:{}[]\n -'\"#&*!|>%@,?0", max_size=60))
def test_any_text_loads_or_is_refused_clearly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_config(path)
    except InputError as error:
        assert str(path) in str(error)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(section=st.sampled_from(list(Config.model_fields)), value=VALUES)
def test_any_value_of_a_section_loads_or_is_refused_clearly(tmp_path: Path, section: str, value: Any) -> None:
    raw = {**yaml.safe_load(MINIMAL), section: value}
    path = tmp_path / "fuzz.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    try:
        load_config(path)
    except InputError as error:
        assert str(path) in str(error)


def walk(model: type[BaseModel], prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every field with its marks, sections opened."""
    found = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if kinds := kinds_of(field):
            for kind in kinds:
                found += walk(kinds[kind], f"{prefix}{name}.")
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            found += walk(inner, f"{prefix}{name}.")
        else:
            found.append((prefix + name, dict(field.json_schema_extra or {})))  # type: ignore[arg-type]
    return found


def test_every_setting_says_what_it_shapes() -> None:
    for name, marks in walk(Config):
        assert set(marks) == {"shapes", "by_value", "outputs"}, name
        assert set(marks["shapes"]) <= set(STAGES), name


def test_schema_describes_every_section_and_carries_no_marks() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(Config.model_fields)
    assert schema["additionalProperties"] is False
    assert "by_value" not in json.dumps(schema)
    assert all(field.description for field in Config.model_fields.values())


@pytest.mark.parametrize("source", ["{source: beir, path: data}", "{source: hub, path: data}"])
def test_a_path_that_is_missing_beside_the_config_is_not_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """As data of another project may lie there; and a model, too."""
    (tmp_path / "configs").mkdir()
    for folder in ("data/qrels", "model"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "test.jsonl"):
        (tmp_path / "data" / name).write_text("{}", encoding="utf-8")
    path = tmp_path / "configs" / "c.yaml"
    path.write_text(f"name: t\ndata: {source}\nmodel: {{backend: flag, name: model}}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = load_config("configs/c.yaml")
    with pytest.raises(InputError, match="'data'"):
        identify(config.data)
    with pytest.raises(InputError, match="'model'"):
        encoders.resolve(config.model)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "serch: {}\nsearch: {top_k: many, batch: 3}\n")
    with pytest.raises(InputError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"config {path} has 3 mistakes: (1) ")
    for part in ("unknown key 'serch'", "unknown key 'search.batch'", "'search.top_k' is 'many'"):
        assert message.count(part) == 1
    assert message.count(str(path)) == 1


def test_a_manifest_is_the_config_of_its_result(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, MINIMAL))
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"config": config.model_dump(mode="json"), "keys": {}}), encoding="utf-8")
    assert load_config(manifest, ["search.top_k=7"]) == config.model_copy(
        update={"search": config.search.model_copy(update={"top_k": 7})}
    )
    assert as_config(manifest) == as_config(config) == as_config({**config.model_dump(mode="json")})

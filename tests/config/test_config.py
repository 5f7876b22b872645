"""Configs: what is read, what is refused and how, and what a result's manifest gives."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from pipeline import InputError, encoders, load_config, load_configs
from pipeline.config import BACKENDS, Config, as_config
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
    assert f"--set \"{setting}='TEXT'\"" in str(raised.value)
    if text is not None:
        corrected = f"{setting}='{text}'"
        assert getattr(load_config(path, [corrected]).model, setting.split(".")[1]) == text


def test_merge_keys_merge_and_keys_given_twice_beside_them_are_refused(tmp_path: Path) -> None:
    sweep = "sweep:\n  - &a {name: a, search.top_k: 5}\n  - &b {<<: *a, name: b}\n  - {<<: *b, name: c%s}\n"
    made = load_configs(write(tmp_path, MINIMAL + sweep % ""))
    assert [(each.name, each.search.top_k) for each in made] == [("a", 5), ("b", 5), ("c", 5)]
    with pytest.raises(InputError, match="duplicate key 'name'"):
        load_configs(write(tmp_path, MINIMAL + sweep % ", name: d"))


def test_a_path_starts_at_the_config_file_and_not_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the data, or a model, of another project may be."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        (folder / "data").mkdir(parents=True)
        (folder / "model").mkdir()
    path = write(there, "name: t\ndata: {source: beir, path: data}\nmodel: {name: model}\n")
    monkeypatch.chdir(here)
    config = load_config(path)
    assert (config.data.path, config.model.name) == (f"{there}/data", f"{there}/model")
    assert load_config(path, ["model.name=owner/name"]).model.name == "owner/name"
    for name in ("data", "model"):
        (there / name).rmdir()
    config = load_config("../there/c.yaml")
    with pytest.raises(InputError, match="'data'"):
        identify(config.data)
    with pytest.raises(InputError, match="'model'"):
        encoders.resolve(BACKENDS.converted(config.model, backend="flag"))


def loads_or_is_refused(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_config(path)
    except InputError as error:
        assert str(path) in str(error)


@settings(max_examples=300)
@given(text=st.text(max_size=60) | st.text("ab:{}[]\n -'\"#&*!|>%@,?0", max_size=60))
def test_any_text_loads_or_is_refused_clearly(tmp_path: Path, text: str) -> None:
    loads_or_is_refused(tmp_path / "fuzz.yaml", text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(section=st.sampled_from(list(Config.model_fields)), value=VALUES)
def test_any_value_of_a_section_loads_or_is_refused_clearly(tmp_path: Path, section: str, value: Any) -> None:
    raw = {**yaml.safe_load(MINIMAL), section: value}
    loads_or_is_refused(tmp_path / "fuzz.yaml", yaml.safe_dump(raw))


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = MINIMAL.replace("sample}", "sample, corpus: {positive_of: 3}}")
    path = write(tmp_path, text + "serch: {}\nsearch: {top_k: many, batch: 3}\n")
    with pytest.raises(InputError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"config {path} has 5 mistakes: (1) ")
    for part in ("unknown key 'serch'", "unknown key 'search.batch'", "'search.top_k' is 'many'"):
        assert message.count(part) == 1
    assert "data.corpus" in message
    assert message.count(str(path)) == 1
    assert "\n" not in message


def test_a_manifest_is_the_config_of_its_result(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, MINIMAL))
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"config": config.model_dump(mode="json"), "keys": {}}), encoding="utf-8")
    assert load_config(manifest, ["search.top_k=7"]) == config.model_copy(
        update={"search": config.search.model_copy(update={"top_k": 7})}
    )
    assert as_config(manifest) == as_config(config) == as_config({**config.model_dump(mode="json")})

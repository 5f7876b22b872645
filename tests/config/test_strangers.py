"""What a manifest may set unasked, in every place and however it is written: it may be a stranger's."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import InputError, load_config, load_configs
from pipeline.config import BACKENDS, Config, Section, mark_of, refuse_unasked, setting

BM25 = {"backend": "bm25"}
LOCAL = {"backend": "flag", "name": "all-minilm-l6-v2"}
SERVED = {"backend": "http", "name": "m", "url": "http://127.0.0.1:9/v1"}
CODE = {"trust_remote_code": True}
KEYED = SERVED | {"api_key_env": "SECRET"}
BASE: dict[str, Any] = {"name": "t", "data": {"source": "sample"}, "model": BM25}
FUSED = BASE | {"model": None, "fuse": {"of": [{"model": BM25}, {"model": BM25}]}}
JUDGE = {"url": "http://127.0.0.1:9/v1", "model": "m"}
ASKED = {"trust_remote_code", "url", "api_key_env", "address", "cache", "output"}
"""Settings that must be given again."""

PLACES: dict[str, tuple[dict[str, Any], str, object]] = {
    "a model's code": (BASE | {"model": LOCAL}, "model.trust_remote_code", True),
    "a model": (BASE, "model", LOCAL | CODE),
    "a served model": (BASE, "model", SERVED),
    "a served model by default": (BASE, "model", {"backend": "http", "name": "m"}),
    "an address": (BASE | {"model": {"backend": "http", "name": "m"}}, "model.url", SERVED["url"]),
    "a variable": (BASE | {"model": {"backend": "http", "name": "m"}}, "model.api_key_env", "SECRET"),
    "a part's model": (FUSED, "fuse.of.2.model", LOCAL | CODE),
    "a part's served model": (FUSED, "fuse.of.1.model", KEYED),
    "a part's reranker": (FUSED, "fuse.of.1.rerank", SERVED),
    "parts": (FUSED, "fuse.of", [{"model": BM25}, {"model": BM25, "rerank": LOCAL | CODE}]),
    "a fusion": (BASE | {"model": None}, "fuse", {"of": [{"model": BM25}, {"model": SERVED}]}),
    "a reranker": (BASE, "rerank", KEYED),
    "a reranker's code": (BASE, "rerank", LOCAL | CODE),
    "a judge": (BASE, "judge", JUDGE),
    "a judge's key": (BASE | {"judge": JUDGE}, "judge.api_key_env", "SECRET"),
    "a cluster": (BASE, "engine", {"kind": "ray", "address": "127.0.0.1:9"}),
    "a cluster's address": (BASE | {"engine": {"kind": "ray"}}, "engine.address", "auto"),
    "the cache": (BASE, "cache", "/tmp/elsewhere"),
    "the cache above": (BASE, "cache", "../elsewhere"),
    "results at home": (BASE, "output", "~/.config"),
    "results": (BASE, "output", "here/../../there"),
    "a suite": (BASE | {"data": {"suite": "nanobeir"}}, "model", SERVED),
    "collections": (BASE | {"data": {"collections": {"a": {"source": "sample"}}}}, "rerank", SERVED),
}  # fmt: skip


def nested(path: str, value: object) -> object:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def placed(base: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """The base with the value written where it belongs."""
    whole: Any = json.loads(json.dumps(base))
    *above, last = [int(key) - 1 if key.isdecimal() else key for key in path.split(".")]
    holder = whole
    for key in above:
        holder = holder[key] if isinstance(key, int) else holder.setdefault(key, {})
    holder[last] = value
    return whole  # type: ignore[no-any-return]


def ways(base: dict[str, Any], path: str, value: object) -> Iterator[dict[str, Any]]:
    """The same setting as a manifest can hold it."""
    yield placed(base, path, value)
    yield base | {"sweep": {path: [value]}}
    yield base | {"sweep": [{path: value}]}
    yield base | {"sweep": [{path: value}, {path: value}]}
    if not any(key.isdecimal() for key in path.split(".")):
        yield base | {"sweep": [nested(path, value)]}
        yield base | {"sweep": nested(path, [value])}


def manifest(folder: Path, content: object) -> Path:
    path = folder / "manifest.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("place", PLACES)
def test_it_is_refused_in_every_place_and_however_it_is_written(place: str, tmp_path: Path) -> None:
    base, path, value = PLACES[place]
    for written in ways(base, path, value):
        for content in ({"config": written}, written, {"config": written} | written):
            with pytest.raises(InputError, match=r"manifest.json: its settings would .*add --set"):
                load_configs(manifest(tmp_path, content))


@pytest.mark.parametrize("place", PLACES)
def test_what_is_given_again_as_the_message_says_is_taken(place: str, tmp_path: Path) -> None:
    path = manifest(tmp_path, {"config": placed(*PLACES[place])})
    with pytest.raises(InputError) as refused:
        load_config(path)
    words = shlex.split(str(refused.value).partition("add ")[2].removesuffix("."))
    given = [word for word in words if word != "--set"]
    assert load_config(path, given).model_dump() == load_config(path, given[::-1]).model_dump()
    for left in range(len(given)):
        with pytest.raises(InputError, match="its settings would"):
            load_config(path, given[:left] + given[left + 1 :])


def classes(base: type[Section] = Section) -> Iterator[type[Section]]:
    for section in base.__subclasses__():
        if section.__module__.startswith("pipeline."):
            yield section
            yield from classes(section)


def test_the_settings_that_reach_beyond_this_machine_are_marked() -> None:
    marked = {
        name for section in classes() for name, field in section.model_fields.items() if mark_of(field).effect
    }
    assert marked == ASKED


def test_what_another_package_defines_is_asked_for(tmp_path: Path) -> None:
    class Other(BACKENDS.all()["bm25"]):  # type: ignore[misc]
        command: str = setting("rm", "what it runs", shapes="")
        inner: Section | None = setting(None, "more", shapes="")

    config = load_config(manifest(tmp_path, BASE)).model_copy(update={"model": Other(backend="bm25")})
    with pytest.raises(InputError, match=r"model\.command"):
        refuse_unasked(config, [], tmp_path)
    refuse_unasked(config, ["model"], tmp_path)


def test_files_elsewhere_are_not_sent_unasked(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    own, other = tmp_path / "in/own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
    for data, refused in ((own, False), (other, True)):
        config = BASE | {"model": SERVED, "data": {"source": "beir", "path": str(data)}}
        path = manifest(tmp_path / "in", {"config": config})
        sets = [f"model.url={SERVED['url']}"]
        if refused:
            with pytest.raises(InputError, match=rf"send what is in {other} \(data.path\)"):
                load_config(path, sets)
            sets.append(f"data.path={other}")
        assert isinstance(load_config(path, sets), Config)
        assert load_config(manifest(tmp_path / "in", config | {"model": BM25})).name == "t"


def test_a_shell_does_not_run_what_the_message_says_to_add(tmp_path: Path) -> None:
    served = SERVED | {"url": "http://a/$(touch x);`y`"}
    with pytest.raises(InputError, match=r"add --set 'model\.url=http://a/"):
        load_config(manifest(tmp_path, BASE | {"model": served}))


def test_a_harmless_manifest_is_taken(tmp_path: Path) -> None:
    harmless = BASE | {"cache": "indexes", "output": "results/mine", "expected": [
        {"measure": "ndcg@10", "value": 0.5, "source": "https://example.org"}
    ], "engine": {"kind": "ray"}, "model": LOCAL | {"trust_remote_code": False}}  # fmt: skip
    assert load_config(manifest(tmp_path, {"config": harmless})).name == "t"


def test_a_cache_that_is_here_already_is_taken(tmp_path: Path) -> None:
    cache, result = tmp_path / "indexes", tmp_path / "results" / "t"
    result.mkdir(parents=True)
    path = manifest(result, BASE | {"cache": str(cache)})
    with pytest.raises(InputError, match="store artifacts in"):
        load_config(path)
    (cache / "data" / ("0" * 64)).mkdir(parents=True)
    manifest(cache / "data" / ("0" * 64), {})
    assert load_config(path).cache == str(cache)


@pytest.mark.parametrize("place", ["evil/cache", "./evil/../evil/cache", "linked", "indexes/../linked"])
@pytest.mark.parametrize("suite", [False, True])
def test_a_cache_that_comes_with_a_manifest_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, suite: bool
) -> None:
    """What it holds would be said to be in the cache, and its ranking would be one's own."""
    monkeypatch.chdir(tmp_path)
    result = tmp_path / "evil" / "t" if suite else tmp_path / "evil"
    entry = tmp_path / "evil" / "cache" / "data" / ("0" * 64)
    for folder in (result, entry, tmp_path / "indexes"):
        folder.mkdir(parents=True, exist_ok=True)
    if suite:
        (tmp_path / "evil" / "suite.json").write_text("{}")
    manifest(entry, {})
    (tmp_path / "linked").symlink_to(tmp_path / "evil" / "cache")
    for cache in (place, os.path.abspath(place)):
        path = manifest(result, BASE | {"cache": cache})
        with pytest.raises(InputError, match="store artifacts in"):
            load_config(path)
        assert load_config(path, [f"cache={place}"]).cache == place


def test_an_output_behind_a_link_is_where_the_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "results").mkdir(parents=True)
    (here / "out").symlink_to(tmp_path)
    (here / "in").symlink_to(here / "results")
    monkeypatch.chdir(here)
    with pytest.raises(InputError, match="write results to out/y"):
        load_config(manifest(here, BASE | {"output": "out/y"}))
    assert load_config(manifest(here, BASE | {"output": "in/y"})).output == "in/y"


def test_a_config_of_one_s_own_may_set_all(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(BASE | {"model": KEYED, "cache": "/elsewhere"}), encoding="utf-8")
    assert load_config(path).cache == "/elsewhere"

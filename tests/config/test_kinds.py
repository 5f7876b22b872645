"""Kinds of a section: what each may say, how a kind is added, and what the schema offers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import ValidationError

from pipeline.config import BACKENDS, DATA, RERANKERS, Config, json_schema, keyed_settings
from pipeline.config.files import load_config
from pipeline.config.settings import Kinds, Section, setting
from pipeline.core.errors import InputError


class Shape(Section):
    """Any shape."""

    shape: str = setting(..., "which one", shapes="index")
    name: str = setting("", "its name", shapes="")


class Circle(Shape):
    """A circle."""

    shape: Literal["circle"] = Shape.narrowed("shape", "circle")
    radius: float = setting(1.0, "its radius", shapes="index", ge=0)


class Square(Shape):
    """A square."""

    shape: Literal["square"] = Shape.narrowed("shape", "square")
    side: float = setting(..., "its side", shapes="index")


def kinds() -> Kinds[Shape]:
    return Kinds(Shape, "shape", {"circle": Circle, "square": Square}, default="circle")


SHAPES = kinds()


class Drawing(Section):
    """A section with kinds in it."""

    of: Annotated[Shape, SHAPES] = setting(..., "the shape", shapes="")


def test_the_kind_is_the_one_named_or_the_default() -> None:
    assert SHAPES.make() == Circle()
    assert SHAPES.make(shape="square", side=2.0) == Square(side=2.0)
    assert Drawing.model_validate({"of": {"radius": 3}}).of == Circle(radius=3)
    assert Drawing(of=Square(side=1.0)).of == Square(side=1.0)


def test_a_default_of_another_kind_is_dropped_and_nothing_that_only_equals_it() -> None:
    assert SHAPES.make(shape="square", side=2.0, radius=1.0) == Square(side=2.0)
    assert SHAPES.make(side=None) == Circle()  # required there: null is what says nothing
    for radius in (1, True, 2.0, None):
        with pytest.raises(ValidationError):
            SHAPES.make(shape="square", side=2.0, radius=radius)


def test_the_schema_of_a_config_has_every_kind() -> None:
    schema = json_schema()
    for section, kinds in (("data", DATA), ("model", BACKENDS), ("rerank", RERANKERS)):
        field = schema["properties"][section]
        options = field.get("anyOf", [field])
        assert options[1:] == ([] if section == "data" else [{"type": "null"}])
        references = [each["$ref"] for each in options[0]["oneOf"]]
        assert len(references) == len(list(kinds))
        for name, reference in zip(kinds, references, strict=True):
            found = schema["$defs"][reference.rpartition("/")[2]]
            assert set(found["properties"]) == set(kinds[name].model_fields)
            unnamed = (kinds.default, "collections", "suite")
            assert (kinds.field in found.get("required", [])) == (name not in unnamed)


def test_every_kind_has_the_name_it_is_registered_under() -> None:
    for kinds in (DATA, BACKENDS, RERANKERS):
        assert [kinds[name].model_fields[kinds.field].default for name in kinds] == list(kinds)


def settings(**given: Any) -> Any:
    return BACKENDS.make(backend="flag", name="x", **given)


def test_a_setting_of_another_output_is_refused_and_its_default_ignored() -> None:
    assert settings(output="sparse", pooling=None, normalize=True).output == "sparse"
    for given in ({"pooling": "cls"}, {"normalize": False}, {"score": "sum"}, {"truncate_dim": 8}):
        with pytest.raises(ValidationError, match="it belongs to"):
            settings(output="sparse", **given)
    with pytest.raises(ValidationError, match="it belongs to multivector"):
        settings(token_precision="fp16")


def test_a_written_config_has_the_settings_of_its_output() -> None:
    sparse, dense = settings(output="sparse").model_dump(), settings().model_dump()
    assert set(dense) - set(sparse) == {"normalize", "truncate_dim", "vector_precision", "pooling"}
    assert keyed_settings(settings(output="sparse"), "index") == {}
    assert set(keyed_settings(settings(), "index")) == {"normalize", "vector_precision"}


def test_token_vectors_have_smaller_shards() -> None:
    assert settings().shard_rows == 16384
    assert settings(output="multivector").shard_rows == 2048
    assert settings(output="multivector", shard_rows=10).shard_rows == 10


def test_reading_a_config_imports_no_heavy_library(root: Path) -> None:
    code = (
        "import sys; from pipeline import load_config\n"
        f"load_config({str(root / 'configs' / 'quickstart.yaml')!r})\n"
        "heavy = {'torch', 'openvino', 'numba', 'transformers', 'tokenizers', 'pyarrow', 'datasets'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_resolved_config_can_be_read_again(root: Path) -> None:
    for path in sorted((root / "configs").glob("quickstart.yaml")):
        config = load_config(path)
        assert Config.model_validate_json(config.model_dump_json()) == config
        assert Config.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config


def test_a_message_names_the_kind_s_own_settings(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("name: t\ndata: {source: sample, spilt: dev}\nmodel: {name: x}\n", encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_config(path)
    message = str(refused.value)
    assert "unknown key 'data.spilt'" in message
    assert "Allowed: source, queries, corpus, title_separator, lowercase_queries, " in message
    assert "chunks, split. Did" in message

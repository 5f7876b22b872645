"""Kinds of a section: what each may say, and what the schema offers."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.config import BACKENDS, DATA, RERANKERS, Config, file_schema, keyed_settings


def settings(**given: Any) -> Any:
    return BACKENDS.make(backend="flag", name="x", **given)


def test_a_default_of_another_kind_is_dropped_and_nothing_that_only_equals_it() -> None:
    """As in a sweep over backends, which sets it for those that have it."""
    given = {"normalize": True, "pooling": None, "shard_rows": 16384, "passages": None}
    assert BACKENDS.make(backend="bm25", **given) == BACKENDS.make(backend="bm25")
    assert BACKENDS.make(name="x") == BACKENDS.make(backend="auto", name="x")
    for other in ({"normalize": 1}, {"normalize": None}, {"shard_rows": 16384.0}):
        with pytest.raises(ValidationError):
            BACKENDS.make(backend="bm25", **other)


def test_the_schema_of_a_config_has_every_section_and_kind() -> None:
    schema: Any = file_schema()
    assert set(schema["properties"]) == {*Config.model_fields, "sweep"}
    assert schema["additionalProperties"] is False
    assert "by_value" not in json.dumps(schema)
    assert all(field.description for field in Config.model_fields.values())
    for section, kinds in (("data", DATA), ("model", BACKENDS), ("rerank", RERANKERS)):
        classes = kinds.all()
        assert [kind.model_fields[kinds.field].default for kind in classes.values()] == list(classes)
        field = schema["properties"][section]
        options = field.get("anyOf", [field])
        assert options[1:] == ([] if section == "data" else [{"type": "null"}])
        references = [each["$ref"] for each in options[0]["oneOf"]]
        assert len(references) == len(classes)
        for name, reference in zip(classes, references, strict=True):
            found = schema["$defs"][reference.rpartition("/")[2]]
            assert set(found["properties"]) == set(classes[name].model_fields)
            unnamed = (kinds.default, "collections", "suite")
            assert (kinds.field in found.get("required", [])) == (name not in unnamed)


def test_a_setting_of_another_output_is_refused_and_its_default_ignored() -> None:
    assert settings(output="sparse", pooling=None, normalize=True).output == "sparse"
    for given in ({"pooling": "cls"}, {"normalize": False}, {"score": "sum"}, {"truncate_dim": 8}):
        with pytest.raises(ValidationError, match="it belongs to"):
            settings(output="sparse", **given)
    with pytest.raises(ValidationError, match="it belongs to multivector"):
        settings(token_precision="fp16")


def test_a_written_config_has_the_settings_and_the_defaults_of_its_output() -> None:
    sparse, dense = settings(output="sparse").model_dump(), settings().model_dump()
    assert set(dense) - set(sparse) == {"normalize", "truncate_dim", "vector_precision", "pooling"}
    assert keyed_settings(settings(output="sparse"), "index") == {}
    assert set(keyed_settings(settings(), "index")) == {"normalize", "vector_precision"}
    assert settings().shard_rows == 16384
    assert settings(output="multivector").shard_rows == 2048
    assert settings(output="multivector", shard_rows=10).shard_rows == 10

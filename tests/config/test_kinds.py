"""Kinds of a section: what each may say, how a kind is added, and what the schema offers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import ValidationError

from pipeline.config import BACKENDS, DATA, RERANKERS, Config, json_schema
from pipeline.config.files import load_config
from pipeline.config.kinds import Kinds, Variant
from pipeline.config.settings import Section, setting
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


class Triangle(Shape):
    """A kind from elsewhere."""

    shape: Literal["triangle"] = Shape.narrowed("shape", "triangle")
    height: int = setting(3, "its height", shapes="index")


class Wheel(Shape):
    """A variant of a circle."""

    shape: Literal["circle"] = Shape.narrowed("shape", "circle")
    use: Literal["wheel"] = setting("wheel", "what it is for", shapes="index")
    spokes: int = setting(8, "in it", shapes="index")


def kinds() -> Kinds[Shape]:
    return Kinds(Shape, "shape", {"circle": Circle, "square": f"{__name__}:Square"}, default="circle")


SHAPES = kinds()


class Drawing(Section):
    """A section with kinds in it."""

    of: Annotated[Shape, SHAPES] = setting(..., "the shape", shapes="")


def test_the_kind_is_the_one_named_or_the_default() -> None:
    assert SHAPES.make() == Circle()
    assert SHAPES.make(shape="square", side=2.0) == Square(side=2.0)
    assert Drawing.model_validate({"of": {"radius": 3}}).of == Circle(radius=3)
    assert Drawing(of=Square(side=1.0)).of == Square(side=1.0)


def test_a_value_is_written_as_the_kind_it_is_and_read_again() -> None:
    drawing = Drawing(of=Square(side=2.0, name="s"))
    assert drawing.model_dump() == {"of": {"shape": "square", "name": "s", "side": 2.0}}
    assert Drawing.model_validate_json(drawing.model_dump_json()) == drawing


@pytest.mark.parametrize(
    ("given", "location"),
    [
        ({"radius": -1}, ("of", "circle", "radius")),
        ({"shape": "square", "side": "x"}, ("of", "square", "side")),
        ({"shape": "square"}, ("of", "square", "side")),
        ({"shape": "square", "side": 1.0, "radius": 2.0}, ("of", "square", "radius")),
        ({"shape": "cube"}, ("of",)),
        ({"shape": [1]}, ("of",)),
        ({"shape": None}, ("of",)),
        (5, ("of",)),
    ],
)
def test_an_error_says_where_it_is(given: Any, location: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        Drawing.model_validate({"of": given})
    assert [each["loc"] for each in refused.value.errors()] == [location]


def test_a_default_of_another_kind_is_dropped_and_nothing_that_only_equals_it() -> None:
    assert SHAPES.make(shape="square", side=2.0, radius=1.0) == Square(side=2.0)
    assert SHAPES.make(side=None) == Circle()  # required there: null is what says nothing
    for radius in (1, True, 2.0, None):
        with pytest.raises(ValidationError):
            SHAPES.make(shape="square", side=2.0, radius=radius)


def test_a_kind_from_elsewhere_is_registered_by_one_line() -> None:
    shapes = kinds()
    assert shapes.make() == Circle()  # a union was made before
    shapes.register("triangle", Triangle)
    assert shapes.make(shape="triangle", height=4) == Triangle(height=4)
    assert list(shapes) == ["circle", "square", "triangle"]
    assert shapes.having("height") == ["triangle"]
    with pytest.raises(ValidationError):
        SHAPES.make(shape="triangle")


def test_a_variant_is_chosen_by_a_second_setting() -> None:
    classes = {"circle": Circle, "square": Square, "circle wheel": Wheel}
    shapes = Kinds(Shape, "shape", classes, default="circle", variant=Variant("use", "sign"))
    assert shapes.make(use="wheel", spokes=3) == Wheel(spokes=3)
    assert shapes.make(use="wheel", radius=1.0) == Wheel()  # a default of another kind is dropped
    assert shapes.names == ["circle", "square"]
    for wrong in (
        {"use": "wheel", "radius": 2.0},
        {"spokes": 3},
        {"shape": "square", "side": 1.0, "use": "wheel"},
    ):
        with pytest.raises(ValidationError):
            shapes.make(**wrong)


def test_the_schema_offers_what_fits_and_demands_the_name_of_all_but_the_default() -> None:
    schema = Drawing.model_json_schema()
    union = schema["properties"]["of"]
    assert union["discriminator"]["propertyName"] == "shape"
    assert len(union["oneOf"]) == 2
    circle, square = schema["$defs"]["Circle"], schema["$defs"]["Square"]
    assert "required" not in circle
    assert square["required"] == ["shape", "side"]
    assert set(square["properties"]) == {"shape", "name", "side"}
    assert square["additionalProperties"] is False


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
            named = [name for name in kinds.choosing if name in found.get("required", [])]
            kind, *variant = name.split()
            unnamed = (kinds.default, "collections", "suite")
            assert named == [kinds.field] * (kind not in unnamed) + ["output"] * len(variant)


def test_every_kind_has_the_name_it_is_registered_under() -> None:
    for kinds in (DATA, BACKENDS, RERANKERS):
        assert [kinds.chosen(kinds.defaults(kinds[name])) for name in kinds] == list(kinds)


TOY = '''
from typing import Literal
from pipeline.config import DenseEncoderSettings, setting
class ToySettings(DenseEncoderSettings):
    """A backend from elsewhere."""
    backend: Literal["toy"] = DenseEncoderSettings.narrowed("backend", "toy")
    colour: str = setting("red", "a setting of its own", shapes="passages queries")
'''


def test_a_config_takes_a_backend_that_was_registered(tmp_path: Path) -> None:
    """In a process of its own: the registry is the whole process's."""
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    (tmp_path / "c.yaml").write_text(
        "name: t\ndata: {source: sample}\nmodel: {backend: toy, name: x, colour: blue}\n", encoding="utf-8"
    )
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pipeline import load_config\n"
        "from pipeline.config import BACKENDS, keyed_settings\n"
        "BACKENDS.register('toy', 'toy:ToySettings')\n"
        "model = load_config('c.yaml').model\n"
        "print(type(model).__name__, keyed_settings(model, 'queries')['colour'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "ToySettings blue\n"


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
    assert "Allowed: source, queries, corpus, missing_passages, ignored, chunks, split. Did" in message

"""The models that the compiled engine computes."""

from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from pipeline.encoders.native import TYPES
from pipeline.native.architectures import ARCHITECTURES


def test_the_types_that_are_known_are_those_that_are_taken_apart() -> None:
    taken = {name.rpartition(".")[2] for name in ARCHITECTURES}
    assert {MODEL_MAPPING_NAMES[kind] for kind in TYPES} == taken

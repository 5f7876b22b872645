"""A backend's rows are compared with those of plain transformers, the first time that it runs a model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline import InputError
from pipeline.storage import Store


@pytest.fixture
def other_attention() -> Iterator[pytest.MonkeyPatch]:
    """Attention of torch that is too sharp; `undo` mends it."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def sharper(query: Any, *rest: Any, **settings: Any) -> Any:
        return attend(9 * query, *rest, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", sharper)
        yield patch


@pytest.mark.usefixtures("own_models")
@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_other_rows_are_refused_and_right_ones_compared_once(
    backend: str, bge_folder: Path, tmp_path: Path, opened: Callable[..., Any],
    other_attention: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    store, sharper = Store(tmp_path), torch.nn.functional.scaled_dot_product_attention
    with pytest.raises(InputError, match=rf"backend {backend} does not run model .* as transformers"):
        opened(store, name=bge_folder, backend=backend)
    other_attention.undo()
    opened(store, name=bge_folder, backend=backend)
    other_attention.setattr(torch.nn.functional, "scaled_dot_product_attention", sharper)
    opened(store, name=bge_folder, backend=backend)

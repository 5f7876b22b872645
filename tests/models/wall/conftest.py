"""Networks of the wall, made once, and the conversion of models in this process."""

import gc
import io
import logging
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from inside import convert_by
from models.wall.cases import Case
from models.wall.folders import save_network


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """Convert models in this process, and let FlagEmbedding collect no garbage, as it does for each model."""
    from FlagEmbedding.abc.inference import AbsEmbedder, AbsReranker
    from sentence_transformers import SentenceTransformer  # noqa: F401

    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        for kind in (AbsEmbedder, AbsReranker):
            patch.setattr(sys.modules[kind.__module__], "gc", None)
        convert_by(patch, SimpleNamespace(run=convert_here, PIPE=None, DEVNULL=None))
        yield
    gc.unfreeze()


def convert_here(command: Sequence[str], *, input: bytes, **_: object) -> SimpleNamespace:
    """Run what `pipeline.encoders.conversion` runs in another process.

    OpenVINO's converter sets the root logger's level to ERROR; the level before is restored.
    """
    level = logging.root.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", list(command[5:]))
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
        try:
            runpy.run_module(command[5], run_name="__main__")
        except Exception as error:
            said = "".join(traceback.format_exception_only(error))
            return SimpleNamespace(returncode=1, stderr=said.encode())
        finally:
            logging.root.setLevel(level)
    return SimpleNamespace(returncode=0, stderr=b"")


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """The folder of a case's network with its tokenizer, made once."""
    base = tmp_path_factory.mktemp("networks")

    def folder(case: Case) -> Path:
        path = base / f"{case.network}{case.head}"
        if not path.exists():
            path.mkdir()
            save_network(path, case.network, case.head)
        return path

    return folder

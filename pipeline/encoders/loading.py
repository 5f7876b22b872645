"""What can be wrong with a model's files, and how is it said? Guards around libraries that load weights."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.encoders.models import Model
from pipeline.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@contextlib.contextmanager
def guarded(model: Model, *loggers: str) -> Iterator[None]:
    """Load inside: the libraries keep quiet, and what is wrong with the files is said as input errors.

    Args:
        model: What is loaded.
        *loggers: Those that are not to say what is not wrong.

    Raises:
        InputError: The weights are broken, or the model has code of its own that may not run.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    quiet = [(logging.getLogger(name), logging.getLogger(name).level) for name in loggers]
    for logger, _ in quiet:
        logger.setLevel(logging.ERROR)
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise InputError(
            f"model '{model.name}' runs only with Python files of its own",
            fix="read them, then set model.trust_remote_code to true",
        ) from None
    except SafetensorError as error:
        raise InputError(
            f"the weights of model '{model.name}' cannot be read: {error}", fix="restore the model's files"
        ) from None
    finally:
        for logger, level in quiet:
            logger.setLevel(level)


def refuse_missing(model: Model, folder: Path, network: Any) -> None:
    """Refuse a model whose files lack weights: transformers fills them in at random and says nothing here.

    Only the pooler is not used. A checkpoint may put a prefix before each name, such as `bert.`, and an old
    one has `gamma` and `beta` where the network has `weight` and `bias`.

    Args:
        model: What was loaded.
        folder: Where its files are.
        network: The torch module that came of them.
    """
    from safetensors import safe_open

    stored: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                parts = name.replace(".gamma", ".weight").replace(".beta", ".bias").split(".")
                stored.update(".".join(parts[start:]) for start in range(len(parts)))
    wanted = (name for name, _ in network.named_parameters() if not name.startswith("pooler."))
    missing = [name for name in wanted if name not in stored] if stored else []
    if missing:
        raise InputError(
            f"model '{model.name}': its files lack {len(missing)} weights, such as {missing[0]}",
            fix="restore the model's files",
        )


def fast_tokenizer(model: Model, tokenizer: Any) -> Tokenizer:
    """The tokenizer behind one of transformers'.

    Raises:
        InputError: It is one of the few written in Python alone.
    """
    fast: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise InputError(
            f"model '{model.name}' has only a slow tokenizer, {type(tokenizer).__name__}",
            allowed="one that the package tokenizers runs, as tokenizer.json holds it",
            fix="convert it, or encode elsewhere and set model.backend to precomputed",
        )
    return fast

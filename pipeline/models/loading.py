"""What can be wrong with a model's files, and how is it said? Guards around libraries that load them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.models.model import Model, distrusted

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
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise distrusted(model.name) from None
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"the files of model '{model.name}' cannot be loaded: {reason}", fix="restore the model's files"
        ) from error
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise InputError(
            f"the weights of model '{model.name}' have other shapes than its config.json says",
            fix="restore the model's files",
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

    A checkpoint may put a prefix before each name, such as `bert.`, and an old one has `gamma` and `beta`
    where the network has `weight` and `bias`. What seems to be missing then may only be called otherwise,
    in a way that transformers knows: it loads the model once more, and says.

    Args:
        model: What was loaded.
        folder: Where its files are.
        network: The torch module that came of them, one of transformers'.
    """
    from safetensors import safe_open

    stored: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                parts = name.replace(".gamma", ".weight").replace(".beta", ".bias").split(".")
                stored.update(".".join(parts[start:]) for start in range(len(parts)))
    if not lacking(name for name, _ in network.named_parameters() if name not in stored):
        return
    _, loading = type(network).from_pretrained(
        folder, dtype=network.dtype, trust_remote_code=model.trust_remote_code, output_loading_info=True
    )
    if missing := lacking(loading["missing_keys"]):
        raise InputError(f"model '{model.name}': {missing}", fix="restore the model's files")


def lacking(names: Iterable[str]) -> str:
    """What to say of weights that files lack; empty if none counts: the pooler is never used here."""
    missing = sorted(name for name in names if not name.startswith("pooler."))
    return f"its files lack {counted(len(missing), 'weight')}, such as {missing[0]}" if missing else ""


def load_tokenizer(model: Model, folder: Path) -> Tokenizer:
    """A model's fast tokenizer, without importing transformers if `tokenizer.json` is there.

    Args:
        model: Whose.
        folder: Where its tokenizer's files are.

    Raises:
        InputError: See `fast_tokenizer`; or `tokenizer.json` is damaged.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # of no other class
            raise InputError(f"{path}: no tokenizer: {error}", fix="restore the model's files") from None
    from transformers import AutoTokenizer

    return fast_tokenizer(model, AutoTokenizer.from_pretrained(folder))


def fast_tokenizer(model: Model, tokenizer: Any) -> Tokenizer:
    """The tokenizer behind one of transformers'.

    Raises:
        InputError: It is one of the few written in Python alone, or transformers made it of nothing.
    """
    fast = behind(tokenizer)
    if fast is None:
        raise InputError(
            f"model '{model.name}' has only a slow tokenizer, {type(tokenizer).__name__}",
            allowed="one that the package tokenizers runs, as tokenizer.json holds it",
            fix="convert it, or encode elsewhere and set model.backend to precomputed",
        )
    if fast.get_vocab_size() <= len(tokenizer.all_special_tokens):
        raise InputError(
            f"the tokenizer of model '{model.name}' knows no word: its files are missing",
            allowed="tokenizer.json, or what it is made of, such as vocab.txt",
            fix="restore the model's files",
        )
    return fast


def behind(tokenizer: Any) -> Tokenizer | None:
    """The tokenizer that one of transformers' runs, told on which side it cuts; None if it runs none."""
    fast: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None:
        fast.enable_truncation(512, direction=tokenizer.truncation_side)
    return fast


def write_tokenizer(folder: Path, target: Path, trust_remote_code: bool) -> None:
    """Write the tokenizer that transformers makes of a model's files, as a `tokenizer.json`.

    Raises:
        ValueError: It is one of the few written in Python alone.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    if (fast := behind(tokenizer)) is None:
        raise ValueError(f"it has only a slow tokenizer, {type(tokenizer).__name__}")
    fast.save(str(target))

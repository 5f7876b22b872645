"""What asking a server needs on this machine: a package, and the key if the server wants one."""

from __future__ import annotations

import os

from pipeline.config.server import OPENAI, ServerSettings
from pipeline.core.errors import InputError
from pipeline.core.extras import require


def key_of(settings: ServerSettings, url: str, section: str) -> str | None:
    """The key from the environment; None if none is needed.

    Raises:
        InputError: It is not there, or the package `openai` is not.
    """
    require("openai", "http", f"{section}.backend: http")
    name = settings.api_key_env or ("OPENAI_API_KEY" if url == OPENAI else None)
    key = os.environ.get(name, "").strip() if name else None
    if key == "":
        raise InputError(
            f"{section}.api_key_env: the environment variable that it names is not set"
            if settings.api_key_env
            else f"{section}.url: {OPENAI} wants a key, and OPENAI_API_KEY is not set",
            fix="export it before the run; do not write the key itself into a config",
        )
    return key

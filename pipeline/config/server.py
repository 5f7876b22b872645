"""Settings of every served model: where its server is, and how it may be asked.

A key is never a setting: a config names the environment variable that holds it. What could be a key by
mistake is not repeated in messages (`repr=False`, see `pipeline.config.mistakes`).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator

from pipeline.config.settings import Section, setting

OPENAI = "https://api.openai.com/v1"
TEXTS = 32  # of a request by default: what TEI allows unless it is told otherwise


def _plain_url(value: str) -> str:
    """An http or https address without credentials, in one spelling; raises ValueError for others."""
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError:
        raise ValueError(_ADDRESS) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(_ADDRESS)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            f"{_ADDRESS}, without a user, a password, '?' or '#'. A key belongs into an environment "
            "variable, whose name is api_key_env"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


_ADDRESS = "an address that begins with http:// or https://, such as http://localhost:8000/v1"


def _variable_name(value: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,99}", value):
        raise ValueError(
            "the name of an environment variable in capitals, such as OPENAI_API_KEY, and not the key itself"
        )
    return value


ServerUrl = Annotated[str, AfterValidator(_plain_url)]
"""The address of a server, without credentials."""
VariableName = Annotated[str, AfterValidator(_variable_name)]
"""The name of an environment variable."""


class ServerSettings(Section):
    """How a server may be asked; nothing of it shapes what is answered."""

    api_key_env: VariableName | None = setting(
        None,
        "name of the environment variable that holds the key; null is OPENAI_API_KEY for OpenAI, else none",
        shapes="",
        repr=False,
    )
    concurrency: int = setting(8, "requests under way at once", shapes="", ge=1, le=1024)
    timeout: float = setting(60.0, "seconds to wait for an answer", shapes="", gt=0, strict=False)
    batch_tokens: int = setting(8192, "tokens of a request, estimated from the texts' bytes", shapes="", ge=1)
    requests_per_minute: float | None = setting(None, "most requests a minute", shapes="", gt=0, strict=False)
    tokens_per_minute: float | None = setting(None, "most tokens a minute", shapes="", gt=0, strict=False)
    changed: Literal["stop", "warn", "ignore"] = setting(
        "stop", "if the server no longer answers what is stored; ignore does not ask", shapes=""
    )
    price_per_million_tokens: float | None = setting(
        None, "price of 1,000,000 tokens, in any currency, for results", shapes="", ge=0, strict=False
    )

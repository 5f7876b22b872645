"""The hub's client of this process, for a while on another hub than the public one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants


@contextmanager
def client_of(url: str, cache: Path) -> Iterator[None]:
    """Within, the hub is at `url` and its files are kept in the folder `cache`."""
    files = url + "/{repo_id}/resolve/{revision}/{filename}"
    settings = {"ENDPOINT": url, "HUGGINGFACE_CO_URL_TEMPLATE": files, "HF_HUB_CACHE": str(cache)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**settings, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}.items():
            patch.setattr(constants, name, value)
        patch.setenv("NO_PROXY", "127.0.0.1")
        close_session()
        yield
        close_session()

"""Results to show on a page, and a browser to look at it."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from report.conftest import folders as folders, indexed as indexed, results as results


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, without a window."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()

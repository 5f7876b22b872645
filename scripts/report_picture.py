"""A picture of a report's page in Chromium, as it opens.

.venv/bin/benchmarco run configs/compare-sample.yaml
cd results
../.venv/bin/benchmarco compare sample-fp32 sample-bm25 sample-bf16 sample-instructed --html ../report.html
cd ..
.venv/bin/python scripts/report_picture.py report.html docs/report.png
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=960)
    parser.add_argument("--height", type=int, default=1130, help="of the page's upper part; 0 is all of it")
    parser.add_argument("--dark", action="store_true")
    asked = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(
            viewport={"width": asked.width, "height": asked.height or 900},
            device_scale_factor=1.5,
            color_scheme="dark" if asked.dark else "light",
        )
        tab.goto(asked.page.resolve().as_uri())
        tab.mouse.move(0, 0)
        tab.evaluate("window.scrollTo(0, 0)")
        tab.screenshot(path=asked.picture, full_page=not asked.height)
        browser.close()
    with Image.open(asked.picture) as picture:  # 256 colours make it less than half as large
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(asked.picture, optimize=True)


if __name__ == "__main__":
    main()

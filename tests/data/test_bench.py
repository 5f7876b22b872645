"""The benchmark of loading runs, and every way of loading sees every passage."""

from __future__ import annotations

import re
import subprocess
import sys


def test_bench_data_prints_its_table(root, tmp_path):
    command = [sys.executable, root / "scripts" / "bench_data.py", "--rows", "3000", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("3,000 passages")
    assert (
        len(re.findall(r"^(pipeline\.data, \w+|json\.loads into a dict)( +[\d,.]+){3}$", done.stdout, re.M))
        == 3
    )
    assert list(tmp_path.iterdir()) == []

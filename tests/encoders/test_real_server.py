"""The `http` backend against a server from a package, which was not written for these tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.api import run_benchmark


@pytest.fixture
def url(root: Path) -> Iterator[str]:
    """The address of LitServe, once it takes requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(root / "tests" / "real_server.py"), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "Application startup complete" in line:
            break
    else:
        pytest.fail("".join(said))
    yield f"http://127.0.0.1:{port}/v1"
    os.killpg(process.pid, signal.SIGKILL)
    process.stderr.close()
    process.wait()


def test_a_real_server_gives_the_vectors_and_measures_of_the_local_model(
    url: str, local_run: Path, tmp_path: Path
) -> None:
    model = {"backend": "http", "url": url, "name": "all-minilm-l6-v2", "concurrency": 2}
    run_benchmark(
        {
            "name": "real",
            "data": {"source": "sample", "queries": 30, "corpus": 200},
            "model": model,
            "search": {"top_k": 100},
            "evaluate": {"measures": ["ndcg@10", "mrr@10", "recall@100"]},
            "cache": str(tmp_path / "indexes"),
            "output": str(tmp_path / "results"),
        }
    )
    results = [tmp_path / "results" / "real", local_run / "results" / "local"]
    ours, theirs = (json.loads((each / "metrics.json").read_text(encoding="utf-8")) for each in results)
    assert ours["metrics"] == pytest.approx(theirs["metrics"], abs=1e-6)
    for role in ("passages", "queries"):
        found, expected = (
            np.concatenate(
                [np.load(path) for path in sorted((folder / "indexes" / role).glob("*/rows-*.npy"))]
            )
            for folder in (tmp_path, local_run)
        )
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)  # as the server does
        np.testing.assert_allclose(found, expected, atol=1e-6)

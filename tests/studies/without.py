"""Run commands with several copies of the package, each in a process that forks from this one.

Reads a JSON list of `{"path": folder that holds a copy, "commands": [[argument, …], …]}` on stdin, and prints
for each copy the exit code and the output of each command. Other packages are imported once.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import matplotlib.backends.backend_svg
import matplotlib.figure  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow.compute
import pyarrow.csv  # noqa: F401
import pydantic  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.cluster
import sklearn.decomposition
import sklearn.feature_extraction.text  # noqa: F401
from typer.testing import CliRunner


def run(copy: dict[str, Any]) -> list[tuple[int, str]]:
    """The exit code and the output of each command."""
    sys.path.insert(0, copy["path"])
    import pipeline
    from pipeline.cli import app

    assert Path(pipeline.__file__).is_relative_to(copy["path"])
    assert all(hasattr(pipeline, name) for name in pipeline.__all__)
    done = [CliRunner().invoke(app, command) for command in copy["commands"]]
    return [(each.exit_code, each.output + "".join(str(each.exception or ""))) for each in done]


if __name__ == "__main__":
    for copy in json.load(sys.stdin):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            print(json.dumps(run(copy)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)

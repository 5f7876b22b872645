"""A process that has imported torch, transformers and OpenVINO, from which conversions of models fork.

It reads a JSON line for each on stdin: the `arguments` of Python after `-P -m`, its `environment`, its
working `folder`, and the file for its `stderr`. It answers with the exit code. What runs is the real module
in a process of its own; only the imports, which take seconds, are made once.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from typing import Any

import openvino.frontend.pytorch.ts_decoder
import openvino.tools.ovc  # noqa: F401
import torch  # noqa: F401
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.bert.modeling_bert  # noqa: F401

import pipeline.encoders.conversion
import pipeline.models.tokenizer  # noqa: F401
from pipeline.core.installation import import_openvino


def convert(wanted: dict[str, Any]) -> None:
    """Become the conversion; does not return."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(wanted["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    module, *arguments = wanted["arguments"]
    sys.argv = [module, *arguments]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Fork a conversion for each line, and wait for it."""
    import_openvino()
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            convert(wanted)
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == "__main__":
    serve()

"""Nothing is sent: in runs that are refused every connection, attempts are counted, also native ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REFUSE = """
import os, socket

def refused(*arguments, **_):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{os.getpid()} {arguments}\\n")
    raise ConnectionRefusedError("this test refuses every connection")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refused)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refused)
"""
NAMES = "HF_|TRANSFORMERS_|DO_NOT_TRACK|DISABLE_TELEMETRY|.*_PROXY|.*_proxy"


def attempts(folder: Path, *arguments: str) -> list[str]:
    """What a command tried to connect to, in any of its processes, by any of its libraries."""
    (folder / "sitecustomize.py").write_text(REFUSE, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not re.match(NAMES, name)}
    environment = {
        **kept,
        "PYTHONPATH": str(folder),
        "ATTEMPTS": str(folder / "attempts"),
        "HOME": str(folder),
    }
    command = [sys.executable, *arguments]
    if shutil.which("strace"):
        trace = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect,sendto,sendmsg", "-o"]
        command = [*trace, str(folder / "trace"), *command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = []
    for name in ("attempts", "trace"):
        if (folder / name).exists():
            lines = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            found += [line for line in lines if name == "attempts" or "AF_INET" in line]
    return found


def test_runs_try_to_reach_nobody(root: Path, tmp_path: Path) -> None:
    quickstart = (root / "configs/quickstart.yaml").read_text(encoding="utf-8")
    for name in ("flag", "openvino"):
        changed = quickstart.replace("name: quickstart", f"name: {name}").replace("flag", name)
        (tmp_path / f"{name}.yaml").write_text(changed, encoding="utf-8")
    small = ("--set", "data.corpus=60", "--set", "data.queries=10")
    assert attempts(tmp_path, "-m", "pipeline", "run", "flag.yaml", "openvino.yaml", *small) == []
    for name in ("flag", "openvino"):
        assert (tmp_path / f"results/{name}/manifest.json").exists()


def test_an_attempt_would_be_counted(tmp_path: Path) -> None:
    script = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 1)\nexcept OSError: pass"
    assert len(attempts(tmp_path, "-c", script)) == 1


@pytest.mark.skipif(not shutil.which("strace"), reason="strace, which sees native connections, is not here")
def test_an_attempt_of_a_native_library_would_be_counted(tmp_path: Path) -> None:
    script = (
        "import ctypes, socket, struct\n"
        "place = struct.pack('=H', socket.AF_INET) + struct.pack('>H', 80) + b'\\x7f\\0\\0\\1' + bytes(8)\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.connect(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0), place, 16)\n"
    )
    assert len(attempts(tmp_path, "-c", script)) == 1

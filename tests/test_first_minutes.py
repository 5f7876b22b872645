"""What someone sees who has just found it: each answer is short and says what to do next."""

import json
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from inside import resize
from workplaces import benchmarco, process

from pipeline import write_collection
from pipeline.cli import COMMANDS, progress


def said(*arguments: str, **environment: str) -> str:
    return benchmarco(*arguments, **environment).stdout


def begun(*arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE, text=True, **options)


def test_its_name_alone_shows_what_people_do() -> None:
    lines = said().splitlines()
    assert "  benchmarco example > mine.yaml" in [line[:32] for line in lines]
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    assert {line.split()[1] for line in lines if line.startswith("  benchmarco")} <= set(COMMANDS)
    assert said("--version") == f"benchmarco {metadata.version('benchmarco')}\n"


def test_help_has_an_example_and_lists_of_commands_fit_in_a_terminal() -> None:
    for name in COMMANDS:
        assert f"Example: benchmarco {name}" in said(*name.split(), "--help")
    for of in ((), ("cache",)):
        shown = said(*of, "--help", COLUMNS="80")
        assert "..." not in shown.split("Commands:")[1]
        assert len(shown.splitlines()) <= 34


def test_letters_that_the_locale_lacks_are_escaped(tmp_path: Path) -> None:
    write_collection(tmp_path / "data", {"d1": "日本"}, {"größe": "日本"}, {"größe": {"d1": 1}})
    (tmp_path / "c.yaml").write_text("name: t\ndata: {source: beir, path: data}\nmodel: {backend: bm25}\n")
    command = ("-m", "pipeline", "data", "c.yaml", "--json")
    out = process(tmp_path, *command, PYTHONIOENCODING="ascii").stdout
    assert out.isascii()
    assert "日本" in str(json.loads(out))


def test_a_second_ctrl_c_ends_at_once() -> None:
    script = (
        "import os, signal\n"
        "from pipeline import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which nohup ignores\n"
        "@cli.guarded('; run the same command again')\n"
        "def command():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    finally: os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.app = command\n"
        "cli.main()\n"
    )
    command = begun("-c", script)
    _, told = command.communicate()
    assert "Traceback" not in told
    assert "run the same command again" not in told
    assert command.returncode == -signal.SIGINT


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("encode passages", 200, "texts") as bar:
        bar.update(50)
    assert capsys.readouterr().err == ""
    resize(monkeypatch, log_seconds=1e-9)
    with progress("encode passages", 200, "texts") as bar:
        bar.update(50)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("benchmarco: encode passages:  25%")
    assert "50/200" in line
    assert "texts/s" in line


REFUSED = """
from pipeline import InputError
from pipeline.cli import guarded
@guarded()
def command():
    print('half a table')
    raise InputError('no such file')
command()
"""
FULL = "No space left on device; "


@pytest.mark.parametrize(
    ("command", "unbuffered", "said", "code"),
    [
        (["-m", "pipeline"], "", FULL, 1),
        (["-m", "pipeline", "schema"], "1", FULL, 1),
        (["-c", REFUSED], "", "no such file", 2),
    ],
)
def test_where_stdout_takes_nothing_a_line_says_what_ended_a_command(
    command: list[str], unbuffered: str, said: str, code: int
) -> None:
    with open("/dev/full", "w") as full:
        ended = begun(*command, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
        (line,) = ended.communicate()[1].splitlines()
    assert line.startswith(f"benchmarco: {said}")
    assert ended.returncode == code


def test_a_reader_that_has_gone_is_no_matter_to_speak_of() -> None:
    for arguments in ([], ["schema"]):
        reading, writing = os.pipe()
        os.close(reading)
        command = begun("-m", "pipeline", *arguments, stdout=writing)
        os.close(writing)
        assert command.communicate()[1] == ""
        assert command.returncode == 0

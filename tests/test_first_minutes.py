"""What someone sees who has just found it: each answer is short and says what to do next."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants
from rich.console import Console
from typer.testing import CliRunner, Result

from pipeline.cli import CACHE_COMMANDS, COMMANDS, app, terminal
from pipeline.core import hub
from pipeline.core.errors import InputError
from pipeline.core.table import Column, Table
from pipeline.report.renderings import terminal_parts


def said(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, arguments)


def process(*arguments: str, folder: Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", *arguments],
        cwd=folder, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_its_name_alone_shows_what_people_do() -> None:
    done = said()
    assert done.exit_code == 0
    assert "benchmarco example > mine.yaml" in done.stdout
    assert len(done.stdout.splitlines()) <= 12
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_overview_and_the_examples_are_commands_that_exist() -> None:
    lines = [line.split() for line in said().stdout.splitlines() if line.startswith("  benchmarco")]
    assert {words[1] for words in lines} <= set(COMMANDS)
    for name in COMMANDS:
        assert f"Example: benchmarco {name}" in said(name, "--help").stdout
    for name in CACHE_COMMANDS:
        assert f"Example: benchmarco cache {name}" in said("cache", name, "--help").stdout


@pytest.mark.parametrize("of", [(), ("cache",)], ids=["all", "cache"])
def test_a_list_of_commands_fits_in_a_terminal_and_is_cut_nowhere(of: tuple[str, ...]) -> None:
    shown = said(*of, "--help", COLUMNS="80").stdout
    assert "..." not in shown.split("Commands:")[1]
    assert len(shown.splitlines()) <= 30


def test_version() -> None:
    assert said("--version").stdout == f"benchmarco {metadata.version('benchmarco')}\n"


@pytest.fixture
def silent_hub() -> Iterator[str]:
    """The address of a hub that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        close_session()


def test_a_hub_that_never_answers_is_given_up_on(silent_hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", silent_hub)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    close_session()
    with pytest.raises(InputError, match="the hub cannot be reached") as raised:
        hub.resolve_commit("someone/nothing-here", None, "model")
    assert "local copy" in str(raised.value)


def test_letters_that_the_locale_lacks_are_escaped(workplace: Path) -> None:
    queries = (workplace / "data" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    first = '{"_id": "größe", "text": "日本"}'
    (workplace / "data" / "queries.jsonl").write_text("\n".join([first, *queries]), encoding="utf-8")
    with open(workplace / "data" / "qrels" / "test.tsv", "a", encoding="utf-8") as file:
        file.write("größe\td1\t1\n")
    passages = (workplace / "data" / "corpus.jsonl").read_text(encoding="utf-8")
    more = '{"_id": "d1", "title": "", "text": "日本"}\n'
    (workplace / "data" / "corpus.jsonl").write_text(passages.rstrip("\n") + "\n" + more, encoding="utf-8")
    done = process(
        "data", "c.yaml", "--json", folder=workplace, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert out.isascii()
    assert "日本" in str(json.loads(out))


def test_ctrl_c_says_how_to_go_on_and_a_second_one_ends_at_once(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pipeline.cli import terminal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which nohup ignores\n"
        "terminal.end_at_second_interrupt()\n"
        "@lambda command: terminal.guarded(command, resumed=True)\n"
        "def command():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    finally:\n"
        "        if sys.argv[1] == 'twice': os.kill(os.getpid(), signal.SIGINT)\n"
        "command()\n"
    )
    for times, code in (("once", terminal.INTERRUPTED), ("twice", -signal.SIGINT)):
        done = subprocess.run(
            [sys.executable, "-c", script, times], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert ("run the same command again" in done.stderr) == (times == "once")


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.progress("encode passages", 200, "texts") as bar:
        bar.update(50)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(terminal, "LOG_SECONDS", 0.0)
    with terminal.progress("encode passages", 200, "texts") as bar:
        bar.update(50)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("benchmarco: encode passages:  25%")
    assert "50/200" in line
    assert "texts/s" in line


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_table_breaks_its_cells_and_cuts_none(width: int) -> None:
    cells = ("passages", "0.0000 to 0.0121", "2026-11-21 16:33", "8,841,823", "unfinished", "0123456789ab")
    names = ("stage", "95% interval", "made", "items", "state", "key")
    columns = [Column(name, "right" if name == "95% interval" else "left") for name in names]
    (table,) = terminal_parts(Table("", columns, [cells]), width)
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    lines = [line.split("│")[1:-1] for line in console.file.getvalue().splitlines() if "│" in line]
    shown = ["".join(column).replace(" ", "") for column in zip(*lines, strict=True)]
    assert shown == [cell.replace(" ", "") for cell in cells]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_works_and_keeps_its_exit_code(
    tmp_path: Path, closed: str
) -> None:
    for arguments, code in ((["schema"], 0), (["plan", "there-is-none.yaml"], 2)):
        command = [sys.executable, "-m", "pipeline", *arguments]
        assert (
            subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], cwd=tmp_path).returncode
            == code
        )


@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [([], ""), (["--help"], "1"), (["--version"], ""), (["schema"], "1")]
)
def test_a_full_disk_under_stdout_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], unbuffered: str
) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        command = process(*arguments, folder=tmp_path, stdout=full, env=environment)
        _, told = command.communicate()
    assert told.startswith("benchmarco: No space left on device; ")
    assert len(told.splitlines()) == 1
    assert command.returncode == 1


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("InputError('no such file')", terminal.BAD_INPUT, "no such file"),
        ("KeyboardInterrupt", terminal.INTERRUPTED, "interrupted"),
    ],
)
def test_what_ended_a_command_is_said_though_stdout_takes_nothing(raised: str, code: int, said: str) -> None:
    script = (
        "from pipeline.core.errors import InputError\n"
        "from pipeline.cli.terminal import guarded\n"
        "@guarded\n"
        "def command():\n"
        "    print('half a table')\n"
        f"    raise {raised}\n"
        "command()\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.stderr.startswith(f"benchmarco: {said}")
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == code


@pytest.mark.parametrize("arguments", [[], ["--help"], ["schema"]])
def test_a_reader_that_has_gone_is_no_matter_to_speak_of(tmp_path: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = process(*arguments, folder=tmp_path, stdout=writing)
    os.close(writing)
    assert command.communicate()[1] == ""
    assert command.returncode == 1

"""What a stranger's files say, printed: no character that a terminal obeys reaches it."""

import io
import json
import logging
import re
import shutil
import sys
from pathlib import Path

import pytest
from inside import escape_what_is_printed
from workplaces import benchmarco, change_json, process

from pipeline import run_benchmark

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202e\u2066\rb"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
CONFIG = {"data": {"source": "sample", "queries": 20}, "model": {"backend": "bm25"}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two result folders, whose names, models and notes hold control characters."""
    folder = tmp_path_factory.mktemp("hostile")
    places = {"cache": str(folder / "indexes"), "output": str(folder)}
    first = run_benchmark({"name": "first", **CONFIG, **places}).folder
    second = run_benchmark(
        {"name": "second", **CONFIG, "model": {"backend": "bm25", "k1": 2.0}, **places}
    ).folder
    for number, result in enumerate((first, second)):
        change_json(result / "metrics.json", name=f"{HOSTILE}{number}")
        change_json(result / "manifest.json", config__model__name=HOSTILE, config__model__revision=HOSTILE)
        change_json(result / "manifest.json", versions={HOSTILE: HOSTILE})
    (folder / "expected.csv").write_text(
        f"model,collection,measure,value\nbm25,sample{HOSTILE},ndcg@10,0.5\n", encoding="utf-8"
    )
    return folder


COMMANDS = [
    "compare first second",
    "compare first second -v",
    "compare first second --json",
    "compare first second --csv",
    "compare first second --markdown",
    "compare .",
    "gate first --baseline second",
    "pool first --output p.tsv",
    "gate first --baseline second --json",
    "gate first --baseline second --markdown",
    "export first --mteb /dev/null",
    "export first --mteb m",
    "export first second --mteb m",
    "export first --model-index",
    "report first --html h.html",
    "verify first --expected expected.csv",
    "verify first --expected expected.csv --markdown",
    "plan first/manifest.json",
    "verify first --expected expected.csv --json",
    "reproduce first --against second",
    "verify --lint first",
    "run first",
    "reproduce first --against second --json",
    "compare first/../first nowhere\x1b[31m",
    "cache list --cache nowhere\x1b",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_is_printed_controls_the_terminal(
    command: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(shutil.copytree(results, tmp_path / "here", dirs_exist_ok=True))
    monkeypatch.chdir(place)
    done = benchmarco(*command.split(" "), code=None)
    assert not isinstance(done.exception, AssertionError | TypeError)
    assert OBEYED.findall(done.output) == []
    assert done.output
    if "--json" in command and done.exit_code in (0, 1, 3, 4):
        json.loads(done.stdout)


def test_logs_warnings_and_errors_pass_too_and_progress_bars_move(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    raw = Terminal()
    monkeypatch.setattr(sys, "stdout", raw)
    monkeypatch.setattr(sys, "stderr", raw)
    escape_what_is_printed()
    escape_what_is_printed()
    print(HOSTILE)
    handler = logging.StreamHandler(sys.stderr)
    handler.emit(logging.makeLogRecord({"msg": HOSTILE}))
    sys.stderr.writelines([HOSTILE, "\n"])
    assert OBEYED.findall(raw.getvalue()) == []
    assert raw.getvalue().count("\\u001b[31m") == 3  # each escaped once
    raw.truncate(0)
    raw.seek(0)
    sys.stderr.write("\r 10%\x1b[31m")
    sys.stderr.write("\n\x1b[A\x1b[A")
    assert raw.getvalue() == "\r 10%\\u001b[31m\n\x1b[A\x1b[A"


def test_logs_of_a_process_pass_too(tmp_path: Path) -> None:
    script = (
        "import logging\n"
        "from pipeline import cli\n"
        f"cli.app = lambda: logging.getLogger('pipeline').warning({HOSTILE!r})\n"
        "cli.main()\n"
    )
    said = process(tmp_path, "-c", script).stderr
    assert "\\u001b[31m" in said
    assert OBEYED.findall(said) == []


def test_no_code_prints_around_it() -> None:
    package = Path(__file__).resolve().parents[2] / "pipeline"
    around = re.compile(r"stdout\.buffer|stderr\.buffer|__std(out|err)__|os\.write\(|\.stream\b")
    found = [path.name for path in package.rglob("*.py") if around.search(path.read_text(encoding="utf-8"))]
    assert found == ["terminal.py"]

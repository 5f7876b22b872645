"""The commands as a user types them: output, exit codes, messages, speed of imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pipeline import load_config, run_benchmark
from pipeline.cli import app
from pipeline.core.errors import InputError

HEAVY = (
    "torch",
    "transformers",
    "FlagEmbedding",
    "datasets",
    "openvino",
    "llvmlite",
    "asyncio",
    "tokenizers",
)
Command = Callable[..., subprocess.CompletedProcess[str]]

CORPUS = '{"_id": "d1", "text": "the cat sat"}\n{"_id": "d2", "text": "a dog ran"}\n'
QUERIES = '{"_id": "q1", "text": "cat"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"
CONFIG = "name: t\ndata: {source: beir, path: data}\nmodel: {name: all-minilm-l6-v2}\nsearch: {top_k: 1000}\n"
BM25 = "name: r\ndata: {{source: sample}}\nmodel: {{backend: bm25}}\ncache: {folder}/i\noutput: {folder}\n"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs `benchmarco ARGUMENTS` in an empty folder."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipeline", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            timeout=120,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
        )

    return run


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """A config with a collection of two passages, for a test to spoil."""
    (tmp_path / "data" / "qrels").mkdir(parents=True)
    (tmp_path / "data" / "corpus.jsonl").write_text(CORPUS, encoding="utf-8")
    (tmp_path / "data" / "queries.jsonl").write_text(QUERIES, encoding="utf-8")
    (tmp_path / "data" / "qrels" / "test.tsv").write_text(QRELS, encoding="utf-8")
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    return config


def test_quickstart_runs_then_is_served_from_the_cache_without_heavy_imports(
    command: Command, root: Path, tmp_path: Path
) -> None:
    first = command("run", root / "configs" / "quickstart.yaml")
    assert first.returncode == 0, first.stderr
    assert "ndcg@10" in first.stdout
    metrics = json.loads((tmp_path / "results/quickstart/metrics.json").read_text(encoding="utf-8"))
    assert 0.80 < metrics["metrics"]["ndcg@10"] < 0.97
    assert not any(stage["reused"] for stage in metrics["stages"])
    script = (
        "import sys; sys.argv = ['benchmarco', *sys.argv[1:]]\n"
        "from pipeline.cli import app\n"
        "app(standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    printed = command("run", root / "configs" / "quickstart.yaml", "--json", "--quiet")
    assert json.loads(printed.stdout)["metrics"] == metrics["metrics"]
    assert printed.stderr == ""
    again = subprocess.run(
        [sys.executable, "-c", script, "run", str(root / "configs/quickstart.yaml"), "-v"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert again.stdout.splitlines()[-1] == "[]"
    assert again.stdout.count(" reused ") == 6
    same = json.loads((tmp_path / "results/quickstart/metrics.json").read_text(encoding="utf-8"))
    assert same["metrics"] == metrics["metrics"]
    assert all(stage["reused"] for stage in same["stages"])


def test_plan_as_json_before_anything_is_there(command: Command, root: Path, tmp_path: Path) -> None:
    done = command("plan", root / "configs" / "quickstart.yaml", "--json")
    plan = json.loads(done.stdout)
    assert plan["name"] == "quickstart"
    assert [stage["stage"] for stage in plan["stages"]] == [
        "data", "passages", "queries", "index", "search", "evaluate"
    ]  # fmt: skip
    assert all(len(stage["key"]) == 64 and stage["exists"] is False for stage in plan["stages"])
    assert list(tmp_path.iterdir()) == []
    table = command("plan", root / "configs" / "quickstart.yaml").stdout
    assert all(stage["key"] in table for stage in plan["stages"])


def test_evaluate_scores_a_run_file(command: Command, dl19: Path, tmp_path: Path) -> None:
    arguments = ("evaluate", "--qrels", dl19 / "qrels/full.trec", "--run", dl19 / "runs/bm25.trec.gz")
    scored = json.loads(command(*arguments, "--json").stdout)
    assert scored["metrics"]["ndcg@10"] == pytest.approx(0.5058, abs=5e-5)
    assert scored["queries"] == 43
    both = command(*arguments, "--run", dl19 / "runs/bm25.trec.gz").stdout.splitlines()
    assert sum("bm25.trec.gz" in line and "0.5058" in line for line in both) == 2
    shown = command(*arguments, "--measures", "nDCG@10,AP(rel=2)@100", "--per-query", tmp_path / "q.csv")
    assert "0.5058" in shown.stdout
    lines = (tmp_path / "q.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "query_id,ndcg@10,map(rel=2)@100"
    assert len(lines) == 44


def test_a_page_takes_the_place_of_no_file_of_its_result(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(BM25.format(folder=tmp_path), encoding="utf-8")
    folder = run_benchmark(load_config(config)).folder
    before = (folder / "run.trec").read_bytes()
    for name, code in (("run.trec", 2), ("metrics.json", 2), ("page.html", 0), ("page.html", 0)):
        done = CliRunner().invoke(app, ["report", str(folder), "--html", str(folder / name)])
        assert done.exit_code == code
        assert code == 0 or "it is read as part of" in done.output
    assert (folder / "run.trec").read_bytes() == before


def test_a_pipe_in_place_of_a_manifest_is_not_read(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(BM25.format(folder=tmp_path), encoding="utf-8")
    (tmp_path / "r").mkdir()
    os.mkfifo(tmp_path / "r" / "manifest.json")
    command = [sys.executable, "-m", "pipeline", "run", str(config), "-q"]
    assert subprocess.run(command, timeout=60, check=False, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "r" / "manifest.json").read_text(encoding="utf-8"))["created"]


def ended_by(error: BaseException, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """A command whose work raises an error."""

    def fail(*_: object, **__: object) -> None:
        raise error

    config = folder / "c.yaml"
    config.write_text(BM25.format(folder=folder), encoding="utf-8")
    for work in ("run_benchmark", "reproduce"):
        monkeypatch.setattr(f"pipeline.api.{work}", fail)
    return CliRunner().invoke(app, [name, str(config)])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), 1),
        (ImportError("x.so: failed to map segment from shared object"), 1),
        (RuntimeError("can't start new thread"), 1),
        (InputError("a path with \x1b[2J"), 2),
    ],
)
def test_what_ends_a_command_is_one_plain_line(
    error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ended_by(error, "run", tmp_path, monkeypatch)
    assert done.exit_code == code
    assert ("memory ran out" in done.stderr) == (code == 1)
    assert "\x1b" not in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(("name", "resumed"), [("run", True), ("reproduce", False)])
def test_only_a_command_that_keeps_what_it_finished_says_that_it_goes_on(
    name: str, resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ended_by(KeyboardInterrupt(), name, tmp_path, monkeypatch)
    assert (done.exit_code, "to go on" in done.stderr) == (130, resumed)


STOPPED = """
import resource, signal
from pathlib import Path
from pipeline.cli.terminal import end_at_second_interrupt, guarded
def stopped():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if {short}:
        resource.setrlimit(resource.RLIMIT_AS, (used, used))
    signal.raise_signal(signal.SIGINT)
end_at_second_interrupt()
guarded(stopped)()
"""


@pytest.mark.parametrize(
    ("short", "code", "said"), [(False, 130, "benchmarco: interrupted\n"), (True, 1, "memory ran out")]
)
def test_an_interrupt_where_memory_is_short_is_not_the_user_s(short: bool, code: int, said: str) -> None:
    """OpenBLAS sends SIGINT to its process where its threads cannot start."""
    script = STOPPED.format(short=short)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (code, True)


def test_a_result_with_a_query_that_its_collection_lacks_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(BM25.format(folder=tmp_path), encoding="utf-8")
    folder = run_benchmark(load_config(config)).folder
    table = folder / "per_query.csv"
    head, first, rest = table.read_text(encoding="utf-8").split("\n", 2)
    table.write_text("\n".join([head, "nobody," + first.partition(",")[2], rest]), encoding="utf-8")
    page = ["--html", str(tmp_path / "page.html")]
    for command in (
        ["report", str(folder), *page],
        ["pool", str(folder), "--output", str(tmp_path / "p.tsv")],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2
        assert "the collection has no query 'nobody'" in done.stderr


def test_a_proxy_that_the_hub_s_client_cannot_use_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "name: h\ndata: {source: sample}\nmodel: {backend: flag, name: BAAI/bge-small-en-v1.5}\n",
        encoding="utf-8",
    )
    done = command("run", "c.yaml", HF_HUB_OFFLINE="0", ALL_PROXY="socks5://127.0.0.1:9")
    assert done.returncode == 2
    assert "HTTPS_PROXY and ALL_PROXY" in done.stderr


def test_schema_is_json(command: Command) -> None:
    assert json.loads(command("schema").stdout)["title"] == "Config"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['benchmarco', '--help']\n"
        "from pipeline.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "heavy = ('numpy', 'pydantic', 'faiss', 'torch', 'pyarrow')\n"
        "print([name for name in sys.modules if name in heavy])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Commands" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_cache_that_cannot_be_written_is_said_plainly(command: Command, collection: Path) -> None:
    (collection.parent / "file").write_text("", encoding="utf-8")
    done = command("run", collection, "--set", "cache=file/below")
    assert done.returncode in (1, 2)
    model, line = done.stderr.splitlines()
    assert "pooling mean (model)" in model
    assert "file/below" in line

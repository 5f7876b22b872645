"""The commands as a user types them: output, exit codes, messages, speed of imports."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import close_session
from inside import be_offline, keep_stderr, watch
from workplaces import benchmarco, document, process, read_json

from pipeline import InputError, load_config, run_benchmark

BM25 = (
    "name: r\ndata: {{source: sample, queries: 20, corpus: 100}}\nmodel: {{backend: bm25}}\n"
    "cache: {folder}/i\noutput: {folder}\n"
)


@pytest.fixture(autouse=True)
def _logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would set where logs go for all later tests."""
    keep_stderr(monkeypatch)


def write_bm25(folder: Path) -> Path:
    config = folder / "c.yaml"
    config.write_text(BM25.format(folder=folder), encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def finished_bm25(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of BM25."""
    return run_benchmark(load_config(write_bm25(tmp_path_factory.mktemp("bm25")))).folder


@pytest.fixture
def bm25(finished_bm25: Path, tmp_path: Path) -> Path:
    """A copy of it, for a test to change."""
    return Path(shutil.copytree(finished_bm25, tmp_path / "r"))


def test_a_finished_run_is_served_from_the_cache_without_heavy_imports(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    metrics = read_json(Path("results/t/metrics.json"))
    printed = benchmarco("run", "c.yaml", "--json", "--quiet")
    assert json.loads(printed.stdout)["metrics"] == metrics["metrics"]
    assert printed.stderr == ""
    heavy = "torch transformers FlagEmbedding datasets openvino llvmlite asyncio tokenizers"
    script = (
        "import sys; sys.argv = ['benchmarco', 'run', 'c.yaml', '-v']\n"
        "from pipeline.cli import app\n"
        "app(standalone_mode=False)\n"
        f"print([name for name in {heavy.split()} if name in sys.modules])\n"
    )
    again = process(workplace, "-c", script).stdout
    assert again.splitlines()[-1] == "[]"
    assert again.count(" reused ") == 6


def test_help_and_lists_and_configs_and_identities_import_nothing_heavy(root: Path) -> None:
    """In this order in one process, each with what it must not have imported."""
    script = (
        "import sys\n"
        "def without(*heavy): print('imported', [name for name in heavy if name in sys.modules])\n"
        "from pipeline.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "without('numpy', 'pydantic', 'faiss', 'torch', 'pyarrow')\n"
        "app(['suites', '--json'], standalone_mode=False)\n"
        "without('numpy', 'pyarrow', 'torch', 'datasets', 'huggingface_hub')\n"
        "from pipeline import load_config\n"
        "from pipeline.data import identify\n"
        "identify(load_config(sys.argv[1], ['data={source: beir, path: pipeline/data/sample}']).data)\n"
        "without('torch', 'openvino', 'numba', 'transformers', 'tokenizers', 'pyarrow', 'datasets',\n"
        "        'huggingface_hub', 'ir_datasets', 'pandas')\n"
    )
    printed = process(root, "-c", script, "configs/quickstart.yaml").stdout
    assert "Commands" in printed
    assert '"nanobeir"' in printed
    found = [line for line in printed.splitlines() if line.startswith("imported")]
    assert found == ["imported []"] * 3


def test_the_schema_is_json() -> None:
    assert json.loads(benchmarco("schema").stdout)["title"] == "Config"


def test_evaluate_scores_a_run_file(dl19: Path, tmp_path: Path) -> None:
    arguments = ("evaluate", "--qrels", dl19 / "qrels/full.trec", "--run", dl19 / "runs/bm25.trec.gz")
    scored = document(*arguments)
    assert scored["metrics"]["ndcg@10"] == pytest.approx(0.5058, abs=5e-5)
    assert scored["queries"] == 43
    both = benchmarco(*arguments, "--run", dl19 / "runs/bm25.trec.gz").stdout.splitlines()
    assert sum("bm25.trec.gz" in line and "0.5058" in line for line in both) == 2
    measures = ("--measures", "nDCG@10,AP(rel=2)@100", "--per-query", tmp_path / "q.csv")
    assert "0.5058" in benchmarco(*arguments, *measures).stdout
    lines = (tmp_path / "q.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "query_id,ndcg@10,map(rel=2)@100"
    assert len(lines) == 44


def test_measures_are_shown_by_the_names_that_were_written(bm25: Path, tmp_path: Path, root: Path) -> None:
    qrels, run = root / "pipeline/data/sample/qrels/test.tsv", bm25 / "run.trec"
    scored = benchmarco("evaluate", qrels, run, "--measures", "rr,P_5,RR(rel=3)@10,AP@100").stdout
    for name in ("rr", "P_5", "RR(rel=3)@10", "AP@100"):
        assert f"\n{name} " in scored
    assert "mrr" not in scored
    config = write_bm25(tmp_path)
    ran = benchmarco("run", config, "--set", "evaluate.measures=[RR@10, nDCG@5]")
    assert ran.stdout.startswith("RR@10 of r is ")
    assert "\nndcg@5 " in ran.stdout  # case does not matter
    assert [*read_json(bm25 / "metrics.json")["metrics"]] == ["mrr@10", "ndcg@5"]
    for command in (("compare", bm25, bm25), ("gate", bm25, "--baseline", bm25)):
        assert "RR@10" in benchmarco(*command, "--measure", "RR@10").stdout
        assert "RR@10" not in benchmarco(*command, "--measure", "mrr@10").stdout


def test_a_page_takes_the_place_of_no_file_of_its_result(bm25: Path) -> None:
    before = (bm25 / "run.trec").read_bytes()
    for name, code in (("run.trec", 2), ("metrics.json", 2), ("page.html", 0), ("page.html", 0)):
        done = benchmarco("report", bm25, "--html", bm25 / name, code=code)
        assert code == 0 or "it is read as part of" in done.output
    assert (bm25 / "run.trec").read_bytes() == before


def test_a_result_with_a_query_that_its_collection_lacks_is_refused(bm25: Path, tmp_path: Path) -> None:
    table = bm25 / "per_query.csv"
    head, first, rest = table.read_text(encoding="utf-8").split("\n", 2)
    table.write_text("\n".join([head, "nobody," + first.partition(",")[2], rest]), encoding="utf-8")
    for command in (
        ("report", bm25, "--html", tmp_path / "page.html"),
        ("pool", bm25, "--output", tmp_path / "p.tsv"),
    ):
        assert "the collection has no query 'nobody'" in benchmarco(*command, code=2).stderr


def test_a_pipe_in_place_of_a_manifest_is_not_read(tmp_path: Path) -> None:
    config = write_bm25(tmp_path)
    (tmp_path / "r").mkdir()
    os.mkfifo(tmp_path / "r" / "manifest.json")
    command = [sys.executable, "-m", "pipeline", "run", str(config), "-q"]
    assert subprocess.run(command, timeout=120, check=False, cwd=tmp_path).returncode == 0
    assert read_json(tmp_path / "r" / "manifest.json")["created"]


@pytest.mark.parametrize(
    ("error", "name", "code", "words"),
    [
        (MemoryError(), "run", 1, "memory ran out"),
        (ImportError("x.so: failed to map segment from shared object"), "run", 1, "memory ran out"),
        (RuntimeError("can't start new thread"), "run", 1, "memory ran out"),
        (InputError("a path with \x1b[2J"), "run", 2, "a path with"),
        (KeyboardInterrupt(), "run", 130, "to go on"),
        (KeyboardInterrupt(), "reproduce", 130, "interrupted\n"),  # which keeps nothing to go on with
    ],
)
def test_what_ends_a_command_is_one_plain_line(
    error: BaseException, name: str, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    watch(monkeypatch, "run a benchmark", fail)
    watch(monkeypatch, "run a result again", fail)
    done = benchmarco(name, write_bm25(tmp_path), code=code)
    assert words in done.stderr
    assert "\x1b" not in done.output
    assert "Traceback" not in done.output


def test_a_proxy_that_the_hub_s_client_cannot_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_offline(monkeypatch, False)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    close_session()
    config = write_bm25(tmp_path)
    done = benchmarco("run", config, "--set", "model={backend: flag, name: BAAI/bge-small-en-v1.5}", code=2)
    close_session()
    assert "HTTPS_PROXY and ALL_PROXY" in done.stderr


def test_a_result_knows_its_cache_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pipeline")
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    monkeypatch.chdir(there)
    for _ in range(2):
        benchmarco("run", "--model", "bm25", "--data", "sample")
    assert caplog.text.count(f"new cache: {there / 'indexes'}") == caplog.text.count("new cache") == 1
    monkeypatch.chdir(here)
    (here / "published.csv").write_text("model,collection,measure,value\nm,c,ndcg@20,0.1\n", encoding="utf-8")
    result = there / "results" / "bm25-sample"
    verify = benchmarco("verify", result, "--expected", "published.csv", code=3).stdout
    assert "not comparable" not in verify  # computed from the ranking and the collection
    assert benchmarco("report", result, "--html", "page.html").stderr == "page written to page.html\n"
    benchmarco("plan", result / "manifest.json")
    assert sorted(path.name for path in here.iterdir()) == ["page.html", "published.csv"]
    (there / "indexes").rename(there / "elsewhere")
    benchmarco("report", result, "--html", "page.html")
    assert f"is not in its cache ({there / 'indexes'}), so this page shows no curves" in caplog.text


def test_a_config_may_have_its_cache_beside_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = (
        "name: mine\ndata: {source: sample}\nmodel: {backend: bm25}\ncache: $CONFIG/i\noutput: $CONFIG/r\n"
    )
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.yaml").write_text(config, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    benchmarco("run", "project/mine.yaml")
    assert sorted(path.name for path in tmp_path.rglob("project/*")) == ["i", "mine.yaml", "r"]
    assert [path.name for path in tmp_path.iterdir()] == ["project"]


@pytest.mark.parametrize(
    ("command", "read"), [("schema | head -1", "{\n"), ("suites | true", ""), ("suites 2>&1 | true", "")]
)
def test_a_pipe_that_nobody_reads_is_no_failure(tmp_path: Path, command: str, read: str) -> None:
    """Text, and tables, whose library would exit with 1."""
    piped = f"{sys.executable} -m pipeline {command}; exit ${{PIPESTATUS[0]}}"
    done = process(tmp_path, "bash", "-c", piped)
    assert (done.stdout, done.stderr) == (read, "")


@pytest.mark.parametrize(
    ("command", "code"), [("suites", 0), ("--help", 0), ("no-command", 2), ("run none.yaml", 2)]
)
def test_a_closed_output_is_no_failure(tmp_path: Path, command: str, code: int) -> None:
    """As under a daemon that gives its processes none."""
    process(tmp_path, "bash", "-c", f"{sys.executable} -m pipeline {command} >&- 2>&-", code=code)


def test_letters_of_any_script_stay_in_names(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(root / "pipeline/data/sample", tmp_path / "Häuser & 数据 set")
    benchmarco("run", "--model", "bm25", "--data", "Häuser & 数据 set")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["bm25-Häuser-数据-set"]

"""Files that commands write: whole or not at all, never over what they read, nor over files of others."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from workplaces import benchmarco, on_one_line

QRELS = "q1 0 d1 1\nq2 0 d2 1\n"
RUN = "q1 Q0 d1 1 2.0 x\nq1 Q0 d2 2 1.0 x\nq2 Q0 d1 1 2.0 x\n"
NOTES = "my notes\n"

WRITES = r"\.write_(text|bytes)\(|\bopen\([^()]*,\s*(mode=)?[\"'][wxa]|\.open\([\"'][wxa]"
THROUGH = r"replacing\(|(draft|self)\.file\(|_nameless|memfd_create"
"""On the same line as the call: what gives the path that is written a temporary name first."""
ELSEWHERE = {
    "storage/whole_files.py": 1,  # finds out whether the disk is full
    "storage/artifacts.py": 1,  # the list of a draft's finished files
    "search/bm25_index.py": 1,  # into a draft
    "encoders/pairs/converted.py": 1,  # into a draft
    "studies/latency/process.py": 1,  # into a temporary folder
    "core/machine.py": 1,  # of the system, /proc/self/clear_refs
    "terminal.py": 1,  # os.devnull, in place of an output that is not there
}
"""Lines that write in another way."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with judgments and two runs."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("qrels.txt", QRELS), ("a.trec", RUN), ("b.trec", RUN)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_all_files_are_written_by_one_function(root: Path) -> None:
    found = Counter(
        path.relative_to(root / "pipeline").as_posix()
        for path in (root / "pipeline").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(WRITES, line) and not re.search(THROUGH, line)
    )
    assert found == ELSEWHERE


FULL = """
import errno, io, os, sys
from pipeline import cli
from pipeline.metrics import presentation
def full(file, *rest):
    file.write("query_id,half")
    file.flush()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
presentation.write_per_query = full
cli.main()
"""


def test_a_full_disk_leaves_the_old_measures_of_queries(files: Path) -> None:
    """`evaluate --per-query` left half a file under the old name."""
    command = ("evaluate", "qrels.txt", "a.trec", "--per-query", "pq.csv")
    benchmarco(*command)
    before = (files / "pq.csv").read_bytes()
    done = subprocess.run([sys.executable, "-c", FULL, *command], cwd=files, capture_output=True, text=True)
    assert (done.returncode, "pq.csv: No space left on device" in done.stderr) == (1, True), done.stderr
    assert (files / "pq.csv").read_bytes() == before
    assert sorted(path.name for path in files.iterdir()) == ["a.trec", "b.trec", "pq.csv", "qrels.txt"]


@pytest.mark.parametrize("mine", ["out.trec.tmp", ".out.trec.tmp", "out.tmp"])
def test_a_file_beside_an_output_stays(files: Path, mine: str) -> None:
    (files / mine).write_text(NOTES)
    benchmarco("fuse", "a.trec", "b.trec", "--output", "out.trec")
    assert (files / mine).read_text() == NOTES
    assert (files / "out.trec").is_file()


COMMANDS = {
    "fuse": ("fuse", "a.trec", "b.trec", "--output"),
    "evaluate": ("evaluate", "qrels.txt", "a.trec", "--per-query"),
    "verify": ("verify", "--run", "a.trec", "--qrels", "qrels.txt", "--expected", "published.csv", "--html"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_others_is_overwritten_only_by_force(files: Path, command: str) -> None:
    (files / "published.csv").write_text("model,collection,measure,value\nm,c,ndcg@10,0.5\n")
    for name, text in (("notes.txt", NOTES), ("page.html", "<!doctype html><title>mine</title>")):
        (files / name).write_text(text)
        said = on_one_line(benchmarco(*COMMANDS[command], name, code=2))
        assert f"{name}: a file is there that benchmarco did not write" in said
        assert "add --force" in said
        assert (files / name).read_text() == text
        assert benchmarco(*COMMANDS[command], name, "--force", code=None).exit_code != 2
        written = (files / name).read_text()
        assert written != text
        assert benchmarco(*COMMANDS[command], name, code=None).exit_code != 2  # what it wrote itself


@pytest.mark.parametrize("name", ["a.trec", "qrels.txt", "./b.trec", "link.trec"])
def test_a_file_that_is_read_is_not_overwritten_even_by_force(files: Path, name: str) -> None:
    (files / "link.trec").symlink_to("b.trec")
    os.link(files / "qrels.txt", files / "judged.txt")
    command = ("fuse", "a.trec", "b.trec", "--tune", "ndcg@10", "--qrels", "judged.txt", "--output", name)
    assert "it is read as" in on_one_line(benchmarco(*command, "--force", code=2))
    assert (files / "qrels.txt").read_text() == QRELS
    assert (files / "b.trec").read_text() == RUN


@pytest.mark.parametrize("name", ["run.trec", "metrics.json", "per_query.csv", "manifest.json"])
def test_files_of_others_in_a_result_folder_are_not_overwritten(files: Path, name: str) -> None:
    folder = files / "results" / "bm25-sample"
    folder.mkdir(parents=True)
    (folder / name).write_text('{"name": "of another tool"}')
    command = ("run", "--model", "bm25", "--data", "sample", "--set", "name=bm25-sample")
    said = on_one_line(benchmarco(*command, code=2))
    assert f"benchmarco did not write its {name}" in said
    assert [path.name for path in folder.iterdir()] == [name]
    assert not (files / "indexes").exists()
    benchmarco(*command, "--force")
    benchmarco(*command)  # over its own result
    assert (folder / "checksums.json").is_file()

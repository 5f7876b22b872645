"""What a run says at its end can be pasted into a shell, and works."""

import re
import shlex
from pathlib import Path

import pytest
from workplaces import benchmarco

CONFIG = "data: {source: sample, queries: 30}\nmodel: {backend: bm25}\noutput: an output\nname: "


def test_the_commands_after_a_run_work_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text(CONFIG + name, encoding="utf-8")
    report = "report 'an output/a' --html a.html"
    compare = "compare 'an output/a' 'an output/b'"
    Path("few.yaml").write_text(f"{CONFIG.replace('30', '20')}few", encoding="utf-8")
    cases = [("a.yaml", [report]), ("a.yaml b.yaml", [compare]), ("a.yaml few.yaml", [report])]
    for given, expected in (*cases, ("a.yaml --quiet", [])):
        done = benchmarco("run", *given.split())
        lines = [line.partition(": benchmarco ")[2] for line in done.stdout.splitlines()]
        assert list(filter(None, lines)) == expected
        for line in expected:
            benchmarco(*shlex.split(line))


def test_the_first_line_has_a_colour_on_a_terminal_and_none_where_none_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(CONFIG + "a", encoding="utf-8")
    plain, sentence = benchmarco("run", "a.yaml").stdout, "ndcg@10 of a is"
    assert plain.startswith(sentence)
    assert "\x1b" not in plain
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal that shows colours
    assert benchmarco("run", "a.yaml").stdout.startswith(f"\x1b[1;32m{sentence}")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "32m" not in benchmarco("run", "a.yaml").stdout


def test_a_run_says_which_stages_it_computed_and_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(CONFIG + "a", encoding="utf-8")

    def said(*settings: str) -> str:
        done = benchmarco("run", "a.yaml", *settings)
        (line,) = (line for line in done.stdout.splitlines() if line.endswith(" (-v: each stage)"))
        return re.sub(r"[\d.]+ s\b", "SECONDS", line.removesuffix(" (-v: each stage)"))

    reused = "reused: data, passages, queries, index, search"
    assert said() == "computed 6 stages in SECONDS"
    assert said() == f"{reused}, evaluate"
    assert said("--set", "evaluate.measures=[ndcg@5]") == f"computed 1 stage in SECONDS; {reused}"
    Path("b.yaml").write_text(f"{CONFIG}b\nsweep: {{search.top_k: [20, 30]}}", encoding="utf-8")
    both = benchmarco("run", "b.yaml", "--set", "evaluate.measures=[ndcg@5]").stdout
    assert "written to an output\n" in both

"""Which results may stand side by side: their data are compared by content, and not by bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from comparison.made import config
from workplaces import benchmarco, on_one_line

from pipeline import InputError, compare, run_benchmark
from pipeline.results import Result
from pipeline.studies.board import compare_below
from pipeline.studies.gate import gate_result
from pipeline.studies.judge import open_rankings
from pipeline.studies.reproduce import reproduce

PASSAGES = {
    f"p{number}": f"passage {number} of {word} things" for number, word in enumerate(["red", "green"] * 6)
}
QUERIES = {f"q{number}": f"{word} passage {number}" for number, word in enumerate(["red", "green"] * 4)}
JUDGED = [(query, f"p{number}", 1) for number, query in enumerate(QUERIES)]


def written(folder: Path, texts: dict[str, str], queries: dict[str, str], qrels: bytes) -> Path:
    """A BEIR folder."""
    (folder / "qrels").mkdir(parents=True)
    for name, lines in (("corpus", texts), ("queries", queries)):
        rows = (json.dumps({"_id": key, "text": text}) for key, text in lines.items())
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "qrels" / "test.tsv").write_bytes(qrels)
    return folder


def judgments(
    judged: list[tuple[str, str, Any]], newline: str = "\n", end: str = "\n", mark: bytes = b""
) -> bytes:
    """A file of judgments in BEIR's form."""
    rows = [("query-id", "corpus-id", "score"), *judged]
    return mark + (newline.join("\t".join(map(str, row)) for row in rows) + end).encode()


PLAIN = judgments(JUDGED)
FORMS = {
    "crlf": judgments(JUDGED, "\r\n", "\r\n"), "mark": judgments(JUDGED, mark=b"\xef\xbb\xbf"),
    "no end": judgments(JUDGED, end=""), "reversed": judgments(JUDGED[::-1]),
    "decimals": judgments([(*pair, f"{grade:.1f}") for *pair, grade in JUDGED]),
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    place = tmp_path_factory.mktemp("inputs")
    data = written(place / "base", PASSAGES, QUERIES, PLAIN)
    return place, ran(place, "base", data)


def ran(place: Path, name: str, data: Path, **settings: Any) -> Result:
    return run_benchmark(config(place, name, data={"source": "beir", "path": str(data), **settings}))


@pytest.mark.parametrize("form", FORMS)
def test_the_same_judgments_in_another_form_are_the_same(base: tuple[Path, Result], form: str) -> None:
    place, first = base
    data = written(
        place / form, dict(reversed(PASSAGES.items())), dict(reversed(QUERIES.items())), FORMS[form]
    )
    other = ran(place, form.replace(" ", "-"), data)
    comparison = compare([first, other])
    assert not [note for note in comparison.notes if "different" in note]
    assert gate_result(other, first).measures[0].difference == 0
    scored = compare([first.folder, other.folder / "run.trec"], qrels=data / "qrels" / "test.tsv")
    assert scored.pairs[0].ties == len(QUERIES)


OTHER = {
    "passages": ({"texts": dict(list(PASSAGES.items())[:-1])}, "searched different passages, 12 and 11"),
    "a word": ({"texts": PASSAGES | {"p11": "other"}}, "searched different passages, 12 and 12"),
    "queries": ({"queries": QUERIES | {"q0": "green"}}, "have different query texts"),
    "judgments": ({"qrels": judgments([*JUDGED, ("q0", "p5", 1)])}, "were scored by different judgments"),
}


@pytest.mark.parametrize("what", OTHER)
def test_a_gate_refuses_other_data_unless_told(base: tuple[Path, Result], what: str) -> None:
    place, first = base
    changed, clause = OTHER[what]
    parts = {"texts": PASSAGES, "queries": QUERIES, "qrels": PLAIN} | changed
    other = ran(place, f"other-{what.replace(' ', '-')}", written(place / f"other {what}", **parts))
    with pytest.raises(InputError, match=clause):
        gate_result(other, first)
    with pytest.raises(InputError, match=clause):
        gate_result(first, first, since=other)
    assert clause in str(gate_result(other, first, other_data=True))
    if what == "judgments":
        with pytest.raises(InputError, match=clause):
            compare([first, other])
    else:
        assert any(clause in note for note in compare([first, other]).notes)


def test_whatever_compares_two_results_says_that_their_passages_differ(tmp_path: Path) -> None:
    fewer = dict(list(PASSAGES.items())[:-1])
    configs = []
    for name, texts in (("a", PASSAGES), ("b", fewer)):
        settings = config(tmp_path, name, data={"source": "beir", "path": str(tmp_path / f"data-{name}")})
        written(tmp_path / f"data-{name}", texts, QUERIES, PLAIN)
        configs.append(tmp_path / f"{name}.yaml")
        configs[-1].write_text(json.dumps(settings))
    said = {"run": on_one_line(benchmarco("run", *configs))}
    results = tmp_path / "results"
    pair = results / "a", results / "b"
    page = tmp_path / "page.html"
    said["page"] = on_one_line(benchmarco("compare", *pair, "--html", page)) and page.read_text()
    for options in ((), ("--groups",), ("--limit", "p95 <= 20ms"), ("--queries", "2"), ("-v",), ("--json",)):
        said[f"compare {' '.join(options)}"] = on_one_line(benchmarco("compare", *pair, *options))
    said["board"] = on_one_line(benchmarco("compare", results))
    said["reproduce"] = str(reproduce(pair[0], against=pair[1])[0])
    with pytest.raises(InputError) as refused:
        open_rankings(pair, "--decide")
    said["pool"] = str(refused.value)
    # a result of one name that followed another
    benchmarco("run", configs[1], "--set", "name=a")
    said["history"] = on_one_line(benchmarco("compare", results / "a", results / "a~1", "--json"))
    (board,) = compare_below(results)
    assert any("searched different passages" in note for note in board.notes if "and 2" in note)
    assert not [door for door, text in said.items() if "searched different passages, 1" not in text]


def test_a_gate_refuses_scores_of_which_other_passages_are_ignored(base: tuple[Path, Result]) -> None:
    place, first = base
    other = ran(place, "ignored", place / "base", ignored="identical_ids")
    refused = benchmarco("gate", other.folder, "--baseline", first.folder, code=2)
    assert "data.ignored, none and identical_ids" in refused.stderr

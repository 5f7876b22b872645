"""Result folders: those that are read, and those that are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workplaces import benchmarco, change_json, read_json, seal

from pipeline import InputError, compare
from pipeline.results import Metrics, read_result, stage_table
from pipeline.studies.page import render_page
from pipeline.studies.reproduce import reproduce


def put(key: str, value: object) -> Callable[[Path], object]:
    """Gives `metrics.json` another value."""
    return lambda folder: change_json(folder / "metrics.json", **{key: value})


def edit(change: Callable[[str], str]) -> Callable[[Path], object]:
    """Changes `per_query.csv`."""
    return lambda folder: content("per_query.csv", change((folder / "per_query.csv").read_text()))(folder)


def content(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: ((folder / name).write_text(text), seal(folder))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (shutil.rmtree, "does not exist"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "is not a result folder"),
        (lambda folder: (folder / "manifest.json").unlink(), "is not finished: it has no manifest.json"),
        (lambda folder: (folder / "per_query.csv").unlink(), "is not finished: it has no per_query.csv"),
        (content("metrics.json", "{"), "metrics.json is not a JSON object"),
        (content("manifest.json", "{}"), "'recipes' in manifest.json: Field"),
        (put("name", "\ud800"), "metrics.json is not a JSON object"),
        (put("passages", 0), "'passages' in metrics.json"),
        (put("stages", [{"stage": 5}]), "'stages.0.stage' in metrics.json"),
        (put("index", {"factory": "IVF16"}), "'index.parameters' in metrics.json"),
        (put("metrics", {"mrr@10": 10**400, "ndcg@10": 0}), "is damaged"),
        (edit(lambda text: text[:-9]), "is damaged"),
        (edit(lambda text: text[: text.rindex("q")]), "counts 114 queries"),
        (edit(lambda text: text.replace("q002", "q001")), "has 113 in 114 rows"),
        (edit(lambda text: text.replace("1.0", "nan")), "the mean of"),
        (edit(lambda text: text.replace("1.0", "0.9", 1)), "the mean of"),
        (edit(lambda text: text.replace("1.0", "one", 1)), "is damaged"),
        (edit(lambda text: text.replace("mrr@10", "mrr@11")), "other measures"),
    ],
)
def test_what_is_no_whole_result_is_refused(
    finished: Path, tmp_path: Path, spoil: Callable[[Path], Any], expected: str
) -> None:
    folder = Path(shutil.copytree(finished / "results" / "t", tmp_path / "t"))
    spoil(folder)
    with pytest.raises(InputError) as refused:
        read_result(folder)
    assert expected in str(refused.value)
    assert str(folder) in str(refused.value)


EDITS: dict[str, tuple[str, Callable[[str], str]]] = {
    "a value": ("per_query.csv", lambda text: text.replace("0.5", "0.6", 1)),
    "two queries' values": ("per_query.csv", lambda text: "\n".join(swapped(text.splitlines())) + "\n"),
    "a score": ("run.trec", lambda text: text.replace("1 ", "1 9", 1)),
    "a query's lines": ("run.trec", lambda text: text[text.index("\n", len(text) // 2) + 1 :]),
    "a setting": ("manifest.json", lambda text: text.replace('"top_k": ', '"top_k": 1', 1)),
    "a space": ("metrics.json", lambda text: text + " "),
    "the checksums": ("checksums.json", lambda text: text[:-9]),
    "no checksums": ("checksums.json", lambda text: "[]"),
}


def swapped(lines: list[str]) -> list[str]:
    """The lines of `per_query.csv` with the values of two queries exchanged: the means stay."""
    rows = [line.split(",") for line in lines]
    other = next(n for n in range(2, len(rows)) if rows[n][1:] != rows[1][1:])
    rows[1][1:], rows[other][1:] = rows[other][1:], rows[1][1:]
    return [",".join(row) for row in rows]


@pytest.mark.parametrize("what", EDITS)
def test_a_result_that_was_edited_is_said_where_it_is_read_and_decides_nothing(
    what: str, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, change = EDITS[what]
    whole = finished / "results" / "t"
    folder = Path(shutil.copytree(whole, tmp_path / "t"))
    text = (folder / name).read_text(encoding="utf-8")
    (folder / name).write_text(change(text), encoding="utf-8")
    assert change(text) != text
    said = f"{name} changed after the run" if name != "checksums.json" else "has no checksums.json"
    if name == "run.trec":  # which a comparison does not read
        benchmarco("reproduce", whole, "--against", folder, code=None)
        assert said in caplog.text
        return
    refused = benchmarco("gate", folder, "--baseline", whole, code=2).stderr
    assert said in caplog.text
    benchmarco("compare", tmp_path, code=2)
    assert f"left out: result folder {folder}" in caplog.text
    if what in ("a setting", "a value"):
        return  # which are no longer what the other files say
    edited = "unchecked" if name == "checksums.json" else f"edited: {name}"
    assert f"result folder {folder}: {edited}, after the run" in refused
    assert f"t ({edited})" in " ".join(benchmarco("compare", whole, folder).stdout.split())


def test_who_reads_a_ranking_says_which_result_has_none(finished: Path, tmp_path: Path) -> None:
    whole = finished / "results" / "t"
    folder = Path(shutil.copytree(whole, tmp_path / "t"))
    (folder / "run.trec").unlink()
    assert compare([whole, folder]).pairs  # which needs none
    with pytest.raises(InputError, match=r"t has no run\.trec"):
        render_page(compare([whole, folder]))
    with pytest.raises(InputError, match=r"t has no run\.trec"):
        reproduce(folder)


def test_a_mistyped_name_is_answered_with_near_ones_of_the_same_folder(
    finished: Path, tmp_path: Path
) -> None:
    for name in ("bm25-sample", "minilm-sample"):
        shutil.copytree(finished / "results" / "t", tmp_path / name)
    mistyped = tmp_path / "bm25-smaple"
    for command in (["compare", mistyped, mistyped], ["report", mistyped, "--html", tmp_path / "a.html"]):
        done = benchmarco(*list(map(str, command)), code=2)
        assert done.exit_code == 2
        assert done.stderr.endswith(f" Did you mean {tmp_path}/bm25-sample.\n")


def test_a_result_of_another_version_is_read(finished: Path, tmp_path: Path) -> None:
    """One that lacks what is optional, and one with keys that this version does not know."""
    folder = Path(shutil.copytree(finished / "results" / "t", tmp_path / "t"))
    metrics = read_json(folder / "metrics.json")
    recipes = read_json(folder / "manifest.json")["recipes"]
    del metrics["intervals"], metrics["unjudged"]
    stages = [{"stage": "index", "bytes": 5, "volts": 230}]
    (folder / "metrics.json").write_text(json.dumps(metrics | {"stages": stages, "weather": ["rain"]}))
    (folder / "manifest.json").write_text(json.dumps({"recipes": recipes}))
    seal(folder)
    result = read_result(folder)
    assert (result.record.stage("index").bytes, result.record.stage("search").seconds) == (5, None)
    assert result.record.model_dump()["weather"] == ["rain"]
    manifest = result.only_collection().manifest
    assert (manifest.config, manifest.hardware.found()) == ({}, {})
    assert compare([folder]).results[0].index_bytes == 345 * 128 * 4  # of the form of its vectors


def test_a_folder_of_results_names_them(finished: Path) -> None:
    with pytest.raises(InputError, match=r"not a result folder.*It contains results; name one of them: t"):
        read_result(finished / "results")


def test_it_says_which_stages_were_timed_in_an_earlier_run_and_where() -> None:
    def row(stage: str, day: str, cores: int, reused: bool) -> dict[str, Any]:
        made = {"made_at": f"2026-11-{day}T10:00:00Z", "hardware": {"cpu": "x", "cores": cores}, "threads": 1}
        return {"stage": stage, "reused": reused, "seconds": 1.0, **made}

    stages = [
        row("data", "21", 1, True), row("passages", "21", 1, True), row("queries", "21", 2, True),
        row("index", "22", 2, False), {"stage": "search", "reused": True},
    ]  # fmt: skip
    sizes = {"name": "t", "queries": 1, "passages": 1, "metrics": {}}
    assert stage_table(Metrics.model_validate({**sizes, "stages": stages})).notes == [
        "data, passages: timed in an earlier run of 2026-11-21: x, 1 core, 1 thread",
        "queries: timed in an earlier run of 2026-11-21: x, 2 cores, 1 thread",
    ]


def test_a_cache_that_came_with_a_result_is_not_read(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checksums are those of whoever made it."""
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(finished / "results" / "t", tmp_path / "evil"))
    shutil.copytree(finished / "indexes", folder / "cache")
    manifest = read_json(folder / "manifest.json")
    config = manifest["config"] | {"cache": "evil/cache"}
    change_json(folder / "manifest.json", cache=str(folder / "cache"), config=config)
    seal(folder)
    (result,) = read_result(folder).collections
    assert result.manifest.cache_here == ""
    assert "came with it" in caplog.text
    said = benchmarco("run", str(folder / "manifest.json"), code=2).stderr
    assert "store artifacts in" in said
    assert "latency" not in said
    said = benchmarco("latency", str(folder), code=2).stderr
    assert "not in the cache indexes" in " ".join(said.split())

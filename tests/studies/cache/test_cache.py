"""`benchmarco cache`: what is listed, found damaged, and pruned, on a real cache of a finished run."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import workplaces
from inside import keep_stderr
from typer.testing import Result
from workplaces import benchmarco, document

from pipeline.storage import Recipe, Store
from pipeline.studies.cache import cache_entries, prune

Cache = Callable[..., Result]
DAY = 86400


@pytest.fixture
def cache(workplace: Path) -> Cache:
    """Runs `benchmarco cache ARGUMENTS --cache` on the workplace's cache."""

    return lambda *arguments, **code: benchmarco(
        "cache", *arguments, "--cache", workplace / "indexes", **code
    )


def run(folder: Path, *settings: str) -> list[str]:
    """Run the config; the stages that were made."""
    record = workplaces.run(folder, *settings).record
    return [row.stage for row in record.stages if row.outcome == "computed"]


def stages(folder: Path) -> list[str]:
    return [kept.stage for kept in cache_entries(folder / "indexes")]


def ago(folder: Path, seconds: float, *names: str) -> None:
    """Make it so that these stages were last used then."""
    for kept in cache_entries(folder / "indexes"):
        if kept.stage in names:
            os.utime(kept.folder / "manifest.json", (time.time() - seconds,) * 2)


def test_list_says_what_each_was_made_from_and_what_uses_it(cache: Cache, workplace: Path) -> None:
    (name,) = (path.name for path in (workplace / "results").iterdir())
    listed: dict[str, Any] = json.loads(cache("list", "--json", "--results", workplace / "results").stdout)
    rows = {row["stage"]: row for row in listed["artifacts"]}
    assert sorted(rows) == ["data", "evaluate", "index", "passages", "queries", "search"]
    assert listed["bytes"] == sum(row["bytes"] for row in rows.values())
    links = {
        stage: [[name.partition("/")[0] for name in row[link]] for link in ("made_from", "used_by")]
        for stage, row in rows.items()
    }
    assert links == {
        "data": [[], ["evaluate", "passages", "queries", "search"]],
        "passages": [["data"], ["index"]],
        "queries": [["data"], ["search"]],
        "index": [["passages"], ["search"]],
        "search": [["data", "index", "queries"], ["evaluate"]],
        "evaluate": [["data", "search"], []],
    }
    assert all(row["state"] == "whole" and row["made_at"] <= row["used_at"] for row in rows.values())
    assert [row["results"] for row in rows.values()] == [[name]] * 6
    for command in (["list"], ["prune", "--older-than", "0s"]):
        table = cache(*command, "--results", workplace / "results").stdout
        assert all(re.search(f"{row['key'][:12]} + {name} ", table) for row in rows.values())


def test_verify_finds_damage_and_says_so_with_its_exit_code(cache: Cache, workplace: Path) -> None:
    assert json.loads(cache("verify", "--json").stdout)["damaged"] == 0
    (index,) = (workplace / "indexes/index").iterdir()
    with open(index / "index.faiss", "r+b") as file:
        file.seek(1000)
        file.write(b"X")
    assert json.loads(cache("verify", "--json", code=1).stdout)["damaged"] == 1
    assert "index.faiss" in cache("verify", code=1).stdout


@pytest.mark.parametrize(
    "instead", [Path.mkdir, lambda path: path.symlink_to("/proc/self/mem")], ids=["a folder", "an I/O error"]
)
def test_an_artifact_that_cannot_be_read_is_named_and_the_others_are_looked_at(
    cache: Cache, workplace: Path, caplog: pytest.LogCaptureFixture, instead: Callable[[Path], None]
) -> None:
    (folder,) = (workplace / "indexes/passages").iterdir()
    (folder / "manifest.json").unlink()
    instead(folder / "manifest.json")
    rows = json.loads(cache("list", "--json").stdout)["artifacts"]
    assert [row["stage"] for row in rows if row["state"] == "unreadable"] == ["passages"]
    assert [row["state"] for row in rows].count("whole") == 5
    assert "unreadable" in cache("list").stdout
    told = json.loads(cache("verify", "--json", code=1).stdout)
    assert told["damaged"] == 1
    assert [(row["state"], row["files"]) for row in told["artifacts"] if row["files"]] == [
        ("unreadable", ["manifest.json"])
    ]
    cache("prune", "--size", "0B", "--yes")
    assert stages(workplace) == ["passages"]
    assert caplog.messages == [f"{folder}: cannot be read, so it is kept"]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_command_says_what_to_do_about_an_artifact_that_cannot_be_read(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    keep_stderr(monkeypatch)
    monkeypatch.chdir(workplace)
    (folder,) = Path("indexes/search").iterdir()
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()
    assert benchmarco(command, "c.yaml", code=1).stderr == (
        f"benchmarco: {folder}/manifest.json: Is a directory; "
        "remove it, or name another folder with --set cache=DIR\n"
    )


def test_unfinished_work_is_listed_and_is_not_damage(cache: Cache, workplace: Path) -> None:
    def fail(draft: Any) -> Any:
        with draft.file("rows-0000000000-0000000002.npy") as path:
            path.write_bytes(b"a whole shard")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(workplace / "indexes").make(Recipe("passages", {"x": 1}), fail)
    rows = json.loads(cache("verify", "--json").stdout)["artifacts"]
    assert [row["key"] for row in rows if row["state"] == "unfinished"] == [Recipe("passages", {"x": 1}).key]


def test_a_run_marks_what_it_uses_and_prune_says_first_what_would_go(cache: Cache, workplace: Path) -> None:
    ago(workplace, 40 * DAY, *stages(workplace))
    assert run(workplace) == []
    assert prune(workplace / "indexes", [], older_than=DAY, dry=True) == []
    ago(workplace, 40 * DAY, "passages", "index")
    told = json.loads(cache("prune", "--older-than", "30d", "--json").stdout)
    assert [(row["stage"], row["removed"], row["why"]) for row in told["artifacts"]] == [
        ("index", False, "not used for 40.0 days"),
        ("passages", False, "not used for 40.0 days"),
    ]
    told = cache("prune", "--older-than", "30d").stdout
    assert "would remove 2 artifacts" in " ".join(told.split())  # a long path wraps the title
    assert len(stages(workplace)) == 6
    done = json.loads(cache("prune", "--older-than", "30d", "--yes", "--json").stdout)
    assert [row["removed"] for row in done["artifacts"]] == [True, True]
    assert stages(workplace) == ["data", "evaluate", "queries", "search"]
    assert run(workplace) == []  # the ranking is still there
    again = run(workplace, "search.top_k=60", "evaluate.measures=[ndcg@5]")
    assert again == ["passages", "index", "search", "evaluate"]


def test_size_takes_the_least_recently_used_until_the_rest_fits(workplace: Path) -> None:
    order = ["search", "data", "queries", "index", "passages", "evaluate"]
    for days, stage in enumerate(reversed(order)):
        ago(workplace, days * DAY + 10, stage)
    sizes = {kept.stage: kept.bytes for kept in cache_entries(workplace / "indexes")}
    total = sum(sizes.values())
    room = total - sizes["search"] - 1
    rows = prune(workplace / "indexes", [], size=room, dry=False)
    assert [row["stage"] for row in rows] == ["search", "data"]
    assert sum(kept.bytes for kept in cache_entries(workplace / "indexes")) <= room
    assert prune(workplace / "indexes", [], size=room, dry=False) == []


def test_unused_is_what_no_config_given_uses_and_options_narrow_each_other(
    cache: Cache, workplace: Path
) -> None:
    used = {kept.key for kept in cache_entries(workplace / "indexes")}
    for measure in ("ndcg@5", "mrr@5"):
        run(workplace, f"evaluate.measures=[{measure}]")
    old, new = (kept for kept in cache_entries(workplace / "indexes") if kept.key not in used)
    ago(workplace, 50 * DAY, *stages(workplace))
    os.utime(new.folder / "manifest.json")

    def told(*options: str) -> list[tuple[str, str]]:
        rows = json.loads(cache("prune", workplace / "c.yaml", *options, "--json").stdout)["artifacts"]
        return [(row["key"], row["why"]) for row in rows]

    both = [(old.key, "no config given uses it, not used for 50.0 days")]
    assert {key for key, _ in told("--unused")} == {old.key, new.key}
    assert told("--unused", "--older-than", "6w") == told("--unused", "--older-than", "720 h") == both
    assert told("--unused", "--older-than", "60d") == []
    assert told("--unused", "--older-than", "30d", "--size", "1TB") == []
    assert [key for key, _ in told("--older-than", "7w", "--size", "0.5 kb", "--yes")] == [old.key]
    assert run(workplace) == []


@pytest.mark.parametrize("arguments", [["list"], ["verify"], ["prune", "--older-than", "30d", "--yes"]])
def test_a_cache_that_is_not_there_yet_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = benchmarco("cache", *arguments).stdout
    assert said == "indexes does not exist yet: nothing is cached\n"
    assert document("cache", *arguments)["artifacts"] == []
    assert list(tmp_path.iterdir()) == []

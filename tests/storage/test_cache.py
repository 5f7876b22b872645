"""`benchmarco cache`: what is listed, found damaged, and pruned, on a real cache of a finished run."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipeline.api import run_benchmark
from pipeline.cli import app
from pipeline.cli.cache import parse_age, parse_size
from pipeline.config.files import load_config
from pipeline.core.errors import InputError
from pipeline.storage.artifacts import Recipe
from pipeline.storage.cache import PruneLimits, cache_entries, format_age, prune
from pipeline.storage.store import Store

Cache = Callable[..., Result]
DAY = 86400


@pytest.fixture
def cache(workplace: Path) -> Cache:
    """Runs `benchmarco cache ARGUMENTS --cache` on the workplace's cache."""

    def run(*arguments: object) -> Result:
        listed = ["cache", *map(str, arguments), "--cache", str(workplace / "indexes")]
        return CliRunner().invoke(app, listed)

    return run


def run(folder: Path, *settings: str) -> list[str]:
    """Run the config; the stages that were made."""
    places = [f"cache={folder}/indexes", f"output={folder}/results"]
    record = run_benchmark(load_config(folder / "c.yaml", [*places, *settings])).record
    return [row.stage for row in record.stages if row.outcome == "computed"]


def stages(folder: Path) -> list[str]:
    return [kept.stage for kept in cache_entries(folder / "indexes")]


def ago(folder: Path, seconds: float, *names: str) -> None:
    """Make it so that these stages were last used then."""
    for kept in cache_entries(folder / "indexes"):
        if kept.stage in names:
            os.utime(kept.folder / "manifest.json", (time.time() - seconds,) * 2)


def test_list_says_what_each_was_made_from_and_what_uses_it(cache: Cache) -> None:
    listed: dict[str, Any] = json.loads(cache("list", "--json").stdout)
    rows = {row["stage"]: row for row in listed["artifacts"]}
    assert sorted(rows) == ["data", "evaluate", "index", "passages", "queries", "search"]
    assert listed["bytes"] == sum(row["bytes"] for row in rows.values())
    links = {
        stage: (
            [name.partition("/")[0] for name in row["made_from"]],
            [n.partition("/")[0] for n in row["used_by"]],
        )
        for stage, row in rows.items()
    }
    assert links == {
        "data": ([], ["evaluate", "passages", "queries", "search"]),
        "passages": (["data"], ["index"]),
        "queries": (["data"], ["search"]),
        "index": (["passages"], ["search"]),
        "search": (["data", "index", "queries"], ["evaluate"]),
        "evaluate": (["data", "search"], []),
    }
    assert all(row["state"] == "whole" and row["made_at"] <= row["used_at"] for row in rows.values())
    table = cache("list").stdout
    assert all(row["key"][:12] in table for row in rows.values())


def test_verify_finds_damage_and_says_so_with_its_exit_code(cache: Cache, workplace: Path) -> None:
    good = cache("verify", "--json")
    assert (good.exit_code, json.loads(good.stdout)["damaged"]) == (0, 0)
    (index,) = (workplace / "indexes/index").iterdir()
    with open(index / "index.faiss", "r+b") as file:
        file.seek(1000)
        file.write(b"X")
    bad = cache("verify", "--json")
    assert (bad.exit_code, json.loads(bad.stdout)["damaged"]) == (1, 1)
    assert "index.faiss" in cache("verify").stdout


def folder_in_its_place(path: Path) -> None:
    path.mkdir()


def input_output_error(path: Path) -> None:
    path.symlink_to("/proc/self/mem")  # at the first byte


@pytest.mark.parametrize("instead", [folder_in_its_place, input_output_error])
def test_an_artifact_that_cannot_be_read_is_named_and_the_others_are_looked_at(
    cache: Cache, workplace: Path, caplog: pytest.LogCaptureFixture, instead: Callable[[Path], None]
) -> None:
    (folder,) = (workplace / "indexes/passages").iterdir()
    (folder / "manifest.json").unlink()
    instead(folder / "manifest.json")
    rows = json.loads(cache("list", "--json").stdout)["artifacts"]
    assert {row["stage"]: row["state"] for row in rows if row["state"] != "whole"} == {
        "passages": "unreadable"
    }
    assert "unreadable" in cache("list").stdout
    done = cache("verify", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["damaged"]) == (1, 1)
    assert [(row["state"], row["files"]) for row in told["artifacts"] if row["files"]] == [
        ("unreadable", ["manifest.json"])
    ]
    assert cache("prune", "--size", "0B", "--yes").exit_code == 0
    assert stages(workplace) == ["passages"]
    assert caplog.messages == [f"{folder}: cannot be read, so it is kept"]


def a_folder(manifest: Path, _: pytest.MonkeyPatch) -> None:
    manifest.unlink()
    manifest.mkdir()


def of_another_user(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refused(path: Any, *arguments: Any) -> int:
        if path == manifest:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refused)


@pytest.mark.parametrize(
    ("harm", "command", "reason"),
    [
        (a_folder, "run", "Is a directory"),
        (a_folder, "plan", "Is a directory"),
        (of_another_user, "run", "Permission denied"),
    ],
)
def test_a_run_says_what_to_do_about_an_artifact_that_cannot_be_read(
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path, pytest.MonkeyPatch], None],
    command: str,
    reason: str,
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would keep this test's stderr for ever
    monkeypatch.chdir(workplace)
    (folder,) = Path("indexes/search").iterdir()
    harm(folder / "manifest.json", monkeypatch)
    done = CliRunner().invoke(app, [command, "c.yaml"])
    assert done.exit_code == 1
    assert done.stderr == (
        f"benchmarco: {folder}/manifest.json: {reason}; "
        "make it readable, or remove it, or name another folder with --set cache=DIR\n"
    )


def test_unfinished_work_is_listed_and_is_not_damage(cache: Cache, workplace: Path) -> None:
    def fail(draft: Any) -> Any:
        with draft.file("rows-0000000000-0000000002.npy") as path:
            path.write_bytes(b"a whole shard")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(workplace / "indexes").make(Recipe("passages", {"x": 1}), fail)
    done = cache("verify", "--json")
    rows = json.loads(done.stdout)["artifacts"]
    assert done.exit_code == 0
    assert [row["key"] for row in rows if row["state"] == "unfinished"] == [Recipe("passages", {"x": 1}).key]


def test_prune_says_first_what_would_go(cache: Cache, workplace: Path) -> None:
    ago(workplace, 40 * DAY, "passages", "index")
    told = json.loads(cache("prune", "--older-than", "30d", "--json").stdout)
    assert [(row["stage"], row["removed"], row["why"]) for row in told["artifacts"]] == [
        ("index", False, "not used for 40 d"),
        ("passages", False, "not used for 40 d"),
    ]
    told = cache("prune", "--older-than", "30d").stdout
    assert "would remove 2 artifacts" in " ".join(told.split())  # a long path wraps the title
    assert len(stages(workplace)) == 6
    done = json.loads(cache("prune", "--older-than", "30d", "--yes", "--json").stdout)
    assert [row["removed"] for row in done["artifacts"]] == [True, True]
    assert stages(workplace) == ["data", "evaluate", "queries", "search"]
    assert run(workplace) == []  # the ranking is still there
    assert run(workplace, "search.top_k=60", "evaluate.measures=[ndcg@5]") == [
        "passages",
        "index",
        "search",
        "evaluate",
    ]


def test_a_run_marks_what_it_has_use_of(workplace: Path) -> None:
    ago(workplace, 40 * DAY, *stages(workplace))
    assert run(workplace) == []
    assert prune(workplace / "indexes", [], PruneLimits(older_than=DAY), dry=True) == []


def test_size_takes_the_least_recently_used_until_the_rest_fits(workplace: Path) -> None:
    order = ["search", "data", "queries", "index", "passages", "evaluate"]
    for days, stage in enumerate(reversed(order)):
        ago(workplace, days * DAY + 10, stage)
    sizes = {kept.stage: kept.bytes for kept in cache_entries(workplace / "indexes")}
    total = sum(sizes.values())
    room = total - sizes["search"] - 1
    rows = prune(workplace / "indexes", [], PruneLimits(size=room), dry=False)
    assert [row["stage"] for row in rows] == ["search", "data"]
    assert sum(kept.bytes for kept in cache_entries(workplace / "indexes")) <= room
    assert prune(workplace / "indexes", [], PruneLimits(size=room), dry=False) == []


def test_unused_is_what_no_config_given_uses(cache: Cache, workplace: Path) -> None:
    run(workplace, "model.query_instruction='find: '", "evaluate.measures=[ndcg@5]")
    settings = [text for name in ("cache", "output") for text in ("--set", f"{name}={workplace}/{name}")]
    told = cache("prune", workplace / "c.yaml", *settings, "--unused", "--yes", "--json")
    assert [row["stage"] for row in json.loads(told.stdout)["artifacts"]] == ["queries", "search", "evaluate"]
    assert len(stages(workplace)) == 6
    assert run(workplace) == []


def test_options_given_together_narrow_each_other(cache: Cache, workplace: Path) -> None:
    used = {kept.key for kept in cache_entries(workplace / "indexes")}
    for measure in ("ndcg@5", "mrr@5"):
        run(workplace, f"evaluate.measures=[{measure}]")
    old, new = (kept for kept in cache_entries(workplace / "indexes") if kept.key not in used)
    os.utime(old.folder / "manifest.json", (time.time() - 50 * DAY,) * 2)
    ago(workplace, 50 * DAY, "data", "search")

    def told(*options: str) -> list[tuple[str, str]]:
        rows = json.loads(cache("prune", workplace / "c.yaml", *options, "--json").stdout)["artifacts"]
        return [(row["key"], row["why"]) for row in rows]

    both = [(old.key, "no config given uses it, not used for 50 d")]
    assert {key for key, _ in told("--unused")} == {old.key, new.key}
    assert told("--unused", "--older-than", "30d") == both
    assert told("--unused", "--older-than", "60d") == []
    assert told("--unused", "--older-than", "30d", "--size", "1TB") == []


def test_what_is_removed_while_it_is_looked_at_is_passed_over(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index,) = (workplace / "indexes" / "index").iterdir()
    (index / "aside").mkdir()
    scan = os.scandir

    def scan_what_goes(path: Any) -> Any:
        if Path(path).name == "aside":
            Path(path).rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_what_goes)
    assert "index" in stages(workplace)


def test_what_a_config_given_uses_stays_however_old_it_is(cache: Cache, workplace: Path) -> None:
    run(workplace, "evaluate.measures=[ndcg@5]")
    ago(workplace, 400 * DAY, *stages(workplace))
    done = cache("prune", workplace / "c.yaml", "--older-than", "8w", "--size", "0B", "--yes", "--json")
    assert [row["stage"] for row in json.loads(done.stdout)["artifacts"]] == ["evaluate"]


def test_other_files_in_the_cache_are_left_alone(workplace: Path, tmp_path: Path) -> None:
    root = workplace / "indexes"
    (root / "README.md").write_text("mine", encoding="utf-8")
    (root / "data" / "notes").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x", encoding="utf-8")
    (root / "data" / ("f" * 64)).symlink_to(outside)
    prune(root, [], PruneLimits(size=0), dry=False)
    assert cache_entries(root) == []
    assert (root / "README.md").exists()
    assert (root / "data" / "notes").is_dir()
    assert (outside / "precious").exists()


@pytest.mark.parametrize("arguments", [["list"], ["verify"], ["prune", "--older-than", "30d", "--yes"]])
def test_a_cache_that_is_not_there_yet_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["cache", *arguments])
    assert (done.exit_code, done.stdout) == (0, "indexes does not exist yet: nothing is cached\n")
    assert json.loads(CliRunner().invoke(app, ["cache", *arguments, "--json"]).stdout)["artifacts"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "--cache", "/dev/null"], "cache /dev/null is a file"),
        (["prune"], "no option says what to prune"),
        (["prune", "--unused"], "--unused without a config"),
        (["prune", "--older-than", "30"], "--older-than 30: not a number with a unit"),
        (["prune", "--older-than", "soon"], "units s, m, h, d, w"),
        (["prune", "--size", "big"], "units B, KB, MB, GB, TB"),
        (["prune", "--size", "-1GB"], "--size -1GB"),
        (["prune", "none.yaml", "--unused"], "config none.yaml: no such file"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["cache", *arguments])
    assert done.exit_code == 2
    assert expected in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_ages_and_sizes() -> None:
    assert [format_age(seconds) for seconds in (5, 60, 7200, 3 * DAY + 5)] == ["5 s", "1 m", "2 h", "3 d"]
    assert (parse_age("1.5d"), parse_age("2w"), parse_age("90 s")) == (1.5 * DAY, 14 * DAY, 90)
    assert (parse_size("10gb"), parse_size("1.5 MB"), parse_size("0B")) == (10**10, 1_500_000, 0)
    with pytest.raises(InputError):
        parse_size("1 PB")

"""The commands on the program and its caches: `doctor`, `suites`, `schema`, `example` and `cache`.

None of them imports the config's classes before it needs them: they answer at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.core import machine, plugins
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.kernels import Kernels, loaded_kernels
from pipeline.core.table import Column, Table
from pipeline.report.listings import cache_table, prune_table, suite_table, suites_table, verify_table
from pipeline.terminal import FAILED, Json, Sets, argument, end_with, load, option, print_json, show

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.config.suites import Suite
    from pipeline.core.records import Facts, JsonObject


def doctor(
    configs: Annotated[
        list[Path] | None, argument("Show the models of these benchmarks instead.", "[CONFIG]")
    ] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Show what is installed and runs here, or a config's models.

    For a CONFIG: files, tokenizer, modules, pooling, prompts, lengths and number formats of each model, what
    its files do not say, and how its rows compare with those of plain transformers.
    """
    if configs:
        records = list(_model_records(load(configs, settings)))
        if as_json:
            print_json({"models": records})
        else:
            show(*map(_record_table, records))
        return
    state = examine()
    if as_json:
        print_json(state)
        return
    rows = [(each["backend"], each["state"]) for each in state["backends"]]
    columns = [Column("backend", wrap="never"), Column("state", wrap="words")]
    tables = [_machine(state), _packages(state), Table("backends", columns, rows)]
    if state["plugins"]:
        columns = [Column("kind"), Column("name"), Column("package"), Column("state", wrap="words")]
        tables.append(Table("plugins", columns, [list(plugin.values()) for plugin in state["plugins"]]))
    show(*tables)


def _model_records(configs: Iterable[Config]) -> Iterator[Facts]:
    """The record of each model that encodes texts, with its comparison."""
    from pipeline.config import of_each_collection
    from pipeline.encoders.opener import TextOpener
    from pipeline.models.record import model_record
    from pipeline.run.benchmark import Session

    known = set[str]()
    with Session() as session:
        for benchmark in map(session.benchmark, of_each_collection(list(configs))):
            for section in benchmark.resolved_config.models:
                opener = session.identities.resolve(section)
                key = repr((opener.settings, opener.model)) if isinstance(opener, TextOpener) else ""
                if isinstance(opener, TextOpener) and key not in known:
                    known.add(key)
                    yield {**model_record(opener.model), "comparison": opener.comparison(benchmark.store)}


def _record_table(record: Facts) -> Table:
    """The record of a model, a fact a row."""
    rows = []
    for name, value in record.items():
        if isinstance(value, dict) and set(value) == {"value", "source"}:
            shown = f"{value['value'] if value['value'] != '' else 'none'} ({value['source']})"
        elif isinstance(value, dict):
            shown = ", ".join(f"{key.replace('_', ' ')}: {each}" for key, each in value.items())
        elif isinstance(value, list):
            shown = ", ".join(value) or "none"
        else:
            shown = "not declared" if value is None else str(value)
        rows.append((name, shown))
    return Table(f"model {record['name']}", [Column("what"), Column("is", wrap="words")], rows)


def examine() -> Facts:
    """All that `doctor` finds, as plain JSON."""
    from pipeline.core import installation
    from pipeline.search import faiss_library  # noqa: F401

    importlib.import_module("torch")  # its kernels are known once it is loaded
    packages = installation.installed_packages()
    return {
        "hardware": {**machine.hardware(), "features": machine.processor_features()},
        "threads": machine.threads(),
        "kernels": [dataclasses.asdict(each) for each in loaded_kernels()],
        "faster_than_fp32": machine.fast_precisions(),
        "hub": dataclasses.asdict(installation.ask_hub()),
        "packages": [
            {**dataclasses.asdict(each), "extra": each.extra or None, "install": each.command or None}
            for each in packages
        ],
        "backends": [*_backends({each.name: each.command for each in packages})],
        "plugins": [*_plugins()],
    }


def _backends(commands: Mapping[str, str]) -> Iterator[Facts]:
    """A row for each backend; `commands` has the install commands of missing packages that are required."""
    from pipeline.config import BACKENDS
    from pipeline.core import installation

    for backend in [name for name in BACKENDS if name != "auto"]:
        state = "runs"
        package = BACKENDS[backend].package
        if package and installation.installed_version(package) is None:
            state = "needs " + commands.get(package, f"pip install '{package}'")
        elif backend == "native" and not machine.has_vnni():
            state = "runs, slowly: this processor has no VNNI"
        elif backend == "native" and "amx_int8" in machine.processor_features():
            state = "runs, by AMX" if machine.has_amx() else "runs; this process may not use AMX"
        yield {"backend": backend, "state": state}


def _plugins() -> Iterator[Facts]:
    """A row for each entry point of another package."""
    from pipeline.config import BACKENDS, RERANKERS, SOURCES
    from pipeline.metrics.definitions import add_plugins

    for kinds in (BACKENDS, RERANKERS, SOURCES):
        list(kinds)  # adds theirs
    add_plugins()
    for group in plugins.GROUPS:
        for plugin in plugins.add_plugins(group, lambda name, value: None):
            yield {
                "kind": plugins.group_noun(group),
                "name": plugin.name,
                "package": plugin.package,
                "state": plugin.problem or "loaded",
            }


SHOWN = (
    "python", "benchmarco", "FlagEmbedding", "faiss-cpu", "numba", "openvino", "sentence-transformers",
    "torch", "transformers",
)  # fmt: skip
"""Packages that are shown even if they are installed."""


def _machine(state: Facts) -> Table:
    """What the machine is and what it reaches, a fact a row."""
    hardware, hub = state["hardware"], state["hub"]
    rows = [
        ("processor", f"{hardware['cpu']}, {counted(hardware['cores'], 'core')}, {state['threads']} used"),
        ("its features", " ".join(hardware["features"]) or "none of those that the backends use"),
        ("matrix kernels", "; ".join(str(Kernels(**each)) for each in state["kernels"])),
        ("faster than fp32", ", ".join(state["faster_than_fp32"]) or "none that is known"),
        ("memory", f"{hardware['memory_gb']} GB"),
        ("GPU", ", ".join(hardware["gpus"]) or "none"),
        ("system", hardware["system"]),
        ("hub", f"{hub['address']}: {hub['said']}" if hub["reachable"] else f"not reached: {hub['said']}"),
    ]
    notes = []
    if not hub["reachable"]:
        notes.append("Offline: only models and data that are on this machine can be used.")
    return Table("this machine", [Column("what"), Column("is", wrap="words")], rows, notes)


def _packages(state: Facts) -> Table:
    """The packages that decide speeds and results, extras, and what is missing with its command."""
    shown = [
        each
        for each in state["packages"]
        if each["name"] in SHOWN or each["extra"] or each["version"] is None
    ]
    columns = [Column("package"), Column("version"), Column("extra")]
    rows = [[each["name"], each["version"] or "not installed", each["extra"] or ""] for each in shown]
    if any(each["install"] for each in shown):
        columns.append(Column("command that installs it", wrap="words"))
        rows = [[*row, each["install"] or ""] for row, each in zip(rows, shown, strict=True)]
    others = len(state["packages"]) - len(shown)
    notes = [f"{counted(others, 'other package')}: all installed; --json lists them."] if others else []
    return Table("packages", columns, rows, notes)


def suites(
    name: Annotated[str | None, argument("List the collections of this suite.")] = None, as_json: Json = False
) -> None:
    """List the built-in suites: sizes and licenses."""
    from pipeline.config.suites import read_suite, suite_names

    names = suite_names()
    if name is not None and name not in names:
        raise InputError(f"no suite '{name}'", allowed=", ".join(names), fix="name one of them")
    listed = {each: read_suite(each) for each in ([name] if name else names)}
    if as_json:
        documents = [_suite_document(each, suite) for each, suite in listed.items()]
        print_json(documents[0] if name else documents)
    else:
        show(suite_table(name, listed[name]) if name else suites_table(listed))


def _suite_document(name: str, suite: Suite) -> JsonObject:
    """A suite as JSON, with what holds for each collection written out."""
    collections = [
        {
            "name": collection,
            **{key: getattr(each.data, key, None) for key in ("source", "path", "revision")},
            "main_measure": suite.measure_of(collection),
            "license": suite.license_of(collection),
            **each.model_dump(include={"group", "passages", "queries", "query_instruction"}),
            "data": each.data.model_dump(exclude_unset=True),
            "mteb": each.mteb and each.mteb.model_dump(exclude_unset=True),
        }
        for collection, each in suite.collections.items()
    ]
    known = suite.model_dump(include={"description", "license", "main_measure"})
    totals = {"passages": suite.total("passages"), "queries": suite.total("queries")}
    return {"name": name, **known, "collections": collections, **totals}


def schema() -> None:
    """Print the config's JSON Schema, for editors."""
    from pipeline.config.files import file_schema

    print_json(file_schema())


def example(
    table: Annotated[bool, option("For your own tables: CSV, TSV, Parquet.", flags="--table")] = False,
) -> None:
    """Print a config to start from; --table: one for tables."""
    name = "example_table.yaml" if table else "example.yaml"
    print((Path(__file__).parents[1] / name).read_text(encoding="utf-8"), end="")


Folder = Annotated[Path, option("Folder of artifacts.", "DIR", flags="--cache")]
Results = Annotated[Path, option("Folder of results that may use them.", "DIR", flags="--results")]
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def list_artifacts(
    folder: Folder = Path("indexes"), results: Results = Path("results"), as_json: Json = False
) -> None:
    """List artifacts: size, age, and results that use each."""
    from pipeline.storage import cache as stored

    rows = stored.add_results(stored.describe_entries(folder), results)
    rows.sort(key=lambda row: (not row["results"], row["results"][:1], -row["bytes"]))
    table = cache_table(str(folder), rows, str(results)) if folder.exists() else None
    _show_artifacts(folder, rows, as_json, {"bytes": sum(row["bytes"] for row in rows)}, table)


def verify_artifacts(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Compare every byte with its checksum. Exit code 1 if anything is damaged."""
    from pipeline.storage import cache as stored

    rows = stored.verify(folder)
    damaged = sum(bool(row["files"]) for row in rows)
    table = verify_table(str(folder), rows) if damaged else None
    whole = f"{counted(len(rows), 'artifact')}, nothing is damaged"
    _show_artifacts(folder, rows, as_json, {"damaged": damaged}, table, whole)
    end_with(FAILED if damaged else 0)


def prune(
    configs: Annotated[list[Path] | None, argument("Configs whose artifacts are kept.", "CONFIG")] = None,
    settings: Sets = None,
    unused: Annotated[bool, option("Prune what none of the CONFIGs uses.", flags="--unused")] = False,
    older_than: Annotated[
        str | None, option("Prune what no run used for this long: 12h, 30d, 8w.", "AGE")
    ] = None,
    size: Annotated[
        str | None, option("Prune the least recently used until this much is left: 10GB.", "SIZE")
    ] = None,
    yes: Annotated[
        bool, option("Remove the artifacts, instead of only listing them.", flags="--yes")
    ] = False,
    folder: Folder = Path("indexes"),
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """List artifacts to remove, and with --yes remove them. What a running process uses is kept.

    With several of --unused, --older-than and --size, only artifacts matching every option are pruned.
    """
    from pipeline.config import of_each_collection
    from pipeline.run.benchmark import Session
    from pipeline.storage.cache import PruneLimits, add_results, prune

    if (unused and not configs) or not (unused or older_than or size):
        raise InputError(
            "cache prune: " + ("--unused without a config" if unused else "no option says what to prune"),
            allowed="--older-than AGE, --size SIZE, or --unused with the configs whose artifacts are kept",
            fix="give at least one of them",
        )
    configured = of_each_collection(load(configs or [], settings))
    with Session() as session:
        benchmarks = map(session.benchmark, configured)
        recipes = [recipe for benchmark in benchmarks for recipe in benchmark.recipes.values()]
    seconds = _parse(older_than, "--older-than", _SECONDS, "12h, 30d, 8w") if older_than else None
    most = int(_parse(size.upper(), "--size", _BYTES, "500MB, 10GB")) if size else None
    limits = PruneLimits(unused, seconds, most)
    rows = add_results(prune(folder, recipes, limits, dry=not yes), results)
    table = prune_table(str(folder), rows, not yes, str(results)) if rows else None
    size_of_all = {"bytes": sum(row["bytes"] for row in rows)}
    _show_artifacts(folder, rows, as_json, size_of_all, table, "nothing to prune")


def _show_artifacts(
    folder: Path,
    rows: list[Facts],
    as_json: bool,
    total: JsonObject,
    table: Table | None,
    otherwise: str = "",
) -> None:
    """Print the artifacts of a cache as JSON, or as a table; without one a sentence."""
    if as_json:
        print_json({"cache": str(folder), **total, "artifacts": rows})
    elif table:
        show(table)
    else:
        print(
            f"{folder}: {otherwise}" if folder.exists() else f"{folder} does not exist yet: nothing is cached"
        )


def _parse(text: str, option: str, units: Mapping[str, float], examples: str) -> float:
    """Seconds of a time span such as `30d`, or bytes of a size such as `10GB`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([A-Za-z]+)", text.strip())
    if match is None or match[2] not in units:
        raise InputError(
            f"{option} {text}: not a number with a unit",
            allowed=f"units {', '.join(units)}, such as {examples}",
            fix="give a number and its unit without a space",
        )
    return float(match[1]) * units[match[2]]

"""The commands on the program: `doctor`, `suites`, `schema` and `example`.

None of them imports the config's classes before it needs them: they answer at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.cli.line import Data, Models, line_example
from pipeline.core import machine, plugins
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.kernels import loaded_kernels
from pipeline.core.table import Column, Table, table_of
from pipeline.report.listings import suite_table, suites_table
from pipeline.terminal import Json, Sets, argument, option, print_json, show

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
    its files do not say, what each check of its network found, and how it compares with its library.
    """
    if configs:
        from pipeline.config.files import load_configs

        records = list(_model_records(load_configs(configs, settings or ())))
        if as_json:
            print_json({"models": records})
        else:
            show(*map(_record_table, records))
        return
    state = examine()
    if as_json:
        print_json(state)
        return
    listed = {name: state[name] for name in ("packages", "backends", "plugins") if state[name]}
    show(_machine(state), *(_listing(name, rows) for name, rows in listed.items()))


def _listing(title: str, rows: Sequence[Facts]) -> Table:
    """Plain facts as a table, a column for each key that any row has a value of."""
    columns = [Column(key, wrap="words" if key in ("state", "install") else "anywhere") for key in rows[0]]
    return table_of(title, [(column, [each[column.name] or "" for each in rows]) for column in columns])


def _model_records(configs: Iterable[Config]) -> Iterator[Facts]:
    """The record of each local model, with what its checks found."""
    from pipeline.config import of_each_collection
    from pipeline.config.settings import RunsModel
    from pipeline.encoders.opener import Opener
    from pipeline.encoders.openers import settle
    from pipeline.models.model import model_record
    from pipeline.run.benchmark import Session
    from pipeline.storage.store import Store

    known, session = set[str](), Session()
    for config in of_each_collection(list(configs)):
        resolve = partial(session.resolve, cache=Path(config.cache))
        with Store(Path(config.cache)) as store:
            settled = settle(config, resolve)
            for section in [each for one in (*settled.parts, settled) for each in (one.model, one.rerank)]:
                if not isinstance(section, RunsModel):
                    continue
                opener = resolve(section)
                key = repr((opener.settings, opener.model)) if isinstance(opener, Opener) else ""
                if isinstance(opener, Opener) and key not in known:
                    known.add(key)
                    opener.prepare(store)
                    compared = opener.comparison(store) or "not compared: its library computes it"
                    yield {**model_record(opener.model), **opener.checks(store), "comparison": compared}


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
        "packages": [dataclasses.asdict(each) for each in packages],
        "backends": [*_backends({each.name: each.install for each in packages if each.install})],
        "plugins": [*_plugins()],
    }


def _backends(commands: Mapping[str, str]) -> Iterator[Facts]:
    """A row for each backend; `commands` has the install commands of missing packages that are required."""
    from pipeline.config import BACKENDS
    from pipeline.core import installation
    from pipeline.encoders.openers import ON_CPU, choose_device

    states: dict[str, str] = {}
    for backend, settings in BACKENDS.all().items():
        if backend == "auto":
            continue
        state, package = "runs", settings.package
        if package and package not in installation.versions(package):
            state = "needs " + commands.get(package, f"pip install '{package}'")
        elif backend == "native" and not machine.has_vnni():
            state = "runs, slowly: this processor has no VNNI"
        elif backend == "native" and "amx_int8" in machine.processor_features():
            state = "runs, by AMX" if machine.has_amx() else "runs; this process may not use AMX"
        states[backend] = state
    tried = [name for name in ON_CPU["fp32"] if not re.match("needs|runs, slowly", states[name])]
    tried = tried if choose_device("auto", on_gpu=True) == "cpu" else ["flag"]
    states["auto"] = f"takes the first that suits a model: {', '.join(tried)}"
    yield from ({"backend": backend, "state": state} for backend, state in states.items())


def _plugins() -> Iterator[Facts]:
    """A row for each entry point of another package."""
    from pipeline.config import BACKENDS, RERANKERS, SOURCES
    from pipeline.metrics.definitions import add_plugins

    for kinds in (BACKENDS, RERANKERS, SOURCES):
        kinds.all()  # adds theirs
    add_plugins()
    for group in plugins.GROUPS:
        for plugin in plugins.add_plugins(group, lambda name, value: None):
            yield {
                "kind": plugins.group_noun(group),
                "name": plugin.name,
                "package": plugin.package,
                "state": plugin.problem or "loaded",
            }


def _machine(state: Facts) -> Table:
    """What the machine is and what it reaches, a fact a row."""
    hardware, hub = state["hardware"], state["hub"]
    kernels = ["{library}: {blas}, {core}".format(**each) for each in state["kernels"]]
    rows = [
        ("processor", f"{hardware['cpu']}, {counted(hardware['cores'], 'core')}, {state['threads']} used"),
        ("its features", " ".join(hardware["features"]) or "none of those that the backends use"),
        ("matrix kernels", "; ".join(kernels)),
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
    model: Models = None,
    data: Data = None,
    settings: Sets = None,
    table: Annotated[bool, option("For your own tables: CSV, TSV, Parquet.", flags="--table")] = False,
) -> None:
    """Print a config to start from, or that of --model and --data."""
    if model or data or settings:
        print(line_example(model, data, settings or ()), end="")
        return
    name = "example_table.yaml" if table else "example.yaml"
    print((Path(__file__).parents[1] / name).read_text(encoding="utf-8"), end="")

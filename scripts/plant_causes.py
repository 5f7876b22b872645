"""Whether `verify --why` names the cause of scores that are measured with one setting changed.

    python scripts/plant_causes.py --work /tmp/planted [--model MODEL] [--only TEXT]... [--on NAME]

Each cell has a cache of its own with what a first run of the benchmark leaves, so that its minutes are those
of a user. A cause is named at the place of the first change that explains all scores, or that has the name
which the cell gives. Each row is written to WORK/rows.jsonl, and all are printed as a table.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import run_benchmark
from pipeline.studies.verify import verify

MEASURES = ("ndcg@10", "map@1000", "recall@100", "mrr@10", "precision@10")
DIGITS = 5
BGE = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True)
class Plant:
    """A cause.

    Attributes:
        name: What the table calls it.
        theirs: Settings of the published scores, by dotted paths.
        mine: Settings of the benchmark, where it has not the default.
        measures: What is published under the name of another measure.
        on: The collection; "" is the usual one.
        named: How the change is called, where it gives the scores but for what it cannot know.
    """

    name: str
    theirs: Mapping[str, object] = field(default_factory=dict)
    mine: Mapping[str, object] = field(default_factory=dict)
    measures: Mapping[str, str] = field(default_factory=dict)
    on: str = ""
    named: str = ""


EVALUATION = [
    Plant("ids of judgments", {"data.split": "as-published"}),
    Plant("gain", measures={"ndcg@10": "ndcg(gain=exp)@10"}, on="dl19"),
    Plant(
        "grades from 2",
        measures={name: name.replace("@", "(rel=2)@") for name in MEASURES if not name.startswith("ndcg")},
        on="dl19",
    ),
    Plant("cutoff of map", measures={"map@1000": "map@100"}),
    Plant("capped recall", measures={"recall@100": "recall(cap=true)@100"}, on="dl19"),
    Plant("map over retrieved", measures={"map@1000": "map(norm=retrieved)@1000"}),
    Plant("duplicates removed", mine={"data.path": "repeated"}, named="passages with an earlier one's text"),
    Plant("own ids removed", {"data.ignored": "identical_ids"}, on="scifact"),
]
DENSE = [
    Plant("prompt of queries (E5)", {"model.query_instruction": "query: "}),
    Plant("prompt of queries (BGE)", {"model.query_instruction": BGE}),
    Plant("prompt of queries missing", {}, {"model.query_instruction": "search_query: "}),
    Plant("prompt of passages (E5)", {"model.passage_instruction": "passage: "}),
    Plant(
        "prompts of both (E5)",
        {"model.query_instruction": "query: ", "model.passage_instruction": "passage: "},
    ),
    Plant(
        "prompts on the wrong side",
        {"model.query_instruction": "passage: ", "model.passage_instruction": "query: "},
        {"model.query_instruction": "query: ", "model.passage_instruction": "passage: "},
    ),
    Plant("length of queries", {"model.query_max_length": 32}),
    Plant("length of both", {"model.query_max_length": 128, "model.passage_max_length": 128}),
    Plant("length of passages", {"model.passage_max_length": 128}),
    Plant("short passages", {"model.passage_max_length": 32}),
    Plant("separator of titles", {"data.title_separator": ". "}),
    Plant("no titles", {"data.title_separator": None}),
    Plant("titles left out", {}, {"data.title_separator": None}),
    Plant("pooling", {"model.pooling": "cls"}),
    Plant("no normalization", {"model.normalize": False}),
    Plant("int8", {"model.backend": "openvino", "model.precision": "int8"}),
]
BM25 = [
    Plant("k1 and b (MS MARCO)", {"model.k1": 0.82, "model.b": 0.68}),
    Plant("k1 and b (Elasticsearch)", {"model.k1": 1.2, "model.b": 0.75}),
    Plant("no stemming", {"model.stemmer": None}),
    Plant("Porter's first stemmer", {"model.stemmer": "porter"}),
    Plant("stop words", {"model.stop_words": None}),
    Plant("no titles", {"data.title_separator": None}),
    Plant("no titles and no stemming", {"data.title_separator": None, "model.stemmer": None}),
    Plant("k1, b and stop words", {"model.k1": 1.2, "model.b": 0.75, "model.stop_words": None}),
]


def models(mpnet: Path, splade: Path) -> dict[str, dict[str, object]]:
    """The section `model` of each model by its name."""
    return {
        "MiniLM": {"backend": "native", "name": "all-minilm-l6-v2"},
        "mpnet": {"backend": "native", "name": str(mpnet)},
        "SPLADE": {"backend": "auto", "output": "sparse", "name": str(splade)},
        "BM25": {"backend": "bm25"},
    }


def config_of(
    model: Mapping[str, object], data: Path, work: Path, changes: Mapping[str, object]
) -> dict[str, Any]:
    """A benchmark with settings changed."""
    made: dict[str, Any] = {
        "name": "planted",
        "data": {"source": "beir", "path": str(data), "split": "test"},
        "model": dict(model),
        "evaluate": {"measures": [*MEASURES]},
    }
    for path, value in changes.items():
        section, name = path.split(".")
        made[section][name] = value
    return made | {"cache": str(work / "cache"), "output": str(work / "results")}


def repeated(data: Path, place: Path) -> Path:
    """A copy of a collection with every second passage once more, under another id, at its end."""
    if not place.is_dir():
        shutil.copytree(data, place)
        packed = place / "corpus.jsonl.gz"
        lines = gzip.decompress(packed.read_bytes()).decode().splitlines()
        copies = [json.loads(line) for line in lines[::2]]
        lines += [json.dumps(each | {"_id": f"{each['_id']}-copy"}) for each in copies]
        packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    return place


def plant(one: Plant, model: Mapping[str, object], data: Path, work: Path, minutes: float) -> dict[str, Any]:
    """Measure the published scores, ask for their cause, and say where it was named."""
    mine = dict(one.mine)
    if "data.path" in mine:
        mine["data.path"] = str(repeated(data, work / "repeated"))
    theirs = config_of(model, data, work / "theirs", one.theirs)
    theirs["evaluate"]["measures"] = [one.measures.get(name, name) for name in MEASURES]
    found = run_benchmark(theirs).metrics
    published = {name: round(found[one.measures.get(name, name)], DIGITS) for name in MEASURES}

    base, own = config_of(model, data, work / "base", mine), work / "own"
    run_benchmark(base)
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(work / "base", own, copy_function=os.link)
    expected = work / "published.csv"
    with open(expected, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "collection", "measure", "value"])
        writer.writerows(["x", data.name, name, f"{value:.{DIGITS}f}"] for name, value in published.items())
    started, computed = time.perf_counter(), time.process_time()
    done = verify(
        [own / "results" / "planted"],
        expected=[expected],
        why=True,
        minutes=minutes,
        overrides=[f"cache={own / 'cache'}"],
    )
    row: dict[str, Any] = {
        "cause": one.name,
        "collection": data.name,
        "minutes": (time.perf_counter() - started) / 60,
        "cpu_minutes": (time.process_time() - computed) / 60,
    }
    wrong = [cell for cell in done.cells if cell.verdict == "not reproduced"]
    if not wrong:
        return row | {"off": None}  # no cause to look for
    worst = max(wrong, key=lambda cell: abs(cell.difference or 0))
    changes = [tried.change for tried in worst.why or ()]
    right = [
        all(name in cell.explained_by for cell in wrong) or bool(one.named and name.startswith(one.named))
        for name in changes
    ]
    return row | {
        "off": max(abs(cell.difference or 0) for cell in wrong),
        "rank": right.index(True) + 1 if any(right) else 0,
        "first": changes[0] if changes else "",
        "left": abs(worst.why[0].difference) if worst.why else None,
        "candidates": len(worst.explained_by),
        "tried": len(changes),
        "not_tried": len(worst.not_tried),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, and how many causes are first."""
    lines = [
        "| model | collection | cause | off by | place | named first | minutes |",
        "|---|---|---|---:|---:|---|---:|",
    ]
    lines += [
        "| {model} | {collection} | {cause} | {off:.4f} | {rank} | {first} | {minutes:.1f} |".format(**row)
        for row in rows
    ]
    first = sum(row["rank"] == 1 for row in rows)
    longest = max(row["minutes"] for row in rows)
    return "\n".join([*lines, "", f"{first} of {len(rows)} first, each within {longest:.1f} minutes"])


def main() -> None:
    """Plant causes and print where they were named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for caches and results")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder of the collections")
    parser.add_argument("--mpnet", type=Path, default=Path("all-mpnet-base-v2"), help="folder of that model")
    parser.add_argument("--model", action="append", help="MiniLM, mpnet, SPLADE or BM25; may be repeated")
    parser.add_argument("--only", action="append", help="causes by name")
    parser.add_argument("--on", default="cacm", help="the collection of causes that have none of their own")
    parser.add_argument("--minutes", type=float, default=10.0, help="budget of each")
    given = parser.parse_args()
    places = {"": given.on, "dl19": "msmarco-dl19", "scifact": "scifact"}
    given.work.mkdir(parents=True, exist_ok=True)
    file = given.work / "rows.jsonl"
    for name, model in models(given.mpnet, given.shared / "models" / "splade-tiny").items():
        if given.model and name not in given.model:
            continue
        own = BM25 if name == "BM25" else DENSE if name != "SPLADE" else DENSE[:12]
        for one in [*EVALUATION, *own]:
            if given.only and one.name not in given.only:
                continue
            data = (given.shared / "data" / places[one.on]).resolve()
            row = plant(one, model, data, given.work / name / data.name, given.minutes)
            with open(file, "a", encoding="utf-8") as stream:
                stream.write(json.dumps({"model": name, **row}) + "\n")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    latest = {(row["model"], row["collection"], row["cause"]): row for row in rows if row["off"] is not None}
    print(table([*latest.values()]))


if __name__ == "__main__":
    main()

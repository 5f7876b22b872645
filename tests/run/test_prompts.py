"""A sweep over query instructions: a benchmark for each, on the same encoded passages."""

import json
from pathlib import Path

import numpy as np
from comparison.made import config
from workplaces import benchmarco, read_json

from pipeline.results import read_result


def test_each_prompt_is_run_on_the_same_passages_and_the_results_are_compared(tmp_path: Path) -> None:
    data = {"source": "sample", "corpus": 200, "queries": 40}
    model = {"backend": "native", "name": "all-minilm-l6-v2"}
    sweep = {"model.query_instruction": ["", "asked: "]}
    (tmp_path / "c.yaml").write_text(
        json.dumps(config(tmp_path, "p", data=data, model=model, sweep=sweep)), encoding="utf-8"
    )
    run = benchmarco("run", tmp_path / "c.yaml")
    folders = [tmp_path / "results" / f"p-{name}" for name in ("query_instruction-empty", "asked")]
    assert f"compare {folders[0]} {folders[1]}" in run.stdout
    stages = read_json(folders[1] / "metrics.json")["stages"]
    reused = {row["stage"]: row["reused"] for row in stages}
    assert (reused["passages"], reused["queries"]) == (True, False)
    assert not np.array_equal(*(read_result(folder).values for folder in folders))

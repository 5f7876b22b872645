"""`ir-metadata.yml`: the run of a result in the terms of ir-metadata.org."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipeline.api import run_benchmark
from pipeline.config.files import load_config
from pipeline.core import energy
from pipeline.core.progress import Bar, silent


def described(folder: Path, *settings: str, **arguments: Any) -> dict[str, Any]:
    (folder / "c.yaml").write_text(
        "name: lexical\ndata: {source: sample}\nmodel: {backend: bm25}\nsearch: {top_k: 10}\n"
        f"evaluate: {{measures: [ndcg@10]}}\ncache: {folder}/indexes\noutput: {folder}/results\n",
        encoding="utf-8",
    )
    result = run_benchmark(load_config(folder / "c.yaml", settings), **arguments)
    content: dict[str, Any] = yaml.safe_load((result.folder / "ir-metadata.yml").read_text(encoding="utf-8"))
    return content


def test_the_components_of_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "none")
    found = described(tmp_path)
    manifest = json.loads((tmp_path / "results/lexical/manifest.json").read_text(encoding="utf-8"))
    assert list(found) == [
        "schema-version", "run-version", "tag", "platform", "research goal", "implementation", "resources",
        "method", "actor", "data",
    ]  # fmt: skip
    assert found["tag"] == "lexical"
    cpu = found["platform"]["hardware"]["cpu"]
    assert (cpu["model"], cpu["number of cores"]) == (
        manifest["hardware"]["cpu"],
        manifest["hardware"]["cores"],
    )
    libraries = found["platform"]["software"]["libraries"]["python"]
    assert f"numpy=={np.__version__}" in libraries
    assert found["platform"]["software"]["retrieval toolkit"][0].startswith("benchmarco==")
    assert found["research goal"]["evaluation"]["reported measures"] == ["ndcg@10"]
    assert found["method"]["score ties"] == "reverse alphabetical order"
    assert found["method"]["retrieval"] == [{"name": "bm25", "method": "bm25", "k1": 0.9, "b": 0.4}]
    assert found["data"]["test collection"] == {
        "name": "sample", "split": "test", "queries": 114, "passages": 345
    }  # fmt: skip
    assert set(found["resources"]) == {"runtime", "ram"}  # nothing of energy, which is not told


def test_energy_is_said_where_the_machine_tells_it_and_co2_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "powercap/intel-rapl:0"
    package.mkdir(parents=True)
    (package / "energy_uj").write_text("0", encoding="ascii")
    (package / "max_energy_range_uj").write_text("262143328850", encoding="ascii")
    monkeypatch.setattr(energy, "POWERCAP", package.parent)

    @contextmanager
    def progress(label: str, total: int | None, unit: str) -> Iterator[Bar]:
        count = int((package / "energy_uj").read_text(encoding="ascii"))
        (package / "energy_uj").write_text(str(count + 36_000_000), encoding="ascii")  # 36 J for each bar
        with silent(label, total, unit) as bar:
            yield bar

    found = described(tmp_path, "engine.carbon_intensity=400", progress=progress)
    metrics = json.loads((tmp_path / "results/lexical/metrics.json").read_text(encoding="utf-8"))
    joules = sum(stage["energy_joules"] for stage in metrics["stages"] if stage["seconds"] is not None)
    assert joules >= 36
    assert joules % 36 == 0
    assert found["resources"]["cpu"] == {"energy used system": f"{joules:.1f} J"}
    assert found["resources"]["co2"] == f"{joules / 3.6e6 * 400:.3g} g"
    again = described(tmp_path)  # the same energy, of the run that computed the stages
    assert again["resources"]["cpu"] == found["resources"]["cpu"]
    assert "co2" not in again["resources"]


def test_a_fusion_that_is_reranked_names_what_each_stage_takes(tmp_path: Path) -> None:
    from pipeline.config import Config
    from pipeline.results.ir_metadata import ir_metadata
    from pipeline.results.records import Manifest, Metrics

    config = Config.model_validate(
        {
            "name": "joined",
            "data": {"source": "beir", "path": str(tmp_path / "trec-covid")},
            "fuse": {"of": [{"model": {"backend": "bm25"}}, {"model": {"name": "all-minilm-l6-v2"}}]},
            "rerank": {"name": "cross", "depth": 50},
        }
    )
    metrics = Metrics.model_validate(
        {"name": "joined", "queries": 1, "passages": 2, "metrics": {"mrr": 1.0}, "stages": ()}
    )
    manifest = Manifest.model_validate({"config": config.model_dump(mode="json"), "recipes": {"data": {}}})
    stages = yaml.safe_load(ir_metadata(config, metrics, manifest))["method"]["retrieval"]
    assert [stage["name"] for stage in stages] == ["bm25", "all-minilm-l6-v2", "fusion", "cross"]
    assert stages[2]["interpolates"] == ["bm25", "all-minilm-l6-v2"]
    assert (stages[3]["reranks"], stages[3]["depth"]) == ("fusion", 50)

"""One pass of a model for several outputs: as many texts as for one, and the bytes of each made alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.api import run_benchmarks
from pipeline.config import Config
from pipeline.config.sweep import load_configs
from pipeline.encoders.native.backend import NativeBackend
from pipeline.encoders.native.outputs import NativeM3Backend
from pipeline.encoders.native.running import NativeSeveralOutputs
from pipeline.storage.cache import cache_entries
from pipeline.storage.store import Store

OUTPUTS = ("dense", "sparse", "multivector")
CONFIG = """
name: t
data: {source: sample, corpus: 20, queries: 4}
model: {backend: flag, name: ./bge-m3, passage_max_length: 64}
search: {top_k: 10}
evaluate: {measures: [ndcg@10]}
sweep: {model.output: [OUTPUTS]}
"""
Run = Callable[..., dict[tuple[str, str], Any]]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of texts of each batch that the network computes."""
    from transformers import XLMRobertaModel

    found: list[int] = []
    original = XLMRobertaModel.forward

    def counted(self: Any, *args: Any, **inputs: Any) -> Any:
        found.append(len(inputs["input_ids"]))
        return original(self, *args, **inputs)

    monkeypatch.setattr(XLMRobertaModel, "forward", counted)
    return found


@pytest.fixture
def configs(tmp_path: Path, m3_folder: Path) -> Callable[..., list[Config]]:
    """Configs of some outputs, with settings."""
    (tmp_path / "bge-m3").symlink_to(m3_folder)

    def load(outputs: Sequence[str], *settings: str, cache: str = "cache") -> list[Config]:
        (tmp_path / "c.yaml").write_text(CONFIG.replace("OUTPUTS", ", ".join(outputs)), encoding="utf-8")
        places = [f"cache={tmp_path / cache}", f"output={tmp_path / 'results'}"]
        return load_configs(tmp_path / "c.yaml", [*places, *settings])

    return load


def run(configs: list[Config], **settings: Any) -> dict[tuple[str, str], Any]:
    """Run benchmarks; the artifacts of their cache, by stage and key, as checksums of their files."""
    for outcome in run_benchmarks(configs, **settings):
        assert outcome.error is None, outcome.error
    entries = cache_entries(Path(configs[0].cache))
    return {(kept.stage, kept.key): kept.manifest["files"] for kept in entries if kept.manifest}


@pytest.mark.parametrize("order", [OUTPUTS, ("multivector", "sparse", "dense")])
def test_a_sweep_over_outputs_encodes_each_text_once(
    configs: Callable[..., list[Config]], encoded: list[int], order: Sequence[str]
) -> None:
    together = run(configs(order))
    texts = sum(encoded)
    alone: dict[tuple[str, str], Any] = {}
    for number, output in enumerate(OUTPUTS):
        alone |= run(configs([output], cache=f"alone-{number}"))
    assert sum(encoded) == 4 * texts
    assert together == alone


@pytest.mark.usefixtures("quick_conversion")
def test_in_int16_too_outputs_of_one_pass_have_the_bytes_of_each_made_alone(
    configs: Callable[..., list[Config]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    for kind in (NativeBackend, NativeM3Backend, NativeSeveralOutputs):

        def compute(self: Any, batch: Any, original: Any = kind.compute) -> Any:
            counted.append(len(batch.rows))
            return original(self, batch)

        monkeypatch.setattr(kind, "compute", compute)
    native = "model.backend=native"
    alone: dict[tuple[str, str], Any] = {}
    for output in OUTPUTS:
        alone |= run(configs([output], native, cache=f"alone-{output}"))
    texts = sum(counted)
    for order in (OUTPUTS, OUTPUTS[::-1]):
        together = run(configs(order, native, cache=f"{order[0]}-first"))
        kept = {key: files for key, files in alone.items() if key[0] != "native"}
        assert {key: files for key, files in together.items() if key[0] != "native"} == kept
    assert sum(counted) == texts + 2 * texts // 3


def test_afresh_each_text_is_encoded_once(configs: Callable[..., list[Config]], encoded: list[int]) -> None:
    before = run(configs(OUTPUTS))
    texts = sum(encoded)
    assert run(configs(OUTPUTS), fresh=True) == before
    assert sum(encoded) == 2 * texts


def test_of_a_larger_corpus_the_new_texts_are_encoded_once_for_all_outputs(
    configs: Callable[..., list[Config]], encoded: list[int]
) -> None:
    run(configs(OUTPUTS))
    texts = sum(encoded)
    grown = run(configs(OUTPUTS, "data.corpus=60"))
    more = sum(encoded) - texts
    assert (texts, more) == (23 + 4, 60 - 23)
    assert run(configs(OUTPUTS, "data.corpus=60")) == grown
    assert sum(encoded) == texts + more


def test_a_fusion_of_outputs_encodes_each_text_once(
    configs: Callable[..., list[Config]], encoded: list[int], tmp_path: Path
) -> None:
    alone = run(configs(["dense"], cache="alone"))
    texts = sum(encoded)
    configs(OUTPUTS)
    part = "{model: {backend: flag, name: ./bge-m3, passage_max_length: 64, output: OUTPUT}}"
    parts = ", ".join(part.replace("OUTPUT", output) for output in OUTPUTS)
    shared = [line for line in CONFIG.splitlines() if not line.startswith(("model:", "sweep:"))]
    (tmp_path / "f.yaml").write_text("\n".join([*shared, f"fuse: {{of: [{parts}]}}"]), encoding="utf-8")
    fused = run(load_configs(tmp_path / "f.yaml", [f"cache={tmp_path}/f", f"output={tmp_path}/f-results"]))
    assert sum(encoded) == 2 * texts
    assert {key: fused.get(key) for key in alone if key[0] != "evaluate"} == {
        key: files for key, files in alone.items() if key[0] != "evaluate"
    }


def test_what_another_process_makes_is_left_to_it(
    configs: Callable[..., list[Config]], encoded: list[int]
) -> None:
    first, second = configs(OUTPUTS[:2])
    outcomes = run_benchmarks([first, second])
    sparse = _recipe(second)
    with Store(Path(second.cache)).begin(sparse) as draft:
        assert draft is not None
        assert next(outcomes).error is None
        assert draft.whole == {}
        assert not list(draft.folder.glob("rows-*"))
    texts = sum(encoded)
    assert next(outcomes).error is None
    assert sum(encoded) > texts


def _recipe(config: Config) -> Any:
    from pipeline.runner import Benchmark

    return Benchmark(config, Store(Path(config.cache))).recipe("passages")

"""A benchmark whose passages are judged by answers."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from pipeline.api import run_benchmark
from pipeline.comparison.pool import pool
from pipeline.comparison.side_by_side import compare
from pipeline.config import BACKENDS, SOURCES, Config, EvaluateConfig, SearchConfig
from pipeline.core.errors import InputError
from pipeline.report.page.queries import read_query_data
from pipeline.results.folder import read_result

TEXTS = ["An owl is a bird of the night.", "Rain falls on owls.", "Tea, 1.5 cups.", "Of birds: a Tawny Owl!"]
QUESTIONS = {"1": ("which bird of the night", ["tawny owl", "Kauz"]), "2": ("cups of tea", ["1.5 cups"]),
             "3": ("rain falls", ["snow"])}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "nq/corpus").mkdir(parents=True)
    ids = [f"d{row}" for row in range(len(TEXTS))]
    table = pa.table({"_id": ids, "title": [""] * len(ids), "text": TEXTS})
    pa.parquet.write_table(table, tmp_path / "nq/corpus/corpus-0.parquet")
    (tmp_path / "mkqa").mkdir()
    with zipfile.ZipFile(tmp_path / "mkqa/MKQA_test-data.zip", "w") as archive:
        lines = [json.dumps({"id": name, "question": q, "answers": a}) for name, (q, a) in QUESTIONS.items()]
        archive.writestr("en.jsonl", "\n".join(lines))
    return Config(
        name="t",
        data=SOURCES.make(
            source="mkqa", language="en", path=str(tmp_path / "mkqa"), corpus_path=str(tmp_path / "nq")
        ),
        model=BACKENDS.make(backend="bm25"),
        search=SearchConfig(top_k=4),
        evaluate=EvaluateConfig(measures=("success@1", "success@4", "mrr@4")),
        cache=str(tmp_path / "indexes"),
    )


def test_retrieved_passages_are_judged_by_answers(config: Config, tmp_path: Path) -> None:
    folder = run_benchmark(config, output=tmp_path / "out").folder
    result = read_result(folder)
    by_query = dict(zip(result.query_ids, result.values.tolist(), strict=True))
    assert by_query["2"] == [1, 1, 1]
    assert by_query["3"] == [0, 0, 0]  # nothing has the answer: the question counts
    run = [line.split()[2] for line in (folder / "run.trec").read_text().splitlines() if line[0] == "1"]
    assert by_query["1"] == [0, 1, 1 / (1 + run.index("d3"))]
    data = read_query_data(compare([folder], "success@4"))
    assert data.details[0] is not None
    assert data.details[0].curves["success"][-1] == pytest.approx(2 / 3)
    assert data.details[0].queries["2"].top[0].grade == 1
    with pytest.raises(InputError, match="are judged by the answers that they contain"):
        pool([result], depth=4)


def test_measures_of_all_relevant_passages_are_refused_before_anything_is_read(config: Config) -> None:
    default = config.model_copy(update={"evaluate": EvaluateConfig(), "search": SearchConfig()})
    with pytest.raises(InputError, match=r"ndcg@10, recall@100, map@1000 compare with all relevant"):
        run_benchmark(default)
    assert not Path(config.cache, "data").exists()

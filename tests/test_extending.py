"""What other packages add: by entry points, once they are installed, and measures by a program itself."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from workplaces import hits, process, read_json

from pipeline import InputError, compare, evaluate, register_measure, run_benchmark
from pipeline.metrics import MEASURES, Definition, Parameter
from pipeline.results import Result, read_result
from pipeline.studies.export import write_mteb
from pipeline.studies.verify import verify

TOY = Path(__file__).parent / "toy_package"
CONFIG = """
name: toy
data: {source: toy}
search: {top_k: 3}
evaluate: {measures: [mrr@2, hits@2]}
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the toy package is installed into."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(TOY, folder / "source")
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
    process(folder, "-m", "pip", "install", *offline, "--target", str(folder / "site"), str(source))
    return folder / "site"


@pytest.fixture
def benchmarco(fork: Callable[..., Any], installed: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs a command where the toy package is installed, with the config `c.yaml`."""
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    known = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(installed)}

    def run(*words: str, code: int = 0, module: str = "pipeline") -> Any:
        done = fork(module, *words, environment=known, folder=tmp_path)
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def started(benchmarco: Callable[..., Any]) -> Callable[..., Any]:
    """The same with the package imported anew, as studies are read where the command line is imported."""
    return partial(benchmarco, module="anew")


def stages(folder: Path) -> dict[str, bool]:
    """Whether each stage of a result was reused."""
    return {stage["stage"]: stage["reused"] for stage in read_json(folder / "metrics.json")["stages"]}


@pytest.mark.parametrize(
    "model", ['{"backend": "bag", "name": "all-minilm-l6-v2"}', '{"backend": "common-words"}']
)
def test_the_command_line_finds_what_an_installed_package_adds(
    benchmarco: Callable[..., Any], tmp_path: Path, model: str
) -> None:
    run = ("run", "c.yaml", "--set", f"model={model}", "--output", str(tmp_path / "results"))
    benchmarco(*run)
    folder = tmp_path / "results" / "toy"
    record = read_json(folder / "metrics.json")
    assert record["metrics"] == {"mrr@2": 1.0, "hits@2": 1.0}
    benchmarco(*run)
    assert [name for name, reused in stages(folder).items() if not reused] == ["evaluate"]
    benchmarco(*run, "--set", "data.upper=true")
    assert not any(stages(folder).values())


NEXT = {
    "source": ("red apples grow", "no fruits grow"),
    "backend": ("% self.dimension, 1)", "% 7, 1)"),
    "kind": ("len(query & passage)", "-len(query & passage)"),
    "reranker": ("-len(passage)", "len(passage)"),
}
"""What the next version of the toy package changes in each thing that it adds."""


@pytest.mark.parametrize("what", NEXT)
@pytest.mark.parametrize("version", ["2.0", "1.0"])
def test_what_another_version_of_a_package_computes_is_not_taken_for_this_one_s(
    fork: Callable[..., Any], installed: Path, tmp_path: Path, what: str, version: str
) -> None:
    """Also where only the files have changed, as in an editable install."""
    model = (
        "{backend: common-words}"
        if what in ("kind", "reranker")
        else "{backend: bag, name: all-minilm-l6-v2}"
    )
    sets = [f"model={model}"]
    if what == "reranker":
        sets.append("rerank={backend: shortest, name: all-minilm-l6-v2, depth: 3}")
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    site = Path(shutil.copytree(installed, tmp_path / "site"))

    def run(cache: str) -> tuple[dict[str, Any], list[tuple[str, str, float]]]:
        words = [word for setting in (*sets, f"cache={cache}") for word in ("--set", setting)]
        known = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(site)}
        done = fork("pipeline", "run", "c.yaml", *words, environment=known, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        folder = tmp_path / "results" / "toy"
        return read_json(folder / "manifest.json"), hits(folder)

    manifest, before = run("indexes")
    assert manifest["versions"]["toy-package"] == "1.0"
    old, new = NEXT[what]
    code = (site / "toy.py").read_text(encoding="utf-8")
    assert old in code
    (site / "toy.py").write_text(code.replace(old, new), encoding="utf-8")
    (described,) = site.glob("*.dist-info/METADATA")
    described.write_text(described.read_text().replace("\nVersion: 1.0", f"\nVersion: {version}"))
    manifest, after = run("indexes")
    assert manifest["versions"]["toy-package"] == version
    assert after != before
    assert after == run("fresh")[1]


PROGRAM = """
import toy, yaml
from pipeline import run_benchmark
from pipeline.config import BACKENDS
from pipeline.config.model import Bm25Settings
from typing import Literal

class Settings(toy.CommonWordsSettings, Bm25Settings):  # which do not make it BM25
    backend: Literal["mine"] = toy.ModelSettings.narrowed("backend")

class Mine(toy.CommonWords):
    def search(self, inputs, draft, context):
        facts = super().search(inputs, draft, context)
        return {**facts, "sign": SIGN}

SIGN = 1
BACKENDS.register(Settings, Mine)
with open("c.yaml") as file:
    result = run_benchmark({**yaml.safe_load(file), "model": {"backend": "mine"}})
print(*result.reused)
"""


def test_what_a_changed_program_registers_is_computed_again(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    path = ":".join([str(installed), *filter(None, sys.path)])

    def reused(program: str) -> list[str]:
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        said: str = process(tmp_path, sys.executable, "program.py", code=0, PYTHONPATH=path).stdout
        return said.split()

    assert reused(PROGRAM) == []
    assert reused(PROGRAM) == ["data", "search"]
    assert "search" not in reused(PROGRAM.replace("SIGN = 1", "SIGN = 2"))


def test_its_reranker_study_and_settings_are_known(started: Callable[..., Any], tmp_path: Path) -> None:
    run = ("run", "c.yaml", "--set", "model={backend: common-words}", "--output", str(tmp_path / "results"))
    run += ("--set", "rerank={backend: shortest, name: all-minilm-l6-v2, depth: 3}")
    started(*run)
    folder = tmp_path / "results" / "toy"
    assert [passage for _, passage, _ in hits(folder)[:3]] == ["p2", "p1", "p3"]
    assert started("best", str(folder)).stdout.split() == ["hits@2"]
    started(*run, "--set", "best.least=0.5")
    assert started("best", str(folder)).stdout.split() == ["mrr@2", "hits@2"]
    assert "'best.least' is 'high'" in started(*run, "--set", "best.least=high", code=2).stderr
    said = started(*run, "--set", "data.uper=true", code=2).stderr
    assert "unknown key 'data.uper'" in said


def test_one_that_cannot_be_used_is_named_and_stops_nothing(
    started: Callable[..., Any], tmp_path: Path
) -> None:
    said = started("run", "c.yaml", "--set", "model={backend: common-words}").stderr
    assert "source 'absent' of toy-package 1.0 is not used: ModuleNotFoundError: No module named" in said
    assert "backend 'other-name' of toy-package 1.0 is not used: its settings have another name" in said
    assert "study 'gate' of toy-package 1.0 is not used" in said
    assert said.count("is not used") == 5
    rows = json.loads(started("doctor", "--json").stdout)["plugins"]
    states = {(row["kind"], row["name"]): row["state"] for row in rows}
    assert states["source", "toy"] == states["kind", "common-words"] == states["measure", "hits"] == "loaded"
    assert "No module named" in states["source", "absent"]
    assert "is a measure of benchmarco" in states["measure", "ndcg"]
    assert "toy-package 1.0" in started("doctor").stdout


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Runs sections."""
    places = {"cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results")}
    return lambda **sections: run_benchmark({"name": "t", **places, **sections})


def test_a_measure_of_a_program_is_computed_anew_by_each_and_compared(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES, "hits", Definition(len, added="here"))  # is removed in the end

    def hits(judged: Any, cutoffs: Any, rel: int) -> Any:
        return judged.found.relevant(rel).total(cutoffs)

    def twice(judged: Any, cutoffs: Any, rel: int) -> Any:
        return 2 * hits(judged, cutoffs, rel)

    sections = {
        "data": {"source": "sample", "queries": 30}, "search": {"top_k": 10},
        "evaluate": {"measures": ["hits@10", "precision@10", "hits(rel=2)@10"]},
    }  # fmt: skip
    remade = []
    for function in (hits, None, twice):  # the second time nothing is registered again
        if function:
            register_measure("hits", function, parameters=["rel"], highest=20)
        result = run(**sections, model={"backend": "bm25"})
        means = result.record.metrics
        times = 2 if function is twice else 1
        assert means["hits@10"] == pytest.approx(10 * times * means["precision@10"], rel=1e-12)
        assert means["hits(rel=2)@10"] < means["hits@10"]
        remade.append("evaluate" not in result.reused)
    assert remade == [True, False, True]
    words = run(**sections, name="other", model={"backend": "bm25", "k1": 2.0})
    pair = compare([result, words], "hits@10").pairs[0]
    assert pair.difference == pytest.approx(means["hits@10"] - words.record.metrics["hits@10"])
    for name in ("ndcg", "rr", "Hits", "p@10"):
        with pytest.raises(InputError, match="another name"):
            register_measure(name, hits)
    with pytest.raises(InputError, match="parameter 'alpha' of measure 'hits'"):
        register_measure("hits", hits, parameters=["alpha"])


def test_a_measure_is_one_entry_and_is_used_everywhere(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MEASURES, "mean_grade", Definition(len, added="here"))  # is removed in the end

    def mean_grade(judged: Any, cutoffs: Any, least: int) -> Any:
        cells = judged.found.relevant(least)
        return cells.total(cutoffs, cells.grades) / cutoffs

    register_measure(
        "mean_grade", mean_grade, parameters=[Parameter("least", range(1, 10))], highest=3,
        mteb="mean_grade", aliases=("mg",), additive=True,
    )  # fmt: skip
    qrels, ties = {"q": {"a": 3, "b": 1}}, {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    scored = evaluate(qrels, ties, "MG@1,mean_grade(least=2)@2")
    assert scored.mean_by_measure == {"mean_grade@1": 0, "mean_grade(least=2)@2": 0}  # c, b, a
    assert scored.ties.queries == 1
    sections = {
        "data": {"source": "sample"}, "evaluate": {"measures": ["mean_grade@10", "mrr"]},
        "model": {"backend": "bm25"},
    }  # fmt: skip
    result = run(**sections)
    mean = result.record.metrics["mean_grade@10"]
    compared = compare([result, run(**sections, name="other")], "mean_grade@10")
    assert compared.pairs[0].difference == 0
    (file,) = write_mteb(read_result(result.folder).collections, tmp_path / "mteb")
    assert read_json(file)["scores"]["test"][0]["mean_grade_at_10"] == mean
    verified = verify([result.folder], expected=[file])
    assert [(each.measure, each.verdict) for each in verified.cells][:1] == [("mean_grade@10", "reproduced")]

